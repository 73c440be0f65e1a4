"""DiffPuter as published: EM with score matching and many merged draws."""

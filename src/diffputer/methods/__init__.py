"""Every other imputer, and DiffPuter itself, behind one small contract: see ``contract`` and ``table``."""

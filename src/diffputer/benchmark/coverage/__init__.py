"""Do pooled 95 % intervals hold the truth 95 % of the time? A simulation with known truths."""

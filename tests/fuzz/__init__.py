"""Seeded fuzzers of tables, CSV texts and model files: ``python -m tests.fuzz --help``."""

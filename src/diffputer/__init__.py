"""diffputer: fill in the missing values of a table."""

__version__ = "0.1.0"

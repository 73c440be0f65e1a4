"""Models of incomplete rows."""

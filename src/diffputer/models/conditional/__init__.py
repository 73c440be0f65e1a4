"""The default engine: masked diffusion; every column is a distribution over its support."""

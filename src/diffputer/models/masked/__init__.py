"""Masked diffusion: experts that predict any cells from any others, pooled, calibrated and sampled."""

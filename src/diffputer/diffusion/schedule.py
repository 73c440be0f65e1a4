"""Noise levels and the preconditioning of the network, shared by both engines.

The network F is wrapped as in Karras et al. (2022), Table 1, for data of deviation sigma_data:

    D(x; sigma) = c_skip x + c_out F(c_in x; c_noise)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def noise_levels(steps: int, sigma_min: float, sigma_max: float, exponent: float) -> Tensor:
    """Give the M + 1 descending noise levels t_M = T, ..., t_0 = 0 of the reverse process.

    The first M are evenly spaced in sigma^(1/rho).

    NOTE[paper]: the spacing is not stated in the paper; this is the authors' (Karras et al. 2022, Eq. 5).

    Examples
    --------
    >>> [round(float(level), 3) for level in noise_levels(3, 0.002, 80.0, 7.0)]
    [80.0, 2.515, 0.002, 0.0]
    """
    ramp = torch.linspace(0, 1, steps, dtype=torch.float64)
    low, high = sigma_min ** (1 / exponent), sigma_max ** (1 / exponent)
    return torch.cat([(high + ramp * (low - high)) ** exponent, torch.zeros(1, dtype=torch.float64)])


def scalings(sigma: Tensor, sigma_data: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give c_skip, c_out, c_in, c_noise; elementwise in sigma."""
    total = sigma**2 + sigma_data**2
    return sigma_data**2 / total, sigma * sigma_data / total.sqrt(), total.rsqrt(), sigma.log() / 4


def stratified_noise(n: int, log_mean: float, log_deviation: float) -> Tensor:
    """Give n noise levels at evenly spaced quantiles of the training distribution.

    Shape: -> [n].
    """
    quantiles = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    z = math.sqrt(2) * torch.erfinv(2 * quantiles - 1)
    return torch.exp(log_mean + log_deviation * z).float()

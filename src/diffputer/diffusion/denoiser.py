"""The equations of the diffusion: noise levels, preconditioning, score and loss.

Forward process (paper, Eq. forward): x_t = x_0 + sigma(t) eps with sigma(t) = t, so t and sigma are one.
The network F_theta is wrapped as in Karras et al. (2022), Table 1:

    D_theta(x; sigma) = c_skip x + c_out F_theta(c_in x; c_noise)

D_theta estimates E[x_0 | x_t = x], and the score is (D_theta(x; sigma) - x) / sigma^2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .network import DenoisingMLP


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


class Denoiser(nn.Module):
    """D_theta: the network with its preconditioning.

    Shape: x [b, d], sigma [b] -> [b, d].
    """

    def __init__(self, n_columns: int, hidden_width: int, sigma_data: float) -> None:
        super().__init__()
        self.sigma_data = sigma_data
        self.network = DenoisingMLP(n_columns, hidden_width)

    def scalings(self, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Give c_skip, c_out, c_in, c_noise; elementwise in sigma."""
        total = sigma**2 + self.sigma_data**2
        return (
            self.sigma_data**2 / total,
            sigma * self.sigma_data / total.sqrt(),
            total.rsqrt(),
            sigma.log() / 4,
        )

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        c_skip, c_out, c_in, c_noise = (c[:, None] for c in self.scalings(sigma))
        result: Tensor = c_skip * x + c_out * self.network(c_in * x, c_noise[:, 0]).float()
        return result

    def score(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Estimate grad log p(x_t) (paper, Eq. reverse)."""
        score: Tensor = (self(x, sigma) - x) / (sigma**2)[:, None]
        return score

    def errors(self, x_0: Tensor, eps: Tensor, sigma: Tensor) -> Tensor:
        """Give the weighted squared error of every cell, lambda(sigma) (D_theta(x_0 + sigma eps) - x_0)^2.

        lambda = (sigma^2 + sd^2) / (sigma sd)^2 = 1 / c_out^2, so that it equals the squared error of
        F_theta against (x_0 - c_skip x_t) / c_out, which is how it is computed: no large number times
        a small one.

        NOTE[paper]: Algorithm 1 weights all sigma alike and leaves p(t) open; its tables were made with
        this weight and ln sigma normal.

        Shape: x_0, eps [b, d], sigma [b] -> [b, d].
        """
        c_skip, c_out, c_in, c_noise = (c[:, None] for c in self.scalings(sigma))
        x_t = x_0 + sigma[:, None] * eps
        target = (x_0 - c_skip * x_t) / c_out
        errors: Tensor = (self.network(c_in * x_t, c_noise[:, 0]).float() - target) ** 2
        return errors


def stratified_noise(n: int, log_mean: float, log_deviation: float) -> Tensor:
    """Give n noise levels at evenly spaced quantiles of the training distribution.

    Shape: -> [n].
    """
    quantiles = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    z = math.sqrt(2) * torch.erfinv(2 * quantiles - 1)
    return torch.exp(log_mean + log_deviation * z).float()

"""The paper's denoiser: preconditioned network, score and loss.

Forward process (paper, Eq. forward): x_t = x_0 + sigma(t) eps with sigma(t) = t, so t and sigma are one.
D_theta(x; sigma) = c_skip x + c_out F_theta(c_in x; c_noise), with the coefficients of schedule.py,
estimates E[x_0 | x_t = x], and the score is (D_theta(x; sigma) - x) / sigma^2.
"""

from __future__ import annotations

from torch import Tensor, nn

from .network import DenoisingMLP
from .schedule import scalings


class Denoiser(nn.Module):
    """D_theta: the network with its preconditioning.

    Shape: x [b, d], sigma [b] -> [b, d].
    """

    def __init__(self, n_columns: int, hidden_width: int, sigma_data: float) -> None:
        super().__init__()
        self.sigma_data = sigma_data
        self.network = DenoisingMLP(n_columns, hidden_width)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        c_skip, c_out, c_in, c_noise = (c[:, None] for c in scalings(sigma, self.sigma_data))
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
        c_skip, c_out, c_in, c_noise = (c[:, None] for c in scalings(sigma, self.sigma_data))
        x_t = x_0 + sigma[:, None] * eps
        target = (x_0 - c_skip * x_t) / c_out
        errors: Tensor = (self.network(c_in * x_t, c_noise[:, 0]).float() - target) ** 2
        return errors

"""The paper's denoiser: network, preconditioning, score and loss.

Forward process (paper, Eq. forward): x_t = x_0 + sigma(t) eps with sigma(t) = t, so t and sigma are one. The
network F_theta, a five-layer MLP to which an embedding of the noise level is added, is wrapped as in Karras
et al. (2022), Table 1, for data of standard deviation sigma_data:

    D_theta(x; sigma) = c_skip x + c_out F_theta(c_in x; c_noise)

It estimates E[x_0 | x_t = x], and the score is (D_theta(x; sigma) - x) / sigma^2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from ...nn.layers import silu


def noise_levels(steps: int, sigma_min: float, sigma_max: float, exponent: float) -> Tensor:
    """The M + 1 descending noise levels t_M = T, ..., t_0 = 0 of the reverse process.

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
    """c_skip, c_out, c_in, c_noise; elementwise in sigma."""
    total = sigma**2 + sigma_data**2
    return sigma_data**2 / total, sigma * sigma_data / total.sqrt(), total.rsqrt(), sigma.log() / 4


def stratified_noise(n: int, log_mean: float, log_deviation: float) -> Tensor:
    """n noise levels at evenly spaced quantiles of the training distribution.

    Shape: -> [n].
    """
    quantiles = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    z = math.sqrt(2) * torch.erfinv(2 * quantiles - 1)
    return torch.exp(log_mean + log_deviation * z).float()


def _linear(n_in: int, n_out: int) -> nn.Linear:
    """A layer whose weights are yet to be drawn, on the default device."""
    layer: nn.Linear = skip_init(nn.Linear, n_in, n_out, device=torch.empty(0).device)
    return layer


class NoiseEmbedding(nn.Module):
    """Sinusoids of the noise label, passed through a small MLP.

    NOTE[paper]: the paper adds the sinusoids themselves; the authors' code, which made its tables,
    passes them through two linear layers first, and so do we.

    Shape: labels [b] -> [b, width].
    """

    frequencies: Tensor

    def __init__(self, width: int, max_period: float = 10_000.0) -> None:
        super().__init__()
        half = width // 2
        frequencies = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.inner = _linear(2 * half, width)
        self.outer = _linear(width, width)

    def forward(self, labels: Tensor) -> Tensor:
        angles = labels.to(torch.float32)[:, None] * self.frequencies[None, :]
        waves = torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)
        result: Tensor = self.outer(F.silu(self.inner(waves)))
        return result


class DenoisingMLP(nn.Module):
    """F_theta: FC_in, three hidden layers of width 2h, 2h, h with SiLU, FC_out (paper, App. D).

    Shape: x [b, d], labels [b] -> [b, d].
    """

    def __init__(self, n_columns: int, hidden_width: int) -> None:
        super().__init__()
        h = hidden_width
        self.embedding = NoiseEmbedding(h)
        # Weights are drawn by reset alone: torch's own initialisation would use the global generator.
        self.fc_in = _linear(n_columns, h)
        self.fc_1 = _linear(h, 2 * h)
        self.fc_2 = _linear(2 * h, 2 * h)
        self.fc_3 = _linear(2 * h, h)
        self.fc_out = _linear(h, n_columns)
        self.reset(torch.Generator().manual_seed(0))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.from_embedding(x, self.embedding(labels))

    def from_embedding(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Evaluate with a known noise embedding, of which one serves a whole batch of one sigma.

        Shape: x [b, d], embedding [b, h] or [h] -> [b, d].
        """
        if embedding.ndim == 1:
            # A single embedding is part of the bias: one pass over memory less.
            h = F.linear(x, self.fc_in.weight, self.fc_in.bias + embedding.to(x.dtype))
        else:
            h = self.fc_in(x) + embedding.to(x.dtype)
        for layer in (self.fc_1, self.fc_2, self.fc_3):
            h = silu(layer(h))
        result: Tensor = self.fc_out(h)
        return result

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights: uniform in 1/sqrt(fan-in), torch's own rule for linear layers."""
        if self.fc_in.weight.is_meta:  # made for its shapes only
            return
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = 1.0 / math.sqrt(module.in_features)
                for parameter in (module.weight, module.bias):
                    # Drawn on the CPU, so that every device starts from the same network.
                    values = torch.rand(parameter.shape, generator=generator) * (2 * bound) - bound
                    parameter.copy_(values.to(parameter.device))


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

    def errors(self, x_0: Tensor, eps: Tensor, sigma: Tensor) -> Tensor:
        """The weighted squared error of every cell, lambda(sigma) (D_theta(x_0 + sigma eps) - x_0)^2.

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

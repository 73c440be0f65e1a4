"""The denoising network of the paper: a five-layer MLP with an embedding of the noise level added."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from .backbones import silu


def _linear(n_in: int, n_out: int) -> nn.Linear:
    """Make a layer without drawing weights, on the default device."""
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
        """Evaluate with the noise embedding already known: one vector serves a whole batch of one sigma.

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

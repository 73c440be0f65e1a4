"""Networks over the columns of a row: a residual MLP and attention between columns, several members at once.

E members of an ensemble have weights of their own and are evaluated together: every linear layer is one
batched product. Both backbones take the features of every column and give every column its outputs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MemberLinear(nn.Module):
    """E linear layers side by side.

    Shape: x [E, n, i] -> [E, n, o].
    """

    def __init__(self, members: int, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(members, 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias.to(x.dtype), x, self.weight.to(x.dtype))

    @torch.no_grad()
    def reset(self, generator: torch.Generator, gain: float = 1.0) -> None:
        """Draw weights uniform in 1/sqrt(fan-in), times a gain; biases start at zero."""
        bound = gain / math.sqrt(self.weight.shape[1])
        values = torch.rand(self.weight.shape, generator=generator) * (2 * bound) - bound
        self.weight.copy_(values.to(self.weight.device))
        self.bias.zero_()


class Dropout(nn.Module):
    """Sets a share of the inputs to zero in training; draws from a generator of its own.

    Shape: any -> the same.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        kept = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.share
        return x * kept / (1 - self.share)


class MemberNorm(nn.Module):
    """Layer normalisation with a scale for each member.

    Shape: x [E, n, h] -> the same.
    """

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, 1, width))
        self.shift = nn.Parameter(torch.zeros(members, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x, x.shape[-1:])
        return normal * self.scale.to(x.dtype) + self.shift.to(x.dtype)


class ResidualMLP(nn.Module):
    """h <- h + W_2 drop(silu(W_1 norm(h))), a few times.

    Shape: features [E, n, i], noise [E, n, h] -> [E, n, h].
    """

    def __init__(self, members: int, n_in: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.entry = MemberLinear(members, n_in, width)
        self.norms = nn.ModuleList(MemberNorm(members, width) for _ in range(depth))
        self.inner = nn.ModuleList(MemberLinear(members, width, width) for _ in range(depth))
        self.outer = nn.ModuleList(MemberLinear(members, width, width) for _ in range(depth))
        self.last = MemberNorm(members, width)

    def forward(self, features: Tensor, noise: Tensor) -> Tensor:
        h = self.entry(features) + noise
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            step = self.dropout(F.silu(inner(norm(h))))
            h = h + outer(step)
        result: Tensor = F.silu(self.last(h))
        return result


class ColumnAttention(nn.Module):
    """Blocks of attention between columns and an MLP on each column.

    Shape: tokens [E, n, c, h] -> the same.
    """

    def __init__(self, members: int, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, Dropout(dropout)
        self.norms_1 = nn.ModuleList(MemberNorm(members, width) for _ in range(depth))
        self.qkv = nn.ModuleList(MemberLinear(members, width, 3 * width) for _ in range(depth))
        self.merge = nn.ModuleList(MemberLinear(members, width, width) for _ in range(depth))
        self.norms_2 = nn.ModuleList(MemberNorm(members, width) for _ in range(depth))
        self.inner = nn.ModuleList(MemberLinear(members, width, 2 * width) for _ in range(depth))
        self.outer = nn.ModuleList(MemberLinear(members, 2 * width, width) for _ in range(depth))
        self.last = MemberNorm(members, width)

    def forward(self, tokens: Tensor) -> Tensor:
        E, n, c, width = tokens.shape
        h = tokens.reshape(E, n * c, width)
        for k in range(len(self.qkv)):
            qkv = self.qkv[k](self.norms_1[k](h)).view(E * n, c, 3, self.heads, width // self.heads)
            q, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = F.scaled_dot_product_attention(q, key, value)
            h = h + self.merge[k](mixed.transpose(1, 2).reshape(E, n * c, width))
            step = self.dropout(F.silu(self.inner[k](self.norms_2[k](h))))
            h = h + self.outer[k](step)
        return F.silu(self.last(h)).view(E, n, c, width)

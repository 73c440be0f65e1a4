"""Networks over the columns of a row: a residual MLP and attention between columns, several members at once.

E members of an ensemble have weights of their own and are evaluated together: every linear layer is one
batched product. Both backbones take the features of every column and give every column its outputs.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

logger = logging.getLogger(__name__)

#: Columns that fit into one program of the CUDA kernel (kernels.py).
MOST_COLUMNS_AT_ONCE = 128
#: Widths at which a whole MLP block fits into one program of a kernel.
WIDTHS_AT_ONCE = (32, 64, 128)
#: Rows that the gradient of a weight sums over at least, in one of its parts.
ROWS_OF_A_SUM = 1024


class MemberLinear(nn.Module):
    """E linear layers side by side; computes in the precision of its input.

    Shape: x [E, n, i], plus or onto [E, n, o] -> plus (or onto, or the bias) + x W [E, n, o].
    """

    def __init__(self, members: int, n_in: int, n_out: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(members, 1, n_out)) if bias else None

    def forward(self, x: Tensor, plus: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        """The products; what they are added onto is not needed any more, and may be written over."""
        plus = self.bias.to(x.dtype) if self.bias is not None else plus if onto is None else onto
        overwrites = onto is not None and (not torch.is_grad_enabled() or (onto.is_cuda and has_kernels()))
        weight = self.weight.to(x.dtype)
        product: Tensor = _Product.apply(x, weight, plus, overwrites)  # type: ignore[no-untyped-call]
        return product

    @torch.no_grad()
    def reset(self, generator: torch.Generator, gain: float = 1.0) -> None:
        """Draw weights uniform in 1/sqrt(fan-in), times a gain; biases start at zero."""
        bound = gain / math.sqrt(self.weight.shape[1])
        values = torch.rand(self.weight.shape, generator=generator) * (2 * bound) - bound
        self.weight.copy_(values.to(self.weight.device))
        if self.bias is not None:
            self.bias.zero_()


class _Product(torch.autograd.Function):
    """plus + x W. The gradient of W sums over rows in parts, so that long sums fill a GPU.

    Shape: x [E, n, i], W [E, i, o], plus [E, n or 1, o] or None -> [E, n, o].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plus: Tensor | None, overwrites: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.plus_rows = None if plus is None else plus.shape[1]
        if plus is None:
            return torch.bmm(x, weight)
        return plus.detach().baddbmm_(x, weight) if overwrites else torch.baddbmm(plus, x, weight)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        E, n, i = x.shape
        parts = max((k for k in (1, 2, 4, 8) if n % k == 0 and n // k >= ROWS_OF_A_SUM), default=1)
        slope = slope.contiguous()
        x_parts, slope_parts = (t.view(E * parts, n // parts, -1) for t in (x, slope))
        d_weight = torch.bmm(x_parts.transpose(1, 2), slope_parts).view(E, parts, i, -1)
        d_plus = slope.sum(dim=1, keepdim=True) if ctx.plus_rows == 1 else slope
        return (
            torch.bmm(slope, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None,
            d_weight.sum(dim=1) if parts > 1 else d_weight[:, 0],
            d_plus if ctx.needs_input_grad[2] else None,
            None,
        )


class _ExactProduct(torch.autograd.Function):
    """x W in float32; gradients in the precision of x, which is enough for them.

    Shape: x [k, n, i], W [k, i, o] -> [k, n, o].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.bmm(x.float(), weight.float())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        slope = slope.to(x.dtype)
        d_weight = torch.bmm(x.transpose(1, 2), slope)
        return torch.bmm(slope, weight.to(x.dtype).transpose(1, 2)), d_weight.to(weight.dtype)


def exact_product(x: Tensor, weight: Tensor) -> Tensor:
    """x W in float32, whatever the precision of x: bfloat16 would round answers.

    Shape: x [k, n, i], W [k, i, o] -> [k, n, o].
    """
    product: Tensor = _ExactProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


def silu(x: Tensor) -> Tensor:
    """x / (1 + exp(-x)), written over x where no gradient needs it.

    On a CPU torch's own computes the last elements of a tensor, and of each thread's part of it, by other
    instructions, with other bits (measured: 8 of 682,000 cells on 7 threads). Division and ``exp`` do not.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return F.silu(x, inplace=not torch.is_grad_enabled())
    return x.div_(x.neg().exp_().add_(1))


class DroppedSilu(nn.Module):
    """silu with dropout, from a generator of its own; after training it is scaled by what training keeps."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        drops = self.training and self.share > 0
        scale = 1.0 if self.training else 1 - self.share
        if x.is_cuda and has_kernels():
            from . import kernels

            seed = None
            if drops:
                seed = torch.empty(1, dtype=torch.int32, device=x.device).random_(generator=self.generator)
            return kernels.activate(x.contiguous(), scale, self.share, seed)
        y = silu(x)
        if drops:
            return y * torch.empty_like(x).bernoulli_(1 - self.share, generator=self.generator)
        return y if scale == 1 else y * scale


def normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with mean zero and standard deviation one, and the rows themselves.

    The layer that follows has the scales. Blocks add to the row itself: a kernel sums both of its gradients.
    Shape: x [..., h] -> the same, twice.
    """
    if x.is_cuda and has_kernels():
        from . import kernels

        return kernels.normalise(x.contiguous())
    return F.layer_norm(x, x.shape[-1:]), x


def fits_kernels(h: Tensor, activate: DroppedSilu) -> bool:
    """Whether several layers can be one kernel: where nothing is trained, at widths that fit.

    Shape: h [E, n, w].
    """
    trained = torch.is_grad_enabled() or activate.training
    return h.is_cuda and h.shape[-1] in WIDTHS_AT_ONCE and not trained and has_kernels()


def _weight(layer: nn.Module, dtype: torch.dtype) -> Tensor:
    """The matrices of a layer without biases, as kernels take them."""
    (weight,) = layer.parameters()
    return weight.to(dtype).contiguous()


def project(h: Tensor, layer: nn.Module, activate: DroppedSilu) -> tuple[Tensor, Tensor]:
    """norm(h) W, and h itself.

    Shape: h [E, n, w] -> [E, n, o], [E, n, w].
    """
    if fits_kernels(h, activate):
        from . import kernels

        return kernels.project(h.contiguous(), _weight(layer, h.dtype)), h
    normal, h = normalise(h)
    return layer(normal), h


def apply_block(
    h: Tensor,
    inner: nn.Module,
    activate: DroppedSilu,
    outer: nn.Module,
    plus: tuple[Tensor, nn.Module] | None = None,
) -> Tensor:
    """h + W_2 drop(silu(W_1 norm(h))), of h + W y with plus = (y, W).

    h is written over where no gradient needs it.
    Shape: h, y [E, n, w] -> the same.
    """
    if fits_kernels(h, activate):
        from . import kernels

        first, second = _weight(inner, h.dtype), _weight(outer, h.dtype)
        added = plus and (plus[0].contiguous(), _weight(plus[1], h.dtype))
        return kernels.block(h.contiguous(), first, second, 1 - activate.share, added)
    if plus is not None:
        h = plus[1](plus[0], onto=h)
    normal, h = normalise(h)
    result: Tensor = outer(activate(inner(normal)), onto=h)
    return result


class ResidualMLP(nn.Module):
    """h <- h + W_2 drop(silu(W_1 norm(h))), a few times.

    Shape: features [E, n, i], noise [E, n, h] -> [E, n, h].
    """

    def __init__(self, members: int, n_in: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.activate = DroppedSilu(dropout)
        self.entry = MemberLinear(members, n_in, width)
        self.inner = nn.ModuleList(MemberLinear(members, width, width) for _ in range(depth))
        self.outer = nn.ModuleList(MemberLinear(members, width, width) for _ in range(depth))

    def forward(self, features: Tensor, noise: Tensor) -> Tensor:
        h = self.entry(features, plus=noise)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            h = apply_block(h, inner, self.activate, outer)
        return normalise(h)[0]


def attend(qkv: Tensor) -> Tensor:
    """Attention from every column of a row to every column.

    Shape: qkv [E, c, n, 3, heads, d] -> [E, c, n, heads * d].
    """
    if qkv.is_cuda and qkv.shape[1] <= MOST_COLUMNS_AT_ONCE and has_kernels():
        from . import kernels

        return kernels.attend(qkv)
    E, c, n, _, heads, d = qkv.shape
    q, k, v = qkv.permute(3, 0, 2, 4, 1, 5).flatten(1, 2).unbind(0)
    # Some of torch's kernels take no more than 65,535 rows at once.
    parts = zip(*(t.split(1 << 15) for t in (q, k, v)), strict=True)
    mixed = torch.cat([F.scaled_dot_product_attention(*part) for part in parts]).view(E, n, heads, c, d)
    return mixed.permute(0, 3, 1, 2, 4).reshape(E, c, n, heads * d)


@cache
def has_kernels() -> bool:
    """Whether the kernels can be used: Triton compiles them, which needs a C compiler, too."""
    if importlib.util.find_spec("triton") is None:
        return False
    from . import kernels

    try:
        kernels.try_out()
    except Exception as error:  # noqa: BLE001 - whatever keeps them from running, torch's own do as well
        logger.warning("Kernels for rows cannot be used, torch's slower ones are: %s", error)
        return False
    return True


class ColumnAttention(nn.Module):
    """Blocks of attention between columns and an MLP on each column; the tokens are written over.

    Shape: tokens [E, c, n, h] -> the same.
    """

    def __init__(self, members: int, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.activate = heads, DroppedSilu(dropout)

        def layers(n_in: int, n_out: int) -> nn.ModuleList:
            return nn.ModuleList(MemberLinear(members, n_in, n_out) for _ in range(depth))

        self.qkv, self.merge = layers(width, 3 * width), layers(width, width)
        self.inner, self.outer = layers(width, 2 * width), layers(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        E, c, n, width = tokens.shape
        h = tokens.reshape(E, c * n, width)
        for k in range(len(self.qkv)):
            qkv, h = project(h, self.qkv[k], self.activate)
            mixed = attend(qkv.view(E, c, n, 3, self.heads, width // self.heads)).reshape(E, c * n, width)
            h = apply_block(h, self.inner[k], self.activate, self.outer[k], plus=(mixed, self.merge[k]))
        return normalise(h)[0].view(E, c, n, width)

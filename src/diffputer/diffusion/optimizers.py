"""Steepest descent for matrices: an update whose singular values are all alike (Jordan et al. 2024, "Muon").

AdamW rescales every number of a gradient on its own; the gradient of a weight matrix, however, is dominated
by few directions, and the others hardly learn. Replacing the averaged gradient M = U S V^T by U V^T lets all
directions learn alike. U V^T comes from M by a few steps of an odd matrix polynomial (Newton-Schulz),

    X <- a X + b (X X^T) X + c (X X^T)^2 X,

which drives singular values towards one; matrices of the same shape are stacked and go through together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

#: a, b, c: chosen by Jordan et al. so that small singular values grow fastest; they end in [0.7, 1.2].
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_STEPS = 5


def orthogonalise(m: Tensor) -> Tensor:
    """Give U V^T of matrices U S V^T, roughly.

    Shape: m [k, i, o] -> the same.
    """
    a, b, c = _POLYNOMIAL
    x = m / (m.norm(dim=(1, 2), keepdim=True) + 1e-12)
    flipped = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if flipped else x
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(_STEPS):
        square = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    result: Tensor = (x.transpose(1, 2) if flipped else x).to(m.dtype)
    return result


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, for weights that are stacks of matrices; rates are as AdamW's.

    Shape: each parameter [E, i, o].
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Tensor,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                alike.setdefault(parameter.shape, []).append(parameter)
            group["alike"] = list(alike.values())

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step."""
        for group in self.param_groups:
            for parameters in group["alike"]:
                used = [p for p in parameters if p.grad is not None]
                if not used:
                    continue
                state = self.state[used[0]]
                slope = torch.cat([p.grad for p in used])
                if "average" not in state:
                    state["average"] = torch.zeros_like(slope)
                average = state["average"]
                average.lerp_(slope, 1 - group["momentum"])
                update = orthogonalise(slope.lerp(average, group["momentum"]))
                # The mean square of AdamW's updates is near 0.2^2; so is that of these.
                size = 0.2 * max(slope.shape[1:]) ** 0.5
                parts = update.mul_(group["lr"] * size).split([len(p) for p in used])
                if group["weight_decay"]:
                    torch._foreach_mul_(used, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_sub_(used, parts)

"""AdamW, and Muon: orthogonalised steps of weight matrices (Jordan et al. 2024).

AdamW rescales every number of a gradient on its own; the gradient of a weight matrix, however, is dominated
by few directions, and the others hardly learn. Replacing the averaged gradient M = U S V^T by U V^T lets all
directions learn alike. U V^T comes from M by a few steps of odd matrix polynomials (Newton-Schulz),

    X <- a X + b (X X^T) X + c (X X^T)^2 X,

which drive singular values towards one; matrices of the same shape are stacked and go through together.

Neither is an optimizer of torch.optim: the first step of one loads torch's compiler, which takes longer than
many a small table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

#: a, b, c of each step: the polynomial that brings what the steps before it leave of singular values between
#: 0.005 and 1 as near to one as any can (minimax); they end between 0.5 and 1.5, smaller ones times 103.
_POLYNOMIALS = ((8.2987, -24.4305, 18.0903), (3.9152, -2.9211, 0.5592), (3.1746, -2.3804, 0.4978))
#: bfloat16 may take a singular value for smaller than it is by less than this.
_MARGIN = 1.01
#: What AdamW remembers of a weight, as torch names it.
_OF_ADAM = ("step", "exp_avg", "exp_avg_sq")


def orthogonalise(m: Tensor) -> Tensor:
    """About U V^T, of matrices U S V^T.

    Shape: m [k, i, o] -> the same.
    """
    x = m / (m.norm(dim=(1, 2), keepdim=True) + 1e-12)
    flipped = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if flipped else x
    x = x.bfloat16() if x.is_cuda else x
    square = torch.bmm(x, x.transpose(1, 2))
    fourth = torch.bmm(square, square)
    # No singular value is above the fourth root of |(X X^T)^2|, and the largest is close to it; the norm of X
    # is many times as large where directions are many, and more steps would have to make up for that.
    bound = fourth.norm(dim=(1, 2), keepdim=True).clamp_min(1e-8) ** 0.25
    scale = 1 / (_MARGIN * bound)
    x, square, fourth = scale * x, scale**2 * square, scale**4 * fourth
    for k, (a, b, c) in enumerate(_POLYNOMIALS):
        if k:
            square = torch.bmm(x, x.transpose(1, 2))
            fourth = torch.bmm(square, square)
        x = torch.baddbmm(x, torch.add(b * square, fourth, alpha=c), x, beta=a)
    result: Tensor = (x.transpose(1, 2) if flipped else x).to(m.dtype)
    return result


class Optimizer(ABC):
    """Weights, the settings of their steps, and the state of each weight."""

    def __init__(self, parameters: Iterable[Tensor], **settings: Any) -> None:
        self.group: dict[str, Any] = {"params": list(parameters), **settings}
        self.param_groups = [self.group]
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    @abstractmethod
    def step(self) -> None:
        """Take one step."""


class AdamW(Optimizer):
    """Torch's own kernel of AdamW, for all weights at once; bits are those of ``torch.optim.AdamW``.

    On a GPU the rate is a tensor, so that a captured step sees it change.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Tensor,
        betas: tuple[float, float],
        weight_decay: float,
    ) -> None:
        super().__init__(parameters, lr=lr, betas=betas, weight_decay=weight_decay)

    @torch.no_grad()
    def step(self) -> None:
        """Take one step."""
        used = [p for p in self.group["params"] if p.grad is not None]
        if not used:
            return
        for p in used:
            if not self.state[p]:
                step = torch.zeros((), dtype=torch.float32, device=p.device)
                moments = torch.zeros_like(p), torch.zeros_like(p)
                self.state[p] = dict(zip(_OF_ADAM, (step, *moments), strict=True))
        steps, averages, squares = ([self.state[p][k] for p in used] for k in _OF_ADAM)
        torch._foreach_add_(steps, 1)
        beta1, beta2 = self.group["betas"]
        torch._fused_adamw_(
            used, [p.grad for p in used], averages, squares, [], steps,
            lr=self.group["lr"], beta1=beta1, beta2=beta2, weight_decay=self.group["weight_decay"],
            eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


class Muon(Optimizer):
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
        super().__init__(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)
        self._alike: defaultdict[torch.Size, list[Any]] = defaultdict(list)
        for parameter in self.group["params"]:
            self._alike[parameter.shape].append(parameter)

    @torch.no_grad()
    def step(self) -> None:
        """Take one step."""
        rate, momentum, decay = (self.group[name] for name in ("lr", "momentum", "weight_decay"))
        for parameters in self._alike.values():
            used = [p for p in parameters if p.grad is not None]
            if not used:
                continue
            state = self.state[used[0]]
            slope = torch.cat([p.grad for p in used])
            if "average" not in state:
                state["average"] = torch.zeros_like(slope)
            average = state["average"]
            average.lerp_(slope, 1 - momentum)
            update = orthogonalise(slope.lerp(average, momentum))
            # The mean square of AdamW's updates is near 0.2^2; so is that of these.
            size = 0.2 * max(slope.shape[1:]) ** 0.5
            parts = update.mul_(rate * size).split([len(p) for p in used])
            if decay:
                torch._foreach_mul_(used, 1 - rate * decay)
            torch._foreach_sub_(used, parts)

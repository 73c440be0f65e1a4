"""A Gaussian given a part of its columns, as a CUDA kernel: a row in registers.

Solvers of a GPU go from one small system to the next; here every row has a program of its own. Measurements:
docs/dev/log.md.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, override"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .row_kernels import power_of_two


@triton.jit
def _condition(values, known, m, S, expected, rest, n_columns, jitter, D: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    there = i < n_columns
    both = there[:, None] & there[None, :]
    at = i[:, None] * n_columns + i[None, :]
    is_known = tl.load(known + row * n_columns + i, there, 0) != 0
    x = tl.load(values + row * n_columns + i, there, 0.0)
    middle = tl.load(m + i, there, 0.0)
    spread = tl.load(S + at, both, 0.0)
    for j in range(n_columns):
        here = i == j
        shared = tl.sum(tl.where(here[:, None], spread, 0.0), axis=0)
        own = tl.sum(tl.where(here, shared, 0.0), axis=0)
        counts = tl.sum(tl.where(here & is_known, 1.0, 0.0).to(tl.float64), axis=0)
        gain = shared * (counts / (own + jitter))
        middle += gain * tl.sum(tl.where(here, x - middle, 0.0), axis=0)
        spread -= gain[:, None] * shared[None, :]
    tl.store(expected + row * n_columns + i, tl.where(is_known, x, middle), there)
    kept = (is_known[:, None] | is_known[None, :]) == 0
    tl.store(rest + row * n_columns * n_columns + at, tl.where(kept, spread, 0.0), both)


def condition(values: Tensor, known: Tensor, m: Tensor, S: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """Give expectation and covariance of rows of N(m, S) given their known part, a row in registers.

    Shape: values, known [n, d], m [d], S [d, d], d <= 64 -> [n, d], [n, d, d], zero where known.
    """
    n, d = values.shape
    values, known = values.contiguous(), known.to(torch.uint8).contiguous()
    expected, rest, D = torch.empty_like(values), values.new_empty(n, d, d), power_of_two(d)
    m, S, warps = m.contiguous(), S.contiguous(), {16: 1, 32: 2}.get(D, 8)
    with torch.cuda.device(values.device):
        _condition[(n,)](values, known, m, S, expected, rest, d, jitter, D, num_warps=warps)
    return expected, rest


def try_out() -> None:
    """Compile and run the kernel once, on a few numbers; raises where that cannot be done or is wrong."""
    halves = torch.eye(2, device="cuda", dtype=torch.float64) / 2 + 0.5
    known = torch.tensor([[True, False]], device="cuda")
    expected, rest = condition(known.double(), known, halves[0] * 0, halves, 0.0)
    found = [*expected.flatten().tolist(), *rest.flatten().tolist()]
    if found != [1.0, 0.5, 0.0, 0.0, 0.0, 0.75]:
        raise RuntimeError(f"A regression on one column gave {found}.")

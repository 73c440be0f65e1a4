"""EM for a Gaussian N(m, S) of rows with holes.

With P = S^-1 and b = P (x - m) where x - m is zero in the unknown part U of a row,

    E[(x - m)_U | known] = -P_UU^-1 b_U,   Cov[x_U | known] = P_UU^-1

so that only the unknown part, which is small, is inverted, and once for rows that miss the same. Rows may
have weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Added to variances, so that columns which are sums of others (all levels of a category) can be inverted.
JITTER = 1e-6
#: Numbers in the inverses that are held at a time.
_MOST_NUMBERS = 4_000_000


@dataclass
class Group:
    """Rows that miss the same number k of columns.

    Shape: rows [r]; pattern [r], which of the u patterns a row has; columns [u, k], what a pattern misses.
    """

    rows: Tensor
    pattern: Tensor
    columns: Tensor

    def take(self, values: Tensor) -> Tensor:
        """Give what stands in the holes. Shape: [n, d] -> [r, k]."""
        return values[self.rows[:, None], self.columns[self.pattern]]


class Holes:
    """Which rows miss what. Shape: known [n, d]."""

    def __init__(self, known: Tensor) -> None:
        self.known = known.double()
        patterns, place = torch.unique(known, dim=0, return_inverse=True)
        order = torch.argsort(place, stable=True)
        missing = ~patterns
        self.groups: list[Group] = []
        for k in range(1, known.shape[1] + 1):
            here = missing.sum(dim=1) == k
            rows = order[here[place[order]]]
            most = max(1, _MOST_NUMBERS // k**2)
            for start in range(0, len(rows), most):
                some = rows[start : start + most]
                numbers, own = torch.unique_consecutive(place[some], return_inverse=True)
                columns = missing[numbers].nonzero()[:, 1].reshape(len(numbers), k)
                self.groups.append(Group(some, own, columns))

    def expect(
        self, values: Tensor, m: Tensor, P: Tensor, *, reproducible: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """E[x - m | known] of every row, and the covariances of each group's patterns.

        With ``reproducible`` a row's result has the same bits in any batch and on any number of threads,
        which BLAS and LAPACK do not promise; EM, which always sees the whole table, goes without.

        Shape: values [n, d], m [d], P [d, d] -> [n, d], a list of [u, k, k].
        """
        expected = (values - m) * self.known
        b = multiply(expected, P) if reproducible else expected @ P
        covariances = []
        for group in self.groups:
            columns = group.columns
            block = P[columns[:, :, None], columns[:, None, :]]
            inverse = invert_each(block) if reproducible else torch.linalg.inv(block)
            solved = (inverse[group.pattern] * group.take(b)[:, None, :]).sum(dim=-1)
            expected[group.rows[:, None], columns[group.pattern]] = -solved
            covariances.append(inverse)
        return expected, covariances


def invert(S: Tensor) -> Tensor:
    """Invert a covariance, columns that follow from others too."""
    return invert_each((S + JITTER * torch.eye(len(S), dtype=S.dtype, device=S.device))[None])[0]


def multiply(a: Tensor, B: Tensor) -> Tensor:
    """The matrix product a B, added up element by element in one order, whatever the batch.

    Shape: a [..., n, k], B [..., k, d] -> [..., n, d].
    """
    total = a[..., :1] * B[..., None, 0, :]
    for j in range(1, B.shape[-2]):
        total += a[..., j : j + 1] * B[..., None, j, :]
    return total


def invert_each(matrices: Tensor) -> Tensor:
    """Inverses of positive definite matrices by Gauss-Jordan elimination, all in step.

    LAPACK's depend in their last bits on where in memory a matrix lies, hence on the batch: 1e-13, which
    single precision shows in one cell of a million. Takes twice as long at k = 64.

    Shape: [u, k, k] -> [u, k, k].
    """
    k = matrices.shape[-1]
    inverse = matrices.clone()
    for j in range(k):
        row = inverse[:, j] / inverse[:, j, j, None]
        row[:, j] = 1 / inverse[:, j, j]
        column = inverse[:, :, j].clone()
        column[:, j] = 0
        inverse[:, :, j] = 0
        inverse -= column[:, :, None] * row[:, None, :]
        inverse[:, j] = row
    return inverse


def condition_in_turn(values: Tensor, known: Tensor, m: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Give expectation and covariance of every row given its known part, one known column after the other.

    For all rows at once: d small steps, where solvers of a GPU go from row to row.

    Shape: values, known [n, d], m [d], S [d, d] -> [n, d], [n, d, d], zero where known.
    """
    k = known.to(values.dtype)
    expected, rest = m.repeat(len(values), 1), S.repeat(len(values), 1, 1)
    for j in range(len(S)):
        shared = rest[:, j].clone()
        gain = shared * (k[:, j] / (shared[:, j] + JITTER))[:, None]
        expected += gain * (values[:, j] - expected[:, j])[:, None]
        rest.addcmul_(gain[:, :, None], shared[:, None, :], value=-1)
    return torch.where(known, values, expected), rest * (1 - k)[:, :, None] * (1 - k)[:, None, :]


def smooth(values: Tensor, seen: Tensor, noise: Tensor, S: Tensor) -> Tensor:
    """Give the expectation of every cell given noisy values of seen ones, for rows of N(0, S) of their own.

    Shape: values, seen, noise [n, d], S [n, d, d] -> [n, d]; noise is a variance.
    """
    k = seen.to(values.dtype)
    if values.is_cuda:  # where solvers go from row to row
        return _smooth_in_turn(values, k, noise, S)
    cut_off = S * k[:, :, None] * k[:, None, :] + torch.diag_embed(1 - k + noise * k)
    solved = torch.cholesky_solve((values * k)[..., None], torch.linalg.cholesky(cut_off))
    return (S @ (solved * k[..., None]))[..., 0]


def _smooth_in_turn(values: Tensor, k: Tensor, noise: Tensor, S: Tensor) -> Tensor:
    expected, rest = torch.zeros_like(values), S.clone()
    for j in range(S.shape[1]):
        shared = rest[:, j].clone()
        gain = shared * (k[:, j] / (shared[:, j] + noise[:, j]))[:, None]
        expected += gain * (values[:, j] - expected[:, j])[:, None]
        rest.addcmul_(gain[:, :, None], shared[:, None, :], value=-1)
    return expected


def em_round(
    values: Tensor, holes: Holes, m: Tensor, S: Tensor, shrink: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Do one E-step and one M-step; S is shrunk towards independence.

    Shape: values [n, d], m [d], S [d, d], weights [n] -> [d], [d, d].
    """
    w = torch.ones(len(values), dtype=values.dtype) if weights is None else weights
    expected, covariances = holes.expect(values, m, invert(S))
    weighted = w[:, None] * expected
    second = weighted.T @ expected
    for group, inverse in zip(holes.groups, covariances, strict=True):
        of_pattern = torch.zeros(len(inverse), dtype=w.dtype).index_add_(0, group.pattern, w[group.rows])
        columns = group.columns
        places = (columns[:, :, None].expand_as(inverse), columns[:, None, :].expand_as(inverse))
        second.index_put_(places, of_pattern[:, None, None] * inverse, accumulate=True)
    total = w.sum()
    step = weighted.sum(dim=0) / total
    S = second / total - torch.outer(step, step)
    return m + step, (1 - shrink) * S + shrink * torch.diag(S.diagonal())


def settle(
    values: Tensor,
    holes: Holes,
    m: Tensor,
    S: Tensor,
    shrink: float,
    *,
    rounds: int,
    tolerance: float,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Do rounds until no entry changes by more than the tolerance. Shape: as `em_round`."""
    for _ in range(rounds):
        before = m, S
        m, S = em_round(values, holes, m, S, shrink, weights)
        if max(float((a - b).abs().max()) for a, b in zip((m, S), before, strict=True)) < tolerance:
            break
    return m, S

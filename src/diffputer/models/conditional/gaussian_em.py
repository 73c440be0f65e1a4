"""EM for a Gaussian N(m, S) of rows with missing cells.

With P = S^-1 and b = P (x - m) where x - m is zero in the unknown part U of a row,

    E[(x - m)_U | known] = -P_UU^-1 b_U,   Cov[x_U | known] = P_UU^-1

so that only the unknown part, which is small, is inverted, and once for rows with the same missing pattern.
Rows may have weights.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class MissingPatterns:
    """Rows with missing cells, grouped by pattern, for so many Gaussians at once. Shape: known [n, d]."""

    def __init__(self, known: Tensor, n_gaussians: int = 1) -> None:
        self.known = known.double()
        patterns, place = torch.unique(known, dim=0, return_inverse=True)
        order = torch.argsort(place, stable=True)
        missing = ~patterns
        counts = missing.sum(dim=1)
        self.groups: list[Group] = []
        for k in counts[counts > 0].unique().tolist():
            for rows in order[counts[place[order]] == k].split(max(1, _MOST_NUMBERS // (n_gaussians * k**2))):
                numbers, own = torch.unique_consecutive(place[rows], return_inverse=True)
                columns = missing[numbers].nonzero()[:, 1].reshape(len(numbers), k)
                self.groups.append(Group(rows, own, columns))

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
            rows, columns = group.rows[:, None], group.columns[group.pattern]
            block = P[group.columns[:, :, None], group.columns[:, None, :]]
            inverse = invert_each(block) if reproducible else torch.linalg.inv(block)
            expected[rows, columns] = -(inverse[group.pattern] * b[rows, columns][:, None, :]).sum(dim=-1)
            covariances.append(inverse)
        return expected, covariances


def one_cell_at_a_time(new: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows with new cells, and the column of one of them, until there are none. Shape: [n, d] -> [r], [r]."""
    new = new.clone()
    while len(rows := new.any(dim=1).nonzero()[:, 0]):
        column = new[rows].to(torch.uint8).argmax(dim=1)
        new[rows, column] = False
        yield rows, column


def invert(S: Tensor) -> Tensor:
    """Inverse of a covariance, of which columns may follow from others."""
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
    """Inverses of positive definite matrices. Shape: [u, k, k] -> [u, k, k]."""
    return invert_with_determinant(matrices)[0]


def invert_with_determinant(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Inverses and logarithms of determinants by Gauss-Jordan elimination, all in step.

    LAPACK's depend in their last bits on where in memory a matrix lies, hence on the batch: 1e-13, which
    single precision shows in one cell of a million. Takes twice as long at k = 64.

    Shape: [u, k, k] -> [u, k, k], [u].
    """
    inverse, determinant = matrices.clone(), matrices.new_zeros(len(matrices))
    for j in range(matrices.shape[-1]):
        pivot = inverse[:, j, j]
        determinant += pivot.log()
        row = inverse[:, j] / pivot[:, None]
        row[:, j] = 1 / pivot
        column = inverse[:, :, j].clone()
        column[:, j] = 0
        inverse[:, :, j] = 0
        inverse -= column[:, :, None] * row[:, None, :]
        inverse[:, j] = row
    return inverse, determinant


def em_round(
    values: Tensor,
    patterns: MissingPatterns,
    m: Tensor,
    S: Tensor,
    shrink: float,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One E-step and one M-step; S is shrunk towards independence.

    Shape: values [n, d], m [d], S [d, d], weights [n] -> [d], [d, d].
    """
    w = torch.ones(len(values), dtype=values.dtype) if weights is None else weights
    expected, covariances = patterns.expect(values, m, invert(S))
    weighted = w[:, None] * expected
    second = weighted.T @ expected
    for group, inverse in zip(patterns.groups, covariances, strict=True):
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
    patterns: MissingPatterns,
    m: Tensor,
    S: Tensor,
    shrink: float,
    *,
    rounds: int,
    tolerance: float,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """EM until no entry changes by more than the tolerance. Shape: as `em_round`."""
    for _ in range(rounds):
        before = m, S
        m, S = em_round(values, patterns, m, S, shrink, weights)
        if max(float((a - b).abs().max()) for a, b in zip((m, S), before, strict=True)) < tolerance:
            break
    return m, S


def spread_rows(n: int, most: int) -> Tensor:
    """Numbers of at most so many of n rows, evenly spread. Shape: -> [rows]."""
    return torch.linspace(0, n - 1, min(n, most), dtype=torch.float64).long()

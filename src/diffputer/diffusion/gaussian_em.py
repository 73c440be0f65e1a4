"""EM for a Gaussian N(m, S) of rows with holes, over patterns of holes.

Rows that know the same columns K share one regression: with A the matrix that takes what is known of x - m to
the expectation of all of x - m (rows of the identity where known, S_UK S_KK^-1 where unknown),

    sum_i w_i E[x_i - m | known] = A (f - w m_K)
    sum_i w_i E[(x_i - m)(x_i - m)^T | known] = A C A^T + w R

with w, f and C the pattern's weight, sum and squares around m of known cells, and R = S_UU - A S_KU what they
leave open. So a round takes the cube of the columns for every pattern, not for every row. Rows may have
weights. Where patterns are nearly as many as rows, each row is a pattern of its own, whose squares need not
be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 4096
#: Added to variances, so that columns which are sums of others (all levels of a category) can be inverted.
JITTER = 1e-6


@dataclass
class Patterns:
    """Moments of the known cells of rows with the same holes.

    Shape: known, sums [u, d]; weight [u]; squares [u, d, d], None where each is of one row.
    """

    known: Tensor
    weight: Tensor
    sums: Tensor
    squares: Tensor | None

    @classmethod
    def gather(cls, values: Tensor, known: Tensor, weights: Tensor | None = None) -> Patterns:
        """Sum up rows, whose unknown values must be zero.

        Shape: values, known [n, d], weights [n].
        """
        weights = torch.ones(len(values), dtype=values.dtype) if weights is None else weights
        patterns, place = torch.unique(known, dim=0, return_inverse=True)
        u, d = patterns.shape
        weighted = weights[:, None] * values
        if 2 * u > len(values):
            return cls(known.to(values.dtype), weights, weighted, None)
        squares = torch.zeros(u, d, d, dtype=values.dtype)
        for start in range(0, len(values), _BLOCK):
            part = slice(start, start + _BLOCK)
            squares.index_add_(0, place[part], weighted[part, :, None] * values[part, None, :])
        return cls(
            patterns.to(values.dtype),
            torch.zeros(u, dtype=values.dtype).index_add_(0, place, weights),
            torch.zeros(u, d, dtype=values.dtype).index_add_(0, place, weighted),
            squares,
        )


def regression(known: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Give A and R of patterns.

    Shape: known [n, d] of 0 and 1, S [d, d] -> [n, d, d], [n, d, d].
    """
    # Unknown columns are cut off: their rows and columns are those of the identity.
    seen = known[:, :, None] * S * known[:, None, :]
    seen = seen + torch.diag_embed(1 - known) + JITTER * torch.eye(len(S), device=S.device, dtype=S.dtype)
    across = S * known[:, None, :]
    gain = torch.cholesky_solve(across.transpose(1, 2), torch.linalg.cholesky(seen)).transpose(1, 2)
    unknown = 1 - known
    rest = (S - gain @ across.transpose(1, 2)) * unknown[:, :, None] * unknown[:, None, :]
    return gain * unknown[:, :, None] + torch.diag_embed(known), rest


def em_round(patterns: Patterns, m: Tensor, S: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
    """Do one E-step and one M-step; S is shrunk towards independence.

    Shape: m [d], S [d, d] -> [d], [d, d].
    """
    total = patterns.weight.sum()
    first, second = torch.zeros_like(m), torch.zeros_like(S)
    for start in range(0, len(patterns.weight), _BLOCK):
        part = slice(start, start + _BLOCK)
        known, w, f = patterns.known[part], patterns.weight[part, None], patterns.sums[part]
        A, R = regression(known, S)
        m_K = m * known
        f_c = f - w * m_K
        expected = (A @ f_c[..., None])[..., 0]
        first += expected.sum(dim=0)
        second += (w[..., None] * R).sum(dim=0)
        if patterns.squares is None:
            second += (expected / w).T @ expected
        else:
            # sum w (x - m)(x - m)^T = sum w x x^T - f m^T - m (f - w m)^T
            C = patterns.squares[part] - f[:, :, None] * m_K[:, None, :] - m_K[:, :, None] * f_c[:, None, :]
            second += (A @ C @ A.transpose(1, 2)).sum(dim=0)
    step = first / total
    S = second / total - torch.outer(step, step)
    return m + step, (1 - shrink) * S + shrink * torch.diag(S.diagonal())

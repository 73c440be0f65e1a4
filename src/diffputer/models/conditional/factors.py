"""Factor analysis: a Gaussian of many columns, by EM over rows with missing cells.

x = m + L f + e with r factors f ~ N(0, I) and e ~ N(0, diag(psi)). Given the known cells K of a row,

    Cov[f | x_K] = V = (I + L_K' psi_K^-1 L_K)^-1,   E[f | x_K] = V L_K' psi_K^-1 (x - m)_K

for all rows at once: the precisions are one product of the mask with the outer products of the loadings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...nn.loading import require
from .gaussian_em import spread_rows

#: Rounds of EM, first on a part of the rows, then on as many as can be afforded (Adult, Default: as good as
#: 40 rounds on all of these, in half of the time).
STAGES = ((3_000, 30), (10_000, 10))
#: Factors of d columns at most, and numbers in the precisions of a block of rows.
MOST_FACTORS, MOST_NUMBERS = 24, 4_000_000
#: Specific variances are at least this share of a column's own.
SMALLEST = 1e-3
#: Pseudo-rows that hold a loading near zero.
RIDGE = 2.0


def n_factors(d: int) -> int:
    """Number of factors of d columns.

    Examples
    --------
    >>> n_factors(65), n_factors(1000)
    (16, 24)
    """
    return min(MOST_FACTORS, max(4, 2 * math.isqrt(d)))


class Factors(nn.Module):
    """Loadings L [d, r] and specific variances psi [d]."""

    loadings: Tensor
    specific: Tensor

    def __init__(self, d: int) -> None:
        super().__init__()
        self.register_buffer("loadings", torch.zeros(d, n_factors(d), dtype=torch.float64))
        self.register_buffer("specific", torch.ones(d, dtype=torch.float64))

    def check_values(self) -> None:
        """Raise ValueError unless variances are positive."""
        require(self.specific > 0, "specific variances must be positive")

    @property
    def covariance(self) -> Tensor:
        """L L' + diag(psi). Shape: [d, d]."""
        return self.loadings @ self.loadings.T + torch.diag(self.specific)

    def _blocks(self, n: int) -> Iterator[slice]:
        """Slices of n rows whose precisions fit into memory."""
        size = MOST_NUMBERS // self.loadings.shape[1] ** 2
        return (slice(start, start + size) for start in range(0, n, size))

    def _posterior(self, centred: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Expectation and covariance of the factors. Shape: [n, d] twice -> [n, r], [n, r, r]."""
        r = self.loadings.shape[1]
        weighted = self.loadings / self.specific[:, None]
        outer = (weighted[:, :, None] * self.loadings[:, None, :]).reshape(len(weighted), r * r)
        eye = torch.eye(r, dtype=centred.dtype, device=centred.device)
        V = torch.linalg.inv((known @ outer).view(-1, r, r) + eye)
        return (V @ ((centred * known) @ weighted)[..., None])[..., 0], V

    @torch.no_grad()
    def fit(self, values: Tensor, known: Tensor, middle: Tensor, *, warm: bool = False) -> None:
        """Find loadings and middle from rows, or go on from those that there are.

        Shape: values, known [n, d], middle [d], written over.
        """
        if not warm:
            self._start(values, known, middle)
        for most, rounds in STAGES[-1:] if warm else STAGES:
            rows = spread_rows(len(values), most)
            some, shown = values[rows], known[rows]
            for _ in range(rounds // 2 if warm else rounds):
                self.em_round(some, shown, middle)

    def _start(self, values: Tensor, known: Tensor, middle: Tensor) -> None:
        """Start from the leading singular vectors of the table with means for missing cells."""
        rows = spread_rows(len(values), STAGES[-1][0])
        values, k = values[rows], known[rows].double()
        counts = k.sum(dim=0).clamp_min(1)
        middle.copy_((values * k).sum(dim=0) / counts)
        centred = (values - middle) * k
        own = (centred.square().sum(dim=0) / counts).clamp_min(1e-6)
        generator = torch.Generator().manual_seed(0)
        sketch = centred @ torch.randn(self.loadings.shape, generator=generator, dtype=centred.dtype)
        for _ in range(3):
            sketch = torch.linalg.qr(centred @ (centred.T @ sketch))[0]
        self.loadings.copy_(centred.T @ sketch / math.sqrt(len(values)))
        self.specific.copy_((own - self.loadings.square().sum(dim=1)).clamp_min(0.1 * own))

    @torch.no_grad()
    def em_round(self, values: Tensor, known: Tensor, middle: Tensor, weights: Tensor | None = None) -> None:
        """One E-step and one M-step; the middle is written over.

        Shape: values, known [n, d], middle [d], weights [n].
        """
        (n, d), r = values.shape, self.loadings.shape[1]
        k = known.double()
        w = k if weights is None else k * weights[:, None]
        centred = (values - middle) * k
        counts = w.sum(dim=0).clamp_min(1)
        own = ((w * centred.square()).sum(dim=0) / counts).clamp_min(1e-6)
        cross, sums = (torch.zeros(d, r, dtype=centred.dtype) for _ in range(2))
        moments = torch.zeros(d, r * r, dtype=centred.dtype)
        for part in self._blocks(n):
            f, V = self._posterior(centred[part], k[part])
            cross += (w[part] * centred[part]).T @ f
            moments += w[part].T @ (V + f[:, :, None] * f[:, None, :]).flatten(1)
            sums += w[part].T @ f
        second = moments.view(d, r, r)
        ridge = RIDGE * torch.eye(r, dtype=centred.dtype)
        loadings = torch.linalg.solve(second + ridge, cross[..., None])[..., 0]
        # With the ridge the expected residual is own - 2 l'c + l'Ml.
        explained = (loadings * cross).sum(dim=1) / counts
        square = torch.einsum("dr,drs,ds->d", loadings, second, loadings) / counts
        self.specific.copy_(torch.maximum(own - 2 * explained + square, SMALLEST * own))
        self.loadings.copy_(loadings)
        middle += ((w * centred).sum(dim=0) - (sums * loadings).sum(dim=1)) / counts

    @torch.no_grad()
    def expect(self, values: Tensor, known: Tensor, middle: Tensor) -> tuple[Tensor, Tensor]:
        """Expectation and variance of every cell. Shape: values, known [n, d] -> [n, d], [n, d]."""
        expected, variance = torch.empty_like(values), torch.empty_like(values)
        for part in self._blocks(len(values)):
            k = known[part].to(values.dtype)
            f, V = self._posterior((values[part] - middle) * k, k)
            expected[part] = torch.where(known[part], values[part], middle + f @ self.loadings.T)
            variance[part] = ((self.loadings @ V) * self.loadings).sum(dim=-1) + self.specific
        return expected, variance

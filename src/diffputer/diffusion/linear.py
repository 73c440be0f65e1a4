"""A Gaussian of the values themselves: what is linear between columns, outliers and all.

Normal scores (gaussian.py) bend straight relations of skewed columns, and a network needs many rows to learn
them to the last digit. Means of this part take a share, column by column, where held-out cells say so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .conditional import Rows
from .gaussian import MOST_COLUMNS, SHRINKINGS, GaussianCopula, blocks


class LinearValues(GaussianCopula):
    """Rows as a Gaussian of p values and, where they are not too many, sum(levels) indicators."""

    # Only means are asked of it, and only where held-out cells bear them out.
    shrinkings = dict.fromkeys(SHRINKINGS, 1.0)

    @classmethod
    def of(cls, n_numeric: int, levels: list[int]) -> LinearValues | None:
        """Make one that has as many columns as can be afforded, or none."""
        if n_numeric + sum(levels) > MOST_COLUMNS:
            levels = []
        return cls(n_numeric, levels) if 2 <= n_numeric + sum(levels) <= MOST_COLUMNS and n_numeric else None

    def latent(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Give values and indicators of known cells (0 elsewhere) and which are known.

        Shape: two of [n, d].
        """
        return self._with_indicators(rows.x, rows)

    @torch.no_grad()
    def means(self, rows: Rows) -> Tensor:
        """Give the expectations of numbers. Shape: [n, p]."""
        parts = [self.expect(*self.latent(rows.part(part)))[0] for part in blocks(len(rows.levels))]
        return torch.cat(parts)[:, : self.p].float()

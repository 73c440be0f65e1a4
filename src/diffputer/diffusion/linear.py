"""A Gaussian of the values themselves: what is linear between columns, outliers and all.

Normal scores (gaussian.py) bend straight relations of skewed columns, and a network needs many rows to learn
them to the last digit. Means and probabilities of this part take a share, column by column, where cells that
it has not seen say so.

Of a category it is asked not for the expectation of its indicators i, as the copula is, but for the level
under which the rest of the row is likely. With e_l the indicators of level l, Bayes' rule for the densities
of the Gaussian gives p(rest | l) = N(e_l; E[i | rest], Cov[i | rest]) p(rest) / N(e_l; E[i], Cov[i]), so that

    p(l | rest)  ~  share of l  *  N(e_l; E[i | rest], Cov[i | rest]) / N(e_l; E[i], Cov[i])

which is linear discriminant analysis for rows with holes: levels share a covariance within, and one that lies
between two others is not masked by them, as it is in a regression of its indicator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .conditional import Rows
from .gaussian import MOST_COLUMNS, SHRINKINGS, SMALLEST_PROBABILITY, GaussianCopula, blocks
from .gaussian_em import Holes, invert, invert_each, multiply

#: Added to variances of indicators, so that a level that is certain given the rest has a density.
INDICATOR_JITTER = 1e-4

#: Means of numbers and, if it has categories, probabilities of their levels.
Answer = tuple[Tensor, list[Tensor] | None]


class LinearValues(GaussianCopula):
    """Rows as a Gaussian of p values and, where they are not too many, sum(levels) indicators."""

    # Only means and probabilities are asked of it, and only where cells bear them out.
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
    def answer(self, rows: Rows) -> Answer:
        """Give expectations of numbers and, if it has categories, probabilities of levels.

        Those of known cells are anything.

        Shape: [n, p], q of [n, L_k].
        """
        among = blocks(len(rows.levels), rows.levels.device)
        parts = [self._answer(*self.latent(rows.part(part))) for part in among]
        means = torch.cat([means for means, _ in parts])
        if not self.levels:
            return means, None
        return means, [
            torch.cat(of_column) for of_column in zip(*(levels for _, levels in parts), strict=True)
        ]

    def _answer(self, values: Tensor, known: Tensor) -> tuple[Tensor, list[Tensor]]:
        if values.is_cuda:  # where large batches cost less than sorting rows by their holes
            expected, rest = self.condition(values, known)
            every = torch.arange(len(values), device=values.device)
            spreads = [(every, rest[:, own, own]) for own in map(self._indicators, range(len(self.levels)))]
        else:
            holes = Holes(known)
            inverse = invert(self.covariance)
            centred, covariances = holes.expect(values, self.middle, inverse, reproducible=True)
            expected = torch.where(known, values, self.middle + centred)
            spreads = [self._spread(holes, covariances, k) for k in range(len(self.levels))]
        levels = [self._discriminate(expected, k, *spread) for k, spread in enumerate(spreads)]
        return expected[:, : self.p].float(), levels

    def _indicators(self, k: int) -> slice:
        """Say where the indicators of a category are, but for that of its last level, which they imply."""
        start = self.p + sum(self.levels[:k])
        return slice(start, start + self.levels[k] - 1)

    def _spread(self, holes: Holes, covariances: list[Tensor], k: int) -> tuple[Tensor, Tensor]:
        """Give the rows that miss a category, and the covariance of its indicators given the rest of them.

        Shape: [r], [r, L - 1, L - 1].
        """
        own = self._indicators(k)
        rows, spreads = [], []
        for group, covariance in zip(holes.groups, covariances, strict=True):
            first = (group.columns < own.start).sum(dim=1)
            misses = (group.columns == own.start).any(dim=1)
            # Its indicators are missing together, one after the other.
            places = (first[:, None] + torch.arange(own.stop - own.start)).clamp_max(
                group.columns.shape[1] - 1
            )
            pattern = torch.arange(len(covariance))[:, None, None]
            of_pattern = covariance[pattern, places[:, :, None], places[:, None, :]]
            here = misses[group.pattern]
            rows.append(group.rows[here])
            spreads.append(of_pattern[group.pattern[here]])
        size = own.stop - own.start
        if not rows:
            return torch.zeros(0, dtype=torch.int64), self.covariance.new_zeros(0, size, size)
        return torch.cat(rows), torch.cat(spreads)

    def _discriminate(self, expected: Tensor, k: int, rows: Tensor, spread: Tensor) -> Tensor:
        """Give probabilities of the levels of a category. Shape: [n, d], [r], [r, L - 1, L - 1] -> [n, L]."""
        own, L = self._indicators(k), self.levels[k]
        start = own.start - self.p
        shares = self.frequencies[start : start + L].clamp_min(SMALLEST_PROBABILITY)
        logits = shares.log().repeat(len(expected), 1)
        if L > 1 and len(rows):
            eye = torch.eye(L, dtype=expected.dtype, device=expected.device)
            levels = eye[:, :-1] - self.frequencies[start : start + L - 1]
            jitter = INDICATOR_JITTER * eye[1:, 1:]
            alone = levels - self.middle[own]
            given = levels - expected[rows, None, own]
            before = (multiply(alone, invert_each(self.covariance[None, own, own] + jitter)[0]) * alone).sum(
                dim=1
            )
            after = (multiply(given, invert_each(spread + jitter)) * given).sum(dim=2)
            logits[rows] += (before - after) / 2
        probabilities = logits.softmax(dim=1).clamp_min(SMALLEST_PROBABILITY)
        return (probabilities / probabilities.sum(dim=1, keepdim=True)).float()

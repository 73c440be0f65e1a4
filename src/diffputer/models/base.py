"""What passes between the parts of a model: rows in, a distribution of every cell out."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are numeric and which categorical.

    Shape: n_levels [c], categories of each column, 0 for numeric ones.
    """

    n_levels: NDArray[np.int64]

    @property
    def numeric(self) -> NDArray[np.int64]:
        """Places of the numeric columns. Shape: [p]."""
        return np.flatnonzero(self.n_levels == 0)

    @property
    def categorical(self) -> NDArray[np.int64]:
        """Places of the categorical columns. Shape: [q]."""
        return np.flatnonzero(self.n_levels > 0)

    @property
    def levels(self) -> list[int]:
        """Categories of each categorical column."""
        return [int(n) for n in self.n_levels[self.categorical]]


@dataclass(frozen=True)
class RowBatch:
    """The known cells of n rows of p numeric and q categorical columns.

    Shape: x, z, known [n, p]; levels [n, q].
    """

    x: Tensor
    """Standardised values; 0 where missing."""
    z: Tensor
    """Normal scores; 0 where missing."""
    known: Tensor
    levels: Tensor
    """Categories; -1 where missing."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def all_known(self) -> Tensor:
        """Which cells are known, numeric columns first. Shape: [n, p + q]."""
        return torch.cat([self.known, self.levels >= 0], dim=1)

    def part(self, rows: Tensor | slice) -> RowBatch:
        """Some of the rows."""
        return RowBatch(*(values[rows] for values in vars(self).values()))

    def to(self, device: torch.device | str) -> RowBatch:
        """The same rows on another device."""
        return RowBatch(*(values.to(device) for values in vars(self).values()))


#: Mean and standard deviation of a normal distribution of every cell. Shape: two of [n, p].
Normal = tuple[Tensor, Tensor]


class Support(Protocol):
    """What the classes of numeric columns mean."""

    def mean(self, bins: Tensor) -> Tensor:
        """Means of distributions over the classes. Shape: [n, p, B] -> [n, p]."""

    def variance(self, bins: Tensor, mean: Tensor) -> Tensor:
        """Their variances. Shape: [n, p, B], [n, p] -> [n, p]."""

    def quantile(self, bins: Tensor, level: float, inside: Normal | None) -> Tensor:
        """Their quantiles. Shape: [n, p, B] -> [n, p]."""

    def draw(self, bins: Tensor, chance: Tensor, place: Tensor, inside: Normal | None) -> Tensor:
        """Observed values drawn by two uniform numbers. Shape: [n, p, B], [n, p] twice -> [n, p]."""


@dataclass(frozen=True)
class Predictive:
    """What is known of every cell: an expectation and a distribution over the support.

    An expert that knows only expectations has no ``bins``. A cell on a line has a normal distribution that is
    finer than any class: where ``line_std`` is above 0, it and the mean take the place of the bins. Known
    cells may hold anything.

    Inside a class the density is that of a normal distribution around the mean with the standard deviation
    ``inner``, or even where that is 0.

    Shape: mean, line_std, inner [n, p]; bins [n, p, B]; levels q of [n, L].
    """

    mean: Tensor
    bins: Tensor | None
    levels: list[Tensor]
    line_std: Tensor | None = None
    inner: Tensor | None = None

    def quantile(self, support: Support, level: float) -> Tensor:
        """Quantiles of numbers. Shape: [n, p]."""
        assert self.bins is not None
        return self._on_lines(support.quantile(self.bins, level, self._inside), NormalDist().inv_cdf(level))

    def draw(self, support: Support, chance: Tensor, place: Tensor) -> Tensor:
        """Numbers drawn by two uniform numbers each. Shape: [n, p]."""
        assert self.bins is not None
        score = torch.special.ndtri(chance.clamp(1e-7, 1 - 1e-7))
        return self._on_lines(support.draw(self.bins, chance, place, self._inside), score)

    def std(self, support: Support) -> Tensor:
        """Standard deviations of numbers. Shape: [n, p]."""
        assert self.bins is not None
        std = support.variance(self.bins, support.mean(self.bins)).clamp_min(0).sqrt()
        return std if self.line_std is None else torch.where(self.line_std > 0, self.line_std, std)

    @property
    def _inside(self) -> Normal | None:
        return None if self.inner is None else (self.mean, self.inner)

    def _on_lines(self, values: Tensor, score: Tensor | float) -> Tensor:
        if self.line_std is None:
            return values
        return torch.where(self.line_std > 0, self.mean + self.line_std * score, values)

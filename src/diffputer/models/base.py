"""What passes between the parts of a model: rows in, a distribution of every cell out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


#: Mean and standard deviation of a normal distribution of each cell. Shape: two of [m].
Normal = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Cells:
    """Which cells of n rows are to be predicted: m numeric ones, and categories.

    Shape: rows, columns [m]; levels [n, q].
    """

    rows: Tensor
    columns: Tensor
    levels: Tensor

    @classmethod
    def of(cls, wanted: Tensor, p: int) -> Cells:
        """All wanted cells. Shape: wanted [n, p + q].

        Numeric ones are filled up to whole vectors by repeating the last: the rest of a vector would be
        computed by other instructions, and a cell must have the same bits among any others.
        """
        places = wanted[:, :p].nonzero()
        if rest := -len(places) % WHOLE:
            places = torch.cat([places, places[-1:].expand(rest, 2)])
        return cls(places[:, 0], places[:, 1], wanted[:, p:])

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str) -> Cells:
        """The same cells on another device."""
        return Cells(*(one.to(device) for one in vars(self).values()))

    def pick(self, values: Tensor) -> Tensor:
        """Values of the numeric cells. Shape: [n, p] -> [m]."""
        return values[self.rows, self.columns]

    def place(self, values: Tensor, shape: torch.Size) -> Tensor:
        """The opposite, 0 elsewhere. Shape: [m] -> [n, p]."""
        return values.new_zeros(shape).index_put_((self.rows, self.columns), values)


#: Cells that are computed together, in whole vectors of any processor.
WHOLE = 64


@dataclass(frozen=True)
class Predictive:
    """What is known of cells: expectations and distributions over the support.

    An expert that knows only expectations has no ``bins``. Inside a class the density is that of a normal
    distribution around the mean with the standard deviation ``inner``, or even where that is 0. A cell on a
    line has a normal distribution that is finer than any class: where ``line_std`` is above 0, it and the
    mean take the place of the bins. Categories that are not wanted may hold anything.

    Shape: mean, inner, line_std [m]; bins [m, B]; levels q of [n, L].
    """

    mean: Tensor
    bins: Tensor | None
    levels: list[Tensor]
    inner: Tensor | None = None
    line_std: Tensor | None = None

    @classmethod
    def join(cls, parts: Sequence[Predictive]) -> Predictive:
        """What one expert predicts of several batches."""
        bins = [one.bins for one in parts if one.bins is not None]
        levels = zip(*(one.levels for one in parts), strict=True)
        return cls(
            torch.cat([one.mean for one in parts]),
            torch.cat(bins) if bins else None,
            [torch.cat(one) for one in levels],
        )

    def to(self, device: torch.device | str) -> Predictive:
        """The same on another device, of one expert."""
        bins = None if self.bins is None else self.bins.to(device)
        return Predictive(self.mean.to(device), bins, [one.to(device) for one in self.levels])


@dataclass
class CellDistribution:
    """What is known of each cell without drawing, in standardised numbers; NaN where it does not apply.

    Shape: each [n, c].
    """

    deviation: NDArray[np.float32]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    level: NDArray[np.float32]
    probability: NDArray[np.float32]
    estimate: NDArray[np.float32]
    """The mean or the median of a number."""

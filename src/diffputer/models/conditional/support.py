"""The support of each numeric column: atoms and quantile bins.

A frequent value is an atom, a class of its own. The other values are divided into bins of equal probability.
A column with few distinct values has atoms only. Every class keeps the observed values inside: its mean is
exact, and what is drawn from it was observed.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...nn.loading import require, require_between
from ..base import Predictive
from .marginals import Marginals

#: Classes of a column, about; a column with no more distinct values has atoms only.
CLASSES = 64
#: A value is an atom if it occurs this often at least, and fills a bin.
FEWEST_REPEATS = 3
#: A column has atoms only if its values occur this often on average.
REPEATS = 2
#: Bins of the values that are no atoms, at least.
FEWEST_BINS = 4
#: Values of a bin, on average: few are hardly learnt from, but fewer than ENOUGH_BINS bins are too coarse.
VALUES_A_BIN, LEAST_VALUES_A_BIN, ENOUGH_BINS = 20, 2, 24
#: A density with less mass than this in a class says nothing about the values inside.
FAINTEST = 1e-4


class Classes(NamedTuple):
    """The classes of one column. Shape: edges [B - 1], heights [B + 1], the others [B]."""

    edges: NDArray[np.float64]
    heights: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]


def find_classes(values: NDArray[np.float32], most: int = CLASSES) -> Classes:
    """Divide the observed values of a column into atoms and quantile bins.

    Shape: values [n].

    Examples
    --------
    >>> find_classes(np.array([0, 0, 0, 1], dtype=np.float32)).heights.tolist()
    [0.0, 0.75, 1.0]
    """
    if len(values) == 0:
        return Classes(np.empty(0), np.array([0.0, 1.0]), np.zeros(1), np.zeros(1))
    found, counts = np.unique(values.astype(np.float64), return_counts=True)
    n = len(values)
    if len(found) <= min(most, n / REPEATS):
        group = np.arange(len(found))
    else:
        atom = counts >= max(FEWEST_REPEATS, n / most)
        atom[np.argsort(-counts, kind="stable")[most // 3 :]] = False  # each may cut a bin into two
        others = np.where(atom, 0, counts)
        left = int(others.sum())
        wanted = max(left // VALUES_A_BIN, min(ENOUGH_BINS, left // LEAST_VALUES_A_BIN))
        n_bins = max(FEWEST_BINS, min(most - 2 * int(atom.sum()), wanted))
        rank = (others.cumsum() - others / 2) / max(1, others.sum())
        label = np.where(atom, -1 - np.arange(len(found)), np.minimum(rank * n_bins, n_bins - 1).astype(int))
        group = np.concatenate([[0], np.cumsum(label[1:] != label[:-1])])
    last = np.append(np.flatnonzero(np.diff(group)), len(found) - 1)
    weight = np.bincount(group, counts)
    heights = np.concatenate([[0.0], weight.cumsum() / n])
    heights[-1] = 1.0
    means = np.bincount(group, counts * found) / weight
    variances = np.bincount(group, counts * np.square(found - means[group])) / weight
    return Classes((found[last[:-1]] + found[last[:-1] + 1]) / 2, heights, means, variances)


class Support(nn.Module):
    """Classes and distribution functions of p numeric columns; columns with fewer classes are padded.

    Shape: n_classes [p], edges [p, B - 1], heights [p, B + 1],
    means, variances [p, B].
    """

    may_be_infinite = ("edges",)
    n_classes: Tensor
    edges: Tensor
    heights: Tensor
    means: Tensor
    variances: Tensor

    def __init__(self, n_columns: int, most: int = CLASSES) -> None:
        super().__init__()
        self.marginals = Marginals(n_columns)
        self.register_buffer("n_classes", torch.ones(n_columns, dtype=torch.int64))
        self.register_buffer("edges", torch.full((n_columns, most - 1), torch.inf))
        self.register_buffer("heights", torch.ones(n_columns, most + 1))
        self.register_buffer("means", torch.zeros(n_columns, most))
        self.register_buffer("variances", torch.zeros(n_columns, most))

    @classmethod
    def fit(
        cls,
        x: NDArray[np.float32],
        missing: NDArray[np.bool_],
        columns: NDArray[np.int64],
        most: int = CLASSES,
    ) -> Support:
        """Find the classes of columns from observed cells. Shape: x, missing [n, c], columns [p]."""
        found = [find_classes(x[~missing[:, j], j], most) for j in columns]
        support = cls(len(columns), most)
        support.marginals = Marginals.fit(x, missing, columns)
        for j, one in enumerate(found):
            B = len(one.means)
            support.n_classes[j] = B
            support.edges[j, : B - 1] = torch.from_numpy(one.edges)
            support.heights[j, : B + 1] = torch.from_numpy(one.heights)
            support.heights[j, 0] = 0.0
            support.means[j, :B] = torch.from_numpy(one.means)
            support.variances[j, :B] = torch.from_numpy(one.variances)
        return support

    @property
    def size(self) -> int:
        """B, the classes of the column that has most."""
        return self.means.shape[1]

    @property
    def valid(self) -> Tensor:
        """Which classes exist. Shape: [p, B]."""
        return torch.arange(self.size, device=self.means.device) < self.n_classes[:, None]

    @property
    def frequencies(self) -> Tensor:
        """Share of the observed values in each class. Shape: [p, B]."""
        return self.heights.diff(dim=1)

    def check_values(self) -> None:
        """Raise ValueError unless these are classes of columns."""
        require_between(1, self.size, n_classes=self.n_classes)
        require(self.edges.diff(dim=1).nan_to_num(0.0) >= 0, "edges of classes must ascend")
        require(self.heights.diff(dim=1) >= 0, "shares of classes must not be negative")
        require_between(0, 1, heights=self.heights)

    def classes_of(self, x: Tensor) -> Tensor:
        """Class of each value; one between two classes belongs to the nearer. Shape: x [n, p] -> [n, p]."""
        return torch.searchsorted(self.edges, x.T.contiguous()).T

    def normal_probabilities(self, mean: Tensor, std: Tensor, cuts: Tensor) -> Tensor:
        """Probabilities of the classes under a normal distribution of each cell.

        Shape: mean, std [m], cuts [m, B - 1] (class borders in the units of the mean) -> [m, B].
        """
        below = torch.special.ndtr((cuts - mean[:, None]) / std[:, None])
        zero, one = below.new_zeros(len(mean), 1), below.new_ones(len(mean), 1)
        return torch.cat([zero, below, one], dim=1).diff(dim=1).clamp_min(0)

    @property
    def scores(self) -> Tensor:
        """Class borders as normal scores, infinite beyond the last class. Shape: [p, B - 1]."""
        scores: Tensor = torch.special.ndtri(self.heights[:, 1:-1].double()).float()
        return scores

    def mean(self, bins: Tensor, columns: Tensor) -> Tensor:
        """Means of distributions over the classes. Shape: [m, B], columns [m] -> [m]."""
        return (bins * self.means[columns]).sum(dim=1)

    def std(self, bins: Tensor, columns: Tensor) -> Tensor:
        """Standard deviations of distributions over the classes. Shape: [m, B], columns [m] -> [m]."""
        far = self.means[columns] - self.mean(bins, columns)[:, None]
        return (bins * (self.variances[columns] + far.square())).sum(dim=1).clamp_min(0).sqrt()

    def std_of(self, predictive: Predictive, columns: Tensor) -> Tensor:
        """Standard deviations of numbers. Shape: columns [m] -> [m]."""
        assert predictive.bins is not None
        std, line = self.std(predictive.bins, columns), predictive.line_std
        return std if line is None else torch.where(line > 0, line, std)

    def quantile(self, predictive: Predictive, columns: Tensor, level: float) -> Tensor:
        """Quantiles of numbers. Shape: columns [m] -> [m]."""
        bins = predictive.bins
        assert bins is not None
        below = bins.cumsum(dim=1)
        at = level * below[:, -1]
        found = torch.minimum((below < at[:, None]).sum(dim=1), self.n_classes[columns] - 1)
        own = bins.gather(1, found[:, None])[:, 0]
        before = below.gather(1, found[:, None])[:, 0] - own
        place = ((at - before) / own.clamp_min(1e-9)).clamp(0, 1)
        values = self._value_inside(columns, found, place, predictive, observed=False)
        return _on_lines(values, predictive, NormalDist().inv_cdf(level))

    def draw(self, predictive: Predictive, columns: Tensor, chance: Tensor, place: Tensor) -> Tensor:
        """Draw a class, then an observed value inside it. Shape: columns, uniform numbers [m] -> [m]."""
        bins = predictive.bins
        assert bins is not None
        below = bins.cumsum(dim=1)
        found = (below < chance[:, None] * below[:, -1:]).sum(dim=1)
        found = torch.minimum(found, self.n_classes[columns] - 1)
        values = self._value_inside(columns, found, place, predictive, observed=True)
        return _on_lines(values, predictive, torch.special.ndtri(chance.clamp(1e-7, 1 - 1e-7)))

    @property
    def borders(self) -> Tensor:
        """Smallest value, borders between classes, largest value. Shape: [p, B + 1]."""
        values = self.marginals.values
        first, last = values[:, :1], values[:, -1:]
        return torch.cat([first, torch.minimum(torch.maximum(self.edges, first), last), last], dim=1)

    def inside(self, values: Tensor, columns: Tensor) -> Tensor:
        """Cut values off at the ends of the observed range. Shape: values, columns [m] -> [m]."""
        ends = self.marginals.values
        return torch.minimum(torch.maximum(values, ends[columns, 0]), ends[columns, -1])

    def parts_of(self, columns: Tensor, classes: Tensor, x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
        """Cut the class of each cell into parts of equal probability, and find that of its value.

        Shape: columns, classes, x [m] -> borders [m, parts + 1], place [m].
        """
        low, high = self.heights[columns, classes], self.heights[columns, classes + 1]
        at = [low + k / parts * (high - low) for k in range(parts + 1)]
        borders = torch.stack([self._values_at(columns, one, observed=False) for one in at], dim=1)
        return borders, (x[:, None] > borders[:, 1:-1]).sum(dim=1)

    def _value_inside(
        self, columns: Tensor, found: Tensor, place: Tensor, predictive: Predictive, *, observed: bool
    ) -> Tensor:
        """Values a share of the way through classes. Shape: columns, found, place [m] -> [m].

        It is a share of the observed values, or of the normal density around the mean.
        """
        low, high = self.heights[columns, found], self.heights[columns, found + 1]
        values = self._values_at(columns, low + place * (high - low), observed=observed)
        if predictive.inner is None:
            return values
        mean, std = predictive.mean.double(), predictive.inner.double()
        borders = self.borders.double()
        a, b = borders[columns, found], borders[columns, found + 1]
        spread = std.clamp_min(1e-9)
        below, upto = (torch.special.ndtr((end - mean) / spread) for end in (a, b))
        # Far from the mean the density has no digits left.
        is_known = (std > 0) & (upto - below > FAINTEST) & (self.variances[columns, found] > 0)
        inner = mean + spread * torch.special.ndtri(below + place * (upto - below))
        inner = torch.minimum(torch.maximum(inner, a), b).float()
        if observed:
            inner = self._values_at(columns, self._height_of(columns, inner, low, high), observed=True)
        return torch.where(is_known, inner, values)

    def _height_of(self, columns: Tensor, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Distribution functions of values between two heights, by halving. Shape: all [m] -> [m]."""
        v, u = self.marginals.values, self.marginals.probabilities
        left, right = (self._knot(columns, height) for height in (low, high))
        for _ in range(v.shape[1].bit_length()):
            middle = (left + right) // 2
            is_below = v[columns, middle] < x
            left, right = torch.where(is_below, middle + 1, left), torch.where(is_below, right, middle)
        left = left.clamp(1, v.shape[1] - 1)
        v0, v1, u0, u1 = (t[columns, k] for t in (v, u) for k in (left - 1, left))
        height = u0 + ((x - v0) / (v1 - v0).clamp_min(1e-20)).clamp(0, 1) * (u1 - u0)
        return torch.minimum(torch.maximum(height, low), high)

    def _knot(self, columns: Tensor, heights: Tensor) -> Tensor:
        """The first knot of each distribution function that is not below a height. Shape: [m] -> [m]."""
        # Heights are in [0, 1]: with the number of their column all knots are one ascending sequence.
        u = self.marginals.probabilities
        keys = u.double() + 2 * torch.arange(len(u), device=u.device)[:, None]
        at = heights.double() + 2 * columns
        return torch.searchsorted(keys.flatten(), at) - columns * u.shape[1]

    def _values_at(self, columns: Tensor, heights: Tensor, *, observed: bool) -> Tensor:
        """Values at points of the distribution function, interpolated or only observed ones.

        Shape: columns, heights [m] -> [m].
        """
        v, u = self.marginals.values, self.marginals.probabilities
        right = self._knot(columns, heights).clamp(1, v.shape[1] - 1)
        v0, v1, u0, u1 = (t[columns, k] for t in (v, u) for k in (right - 1, right))
        share = ((heights - u0) / (u1 - u0).clamp_min(1e-20)).clamp(0, 1)
        return torch.where(share < 0.5, v0, v1) if observed else v0 + share * (v1 - v0)


def _on_lines(values: Tensor, predictive: Predictive, score: Tensor | float) -> Tensor:
    """Put normal distributions in the place of cells on lines. Shape: [m] -> [m]."""
    if predictive.line_std is None:
        return values
    return torch.where(predictive.line_std > 0, predictive.mean + predictive.line_std * score, values)

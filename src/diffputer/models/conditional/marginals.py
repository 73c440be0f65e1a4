"""Each numeric column's own distribution: monotone maps between values and standard normal scores.

F_j is the empirical distribution function of column j's observed cells, z = Phi^-1(F_j(x)) its normal
score. Heavy tails, spikes and gaps disappear in z: there every column is standard normal, which is what
the diffusion and the quantiles are learnt on. A value that occurs often fills an interval of scores; a
score drawn at random from it ("dequantised") keeps z continuous, and every score in it maps back to
exactly that value.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor, nn

from ...nn.loading import require, require_between

#: Points of F that are kept for each column.
KNOTS = 1024
#: Points of the normal distribution over which a mean is taken, and about how far out they go.
POINTS, FARTHEST = 32, 3.3
#: The tails, in which an eighth of the points lie on either side: where heavy ones have their mass.
TAIL = 0.05


class Marginals(nn.Module):
    """Piecewise linear F_j through order statistics, for p columns at once.

    Shape: values, probabilities [p, K], both ascending along K.
    """

    values: Tensor
    probabilities: Tensor

    def __init__(self, n_columns: int, knots: int = KNOTS) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(n_columns, knots))
        self.register_buffer("probabilities", torch.full((n_columns, knots), 0.5))

    @classmethod
    def fit(
        cls, x: NDArray[np.float32], missing: NDArray[np.bool_], columns: NDArray[np.int64] | None = None
    ) -> Marginals:
        """Learn the distribution functions of some columns, default: all, from observed cells.

        Shape: x, missing [n, d]; columns [p].
        """
        places = np.arange(x.shape[1]) if columns is None else columns
        marginals = cls(len(places))
        for j, place in enumerate(places):
            ordered = np.sort(x[~missing[:, place], place])
            if len(ordered) == 0:
                continue
            ranks = choose_ranks(len(ordered))
            pad = np.pad(ranks, (0, KNOTS - len(ranks)), mode="edge")
            marginals.values[j] = torch.from_numpy(ordered[pad])
            # Of very many rows the last one's (n - 1/2) / n would round to one, whose score is infinite.
            marginals.probabilities[j] = torch.from_numpy((pad + 0.5) / len(ordered)).clamp_max(1 - 2**-24)
        return marginals

    def check_values(self) -> None:
        """Raise ValueError unless these are distribution functions."""
        for ascending in (self.values, self.probabilities):
            require(ascending.diff(dim=1) >= 0, "knots of a distribution must ascend")
        require_between(torch.finfo(torch.float32).tiny, 1 - 2**-24, probabilities=self.probabilities)

    def distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give F(x-) and F(x); they differ where a value occurs often.

        Shape: x [n, p] -> two of [n, p].
        """
        v, u = self.values, self.probabilities
        x = x.T.contiguous()
        first = torch.searchsorted(v, x).clamp(1, v.shape[1] - 1)  # first knot that is not below x
        last = torch.searchsorted(v, x, right=True).clamp(1, v.shape[1] - 1)  # first knot above x
        below = _interpolate(x, v, u, first)
        upto = _interpolate(x, v, u, last)
        return torch.minimum(below, upto).T, torch.maximum(below, upto).T

    def scores(self, x: Tensor) -> Tensor:
        """Give z in the middle of the interval of each value.

        Shape: x [n, p] -> [n, p].
        """
        below, upto = self.distribution(x)
        z: Tensor = torch.special.ndtri((below + upto) / 2)
        return z

    def values_at(self, z: Tensor) -> Tensor:
        """Give the values with scores z, inside the observed range.

        Shape: z [n, p] -> [n, p].
        """
        v, u = self.values, self.probabilities
        p = torch.special.ndtr(z).T.contiguous()
        k = torch.searchsorted(u, p).clamp(1, v.shape[1] - 1)
        return _interpolate(p, u, v, k).T

    def means_at(self, middle: Tensor, spread: Tensor, wanted: Tensor) -> Tensor:
        """Give the mean values of wanted cells, whose scores are normal with this middle and spread.

        Shape: middle, spread, wanted [n, p] -> [n, p], 0 where not wanted.
        """
        points, weights = normal_points(POINTS, FARTHEST, middle.device)
        if middle.is_cuda:  # where looking up every cell costs less than waiting for the number of some
            return self._means_of_all(middle, spread, points, weights) * wanted
        means = torch.zeros_like(middle)
        cells = wanted.T.nonzero().split(wanted.sum(dim=0).tolist())
        # Column by column, so that nothing is looked up for the cells that are known: most of them.
        for j, rows in enumerate(of_column[:, 1] for of_column in cells):
            p = torch.special.ndtr(middle[rows, j, None] + spread[rows, j, None] * points).T.contiguous()
            u, v = self.probabilities[j], self.values[j]
            k = torch.searchsorted(u, p).clamp(1, len(u) - 1)
            values = _interpolate(p, u.expand(POINTS, -1), v.expand(POINTS, -1), k)
            # In double, so that a cell has the same bits among any others.
            means[rows, j] = (values.double() * weights[:, None]).sum(dim=0).to(means.dtype)
        return means

    def _means_of_all(self, middle: Tensor, spread: Tensor, points: Tensor, weights: Tensor) -> Tensor:
        """Give the mean values of all cells, in few large steps. Shape: [n, p] twice, [k] twice -> [n, p]."""
        v, u = self.values, self.probabilities
        p = torch.special.ndtr(torch.addcmul(middle.T[..., None], spread.T[..., None], points)).flatten(1)
        k = torch.searchsorted(u, p).clamp_(1, v.shape[1] - 1)
        values = _interpolate(p, u, v, k).view(*middle.T.shape, len(points))
        return (values.double() * weights).sum(dim=2).to(middle.dtype).T


@cache
def normal_points(count: int, farthest: float, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Choose points of the standard normal distribution and their weights, which stand for parts of it.

    Most parts have the same probability, so that steps of a function are found; those of the tails the same
    width, as of functions that rise fast there little else counts. A point is the mean of its part.

    Shape: -> [count], in single precision, and [count], in double.

    Examples
    --------
    >>> points, weights = normal_points(32, 3.3)
    >>> round(float((weights * points.exp()).sum() / np.exp(0.5)), 3)  # 0.967 where all points count the same
    0.996
    """
    outer = np.append(np.linspace(-ndtri(TAIL), farthest, count // 8), np.inf)
    inner = ndtri(np.linspace(TAIL, 1 - TAIL, count - 2 * (count // 8) + 1))
    edges = np.concatenate([-outer[:0:-1], inner, outer[1:]])
    weights = np.diff(ndtr(edges))
    points = -np.diff(np.exp(-np.square(edges) / 2)) / np.sqrt(2 * np.pi) / weights
    return torch.from_numpy(points).float().to(device), torch.from_numpy(weights).to(device)


def choose_ranks(n: int) -> NDArray[np.int64]:
    """Choose at most KNOTS of n ranks: half evenly, half evenly in z so that the tails are resolved.

    Examples
    --------
    >>> choose_ranks(3)
    array([0, 1, 2])
    >>> len(choose_ranks(10_000_000)) <= KNOTS
    True
    """
    if n <= KNOTS:
        return np.arange(n)
    even = np.linspace(0, n - 1, KNOTS // 2)
    tails = n * ndtr(np.linspace(-6, 6, KNOTS // 2)) - 0.5
    return np.unique(np.clip(np.rint(np.concatenate([even, tails])), 0, n - 1).astype(np.int64))


def _interpolate(x: Tensor, knots: Tensor, heights: Tensor, right: Tensor) -> Tensor:
    """Read a piecewise linear function at x, between the knots right - 1 and right of each row."""
    x0, x1 = knots.gather(1, right - 1), knots.gather(1, right)
    y0, y1 = heights.gather(1, right - 1), heights.gather(1, right)
    share = ((x - x0) / (x1 - x0).clamp_min(1e-20)).clamp(0, 1)
    return y0 + share * (y1 - y0)

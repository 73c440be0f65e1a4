"""What a blank answer leaves open of a cell: a residual r that is standard normal if the answer is right.

The blank row gives quantiles q_1 < ... < q_Q of z given the condition, at the levels u_1 < ... < u_Q. With
g_k = Phi^-1(u_k) the map that takes q_k to g_k, linear between and beyond, takes z to r = Phi^-1(F(z | c)).
So every unknown cell is standard normal in r whatever the condition: near or far, narrow or wide, skewed or
heavy-tailed. What is left for the diffusion to learn is how the residuals of a row go together; and a draw
of r, mapped back, has the distribution that the quantiles say.

Several parts of an ensemble say different things. What they say together, each as often as it counts, is a
distribution too, and has such maps (``pool``). In its residuals all draws are given a last shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

#: Levels of the quantiles that one evaluation gives.
QUANTILES = (0.005, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.995)
MEDIAN = QUANTILES.index(0.5)
#: No cell is surer than this, in units of its column's deviation: as networks say it, and as all parts do
#: together, of which the copula may be as sure as it likes.
SMALLEST_SPREAD, SMALLEST_OF_POOL = 0.02, 1e-4
#: Residuals are cut off here: beyond, the outermost quantiles say nothing.
LARGEST_RESIDUAL = 5.0
#: Widths that change from the middle to the ends do so until here.
CHANGES_UNTIL = 2.5


@cache
def normal_quantiles(device: torch.device | None = None) -> Tensor:
    """Give the scores g of the quantiles' levels. Shape: [Q]."""
    # On a device by name: what is kept must not be on the one that happens to be the default.
    levels = torch.tensor(QUANTILES, dtype=torch.float32, device=device or "cpu")
    scores: Tensor = torch.special.ndtri(levels)
    return scores


@cache
def quantile_weights(device: torch.device | None = None) -> Tensor:
    """Give the probability that each quantile stands for: that of the levels nearest to it. Shape: [Q]."""
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(QUANTILES)), 1.0]
    return torch.tensor([b - a for a, b in pairwise(edges)], dtype=torch.float32, device=device or "cpu")


class Residuals:
    """The maps between scores z and residuals r of cells.

    Shape: quantiles [..., Q] in any order, normal [Q], the scores g of their levels.
    """

    def __init__(self, quantiles: Tensor, normal: Tensor, smallest: float = SMALLEST_SPREAD) -> None:
        ordered = quantiles.sort(dim=-1).values
        gaps = torch.maximum(ordered.diff(dim=-1), smallest * normal.diff())
        # A GPU sums up along the first dimension many times as fast as along the last.
        sums = gaps.movedim(-1, 0).contiguous().cumsum(dim=0).movedim(0, -1)
        steps = torch.nn.functional.pad(sums, (1, 0))
        self.middle = ordered[..., MEDIAN]
        self._quantiles = steps - steps[..., MEDIAN, None] + self.middle[..., None]
        self._normal, self._smallest = normal, smallest
        low, high = MEDIAN - 3, MEDIAN + 3
        distance = self._quantiles[..., high] - self._quantiles[..., low]
        self.spread = (distance / (normal[high] - normal[low])).clamp_max(2.0)

    def of(self, z: Tensor) -> Tensor:
        """Give the residuals of scores, one or several of each cell.

        Shape: z [...] or [..., k] -> as z.
        """
        return self.beyond(z).clamp(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)

    def beyond(self, z: Tensor) -> Tensor:
        """Give the same, not cut off."""
        return _follow(z, self._quantiles, self._normal.expand_as(self._quantiles))

    def scores(self, r: Tensor) -> Tensor:
        """Give the scores with these residuals, one or several of each cell.

        Shape: r [...] or [..., k] -> as r.
        """
        r = r.clamp(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        return _follow(r, self._normal.expand_as(self._quantiles), self._quantiles)

    def at(self, cells: Tensor | slice) -> Residuals:
        """Give the maps of some cells, or rows. Shape: cells [...] -> maps of [cells]."""
        return Residuals(self._quantiles[cells], self._normal, self._smallest)


@dataclass
class Normal:
    """The same maps where scores are normal, and a cell may be as sure as it likes.

    Shape: expected, deviation [...].
    """

    expected: Tensor
    deviation: Tensor

    def of(self, z: Tensor) -> Tensor:
        """Give the residuals of scores, one or several of each cell. Shape: z [...] or [..., k] -> as z."""
        return self.beyond(z).clamp(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)

    def beyond(self, z: Tensor) -> Tensor:
        """Give the same, not cut off."""
        expected, deviation = self._for(z)
        return (z - expected) / deviation

    def scores(self, r: Tensor) -> Tensor:
        """Give the scores with residuals, one or several of each cell. Shape: r [...] or [..., k] -> as r."""
        expected, deviation = self._for(r)
        return expected + deviation * r

    @property
    def middle(self) -> Tensor:
        """The scores whose residuals are zero. Shape: [...]."""
        return self.expected

    def _for(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.dim() == self.expected.dim():
            return self.expected, self.deviation
        return self.expected[..., None], self.deviation[..., None]

    def at(self, cells: Tensor | slice) -> Normal:
        """Give the maps of some cells, or rows. Shape: cells [...] -> maps of [cells]."""
        return Normal(self.expected[cells], self.deviation[cells])


#: Halvings of the range in which a quantile of several parts together lies; cells that are pooled at once.
HALVINGS, CELLS_AT_ONCE = 12, 1 << 19


@dataclass
class Part:
    """What one part says of cells, how wide it is really, and how much it counts.

    Shape: maps of [n, p], width [p].
    """

    maps: Residuals | Normal
    width: Tensor
    weight: float


def pool(parts: list[Part], normal: Tensor) -> Residuals:
    """Give the maps of the distribution that parts have together: F(z) = sum of w_k Phi(r_k(z) / width_k).

    Shape: normal [Q] -> maps of [n, p].
    """
    n, p = parts[0].maps.middle.shape
    step = max(1, CELLS_AT_ONCE // max(1, p))
    return Residuals(
        torch.cat([_pool(parts, slice(start, start + step), normal) for start in range(0, max(1, n), step)]),
        normal,
        SMALLEST_OF_POOL,
    )


def _pool(parts: list[Part], rows: slice, normal: Tensor) -> Tensor:
    """Give the quantiles of some rows: those of all lie between those of the parts. Shape: -> [n, p, Q]."""
    maps, widths = [part.maps.at(rows) for part in parts], [part.width[:, None] for part in parts]
    quantiles = torch.stack(
        [
            one.scores((width * normal).expand(*one.middle.shape, -1))
            for one, width in zip(maps, widths, strict=True)
        ]
    )
    low, high = quantiles.amin(dim=0), quantiles.amax(dim=0)
    levels = torch.special.ndtr(normal)
    for _ in range(HALVINGS if len(parts) > 1 else 0):
        middle, below = (low + high) / 2, torch.zeros_like(low)
        for part, one, width in zip(parts, maps, widths, strict=True):
            below += part.weight * torch.special.ndtr(one.beyond(middle) / width)
        low, high = torch.where(below < levels, middle, low), torch.where(below < levels, high, middle)
    return (low + high) / 2


def _follow(x: Tensor, knots: Tensor, heights: Tensor) -> Tensor:
    """Read piecewise linear functions, whose ends go on straight, once or several times each.

    Shape: x [...] or [..., k], others [..., Q] -> as x.
    """
    several = x.dim() == knots.dim()
    at, inner = x if several else x[..., None], knots[..., 1:-1]
    if several:  # comparing with all knots would take Q times the memory
        left = torch.searchsorted(inner.contiguous(), at.contiguous())
    else:
        left = (at > inner).sum(dim=-1, keepdim=True)
    x0, x1, y0, y1 = (part.gather(-1, left + i) for part in (knots, heights) for i in (0, 1))
    y = y0 + (at - x0) / (x1 - x0) * (y1 - y0)
    return y if several else y[..., 0]


@dataclass
class Width:
    """How much wider than said a distribution is: r becomes w exp(a + b |r|) r.

    Where b is above zero most truths lie nearer to the middle than the ends would have it.
    Shape: of_columns [p], the w of columns; shape [2], a and b.
    """

    of_columns: Tensor = field(default_factory=lambda: torch.ones(()))
    shape: Tensor = field(default_factory=lambda: torch.zeros(2))

    def stretch(self, r: Tensor) -> Tensor:
        """Widen residuals. Shape: r [..., p] -> [..., p]."""
        stretched: Tensor = self.of_columns * reshape(r, self.shape)
        return stretched


def reshape(r: Tensor, shape: Tensor) -> Tensor:
    """Give exp(a + b |r|) r, which rises with r as b is above -1 / CHANGES_UNTIL."""
    return r * torch.exp(shape[0] + shape[1] * r.abs().clamp_max(CHANGES_UNTIL))


def undo_reshape(t: Tensor, shape: Tensor) -> Tensor:
    """Give the r that were reshaped to t, up to twice the largest residual."""
    r = torch.linspace(0, 2 * LARGEST_RESIDUAL, 501, device=t.device)
    found = torch.searchsorted(reshape(r, shape), t.abs().contiguous()).clamp(1, len(r) - 1)
    low, high = reshape(r[found - 1], shape), reshape(r[found], shape)
    share = ((t.abs() - low) / (high - low)).clamp_max(1.0)
    return t.sign() * torch.lerp(r[found - 1], r[found], share)

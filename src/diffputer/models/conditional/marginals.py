"""Each numeric column's own distribution: a monotone map from values to standard normal scores.

F_j is the empirical distribution function of column j's observed cells, z = Phi^-1(F_j(x)) its normal
score. Heavy tails, spikes and gaps disappear in z: there every column is standard normal. A value that
occurs often fills an interval of scores.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor, nn

from ...nn.loading import require, require_between

#: Points of F that are kept for each column.
KNOTS = 1024


class Marginals(nn.Module):
    """Piecewise linear F_j through order statistics, for p columns at once.

    Shape: values, probabilities [p, K], both ascending along K.
    """

    values: Tensor
    probabilities: Tensor

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(n_columns, KNOTS))
        self.register_buffer("probabilities", torch.full((n_columns, KNOTS), 0.5))

    @classmethod
    def fit(cls, x: NDArray[np.float32], missing: NDArray[np.bool_], columns: NDArray[np.int64]) -> Marginals:
        """Distribution functions of some columns, from their observed cells.

        Shape: x, missing [n, d]; columns [p].
        """
        marginals = cls(len(columns))
        for j, column in enumerate(columns):
            ordered = np.sort(x[~missing[:, column], column])
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
        """F(x-) and F(x), which differ where a value occurs often.

        Shape: x [n, p] -> two of [n, p].
        """
        x = x.T.contiguous()
        below, upto = (self._interpolate(x, right=right) for right in (False, True))
        return torch.minimum(below, upto).T, torch.maximum(below, upto).T

    def _interpolate(self, x: Tensor, *, right: bool) -> Tensor:
        """F on the line through the knots before and after x; of equal knots, the first or the last.

        Shape: x [p, n] -> [p, n].
        """
        v, u = self.values, self.probabilities
        after = torch.searchsorted(v, x, right=right).clamp(1, v.shape[1] - 1)
        v0, v1, u0, u1 = (knots.gather(1, at) for knots in (v, u) for at in (after - 1, after))
        share = ((x - v0) / (v1 - v0).clamp_min(1e-20)).clamp(0, 1)
        return u0 + share * (u1 - u0)

    def scores(self, x: Tensor) -> Tensor:
        """Normal scores, in the middle of the interval of each value.

        Shape: x [n, p] -> [n, p].
        """
        below, upto = self.distribution(x)
        z: Tensor = torch.special.ndtri((below + upto) / 2)
        return z


def choose_ranks(n: int) -> NDArray[np.int64]:
    """At most KNOTS of n ranks: half evenly, half evenly in z so that the tails are resolved.

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

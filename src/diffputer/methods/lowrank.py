"""SoftImpute: the matrix of smallest nuclear norm near the observed cells.

Mazumder, Hastie and Tibshirani 2010: minimise  1/2 sum over observed (X - Z)^2 + lambda |Z|_*  by

    Z <- S_lambda(observed X, elsewhere Z),   S_lambda shrinks the singular values by lambda,

from large to small lambda, each starting from the last. With few columns, Y = U D V' is shrunk by a matrix of
its columns' size: S_lambda(Y) = Y W, W = V max(0, 1 - lambda / D) V'. At the solution a row's missing part is
then Z_M = Z_M W_MM + X_O W_OM, which gives the rows of another table, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.seeding import derive_seed
from .coding import Counts, Floats, Indicators
from .contract import CodedMethod, Facts, Setting
from .patterns import Patterns

SOFTIMPUTE = Facts(
    name="softimpute",
    what="A matrix of low rank: nuclear norm, its weight chosen on held-out observed cells.",
    source="Mazumder, Hastie and Tibshirani 2010; own code from the equations.",
    cannot="See anything but linear relations; levels are numbers to it.",
    settings={
        "n_weights": Setting(20, "own choice: weights of the norm that are tried, evenly in logarithm"),
        "smallest_weight": Setting(1e-3, "own choice: as a share of the one that gives zero"),
        "held_out": Setting(0.1, "own choice: share of observed cells on which the weight is chosen"),
        "max_iter": Setting(500, "own choice, for each weight"),
        "tolerance": Setting(1e-4, "own choice: relative change of Z at which a weight is done"),
    },
    published="softimpute",
)


def shrink(y: Floats, weight: float) -> tuple[Floats, Floats]:
    """Shrink singular values: give S(y) = y W, and W. Shape: [n, d] -> [n, d], [d, d].

    Examples
    --------
    >>> shrink(np.diag([3.0, 1.0]), 2.0)[0].round(6)
    array([[1., 0.],
           [0., 0.]])
    """
    squares, v = np.linalg.eigh(y.T @ y)
    singular = np.sqrt(np.maximum(squares, 0.0))
    kept = np.maximum(0.0, 1.0 - weight / np.maximum(singular, 1e-300))
    w = (v * kept) @ v.T
    return y @ w, w


def solve(y: Floats, weights: Floats, *, max_iter: int, tolerance: float) -> Iterator[tuple[Floats, Floats]]:
    """Complete a matrix with one weight after the other, and give Z and W for each.

    Shape: y [n, d], NaN for holes; Z [n, d], W [d, d].
    """
    missing = np.isnan(y)
    z = np.zeros_like(y)
    known = np.where(missing, 0.0, y)
    for weight in weights:
        for _ in range(max_iter):
            new, w = shrink(np.where(missing, z, known), weight)
            change, size = np.square(new - z).sum(), np.square(z).sum()
            z = new
            if change <= tolerance**2 * max(size, 1e-12):
                break
        yield z, w


class SoftImpute(CodedMethod):
    """A table as a matrix of low rank."""

    def _fit(self, x: Floats, n_levels: Counts, seed: int) -> None:
        self._indicators = Indicators(n_levels)
        y = self._indicators.expand(x)
        self._mean = np.nanmean(y, axis=0)
        y -= self._mean
        path = {key: self.settings[key] for key in ("max_iter", "tolerance")}
        weights = self._choose_weights(y, n_levels, seed, path)
        *_, (_, self._matrix) = solve(y, weights, **path)

    def _choose_weights(self, y: Floats, n_levels: Counts, seed: int, path: dict[str, Any]) -> Floats:
        """Give the weights from the largest down to the one that predicts held-out cells best."""
        largest = np.linalg.norm(np.where(np.isnan(y), 0.0, y), 2)
        weights = np.geomspace(1.0, self.settings["smallest_weight"], int(self.settings["n_weights"]))
        generator = np.random.default_rng(derive_seed(seed, "softimpute") & ((1 << 63) - 1))
        cells = generator.random((len(y), len(n_levels))) < self.settings["held_out"]
        # The indicators of a category are held out together, as they are missing together.
        tested = cells[:, self._indicators.owners] & ~np.isnan(y)
        rest = np.where(tested, np.nan, y)
        errors = [np.square(z - y)[tested].sum() for z, _ in solve(rest, largest * weights, **path)]
        best = int(np.argmin(errors))
        chosen: Floats = largest * weights[: best + 1]
        return chosen

    def _complete(self, x: Floats) -> Floats:
        y = self._indicators.expand(x) - self._mean
        patterns = Patterns(np.isnan(y))
        known = np.where(patterns.missing, 0.0, y)
        # (I - W)_MM z_M = W_MO x_O; the sum reaches W_OM, as known is zero in M.
        completed = known.copy()
        for block in patterns.blocks(np.eye(len(self._matrix)) - self._matrix):
            completed[block.rows] += block.solve(known[block.rows] @ self._matrix)
        return self._indicators.collapse(completed + self._mean)

"""How far off the filled cells are, by column and overall, and how sure the order of the methods is.

The error of a column is on the same scale whatever it holds, 0 for perfect and about 1 for filling in one
value for all:

    numbers     root mean squared error / deviation of the known cells
    categories  share of wrong levels / share that the most frequent level gets wrong among the known cells

The overall error is the mean over columns, each counting the same. Rows are drawn again with replacement
(the bootstrap), the same ones for every method: how much the errors vary then is how unsure they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .hiding import Hidden
from .preparation import Coded

Floats = NDArray[np.float64]
#: Columns with fewer hidden cells, and with less than half of what others have, are shown, but do not count:
#: chance alone would decide.
FEWEST_IN_COLUMN = 10
#: How often rows are drawn again, and into how many groups they are dealt before.
DRAWS, GROUPS = 2_000, 1_000
#: Probability of all intervals.
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Scores:
    """Errors of k methods on the same hidden cells of c columns.

    Attributes
    ----------
    methods
        Their names, in the order given.
    overall
        Mean error over the columns that count, [k].
    columns
        Error of each column, [k, c]; NaN where no cell was hidden.
    counted
        Which columns are in the mean, [c].
    n_cells
        Hidden cells of each column, [c].
    n_rows
        Rows with a hidden cell.
    draws
        The overall errors with rows drawn again, [draws, k].
    mae, rmse, accuracy
        Over all hidden numbers, in deviations, and over all hidden levels, [k]; NaN where there are none.
    """

    methods: tuple[str, ...]
    overall: Floats
    columns: Floats
    counted: NDArray[np.bool_]
    n_cells: NDArray[np.int64]
    n_rows: int
    draws: Floats
    mae: Floats
    rmse: Floats
    accuracy: Floats

    @property
    def order(self) -> list[int]:
        """Positions of the methods, best first; of equal ones the first given."""
        return [int(k) for k in np.argsort(self.overall, kind="stable")]

    @property
    def probability_best(self) -> Floats:
        """How often each method is the best if rows are drawn again, [k]; equal ones share."""
        best = self.draws <= self.draws.min(axis=1, keepdims=True) + 1e-12
        share: Floats = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        return share

    def interval(self, k: int) -> tuple[float, float]:
        """Give the interval of a method's overall error."""
        return ends(self.draws[:, k])

    def difference(self, k: int, other: int) -> tuple[float, float, float]:
        """Give by how much the error of one method is larger than that of another, with its interval."""
        low, high = ends(self.draws[:, k] - self.draws[:, other])
        return float(self.overall[k] - self.overall[other]), low, high

    def relative(self, k: int, other: int) -> tuple[float, float, float]:
        """Give by which share the error of one method is below that of another, with its interval."""
        floor = 1e-12
        low, high = ends(1 - self.draws[:, k] / np.maximum(self.draws[:, other], floor))
        return float(1 - self.overall[k] / max(self.overall[other], floor)), low, high

    def may_be_better(self, k: int, other: int) -> bool:
        """Say whether a method may be no worse than another: in more than 5 % of the draws it is not."""
        return bool((self.draws[:, k] <= self.draws[:, other] + 1e-12).mean() > 1 - LEVEL)

    @property
    def are_equal(self) -> bool:
        """Whether no method has a smaller error than another, as where there is one only."""
        return not leads(self.overall).any()

    def wins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the columns on which each method is in front, alone and level with others, [k] each."""
        part = self.columns[:, self.counted]
        front = part <= part.min(axis=0) + 1e-12
        alone = front & (front.sum(axis=0) == 1)
        return alone.sum(axis=1), (front & ~alone).sum(axis=1)


def leads(errors: Floats) -> NDArray[np.bool_]:
    """Say which of some errors are the smallest; none where all are equal.

    Examples
    --------
    >>> leads(np.array([1.0, 1.0, 2.0])).tolist(), leads(np.array([1.0, 1.0])).tolist()
    ([True, True, False], [False, False])
    """
    front: NDArray[np.bool_] = errors <= errors.min() + 1e-12
    return front & ~front.all()


def ends(draws: Floats) -> tuple[float, float]:
    """Give the ends of the middle part of draws that has the probability `LEVEL`."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def score(
    coded: Coded,
    hidden: Hidden,
    answers: Mapping[str, Mapping[int, Floats]],
    methods: Sequence[str],
    repetitions: Sequence[int],
    rng: np.random.Generator,
) -> Scores:
    """Score what methods filled in.

    Parameters
    ----------
    coded : Coded
        The table, with the truth.
    hidden : Hidden
        Which cells were hidden.
    answers : mapping
        Method -> repetition -> what stands in the hidden cells, row by row.
    methods : sequence of str
        Which to score.
    repetitions : sequence of int
        Those that all of them finished.
    rng : numpy Generator
        For drawing rows again.

    Returns
    -------
    Scores
    """
    c = coded.x.shape[1]
    places = [np.nonzero(hidden.cells[r]) for r in repetitions]
    column = np.concatenate([place[1] for place in places])
    # Cells of a row go together, in whatever repetitions they were hidden: they are not independent.
    unit = np.concatenate([place[0] for place in places])
    truth = np.concatenate([coded.x[place] for place in places])
    found = np.stack([np.concatenate([answers[name][r] for r in repetitions]) for name in methods])
    is_level = coded.n_levels[column] > 0
    gap = np.where(is_level, (found != truth).astype(np.float64), found - truth)
    # A squared 0/1 is itself, so that both sorts are summed in the same way.
    sums, counts = _sum_by_row(gap**2, column, unit, c, rng)
    n_cells = counts.sum(axis=0).astype(np.int64)
    counted = n_cells >= min(FEWEST_IN_COLUMN, float(np.median(n_cells[n_cells > 0])) / 2)
    counted &= n_cells > 0
    scale = np.array([_mode_error(coded, j) if coded.n_levels[j] else 1.0 for j in range(c)])
    columns = _errors(sums.sum(axis=0), counts.sum(axis=0), coded.n_levels, scale)
    draws = np.empty((DRAWS, len(methods)))
    for start in range(0, DRAWS, 100):
        weights = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=100).astype(np.float64)
        drawn = np.tensordot(weights, sums, axes=1)
        again = _errors(drawn, (weights @ counts)[:, None, :], coded.n_levels, scale)
        again = np.where(np.isnan(again), columns, again)  # by chance no row of this column was drawn
        draws[start : start + 100] = again[:, :, counted].mean(axis=2)
    number, level = gap[:, ~is_level], gap[:, is_level]
    nothing = np.full(len(methods), np.nan)
    return Scores(
        tuple(methods), columns[:, counted].mean(axis=1), columns, counted, n_cells,
        n_rows=len(np.unique(unit)),
        draws=draws,
        mae=np.abs(number).mean(axis=1) if number.size else nothing,
        rmse=np.sqrt((number**2).mean(axis=1)) if number.size else nothing,
        accuracy=1 - level.mean(axis=1) if level.size else nothing,
    )  # fmt: skip


def _sum_by_row(
    losses: Floats, column: NDArray[np.int64], unit: NDArray[np.int64], c: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Add up losses by row (of many rows: by group of rows) and column.

    Shape: losses [k, m] -> sums [groups, k, c], counts [groups, c].
    """
    _, group = np.unique(unit, return_inverse=True)
    n_rows = int(group.max()) + 1
    if n_rows > GROUPS:
        group = (rng.permutation(n_rows) % GROUPS)[group]
    n_groups = min(n_rows, GROUPS)
    place = group * c + column
    counts = np.bincount(place, minlength=n_groups * c).reshape(n_groups, c).astype(np.float64)
    sums = np.stack([np.bincount(place, row, n_groups * c).reshape(n_groups, c) for row in losses], axis=1)
    return sums.astype(np.float64), counts


def _errors(sums: Floats, counts: Floats, n_levels: NDArray[np.int64], scale: Floats) -> Floats:
    """Turn sums of losses into errors of columns; NaN where there is no cell. Shape: [..., c] each."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums / counts
    errors: Floats = np.where(n_levels > 0, mean, np.sqrt(mean)) / scale
    return errors


def _mode_error(coded: Coded, j: int) -> float:
    """Share of the known cells of a column that do not have its most frequent level."""
    known = coded.x[~np.isnan(coded.x[:, j]), j].astype(np.int64)
    return float(1 - np.bincount(known).max() / len(known))

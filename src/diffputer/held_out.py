"""Observed cells that are kept back from training, and how well they are imputed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .runtime.seeding import derive_seed
from .tables.schema import Schema

#: Fewest and most rows held out; small tables keep at least nine tenths of their rows.
HELD_OUT_ROWS = (20, 2_000)


@dataclass(frozen=True)
class HeldOut:
    """What is kept back from training: whole rows (paper's engine), and cells.

    Shape: rows [v], cells [n, d].
    """

    rows: NDArray[np.int64]
    cells: NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnErrors:
    """How well the held-out cells of each column were imputed; NaN where none was held out.

    Shape: each [columns that are modelled].
    """

    columns: NDArray[np.int64]
    """Positions in the table."""
    n: NDArray[np.int64]
    """Held-out cells."""
    error: NDArray[np.float64]
    """Mean absolute error in standard deviations of the column; of levels, the share that is wrong."""
    baseline: NDArray[np.float64]
    """The same for the column's mean or most frequent level."""
    ratio_error: NDArray[np.float64] | None = None
    """Standard error of error / baseline, from both errors of each cell; older models do not have it."""

    def to_frame(self, schema: Schema) -> pd.DataFrame:
        """Give one row for each column, by name: kind, n, error, baseline, their ratio, its standard error.

        Examples
        --------
        >>> from diffputer.tables.schema import Column
        >>> errors = ColumnErrors(*(np.array([value]) for value in (0, 9, 0.2, 0.8, 0.05)))
        >>> errors.to_frame(Schema((Column("x", "continuous"),))).to_dict("records")
        [{'kind': 'continuous', 'n': 9, 'error': 0.2, 'baseline': 0.8, 'ratio': 0.25, 'ratio_error': 0.05}]
        """
        chosen = [schema.columns[position] for position in self.columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.error / self.baseline
        return pd.DataFrame(
            {
                "kind": [str(column.kind) for column in chosen],
                "n": self.n,
                "error": self.error,
                "baseline": self.baseline,
                "ratio": ratio,
                "ratio_error": np.nan if self.ratio_error is None else self.ratio_error,
            },
            index=pd.Index([column.name for column in chosen], tupleize_cols=False, name="column"),
        )


def choose_held_out(
    missing: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    share: float,
    seed: int,
    *,
    limits: tuple[int, int] = (0, 5_000),
    always: bool = False,
) -> HeldOut:
    """Choose rows to hold out of every M-step, and observed cells to hide from EM.

    Cells are hidden whole: all encoded columns of a category together, and never more than a fifth of
    them. A complete table hides none unless ``always``, as it has nothing to impute.

    Shape: missing [n, d], blocks [d].
    """
    n = len(missing)
    rng = np.random.default_rng(derive_seed(seed, "held-out") & ((1 << 63) - 1))
    n_rows = min(n // 10, int(np.clip(round(share * n), *HELD_OUT_ROWS))) if share > 0 else 0
    rows = np.sort(rng.choice(n, n_rows, replace=False))
    columns, first = np.unique(blocks, return_index=True)
    observed = ~missing[:, first]
    cells = np.zeros_like(observed)
    if share > 0 and (always or missing.any()):
        up_to = np.cumsum(observed.sum(axis=1))  # observed cells of the rows so far
        n_observed = int(up_to[-1]) if n else 0
        wanted = int(share * n_observed)
        n_cells = min(int(np.clip(wanted, *limits)), max(wanted, n_observed // 5))
        # Found row by row: a list of all observed cells would take as much memory as the table.
        for number in rng.choice(n_observed, n_cells, replace=False) if n_cells else ():
            row = int(np.searchsorted(up_to, number, side="right"))
            columns_there = np.flatnonzero(observed[row])
            cells[row, columns_there[number - up_to[row]]] = True
    return HeldOut(rows, cells[:, np.searchsorted(columns, blocks)])


def hold_out_copies(held: HeldOut, place: NDArray[np.int64]) -> HeldOut:
    """Hold out of copies of rows what is held out of the rows: a copy would tell what is kept back.

    Shape: place [n], which row each is a copy of.

    Examples
    --------
    >>> held = HeldOut(np.array([1]), np.array([[False], [True]]))
    >>> hold_out_copies(held, np.array([0, 1, 1])).cells.ravel().tolist()
    [False, True, True]
    """
    return HeldOut(np.flatnonzero(np.isin(place, held.rows)), held.cells[place])


def column_centres(
    x: NDArray[np.float32], m: NDArray[np.bool_], n_levels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Give what one would fill in without a model: means, which are 0, and most frequent levels.

    Shape: x, m [n, d] -> [d].
    """
    centres = np.zeros(x.shape[1], dtype=np.float32)
    for j in np.flatnonzero(n_levels):
        centres[j] = np.bincount(x[~m[:, j], j].astype(np.int64), minlength=1).argmax()
    return centres


def cell_error(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    n_levels: NDArray[np.int64],
) -> float:
    """Give the mean absolute error over cells; one of several encoded columns counts once, as their mean."""
    errors, n = column_errors(truth, completed, cells, blocks, n_levels)
    return float(np.nansum(errors * n) / n.sum()) if n.any() else float("nan")


def column_errors(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    n_levels: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Give the mean absolute error over the cells of each column, NaN without any, and their number.

    Shape: truth, completed, cells [n, d], blocks, n_levels [d] -> [c], [c].

    Examples
    --------
    >>> truth, cells = np.zeros((2, 2), dtype=np.float32), np.array([[True, False], [True, False]])
    >>> column_errors(truth, truth + 0.5, cells, np.arange(2), np.zeros(2, dtype=np.int64))
    (array([0.5, nan]), array([2, 0]))
    """
    errors = _errors_of_cells(truth, completed, cells, blocks, n_levels)
    means = [float(one.mean()) if one.size else np.nan for one in errors]
    return np.array(means), np.array([one.size for one in errors])


def ratio_errors(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    centres: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    n_levels: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Give the standard error of each column's error over that of its centre, NaN with fewer than two cells.

    Both errors are of the same cells, so that of a ratio of means is that of the residuals e - r b: cells
    that both miss by as much say nothing against the ratio, and long tails widen it as they should.

    Shape: truth, completed, centres, cells [n, d], blocks, n_levels [d] -> [c].

    Examples
    --------
    >>> truth = np.array([[1.0], [2.0], [3.0], [6.0]], dtype=np.float32)
    >>> where = np.ones((4, 1), dtype=bool), np.arange(1), np.zeros(1, dtype=np.int64)
    >>> ratio_errors(truth, truth / 2, truth * 0, *where), ratio_errors(truth, truth - 1, truth * 0, *where)
    (array([0.]), array([0.12001372]))
    """
    errors, own = (_errors_of_cells(truth, one, cells, blocks, n_levels) for one in (completed, centres))
    found = np.full(len(errors), np.nan)
    for place, (e, b) in enumerate(zip(errors, own, strict=True)):
        if e.size > 1 and b.any():
            residuals = e - e.mean() / b.mean() * b
            found[place] = residuals.std(ddof=1) / np.sqrt(e.size) / b.mean()
    return found


def _errors_of_cells(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    n_levels: NDArray[np.int64],
) -> list[NDArray[np.float64]]:
    """Give, column by column, the absolute errors of its cells; of several encoded columns their mean."""
    columns, counts = np.unique(blocks, return_counts=True)
    found = [np.zeros(0) for _ in columns]
    for j in range(len(blocks)):
        error = np.abs(completed[cells[:, j], j] - truth[cells[:, j], j]).astype(np.float64)
        if n_levels[j]:
            error = np.minimum(error, 1)
        place = np.searchsorted(columns, blocks[j])
        earlier = found[place] if found[place].size else 0.0  # cells are held out whole
        found[place] = earlier + error / counts[place]
    return found

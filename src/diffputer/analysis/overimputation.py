"""Over-imputation: hide cells that are known, fill them in again, and compare.

Reference: Honaker, King and Blackwell, "Amelia II: a program for missing data" (Journal of Statistical
Software 2011), whose overimputation does so cell by cell. Here cells are hidden in folds and at random.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import InputError, SettingError
from ..tables.clock import from_number
from ..tables.frames import read_table
from ..tables.pieces import hide_cells, with_distinct_names
from ..tables.schema import Column, Kind, Schema, Status, unknown_names
from .scores import covered, crps, end_rank, level_score, probability_transform
from .views import View, centre_and_deviation, common_codes, look
from .wording import as_text

Floats = NDArray[np.float64]
#: How an imputer is handed over: it completes the table so many times, at random.
Draw = Callable[[Any, int], Sequence[Any]]
WHY_ALONE = {
    Status.CONSTANT: "one value only",
    Status.EMPTY: "no value",
    Status.PASSED_THROUGH: "free text or identifiers",
    Status.IDENTIFIER: "identifiers",
}


@dataclass(frozen=True)
class Redrawn:
    """Cells of one column that were known, and what was drawn for them.

    Attributes
    ----------
    column : Column
        What it holds.
    rows : ndarray of int, shape (m,)
        Where the cells are.
    truth : ndarray, shape (m,)
        Their values: numbers (dates, durations and times of day in microseconds), or codes of levels.
    draws : ndarray, shape (n_draws, m)
        What was drawn.
    levels : tuple
        Of a category; empty for numbers.
    centre, deviation : float
        Mean and standard deviation of the observed cells; of a category 0 and 1.
    holes : ndarray of int, shape (m,)
        How many cells of the row were missing, before any was hidden.
    baseline : ndarray, shape (m,)
        What one would fill in without a model: mean or most frequent code of the cells that were left.
    """

    column: Column
    rows: NDArray[np.int64]
    truth: Floats
    draws: Floats
    levels: tuple[Any, ...]
    centre: float
    deviation: float
    holes: NDArray[np.int64]
    baseline: Floats

    def estimate(self) -> Floats:
        """Give the mean of the draws of each cell, or the code that was drawn most often, [m]."""
        estimate: Floats
        if self.levels:
            counts = np.stack([(self.draws == code).sum(axis=0) for code in range(len(self.levels))])
            estimate = counts.argmax(axis=0).astype(np.float64)
        else:
            estimate = self.draws.mean(axis=0)
        return estimate

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Give the two draws of each cell that have the probability between them, [m] each."""
        k = end_rank(len(self.draws), level)
        ordered = np.sort(self.draws, axis=0)
        return ordered[k - 1], ordered[-k]

    def transform(self) -> Floats:
        """Give the probability integral transform of each cell, [m]; of numbers only."""
        return probability_transform(self.truth, self.draws)


@dataclass(frozen=True, repr=False)
class OverImputation:
    """What `over_impute` found.

    Attributes
    ----------
    columns : tuple of Redrawn
        One for each column whose cells were hidden.
    level : float
        Of the intervals.
    left_alone : tuple of Column
        Columns of which nothing was hidden: text, empty and constant ones.
    """

    columns: tuple[Redrawn, ...]
    level: float
    left_alone: tuple[Column, ...] = ()

    def __getitem__(self, name: Hashable) -> Redrawn:
        for one in self.columns:
            if one.column.name == name:
                return one
        for column in self.left_alone:
            if column.name == name:
                raise InputError(
                    f"Only known cells of modelled columns are hidden, however: column {name!r} was left "
                    f"alone, as it has {WHY_ALONE.get(column.status, 'no model')}."
                )
        raise unknown_names([name], tuple(one.column.name for one in self.columns))

    def to_frame(self) -> pd.DataFrame:
        """Give one row for each column, errors in standard deviations of its observed cells.

        Returns
        -------
        pandas.DataFrame
            column, kind and cells; error: root mean squared error of the mean of the draws, or the share of
            levels that are wrong; baseline: the same for the mean, or the most frequent level, of the
            cells that were left; bias: mean of estimate minus truth, and bias_error its standard error;
            coverage of the intervals and their mean width; crps: of the draws, for levels that of two
            different ones at distance 1. Bias, coverage and width are NaN for levels.
        """
        rows = [self._line(one) for one in self.columns]
        names = ["column", "kind", "cells", "error", "baseline", "bias", "bias_error", "coverage", "width"]
        return pd.DataFrame(rows, columns=[*names, "crps"])

    def to_cells(self) -> pd.DataFrame:
        """Give one row for each hidden cell: column, row, truth, estimate, lower, upper, covered.

        Ends of intervals are None for levels.
        """
        parts = []
        for one in self.columns:
            lower = upper = inside = np.full(len(one.rows), None, dtype=object)
            if not one.levels:
                lower, upper = (_native(one, end) for end in one.interval(self.level))
                inside = covered(one.truth, one.draws, self.level).astype(object)
            part = {"column": [one.column.name] * len(one.rows), "row": one.rows}
            part |= {"truth": _native(one, one.truth), "estimate": _native(one, one.estimate())}
            parts.append(pd.DataFrame(part | {"lower": lower, "upper": upper, "covered": inside}))
        names = ["column", "row", "truth", "estimate", "lower", "upper", "covered"]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)

    def __repr__(self) -> str:
        n_draws = len(self.columns[0].draws) if self.columns else 0
        head = (
            f"Over-imputation: {sum(len(one.rows) for one in self.columns):,} known cells, {n_draws} draws "
        )
        head += f"each, intervals of {self.level:.0%}; errors in standard deviations\n"
        return head + as_text(self.to_frame())

    def _line(self, one: Redrawn) -> tuple[Any, ...]:
        head, nan = (one.column.name, str(one.column.kind), len(one.rows)), float("nan")
        if one.levels:
            codes, drawn = one.truth.astype(np.int64), one.draws.astype(np.int64)
            score = level_score(codes, drawn, fair=len(drawn) > 1)
            wrong, baseline = float((one.estimate() != codes).mean()), float((codes != one.baseline).mean())
            return (*head, wrong, baseline, nan, nan, nan, nan, score)
        truth, draws = (one.truth - one.centre) / one.deviation, (one.draws - one.centre) / one.deviation
        gap = draws.mean(axis=0) - truth
        lower, upper = one.interval(self.level)
        return (
            *head,
            float(np.sqrt((gap**2).mean())),
            float(np.sqrt((((one.baseline - one.truth) / one.deviation) ** 2).mean())),
            float(gap.mean()),
            float(gap.std() / np.sqrt(len(gap))),
            float(covered(one.truth, one.draws, self.level).mean()),
            float(((upper - lower) / one.deviation).mean()),
            crps(truth, draws, fair=len(draws) > 1),
        )


def over_impute(
    table: Any,
    draw: Draw,
    *,
    n_folds: int = 10,
    max_folds: int | None = None,
    n_draws: int = 19,
    level: float = 0.9,
    schema: Schema | None = None,
    rng: np.random.Generator | int = 0,
) -> OverImputation:
    """Hide known cells, a fold at a time, and fill them in again.

    Known cells are hidden completely at random. Where holes are not, results say how well cells *like the
    known ones* are filled, which need not hold for the missing ones.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With or without holes.
    draw : callable
        ``draw(table, m)`` gives m completed tables. To be honest it must not have seen the hidden cells:
        ``lambda t, m: DiffPuter().fit(t).sample(t, m)`` fits anew for each fold.
    n_folds : int
        Each fold hides one of so many parts of the known cells of every column.
    max_folds : int, optional
        Stop after so many folds: each costs one call of ``draw``.
    n_draws : int
        19, 39, 59, ... for intervals of 90 %.
    level : float
        Of the intervals.
    schema : Schema, optional
        What the columns hold; text, empty and constant ones are left alone.
    rng : numpy Generator or int
        Which cells are in which fold.

    Returns
    -------
    OverImputation
        Print it, or see ``to_frame()`` and ``to_cells()``.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": np.arange(40.0), "y": 2 * np.arange(40.0)})
    >>> def draw(t, m):
    ...     full = t.assign(y=t["y"].fillna(2 * t["x"]), x=t["x"].fillna(t["y"] / 2))
    ...     return [full.fillna(20.0)] * m
    >>> checked = over_impute(frame, draw, n_folds=20)
    >>> bool((checked.to_frame()["error"] < 0.5).all()), len(checked.to_cells())
    (True, 80)
    """
    end_rank(n_draws, level)
    if n_folds < 2:
        raise SettingError(
            f"Two folds or more are needed, to learn from the others, however: n_folds is {n_folds}."
        )
    generator = np.random.default_rng(rng)
    view = look(table, schema)
    positions = [k for k, column in view.usable() if column.status == Status.MODELLED]
    if not positions:
        raise InputError("Over-imputation needs a column with two different values, however: there is none.")
    folds = np.full(view.missing.shape, -1)
    for position in positions:
        known = np.flatnonzero(~view.missing[:, position])
        folds[generator.permutation(known), position] = np.arange(len(known)) % n_folds
    draws = np.full((n_draws, *view.missing.shape), np.nan)
    naive = np.full(view.missing.shape, np.nan)
    levels = {k: dict[Any, int]() for k in positions if not view.schema.columns[k].kind.is_numeric}
    for k in levels:
        codes, found = view.table.cells[k].labels()
        levels[k] |= {level: code for code, level in enumerate(found)}
    for fold in range(n_folds if max_folds is None else min(n_folds, max_folds)):
        hidden = folds == fold
        if not hidden.any():
            continue
        for k in positions:
            naive[hidden[:, k], k] = _without_model(view, k, ~view.missing[:, k] & ~hidden[:, k])
        tables = list(draw(hide_cells(view.table.native, hidden), n_draws))
        if len(tables) != n_draws:
            raise InputError(
                f"draw(table, {n_draws}) gives {n_draws} tables, however: it gave {len(tables)}."
            )
        for order, one in enumerate(tables):
            form = read_table(with_distinct_names(one))
            if form.missing.shape != hidden.shape:
                raise InputError(
                    f"A completed table has the shape {hidden.shape} of the incomplete one, however: one has "
                    f"{form.missing.shape}."
                )
            for k in positions:
                rows = hidden[:, k]
                if k in levels:
                    codes, found = form.cells[k].labels()
                    meaning = [levels[k].setdefault(level, len(levels[k])) for level in found]
                    values = np.array([*meaning, np.nan], dtype=np.float64)[codes]
                else:
                    values = form.cells[k].numbers()
                draws[order, rows, k] = values[rows]
    redrawn = tuple(_redrawn(view, k, draws, naive, levels.get(k)) for k in positions)
    alone = tuple(column for k, column in enumerate(view.schema) if k not in positions)
    return OverImputation(redrawn, level, alone)


def _without_model(view: View, position: int, left: NDArray[np.bool_]) -> float:
    """Mean or most frequent code of the cells that were left; of a column without any, that of all."""
    cells = view.table.cells[position]
    rows = left if left.any() else ~view.missing[:, position]
    if view.schema.columns[position].kind.is_numeric:
        return centre_and_deviation(cells.numbers()[rows])[0]
    return float(np.bincount(common_codes([cells])[0][0][rows]).argmax())


def _redrawn(
    view: View, position: int, draws: Floats, naive: Floats, levels: dict[Any, int] | None
) -> Redrawn:
    """Gather the cells of a column that were drawn; cells that nobody filled are left out."""
    column, cells = view.schema.columns[position], view.table.cells[position]
    rows = np.flatnonzero(~np.isnan(draws[:, :, position]).any(axis=0))
    centre, deviation = 0.0, 1.0
    if levels is None:
        truth = cells.numbers()
        centre, deviation = centre_and_deviation(truth)
    else:
        truth = common_codes([cells])[0][0].astype(np.float64)
    holes = view.missing.sum(axis=1)[rows]
    names = tuple(levels or ())
    drawn, baseline = draws[:, rows, position], naive[rows, position]
    return Redrawn(column, rows, truth[rows], drawn, names, centre, deviation, holes, baseline)


def _native(one: Redrawn, values: Floats) -> NDArray[Any]:
    """Write numbers as dates and codes as levels, where the column holds those."""
    native = np.empty(len(values), dtype=object)
    for place, value in enumerate(values.tolist()):
        if one.levels:
            native[place] = one.levels[int(value)]
        elif one.column.kind in (Kind.DATETIME, Kind.DURATION, Kind.TIME):
            native[place] = from_number(one.column.kind, value, one.column.timezone)
        else:
            native[place] = value
    return native

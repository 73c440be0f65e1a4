"""Tables as arrays and back: standardised numbers, positions of levels; and levels as 0/1 columns.

Nothing is rounded, cut off or snapped on the way back: a method is scored on what it says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import InputError
from ..tables.frames import Table, read_table

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Coding:
    """How the cells of a table become numbers; made by :meth:`fit` from the observed cells.

    Attributes
    ----------
    names
        The columns.
    mean, deviation
        Of each numeric column, [c]; 0 and 1 of categories.
    levels
        The levels of each categorical column in order, None of numeric ones.

    Examples
    --------
    >>> frame = pd.DataFrame({"n": [1.0, 3.0, None], "c": ["b", None, "a"]})
    >>> coding = Coding.fit(frame, ["c"])
    >>> coding.code(frame)
    array([[-1.,  1.],
           [ 1., nan],
           [nan,  0.]])
    >>> coding.write(frame, np.zeros((3, 2)))
         n  c
    0  1.0  b
    1  3.0  a
    2  2.0  a
    """

    names: tuple[Hashable, ...]
    mean: Floats
    deviation: Floats
    levels: tuple[tuple[Any, ...] | None, ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame, categorical: Sequence[str]) -> Coding:
        """Learn levels, means and deviations from the observed cells of a table."""
        table = read_table(frame)
        if foreign := [name for name in categorical if name not in table.names]:
            raise InputError(f"Categories must be columns of the table, however: {foreign} are not.")
        if empty := [name for j, name in enumerate(table.names) if table.missing[:, j].all()]:
            raise InputError(
                f"A column must have an observed cell to learn from, however: {empty} have none. Drop them."
            )
        chosen = set(categorical)
        levels = tuple(_levels_of(table, j) if name in chosen else None for j, name in enumerate(table.names))
        mean, deviation = np.zeros(len(levels)), np.ones(len(levels))
        for j, those in enumerate(levels):
            if those is None:
                numbers = _numbers(table, j)
                mean[j], spread = np.nanmean(numbers), np.nanstd(numbers)
                if spread > 1e-12 * np.nanmax(np.abs(numbers)):
                    deviation[j] = spread
        return cls(table.names, mean, deviation, levels)

    @property
    def n_levels(self) -> Counts:
        """How many levels each column has, [c]; 0 if it is a number."""
        return np.array([0 if levels is None else len(levels) for levels in self.levels], dtype=np.int64)

    def code(self, frame: pd.DataFrame) -> Floats:
        """Write a table as numbers, NaN where a cell is missing or has a level never seen, [n, c]."""
        table = self._read(frame)
        x = np.empty((table.n_rows, len(self.names)))
        for j, levels in enumerate(self.levels):
            if levels is None:
                x[:, j] = (_numbers(table, j) - self.mean[j]) / self.deviation[j]
            else:
                position = {level: float(k) for k, level in enumerate(levels)}
                codes, found = table.cells[j].labels()
                known = np.array([*(position.get(level, np.nan) for level in found), np.nan])
                x[:, j] = known[codes]  # holes are -1: the last
        return x

    def write(self, frame: pd.DataFrame, x: Floats) -> pd.DataFrame:
        """Fill the holes of a table with completed numbers, [n, c]; observed cells are not touched."""
        table = self._read(frame)
        filled: dict[int, NDArray[Any]] = {}
        for j, levels in enumerate(self.levels):
            holes = table.missing[:, j]
            values = x[holes, j]
            if not np.isfinite(values).all():
                raise InputError(f"Completed numbers must be finite; those of {self.names[j]!r} are not.")
            if levels is None:
                numbers = values * self.deviation[j] + self.mean[j]
                whole = table.cells[j].storage.whole
                filled[j] = np.round(numbers).astype(np.int64) if whole else numbers
            else:
                filled[j] = _as_array(levels)[self._check_positions(j, values, len(levels))]
        completed: pd.DataFrame = table.with_filled(filled)
        return completed

    def _check_positions(self, j: int, values: Floats, n_levels: int) -> Counts:
        """Give the levels of completed cells; refuse what is no level, as -1 would be the last one."""
        positions: Counts = values.astype(np.int64)
        wrong = (positions < 0) | (positions >= n_levels)
        if wrong.any():
            raise InputError(
                f"Completed categories must be positions of levels, for {self.names[j]!r} 0 to "
                f"{n_levels - 1}, however: {values[wrong][0]:g} is among them."
            )
        return positions

    def _read(self, frame: pd.DataFrame) -> Table:
        table = read_table(frame)
        if table.names != self.names:
            raise InputError(
                f"A table must have the columns that were there at fit, in that order, however: it has "
                f"{list(table.names)} and not {list(self.names)}."
            )
        return table


def _numbers(table: Table, j: int) -> Floats:
    family = table.cells[j].storage.family
    if family not in ("numbers", "booleans", "nothing"):
        raise InputError(
            f"A column that is no category must hold numbers, however: {table.names[j]!r} holds {family}. "
            "Name it among the categories, or convert it."
        )
    return np.where(table.missing[:, j], np.nan, table.cells[j].numbers())


def _levels_of(table: Table, j: int) -> tuple[Any, ...]:
    """Give the levels that occur, in order: whatever rows come first, a level has the same position."""
    codes, found = table.cells[j].labels()
    return tuple(sorted((found[k] for k in np.unique(codes[codes >= 0])), key=lambda v: (str(type(v)), v)))


def _as_array(levels: tuple[Any, ...]) -> NDArray[Any]:
    """Numbers and booleans as such, so that a column of them can take them; anything else as objects."""
    if all(isinstance(level, bool | int | float) for level in levels):
        return np.array(levels)
    chosen = np.empty(len(levels), dtype=object)
    chosen[:] = levels
    return chosen


@dataclass(frozen=True, eq=False)
class Indicators:
    """Levels as 0/1 columns, numbers as they are.

    Parameters
    ----------
    n_levels
        Of each column, [c]; 0 for numbers.
    drop
        Leave out the first level of each category, which the others imply. Chained regressions need that:
        the indicators of a cell are missing together, and of a full set each is one minus the others, so
        that regressions would give back exactly what was filled in first, for ever.

    Examples
    --------
    >>> both = Indicators(np.array([0, 3]), drop=True)
    >>> both.expand(np.array([[0.5, 2.0], [1.5, np.nan]]))
    array([[0.5, 0. , 1. ],
           [1.5, nan, nan]])
    >>> both.collapse(np.array([[0.5, 0.1, 0.2], [1.5, 0.6, 0.1]]))
    array([[0.5, 0. ],
           [1.5, 1. ]])
    """

    n_levels: Counts
    drop: bool = False

    @property
    def owners(self) -> Counts:
        """The column that each expanded column belongs to, [d]."""
        widths = [1 if n == 0 else int(n) - self.drop for n in self.n_levels]
        return np.repeat(np.arange(len(widths)), widths)

    def expand(self, x: Floats) -> Floats:
        """Write positions as indicators. Shape: [n, c] -> [n, d]."""
        parts = [np.empty((len(x), 0))]
        for j, n in enumerate(self.n_levels):
            if n == 0:
                parts.append(x[:, [j]])
            else:
                hot = (x[:, [j]] == np.arange(self.drop, n)).astype(np.float64)
                parts.append(np.where(np.isnan(x[:, [j]]), np.nan, hot))
        return np.concatenate(parts, axis=1)

    def collapse(self, y: Floats) -> Floats:
        """Give the position of the largest indicator of each category. Shape: [n, d] -> [n, c]."""
        x, owners = np.empty((len(y), len(self.n_levels))), self.owners
        for j, n in enumerate(self.n_levels):
            part = y[:, owners == j]
            if n and self.drop:
                part = np.column_stack([1 - part.sum(axis=1), part])
            x[:, j] = part.argmax(axis=1) if n else part[:, 0]
        return x

"""What analyses look at: the columns of a table and of its completed forms, as numbers or codes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataWarning, InputError
from ..tables.cells import Booleans, Cells, Floats
from ..tables.frames import Table, read_table
from ..tables.kinds import describe
from ..tables.pieces import with_distinct_names
from ..tables.schema import Column, Schema, Status

Codes = NDArray[np.int64]

CONSTANT = 1e-12  # deviation, in units of the largest number, that is rounding


@dataclass(frozen=True)
class View:
    """A table and what its columns hold."""

    table: Table
    schema: Schema

    @property
    def missing(self) -> Booleans:
        """Where cells are missing, [n_rows, n_columns]."""
        return self.table.missing

    def usable(self) -> Iterator[tuple[int, Column]]:
        """Give the columns whose values mean something to a computer: neither text nor empty."""
        for position, column in enumerate(self.schema):
            if column.status in (Status.MODELLED, Status.CONSTANT):
                yield position, column


def look(table: Any, schema: Schema | None = None) -> View:
    """Look at a table, quietly; columns of the same name get different ones.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With or without holes.
    schema : Schema, optional
        What the columns hold, by name; it may lack some. By default it is found.

    Returns
    -------
    View
        The table as it is read, and one column of a schema for each of its columns.

    Examples
    --------
    >>> import pandas as pd
    >>> view = look(pd.DataFrame({"x": [1.5, None], "x ": ["a", "b"]}))
    >>> [str(column.kind) for _, column in view.usable()]
    ['continuous', 'categorical']
    """
    read = read_table(with_distinct_names(table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said when the table is fitted, not at every look
        found = describe(read)
    known = {} if schema is None else {column.name: column for column in schema}
    # What is modelled elsewhere may be empty here, and then there is nothing to look at.
    columns = [known.get(one.name, one) if one.n_observed else one for one in found]
    return View(read, Schema(tuple(columns)))


def tables_of(completed: Any) -> list[Any]:
    """Give completed tables as a list: of one, if it is one table.

    Examples
    --------
    >>> len(tables_of(np.zeros((3, 2)))), len(tables_of([np.zeros((3, 2))] * 5))
    (1, 5)
    """
    if hasattr(completed, "columns") or (isinstance(completed, np.ndarray) and completed.ndim == 2):
        return [completed]
    tables = list(completed)
    if not tables:
        raise InputError("At least one completed table is needed, however: there is none.")
    return tables


def read_forms(view: View, completed: Any) -> list[Table]:
    """Read completed forms of a table, one or several, and check that they have its shape."""
    forms = [read_table(with_distinct_names(one)) for one in tables_of(completed)]
    for form in forms:
        if form.missing.shape != view.missing.shape:
            raise InputError(
                "Completed tables have the rows and columns of the incomplete one, however: one is "
                f"{form.missing.shape} and not {view.missing.shape}."
            )
    return forms


def common_codes(cells: Sequence[Cells]) -> tuple[list[Codes], list[Any]]:
    """Give codes (-1 for holes) of the same column in several tables, and the levels they all mean.

    Shape: a list of [n_rows] each, in the order of ``cells``.
    """
    index: dict[Any, int] = {}
    coded = []
    for one in cells:
        codes, levels = one.labels()
        meaning = np.array([index.setdefault(level, len(index)) for level in levels] + [-1], dtype=np.int64)
        coded.append(meaning[codes])
    return coded, list(index)


def centre_and_deviation(numbers: Floats) -> tuple[float, float]:
    """Give mean and standard deviation of the numbers that are there; a deviation of 0 is given as 1.

    Examples
    --------
    >>> centre_and_deviation(np.array([1.0, 3.0, np.nan])), centre_and_deviation(np.array([5.0, 5.0]))
    ((2.0, 1.0), (5.0, 1.0))
    """
    known = numbers[np.isfinite(numbers)]
    if not known.size:
        return 0.0, 1.0
    mean, deviation, largest = _moments(known)
    return mean * largest, deviation * largest if deviation > CONSTANT else 1.0


def varies(numbers: Floats) -> bool:
    """Tell whether the numbers that are there differ by more than rounding.

    Examples
    --------
    >>> varies(np.array([1.0, 3.0, np.nan])), varies(np.array([0.1, 0.3 - 0.2])), varies(np.array([np.nan]))
    (True, False, False)
    """
    known = numbers[np.isfinite(numbers)]
    return bool(known.size) and _moments(known)[1] > CONSTANT


def _moments(known: Floats) -> tuple[float, float, float]:
    """Mean and standard deviation in units of the largest, so that squares do not overflow; the largest."""
    largest = float(np.abs(known).max()) or 1.0
    scaled = known / largest
    return float(scaled.mean()), float(scaled.std()), largest


def points_of(
    tables: Sequence[Any], schema: Schema | None = None, *, rows: Sequence[Any] | None = None
) -> list[Floats]:
    """Place the rows of several tables in one Euclidean space.

    The metric: numbers (dates, durations and times of day among them) in standard deviations of the first
    table, categories one-hot divided by the root of two, so that two different levels are at distance 1.
    Text that differs from row to row and columns without values are left out.

    Parameters
    ----------
    tables : sequence of tables
        With the same columns in the same order, complete in all that is compared.
    schema : Schema, optional
        What the columns hold.
    rows : sequence of arrays of int, optional
        Of each table, the rows to place.

    Returns
    -------
    list of ndarray of shape (rows of the table, d)

    Examples
    --------
    >>> import pandas as pd
    >>> first = pd.DataFrame({"x": [0.0, 2.0], "c": ["a", "b"]})
    >>> points_of([first, first.head(1)])[1].round(2)
    array([[-1.  ,  0.71,  0.  ]])
    """
    view = look(tables[0], schema)
    forms = [view.table, *(read_table(with_distinct_names(one)) for one in tables[1:])]
    chosen = [np.arange(form.n_rows) for form in forms] if rows is None else list(rows)
    blocks: list[list[Floats]] = [[np.empty((len(part), 0))] for part in chosen]
    for position, column in view.usable():
        cells = []
        for form in forms:
            if form.n_columns != view.table.n_columns:
                raise InputError(
                    f"Tables to compare have the same columns, however: one has {form.n_columns:,} and the "
                    f"first {view.table.n_columns:,}."
                )
            if form.missing[:, position].any():
                raise InputError(
                    f"Only complete rows have a distance, however: column {column.name!r} has "
                    f"{int(form.missing[:, position].sum()):,} missing cells. Complete the table, or drop "
                    "those rows."
                )
            cells.append(form.cells[position])
        if column.kind.is_numeric:
            numbers = [one.numbers() for one in cells]
            mean, deviation = centre_and_deviation(numbers[0])
            for block, values, part in zip(blocks, numbers, chosen, strict=True):
                block.append(((values[part] - mean) / deviation)[:, None])
        else:
            codes, levels = common_codes(cells)
            for block, code, part in zip(blocks, codes, chosen, strict=True):
                block.append(np.eye(len(levels))[code[part]] * np.sqrt(0.5))
    return [np.hstack(block) for block in blocks]


def some_rows(n_rows: int, most: int | None, rng: np.random.Generator) -> NDArray[np.int64]:
    """Give all rows in order, or as many as allowed, chosen at random without repeats."""
    if most is None or n_rows <= most:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, most, replace=False))

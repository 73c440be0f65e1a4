"""What was filled in, column by column, in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from ..tables.cells import SECOND, Booleans, Cells
from ..tables.clock import from_number
from ..tables.frames import read_table
from ..tables.schema import Column, Kind, Schema

MOST_LINES = 30
MOST_DRAWS = 5  # looked at: more would not change the words


@dataclass(frozen=True)
class ColumnSummary:
    """How one column was completed.

    Attributes
    ----------
    name : label
        Of the column.
    kind : Kind or None
        What it was taken for; None if the model does not know it.
    n_missing, n_left : int
        Cells that were missing, and that still are.
    share : float
        Of its cells that were missing.
    observed, filled : str
        The mean, or the most frequent level and its share, of the observed and the filled cells.
    """

    name: Hashable
    kind: Kind | None
    n_missing: int
    n_left: int
    share: float
    observed: str
    filled: str


def summarise(table: Any, completed: Sequence[Any], schema: Schema) -> list[ColumnSummary]:
    """Compare a table with its completed forms.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    completed : sequence of tables
        The same table completed, once or several times.
    schema : Schema
        What the columns hold, by name; it may lack some.

    Returns
    -------
    list of ColumnSummary
        In the order of the table.

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [1.0, 2.0, None], "c": ["a", None, "a"]})
    >>> schema = Schema((Column("x", "continuous"), Column("c", "categorical", levels=("a",))))
    >>> for line in summarise(holes, [holes.fillna({"x": 1.75, "c": "a"})], schema):
    ...     print(line.name, line.n_missing, line.n_left, line.observed, "|", line.filled)
    x 1 0 1.5 | 1.75
    c 1 0 a (100%) | a (100%)
    """
    before = read_table(table)
    after = [read_table(one) for one in completed[:MOST_DRAWS]]
    known = {column.name: column for column in schema}
    lines = []
    for position, name in enumerate(before.names):
        holes = before.missing[:, position]
        column = known.get(name)
        observed = filled = ""
        if column is not None and column.kind != Kind.TEXT:
            observed = _typical(column, [before.cells[position]], ~holes)
            filled = _typical(column, [one.cells[position] for one in after], holes)
        left = int(after[0].missing[:, position].sum())
        share = float(holes.mean()) if holes.size else 0.0
        kind = None if column is None else column.kind
        lines.append(ColumnSummary(name, kind, int(holes.sum()), left, share, observed, filled))
    return lines


def as_cells(lines: Sequence[ColumnSummary], most: int = MOST_LINES) -> list[tuple[str, ...]]:
    """Write the summaries of columns with holes as rows of text, below a row of titles.

    Examples
    --------
    >>> as_cells([ColumnSummary("age", Kind.INTEGER, 12, 0, 0.12, "41.3", "39.8")])[1]
    ('age', 'integer', '12', '12.0%', '41.3', '39.8')
    """
    rows: list[tuple[str, ...]] = [("column", "kind", "filled", "missing", "observed", "filled with")]
    holes = [line for line in lines if line.n_missing]
    for line in holes[:most]:
        kind = "not in the model" if line.kind is None else str(line.kind)
        filled = f"{line.n_missing - line.n_left:,}"
        rows.append((str(line.name), kind, filled, f"{line.share:.1%}", line.observed, line.filled))
    if len(holes) > most:
        rows.append((f"and {len(holes) - most:,} more columns", "", "", "", "", ""))
    return rows


def in_words(lines: Sequence[ColumnSummary]) -> str:
    """Say how many cells were filled, and where some are left.

    Examples
    --------
    >>> in_words([ColumnSummary("id", Kind.TEXT, 12, 12, 0.12, "", "")])
    '0 cells filled, 12 left missing (id)'
    """
    left = sum(line.n_left for line in lines)
    filled = sum(line.n_missing for line in lines) - left
    words = f"{filled:,} cell{'' if filled == 1 else 's'} filled"
    names = [str(line.name) for line in lines if line.n_left]
    more = ", ..." if len(names) > 10 else ""
    return (
        f"{words}, {left:,} left missing ({', '.join(names[:10])}{more})" if left else f"{words}, none left"
    )


def _typical(column: Column, views: list[Cells], rows: Booleans) -> str:
    """The mean, or the most frequent level and its share; nothing where there are no cells."""
    if not rows.any():
        return ""
    if column.kind.is_numeric:
        numbers = np.concatenate([cells.numbers()[rows] for cells in views])
        numbers = numbers[np.isfinite(numbers)]
        return write_number(column, float(numbers.mean())) if numbers.size else ""
    counts: Counter[Any] = Counter()
    for cells in views:
        codes, levels = cells.labels()
        counts.update(levels[code] for code in codes[rows].tolist() if code >= 0)
    counts = Counter({as_declared(column, level): n for level, n in counts.items()})
    if not counts:
        return ""
    level, count = min(counts.items(), key=lambda item: (-item[1], str(item[0])))
    known = None if column.type is None else column.type.text  # of a text file
    spelt = str(level) if known is None or column.kind != Kind.BOOLEAN else known.spell(level)
    text = " ".join(spelt.split())
    return f"{text if len(text) <= 20 else text[:19] + '…'} ({count / counts.total():.0%})"


def as_declared(column: Column, level: Any) -> Any:
    """Write a level as the schema has it: 0 and 1 in a column of floats.

    Examples
    --------
    >>> as_declared(Column("b", Kind.BOOLEAN, levels=(0, 1)), 1.0)
    1
    """
    return next((known for known in column.levels if known == level), level)


def write_number(column: Column, mean: float) -> str:
    """Write a number in the manner of its column: dates as dates.

    Examples
    --------
    >>> write_number(Column("x", Kind.CONTINUOUS), 1234.5), write_number(Column("t", Kind.TIME), 3.6e9)
    ('1,234', '01:00')
    """
    if column.kind == Kind.DURATION:
        return str(timedelta(seconds=round(mean / SECOND)))
    if column.kind == Kind.DATETIME:
        return f"{from_number(column.kind, mean, column.timezone):%Y-%m-%d}"
    if column.kind == Kind.TIME:
        return f"{from_number(column.kind, mean, column.timezone):%H:%M}"
    return f"{mean:,.0f}" if 1000 <= abs(mean) < 1e12 else f"{mean:.4g}"

"""A table file and the schema of a fitted model: columns are matched by name, whatever their order."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from diffputer.errors import InputError
from diffputer.tables.files import TableFile
from diffputer.tables.schema import Column, Kind, Schema
from diffputer.tables.textcolumns import TextColumn


@dataclass(frozen=True)
class Match:
    """A table file seen through a schema.

    Attributes
    ----------
    table : TableFile
        The file; a column of text whose levels were text at fit is text here, too.
    part : pandas.DataFrame or pyarrow.Table
        The columns of the schema, in its order.
    extra : tuple
        Columns that the schema does not know.
    """

    table: TableFile
    part: Any
    extra: tuple[Hashable, ...]

    def restore(self, completed: Any) -> Any:
        """Put the completed columns back into their places, beside those that the schema does not know."""
        frame = self.table.frame
        if isinstance(frame, pa.Table):
            for name in completed.column_names:
                column = completed.column(name)
                position = frame.column_names.index(name)
                frame = frame.set_column(position, frame.field(position).with_type(column.type), column)
            return frame
        frame = frame.copy()
        for name in completed.columns:
            frame[name] = completed[name]
        return frame


def match_columns(table: TableFile, schema: Schema) -> Match:
    """Find the columns of a schema in a table file.

    Parameters
    ----------
    table : TableFile
        What `diffputer.tables.files.read_table_file` gives.
    schema : Schema
        Of the model.

    Returns
    -------
    Match

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer.tables.files import FileFormat
    >>> frame = pd.DataFrame({"b": [1.0, None], "id": ["p", "q"], "a": [2.0, 3.0]})
    >>> schema = Schema((Column("a", "continuous"), Column("b", "continuous")))
    >>> match = match_columns(TableFile(frame, FileFormat("parquet")), schema)
    >>> list(match.part), match.extra
    (['a', 'b'], ('id',))
    >>> match.restore(match.part.fillna(9.0))
         b id    a
    0  1.0  p  2.0
    1  9.0  q  3.0
    """
    if not all(isinstance(name, str) for name in schema.names):
        raise InputError(
            "Columns of a file are matched by name, but the model was fitted to an array without names. "
            "Fit it to a table with names, for example with --save-model."
        )
    table = _with_text(table, schema)
    frame = table.frame
    names = frame.column_names if isinstance(frame, pa.Table) else list(frame.columns)
    wanted = list(schema.names)
    if lacking := [name for name in wanted if name not in names]:
        raise InputError(
            f"The table must have the columns of the model, in any order; it lacks "
            f"{', '.join(map(repr, lacking))}. It has {', '.join(map(repr, names[:30]))}"
            f"{', …' if len(names) > 30 else ''}."
        )
    part = frame.select(wanted) if isinstance(frame, pa.Table) else frame[wanted]
    return Match(table, part, tuple(name for name in names if name not in set(wanted)))


def _with_text(table: TableFile, schema: Schema) -> TableFile:
    """Read a column as text if its levels were text at fit: "1" may be a level beside "2b".

    A column without any cell is spelt by what it held at fit, if no text file tells more.
    """
    if table.text is None:
        return table
    frame, columns = table.frame, list(table.columns)
    known = {column.name: column for column in schema}
    for position, name in enumerate(frame.columns):
        if name not in known:
            continue
        spelt = columns[position]
        if spelt.kind != "text" and _holds_text(known[name]):
            spelt = TextColumn("text")
        elif spelt.kind == "text" and frame[name].isna().all():
            spelt = spelling_of(known[name])
        if spelt != columns[position]:
            columns[position] = spelt
            cells, missing = table.text[name].tolist(), frame[name].isna().tolist()
            frame = frame.copy()
            frame[name] = columns[position].values(cells, missing)
    return replace(table, frame=frame, columns=tuple(columns))


def spelling_of(column: Column) -> TextColumn:
    """How the cells of a column are spelt: as in the text file that was fitted, else by what they are.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> spelling_of(Column("b", "boolean")).spell(True)
    'true'
    >>> spelling_of(Column("d", "datetime", resolution=timedelta(days=1))).spell(datetime(2020, 1, 31))
    '2020-01-31'
    """
    if column.type is not None and column.type.text is not None:
        return column.type.text
    if column.kind == Kind.DATETIME:
        step = column.resolution
        if step is None or step < timedelta(seconds=1):
            return TextColumn("date", date_format="%Y-%m-%d %H:%M:%S.%f", fraction_digits=6)
        return TextColumn("date", date_format="%Y-%m-%d" if step >= timedelta(1) else "%Y-%m-%d %H:%M:%S")
    if column.kind == Kind.BOOLEAN:
        return TextColumn("boolean")
    return TextColumn("integer" if column.kind == Kind.INTEGER else "text")


def _holds_text(column: Column) -> bool:
    return any(isinstance(level, str) for level in (*column.levels, column.fill))

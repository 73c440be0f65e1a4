"""Imputations: several completed tables that differ only where cells were missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from .tables.encoding import TableEncoder
from .tables.frames import Table, Values


class Imputations(Sequence[Any]):
    """m completed tables of one incomplete table.

    Only the filled cells are kept m times; a completed table is put together when it is asked for.

    Parameters
    ----------
    table
        The incomplete table.
    filled
        For each draw, column position -> values for the missing cells of that column.
    encoder
        What the columns hold.

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer.tables.frames import read_table
    >>> table = read_table(pd.DataFrame({"a": [1.0, None]}))
    >>> draws = Imputations(table, [{0: [2.0]}, {0: [2.5]}])
    >>> len(draws), draws[1]["a"].tolist()
    (2, [1.0, 2.5])
    """

    def __init__(
        self, table: Table, filled: Sequence[Mapping[int, Values]], encoder: TableEncoder | None = None
    ):
        self._table = table
        self._filled = list(filled)
        self.schema = encoder.schema if encoder is not None else None

    def __len__(self) -> int:
        return len(self._filled)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Imputations: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            part = Imputations(self._table, self._filled[index])
            part.schema = self.schema
            return part
        return self._table.with_filled(self._filled[index])

    def __iter__(self) -> Iterator[Any]:
        return (self._table.with_filled(filled) for filled in self._filled)

    def __repr__(self) -> str:
        rows, columns = self._table.n_rows, self._table.n_columns
        return f"<Imputations: {len(self)} completed tables, {rows:,} rows x {columns:,} columns>"

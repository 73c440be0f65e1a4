"""Imputations: several completed tables that differ only where cells were missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from .tables.encoding import TableEncoder
from .tables.filling import Values
from .tables.frames import Table
from .tables.schema import Schema


class Imputations(Sequence[Any]):
    """m completed tables of one incomplete table.

    Only the filled cells are kept m times; a completed table is put together when it is asked for.

    Parameters
    ----------
    table
        The incomplete table.
    filled
        For each draw, column position -> values for the missing cells of that column.
    schema
        What the columns hold.

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer.tables.frames import read_table
    >>> table = read_table(pd.DataFrame({"a": [1.0, None]}))
    >>> draws = Imputations(table, [{0: np.array([2.0])}, {0: np.array([2.5])}])
    >>> len(draws), draws[1]["a"].tolist()
    (2, [1.0, 2.5])
    """

    def __init__(
        self, table: Table, filled: Sequence[Mapping[int, Values]], schema: Schema | None = None
    ) -> None:
        self._table = table
        self._filled = list(filled)
        self.schema = schema

    @classmethod
    def from_draws(
        cls,
        table: Table,
        encoder: TableEncoder,
        x: NDArray[np.float32],
        blocks: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]],
    ) -> Imputations:
        """Decode draws that come as blocks of (row numbers [r], draws [m, r, d]).

        Shape: x [n, d], the encoded table.
        """
        filled = []
        for j in range(len(blocks[0][1])):
            completed = x.copy()
            for rows, draws in blocks:
                completed[rows] = draws[j]
            filled.append(encoder.decode(table, completed))
        return cls(table, filled, encoder.schema)

    def __len__(self) -> int:
        return len(self._filled)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Imputations: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Imputations(self._table, self._filled[index], self.schema)
        return self._table.with_filled(self._filled[index])

    def __iter__(self) -> Iterator[Any]:
        return (self._table.with_filled(filled) for filled in self._filled)

    def __repr__(self) -> str:
        rows, columns = self._table.n_rows, self._table.n_columns
        return f"<Imputations: {len(self)} completed tables, {rows:,} rows x {columns:,} columns>"

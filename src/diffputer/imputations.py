"""Imputations: several completed tables that differ only where cells were missing; and how sure one is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .tables.encoding import TableEncoder
from .tables.filling import Values
from .tables.frames import Table
from .tables.schema import Kind, Schema


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


@dataclass(frozen=True)
class Uncertainty:
    """How sure the filled values of a table are.

    Attributes
    ----------
    lower, upper
        The table completed by the ends of an interval: dates have dates, integers integers. Categories have
        the level that is filled in.
    std
        Standard deviation of each filled number in the units of its column (seconds for dates, times and
        durations); NaN elsewhere. A pandas frame.
    probability
        Probability of each filled level; NaN elsewhere. A pandas frame.
    """

    lower: Any
    upper: Any
    std: pd.DataFrame
    probability: pd.DataFrame

    @classmethod
    def of_cells(
        cls, table: Table, encoder: TableEncoder, x: NDArray[np.float32], cells: Any | None
    ) -> Uncertainty:
        """Turn what the engine says of encoded cells into tables.

        Shape: x [n, d]; cells has deviation, lower, upper and probability [n, d], or is None where no
        column is modelled.
        """
        shape = (table.n_rows, table.n_columns)
        std, probability = np.full(shape, np.nan), np.full(shape, np.nan)
        lower = upper = x
        if cells is not None:
            lower, upper = (np.where(np.isnan(end), cells.level, end) for end in (cells.lower, cells.upper))
            unit = np.where(encoder.n_levels > 0, 1.0, encoder.deviation)
            holes = table.missing[:, encoder.blocks]
            seconds = np.array(
                [1e-6 if column.kind in _IN_MICROSECONDS else 1.0 for column in encoder.schema]
            )
            std[:, encoder.blocks] = np.where(holes, cells.deviation * unit * seconds[encoder.blocks], np.nan)
            probability[:, encoder.blocks] = np.where(holes, cells.probability, np.nan)
        index = table.native.index if isinstance(table.native, pd.DataFrame) else None
        columns = list(table.names)
        return cls(
            encoder.fill(table, lower),
            encoder.fill(table, upper),
            pd.DataFrame(std, index=index, columns=columns),
            pd.DataFrame(probability, index=index, columns=columns),
        )


_IN_MICROSECONDS = (Kind.DATETIME, Kind.DURATION, Kind.TIME)

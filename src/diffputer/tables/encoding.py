"""A table as standardised numbers for the model, and completed numbers as cells for the table.

Numbers, dates, durations and times give one encoded column each; booleans one indicator; categories one
indicator for each level (``codes="onehot"``), the binary digits of the level's position
(``codes="binary"``), or indicators up to 16 levels and digits above (``codes="mixed"``).
All of these are standardised by the mean and deviation of the cells observed at fit.
With ``codes="levels"`` booleans and categories give one encoded column each, too: the position of the level
as it is, for models that know categories.
Each row is encoded by itself, so that its numbers do not depend on the rows around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from diffputer.errors import InputError, SettingError, warn_about_data
from diffputer.tables.cells import Booleans, Cells, Floats
from diffputer.tables.clock import to_wall_clock
from diffputer.tables.decoding import (
    check_storage,
    decode_constant,
    decode_levels,
    decode_numbers,
    find_frequent,
    is_coarse,
    is_local,
    snap,
)
from diffputer.tables.frames import Table
from diffputer.tables.kinds import MAX_LEVELS, check_column, describe
from diffputer.tables.levels import level_indices, levels_of, name_unseen, unseen_beside_constant
from diffputer.tables.schema import Column, Kind, Schema, Status

MIN_DEVIATION = 1e-3  # relative to the range of the observed values: no training cell encodes beyond 1000
LARGEST = 1e6  # encoded values are cut off here, so that an absurd value cannot overflow float32

#: With mixed codes, categories of more levels than this get digits: a hundred indicators would drown the
#: other columns in a small network (measured: docs/dev/log.md).
ONEHOT_LEVELS = 16

Codes = Literal["onehot", "binary", "mixed", "levels"]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """A table as the model sees it.

    Attributes
    ----------
    x
        Standardised numbers (positions of levels with ``codes="levels"``), float32 [n_rows, width];
        0.0 where missing.
    missing
        What the model does not know, bool [n_rows, width]: holes, and levels that it never saw.
    """

    x: npt.NDArray[np.float32]
    missing: Booleans


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Turns tables of one schema into numbers and back; made by :meth:`fit`.

    Attributes
    ----------
    schema
        What the columns hold.
    codes
        How categories are encoded.
    frequent
        Column position -> values of a numeric column that occur often; they are filled in exactly.
    mean, deviation
        Of each encoded column, [width]; 0 and 1 where it is the position of a level.

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer.tables.frames import read_table
    >>> table = read_table(pd.DataFrame({"n": [1.0, 2.0, None], "c": ["a", None, "b"]}))
    >>> encoder = TableEncoder.fit(table)
    >>> encoder.width, encoder.blocks.tolist(), encoder.numeric.tolist()
    (3, [0, 1, 1], [True, False, False])
    >>> completed = encoder.encode(table).x
    >>> completed[1, 1:] = 0.9, 1.1
    >>> encoder.fill(table, completed)
         n  c
    0  1.0  a
    1  2.0  b
    2  2.0  b
    """

    schema: Schema
    codes: Codes
    mean: Floats
    deviation: Floats
    frequent: Mapping[int, Floats] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        table: Table,
        *,
        categorical_features: Sequence[Any] | npt.NDArray[Any] | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        schema: Schema | Mapping[Any, str] | None = None,
        max_levels: int = MAX_LEVELS,
        skip: Sequence[Any] | npt.NDArray[Any] | None = None,
        empty: str = "zero",
        fill_all: bool = False,
        codes: Codes = "onehot",
        min_deviation: float = MIN_DEVIATION,
    ) -> TableEncoder:
        """Learn the schema, means and deviations from the observed cells of a table.

        Parameters
        ----------
        table
            What :func:`diffputer.tables.frames.read_table` returns.
        categorical_features, bounds, schema, max_levels, skip, empty, fill_all
            See :func:`diffputer.tables.kinds.describe`.
        codes
            ``"onehot"``, ``"binary"``, ``"mixed"`` or ``"levels"``, the way in which categories are encoded.
        min_deviation
            Deviations are at least this share of the observed range.

        Returns
        -------
        TableEncoder
            The fitted encoder.
        """
        if codes not in get_args(Codes):
            raise SettingError(
                f"codes must be 'onehot', 'binary', 'mixed' or 'levels'; it is {codes!r}. Choose one."
            )
        if not 0 <= min_deviation <= 1:
            raise SettingError(f"min_deviation is a share, between 0 and 1; it is {min_deviation!r}.")
        if max_levels < 2:
            raise SettingError(f"max_levels must be at least 2; it is {max_levels!r}.")
        found = describe(
            table,
            categorical_features=categorical_features,
            bounds=bounds,
            schema=schema,
            max_levels=max_levels,
            skip=skip,
            empty=empty,
            fill_all=fill_all,
        )
        means, deviations, frequent, coarse = [np.empty(0)], [np.empty(0)], {}, []
        for position, column in enumerate(found):
            if column.status != Status.MODELLED:
                continue
            cells, holes = table.cells[position], table.missing[:, position]
            if column.kind.is_numeric:
                numbers = _numbers(column, cells, holes)[~holes]
                mean, deviation = _moments(numbers, min_deviation)
                frequent[position] = find_frequent(numbers)
                if is_coarse(numbers, float(mean[0])):
                    coarse.append(repr(column.name))
            elif codes == "levels":  # a position is a name, not an amount
                mean, deviation = np.zeros(1), np.ones(1)
            else:
                indices = level_indices(column, *cells.labels())
                book = _codebook(column, codes)
                counts = np.bincount(indices[indices >= 0], minlength=len(book)).astype(np.float64)
                mean = counts @ book / counts.sum()
                deviation = np.maximum(np.sqrt(mean * (1 - mean)), min_deviation)
            means.append(mean)
            deviations.append(np.where(deviation > 0, deviation, 1.0))
        if coarse:
            warn_about_data(
                "Values must not lie so far out that the model cannot tell the others apart, however some of "
                f"{', '.join(coarse)} do. What is filled in there is coarse. Clear them, or take logarithms."
            )
        return cls(found, codes, np.concatenate(means), np.concatenate(deviations), frequent)

    @property
    def width(self) -> int:
        """D, how many encoded columns there are; 0 if no column is modelled."""
        return len(self.mean)

    @property
    def blocks(self) -> Indices:
        """The position of the original column to which each encoded column belongs, [width]."""
        widths = [_width(column, self.codes) for column in self.schema]
        return np.repeat(np.arange(len(widths)), widths)

    @property
    def numeric(self) -> Booleans:
        """Where an encoded column is a numeric value rather than a part of a code, [width]."""
        kinds = np.array([column.kind.is_numeric for column in self.schema], dtype=bool)
        return kinds[self.blocks]

    @property
    def n_levels(self) -> Indices:
        """How many levels each encoded column counts, [width].

        0 where it is a number. Only ``codes="levels"`` counts levels: with other codes each column is a
        number to the model, also the indicators and digits.
        """
        if self.codes != "levels":
            return np.zeros(self.width, dtype=np.int64)
        counts = [len(levels_of(column)) for _, column, _ in self._modelled()]
        return np.array(counts, dtype=np.int64)

    def encode(self, table: Table) -> Encoded:
        """Turn a table into standardised numbers.

        Levels that were not seen at fit are unknown to the model, which is said in a warning.

        Parameters
        ----------
        table
            Any table with the same columns in the same order.

        Returns
        -------
        Encoded
            Numbers and what is missing.
        """
        self._check_columns(table)
        x = np.zeros((table.n_rows, self.width), dtype=np.float32)
        missing = np.ones((table.n_rows, self.width), dtype=bool)
        unseen: list[str] = []
        for position, column, block in self._modelled():
            cells, holes = table.cells[position], table.missing[:, position]
            check_storage(column, cells, bool(holes.all()))
            if holes.all():
                continue
            if column.kind.is_numeric:
                known = ~holes
                x[known, block] = self._standardised(_numbers(column, cells, holes)[known, None], block)
            else:
                codes, levels = cells.labels()
                indices = level_indices(column, codes, levels)
                known = indices >= 0
                if self.codes == "levels":
                    x[known, block] = indices[known, None]
                else:
                    book = self._standardised(_codebook(column, self.codes), block)
                    x[known, block] = book[indices[known]]
                if not column.other_levels and (known | holes).sum() < table.n_rows:
                    unseen.append(name_unseen(column, codes, levels, ~(known | holes)))
            missing[known, block] = False
        unseen += filter(None, map(unseen_beside_constant, self.schema, table.cells))
        if unseen:
            warn_about_data(
                f"Levels that were not seen at fit tell the model nothing: {'; '.join(unseen)}. They stay as "
                "they are. Fit on a table that has them if they matter."
            )
        return Encoded(x, missing)

    def decode(self, table: Table, x: npt.NDArray[Any]) -> dict[int, npt.NDArray[Any]]:
        """Turn completed numbers into values for the missing cells of a table.

        Parameters
        ----------
        table
            The table whose holes are to be filled.
        x
            Completed numbers, [n_rows, width]; only those at holes are looked at.

        Returns
        -------
        dict
            Column position -> values for its missing cells in row order, for
            :meth:`~diffputer.tables.frames.Table.with_filled`.
        """
        self._check_columns(table)
        if x.shape != (table.n_rows, self.width):
            raise InputError(
                f"Completed numbers must have the shape {(table.n_rows, self.width)}; they have {x.shape}."
            )
        filled: dict[int, npt.NDArray[Any]] = {}
        for position, column in enumerate(self.schema):
            holes = table.missing[:, position]
            if column.status in (Status.CONSTANT, Status.EMPTY) and holes.any() and not column.skip:
                values = decode_constant(column, table.cells[position], int(holes.sum()), bool(holes.all()))
                if values is not None:
                    filled[position] = values
        for position, column, block in self._modelled():
            cells, holes = table.cells[position], table.missing[:, position]
            if column.skip or not holes.any():
                continue
            check_storage(column, cells, bool(holes.all()))
            completed = np.asarray(x[holes, block], dtype=np.float64)
            if not np.isfinite(completed).all():
                raise InputError(
                    f"Completed numbers must be finite; those of column {column.name!r} are not. "
                    "The model has diverged: fit it again, with a smaller learning rate."
                )
            with np.errstate(over="ignore"):  # cut off at the bounds
                raw = completed * self.deviation[block] + self.mean[block]
            if column.kind.is_numeric:
                values = snap(raw[:, 0], self.frequent.get(position), self.deviation[block])
                filled[position] = decode_numbers(column, cells, values, bool(holes.all()))
            else:
                book = None if self.codes == "levels" else _codebook(column, self.codes)
                filled[position] = decode_levels(column, cells, raw, book, bool(holes.all()))
        return filled

    def fill(self, table: Table, x: npt.NDArray[Any]) -> Any:
        """Return the table with its holes filled: ``table.with_filled(self.decode(table, x))``."""
        return table.with_filled(self.decode(table, x))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; the copy that :meth:`from_dict` makes does exactly the same."""
        return {
            "schema": self.schema.to_dict(),
            "codes": self.codes,
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            "frequent": {str(position): values.tolist() for position, values in self.frequent.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TableEncoder:
        """Rebuild an encoder from :meth:`to_dict`."""
        mean = np.array(plain["mean"], dtype=np.float64)
        deviation = np.array(plain["deviation"], dtype=np.float64)
        frequent = {int(position): np.array(v, dtype=np.float64) for position, v in plain["frequent"].items()}
        frequent = dict(sorted(frequent.items()))  # JSON sorts them as text
        return cls(Schema.from_dict(plain["schema"]), plain["codes"], mean, deviation, frequent)

    def check(self) -> None:
        """Raise ValueError or TypeError where parts do not belong together, as those of a damaged file."""
        if self.codes not in get_args(Codes):
            raise ValueError(f"codes must be one of {', '.join(get_args(Codes))}")
        for column in self.schema:
            check_column(column)
        width = sum(_width(column, self.codes) for column in self.schema)
        if self.mean.shape != (width,) or self.deviation.shape != (width,):
            raise ValueError(f"means and deviations must be those of {width} encoded columns")
        if not np.isfinite(self.mean).all() or not (np.isfinite(self.deviation) & (self.deviation > 0)).all():
            raise ValueError("means must be finite, and deviations above zero")
        numbers = [position for position, column, _ in self._modelled() if column.kind.is_numeric]
        if list(self.frequent) != numbers:
            raise ValueError("frequent values must be of the numeric columns")
        for values in self.frequent.values():
            if values.ndim != 1 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
                raise ValueError("frequent values must be finite and ascend")

    def _standardised(self, values: Floats, block: slice) -> npt.NDArray[np.float32]:
        """Values of one block, [n, block], in deviations from their mean."""
        with np.errstate(over="ignore"):  # an overflow is cut off like every absurd value
            scaled = (values - self.mean[block]) / self.deviation[block]
        return np.clip(scaled, -LARGEST, LARGEST).astype(np.float32)

    def _modelled(self) -> list[tuple[int, Column, slice]]:
        """Position, column and encoded columns of every column that is modelled."""
        blocks, start = [], 0
        for position, column in enumerate(self.schema):
            width = _width(column, self.codes)
            if width:
                blocks.append((position, column, slice(start, start + width)))
            start += width
        return blocks

    def _check_columns(self, table: Table) -> None:
        if table.n_columns != len(self.schema):
            raise InputError(
                f"A table must have the columns that were there at fit; this one has {table.n_columns} "
                f"and not {len(self.schema)}."
            )


def _width(column: Column, codes: Codes) -> int:
    """How many encoded columns a column takes."""
    if column.status != Status.MODELLED:
        return 0
    if column.kind != Kind.CATEGORICAL or codes == "levels":
        return 1
    n_levels = len(column.levels)
    return n_levels if _is_onehot(n_levels, codes) else max(1, (n_levels - 1).bit_length())


def _is_onehot(n_levels: int, codes: Codes) -> bool:
    return codes == "onehot" or (codes == "mixed" and n_levels <= ONEHOT_LEVELS)


def _codebook(column: Column, codes: Codes) -> Floats:
    """The code of each level before standardisation, [n_levels, width] of 0 and 1."""
    if column.kind == Kind.BOOLEAN:
        return np.array([[0.0], [1.0]])
    n_levels = len(column.levels)
    if _is_onehot(n_levels, codes):
        return np.eye(n_levels)
    digits = np.arange(_width(column, codes))
    return ((np.arange(n_levels)[:, None] >> digits) & 1).astype(np.float64)


def _numbers(column: Column, cells: Cells, holes: Booleans) -> Floats:
    """The cells as the numbers that are modelled, [n_rows]."""
    values = cells.numbers()
    if is_local(column):  # whole days are whole on the clock of their time zone
        values = values.copy()
        values[~holes] = to_wall_clock(values[~holes], str(column.timezone))
    return values


def _moments(values: Floats, min_deviation: float) -> tuple[Floats, Floats]:
    """Mean and population deviation, the latter at least a share of the range; safe from overflow."""
    scale = float(np.abs(values).max()) or 1.0
    shrunk = values / scale
    mean = shrunk.mean()
    deviation = np.sqrt(np.mean((shrunk - mean) ** 2))
    floor = min_deviation * (shrunk.max() - shrunk.min())
    return np.array([mean * scale]), np.array([np.maximum(deviation, floor) * scale])

"""A user's table as every method can take it: standardised numbers and levels, and where its holes are."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..analysis.wording import short
from ..errors import DataWarning, InputError
from ..methods.contract import check_completed
from ..tables.encoding import TableEncoder
from ..tables.frames import Table, read_table
from ..tables.pieces import take_rows
from ..tables.schema import Column, Schema, Status

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
#: Fewest rows of which some can be hidden and the rest still teach something.
FEWEST_ROWS = 20
#: Why a column is left out.
TEXT = "text or identifier"
#: How warnings begin that tell of columns which are left out here.
_OF_LEFT_OUT = (
    "Some columns are passed through",
    "Identifiers and row numbers",
    "Columns without any observed value",
)


@dataclass(frozen=True, eq=False)
class Coded:
    """The columns that can be filled, as numbers.

    Attributes
    ----------
    names
        Of the columns, as text; all different.
    x
        Numbers in deviations from their mean, positions of levels, NaN where nothing is known, [n, c].
    n_levels
        How many levels each column has, [c]; 0 for numbers.
    """

    names: tuple[str, ...]
    x: Floats
    n_levels: NDArray[np.int64]

    @property
    def categorical(self) -> list[str]:
        """The columns that hold levels."""
        return [name for name, count in zip(self.names, self.n_levels, strict=True) if count]

    def show(self, hidden: Booleans | None = None) -> pd.DataFrame:
        """Give the table that a method sees: floats, levels as text, None and NaN for holes.

        Examples
        --------
        >>> coded = Coded(("n", "c"), np.array([[0.5, 1.0], [np.nan, 0.0]]), np.array([0, 2]))
        >>> coded.show(np.array([[False, True], [False, False]])).fillna({"n": 9.0, "c": "hidden"})
             n       c
        0  0.5  hidden
        1  9.0    L000
        """
        x = self.x if hidden is None else np.where(hidden, np.nan, self.x)
        columns: dict[str, Any] = {}
        for j, name in enumerate(self.names):
            columns[name] = x[:, j] if self.n_levels[j] == 0 else _name_levels(x[:, j])
        return pd.DataFrame(columns)

    def read(self, completed: pd.DataFrame, wanted: Booleans) -> Floats:
        """Give what stands in the wanted cells of a table that a method completed, row by row, [m].

        Raises
        ------
        InputError
            If the method gave something else than the same table without those holes.
        """
        check_completed(completed, pd.DataFrame(self.x, columns=list(self.names)))
        values = np.empty(self.x.shape)
        for j, name in enumerate(self.names):
            column = completed.iloc[:, j]
            if column.isna().to_numpy()[wanted[:, j]].any():
                raise InputError(f"A method must fill every hole, however: in {name!r} some are left.")
            if self.n_levels[j]:
                text = column.astype(object).where(column.notna(), "L-01")
                values[:, j] = [int(str(level)[1:]) for level in text]
            else:
                values[:, j] = column.to_numpy(dtype=np.float64)
        found: Floats = values[wanted]
        if not np.isfinite(found).all():
            raise InputError("A method must fill in finite numbers, however: some are not.")
        return found

    def moments(self, hidden: Booleans) -> tuple[Floats, Floats]:
        """Give mean and deviation of the cells that are seen, [c] each; 0 and 1 of levels."""
        seen = np.where(hidden, np.nan, self.x)
        number = self.n_levels == 0
        return np.where(number, np.nanmean(seen, axis=0), 0.0), np.where(number, np.nanstd(seen, axis=0), 1.0)

    def cut_off(self, values: Floats, hidden: Booleans) -> Floats:
        """Cut numbers for hidden cells, [m], off at the ends of what is seen of their column."""
        seen = np.where(hidden, np.nan, self.x)
        low, high = np.nanmin(seen, axis=0), np.nanmax(seen, axis=0)
        column = np.nonzero(hidden)[1]
        cut: Floats = np.clip(values, low[column], high[column])
        return cut

    def save(self, path: Path, hidden: Booleans) -> None:
        """Write it and the cells to hide, [repetitions, n, c], for another process."""
        np.savez(path, names=np.array(self.names), x=self.x, n_levels=self.n_levels, hidden=hidden)

    @classmethod
    def load(cls, path: Path) -> tuple[Coded, Booleans]:
        """Read what :meth:`save` wrote."""
        with np.load(path) as file:
            names = tuple(str(name) for name in file["names"])
            return cls(names, file["x"], file["n_levels"]), file["hidden"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A table that is ready for a comparison.

    Attributes
    ----------
    coded
        Its columns that can be filled.
    columns
        What these hold, in the same order.
    missing
        Where the table itself has holes, [n, c].
    n_rows
        Of the whole table; ``coded`` may have fewer.
    n_columns
        Of the whole table.
    left_out
        Other columns, with the reason.
    notes
        What the user should know of the columns.
    """

    coded: Coded
    columns: tuple[Column, ...]
    missing: Booleans
    n_rows: int
    n_columns: int
    left_out: Mapping[str, str]
    notes: tuple[str, ...]


def read_quietly(
    table: Table,
    categorical_features: Sequence[Any] | NDArray[Any] | None,
    schema: Schema | Mapping[Any, str] | None,
) -> tuple[TableEncoder, tuple[str, ...]]:
    """Learn how a table becomes numbers; what there is to say of it is given, not warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder = TableEncoder.fit(
            table, categorical_features=categorical_features, schema=schema, codes="levels"
        )
    return encoder, tuple(str(one.message) for one in caught if issubclass(one.category, DataWarning))


def code(encoder: TableEncoder, table: Table, names: Sequence[str]) -> Coded:
    """Write the columns that are modelled as numbers."""
    encoded = encoder.encode(table)
    x = np.where(encoded.missing, np.nan, encoded.x.astype(np.float64))
    return Coded(tuple(names), x, encoder.n_levels)


def prepare(
    table: Any,
    *,
    categorical_features: Sequence[Any] | NDArray[Any] | None = None,
    schema: Schema | Mapping[Any, str] | None = None,
    max_rows: int,
    rng: np.random.Generator,
) -> Prepared:
    """Read a table of any kind; of a long one take some rows at random.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": range(40), "b": ["x", "y"] * 20, "c": 1})
    >>> frame["id"] = [f"#{i}" for i in range(40)]
    >>> prepared = prepare(frame, max_rows=30, rng=np.random.default_rng(0))
    >>> prepared.coded.names, prepared.coded.x.shape, dict(prepared.left_out)
    (('a', 'b'), (30, 2), {'c': 'one value only', 'id': 'text or identifier'})
    """
    whole = read_table(table)
    if whole.n_rows < FEWEST_ROWS:
        raise InputError(
            f"A comparison needs {FEWEST_ROWS} rows at least, to hide cells of some and learn from others, "
            f"however: the table has {whole.n_rows}. Fill in so short a table by hand, or with any method."
        )
    encoder, said = read_quietly(whole, categorical_features, schema)
    part = whole
    if whole.n_rows > max_rows:
        rows = np.sort(rng.choice(whole.n_rows, max_rows, replace=False))
        part = read_table(take_rows(table, rows))
        encoder, said = _read_part(part, encoder, said)
    texts = name_columns(part.names)
    kept, left_out = [], {}
    for j, column in enumerate(encoder.schema):
        if column.status == Status.MODELLED:
            kept.append(j)
        else:
            left_out[texts[j]] = _reason(column)
    if len(kept) < 2:
        there = f"only {texts[kept[0]]!r} can be" if kept else "none can be"
        raise InputError(
            "A comparison needs two columns that can be filled, of which one tells of the other, however: "
            f"{there}. Check the kinds of the columns, for instance with categorical_features."
        )
    coded = code(encoder, part, [texts[j] for j in kept])
    missing = part.missing[:, kept]
    columns = tuple(encoder.schema.columns[j] for j in kept)
    notes = tuple(words for words in said if not words.startswith(_OF_LEFT_OUT))
    return Prepared(coded, columns, missing, whole.n_rows, whole.n_columns, left_out, notes)


def name_columns(names: Sequence[Hashable]) -> tuple[str, ...]:
    """Give labels as text that fits on a line; all different, none empty.

    Examples
    --------
    >>> name_columns([0, "0", "a b", ""])
    ('0', '0 (2)', 'a b', 'column 4')
    """
    taken: dict[str, None] = {}
    for position, name in enumerate(names, start=1):
        text = whole = short(name, 60) or f"column {position}"
        number = 2
        while text in taken:
            text, number = f"{whole} ({number})", number + 1
        taken[text] = None
    return tuple(taken)


def _read_part(
    part: Table, encoder: TableEncoder, said: tuple[str, ...]
) -> tuple[TableEncoder, tuple[str, ...]]:
    """Read a sample: kinds are those of the whole table, levels and deviations those of the sample."""
    kinds = {
        column.name: "text" if column.status == Status.IDENTIFIER else str(column.kind)
        for column in encoder.schema
        if column.n_observed
    }
    return read_quietly(part, None, kinds)[0], said


def _reason(column: Column) -> str:
    if column.status == Status.EMPTY:
        return "nothing was observed"
    return "one value only" if column.status == Status.CONSTANT else TEXT


def _name_levels(positions: Floats) -> NDArray[Any]:
    text = np.empty(len(positions), dtype=object)
    text[:] = [None if position != position else f"L{int(position):03d}" for position in positions]
    return text

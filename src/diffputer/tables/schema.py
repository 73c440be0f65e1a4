"""What each column of a table holds, and what may be written into its holes.

A :class:`Schema` is found by :func:`diffputer.tables.kinds.describe`, printed for the user, edited by
:meth:`Schema.replace` and handed back. Kinds say how a column is modelled; a status says whether it is:

``modelled``
    its holes are filled by the model;
``constant``
    one observed value only: its holes get that value;
``empty``
    nothing was observed: numbers get 0, unless ``empty="keep"``; all others stay missing;
``passed through``
    free text and types that cannot be modelled: returned as they are, holes included;
``identifier``
    row numbers and other numbers that name rows (``identifiers.py``): returned as they are, holes included.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from diffputer.errors import InputError
from diffputer.runtime.reporting import visible
from diffputer.tables.columntypes import ColumnType
from diffputer.tables.markers import StatedWords
from diffputer.tables.textcolumns import TextColumn


class Kind(StrEnum):
    """How a column is modelled."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    CATEGORICAL = "categorical"
    DATETIME = "datetime"
    DURATION = "duration"
    TIME = "time"
    TEXT = "text"

    @property
    def is_numeric(self) -> bool:
        """Whether one encoded number stands for a value, so that bounds and a resolution make sense."""
        return self not in (Kind.BOOLEAN, Kind.CATEGORICAL, Kind.TEXT)


class Status(StrEnum):
    """Whether a column is modelled, and if not, why."""

    MODELLED = "modelled"
    CONSTANT = "constant"
    EMPTY = "empty"
    PASSED_THROUGH = "passed through"
    IDENTIFIER = "identifier"


@dataclass(frozen=True)
class Column:
    """One column of a :class:`Schema`.

    Attributes
    ----------
    name
        The label of the column in the user's table; a position for arrays.
    kind, status
        How it is modelled, and whether it is.
    levels
        The categories that may be imputed; of a boolean column of numbers, 0 and 1.
    ordered
        Whether the table declares an order of the levels; they are modelled as unordered all the same.
    other_levels
        How many rarer levels were observed but are unknown to the model.
    lower, upper
        Filled values lie between them, both included; ``-inf`` and ``inf`` leave an end open. Numbers for
        numeric columns, ``datetime``, ``timedelta`` and ``time`` for the others. None, in a schema that is
        handed to ``fit``, means: the observed range.
    resolution
        Filled values are multiples of it; None for real numbers. A ``timedelta`` for dates and durations.
    timezone
        The time zone of a column of dates, if it has one.
    fill
        What goes into the holes of a constant or an empty column; None where they stay missing.
    skip
        Whether its missing values are kept; its observed values inform the imputation of others.
    n_observed, n_missing
        Counts of cells when the schema was found.
    type
        The type of the column in the fitted table, for batches in which it holds nothing. Not compared.
    level_counts
        Observed cells of each category then; of a boolean column those of False and True.
    observed_range
        Smallest and largest observed number then, of dates and times as they are modelled.
    """

    name: Hashable
    kind: Kind
    status: Status = Status.MODELLED
    levels: tuple[Any, ...] = ()
    ordered: bool = False
    other_levels: int = 0
    lower: Any = None
    upper: Any = None
    resolution: Any = None
    timezone: str | None = None
    fill: Any = None
    n_observed: int = 0
    n_missing: int = 0
    skip: bool = False
    type: ColumnType | None = dataclasses.field(default=None, compare=False, repr=False)
    level_counts: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)
    observed_range: tuple[float, ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        # Users write plain strings, and lists of levels.
        object.__setattr__(self, "kind", parse_kind(self.kind, self.name))
        object.__setattr__(self, "status", Status(self.status))
        object.__setattr__(self, "levels", tuple(self.levels))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; see :meth:`from_dict`."""
        plain: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "levels":
                plain["levels"] = [to_plain(level, self.name) for level in value]
            elif field.name == "type" and value is not None:
                levels = value.categories
                found = None if levels is None else [to_plain(level, self.name) for level in levels]
                plain["type"] = {**value.to_dict(), "categories": found}
            else:
                plain[field.name] = to_plain(value, self.name)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Column:
        """Rebuild a column from :meth:`to_dict`."""
        values = {key: from_plain(value) for key, value in plain.items() if key not in ("levels", "type")}
        kind = plain.get("type")
        if kind is not None:
            levels = kind["categories"]
            found = None if levels is None else [from_plain(level) for level in levels]
            kind = ColumnType.from_dict({**kind, "categories": found})
        return cls(**values, levels=tuple(from_plain(level) for level in plain["levels"]), type=kind)


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    Examples
    --------
    >>> schema = Schema((Column("age", Kind.INTEGER, lower=18, upper=90, n_observed=9, n_missing=1),
    ...                  Column("city", Kind.CATEGORICAL, levels=("Bonn", "Rome"), n_observed=10)))
    >>> print(schema)
    name  kind         status    levels or range  missing
    age   integer      modelled  18 … 90            10.0%
    city  categorical  modelled  Bonn, Rome          0.0%
    >>> schema["age"].upper
    90
    >>> schema.replace("age", kind="continuous", lower=0)["age"].lower
    0
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]
    stated: StatedWords = dataclasses.field(default_factory=StatedWords, compare=False, repr=False)
    """What the user has stated of words for missing cells in the text file that was fitted."""

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The column labels, in order."""
        return tuple(column.name for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __getitem__(self, name: Hashable) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise unknown_names([name], self.names)

    def replace(self, name: Hashable, **changes: Any) -> Schema:
        """Return a copy in which one column differs.

        A new ``kind`` also forgets the levels, bounds and resolution of the old kind, unless they are given.

        Parameters
        ----------
        name
            The column to change.
        **changes
            New values of the attributes of :class:`Column`.

        Returns
        -------
        Schema
            The edited copy.
        """
        old = self[name]
        possible = {field.name for field in dataclasses.fields(Column)} - {"name"}
        if unknown := set(changes) - possible:
            raise InputError(
                f"Only attributes of a column can be replaced; {sorted(unknown)} are none. "
                f"Choose from {sorted(possible)}."
            )
        if "kind" in changes and parse_kind(changes["kind"], name) != old.kind:
            status = Status.PASSED_THROUGH if changes["kind"] == Kind.TEXT else Status.MODELLED
            forget = {
                "levels": (),
                "level_counts": (),
                "observed_range": (),
                "other_levels": 0,
                "lower": None,
                "upper": None,
                "resolution": None,
            }
            changes = {**forget, "status": status, "fill": None, **changes}
        new = dataclasses.replace(old, **changes)
        columns = tuple(new if column is old else column for column in self.columns)
        return dataclasses.replace(self, columns=columns)

    def reaching_beyond(self, positions: Collection[int]) -> Schema:
        """A copy in which some columns may be imputed beyond what was observed, by as much as its range.

        Of numbers, dates and durations; numbers and durations keep their sign.

        Examples
        --------
        >>> column = Column("km", Kind.INTEGER, lower=2, upper=10)
        >>> print(Schema((column,)).reaching_beyond([0])["km"].upper)
        18
        """
        columns = (_wider(c) if j in positions else c for j, c in enumerate(self.columns))
        return dataclasses.replace(self, columns=tuple(columns))

    def spellings(self) -> dict[str, TextColumn]:
        """How the columns were spelt in the text file that was fitted; none of other tables."""
        kinds = {str(column.name): column.type for column in self.columns}
        return {name: kind.text for name, kind in kinds.items() if kind is not None and kind.text is not None}

    def with_spellings(self, spelt: Mapping[Any, TextColumn], stated: StatedWords) -> Schema:
        """Return a copy that knows how the columns are spelt in a text file, and what was stated of words."""
        return Schema(
            tuple(
                dataclasses.replace(column, type=dataclasses.replace(column.type, text=spelt[column.name]))
                if column.type is not None and column.name in spelt
                else column
                for column in self.columns
            ),
            stated,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; ``Schema.from_dict(schema.to_dict()) == schema``."""
        plain = {"columns": [column.to_dict() for column in self.columns]}
        return {**plain, "stated": self.stated.to_dict()} if self.stated != StatedWords() else plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Schema:
        """Rebuild a schema from :meth:`to_dict`."""
        stated = StatedWords.from_dict(plain["stated"]) if "stated" in plain else StatedWords()
        return cls(tuple(Column.from_dict(column) for column in plain["columns"]), stated)

    def __str__(self) -> str:
        rows = [("name", "kind", "status", "levels or range", "missing")]
        for column in self.columns:
            share = column.n_missing / max(column.n_observed + column.n_missing, 1)
            status = "skipped" if column.skip else str(column.status)
            name, contents = (visible(" ".join(one.split())) for one in (str(column.name), _contents(column)))
            rows.append((name, column.kind, status, contents, f"{share:.1%}"))
        width = [max(len(row[k]) for row in rows) for k in range(5)]
        return "\n".join(
            "  ".join(cell.ljust(width[k]) for k, cell in enumerate(row[:4])) + "  " + row[4].rjust(width[4])
            for row in rows
        )


def _wider(column: Column) -> Column:
    """A column with ends that are as far out again; those of numbers and durations keep their sign."""
    if column.kind == Kind.TIME:
        return column
    try:
        width = column.upper - column.lower
        lower, upper = column.lower - width, column.upper + width
    except OverflowError:  # before the first date, or after the last
        return column
    if column.kind != Kind.DATETIME:
        nothing = column.lower - column.lower
        lower = max(lower, nothing) if column.lower >= nothing else lower
        upper = min(upper, nothing) if column.upper <= nothing else upper
    return dataclasses.replace(column, lower=lower, upper=upper)


def parse_kind(kind: Any, name: Hashable) -> Kind:
    """Turn a user's string into a :class:`Kind`, or say which kinds exist."""
    try:
        return Kind(kind)
    except ValueError:
        raise InputError(
            f"A kind must be one of {', '.join(Kind)}; column {name!r} was given {kind!r}. Use one of those."
        ) from None


def unknown_names(names: list[Any], known: tuple[Hashable, ...]) -> InputError:
    """The error for labels that are not in the table, listing those that are."""
    shown = ", ".join(repr(name) for name in known[:30]) + (", …" if len(known) > 30 else "")
    return InputError(
        f"Columns must be named as in the table; {', '.join(map(repr, names))} "
        f"{'is' if len(names) == 1 else 'are'} not there. The table has: {shown}."
    )


def _contents(column: Column) -> str:
    """The levels or the range of a column, in a few words."""
    if column.status in (Status.CONSTANT, Status.EMPTY):
        return "stays missing" if column.fill is None else f"always {_short(column.fill)}"
    if column.kind == Kind.CATEGORICAL:
        shown = ", ".join(_short(level) for level in column.levels[:3])
        more = len(column.levels) - 3
        rare = f" (+ {column.other_levels} rare)" if column.other_levels else ""
        return shown + (f", … {more} more" if more > 0 else "") + rare
    if column.kind.is_numeric:
        return f"{_short(column.lower)} … {_short(column.upper)}"
    return ", ".join(map(str, column.levels or (False, True))) if column.kind == Kind.BOOLEAN else ""


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, datetime):  # of a whole day the date is enough, and the zone stands in the column
        value = value.date() if value.time() == time() else value.replace(tzinfo=None)
    text = str(value)
    return text if len(text) <= 20 else text[:19] + "…"


def to_plain(value: Any, name: Hashable) -> Any:
    """Write one level, bound or label as a JSON value; what JSON lacks becomes ``{type: text}``."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or type(value) in (str, bool, int, float):
        return value
    # pd.Timestamp is a datetime and pd.Timedelta a timedelta, with nanoseconds: they come first.
    if isinstance(value, pd.Timestamp):
        return {"timestamp": value.isoformat()}
    if isinstance(value, pd.Timedelta):
        return {"nanoseconds": int(value.as_unit("ns").value)}
    if isinstance(value, datetime | date | time):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, timedelta):
        return {"microseconds": value // timedelta(microseconds=1)}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [to_plain(item, name) for item in value]}
    raise InputError(
        "To be saved, the levels of a column must be text, numbers, booleans, dates, times or durations; "
        f"column {name!r} has the level {value!r} of type {type(value).__name__}. "
        "Convert the column, for example to text, before fitting."
    )


def from_plain(plain: Any) -> Any:
    """Read a value that :func:`to_plain` has written."""
    if not isinstance(plain, dict):
        return plain
    ((kind, text),) = plain.items()
    if kind == "tuple":
        return tuple(from_plain(item) for item in text)
    if kind == "microseconds":
        return timedelta(microseconds=text)
    if kind == "nanoseconds":
        return pd.Timedelta(text, unit="ns")
    readers: dict[str, Any] = {
        "float": float,
        "timestamp": pd.Timestamp,
        "datetime": datetime.fromisoformat,
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "decimal": Decimal,
    }
    return readers[kind](text)

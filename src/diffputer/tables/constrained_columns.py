"""The columns that constraints speak of: where they are, and how their numbers are read and written."""

from __future__ import annotations

import dataclasses
import datetime
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from diffputer.errors import InputError
from diffputer.tables.cells import Cells, Family, Storage
from diffputer.tables.clock import step_to_number, to_number
from diffputer.tables.decoding import is_binary, is_local, target_storage
from diffputer.tables.frames import Table
from diffputer.tables.repairs import Numbers
from diffputer.tables.schema import Column, Kind, Schema

_KINDS = {
    Family.NUMBER: Kind.CONTINUOUS,
    Family.DATETIME: Kind.DATETIME,
    Family.DURATION: Kind.DURATION,
    Family.TIME: Kind.TIME,
}


@dataclass(frozen=True)
class Place:
    """Where a column is, and how its numbers are read and written."""

    position: int
    column: Column
    cells: Cells
    storage: Storage


def find_place(table: Table, label: Any, schema: Schema | None, *, number: bool) -> Place:
    """Find a column of numbers, or, unless ``number``, also of dates, durations or times."""
    position = table.names.index(label)
    cells = table.cells[position]
    if schema is not None:
        column = schema.columns[position]
        if is_binary(column):  # 0 and 1 are numbers to a formula
            column = dataclasses.replace(column, kind=Kind.INTEGER, levels=(), lower=0, upper=1, resolution=1)
    else:
        kind = _KINDS.get(cells.storage.family, Kind.TEXT)
        kind = Kind.CATEGORICAL if cells.storage.declared else kind
        column = Column(label, Kind.INTEGER if kind == Kind.CONTINUOUS and cells.storage.whole else kind)
    fits = column.kind in (Kind.CONTINUOUS, Kind.INTEGER) if number else column.kind.is_numeric
    # A column without any value may have any dtype, and gets that of its values.
    storage = target_storage(column, cells, bool(table.missing[:, position].all())) if fits else None
    if storage is None or storage.family not in _KINDS:
        wanted = "Derived columns and their inputs must be numbers"
        wanted = wanted if number else "Inequalities are between numbers, dates, durations or times"
        raise InputError(
            f"{wanted}, however: {label!r} is {column.kind} (dtype {cells.storage.dtype}). Convert it, "
            "or leave it out."
        )
    return Place(position, column, cells, storage)


def check_comparable(smaller: Place, larger: Place) -> None:
    """Refuse an inequality between numbers and dates, or between times with and without a zone."""
    one, other = smaller.storage, larger.storage
    if one.family != other.family or (one.timezone is None) != (other.timezone is None):
        sorts = [f"{s.family}{' of a time zone' * (s.timezone is not None)}" for s in (one, other)]
        raise InputError(
            f"An inequality must compare like with like, however: {smaller.column.name!r} holds "
            f"{sorts[0]} and {larger.column.name!r} {sorts[1]}. Convert one of them."
        )


def read_numbers(place: Place, table: Table, bounds: tuple[Any, Any] | None) -> Numbers:
    """Read a column, with the bounds that the user has stated of it."""
    column, observed = place.column, ~table.missing[:, place.position]
    return Numbers(
        name=table.names[place.position],
        observed=observed,
        values=np.where(observed, place.cells.numbers(), np.nan)
        if observed.any()
        else np.full(len(observed), np.nan),
        storage=place.storage,
        step=step_to_number(column.kind, column.resolution) or 0.0,
        zone=column.timezone if is_local(column) else None,
        soft=_ends(column, (column.lower, column.upper)),
        hard=_ends(column, bounds) if bounds is not None else (-math.inf, math.inf),
    )


def without_limits(column: Column) -> Column:
    """The column without limits, as a formula knows none: only the dtype does."""
    zoned = column.kind == Kind.DATETIME and column.timezone is not None
    fine = datetime.timedelta(microseconds=1) if zoned else None
    return dataclasses.replace(column, lower=-math.inf, upper=math.inf, resolution=fine)


def _ends(column: Column, bounds: tuple[Any, Any]) -> tuple[float, float]:
    low, high = bounds
    try:
        return (
            -math.inf if low is None else float(to_number(column.kind, low, column.timezone)),
            math.inf if high is None else float(to_number(column.kind, high, column.timezone)),
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Bounds must be of the kind of their column, {column.kind}, however: those of {column.name!r} "
            f"are {bounds!r} ({error})."
        ) from error

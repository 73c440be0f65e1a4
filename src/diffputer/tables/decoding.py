"""From numbers that the model completed to values that a column of a given dtype can hold."""

from __future__ import annotations

import dataclasses
import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from diffputer.errors import InputError, warn_about_data
from diffputer.tables.cells import LONGEST, Cells, Family, Floats, Storage
from diffputer.tables.clock import (
    EARLIEST,
    LATEST,
    from_number,
    step_to_number,
    to_number,
    to_utc,
    to_wall_clock,
)
from diffputer.tables.filling import Values
from diffputer.tables.frames import Table
from diffputer.tables.kinds import neutral_value
from diffputer.tables.levels import levels_of
from diffputer.tables.schema import Column, Kind, Schema, Status

_INT64, _UINT64 = np.iinfo(np.int64), np.iinfo(np.uint64)
_FAMILIES = {
    Kind.CONTINUOUS: Family.NUMBER,
    Kind.INTEGER: Family.NUMBER,
    Kind.BOOLEAN: Family.BOOLEAN,
    Kind.DATETIME: Family.DATETIME,
    Kind.DURATION: Family.DURATION,
    Kind.TIME: Family.TIME,
}


def is_local(column: Column) -> bool:
    """Whether dates are modelled as local time: days begin at midnight of the time zone.

    Finer dates are modelled in UTC, where no hour is skipped or doubled.
    """
    return (
        column.kind == Kind.DATETIME
        and column.timezone is not None
        and column.resolution >= datetime.timedelta(days=1)
    )


def check_storage(column: Column, cells: Cells, all_missing: bool) -> None:
    """Refuse a column that holds something else than at fit; an empty one may have any dtype."""
    storage = cells.storage
    if all_missing:
        return
    expected = _family(column)
    if not _suits(column, storage):
        raise InputError(
            f"A column must hold the same as at fit; column {column.name!r} held {expected} and now holds "
            f"{storage.family} (dtype {storage.dtype}). Convert it to what it was."
        )
    if column.kind == Kind.DATETIME and (column.timezone is None) != (storage.timezone is None):
        before, now = ("none", storage.timezone) if column.timezone is None else (column.timezone, "none")
        raise InputError(
            f"Dates must have a time zone if they had one at fit; that of column {column.name!r} was "
            f"{before} and is {now}. Add or remove it with dt.tz_localize."
        )


def as_fitted(table: Table, schema: Schema) -> Table:
    """See a batch as the fit knew its columns, so that what is imputed does not depend on the batch.

    A column that holds nothing and whose dtype says nothing (objects that are all None, NaN in pandas'
    float64, the null types of Arrow and polars, another sort of values) gets the type that it had at fit.
    Every other column keeps its dtype, with these rules for what that cannot hold:

    * categories are added as the fit knew them: behind those of the batch, and in the order of the fit where
      they are ordered; categories whose order contradicts that of the fit and polars' Enum are left as they
      are, and an imputed value that they lack is refused;
    * numbers beyond the limits of a dtype are refused;
    * numbers, dates and durations are rounded to what the dtype can tell apart, with a warning if the fitted
      ones were finer (:func:`warn_of_coarse`);
    * objects have no limits, and decimal numbers as many places as at fit.
    """
    if table.container == "numpy" and table.native.dtype.kind != "O":
        return table  # one dtype for all columns
    cells = list(table.cells)
    for position, column in enumerate(schema):
        holes = table.missing[:, position]
        if column.status in (Status.MODELLED, Status.CONSTANT) and holes.any():
            cells[position] = _cells_as_fitted(column, cells[position], table, position, bool(holes.all()))
    return dataclasses.replace(table, cells=tuple(cells))


def _cells_as_fitted(column: Column, cells: Cells, table: Table, position: int, all_missing: bool) -> Cells:
    storage, kind = cells.storage, column.type
    if cells.fitted is not None:
        return cells
    if all_missing and kind is not None:
        says_nothing = storage.family == Family.NOTHING
        if table.container == "pandas":
            dtype = table.native.dtypes.iloc[position]
            says_nothing |= dtype == np.float64 or (storage.declared and storage.levels == ())
        zoned = (storage.timezone is None) == (column.timezone is None)
        if says_nothing or not _suits(column, storage) or (column.kind == Kind.DATETIME and not zoned):
            return Cells(kind.storage(table.container), pa.nulls(table.n_rows), fitted=kind)
    if storage.declared and not (storage.closed and table.container == "polars"):
        return dataclasses.replace(cells, storage=_with_categories(storage, column))
    if storage.dtype == "object" and storage.family == Family.NUMBER:
        if kind is not None and kind.decimals is not None and storage.decimals is not None:
            step = 10.0**-kind.decimals
            whole = kind.decimals <= 0
            changed = dataclasses.replace(storage, decimals=kind.decimals, resolution=step, whole=whole)
            return dataclasses.replace(cells, storage=changed)
        if storage.decimals is None and _family(column) == Family.NUMBER:
            return dataclasses.replace(cells, storage=dataclasses.replace(_natural(column), dtype="object"))
    return cells


def _with_categories(storage: Storage, column: Column) -> Storage:
    """A storage of categories with those that the fit knew and the dtype lacks."""
    own = storage.levels or ()
    declared = column.type.categories if column.type is not None else None
    known = dict.fromkeys((*(declared or ()), *levels_of(column)))
    lacking = [level for level in known if level not in set(own)]
    if not lacking:
        return storage
    if not storage.ordered:
        return dataclasses.replace(storage, levels=(*own, *lacking))
    if column.ordered and [level for level in known if level in set(own)] == list(own):
        return dataclasses.replace(storage, levels=tuple(known), closed=True)
    return dataclasses.replace(storage, closed=True)  # nobody knows where they belong


def warn_of_coarse(table: Table, schema: Schema) -> None:
    """Warn of columns whose dtype cannot tell apart what the fitted one could."""
    coarse: list[str] = []
    if table.container == "numpy" and table.native.dtype.kind in "biuf":
        return  # floating point is not coarse, and others cannot be missing
    for position, column in enumerate(schema):
        if column.status != Status.MODELLED or not column.kind.is_numeric or column.type is None:
            continue
        storage = table.cells[position].storage
        before = column.type.storage(table.container)
        step = max(step_to_number(column.kind, column.resolution) or 0.0, before.resolution or 0.0)
        if (storage.resolution or 0.0) > step * (1 + 1e-9) and table.missing[:, position].any():
            coarse.append(f"{column.name!r} ({storage.dtype}; {column.type.dtype} at fit)")
    if coarse:
        warn_about_data(
            "Imputed values are rounded to what a column's dtype can hold, which is coarser than at fit: "
            f"{', '.join(coarse)}. Convert these columns to the dtype of the fit to avoid it."
        )


def _suits(column: Column, storage: Storage) -> bool:
    """Whether a storage holds what the column held at fit."""
    if storage.declared:  # any value may be a category
        return not column.kind.is_numeric
    return storage.family == _family(column)


def target_storage(column: Column, cells: Cells, all_missing: bool) -> Storage:
    """The storage to write into; a column of holes with an unsuitable dtype gets that of the values."""
    if not all_missing or _suits(column, cells.storage):
        return cells.storage
    return _natural(column)


def _natural(column: Column) -> Storage:
    """What holds all values of a column."""
    if column.kind == Kind.INTEGER or is_binary(column):
        largest = column.fill if column.status == Status.CONSTANT else column.upper
        unsigned = largest is not None and _INT64.max < largest < math.inf
        limits = _UINT64 if unsigned else _INT64
        return Storage(Family.NUMBER, whole=True, low=limits.min, high=limits.max)
    if column.kind == Kind.CATEGORICAL and _family(column) == Family.NUMBER:
        whole = all(isinstance(level, int) for level in levels_of(column))
        return Storage(Family.NUMBER, whole=whole)
    high = math.inf if column.kind in (Kind.CONTINUOUS, Kind.CATEGORICAL) else LONGEST
    return Storage(_family(column), low=-high, high=high, declared=column.kind == Kind.CATEGORICAL)


def decode_constant(column: Column, cells: Cells, n: int, all_missing: bool) -> Values | None:
    """Values for the holes of a constant or an empty column, [n]; None where they stay missing."""
    fill, storage = column.fill, cells.storage
    if column.status == Status.CONSTANT:
        check_storage(column, cells, all_missing)
        storage = target_storage(column, cells, all_missing)
    elif fill is not None and storage.family == Family.NOTHING:
        storage = _natural(column)
    elif fill is not None and not _holds(storage, fill):
        fill = neutral_value(cells, column.kind)  # an empty column may have any dtype now
    if fill is None:
        return None
    if not _holds(storage, fill):
        raise _cannot_hold(column, storage, repr(fill))
    return np.repeat(_canonical([fill], storage), n)


def decode_levels(
    column: Column, cells: Cells, raw: Floats, book: Floats | None, all_missing: bool
) -> Values:
    """Values for the holes of a boolean or categorical column, [n].

    raw
        Completed codes, [n, width].
    book
        The code of each level, [n_levels, width]; None if its position is its code, with a width of 1.
    """
    storage = target_storage(column, cells, all_missing)
    if column.kind == Kind.BOOLEAN and not column.levels and not storage.declared:
        return np.asarray(raw[:, 0] > 0.5)
    levels = list(levels_of(column))
    if book is None:
        index = np.clip(np.rint(raw[:, 0]), 0, len(levels) - 1).astype(np.int64)
    else:
        index = _nearest_codes(raw, book)
    # Never the next best: what is imputed must not depend on the categories that a batch happens to have.
    lacking = [levels[place] for place in np.unique(index) if not _holds(storage, levels[place])]
    if lacking:
        raise _cannot_hold(column, storage, ", ".join(map(repr, lacking[:5])))
    values: Values = _canonical(levels, storage)[index]
    return values


def _nearest_codes(raw: Floats, book: Floats) -> npt.NDArray[np.int64]:
    """The level whose code is nearest to each completed one, [n]."""
    # NOTE[paper]: the authors' code reads the bits one by one and may arrive at a code that no category has;
    # here the nearest code of a level is taken. For indicators this is the largest one.
    # One level at a time and element by element: little memory, and no matrix product whose rounding
    # depends on the number of rows.
    best = np.full(len(raw), math.inf)
    index = np.zeros(len(raw), dtype=np.int64)
    for candidate in range(len(book)):
        distance = np.zeros(len(raw))
        for digit in np.flatnonzero(book[candidate]):
            distance += 1.0 - 2.0 * raw[:, digit]  # |raw - code|² less |raw|², which is common
        closer = distance < best
        best[closer] = distance[closer]
        index[closer] = candidate
    return index


#: Values that make up this share of a column are filled in exactly; at most so many of them.
FREQUENT_SHARE, MOST_FREQUENT = 0.002, 256


def find_frequent(values: Floats) -> Floats:
    """Give the values that occur often, in order.

    Examples
    --------
    >>> find_frequent(np.array([0.0, 0.0, 0.0, 0.1, 0.2]))
    array([0.])
    """
    found, counts = np.unique(values, return_counts=True)
    often = counts >= max(3, FREQUENT_SHARE * len(values))
    found, counts = found[often], counts[often]
    return np.asarray(np.sort(found[np.argsort(-counts, kind="stable")[:MOST_FREQUENT]]))


#: Steps of single precision that the middle half of a column must span to be told apart.
FEWEST_STEPS = 30


def is_coarse(values: Floats, mean: float) -> bool:
    """Say whether values lie so far out that single precision, which the model has, hardly tells the others.

    Examples
    --------
    >>> is_coarse(np.array([1.0, 2.0, 3.0, 4.0, 1e12]), 2e11), is_coarse(np.array([1.0, 2.0, 1e6]), 3e5)
    (True, False)
    """
    low, high = np.quantile(values, [0.25, 0.75])
    step = 2.0**-23 * max(abs(low - mean), abs(high - mean))
    return bool(0 < high - low < FEWEST_STEPS * step)


def snap(values: Floats, frequent: Floats | None, deviation: Floats) -> Floats:
    """Undo the rounding of float32 next to a frequent value: 0 is 0, not 4e-6.

    Shape: values [n], frequent [k] ascending, deviation [1].
    """
    if frequent is None or len(frequent) == 0:
        return values
    right = np.searchsorted(frequent, values).clip(1, max(1, len(frequent) - 1))
    near = frequent[np.minimum(right, len(frequent) - 1)]
    left = frequent[right - 1]
    near = np.where(np.abs(values - left) <= np.abs(values - near), left, near)
    return np.where(np.abs(values - near) <= 2e-6 * deviation, near, values)


def decode_numbers(column: Column, cells: Cells, raw: Floats, all_missing: bool) -> Values:
    """Values for the holes of a numeric column, [n]: rounded to the resolution, inside bounds and dtype."""
    storage = target_storage(column, cells, all_missing)
    # What the model says is limited by what the fitted dtype could hold, not by that of the batch.
    fitted = storage if column.type is None else column.type.storage(column.type.container)
    low, high = _ends(column, fitted)
    step = max(step_to_number(column.kind, column.resolution) or 0.0, storage.resolution or 0.0)
    values = np.clip(raw, float(low), float(high))
    if step:
        values = np.rint(values / step) * step + 0.0  # no negative zeros
        first, last = _first_multiple(low, step), -_first_multiple(-high, step)
        if first <= last:  # else no multiple lies between the bounds, and the nearest must do
            values = np.clip(values, first, last)
    beyond = (values < float(storage.low)) | (values > float(storage.high))
    if beyond.any():
        number = float(values[beyond][0])
        shown = from_number(column.kind, number, column.timezone) if math.isfinite(number) else number
        raise _cannot_hold(column, storage, str(shown))
    low, high = max(low, storage.low), min(high, storage.high)
    if column.kind in (Kind.CONTINUOUS, Kind.INTEGER):
        return _to_integers(values, low, high) if storage.whole else _to_precision(values, low, high, storage)
    if is_local(column):
        values = to_utc(values, str(column.timezone))
    whole = values.astype(np.int64)
    if column.kind == Kind.DURATION:
        return whole.view("timedelta64[us]")
    if column.kind == Kind.DATETIME:
        moments: Values = whole.view("datetime64[us]")
        # Where no dtype knows the time zone, the values must.
        return _zoned(moments, column) if storage.timezone is None and column.timezone else moments
    times = np.empty(len(whole), dtype=object)
    times[:] = [moment.time() for moment in whole.view("datetime64[us]").tolist()]
    return times


def _zoned(moments: Values, column: Column) -> Values:
    """UTC as Python datetimes of the column's time zone, [n]."""
    stamps = pd.DatetimeIndex(moments).tz_localize("UTC").tz_convert(column.timezone)
    return np.array([*stamps.to_pydatetime(), None], dtype=object)[:-1]


def _first_multiple(low: float, step: float) -> float:
    """The smallest multiple of ``step`` that is not below ``low``, but for rounding errors."""
    if math.isinf(low):
        return low
    ratio = low / step
    nearest = float(np.rint(ratio))
    return (nearest if abs(ratio - nearest) < 1e-6 else float(np.ceil(ratio))) * step


def _ends(column: Column, storage: Storage) -> tuple[float, float]:
    """The bounds of a column, as far as the dtype can hold them; those of integers are exact."""
    low = -math.inf if column.lower is None else to_number(column.kind, column.lower, column.timezone)
    high = math.inf if column.upper is None else to_number(column.kind, column.upper, column.timezone)
    if column.kind == Kind.DATETIME:
        low, high = max(low, EARLIEST), min(high, LATEST)
        if is_local(column):
            low, high = to_wall_clock(np.array([low, high]), str(column.timezone)).tolist()
    # Bounds outside of what the dtype can hold leave its nearest value.
    low = min(max(low, storage.low), storage.high)
    return low, max(min(high, storage.high), low)


def _to_integers(values: Floats, low: float, high: float) -> Values:
    """Whole numbers as integers between the ends, as floats where these need more than 64 bits, [n]."""
    for limits in (_INT64, _UINT64):
        if limits.min <= low and high <= limits.max:
            # The double nearest to the largest integer lies above it, and would overflow.
            over = values >= float(limits.max)
            whole = np.where(over, 0.0, values).astype(limits.dtype)
            whole[over] = limits.max
            # float64 cannot tell large integers apart: the exact ends are applied to the integers.
            first, last = math.ceil(low), math.floor(high)
            return np.clip(whole, first, last) if first <= last else whole
    smallest, largest = float(low), float(high)
    smallest = smallest if smallest >= low else math.nextafter(smallest, math.inf)
    largest = largest if largest <= high else math.nextafter(largest, -math.inf)
    return np.clip(values, smallest, largest)


def _to_precision(values: Floats, low: float, high: float, storage: Storage) -> Values:
    """Numbers in the type that the column can hold, without leaving the bounds by rounding."""
    if storage.precision is None:
        return values
    narrow = values.astype(storage.precision)
    rounded = narrow.astype(np.float64)  # compared in float64, lest numpy round the bounds too
    for outside, towards in ((rounded > high, -np.inf), (rounded < low, np.inf)):
        narrow[outside] = np.nextafter(narrow[outside], np.array(towards, narrow.dtype))
    return narrow


def _family(column: Column) -> Family:
    """What a column held at fit."""
    if column.kind != Kind.CATEGORICAL:
        return Family.NUMBER if is_binary(column) else _FAMILIES[column.kind]
    sample = column.levels[0] if column.levels else column.fill
    if isinstance(sample, bool):
        return Family.BOOLEAN
    if isinstance(sample, int | float | Decimal):
        return Family.NUMBER
    if isinstance(sample, datetime.date):
        return Family.DATETIME
    if isinstance(sample, datetime.timedelta):
        return Family.DURATION
    return Family.TIME if isinstance(sample, datetime.time) else Family.LABEL


def is_binary(column: Column) -> bool:
    """Whether it is a boolean column whose values are the numbers 0 and 1."""
    values = column.levels or (column.fill,)
    return column.kind == Kind.BOOLEAN and not isinstance(values[0], bool | None)


def _holds(storage: Storage, level: Any) -> bool:
    """Whether a column of this storage can hold a level."""
    if storage.closed:
        return level in (storage.levels or ())
    if storage.family == Family.NUMBER and isinstance(level, int | float | Decimal):
        return storage.low <= level <= storage.high and not (storage.whole and level != int(level))
    if storage.family in (Family.NUMBER, Family.BOOLEAN):
        return isinstance(level, bool)
    return storage.family != Family.LABEL or storage.declared or isinstance(level, str)


def _cannot_hold(column: Column, storage: Storage, values: str) -> InputError:
    kind = column.type
    remedy = "" if kind is None or kind.dtype in (storage.dtype, "object") else f", {kind.dtype}"
    if storage.closed and storage.levels is not None:
        known = (kind.categories if kind is not None else None) or levels_of(column)
        shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
        remedy = f", with the categories {shown}"
    return InputError(
        f"Imputed values must fit into the dtype of their column; column {column.name!r} of dtype "
        f"{storage.dtype} cannot hold {values}. Convert it to the dtype that it had at fit{remedy}."
    )


def _canonical(levels: list[Any], storage: Storage) -> npt.NDArray[Any]:
    """Levels as an array that a column of this storage takes, [n_levels]."""
    family = storage.family
    if family == Family.NUMBER and all(isinstance(level, int | float | Decimal) for level in levels):
        if not storage.whole:
            return np.array([float(level) for level in levels])
        fits = [all(limits.min <= level <= limits.max for level in levels) for limits in (_INT64, _UINT64)]
        return np.array(
            [int(level) for level in levels], np.int64 if fits[0] else np.uint64 if fits[1] else np.float64
        )
    if family == Family.BOOLEAN and all(isinstance(level, bool) for level in levels):
        return np.array(levels, dtype=bool)
    if family == Family.DATETIME and all(isinstance(level, datetime.date) for level in levels):
        stamps = pd.to_datetime([pd.Timestamp(level) for level in levels], utc=True)
        return np.asarray(stamps.tz_localize(None).to_numpy())
    if family == Family.DURATION and all(isinstance(level, datetime.timedelta) for level in levels):
        return np.asarray(pd.to_timedelta([pd.Timedelta(level) for level in levels]).to_numpy())
    objects = np.empty(len(levels), dtype=object)
    objects[:] = levels
    return objects

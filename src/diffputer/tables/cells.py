"""One column, whatever container it comes from, seen as an Arrow array plus what its dtype can hold.

Arrow is the common form because every container gives it cheaply and it knows nulls, dates, decimals and
dictionaries. The view is for reading only: holes are filled in the native column (``filling.py``), so that
observed cells never pass through a conversion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.types as pt
from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype

from diffputer.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from diffputer.tables.columntypes import ColumnType

SECOND = 1_000_000.0  # dates, durations and times of day are counted in microseconds
DAY = 86_400 * SECOND
LONGEST = 2.0**63 - 1024  # the largest double that an int64 can hold

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


class Family(StrEnum):
    """What the dtype of a column holds; several kinds of model may suit it."""

    NUMBER = "numbers"
    BOOLEAN = "booleans"
    LABEL = "text or categories"
    DATETIME = "dates"
    DURATION = "durations"
    TIME = "times of day"
    NOTHING = "nothing"
    OTHER = "values that cannot be modelled"


@dataclass(frozen=True)
class Storage:
    """What a column's dtype can hold.

    Attributes
    ----------
    family, dtype
        What it holds, and its name for messages.
    whole
        Whether it holds whole numbers only.
    low, high
        The range of its numbers (microseconds for dates and durations); exact integers for whole numbers.
    resolution
        The step between its numbers, None for floating point.
    decimals
        Digits after the decimal point of a decimal column.
    precision
        numpy name of a floating-point dtype narrower than float64.
    timezone
        Of time-zone-aware dates; their numbers are counted in UTC.
    declared
        Whether the dtype itself says that the column is categorical.
    levels
        The levels that the dtype declares, in its order.
    closed
        Whether no other level can be written.
    ordered
        Whether the declared levels have an order.
    """

    family: Family
    dtype: str = ""
    whole: bool = False
    low: float = -math.inf
    high: float = math.inf
    resolution: float | None = None
    decimals: int | None = None
    precision: str | None = None
    timezone: str | None = None
    declared: bool = False
    levels: tuple[Any, ...] | None = None
    closed: bool = False
    ordered: bool = False


@dataclass(frozen=True)
class Cells:
    """The cells of one column: an Arrow array with nulls for holes, or codes into ``levels``.

    A column that holds nothing may have the type ``fitted``, which it gets when it is filled.
    """

    storage: Storage
    array: Any
    levels: tuple[Any, ...] | None = None
    fitted: ColumnType | None = None

    def missing(self) -> Booleans:
        """Where a cell is null or NaN, [n_rows]."""
        mask = self.array.is_null(nan_is_null=pt.is_floating(self.array.type))
        return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)

    def numbers(self) -> Floats:
        """The cells as float64 with NaN for holes, [n_rows]; dates and the like in microseconds."""
        array = self.array
        kind = array.type
        try:
            if pt.is_date(kind):
                array = array.cast(pa.timestamp("ms"))
            if pt.is_date(kind) or pt.is_timestamp(kind):
                array = array.cast(pa.timestamp("us"), safe=False)
            elif pt.is_duration(kind):
                array = array.cast(pa.duration("us"), safe=False)
            elif pt.is_time(kind):
                array = array.cast(pa.time64("us"), safe=False)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"Dates must lie within 290,000 years of 1970; a column of {self.storage.dtype} does not "
                f"({error}). Correct the dates, or leave them out."
            ) from error
        if pt.is_temporal(kind) or pt.is_boolean(kind):
            array = array.cast(pa.int64())
        elif pt.is_decimal(kind):
            array = array.cast(pa.float64())
        if array.null_count == 0:
            return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
        return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def labels(self) -> tuple[npt.NDArray[np.int64], list[Any]]:
        """Codes (−1 for holes), [n_rows], and the distinct values that they stand for."""
        if self.levels is not None:
            codes, levels = self.array, list(self.levels)
        else:
            encoded = self.array.dictionary_encode()
            codes, levels = encoded.indices, encoded.dictionary.to_pylist()
        codes = codes.cast(pa.int64()).fill_null(-1)  # polars' are unsigned
        plain = np.array(codes.to_numpy(zero_copy_only=False), dtype=np.int64)
        if pt.is_floating(self.array.type):
            plain[self.missing()] = -1  # Arrow counts NaN as a value
        return plain, levels


def cells_of_arrow(array: Any) -> Cells:
    """View a pyarrow Array or ChunkedArray."""
    kind = array.type
    if isinstance(array, pa.ChunkedArray):
        if pt.is_dictionary(kind):
            array = array.unify_dictionaries()
        elif pt.is_string(kind):
            array = array.cast(pa.large_string())  # joined chunks may exceed a plain array's 2 GiB
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    if pt.is_dictionary(kind):
        if not _is_label_type(kind.value_type):
            return Cells(Storage(Family.OTHER, str(kind)), array)
        # Decoded, since a dictionary may hold nulls and the same level twice.
        declared = tuple(dict.fromkeys(v for v in array.dictionary.to_pylist() if v is not None and v == v))
        storage = Storage(Family.LABEL, str(kind), declared=True, levels=declared, ordered=kind.ordered)
        return Cells(storage, array.cast(kind.value_type))
    if pt.is_float16(kind):
        array = pa.array(array.to_numpy(zero_copy_only=False).astype(np.float64), from_pandas=True)
    if _is_string_view(kind):
        array = array.cast(pa.large_string())
    return Cells(_storage_of_arrow_type(kind), array)


def cells_of_pandas(series: Any, name: object = "") -> Cells:
    """View a pandas Series."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        levels = tuple(dtype.categories.tolist())
        codes = series.cat.codes.to_numpy()
        storage = Storage(
            Family.LABEL, "category", declared=True, levels=levels, closed=True, ordered=bool(dtype.ordered)
        )
        return Cells(storage, pa.array(codes, mask=codes < 0), levels)
    if isinstance(dtype, pd.DatetimeTZDtype):
        utc = series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        cells = cells_of_numpy(utc)
        storage = Storage(
            Family.DATETIME,
            str(dtype),
            low=cells.storage.low,
            high=cells.storage.high,
            resolution=cells.storage.resolution,
            timezone=_zone_name(dtype.tz),
        )
        return Cells(storage, cells.array)
    if isinstance(dtype, pd.SparseDtype | np.dtype):
        return cells_of_numpy(np.asarray(series), name)
    if isinstance(dtype, pd.StringDtype | pd.ArrowDtype) or is_numeric_dtype(dtype) or is_bool_dtype(dtype):
        return cells_of_arrow(pa.array(series.array, from_pandas=True))
    return _opaque(str(dtype), series.isna().to_numpy())  # periods, intervals, other libraries' dtypes


def cells_of_polars(series: Any) -> Cells:
    """View a polars Series."""
    dtype = series.dtype
    name = str(dtype)
    base = type(dtype).__name__
    if base == "Enum":
        levels = tuple(dtype.categories.to_list())
        storage = Storage(Family.LABEL, name, declared=True, levels=levels, closed=True, ordered=True)
        return Cells(storage, series.to_physical().to_arrow(), levels)
    if base == "Categorical":
        # As text: the codes are shared with other columns, so the dictionary says nothing about this one.
        array = cells_of_arrow(series.cast(_polars_type("String")).to_arrow()).array
        return Cells(Storage(Family.LABEL, name, declared=True), array)
    if base in ("Int128", "UInt128"):  # Arrow has no such type
        numbers = series.cast(_polars_type("Float64"))
        for exact in (series.cast(_polars_type(kind), strict=False) for kind in ("UInt64", "Int64")):
            numbers = exact if exact.null_count() == series.null_count() else numbers
        return Cells(Storage(Family.NUMBER, name, whole=True, resolution=1.0), numbers.to_arrow())
    if base in ("Object", "List", "Array", "Struct", "Binary", "Unknown"):
        return _opaque(name, series.is_null().to_numpy())
    return cells_of_arrow(series.to_arrow())


def cells_of_numpy(values: npt.NDArray[Any], name: object = "") -> Cells:
    """View a 1-D numpy array."""
    kind = values.dtype.kind
    if not values.dtype.isnative:  # as files of other machines are read; Arrow knows only its own order
        values = values.astype(values.dtype.newbyteorder("="))
    if kind == "c":
        raise InputError(
            f"Complex data not supported: column {name!r} holds complex numbers. "
            "Put the real and the imaginary part into two columns."
        )
    if kind == "O":
        return _cells_of_objects(values, name)
    if kind in "SV":
        return _opaque(str(values.dtype), np.zeros(len(values), dtype=bool))
    if kind in "UT":
        return _cells_of_objects(values.astype(object), name)
    if kind == "f" and values.dtype.itemsize not in (4, 8):
        storage = _float_storage(values.dtype)
        return Cells(storage, pa.array(values.astype(np.float64), from_pandas=True))
    if kind in "mM":
        values = _in_arrow_unit(values)
    return cells_of_arrow(pa.array(values, from_pandas=True))


def _in_arrow_unit(values: Any) -> Any:
    """Dates or durations of numpy in seconds if their unit is one that Arrow lacks: hours, days, months."""
    known = np.datetime_data(values.dtype)[0] in ("s", "ms", "us", "ns")
    return values if known else values.astype(f"{values.dtype.kind}8[s]")


def _cells_of_objects(values: npt.NDArray[Any], name: object) -> Cells:
    """View an array of Python objects, all of one sort, or none of a sort that can be modelled."""
    holes = pd.isna(values)
    if holes.all():
        return Cells(Storage(Family.NOTHING, "object"), pa.nulls(len(values)))
    observed = values[~holes]
    sort = infer_dtype(observed, skipna=False)
    if sort == "string":
        codes, levels = pd.factorize(values)
        return Cells(Storage(Family.LABEL, "object"), pa.array(codes, mask=codes < 0), tuple(levels.tolist()))
    if sort == "integer":
        return _cells_of_integers([int(value) for value in observed], holes, name)
    if sort in ("floating", "mixed-integer-float"):
        numbers = np.full(len(values), np.nan)
        numbers[~holes] = observed.astype(np.float64)
        return Cells(Storage(Family.NUMBER, "object"), pa.array(numbers, from_pandas=True))
    if sort in ("datetime64", "timedelta64"):
        moments = np.full(len(values), "NaT", dtype=f"{sort}[us]")
        moments[~holes] = observed.astype(moments.dtype)
        return cells_of_numpy(moments)
    if sort in ("boolean", "decimal", "date", "datetime", "timedelta", "time"):
        if sort == "date" and any(isinstance(value, datetime) for value in observed):
            raise _mixed(observed, name)
        if sort == "datetime" and len({value.tzinfo is None for value in observed}) > 1:
            raise InputError(
                f"The dates of a column must all have a time zone, or none; column {name!r} mixes them. "
                "Convert it, for example with pandas.to_datetime(utc=True)."
            )
        clean = values.copy()
        clean[holes] = None
        clean[~holes] = [_for_arrow(value) for value in observed]
        try:
            cells = cells_of_arrow(pa.array(clean))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            raise _mixed(observed, name) from None
        # Objects have no dtype whose limits Arrow could know.
        return replace(cells, storage=replace(cells.storage, dtype="object", low=-math.inf, high=math.inf))
    if sort in ("bytes", "interval", "period") or not any(_is_plain(type(value)) for value in observed):
        return _opaque("object", holes)  # nothing among them to compute with: lists, dicts, UUIDs
    raise _mixed(observed, name)


def _cells_of_integers(observed: list[int], holes: Booleans, name: object) -> Cells:
    """View the Python integers of a column, all signed or all unsigned ones of 64 bits."""
    for limits in (np.iinfo(np.int64), np.iinfo(np.uint64)):
        if limits.min <= min(observed) and max(observed) <= limits.max:
            exact = np.zeros(len(holes), dtype=limits.dtype)
            exact[~holes] = observed
            storage = replace(_storage_of_arrow_type(pa.from_numpy_dtype(limits.dtype)), dtype="object")
            return Cells(storage, pa.array(exact, mask=holes))
    raise InputError(
        f"Whole numbers must fit into 64 bits; those of column {name!r} do not. "
        "Convert the column, for example with astype(float)."
    )


def _for_arrow(value: Any) -> Any:
    """Timestamps and Timedeltas as datetimes and timedeltas: older pyarrow mistakes their unit."""
    if isinstance(value, np.timedelta64):
        return _in_arrow_unit(value)
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    return value.to_pytimedelta() if isinstance(value, pd.Timedelta) else value


def _mixed(observed: npt.NDArray[Any], name: object) -> InputError:
    """The error for a column whose cells are not all of one sort."""
    examples = {type(value): value for value in reversed(observed.tolist())}
    shown = ", ".join(f"{value!r} ({sort.__name__})" for sort, value in sorted(examples.items(), key=str))
    strangers = [sort for sort in examples if not _is_plain(sort)]
    if complex in examples or np.complex128 in examples:
        return InputError(f"Complex data not supported: column {name!r} holds {shown}.")
    if strangers:
        return InputTypeError(
            "Each cell handed over as an argument must be a string or a real number, a boolean, a date or "
            f"missing; column {name!r} holds {shown}. Convert or leave out that column."
        )
    return InputError(
        f"The cells of a column must be of one type; column {name!r} mixes {shown}. "
        "Convert it to one type, for example with astype('string') or pandas.to_numeric(errors='coerce')."
    )


def _is_plain(sort: type) -> bool:
    """Whether cells of a type mean something by themselves: text, a number, a date."""
    return issubclass(sort, (str, bytes, Number, np.generic, Decimal, date, time, timedelta))


def _opaque(dtype: str, holes: Booleans) -> Cells:
    """A column of which only the holes matter."""
    return Cells(Storage(Family.OTHER, dtype), pa.array(np.zeros(len(holes), dtype=bool), mask=holes))


def _float_storage(dtype: np.dtype[Any]) -> Storage:
    limit = np.finfo(dtype)
    narrow = str(dtype) if dtype.itemsize < 8 else None
    low, high = (float(limit.min), float(limit.max)) if narrow else (-math.inf, math.inf)
    return Storage(Family.NUMBER, str(dtype), low=low, high=high, precision=narrow)


def _storage_of_arrow_type(kind: Any) -> Storage:
    name = str(kind)
    if pt.is_boolean(kind):
        return Storage(Family.BOOLEAN, name)
    if pt.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return Storage(Family.NUMBER, name, True, limits.min, limits.max, 1.0)
    if pt.is_floating(kind):
        return _float_storage(np.dtype(kind.to_pandas_dtype()))
    if pt.is_decimal(kind):
        limit, step = 10 ** (kind.precision - kind.scale), 10**-kind.scale  # integers if it has no decimals
        return Storage(
            Family.NUMBER, name, kind.scale <= 0, step - limit, limit - step, step, decimals=kind.scale
        )
    if pt.is_string(kind) or pt.is_large_string(kind) or _is_string_view(kind):
        return Storage(Family.LABEL, name)
    if pt.is_date(kind):
        return Storage(Family.DATETIME, name, resolution=DAY)
    if pt.is_timestamp(kind) or pt.is_duration(kind):
        family = Family.DATETIME if pt.is_timestamp(kind) else Family.DURATION
        high = LONGEST / 1000 if kind.unit == "ns" else LONGEST
        zone = _zone_name(kind.tz) if pt.is_timestamp(kind) and kind.tz else None
        return Storage(family, name, low=-high, high=high, resolution=_step(kind.unit), timezone=zone)
    if pt.is_time(kind):
        step = _step(kind.unit)
        return Storage(Family.TIME, name, low=0.0, high=DAY - step, resolution=step)
    if pt.is_null(kind):
        return Storage(Family.NOTHING, name)
    return Storage(Family.OTHER, name)


def _step(unit: str) -> float:
    """Microseconds in an Arrow time unit; nanoseconds are handled to the microsecond."""
    return {"s": SECOND, "ms": 1000.0, "us": 1.0, "ns": 1.0}[unit]


def _is_string_view(kind: Any) -> bool:
    return hasattr(pt, "is_string_view") and bool(pt.is_string_view(kind))  # pyarrow >= 16


def _is_label_type(kind: Any) -> bool:
    return _storage_of_arrow_type(kind).family not in (Family.OTHER, Family.NOTHING)


def _polars_type(name: str) -> Any:
    """A polars dtype by name; polars is optional, and the user who brings a Series has it."""
    import polars

    return getattr(polars, name)


def _zone_name(zone: Any) -> str:
    """A name that pandas reads back; UTC for exotic zones, which then count their days in UTC."""
    try:
        pd.Timestamp(0, tz=str(zone))
    except Exception:  # noqa: BLE001  - each time-zone library has its own error
        return "UTC"
    return str(zone)

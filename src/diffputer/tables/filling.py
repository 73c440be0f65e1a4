"""Writing values into the holes of one native column, which keeps its dtype and its observed cells.

The values come as one numpy array per column, in row order of the holes: numbers, booleans,
``datetime64`` (in UTC for time-zone-aware columns), ``timedelta64``, or objects (levels, times of day).
A column in which every cell is missing and whose dtype cannot hold the values (such as the float64 that
pandas reads for an empty text column) takes the natural dtype of the values instead.
"""

from __future__ import annotations

import datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.types as pt

from diffputer.tables.cells import Booleans, Family, Storage

Values = npt.NDArray[Any]


def fits(storage: Storage, values: Values) -> bool:
    """Whether a column of this storage can hold these values."""
    kind = values.dtype.kind
    if storage.family == Family.NOTHING:
        return storage.dtype == "object"
    if storage.closed:
        return set(values.tolist()) <= set(storage.levels or ())
    if storage.declared:
        return True
    if kind == "O":
        wanted = {Family.LABEL: str, Family.TIME: datetime.time}.get(storage.family)
        return wanted is not None and all(isinstance(value, wanted) for value in values.tolist())
    families = {"f": Family.NUMBER, "i": Family.NUMBER, "u": Family.NUMBER, "b": Family.BOOLEAN}
    return storage.family == {**families, "M": Family.DATETIME, "m": Family.DURATION}.get(kind)


def fill_pandas(series: Any, holes: Booleans, values: Values, storage: Storage) -> Any:
    """Return a new pandas Series with the holes filled."""
    dtype = series.dtype
    if not fits(storage, values):
        natural = values.tolist() if values.dtype.kind == "O" else values
        return pd.Series(natural, index=series.index, name=series.name)
    if isinstance(dtype, pd.ArrowDtype):
        chunks = pa.chunked_array([pa.array(series.array)])
        filled: Any = pd.arrays.ArrowExtensionArray(fill_arrow(chunks, holes, values, storage))
    elif isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy(copy=True)
        codes[holes] = dtype.categories.get_indexer(pd.Index(values, dtype=dtype.categories.dtype))
        filled = pd.Categorical.from_codes(codes, dtype=dtype)
    elif isinstance(dtype, pd.DatetimeTZDtype):
        filled = series.array.copy()
        filled[holes] = pd.DatetimeIndex(values).as_unit(dtype.unit).tz_localize("UTC").tz_convert(dtype.tz)
    elif isinstance(dtype, pd.SparseDtype):
        dense = np.array(series, dtype=dtype.subtype)
        dense[holes] = values
        filled = pd.arrays.SparseArray(dense, dtype=dtype)
    elif isinstance(dtype, np.dtype):
        filled = fill_numpy(series.to_numpy(), holes, values)
    else:
        filled = series.array.copy()
        filled[holes] = pd.array(values, dtype=dtype)
    return pd.Series(filled, index=series.index, name=series.name, dtype=dtype)


def fill_polars(series: Any, holes: Booleans, values: Values, storage: Storage) -> Any:
    """Return a new polars Series with the holes filled."""
    import polars as pl

    dtype = series.dtype
    if not fits(storage, values):
        return pl.Series(series.name, values.tolist() if values.dtype.kind == "O" else values)
    base = series
    if storage.family == Family.LABEL:
        # As text on the way: categoricals of different origin cannot be joined in older polars.
        base = series.cast(pl.String)
        new = pl.Series(values.tolist(), dtype=pl.String)
    elif storage.family == Family.TIME:
        new = pl.Series(values.tolist(), dtype=pl.Time)
    elif storage.decimals is not None:
        new = pl.Series(_decimals(values, storage.decimals), dtype=dtype)
    elif storage.timezone is not None:
        new = pl.Series(values).dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone).cast(dtype)
    else:
        new = pl.Series(values).cast(dtype)
    return pl.concat([base, new.alias(series.name)]).gather(_positions(holes)).cast(dtype)


def fill_arrow(column: Any, holes: Booleans, values: Values, storage: Storage) -> Any:
    """Return a new pyarrow ChunkedArray with the holes filled."""
    kind = column.type
    if not fits(storage, values):
        return pa.chunked_array([pa.array(values)])
    if pt.is_dictionary(kind):
        return pa.chunked_array([_fill_dictionary(column, holes, values)], type=kind)
    if pt.is_decimal(kind):
        new = pa.array(_decimals(values, kind.scale), type=kind)
    elif pt.is_floating(kind):
        new = pa.array(values.astype(kind.to_pandas_dtype()), type=kind)
    elif pt.is_date(kind):
        new = pa.array(values.astype("datetime64[D]")).cast(kind)
    elif pt.is_timestamp(kind) or pt.is_duration(kind):
        plain = pa.timestamp(kind.unit) if pt.is_timestamp(kind) else kind
        new = pa.array(values).cast(plain).cast(pa.int64()).cast(kind)
    elif pt.is_string(kind) or pt.is_large_string(kind) or storage.family != Family.LABEL:
        new = pa.array(values, type=kind)
    else:  # string views can be neither joined nor taken from in every pyarrow
        column, new = column.cast(pa.large_string()), pa.array(values, type=pa.large_string())
    joined = pa.chunked_array([*column.chunks, new], type=column.type)
    return joined.take(pa.array(_positions(holes))).cast(kind)


def fill_numpy(column: Values, holes: Booleans, values: Values) -> Values:
    """Return a copy of a 1-D array with the holes filled; objects get the type of their neighbours."""
    filled = column.copy()
    if column.dtype.kind == "O":
        observed = column[~holes]
        filled[holes] = _objects(values, observed)
    else:
        filled[holes] = values.astype(column.dtype)
    return filled


def _objects(values: Values, observed: Values) -> Values:
    """Values as Python objects of the sort that the observed cells are."""
    example = observed[0] if len(observed) else None
    objects = np.empty(len(values), dtype=object)
    if isinstance(example, Decimal):
        digits = max(-int(value.as_tuple().exponent) for value in observed)
        objects[:] = _decimals(values, digits)
    elif values.dtype.kind == "M":
        if isinstance(example, np.datetime64):
            objects[:] = list(values.astype(example.dtype))
        elif isinstance(example, datetime.datetime) or example is None:
            stamps = pd.DatetimeIndex(values)
            if example is not None and example.tzinfo is not None:
                stamps = stamps.tz_localize("UTC").tz_convert(example.tzinfo)
            objects[:] = list(stamps) if not _is_plain(example) else list(stamps.to_pydatetime())
        else:
            objects[:] = values.astype("datetime64[D]").tolist()
    elif values.dtype.kind == "m":
        if isinstance(example, np.timedelta64):
            objects[:] = list(values.astype(example.dtype))
        else:
            spans = pd.TimedeltaIndex(values)
            objects[:] = list(spans.to_pytimedelta()) if _is_plain(example) else list(spans)
    else:
        objects[:] = values.tolist()
        if isinstance(example, np.generic):
            typed = values.astype(type(example))
            if isinstance(example, np.floating) or np.array_equal(typed, values):  # else it would round
                objects[:] = list(typed)
    return objects


def _is_plain(example: Any) -> bool:
    return type(example) in (datetime.datetime, datetime.timedelta)


def _decimals(values: Values, digits: int) -> list[Decimal]:
    step = Decimal(1).scaleb(-digits)
    exact = Context(prec=100)  # the default of 28 digits is less than Arrow's decimals have
    return [Decimal(repr(value)).quantize(step, context=exact) for value in values.tolist()]


def _positions(holes: Booleans) -> npt.NDArray[np.int64]:
    """Where each row comes from, when the new values are appended to the column, [n_rows]."""
    positions = np.arange(len(holes))
    positions[holes] = len(holes) + np.arange(int(holes.sum()))
    return positions


def _fill_dictionary(column: Any, holes: Booleans, values: Values) -> Any:
    """Fill a dictionary array; a level that its dictionary lacks is appended."""
    kind = column.type
    unified = column.unify_dictionaries()
    array = pa.concat_arrays(unified.chunks) if unified.num_chunks else pa.array([], type=kind)
    levels = array.dictionary.to_pylist()
    place = {level: position for position, level in reversed(list(enumerate(levels)))}
    for value in values.tolist():
        if value not in place:
            place[value] = len(levels)
            levels.append(value)
    codes = np.array(array.indices.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    codes[holes] = [place[value] for value in values.tolist()]
    indices = pa.array(codes, type=pa.int64()).cast(kind.index_type)
    dictionary = pa.array(levels, type=kind.value_type)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=kind.ordered)

"""Writing values into the holes of one native column, which keeps its dtype and its observed cells.

The values come as one numpy array per column, in row order of the holes: numbers, booleans,
``datetime64`` (in UTC for time-zone-aware columns), ``timedelta64``, or objects (levels, times of day).
A column in which every cell is missing may be made anew, in the type that it had at fit
(:func:`new_column`). Without a fitted type, one whose dtype cannot hold the values takes their natural
dtype instead. Categories that a dtype lacks are added as ``storage.levels`` has them.
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
from diffputer.tables.columntypes import ColumnType, categories_index, cell_type

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
        dtype = filled.dtype
    elif isinstance(dtype, pd.CategoricalDtype):
        if not set(values.tolist()) <= set(dtype.categories):
            levels = categories_index(list(storage.levels or ()), dtype.categories.dtype)
            series = series.cat.set_categories(levels)
            dtype = series.dtype
        codes = series.cat.codes.to_numpy(copy=True)
        codes[holes] = dtype.categories.get_indexer(categories_index(values.tolist(), dtype.categories.dtype))
        filled = pd.Categorical.from_codes(codes, dtype=dtype)
    elif isinstance(dtype, pd.DatetimeTZDtype):
        filled = series.array.copy()
        filled[holes] = pd.DatetimeIndex(values).as_unit(dtype.unit).tz_localize("UTC").tz_convert(dtype.tz)
    elif isinstance(dtype, pd.SparseDtype):
        dense = np.array(series, dtype=dtype.subtype)
        dense[holes] = values
        filled = pd.arrays.SparseArray(dense, dtype=dtype)
    elif isinstance(dtype, np.dtype):
        filled = fill_numpy(series.to_numpy(), holes, values, storage)
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
        return pa.chunked_array([_fill_dictionary(column, holes, values, storage)])
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


def new_column(kind: ColumnType, container: str, values: Values, storage: Storage) -> Any:
    """Return a column of the type that it had at fit, in the container of a table.

    Parameters
    ----------
    kind
        The type.
    container
        Library of the table; if it is not that of the fit, the type is the one there that holds the same.
    values
        One for each row.
    storage
        ``kind.storage(container)``.

    Returns
    -------
    pandas.Series, polars.Series, pyarrow.ChunkedArray or numpy.ndarray of objects
    """
    library, holes = kind.home(container), np.ones(len(values), dtype=bool)
    blank = kind.blank(len(values), library)
    if library == "polars":
        return fill_polars(blank, holes, values, storage)
    if library == "pandas":
        if blank.dtype == object:
            column = pd.Series(_objects(values, kind.cells, kind.decimals, kind.zone), dtype=object)
        else:
            column = fill_pandas(blank, holes, values, storage)
        return column if container == "pandas" else _objects_of(column)
    column = fill_arrow(blank, holes, values, storage)
    if container == "pyarrow":
        return column
    return _from_arrow_to_polars(column) if container == "polars" else _objects_of(column, container)


def _objects_of(column: Any, container: str = "numpy") -> Any:
    """A column as pandas has it, or as an array of Python objects."""
    if container == "pandas":
        return column.to_pandas()
    objects = np.empty(len(column), dtype=object)
    objects[:] = column.to_pylist() if isinstance(column, pa.ChunkedArray) else column.tolist()
    return objects


def _from_arrow_to_polars(column: Any) -> Any:
    import polars as pl

    kind = column.type
    if pt.is_dictionary(kind) and not pt.is_string(kind.value_type):  # which polars does not know
        column = column.cast(kind.value_type)
    elif pt.is_decimal256(kind):
        column = column.cast(pa.decimal128(38, kind.scale))
    elif pt.is_float16(kind):
        column = pa.array(column.to_numpy().astype(np.float32))  # pyarrow 15 has no cast of these
    elif pt.is_timestamp(kind) and ":" in (kind.tz or ""):
        column = column.cast(pa.timestamp(kind.unit, "UTC"))  # it knows no plain offsets
    return pl.Series(pl.from_arrow(column))


def fill_numpy(column: Values, holes: Booleans, values: Values, storage: Storage | None = None) -> Values:
    """Return a copy of a 1-D array with the holes filled; objects get the type of their neighbours."""
    filled = column.copy()
    if column.dtype.kind == "O":
        observed = column[~holes]
        example = observed[0] if len(observed) else None
        digits = None if storage is None else storage.decimals
        zone = example.tzinfo if isinstance(example, datetime.datetime) else None
        filled[holes] = _objects(values, cell_type(example), digits, zone)
    else:
        filled[holes] = values.astype(column.dtype)
    return filled


def _objects(values: Values, sort: str, digits: int | None, zone: Any) -> Values:
    """Values as Python objects of the type that ``cell_type`` names."""
    objects = np.empty(len(values), dtype=object)
    if sort == "Decimal" and values.dtype.kind in "iuf":
        objects[:] = _decimals(values, digits or 0)
    elif values.dtype.kind == "M":
        if sort.startswith("numpy."):
            objects[:] = list(values.astype(sort.removeprefix("numpy.")))
        elif sort == "date":
            objects[:] = values.astype("datetime64[D]").tolist()
        else:
            stamps = pd.DatetimeIndex(values)
            if zone is not None:
                stamps = stamps.tz_localize("UTC").tz_convert(zone)
            objects[:] = list(stamps.to_pydatetime()) if sort == "datetime" else list(stamps)
    elif values.dtype.kind == "m":
        if sort.startswith("numpy."):
            objects[:] = list(values.astype(sort.removeprefix("numpy.")))
        else:
            spans = pd.TimedeltaIndex(values)
            objects[:] = list(spans.to_pytimedelta()) if sort == "timedelta" else list(spans)
    else:
        objects[:] = values.astype(np.float64).tolist() if sort == "float" else values.tolist()
        if sort.startswith("numpy."):
            typed = values.astype(sort.removeprefix("numpy."))
            if typed.dtype.kind == "f" or np.array_equal(typed, values):  # else it would round
                objects[:] = list(typed)
    return objects


def _decimals(values: Values, digits: int) -> list[Decimal]:
    step = Decimal(1).scaleb(-digits)
    exact = Context(prec=100)  # the default of 28 digits is less than Arrow's decimals have
    return [Decimal(repr(value)).quantize(step, context=exact) for value in values.tolist()]


def _positions(holes: Booleans) -> npt.NDArray[np.int64]:
    """Where each row comes from, when the new values are appended to the column, [n_rows]."""
    positions = np.arange(len(holes))
    positions[holes] = len(holes) + np.arange(int(holes.sum()))
    return positions


def _fill_dictionary(column: Any, holes: Booleans, values: Values, storage: Storage) -> Any:
    """Fill a dictionary array; a level that its dictionary lacks is appended.

    An ordered dictionary becomes ``storage.levels`` then, which has the level in its place.
    """
    kind = column.type
    unified = column.unify_dictionaries()
    array = pa.concat_arrays(unified.chunks) if unified.num_chunks else pa.array([], type=kind)
    levels = array.dictionary.to_pylist()
    codes = np.array(array.indices.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    if lacking := set(values.tolist()) - set(levels):
        known = list(storage.levels or ())
        if kind.ordered and lacking <= set(known):
            new_codes = {level: code for code, level in reversed(list(enumerate(known)))}
            codes = np.array([new_codes.get(level, 0) for level in levels] or [0])[codes]
            levels = known
        else:
            levels += dict.fromkeys(level for level in (*known, *values.tolist()) if level not in levels)
    place = {level: position for position, level in reversed(list(enumerate(levels)))}
    codes[holes] = [place[value] for value in values.tolist()]
    index = kind.index_type
    if len(levels) - 1 > np.iinfo(index.to_pandas_dtype()).max:  # more categories than it can count
        index = pa.int32()
    dictionary = pa.array(levels, type=kind.value_type)
    return pa.DictionaryArray.from_arrays(pa.array(codes).cast(index), dictionary, ordered=kind.ordered)

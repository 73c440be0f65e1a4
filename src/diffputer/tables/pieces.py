"""Parts of a table in its own container: some rows, some columns, or all of it with some cells hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals.dependencies as native
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from diffputer.errors import InputError

Positions = Sequence[int] | NDArray[np.integer[Any]]


def take_rows(table: Any, rows: Positions) -> Any:
    """Give some rows of a table, by position.

    Examples
    --------
    >>> take_rows(pd.DataFrame({"a": [1, 2, 3]}), [2, 0])["a"].tolist()
    [3, 1]
    """
    places = np.asarray(rows, dtype=np.int64)
    if native.is_pandas_dataframe(table):
        return table.iloc[places]
    if native.is_polars_dataframe(table):
        return table[places.tolist()] if len(places) else table.head(0)
    if native.is_pyarrow_table(table):
        return table.take(places)
    return np.asarray(table)[places]


def take_columns(table: Any, columns: Positions) -> Any:
    """Give some columns of a table, by position.

    Examples
    --------
    >>> take_columns(np.array([[1.0, 2.0, 3.0]]), [2, 0])
    array([[3., 1.]])
    """
    places = [int(column) for column in columns]
    if native.is_pandas_dataframe(table):
        return table.iloc[:, places]
    if native.is_polars_dataframe(table):
        return table.select([table.columns[place] for place in places])
    if native.is_pyarrow_table(table):
        return table.select(places)
    return np.asarray(table)[:, places]


def hide_cells(table: Any, hidden: Any) -> Any:
    """Give a copy of a table in which some more cells are missing.

    Dtypes that know no missing value change to their neighbours that do: integers of pandas and numpy to
    floating point (beyond 2**53, which that cannot tell apart, to ``Int64`` or to objects), booleans to
    pandas' ``boolean`` or to objects.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        It is not changed.
    hidden : array of bool, shape (n_rows, n_columns)
        True where a cell shall be missing.

    Returns
    -------
    table
        Of the same container.

    Examples
    --------
    >>> hide_cells(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), [[True, False], [False, True]])
         a    b
    0  NaN    x
    1  2.0  NaN
    """
    mask = np.asarray(hidden, dtype=bool)
    shape = tuple(getattr(table, "shape", np.shape(table)))
    if mask.shape != shape:
        raise InputError(
            f"Cells to hide are named by an array of the table's shape {shape}, however: this one has the "
            f"shape {mask.shape}."
        )
    columns = np.flatnonzero(mask.any(axis=0)).tolist()
    if native.is_pandas_dataframe(table):
        frame = table.copy()
        for column in columns:
            series = table.iloc[:, column]
            if series.dtype == bool:
                series = series.astype("boolean")
            elif series.dtype.kind in "iu" and not _exact_as_float(series.to_numpy()):
                series = series.astype("UInt64" if series.dtype.kind == "u" else "Int64")
            frame.isetitem(column, series.mask(mask[:, column]))
        return frame
    if native.is_polars_dataframe(table):
        return table.with_columns([_hide_polars(table.to_series(k), mask[:, k]) for k in columns])
    if native.is_pyarrow_table(table):
        import pyarrow as pa

        for column in columns:
            places = pa.array(np.arange(len(mask)), mask=mask[:, column])  # a null place gives a null cell
            table = table.set_column(column, table.field(column), table.column(column).take(places))
        return table
    array = np.array(table)
    if array.dtype.kind in "iu" and _exact_as_float(array):
        array = array.astype(np.float64)
    elif array.dtype.kind not in "fmM":
        array = array.astype(object)
    array[mask] = None if array.dtype == object else "NaT" if array.dtype.kind in "mM" else np.nan
    return array


def _exact_as_float(integers: NDArray[Any]) -> bool:
    return not len(integers) or bool(integers.max() <= 2**53 and integers.min() >= -(2**53))


def _hide_polars(series: Any, hidden: NDArray[np.bool_]) -> Any:
    import polars as pl

    return series.zip_with(pl.Series(~hidden), pl.Series(series.name, [None], dtype=series.dtype))


def with_distinct_names(table: Any) -> Any:
    """Give a table whose columns have different names: the second ``x`` becomes ``x (2)``.

    Other tables come back as they are.

    Examples
    --------
    >>> with_distinct_names(pd.DataFrame([[1, 2, 3]], columns=["x", "x", "y"])).columns.tolist()
    ['x', 'x (2)', 'y']
    """
    if native.is_pandas_dataframe(table):
        names = table.columns.tolist()
    elif native.is_pyarrow_table(table):
        names = list(table.column_names)
    else:
        return table
    if pd.Index(names, tupleize_cols=False).is_unique:
        return table
    distinct: list[Any] = []
    for name in names:
        new, count = name, 1
        while new in distinct or (count > 1 and new in names):
            count += 1
            new = f"{name} ({count})"
        distinct.append(new)
    if native.is_pandas_dataframe(table):
        return table.set_axis(pd.Index(distinct, tupleize_cols=False), axis=1)
    return table.rename_columns(distinct)

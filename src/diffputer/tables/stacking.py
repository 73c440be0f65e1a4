"""Tables of one container below each other, with the number of the table and of the row in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from diffputer.errors import InputError
from diffputer.tables.frames import Container

#: What the long format of mice calls the number of the draw and of the row.
DRAW, ROW = ".imp", ".id"


def stack_tables(tables: Sequence[Any], container: Container, first: int = 1) -> Any:
    """Put tables with the same columns below each other.

    Parameters
    ----------
    tables
        At least one, all of the container.
    container
        Arrays become a pandas frame, as columns of different types stand side by side.
    first
        The number of the first table.

    Returns
    -------
    pandas.DataFrame, polars.DataFrame or pyarrow.Table
        With columns ``.imp`` and ``.id`` (1 to n) first. A pandas index is repeated.

    Examples
    --------
    >>> stack_tables([pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 3]})], "pandas")
       .imp  .id  a
    0     1    1  1
    1     1    2  2
    0     2    1  1
    1     2    2  3
    """
    m, n = len(tables), len(tables[0])
    keys = {DRAW: np.repeat(np.arange(first, first + m), n), ROW: np.tile(np.arange(1, n + 1), m)}
    if container == "polars":
        return _stack_polars(tables, keys)
    if container == "pyarrow":
        return _stack_arrow(tables, keys)
    if container == "numpy":
        tables = [pd.DataFrame(table).infer_objects() for table in tables]
    frame = _stack_pandas(tables)
    for position, (key, numbers) in enumerate(keys.items()):
        levels = frame.columns.nlevels
        name: Any = key if levels == 1 else (key, *[""] * (levels - 1))
        frame.insert(position, name, numbers)
    return frame


def check_names(names: Sequence[Any]) -> None:
    """Refuse a table that has a column of a name that the long format needs."""
    for reserved in (DRAW, ROW):
        if reserved in names:
            raise InputError(
                f"The long format adds a column {reserved!r}, however: the table has one already. Rename it."
            )


def _stack_pandas(tables: Sequence[Any]) -> pd.DataFrame:
    last = tables[-1]
    columns = []
    for position in range(last.shape[1]):
        parts = [table.iloc[:, position] for table in tables]
        if len({part.dtype for part in parts}) == 1:
            columns.append(pd.concat(parts))
        else:  # a column without any value has got the dtype of its filled values
            columns.append(pd.concat([part.astype(object) for part in parts]).convert_dtypes())
    frame = pd.concat([column.reset_index(drop=True) for column in columns], axis=1)
    frame.columns = last.columns
    frame.index = tables[0].index.append([table.index for table in tables[1:]])
    return frame


def _stack_polars(tables: Sequence[Any], keys: dict[str, Any]) -> Any:
    import polars as pl

    target = tables[-1].schema
    # As text on the way: categoricals of different origin cannot be joined in older polars.
    meanwhile = {name: pl.String if dtype == pl.Categorical else dtype for name, dtype in target.items()}
    frame = pl.concat([table.cast(meanwhile) for table in tables]).cast(dict(target))
    return frame.select([*(pl.Series(key, numbers) for key, numbers in keys.items()), pl.all()])


def _stack_arrow(tables: Sequence[Any], keys: dict[str, Any]) -> Any:
    types = [field.type for field in tables[-1].schema]
    bare = [table.replace_schema_metadata(None) for table in tables]  # pandas' would describe other rows
    fitting = []
    for table in bare:
        for position, wanted in enumerate(types):
            if table.field(position).type != wanted:  # a column without any value
                field = table.field(position).with_type(wanted)
                table = table.set_column(position, field, pa.nulls(len(table), wanted))
        fitting.append(table)
    stacked = pa.concat_tables(fitting).unify_dictionaries()
    for position, (key, numbers) in enumerate(keys.items()):
        stacked = stacked.add_column(position, key, pa.array(numbers, pa.int64()))
    return stacked

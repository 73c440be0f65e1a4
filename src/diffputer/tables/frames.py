"""Tables in, tables out: pandas, polars, pyarrow and numpy behind one small view.

:func:`read_table` looks at a table without changing it; :meth:`Table.with_filled` gives a new table of the
same container with the holes filled and everything else as it was: dtypes, column order, index, category
levels, attributes and every observed cell.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import narwhals.dependencies as native
import numpy as np
import pandas as pd

from diffputer.errors import InputError
from diffputer.tables.cells import (
    Booleans,
    Cells,
    Family,
    cells_of_arrow,
    cells_of_numpy,
    cells_of_pandas,
    cells_of_polars,
)
from diffputer.tables.columntypes import ColumnType, find_type
from diffputer.tables.filling import (
    Values,
    fill_arrow,
    fill_numpy,
    fill_pandas,
    fill_polars,
    fits,
    new_column,
)

LARGEST = 1e300  # double precision ends at 1.8e308, and differences, sums and multiples must not

Container = Literal["pandas", "polars", "pyarrow", "numpy"]


@dataclass(frozen=True)
class Table:
    """A table that :func:`read_table` has looked at.

    Attributes
    ----------
    native
        The object itself, never changed.
    container
        Which library it belongs to.
    names
        The original column labels; positions for arrays.
    missing
        Where cells are missing, [n_rows, n_columns].
    cells
        The columns, to be read.
    """

    native: Any
    container: Container
    names: tuple[Hashable, ...]
    missing: Booleans
    cells: Sequence[Cells]

    @property
    def n_rows(self) -> int:
        """How many rows the table has."""
        return int(self.missing.shape[0])

    @property
    def n_columns(self) -> int:
        """How many columns the table has."""
        return len(self.names)

    def with_filled(self, filled: Mapping[int, Values]) -> Any:
        """Return a copy of the table with holes filled.

        Parameters
        ----------
        filled
            Column position -> values for the missing cells of that column, in row order. Dates are
            ``datetime64`` (UTC where the column has a time zone). Columns that are left out keep their holes.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame, pyarrow.Table or numpy.ndarray
            The same container as ``native``.

        Examples
        --------
        >>> import pandas as pd
        >>> table = read_table(pd.DataFrame({"n": pd.array([1, None, 3], dtype="Int8")}))
        >>> table.with_filled({0: np.array([2])})
           n
        0  1
        1  2
        2  3
        """
        filled = {column: values for column, values in filled.items() if self.missing[:, column].any()}
        for column, values in filled.items():
            self._check(column, values)
        if self.container == "pandas":
            frame = _own_labels(
                self.native.copy(deep=False), self.native
            )  # every column is replaced: no table is held twice
            for column in range(self.n_columns):
                series = self.native.iloc[:, column]
                if column in filled:
                    frame.isetitem(column, self._filled(series, column, filled[column]))
                else:
                    frame.isetitem(column, series.copy())
            return frame
        if self.container == "polars":
            return self.native.with_columns(
                [
                    self._filled(self.native.to_series(column), column, values)
                    for column, values in filled.items()
                ]
            )
        if self.container == "pyarrow":
            arrow = self.native
            for column, values in filled.items():
                new = self._filled(arrow.column(column), column, values)
                arrow = arrow.set_column(column, arrow.field(column).with_type(new.type), new)
            return arrow
        array = self.native.copy()
        for column, values in filled.items():
            array[:, column] = self._filled(self.native[:, column], column, values)
        return array

    def _filled(self, old: Any, column: int, values: Values) -> Any:
        """One column with its holes filled, in the type that it had at fit if it holds nothing itself."""
        storage, kind = self.cells[column].storage, self.cells[column].fitted
        if kind is None:
            fill = {"pandas": fill_pandas, "polars": fill_polars, "pyarrow": fill_arrow, "numpy": fill_numpy}
            return fill[self.container](old, self.missing[:, column], values, storage)
        new = new_column(kind, self.container, values, storage)
        if self.container == "pandas":
            return new.set_axis(old.index).rename(old.name)
        return new.alias(old.name) if self.container == "polars" else new

    def column_type(self, column: int, cells: Cells) -> ColumnType | None:
        """The type of a column, None where it holds nothing that can be modelled."""
        if self.container == "pandas":
            native = self.native.iloc[:, column]
        elif self.container == "polars":
            native = self.native.to_series(column)
        else:
            native = self.native[:, column] if self.container == "numpy" else self.native.column(column)
        return find_type(native, self.container, cells)

    def _check(self, column: int, values: Values) -> None:
        """Refuse values that the column cannot hold, unless it holds nothing yet and may change its dtype."""
        holes = self.missing[:, column]
        if len(values) != holes.sum():
            raise InputError(
                f"Each missing cell needs one value; column {self.names[column]!r} has {holes.sum()} missing "
                f"cells and was given {len(values)} values."
            )
        storage = self.cells[column].storage
        if not fits(storage, values) and (not holes.all() or self.container == "numpy"):
            example = values[:1].tolist()
            raise InputError(
                f"Filled values must suit their column; column {self.names[column]!r} holds {storage.family} "
                f"(dtype {storage.dtype}) and was given {example}. Convert the column to that type first."
            )


def read_table(x: Any) -> Table:
    """Look at a table: its columns and its holes.

    Missing are NaN, None, ``pandas.NA``, NaT and null, in every container.

    Parameters
    ----------
    x
        A pandas or polars DataFrame, a pyarrow Table, a 2-D numpy array (numbers or objects), or what
        ``numpy.asarray`` makes one of.

    Returns
    -------
    Table
        The view; ``x`` is not changed.

    Examples
    --------
    >>> import pandas as pd
    >>> table = read_table(pd.DataFrame({"a": [1.0, None], "b": ["x", "y"]}))
    >>> table.names, table.n_rows, table.container
    (('a', 'b'), 2, 'pandas')
    >>> table.missing.tolist()
    [[False, False], [True, False]]
    """
    if native.is_polars_lazyframe(x):
        raise InputError("A table must be in memory; this is a polars LazyFrame. Call .collect() first.")
    if native.is_pandas_series(x) or native.is_polars_series(x):
        raise InputError("A table must have columns; this is a single Series. Call .to_frame() first.")
    names: tuple[Hashable, ...]
    container: Container
    if native.is_pandas_dataframe(x):
        names, container = tuple(x.columns.tolist()), "pandas"
    elif native.is_polars_dataframe(x):
        names, container = tuple(x.columns), "polars"
    elif native.is_pyarrow_table(x):
        names, container = tuple(x.column_names), "pyarrow"
    else:
        x = _as_array(x)
        names, container = tuple(range(x.shape[1])), "numpy"
    _check_labels(names, len(x))
    cells: Sequence[Cells]
    if container == "numpy" and x.dtype.kind in "biuf" and not x.flags.f_contiguous:
        cells = _ColumnsOfArray(x)
    else:
        cells = tuple(_cells(x, container, column, name) for column, name in enumerate(names))
    missing = np.empty((len(x), len(names)), dtype=bool, order="F")
    for column, view in enumerate(cells):
        missing[:, column] = view.missing()
        _check_finite(view, names[column])
    return Table(x, container, names, missing, cells)


def detach(x: Any) -> Any:
    """Give a table that stays as it is when ``x`` is changed in place; what is no table is given back.

    Cells of pandas and numpy are copied: pandas copies on write only from version 3 on, and not where an
    array that it holds is written to. Those of polars and pyarrow do not change.

    Examples
    --------
    >>> array = np.zeros((1, 2))
    >>> kept = detach(array)
    >>> array[:] = 7
    >>> kept
    array([[0., 0.]])
    """
    if native.is_pandas_dataframe(x):
        return _own_labels(x.copy(), x)
    if native.is_polars_dataframe(x):
        return x.clone()
    return x.copy() if isinstance(x, np.ndarray) else x


def _own_labels(frame: Any, source: Any) -> Any:
    """Give a pandas copy labels of its own: before pandas 3, names of the source's are shared."""
    frame.index, frame.columns = source.index.copy(), source.columns.copy()
    return frame


class _ColumnsOfArray(Sequence[Cells]):
    """Columns of an array of numbers, looked at when they are asked for.

    Arrow copies numbers that do not lie side by side: all columns at once would be the table once more, or,
    of one that is mapped from a file, in memory as a whole.
    """

    def __init__(self, array: Values) -> None:
        self._array = array

    def __len__(self) -> int:
        return int(self._array.shape[1])

    @overload
    def __getitem__(self, index: int) -> Cells: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Cells]: ...

    def __getitem__(self, index: int | slice) -> Cells | Sequence[Cells]:
        if isinstance(index, slice):
            return [self[column] for column in range(*index.indices(len(self)))]
        column = range(len(self))[index]
        return cells_of_numpy(self._array[:, column], column)


def _cells(x: Any, container: str, column: int, name: Hashable) -> Cells:
    if container == "pandas":
        return cells_of_pandas(x.iloc[:, column], name)
    if container == "polars":
        return cells_of_polars(x.to_series(column).alias(""))  # names with NUL abort polars' way to Arrow
    if container == "pyarrow":
        return cells_of_arrow(x.column(column))
    return cells_of_numpy(x[:, column], name)


def _as_array(x: Any) -> Values:
    """Anything that is not a data frame, as a 2-D array."""
    if isinstance(x, np.ma.MaskedArray):
        raise InputError("Masked arrays are not read; this is one. Call .filled(numpy.nan) first.")
    if isinstance(x, dict | str | bytes) or x is None or hasattr(x, "columns"):
        raise InputError(
            "A table must be a pandas or polars DataFrame, a pyarrow Table or a 2-D numpy array; "
            f"this is a {type(x).__name__}. Convert it, for example with pandas.DataFrame(...) or "
            "its own .to_pandas(); read a file with pandas.read_csv(...) first."
        )
    try:
        array = np.asarray(x)
        if array.dtype.kind in "US" and not isinstance(x, np.ndarray):
            array = np.asarray(x, dtype=object)  # else numpy turns the numbers of a list into text
    except ValueError as error:
        raise InputError(f"The rows of a table must be equally long; numpy says: {error}.") from error
    if array.ndim != 2:
        raise InputError(
            f"Expected a 2-D table, rows by columns; got {array.ndim}-D data of shape {array.shape} "
            f"({type(x).__name__}). Reshape your data, for one column with x.reshape(-1, 1)."
        )
    return array


def _check_labels(names: tuple[Hashable, ...], n_rows: int) -> None:
    if not names:
        raise InputError(
            f"A table must have columns; this one has 0 feature(s) (shape=({n_rows}, 0)) while a minimum of "
            "1 is required. Hand over a table with at least one column."
        )
    repeated = pd.Index(list(names), tupleize_cols=False)
    if not repeated.is_unique:
        shown = ", ".join(map(repr, dict.fromkeys(repeated[repeated.duplicated()])))
        raise InputError(f"Column names must be unique; repeated: {shown}. Rename or drop those columns.")


def _check_finite(cells: Cells, name: Hashable) -> None:
    if cells.storage.family != Family.NUMBER or cells.storage.whole:
        return
    values = cells.numbers()
    count = int(np.isinf(values).sum())
    if count:
        raise InputError(
            f"Values must be finite; column {name!r} holds inf in {count} row{'s' * (count > 1)}; "
            "replace infinite values by numbers, or by NaN if they mean missing."
        )
    count = int(np.count_nonzero((values > LARGEST) | (values < -LARGEST)))
    if count:
        raise InputError(
            f"Values must lie between -{LARGEST:g} and {LARGEST:g}, so that sums of them are finite; column "
            f"{name!r} holds larger ones in {count} row{'s' * (count > 1)}. Replace them by NaN if they mean "
            "missing, else divide the column by a power of ten."
        )

"""The type of a column as fitted: its dtype, the Python type of its cells, and its spelling in a text file.

A batch may hold nothing in a column: ``None`` objects, NaN, Arrow's or polars' null type, an empty column of
a CSV file. Imputed values then get the type that the column had at fit. In another container they get its
equivalent there, by way of the Arrow type.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as pt

from diffputer.errors import InputError
from diffputer.tables.cells import Cells, Family, Storage, cells_of_arrow, cells_of_pandas, cells_of_polars
from diffputer.tables.textcolumns import TextColumn

_OBJECT = "object"
_ARROW_DTYPE = "ArrowDtype"  # of pandas: its own names of Arrow types cannot all be read back
_DIGITS = {128: 38, 256: 76}
_DECIMAL = re.compile(r"decimal(32|64|128|256)\(([0-9]{1,2}), (-?[0-9]{1,2})\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\[\]]{1,64})\]")
_DICTIONARY = re.compile(r"dictionary<values=([^<>]+), indices=(u?int(?:8|16|32|64)), ordered=([01])>")
_SPARSE = re.compile(r"Sparse\[(\w+), ([\w.+-]+)\]")
#: Python types of cells, beside those of numpy, which are written as ``numpy.int64``.
_PLAIN = (bool, int, float, str, Decimal, pd.Timestamp, pd.Timedelta, datetime, date, time, timedelta)


@dataclass(frozen=True)
class ColumnType:
    """The type of a column as fitted.

    Attributes
    ----------
    container : {"pandas", "polars", "pyarrow", "numpy"}
        Library of the fitted table.
    dtype : str
        Name of the dtype in that library.
    arrow : str
        Arrow type that holds the same values.
    cells : str
        Python type of the cells of an object column, such as ``"date"`` or ``"numpy.int64"``.
    decimals : int, optional
        Decimal places of decimal numbers.
    categories : tuple, optional
        All categories that the dtype declares, in its order.
    categories_dtype : str
        Their pandas dtype.
    ordered : bool
        Whether the dtype declares an order of them.
    text : TextColumn, optional
        Spelling in the text file that was fitted.
    """

    container: str
    dtype: str
    arrow: str
    cells: str = ""
    decimals: int | None = None
    categories: tuple[Any, ...] | None = None
    categories_dtype: str = ""
    ordered: bool = False
    text: TextColumn | None = None

    @property
    def arrow_type(self) -> Any:
        """The Arrow type."""
        return parse_arrow_type(self.arrow)

    @property
    def zone(self) -> str | None:
        """The time zone of dates that have one."""
        kind = self.arrow_type
        name = str(kind.tz) if pt.is_timestamp(kind) and kind.tz else None
        return name if name is None or name[0] not in "+-" else f"UTC{name}"

    def home(self, container: str) -> str:
        """The library in which a column of this type is made for a table of ``container``."""
        ours, theirs = ("pandas" if name == "numpy" else name for name in (self.container, container))
        return ours if ours == theirs else "pyarrow"

    def blank(self, n: int, library: str) -> Any:
        """A column of ``n`` cells, whose values mean nothing, in a library that :meth:`home` names."""
        if library == "polars":
            import polars as pl

            return pl.Series([None] * n, dtype=self._polars_dtype())
        if library == "pyarrow":
            kind = self.arrow_type
            if pt.is_dictionary(kind):
                try:
                    levels = pa.array(list(self.categories or ()), type=kind.value_type)
                except pa.ArrowException as error:
                    raise InputError(
                        f"A column without values gets the type that it had at fit; categories such as "
                        f"{(self.categories or ('',))[0]!r} of pandas are known in no other container. "
                        "Convert the table to pandas."
                    ) from error
                codes = pa.nulls(n, kind.index_type)
                return pa.chunked_array(
                    [pa.DictionaryArray.from_arrays(codes, levels, ordered=kind.ordered)], type=kind
                )
            return pa.chunked_array([pa.nulls(n, kind)], type=kind)
        if self.dtype == _ARROW_DTYPE:
            return pd.Series(pd.arrays.ArrowExtensionArray(self.blank(n, "pyarrow")))
        dtype = self._pandas_dtype()
        if isinstance(dtype, pd.CategoricalDtype):
            return pd.Series(pd.Categorical.from_codes(np.full(n, -1), dtype=dtype))
        if isinstance(dtype, np.dtype) and dtype.kind != "O":
            return pd.Series(np.zeros(n, dtype=dtype))
        if isinstance(dtype, pd.SparseDtype):
            return pd.Series(pd.arrays.SparseArray(np.zeros(n, dtype=dtype.subtype), dtype=dtype))
        return pd.Series([None] * n, dtype=dtype)

    def storage(self, container: str) -> Storage:
        """What a column of this type can hold, made for a table of ``container``."""
        library = self.home(container)
        if library == "pandas" and self.dtype == _OBJECT:
            storage = cells_of_arrow(pa.nulls(0, self.arrow_type)).storage
            low, high = (storage.low, storage.high) if storage.resolution == 1 else (-math.inf, math.inf)
            return dataclasses.replace(storage, dtype=_OBJECT, low=low, high=high)
        blank = self.blank(0, library)
        readers = {"pandas": cells_of_pandas, "polars": cells_of_polars, "pyarrow": cells_of_arrow}
        storage = readers[library](blank).storage
        return dataclasses.replace(storage, levels=self.categories) if storage.declared else storage

    def _pandas_dtype(self) -> Any:
        if self.dtype == "category":
            levels = list(self.categories or ())
            return pd.CategoricalDtype(categories_index(levels, self.categories_dtype), ordered=self.ordered)
        if sparse := _SPARSE.fullmatch(self.dtype):
            kind = np.dtype(sparse[1])
            fill = sparse[2] == "True" if kind.kind == "b" else float(sparse[2])
            return pd.SparseDtype(kind, int(fill) if kind.kind in "iu" else fill)
        dtype = pd.api.types.pandas_dtype(self.dtype)
        if isinstance(dtype, np.dtype) and dtype.kind in "UST":  # "str" in older pandas
            return np.dtype(object)
        if isinstance(dtype, np.dtype) and (dtype.kind not in "biufmMO" or dtype.subdtype is not None):
            raise ValueError(f"no dtype of a column: {self.dtype!r}")
        return dtype

    def _polars_dtype(self) -> Any:
        import polars as pl

        if self.dtype == "Enum":
            return pl.Enum(list(self.categories or ()))
        if self.dtype in ("Categorical", "Int128", "UInt128"):
            return getattr(pl, self.dtype)
        found: Any = pl.from_arrow(pa.array([], type=self.arrow_type))
        return found.dtype

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name, categories as they are; see ``Column.to_dict``."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**plain, "text": None if self.text is None else dataclasses.asdict(self.text)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ColumnType:
        """Rebuild a type from :meth:`to_dict`; ValueError where it is none."""
        values = dict(plain)
        if values.get("text") is not None:
            values["text"] = TextColumn.from_dict(values["text"])
        if values.get("categories") is not None:
            values["categories"] = tuple(values["categories"])
        kind = cls(**values)
        names = (kind.container, kind.dtype, kind.arrow, kind.cells, kind.categories_dtype)
        decimals = kind.decimals
        if (
            not all(isinstance(name, str) and len(name) < 200 for name in names)
            or kind.container not in ("pandas", "polars", "pyarrow", "numpy")
            or type(kind.ordered) is not bool
            or not (decimals is None or (type(decimals) is int and abs(decimals) <= max(_DIGITS.values())))
            or (kind.cells and not _is_cell_type(kind.cells))
        ):
            raise ValueError(f"no type of a column: {kind!r:.200}")
        try:
            parse_arrow_type(kind.arrow)
            if kind.container in ("pandas", "numpy"):
                kind.blank(0, "pandas")
        except Exception as error:  # each library has its own
            raise ValueError(f"no type of a column: {kind!r:.200} ({error})") from error
        return kind


def find_type(native: Any, container: str, cells: Cells) -> ColumnType | None:
    """Find the type of a column of a table.

    Parameters
    ----------
    native
        The column in its own container.
    container
        Its library.
    cells
        Its cells.

    Returns
    -------
    ColumnType or None
        None where the column holds nothing, or nothing that can be modelled.

    Examples
    --------
    >>> from diffputer.tables.cells import cells_of_pandas
    >>> series = pd.Series([Decimal("1.50"), None])
    >>> found = find_type(series, "pandas", cells_of_pandas(series))
    >>> found.dtype, found.cells, found.decimals, found.arrow
    ('object', 'Decimal', 2, 'decimal128(38, 2)')
    """
    storage = cells.storage
    if storage.family in (Family.OTHER, Family.NOTHING):
        return None
    common: dict[str, Any] = {
        "decimals": storage.decimals,
        "categories": storage.levels,
        "ordered": storage.ordered,
    }
    if container == "pyarrow":
        return ColumnType(container, str(native.type), str(native.type), **common)
    arrow = _arrow_name(cells)
    if container == "polars":
        return ColumnType(container, type(native.dtype).__name__, arrow, **common)
    dtype = native.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind == "O":
            example = native[~pd.isna(native)][:1]
            return ColumnType(container, _OBJECT, arrow, cells=cell_type(next(iter(example))), **common)
        if dtype.kind in "UT":
            return ColumnType(container, _OBJECT, arrow, cells="str")
        return ColumnType(container, str(dtype), arrow)
    if isinstance(dtype, pd.ArrowDtype):
        return ColumnType(container, _ARROW_DTYPE, str(dtype.pyarrow_dtype), **common)
    if isinstance(dtype, pd.CategoricalDtype):
        inner = _dtype_name(dtype.categories.dtype)
        return ColumnType(container, "category", arrow, categories_dtype=inner, **common)
    if isinstance(dtype, pd.DatetimeTZDtype):  # whose time zone may be an object without a name
        return ColumnType(container, f"datetime64[{dtype.unit}, {storage.timezone}]", arrow)
    return ColumnType(container, _dtype_name(dtype), arrow)


def cell_type(example: Any) -> str:
    """Name the Python type of a cell; nothing where it is an uncommon one.

    Examples
    --------
    >>> cell_type(np.int8(1)), cell_type(np.datetime64("2020-01-01", "s")), cell_type(date(2020, 1, 1))
    ('numpy.int8', 'numpy.datetime64[s]', 'date')
    """
    if isinstance(example, np.generic):
        return f"numpy.{example.dtype}" if example.dtype.kind not in "US" else "numpy.str_"
    if type(example) in _PLAIN:
        return type(example).__name__
    if isinstance(example, datetime):  # a class of its own
        return "Timestamp"
    return "Timedelta" if isinstance(example, timedelta) else ""


def _is_cell_type(name: str) -> bool:
    return name in {kind.__name__ for kind in _PLAIN} or bool(
        re.fullmatch(r"numpy\.(str_|bool|u?int(8|16|32|64)|float(16|32|64|96|128)|\w+64\[\w{1,4}\])", name)
    )


def parse_arrow_type(name: str) -> Any:
    """Read the name of an Arrow type, as ``str`` writes it.

    Examples
    --------
    >>> parse_arrow_type("timestamp[s, tz=Europe/Rome]"), parse_arrow_type("decimal128(9, 2)")
    (TimestampType(timestamp[s, tz=Europe/Rome]), Decimal128Type(decimal128(9, 2)))
    """
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], zoned[2])
    if decimal := _DECIMAL.fullmatch(name):
        make = getattr(pa, f"decimal{decimal[1]}", pa.decimal128)
        return make(int(decimal[2]), int(decimal[3]))
    if dictionary := _DICTIONARY.fullmatch(name):
        indices, values = parse_arrow_type(dictionary[2]), parse_arrow_type(dictionary[1])
        return pa.dictionary(indices, values, ordered=dictionary[3] == "1")
    known = {"float": pa.float32(), "string_view": getattr(pa, "string_view", pa.large_string)()}
    return known[name] if name in known else pa.type_for_alias(name)


def _arrow_name(cells: Cells) -> str:
    """The Arrow type that holds what a column of another library does."""
    storage, kind = cells.storage, cells.array.type
    if storage.declared:
        levels = [level for level in storage.levels or () if level is not None]
        try:
            values = pa.array(levels).type if levels else pa.string()
        except (pa.ArrowException, OverflowError, ValueError, TypeError):  # of several types
            values = pa.string()
        values = pa.string() if pt.is_null(values) else values
        return f"dictionary<values={values}, indices=int32, ordered={int(storage.ordered)}>"
    if cells.levels is not None or pt.is_large_string(kind):
        return "string"
    if storage.precision == "float16":
        return "halffloat"
    if storage.dtype == _OBJECT and pt.is_decimal(kind):  # with room for more digits than these cells have
        return f"decimal{kind.bit_width}({_DIGITS.get(kind.bit_width, kind.precision)}, {kind.scale})"
    if pt.is_timestamp(kind) and storage.timezone is not None:
        zone = storage.timezone.removeprefix("UTC") or "UTC"  # Arrow writes offsets as +01:00
        return f"timestamp[{kind.unit}, tz={zone}]"
    return str(kind)


def _dtype_name(dtype: Any) -> str:
    """A name of a pandas dtype that can be read back."""
    if isinstance(dtype, pd.StringDtype):
        missing = getattr(dtype, "na_value", pd.NA)
        return f"string[{dtype.storage}]" if missing is pd.NA else "str"
    if isinstance(dtype, pd.SparseDtype):
        return f"Sparse[{dtype.subtype}, {dtype.fill_value}]"
    return str(dtype)


def categories_index(levels: list[Any], dtype: Any) -> Any:
    """Categories as an Index of a pandas dtype, of objects where that cannot hold them."""
    try:
        return pd.Index(levels, dtype=dtype or None)
    except (TypeError, ValueError):
        return pd.Index(levels, dtype=object)

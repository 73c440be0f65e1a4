"""Draws on disk: one Parquet file with the incomplete table once and the filled cells m times.

Each column of the table is a column of the file. Each column with filled cells has a second one,
``.draws.NAME``: a list of m values where the cell was missing, null where it was observed. What Parquet
does not know (container, dtypes, kinds of columns) stands as JSON in the metadata of the file; reading runs
no code from it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from diffputer.errors import InputError
from diffputer.tables.decoding import as_fitted
from diffputer.tables.filling import Values
from diffputer.tables.frames import Table, read_table
from diffputer.tables.paths import PathLike, read_bytes, write_bytes
from diffputer.tables.schema import Schema, from_plain, to_plain

FORMAT, VERSION = "diffputer imputations", 2
PREFIX = ".draws."
_KEY = b"diffputer"

Filled = Sequence[Mapping[int, Values]]
Facts = dict[str, Any]
Contents = tuple[Table, list[dict[int, Values]], Schema | None, Facts]


def write_draws(
    path: PathLike, table: Table, filled: Filled, schema: Schema | None, facts: Mapping[str, Any]
) -> None:
    """Write draws, and facts that JSON can hold, into one file, all or nothing; see :func:`read_draws`.

    What a Parquet file cannot give back as it was is an error, and nothing is written.
    """
    if str(path) == "-":
        raise InputError("Draws are written to a file, however: '-' is standard output. Name a path.")
    try:
        data = _to_bytes(table, filled, schema, facts)
        again = _from_bytes(data)[0]
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"The columns of a Parquet file must be of types that it knows, however: {error}. Convert or "
            "leave out that column."
        ) from error
    _check_same(table if schema is None else as_fitted(table, schema), again)
    write_bytes(path, data)


def read_draws(path: PathLike) -> Contents:
    """Read the table, the filled cells of each draw, the schema and the facts that were written."""
    data = read_bytes(path)
    try:
        return _from_bytes(data)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{error} The file is {str(path)!r}.") from error
        raise InputError(
            f"Draws are read from a whole file that to_parquet wrote, however: {str(path)!r} is truncated, "
            f"damaged or another sort of file ({error})."
        ) from error


def _to_bytes(table: Table, filled: Filled, schema: Schema | None, known_facts: Mapping[str, Any]) -> bytes:
    arrow, dtypes = _to_arrow(table)
    known = arrow.schema
    types: dict[str, str] = {}
    for position in sorted(filled[0]) if filled else ():
        holes = table.missing[:, position]
        if not holes.any():
            continue
        name = PREFIX + arrow.column_names[position]
        if name in known.names:
            raise InputError(
                f"The file adds a column {name!r}, however: the table has one already. Rename it."
            )
        stacked = np.stack([draw[position] for draw in filled], axis=1)  # [holes, m]: one list a hole
        types[str(position)] = stacked.dtype.str if stacked.dtype.kind != "O" else "object"
        lists = _lists(stacked, holes)
        arrow = arrow.append_column(pa.field(name, lists.type), lists)
    facts = {
        **known_facts,
        "format": FORMAT,
        "version": VERSION,
        "container": table.container,
        "n_draws": len(filled),
        "names": [to_plain(name, name) for name in table.names],
        "dtypes": dtypes,
        "filled": types,
        "schema": None if schema is None else schema.to_dict(),
        "arrow": base64.b64encode(known.serialize().to_pybytes()).decode(),
        "levels": _levels(arrow.select(range(len(known)))),
    }
    metadata = {**(arrow.schema.metadata or {}), _KEY: json.dumps(facts).encode()}
    sink = pa.BufferOutputStream()
    pq.write_table(
        arrow.replace_schema_metadata(metadata), sink, compression="zstd", write_page_checksum=True
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(data: bytes) -> Contents:
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    text = (file.schema_arrow.metadata or {}).get(_KEY)
    facts = json.loads(text) if text is not None else {}
    if facts.get("format") != FORMAT:
        raise InputError(
            "Draws are read from a file that to_parquet wrote, however: this one is some other Parquet file."
        )
    if facts["version"] > VERSION:
        raise InputError(
            f"This diffputer reads draws up to version {VERSION}, however: the file has version "
            f"{facts['version']}. Upgrade diffputer."
        )
    arrow = file.read()
    known = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(facts["arrow"])))
    width = len(known)
    schema = None if facts["schema"] is None else Schema.from_dict(facts["schema"])
    table = read_table(_to_native(_as_known(arrow.select(range(width)), known, facts["levels"]), facts))
    table = table if schema is None else as_fitted(table, schema)
    filled: list[dict[int, Values]] = [{} for _ in range(facts["n_draws"])]
    for place, (position, dtype) in enumerate(facts["filled"].items()):
        holes = int(table.missing[:, int(position)].sum())
        flat = _unlist(arrow.column(width + place), dtype).reshape(holes, facts["n_draws"])
        for draw in range(facts["n_draws"]):
            filled[draw][int(position)] = flat[:, draw]
    return table, filled, schema, facts


def _levels(arrow: Any) -> dict[str, list[Any]]:
    """The levels of dictionary columns by position: Parquet keeps neither their order nor unused ones."""
    return {
        str(position): [
            to_plain(level, name)
            for level in (column.unify_dictionaries().chunk(0).dictionary.to_pylist() if len(column) else [])
        ]
        for position, (name, column) in enumerate(zip(arrow.column_names, arrow.columns, strict=True))
        if pt.is_dictionary(column.type)
    }


def _as_known(arrow: Any, known: Any, levels: Mapping[str, list[Any]]) -> Any:
    """The columns of a file in the types that they had."""
    columns = []
    for position, (field, column) in enumerate(zip(known, arrow.columns, strict=True)):
        kind = field.type
        if pt.is_dictionary(kind):
            plain = column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column
            dictionary = pa.array([from_plain(level) for level in levels[str(position)]], kind.value_type)
            codes = pc.index_in(plain.combine_chunks(), value_set=dictionary, skip_nulls=True)
            column = pa.DictionaryArray.from_arrays(
                codes.cast(kind.index_type), dictionary, ordered=kind.ordered
            )
        columns.append(column if column.type == kind else column.cast(kind))
    return pa.Table.from_arrays(columns, schema=known)


def _to_arrow(table: Table) -> tuple[Any, list[Any]]:
    """The table as Arrow, columns first and a pandas index behind, and the dtypes that Arrow may forget."""
    native = table.native
    if table.container == "pyarrow":
        return native, []
    if table.container == "polars":
        dtypes = [
            dtype.categories.to_list() if type(dtype).__name__ == "Enum" else None for dtype in native.dtypes
        ]
        return native.to_arrow(), dtypes
    if table.container == "numpy":
        columns = [pa.array(native[:, j].tolist(), from_pandas=True) for j in range(native.shape[1])]
        if native.dtype.kind != "O":
            plain = native.astype(np.float32) if native.dtype == np.float16 else native
            columns = [pa.array(plain[:, j], from_pandas=True) for j in range(native.shape[1])]
        return pa.table(columns, names=[str(name) for name in table.names]), [native.dtype.str]
    dense = native.copy(deep=False)
    for position, dtype in enumerate(native.dtypes):
        if isinstance(dtype, pd.SparseDtype):
            dense.isetitem(position, native.iloc[:, position].sparse.to_dense())
    if not all(isinstance(name, str | tuple) for name in table.names):  # labels are kept in the facts
        dense.columns = pd.Index([str(name) for name in table.names], name=native.columns.name)
    return pa.Table.from_pandas(dense), [_dtype_name(dtype) for dtype in native.dtypes]


def _dtype_name(dtype: Any) -> str:
    """The name of a pandas dtype; of text with its storage, which ``str(dtype)`` leaves out."""
    return f"{dtype}[{dtype.storage}]" if isinstance(dtype, pd.StringDtype) else str(dtype)


def _named_dtype(name: str) -> Any:
    """The dtype of a name that :func:`_dtype_name` gave, perhaps with another version of pandas."""
    if name.partition("[")[0] != "str":
        return name
    try:
        return pd.StringDtype(name[4:-1] or None, na_value=np.nan)
    except TypeError:  # pandas 2.2 has no such dtype, and its "str" writes missing values as words
        return object


def _to_native(arrow: Any, facts: Mapping[str, Any]) -> Any:
    """Undo :func:`_to_arrow`."""
    container, dtypes = facts["container"], facts["dtypes"]
    if container == "pyarrow":
        return arrow
    if container == "polars":
        import polars as pl

        frame: Any = pl.from_arrow(arrow)
        enums = {name: pl.Enum(levels) for name, levels in zip(frame.columns, dtypes, strict=True) if levels}
        return frame.cast(enums)
    if container == "numpy":
        dtype = np.dtype(dtypes[0])
        array = np.empty(arrow.shape, dtype=dtype)
        for position, column in enumerate(arrow.columns):
            array[:, position] = column.to_pylist() if dtype.kind == "O" else column.to_numpy()
        return array
    frame = arrow.to_pandas()
    names = [from_plain(name) for name in facts["names"]]
    if frame.columns.tolist() != names:
        frame.columns = pd.Index(names, tupleize_cols=False, name=frame.columns.name)
    for position, wanted in enumerate(dtypes):
        series = frame.iloc[:, position]
        if wanted == "object":
            objects = np.empty(len(frame), dtype=object)
            objects[:] = arrow.column(position).to_pylist()
            frame.isetitem(position, pd.Series(objects, index=frame.index, dtype=object))
        elif _dtype_name(series.dtype) != wanted:
            frame.isetitem(position, series.astype(_named_dtype(wanted)))
    return frame


def _lists(stacked: Values, holes: Values) -> Any:
    """Values [holes, m] as a list for each row of the table, null where nothing was missing."""
    flat = stacked.ravel()
    if stacked.dtype == np.float16:
        flat = flat.astype(np.float32)
    values = pa.array(flat.tolist() if stacked.dtype.kind in "OU" else flat)
    offsets = np.concatenate([[0], np.cumsum(holes * stacked.shape[1])])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64()), values, mask=pa.array(~np.asarray(holes, dtype=bool))
    )


def _unlist(column: Any, dtype: str) -> Values:
    flat = column.combine_chunks().flatten()
    if isinstance(flat, pa.ChunkedArray):
        flat = flat.combine_chunks()
    if dtype != "object":
        return np.asarray(flat.to_numpy(zero_copy_only=False)).astype(np.dtype(dtype))
    objects = np.empty(len(flat), dtype=object)
    objects[:] = flat.to_pylist()
    return objects


def _check_same(table: Table, again: Table) -> None:
    """Refuse a file from which the table would not come back as it is."""
    for position, name in enumerate(table.names):
        old, new = table.cells[position], again.cells[position]
        known = ~table.missing[:, position]
        same = old.storage == new.storage and np.array_equal(~known, again.missing[:, position])
        if same and old.levels == new.levels:
            mask = pa.array(known)
            same = old.array.filter(mask).equals(new.array.filter(mask).cast(old.array.type))
        elif same:  # the same text under other codes
            codes, levels = old.labels()
            others, other_levels = new.labels()
            same = [levels[code] for code in codes[known]] == [other_levels[code] for code in others[known]]
        if not same or (name != again.names[position] or type(name) is not type(again.names[position])):
            raise InputError(
                f"A Parquet file must give back what was written, however: column {name!r} of dtype "
                f"{old.storage.dtype} would come back changed, as {again.names[position]!r} of dtype "
                f"{new.storage.dtype}. Convert or leave out that column."
            )
    if table.container == "pandas" and not table.native.index.equals(again.native.index):
        raise InputError(
            "A Parquet file must give back what was written, however: the index of this frame would come "
            "back changed. Use reset_index before."
        )

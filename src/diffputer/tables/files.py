"""Table files: read one, and write its completed form with every observed cell as it was.

Delimited text is read as text first. The typed table goes to the imputer; the text stays, so that observed
cells are written back with the very text they had, and filled cells in the manner of their column. Parquet
and Arrow files are pyarrow tables from end to end.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from diffputer.errors import InputError, warn_about_data
from diffputer.runtime.memory import check_memory, enough_memory
from diffputer.runtime.progress import Progress
from diffputer.tables.csvtext import (
    DEFAULT_MARKERS,
    DELIMITERS,
    CsvStyle,
    QuotedMarker,
    parse_csv,
    render_csv,
)
from diffputer.tables.markers import MarkerWord, StatedWords, find_missing, warn_of_words
from diffputer.tables.paths import MAX_GIB, Kind, PathLike, check_size, file_kind, read_bytes, write_bytes
from diffputer.tables.schema import Schema
from diffputer.tables.textcolumns import OF_KINDS, TextColumn, describe_column, describe_columns
from diffputer.tables.thousands import check_marks

Frame: TypeAlias = Any  # a pandas DataFrame or a pyarrow Table


@dataclass(frozen=True)
class FileFormat:
    """Kind of a table file, whether it is gzipped, and the style of its text."""

    kind: Kind
    gzipped: bool = False
    style: CsvStyle = field(default_factory=CsvStyle)


@dataclass(frozen=True)
class TableFile:
    """A table as it was read.

    Attributes
    ----------
    frame : pandas.DataFrame or pyarrow.Table
        The typed table for the imputer: pandas for delimited text, pyarrow for Parquet and Arrow.
    format : FileFormat
        How it was stored.
    text : pandas.DataFrame or None
        The cells as text, for delimited text.
    columns : tuple of TextColumn
        What the text of each column stands for; empty without text.
    index : dict of int -> (pyarrow.Field, pyarrow.ChunkedArray)
        Columns of the file that pandas has for its index, by position; no part of ``frame``.
    marker_words : tuple of MarkerWord
        Words in columns of text that mark missing cells or might, and what they were taken for.
    stated : StatedWords
        What the user has stated of such words, for this file or for that of the model.
    """

    frame: Frame
    format: FileFormat
    text: Any = None
    columns: tuple[TextColumn, ...] = ()
    index: Mapping[int, tuple[Any, Any]] = field(default_factory=dict)
    marker_words: tuple[MarkerWord, ...] = ()
    stated: StatedWords = field(default_factory=StatedWords)

    @property
    def answers(self) -> frozenset[tuple[Hashable, str]]:
        """Columns and words that might mark missing cells and were kept as observed values."""
        return frozenset((one.column, one.word) for one in self.marker_words if not one.taken_for_missing)


def read_table_file(
    path: PathLike,
    *,
    missing: Sequence[str] = (),
    keep: Sequence[str] = (),
    only_missing: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    format: Kind | None = None,
    schema: Schema | None = None,
    kinds: Mapping[str, str] | None = None,
    max_gib: float = MAX_GIB,
    progress: Progress | None = None,
) -> TableFile:
    """Read a CSV, TSV, Parquet or Arrow file as the command line does.

    Empty cells of text are missing. NA, N/A, NaN, nan, null, NULL and None are missing among numbers, dates
    and yes and no; among other words they may be answers: `diffputer.tables.markers` has the rules, and a
    `DataWarning` says what was decided.

    Parameters
    ----------
    path : str or path
        The suffix tells the format; ``-`` is standard input, CSV unless ``format`` says otherwise.
    missing : sequence of str
        Words that mark a missing cell in text, in all columns (``"?"``) or in one (``"age=?"``).
    keep : sequence of str
        Words that never do, in all columns (``"NA"``) or in one (``"country=NA"``).
    only_missing : sequence of str, optional
        Exactly these words, and empty cells, are missing, in all columns (``"?"``) or in one (``"age=?"``),
        which leaves the others as they are.
    delimiter, encoding, decimal : str, optional
        Of text; by default found out: comma, semicolon, tab or bar; UTF-8 or as the byte order mark says;
        point, or comma where semicolons part the cells and all numbers of the column have it.
    thousands : {".", ",", "'", " ", "_"}, optional
        What parts the thousands of numbers in text; by default nothing does.
    format : {"csv", "tsv", "parquet", "arrow"}, optional
        Instead of the suffix.
    schema : Schema, optional
        Of a fitted model: columns are read as its own file's were if they can be, and words that are its
        categories are answers here too. What was stated of words for its file holds unless it is stated
        otherwise here.
    kinds : dict of column -> kind, optional
        As in the ``schema`` of `DiffPuter`: what the columns of text without any value hold.
    max_gib : float
        Gibibytes that a gzipped, Parquet or Arrow file may decompress to. A file that is no larger in memory
        than on the disk is read whatever its size.
    progress : Progress, optional
        Hears of the rows and columns that are read.

    Returns
    -------
    TableFile

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "people.csv")
    >>> _ = path.write_text("id,age,smoker\\n007,31,no\\n008,NA,yes\\n009,44,\\n")
    >>> table = read_table_file(path)
    >>> [column.kind for column in table.columns]
    ['text', 'integer', 'boolean']
    >>> completed = table.frame.fillna({"age": 40, "smoker": True})
    >>> write_table_file(path, table, completed)
    >>> print(path.read_text(), end="")
    id,age,smoker
    007,31,no
    008,40,yes
    009,44,yes
    >>> folder.cleanup()
    """
    kind, gzipped = file_kind(path, format)
    shown = progress or Progress()
    shown.begin(f"reading {_call(path, 'standard input')}", 0)
    name = "standard input" if str(path) == "-" else repr(str(path))
    convert = "Convert it to Parquet, t" if kind in ("csv", "tsv") else "T"
    remedy = f"{convert}ake fewer rows, or free memory."
    with enough_memory(f"The table {name}", remedy):
        data = read_bytes(path, max_gib)
        if kind not in ("csv", "tsv"):
            arrow = _without_index(_read_arrow(data, kind, name, max_gib), FileFormat(kind))
            shown.end()
            return arrow
        for found, mark in (("parquet", b"PAR1"), ("arrow", b"ARROW1")):
            if data.startswith(mark):
                raise InputError(
                    f"A {kind.upper()} file must be text, but {name} is {found}: say --format {found}."
                )
        if kind == "tsv":
            delimiter = delimiter or "\t"
        # Cells become Python objects of 45 bytes at least (measured: 50 to 130 a cell).
        n_cells = data.count(b"\n") + max(data.count(mark.encode()) for mark in DELIMITERS)
        check_memory(3 * len(data) + 45 * n_cells, f"The text of {name}", remedy)
        shown.begin(f"reading {_call(path, 'standard input')}", data.count(b"\n"))
        header, cells, style = parse_csv(
            data, delimiter=delimiter, encoding=encoding, name=name, progress=shown
        )
        shown.begin("finding out what columns hold", 0)
        check_marks(decimal, thousands)
        stated = StatedWords.read(header, cells, missing=missing, keep=keep, only_missing=only_missing)
        if schema is not None:
            stated = stated.after(schema.stated)
        gone, words = find_missing(
            header,
            cells,
            style.quoted_columns,
            stated=stated,
            decimal_marks=tuple(mark for mark in (".", ",") if mark != thousands)
            if decimal is None
            else (decimal,),
            thousands=thousands or "",
            answers=[(column.name, level) for column in schema or () for level in column.levels],
        )
        warn_of_words(words)
        known = None if schema is None else schema.spellings()
        style_of_file = FileFormat(kind, gzipped, style)
        table = _typed(header, cells, gone, style_of_file, decimal, thousands, name, known, kinds or {})
        shown.end()
        return replace(table, marker_words=tuple(words), stated=stated)


def completed_text(table: TableFile, completed: Any, progress: Progress | None = None) -> pd.DataFrame:
    """The cells of a completed table as text.

    Observed cells have the text that was read, filled cells that of their value in the manner of the column,
    and cells that are still missing the text (often a marker) that was read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "t.csv")
    ...     _ = path.write_text("x\\n1.50\\n\\n2.0\\n")
    ...     table = read_table_file(path)
    >>> completed_text(table, table.frame.fillna(1.23456))["x"].tolist()
    ['1.50', '1.23', '2.0']
    """
    if table.text is None:  # not from a text file
        return _text_of_arrow(_with_index(_as_arrow(completed), table))
    _check_same_cells(table, completed)
    filled = table.frame.isna().to_numpy() & completed.notna().to_numpy()
    text = {}
    for j, (name, column) in enumerate(zip(table.frame.columns, table.columns, strict=True)):
        cells = table.text[name].tolist()
        rows = np.flatnonzero(filled[:, j])
        for row, value in zip(rows, completed[name].iloc[rows], strict=True):
            spelt = column.spell(value)
            cells[row] = QuotedMarker(spelt) if spelt in DEFAULT_MARKERS else spelt  # an answer, not missing
        text[name] = pd.Series(cells, dtype=object)
        if progress is not None:
            progress.advance()
    return pd.DataFrame(text)


def write_table_file(
    path: PathLike,
    table: TableFile,
    completed: Frame,
    *,
    format: Kind | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a completed table, all or nothing.

    The work goes to a temporary file beside ``path`` that takes its place at the end; ``path`` may be the
    file that was read.

    Parameters
    ----------
    path : str or path
        The suffix tells the format, which may differ from that of the input; ``-`` is standard output, text
        unless ``format`` says otherwise. Text keeps the delimiter, encoding and line ends of the input.
    table : TableFile
        The table as it was read.
    completed : pandas.DataFrame or pyarrow.Table
        ``table.frame`` with its holes filled.
    format : {"csv", "tsv", "parquet", "arrow"}, optional
        Instead of the suffix.
    progress : Progress, optional
        Hears of the columns that are written.

    Examples
    --------
    See `read_table_file`.
    """
    _check_same_cells(table, completed)
    target = _target_format(path, table, format)
    shown = progress or Progress()
    shown.begin(f"writing {_call(path, 'standard output')}", 2 * len(_names(table.frame)))
    if target.kind in ("csv", "tsv"):
        text = _text_bytes(completed_text(table, completed, shown), target, shown)
        write_bytes(path, text, is_table=True)
    else:
        arrow = _with_index(_with_metadata(_as_arrow(completed), table.frame), table)
        write_bytes(path, _arrow_bytes(arrow, target.kind), is_table=True)
    shown.end()


def write_long(
    path: PathLike,
    table: TableFile,
    completed: Sequence[Frame],
    *,
    format: Kind | None = None,
    progress: Progress | None = None,
) -> None:
    """Write several completed tables below each other, with columns ``.imp`` (1..m) and ``.id`` (1..n) first.

    Parameters
    ----------
    path, table, format, progress
        As in `write_table_file`.
    completed : sequence of tables
        The m completed tables.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "t.csv")
    ...     _ = path.write_text("x\\n1\\nNA\\n")
    ...     table = read_table_file(path)
    ...     write_long(path, table, [table.frame.fillna(5), table.frame.fillna(6)])
    ...     print(path.read_text(), end="")
    .imp,.id,x
    1,1,1
    1,2,5
    2,1,1
    2,2,6
    """
    names = [*_names(table.frame), *(field.name for field, _ in table.index.values())]
    for reserved in (".imp", ".id"):
        if reserved in names:
            raise InputError(
                f"The long format adds a column {reserved!r}, but the table has one already. Rename it."
            )
    for one in completed:
        _check_same_cells(table, one)
    m, n = len(completed), len(table.frame)
    keys = {".imp": np.repeat(np.arange(1, m + 1), n), ".id": np.tile(np.arange(1, n + 1), m)}
    target = _target_format(path, table, format)
    shown = progress or Progress()
    shown.begin(f"writing {_call(path, 'standard output')}", (m + 1) * len(_names(table.frame)))
    if target.kind in ("csv", "tsv"):
        body = pd.concat([completed_text(table, one, shown) for one in completed], ignore_index=True)
        text = pd.DataFrame({**{key: list(map(str, column)) for key, column in keys.items()}, **body})
        quoted = target.style.quoted_columns
        style = replace(target.style, quoted_columns=(False, False, *quoted) if quoted else ())
        write_bytes(path, _text_bytes(text, replace(target, style=style), shown), is_table=True)
    else:
        parts = [_with_index(_as_arrow(one), table) for one in completed]
        arrow = pa.concat_tables(parts).replace_schema_metadata(None)
        for position, (key, column) in enumerate(keys.items()):
            arrow = arrow.add_column(position, key, pa.array(column, pa.int64()))
        write_bytes(path, _arrow_bytes(arrow, target.kind), is_table=True)
    shown.end()


def _typed(
    header: list[str],
    cells: list[list[str]],
    missing: list[list[bool]],
    file_format: FileFormat,
    decimal: str | None,
    thousands: str | None,
    name: str,
    known: Mapping[str, TextColumn] | None,
    kinds: Mapping[str, str],
) -> TableFile:
    """Give every column of text its kind and its values."""
    if describe_column(header).kind in ("integer", "number"):
        warn_about_data(
            f"The first line of a file must hold the column names, but in {name} it holds numbers "
            f"({', '.join(header[:3])}, ...). If these are data, put a line with names above them."
        )
    observed = [
        [text for text, absent in zip(texts, holes, strict=True) if not absent]
        for texts, holes in zip(cells, missing, strict=True)
    ]
    columns = describe_columns(header, observed, decimal, thousands, file_format.style.delimiter, known)
    columns = [
        column if texts else OF_KINDS.get(kinds.get(column_name, ""), column)
        for column_name, column, texts in zip(header, columns, observed, strict=True)
    ]
    frame = {
        column_name: column.values(texts, holes)
        for column_name, column, texts, holes in zip(header, columns, cells, missing, strict=True)
    }
    text = pd.DataFrame(dict(zip(header, cells, strict=True)), dtype=object)
    return TableFile(pd.DataFrame(frame), file_format, text, tuple(columns))


def _target_format(path: PathLike, table: TableFile, format: Kind | None) -> FileFormat:
    """Format to write: the one of the path, in the style of the text that was read."""
    kind, gzipped = file_kind(path, format)
    source = table.format
    if str(path) == "-" and format is None and table.text is not None:
        return replace(source, gzipped=False)
    style = source.style
    if kind == "tsv":
        style = replace(style, delimiter="\t")
    elif source.kind == "tsv":
        style = replace(style, delimiter=",")
    return FileFormat(kind, gzipped, style)


def _call(path: PathLike, stream: str) -> str:
    return stream if str(path) == "-" else Path(path).name


def _text_bytes(text: pd.DataFrame, target: FileFormat, progress: Progress) -> bytes:
    columns = [text[name].tolist() for name in text.columns]
    data = render_csv(list(text.columns), columns, target.style, progress)
    return gzip.compress(data, mtime=0) if target.gzipped else data


def _read_arrow(data: bytes, kind: Kind, name: str, max_gib: float) -> pa.Table:
    """A Parquet file, or an Arrow file or stream, which takes at most ``max_gib`` in memory."""
    try:
        if kind == "parquet":
            file = pq.ParquetFile(pa.BufferReader(data))
            declared = _declared_bytes(file)
            check_size(declared, len(data), max_gib, name)
            check_memory(declared, f"The table {name}", "Take fewer rows or columns, or free memory.")
            _check_repeated_text(file, data, max_gib, name)
            groups = (file.read_row_group(k) for k in range(file.num_row_groups))
            schema = file.schema_arrow
        elif data.startswith(b"ARROW1"):
            reader = pa.ipc.open_file(data)
            groups = (reader.get_batch(k) for k in range(reader.num_record_batches))
            schema = reader.schema
        else:
            groups = pa.ipc.open_stream(data)
            schema = groups.schema
        parts, size = [], 0
        for part in groups:
            parts.append(part if isinstance(part, pa.Table) else pa.Table.from_batches([part]))
            size += _bytes_of(parts[-1], is_first=len(parts) == 1)
            check_size(size, len(data), max_gib, name)
        table = pa.concat_tables(parts) if parts else schema.empty_table()
    except MemoryError:  # Arrow's is an ArrowException too
        raise
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"The file must be a whole {kind.capitalize()} file, but {name} is not ({error}). "
            "Check it, or say what it is with --format."
        ) from error
    twice = [column for column in set(table.column_names) if table.column_names.count(column) > 1]
    if twice:
        raise InputError(f"Column names must differ, but {name} has {twice[0]!r} more than once. Rename one.")
    if table.num_rows == 0 or table.num_columns == 0:
        raise InputError(
            f"A table needs rows and columns, but {name} has {table.num_rows} rows and "
            f"{table.num_columns} columns."
        )
    return table


def _declared_bytes(file: pq.ParquetFile) -> int:
    """Bytes of a Parquet file in memory, at least, by its metadata: encoded, and as cells of their width."""
    encoded = sum(file.metadata.row_group(k).total_byte_size for k in range(file.num_row_groups))
    return int(max(encoded, file.metadata.num_rows * sum(map(_width, file.schema_arrow.types)) // 8))


def _width(kind: pa.DataType) -> int:
    """Bits of a cell, at least."""
    try:
        return int(kind.bit_width)
    except ValueError:  # text and nested types
        return 8


def _check_repeated_text(file: pq.ParquetFile, data: bytes, max_gib: float, name: str) -> None:
    """Refuse text that is stored once and repeated by a dictionary, if it is larger than allowed as cells."""
    text = [field.name for field in file.schema_arrow if _is_text(field.type)]
    coded, size = pq.ParquetFile(pa.BufferReader(data), read_dictionary=text), 0
    for group in range(file.num_row_groups if text else 0):
        for column in coded.read_row_group(group, columns=text).columns:
            for one in (chunk for chunk in column.chunks if pt.is_dictionary(chunk.type)):
                size += pc.sum(pc.binary_length(one.dictionary).take(one.indices)).as_py() or 0
        check_size(size, len(data), max_gib, name)


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary))


def _bytes_of(part: pa.Table, is_first: bool) -> int:
    """Bytes of a part of a table, at least one for a cell; shared dictionaries count in the first part."""
    arrays = [array for column in part.columns for array in column.chunks]
    parts = [one.indices if pt.is_dictionary(one.type) and not is_first else one for one in arrays]
    return int(max(sum(one.nbytes for one in parts), part.num_rows * part.num_columns))


def _without_index(whole: pa.Table, file_format: FileFormat) -> TableFile:
    """Set the columns aside that pandas has for its index: they name the rows."""
    try:
        named = json.loads((whole.schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, ValueError, TypeError):  # not from pandas, or from something that only says so
        named = []
    aside = [name for name in whole.column_names if name in named]
    if len(aside) == whole.num_columns:  # nothing else is there to be filled
        return TableFile(whole, file_format)
    places = (whole.column_names.index(name) for name in aside)
    index = {place: (whole.schema.field(place), whole.column(place)) for place in places}
    return TableFile(whole.drop_columns(aside), file_format, index=index)


def _with_index(completed: pa.Table, table: TableFile) -> pa.Table:
    """Put the columns of the index back where they were."""
    for position, (field_there, column) in sorted(table.index.items()):
        completed = completed.add_column(position, field_there, column)
    return completed


def _arrow_bytes(table: pa.Table, kind: Kind) -> bytes:
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.unify_dictionaries())  # the file format allows one for each column
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _as_arrow(table: Frame) -> pa.Table:
    return table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)


def _with_metadata(completed: pa.Table, source: Frame) -> pa.Table:
    """The completed table with the metadata that the source had, of the table and of its fields."""
    if not isinstance(source, pa.Table):
        return completed
    fields = [
        field.with_metadata(source.schema.field(field.name).metadata)
        for field in (completed.schema.field(i) for i in range(completed.num_columns))
    ]
    return pa.Table.from_arrays(completed.columns, schema=pa.schema(fields, source.schema.metadata))


def _text_of_arrow(table: pa.Table) -> pd.DataFrame:
    """Arrow's own text of every cell; nothing for a missing one."""
    text = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_floating(column.type):
                column = pc.if_else(pc.is_nan(column), None, column)
            text[name] = pd.Series(column.cast(pa.string()).fill_null("").to_pylist(), dtype=object)
        except pa.ArrowException as error:
            raise InputError(
                f"Cells of a text file must be plain values, but column {name!r} holds {column.type}. "
                "Write to .parquet or .arrow instead."
            ) from error
    return pd.DataFrame(text)


def _check_same_cells(table: TableFile, completed: Frame) -> None:
    expected = (_names(table.frame), len(table.frame))
    if (_names(completed), len(completed)) != expected:
        raise InputError(
            f"The completed table must have the columns and rows of the file ({len(expected[0])} and "
            f"{expected[1]}, in this order), but it has {len(_names(completed))} and {len(completed)}."
        )


def _names(table: Frame) -> list[str]:
    return table.column_names if isinstance(table, pa.Table) else list(table.columns)

"""Delimited text and back: bytes to columns of strings, and columns of strings to bytes of the same style.

Nothing is interpreted here. A cell is its text; the style of the file (delimiter, encoding, line ends, which
columns are quoted) is kept in a `CsvStyle`, so that a table can be written as it was read.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from diffputer.errors import InputError
from diffputer.runtime.progress import Progress

#: What marks a missing cell in any text file.
DEFAULT_MARKERS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
DELIMITERS = (",", ";", "\t", "|")
_LONGEST_LIMIT = 2**31 - 1  # the csv module counts in C longs, which are this short on Windows
_SAMPLE = 1 << 16  # characters looked at to find the delimiter and the quoted columns
_BOMS = (  # the longer ones first: UTF-32-LE begins as UTF-16-LE does
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ROWS_TOLD = 10_000  # rows between two reports of progress
_limit_lock = threading.Lock()
_QUOTED = "\0"  # stands before a quoted marker while the text is split; no text file holds it
_ANNOUNCEMENT = re.compile('("?(?i:sep)=)([^"\r\n])("?(?:\r\n|\n|\r))')  # Excel's first line, as in sep=;


class QuotedMarker(str):
    """A cell whose text is a marker of missing cells and stands in quotes: it may be an answer.

    Programs that tell the text "NA" from a missing cell write quotes around the text and none around the
    marker; the csv module forgets which cells were quoted.
    """

    __slots__ = ()


@dataclass(frozen=True)
class CsvStyle:
    """How a delimited text file is written.

    Attributes
    ----------
    delimiter : str
        One character between the cells of a row.
    encoding : str
        Codec of the text, without its byte order mark.
    bom : bytes
        The byte order mark at the beginning, often none.
    line_end : str
        What ends a row.
    final_line_end : bool
        Whether the last row ends so too.
    quoted_header : bool
        Whether names are quoted even when they need not be.
    quoted_columns : tuple of bool
        Whether the cells of a column are, but for markers of missing cells; empty means none.
    announcement : tuple of str
        What stands before and after the delimiter on a line above the names that tells it; mostly none.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    bom: bytes = b""
    line_end: str = "\n"
    final_line_end: bool = True
    quoted_header: bool = False
    quoted_columns: tuple[bool, ...] = ()
    announcement: tuple[str, str] | None = None


def parse_csv(
    data: bytes,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    name: str = "the input",
    progress: Progress | None = None,
) -> tuple[list[str], list[list[str]], CsvStyle]:
    r"""Split delimited text into its header, its columns and its style.

    Parameters
    ----------
    data : bytes
        The content of the file.
    delimiter : str, optional
        One character; by default as a first line such as ``sep=;`` says (Excel writes it), else found among
        comma, semicolon, tab and bar.
    encoding : str, optional
        By default as the byte order mark says, else UTF-8.
    name : str
        What to call the file in messages.
    progress : Progress, optional
        Hears of rows that are read.

    Returns
    -------
    header : list of str
        Names of the columns.
    columns : list of list of str
        The cells, column by column; a marker of missing cells in quotes is a `QuotedMarker`.
    style : CsvStyle
        For `render_csv`.

    Examples
    --------
    >>> header, columns, style = parse_csv(b'a;b\r\n1,5;"x;y"\r\n;z\r\n')
    >>> header, columns
    (['a', 'b'], [['1,5', ''], ['x;y', 'z']])
    >>> style.delimiter, style.line_end
    (';', '\r\n')
    """
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"A delimiter must be one character, no quote or line end, but it is {delimiter!r}.")
    text, encoding, bom = _decode(data, encoding, name)
    announced = _ANNOUNCEMENT.match(text)
    if announced:
        text = "\n" + text[announced.end() :]  # an empty line in its place, so that lines can be counted
        delimiter = delimiter or announced[2]
    if not text.strip("\r\n"):
        raise InputError(f"A table needs a line with column names and rows below it, but {name} is empty.")
    if "\0" in text:
        raise InputError(
            f"A table file must be text, but {name} holds NUL characters: it is binary, or UTF-16 without "
            "its byte order mark. Say which with --format or --encoding utf-16-le."
        )
    with _cells_of_any_length(len(text)):
        if delimiter is None:
            delimiter = _find_delimiter(text[:_SAMPLE])
        marked, n_quoted = _quoted_marker(delimiter).subn(rf'"{_QUOTED}\1"', text)
        header, columns = _parse(marked, delimiter, name, progress or Progress())
    if n_quoted:
        header = [column.removeprefix(_QUOTED) for column in header]
        columns = [
            [QuotedMarker(cell[1:]) if cell.startswith(_QUOTED) else cell for cell in column]
            for column in columns
        ]
    text = text.lstrip("\r\n")
    quoted_header, quoted_columns = _find_quoting(text[:_SAMPLE], delimiter, len(header))
    line_end = re.search(r"\r\n|\n|\r", text)
    style = CsvStyle(
        delimiter=delimiter,
        encoding=encoding,
        bom=bom,
        line_end=line_end.group() if line_end else "\n",
        final_line_end=text.endswith(("\n", "\r")),
        quoted_header=quoted_header,
        quoted_columns=quoted_columns,
        announcement=(announced[1], announced[3]) if announced else None,
    )
    return header, columns, style


def render_csv(
    header: Sequence[str],
    columns: Sequence[Sequence[str]],
    style: CsvStyle,
    progress: Progress | None = None,
) -> bytes:
    """Join a header and columns of cells into delimited text.

    Cells are quoted where they need it, and in the columns that the style quotes throughout. Markers of
    missing cells are quoted where they were when read.

    Examples
    --------
    >>> render_csv(["a", "b"], [["1", "2"], ["x,y", ""]], CsvStyle())
    b'a,b\\n1,"x,y"\\n2,\\n'
    """
    needs_quotes = re.compile(f'["\r\n{re.escape(style.delimiter)}]').search
    lonely = len(header) == 1  # an empty cell of its own would be an empty line, which is no row

    def cell(text: str, quote: bool) -> str:
        is_marked = isinstance(text, QuotedMarker)
        if (
            is_marked
            or (quote and text and text not in DEFAULT_MARKERS)
            or (lonely and not text)
            or needs_quotes(text)
        ):
            return '"' + text.replace('"', '""') + '"'
        return text

    quoted = style.quoted_columns or (False,) * len(header)
    cells = []
    for column, q in zip(columns, quoted, strict=True):
        cells.append([cell(text, q) for text in column])
        if progress is not None:
            progress.advance()
    names = [cell(name, style.quoted_header) for name in header]
    lines = [style.delimiter.join(names), *map(style.delimiter.join, zip(*cells, strict=True))]
    text = style.line_end.join(lines) + (style.line_end if style.final_line_end else "")
    if style.announcement:
        text = style.delimiter.join(style.announcement) + text
    try:
        return style.bom + text.encode(style.encoding)
    except UnicodeEncodeError as error:
        raise InputError(
            f"Every cell must have a code in {style.encoding}, but {error.object[error.start]!r} has none. "
            "Choose another encoding, such as --encoding utf-8."
        ) from error


def _decode(data: bytes, encoding: str | None, name: str) -> tuple[str, str, bytes]:
    """Text, codec and byte order mark."""
    bom, marked = next(((mark, codec) for mark, codec in _BOMS if data.startswith(mark)), (b"", None))
    try:
        if encoding is None:
            encoding = marked or "utf-8"
        elif marked is None or not _same_family(encoding, marked):
            bom = b""  # those bytes are letters in the encoding that was asked for
        else:
            encoding = marked
        return data[len(bom) :].decode(encoding), encoding, bom
    except LookupError as error:
        raise InputError(f"An encoding must be one Python knows, but {encoding!r} is not.") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"A text file must be in UTF-8 or in the encoding that is told, but line {line} of {name} is not "
            f"in {encoding}. Say which encoding it is in, for example --encoding latin-1."
        ) from error


def _same_family(encoding: str, marked: str) -> bool:
    """Whether "utf-16", "utf-8-sig", ... mean the codec that the byte order mark announces."""
    asked = codecs.lookup(encoding).name.removesuffix("-sig")
    return asked == marked or asked == marked.rsplit("-", 1)[0]


@contextmanager
def _cells_of_any_length(longest: int) -> Iterator[None]:
    """Let the csv module read cells of this many characters, in here only.

    Its limit holds for the whole process: it is raised for texts that may exceed it, and put back. One
    thread at a time, lest another one puts it back too early.
    """
    with _limit_lock:
        before = csv.field_size_limit()
        if longest > before:
            csv.field_size_limit(min(longest, _LONGEST_LIMIT))
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _reader(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    for row in reader:
        yield line, row
        line = reader.line_num + 1


def _parse(text: str, delimiter: str, name: str, progress: Progress) -> tuple[list[str], list[list[str]]]:
    """Header and columns; every row must have the header's length."""
    header: list[str] = []
    rows: list[list[str]] = []
    line = 0
    try:
        for line, row in _reader(text, delimiter):
            if not header:
                header = row  # lines left empty above it are skipped
            elif len(row) == len(header):
                rows.append(row)
                if len(rows) % _ROWS_TOLD == 0:
                    progress.advance(_ROWS_TOLD)
            elif not row:  # an empty line: a missing cell if there is but one column, else nothing
                if len(header) == 1:
                    rows.append([""])
            else:
                raise InputError(
                    f"Every row must have as many cells as there are column names, but line {line} of {name} "
                    f"has {len(row)} and the header has {len(header)} (delimiter {delimiter!r}). "
                    "Check the quotes on that line, remove lines above the column names, or give --delimiter."
                )
    except csv.Error as error:
        raise InputError(
            f"Quotes must come in pairs around whole cells, but after line {line} of {name} they do not "
            f"({error}). Check that part of the file, or give --delimiter."
        ) from error
    seen: dict[str, int] = {}
    for position, column in enumerate(header, start=1):
        if column in seen:
            raise InputError(
                f"Column names must differ, but columns {seen[column]} and {position} of {name} are both "
                f"named {column!r}. Rename one."
            )
        seen[column] = position
    if not rows:
        raise InputError(f"A table needs rows below its column names, but {name} has only the header.")
    return header, [list(column) for column in zip(*rows, strict=True)]


def _quoted_marker(delimiter: str) -> re.Pattern[str]:
    """Whole cells that are a marker in quotes; in a quoted cell no quote stands beside a delimiter alone."""
    words = "|".join(map(re.escape, filter(None, DEFAULT_MARKERS)))
    outside = f"[^{re.escape(delimiter)}\r\n]"
    return re.compile(f'(?<!{outside})"([ \t]*(?:{words})[ \t]*)"(?!{outside})')


def _find_delimiter(sample: str) -> str:
    """The delimiter that splits the header, and then the most rows into as many cells; comma if none does."""
    best, best_score = ",", (0.0, 0)
    for delimiter in DELIMITERS:
        widths: list[int] = []
        try:
            for _, row in islice(_reader(sample, delimiter), 1000):
                if row:
                    widths.append(len(row))
        except csv.Error:
            pass  # the rows before it still count
        if len(sample) == _SAMPLE and len(widths) > 2:
            widths.pop()  # cut off in the middle
        if not widths or widths[0] < 2:
            continue
        score = (sum(width == widths[0] for width in widths) / len(widths), widths[0])
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _find_quoting(sample: str, delimiter: str, width: int) -> tuple[bool, tuple[bool, ...]]:
    """Whether all names are quoted, and for each column whether all cells are that are not missing."""
    end = re.escape(delimiter)
    cell = re.compile(f'(?:"((?:[^"]|"")*)"|([^{end}\r\n]*))({end}|\r\n|\r|\n|\\Z)')
    quoted, bare = [0] * width, [0] * width
    header_bare, in_header, column = 0, True, 0
    for match in cell.finditer(sample):
        if (match.group(2) or "").startswith('"'):
            break  # the sample ends within this cell
        if match.group(2):
            header_bare += in_header
            if not in_header and column < width:
                bare[column] += match.group(2).strip() not in DEFAULT_MARKERS
        elif match.group(1) and not in_header and column < width:
            quoted[column] += 1
        column += 1
        if match.group(3) != delimiter:
            column, in_header = 0, False
    return not header_bare, tuple(q > 0 and not b for q, b in zip(quoted, bare, strict=True))

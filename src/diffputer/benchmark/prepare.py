"""From the file at a data set's public home to the table of the benchmark, as CSV.

Cells keep the text they have there. Only where a spreadsheet or News writes whole numbers as 731.0 they are
written 731, and names of columns are in lower case with underscores.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from ..errors import InputError

Table = tuple[Sequence[str], Iterable[Sequence[str]]]

ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country",
    "income",
)  # fmt: skip
DEFAULT = (
    "limit_bal", "sex", "education", "marriage", "age", "pay_0", "pay_2", "pay_3", "pay_4", "pay_5", "pay_6",
    "bill_amt1", "bill_amt2", "bill_amt3", "bill_amt4", "bill_amt5", "bill_amt6", "pay_amt1", "pay_amt2",
    "pay_amt3", "pay_amt4", "pay_amt5", "pay_amt6", "default_payment_next_month",
)  # fmt: skip
#: The authors read recording b1 twice and b3 never; "gesture" is theirs.
RECORDINGS = {
    "gesture": ("a1", "a2", "a3", "b1", "b1", "c1", "c3"),
    "gesture_full": ("a1", "a2", "a3", "b1", "b3", "c1", "c3"),
}
CHANNELS = ("lifestyle", "entertainment", "bus", "socmed", "tech", "world")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def prepare(name: str, raw: bytes, facts: Mapping[str, Any]) -> bytes:
    """Make the table of a data set from the file at its public home.

    Parameters
    ----------
    name : str
        A data set that the package knows.
    raw : bytes
        The file as downloaded.
    facts : mapping
        Its entry in ``datasets.json``.

    Returns
    -------
    bytes
        The table as CSV.
    """
    try:
        if name == "california":
            return raw  # it is the table
        header, rows = _PREPARE[name](name, raw, facts)
        return _write(header, rows)
    except (KeyError, IndexError, ValueError, zipfile.BadZipFile, ElementTree.ParseError) as error:
        raise InputError(
            f"The file of {name!r} must have the format that it is known to have at {facts['home']}, "
            f"however: {type(error).__name__}: {error}. Has it changed there?"
        ) from error


def _letter(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """letter-recognition.data: the letter, then 16 whole numbers; no header. The letter goes last."""
    rows = _cells(find_member(raw, "letter-recognition.data"))
    return (*facts["numeric"], facts["target"]), ([*row[1:], row[0]] for row in rows)


def _magic(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """magic04.data: ten numbers and the class; no header."""
    return (*facts["numeric"], facts["target"]), _cells(find_member(raw, "magic04.data"))


def _adult(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """adult.data: no header, a blank after each comma, "?" for the unknown."""
    return ADULT, _cells(find_member(raw, "adult.data"))


def _default(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """data.csv: ID, X1 to X23, Y; the columns of the spreadsheet in its order."""
    header, *rows = _cells(raw)
    if header != ["ID", *(f"X{i}" for i in range(1, 24)), "Y"]:
        raise ValueError(f"the columns are {header}")
    return DEFAULT, (row[1:] for row in rows)


def _shoppers(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """online_shoppers_intention.csv: numbers, categories, and Revenue."""
    _, *rows = _cells(find_member(raw, "online_shoppers_intention.csv"))
    return (*facts["numeric"], *facts["categorical"], facts["target"]), rows


def _bean(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """Dry_Bean_Dataset.xlsx: 16 numbers and the class, with a header."""
    _, *rows = read_sheet(find_member(raw, "Dry_Bean_Dataset.xlsx"))
    return (*facts["numeric"], facts["target"]), ([*map(write_number, row[:-1]), row[-1]] for row in rows)


def _gesture(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """a1_va3.csv, ...: 32 numbers and the phase, with a header; one file a recording, whose name is kept."""
    rows = [
        [*row, recording]
        for recording in RECORDINGS[name]
        for row in list(_cells(find_member(raw, f"{recording}_va3.csv")))[1:]
    ]
    return (*facts["numeric"], facts["target"], *facts["auxiliary"]), rows


def _news(name: str, raw: bytes, facts: Mapping[str, Any]) -> Table:
    """OnlineNewsPopularity.csv: an address, 58 features, shares; channel and weekday as indicators."""
    given, *rows = _cells(find_member(raw, "OnlineNewsPopularity.csv"))
    place = {column.lower(): j for j, column in enumerate(given)}
    numbers = [place[column] for column in (*facts["numeric"], facts["target"])]
    channel = [place[f"data_channel_is_{word}"] for word in CHANNELS]
    weekday = [place[f"weekday_is_{word}"] for word in WEEKDAYS]
    others = [place[column] for column in facts["auxiliary"]]
    header = (*facts["numeric"], facts["target"], *facts["categorical"], *facts["auxiliary"])

    def convert(row: Sequence[str]) -> list[str]:
        # The authors take the first largest indicator: an article without a channel gets channel 0.
        codes = [max(range(len(those)), key=lambda k: float(row[those[k]])) for those in (channel, weekday)]
        return [
            *(write_number(row[j]) for j in numbers),
            *map(str, codes),
            *(write_number(row[j]) for j in others),
        ]

    return header, map(convert, rows)


_PREPARE: dict[str, Callable[[str, bytes, Mapping[str, Any]], Table]] = {
    "letter": _letter,
    "gesture": _gesture,
    "gesture_full": _gesture,
    "magic": _magic,
    "bean": _bean,
    "adult": _adult,
    "default": _default,
    "shoppers": _shoppers,
    "news": _news,
}


def write_number(text: str) -> str:
    """Write a number as short as it can be read back.

    Examples
    --------
    >>> write_number("731.0"), write_number("0.50")
    ('731', '0.5')
    """
    number = float(text)
    return str(int(number)) if number.is_integer() else repr(number)


def find_member(raw: bytes, ending: str) -> bytes:
    """Give the file of a zip archive whose path ends so, also from an archive inside it."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = archive.namelist()
        for name in names:
            if name.rsplit("/", 1)[-1].lower() == ending.lower() and "__MACOSX" not in name:
                return archive.read(name)
        for name in names:
            if name.lower().endswith(".zip"):
                try:
                    return find_member(archive.read(name), ending)
                except KeyError:
                    continue
    raise KeyError(f"no file {ending} in the archive")


def read_sheet(raw: bytes) -> list[list[str]]:
    """Read the first sheet of an .xlsx file, cell by cell as text; numbers as they are stored."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(raw)) as book:
        shared: list[str] = []
        if "xl/sharedStrings.xml" in book.namelist():
            words = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
            shared = ["".join(t.text or "" for t in item.iter(f"{space}t")) for item in words]
        sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    rows = []
    for line in sheet.iter(f"{space}row"):
        row: list[str] = []
        for cell in line.iter(f"{space}c"):
            column = _column_number(cell.get("r") or "")
            row += [""] * (column - len(row))
            value = cell.findtext(f"{space}v") or "".join(t.text or "" for t in cell.iter(f"{space}t"))
            row.append(shared[int(value)] if cell.get("t") == "s" else value)
        rows.append(row)
    return rows


def _column_number(reference: str) -> int:
    """Give the position of a cell such as B7 in its row.

    >>> _column_number("A1"), _column_number("AB12")
    (0, 27)
    """
    number = 0
    for letter in re.sub(r"\d", "", reference):
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _cells(content: bytes) -> list[list[str]]:
    """Read comma-separated text, blanks around cells taken off and empty lines left out."""
    lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    return [cells for line in lines if any(cells := [cell.strip() for cell in line])]


def _write(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} cells, not {len(header)}: {row[:3]}")
        writer.writerow(row)
    return text.getvalue().encode()

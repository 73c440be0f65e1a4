"""Columns of text and the values they stand for: what kind a column is, and how a new cell of it is spelt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, get_args

import pandas as pd

from diffputer.errors import warn_about_data
from diffputer.tables.thousands import MARKS, could_be_thousands, group, looks_grouped, ungroup

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.(?P<decimals>[0-9]*))?|\.(?P<bare>[0-9]+))([eE](?P<exponent>[+-]?[0-9]{1,4}))?"
    r"|[+-]?(?i:inf|infinity)"
)
_PERHAPS_GROUPED = re.compile(r"[+-]?[0-9][0-9.,'_ ]*")
_INT64 = 2**63
_MOST_DECIMALS = 15

# Each pair of spellings of true and false that makes a column boolean.
_BOOLEANS = (("true", "false"), ("yes", "no"))

_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
_TIMES = ("", "T%H:%M:%S", " %H:%M:%S", "T%H:%M:%S.%f", " %H:%M:%S.%f", "T%H:%M", " %H:%M")
_FORMATS = tuple(date + time for date, time in product(_DATES, _TIMES))
_DIRECTIVES = {
    "%Y": "[0-9]{4}",
    "%m": "[0-9]{1,2}",
    "%d": "[0-9]{1,2}",
    "%H": "[0-9]{1,2}",
    "%M": "[0-9]{2}",
    "%S": "[0-9]{2}",
    "%f": "[0-9]{1,6}",
}
_ZONE_NAME = r"Z|[+-][0-9]{2}:?[0-9]{2}"
_ZONE = re.compile(rf"(?<=[0-9])({_ZONE_NAME})$")

Kind = Literal["integer", "number", "boolean", "date", "text"]

_MARK_NAMES = {".": "dots", ",": "commas"}


@dataclass(frozen=True)
class TextColumn:
    """What the text of a column stands for, and how its cells are spelt.

    Attributes
    ----------
    kind : {"integer", "number", "boolean", "date", "text"}
        Kind of value.
    decimals : int
        Most decimals among the numbers.
    exponents : bool
        Whether any number is too small for that many decimals and is written with an exponent.
    decimal_mark : str
        Point or comma.
    thousands : str
        What parts the thousands of its numbers, if anything does.
    true, false : str
        Spelling of the two values of a boolean column.
    date_format : str
        As in ``strftime``.
    zone : str
        The time zone after every time, if there is one.
    padded : bool
        Whether days, months and hours below ten carry a leading zero.
    fraction_digits : int
        Digits of the fractions of a second.
    """

    kind: Kind
    decimals: int = 0
    exponents: bool = False
    decimal_mark: str = "."
    thousands: str = ""
    true: str = "true"
    false: str = "false"
    date_format: str = ""
    zone: str = ""
    padded: bool = True
    fraction_digits: int = 0

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TextColumn:
        """Rebuild a column from its attributes; ValueError where they are those of none."""
        column = cls(**plain)
        numbers = (column.decimals, column.fraction_digits)
        texts = (column.kind, column.decimal_mark, column.thousands, column.true, column.false)
        words = {word for pair in _BOOLEANS for word in pair}
        if (
            not all(type(number) is int and 0 <= number <= _MOST_DECIMALS for number in numbers)
            or not all(isinstance(text, str) for text in (*texts, column.date_format, column.zone))
            or not all(isinstance(flag, bool) for flag in (column.exponents, column.padded))
            or column.kind not in get_args(Kind)
            or column.decimal_mark not in (".", ",")
            or column.thousands not in ("", *MARKS)
            or not {column.true.casefold(), column.false.casefold()} <= words
            or column.date_format not in (("", *_FORMATS) if column.kind != "date" else _FORMATS)
            or not (column.zone == "" or re.fullmatch(_ZONE_NAME, column.zone))
        ):
            raise ValueError(f"no spelling of a column: {column!r:.300}")
        return column

    def values(self, texts: Sequence[str], missing: Sequence[bool]) -> Any:
        """The column as a typed pandas array, with NA where missing."""
        cells = [None if gone else text for text, gone in zip(texts, missing, strict=True)]
        if self.kind == "text":
            return pd.array(cells, dtype="string")
        stripped = [None if cell is None else cell.strip() for cell in cells]
        if self.thousands:
            stripped = [s and ungroup(s, self.thousands, self.decimal_mark) for s in stripped]
        if self.kind == "integer":
            return pd.array([None if s is None else int(s) for s in stripped], dtype="Int64")
        if self.kind == "number":
            numbers = [None if s is None else float(s.replace(self.decimal_mark, ".")) for s in stripped]
            return pd.Series(numbers, dtype="float64").array
        if self.kind == "boolean":
            true = next(pair[0] for pair in _BOOLEANS if self.true.casefold() in pair)
            return pd.array([None if s is None else s.casefold() == true for s in stripped], dtype="boolean")
        times = [None if s is None else s.removesuffix(self.zone) for s in stripped]
        return pd.to_datetime(pd.Series(times, dtype=object), format=self.date_format).array

    def spell(self, value: Any) -> str:
        """A value as text of this column.

        Examples
        --------
        >>> describe_column(["1.50", "22.3"]).spell(3.14159)
        '3.14'
        >>> describe_column(["No", "Yes"]).spell(True)
        'Yes'
        >>> describe_column(["31.12.1999"]).spell(pd.Timestamp(2001, 2, 3))
        '03.02.2001'
        """
        if self.kind in ("integer", "number"):
            text = self._spell_number(value)
            return group(text, self.thousands, self.decimal_mark) if self.thousands else text
        if self.kind == "boolean":
            return self.true if value else self.false
        if self.kind == "date":
            return self._spell_date(pd.Timestamp(value))
        return str(value)

    def words(self) -> str:
        """What the column holds and how it is spelt, in a few words.

        Examples
        --------
        >>> describe_column(["31.12.1999"]).words(), describe_column(["1,5"], [","]).words()
        ('a date such as 31.01.2000', "a number with decimal mark ','")
        """
        if self.kind == "date":
            return f"a date such as {self.spell(pd.Timestamp(2000, 1, 31))}"
        if self.kind == "boolean":
            return f"{self.true} or {self.false}"
        if self.kind == "number":
            return f"a number with decimal mark {self.decimal_mark!r}"
        return {"integer": "a whole number", "text": "text"}[self.kind]

    def _spell_number(self, value: Any) -> str:
        if self.kind == "integer" and value == int(value):
            return str(int(value))
        if self.kind == "integer":  # asked not to round: the shortest exact text
            text = repr(float(value))
        elif self.exponents:
            text = f"{float(value):.{_MOST_DECIMALS}g}"
        else:
            text = f"{float(value):.{self.decimals}f}"
        if float(text) == 0.0:
            text = text.removeprefix("-")
        return text.replace(".", self.decimal_mark)

    def _spell_date(self, stamp: Any) -> str:
        unit = {"%f": "us", "%S": "s", "%M": "min"}  # round to what the format can say
        stamp = stamp.round(next((u for mark, u in unit.items() if mark in self.date_format), "D"))
        fraction = stamp.strftime("%f")[: self.fraction_digits]
        text: str = stamp.strftime(self.date_format.replace("%f", fraction))
        return (text if self.padded else re.sub(r"(?<![0-9:])0(?=[0-9][/.:])", "", text)) + self.zone


#: How new cells of a column without any value are spelt, by the kind that is stated.
OF_KINDS = {
    "integer": TextColumn("integer"),
    "continuous": TextColumn("number", _MOST_DECIMALS, exponents=True),
    "boolean": TextColumn("boolean"),
    "datetime": TextColumn("date", date_format="%Y-%m-%d"),
}


def describe_column(
    observed: Sequence[str], decimal_marks: Sequence[str] = (".",), thousands: str = ""
) -> TextColumn:
    """Find what the observed cells of a column stand for.

    A kind is taken only if every cell fits it; what fits none, such as numbers with leading zeros, whole
    numbers that all begin with a plus or dates whose day and month could be exchanged, is text.

    Parameters
    ----------
    observed : sequence of str
        The cells that are not missing.
    decimal_marks : sequence of str
        Decimal marks to try, in this order.
    thousands : str
        What may part the thousands of numbers.

    Examples
    --------
    >>> columns = (["1", "-20"], ["1", "2.5"], ["yes", "No"], ["007"], ["2020-02-29"])
    >>> [describe_column(column).kind for column in columns]
    ['integer', 'number', 'boolean', 'text', 'date']
    """
    counts = Counter(cell.strip() for cell in observed)
    if not counts:
        return TextColumn("text")
    for mark in decimal_marks:
        plain = Counter(ungroup(text, thousands, mark) for text in counts)
        if column := _as_numbers(plain, mark):
            return column if plain.keys() == counts.keys() else replace(column, thousands=thousands)
    return _as_booleans(counts) or _as_dates(counts) or TextColumn("text")


def describe_columns(
    names: Sequence[str],
    observed: Sequence[Sequence[str]],
    decimal: str | None,
    thousands: str | None,
    delimiter: str,
    known: Mapping[str, TextColumn] | None = None,
) -> list[TextColumn]:
    """Find what the columns of a file stand for; warn of those whose text may have been meant otherwise.

    Parameters
    ----------
    names : sequence of str
        Of the columns.
    observed : sequence of sequences of str
        Of each column the cells that are not missing.
    decimal : str or None
        The decimal mark; None: whichever fits.
    thousands : str or None
        What parts thousands; None: nothing does, and what may is asked about.
    delimiter : str
        What parts the cells of the file.
    known : dict of name -> TextColumn, optional
        How columns of these names were spelt in the file of a fitted model, as which they are read if they
        can be: their dates are not in doubt, nor are their marks.
    """
    known = known or {}
    marks = tuple(mark for mark in (".", ",") if mark != thousands) if decimal is None else (decimal,)
    columns = [describe_column(cells, marks, thousands or "") for cells in observed]
    doubts: list[str | None] = [None] * len(columns)
    if decimal is None and thousands is None:
        doubts = _doubtful_marks(columns, observed, delimiter)
    for j, (name, cells, mark) in enumerate(zip(names, observed, doubts, strict=True)):
        if name in known and (same := _as_known(cells, known[name], decimal, thousands)) is not None:
            columns[j] = same
            continue
        if name in known and columns[j].kind != "text" and mark is None:
            columns[j] = _with_digits(columns[j], known[name])
            if known[name].kind in ("number", "date") or known[name].thousands:
                warn_about_data(
                    f"Column {name!r} is spelt in another way than in the table that was fitted: "
                    f"{cells[0]!r} is read as {columns[j].words()}; there it was {known[name].words()}. If "
                    "that is wrong, spell the column as it was."
                )
        if mark is not None:
            columns[j] = describe_column(cells, ())
            example = next(cell for cell in cells if mark in cell)
            warn_about_data(
                f"Column {name!r} is read as text: the {_MARK_NAMES[mark]} in its numbers ({example!r}) may "
                f"be decimal marks or part thousands. Say --thousands {mark} if they part thousands; say "
                f"--decimal {mark} if they are decimal marks, and let all columns have the same."
            )
        elif columns[j].kind == "text" and has_doubtful_dates(cells):
            warn_about_data(
                f"Column {name!r} is read as text: day and month of its dates ({cells[0]!r}) could be "
                "exchanged. Write them as 2020-12-31."
            )
        elif columns[j].kind == "text" and thousands is None and (mark := _parting_mark(cells, marks)):
            example = next(cell for cell in cells if mark in cell)
            warn_about_data(
                f"Column {name!r} is read as text: the thousands of its numbers ({example!r}) may be parted "
                f"by {mark!r}. If they are, say so with --thousands {mark!r}."
            )
        elif columns[j].kind == "text" and (word := stray_marker(cells, marks)) is not None:
            warn_about_data(
                f"Column {name!r} is read as text: all its cells are numbers but those that hold {word!r}. "
                f"If that marks a missing cell, say so with --missing {word!r}, or, for this column alone, "
                f"--missing {f'{name}={word}'!r}."
            )
    return columns


def _as_known(
    observed: Sequence[str], known: TextColumn, decimal: str | None, thousands: str | None
) -> TextColumn | None:
    """Read a column as that of a fitted file was read, None where its cells are spelt in another way.

    Without any cell it is spelt as that was; else as its own cells are, where they tell.
    """
    if not observed or known.kind == "text":
        return known
    if known.kind in ("integer", "number"):
        parting = known.thousands if thousands is None else thousands
        found = describe_column(observed, (decimal or known.decimal_mark,), parting)
        # Whole numbers had no decimal mark that could be the one of these.
        possible = ("integer", "number") if known.kind == "number" else ("integer",)
        return _with_digits(found, known) if found.kind in possible else None
    counts = Counter(cell.strip() for cell in observed)
    if known.kind == "boolean":
        return _as_booleans(counts)
    date = next(date for date in _DATES if known.date_format.startswith(date))
    fits, zone = _date_formats(counts)
    same = [date_format for date_format in fits if date_format.startswith(date)]
    return _as_date(counts, same[0], zone) if same else None


def _with_digits(column: TextColumn, known: TextColumn) -> TextColumn:
    """A column of numbers with as many decimals as one of a fitted file had."""
    if known.kind != "number" or column.kind not in ("integer", "number"):
        return column
    mark = column.decimal_mark if column.kind == "number" else known.decimal_mark
    return replace(known, decimal_mark=mark, thousands=column.thousands)


def _doubtful_marks(
    columns: Sequence[TextColumn], observed: Sequence[Sequence[str]], delimiter: str
) -> list[str | None]:
    """Give the mark in the numbers of each column that may part thousands, None where there is no doubt.

    There is doubt where another column has the other mark for decimals, where numbers without the mark are
    all below a thousand, and of commas in any file whose delimiter is not chosen to spare them.
    """
    may_be = [
        column.kind == "number" and could_be_thousands(cells, column.decimal_mark)
        for column, cells in zip(columns, observed, strict=True)
    ]
    decimal = {
        column.decimal_mark
        for column, doubt in zip(columns, may_be, strict=True)
        if column.kind == "number" and not doubt
    }
    doubts: list[str | None] = []
    for column, cells, doubt in zip(columns, observed, may_be, strict=True):
        mark = column.decimal_mark
        other = "," if mark == "." else "."
        is_doubtful = doubt and (
            other in decimal or (mark == "," and delimiter != ";") or looks_grouped(cells, mark)
        )
        doubts.append(mark if is_doubtful else None)
    return doubts


def _parting_mark(observed: Sequence[str], decimal_marks: Sequence[str]) -> str | None:
    """Give what would make numbers of a column of text if it parted thousands."""
    if not observed or not _PERHAPS_GROUPED.fullmatch(observed[0].strip()):
        return None  # nearly all text, which may be long
    for mark in MARKS:
        others = [decimal for decimal in decimal_marks if decimal != mark]
        if describe_column(observed, others, mark).thousands:
            return mark
    return None


def stray_marker(observed: Sequence[str], decimal_marks: Sequence[str] = (".",)) -> str | None:
    """The one word that keeps a column of numbers from being one: probably a marker of missing cells.

    Examples
    --------
    >>> stray_marker(["1", "2", "?", "3", "?"])
    '?'
    """
    words: set[str] = set()
    numbers = 0
    for cell in observed:
        text = cell.strip()
        if any(_NUMBER.fullmatch(text.replace(mark, ".")) for mark in decimal_marks):
            numbers += 1
        else:
            words.add(text)
            if len(words) > 1:
                return None
    word = words.pop() if words else None
    looks_numeric = word is not None and re.search("[0-9]", word) is not None
    return word if 2 * numbers > len(observed) and not looks_numeric else None


def _as_numbers(counts: Counter[str], mark: str) -> TextColumn | None:
    if all(text.startswith("+") and _INTEGER.fullmatch(text) for text in counts):
        return None  # telephone numbers: a sign that says nothing belongs to a name, not to an amount
    if all(_INTEGER.fullmatch(text) and len(text) < 21 and -_INT64 <= int(text) < _INT64 for text in counts):
        return TextColumn("integer", decimal_mark=mark)
    other_mark = "," if mark == "." else "."
    decimals, exponents = 0, False
    for text in counts:
        match = None if other_mark in text else _NUMBER.fullmatch(text.replace(mark, "."))
        if match is None:
            return None
        digits = len(match["decimals"] or match["bare"] or "") - int(match["exponent"] or 0)
        exponents |= match["exponent"] is not None and digits > _MOST_DECIMALS
        decimals = max(decimals, digits)
    return TextColumn("number", min(decimals, _MOST_DECIMALS), exponents, decimal_mark=mark)


def _as_booleans(counts: Counter[str]) -> TextColumn | None:
    for pair in _BOOLEANS:
        if all(text.casefold() in pair for text in counts):
            common = [text for text, _ in counts.most_common()]
            model = common[0]
            case = str.upper if model.isupper() else str.capitalize if model[0].isupper() else str.lower
            spelling = [
                next((text for text in common if text.casefold() == word), case(word)) for word in pair
            ]
            return TextColumn("boolean", true=spelling[0], false=spelling[1])
    return None


def has_doubtful_dates(observed: Sequence[str]) -> bool:
    """Whether all cells are dates of which day and month could be exchanged.

    Examples
    --------
    >>> has_doubtful_dates(["03/04/2020", "05/06/2020"]), has_doubtful_dates(["03/04/2020", "25/06/2020"])
    (True, False)
    """
    counts = Counter(cell.strip() for cell in observed)
    return bool(counts) and len(_date_formats(counts)[0]) > 1


def _date_formats(counts: Counter[str]) -> tuple[list[str], str]:
    """Give the formats in which all texts are dates, and their time zone."""
    first = next(iter(counts))
    match = _ZONE.search(first) if ":" in first else None
    zone = match.group() if match else ""
    fits = []
    for date_format in _FORMATS:
        pattern = re.compile(_date_pattern(date_format) + re.escape(zone))
        if pattern.fullmatch(first) and all(map(pattern.fullmatch, counts)):
            times = pd.Series([text.removesuffix(zone) for text in counts], dtype=object)
            if pd.to_datetime(times, format=date_format, errors="coerce").notna().all():
                fits.append(date_format)
    return fits, zone


def _as_dates(counts: Counter[str]) -> TextColumn | None:
    fits, zone = _date_formats(counts)
    if len(fits) != 1:  # none, or day and month could be exchanged
        return None
    return _as_date(counts, fits[0], zone)


def _as_date(counts: Counter[str], date_format: str, zone: str) -> TextColumn:
    padded = not any(re.search(r"(?<![0-9])[0-9][/.:]", text) for text in counts)
    fractions = [re.search(r":[0-9]{2}\.([0-9]+)", text) for text in counts]
    digits = max((len(fraction[1]) for fraction in fractions if fraction), default=0)
    return TextColumn("date", date_format=date_format, zone=zone, padded=padded, fraction_digits=digits)


def _date_pattern(date_format: str) -> str:
    """A regular expression for a format; ISO dates must be padded, others need not."""
    pattern = re.escape(date_format).replace(r"\%", "%")
    if date_format.startswith("%Y"):
        pattern = pattern.replace("%m", "[0-9]{2}").replace("%d", "[0-9]{2}").replace("%H", "[0-9]{2}")
    for directive, digits in _DIRECTIVES.items():
        pattern = pattern.replace(directive, digits)
    return pattern

"""Numbers whose thousands are parted by a mark: read, written, and told from decimals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from diffputer.errors import InputError

#: What may part thousands.
MARKS = (".", ",", "'", " ", "_")
#: Numbers with marks that it takes to see that those without are small.
FEWEST_GROUPED = 3
_BELOW_THOUSAND = re.compile(r"[+-]?[0-9]{1,3}")


@cache
def _grouped(mark: str) -> re.Pattern[str]:
    return re.compile(rf"[+-]?[1-9][0-9]{{0,2}}({re.escape(mark)}[0-9]{{3}})+")


def check_marks(decimal: str | None, thousands: str | None) -> None:
    """Refuse marks that cannot be those of decimals or of thousands."""
    if decimal not in (None, ".", ","):
        raise InputError(f"A decimal mark must be '.' or ',', but it is {decimal!r}.")
    if thousands is not None and (thousands not in MARKS or thousands == decimal):
        marks = " ".join(map(repr, MARKS))
        raise InputError(
            f"Thousands must be parted by one of {marks}, and decimals by another, but they are parted by "
            f"{thousands!r}."
        )


def ungroup(text: str, thousands: str, decimal: str) -> str:
    """Take the marks out of a number whose thousands they part; other text stays.

    Examples
    --------
    >>> ungroup("1.234.567,5", ".", ","), ungroup("12.34", ".", ",")
    ('1234567,5', '12.34')
    """
    if not thousands or thousands not in text:
        return text
    whole, mark, rest = text.partition(decimal)
    return whole.replace(thousands, "") + mark + rest if _grouped(thousands).fullmatch(whole) else text


def group(text: str, thousands: str, decimal: str) -> str:
    """Part the thousands of a number that is written without marks.

    Examples
    --------
    >>> group("-1234567,5", ".", ","), group("-0,5", ".", ",")
    ('-1.234.567,5', '-0,5')
    """
    whole, mark, rest = text.partition(decimal)
    digits = whole.lstrip("+-")
    if not digits.isdigit():  # an exponent
        return text
    sign = whole.removesuffix(digits)
    return sign + f"{int(digits):,}".replace(",", thousands) + mark + rest


def could_be_thousands(observed: Sequence[str], mark: str) -> bool:
    """Whether the marks in all numbers may be there to part thousands.

    Examples
    --------
    >>> could_be_thousands(["1,234", "17"], ","), could_be_thousands(["1,234", "0,5"], ",")
    (True, False)
    """
    marked = [cell.strip() for cell in observed if mark in cell]
    return bool(marked) and all(map(_grouped(mark).fullmatch, marked))


def looks_grouped(observed: Sequence[str], mark: str) -> bool:
    """Whether several numbers have the mark, and those that have none are below a thousand."""
    marked = sum(mark in cell for cell in observed)
    plain = [cell.strip() for cell in observed if mark not in cell]
    return marked >= FEWEST_GROUPED and bool(plain) and all(map(_BELOW_THOUSAND.fullmatch, plain))

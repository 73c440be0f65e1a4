"""Text that may be no category: free text, numbers, and words that mark a missing value."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pandas as pd

TEXT_MIN_OBSERVED = 10  # fewer values say nothing about whether they repeat
NUMERIC_MIN_LEVELS = 20  # text with more levels than this ...
NUMERIC_MIN_SHARE = 0.8  # ... of which this share reads as numbers was probably meant as numbers
MOST_NAMED = 3
SENTENCE = (4, 40)  # words or characters from which a value reads as a sentence
_ADDRESS = re.compile(r"(https?://|www\.)\S+|\S+@\S+\.\w+|(doi:|10\.[0-9]{4,}/)\S+", re.IGNORECASE)
_LEADING_ZERO = re.compile(r"\s*[+-]?0[0-9]")

#: What often marks a missing value (without regard to case), among whatever other levels.
_MARKERS = frozenset({"", "?", "??", "-", "--", ".", "*", "na", "n/a", "n.a.", "#n/a", "nan", "null"})
#: Words that are a level of their own among other words, but hardly among numbers.
_MARKERS_AMONG_NUMBERS = _MARKERS | {"none", "missing", "unknown", "nil", "x"}


def why_free_text(levels: Sequence[str], n_observed: int, n_missing: int) -> str:
    """Say in a few words why text is no category; empty if it may be one.

    Free text are addresses of the web and of mail; values that hardly repeat; and sentences, unless there
    are few of them in a column that is mostly observed, as in a survey.

    Examples
    --------
    >>> why_free_text(["Adult not sampled.", "No blood sample obtained from this bird."], 30, 300)
    'sentences'
    >>> why_free_text(["Strongly agree", "Neither agree nor disagree", "Disagree"], 300, 30)
    ''
    """
    n = len(levels)
    sparse = n_missing > 4 * n_observed
    most = 0.2 if sparse else 0.5 if n_observed >= 50 else 0.9
    if n_observed >= TEXT_MIN_OBSERVED and n > most * n_observed:
        return f"{n} distinct values"
    if 2 * sum(_ADDRESS.fullmatch(level.strip()) is not None for level in levels) >= n:
        return "addresses of the web or of mail"
    long = sum(len(level.split()) >= SENTENCE[0] or len(level) > SENTENCE[1] for level in levels)
    if 2 * long >= n and (n > 20 or 5 * n > n_observed or n_missing > n_observed):
        return "sentences"
    return ""


#: Columns and words of a text file that reading it has decided, and warned, to be answers.
_ANSWERS: ContextVar[frozenset[tuple[Hashable, str]]] = ContextVar("answers", default=frozenset())


@contextmanager
def known_answers(answers: frozenset[tuple[Hashable, str]]) -> Iterator[None]:
    """Let `find_markers` pass over columns and words that are known to be answers."""
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def find_markers(column: Hashable, levels: Sequence[Any]) -> list[str]:
    """Categories of a column that often mark a missing value.

    Examples
    --------
    >>> find_markers("workclass", ["Private", "?", "State-gov"])
    ['?']
    """
    answers = _ANSWERS.get()
    found = [level for level in levels if _is_marker(level, _MARKERS)]
    return [level for level in found if (column, level.strip()) not in answers]


def reads_as_numbers(levels: Sequence[Any]) -> str:
    """Give a few words if text was probably meant as numbers.

    Few levels that all read as numbers are codes of categories as often as not: nothing is said of them. Nor
    is anything said of numbers with leading zeros: they are names, which a conversion would shorten.

    Examples
    --------
    >>> reads_as_numbers(["1", "2", "3"])
    ''
    >>> reads_as_numbers(["1", "2", "3", "?"])
    "reads as numbers but for '?'"
    >>> reads_as_numbers([f"{code:05d}" for code in range(501, 601)])
    ''
    """
    readable = pd.to_numeric(pd.Series(levels, dtype=object), errors="coerce").notna().to_numpy()
    words = [level for level, is_number in zip(levels, readable, strict=True) if not is_number]
    if len(levels) > NUMERIC_MIN_LEVELS:
        meant = bool(readable.mean() >= NUMERIC_MIN_SHARE)
    else:
        meant = readable.sum() >= 2 and bool(words)
        meant &= all(_is_marker(word, _MARKERS_AMONG_NUMBERS) for word in words)
    if not meant:
        return ""
    if not words:
        return "" if any(map(_LEADING_ZERO.match, map(str, levels))) else "reads as numbers"
    more = ", ..." if len(words) > MOST_NAMED else ""
    return f"reads as numbers but for {', '.join(map(repr, words[:MOST_NAMED]))}{more}"


def _is_marker(level: Any, markers: frozenset[str]) -> bool:
    return isinstance(level, str) and level.strip().casefold() in markers

"""Words that mark a missing cell in a text file: found column by column, and kept where they may be answers.

"NA" is Namibia and R's missing value, "None" is a level of a survey and Python's missing value. An empty
cell is always missing. Of a word, the first rule that applies decides:

1. what the user states by ``missing``, ``keep`` and ``only_missing``;
2. in a column whose other values are numbers, dates or yes and no, or mostly have no letter (postal codes):
   missing. In a column without any other value: missing too;
3. in quotes, where other cells of the column have none or where the file has the word without quotes as
   well: an answer. Without quotes, where all other cells of the column or the same word have them: missing;
4. NaN, nan, NULL, null: missing. No questionnaire has them;
5. NA among two-letter codes: an answer;
6. a word that is missing in another column by rule 2: missing;
7. None: an answer. NA and N/A: an answer if the file has empty cells, else missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from diffputer.errors import InputError, SettingError, warn_about_data
from diffputer.tables.csvtext import DEFAULT_MARKERS, QuotedMarker
from diffputer.tables.textcolumns import describe_column, has_doubtful_dates

_WORDS = frozenset(filter(None, DEFAULT_MARKERS))
_NEVER_ANSWERS = frozenset({"NaN", "nan", "NULL", "null"})
_CODE = re.compile("[A-Z]{2}")
_FEWEST_CODES = 3  # distinct codes that make a column one of codes
_ALONE = "no other value"
_MOST_NAMED = 6  # columns named for each word


@dataclass(frozen=True)
class MarkerWord:
    """A word in a column of a text file that marks a missing cell, or might.

    Attributes
    ----------
    column, word : str
        Where it stands, and what it is.
    count : int
        Cells that hold it.
    taken_for_missing : bool
        Whether they are missing; else they are observed, and the word is a category.
    reason : str
        Why, in a few words.
    stated : bool
        Whether the user has stated it.
    """

    column: str
    word: str
    count: int
    taken_for_missing: bool
    reason: str
    stated: bool = False


def find_missing(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    quoted_columns: Sequence[bool] = (),
    *,
    missing: Sequence[str] = (),
    keep: Sequence[str] = (),
    only_missing: Sequence[str] | None = None,
    decimal_marks: Sequence[str] = (".", ","),
    thousands: str = "",
    answers: Collection[tuple[Any, Any]] = (),
) -> tuple[list[list[bool]], list[MarkerWord]]:
    """Find the missing cells of a text file.

    Parameters
    ----------
    header, cells
        Names of the columns, and their cells column by column.
    quoted_columns
        Whether all cells of a column that are no words for missing ones are in quotes.
    missing, keep
        ``WORD`` or ``COLUMN=WORD``: always missing; never missing. One of a column comes first.
    only_missing
        Exactly these words are missing, and empty cells.
    decimal_marks, thousands
        What numbers may have, see `describe_column`.
    answers
        Columns and words that are categories of a fitted model.

    Returns
    -------
    missing : list of list of bool
        Of each column, where it is missing.
    words : list of MarkerWord
        Which words were found, and what they were taken for.

    Examples
    --------
    >>> cells = [["DE", "FR", "NA", "US"], ["1", "NA", "3", ""]]
    >>> gone, words = find_missing(["country", "n"], cells)
    >>> gone
    [[False, False, False, False], [False, True, False, True]]
    >>> [(word.column, word.count, word.taken_for_missing) for word in words]
    [('country', 1, False), ('n', 1, True)]
    """
    stated = _Stated.read(header, missing, keep, only_missing, answers)
    quoted_columns = quoted_columns or (False,) * len(header)
    found = [_count(texts, stated.words_of(name)) for name, texts in zip(header, cells, strict=True)]
    values = [
        _has_values(texts, stated.words_of(name) | _WORDS, decimal_marks, thousands) if counts else ""
        for name, texts, counts in zip(header, cells, found, strict=True)
    ]
    file = _File(
        among_values=frozenset(
            word
            for counts, why in zip(found, values, strict=True)
            if why not in ("", _ALONE)
            for word, _ in counts
        ),
        bare=frozenset(word for counts in found for word, is_quoted in counts if not is_quoted),
        has_empty_cells=any(found) and any("" in map(str.strip, texts) for texts in cells),
    )

    words: list[MarkerWord] = []
    gone: list[list[bool]] = []
    for j, (name, texts) in enumerate(zip(header, cells, strict=True)):
        taken: dict[tuple[str, bool], bool] = {}
        for (word, is_quoted), count in found[j].items():
            told = stated.of(name, word)
            quotes = quoted_columns[j] or ((word, True) in found[j] and word in file.bare)
            is_missing, reason = told or _decide(word, is_quoted, texts, values[j], quotes, file)
            taken[word, is_quoted] = is_missing
            words.append(MarkerWord(name, word, count, is_missing, reason, told is not None))
        gone.append(_where(texts, taken))
    return gone, _merged(words)


def warn_of_words(words: Sequence[MarkerWord]) -> None:
    """Warn of words that were taken for missing cells or kept, unless the user has stated it."""
    open_words = [word for word in words if not word.stated]
    if not open_words:
        return
    said = []
    for taken, what in ((True, "Taken for missing"), (False, "Kept as an answer")):
        names = dict.fromkeys(one.word for one in open_words if one.taken_for_missing == taken)
        for name in names:
            found = [one for one in open_words if (one.word, one.taken_for_missing) == (name, taken)]
            shown = ", ".join(f"{one.column!r} ({one.count:,}; {one.reason})" for one in found[:_MOST_NAMED])
            if more := found[_MOST_NAMED:]:
                shown += f" and {len(more):,} more columns ({sum(one.count for one in more):,})"
            remedy = (
                f"--keep {name} or --keep COLUMN={name} if it is an answer"
                if taken
                else f"--missing {name} or --missing COLUMN={name} if it marks missing cells"
            )
            said.append(f"{what}: {name!r} in {shown}; {remedy}.")
    warn_about_data(f"Words that often mark missing cells were found. {' '.join(said)}")


@dataclass(frozen=True)
class _File:
    """What the whole file says about its words."""

    among_values: frozenset[str]
    bare: frozenset[str]
    has_empty_cells: bool


@dataclass(frozen=True)
class _Stated:
    """What the user states: (column or None, word) -> whether it is missing."""

    words: dict[tuple[str | None, str], bool]
    only: bool
    answers: frozenset[tuple[str, str]]

    @classmethod
    def read(
        cls,
        header: Sequence[str],
        missing: Sequence[str],
        keep: Sequence[str],
        only_missing: Sequence[str] | None,
        answers: Collection[tuple[Any, Any]],
    ) -> _Stated:
        words: dict[tuple[str | None, str], bool] = {}
        for option, texts, is_missing in (
            ("--only-missing", only_missing or (), True),
            ("--missing", missing, True),
            ("--keep", keep, False),
        ):
            for text in texts:
                column, sign, word = text.rpartition("=")
                if not sign or column not in header:
                    if sign and option == "--keep":
                        raise InputError(
                            f"--keep must be given as WORD or COL=WORD, with a column of the table; got "
                            f"{text!r}. The table has: {', '.join(map(repr, header[:30]))}."
                        )
                    column, word = "", text
                place = (column or None, word.strip())
                if words.setdefault(place, is_missing) != is_missing:
                    raise SettingError(f"A word is either missing or kept; {text!r} is both. Choose one.")
        return cls(words, only_missing is not None, frozenset(pair for pair in answers if pair[1] in _WORDS))

    def words_of(self, column: str) -> set[str]:
        """Words to look for in a column."""
        own = {word for name, word in self.words if name in (None, column)}
        return (own if self.only else own | _WORDS) - {""}

    def of(self, column: str, word: str) -> tuple[bool, str] | None:
        """Whether a word is missing, and why, if the user has stated it."""
        for place in ((column, word), (None, word)):
            if place in self.words:
                return self.words[place], "as stated"
        return (False, "a category of the model") if (column, word) in self.answers else None


def _count(texts: Sequence[str], words: set[str]) -> Counter[tuple[str, bool]]:
    """How often each word occurs, with and without quotes."""
    if not words.intersection(map(str.strip, set(texts))):
        return Counter()
    return Counter(
        (str(word), isinstance(text, QuotedMarker)) for text in texts if (word := text.strip()) in words
    )


def _has_values(texts: Sequence[str], words: set[str], decimal_marks: Sequence[str], thousands: str) -> str:
    """Why no word can be an answer in a column; empty if it can."""
    others = [text for text in set(map(str.strip, texts)) if text and text not in words]
    if not others:
        return _ALONE
    kind = describe_column(others, decimal_marks, thousands).kind
    if kind != "text":
        return {"boolean": "among yes and no", "date": "among dates"}.get(kind, "among numbers")
    if has_doubtful_dates(others):
        return "among dates"
    lettered = sum(any(map(str.isalpha, text)) for text in others)
    return "" if 2 * lettered > len(others) else "among values without letters"


def _decide(
    word: str, is_quoted: bool, texts: Sequence[str], values: str, is_quoted_column: bool, file: _File
) -> tuple[bool, str]:
    """Whether a word in a column is missing, and why."""
    if values:
        return True, values
    if is_quoted and (not is_quoted_column or word in file.bare):
        return False, "in quotes"
    if is_quoted_column and not is_quoted:
        return True, "without quotes"
    if word in _NEVER_ANSWERS:
        return True, "written by programs"
    if word == "NA" and _are_codes(texts):
        return False, "among two-letter codes"
    if word in file.among_values:
        return True, "as in other columns"
    if word == "None" or file.has_empty_cells:
        return False, "among other words"
    return True, "no cell is empty"


def _are_codes(texts: Sequence[str]) -> bool:
    """Whether nearly all values of a column are two capital letters: countries, states."""
    others = {text.strip() for text in texts} - _WORDS - {""}
    codes = sum(_CODE.fullmatch(text) is not None for text in others)
    return codes >= _FEWEST_CODES and codes >= 0.9 * len(others)


def _where(texts: Sequence[str], taken: dict[tuple[str, bool], bool]) -> list[bool]:
    if not any(taken.values()):
        return [not text.strip() for text in texts]
    both = {word for (word, quoted), gone in taken.items() if gone and taken.get((word, not quoted), True)}
    return [
        not (word := text.strip()) or word in both or taken.get((word, isinstance(text, QuotedMarker)), False)
        for text in texts
    ]


def _merged(words: Sequence[MarkerWord]) -> list[MarkerWord]:
    """One entry for what was decided alike with and without quotes."""
    merged: dict[tuple[str, str, bool], MarkerWord] = {}
    for one in words:
        place = (one.column, one.word, one.taken_for_missing)
        if place in merged:
            count = merged[place].count + one.count
            one = MarkerWord(*place[:2], count, place[2], merged[place].reason, one.stated)
        merged[place] = one
    return list(merged.values())

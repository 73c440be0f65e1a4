"""Words that mark a missing cell in a text file: found column by column, and kept where they may be answers.

"NA" is Namibia and R's missing value, "None" is a level of a survey and Python's missing value. An empty
cell is always missing. Of a word, the first rule that applies decides:

1. what the user states by ``missing``, ``keep`` and ``only_missing``, or has stated for the table of a model;
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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
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


@dataclass(frozen=True)
class StatedWords:
    """What the user states of words that mark missing cells of text.

    Attributes
    ----------
    words : dict of (column, word) -> bool
        Whether a word is missing in a column, or in all columns where that is None.
    only : frozenset of columns
        In these columns only their own words are missing, and empty cells. None stands for all columns, in
        which only these words are.
    """

    words: Mapping[tuple[str | None, str], bool] = field(default_factory=dict)
    only: frozenset[str | None] = frozenset()

    @classmethod
    def read(
        cls,
        header: Sequence[str],
        cells: Sequence[Sequence[str]],
        *,
        missing: Sequence[str] = (),
        keep: Sequence[str] = (),
        only_missing: Sequence[str] | None = None,
    ) -> StatedWords:
        """Read ``WORD`` and ``COLUMN=WORD``, with the columns and cells of the file.

        Parameters
        ----------
        header, cells
            Names of the columns, and their cells column by column.
        missing, keep
            Always missing; never missing. What is stated of a column comes before what is stated of all.
        only_missing
            Exactly these words and empty cells are missing, in one column or in all.

        Examples
        --------
        >>> StatedWords.read(["age", "sex"], [["-9"], ["NA"]], missing=["age=-9"], keep=["NA"]).words
        {('age', '-9'): True, (None, 'NA'): False}
        """
        words: dict[tuple[str | None, str], bool] = {}
        only: set[str | None] = {None} if only_missing is not None and not only_missing else set()
        for option, texts, is_missing in (
            ("--only-missing", only_missing or (), True),
            ("--missing", missing, True),
            ("--keep", keep, False),
        ):
            for text in texts:
                column, word = _split(text, header, cells, option)
                if option == "--only-missing":
                    only.add(column)
                if words.setdefault((column, word), is_missing) != is_missing:
                    raise SettingError(f"A word is either missing or kept; {text!r} is both. Choose one.")
        return cls(words, frozenset(only))

    def after(self, earlier: StatedWords) -> StatedWords:
        """These words, and of the earlier ones those that they do not override.

        An ``only`` of all columns replaces all earlier words, one of a column those of that column.
        """
        if None in self.only:
            return self
        kept = {
            place: is_missing
            for place, is_missing in earlier.words.items()
            if place[0] not in self.only and not (place[0] is not None and (None, place[1]) in self.words)
        }
        return StatedWords({**kept, **self.words}, self.only | earlier.only)

    def words_of(self, column: str) -> set[str]:
        """Words to look for in a column."""
        places = (column,) if column in self.only else (None, column)
        own = {word for name, word in self.words if name in places}
        return (own if self.only & {None, column} else own | _WORDS) - {""}

    def of(self, column: str, word: str) -> bool | None:
        """Whether a word is missing in a column; None if that is not stated."""
        return self.words.get((column, word), self.words.get((None, word)))

    def to_dict(self) -> dict[str, Any]:
        """Both attributes as plain JSON values."""
        words = [[*place, self.words[place]] for place in sorted(self.words, key=repr)]
        return {"words": words, "only": sorted(self.only, key=repr)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> StatedWords:
        """Rebuild them from :meth:`to_dict`; ValueError where they are none."""
        words = {(column, word): is_missing for column, word, is_missing in plain["words"]}
        columns = [*plain["only"], *(column for column, _ in words)]
        if (
            not all(column is None or type(column) is str for column in columns)
            or not all(type(word) is str for _, word in words)
            or not all(type(is_missing) is bool for is_missing in words.values())
        ):
            raise ValueError("words for missing cells must be text")
        return cls(words, frozenset(plain["only"]))


def _split(
    text: str, header: Sequence[str], cells: Sequence[Sequence[str]], option: str
) -> tuple[str | None, str]:
    """Split COL=WORD, of which both may hold equals signs; a WORD that does must be a cell of the table."""
    ends = [place for place, sign in enumerate(text) if sign == "=" and text[:place] in header]
    if ends:
        return text[: ends[-1]], text[ends[-1] + 1 :].strip()
    if "=" in text and not any(text.strip() in map(str.strip, set(texts)) for texts in cells):
        near = get_close_matches(text.rpartition("=")[0], header, 1)
        raise InputError(
            f"{option} must be given as WORD or COL=WORD, with a column of the table; got {text!r}. "
            + (f"Did you mean {near[0]!r}? " if near else "")
            + f"The table has: {', '.join(map(repr, header[:30]))}."
        )
    return None, text.strip()


def find_missing(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    quoted_columns: Sequence[bool] = (),
    *,
    missing: Sequence[str] = (),
    keep: Sequence[str] = (),
    stated: StatedWords | None = None,
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
    stated
        What the user states of words.
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
    stated = stated or StatedWords()
    known = {pair for pair in answers if pair[1] in _WORDS}
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
            is_stated = stated.of(name, word)
            told = (is_stated, "as stated") if is_stated is not None else None
            if told is None and (name, word) in known:
                told = False, "a category of the model"
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

"""Text that may have been meant otherwise is told."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd
import pytest

from diffputer.tables.frames import read_table
from diffputer.tables.kinds import describe


def warnings_of(values: list[Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        describe(read_table(pd.DataFrame({"a": values, "b": range(len(values))})))
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("words", [["?"], ["?", "-"], ["unknown"]])
def test_a_marker_among_few_numbers_is_told(words: list[str]) -> None:
    values = [*"1234512345", None, *words, *words]
    (told,) = warnings_of(values)
    assert told.startswith("Numbers stored as text are treated as categories: 'a' (reads as numbers but for")
    assert all(repr(word) in told for word in words)


def test_a_marker_among_words_is_told() -> None:
    (told,) = warnings_of(["private", "state", "?", "private", None, "state", "?", "private"])
    assert "treated as a level" in told
    assert "'a' ('?')" in told


def test_numbers_with_leading_zeros_are_names_and_nobody_is_told_to_shorten_them() -> None:
    codes = [f"{code:05d}" for code in range(501, 531)]
    assert warnings_of([*codes, *codes]) == []
    (told,) = warnings_of([*codes, *codes, "?"])
    assert "reads as numbers but for '?'" in told


@pytest.mark.parametrize(
    "values", [[*"1234512345"], ["low", "high", "unknown", "low"] * 4, ["1", "2", "3+"] * 5]
)
def test_codes_and_words_are_no_markers(values: list[str]) -> None:
    assert warnings_of(values) == []


def test_markers_of_a_stated_category_are_meant() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = pd.DataFrame({"a": ["x", "?", "x", "y"] * 5})
        assert describe(read_table(frame), categorical_features=["a"]).columns[0].levels == ("?", "x", "y")

"""Names and small tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..runtime.reporting import visible

MOST_LINES = 40


def short(value: Any, length: int) -> str:
    """Write a name or a level on one line of limited length, whatever characters it holds.

    Examples
    --------
    >>> short("a very\\nlong name", 8)
    'a very …'
    >>> print(short("\\x1b[31m", 8))
    \\x1b[31m
    """
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= length else text[: length - 1] + "…"


def share_text(share: float) -> str:
    """Write a share in whole percent.

    Examples
    --------
    >>> share_text(0.123)
    '12 %'
    """
    return f"{100 * share:.0f} %"


def count(number: int, word: str) -> str:
    """Write a number and its word.

    Examples
    --------
    >>> count(1, "row"), count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Write names as a list of a sentence.

    Examples
    --------
    >>> listed(["a.csv"]), listed(["a.csv", "b", "c"])
    ('a.csv', 'a.csv, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def as_text(frame: pd.DataFrame, *, most: int = MOST_LINES, digits: int = 3) -> str:
    """Write a small table for a terminal: names to the left, numbers to the right, nothing for NaN.

    Examples
    --------
    >>> print(as_text(pd.DataFrame({"column": ["age", "b"], "error": [0.51234, np.nan], "cells": [1200, 3]})))
    column  error  cells
    age     0.512  1,200
    b                  3
    """
    shown = frame.head(most)
    columns = []
    for name in shown.columns:
        values = [_cell(value, digits) for value in shown[name].tolist()]
        values = [short(text, 32) for text in values] if name == "column" else values
        width = max(len(text) for text in [str(name), *values])
        text_column = all(isinstance(value, str) for value in shown[name].tolist()) or name == "column"
        justify = str.ljust if text_column else str.rjust
        columns.append([justify(text, width) for text in [str(name), *values]])
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    if len(frame) > most:
        lines.append(f"and {len(frame) - most:,} more")
    return "\n".join(lines)


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else ""
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        value = float(value)
        return "" if np.isnan(value) else f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.3g}"
    return "" if value is None else short(value, 60)

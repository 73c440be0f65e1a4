"""Columns of numbers that name rows and measure nothing: identifiers and row numbers.

A model that reads them learns the order of the file. The content alone cannot tell them from a trend: days 1
to 153 and the years of a series are runs of consecutive integers too, and inform other columns. So the name
must say it as well, but for row numbers with missing values, which a model would impute with duplicates:

* a name that ends in a word for an identifier (``id``, ``PassengerId``, ``patient_id``, ``uuid``): any whole
  numbers of which more than 90 % are distinct, as some rows of real tables are there twice;
* a name of row labels (``rownames``) or that a file did not have (empty, ``Unnamed: 0``): any whole numbers
  that are all distinct;
* a name that often does (``index``, ``row``, ``obs``, ``no``): a complete run that starts at 0 or 1;
* a name that R invents for a column without one (``X``, ``...1``): the first column, and a complete
  run in the order of the rows;
* any name: some values are missing, and the others are an arithmetic sequence of the place of the row.

Arrays have no names, so that none of their columns is taken for an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

import numpy as np
import pyarrow.compute as pc
import pyarrow.types as pt

from diffputer.tables.cells import Cells, Floats

FEWEST = 10  # values; fewer distinct ones say nothing
MOSTLY_DISTINCT = 0.9  # share of distinct values above which a column named id is one, as among text
_LAST_WORDS = {"id", "uuid", "guid"}
_CLEAR = {"", "rowid", "rowname", "rownames", "pk"}
_OFTEN = {"index", "idx", "key", "row", "rownumber", "rownum", "rowno", "no", "nr", "obs", "observation"}
_INVENTED = {"X", "...1"}


def is_identifier(name: Hashable, position: int, cells: Cells) -> bool:
    """Whether a column of whole numbers names the rows.

    Examples
    --------
    >>> from diffputer.tables.cells import cells_of_numpy
    >>> run, spread = cells_of_numpy(np.arange(1, 21)), cells_of_numpy(np.arange(20) ** 2)
    >>> [is_identifier(name, 3, run) for name in ("PassengerId", "index", "day", 0)]
    [True, True, False, False]
    >>> [is_identifier(name, 3, spread) for name in ("PassengerId", "index")]
    [True, False]
    """
    if not isinstance(name, str):
        return False
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", " ", name).casefold().split()
    joined = "".join(words)
    named = bool(words) and words[-1] in _LAST_WORDS
    clear = joined in _CLEAR or words[0] == "unnamed" or named
    values = cells.numbers()
    observed = values[~np.isnan(values)]
    if len(observed) < len(values) and _follows_rows(values):
        return True
    if not clear and joined not in _OFTEN and (name not in _INVENTED or position > 0):
        return False
    n_distinct = _n_distinct(cells, observed)
    if len(observed) >= FEWEST and named and n_distinct > MOSTLY_DISTINCT * len(observed):
        return True
    if len(observed) < FEWEST or n_distinct < len(observed):
        return False
    if clear:
        return True
    run = len(observed) == len(values) and observed.min() in (0, 1) and np.ptp(observed) == len(observed) - 1
    return bool(run and (joined in _OFTEN or np.all(np.diff(observed) == 1)))


def _follows_rows(values: Floats) -> bool:
    """Whether the values that are not missing are an arithmetic sequence of the place of the row.

    Examples
    --------
    >>> values = np.arange(1.0, 21.0)
    >>> values[3:6] = np.nan
    >>> _follows_rows(values), _follows_rows(values[::-1] * 2), _follows_rows(np.roll(values, 1))
    (True, True, False)
    """
    rows = np.flatnonzero(~np.isnan(values))
    if len(rows) < FEWEST:
        return False
    rises, steps = np.diff(values[rows]), np.diff(rows)
    return bool(rises[0] != 0 and np.all(rises * steps[0] == rises[0] * steps))


def _n_distinct(cells: Cells, observed: Floats) -> int:
    """How many values differ; of integers exactly, also beyond 2**53."""
    if pt.is_integer(cells.array.type):
        return int(pc.count_distinct(cells.array, mode="only_valid").as_py())
    return len(np.unique(observed))

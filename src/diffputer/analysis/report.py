"""The report of an imputation: one HTML file that needs no network and no other file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.markers import MarkerWord
from ..tables.schema import Schema
from .origin import Origin
from .report_facts import gather
from .report_page import write_page


def make_report(
    table: Any,
    completed: Any,
    *,
    schema: Schema | None = None,
    origin: Origin | None = None,
    rows: NDArray[np.int64] | None = None,
    title: str = "",
    written: Any = None,
    written_as: str = "written to the file",
    marker_words: Sequence[MarkerWord] = (),
) -> str:
    """Report what was missing in a table, what was filled in, and how sure that is.

    Works with any imputer. Filled values are looked at in at most 20 draws and 20,000 rows, which are chosen
    by chance; what is missing is told of all rows.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    completed : table or sequence of tables
        Completed once or several times; several show how sure filled values are.
    schema : Schema, optional
        What the columns hold; found by default.
    origin : Origin, optional
        Which model they come from: settings, seed, scores of held-out cells.
    rows : array of int, optional
        Which rows of the table the completed ones have; by default all.
    title : str
        Of the page, such as the name of the table.
    written : table, optional
        The table that was written, where it holds best estimates; ``completed`` are then random draws of
        the same rows, shown beside it for comparison.
    written_as : str
        What became of that table, in a few words.
    marker_words : sequence of MarkerWord
        Words of a text file that mark missing values or might: ``read_table_file(path).marker_words``.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [1.0, 2.0, None, 4.0], "<script>": ["a", None, "b", "a"]})
    >>> page = make_report(holes, holes.fillna({"x": 3.0, "<script>": "a"}))
    >>> page.startswith("<!doctype html>"), "&lt;script&gt;</a>" in page
    (True, True)
    """
    facts = gather(
        table,
        completed,
        schema=schema,
        origin=origin,
        rows=rows,
        title=title,
        written=written,
        written_as=written_as,
        marker_words=marker_words,
    )
    return write_page(facts)

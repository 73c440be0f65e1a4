"""What a comparison found: the ranking, by column and overall, and what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.wording import as_text
from ..methods.contract import Facts, Method
from ..methods.table import METHODS
from ..tables.paths import write_bytes
from .candidates import DEFAULT_METHODS
from .hiding import Hidden
from .preparation import TEXT, Prepared
from .scoring import Scores, leads
from .verdict import blame_levels, find_ties, join, write_verdict

#: Of many columns so many are named.
_MOST_NAMED = 12


@dataclass
class Outcome:
    """What became of a method: seconds of each repetition, or a note on why it is not compared."""

    facts: Facts
    own: Method | None = None
    note: str = ""
    seconds: list[float] = field(default_factory=list)
    #: Seconds that DiffPuter was told to take at most.
    limit: float | None = None

    @property
    def mean_seconds(self) -> float:
        """Seconds of a repetition."""
        return float(np.mean(self.seconds)) if self.seconds else 0.0

    @property
    def was_short_of_time(self) -> bool:
        """Whether it used up what it was given, so that more may help."""
        return self.limit is not None and max(self.seconds, default=0.0) > 0.95 * self.limit

    @property
    def was_slow(self) -> bool:
        """Whether it was stopped, or not begun, and each level of a category is more work for it.

        So it is for the package's methods but DiffPuter; of the user's own nothing is known.
        """
        may_be = self.own is None and "engine" not in self.facts.settings
        return may_be and self.note.startswith(("stopped", "not tried: it would take"))


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """What `diffputer.compare` found.

    Attributes
    ----------
    verdict : str
        Which method to use and how sure that is.
    best : str
        The method with the smallest error.
    ties : tuple of str
        Methods that cannot be told apart from it.
    table : pandas.DataFrame
        One row for each method.
    columns : pandas.DataFrame
        Errors by method and column.
    column_facts : pandas.DataFrame
        What was hidden of each column, and who fills it best.
    unasked : tuple of str
        Methods of the package that are tried only where they are named.
    notes : tuple of str
        What one should know of the table and of what was done.
    """

    scores: Scores
    outcomes: tuple[Outcome, ...]
    prepared: Prepared
    hidden: Hidden
    repetitions: int
    seed: int
    time_budget: float
    seconds: float
    interrupted: bool = False
    isolated: bool = True
    wishes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The method with the smallest error."""
        return self.scores.methods[self.scores.order[0]]

    @property
    def has_compared(self) -> bool:
        """Whether two methods finished: of one alone nothing can be said."""
        return len(self.scores.methods) > 1

    @property
    def ties(self) -> tuple[str, ...]:
        """Methods that chance alone may have put behind the best one, nearest first."""
        return find_ties(self.scores)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The verdict, sentence by sentence."""
        seconds = {one.facts.name: one.mean_seconds for one in self.outcomes}
        short = [one.facts.name for one in self.outcomes if not one.note and one.was_short_of_time]
        coded = self.prepared.coded
        levels = dict(zip(coded.names, coded.n_levels.tolist(), strict=True))
        return write_verdict(
            self.scores,
            seconds,
            repetitions=self.repetitions,
            short_of_time=short,
            lost={one.facts.name: one.note for one in self.outcomes if one.note},
            many_levels=blame_levels(levels, [one.facts.name for one in self.outcomes if one.was_slow]),
        )

    @property
    def unasked(self) -> tuple[str, ...]:
        """Methods of the package that are tried only where they are named; none where methods were named."""
        if {one.facts.name for one in self.outcomes} != set(DEFAULT_METHODS):
            return ()
        return tuple(name for name in METHODS if name not in DEFAULT_METHODS)

    @property
    def verdict(self) -> str:
        """Which method to use and how sure that is."""
        return " ".join(self.sentences)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each method, best first; methods that were not compared come last, with the reason.

        method and rank; error: mean over columns, 0 is perfect and about 1 what one value for all gets, and
        its interval (95 %); behind: the error less that of the best method, and its interval;
        probability_best; columns_best and columns_level: on how many columns it has the smallest error, alone
        and as others do; mae, rmse: of numbers, in standard deviations; accuracy: of categories; seconds: of
        one repetition; note. A method that alone has finished is the best of none.
        """
        scores, rows = self.scores, []
        best, (alone, level), probability = scores.order[0], scores.wins(), scores.probability_best
        nothing: list[Any] = [np.nan, pd.NA, pd.NA]
        outcomes = {one.facts.name: one for one in self.outcomes}
        for place, k in enumerate(scores.order, start=1):
            name = scores.methods[k]
            one = outcomes.pop(name)
            note = "cut short: more time may help" if one.was_short_of_time else ""
            rows.append(
                (name, place, scores.overall[k], *scores.interval(k), *scores.difference(k, best),
                 *([probability[k], alone[k], level[k]] if self.has_compared else nothing),
                 scores.mae[k], scores.rmse[k], scores.accuracy[k],
                 one.mean_seconds, note)
            )  # fmt: skip
        unknown = [np.nan] * 6
        rows += [(name, pd.NA, *unknown, *nothing, *[np.nan] * 4, one.note) for name, one in outcomes.items()]
        frame = pd.DataFrame(rows, columns=TABLE_COLUMNS)
        return frame.astype(dict.fromkeys(("rank", "columns_best", "columns_level"), "Int64"))

    @cached_property
    def columns(self) -> pd.DataFrame:
        """The error of each method (rows, best first) on each column, NaN where nothing was hidden."""
        order = self.scores.order
        index = pd.Index([self.scores.methods[k] for k in order], name="method")
        return pd.DataFrame(self.scores.columns[order], index=index, columns=list(self.prepared.coded.names))

    @cached_property
    def column_facts(self) -> pd.DataFrame:
        """One row for each column: kind, share missing, cells hidden, whether it counts, best method.

        Where several methods are level in front, none is named.
        """
        rows = []
        for j, (name, column) in enumerate(zip(self.columns.columns, self.prepared.columns, strict=True)):
            errors = self.columns[name]
            front = errors.index[leads(errors.to_numpy())]
            rows.append(
                (name, str(column.kind), float(self.prepared.missing[:, j].mean()),
                 int(self.scores.n_cells[j]), bool(self.scores.counted[j]),
                 front[0] if len(front) == 1 else "", errors.min())
            )  # fmt: skip
        return pd.DataFrame(rows, columns=["column", "kind", "missing", "cells", "counts", "best", "error"])

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What one should know of the table and of what was done."""
        prepared, said = self.prepared, []
        cells, rows = int(self.scores.n_cells.sum()), self.scores.n_rows
        how = (
            "in the pattern of the table's own holes"
            if self.hidden.manner == "pattern"
            else "completely at random, as the table has no holes"
        )
        planned = self.hidden.n_repetitions
        many = f"{self.repetitions} repetition{'s' * (self.repetitions > 1)}"
        said.append(f"{cells:,} known cells of {rows:,} rows were hidden {how}, in {many}.")
        if self.repetitions < planned:
            why = "it was interrupted" if self.interrupted else "the time budget allowed no more"
            said.append(f"{planned} repetitions were planned: {why}.")
        if len(prepared.coded.x) < prepared.n_rows:
            said.append(
                f"{len(prepared.coded.x):,} of {prepared.n_rows:,} rows, chosen at random, were looked at; "
                "with all rows, methods that learn much gain most."
            )
        if self.interrupted:
            said.append("The comparison was interrupted; what had finished by then is compared.")
        if self.unasked:
            said.append(f"Tried only where they are named (methods, --methods): {join(self.unasked)}.")
        facts = self.column_facts
        if few := facts["column"][(facts["cells"] > 0) & ~facts["counts"]].tolist():
            said.append(f"Too few hidden cells to count: {join(few, most=_MOST_NAMED)}.")
        if whole := facts["column"][facts["cells"] == 0].tolist():
            names = join(whole, most=_MOST_NAMED)
            said.append(f"Nothing was hidden of {names}, where nothing or hardly anything is missing.")
        reasons: dict[str, list[str]] = {}
        for name, reason in prepared.left_out.items():
            reasons.setdefault(reason, []).append(name)
        said += [f"Left out ({why}): {join(names, most=_MOST_NAMED)}." for why, names in reasons.items()]
        if TEXT in reasons:
            said.append("A column of text that holds categories takes part if its kind is said.")
        return (*said, *prepared.notes)

    def impute(self, table: Any, method: str | None = None, **settings: Any) -> Any:
        """Fill in a table with the best method, or with another of those that were compared.

        Parameters
        ----------
        table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
            The one that was compared on, or another with the same columns.
        method : str, optional
            By default the best one.
        **settings
            Of the method.

        Returns
        -------
        the same kind of table
            Completed.
        """
        from .applying import fill_with

        name = self.best if method is None else method
        own = next((one.own for one in self.outcomes if one.facts.name == name and one.own), None)
        return fill_with(table, own or name, random_state=self.seed, **self.wishes, **settings)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        source: str | None = None,
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        """Write an HTML report: one file that needs nothing else.

        Parameters
        ----------
        path : str or path
            Where to.
        source : str, optional
            The file that the table came from, for the title and the commands to copy.
        reading : mapping, optional
            How it was read, as `diffputer.tables.files.read_table_file` has it: missing, delimiter, ...
        """
        from .page import write_page
        from .recipes import Source

        page = write_page(self, Source(source, reading or {}, self.wishes))
        write_bytes(path, page.encode("utf-8", "backslashreplace"))  # names of files need not be UTF-8

    def __repr__(self) -> str:
        shown = self.table.dropna(subset="rank")
        names = ["method", "error", "behind", "probability_best", "columns_best", "columns_level", "seconds"]
        frame = shown[names].rename(
            columns={"probability_best": "best?", "columns_best": "columns", "columns_level": "level"}
        )
        lost = [f"{row.method}: {row.note}" for row in self.table.itertuples() if row.note]
        lines = ["Comparison of imputers", self.verdict, "", as_text(frame), "", *lost, *self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from .page import write_ranking

        sentences = "".join(f"<p>{escape(words)}</p>" for words in self.sentences)
        return f"{sentences}{write_ranking(self)}"


TABLE_COLUMNS = [
    "method", "rank", "error", "error_low", "error_high", "behind", "behind_low", "behind_high",
    "probability_best", "columns_best", "columns_level", "mae", "rmse", "accuracy", "seconds", "note",
]  # fmt: skip

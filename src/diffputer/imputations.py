"""Imputations: several completed tables that differ only where cells were missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .analysis.origin import Origin, join_origins
from .analysis.pooling import Pooled, pool
from .errors import InputError
from .settings import check_number
from .tables.cells import Cells
from .tables.constraints import BoundConstraints, Constraints
from .tables.drawfiles import read_draws, write_draws
from .tables.draws import (
    Number,
    column_of,
    find_repeated,
    interval_of_draws,
    most_frequent,
    spread,
    summarise_draws,
)
from .tables.filling import Values
from .tables.frames import Table
from .tables.paths import write_bytes
from .tables.schema import Column, Schema
from .tables.stacking import check_names, stack_tables


class Imputations(Sequence[Any]):
    """m completed tables of one incomplete table.

    Only the filled cells are kept m times; a completed table is put together when it is asked for, in the
    container of the incomplete one.

    Parameters
    ----------
    table
        The incomplete table.
    filled
        For each draw, column position -> values for the missing cells of that column.
    schema
        What the columns hold.
    origin
        Which model they come from, for the report.
    constraints
        What must hold between columns: it holds in means, medians and modes too.
    numbers
        Seed and number of each draw, by which draws that are joined are told apart.

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer.tables.frames import read_table
    >>> table = read_table(pd.DataFrame({"a": [1.0, None]}))
    >>> draws = Imputations(table, [{0: np.array([2.0])}, {0: np.array([2.5])}])
    >>> len(draws), draws[1]["a"].tolist()
    (2, [1.0, 2.5])
    >>> draws.mean()["a"].tolist()
    [1.0, 2.25]
    >>> draws.to_long()
       .imp  .id    a
    0     1    1  1.0
    1     1    2  2.0
    0     2    1  1.0
    1     2    2  2.5
    """

    def __init__(
        self,
        table: Table,
        filled: Sequence[Mapping[int, Values]],
        schema: Schema | None = None,
        origin: Origin | None = None,
        constraints: BoundConstraints | None = None,
        numbers: Sequence[Number | None] | None = None,
    ) -> None:
        self._table = table
        self._constraints = constraints
        self._origin = origin
        self._filled = list(filled)
        self._numbers = list(numbers or [None] * len(self._filled))
        self.schema = schema
        if len({frozenset(draw) for draw in self._filled}) > 1:
            raise InputError("All draws must fill the same columns, however: these fill different ones.")

    @property
    def n_draws(self) -> int:
        """How many completed tables there are."""
        return len(self._filled)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where cells were missing, [rows, columns]."""
        return self._table.missing.copy()

    @property
    def original(self) -> Any:
        """A copy of the incomplete table."""
        return self._table.with_filled({})

    def __len__(self) -> int:
        return len(self._filled)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Imputations: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._with(self._filled[index], self._numbers[index], self._origin)
        try:
            return self._table.with_filled(self._filled[index])
        except IndexError:
            last = len(self) - 1
            raise IndexError(f"Draws are counted from 0 to {last}, however: {index}. Draw more.") from None

    def __iter__(self) -> Iterator[Any]:
        return (self._table.with_filled(filled) for filled in self._filled)

    def __add__(self, other: Imputations) -> Imputations:
        """Join the draws of two imputers of the same table; the report tells of both."""
        if not isinstance(other, Imputations):
            return NotImplemented
        mine, theirs = self._table, other._table
        if mine.names != theirs.names or not np.array_equal(mine.missing, theirs.missing):
            raise InputError(
                "Draws can be joined if they complete the same table, however: these tables differ in their "
                "columns or in what is missing."
            )
        if not _as_pandas(mine.native).equals(_as_pandas(theirs.native)):
            raise InputError(
                "Draws can be joined if they complete the same table, however: these tables differ in cells "
                "that are not missing."
            )
        self._refuse_repeated(other)
        origin = join_origins(self._origin, other._origin)
        return self._with([*self._filled, *other._filled], [*self._numbers, *other._numbers], origin)

    def _with(
        self, filled: list[Mapping[int, Values]], numbers: list[Number | None], origin: Origin | None
    ) -> Imputations:
        """Other draws of the same table."""
        return Imputations(self._table, filled, self.schema, origin, self._constraints, numbers)

    def _refuse_repeated(self, other: Imputations) -> None:
        found = find_repeated(self._filled, other._filled, self._numbers, other._numbers)
        if found is not None:
            last = max((number[1] for number in (*self._numbers, *other._numbers) if number), default=0)
            raise InputError(
                f"Draws that are joined must differ, however: number {found[0] + 1} of the first is number "
                f"{found[1] + 1} of the second, and would count twice. Take further draws: sample(table, "
                f"n_draws, first_draw={max(last + 1, len(self))})."
            )

    def __repr__(self) -> str:
        rows, columns = self._table.n_rows, self._table.n_columns
        cells = sum(len(values) for values in self._filled[0].values()) if self._filled else 0
        # What is in force and not what was asked for: see reports.py.
        model = str({} if self._origin is None else self._origin.settings.get("model_uncertainty", ""))
        note = f"; model uncertainty {model}" if model.startswith("none: ") else ""
        return (
            f"<Imputations: {len(self)} completed tables, {rows:,} rows x {columns:,} columns, "
            f"{cells:,} cells filled in each{note}>"
        )

    def map(self, function: Callable[[Any], Any]) -> list[Any]:
        """Apply a function to each completed table, one after the other.

        Returns
        -------
        list
            What it returned for each. An exception of the function says, in a note, in which draw.
        """
        results = []
        for number, table in enumerate(self, start=1):
            try:
                results.append(function(table))
            except Exception as error:
                error.add_note(f"in draw {number} of {len(self)}")
                raise
        return results

    def pool(
        self, fit: Callable[[Any], Any], *, conf_level: float = 0.95, df_complete: float | None = None
    ) -> Pooled:
        """Analyse each completed table and combine the results by Rubin's rules.

        Parameters
        ----------
        fit
            Gets a completed table and returns a statsmodels result, (estimates, covariance), or another of
            the results that :func:`diffputer.pool` reads.
        conf_level, df_complete
            See :func:`diffputer.pool`.

        Returns
        -------
        Pooled
            Estimates, intervals and p-values that know how much was missing.

        Examples
        --------
        >>> import pandas as pd
        >>> from diffputer.tables.frames import read_table
        >>> table = read_table(pd.DataFrame({"a": [1.0, 2.0, 4.0, None]}))
        >>> draws = Imputations(table, [{0: np.array([value])} for value in (2.0, 2.5, 3.5)])
        >>> pooled = draws.pool(lambda d: (d["a"].mean(), d["a"].var() / len(d)), df_complete=3)
        >>> pooled.table[["estimate", "std_error"]].round(3).values.tolist()
        [[2.417, 0.685]]
        """
        self._need_draws(2)
        results = []
        for number, table in enumerate(self, start=1):
            try:
                results.append(fit(table))
            except Exception as error:
                raise InputError(
                    f"The analysis must succeed for every draw, however: in draw {number} of {len(self)} it "
                    f"raised {type(error).__name__}: {error}. Try it with draws[{number - 1}]."
                ) from error
        return pool(results, conf_level=conf_level, df_complete=df_complete)

    def to_long(self, *, include_original: bool = False) -> Any:
        """Put the completed tables below each other, in the layout of mice.

        Parameters
        ----------
        include_original
            Begin with the incomplete table, as draw 0.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            With columns ``.imp`` (the draw, from 1) and ``.id`` (the row, from 1) first; pandas for arrays.
            The index of a pandas frame is repeated.
        """
        self._need_draws(1)
        check_names(self._table.names)
        first = [self._table.native] if include_original else []
        return stack_tables([*first, *self], self._table.container, first=0 if include_original else 1)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write everything into one Parquet file; :meth:`from_parquet` reads it.

        The table is written once, and of each column with filled cells a second column ``.draws.NAME`` with
        a list of values, one for each draw, where the cell was missing. What a report says of the model
        (settings, seed, scores) goes with it, and so do formulas and inequalities, so that summaries of what
        is read are those of the draws; of derived columns that are functions, only the drawn values. An
        existing file is replaced.
        """
        facts = {
            "origin": None if self._origin is None else self._origin.to_dict(),
            "constraints": None if self._constraints is None else self._constraints.constraints.to_dict(),
            "numbers": self._numbers,
        }
        write_draws(path, self._table, self._filled, self.schema, facts)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Imputations:
        """Read what :meth:`to_parquet` wrote: same container, dtypes, index (but its freq) and values."""
        table, filled, schema, facts = read_draws(path)
        # Files of older versions have none of these.
        origin, rules, numbers = (facts.get(name) for name in ("origin", "constraints", "numbers"))
        return cls(
            table,
            filled,
            schema,
            None if origin is None else Origin.from_dict(origin),
            None if rules is None else Constraints.from_dict(rules).on(table, schema),
            [number and tuple(number) for number in numbers or ()],
        )

    def report(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Write one HTML file on what was missing, what was filled in and how sure that is.

        The file needs no network and no other file. Draws of :meth:`diffputer.DiffPuter.sample` know their
        model, so that scores of held-out cells, settings and seed are in it; others have what tables tell.

        Parameters
        ----------
        path
            An existing file is replaced.
        title
            Of the page, such as the name of the table.
        """
        self._need_draws(1)
        from .analysis.report import make_report

        page = make_report(self._table.native, self, schema=self.schema, origin=self._origin, title=title)
        write_bytes(path, page.encode())

    def mean(self) -> Any:
        """Complete the table with the mean of the draws of each number.

        Whole numbers are rounded, dates are dates; booleans and categories get their most frequent level.
        Derived columns are computed from the means (those of functions are means themselves once the draws
        were read from a file, which holds no code), and inequalities hold.
        """
        return self._complete(self._summary(lambda numbers: numbers.mean(axis=0)))

    def median(self) -> Any:
        """Complete the table with the median of the draws; otherwise as :meth:`mean`."""
        return self._complete(self._summary(lambda numbers: np.median(numbers, axis=0)))

    def mode(self) -> Any:
        """Complete the table with the most frequent draw of each cell, the first of equally frequent ones.

        For numbers that hardly repeat this says little: use :meth:`median`.
        """
        self._need_draws(1)
        frequent = {
            position: most_frequent([draw[position] for draw in self._filled]) for position in self._filled[0]
        }
        return self._complete(frequent)

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Complete the table with the ends of an interval that holds the missing value with a probability.

        With as many draws as it takes (19 for 90 %), the ends are draws, or between two of them; with fewer
        mean -+ t(m - 1) s sqrt(1 + 1 / m) of the m draws: :func:`diffputer.tables.draws.interval_ends` says
        what they cover.

        Parameters
        ----------
        level
            The probability, for values like the draws.

        Returns
        -------
        lower, upper
            Tables. Ends are possible values: whole numbers (rounded outwards), inside the bounds of their
            column unless draws are beyond them, as those of derived columns may be. Booleans and categories,
            which have no order to speak of, have their most frequent level in both.
        """
        check_number("level", level, 0.0, 1.0, closed=False, whole=False)
        self._need_draws(2)
        derived = set() if self._constraints is None else self._constraints.derived
        ends: list[dict[int, Values]] = [{}, {}]
        for position in self._filled[0]:
            ends[0][position], ends[1][position] = interval_of_draws(
                *self._draws_of(position), level, self._is_empty(position), position not in derived
            )
        if self._constraints is not None and self._constraints.positions:
            # What functions determine all draws agree on.
            ends, _ = self._constraints.repair_ends(ends, functions=False)
        return self._table.with_filled(ends[0]), self._table.with_filled(ends[1])

    def std(self) -> pd.DataFrame:
        """Give the standard deviation between draws of each filled number; NaN elsewhere.

        In the units of the column; in seconds for dates, durations and times of day. Always a
        pandas.DataFrame, also of draws of polars or pyarrow tables.
        """
        self._need_draws(2)
        deviations = np.full(self._table.missing.shape, np.nan)
        for position in self._filled[0]:
            column, _, draws = self._draws_of(position)
            deviations[self._table.missing[:, position], position] = spread(column, draws)
        index = self._table.native.index if self._table.container == "pandas" else None
        return pd.DataFrame(deviations, index=index, columns=list(self._table.names))

    def _complete(self, filled: dict[int, Values]) -> Any:
        return self._table.with_filled(filled if self._constraints is None else self._constraints(filled))

    def _summary(self, summary: Callable[[NDArray[np.float64]], Any]) -> dict[int, Values]:
        """Sum the draws of each cell up, column by column."""
        self._need_draws(1)
        return {
            position: summarise_draws(*self._draws_of(position), summary, self._is_empty(position))
            for position in self._filled[0]
        }

    def _draws_of(self, position: int) -> tuple[Column, Cells, list[Values]]:
        """What a column holds (by the schema or by the values that were filled in), its cells and draws."""
        cells, draws = self._table.cells[position], [draw[position] for draw in self._filled]
        if self.schema is not None:
            return self.schema.columns[position], cells, draws
        return column_of(self._table.names[position], cells, draws[0]), cells, draws

    def _is_empty(self, position: int) -> bool:
        return bool(self._table.missing[:, position].all())

    def _need_draws(self, least: int) -> None:
        if len(self) < least:
            raise InputError(
                f"This needs at least {least} draw{'s' * (least > 1)}, however: there "
                f"{'is' if len(self) == 1 else 'are'} {len(self)}. Ask sample for more."
            )


def _as_pandas(native: Any) -> pd.DataFrame:
    return native.to_pandas() if hasattr(native, "to_pandas") else pd.DataFrame(native)

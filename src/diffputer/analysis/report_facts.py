"""What a report is made of: everything it says, as numbers and words, before any of it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2

from ..errors import InputError
from ..tables.cells import Booleans
from ..tables.frames import Table, read_table
from ..tables.markers import MarkerWord
from ..tables.pieces import take_rows, with_distinct_names
from ..tables.schema import Column, Schema
from .diagnostics import Convergence, convergence, drift, never_filled
from .origin import Origin
from .profiles import MissingnessProfile, profile
from .report_columns import chart_of
from .report_warnings import Concern, find_warnings
from .views import View, look, some_rows

MOST_ROWS, MOST_DRAWS = 20_000, 20  # filled values of more are not looked at
MATRIX = (100, 60)  # blocks of rows, and columns, of the picture of what is missing
BLOCKS, CERTAIN, MOVED = 10, 1e-6, 0.3  # parts of a table; p-value and difference of rates between them
MAP = 24  # columns of the map of what is missing together


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of one column; parts that do not apply are None or empty."""

    column: Column
    n_rows: int
    n_missing: int
    n_left: int
    described: dict[str, Any] | None
    """Distributions and cells, see `chart_of`."""
    drift: Any = None
    """Its line of `drift`."""
    told: Any = None
    """Its line of the profile's predictors."""
    held: Any = None
    """Its line of the held-out scores."""
    warnings: list[tuple[str, str, str]] = field(default_factory=list)
    """Severity, title and words."""

    @property
    def share(self) -> float:
        """Of its cells that were missing."""
        return self.n_missing / max(self.n_rows, 1)


@dataclass(frozen=True)
class Facts:
    """All that a report says."""

    title: str
    profile: MissingnessProfile
    columns: list[ColumnFacts]
    warnings: list[Concern]
    n_draws: int
    n_rows_seen: int
    """Rows whose filled values were looked at."""
    convergence: Convergence
    origin: Origin
    matrix: dict[str, Any]
    together: dict[str, Any]
    written: str
    """How the written values are called where they are best estimates beside the draws; else empty."""
    along: list[int]
    """Columns whose holes lie in some parts of the table rather than in others."""

    @property
    def n_left(self) -> int:
        """Cells that are still missing."""
        return sum(one.n_left for one in self.columns)


def gather(
    table: Any,
    completed: Any,
    *,
    schema: Schema | None,
    origin: Origin | None,
    rows: NDArray[np.int64] | None,
    title: str,
    written: Any = None,
    written_as: str = "",
    marker_words: Sequence[MarkerWord] = (),
) -> Facts:
    """Look at a table and its completed forms; see `diffputer.analysis.report.make_report`."""
    origin = origin or Origin()
    view = look(table, schema)
    rng = np.random.default_rng(0)
    n_rows = view.table.n_rows
    chosen = None if rows is not None or n_rows <= MOST_ROWS else some_rows(n_rows, MOST_ROWS, rng)
    seen = rows if rows is not None else chosen if chosen is not None else np.arange(n_rows)
    part = table if len(seen) == n_rows else take_rows(table, seen)
    sub = View(read_table(with_distinct_names(part)), view.schema)
    natives, left = [], [0] * view.table.n_columns
    for number, one in enumerate(_some(completed)):
        if number == 0:
            still = read_table(with_distinct_names(one)).missing
            wanted = (len(seen) if chosen is None else n_rows, view.table.n_columns)
            if still.shape != wanted:
                raise InputError(
                    "Completed tables have the rows and columns of the incomplete one, however: one is "
                    f"{still.shape} and not {wanted}."
                )
            left = _left(view, sub, still, exact=rows is None)
        natives.append(one if chosen is None else take_rows(one, chosen))
    if not natives:
        raise InputError("At least one completed table is needed, however: there is none.")
    forms = [read_table(with_distinct_names(one)) for one in natives]
    guess = None
    if written is not None:
        guess = read_table(with_distinct_names(written if chosen is None else take_rows(written, chosen)))
    charts = _charts(sub, forms, seen, guess)
    drifts = drift(part, natives, schema=view.schema).to_frame()
    unfilled = never_filled(part, natives, schema=view.schema)
    missing = profile(table, schema=view.schema)
    settled = convergence(origin.trace)
    n_draws = 1 if len(natives) == 1 else len(completed) if hasattr(completed, "__len__") else len(natives)
    known = {} if schema is None else {column.name: column for column in schema}
    # What is empty here was not when the model was fitted.
    fitted = View(view.table, Schema(tuple(known.get(column.name, column) for column in view.schema)))
    warnings = find_warnings(fitted, charts, drifts, unfilled, left, n_draws, origin, settled, marker_words)
    return Facts(
        title,
        missing,
        _columns(fitted, charts, drifts, missing, origin, warnings, left),
        warnings,
        n_draws,
        len(seen),
        settled,
        origin,
        _matrix(view),
        _together(missing),
        written_as if guess is not None else "",
        _along(view),
    )


def _some(completed: Any) -> Iterator[Any]:
    if hasattr(completed, "columns") or (isinstance(completed, np.ndarray) and completed.ndim == 2):
        return iter([completed])
    return islice(completed, MOST_DRAWS)


def _left(view: View, sub: View, still: Booleans, *, exact: bool) -> list[int]:
    """Count cells that are still missing; of a part of the rows their share tells of all."""
    counts = still.sum(axis=0)
    if exact:
        return [int(count) for count in counts]
    among = np.maximum(sub.missing.sum(axis=0), 1)
    return [int(count) for count in np.round(view.missing.sum(axis=0) * counts / among)]


def _charts(
    sub: View, forms: list[Table], seen: NDArray[np.int64], guess: Table | None
) -> dict[int, dict[str, Any]]:
    charts = {}
    for place, column in sub.usable():
        cells = [form.cells[place] for form in forms]
        own = None if guess is None else guess.cells[place]
        holes = sub.missing[:, place]
        charts[place] = chart_of(column, sub.table.cells[place], cells, holes, seen, place, own)
    return charts


def _columns(
    view: View,
    charts: dict[int, dict[str, Any]],
    drifts: pd.DataFrame,
    missing: MissingnessProfile,
    origin: Origin,
    warnings: list[Concern],
    left: list[int],
) -> list[ColumnFacts]:
    moved = {line.column: line for line in drifts.itertuples()}
    told = {line.column: line for line in missing.predictors.itertuples()}
    held = {} if origin.held_out is None else {line.Index: line for line in origin.held_out.itertuples()}
    counts = view.missing.sum(axis=0)
    return [
        ColumnFacts(
            column,
            view.table.n_rows,
            int(counts[place]),
            left[place],
            charts.get(place),
            moved.get(column.name),
            told.get(column.name),
            held.get(column.name),
            [(w.severity, w.title, w.columns[place]) for w in warnings if place in w.columns],
        )
        for place, column in enumerate(view.schema)
    ]


def _matrix(view: View) -> dict[str, Any]:
    """Give the share of missing cells in blocks of rows, a digit each, of the columns with most holes."""
    counts = view.missing.sum(axis=0)
    most = np.argsort(-counts, kind="stable")[: MATRIX[1]]
    columns = sorted(int(place) for place in most if counts[place])
    n = view.table.n_rows
    if not columns or not n:
        return {"columns": [], "starts": [], "blocks": []}
    starts = np.unique(np.linspace(0, n, min(n, MATRIX[0]) + 1).astype(np.int64)[:-1])
    sums = np.add.reduceat(view.missing[:, columns].astype(np.int32), starts, axis=0)
    sizes = np.diff(np.append(starts, n))[:, None]
    digits = np.ceil(9 * sums / sizes).astype(int)
    return {
        "columns": columns,
        "starts": [*starts.tolist(), n],
        "blocks": ["".join(map(str, line)) for line in digits.tolist()],
    }


def _along(view: View) -> list[int]:
    """Find columns that are missing in some parts of the table: ten blocks of rows, a chi-squared test."""
    n = view.table.n_rows
    if n < 10 * BLOCKS:
        return []
    starts = np.linspace(0, n, BLOCKS + 1).astype(np.int64)
    sizes = np.diff(starts)[:, None]
    shares = np.add.reduceat(view.missing.astype(np.int32), starts[:-1], axis=0) / sizes
    overall = view.missing.mean(axis=0)
    variance = np.maximum(overall * (1 - overall), 1e-12)
    statistic = (sizes * (shares - overall) ** 2).sum(axis=0) / variance
    moves = (chi2.sf(statistic, BLOCKS - 1) < CERTAIN) & (np.ptp(shares, axis=0) > MOVED)
    return [int(place) for place in np.flatnonzero(moves)]


def _together(missing: MissingnessProfile) -> dict[str, Any]:
    """Give correlations of holes between the columns with most of them."""
    table = missing.columns
    most = table.sort_values("n_missing", ascending=False, kind="stable").head(MAP)
    positions = sorted(most.index[most["n_missing"] > 0].tolist())
    order = {name: place for place, name in enumerate(missing.correlation.index)}
    picked = [order[table["column"].iloc[place]] for place in positions]
    values = missing.correlation.to_numpy()[np.ix_(picked, picked)]
    return {
        "columns": positions,
        "values": [[None if math.isnan(v) else round(v, 2) for v in line] for line in values.tolist()],
    }

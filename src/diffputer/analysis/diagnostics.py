"""Numbers that tell whether imputations can be trusted: convergence, drift, levels and columns left behind.

References: Abayomi, Gelman and Levy, "Diagnostics for multivariate imputations" (JRSS C 2008), for comparing
observed with imputed values column by column; van Buuren, "Flexible Imputation of Missing Data" (2018),
sections 6.5 and 6.6.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..tables.schema import Schema
from .chance import probabilities
from .overimputation import OverImputation
from .views import centre_and_deviation, common_codes, look, read_forms, varies
from .wording import as_text

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

SETTLED = 0.02  # change of filled cells, in standard deviations, below which a round has changed nothing
BETTER = 0.01  # share by which an error must fall to count as an improvement
FAR = 0.25  # standardised difference of means that is marked
SPREAD = (0.5, 2.0)  # ratio of standard deviations outside which a column is marked
APART = 0.2  # Kolmogorov-Smirnov or total variation distance that is marked
FEWEST = 10  # cells of each sort without which nothing is marked
UNLIKELY = 0.01  # probability of so much by chance, in any of the three ways, above which nothing is marked

EXPECTED = (
    "Filled values may rightly differ from observed ones: where cells are missing at random, rows with holes "
    "differ in other columns too. A mark asks for a look, it is no verdict."
)


class Round(Protocol):
    """A line of the trace of EM, such as `diffputer.trace.EMRound`."""

    @property
    def round(self) -> int:
        """Counted from 1."""

    @property
    def held_out_error(self) -> float:
        """Error of the imputed held-out cells; NaN where none were held out."""

    @property
    def baseline_error(self) -> float:
        """The same for column means."""

    @property
    def change(self) -> float:
        """Change of the filled cells since the last round."""


@dataclass(frozen=True, repr=False)
class Convergence:
    """What the trace of EM says.

    Attributes
    ----------
    converged : bool or None
        None where the trace cannot tell.
    verdict : str
        In words.
    best_round : int
        With the smallest error on held-out cells, or the last where none were held out; 0 without rounds.
    rounds : pandas.DataFrame
        round, change, held_out_error, baseline_error.
    """

    converged: bool | None
    verdict: str
    best_round: int
    rounds: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """Give the rounds."""
        return self.rounds

    def __repr__(self) -> str:
        return f"{self.verdict}\n{as_text(self.rounds)}"


def convergence(trace: Sequence[Round]) -> Convergence:
    """Judge whether EM has converged.

    A round is an improvement if its error on held-out cells is 1 % smaller than the best before it. EM has
    converged if later rounds brought none, or if the last changed filled cells by less than 0.02 standard
    deviations.

    Parameters
    ----------
    trace : sequence of EMRound
        ``imputer.trace_``.

    Returns
    -------
    Convergence

    Examples
    --------
    >>> from types import SimpleNamespace as Line
    >>> errors = [0.50, 0.42, 0.419, 0.421]
    >>> trace = [Line(round=k + 1, change=0.3 / (k + 1), held_out_error=error, baseline_error=0.8)
    ...          for k, error in enumerate(errors)]
    >>> convergence(trace).verdict
    'Converged: rounds after round 2 were no better on held-out cells (error 0.42, column means 0.8).'
    """
    names = ["round", "change", "held_out_error", "baseline_error"]
    rounds = pd.DataFrame([[getattr(line, name) for name in names] for line in trace], columns=names)
    if not len(rounds):
        return Convergence(None, "Nothing was fitted: no column has a model.", 0, rounds)
    errors, changes = rounds["held_out_error"].to_numpy(float), rounds["change"].to_numpy(float)
    numbers = rounds["round"].to_numpy(int)
    settled = len(rounds) > 1 and changes[-1] < SETTLED
    if np.isnan(errors).all():
        words = f"the last round changed filled cells by {changes[-1]:.2g} standard deviations"
        if len(rounds) == 1:
            return Convergence(
                None, "One round, no held-out cells: nothing to tell.", int(numbers[0]), rounds
            )
        verdict = f"{'Converged' if settled else 'Not settled'}: {words}; no cells were held out to score it."
        return Convergence(bool(settled), verdict, int(numbers[-1]), rounds)
    best = 0
    for k in range(1, len(errors)):
        if errors[k] < (1 - BETTER) * errors[best]:
            best = k
    baseline = float(rounds["baseline_error"].iloc[best])
    scores = f"error {errors[best]:.3g}, column means {baseline:.3g}"
    winner = int(numbers[int(np.nanargmin(errors))])
    if math.isfinite(baseline) and errors[best] >= (1 - BETTER) * baseline:
        verdict = (
            f"No better than column means on held-out cells ({scores}): columns may not depend on each other."
        )
        return Convergence(None, verdict, winner, rounds)
    if len(rounds) == 1:
        verdict = (
            f"One round, as the engine wants or the settings allow ({scores}): convergence cannot be told."
        )
        return Convergence(None, verdict, winner, rounds)
    if best < len(errors) - 1:
        verdict = (
            f"Converged: rounds after round {numbers[best]} were no better on held-out cells ({scores})."
        )
        return Convergence(True, verdict, winner, rounds)
    if settled:
        verdict = f"Converged: the last round changed filled cells by {changes[-1]:.2g} standard deviations "
        return Convergence(True, verdict + f"({scores}).", winner, rounds)
    verdict = f"Still improving in its last round ({scores}): raise em_rounds or the time budget."
    return Convergence(False, verdict, winner, rounds)


@dataclass(frozen=True, repr=False)
class Drift:
    """How filled values differ from observed ones, column by column.

    Attributes
    ----------
    columns : pandas.DataFrame
        See `drift`.
    """

    columns: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """Give one row for each column with holes."""
        return self.columns

    def __repr__(self) -> str:
        return f"Filled against observed values\n{as_text(self.columns)}\n{EXPECTED}"


def drift(table: Any, completed: Any, *, schema: Schema | None = None) -> Drift:
    """Compare filled with observed values, column by column.

    Drift is expected where cells are missing at random and not completely so: incomes that are missing
    mostly among the young are rightly filled with smaller ones. Marked columns deserve a look.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    completed : table or sequence of tables
        Completed; values of several are put together.
    schema : Schema, optional
        What the columns hold.

    Returns
    -------
    Drift
        ``to_frame()`` has, for each column with filled cells: column, kind, n_observed, n_filled; difference
        of the means in standard deviations of the observed cells; spread, the ratio of the standard
        deviations (below 1 for expected values); distance, that of Kolmogorov and Smirnov, of categories the
        total variation; marked, if the difference exceeds 0.25, the spread leaves 0.5 to 2 or the distance
        exceeds 0.2, there are ten cells of each sort, and chance would do so in less than one column of a
        hundred: shuffled between observed and filled cells, values rarely lie so far apart. Of categories,
        difference and spread are NaN; of numbers that are all the same, spread is NaN and the difference in
        units of the column.

    Examples
    --------
    >>> holes = pd.DataFrame({"x": [0.0, 2.0, None, None], "c": ["a", "b", None, "a"]})
    >>> full = holes.fillna({"x": 3.0, "c": "b"})
    >>> drift(holes, full).to_frame()[["column", "difference", "distance"]].round(2).to_numpy().tolist()
    [['x', 2.0, 1.0], ['c', nan, 0.67]]
    """
    view = look(table, schema)
    forms = read_forms(view, completed)
    lines = []
    for position, column in view.usable():
        holes = view.missing[:, position]
        if not holes.any():
            continue
        cells = [view.table.cells[position], *(form.cells[position] for form in forms)]
        if column.kind.is_numeric:
            values = [one.numbers() for one in cells]
        else:
            values = [np.where(one < 0, np.nan, one) for one in common_codes(cells)[0]]
        observed, drawn = values[0][~holes], [one[holes] for one in values[1:]]
        drawn = [one[np.isfinite(one)] for one in drawn]
        filled = np.concatenate(drawn)
        if not observed.size or not filled.size:
            continue
        found = (_compare_numbers if column.kind.is_numeric else _compare_levels)(observed, filled)
        n_filled = filled.size // len(drawn)
        # Draws of a cell are alike: together they tell no more than so many cells of one.
        one_draw = next(one for one in drawn if one.size)
        ordered, ways, marked = column.kind.is_numeric, _ways(found), False
        if any(ways) and min(observed.size, n_filled) >= FEWEST:
            chance = probabilities(observed, one_draw, found, ordered=ordered, seed=position)
            limit = UNLIKELY / (3 if ordered else 1)
            marked = any(far and p <= limit for far, p in zip(ways, chance, strict=True))
        lines.append((column.name, str(column.kind), observed.size, n_filled, *found, marked))
    names = ["column", "kind", "n_observed", "n_filled", "difference", "spread", "distance", "marked"]
    return Drift(pd.DataFrame(lines, columns=names))


def _compare_numbers(observed: Floats, filled: Floats) -> tuple[float, float, float]:
    """Difference of means, ratio of deviations, distance of two samples of numbers."""
    mean, deviation = centre_and_deviation(observed)
    z = (filled - mean) / deviation
    spread = float(z.std()) if varies(observed) else math.nan  # of one value only there is no ratio
    return float(z.mean()), spread, kolmogorov_smirnov(observed, filled)


def _compare_levels(observed: Floats, filled: Floats) -> tuple[float, float, float]:
    """Distance of two samples of codes."""
    codes = [part.astype(np.int64) for part in (observed, filled)]
    n_levels = max(int(part.max()) for part in codes) + 1
    shares = [np.bincount(part, minlength=n_levels) / part.size for part in codes]
    return math.nan, math.nan, float(np.abs(shares[0] - shares[1]).sum() / 2)


def _ways(found: tuple[float, float, float]) -> list[bool]:
    """In which of the three ways two samples are far apart."""
    difference, spread, distance = found
    narrow_or_wide = not (math.isnan(spread) or SPREAD[0] <= spread <= SPREAD[1])
    return [abs(difference) > FAR, narrow_or_wide, distance > APART]


def kolmogorov_smirnov(a: Floats, b: Floats) -> float:
    """Give the largest distance between two empirical distribution functions.

    Shape: a [n], b [m].

    Examples
    --------
    >>> kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([1.5, 9.0]))
    0.5
    """
    every = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(part), every, side="right") / part.size for part in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def never_filled(table: Any, completed: Any, *, schema: Schema | None = None) -> pd.DataFrame:
    """List levels that occur among the observed cells of a column but were filled in nowhere.

    Most probable levels are what one number can say: rare levels are then filled rarely or never. Draws
    should fill them as often as they are probable.

    Parameters
    ----------
    table, completed, schema
        As in `drift`.

    Returns
    -------
    pandas.DataFrame
        column, level, n_observed, expected (cells of one draw that would have it if filled cells were like
        observed ones) and probability (of none among the cells of one draw, were they drawn like observed
        ones; further draws of the same cells change neither); rarer levels of long tables with a small
        probability are worth a look.

    Examples
    --------
    >>> holes = pd.DataFrame({"c": ["a", "a", "a", "b", None, None, None, None]})
    >>> never_filled(holes, holes.fillna("a"))[["column", "level", "expected", "probability"]].values.tolist()
    [['c', 'b', 1.0, 0.31640625]]
    """
    view = look(table, schema)
    forms = read_forms(view, completed)
    lines = []
    for position, column in view.usable():
        holes = view.missing[:, position]
        if column.kind.is_numeric or not holes.any():
            continue
        codes, levels = common_codes([view.table.cells[position], *(f.cells[position] for f in forms)])
        observed = np.bincount(codes[0][~holes], minlength=len(levels))
        filled = np.concatenate([one[holes] for one in codes[1:]])
        counts = np.bincount(filled[filled >= 0], minlength=len(levels))
        n_filled = float(counts.sum()) / len(forms)  # draws of a cell are alike: they are no more cells
        for code in np.flatnonzero((observed > 0) & (counts == 0)) if n_filled else []:
            share = observed[code] / observed.sum()
            probability = float((1 - share) ** n_filled)
            lines.append(
                (column.name, levels[code], int(observed[code]), float(share * n_filled), probability)
            )
    return pd.DataFrame(lines, columns=["column", "level", "n_observed", "expected", "probability"])


def not_predicted(checked: OverImputation, tolerance: float = 0.02) -> tuple[Hashable, ...]:
    """Name columns whose known cells were filled in no better than by their mean or most frequent level.

    Parameters
    ----------
    checked : OverImputation
        What `diffputer.analysis.overimputation.over_impute` gives.
    tolerance : float
        Share by which the error must be below that of the mean.

    Returns
    -------
    tuple of labels

    Examples
    --------
    >>> from diffputer.analysis.overimputation import over_impute
    >>> frame = pd.DataFrame({"x": np.arange(40.0), "y": 2 * np.arange(40.0)})
    >>> not_predicted(over_impute(frame, lambda t, m: [t.fillna(t.mean())] * m))
    ('x', 'y')
    """
    lines = checked.to_frame()
    bad = lines["error"] >= (1 - tolerance) * lines["baseline"]
    return tuple(lines.loc[bad & (lines["cells"] > 0), "column"].tolist())

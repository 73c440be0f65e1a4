"""Was a column predicted? The error of held-out cells beside that of the mean, with an error bar.

And which columns are imputed from little evidence, which the fit warns of and the report lists.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from ..errors import warn_about_data
from ..tables.schema import Kind, Schema, Status
from .wording import count

USELESS = 0.98  # share of the baseline's error from which a column counts as not predicted
USEFUL = 0.8  # share that must be out of reach of the error bar before it does
Z = 1.645  # standard errors to each side: 90 %
SPREAD = 0.8  # deviation, between cells, of the difference of both errors, in units of the baseline's error


FEW_KNOWN = 50  # observed values below which a column is imputed from little evidence
MOSTLY_MISSING = 0.8  # share of missing values above which it is
WEAK_TITLE = "Columns imputed from little evidence"
_WEAK_WORDS = (
    f"Fewer than {FEW_KNOWN} values are known, more than {MOSTLY_MISSING:.0%} are missing, or held-out "
    "values were not imputed clearly better than by the column's mean or most frequent category. Check these "
    "columns before you use them"
)
WEAK_WORDS = f"{_WEAK_WORDS}, or name them in skip to keep their missing values."
_MOST_NAMED = 12


class Verdict(StrEnum):
    """What held-out cells say of a column."""

    BETTER = "better"
    NO_BETTER = "no better"
    UNKNOWN = "not known yet"


def judge(error: float, baseline: float, n: int, *, levels: bool, ratio_error: float = math.nan) -> Verdict:
    """Say whether held-out cells were filled in better than by the mean or the most frequent level.

    Held-out cells are filled with means, so it is the column's mean that they are compared with: a median
    has the smaller absolute error in every skewed column, predicted or not.

    Parameters
    ----------
    error, baseline
        Mean absolute errors, or shares of wrong levels.
    n
        Held-out cells.
    levels
        Whether it is a category.
    ratio_error
        Standard error of error / baseline, from both errors of each cell. NaN where it is not known: then
        k / √n. Of numbers k is 0.8: normal columns that are predicted by their conditional mean have 0.2
        (ratio 0.99), 0.6 (0.8) and 0.8 (0.45), columns with long tails more. Of levels both are wrong or
        right independently, which overstates it.

    Returns
    -------
    Verdict
        Better, if the error bar (90 %) of the ratio ends below 1, or if all held-out cells are right. No
        better, if the ratio is 0.98 or more and the bar does not reach down to 0.8. Else not known yet. The
        bar is never shorter than one cell more or less would move the ratio.

    Examples
    --------
    >>> [str(judge(0.68, 0.69, n, levels=False)) for n in (12, 120)]
    ['not known yet', 'no better']
    >>> str(judge(0.2, 0.8, 12, levels=False))
    'better'
    >>> [str(judge(0.68, 0.69, 120, levels=False, ratio_error=one)) for one in (0.05, 0.2)]  # long tails
    ['no better', 'not known yet']
    """
    if n < 1 or not math.isfinite(error) or not baseline > 0:
        return Verdict.UNKNOWN
    ratio, reach = error / baseline, _reach(error, baseline, n, levels=levels, ratio_error=ratio_error)
    if ratio + reach < 1 or error == 0:
        return Verdict.BETTER
    return Verdict.NO_BETTER if ratio >= USELESS and ratio - reach > USEFUL else Verdict.UNKNOWN


def _reach(error: float, baseline: float, n: int, *, levels: bool, ratio_error: float) -> float:
    """Half of the length of the error bar."""
    deviation = SPREAD / math.sqrt(n)
    if math.isfinite(ratio_error):
        deviation = ratio_error
    elif levels:
        deviation = math.sqrt(max(error * (1 - error), 0.0) + max(baseline * (1 - baseline), 0.0)) / baseline
        deviation /= math.sqrt(n)
    return Z * max(deviation, 1 / (n * baseline) if levels else 1 / n)


def judge_line(line: Any) -> Verdict:
    """Judge a line of the held-out scores: kind, n, error, baseline and, where it is known, ratio_error."""
    return judge(*_parts(line)[0], **_parts(line)[1])


def _parts(line: Any) -> tuple[tuple[float, float, int], dict[str, Any]]:
    levels = not Kind(str(line.kind)).is_numeric
    known = float(getattr(line, "ratio_error", math.nan))
    return (float(line.error), float(line.baseline), int(line.n)), {"levels": levels, "ratio_error": known}


@dataclass(frozen=True)
class WeakColumn:
    """A column that is imputed from little evidence, and why.

    Attributes
    ----------
    column : hashable
        Its name.
    reasons : tuple of str
        In a few words each.
    """

    column: Hashable
    reasons: tuple[str, ...]


def weak_columns(schema: Schema, held_out: Any = None) -> list[WeakColumn]:
    """Find the columns that are imputed from little evidence.

    Parameters
    ----------
    schema : Schema
        Of a fitted imputer: ``imputer.schema_``.
    held_out : pandas.DataFrame, optional
        Its ``held_out_scores_``. A column counts whose held-out cells are not all right and which
        :func:`judge` does not find better.

    Returns
    -------
    list of WeakColumn
        Of the columns that have missing values and get imputed ones.

    Examples
    --------
    >>> from diffputer.tables.schema import Column
    >>> schema = Schema((Column("deck", "categorical", levels=("A", "B"), n_observed=20, n_missing=180),))
    >>> weak_columns(schema)
    [WeakColumn(column='deck', reasons=('20 known values', '90% missing'))]
    """
    lines = {} if held_out is None else {line.Index: line for line in held_out.itertuples()}
    found = []
    for column in schema:
        if column.status not in (Status.MODELLED, Status.CONSTANT) or column.skip or not column.n_missing:
            continue
        share = column.n_missing / (column.n_missing + column.n_observed)
        few = column.n_observed < FEW_KNOWN
        reasons = [count(column.n_observed, "known value")] if few else []
        if share > MOSTLY_MISSING:
            reasons.append(f"{share:.0%} missing")
        line = lines.get(column.name)
        if line is not None:
            own = "mean" if column.kind.is_numeric else "most frequent category"
            if line.error > 0 and judge_line(line) != Verdict.BETTER:  # NaN where no cell was held out
                reasons.append(f"held-out error {_ratio_text(line)} times that of the {own}")
        if reasons:
            found.append(WeakColumn(column.name, tuple(reasons)))
    return found


def _ratio_text(line: Any) -> str:
    """The ratio of errors with its error bar, of 90 %."""
    (error, baseline, n), more = _parts(line)
    if not baseline > 0:
        return "many"
    return f"{error / baseline:.2f} ± {_reach(error, baseline, n, **more):.2f}"


def warn_of_weak(columns: Sequence[WeakColumn], *, can_skip: bool = True) -> None:
    """Warn once of all columns that are imputed from little evidence, as the report words it."""
    if columns:
        shown = ", ".join(f"{one.column!r} ({', '.join(one.reasons)})" for one in columns[:_MOST_NAMED])
        more = f" and {len(columns) - _MOST_NAMED:,} more" if len(columns) > _MOST_NAMED else ""
        warn_about_data(f"{WEAK_TITLE}: {shown}{more}. {WEAK_WORDS if can_skip else f'{_WEAK_WORDS}.'}")


def overall_error(scores: pd.DataFrame, n_imputed: Mapping[Hashable, int]) -> tuple[float, float, int] | None:
    """Error and baseline over the held-out cells of the columns that are imputed, and their number.

    Errors of other columns say nothing about the result. All columns count where no held-out cell is in one
    that is imputed; None where no cell was held out.

    Examples
    --------
    >>> scores = pd.DataFrame(
    ...     {"n": [10, 30], "error": [0.5, 0.1], "baseline": [1.0, 0.8]}, index=["age", "town"]
    ... )
    >>> overall_error(scores, {"age": 7, "town": 0})
    (0.5, 1.0, 10)
    """
    imputed = scores[[n_imputed.get(name, 0) > 0 for name in scores.index]]
    counted = imputed if imputed["n"].any() else scores
    n = int(counted["n"].sum())
    if not n:
        return None
    error, baseline = (float((counted[name] * counted["n"]).sum() / n) for name in ("error", "baseline"))
    return error, baseline, n

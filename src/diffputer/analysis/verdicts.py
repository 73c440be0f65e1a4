"""Was a column predicted? The error of held-out cells beside that of the mean, with an error bar."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from enum import StrEnum
from typing import Any

import pandas as pd

from ..tables.schema import Kind

USELESS = 0.98  # share of the baseline's error from which a column counts as not predicted
USEFUL = 0.8  # share that must be out of reach of the error bar before it does
Z = 1.645  # standard errors to each side: 90 %
SPREAD = 0.8  # deviation, between cells, of the difference of both errors, in units of the baseline's error


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
        Better, if the error bar (90 %) of the ratio ends below 1. No better, if the ratio is 0.98 or more
        and the bar does not reach down to 0.8. Else not known yet. The bar is never shorter than one cell
        more or less would move the ratio.

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
    ratio, deviation = error / baseline, SPREAD / math.sqrt(n)
    if math.isfinite(ratio_error):
        deviation = ratio_error
    elif levels:
        deviation = math.sqrt(max(error * (1 - error), 0.0) + max(baseline * (1 - baseline), 0.0)) / baseline
        deviation /= math.sqrt(n)
    reach = Z * max(deviation, 1 / (n * baseline) if levels else 1 / n)
    if ratio + reach < 1:
        return Verdict.BETTER
    return Verdict.NO_BETTER if ratio >= USELESS and ratio - reach > USEFUL else Verdict.UNKNOWN


def judge_line(line: Any) -> Verdict:
    """Judge a line of the held-out scores: kind, n, error, baseline and, where it is known, ratio_error."""
    levels = not Kind(str(line.kind)).is_numeric
    known = float(getattr(line, "ratio_error", math.nan))
    return judge(float(line.error), float(line.baseline), int(line.n), levels=levels, ratio_error=known)


def overall_error(scores: pd.DataFrame, n_missing: Mapping[Hashable, int]) -> tuple[float, float, int] | None:
    """Error and baseline over the held-out cells of the columns that have missing values, and their number.

    Other columns are never imputed, so that their errors say nothing about the result. All columns count
    where none has missing values; None where none of their cells was held out.

    Examples
    --------
    >>> scores = pd.DataFrame(
    ...     {"n": [10, 30], "error": [0.5, 0.1], "baseline": [1.0, 0.8]}, index=["age", "town"]
    ... )
    >>> overall_error(scores, {"age": 7, "town": 0})
    (0.5, 1.0, 10)
    """
    imputed = scores[[n_missing.get(name, 0) > 0 for name in scores.index]]
    counted = imputed if len(imputed) else scores
    n = int(counted["n"].sum())
    if not n:
        return None
    error, baseline = (float((counted[name] * counted["n"]).sum() / n) for name in ("error", "baseline"))
    return error, baseline, n

"""Little's test of whether cells are missing completely at random.

Reference: Little, "A test of missing completely at random for multivariate data with missing values" (JASA
1988), section 3; the maximum-likelihood estimates by EM as in Little and Rubin, "Statistical Analysis with
Missing Data", section 11.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .views import centre_and_deviation, look

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

TOLERANCE = 1e-6  # change of standardised means and covariances at which EM has converged
MOST_ROUNDS = 500
ALONE = 0.5  # share of rows with a pattern of their own above which the test cannot tell
SINGULAR = 1e-8  # eigenvalue, in units of the largest, that counts as zero


@dataclass(frozen=True)
class LittleTest:
    """The result of `little_test`.

    Attributes
    ----------
    statistic : float
        Little's d².
    df : int
        Its degrees of freedom.
    p_value : float
        Probability of a statistic as large if cells are missing completely at random; NaN where there is
        nothing to test.
    n_patterns : int
        Different patterns of missing cells.
    converged : bool
        Whether EM did.
    alone : float
        Share of the rows that are the only one of their pattern.
    part : str
        What it was of, where it was not of all columns and rows; "" if it was.
    """

    statistic: float
    df: int
    p_value: float
    n_patterns: int
    converged: bool
    alone: float = 0.0
    part: str = ""

    @property
    def tells(self) -> bool:
        """Whether its p-value says anything: EM converged and most rows share their pattern with others.

        The mean of a pattern of one row is that row: what is then tested is the tails of single rows.
        """
        return self.converged and self.alone <= ALONE

    def __str__(self) -> str:
        if np.isnan(self.p_value):
            return f"{self._name}: nothing to test (one pattern, or no numbers)"
        p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        words = f"{'evidence' if self.p_value < 0.05 else 'no evidence'} against missing completely at random"
        if not self.tells:
            words = f"cannot tell, {self.why_not}"
        return f"{self._name}: d² = {self.statistic:,.1f}, df = {self.df:,}, {p}: {words}"

    @property
    def why_not(self) -> str:
        """Why it cannot tell; "" where it can."""
        if not self.converged:
            return "as EM did not converge"
        return "" if self.tells else f"as {self.alone:.0%} of the rows have a pattern of their own"

    @property
    def _name(self) -> str:
        return f"Little's MCAR test ({self.part})" if self.part else "Little's MCAR test"


def little_test(x: Any) -> LittleTest:
    """Test whether cells are missing completely at random.

    The means of the observed cells of each pattern of missing cells are compared with those that a normal
    distribution, fitted to all rows by maximum likelihood, has there: d² is the sum, over patterns, of rows
    times squared Mahalanobis distance, with the unbiased covariance n S / (n - 1). Under MCAR and normality
    it has, for many rows, a chi-squared distribution with (sum of observed columns over patterns) - p
    degrees of freedom.

    What it cannot do: it looks at means alone, so that it misses missingness that moves only variances; far
    from normality or with patterns of few rows its p-values are rough; and not rejecting does not show MCAR.
    Where most rows have a pattern of their own it has next to no power, and says that it cannot tell.

    Parameters
    ----------
    x : array of shape (n, p), pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Of an array of numbers all columns, NaN where missing. Of tables those that hold numbers, dates,
        durations or times of day; categories and text are left out. Rows without any number and columns that
        do not vary count for nothing; columns that others determine exactly add no degrees of freedom.

    Returns
    -------
    LittleTest

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 3))
    >>> random = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    >>> little_test(random).p_value > 0.05
    True
    >>> x[x[:, 0] > 0, 1] = np.nan  # the second is missing because of the first
    >>> print(little_test(x))
    Little's MCAR test: d² = 305.9, df = 2, p < 0.001: evidence against missing completely at random
    """
    z = _standardise(_numbers(x))
    z = z[~np.isnan(z).all(axis=1)]
    patterns, group, sizes = _patterns(~np.isnan(z))
    n, p = z.shape
    if p < 1 or n < 3 or len(patterns) < 2:
        return LittleTest(0.0, 0, float("nan"), len(patterns), True)
    filled = np.where(np.isnan(z), 0.0, z)
    mean, covariance, converged = _estimate(filled, patterns, group, sizes)
    covariance = covariance * n / (n - 1)
    sums = np.zeros((len(patterns), p))
    np.add.at(sums, group, filled)
    gap = np.where(patterns, sums / sizes[:, None] - mean, 0.0)
    values, vectors = np.linalg.eigh(np.where(_pairs(patterns), covariance, 0.0))
    sound = values > SINGULAR * np.linalg.eigvalsh(covariance).max()
    along = np.einsum("gij,gi->gj", vectors, gap)
    distance = np.where(sound, along**2 / np.where(sound, values, 1.0), 0.0).sum(axis=1)
    statistic = float(sizes @ distance)
    whole = np.linalg.eigvalsh(covariance)
    df = int(sound.sum()) - int((whole > SINGULAR * whole.max()).sum())
    if df < 1:
        return LittleTest(statistic, max(df, 0), float("nan"), len(patterns), converged)
    from scipy.stats import chi2

    alone = float((sizes == 1).sum()) / n
    return LittleTest(statistic, df, float(chi2.sf(statistic, df)), len(patterns), converged, alone)


def telling_columns(x: Floats, most: int) -> list[int]:
    """Choose columns to test by pairs: one whose values differ most where another is missing, and that other.

    Differences are those of means between rows with and without the hole, in standard errors.

    Shape: x [n, p] with NaN in the holes -> as many positions as wanted, in order.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 5))
    >>> x[x[:, 3] > 0, 1] = np.nan
    >>> telling_columns(x, 2)
    [1, 3]
    """
    missing = np.isnan(x)
    moments = [centre_and_deviation(values) for values in x.T]
    centre, deviation = (np.array(part) for part in zip(*moments, strict=True))
    z = np.where(missing, 0.0, (x - centre) / deviation)
    holes, seen = missing.astype(np.float64), np.maximum((~missing).sum(axis=0), 1)[:, None]
    share = (
        (~missing).astype(np.float64).T @ holes / seen
    )  # of the cells of one, those beside a hole of another
    strength = (z.T @ holes) ** 2 / np.maximum(seen * share * (1 - share), 1e-9)
    chosen: list[int] = []
    for pair in np.argsort(-strength, axis=None, kind="stable").tolist():
        chosen += [k for k in dict.fromkeys(divmod(pair, x.shape[1])) if k not in chosen]
        if len(chosen) >= most:
            break
    return sorted(chosen[:most])


def _numbers(table: Any) -> Floats:
    """The columns of numbers of a table, [n, p]; an array of numbers as it is."""
    if not hasattr(table, "columns"):
        array = np.asarray(table)
        if array.ndim != 2:
            raise InputError(f"Little's test wants rows and columns, however: the array is {array.ndim}-D.")
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
        table = array
    view = look(table)
    numbers = [view.table.cells[k].numbers() for k, column in view.usable() if column.kind.is_numeric]
    return np.column_stack(numbers) if numbers else np.empty((view.table.n_rows, 0))


def _standardise(x: Floats) -> Floats:
    """Columns that vary, with mean 0 and deviation 1; numbers that overflow when squared are scaled first."""
    columns = []
    for values in x.T:
        known = values[~np.isnan(values)]
        largest = np.abs(known).max() if known.size else 0.0
        if known.size < 2 or not largest > 0:
            continue
        scaled = values / largest
        deviation = np.nanstd(scaled)
        if deviation > 1e-12:
            columns.append((scaled - np.nanmean(scaled)) / deviation)
    return np.column_stack(columns) if columns else np.empty((len(x), 0))


def _patterns(observed: Booleans) -> tuple[Booleans, NDArray[np.int64], Floats]:
    """Different patterns of observed cells [g, p], the pattern of each row [n], and their rows [g]."""
    patterns, group, sizes = np.unique(observed, axis=0, return_inverse=True, return_counts=True)
    return patterns, group.reshape(-1), sizes.astype(np.float64)


def _pairs(patterns: Booleans) -> Booleans:
    pairs: Booleans = patterns[:, :, None] & patterns[:, None, :]
    return pairs


def _estimate(
    filled: Floats, patterns: Booleans, group: NDArray[np.int64], sizes: Floats
) -> tuple[Floats, Floats, bool]:
    """EM for the normal distribution, all patterns at once.

    Shape: filled [n, p] with 0 in the holes, patterns [g, p], group [n], sizes [g].
    """
    order = np.argsort(group, kind="stable")  # rows of one pattern together
    filled, group = filled[order], group[order]
    ends = np.cumsum(sizes).astype(np.int64).tolist()
    rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    n, p = filled.shape
    observed = patterns[group]
    mean, covariance = np.zeros(p), np.eye(p)
    ridge, identity = 1e-9 * np.eye(p), np.eye(p)
    pairs = _pairs(patterns)
    for _ in range(MOST_ROUNDS):
        # Where a cell is missing its row and column are those of the identity: one inverse for all patterns.
        inverse = np.linalg.inv(np.where(pairs, covariance + ridge, identity))
        regression = covariance @ np.where(pairs, inverse, 0.0)  # of all columns on the observed ones
        left = sizes @ (covariance - regression @ covariance).reshape(len(sizes), -1)
        gap = np.where(observed, filled - mean, 0.0)
        # Pattern by pattern: a regression for each row would take rows times columns squared of memory.
        fitted = np.concatenate([gap[part] @ one.T for part, one in zip(rows, regression, strict=True)])
        expected = np.where(observed, filled, mean + fitted)
        new_mean = expected.mean(axis=0)
        centred = expected - new_mean
        new = (centred.T @ centred + left.reshape(p, p)) / n
        new = (new + new.T) / 2
        change = max(np.abs(new_mean - mean).max(), np.abs(new - covariance).max())
        mean, covariance = new_mean, new
        if change < TOLERANCE:
            return mean, covariance, True
    return mean, covariance, False

"""Tests of whether methods differ, as Demsar (2006, JMLR 7, 1-30) recommends for many data sets.

Numbers here are losses: smaller is better. One row a data set or task, one column a method.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import factorial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...errors import InputError

Floats = NDArray[np.float64]
#: Of all tests.
ALPHA = 0.05
#: Friedman's p is exact where the ranks can be arranged in no more ways than these.
_MOST_ARRANGEMENTS = 20_000


@dataclass(frozen=True)
class Friedman:
    """The test of no difference between k methods on n data sets.

    Attributes
    ----------
    ranks
        Mean rank of each method; 1 is best.
    chi2, f
        Friedman's statistic (without a correction for ties, so cautious where there are ties), and that of
        Iman and Davenport, which is less so.
    p, how
        The p-value, and what it is of: "exact", the share of all arrangements of the ranks within data sets
        with so large a statistic; "F", the approximation of Iman and Davenport; "smallest", the smallest
        exact one that there can be, where all data sets agree and ``f`` is infinite.
    critical_difference
        Of Nemenyi's test: mean ranks that are further apart differ at the level `ALPHA`.
    """

    ranks: tuple[float, ...]
    n: int
    chi2: float
    f: float
    p: float
    how: str
    critical_difference: float


@dataclass(frozen=True)
class Pair:
    """Two methods on the same tasks: wins are of the first; p of Wilcoxon's signed-rank test."""

    first: int
    second: int
    wins: int
    ties: int
    losses: int
    median_difference: float
    p: float
    p_holm: float


def rank_rows(losses: Floats) -> Floats:
    """Rank the methods in every row; equal ones share their ranks.

    Examples
    --------
    >>> rank_rows(np.array([[0.3, 0.1, 0.3]])).tolist()
    [[2.5, 1.0, 2.5]]
    """
    return np.asarray(stats.rankdata(losses, axis=1), dtype=np.float64)


def run_friedman(losses: Floats) -> Friedman:
    """Test whether k methods differ on n data sets, and how far apart mean ranks must be.

    Parameters
    ----------
    losses : array, shape (n, k)
        One row a data set.

    Returns
    -------
    Friedman
        With Nemenyi's critical difference.

    Examples
    --------
    >>> result = run_friedman(np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]))
    >>> [round(rank, 2) for rank in result.ranks], round(result.chi2, 2), round(result.f, 2)
    ([1.0, 2.33, 2.67], 4.67, 7.0)
    >>> round(result.p, 3), result.how
    (0.194, 'exact')
    """
    n, k = losses.shape
    if n < 2 or k < 2:
        raise InputError(
            f"Ranks must be of two methods on two data sets at least, however: {k} and {n} are given."
        )
    by_row = rank_rows(losses)
    ranks = by_row.mean(axis=0)
    chi2 = max(12 * n / (k * (k + 1)) * (float((ranks**2).sum()) - k * (k + 1) ** 2 / 4), 0.0)
    room = n * (k - 1) - chi2
    f = (n - 1) * chi2 / room if room > 1e-9 else float("inf")
    arrangements = factorial(k) ** (n - 1)
    if arrangements <= _MOST_ARRANGEMENTS:
        p, how = _find_exact_p(by_row), "exact"
    elif np.isinf(f):
        p, how = 1 / arrangements, "smallest"
    else:
        p, how = float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))), "F"
    return Friedman(tuple(ranks.tolist()), n, chi2, f, p, how, find_critical_difference(k, n))


def _find_exact_p(ranks: Floats) -> float:
    """Give the share of all arrangements of ranks within rows whose column sums are as far apart as these.

    The first row stays as it is: exchanging columns in all rows changes no statistic.
    """
    sums = ranks[:1]
    for row in ranks[1:]:
        arranged = np.array(list(permutations(row)))
        sums = (sums[:, None] + arranged).reshape(-1, ranks.shape[1])
    observed = (ranks.sum(axis=0) ** 2).sum()
    return float(((sums**2).sum(axis=1) >= observed - 1e-9).mean())


def find_critical_difference(k: int, n: int, alpha: float = ALPHA) -> float:
    """Give Nemenyi's critical difference of mean ranks for k methods on n data sets.

    Examples
    --------
    >>> round(find_critical_difference(4, 14), 2)
    1.25
    """
    # Where the degrees of freedom are infinite scipy integrates the exact limit.
    q = float(stats.studentized_range.ppf(1 - alpha, k, np.inf)) / 2**0.5
    return q * float(np.sqrt(k * (k + 1) / (6 * n)))


def compare_pairs(losses: Floats) -> list[Pair]:
    """Compare every two methods by Wilcoxon's signed-rank test, corrected by Holm over all pairs.

    Parameters
    ----------
    losses : array, shape (n, k)
        One row a task.

    Returns
    -------
    list of Pair
        In the order of the columns.

    Examples
    --------
    >>> rival = np.array([2.0, 2.5, 1.1, 3.0, 1.7, 1.0])
    >>> pair, = compare_pairs(np.column_stack([np.ones(6), rival]))
    >>> pair.wins, pair.ties, pair.losses, pair.p
    (5, 1, 0, 0.0625)
    """
    pairs = list(combinations(range(losses.shape[1]), 2))
    differences = [losses[:, i] - losses[:, j] for i, j in pairs]
    p_values = [_wilcoxon(difference) for difference in differences]
    corrected = correct_holm(p_values)
    return [
        Pair(
            i, j, int((difference < 0).sum()), int((difference == 0).sum()), int((difference > 0).sum()),
            float(np.median(difference)), p, holm,
        )
        for (i, j), difference, p, holm in zip(pairs, differences, p_values, corrected, strict=True)
    ]  # fmt: skip


def correct_holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down rule.

    Examples
    --------
    >>> correct_holm([0.01, 0.04, 0.03, 0.005])
    [0.03, 0.06, 0.06, 0.02]
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, position in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min((len(p_values) - place) * p_values[position], 1.0))
        corrected[position] = largest
    return corrected


def find_cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Give the longest runs of methods, ordered by rank, whose ends do not differ significantly.

    Parameters
    ----------
    ranks : sequence of float
        Ascending.
    difference : float
        The critical one.

    Returns
    -------
    list of (first, last)
        Positions; runs of one and runs inside longer runs are left out.

    Examples
    --------
    >>> find_cliques([1.96, 2.0, 2.89, 3.14, 4.0], 1.25)
    [(0, 3), (2, 4)]
    """
    runs: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(i for i in range(first, len(ranks)) if ranks[i] - ranks[first] <= difference)
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def _wilcoxon(difference: Floats) -> float:
    different = difference[difference != 0]
    if not different.size:
        return 1.0
    # Ties among the sizes rule the exact distribution out; scipy would warn of small samples.
    sizes = np.abs(different)
    exact = different.size <= 50 and len(np.unique(sizes)) == len(sizes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sample size too small")  # older scipy
        return float(stats.wilcoxon(different, method="exact" if exact else "approx").pvalue)

"""Tests of several parameters at once from m completed tables: the statistics D1 and D2.

D1 pools estimates and covariances (Li, Raghunathan and Rubin 1991, JASA 86; degrees of freedom for small
samples by Reiter 2007, Biometrika 94), D2 test statistics alone (Li, Meng, Raghunathan and Rubin 1991,
Statistica Sinica 1). D1 is the one to use where there are covariances; D3, of
:mod:`diffputer.analysis.likelihoods`, is asymptotically its equal where the null hypothesis holds, and its
estimate of the lost information is consistent only there (Chan and Meng 2022, Statistica Sinica 32); D2
needs least and is worth least: it has little power with few draws.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import chdtrc, fdtrc

from ..errors import InputError, SettingError
from .estimates import Floats, listed


@dataclass(frozen=True)
class PooledTest:
    """A pooled test; its statistic follows an F distribution if the hypothesis is true.

    Attributes
    ----------
    method
        "D1", "D2" or "D3".
    statistic
        The value of F.
    df_num, df_denom
        Its degrees of freedom: how many restrictions, and how sure the draws are of the variance.
    p_value
        P(F > statistic).
    riv
        Average relative increase in variance by the holes.
    m
        How many draws.
    """

    method: str
    statistic: float
    df_num: int
    df_denom: float
    p_value: float
    riv: float
    m: int

    def __repr__(self) -> str:
        return (
            f"<{self.method}: F({self.df_num}, {self.df_denom:.4g}) = {self.statistic:.4g}, "
            f"p = {self.p_value:.4g}, riv = {self.riv:.3g}, {self.m} draws>"
        )


def compare_restrictions(
    names: Sequence[Hashable],
    values: Floats,
    covariances: Floats,
    restrictions: Any = None,
    hypothesis: Any = 0.0,
    *,
    df_complete: float = math.inf,
) -> PooledTest:
    """Test linear restrictions R θ = h: D1.

    Parameters
    ----------
    names
        Of the k coefficients.
    values, covariances
        Estimates [m, k] and covariances [m, k, k] of the draws.
    restrictions, hypothesis
        See :meth:`diffputer.analysis.pooling.Pooled.wald`. Default: all coefficients are 0.
    df_complete
        Degrees of freedom of the complete data.

    Examples
    --------
    >>> found = compare_restrictions(["a"], np.array([[1.0], [2.0], [3.0]]), np.ones((3, 1, 1)))
    >>> found
    <D1: F(1, 6.125) = 1.714, p = 0.2374, riv = 1.33, 3 draws>
    """
    matrix, target = _read_restrictions(tuple(names), restrictions, hypothesis)
    m, k = len(values), len(matrix)
    q = values @ matrix.T - target  # [m, restrictions]
    u = np.einsum("ri,mij,sj->mrs", matrix, covariances, matrix).mean(axis=0)
    scale = np.sqrt(np.diag(u))  # so that units do not matter
    correlation = u / np.where(np.outer(scale, scale) > 0, np.outer(scale, scale), 1.0)
    if np.linalg.matrix_rank(matrix) < k or np.linalg.matrix_rank(correlation, hermitian=True) < k:
        raise InputError(
            f"Restrictions must not follow from each other, however: the {k} of this test do, or the "
            "covariance is singular in them. Leave some out."
        )
    mean = q.mean(axis=0)
    b = (q - mean).T @ (q - mean) / (m - 1)
    riv = (1 + 1 / m) * float(np.trace(np.linalg.solve(u, b))) / k
    riv = 0.0 if (q == q[0]).all() else riv
    statistic = float(mean @ np.linalg.solve(u, mean)) / (k * (1 + riv))
    return pooled_test("D1", statistic, k, _reiter(riv, k, m, df_complete), riv, m)


def _read_restrictions(
    names: tuple[Hashable, ...], restrictions: Any, hypothesis: Any
) -> tuple[Floats, Floats]:
    """R [restrictions, k] and h [restrictions]."""
    if isinstance(restrictions, Mapping):
        hypothesis, restrictions = list(restrictions.values()), list(restrictions)
    chosen = _entries(names if restrictions is None else restrictions, names)
    if (given := _matrix_of(chosen, names)) is not None:
        matrix = given
        if matrix.ndim != 2 or matrix.shape[1] != len(names):
            raise InputError(
                f"A matrix of restrictions must have one column for each of the {len(names)} coefficients, "
                f"however: its shape is {matrix.shape}."
            )
    else:
        if unknown := [name for name in chosen if not _is_name(name, names)]:
            row = len(chosen) == len(names) and all(isinstance(number, int | float) for number in chosen)
            raise InputError(
                f"Restrictions must name coefficients, however: {', '.join(map(repr, unknown))} "
                f"{'is' if len(unknown) == 1 else 'are'} none. There are {', '.join(map(repr, names))}"
                f"{f'; a matrix of one row is [{chosen}]' if row else ''}."
            )
        matrix = np.zeros((len(chosen), len(names)))
        for row_number, name in enumerate(chosen):
            matrix[row_number, names.index(name)] = 1.0
    if len(matrix) == 0:
        raise InputError(
            "A test needs restrictions, however: there are none. Name coefficients to be tested."
        )
    try:
        numbers = np.asarray(hypothesis, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"Values of a hypothesis must be numbers, however: they are {hypothesis!r}."
        ) from None
    if numbers.shape not in ((), (1,), (len(matrix),)):
        raise InputError(
            f"There must be one value for each of the {len(matrix)} restrictions, however: "
            f"{numbers.size} were given."
        )
    target = np.broadcast_to(numbers, (len(matrix),))
    return matrix, target


def _entries(restrictions: Any, names: tuple[Hashable, ...]) -> list[Any]:
    """Names, or rows of a matrix. One dimension is names, in an array as in a list; two are rows.

    A table is a matrix; its columns may be the names of the coefficients in any order.
    """
    if isinstance(restrictions, pd.DataFrame):
        columns = list(restrictions.columns)
        named = len(columns) == len(names) and set(columns) == set(names)
        order = [columns.index(name) for name in names] if named else slice(None)
        restrictions = restrictions.to_numpy()[:, order]
    if isinstance(restrictions, np.ndarray):
        if restrictions.ndim == 2 and restrictions.dtype.kind not in "biuf":
            return [tuple(row) for row in restrictions.tolist()]  # names of several parts
        restrictions = restrictions.tolist()
    if isinstance(restrictions, str) or _is_name(restrictions, names):
        return [restrictions]
    return list(restrictions) if isinstance(restrictions, Iterable) else [restrictions]


def _is_name(entry: Any, names: tuple[Hashable, ...]) -> bool:
    """Whether this names a coefficient; True and False are not the names 1 and 0."""
    return isinstance(entry, Hashable) and any(
        entry == name and isinstance(entry, bool) == isinstance(name, bool) for name in names
    )


def _matrix_of(rows: list[Any], names: tuple[Hashable, ...]) -> Floats | None:
    """The matrix that rows of numbers are; None if these are names, of which some are tuples."""
    if not rows or not all(
        isinstance(row, list | np.ndarray) or (isinstance(row, tuple) and not _is_name(row, names))
        for row in rows
    ):
        return None
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"A matrix of restrictions must have rows of {len(names)} numbers, however: {rows!r}."
        ) from None


def _reiter(riv: float, k: int, m: int, df_complete: float) -> float:
    """Degrees of freedom of D1 in small samples; those of Li, Raghunathan and Rubin in large ones.

    Of one restriction in a small sample they are Barnard and Rubin's, so that D1 is the square of the
    table's t: here it departs from mice, which has Reiter's for one restriction as well. Few draws, k (m - 1)
    of 4 or less, are beyond Reiter's formula; Barnard and Rubin's are then scaled by (k + 1) / 2.
    """
    if math.isinf(df_complete) or riv <= 0:
        return df_complete if riv <= 0 else large_sample_df(riv, k, m)
    t = k * (m - 1)
    shrunk = df_complete * (df_complete + 1) / (df_complete + 3)
    # Few draws or a tiny sample: Barnard and Rubin's for one coefficient, scaled as Li et al. scale theirs.
    lambda_ = riv / (1 + riv)
    single = 1 / (lambda_**2 / (m - 1) + 1 / (shrunk * (1 - lambda_)))
    scaled = (k + 1) / 2 * single
    if k == 1 or t <= 4:
        return scaled
    # Reiter (2007), as it becomes that of Li et al. when the sample grows.
    a = riv * t / (t - 2)
    c1, c2 = shrunk - 2 * (1 + a), shrunk - 4 * (1 + a)
    if c2 <= 0:
        return min(4.0, scaled)
    missing = (
        c1 / ((1 + a) ** 2 * c2)
        + 8 * c1 / ((1 + a) * c2**2)
        + 4 / ((1 + a) * c2)
        + 4 / (c2 * c1)
        + 16 * c1 / c2**3
        + 8 / c2**2
    )
    return 4 + 1 / (1 / c2 + a**2 / (t - 4) * missing)


def large_sample_df(riv: float, k: int, m: int) -> float:
    """Denominator degrees of freedom of D1 and D3 in large samples."""
    if riv <= 0:
        return math.inf
    t = k * (m - 1)
    if t > 4:
        return 4 + (t - 4) * (1 + (1 - 2 / t) / riv) ** 2
    return t * (1 + 1 / k) * (1 + 1 / riv) ** 2 / 2


def pool_statistics(statistics: Iterable[float], df: int, *, kind: str = "chi2") -> PooledTest:
    """Pool test statistics of several completed tables: D2, for analyses that give nothing else.

    Parameters
    ----------
    statistics
        One for each draw: chi-square statistics (of Wald, score or likelihood-ratio tests), or F.
    df
        Their degrees of freedom; of F those of the numerator.
    kind : {"chi2", "F"}
        What the statistics are.

    Returns
    -------
    PooledTest
        D2. Below 0 it speaks for the hypothesis, with a p-value of 1.

    Examples
    --------
    >>> pool_statistics([4.0, 9.0, 16.0], df=2)
    <D2: F(2, 3.062) = 0.9286, p = 0.4839, riv = 1.33, 3 draws>
    """
    if kind not in ("chi2", "F"):
        raise SettingError(f"kind must be 'chi2' or 'F', however: it is {kind!r}.")
    k = whole_number(df, "df")
    d = np.array(
        [_statistic(given, number) for number, given in enumerate(listed(statistics, "statistics"), start=1)]
    )
    m = len(d)
    if m < 2:
        raise InputError(f"Pooling needs at least 2 draws, however: {m} statistics were given. Draw more.")
    if not np.isfinite(d).all() or (d < 0).any():
        bad = int(np.flatnonzero(~(np.isfinite(d) & (d >= 0)))[0])
        raise InputError(
            f"Statistics must be finite and not below 0, however: that of draw {bad + 1} is {d[bad]}."
        )
    d = d * k if kind == "F" else d
    riv = (1 + 1 / m) * float(np.var(np.sqrt(d), ddof=1))
    statistic = (float(d.mean()) / k - (m + 1) / (m - 1) * riv) / (1 + riv)
    df_denom = k ** (-3 / m) * (m - 1) * (1 + 1 / riv) ** 2 if riv > 0 else math.inf
    return pooled_test("D2", statistic, k, df_denom, riv, m)


def _statistic(given: Any, number: int) -> float:
    """A number, also as an array of one."""
    try:
        value = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        value = np.empty(0)
    if value.size != 1:
        raise InputError(f"Statistics must be numbers, however: that of draw {number} is {given!r}.")
    return float(value.reshape(()))


def whole_number(df: Any, name: str) -> int:
    """Degrees of freedom that a user gave."""
    if isinstance(df, bool) or not isinstance(df, int | np.integer) or df < 1:
        raise SettingError(f"{name} must be a whole number of at least 1, however: it is {df!r}.")
    return int(df)


def pooled_test(method: str, statistic: float, k: int, df_denom: float, riv: float, m: int) -> PooledTest:
    """A test by an F distribution, or by chi-square for infinite denominator degrees of freedom."""
    x = max(statistic, 0.0)
    p_value = float(chdtrc(k, k * x) if math.isinf(df_denom) else fdtrc(k, df_denom, x))
    return PooledTest(method, statistic, k, df_denom, p_value, riv, m)

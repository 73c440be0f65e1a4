"""Rubin's rules: the estimates of m completed tables as one, with the uncertainty that the holes add.

Symbols are those of Rubin (1987) and of Barnard and Rubin (1999, Biometrika 86): q̄ the mean of the
estimates, ū the mean of their variances (within), b their variance between draws, t = ū + (1 + 1/m) b the
total variance. Tests of several coefficients at once are in :mod:`diffputer.analysis.wald`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from ..errors import SettingError
from .estimates import Floats, listed, stack_estimates
from .wald import PooledTest, compare_restrictions


@dataclass(frozen=True, eq=False)
class Rubin:
    """Rubin's rules for each coefficient; all of shape [k] but the covariances, [k, k].

    Attributes
    ----------
    estimate, std_error, df
        q̄, √t and the degrees of freedom of Barnard and Rubin.
    riv
        Relative increase of the variance by the holes, (1 + 1/m) b / ū.
    lambda_
        Share of the total variance that is due to the holes, (1 + 1/m) b / t.
    fmi
        Fraction of missing information, (riv + 2 / (df + 3)) / (1 + riv).
    relative_efficiency
        1 / (1 + fmi / m): of m draws as against infinitely many.
    within, between, total
        ū, b and t as covariance matrices.
    """

    estimate: Floats
    std_error: Floats
    df: Floats
    riv: Floats
    lambda_: Floats
    fmi: Floats
    relative_efficiency: Floats
    within: Floats
    between: Floats
    total: Floats


def apply_rubin(values: Floats, covariances: Floats, df_complete: float = math.inf) -> Rubin:
    """Combine estimates [m, k] and their covariances [m, k, k] by Rubin's rules.

    Where all draws agree on a coefficient nothing is missing for it: its degrees of freedom are those of
    the complete data and its fraction of missing information is 0.

    Examples
    --------
    >>> found = apply_rubin(np.array([[1.0], [2.0], [3.0]]), np.ones((3, 1, 1)))
    >>> found.estimate, found.total.round(4), found.df.round(3)
    (array([2.]), array([[2.3333]]), array([6.125]))
    """
    m = len(values)
    estimate = values.mean(axis=0)
    within = covariances.mean(axis=0)
    apart = values - estimate
    between = apart.T @ apart / (m - 1)
    total = within + (1 + 1 / m) * between
    u, t = np.diag(within), np.diag(total)
    added = (1 + 1 / m) * np.diag(between)
    agreed = (values == values[0]).all(axis=0)
    added = np.where(agreed, 0.0, added)  # the mean of equal numbers may differ from them by rounding
    riv, lambda_ = added / u, added / t
    df = np.where(agreed, df_complete, barnard_rubin(lambda_, m, df_complete))
    fmi = np.where(agreed, 0.0, (riv + 2 / (df + 3)) / (1 + riv))
    return Rubin(
        estimate=np.where(agreed, values[0], estimate),
        std_error=np.sqrt(t),
        df=df,
        riv=riv,
        lambda_=lambda_,
        fmi=fmi,
        relative_efficiency=1 / (1 + fmi / m),
        within=within,
        between=between,
        total=total,
    )


def barnard_rubin(lambda_: Floats, m: int, df_complete: float = math.inf) -> Floats:
    """Degrees of freedom of a pooled estimate (Barnard and Rubin 1999).

    Parameters
    ----------
    lambda_
        Share of the total variance that is due to the holes.
    m
        How many draws.
    df_complete
        Degrees of freedom that the complete data would have.

    Examples
    --------
    >>> barnard_rubin(np.array([0.5]), 5), barnard_rubin(np.array([0.5]), 5, 20.0).round(4)
    (array([16.]), array([5.8131]))
    """
    with np.errstate(divide="ignore"):
        infinite_sample = (m - 1) / np.square(lambda_)
    if math.isinf(df_complete):
        return np.asarray(infinite_sample)
    observed = (df_complete + 1) / (df_complete + 3) * df_complete * (1 - lambda_)
    with np.errstate(divide="ignore"):
        return np.asarray(1 / (1 / infinite_sample + 1 / observed))


@dataclass(frozen=True, eq=False)
class Pooled:
    """Estimates of several completed tables as one.

    Attributes
    ----------
    table : pandas.DataFrame
        One row for each coefficient: estimate, std_error, df, statistic (estimate / std_error), p_value (of
        the coefficient being 0, by the t distribution), ci_low, ci_high, fmi (fraction of missing
        information), riv (relative increase in variance), lambda_ (share of the variance that is due to the
        holes), relative_efficiency (as against infinitely many draws).
    within, between, total : pandas.DataFrame
        Covariances: the mean of the draws', that between draws, and their sum within + (1 + 1/m) between.
    m : int
        How many draws.
    df_complete, conf_level : float
        Degrees of freedom of the complete data, and the level of the intervals.
    """

    table: pd.DataFrame
    within: pd.DataFrame
    between: pd.DataFrame
    total: pd.DataFrame
    m: int
    df_complete: float
    conf_level: float
    _values: Floats = field(repr=False)
    _covariances: Floats = field(repr=False)
    _regressors: tuple[Hashable, ...] = field(repr=False)

    @property
    def draws_needed(self) -> int:
        """How many draws the largest fraction of missing information asks for.

        At least 100 x fmi (White, Royston and Wood 2011): then another set of draws would give nearly the
        same p-values and intervals.
        """
        return max(2, math.ceil(100 * float(self.table["fmi"].max()) - 1e-9))

    def wald(
        self,
        restrictions: Sequence[Any] | Mapping[Hashable, float] | npt.NDArray[Any] | None = None,
        values: Any = 0.0,
        *,
        small_sample: bool = True,
    ) -> PooledTest:
        """Test several coefficients, or combinations of them, at once: the statistic D1.

        Li, Raghunathan and Rubin (1991); the increase of variance is taken as alike for all restrictions.
        Of a single restriction in a small sample the degrees of freedom are those of Barnard and Rubin, as
        in the table, of whose t the test is the square; mice has Reiter's there too, which differ a little.

        Parameters
        ----------
        restrictions
            Names of coefficients that are tested against 0 (for nested models: those that the smaller model
            lacks), a dict of name -> value, or a matrix (an array of two dimensions, or a list of rows) with
            one row for each restriction and one column for each coefficient. Default: the coefficients of
            all regressors. Intercepts are left out by their names ("Intercept", "const", ..., also as the
            last part of a tuple); of statsmodels results also what is no column of the model's matrix:
            thresholds of ordered levels, variances of random effects, dispersions.
        values
            What the rows of a matrix, or the named coefficients, are under the hypothesis.
        small_sample
            Use Reiter's (2007) degrees of freedom if those of the complete data are known, and Barnard and
            Rubin's of a single restriction.

        Returns
        -------
        PooledTest
            Statistic, degrees of freedom of its F distribution, p-value and relative increase in variance.
        """
        return compare_restrictions(
            tuple(self.table.index),
            self._values,
            self._covariances,
            list(self._regressors) if restrictions is None else restrictions,
            values,
            df_complete=self.df_complete if small_sample else math.inf,
        )

    def __repr__(self) -> str:
        sample = (
            "a large sample" if math.isinf(self.df_complete) else f"{self.df_complete:g} degrees of freedom"
        )
        head = f"Pooled from {self.m} draws by Rubin's rules, {self.conf_level:.0%} intervals, {sample}"
        text: str = self.table.to_string(float_format=lambda number: f"{number:.4g}")
        return f"{head}\n{text}"

    def _repr_html_(self) -> str:
        body: str = self.table.to_html(float_format=lambda number: f"{number:.4g}")
        return f"<p>Pooled from {self.m} draws by Rubin's rules, {self.conf_level:.0%} intervals</p>{body}"


def pool(results: Iterable[Any], *, conf_level: float = 0.95, df_complete: float | None = None) -> Pooled:
    """Combine analyses of several completed tables by Rubin's rules.

    Parameters
    ----------
    results
        One for each completed table, at least 2: statsmodels results, pairs (estimates, covariance) of
        numbers, arrays, Series or dicts, or linear models with their covariance; see
        :func:`diffputer.analysis.estimates.read_estimates` for all that is read.
    conf_level
        Of the intervals.
    df_complete
        Residual degrees of freedom that the complete data would have. Default: the smallest that the
        results state, infinite if they state none.

    Returns
    -------
    Pooled
        A table with one row for each coefficient, and the covariances.

    Examples
    --------
    >>> pooled = pool([(10.0, 4.0), (12.0, 5.0), (11.0, 3.0)], df_complete=30)
    >>> pooled.table[["estimate", "std_error", "df"]].round(3).values.tolist()
    [[11.0, 2.309, 12.729]]
    """
    if not _is_number(conf_level) or not 0 < conf_level < 1:
        raise SettingError(f"conf_level must lie between 0 and 1, however: it is {conf_level!r}. Try 0.95.")
    conf_level = float(conf_level)
    if df_complete is not None and not (_is_number(df_complete) and df_complete > 0):
        raise SettingError(
            f"df_complete must be a number above 0, however: it is {df_complete!r}. Give the residual "
            "degrees of freedom of the complete data: rows less coefficients."
        )
    draws = stack_estimates(listed(results))
    known = draws.df if df_complete is None else float(df_complete)
    found = apply_rubin(draws.values, draws.covariances, known)
    statistic = found.estimate / found.std_error
    margin = _t_quantile(0.5 + conf_level / 2, found.df) * found.std_error
    index = pd.Index(list(draws.names), tupleize_cols=False)
    table = pd.DataFrame(
        {
            "estimate": found.estimate,
            "std_error": found.std_error,
            "df": found.df,
            "statistic": statistic,
            "p_value": 2 * _t_tail(np.abs(statistic), found.df),
            "ci_low": found.estimate - margin,
            "ci_high": found.estimate + margin,
            "fmi": found.fmi,
            "riv": found.riv,
            "lambda_": found.lambda_,
            "relative_efficiency": found.relative_efficiency,
        },
        index=index,
    )
    within, between, total = (
        pd.DataFrame(matrix, index=index, columns=index)
        for matrix in (found.within, found.between, found.total)
    )
    m = len(draws.values)
    return Pooled(
        table, within, between, total, m, known, conf_level, draws.values, draws.covariances, draws.regressors
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)  # NumPy's numbers are Real too


def _t_tail(statistic: Floats, df: Floats) -> Floats:
    """P(T > statistic); of the normal distribution for infinite degrees of freedom."""
    finite = np.where(np.isinf(df), 1.0, df)
    return np.asarray(np.where(np.isinf(df), ndtr(-statistic), stdtr(finite, -statistic)))


def _t_quantile(share: float, df: Floats) -> Floats:
    finite = np.where(np.isinf(df), 1.0, df)
    return np.asarray(np.where(np.isinf(df), ndtri(share), stdtrit(finite, share)))

"""The analysis of a table: least squares and column means, of one table or pooled over several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ...analysis.pooling import pool
from ...errors import InputError
from .designs import Design, Floats

#: Of all intervals.
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate of one number with its 95 % interval; fmi only where tables were pooled."""

    estimate: float
    std_error: float
    df: float
    low: float
    high: float
    fmi: float | None = None

    def as_list(self) -> list[float | None]:
        """Give all of it in order, for JSON."""
        return list(astuple(self))


@dataclass(frozen=True)
class _Fit:
    """Estimates with their covariance and residual degrees of freedom, as `diffputer.pool` reads them."""

    names: tuple[str, ...]
    values: Floats
    covariance: Floats
    df: float


def analyse_one(design: Design, table: pd.DataFrame) -> dict[str, Interval]:
    """Analyse one complete table as if nothing had been missing.

    Returns
    -------
    dict
        Estimand -> interval, by the t distribution.
    """
    found: dict[str, Interval] = {}
    for fit in _fit(design, table):
        errors = np.sqrt(np.diag(fit.covariance))
        margins = stdtrit(fit.df, 0.5 + LEVEL / 2) * errors
        for name, value, error, margin in zip(fit.names, fit.values, errors, margins, strict=True):
            found[name] = Interval(
                float(value), float(error), fit.df, float(value - margin), float(value + margin)
            )
    return found


def analyse_draws(design: Design, tables: Sequence[pd.DataFrame]) -> dict[str, Interval]:
    """Analyse every completed table and pool by Rubin's rules.

    Returns
    -------
    dict
        Estimand -> interval, with the degrees of freedom of Barnard and Rubin.
    """
    found: dict[str, Interval] = {}
    for fits in zip(*(_fit(design, table) for table in tables), strict=True):
        triples = [(pd.Series(f.values, index=list(f.names)), f.covariance, f.df) for f in fits]
        pooled = pool(triples, conf_level=LEVEL).table
        for name, row in pooled.iterrows():
            found[str(name)] = Interval(
                *(float(row[c]) for c in ("estimate", "std_error", "df", "ci_low", "ci_high", "fmi"))
            )
    return found


def _fit(design: Design, table: pd.DataFrame) -> list[_Fit]:
    """Give the regression and each mean; they are apart because their degrees of freedom differ."""
    n, k = len(table), len(design.terms)
    if n <= k + 1:
        raise InputError(f"The analysis needs more rows than coefficients, however: {n} rows, {k} terms.")
    if table.isna().to_numpy().any():
        raise InputError("The analysis needs complete rows, however: there are missing cells.")
    x = np.column_stack([term(table) for term in design.terms.values()])
    y = table["y"].to_numpy(dtype=np.float64)
    coefficients, *_ = np.linalg.lstsq(x, y, rcond=None)
    residual = y - x @ coefficients
    variance = residual @ residual / (n - k)
    covariance = variance * np.linalg.inv(x.T @ x)
    fits = [_Fit(tuple(design.terms), coefficients, covariance, float(n - k))]
    values = table[list(design.means)].to_numpy(dtype=np.float64)
    names = tuple(f"mean({column})" for column in design.means)
    # Their covariances are not asked for.
    spread = np.diag(values.var(axis=0, ddof=1) / n)
    fits.append(_Fit(names, values.mean(axis=0), spread, float(n - 1)))
    return fits

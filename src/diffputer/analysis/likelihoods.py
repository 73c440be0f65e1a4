"""Comparison of nested models by their likelihoods, from m completed tables: the statistic D3.

Meng and Rubin (1992, Biometrika 79). Tests that need covariances or test statistics alone, D1 and D2, are in
:mod:`diffputer.analysis.wald`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..errors import InputError
from .estimates import Floats
from .wald import PooledTest, large_sample_df, pooled_test, whole_number


def pool_likelihood(full: Iterable[Any], null: Iterable[Any], *, df: int | None = None) -> PooledTest:
    """Compare nested models by their likelihoods: D3.

    The likelihood ratio of each completed table is taken twice: at that table's own estimates, and at the
    means of the estimates of all tables. Parameters that have names are matched by them. Whether the smaller
    model is a special case of the larger one is not checked: if it is not, the test means nothing.

    Parameters
    ----------
    full, null
        The larger and the smaller model, one fit for each draw: a statsmodels result whose model has
        ``loglike`` (GLM, Logit, Poisson, OLS, ...), or a pair (parameters, log_likelihood) in which
        ``log_likelihood(parameters)`` is the log-likelihood of that draw's table. statsmodels' linear models
        maximise over the residual variance, so that it is not averaged over draws.
    df
        How many parameters the smaller model lacks. Default: the difference of their numbers.

    Returns
    -------
    PooledTest
        D3.

    Examples
    --------
    >>> draws = [np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 3.5])]
    >>> full = [(x.mean(), lambda mean, x=x: -0.5 * ((x - mean) ** 2).sum()) for x in draws]
    >>> null = [([], lambda none, x=x: -0.5 * (x**2).sum()) for x in draws]
    >>> pool_likelihood(full, null)
    <D3: F(1, 25) = 11.27, p = 0.002525, riv = 0.25, 2 draws>
    """
    models = [_read_likelihoods(fits, name) for fits, name in ((full, "full"), (null, "null"))]
    (theta, likelihoods), (theta0, likelihoods0) = models
    m = len(likelihoods)
    if m != len(likelihoods0):
        raise InputError(
            f"Both models need one fit for each draw, however: there are {m} of the full and "
            f"{len(likelihoods0)} of the null model."
        )
    if m < 2:
        raise InputError(f"Pooling needs at least 2 draws, however: there are {m} fits. Draw more.")
    k = whole_number(
        theta.shape[1] - theta0.shape[1] if df is None else df, "df, the parameters that null lacks,"
    )
    own = _ratio(likelihoods, theta, likelihoods0, theta0)
    common = _ratio(
        likelihoods,
        np.repeat(theta.mean(axis=0, keepdims=True), m, axis=0),
        likelihoods0,
        np.repeat(theta0.mean(axis=0, keepdims=True), m, axis=0),
    )
    riv = max(0.0, (m + 1) / (k * (m - 1)) * (own - common))
    return pooled_test("D3", common / (k * (1 + riv)), k, large_sample_df(riv, k, m), riv, m)


def _read_likelihoods(fits: Iterable[Any], which: str) -> tuple[Floats, list[Callable[[Any], Any]]]:
    """Parameters [m, k], in the order of the first draw, and log-likelihoods of the fits of one model."""
    parameters: list[Floats] = []
    likelihoods: list[Callable[[Any], Any]] = []
    first: tuple[Hashable, ...] | None = None
    for number, fit in enumerate(fits, start=1):
        if isinstance(fit, tuple | list) and len(fit) == 2 and callable(fit[1]):
            theta, likelihood = fit
        elif hasattr(fit, "params") and callable(getattr(getattr(fit, "model", None), "loglike", None)):
            theta, likelihood = fit.params, fit.model.loglike
        else:
            raise InputError(
                "Likelihoods are read of statsmodels results and of pairs (parameters, log_likelihood), "
                f"however: draw {number} of the {which} model is a {type(fit).__name__}."
            )
        names, values = _names_of(theta), np.asarray(theta, dtype=np.float64).ravel(order="F")
        first = names if first is None else first
        if names is not None and first is not None and names != first:
            if set(names) != set(first) or len(set(names)) < len(names):
                raise InputError(
                    f"All draws must estimate the same parameters, however: in the {which} model draw "
                    f"{number} has {', '.join(map(repr, names))} and an earlier one has "
                    f"{', '.join(map(repr, first))}."
                )
            values = values[[names.index(name) for name in first]]
            likelihood = _reordered(likelihood, [first.index(name) for name in names])
        parameters.append(values)
        likelihoods.append(likelihood)
    if len({theta.shape for theta in parameters}) > 1:
        raise InputError(
            f"All draws must estimate the same parameters, however: those of the {which} model are "
            f"{' or '.join(str(k) for k in sorted({theta.size for theta in parameters}))} in number."
        )
    return np.stack(parameters) if parameters else np.empty((0, 0)), likelihoods


def _names_of(theta: Any) -> tuple[Hashable, ...] | None:
    """Names of parameters, if they have any; those of several equations one equation after the other."""
    if isinstance(theta, pd.Series):
        return tuple(theta.index)
    if isinstance(theta, pd.DataFrame):
        return tuple((row, column) for column in theta.columns for row in theta.index)
    return None


def _reordered(likelihood: Callable[[Any], Any], order: list[int]) -> Callable[[Any], Any]:
    """A likelihood of parameters in another order than its own."""
    return lambda theta: likelihood(theta[order])


def _ratio(full: list[Any], theta: npt.NDArray[Any], null: list[Any], theta0: npt.NDArray[Any]) -> float:
    """Mean of 2 (log-likelihood of full less that of null) over the draws."""
    ratios = []
    for number, (one, at, other, at0) in enumerate(zip(full, theta, null, theta0, strict=True), start=1):
        ratio = 2 * (float(one(at)) - float(other(at0)))
        if not math.isfinite(ratio):
            raise InputError(
                f"Log-likelihoods must be finite, however: in draw {number} their difference is {ratio}."
            )
        ratios.append(ratio)
    return float(np.mean(ratios))

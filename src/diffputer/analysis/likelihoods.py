"""Comparison of nested models by their likelihoods, from m completed tables: the statistic D3.

Meng and Rubin (1992, Biometrika 79). It evaluates likelihoods at means of parameters, so that it is only
right where the function that is evaluated is the one that was maximised; of each fit of statsmodels this is
checked. Tests that need covariances or test statistics alone, D1 and D2, are in
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
from .estimates import Floats, listed
from .wald import PooledTest, large_sample_df, pooled_test, whole_number

Likelihood = Callable[[Any], Any]
_ELSE = (
    "Test coefficients by pool(...).wald(...), or pool the draws' own likelihood-ratio statistics by "
    "pool_statistics(...)"
)


def pool_likelihood(full: Iterable[Any], null: Iterable[Any], *, df: int | None = None) -> PooledTest:
    """Compare nested models by their likelihoods: D3.

    The likelihood ratio of each completed table is taken twice: at that table's own estimates, and at the
    means of the estimates of all tables. Parameters that have names are matched by them. Whether the smaller
    model is a special case of the larger one is not checked: if it is not, the test means nothing.

    Parameters
    ----------
    full, null
        The larger and the smaller model, one fit for each draw: a statsmodels result with ``llf`` whose
        model has ``loglike`` (GLM, Logit, Poisson, OLS, MixedLM, ...), or a pair (parameters,
        log_likelihood) in which ``log_likelihood(parameters)`` is the log-likelihood of that draw's table.
        The likelihood of a statsmodels result at its own parameters must be the one it states. Linear
        models, Gaussian GLMs and mixed models are maximised over the residual variance, so that it is not
        averaged over draws; variances of random effects are, as multiples of it (mice leaves them as each
        draw has them). Restricted likelihoods (REML) are compared only where both models have the same
        fixed effects.
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
    full, null = listed(full, "fits of the full model"), listed(null, "fits of the null model")
    theta, likelihoods = _read_likelihoods(full, "full")
    theta0, likelihoods0 = _read_likelihoods(null, "null")
    m = len(likelihoods)
    if m != len(likelihoods0):
        raise InputError(
            f"Both models need one fit for each draw, however: there are {m} of the full and "
            f"{len(likelihoods0)} of the null model."
        )
    if m < 2:
        raise InputError(f"Pooling needs at least 2 draws, however: there are {m} fits. Draw more.")
    _check_restricted(full, null)
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


def _read_likelihoods(fits: list[Any], which: str) -> tuple[Floats, list[Likelihood]]:
    """Parameters [m, k], in the order of the first draw, and log-likelihoods of the fits of one model."""
    parameters: list[Floats] = []
    likelihoods: list[Likelihood] = []
    first: tuple[Hashable, ...] | None = None
    for number, fit in enumerate(fits, start=1):
        if isinstance(fit, tuple | list) and len(fit) == 2 and callable(fit[1]):
            theta, likelihood = fit
        elif hasattr(fit, "params") and callable(getattr(getattr(fit, "model", None), "loglike", None)):
            theta, likelihood = fit.params, _likelihood_of(fit)
            _check_likelihood(fit, likelihood, f"draw {number} of the {which} model, a {type(fit).__name__},")
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


def _likelihood_of(fit: Any) -> Likelihood:
    """The function of all parameters, in the order of ``params``, that a statsmodels result maximised."""
    model = fit.model
    if hasattr(fit, "params_object"):  # mixed models: loglike takes variances alone, in another form

        def mixed(theta: Floats) -> Any:
            packed = type(fit.params_object).from_packed(theta, fit.k_fe, fit.k_re, False, True)
            # A restricted likelihood is a function of the variances: fixed effects are always the best.
            return model.loglike(packed, profile_fe=bool(model.reml))

        return mixed
    family: Any = getattr(model, "family", None)
    if type(family).__name__ == "Gaussian" and getattr(family.link, "power", None) == 1:

        def gaussian(theta: Floats) -> Any:
            # At its largest over the variance, as llf is; loglike divides by the degrees of freedom instead.
            rest = model.endog - model.predict(theta)
            return model.loglike(theta, scale=float((rest**2 * model.iweights).sum() / model.wnobs))

        return gaussian
    loglike: Likelihood = model.loglike
    return loglike


def _check_likelihood(fit: Any, likelihood: Likelihood, place: str) -> None:
    """Refuse a likelihood that is not, at the fit's own parameters, the one that the fit states."""
    if hasattr(fit.model, "cov_struct"):
        raise InputError(
            f"A comparison by likelihoods needs models that have one, however: {place} solves estimating "
            f"equations (GEE), which have none. {_ELSE.partition(',')[0]}."
        )
    try:
        stated = float(fit.llf)
        own = float(likelihood(np.asarray(fit.params, dtype=np.float64).ravel(order="F")))
    except Exception as error:
        raise InputError(
            f"A comparison by likelihoods needs models that have one, however: {place} gives none "
            f"({type(error).__name__}{f': {error}' if str(error) else ''}). {_ELSE}."
        ) from error
    alike = abs(own - stated) <= 1e-6 + 1e-9 * abs(stated)  # what the order of a sum may change
    if not alike and (math.isfinite(own) or math.isfinite(stated)):
        raise InputError(
            "The log-likelihood of a model at its own estimates must be that of its fit, however: of "
            f"{place} it is {own:.6g}, and llf is {stated:.6g}. {_ELSE}, or give pairs (parameters, "
            "log_likelihood)."
        )


def _check_restricted(full: list[Any], null: list[Any]) -> None:
    """Refuse restricted likelihoods of different fixed effects: they are of different data."""
    for number, (one, other) in enumerate(zip(full, null, strict=True), start=1):
        model, model0 = getattr(one, "model", None), getattr(other, "model", None)
        restricted, restricted0 = (bool(getattr(each, "reml", False)) for each in (model, model0))
        if restricted != restricted0:
            raise InputError(
                "A restricted likelihood (REML) can be compared to restricted ones only, however: in draw "
                f"{number} that of the {'full' if restricted else 'null'} model is restricted and the other "
                "is not. Fit both with reml=False."
            )
        if restricted and not _same_columns(model, model0):
            raise InputError(
                "Restricted likelihoods (REML) can be compared for models with the same fixed effects, "
                f"however: in draw {number} these are {_effects(model)} and {_effects(model0)}. Fit both "
                "with reml=False, or test coefficients by pool(...).wald(...)."
            )


def _same_columns(model: Any, model0: Any) -> bool:
    names, names0 = list(model.exog_names), list(model0.exog_names)
    if sorted(names) != sorted(names0):
        return False
    return np.array_equal(model.exog[:, [names.index(name) for name in names0]], model0.exog)


def _effects(model: Any) -> str:
    return ", ".join(map(repr, model.exog_names))


def _names_of(theta: Any) -> tuple[Hashable, ...] | None:
    """Names of parameters, if they have any; those of several equations one equation after the other."""
    if isinstance(theta, pd.Series):
        return tuple(theta.index)
    if isinstance(theta, pd.DataFrame):
        return tuple((row, column) for column in theta.columns for row in theta.index)
    return None


def _reordered(likelihood: Likelihood, order: list[int]) -> Likelihood:
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

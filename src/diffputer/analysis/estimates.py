"""What an analysis of one completed table found: estimates and their covariance, read from many sources."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..errors import InputError

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-6  # of correlations: what inverting a nearly singular matrix may cost
_ACCEPTED = (
    "Return a statsmodels result, a tuple (estimates, covariance) or (estimates, covariance, degrees of "
    "freedom), or a model with coef_ and covariance_"
)
_INTERCEPTS = ("Intercept", "intercept", "const", "(Intercept)", "inflate_const")


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of one completed table.

    Attributes
    ----------
    names
        Of the coefficients.
    values
        The estimates, [k].
    covariance
        Of the estimates within this table, [k, k].
    df
        Residual degrees of freedom of the analysis; infinite if it does not say.
    aside
        Names of what a test of all regressors leaves out: intercepts, thresholds, variances.
    """

    names: tuple[Hashable, ...]
    values: Floats
    covariance: Floats
    df: float = math.inf
    aside: frozenset[Hashable] = frozenset()


def read_estimates(result: Any, place: str = "the result") -> Estimates:
    """Read what an analysis returned.

    Parameters
    ----------
    result
        One of

        - an object with ``params``, ``cov_params()`` and, if it has them, ``df_resid``: statsmodels' results;
        - an object with ``coef_``, ``covariance_`` (or ``sigma_``, as of ``BayesianRidge``) and, if it has
          them, ``intercept_``, ``feature_names_in_`` and ``df_resid``. A covariance with one row more than
          there are coefficients begins with the intercept; one of equal size leaves the intercept out.
          Of discriminant analyses, with ``means_`` of classes, ``covariance_`` is that of the features:
          they are refused;
        - a tuple ``(model, covariance)`` of an object with ``coef_``, read in the same way;
        - a tuple ``(estimates, covariance)`` or ``(estimates, covariance, df)``: numbers, arrays, Series or
          dicts. One variance for each estimate may stand in place of the covariance. A list is refused:
          it may as well be estimates alone.
    place
        Which result this is, for messages.

    Returns
    -------
    Estimates
        Checked: finite, square, of equal size, with variances above zero.

    Examples
    --------
    >>> read_estimates(({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 0.25})).names
    ('a', 'b')
    >>> read_estimates((3.0, 0.1, 20)).df
    20.0
    """
    if isinstance(result, Estimates):
        return _checked(result, place)
    if hasattr(result, "params") and callable(getattr(result, "cov_params", None)):
        try:
            return _checked(_of_statsmodels(result, place), place)
        except InputError as error:
            if not hasattr(result, "fe_params"):
                raise
            raise InputError(
                f"{error} In a mixed model variances of random effects may be zero, and have no covariance "
                "then: return the fixed effects, (result.fe_params, their covariance)."
            ) from error
    if hasattr(result, "coef_"):
        covariance = getattr(result, "covariance_", getattr(result, "sigma_", None))
        if covariance is None:
            raise InputError(
                f"Pooling needs the covariance of the estimates, however: {place}, a "
                f"{type(result).__name__}, has coef_ and no covariance_. Return (model, covariance)."
            )
        if hasattr(result, "means_"):
            raise InputError(
                f"Pooling needs the covariance of the estimates, however: covariance_ of {place}, a "
                f"{type(result).__name__}, is that of the features. Return (model, covariance)."
            )
        return _checked(_of_linear_model(result, covariance, place), place)
    if isinstance(result, tuple) and len(result) in (2, 3):
        first, covariance, *rest = result
        if hasattr(first, "coef_"):
            found = _of_linear_model(first, covariance, place)
        else:
            found = _of_pair(first, covariance, place)
        df = _number(rest[0], f"the degrees of freedom of {place}") if rest else found.df
        return _checked(replace(found, df=df), place)
    if isinstance(result, list):
        raise InputError(
            f"Pooling needs estimates and their covariance, however: {place} is a list, which may as well be "
            "estimates alone. Return a tuple (estimates, covariance)."
        )
    raise InputError(
        f"Pooling needs estimates and their covariance, however: {place} is a {type(result).__name__}. "
        f"{_ACCEPTED}."
    )


def _of_statsmodels(result: Any, place: str) -> Estimates:
    params = result.params
    try:
        covariance = result.cov_params()
    except Exception as error:
        raise InputError(
            f"Pooling needs the covariance of the estimates, however: {place}, a {type(result).__name__}, "
            f"has none ({type(error).__name__}: {error}). Check whether the model could be fitted to that "
            "table."
        ) from error
    values = _array(params, f"the estimates of {place}").ravel(order="F")  # several equations: one by one
    if isinstance(covariance, pd.DataFrame):
        names = tuple(covariance.index)
    elif isinstance(params, pd.Series):
        names = tuple(params.index)
    else:
        known = getattr(getattr(result, "model", None), "exog_names", None) or ()
        names = tuple(known) if len(known) == len(values) else tuple(range(len(values)))
    df = getattr(result, "df_resid", None)
    return Estimates(
        names,
        values,
        _array(covariance, f"the covariance of {place}"),
        math.inf if df is None else _number(df, f"df_resid of {place}"),
        _beside_regressors(getattr(result, "model", None), names, several=np.ndim(params) > 1),
    )


def _beside_regressors(model: Any, names: tuple[Hashable, ...], several: bool) -> frozenset[Hashable]:
    """Parameters of a statsmodels model that are no coefficients of regressors.

    Names begin with those of the columns of ``exog``, after those of a model of inflated zeros; ``k_extra``
    more (thresholds, dispersions) follow, or there are parameters without a name among them (variances).
    """
    shape: tuple[int, ...] = getattr(getattr(model, "exog", None), "shape", ())
    known = list(getattr(model, "exog_names", None) or ())
    width = shape[1] if len(shape) == 2 else 0
    count = width + int(getattr(model, "k_inflate", 0))
    if not width or len(known) not in (count, width + int(getattr(model, "k_extra", 0))):
        return frozenset()  # a model with an order of its own
    columns = known[:count]
    if all(isinstance(name, int) for name in names):  # arrays, in an order of their own
        ordered = [*columns] * (len(names) // count) if several else [*columns, *[None] * len(names)]
        named = dict(zip(names, ordered, strict=False))
        return frozenset(name for name in names if named[name] is None or is_intercept(named[name]))
    if several:
        return frozenset()  # of which intercepts are known by their names
    return frozenset(name for name in names if name not in columns)


def is_intercept(name: Hashable) -> bool:
    """Whether a coefficient is an intercept, by its name; of several equations, by the last part of it.

    Examples
    --------
    >>> is_intercept("const"), is_intercept(("1", "const")), is_intercept("x")
    (True, True, False)
    """
    last = name[-1] if isinstance(name, tuple) and name else name
    return last in _INTERCEPTS


def _of_linear_model(model: Any, covariance: Any, place: str) -> Estimates:
    slopes = _array(model.coef_, f"coef_ of {place}")
    if slopes.ndim > 1 and slopes.shape[0] > 1:
        raise InputError(
            f"One outcome can be pooled at a time, however: coef_ of {place} has the shape {slopes.shape}. "
            "Fit one model for each outcome."
        )
    slopes = slopes.ravel()
    matrix = _matrix(_array(covariance, f"the covariance of {place}"))
    names = tuple(getattr(model, "feature_names_in_", range(len(slopes))))
    if hasattr(model, "intercept_") and len(matrix) == len(slopes) + 1:
        start = _array(model.intercept_, f"intercept_ of {place}").ravel()
        names, slopes = ("intercept", *names), np.concatenate([start, slopes])
    df = getattr(model, "df_resid", None)
    return Estimates(names, slopes, matrix, math.inf if df is None else _number(df, f"df_resid of {place}"))


def _of_pair(estimates: Any, covariance: Any, place: str) -> Estimates:
    names: tuple[Hashable, ...] | None = None
    if isinstance(estimates, Mapping | pd.Series):
        names = tuple(estimates.keys())
        estimates = [estimates[name] for name in names] if isinstance(estimates, Mapping) else estimates
    values = np.atleast_1d(_array(estimates, f"the estimates of {place}"))
    if values.ndim != 1:
        raise InputError(
            f"Estimates must be a number or a vector, however: those of {place} have the shape "
            f"{values.shape}. Flatten them."
        )
    labels: tuple[Hashable, ...] | None = None
    if isinstance(covariance, Mapping | pd.Series):
        labels = tuple(covariance.keys())
        covariance = [covariance[name] for name in labels] if isinstance(covariance, Mapping) else covariance
    elif isinstance(covariance, pd.DataFrame):
        labels = tuple(covariance.index)
        if tuple(covariance.columns) != labels:
            raise InputError(
                f"A covariance must have the same names in rows and columns, however: that of {place} has "
                f"{_shown(labels)} and {_shown(tuple(covariance.columns))}."
            )
    matrix = _matrix(_array(covariance, f"the covariance of {place}"))
    if names is not None and labels is not None and names != labels and len(names) == len(labels):
        if set(names) != set(labels):
            raise InputError(
                f"Estimates and covariance must have the same names, however: in {place} they are "
                f"{_shown(names)} and {_shown(labels)}."
            )
        order = [labels.index(name) for name in names]
        matrix = matrix[np.ix_(order, order)]
    chosen = names or labels or tuple(range(len(values)))
    return Estimates(chosen, values, matrix)


def _checked(found: Estimates, place: str) -> Estimates:
    """Refuse what cannot be pooled."""
    k, shape = len(found.values), found.covariance.shape
    if found.covariance.ndim != 2 or shape[0] != shape[1] or shape[0] != k or len(found.names) != k:
        raise InputError(
            f"A covariance must be square with one row for each estimate, however: {place} has {k} "
            f"estimates and a covariance of shape {shape}. {_ACCEPTED}."
        )
    if k == 0:
        raise InputError(f"Pooling needs estimates, however: {place} has none.")
    if twice := [name for place_, name in enumerate(found.names) if name in found.names[:place_]]:
        raise InputError(
            f"Each estimate needs a name of its own, however: {place} has {twice[0]!r} more than once. "
            "Rename one of them."
        )
    for what, numbers in (("estimates", found.values), ("covariance", found.covariance)):
        if not np.isfinite(numbers).all():
            at = int(np.argwhere(~np.isfinite(numbers))[0][0])
            raise InputError(
                f"Estimates and covariances must be finite, however: the {what} of {place} has "
                f"{numbers.ravel()[~np.isfinite(numbers).ravel()][0]} at {found.names[at]!r}. "
                "Check whether the model could be fitted to that table."
            )
    variances = np.diag(found.covariance)
    if not (variances > 0).all():
        at = int(np.argmin(variances))
        raise InputError(
            f"Variances must be above zero, however: that of {found.names[at]!r} in {place} is "
            f"{variances[at]:g}. Leave out what the analysis does not estimate."
        )
    correlation = found.covariance / np.sqrt(np.outer(variances, variances))  # so that units do not matter
    apart = np.abs(correlation - correlation.T)
    if apart.max() > ROUNDING:
        one, other = np.unravel_index(int(np.argmax(apart)), apart.shape)
        raise InputError(
            f"A covariance must be symmetric, however: that of {found.names[one]!r} and "
            f"{found.names[other]!r} in {place} is {found.covariance[one, other]:g} and "
            f"{found.covariance[other, one]:g}. Check how it was computed."
        )
    if np.linalg.eigvalsh((correlation + correlation.T) / 2)[0] < -ROUNDING * k:
        raise InputError(
            "A covariance must give no combination of estimates a variance below zero, however: that of "
            f"{place} does. Check how it was computed; standard errors are to be squared."
        )
    if not found.df > 0:
        raise InputError(
            f"Degrees of freedom must be above zero, however: those of {place} are {found.df:g}. "
            "Estimate fewer coefficients."
        )
    return found


@dataclass(frozen=True, eq=False)
class Stacked:
    """Estimates of all draws.

    Attributes
    ----------
    names, values, covariances
        Of the coefficients: names [k], estimates [m, k] and covariances [m, k, k].
    df
        The smallest that a draw states.
    regressors
        Names of what is no intercept, threshold or variance.
    """

    names: tuple[Hashable, ...]
    values: Floats
    covariances: Floats
    df: float
    regressors: tuple[Hashable, ...]


def stack_estimates(results: Sequence[Any]) -> Stacked:
    """Read the results of all draws.

    Examples
    --------
    >>> stacked = stack_estimates([(1.0, 0.1), (2.0, 0.2)])
    >>> stacked.values.shape, stacked.covariances.shape, stacked.df
    ((2, 1), (2, 1, 1), inf)
    """
    if len(results) < 2:
        raise InputError(
            f"Pooling needs at least 2 draws, however: there {'is' if len(results) == 1 else 'are'} "
            f"{len(results)}. Draw more, 20 or so."
        )
    read = [read_estimates(result, f"draw {number}") for number, result in enumerate(results, start=1)]
    names = read[0].names
    aligned = []
    for number, found in enumerate(read, start=1):
        if found.names == names:
            aligned.append(found)
        elif set(found.names) == set(names) and len(found.names) == len(names):
            order = [found.names.index(name) for name in names]
            aligned.append(Estimates(names, found.values[order], found.covariance[np.ix_(order, order)]))
        else:
            odd = [name for name in (*names, *found.names) if (name in names) != (name in found.names)]
            raise InputError(
                f"All draws must estimate the same coefficients, however: draw 1 has {_shown(names)} and "
                f"draw {number} has {_shown(found.names)}; they differ in {_shown(tuple(odd))}. State the "
                "levels of categories, so that each draw has them all."
            )
    aside = {name for found in read for name in found.aside}
    return Stacked(
        names,
        np.stack([found.values for found in aligned]),
        np.stack([found.covariance for found in aligned]),
        min(found.df for found in read),
        tuple(name for name in names if name not in aside and not is_intercept(name)),
    )


def listed(results: Iterable[Any], what: str = "results") -> list[Any]:
    """The results of all draws as a list.

    Examples
    --------
    >>> listed((1.0, 2.0))
    [1.0, 2.0]
    """
    if not isinstance(results, Iterable):
        raise InputError(
            f"There must be a list of {what}, one for each draw, however: a {type(results).__name__} was "
            "given. Analyse each completed table."
        )
    return list(results)


def _shown(names: tuple[Hashable, ...]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


def _array(value: Any, what: str) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"Estimates and covariances must be numbers, however: {what} cannot be read as such. {_ACCEPTED}."
        ) from None


def _number(value: Any, what: str) -> float:
    number = _array(value, what)
    if number.size != 1:
        raise InputError(f"Expected one number, however: {what} has the shape {number.shape}.")
    return float(number.reshape(()))


def _matrix(covariance: Floats) -> Floats:
    """A covariance matrix, also of variances alone."""
    if covariance.ndim <= 1:
        return np.diag(np.atleast_1d(covariance))
    return covariance

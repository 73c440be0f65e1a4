"""Populations whose truth is known, and how their tables lose cells.

Every design has outcome ``y``, covariates ``x1``, ``x2``, ... and an auxiliary column ``z``: always observed,
related to ``y``, no part of the analysis. Cells of ``y``, ``x1`` and ``x2`` can be missing, each of the three
at the stated rate, so that rows miss several cells together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from ...errors import SettingError
from ...tables.missingness import mcar

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Columns that can lose cells, in every design; the others stay complete.
HIDEABLE = ("y", "x1", "x2")
#: The column that missingness at random depends on.
DRIVER = "z"
#: How much the log-odds of being missing grow with a standard deviation of what they depend on.
STRENGTH = 1.0


@dataclass(frozen=True)
class Design:
    """A population and the analysis of a sample of it.

    Attributes
    ----------
    name, words
        Of the design, and what it is in a sentence.
    draw
        Gives so many rows.
    terms
        Name of a coefficient -> the column of the regression that it belongs to; ``y`` is regressed on these.
    truth
        Estimand -> its true value: the coefficients, and ``mean(column)`` of what can be missing.
    """

    name: str
    words: str
    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    terms: Mapping[str, Callable[[pd.DataFrame], Floats]]
    truth: Mapping[str, float]

    @property
    def means(self) -> tuple[str, ...]:
        """Columns whose mean is an estimand."""
        return tuple(column for column in HIDEABLE if f"mean({column})" in self.truth)


def _column(name: str) -> Callable[[pd.DataFrame], Floats]:
    return lambda frame: frame[name].to_numpy(dtype=np.float64)


def _constant(frame: pd.DataFrame) -> Floats:
    return np.ones(len(frame))


# Linear: (x1, x2, x3) normal with variances 1 and the correlations below, y linear in them with noise of
# variance 1, z linear in y. All five columns are jointly normal.
_LINEAR_MEANS = np.array([1.0, 2.0, -1.0])
_LINEAR_CORRELATIONS = np.array([[1.0, 0.5, 0.3], [0.5, 1.0, 0.4], [0.3, 0.4, 1.0]])
_LINEAR_COEFFICIENTS = np.array([1.0, 0.5, 0.5, -0.5])


def _draw_linear(n: int, rng: np.random.Generator) -> pd.DataFrame:
    x = _LINEAR_MEANS + rng.standard_normal((n, 3)) @ np.linalg.cholesky(_LINEAR_CORRELATIONS).T
    y = _LINEAR_COEFFICIENTS[0] + x @ _LINEAR_COEFFICIENTS[1:] + rng.standard_normal(n)
    z = 0.6 * y + rng.standard_normal(n)
    return pd.DataFrame({"y": y, "x1": x[:, 0], "x2": x[:, 1], "x3": x[:, 2], "z": z})


LINEAR = Design(
    name="linear",
    words="five jointly normal columns; y on x1, x2, x3",
    draw=_draw_linear,
    terms={"intercept": _constant, "x1": _column("x1"), "x2": _column("x2"), "x3": _column("x3")},
    truth={
        **dict(zip(("intercept", "x1", "x2", "x3"), map(float, _LINEAR_COEFFICIENTS), strict=True)),
        # E y = 1 + 0.5 * 1 + 0.5 * 2 + 0.5 * 1
        "mean(y)": float(_LINEAR_COEFFICIENTS[0] + _LINEAR_COEFFICIENTS[1:] @ _LINEAR_MEANS),
        "mean(x1)": float(_LINEAR_MEANS[0]),
        "mean(x2)": float(_LINEAR_MEANS[1]),
    },
)

# Nonlinear: x1 is a gamma variable of mean 2, variance 1 and skewness 1; c = x1 - 2 is what y depends on.
_SHAPE, _CENTRE = 4.0, 2.0
_NONLINEAR = {"intercept": 1.0, "c": 0.5, "x2": 0.5, "c^2": 0.25, "c*x2": 0.4}


def _draw_nonlinear(n: int, rng: np.random.Generator) -> pd.DataFrame:
    x1 = rng.gamma(_SHAPE, _CENTRE / _SHAPE, n)
    c = x1 - _CENTRE
    x2 = 0.5 * c + np.sqrt(0.75) * rng.standard_normal(n)
    b = _NONLINEAR
    y = b["intercept"] + b["c"] * c + b["x2"] * x2 + b["c^2"] * c**2 + b["c*x2"] * c * x2
    y += rng.standard_normal(n)
    z = 0.6 * y + rng.standard_normal(n)
    return pd.DataFrame({"y": y, "x1": x1, "x2": x2, "z": z})


NONLINEAR = Design(
    name="nonlinear",
    words="skewed x1; y on c = x1 - 2, x2, their product and the square of c",
    draw=_draw_nonlinear,
    terms={
        "intercept": _constant,
        "c": lambda frame: _column("x1")(frame) - _CENTRE,
        "x2": _column("x2"),
        "c^2": lambda frame: (_column("x1")(frame) - _CENTRE) ** 2,
        "c*x2": lambda frame: (_column("x1")(frame) - _CENTRE) * _column("x2")(frame),
    },
    truth={
        **_NONLINEAR,
        # E c = E x2 = 0, E c^2 = 1, E c x2 = 0.5
        "mean(y)": _NONLINEAR["intercept"] + _NONLINEAR["c^2"] * 1.0 + _NONLINEAR["c*x2"] * 0.5,
        "mean(x1)": _CENTRE,
        "mean(x2)": 0.0,
    },
)

DESIGNS: dict[str, Design] = {design.name: design for design in (LINEAR, NONLINEAR)}


def hide_mcar(frame: pd.DataFrame, rate: float, rng: np.random.Generator) -> Mask:
    """Hide cells of the hideable columns completely at random."""
    return mcar(frame[list(HIDEABLE)].to_numpy(), rate, rng)


def hide_mar(frame: pd.DataFrame, rate: float, rng: np.random.Generator) -> Mask:
    """Hide cells with log-odds that grow with the driver, which stays observed.

    `diffputer.tables.missingness.mar` chooses which columns stay complete, and its weights, anew with every
    mask: over repetitions that would be no mechanism but a mixture of them.
    """
    driver = _standardise(frame[DRIVER].to_numpy())
    return _hide_by(np.column_stack([driver] * len(HIDEABLE)), rate, rng)


def hide_mnar(frame: pd.DataFrame, rate: float, rng: np.random.Generator) -> Mask:
    """Hide cells with log-odds that grow with their own value (self-masking, of one sign throughout)."""
    return _hide_by(np.column_stack([_standardise(frame[c].to_numpy()) for c in HIDEABLE]), rate, rng)


MECHANISMS: dict[str, Callable[[pd.DataFrame, float, np.random.Generator], Mask]] = {
    "mcar": hide_mcar,
    "mar": hide_mar,
    "mnar": hide_mnar,
}


def hide_cells(frame: pd.DataFrame, mechanism: str, rate: float, rng: np.random.Generator) -> pd.DataFrame:
    """Give a copy of a table with cells missing.

    Parameters
    ----------
    frame : DataFrame
        A complete table of a design.
    mechanism : {"mcar", "mar", "mnar"}
        What decides which cells.
    rate : float
        Share of the cells of each hideable column.
    rng : numpy Generator
        Source of randomness.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> hidden = hide_cells(LINEAR.draw(5000, rng), "mar", 0.2, rng)
    >>> hidden.isna().mean().round(1).to_dict()
    {'y': 0.2, 'x1': 0.2, 'x2': 0.2, 'x3': 0.0, 'z': 0.0}
    """
    if mechanism not in MECHANISMS:
        raise SettingError(
            f"A mechanism must be one of {', '.join(MECHANISMS)}, however: {mechanism!r} is not."
        )
    incomplete = frame.copy()
    mask = MECHANISMS[mechanism](frame, rate, rng)
    for place, column in enumerate(HIDEABLE):
        incomplete.loc[mask[:, place], column] = np.nan
    return incomplete


def _standardise(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / values.std())


def _hide_by(scores: Floats, rate: float, rng: np.random.Generator) -> Mask:
    """Hide with probability sigmoid(STRENGTH * score + b); b makes each column lose ``rate`` on average."""
    probability = np.empty(scores.shape)
    for j, logits in enumerate((STRENGTH * scores).T):
        reach = float(np.abs(logits).max()) + 20.0
        b = brentq(lambda b, logits=logits: expit(logits + b).mean() - rate, -reach, reach, xtol=1e-10)
        probability[:, j] = expit(logits + b)
    return rng.uniform(size=scores.shape) < probability

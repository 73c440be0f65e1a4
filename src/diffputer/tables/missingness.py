"""Masks that hide cells of a table: completely at random, at random, not at random, or as real rows do.

Every mechanism is called as ``mechanism(x, rate, rng)`` and returns a boolean array of the shape of ``x`` in
which True means "hidden". A cell that is already missing is never hidden again, and ``rate`` is the share of
the *observed* cells to hide. In a table the columns that are not numbers enter by the code of their level.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from diffputer.errors import InputError

Mask = NDArray[np.bool_]
Seed = np.random.Generator | int
Mechanism = Callable[..., Mask]

_MOST_PATTERNS = 1000  # so many patterns are combined for one row before we call a rate out of reach


def mcar(x: Any, rate: float, rng: Seed) -> Mask:
    """Hide every cell with the same probability (missing completely at random).

    Parameters
    ----------
    x : ndarray of shape (n, p) or table
        The data; only its shape and its holes matter here.
    rate : float
        Probability of being hidden, 0 <= rate < 1.
    rng : numpy Generator or int
        Source of randomness.

    Returns
    -------
    ndarray of bool, shape (n, p)
        True where a cell is newly hidden.

    Examples
    --------
    >>> import numpy as np
    >>> round(float(mcar(np.zeros((1000, 10)), 0.3, rng=0).mean()), 1)
    0.3
    """
    values, rng = _start(x, rate, rng)
    return _hide(np.full(values.shape, rate), values, rng)


def mar(x: Any, rate: float, rng: Seed, *, complete_fraction: float = 0.3, nominal: bool = False) -> Mask:
    """Hide cells with a probability that depends on columns that stay complete (missing at random).

    A random ``int(complete_fraction * p)`` columns, at least one, stay as they are. Each other column j is
    hidden with probability sigmoid(w_j' x + b_j), where x are the standardised complete columns, w_j is a
    normal draw scaled so that w_j' x has unit variance, and b_j makes the whole table lose ``rate``.

    Parameters
    ----------
    x, rate, rng
        As in `mcar`.
    complete_fraction : float
        Share of the columns that stay complete.
    nominal : bool
        The number of complete columns is rounded down, so their share c is rarely ``complete_fraction``.
        False hides the others at rate / (1 - c): the whole table meets ``rate``. True hides them at
        rate / (1 - complete_fraction), as the masks behind the paper's tables: 32 % of 8 columns for 0.3.

    Returns
    -------
    ndarray of bool, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2000, 10))
    >>> mask = mar(x, 0.3, rng=1)
    >>> round(float(mask.mean()), 1), int((~mask.any(axis=0)).sum())
    (0.3, 3)
    """
    values, rng = _start(x, rate, rng)
    inputs, others = _split_columns(values, complete_fraction, rng, "MAR")
    observed = ~np.isnan(values)
    share_of_others = observed[:, others].sum() / max(observed.sum(), 1)
    hideable = 1.0 - complete_fraction if nominal else share_of_others
    if rate > 0 and rate >= hideable:
        raise InputError(
            f"MAR can hide only the columns that do not stay complete: they hold {hideable:.0%} of the "
            f"cells, but rate is {rate}. Lower the rate or complete_fraction."
        )
    probability = np.zeros(values.shape)
    probability[:, others] = _logistic(values, inputs, others, rate / hideable if rate else 0.0, rng)
    return _hide(probability, values, rng)


def mnar_logistic(x: Any, rate: float, rng: Seed, *, input_fraction: float = 0.3) -> Mask:
    """Hide by a logistic model whose inputs are hidden as well (the paper's MNAR).

    As `mar`, with the other columns hidden at ``rate``; the input columns of the logistic model then lose
    ``rate`` of their own cells completely at random, so that the causes are in part unseen.

    Parameters
    ----------
    x, rate, rng
        As in `mcar`.
    input_fraction : float
        Share of the columns that drive the model, at least one column.

    Returns
    -------
    ndarray of bool, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2000, 10))
    >>> round(float(mnar_logistic(x, 0.3, rng=1).mean()), 1)
    0.3
    """
    values, rng = _start(x, rate, rng)
    inputs, others = _split_columns(values, input_fraction, rng, "MNAR")
    probability = np.full(values.shape, rate)
    probability[:, others] = _logistic(values, inputs, others, rate, rng)
    return _hide(probability, values, rng)


def mnar_self_masking(x: Any, rate: float, rng: Seed, *, strength: float = 2.0) -> Mask:
    """Hide each cell with a probability that depends on its own value.

    In column j the probability is sigmoid(w_j z + b_j) with z the standardised value and
    w_j = ± strength * U(0.5, 1.5) of random sign; b_j makes the column lose ``rate``.

    Parameters
    ----------
    x, rate, rng
        As in `mcar`.
    strength : float
        Mean size of the weights; 0 is MCAR.

    Returns
    -------
    ndarray of bool, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2000, 1))
    >>> mask = mnar_self_masking(x, 0.3, rng=1)
    >>> bool(abs(x[mask].mean() - x[~mask].mean()) > 0.5)
    True
    """
    values, rng = _start(x, rate, rng)
    p = values.shape[1]
    weights = strength * rng.choice([-1.0, 1.0], size=p) * rng.uniform(0.5, 1.5, size=p)
    logits = _standardise(values) * weights
    return _hide(_probabilities(logits, ~np.isnan(values), rate), values, rng)


def mnar_quantile_censoring(
    x: Any,
    rate: float,
    rng: Seed,
    *,
    tail: Literal["upper", "lower", "both"] = "upper",
    region: float | None = None,
) -> Mask:
    """Hide the values beyond a quantile of their column.

    Parameters
    ----------
    x, rate, rng
        As in `mcar`.
    tail : {"upper", "lower", "both"}
        Which end of each column to hide.
    region : float, optional
        Share q >= rate of the column that counts as its tail; cells there are hidden with probability
        rate / q. By default q = rate: the whole tail goes. Ties at the border are broken at random, so
        that discrete columns meet the rate too.

    Returns
    -------
    ndarray of bool, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> mnar_quantile_censoring(np.array([[1.0], [9.0], [2.0], [8.0]]), 0.5, rng=0).ravel()
    array([False,  True, False,  True])
    """
    values, rng = _start(x, rate, rng)
    q = rate if region is None else region
    if not (isinstance(q, Real) and rate <= q <= 1):
        raise InputError(f"The tail region must lie between rate and 1, but {region=} and {rate=}. Widen it.")
    if tail not in ("upper", "lower", "both"):
        raise InputError(f"tail must be 'upper', 'lower' or 'both', but it is {tail!r}.")
    mask = np.zeros(values.shape, dtype=bool)
    for j in range(values.shape[1]):
        rows = np.flatnonzero(~np.isnan(values[:, j]))
        rows = rng.permutation(rows)  # with the stable sort below: ties in random order
        rows = rows[np.argsort(values[rows, j], kind="stable")]
        rank = np.arange(len(rows))
        if tail == "both":  # from the middle outwards
            rows = rows[np.argsort(np.abs(2 * rank - (len(rows) - 1)), kind="stable")]
        elif tail == "lower":
            rows = rows[::-1]
        n_tail = int(q * len(rows) + rng.uniform())  # rounded at random: right on average in short columns
        tail_rows = rows[len(rows) - n_tail :]
        mask[tail_rows, j] = rng.uniform(size=len(tail_rows)) * q < rate
    return mask


def copy_patterns(x: Any, rate: float | None, rng: Seed, *, patterns: Any = None) -> Mask:
    """Hide the cells of each row that are missing in other rows drawn at random.

    Each row receives whole patterns of incomplete rows: the natural share of rows receives one pattern when
    ``rate`` is None; for a given rate fewer rows receive one, or rows receive the union of several, so that
    the expected share of hidden cells is ``rate``.

    Parameters
    ----------
    x : ndarray of shape (n, p) or table
        The data, with real holes unless ``patterns`` is given.
    rate : float or None
        Share of the observed cells to hide, or None for the natural one.
    rng : numpy Generator or int
        Source of randomness.
    patterns : ndarray of bool, shape (m, p), optional
        Patterns to copy, True = missing, instead of those of ``x``.

    Returns
    -------
    ndarray of bool, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, np.nan, np.nan], [1.0, 2.0, 3.0]] * 500)
    >>> mask = copy_patterns(x, None, rng=0)
    >>> bool((mask[:, 1] == mask[:, 2]).all()), int(mask[:, 0].sum())
    (True, 0)
    """
    values, rng = _start(x, 0.0 if rate is None else rate, rng)
    observed = ~np.isnan(values)
    missing = ~observed if patterns is None else np.asarray(patterns, dtype=bool)
    if missing.ndim != 2 or missing.shape[1] != values.shape[1]:
        raise InputError(
            f"Patterns to copy must have one column for each of the {values.shape[1]} columns of the table, "
            f"but their shape is {missing.shape}."
        )
    incomplete = missing[missing.any(axis=1)]
    if len(incomplete) == 0:
        raise InputError(
            "Copying patterns needs rows with missing cells, but the table has none. "
            "Pass patterns=, or use another mechanism such as mcar."
        )
    if rate is None:
        per_row = len(incomplete) / len(missing)
    else:
        per_row = _patterns_per_row(incomplete.mean(axis=0), observed.mean(axis=0), rate)
    mask = np.zeros(values.shape, dtype=bool)
    left = np.floor(per_row + rng.uniform(size=len(values))).astype(int)  # patterns each row receives
    while (rows := np.flatnonzero(left > 0)).size:
        mask[rows] |= incomplete[rng.integers(len(incomplete), size=rows.size)]
        left[rows] -= 1
    return mask & observed


MECHANISMS: dict[str, Mechanism] = {
    "mcar": mcar,
    "mar": mar,
    "mnar": mnar_logistic,
    "self_masking": mnar_self_masking,
    "censoring": mnar_quantile_censoring,
    "copy": copy_patterns,
}


def _start(x: Any, rate: float, rng: Seed) -> tuple[NDArray[np.float64], np.random.Generator]:
    """Check the arguments; the table as numbers, NaN where a cell is missing."""
    if not (isinstance(rate, Real) and 0 <= rate < 1):  # also False for NaN
        raise InputError(f"The rate must be at least 0 and below 1, but it is {rate!r}. Try 0.3.")
    table = nw.from_native(x, eager_only=True, pass_through=True)
    if isinstance(table, nw.DataFrame):
        frame = table.to_pandas()
    else:
        array = np.asarray(x)
        if array.ndim != 2:
            raise InputError(f"A mask needs a table with rows and columns, but the array is {array.ndim}-D.")
        if array.dtype.kind in "biuf":
            return array.astype(np.float64), np.random.default_rng(rng)
        frame = pd.DataFrame(array).infer_objects()
    columns = [_column_numbers(frame.iloc[:, j]) for j in range(frame.shape[1])]
    return np.column_stack(columns) if columns else np.empty(frame.shape), np.random.default_rng(rng)


def _column_numbers(column: Any) -> NDArray[np.float64]:
    """A column as numbers: its values, or the codes of its sorted levels."""
    if pd.api.types.is_numeric_dtype(column.dtype):  # booleans count as numeric
        numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
    else:
        if pd.api.types.infer_dtype(column, skipna=True).startswith("mixed"):
            column = column.map(str, na_action="ignore")
        codes, _ = pd.factorize(column, sort=True)
    return np.where(codes < 0, np.nan, codes)


def _standardise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns of mean 0 and variance 1; holes at the mean, constant columns at 0, infinities at ±10."""
    finite = np.isfinite(values)
    count = np.maximum(finite.sum(axis=0), 1)
    largest = np.abs(np.where(finite, values, 0.0)).max(axis=0, initial=0.0)
    x = values / np.where(largest > 0, largest, 1.0)  # so that squares do not overflow
    mean = np.where(finite, x, 0.0).sum(axis=0) / count
    centred = np.where(finite, x - mean, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=0) / count)
    z = centred / np.where(deviation > 1e-12, deviation, np.inf)
    return np.where(np.isinf(values), np.sign(values) * 10.0, z)


def _split_columns(
    values: NDArray[np.float64], fraction: float, rng: np.random.Generator, name: str
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Random columns that drive the logistic model, and the others, each in order."""
    p = values.shape[1]
    if not (isinstance(fraction, Real) and 0 < fraction < 1):
        raise InputError(
            f"The share of columns behind {name} must lie between 0 and 1, but it is {fraction!r}."
        )
    if p < 2:
        raise InputError(
            f"{name} needs at least two columns, one to drive the other, but the table has {p}. "
            "Use mcar or self_masking."
        )
    order = rng.permutation(p)
    n_inputs = max(1, int(fraction * p))
    return np.sort(order[:n_inputs]), np.sort(order[n_inputs:])


def _logistic(
    values: NDArray[np.float64],
    inputs: NDArray[np.intp],
    others: NDArray[np.intp],
    rate: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Probabilities [n, len(others)] of a logistic model with random weights on the input columns.

    The protocol states the variance of W'x, not the scale of x: here x is standardised, so no unit rules.
    """
    z = _standardise(values[:, inputs])
    logits = z @ rng.normal(size=(len(inputs), len(others)))
    deviation = logits.std(axis=0) if len(logits) else np.zeros(len(others))
    logits = logits / np.where(deviation > 1e-12, deviation, 1.0)  # W'x has unit variance
    return _probabilities(logits, ~np.isnan(values[:, others]), rate)


def _probabilities(logits: NDArray[np.float64], observed: Mask, rate: float) -> NDArray[np.float64]:
    """sigmoid(logits + b) with one b per column, such that the mean over its observed cells is rate."""
    probability = np.zeros(logits.shape)
    for j in range(logits.shape[1]):
        column = logits[observed[:, j], j]
        if column.size and rate > 0:
            reach = np.abs(column).max() + abs(logit(rate)) + 1.0  # brackets the root
            b = brentq(lambda b, column=column: expit(column + b).mean() - rate, -reach, reach, xtol=1e-10)
            probability[:, j] = expit(logits[:, j] + b)
    return probability


def _hide(probability: NDArray[np.float64], values: NDArray[np.float64], rng: np.random.Generator) -> Mask:
    """Hide each observed cell with its probability."""
    return (rng.uniform(size=values.shape) < probability) & ~np.isnan(values)


def _patterns_per_row(missing: NDArray[np.float64], observed: NDArray[np.float64], rate: float) -> float:
    """How many random patterns a row needs on average, for the union to hide ``rate`` of the observed cells.

    ``missing`` [p] is the share of the patterns that hide a column, ``observed`` [p] that of its cells. The
    union of k patterns hides 1 - (1 - missing)^k of a column; between two whole k the share is linear,
    because a row receives either k or k + 1.
    """
    weight = observed / max(observed.sum(), 1e-300)
    below = 0.0
    for k in range(_MOST_PATTERNS):
        above = float(weight @ (1.0 - (1.0 - missing) ** (k + 1)))
        if above >= rate:
            return k + (rate - below) / (above - below) if rate > below else float(k)
        below = above
    raise InputError(
        f"Copied patterns can hide only cells of columns that have missing ones: at most {below:.1%} of the "
        f"observed cells, but rate is {rate}. Lower the rate or use another mechanism."
    )

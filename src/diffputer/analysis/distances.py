"""Distances between two samples of rows: does a completed table look like the true one as a whole?

References: Székely and Rizzo, "Energy statistics: a class of statistics based on distances" (JSPI 2013);
Bonneel, Rabin, Peyré and Pfister, "Sliced and Radon Wasserstein barycenters of measures" (JMIV 2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, SettingError
from ..tables.frames import read_table
from ..tables.pieces import with_distinct_names
from ..tables.schema import Schema
from .views import points_of, some_rows

Floats = NDArray[np.float64]

MOST_ROWS = 5_000
_CHUNK = 4_000_000  # distances held at a time


def energy_distance(
    table: Any,
    other: Any,
    *,
    schema: Schema | None = None,
    max_rows: int | None = MOST_ROWS,
    rng: np.random.Generator | int = 0,
) -> float:
    """Give the energy distance between the rows of two complete tables; 0 only if they are alike.

    2 E‖X - Y‖ - E‖X - X'‖ - E‖Y - Y'‖ over all pairs of rows, equal ones included, so that it is never
    negative. (Some call the square root of it the energy distance.) Rows are placed as
    `diffputer.analysis.views.points_of` does: numbers in standard deviations of the first table, two
    different levels at distance 1.

    Parameters
    ----------
    table, other : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With the same columns, of as many rows as each has; the first sets the units.
    schema : Schema, optional
        What the columns hold.
    max_rows : int or None
        Of longer tables so many rows are compared, chosen at random; pairs are counted one by one.
    rng : numpy Generator or int
        For that choice.

    Returns
    -------
    float

    Examples
    --------
    >>> import pandas as pd
    >>> one, two = pd.DataFrame({"c": ["a", "a"]}), pd.DataFrame({"c": ["b", "b"]})
    >>> round(energy_distance(one, two), 6), energy_distance(one, one)
    (2.0, 0.0)
    """
    return energy_distance_of_points(*_place(table, other, schema, max_rows, rng))


def energy_distance_of_points(x: Floats, y: Floats) -> float:
    """Give the energy distance between two samples of points, see `energy_distance`.

    Shape: x [n, d], y [m, d].

    Examples
    --------
    >>> energy_distance_of_points(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
    10.0
    """
    between = 2.0 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y)
    return max(between, 0.0)  # rounding


def sliced_wasserstein(
    table: Any,
    other: Any,
    *,
    order: int = 2,
    n_directions: int = 200,
    schema: Schema | None = None,
    max_rows: int | None = MOST_ROWS,
    rng: np.random.Generator | int = 0,
) -> float:
    """Give the sliced Wasserstein distance between the rows of two complete tables.

    The mean, over random directions, of the order-th power of the Wasserstein distance of the rows projected
    on one, and the root of that. Rows are placed as for `energy_distance`.

    Parameters
    ----------
    table, other, schema, max_rows
        As in `energy_distance`.
    order : {1, 2}
        Of the Wasserstein distance.
    n_directions : int
        How many directions are looked from.
    rng : numpy Generator or int
        For the directions and the choice of rows.

    Returns
    -------
    float

    Examples
    --------
    >>> x = np.array([[0.0], [2.0]])
    >>> sliced_wasserstein(x, x + 3.0, n_directions=1)
    3.0
    """
    generator = np.random.default_rng(rng)
    x, y = _place(table, other, schema, max_rows, generator)
    return sliced_wasserstein_of_points(x, y, order=order, n_directions=n_directions, rng=generator)


def sliced_wasserstein_of_points(
    x: Floats,
    y: Floats,
    *,
    order: int = 2,
    n_directions: int = 200,
    rng: np.random.Generator | int = 0,
) -> float:
    """Give the sliced Wasserstein distance between two samples of points, see `sliced_wasserstein`.

    Shape: x [n, d], y [m, d].

    Examples
    --------
    >>> sliced_wasserstein_of_points(np.zeros((5, 1)), np.ones((3, 1)))
    1.0
    """
    if order not in (1, 2) or n_directions < 1:
        raise SettingError(
            f"Order must be 1 or 2 and directions at least 1, however: they are {order} and {n_directions}."
        )
    directions = np.random.default_rng(rng).standard_normal((x.shape[1], n_directions))
    directions /= np.linalg.norm(directions, axis=0)
    below_x, below_y = np.sort(x @ directions, axis=0), np.sort(y @ directions, axis=0)
    # Between two neighbours of these shares both quantile functions are constant, so that sums are exact.
    n, m = len(x), len(y)
    shares = np.unique(np.concatenate([np.arange(1, n + 1) * m, np.arange(1, m + 1) * n]))  # of n m
    width = np.diff(shares, prepend=0) / (n * m)
    quantile_x, quantile_y = below_x[(shares - 1) // m], below_y[(shares - 1) // n]
    powers = width @ np.abs(quantile_x - quantile_y) ** order
    return float(powers.mean() ** (1.0 / order))


def _place(
    table: Any, other: Any, schema: Schema | None, max_rows: int | None, rng: np.random.Generator | int
) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(rng)
    sizes = [read_table(with_distinct_names(one)).n_rows for one in (table, other)]
    if not all(sizes):
        raise InputError("Tables to compare have rows, however: one has none.")
    x, y = points_of([table, other], schema, rows=[some_rows(size, max_rows, generator) for size in sizes])
    return x, y


def _mean_distance(x: Floats, y: Floats) -> float:
    """Mean Euclidean distance over all pairs, a chunk of rows at a time."""
    from scipy.spatial.distance import cdist

    step = max(1, _CHUNK // len(y))
    total = sum(float(cdist(x[start : start + step], y).sum()) for start in range(0, len(x), step))
    return total / (len(x) * len(y))

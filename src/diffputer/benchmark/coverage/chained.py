"""Chained Bayesian linear regressions, each draw with coefficients of its own: what R's mice calls "norm"."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from .designs import Floats

#: Added to the diagonal of X'X, relative to it, so that a draw of few rows cannot fail.
RIDGE = 1e-5


def draw_chained(x: Floats, rounds: int, rng: np.random.Generator) -> Floats:
    """Complete an array of numbers by one draw of chained regressions.

    Every incomplete column in turn is regressed on all others where it was observed (Rubin 1987, p. 167):
    s² is a draw of the residual variance, SSE / chi²; b a draw of the coefficients, normal around those of
    least squares with covariance s² (X'X)⁻¹; missing cells are X b + s e. All cells of a column share b,
    which is what makes the spread between draws that of a model that is itself estimated.

    Parameters
    ----------
    x : ndarray of shape (n, c)
        Holes are NaN.
    rounds : int
        Times that all columns are gone through.
    rng : numpy Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n, c)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 1)) + 0.1 * rng.normal(size=(50, 2))
    >>> x[::3, 1] = np.nan
    >>> filled = draw_chained(x, 5, rng)
    >>> bool(np.isfinite(filled).all()), bool((filled[1::3] == x[1::3]).all())
    (True, True)
    """
    holes = np.isnan(x)
    completed = x.copy()
    columns = np.flatnonzero(holes.any(axis=0))
    for j in columns:  # begin with values of other rows
        completed[holes[:, j], j] = rng.choice(x[~holes[:, j], j], int(holes[:, j].sum()))
    ones = np.ones((len(x), 1))
    for _ in range(rounds):
        for j in columns:
            known = ~holes[:, j]
            predictors = np.hstack([ones, np.delete(completed, j, axis=1)])
            completed[~known, j] = _draw(predictors[known], x[known, j], predictors[~known], rng)
    return completed


def _draw(x: Floats, y: Floats, x_missing: Floats, rng: np.random.Generator) -> Floats:
    n, k = x.shape
    products = x.T @ x
    products[np.diag_indices(k)] *= 1 + RIDGE
    lower = np.linalg.cholesky(products)
    mean = solve_triangular(lower.T, solve_triangular(lower, x.T @ y, lower=True))
    residual = y - x @ mean
    s = np.sqrt(residual @ residual / rng.chisquare(max(n - k, 1)))
    b = mean + s * solve_triangular(lower.T, rng.standard_normal(k))
    return np.asarray(x_missing @ b + s * rng.standard_normal(len(x_missing)))

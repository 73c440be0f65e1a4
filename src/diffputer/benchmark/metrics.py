"""Scores of imputed cells, as the paper's protocol defines them; pure functions.

Numbers are compared after standardising both by the mean and deviation of the observed training cells; the
mean cancels in the difference. Scores are plain: the paper's tables show them times 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from ..analysis.scores import coverage as coverage
from ..analysis.scores import crps as crps
from ..analysis.scores import end_rank as end_rank
from ..analysis.scores import rank_histogram as rank_histogram
from ..errors import InputError

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
#: Rows that an energy distance looks at, at most: it compares each with each.
ENERGY_ROWS = 2000
#: Of the classifier two-sample score: draws that are looked at, at most; folds; trees of a forest.
AUC_DRAWS, AUC_FOLDS, AUC_TREES = 5, 5, 100


@dataclass(frozen=True)
class Scores:
    """Scores of one completed table; None where no such cell was hidden."""

    mae: float | None
    rmse: float | None
    accuracy: float | None
    columns: dict[str, dict[str, float]]
    """Column -> its own scores and the number of hidden cells."""


def observed_deviation(x: Floats, hidden: Booleans) -> Floats:
    """Give the standard deviation of the observed cells of each column, 1 where it is 0.

    Shape: x, hidden [n, p] -> [p].

    Examples
    --------
    >>> x = np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 5.0]])
    >>> observed_deviation(x, hidden=x == 9.0)
    array([1., 1.])
    """
    observed = np.where(hidden, np.nan, x)
    if hidden.all(axis=0).any():
        raise InputError("Scores need observed training cells in every column, however: one has none.")
    deviation: Floats = np.nanstd(observed, axis=0)
    constant = deviation <= 1e-12 * np.nanmax(np.abs(observed), axis=0)
    return np.where(constant, 1.0, deviation)


def mae(truth: Floats, imputed: Floats, hidden: Booleans, deviation: Floats) -> float:
    """Give the mean absolute error over hidden cells, in standard deviations.

    Shape: truth, imputed, hidden [n, p], deviation [p].

    Examples
    --------
    >>> mae(np.array([[1.0, 2.0]]), np.array([[3.0, 9.0]]), np.array([[True, False]]), np.array([4.0, 1.0]))
    0.5
    """
    return float(np.abs((imputed - truth) / deviation)[hidden].mean())


def rmse(truth: Floats, imputed: Floats, hidden: Booleans, deviation: Floats) -> float:
    """Give the root mean squared error over hidden cells, in standard deviations.

    Shape: truth, imputed, hidden [n, p], deviation [p].

    Examples
    --------
    >>> rmse(np.array([[1.0, 2.0]]), np.array([[3.0, 9.0]]), np.array([[True, False]]), np.array([4.0, 1.0]))
    0.5
    """
    return float(np.sqrt(np.square((imputed - truth) / deviation)[hidden].mean()))


def accuracy(truth: NDArray[Any], imputed: NDArray[Any], hidden: Booleans) -> float:
    """Give the share of the hidden cells, of all columns together, that have the right level.

    Shape: all [n, p].

    Examples
    --------
    >>> accuracy(np.array([["a", "b"]]), np.array([["a", "c"]]), np.array([[True, True]]))
    0.5
    """
    return float((truth == imputed)[hidden].mean())


@dataclass(frozen=True)
class DrawScores:
    """Scores of several draws of the same cells."""

    coverage: float
    """Share of the cells inside the interval between two draws that has probability 90 %."""
    crps: float
    """Continuous ranked probability score, as one expects it of endlessly many draws."""
    pit: list[int]
    """Cells whose rank among the draws lies in each tenth of the ranks; level if the draws are right."""


def score_draws(truth: Floats, draws: Floats) -> DrawScores:
    """Score draws of standardised cells. Shape: truth [m], draws [N, m], N as `end_rank` has it."""
    return DrawScores(coverage(truth, draws), crps(truth, draws), rank_histogram(truth, draws))


def energy_distance(truth: Floats, completed: Sequence[Floats]) -> float:
    """Give the energy distance between the rows of a completed table and the true rows.

    2 E|X - Y| - E|X - X'| - E|Y - Y'| (Szekely and Rizzo; no root is taken), where X is a row of the
    completed table and Y a true row. Each mean is over pairs of rows at *different* positions, in the first
    term too: so it is zero on average, whatever the number of rows, if holes are filled by draws from their
    true distribution given what is observed, and exactly zero if they are filled by the truth. It tells
    what scores of single cells cannot: whether filled rows vary, and vary together, as true ones do. Means
    of a conditional distribution do not.

    Of a table that is drawn several times it is the mean over the draws. Of more than 2,000 rows it takes
    2,000, chosen by a generator of its own: the same for every method. By chance it may be slightly negative.

    Shape: truth [n, p], n > 1, in standard deviations; completed: tables of the same shape.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [3.0], [3.0]])
    >>> energy_distance(rows, [np.full((4, 1), 1.5)]), energy_distance(rows, [rows])
    (1.0, 0.0)
    """
    chosen = np.arange(len(truth))
    if len(truth) > ENERGY_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(truth), ENERGY_ROWS, replace=False))
    truth = truth[chosen]
    within = _mean_distance(truth, truth)
    distances = [
        2.0 * _mean_distance(table[chosen], truth) - _mean_distance(table[chosen], table[chosen]) - within
        for table in completed
    ]
    return float(np.mean(distances))


def _mean_distance(x: Floats, y: Floats) -> float:
    """Give the mean distance between rows at different positions. Shape: x, y [n, p]."""
    distances = cdist(x, y)
    return float((distances.sum() - np.trace(distances)) / (len(x) * (len(x) - 1)))


def two_sample_auc(truth: Floats, completed: Sequence[Floats]) -> float:
    """AUC of a random forest that tells imputed rows from true ones; 0.5 is perfect.

    A classifier two-sample score (Lopez-Paz and Oquab 2017), by 5-fold cross-validation. A true row and its
    imputed twin are in the same fold: else the forest would know rows from training by their observed cells,
    under the other label. With draws from the true conditional distribution the twins are exchangeable, and
    the score is 0.5 on average, whatever the number of rows. The mean over the first five draws.

    Shape: truth [n, p], n at least 5; completed: tables of the same shape.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(100, 2))
    >>> two_sample_auc(rows, [rows]), two_sample_auc(rows, [rows + 9.0])
    (0.5, 1.0)
    """
    fold = np.tile(np.random.default_rng(0).permutation(len(truth)) % AUC_FOLDS, 2)
    imputed = np.repeat([False, True], len(truth))
    found = []
    for table in completed[:AUC_DRAWS]:
        x = np.concatenate([truth, table])
        for number in range(AUC_FOLDS):
            held = fold == number
            forest = RandomForestClassifier(AUC_TREES, random_state=0, n_jobs=1).fit(x[~held], imputed[~held])
            found.append(roc_auc_score(imputed[held], forest.predict_proba(x[held])[:, 1]))
    return float(np.mean(found))


def score_table(
    truth: pd.DataFrame,
    completed: pd.DataFrame,
    hidden: Booleans,
    deviation: Floats,
    categorical: tuple[str, ...],
) -> Scores:
    """Score a completed table whose numeric columns come first.

    Parameters
    ----------
    truth, completed : DataFrame
        The complete table and the imputed one: numeric columns, then categorical ones.
    hidden : ndarray of bool, shape (n, p)
        The cells to score.
    deviation : ndarray of shape (numeric columns,)
        Of the observed training cells, see `observed_deviation`.
    categorical : tuple of str
        The categorical columns.

    Returns
    -------
    Scores
        All together and by column.
    """
    left = completed.isna().to_numpy() & hidden
    if left.any():
        names = [str(name) for name, empty in zip(truth.columns, left.any(axis=0), strict=True) if empty]
        raise InputError(f"Every hidden cell must be imputed, however: {left.sum():,} are empty in {names}.")
    p = len(deviation)
    numbers, imputed_numbers = (t.iloc[:, :p].to_numpy(dtype=np.float64) for t in (truth, completed))
    levels, imputed_levels = (t[list(categorical)].to_numpy(dtype=object) for t in (truth, completed))
    hidden_numbers, hidden_levels = hidden[:, :p], hidden[:, p:]
    columns: dict[str, dict[str, float]] = {}
    for j, name in enumerate(truth.columns):
        if not (n := int(hidden[:, j].sum())):
            continue
        if j < p:
            one = slice(j, j + 1)
            part = (numbers[:, one], imputed_numbers[:, one], hidden[:, one], deviation[one])
            columns[name] = {"mae": mae(*part), "rmse": rmse(*part), "n": n}
        else:
            one = slice(j - p, j - p + 1)
            right = accuracy(levels[:, one], imputed_levels[:, one], hidden_levels[:, one])
            columns[name] = {"accuracy": right, "n": n}
    both = (numbers, imputed_numbers, hidden_numbers, deviation)
    return Scores(
        mae=mae(*both) if hidden_numbers.any() else None,
        rmse=rmse(*both) if hidden_numbers.any() else None,
        accuracy=accuracy(levels, imputed_levels, hidden_levels) if hidden_levels.any() else None,
        columns=columns,
    )

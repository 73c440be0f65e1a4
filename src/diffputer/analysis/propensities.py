"""Can a classifier tell cells that were filled from cells that were observed? And rows with a hole?

References: Rosenbaum and Rubin (Biometrika 1983) for the propensity score; Raghunathan and Bondarenko,
"Diagnostics for multiple imputations" (2007), for comparing imputed with observed values given it; Snoke,
Raab, Nowok, Dibben and Slavkovic (JRSS A 2018) for telling synthetic data from real by a classifier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..tables.cells import Cells
from ..tables.schema import Column, Schema
from .views import look, read_forms, some_rows, tables_of

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

FEWEST = 15  # cells of each sort without which a classifier has nothing to learn from
FOLDS = 3
MOST_ROWS = 2_000
MOST_LEVELS = 100  # rarer levels of a category are one to the classifier


def propensity(
    table: Any,
    completed: Any,
    *,
    schema: Schema | None = None,
    max_rows: int = MOST_ROWS,
    rng: np.random.Generator | int = 0,
) -> pd.DataFrame:
    """Ask, column by column, whether a classifier can tell filled cells from observed ones.

    Boosted trees see the rows of one completed table and guess whether the cell of the column had been
    missing; the area under the ROC curve (AUC) is of rows they have not seen. Where cells are missing at
    random the *other* columns tell a part of that already, and rightly so: what counts is the gain by the
    column's own value. A gain near 0 says that filled values are like observed ones in similar rows; it
    cannot say so where similar rows do not exist, nor when cells are missing because of their own value.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    completed : table or sequence of tables
        Completed; of several, the first is looked at. Draws are meant: expected values spread less than
        observed ones and are easily told.
    schema : Schema, optional
        What the columns hold.
    max_rows : int
        Of longer tables so many rows, chosen at random.
    rng : numpy Generator or int
        For that choice and the folds.

    Returns
    -------
    pandas.DataFrame
        One row for each column with holes: column, n_observed, n_imputed, auc (with the column itself),
        auc_others (without), gain (their difference) and deviation (of one AUC that is 0.5 by chance, from
        the numbers of cells alone: a scale for auc and auc_others, not the standard error of gain, whose two
        AUCs are of the same rows); NaN with fewer than 15 cells of a sort.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> holes = pd.DataFrame({"x": np.where(rng.random(400) < 0.5, rng.normal(size=400), np.nan)})
    >>> bool(propensity(holes, holes.fillna(0.0))["gain"][0] > 0.4)  # one value only: easily told
    True
    """
    generator = np.random.default_rng(rng)
    view = look(table, schema)
    after = read_forms(view, tables_of(completed)[:1])[0]
    rows = some_rows(view.table.n_rows, max_rows, generator)
    features = {position: feature(after.cells[position], column, rows) for position, column in view.usable()}
    lines = []
    for position, column in view.usable():
        filled = view.missing[rows, position]
        if not view.missing[:, position].any():
            continue
        # Cells that nobody filled say nothing.
        there = ~after.missing[rows, position]
        target = filled[there]
        others = [values[there] for other, values in features.items() if other != position]
        seed = int(generator.integers(2**31))
        with_own, _ = tell_apart([*others, features[position][there]], target, seed)
        without, _ = tell_apart(others, target, seed)
        if not others and not np.isnan(with_own):
            without = 0.5
        n_filled, n_observed = int(target.sum()), int((~target).sum())
        deviation = chance_deviation(n_filled, n_observed)
        lines.append((column.name, n_observed, n_filled, with_own, without, with_own - without, deviation))
    names = ["column", "n_observed", "n_imputed", "auc", "auc_others", "gain", "deviation"]
    return pd.DataFrame(lines, columns=names)


def feature(cells: Cells, column: Column, rows: NDArray[np.int64]) -> Floats:
    """Give a column as trees take it: numbers, or levels in order of their frequency; NaN for holes.

    Shape: [len(rows)].
    """
    if column.kind.is_numeric:
        return cells.numbers()[rows]
    codes = cells.labels()[0][rows]
    known = codes[codes >= 0]
    if not known.size:
        return np.full(len(rows), np.nan)
    counts = np.bincount(known)
    rank = np.empty(len(counts), dtype=np.float64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.where(codes < 0, np.nan, np.minimum(rank[codes], MOST_LEVELS))


def chance_deviation(n_one: int, n_other: int) -> float:
    """Give the standard deviation of an AUC that is 0.5 by chance (Mann and Whitney 1947).

    Examples
    --------
    >>> round(chance_deviation(50, 50), 3)
    0.058
    """
    if not n_one or not n_other:
        return float("nan")
    return float(np.sqrt((n_one + n_other + 1) / (12.0 * n_one * n_other)))


def tell_apart(
    features: list[Floats],
    target: Booleans,
    seed: int = 0,
    *,
    drops_from: float = math.inf,
    alone: Sequence[int] = (),
) -> tuple[float, Floats]:
    """Give the cross-validated area under the ROC curve of small boosted trees; NaN with too few cells.

    If it is larger than ``drops_from`` also by how much it falls when a feature is shuffled among rows not
    seen in the fit (Breiman 2001), else zeros. Features ``alone`` (positions) act by themselves, not jointly
    with others.

    Shape: features [n] each, target [n] -> a number, [len(features)].
    """
    drops = np.zeros(len(features))
    if min(int(target.sum()), int((~target).sum())) < FEWEST or not features:
        return float("nan"), drops
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold
    from threadpoolctl import threadpool_limits

    x = np.column_stack(features)
    # Trees compare values only: scaled so that their bins do not overflow.
    largest = np.abs(np.where(np.isnan(x), 0.0, x)).max(axis=0)
    x = x / np.where(largest > 0, largest, 1.0)
    jointly = set(range(len(features))) - set(alone)
    groups = [*([jointly] if jointly else []), *({place} for place in alone)]
    shuffle = np.random.default_rng(seed)
    folds = []
    with threadpool_limits(1):  # so small are these fits that threads wait for each other all the time
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, target):
            model = HistGradientBoostingClassifier(
                max_iter=30,
                max_leaf_nodes=8,
                learning_rate=0.2,
                min_samples_leaf=10,
                early_stopping=False,
                interaction_cst=groups if alone else None,
            )
            known, unseen = x[train], x[test]
            empty = np.isnan(known).all(axis=0)  # trees cannot bin nothing
            known[:, empty] = unseen[:, empty] = 0.0
            model.fit(known, target[train])
            area = float(roc_auc_score(target[test], model.predict_proba(unseen)[:, 1]))
            folds.append((model, unseen, target[test], area))
        mean = float(np.mean([area for *_, area in folds]))
        for model, unseen, truth, area in folds if mean > drops_from else ():
            for place in range(len(features)):
                mixed = unseen.copy()
                mixed[:, place] = shuffle.permutation(mixed[:, place])
                drops[place] += area - roc_auc_score(truth, model.predict_proba(mixed)[:, 1])
    return mean, drops / FOLDS

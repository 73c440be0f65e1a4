"""Boosted trees as arrays: the same predictions as scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from diffputer.models.base import Cells, RowBatch
from diffputer.models.conditional.trees import BoostedTrees, _matrix


def make_rows(n: int = 900, n_levels: int = 4, seed: int = 0) -> RowBatch:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    x = np.stack([a, a**2 + 0.1 * rng.normal(size=n)], axis=1).astype(np.float32)
    level = np.clip(np.floor(a + 2), 0, n_levels - 1)
    known = rng.random((n, 3)) > 0.3
    shown = torch.from_numpy(known[:, :2])
    levels = torch.from_numpy(np.where(known[:, 2], level, -1).astype(np.int64))[:, None]
    return RowBatch(torch.from_numpy(x) * shown, torch.from_numpy(x) * shown, shown, levels)


def missing_cells(rows: RowBatch) -> Cells:
    return Cells.of(~rows.all_known, rows.x.shape[1])


@pytest.mark.parametrize("n_levels", [2, 4])
def test_predictions_are_those_of_scikit_learn(n_levels: int) -> None:
    rows = make_rows(n_levels=n_levels)
    trees = BoostedTrees(2, [n_levels]).fit(rows, n_trees=20, seed=0)
    cells = missing_cells(rows)
    predictive = trees.predict(rows, cells)
    mean = cells.place(predictive.mean, rows.x.shape)
    matrix = _matrix(rows).double().numpy()
    missing = np.isnan(matrix)
    options = {"max_iter": 20, "early_stopping": False, "random_state": 0}
    number = HistGradientBoostingRegressor(categorical_features=[False, True], **options)
    number.fit(matrix[~missing[:, 0], 1:], matrix[~missing[:, 0], 0])
    expected = number.predict(matrix[missing[:, 0], 1:])
    np.testing.assert_allclose(mean[missing[:, 0], 0].numpy(), expected, atol=1e-5)
    category = HistGradientBoostingClassifier(l2_regularization=10.0, **options)
    category.fit(matrix[~missing[:, 2], :2], matrix[~missing[:, 2], 2])
    expected = category.predict_proba(matrix[missing[:, 2], :2])
    np.testing.assert_allclose(predictive.levels[0][missing[:, 2]].numpy(), expected, atol=1e-5)


def test_the_same_on_several_threads_and_after_loading() -> None:
    rows = make_rows()
    one, two = (BoostedTrees(2, [4]).fit(rows, n_trees=5, seed=0, threads=k) for k in (1, 2))
    again = BoostedTrees(2, [4])
    again.load_state_dict(two.state_dict())
    for other in (two, again):
        other.check_values()
        predicted, same = (trees.predict(rows, missing_cells(rows)) for trees in (one, other))
        assert torch.equal(predicted.mean, same.mean)
        assert torch.equal(predicted.levels[0], same.levels[0])


def test_too_few_cells_give_means_and_frequencies() -> None:
    rows = make_rows(n=30)
    cells = missing_cells(rows)
    predictive = BoostedTrees(2, [4]).fit(rows, n_trees=5, seed=0).predict(rows, cells)
    observed = rows.x[:, 0][rows.known[:, 0]]
    assert float(predictive.mean[cells.columns == 0][0]) == pytest.approx(float(observed.mean()), abs=1e-6)
    assert float(predictive.levels[0].sum(dim=1).max()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", ["left", "feature", "members", "output", "root"])
def test_arrays_that_lead_nowhere_are_refused(name: str) -> None:
    trees = BoostedTrees(2, [4]).fit(make_rows(), n_trees=3, seed=0)
    getattr(trees, name)[0] = 1 << 20
    with pytest.raises(ValueError, match="must"):
        trees.check_values()

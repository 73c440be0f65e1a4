"""What is linear in the values: exact where it holds, shrunk where held-out cells ask for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from diffputer import DiffPuter
from diffputer.diffusion.conditional import Rows, describe
from diffputer.diffusion.linear import LinearValues


def rows_of(x: np.ndarray, known: np.ndarray) -> Rows:
    values = torch.from_numpy(x.astype(np.float32))
    # Scores that are no use: this part must not look at them.
    return describe(
        values, torch.zeros_like(values), torch.from_numpy(known), torch.zeros(len(x), 0, dtype=torch.int64)
    )


def test_expectations_are_those_of_a_regression_on_skewed_values() -> None:
    # b = 2 a with a skewed: straight in values, bent in normal scores.
    rng = np.random.default_rng(0)
    a = rng.exponential(size=4000)
    x = np.stack([a, 2 * a + 0.1 * rng.normal(size=4000)], axis=1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    line = LinearValues(2, [])
    line.fit(rows_of(x, rng.random(x.shape) > 0.3))
    asked = np.array([[0.5, 0.0], [3.0, 0.0]])
    means = line.answer(rows_of(asked, np.array([[True, False]] * 2)))[0][:, 1].numpy()
    slope = np.cov(x.T)[0, 1]
    assert np.allclose(means, slope * asked[:, 0], atol=0.03)


def test_columns_that_follow_from_each_other_are_shrunk_little() -> None:
    rng = np.random.default_rng(1)
    base = rng.normal(size=(150, 2))
    x = np.concatenate([base, base @ rng.normal(size=(2, 4))], axis=1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    held = rng.random(x.shape) < 0.1
    rows, line = rows_of(x, ~held), LinearValues(6, [])

    def squared_error() -> float:
        return float(((line.answer(rows)[0].numpy() - x)[held] ** 2).sum())

    line.fit_best(rows, squared_error, lambda errors: errors.index(min(errors)))
    assert line.shrinking < 0.1
    assert squared_error() < 0.01 * (x[held] ** 2).sum()


def test_a_column_of_noise_stays_shrunk() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 8))
    held = rng.random(x.shape) < 0.2
    rows, line = rows_of(x, ~held), LinearValues(8, [])
    line.fit_best(
        rows,
        lambda: float(((line.answer(rows)[0].numpy() - x)[held] ** 2).sum()),
        lambda errors: errors.index(min(errors)),
    )
    assert line.shrinking == 1.0


def test_too_many_levels_are_left_out_and_too_many_columns_leave_none() -> None:
    wide = LinearValues.of(10, [200])
    assert wide is not None
    assert wide.levels == []
    assert LinearValues.of(500, []) is None
    assert LinearValues.of(0, [3, 3]) is None


def rows_with_levels(x: np.ndarray, known: np.ndarray, levels: np.ndarray) -> Rows:
    values = torch.from_numpy(x.astype(np.float32))
    return describe(values, torch.zeros_like(values), torch.from_numpy(known), torch.from_numpy(levels))


def test_probabilities_are_those_of_a_discriminant_analysis() -> None:
    # Of complete rows the joint Gaussian gives means of levels and the covariance within them.
    rng = np.random.default_rng(4)
    levels = rng.choice(3, size=(3000, 1), p=[0.5, 0.3, 0.2])
    x = np.array([[-1.0, 0.5], [0.0, -0.6], [1.0, 0.3]])[levels[:, 0]] + rng.normal(size=(3000, 2)) * 0.7
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    line = LinearValues(2, [3])
    line.shrinking.fill_(0.0)
    everything = np.ones_like(x, dtype=bool)
    line.fit(rows_with_levels(x, everything, levels))
    asked = rng.normal(size=(50, 2))
    _, said = line.answer(rows_with_levels(asked, everything[:50], np.full((50, 1), -1)))
    assert said is not None

    middles = np.stack([x[levels[:, 0] == k].mean(axis=0) for k in range(3)])
    within = np.cov((x - middles[levels[:, 0]]).T, bias=True)
    away = asked[:, None] - middles
    logits = np.log(np.bincount(levels[:, 0]) / 3000) - 0.5 * np.einsum(
        "nki,ij,nkj->nk", away, np.linalg.inv(within), away
    )
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    # Tolerance: the jitter of indicators and the smallest probability.
    assert np.allclose(said[0].numpy(), exact, atol=0.01)


def test_a_known_part_of_the_row_is_enough_and_known_levels_are_left_alone() -> None:
    rng = np.random.default_rng(5)
    levels = rng.integers(3, size=(500, 2))
    x = np.stack([levels[:, 0] - 1.0, levels[:, 1] - 1.0, rng.normal(size=500)], axis=1)
    x[:, :2] += 0.2 * rng.normal(size=(500, 2))
    known = rng.random((500, 3)) > 0.3
    holes = rng.random((500, 2)) < 0.3
    line = LinearValues(3, [3, 3])
    line.shrinking.fill_(0.01)
    rows = rows_with_levels(x, known, np.where(holes, -1, levels))
    line.fit(rows)
    _, said = line.answer(rows)
    assert said is not None
    for k in range(2):
        told = holes[:, k] & known[:, k]
        assert (said[k].numpy().argmax(axis=1) == levels[:, k])[told].mean() > 0.95
        assert np.allclose(said[k].numpy().sum(axis=1), 1.0, atol=1e-5)


def test_a_category_that_follows_from_a_number_is_right_on_a_small_table() -> None:
    # The middle level lies between the others: a regression of its indicator does not see it.
    rng = np.random.default_rng(6)
    size = rng.uniform(0, 3, size=200)
    table = pd.DataFrame(
        {"size": size, "noise": rng.normal(size=200), "class": np.array(["s", "m", "l"])[size.astype(int)]}
    )
    holes = table.mask(rng.random(table.shape) < 0.2)
    hidden = holes["class"].isna() & holes["size"].notna()
    completed = DiffPuter(quality="fast", max_steps=100, random_state=0).fit_transform(holes)
    assert (completed["class"] == table["class"])[hidden].mean() >= 0.9


def test_a_small_gaussian_table_is_completed_nearly_as_well_as_can_be() -> None:
    # Tolerance: what 200 rows with holes leave open of the covariance costs less than 5 %.
    rng = np.random.default_rng(7)
    covariance = 0.7 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    mine = best = 0.0
    for seed in range(3):
        x = rng.multivariate_normal(np.zeros(5), covariance, size=200)
        hidden = rng.random(x.shape) < 0.3
        completed = DiffPuter(quality="fast", max_steps=100, random_state=seed).fit_transform(
            np.where(hidden, np.nan, x)
        )
        exact = np.zeros_like(x)
        for row, holes in enumerate(hidden):
            across = covariance[np.ix_(holes, ~holes)]
            exact[row, holes] = across @ np.linalg.solve(covariance[np.ix_(~holes, ~holes)], x[row, ~holes])
        mine += float(((completed - x)[hidden] ** 2).sum())
        best += float(((exact - x)[hidden] ** 2).sum())
    assert np.sqrt(mine / best) < 1.05


def test_a_small_table_with_exact_sums_is_completed_closely() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.exponential(size=(2, 150))
    table = pd.DataFrame({"a": a, "b": b, "total": a + b})
    holes = table.mask(rng.random(table.shape) < 0.15)
    hidden = holes["total"].isna() & holes["a"].notna() & holes["b"].notna()
    completed = DiffPuter(quality="fast", max_steps=100, random_state=0).fit_transform(holes)
    error = (completed["total"] - table["total"])[hidden].std() / table["total"].std()
    assert error < 0.2

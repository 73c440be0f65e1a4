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
    means = line.means(rows_of(asked, np.array([[True, False]] * 2)))[:, 1].numpy()
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
        return float(((line.means(rows).numpy() - x)[held] ** 2).sum())

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
        lambda: float(((line.means(rows).numpy() - x)[held] ** 2).sum()),
        lambda errors: errors.index(min(errors)),
    )
    assert line.shrinking == 1.0


def test_too_many_levels_are_left_out_and_too_many_columns_leave_none() -> None:
    wide = LinearValues.of(10, [200])
    assert wide is not None
    assert wide.levels == []
    assert LinearValues.of(500, []) is None
    assert LinearValues.of(0, [3, 3]) is None


def test_a_small_table_with_exact_sums_is_completed_closely() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.exponential(size=(2, 150))
    table = pd.DataFrame({"a": a, "b": b, "total": a + b})
    holes = table.mask(rng.random(table.shape) < 0.15)
    hidden = holes["total"].isna() & holes["a"].notna() & holes["b"].notna()
    completed = DiffPuter(quality="fast", max_steps=100, random_state=0).fit_transform(holes)
    error = (completed["total"] - table["total"])[hidden].std() / table["total"].std()
    assert error < 0.2

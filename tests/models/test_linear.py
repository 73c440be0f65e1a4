"""Linear experts against closed forms: conditionals of Gaussians, lines, low rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.models.base import Cells, Columns, RowBatch
from diffputer.models.masked.linear import LinearExpert
from diffputer.models.masked.masking import Table, mask
from diffputer.models.masked.support import Support


def table_of(x: np.ndarray, known: np.ndarray, n_levels: list[int]) -> tuple[Table, Support]:
    columns = Columns(np.array(n_levels))
    support = Support.fit(x.astype(np.float32), ~known, columns.numeric)
    return Table(x.astype(np.float32), known, columns, support), support


def hide(rows: RowBatch, column: int) -> RowBatch:
    known = rows.known.clone()
    known[:, column] = False
    return RowBatch(rows.x * known, rows.z * known, known, rows.levels)


def test_the_gaussian_of_values_is_the_conditional_of_a_gaussian() -> None:
    rng = np.random.default_rng(0)
    S = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])
    x = rng.multivariate_normal(np.zeros(3), S, size=6000)
    table, _ = table_of(x, rng.random(x.shape) > 0.2, [0, 0, 0])
    expert = LinearExpert("values", 3, [])
    expert.fit(table.batch, 1.0)
    rows = RowBatch(
        torch.tensor([[1.0, 0.0, -1.0]]), torch.zeros(1, 3), torch.tensor([[True, False, True]]),
        torch.zeros(1, 0, dtype=torch.int64),
    )  # fmt: skip
    mean, std, _ = expert.condition(rows)
    gain = S[1, [0, 2]] @ np.linalg.inv(S[np.ix_([0, 2], [0, 2])])
    assert float(mean[0, 1]) == pytest.approx(gain @ [1.0, -1.0], abs=0.05)
    assert float(std[0, 1]) == pytest.approx(np.sqrt(1 - gain @ S[[0, 2], 1]), abs=0.03)


def test_lines_are_found_where_there_are_some_and_nowhere_else() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 300))
    x = np.stack([a, 3 - a, b, a + b], axis=1)
    known = rng.random(x.shape) > 0.1
    table, support = table_of(x, known, [0] * 4)
    expert = LinearExpert("values", 4, [])
    expert.fit(table.batch, 1e-5)
    widths, scales = expert.find_lines(table.batch, support)
    assert (widths > 0).all()
    assert (scales < 0.5).all()  # nothing is left of these lines but what shrinkage adds
    noise, support = table_of(rng.normal(size=(300, 4)), known, [0] * 4)
    expert.fit(noise.batch, 1e-5)
    assert not (expert.find_lines(noise.batch, support)[0] > 0).any()


def test_a_category_is_told_by_discriminant_analysis() -> None:
    rng = np.random.default_rng(2)
    level = rng.integers(3, size=3000)
    x = np.stack([level * 2.0 + rng.normal(size=3000), level.astype(float)], axis=1)
    table, _ = table_of(x, np.ones_like(x, dtype=bool), [0, 3])
    expert = LinearExpert("values", 1, [3])
    expert.fit(table.batch, 1.0)
    batch = table.batch
    rows = RowBatch(batch.x, batch.z, batch.known, torch.full_like(batch.levels, -1))
    _, _, (probabilities,) = expert.condition(rows)
    density = np.exp(-0.5 * (x[:, :1] - np.array([0.0, 2.0, 4.0])) ** 2)
    exact = density / density.sum(axis=1, keepdims=True)
    assert np.abs(probabilities.numpy() - exact).mean() < 0.02


def test_of_many_columns_factors_find_low_rank() -> None:
    rng = np.random.default_rng(3)
    f, loadings = rng.normal(size=(600, 3)), rng.normal(size=(3, 120))
    x = (f @ loadings + 0.3 * rng.normal(size=(600, 120))) / 2
    table, support = table_of(x, rng.random(x.shape) > 0.3, [0] * 120)
    truth, _ = table_of(x, np.ones_like(x, dtype=bool), [0] * 120)
    for kind in ("values", "copula"):
        expert = LinearExpert(kind, 120, [])
        expert.fit(table.batch, 1.0)
        cells = Cells.of(~table.batch.known, 120)
        predictive, _ = expert.predict(expert.given(table.batch), cells, support)
        error = (predictive.mean - cells.pick(truth.batch.x)).square().mean().sqrt()
        assert float(error) < 0.25, kind  # the noise is 0.15, a column's own deviation 0.9
        assert predictive.bins is not None
        assert float(predictive.bins.sum(dim=-1).min()) == pytest.approx(1.0, abs=1e-3)


def test_a_row_has_the_same_bits_in_any_batch() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(200, 5))
    table, _ = table_of(x, rng.random(x.shape) > 0.4, [0] * 5)
    expert = LinearExpert("values", 5, [])
    expert.fit(table.batch, 1.0)
    whole = expert.condition(table.batch)[0]
    parts = [expert.condition(table.batch.part(slice(k, k + 7)))[0] for k in range(0, 200, 7)]
    assert torch.equal(whole, torch.cat(parts))


def test_hidden_columns_of_a_copula_keep_their_own_distribution() -> None:
    rng = np.random.default_rng(5)
    x = np.exp(rng.normal(size=(2000, 2)))
    table, support = table_of(x, np.ones_like(x, dtype=bool), [0, 0])
    expert = LinearExpert("copula", 2, [])
    expert.fit(table.batch, 1.0)
    rows = hide(table.batch, 0)
    predictive, _ = expert.predict(expert.given(rows), Cells.of(~rows.known, 2), support)
    assert float(predictive.mean.mean()) == pytest.approx(float(x[:, 0].mean()), rel=0.05)


def test_learning_cell_by_cell_is_conditioning() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4))
    x = np.concatenate([x, rng.integers(3, size=(300, 1))], axis=1)
    table, _ = table_of(x, np.ones_like(x, dtype=bool), [0, 0, 0, 0, 3])
    expert = LinearExpert("values", 4, [3])
    expert.fit(table.batch, 1.0)
    some, more = rng.random(x.shape) > 0.7, rng.random(x.shape) > 0.4
    less = mask(table.batch, torch.from_numpy(some))
    rows = mask(table.batch, torch.from_numpy(some | more))
    learnt, anew = expert.learn(expert.given(less), rows), expert.given(rows)
    torch.testing.assert_close(learnt.expected, anew.expected, atol=1e-3, rtol=0)
    wanted = rows.levels < 0
    for one, other in zip(expert.read(learnt, wanted)[1:], expert.read(anew, wanted)[1:], strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, atol=2e-3, rtol=0)

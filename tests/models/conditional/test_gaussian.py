"""Linear experts against closed forms: conditionals of Gaussians, lines, low rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.models.base import Cells, Columns, RowBatch
from diffputer.models.conditional.gaussian import Given, LinearExpert
from diffputer.models.conditional.masking import Table, mask
from diffputer.models.conditional.support import Support


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


def copula_of(middle: torch.Tensor, covariance: torch.Tensor) -> LinearExpert:
    return LinearExpert("copula", len(middle), []).with_parameters(middle, covariance)


def scores(values: torch.Tensor, known: torch.Tensor) -> RowBatch:
    shown = (values * known).float()
    return RowBatch(shown, shown, known, torch.zeros(len(values), 0, dtype=torch.int64))


def test_a_copula_is_found_from_rows_with_missing_cells() -> None:
    # Tolerance 0.05: three standard errors of a correlation from the pairs that are there.
    rng = np.random.default_rng(0)
    S = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])
    x = rng.normal(size=(8000, 3)) @ np.linalg.cholesky(S).T
    few, many = (LinearExpert("copula", 3, []) for _ in range(2))
    many.fit(table_of(x, rng.random(x.shape) > 0.3, [0] * 3)[0].batch, 1.0)
    assert np.allclose(many.covariance.numpy(), S, atol=0.05)
    few.fit(table_of(x[:30], rng.random((30, 3)) > 0.7, [0] * 3)[0].batch, 1.0)
    largest = [float(one.covariance.clone().fill_diagonal_(0).abs().max()) for one in (few, many)]
    assert largest[0] < largest[1]  # few rows shrink towards independence


def test_conditioning_on_one_column_after_the_other_is_conditioning_on_all() -> None:
    # Columns that follow from others, as the indicators of a category do from each other, among them.
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(12, 8))
    loadings[11] = loadings[:3].sum(axis=0)
    copula = copula_of(torch.from_numpy(rng.normal(size=12)), torch.from_numpy(loadings @ loadings.T))
    values = torch.from_numpy(rng.normal(size=(300, 8)) @ loadings.T) + copula.middle
    known = torch.from_numpy(rng.random((300, 12)) < 0.6)
    known[0], known[1] = True, False
    rows = scores(values, known)
    given = copula.given(rows)
    in_turn = Given(
        torch.zeros_like(known), copula.middle.repeat(300, 1), copula.covariance.repeat(300, 1, 1)
    )
    in_turn.learn(*copula.latent(rows))
    assert torch.allclose(in_turn.expected, given.expected, atol=1e-6)
    unknown = ~known[:, :, None] & ~known[:, None, :]
    assert torch.allclose(in_turn.rest * unknown, given.rest, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("d", [1, 2, 16, 20, 33, 64])
def test_a_gpu_conditions_as_a_cpu_does(d: int) -> None:
    generator = torch.Generator().manual_seed(d)
    root = torch.randn(d, d + 2, generator=generator, dtype=torch.float64)
    middle = torch.randn(d, generator=generator, dtype=torch.float64)
    copula = copula_of(middle, root @ root.T / d)
    known = torch.rand(200, d, generator=generator) < 0.6
    known[:2] = torch.tensor([[False], [True]])
    rows = scores(torch.randn(200, d, generator=generator), known)
    exact, found = copula.given(rows), copula.with_parameters(middle.cuda(), copula.covariance.cuda())
    on_gpu = found.cuda().given(rows.to("cuda"))
    assert torch.allclose(on_gpu.expected.cpu(), exact.expected, atol=1e-5)
    assert torch.allclose(on_gpu.rest.cpu(), exact.rest, atol=1e-5)


def test_categories_that_follow_a_number_get_its_probabilities() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=6000)
    levels = (rng.random(6000) < 0.5 + 0.4 * np.tanh(z)).astype(float)
    x = np.stack([z, levels], axis=1)
    table, _ = table_of(x, np.ones_like(x, dtype=bool), [0, 2])
    copula = LinearExpert("copula", 1, [2])
    copula.fit(table.batch, 1.0)
    rows = mask(table.batch, torch.tensor([[True, False]]).expand(6000, 2))
    _, _, (probabilities,) = copula.condition(rows)
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(6000))
    assert float(probabilities[z > 1, 1].mean()) > 0.75
    assert float(probabilities[z < -1, 1].mean()) < 0.25

"""The linear member: exact on Gaussian data, cautious where there is little."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.diffusion.conditional import Rows, describe
from diffputer.diffusion.gaussian import GaussianCopula
from diffputer.diffusion.gaussian_em import condition_in_turn
from diffputer.diffusion.marginals import Marginals

COVARIANCE = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])


def gaussian_rows(n: int, seed: int = 0, rate: float = 0.3) -> tuple[np.ndarray, Rows]:
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(n, 3)) @ np.linalg.cholesky(COVARIANCE).T).astype(np.float32)
    known = torch.from_numpy(rng.random((n, 3)) >= rate)
    values = torch.from_numpy(z)
    return z, describe(values, values, known, torch.zeros(n, 0, dtype=torch.int64))


def no_levels(n: int) -> torch.Tensor:
    return torch.zeros(n, 0, dtype=torch.int64)


def test_the_covariance_is_found_from_rows_with_holes() -> None:
    # Tolerance 0.05: three standard errors of a correlation from the pairs that are there.
    copula = GaussianCopula(3, [])
    copula.fit(gaussian_rows(8000)[1])
    assert np.allclose(copula.covariance.numpy(), COVARIANCE, atol=0.05)


def test_expectation_and_spread_are_those_of_the_conditional_distribution() -> None:
    copula = GaussianCopula(3, [])
    copula.covariance.copy_(torch.from_numpy(COVARIANCE))
    z, _ = gaussian_rows(500)
    known = torch.tensor([[True, False, False]]).expand(500, 3)
    values = torch.from_numpy(z)
    expected, rest = copula.condition(*copula.latent(describe(values, values, known, no_levels(500))))
    assert np.allclose(expected[:, 1:].numpy(), z[:, :1] * COVARIANCE[0, 1:], atol=1e-4)
    exact = COVARIANCE[1:, 1:] - np.outer(COVARIANCE[1:, 0], COVARIANCE[0, 1:])
    assert np.allclose(rest[0, 1:, 1:].numpy(), exact, atol=1e-4)
    assert (rest[:, 0] == 0).all()


def test_conditioning_on_one_column_after_the_other_is_conditioning_on_all() -> None:
    # Columns that follow from others, as the levels of a category do from each other, among them.
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(12, 8))
    loadings[11] = loadings[:3].sum(axis=0)
    copula = GaussianCopula(12, [])
    copula.covariance.copy_(torch.from_numpy(loadings @ loadings.T))
    copula.middle.copy_(torch.from_numpy(rng.normal(size=12)))
    values = torch.from_numpy(rng.normal(size=(300, 8)) @ loadings.T) + copula.middle
    known = torch.from_numpy(rng.random((300, 12)) < 0.6)
    known[0], known[1] = True, False
    expected, rest = copula.condition(values * known, known)
    in_turn, rest_in_turn = condition_in_turn(values * known, known, copula.middle, copula.covariance)
    assert torch.allclose(in_turn, expected, atol=1e-6)
    assert torch.allclose(rest_in_turn, rest, atol=1e-6)


def test_draws_have_the_exact_conditional_moments() -> None:
    copula = GaussianCopula(3, [])
    copula.covariance.copy_(torch.from_numpy(COVARIANCE))
    n = 20_000
    values = torch.full((n, 3), 1.0)
    known = torch.tensor([[True, False, False]]).expand(n, 3)
    z, _ = copula.draw(describe(values, values, known, no_levels(n)), torch.arange(n))
    exact = COVARIANCE[1:, 1:] - np.outer(COVARIANCE[1:, 0], COVARIANCE[0, 1:])
    assert np.allclose(z[:, 1:].mean(dim=0).numpy(), COVARIANCE[0, 1:], atol=0.02)
    assert np.allclose(np.cov(z[:, 1:].T.numpy()), exact, atol=0.03)


def test_few_rows_shrink_towards_independence() -> None:
    few, many = GaussianCopula(3, []), GaussianCopula(3, [])
    few.fit(gaussian_rows(30, rate=0.7)[1])
    many.fit(gaussian_rows(3000, rate=0.7)[1])
    size = [float(c.covariance.fill_diagonal_(0).abs().max()) for c in (few, many)]
    assert size[0] < size[1]


def test_levels_that_depend_on_a_number_get_its_probabilities() -> None:
    rng = np.random.default_rng(1)
    n = 6000
    z = rng.normal(size=(n, 1)).astype(np.float32)
    levels = torch.from_numpy((rng.random((n, 1)) < 0.5 + 0.4 * np.tanh(z)).astype(np.int64))
    values = torch.from_numpy(z)
    everything = torch.ones(n, 1, dtype=torch.bool)
    copula = GaussianCopula(1, [2])
    copula.fit(describe(values, values, everything, levels))
    hidden = describe(values, values, everything, torch.full((n, 1), -1))
    marginals = Marginals.fit(z, np.zeros((n, 1), dtype=bool))
    (probabilities,) = copula.predict(hidden, marginals).probabilities
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(n))
    assert probabilities[z[:, 0] > 1, 1].mean() > 0.75
    assert probabilities[z[:, 0] < -1, 1].mean() < 0.25
    _, drawn = copula.draw(hidden, torch.arange(n))
    for side in (z[:, 0] > 1, z[:, 0] < -1):
        assert abs(float(drawn[side].float().mean() - levels[side].float().mean())) < 0.08


def test_levels_are_drawn_as_often_as_is_said_and_still_together() -> None:
    rng = np.random.default_rng(2)
    n = 6000
    first = rng.integers(0, 2, n)
    second = np.where(rng.random(n) < 0.9, first, 1 - first)
    levels = torch.from_numpy(np.stack([first, second], axis=1))
    empty = torch.zeros(n, 0)
    copula = GaussianCopula(0, [2, 2])
    copula.fit(describe(empty, empty, empty.bool(), levels))
    blank = describe(empty, empty, empty.bool(), torch.full((n, 2), -1))
    said = [torch.tensor([0.2, 0.8]).expand(n, 2), torch.tensor([0.2, 0.8]).expand(n, 2)]
    _, drawn = copula.draw(blank, torch.arange(n), said=said)
    assert float(drawn[:, 0].float().mean()) == pytest.approx(0.8, abs=0.02)
    # Drawn each by itself they would agree in 68 %.
    assert float((drawn[:, 0] == drawn[:, 1]).float().mean()) > 0.85
    _, own = copula.draw(blank, torch.arange(n))
    assert float(own[:, 0].float().mean()) == pytest.approx(0.5, abs=0.02)


def test_an_answer_is_the_same_in_every_block(monkeypatch) -> None:
    copula = GaussianCopula(3, [])
    z, rows = gaussian_rows(300)
    copula.fit(rows)
    marginals = Marginals.fit(z, np.zeros(z.shape, dtype=bool))
    whole = copula.predict(rows, marginals)
    monkeypatch.setattr("diffputer.diffusion.gaussian._BLOCK", {"cpu": 37})
    parts = copula.predict(rows, marginals)
    assert torch.allclose(whole.mean, parts.mean, atol=1e-6)
    assert torch.allclose(whole.quantiles, parts.quantiles, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("d", [1, 2, 16, 20, 33, 64])
def test_a_gpu_conditions_as_a_cpu_does(d: int) -> None:
    generator = torch.Generator().manual_seed(d)
    copula = GaussianCopula(d, [])
    root = torch.randn(d, d + 2, generator=generator, dtype=torch.float64)
    copula.middle.copy_(torch.randn(d, generator=generator, dtype=torch.float64))
    copula.covariance.copy_(root @ root.T / d)
    known = torch.rand(200, d, generator=generator) < 0.6
    known[:2] = torch.tensor([[False], [True]])
    values = torch.randn(200, d, generator=generator, dtype=torch.float64) * known
    exact = copula.condition(values, known)
    found = copula.cuda().condition(values.cuda(), known.cuda())
    for mine, theirs in zip(found, exact, strict=True):
        assert torch.allclose(mine.cpu(), theirs, atol=1e-5)

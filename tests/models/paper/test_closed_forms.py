"""The diffusion against exact answers: on Gaussian data everything is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffputer.models.paper.denoiser import Denoiser, noise_levels, scalings, stratified_noise
from diffputer.models.paper.matching import make_trainer
from diffputer.models.paper.sampling import Sampler, Schedule
from diffputer.settings import PaperSettings

SIGMA_DATA = 0.5
COVARIANCE = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])


class ExactNetwork(nn.Module):
    """F* such that D* = C (C + sigma^2 I)^-1 x, the exact denoiser of N(0, C) scaled by sigma_data.

    The noise embedding is sigma itself, so that it can stand in for the trained network.
    """

    def __init__(self) -> None:
        super().__init__()
        values, vectors = np.linalg.eigh(COVARIANCE * SIGMA_DATA**2)
        self.register_buffer("values", torch.tensor(values, dtype=torch.float32))
        self.register_buffer("vectors", torch.tensor(vectors, dtype=torch.float32))

    def from_embedding(self, x: Tensor, embedding: Tensor) -> Tensor:
        sigma = embedding[0]
        total = sigma**2 + SIGMA_DATA**2
        x_t = x * total.sqrt()
        denoised = ((x_t @ self.vectors) * (self.values / (self.values + sigma**2))) @ self.vectors.T
        return (denoised - SIGMA_DATA**2 / total * x_t) / (sigma * SIGMA_DATA / total.sqrt())


def exact_sampler(settings: PaperSettings) -> Sampler:
    sampler = Sampler(Denoiser(3, settings.hidden_width, SIGMA_DATA), settings)
    sampler._network = ExactNetwork()  # type: ignore[assignment]
    sampler._embeddings = sampler._levels[:, None]
    return sampler


def conditional(pattern: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact mean and covariance of the missing cells of rows that share a pattern."""
    o, m = ~pattern, pattern
    gain = COVARIANCE[np.ix_(m, o)] @ np.linalg.inv(COVARIANCE[np.ix_(o, o)])
    return x[:, o] @ gain.T, COVARIANCE[np.ix_(m, m)] - gain @ COVARIANCE[np.ix_(o, m)]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(200, 3)) @ np.linalg.cholesky(COVARIANCE).T).astype(np.float32)


def test_exact_denoiser_with_resampling_gives_the_exact_conditional_distribution(rows: np.ndarray) -> None:
    # Tolerances: mean 0.06 standard deviations, spread 6 %, correlation 0.06.
    settings = PaperSettings(hidden_width=8, sampling_steps=30, resampling_rounds=15, sigma_max=10.0)
    pattern = np.array([False, True, True])
    missing = np.tile(pattern, (len(rows), 1))
    sampler = exact_sampler(settings)
    keys = np.arange(len(rows), dtype=np.int64) * 7919
    draws = np.concatenate([d.numpy() for _, d in sampler.draw(rows, missing, keys, 40)])[:, :, pattern]
    mean, covariance = conditional(pattern, rows)
    residual = (draws - mean[:, None, :]).reshape(-1, 2)
    assert np.abs(residual.mean(axis=0)).max() < 0.03
    assert np.sqrt(np.mean((draws.mean(axis=1) - mean) ** 2)) < np.sqrt(0.06**2 + covariance.max() / 40)
    found = np.cov(residual.T)
    assert np.allclose(np.sqrt(np.diag(found)), np.sqrt(np.diag(covariance)), rtol=0.06)
    exact_correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert abs(np.corrcoef(residual.T)[0, 1] - exact_correlation) < 0.06
    # The mean of opposite pairs is far closer than independent draws allow.
    expected = sampler.mean(rows, missing, keys, 4)[:, pattern]
    assert np.sqrt(np.mean((expected - mean) ** 2)) < 0.1


def test_algorithm_2_as_printed_is_biased_towards_the_marginal(rows: np.ndarray) -> None:
    # Evidence for R > 1: without resampling the observed cells guide the missing ones too little.
    pattern = np.array([False, True, True])
    missing = np.tile(pattern, (len(rows), 1))
    keys = np.arange(len(rows), dtype=np.int64)
    mean, _ = conditional(pattern, rows)
    errors = {}
    for R in (1, 15):
        settings = PaperSettings(hidden_width=8, sampling_steps=30, resampling_rounds=R, sigma_max=10.0)
        found = exact_sampler(settings).mean(rows, missing, keys, 4)[:, pattern]
        errors[R] = np.sqrt(np.mean((found - mean) ** 2))
    assert errors[1] > 2 * errors[15]


def test_trained_denoiser_matches_the_exact_score_of_a_gaussian() -> None:
    # p(x_t) = N(0, sd^2 + t^2), so the score is -x / (sd^2 + t^2). Tolerance: 6 % of its size.
    settings = PaperSettings(
        hidden_width=32, max_steps=900, batch_size=1024, learning_rate=3e-3, weight_average=0.99, patience=900
    )
    x = torch.randn(4096, 1, generator=torch.Generator().manual_seed(0)) * SIGMA_DATA
    denoiser = Denoiser(1, 32, SIGMA_DATA)
    trainer = make_trainer(denoiser, len(x), settings, torch.float32)
    trainer.objective.use_table(x, x[:256])  # type: ignore[attr-defined]
    trainer.fit(seed=0)
    for sigma in (0.1, 0.3, 1.0, 3.0):
        total = SIGMA_DATA**2 + sigma**2
        points = torch.linspace(-2, 2, 41)[:, None] * total**0.5
        exact = -points / total
        found = (trainer.averaged(points, torch.full((41,), sigma)) - points) / sigma**2
        assert float((found - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt()) < 0.06, sigma


def test_trained_denoiser_and_sampler_match_the_exact_conditional_of_a_gaussian(rows: np.ndarray) -> None:
    # The whole engine on complete Gaussian training data. Tolerances: mean 0.15, spread 12 %,
    # correlation 0.15 (a small network, trained for seconds).
    rng = np.random.default_rng(1)
    train = (rng.normal(size=(6000, 3)) @ np.linalg.cholesky(COVARIANCE).T).astype(np.float32)
    settings = PaperSettings(
        hidden_width=64, max_steps=1200, batch_size=1024, learning_rate=3e-3, weight_average=0.99,
        patience=1200, sampling_steps=20, resampling_rounds=10, sigma_max=5.0, sigma_min=0.01,
    )  # fmt: skip
    trainer = make_trainer(Denoiser(3, 64, SIGMA_DATA), len(train), settings, torch.float32)
    trainer.objective.use_table(torch.from_numpy(train) * SIGMA_DATA)  # type: ignore[attr-defined]
    trainer.fit(seed=0)
    sampler = Sampler(trainer.averaged, settings)
    pattern = np.array([False, True, True])
    missing = np.tile(pattern, (len(rows), 1))
    keys = np.arange(len(rows), dtype=np.int64)
    draws = np.concatenate([d.numpy() for _, d in sampler.draw(rows, missing, keys, 20)])[:, :, pattern]
    mean, covariance = conditional(pattern, rows)
    expected = sampler.mean(rows, missing, keys, 6)[:, pattern]
    assert np.sqrt(np.mean((expected - mean) ** 2)) < 0.15
    residual = (draws - mean[:, None, :]).reshape(-1, 2)
    assert np.allclose(residual.std(axis=0), np.sqrt(np.diag(covariance)), rtol=0.12)
    exact_correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert abs(np.corrcoef(residual.T)[0, 1] - exact_correlation) < 0.15


def test_noise_levels_fall_from_T_to_zero() -> None:
    levels = noise_levels(50, 0.002, 80.0, 7.0)
    assert len(levels) == 51
    assert (levels.diff() < 0).all()
    assert levels[0] == pytest.approx(80.0)
    assert levels[-2] == pytest.approx(0.002)
    assert levels[-1] == 0


def test_training_noise_is_log_normal() -> None:
    # Evenly spaced quantiles of ln sigma: mean, deviation and median to 1 %.
    log_sigma = stratified_noise(2001, -0.6, 1.4).double().log()
    assert float(log_sigma.mean()) == pytest.approx(-0.6, abs=0.01)
    assert float(log_sigma.std()) == pytest.approx(1.4, rel=0.01)
    assert float(log_sigma.median()) == pytest.approx(-0.6, abs=1e-6)


@pytest.mark.parametrize("sigma_data", [0.5, 1.0])
def test_preconditioning_keeps_inputs_and_targets_of_deviation_one(sigma_data: float) -> None:
    # Karras et al. (2022), Appendix B.6: Var[c_in (y + n)] = 1 and Var[(y - c_skip (y + n)) / c_out] = 1.
    sigma = torch.tensor([0.01, 0.3, 1.0, 20.0], dtype=torch.float64)
    c_skip, c_out, c_in, c_noise = scalings(sigma, sigma_data)
    assert torch.allclose(c_in**2 * (sigma_data**2 + sigma**2), torch.ones(4, dtype=torch.float64))
    target = ((1 - c_skip) ** 2 * sigma_data**2 + c_skip**2 * sigma**2) / c_out**2
    assert torch.allclose(target, torch.ones(4, dtype=torch.float64))
    assert torch.allclose(c_noise, sigma.log() / 4)


def test_schedule_repeats_every_step_but_the_last() -> None:
    settings = PaperSettings(sampling_steps=5, resampling_rounds=3)
    schedule = Schedule.from_settings(settings)
    assert len(schedule) == 4 * 3 + 1
    assert settings.evaluations == 2 * 12 + 1
    assert (schedule.churned >= schedule.level).all()
    assert schedule.end[-1] == 0


def test_loss_of_cells_is_the_weighted_denoising_error() -> None:
    denoiser = Denoiser(2, 16, SIGMA_DATA)
    generator = torch.Generator().manual_seed(0)
    x, eps = torch.randn(8, 2, generator=generator), torch.randn(8, 2, generator=generator)
    sigma = torch.rand(8, generator=generator) + 0.1
    weight = (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2
    direct = weight[:, None] * (denoiser(x + sigma[:, None] * eps, sigma) - x) ** 2
    assert torch.allclose(denoiser.errors(x, eps, sigma), direct, rtol=1e-4, atol=1e-5)

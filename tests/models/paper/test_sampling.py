from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.models.paper import sampling
from diffputer.models.paper.denoiser import Denoiser
from diffputer.models.paper.sampling import Sampler
from diffputer.settings import PaperSettings

SETTINGS = PaperSettings(hidden_width=32, sampling_steps=5, resampling_rounds=3, n_draws=4)


@pytest.fixture
def sampler() -> Sampler:
    denoiser = Denoiser(4, 32, 0.5)
    denoiser.network.reset(torch.Generator().manual_seed(3))
    return Sampler(denoiser, SETTINGS)


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 4)).astype(np.float32)
    return x, rng.random((100, 4)) < 0.4, rng.integers(0, 2**62, 100)


@pytest.mark.parametrize("block", [64, 90, 1000])
def test_any_split_into_blocks_gives_identical_bits(
    sampler: Sampler, rows: tuple[np.ndarray, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sampler.mean(*rows)
    monkeypatch.setitem(sampling.BLOCK, "cpu", block)
    assert np.array_equal(sampler.mean(*rows), whole)
    x, m, keys = rows
    assert np.array_equal(sampler.mean(x[40:43], m[40:43], keys[40:43]), whole[40:43])


def test_more_draws_than_fit_into_a_block(
    sampler: Sampler, rows: tuple[np.ndarray, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.cat([d for _, d in sampler.draw(*rows, 150)])
    monkeypatch.setitem(sampling.BLOCK, "cpu", 64)
    parts = torch.cat([d for _, d in sampler.draw(*rows, 150)])
    assert torch.equal(parts, whole)


def test_observed_cells_and_complete_rows_are_left_alone(
    sampler: Sampler, rows: tuple[np.ndarray, ...]
) -> None:
    x, m, keys = rows
    completed = sampler.mean(x, m, keys)
    assert np.array_equal(completed[~m], x[~m])
    assert np.array_equal(sampler.mean(x, np.zeros_like(m), keys), x)


def test_draws_of_a_pair_have_opposite_noise_only_in_the_mean(
    sampler: Sampler, rows: tuple[np.ndarray, ...]
) -> None:
    independent = torch.cat([d for _, d in sampler.draw(*rows, 2)])
    paired = torch.cat([d for _, d in sampler.draw(*rows, 2, antithetic=True)])
    assert torch.equal(independent[:, 0], paired[:, 0])
    m = torch.from_numpy(rows[1])
    correlation = [torch.corrcoef(d.permute(1, 0, 2)[:, m])[0, 1] for d in (independent, paired)]
    assert abs(correlation[0]) < 0.3
    assert correlation[1] < correlation[0]


def test_each_draw_is_kept_inside_the_bounds_before_draws_are_averaged(
    sampler: Sampler, rows: tuple[np.ndarray, ...]
) -> None:
    bounds = np.array([[-0.2], [0.3]], dtype=np.float32).repeat(4, axis=1)
    filled = sampler.mean(*rows, 4, bounds=bounds)
    draws = torch.cat([d for _, d in sampler.draw(*rows, 4, antithetic=True)])
    m = rows[1]
    assert np.allclose(filled[m], draws.clamp(-0.2, 0.3).mean(dim=1).numpy()[m])
    assert not np.allclose(filled[m], draws.mean(dim=1).clamp(-0.2, 0.3).numpy()[m])


def test_a_sampler_keeps_the_weights_that_it_was_made_with(rows: tuple[np.ndarray, ...]) -> None:
    denoiser = Denoiser(4, 32, 0.5)
    sampler = Sampler(denoiser, SETTINGS)
    before = sampler.mean(*rows)
    denoiser.network.reset(torch.Generator().manual_seed(9))
    assert np.array_equal(sampler.mean(*rows), before)
    assert not np.array_equal(Sampler(denoiser, SETTINGS).mean(*rows), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graph_replay_gives_what_plain_execution_gives(rows: tuple[np.ndarray, ...]) -> None:
    denoiser = Denoiser(4, 32, 0.5)
    on_cpu = Sampler(denoiser, SETTINGS).mean(*rows)
    on_gpu = Sampler(denoiser.to("cuda"), SETTINGS).mean(*rows)
    assert np.allclose(on_cpu, on_gpu, atol=1e-3)

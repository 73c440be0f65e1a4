from __future__ import annotations

import pytest
import torch

from diffputer.diffusion.conditional import Rows, describe
from diffputer.diffusion.dependence import INDICATOR_NOISE, Dependence
from diffputer.diffusion.gaussian import GaussianCopula
from diffputer.diffusion.gaussian_em import _smooth_in_turn, smooth


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def covariance(d: int, seed: int = 0) -> torch.Tensor:
    root = normal(d, d, seed=seed).double()
    return root @ root.T / d + 0.1 * torch.eye(d, dtype=torch.float64)


def numbers(n: int, d: int) -> tuple[GaussianCopula, Rows]:
    """A copula of d numbers, and rows with half of their cells known, the first none, the second one."""
    copula = GaussianCopula(d, [])
    copula.covariance.copy_(covariance(d))
    known = normal(n, d, seed=1) < 0
    known[0], known[1] = False, torch.arange(d) == 0
    values = normal(n, d, seed=2)
    return copula, describe(values, values, known, torch.zeros(n, 0, dtype=torch.int64))


def given_known(S: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Correlations of what is not known. Shape: [u, u]."""
    across = S[~known][:, known]
    C = S[~known][:, ~known] - across @ torch.linalg.solve(S[known][:, known], across.T)
    scale = C.diagonal().sqrt()
    return C / scale / scale[:, None]


@pytest.mark.parametrize("sigma", [0.02, 0.7, 10.0])
def test_a_gaussian_is_denoised_exactly(sigma: float) -> None:
    copula, rows = numbers(40, 5)
    r_t, level = normal(40, 5, seed=3), torch.full((40, 1), sigma)
    found = Dependence(copula, rows).denoise(r_t, ~rows.known, level, rows.levels)
    for i in range(40):
        unknown = ~rows.known[i]
        R = given_known(copula.covariance, rows.known[i])
        exact = R @ torch.linalg.solve(
            R + sigma**2 * torch.eye(len(R), dtype=R.dtype), r_t[i, unknown].double()
        )
        assert torch.allclose(found[i, unknown].double(), exact, atol=1e-4)


def test_a_cell_alone_is_shrunk_as_a_standard_normal_number() -> None:
    copula, rows = numbers(40, 5)
    rows.known[:] = torch.arange(5) != 2
    r_t, sigma = normal(40, 5, seed=3), torch.full((40, 1), 0.5)
    found = Dependence(copula, rows).denoise(r_t, ~rows.known, sigma, rows.levels)
    assert torch.allclose(found[:, 2], r_t[:, 2] / 1.25, atol=1e-6)


def test_rows_are_denoised_by_themselves() -> None:
    copula, rows = numbers(60, 5)
    cells = normal(60, 5, seed=3), ~rows.known, normal(60, 1, seed=4).exp(), rows.levels
    together = Dependence(copula, rows).denoise(*cells)
    some = torch.tensor([7, 3, 41])
    alone = Dependence(copula, rows.part(some)).denoise(*(cell[some] for cell in cells))
    assert torch.equal(alone[~rows.known[some]], together[some][~rows.known[some]])


def test_noisy_values_are_smoothed_alike_on_every_device() -> None:
    # A GPU takes one column after the other.
    S = torch.stack([covariance(6, seed) for seed in range(20)])
    values, noise = normal(20, 6).double(), normal(20, 6, seed=1).double().exp()
    seen = normal(20, 6, seed=2) < 0.5
    in_turn = _smooth_in_turn(values, seen.double(), noise, S)
    assert torch.allclose(smooth(values, seen, noise, S), in_turn, atol=1e-8)


def test_a_category_tells_of_numbers_once_it_is_revealed() -> None:
    # Two numbers, the first of which goes with a category of two levels.
    copula = GaussianCopula(2, [2])
    copula.frequencies.fill_(0.5)
    S = torch.eye(4, dtype=torch.float64)
    S[2:, 2:] = torch.tensor([[0.25, -0.25], [-0.25, 0.25]])
    S[0, 2] = S[2, 0] = 0.4
    S[0, 3] = S[3, 0] = -0.4
    copula.covariance.copy_(S)
    zeros = torch.zeros(3, 2)
    rows = describe(zeros, zeros, torch.zeros(3, 2, dtype=torch.bool), torch.full((3, 1), -1))
    levels = torch.tensor([[-1], [0], [1]])
    found = Dependence(copula, rows).denoise(zeros, ~rows.known, torch.full((3, 1), 10.0), levels)
    # A regression on an indicator whose deviation is 1/2: 0.4 / 0.5 of a deviation either way.
    assert found[:, 0].tolist() == pytest.approx([0.0, 0.8, -0.8], abs=0.02 + INDICATOR_NOISE)
    assert found[:, 1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)


def test_a_cell_that_follows_from_known_ones_goes_with_nothing() -> None:
    copula = GaussianCopula(3, [])
    copula.covariance.copy_(torch.tensor([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]]))
    known = torch.tensor([[True, False, False]]).expand(4, 3)
    values = normal(4, 3)
    rows = describe(values, values, known, torch.zeros(4, 0, dtype=torch.int64))
    sigma = torch.full((4, 1), 1.0)
    found = Dependence(copula, rows).denoise(values, ~known, sigma, rows.levels)
    assert torch.allclose(found[:, 1:], values[:, 1:] / 2, atol=1e-5)

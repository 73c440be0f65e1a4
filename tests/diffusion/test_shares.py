"""Whose draws count: shares of a pool are told by the pool's own score."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from diffputer.diffusion.prediction import Prediction
from diffputer.diffusion.residuals import normal_quantiles
from diffputer.diffusion.shares import _scores_of_pools, best_pool

N = 600


def normal(middle: Tensor, spread: float) -> Prediction:
    """Say that cells of one column are normal."""
    quantiles = middle[:, None, None] + spread * normal_quantiles()
    return Prediction(middle[:, None], quantiles, [])


def truths(z: Tensor) -> Any:
    """Give held-out cells of one column."""
    return SimpleNamespace(z=z[:, None], held=torch.ones(len(z), 1, dtype=torch.bool))


def draw(seed: int, n: int = N) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def test_a_pool_has_the_score_of_the_mixture() -> None:
    # CRPS of N(0, 1) at z, on average over z: 1 / sqrt(pi). Of half of N(-m, 1) and half of N(m, 1), m = 1,
    # from a sample. 15 quantiles leave out a little of what is far out.
    z = draw(0, 200_000)
    one = normal(torch.zeros(len(z)), 1.0)
    assert float(_scores_of_pools(one, one, truths(z)).mean()) == pytest.approx(0.5642, rel=0.02)
    ones = torch.ones(len(z))
    found = _scores_of_pools(normal(-ones, 1.0), normal(ones, 1.0), truths(z))[2].mean()
    sides = torch.where(draw(1, 200_000) > 0, 1.0, -1.0) + draw(2, 200_000)
    exact = (sides - z).abs().mean() - (sides - sides.roll(1)).abs().mean() / 2
    assert float(found) == pytest.approx(float(exact), rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_what_adds_nothing_draws_nothing(seed: int) -> None:
    z, right = draw(seed), torch.zeros(N)
    wrong = normal(right + 0.5 * draw(seed + 10), 1.0)
    assert best_pool(wrong, normal(right, 1.0), truths(z), alone=True) == 1.0
    assert best_pool(wrong, normal(right, 1.0), truths(z), alone=False) > 0.6
    few = truths(z[:100])
    assert best_pool(normal(wrong.mean[:100, 0], 1.0), normal(right[:100], 1.0), few, alone=True) < 1


@pytest.mark.parametrize("seed", range(5))
def test_what_tells_more_draws_however_right_the_other_is_on_average(seed: int) -> None:
    # The one knows nine tenths of the variance; the other is calibrated and knows nothing.
    told = 0.9**0.5 * draw(seed)
    z = told + 0.1**0.5 * draw(seed + 10)
    assert best_pool(normal(told, 0.1**0.5), normal(torch.zeros(N), 1.0), truths(z), alone=True) < 0.1


def test_parts_that_each_know_something_share_the_draws() -> None:
    a, b = draw(0), draw(1)
    z = 0.7 * a + 0.7 * b + 0.1 * draw(2)
    share = best_pool(normal(0.7 * a, 0.7), normal(0.7 * b, 0.7), truths(z), alone=True)
    assert 0.25 < share < 0.75

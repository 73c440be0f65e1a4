"""The linear pool: weights that held-out cells choose, temperatures, and what they must never break."""

from __future__ import annotations

import pytest
import torch

from diffputer.models.base import Predictive
from diffputer.models.masked.pool import Pool, stack_means, stack_probabilities, tempered

N, B = 4000, 8


def held_out(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Class logits of N cells, and classes drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(N, 1, B, generator=generator)
    return truth, torch.multinomial(truth.softmax(-1)[:, 0], 1, generator=generator)


def predictive(bins: torch.Tensor) -> Predictive:
    places = torch.arange(float(bins.shape[-1]))
    return Predictive((bins * places).sum(-1), bins, [])


def fitted(experts: list[Predictive], classes: torch.Tensor) -> Pool:
    pool = Pool(len(experts), 1, 0)
    levels = torch.zeros(len(classes), 0, dtype=torch.int64)
    held = torch.ones(len(classes), 1, dtype=torch.bool)
    pool.fit(experts, classes.float(), classes, levels, held)
    pool.check_values()
    return pool


def test_the_expert_that_is_right_has_the_weight() -> None:
    truth, classes = held_out()
    right, wrong = predictive(truth.softmax(-1)), predictive(truth.flip(0).softmax(-1))
    pool = fitted([wrong, right], classes)
    assert float(pool.weights[1, 0]) > 0.95
    assert float(pool.mean_weights[1, 0]) >= 0.9
    assert float(pool.temperature[0]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("T", [0.7, 1.35])
def test_the_temperature_undoes_one(T: float) -> None:
    truth, classes = held_out()
    pool = fitted([predictive((truth / T).softmax(-1))], classes)
    assert float(pool.temperature[0]) == pytest.approx(1 / T, rel=0.1)
    torch.testing.assert_close(
        tempered((truth / T).softmax(-1), torch.tensor(1 / T)), truth.softmax(-1), atol=1e-4, rtol=0
    )


def test_few_cells_do_not_decide() -> None:
    likelihood = torch.tensor([[0.9, 0.5], [0.1, 0.5]])[:, None].repeat(1, 200, 1)
    held = torch.ones(200, 2, dtype=torch.bool)
    held[1:, 0] = False  # one cell of the first column
    likelihood[:, :, 1] = torch.tensor([0.2, 0.8])[:, None]
    weights = stack_probabilities(likelihood, held, torch.ones(2, 2, dtype=torch.bool))
    assert float(weights[1, 1]) > 0.95
    assert float(weights[1, 0]) > 0.8  # the common weights, not its own cell
    errors = torch.tensor([[0.0, 1.0], [1.0, 0.0]])[:, None].repeat(1, 200, 1) * held
    assert float(stack_means(errors, held)[1, 1]) == 1.0


def test_an_expert_without_a_distribution_has_a_mean_only() -> None:
    truth, classes = held_out()
    exact = Predictive(classes.float(), None, [])
    pool = fitted([predictive(truth.softmax(-1)), exact], classes)
    assert float(pool.weights[1, 0]) == 0
    assert float(pool.mean_weights[1, 0]) == 1
    pooled = pool([predictive(truth.softmax(-1)), exact])
    torch.testing.assert_close(pooled.mean, classes.float())

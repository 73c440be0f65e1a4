"""The pool: weights that held-out cells choose, sharpness, and what it must never break."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.models.base import Cells, Predictive
from diffputer.models.conditional.pool import Pool, stack_distributions, stack_means, tempered
from diffputer.models.conditional.support import Support

N, B = 4000, 8


def held_out(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Class logits of N cells, and classes drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(N, B, generator=generator)
    return truth, torch.multinomial(truth.softmax(-1), 1, generator=generator)[:, 0]


def atoms() -> Support:
    """A column with the values 0 to B - 1, each its own class."""
    x = np.repeat(np.arange(B, dtype=np.float32), 20)[:, None]
    return Support.fit(x, np.zeros_like(x, dtype=bool), np.array([0]), B)


def predictive(bins: torch.Tensor) -> Predictive:
    return Predictive((bins * torch.arange(float(B))).sum(-1), bins, [])


def fitted(experts: list[Predictive], x: torch.Tensor, support: Support) -> Pool:
    pool = Pool(len(experts), 0, 1, 0)
    pool.fit(experts, cells(len(x)), support, x, torch.zeros(len(x), 0, dtype=torch.int64))
    pool.check_values()
    return pool


def cells(n: int) -> Cells:
    """One of each row, of the first column."""
    return Cells(torch.arange(n), torch.zeros(n, dtype=torch.int64), torch.zeros(n, 0, dtype=torch.bool))


def test_the_expert_that_is_right_has_the_weight() -> None:
    truth, classes = held_out()
    right, wrong = predictive(truth.softmax(-1)), predictive(truth.flip(0).softmax(-1))
    pool = fitted([wrong, right], classes.float(), atoms())
    assert float(pool.weights[1, 0]) > 0.95
    assert float(pool.mean_weights[1, 0]) >= 0.9
    assert float(pool.temperature[0]) == pytest.approx(1.0, abs=0.1)
    assert float(pool.kernel_weights[0, 0]) > 0.9


@pytest.mark.parametrize("T", [0.7, 1.35])
def test_the_temperature_undoes_one(T: float) -> None:
    truth, classes = held_out()
    pool = fitted([predictive((truth / T).softmax(-1))], classes.float(), atoms())
    assert float(pool.temperature[0]) == pytest.approx(1 / T, rel=0.1)
    torch.testing.assert_close(
        tempered((truth / T).softmax(-1), torch.tensor(1 / T)), truth.softmax(-1), atol=1e-4, rtol=0
    )


def test_few_cells_do_not_decide() -> None:
    # 200 cells of the second column, one of the first
    columns = torch.ones(201, dtype=torch.int64)
    columns[0] = 0
    likelihood = torch.where(
        columns == 0, torch.tensor([[0.9], [0.1]]), torch.tensor([[0.2], [0.8]])
    ).double()
    weights = stack_distributions(likelihood, columns, 2)
    assert float(weights[1, 1]) > 0.95
    assert float(weights[1, 0]) > 0.8  # the common weights, not its own cell
    errors = torch.where(columns == 0, torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0]])).double()
    assert float(stack_means(errors, columns, 2)[1, 1]) > 0.99


def test_weights_of_means_are_those_of_least_squares() -> None:
    generator = torch.Generator().manual_seed(0)
    errors = torch.randn(2, 50_000, generator=generator, dtype=torch.float64) * torch.tensor([[1.0], [2.0]])
    weights = stack_means(errors, torch.zeros(50_000, dtype=torch.int64), 1)[:, 0]
    assert weights.tolist() == pytest.approx([0.8, 0.2], abs=0.02)


def test_an_expert_without_a_distribution_has_a_mean_only() -> None:
    truth, classes = held_out()
    exact = Predictive(classes.float(), None, [])
    support = atoms()
    pool = fitted([predictive(truth.softmax(-1)), exact], classes.float(), support)
    assert float(pool.weights[1, 0]) == 0
    assert float(pool.mean_weights[1, 0]) > 0.99
    pooled = pool([predictive(truth.softmax(-1)), exact], cells(N), support)
    torch.testing.assert_close(pooled.mean, classes.float(), atol=0.05, rtol=0)
    # ... around which the kernels put all probability.
    assert pooled.bins is not None
    assert float(pooled.bins.gather(1, classes[:, None]).mean()) > 0.9


def test_intervals_around_a_sharp_mean_hold_what_they_say() -> None:
    """An expert that knows cells far more finely than classes do, and one that knows nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 1)).astype(np.float32)
    support = Support.fit(x, np.zeros_like(x, dtype=bool), np.array([0]), 16)
    truth = torch.from_numpy(x[:, 0])
    mean = truth + 0.03 * torch.from_numpy(rng.normal(size=len(x))).float()
    one_hot = torch.nn.functional.one_hot(support.classes_of(mean[:, None])[:, 0], support.size).float()
    experts = [
        Predictive(mean, 0.97 * one_hot + 0.03 * support.frequencies, []),
        Predictive(torch.zeros_like(mean), support.frequencies.expand(len(x), -1).clone(), []),
    ]
    columns = torch.zeros(len(x), dtype=torch.int64)
    pooled = fitted(experts, truth, support)(experts, cells(len(x)), support)
    for level, least, most in ((0.5, 0.4, 0.6), (0.9, 0.85, 0.95)):
        low, high = (support.quantile(pooled, columns, (1 + sign * level) / 2) for sign in (-1, 1))
        assert least < float(((truth >= low) & (truth <= high)).float().mean()) < most
        assert float((high - low).median()) < 0.2

"""The conditional network and its training: what it may see, what is hidden, and that members are apart."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from diffputer.diffusion.backbones import DroppedSilu
from diffputer.diffusion.conditional import ConditionalNetwork, Outputs, Rows, add_noise, describe
from diffputer.diffusion.marginals import Marginals
from diffputer.diffusion.prediction import ask, average
from diffputer.diffusion.residuals import QUANTILES, SMALLEST_SPREAD, Residuals
from diffputer.diffusion.splitting import blank_rows

BACKBONES = ("mlp", "attention")
#: Numeric columns and levels of the categorical ones.
SHAPES = [(3, [2, 4]), (3, []), (0, [3, 2]), (1, []), (0, [3])]
each_backbone = pytest.mark.parametrize("backbone", BACKBONES)


def make(
    backbone: str, p: int = 3, levels: list[int] | None = None, members: int = 1, dropout: float = 0.0
) -> ConditionalNetwork:
    levels = [2, 4] if levels is None else levels
    network = ConditionalNetwork(
        p, levels, backbone=backbone, members=members, width=32, depth=2, dropout=dropout
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # biases too, so that nothing is zero by chance
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return network.eval()


def random_rows(n: int, p: int, levels: list[int], seed: int = 0) -> tuple[Rows, Tensor, Tensor]:
    """Blank rows, and which of their cells are known: numbers, categories."""
    generator = torch.Generator().manual_seed(seed)
    x, z = torch.randn(2, n, p, generator=generator)
    known = torch.rand(n, p, generator=generator) < 0.5
    chosen = torch.stack([torch.randint(k, (n,), generator=generator) for k in levels], 1) if levels else None
    of_levels = torch.zeros(n, 0, dtype=torch.int64) if chosen is None else chosen
    known_levels = torch.rand(n, len(levels), generator=generator) < 0.5
    return describe(x, z, known, torch.where(known_levels, of_levels, -1)), known, known_levels


def parts(outputs: Outputs) -> list[Tensor]:
    return [outputs.denoised, outputs.mean, outputs.quantiles, *outputs.logits]


def same_bits(a: Outputs, b: Outputs) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parts(a), parts(b), strict=True))


@each_backbone
@pytest.mark.parametrize(("p", "levels"), SHAPES)
def test_outputs_have_their_shapes_and_are_finite(backbone: str, p: int, levels: list[int]) -> None:
    network = make(backbone, p, levels, members=2)
    rows, _, _ = random_rows(10, p, levels)
    outputs = network(rows)
    assert outputs.denoised.shape == outputs.mean.shape == (2, 5, p)
    assert outputs.quantiles.shape == (2, 5, p, len(QUANTILES))
    assert [part.shape for part in outputs.logits] == [(2, 5, k) for k in levels]
    assert all(torch.isfinite(part).all() for part in parts(outputs))


@each_backbone
def test_what_stands_in_unknown_cells_does_not_count(backbone: str) -> None:
    rng = np.random.default_rng(0)
    marginals = Marginals.fit(rng.normal(size=(200, 3)).astype(np.float32), np.zeros((200, 3), dtype=bool))
    numeric, categorical = torch.tensor([0, 2, 3]), torch.tensor([1, 4])
    x = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    x[:, 1], x[:, 4] = torch.arange(50) % 2, torch.arange(50) % 4
    known = torch.rand(50, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    other = torch.where(known, x, x + 1)
    network = make(backbone)
    a, b = (network(blank_rows(table, known, marginals, numeric, categorical)) for table in (x, other))
    assert same_bits(a, b)
    # What is known does count.
    changed = network(blank_rows(torch.where(known, x + 0.5, x), known, marginals, numeric, categorical))
    assert not torch.allclose(changed.mean, a.mean)


@each_backbone
def test_only_cells_that_are_noised_count_in_noisy_rows(backbone: str) -> None:
    network = make(backbone)
    rows, known, _ = random_rows(40, 3, [2, 4])
    generator = torch.Generator().manual_seed(3)
    noised = ~known & (torch.rand(40, 3, generator=generator) < 0.5)
    r_t, other = torch.randn(2, 40, 3, generator=generator)
    quantiles = torch.randn(40, 3, len(QUANTILES), generator=generator)
    sigma, normal = torch.rand(40, 1, generator=generator) + 0.1, network.normal_quantiles
    left = Residuals(quantiles, normal)
    left_elsewhere = Residuals(torch.where(noised[..., None], quantiles, quantiles + 1), normal)
    a = network(add_noise(rows, left, noised, r_t, sigma, rows.levels))
    b = network(
        add_noise(
            rows,
            left_elsewhere,
            noised,
            torch.where(noised, r_t, other),
            sigma,
            rows.levels,
        )
    )
    assert same_bits(a, b)
    c = network(add_noise(rows, left, noised, torch.where(noised, other, r_t), sigma, rows.levels))
    assert not torch.allclose(c.denoised, a.denoised)


@each_backbone
@pytest.mark.parametrize(("p", "levels"), SHAPES)
def test_a_member_alone_says_what_it_says_among_others(backbone: str, p: int, levels: list[int]) -> None:
    network = make(backbone, p, levels, members=3)
    rows, _, _ = random_rows(20, p, levels)
    repeated = Rows(**{name: v.repeat(3, *[1] * (v.ndim - 1)) for name, v in vars(rows).items()})
    together = network(repeated)
    for e in range(3):
        alone = network.member(e)(rows)
        for mine, ours in zip(parts(alone), parts(together), strict=True):
            assert torch.allclose(mine[0], ours[e], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together.denoised[0], together.denoised[1]) or p == 0


@each_backbone
def test_a_member_learns_nothing_from_another(backbone: str) -> None:
    network = make(backbone, members=2)
    rows, _, _ = random_rows(20, 3, [2, 4])
    outputs = network(rows)
    sum((part[0] ** 2).sum() for part in parts(outputs)).backward()  # type: ignore[union-attr]
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad[1] == 0).all(), name
    assert network.body.inner[0].weight.grad[0].abs().sum() > 0  # type: ignore[union-attr, index]


@each_backbone
def test_what_is_predicted_is_the_mean_of_the_members(backbone: str) -> None:
    network = make(backbone, members=3)
    rows, _, _ = random_rows(15, 3, [2, 4])
    answer = average(ask(network, rows, torch.float32))
    alone = [network.member(e)(rows) for e in range(3)]
    assert torch.allclose(answer.mean, torch.stack([a.mean[0] for a in alone]).mean(dim=0), atol=1e-5)
    softmax = [torch.stack([a.logits[k][0].softmax(-1) for a in alone]).mean(dim=0) for k in range(2)]
    for mine, theirs in zip(answer.probabilities, softmax, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
        assert torch.allclose(mine.sum(dim=-1), torch.ones(15))
    assert (answer.quantiles.diff(dim=-1) >= 0).all()


@each_backbone
def test_dropout_is_for_training_only(backbone: str) -> None:
    network = make(backbone, dropout=0.5)
    rows, _, _ = random_rows(30, 3, [2, 4])
    assert same_bits(network(rows), network(rows))
    network.train()
    for module in network.modules():
        if isinstance(module, DroppedSilu):
            module.generator = torch.Generator().manual_seed(0)
    state = torch.get_rng_state()
    assert not same_bits(network(rows), network(rows))
    assert torch.equal(torch.get_rng_state(), state)


@each_backbone
def test_fresh_weights_take_every_cell_for_standard_normal(backbone: str) -> None:
    # Before any training quantiles are those of the normal distribution within 0.75, and spreads near one.
    network = make(backbone)
    network.reset(torch.Generator().manual_seed(0))
    outputs = network(random_rows(100, 3, [2, 4])[0])
    exact = torch.special.ndtri(torch.tensor(QUANTILES))
    assert (outputs.quantiles - exact).abs().max() < 2.5
    assert float((outputs.quantiles - exact).detach().mean()) == pytest.approx(0, abs=0.75)
    spread = Residuals(outputs.quantiles.detach(), network.normal_quantiles).spread
    assert (spread >= SMALLEST_SPREAD * 0.999).all()
    assert float(spread.mean()) == pytest.approx(1, abs=0.5)


@each_backbone
def test_the_same_generator_gives_the_same_weights_and_no_other_is_touched(backbone: str) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    a, b = (ConditionalNetwork(2, [3], backbone=backbone, members=2, width=32, depth=1, dropout=0.1)
            for _ in range(2))  # fmt: skip
    for network in (a, b):
        network.reset(torch.Generator().manual_seed(5))
    c = copy.deepcopy(a)
    c.reset(torch.Generator().manual_seed(6))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(a.parameters(), c.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()
    # Members start apart.
    rows, _, _ = random_rows(8, 2, [3])
    outputs = a(Rows(**{k: torch.cat([v[:4], v[:4]]) for k, v in vars(rows).items()}))
    assert not torch.allclose(outputs.mean[0], outputs.mean[1])

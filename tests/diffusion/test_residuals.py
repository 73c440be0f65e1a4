from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from diffputer.diffusion import residuals
from diffputer.diffusion.calibration import CELLS_OF_SHAPE, CHANGES, LOG_WIDTHS, choose_shape
from diffputer.diffusion.residuals import (
    LARGEST_RESIDUAL,
    QUANTILES,
    SMALLEST_SPREAD,
    Normal,
    Part,
    Residuals,
    Width,
    normal_quantiles,
    pool,
    reshape,
    undo_reshape,
)

NORMAL = torch.special.ndtri(torch.tensor(QUANTILES))


@given(middle=st.floats(-3, 3), deviation=st.floats(SMALLEST_SPREAD * 1.01, 2.0), z=st.floats(-4, 4))
def test_a_normal_cell_is_measured_in_its_deviations(middle: float, deviation: float, z: float) -> None:
    left = Residuals(middle + deviation * NORMAL, NORMAL)
    assert float(left.middle) == pytest.approx(middle)
    assert float(left.spread) == pytest.approx(deviation, rel=1e-3)
    exact = np.clip((z - middle) / deviation, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
    assert float(left.of(torch.tensor(z))) == pytest.approx(exact, abs=2e-2)


def test_residuals_of_a_skewed_cell_are_standard_normal() -> None:
    # The distribution has two scales: left of its median 0.2, right of it 1.5. Kolmogorov-Smirnov, 20,000.
    rng = np.random.default_rng(0)
    g = rng.normal(size=20_000)
    z = torch.from_numpy(np.where(g < 0, 0.2 * g, 1.5 * g)).float()
    left = Residuals(torch.where(NORMAL < 0, 0.2 * NORMAL, 1.5 * NORMAL).expand(len(z), -1), NORMAL)
    assert stats.kstest(left.of(z).numpy(), "norm").pvalue > 0.01


@given(st.lists(st.floats(-5, 5), min_size=15, max_size=15), st.floats(-4.9, 4.9))
def test_whatever_the_quantiles_the_maps_are_inverse_and_rise(quantiles: list[float], r: float) -> None:
    left = Residuals(torch.tensor(quantiles, dtype=torch.float64), NORMAL.double())
    at = torch.tensor(r, dtype=torch.float64)
    assert float(left.of(left.scores(at))) == pytest.approx(r, abs=1e-6)
    assert float(left.scores(at + 0.05)) > float(left.scores(at))


def test_no_cell_is_surer_than_the_smallest_spread() -> None:
    left = Residuals(torch.zeros(15), NORMAL)
    assert float(left.spread) == pytest.approx(SMALLEST_SPREAD, rel=1e-4)
    assert float(left.of(torch.tensor(1.0))) == LARGEST_RESIDUAL


def test_the_maps_of_some_cells_are_those_of_all() -> None:
    rng = np.random.default_rng(0)
    quantiles = torch.from_numpy(rng.normal(size=(20, 3, 15))).float()
    r, cells = torch.from_numpy(rng.normal(size=(20, 3))).float(), torch.from_numpy(rng.random((20, 3)) < 0.5)
    all_cells = Residuals(quantiles, NORMAL)
    torch.testing.assert_close(all_cells.at(cells).scores(r[cells]), all_cells.scores(r)[cells])
    normal = Normal(quantiles[..., 0], quantiles[..., 1].exp())
    torch.testing.assert_close(normal.at(cells).scores(r[cells]), normal.scores(r)[cells])
    torch.testing.assert_close(normal.of(normal.scores(r)), r, atol=1e-5, rtol=1e-4)


@given(a=st.floats(*LOG_WIDTHS), b=st.floats(*CHANGES), r=st.floats(-4.9, 4.9))
def test_whatever_the_shape_residuals_keep_their_order_and_can_be_had_back(
    a: float, b: float, r: float
) -> None:
    shape, at = torch.tensor([a, b]), torch.tensor([r, r + 0.05])
    reshaped = reshape(at, shape)
    assert reshaped[0] < reshaped[1]
    torch.testing.assert_close(undo_reshape(reshaped, shape), at, atol=2e-3, rtol=0)


def test_widths_of_columns_come_on_top_of_the_shape() -> None:
    width = Width(torch.tensor([1.0, 2.0]), torch.tensor([0.1, 0.2]))
    stretched = width.stretch(torch.tensor([[1.0, -1.0]]))
    torch.testing.assert_close(stretched, torch.exp(torch.tensor(0.3)) * torch.tensor([[1.0, -2.0]]))
    torch.testing.assert_close(Width().stretch(stretched), stretched)


def ones(truths: torch.Tensor) -> torch.Tensor:
    return torch.ones(len(truths))


@pytest.mark.parametrize("true", [(0.0, 0.0), (-0.4, 0.25), (0.2, -0.1), (-0.3, 0.0)])
def test_the_shape_of_truths_is_found(true: tuple[float, float]) -> None:
    # Truths of 20,000 cells are of that shape, and a standard normal distribution is said of them.
    exact = torch.tensor(true)
    truths = reshape(torch.from_numpy(np.random.default_rng(0).normal(size=20_000)).float(), exact)
    found = choose_shape(
        lambda shape: torch.special.ndtr(undo_reshape(truths, shape)), torch.ones(len(truths))
    )
    torch.testing.assert_close(found, exact, atol=0.03, rtol=0)


def test_cells_that_count_twice_are_as_good_as_two() -> None:
    truths = reshape(torch.linspace(-2.5, 2.5, 400), torch.tensor([-0.3, 0.2]))
    weight = 1 + (torch.arange(400) % 3 == 0).float()
    twice = torch.cat([truths, truths[weight == 2]])
    found = [
        choose_shape(lambda shape, of=of: torch.special.ndtr(undo_reshape(of, shape)), w)
        for of, w in ((truths, weight), (twice, torch.ones(len(twice))))
    ]
    # Cells of different weights are believed less: as much as 356 that count alike.
    prior = torch.tensor(CELLS_OF_SHAPE)
    torch.testing.assert_close(
        found[0] * (356 + prior) / 356, found[1] * (534 + prior) / 534, atol=0.02, rtol=0.1
    )


def test_the_shape_of_few_truths_is_near_to_none() -> None:
    truths = reshape(torch.linspace(-2, 2, 50), torch.tensor([-0.4, 0.25]))
    found = choose_shape(
        lambda shape: torch.special.ndtr(undo_reshape(truths, shape)), torch.ones(len(truths))
    )
    largest = torch.tensor([1.0, 0.5]) * 50 / (50 + torch.tensor(CELLS_OF_SHAPE))
    assert (found.abs() <= largest).all()


def test_a_doubted_shape_of_truths_that_are_as_said_is_hardly_any() -> None:
    rng = np.random.default_rng(0)
    shapes = []
    for _ in range(40):
        truths = torch.from_numpy(rng.normal(size=200)).float()
        place = lambda shape, of=truths: torch.special.ndtr(undo_reshape(of, shape))  # noqa: E731
        shapes.append([choose_shape(place, ones(truths), doubted=doubted) for doubted in (False, True)])
    ends = torch.tensor([[float((a + 1.645 * b).exp()) for a, b in both] for both in shapes])
    believed, doubted = (ends - 1).square().mean(dim=0).sqrt().tolist()
    assert doubted < 0.5 * believed
    assert (ends[:, 1] == 1).float().mean() > 0.5


def test_a_doubted_shape_that_is_far_from_none_is_believed() -> None:
    truths = torch.linspace(-1, 1, 200)
    found = choose_shape(
        lambda shape: torch.special.ndtr(undo_reshape(truths, shape)), ones(truths), doubted=True
    )
    assert 0.4 < float((found[0] + 1.645 * found[1]).exp()) < 0.85


def test_of_one_part_the_pool_is_what_it_says() -> None:
    rng = np.random.default_rng(0)
    maps = Residuals(torch.from_numpy(rng.normal(size=(30, 2, len(QUANTILES)))).float(), NORMAL)
    r, width = torch.from_numpy(rng.normal(size=(30, 2))).float().clamp(-1.5, 1.5), torch.tensor([0.5, 1.5])
    pooled = pool([Part(maps, width, 1.0)], NORMAL)
    exact = [maps.scores((width * level).expand(30, 2)) for level in NORMAL]
    found = [pooled.scores(torch.full((30, 2), float(level))) for level in NORMAL]
    torch.testing.assert_close(torch.stack(found), torch.stack(exact), atol=0.2, rtol=0)
    torch.testing.assert_close(pooled.of(pooled.scores(r)), r, atol=1e-3, rtol=1e-3)


def test_the_pool_has_the_quantiles_of_the_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residuals, "CELLS_AT_ONCE", 1)  # row by row, as those of long tables by blocks
    middle, deviation = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [0.5]])
    wide, near = Normal(middle, deviation), Normal(-middle, deviation)
    said = Residuals((middle[..., None] + deviation[..., None] * NORMAL), NORMAL)
    pooled = pool([Part(said, torch.tensor([2.0]), 0.25), Part(near, torch.ones(1), 0.75)], NORMAL)
    for r in (-1.5, -0.5, 0.0, 1.0):
        z = pooled.scores(torch.full((2, 1), r))
        share = 0.25 * torch.special.ndtr(wide.of(z) / 2) + 0.75 * torch.special.ndtr(near.of(z))
        torch.testing.assert_close(share, torch.full((2, 1), NormalDist().cdf(r)), atol=0.03, rtol=0)


@pytest.mark.parametrize("deviation", [0.5, 0.02, 0.001])
def test_a_shape_widens_sure_cells_as_it_widens_others(deviation: float) -> None:
    r = torch.linspace(-2, 2, 9)[:, None]
    part = Normal(torch.zeros(9, 1), torch.full((9, 1), deviation))
    pooled, shape = pool([Part(part, torch.ones(1), 1.0)], NORMAL), torch.tensor([-0.5, 0.3])
    found = pooled.scores(reshape(pooled.of(part.scores(r)), shape))
    torch.testing.assert_close(found, deviation * reshape(r, shape), atol=0.03 * deviation, rtol=0.03)


@pytest.mark.parametrize("width", [1.0, 2.5, 3.0])
def test_tails_of_wide_parts_are_in_the_pool(width: float) -> None:
    parts = [
        Part(Normal(torch.full((1, 1), at), torch.full((1, 1), 0.1)), torch.tensor([width]), 0.5)
        for at in (0.0, 0.05)
    ]
    z = float(pool(parts, NORMAL).scores(NORMAL[:1][None])[0, 0])
    share = sum(0.5 * NormalDist().cdf((z - at) / 0.1 / width) for at in (0.0, 0.05))
    assert share == pytest.approx(QUANTILES[0], rel=0.1)


def test_several_residuals_of_a_cell_are_mapped_like_one() -> None:
    rng = np.random.default_rng(0)
    quantiles = torch.from_numpy(rng.normal(size=(20, 3, len(QUANTILES)))).float()
    several = torch.from_numpy(rng.normal(size=(20, 3, 4))).float()
    for maps in (Residuals(quantiles, NORMAL), Normal(quantiles[..., 0], quantiles[..., 1].exp())):
        for way in (maps.of, maps.scores):
            one_by_one = [way(one) for one in several.unbind(-1)]
            assert torch.equal(way(several), torch.stack(one_by_one, dim=-1))


def test_truths_between_parts_that_disagree_have_any_rank_among_draws_of_the_pool() -> None:
    # Either part is as far from the middle as the other, on the other side: narrower parts would disagree
    # as much, and truths would stay in the middle.
    rng = np.random.default_rng(0)
    n = 4_000
    apart = 0.3 * torch.from_numpy(rng.normal(size=(n, 1))).float()
    parts = [Normal(sign * apart, torch.full((n, 1), 0.3)) for sign in (1, -1)]
    noise = torch.from_numpy(rng.normal(size=(19, n, 1))).float()
    drawn = torch.cat([parts[i % 2].scores(noise[i]) for i in range(19)], dim=1)
    truth = 0.3 * torch.from_numpy(rng.normal(size=(n, 1))).float()
    pooled = pool([Part(part, torch.ones(1), 0.5) for part in parts], NORMAL).at(torch.ones(n, 1, dtype=bool))
    r, uniform = pooled.of(drawn), torch.from_numpy(rng.random(n))

    def place(shape: torch.Tensor) -> torch.Tensor:
        return ((pooled.scores(reshape(r, shape)) < truth).sum(dim=1) + uniform) / 20

    shape = choose_shape(place, torch.ones(n))
    for ranks, flat in ((place(torch.zeros(2)), False), (place(shape), True)):
        bins = torch.histc(ranks.float(), 10, 0, 1) / n * 10
        assert (float((bins - 1).square().mean().sqrt()) < 0.1) == flat, bins


def test_what_is_kept_for_all_does_not_follow_the_default_of_the_moment() -> None:
    before = torch.get_default_dtype()
    normal_quantiles.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert normal_quantiles().dtype == torch.float32
    finally:
        torch.set_default_dtype(before)

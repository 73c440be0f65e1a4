"""Joint draws with exact networks: on Gaussian scores and on tables of two categories all is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from diffputer.diffusion.conditional import Outputs, Rows, describe
from diffputer.diffusion.drawing import draw_rows, steps_of_draw
from diffputer.diffusion.residuals import QUANTILES
from diffputer.diffusion.schedule import scalings
from diffputer.settings import ConditionalSettings

SETTINGS = ConditionalSettings(sampling_steps=20, sigma_max=10.0, sigma_min=0.02)
COVARIANCE = torch.tensor([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])
JOINT = np.array([[0.35, 0.05, 0.0], [0.0, 0.1, 0.5]])


class ExactNumbers(nn.Module):
    """E[z | c] and quantiles of blank rows, E[r | r_t, c] of noisy ones, for z of N(0, COVARIANCE).

    All rows know the first column only.
    """

    def forward(self, rows: Rows, dtype: torch.dtype) -> Outputs:
        m, o = [1, 2], [0]
        C = COVARIANCE
        gain = C[m][:, o] / C[0, 0]
        left = C[m][:, m] - gain @ C[o][:, m]
        spread = left.diagonal().sqrt()
        if bool(rows.blank.all()):
            middle = rows.z[:, :1] @ torch.cat([torch.zeros(1, 1), gain]).T
            deviations = torch.cat([torch.ones(1), spread])
            quantiles = middle[..., None] + deviations[:, None] * torch.special.ndtri(torch.tensor(QUANTILES))
            return Outputs(middle[None], middle[None], quantiles[None], [])
        # What is noised is told by its middle and spread, in place of z and x.
        assert torch.allclose(rows.x[:, 1:], spread.expand(len(rows.x), 2), atol=2e-3)
        assert torch.allclose(rows.z[:, 1:], rows.z[:, :1] @ gain.T, atol=1e-5)
        sigma = torch.exp(4 * rows.label[:1])
        c_skip, c_out, c_in, _ = scalings(sigma, 1.0)
        r_t = rows.noisy[:, 1:] / c_in
        R = left / spread[:, None] / spread
        denoised = r_t @ torch.linalg.solve(R + sigma**2 * torch.eye(2), R)
        answer = torch.zeros_like(rows.x)
        answer[:, 1:] = (denoised - c_skip * r_t) / c_out
        return Outputs(answer[None], answer[None], torch.zeros(1, *answer.shape, len(QUANTILES)), [])


class ExactLevels(nn.Module):
    """Probabilities of two categories of a known joint distribution, given what is known of the other."""

    def forward(self, rows: Rows, dtype: torch.dtype) -> Outputs:
        joint = torch.tensor(JOINT, dtype=torch.float32)
        a, b = rows.levels[:, 0], rows.levels[:, 1]
        of_a = torch.where((b < 0)[:, None], joint.sum(dim=1), joint[:, b.clamp_min(0)].T)
        of_b = torch.where((a < 0)[:, None], joint.sum(dim=0), joint[a.clamp_min(0)])
        empty = torch.zeros(1, len(a), 0)
        quantiles = torch.zeros(1, len(a), 0, len(QUANTILES))
        return Outputs(empty, empty, quantiles, [of_a.log()[None], of_b.log()[None]])


def keys(n: int, seed: int = 0) -> Tensor:
    return torch.randint(-(2**62), 2**62, (n,), generator=torch.Generator().manual_seed(seed))


def numbers(n: int) -> Rows:
    z = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    known = torch.tensor([True, False, False]).expand(n, 3)
    return describe(z, z, known, torch.zeros(n, 0, dtype=torch.int64))


def draw_numbers(rows: Rows, own: Tensor, settings: ConditionalSettings = SETTINGS) -> Tensor:
    network, sigma = ExactNumbers(), steps_of_draw(settings)
    blank = network(rows, torch.float32)
    return draw_rows(network, blank, rows, own, sigma, torch.float32)[0]  # type: ignore[arg-type]


def draw_levels(
    levels: Tensor,
    own: Tensor,
    settings: ConditionalSettings = SETTINGS,
    said: list[Tensor] | None = None,
) -> Tensor:
    empty = torch.zeros(len(levels), 0)
    rows = describe(empty, empty, empty.bool(), levels)
    network, sigma = ExactLevels(), steps_of_draw(settings)
    blank = network(rows, torch.float32)
    return draw_rows(network, blank, rows, own, sigma, torch.float32, said)[1]  # type: ignore[arg-type]


def test_levels_are_as_probable_as_all_parts_say_and_go_together_as_the_member_says() -> None:
    # The member has 0.4 and 0.6; the first level of either goes with others of the second category.
    n = 20_000
    first = torch.tensor([0.8, 0.2]).expand(n, 2)
    second = torch.tensor(JOINT.sum(axis=0), dtype=torch.float32).expand(n, 3)
    drawn = draw_levels(torch.full((n, 2), -1), keys(n), said=[first, second]).numpy()
    # Where the second is drawn first it has what is said, and the first follows it: between both.
    share = (drawn[:, 0] == 0).mean()
    assert 0.5 < share < 0.8
    assert not ((drawn[:, 0] == 0) & (drawn[:, 1] == 2)).any()
    # Alone missing it is as probable as is said, given what the member says of the other category.
    known = torch.stack([torch.full((n,), -1), torch.ones(n, dtype=torch.int64)], dim=1)
    drawn = draw_levels(known, keys(n), said=[first, second]).numpy()
    assert (drawn[:, 0] == 0).mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("steps", "tolerance"), [(20, 0.02), (10, 0.1)])
def test_exact_network_gives_the_exact_conditional_distribution(steps: int, tolerance: float) -> None:
    # 40,000 draws. Tolerances: mean 0.02 deviations; spread and correlation 2 % with twenty evaluations,
    # 10 % with ten.
    rows = numbers(40_000)
    settings = dataclasses.replace(SETTINGS, sampling_steps=steps)
    drawn = draw_numbers(rows, keys(40_000), settings)[:, 1:]
    gain = COVARIANCE[1:, 0]
    left = (COVARIANCE[1:, 1:] - gain[:, None] * gain).numpy()
    residual = (drawn - rows.z[:, :1] * gain).numpy()
    spread = np.sqrt(np.diag(left))
    assert np.abs(residual.mean(axis=0) / spread).max() < 0.02
    assert residual.std(axis=0) == pytest.approx(spread, rel=tolerance)
    assert np.corrcoef(residual.T)[0, 1] == pytest.approx(left[0, 1] / spread.prod(), abs=tolerance)
    assert stats.kstest(residual[:, 0] / residual[:, 0].std(), "norm").statistic < 0.02


def test_noise_belongs_to_the_key_not_to_its_place() -> None:
    rows, own = numbers(50), keys(50)
    whole = draw_numbers(rows, own)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    shuffled = Rows(**{name: values[order] for name, values in vars(rows).items()})
    assert torch.allclose(draw_numbers(shuffled, own[order]), whole[order], atol=1e-6)
    assert not torch.allclose(draw_numbers(rows, keys(50, 1))[:, 1:], whole[:, 1:])


def test_two_categories_are_drawn_jointly() -> None:
    # All six pairs have their probability within five deviations; impossible pairs never occur.
    n = 20_000
    levels = draw_levels(torch.full((n, 2), -1), keys(n))
    found = np.zeros(JOINT.shape)
    np.add.at(found, tuple(levels.T.numpy()), 1 / n)
    assert (np.abs(found - JOINT) <= 5 * np.sqrt(JOINT * (1 - JOINT) / n)).all()


def test_a_known_category_stays_and_the_other_follows_it() -> None:
    n = 9_000
    given = torch.full((n, 2), -1)
    given[:, 1] = torch.arange(n) % 3
    levels = draw_levels(given, keys(n))
    assert torch.equal(levels[:, 1], given[:, 1])
    for b in range(3):
        share = float((levels[given[:, 1] == b, 0] == 1).float().mean())
        exact = JOINT[1, b] / JOINT[:, b].sum()
        assert share == pytest.approx(exact, abs=5 * np.sqrt(exact * (1 - exact) / (n / 3)) + 1e-9)


@pytest.mark.parametrize("steps", [2, 3, 5, 50])
def test_every_category_is_drawn_whatever_the_number_of_steps(steps: int) -> None:
    settings = dataclasses.replace(SETTINGS, sampling_steps=steps)
    levels = draw_levels(torch.full((500, 2), -1), keys(500), settings)
    assert (levels >= 0).all()
    assert (levels < torch.tensor([2, 3])).all()


def test_rows_of_which_all_is_known_stay() -> None:
    given = torch.tensor([[0, 1], [1, 2]]).repeat(10, 1)
    assert torch.equal(draw_levels(given, keys(20)), given)


@pytest.mark.parametrize(
    ("evaluations", "networks", "steps"), [(20, 1, 19), (20, 4, 16), (20, 30, 15), (5, 4, 4), (2, 4, 1)]
)
def test_many_networks_leave_a_draw_its_steps(evaluations: int, networks: int, steps: int) -> None:
    settings = dataclasses.replace(SETTINGS, sampling_steps=evaluations)
    assert len(steps_of_draw(settings, networks)) == steps + 1  # the last level is zero

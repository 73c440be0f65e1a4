"""Joint draws with exact networks: on Gaussian scores and on tables of two categories all is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from diffputer.diffusion.conditional import Outputs, Rows, describe
from diffputer.diffusion.dependence import Dependence
from diffputer.diffusion.drawing import choose_turns, draw_rows, plan_draw
from diffputer.diffusion.gaussian import GaussianCopula
from diffputer.diffusion.marginals import Marginals
from diffputer.diffusion.residuals import QUANTILES, Width
from diffputer.diffusion.schedule import scalings
from diffputer.settings import ConditionalSettings

COVARIANCE = torch.tensor([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])
JOINT = np.array([[0.35, 0.05, 0.0], [0.0, 0.1, 0.5]])


class ExactNumbers(nn.Module):
    """What is true of N(0, covariance): quantiles of blank rows, E[r | r_t, c] of noisy ones."""

    def __init__(self, covariance: Tensor = COVARIANCE) -> None:
        super().__init__()
        self.copula = GaussianCopula(len(covariance), [])
        self.copula.covariance.copy_(covariance)
        self.evaluations = 0

    def forward(self, rows: Rows, dtype: torch.dtype) -> Outputs:
        self.evaluations += 1
        if bool(rows.blank.all()):
            expected, variance = self.copula.expect(*self.copula.latent(rows))
            middle, spread = expected.float(), variance.clamp_min(1e-12).sqrt().float()
            quantiles = middle[..., None] + spread[..., None] * torch.special.ndtri(torch.tensor(QUANTILES))
            return Outputs(middle[None], middle[None], quantiles[None], [])
        assert not (rows.is_noisy & rows.known).any()
        sigma = torch.exp(4 * rows.label[:, None])
        c_skip, c_out, c_in, _ = scalings(sigma, 1.0)
        r_t = rows.noisy / c_in
        exact = Dependence(self.copula, rows).denoise(r_t, rows.is_noisy, sigma, rows.levels)
        answer = (exact - c_skip * r_t) / c_out
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


def standard_normal(p: int) -> Marginals:
    places = (np.arange(4_001) + 0.5) / 4_001
    scores = np.repeat(stats.norm.ppf(places)[:, None], p, axis=1).astype(np.float32)
    return Marginals.fit(scores, np.zeros(scores.shape, dtype=bool), np.arange(p))


def draw_numbers(
    rows: Rows, own: Tensor, evaluations: int = 20, network: ExactNumbers | None = None, width: float = 1.0
) -> Tensor:
    network, p = network or ExactNumbers(), rows.x.shape[1]
    plan, values = plan_draw(ConditionalSettings(sampling_steps=evaluations)), standard_normal(p)
    blank, wide = network(rows, torch.float32), Width(torch.full((p,), width))
    return draw_rows(network, blank, rows, own, plan, torch.float32, values, width=wide).z  # type: ignore[arg-type]


def draw_levels(
    levels: Tensor, own: Tensor, evaluations: int = 20, said: list[Tensor] | None = None
) -> Tensor:
    empty = torch.zeros(len(levels), 0)
    rows = describe(empty, empty, empty.bool(), levels)
    network, plan = ExactLevels(), plan_draw(ConditionalSettings(sampling_steps=evaluations))
    blank = network(rows, torch.float32)
    return draw_rows(network, blank, rows, own, plan, torch.float32, Marginals(0), said).levels  # type: ignore[arg-type]


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


def moments(evaluations: int, width: float = 1.0) -> tuple[NDArray[np.float64], float]:
    """What 40,000 draws of two cells have beyond their expectation, in exact deviations; the correlation."""
    rows = numbers(40_000)
    drawn = draw_numbers(rows, keys(40_000), evaluations, width=width)
    gain = COVARIANCE[1:, 0]
    left = (COVARIANCE[1:, 1:] - gain[:, None] * gain).double()
    spread = left.diagonal().sqrt()
    found = (drawn[:, 1:] - rows.z[:, :1] * gain).double() / spread
    return found.numpy(), float(left[0, 1] / spread.prod())


@pytest.mark.parametrize("evaluations", [2, 3, 5, 10, 20, 40])
def test_exact_answers_give_the_exact_conditional_distribution(evaluations: int) -> None:
    # Four steps a turn let residuals come out some 10 % too narrow, for which widths make up.
    found, exact = moments(evaluations)
    assert np.abs(found.mean(axis=0)).max() < 0.02
    assert found.std(axis=0) == pytest.approx(1, abs=0.13)
    found, _ = moments(evaluations, width=1 / float(found.std()))
    assert found.std(axis=0) == pytest.approx(1, rel=0.03)
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(exact, abs=0.1 if evaluations == 5 else 0.03)
    for column in range(2):
        assert stats.kstest(found[:, column], "norm").statistic < 0.02


@pytest.mark.parametrize("evaluations", [5, 10, 20])
def test_many_cells_keep_their_dependence(evaluations: int) -> None:
    # Twelve columns, all correlated by 0.6, none known.
    n, covariance = 20_000, torch.full((12, 12), 0.6) + 0.4 * torch.eye(12)
    nothing = torch.zeros(n, 12)
    network = ExactNumbers(covariance)
    rows = describe(nothing, nothing, nothing.bool(), torch.zeros(n, 0, dtype=torch.int64))
    drawn = draw_numbers(rows, keys(n), evaluations, network).numpy()
    assert network.evaluations == evaluations
    between = np.corrcoef(drawn.T)[np.triu_indices(12, 1)]
    assert np.abs(between - 0.6).max() < 0.1


@pytest.mark.parametrize(("n_cells", "turns"), [(1, 4), (3, 4), (4, 4), (5, 4), (500, 4), (9, 1), (9, 2)])
def test_every_cell_has_its_turn_and_turns_have_as_many(n_cells: int, turns: int) -> None:
    unknown = torch.ones(50, n_cells + 3, dtype=torch.bool)
    unknown[:, [0, 2, -1]] = False
    turn = choose_turns(unknown, keys(50), turns)
    assert torch.equal(turn < 0, ~unknown)
    counts = torch.stack([(turn == i).sum(dim=1) for i in range(min(n_cells, turns))], dim=1)
    assert (counts.sum(dim=1) == n_cells).all()
    assert (counts.amax(dim=1) - counts.amin(dim=1) <= 1).all()
    if n_cells > 2 and turns > 1:
        assert len(turn.unique(dim=0)) > 1


def test_rows_that_lack_less_are_done_sooner_and_drawn_alike() -> None:
    # A row has the same draw whatever the others lack, up to what other matrix products round.
    rows, own = numbers(300), keys(300)
    rows.known = rows.known.clone()
    rows.known[100:, 1] = True
    rows = describe(rows.z, torch.where(rows.known, 0.5 * torch.ones(300, 3), 0.0), rows.known, rows.levels)
    whole = draw_numbers(rows, own)
    few = torch.arange(0, 300, 7)
    assert torch.allclose(draw_numbers(rows.part(few), own[few]), whole[few], atol=1e-5)


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


@pytest.mark.parametrize("evaluations", [2, 3, 5, 50])
def test_every_category_is_drawn_whatever_the_number_of_evaluations(evaluations: int) -> None:
    levels = draw_levels(torch.full((500, 2), -1), keys(500), evaluations)
    assert (levels >= 0).all()
    assert (levels < torch.tensor([2, 3])).all()


def test_rows_of_which_all_is_known_stay() -> None:
    given = torch.tensor([[0, 1], [1, 2]]).repeat(10, 1)
    assert torch.equal(draw_levels(given, keys(20)), given)


@pytest.mark.parametrize(
    ("evaluations", "networks", "turns", "steps"),
    [(20, 1, 4, 4), (20, 4, 3, 4), (20, 30, 3, 4), (10, 1, 2, 4), (5, 4, 1, 4), (4, 1, 4, 0), (2, 4, 2, 0)],
)
def test_many_networks_leave_a_draw_its_turns(
    evaluations: int, networks: int, turns: int, steps: int
) -> None:
    plan = plan_draw(ConditionalSettings(sampling_steps=evaluations), networks)
    assert (plan.turns, plan.steps) == (turns, steps)

"""Joint draws with exact networks: on Gaussian scores and on tables of two categories all is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from diffputer.diffusion.conditional import Outputs, Rows, describe
from diffputer.diffusion.drawing import choose_turns, draw_rows, turns_of_draw
from diffputer.diffusion.gaussian import GaussianCopula
from diffputer.diffusion.marginals import Marginals
from diffputer.diffusion.residuals import QUANTILES, Width
from diffputer.settings import ConditionalSettings

COVARIANCE = torch.tensor([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])
JOINT = np.array([[0.35, 0.05, 0.0], [0.0, 0.1, 0.5]])


class ExactNumbers(nn.Module):
    """Quantiles of unknown cells of N(0, covariance), given those that are known, whichever these are."""

    def __init__(self, covariance: Tensor = COVARIANCE) -> None:
        super().__init__()
        self.copula = GaussianCopula(len(covariance), [])
        self.copula.covariance.copy_(covariance)
        self.evaluations = 0

    def forward(self, rows: Rows, dtype: torch.dtype) -> Outputs:
        self.evaluations += 1
        expected, variance = self.copula.expect(*self.copula.latent(rows))
        middle, spread = expected.float(), variance.clamp_min(1e-12).sqrt().float()
        quantiles = middle[..., None] + spread[..., None] * torch.special.ndtri(torch.tensor(QUANTILES))
        return Outputs(middle[None], middle[None], quantiles[None], [])


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
    rows: Rows, own: Tensor, turns: int = 20, network: ExactNumbers | None = None, width: float = 1.0
) -> Tensor:
    network, p = network or ExactNumbers(), rows.x.shape[1]
    blank = network(rows, torch.float32)
    z, _ = draw_rows(
        network,
        blank,
        rows,
        own,
        turns,
        torch.float32,
        standard_normal(p),
        width=Width(torch.full((p,), width)),
    )  # type: ignore[arg-type]
    return z


def draw_levels(levels: Tensor, own: Tensor, turns: int = 20, said: list[Tensor] | None = None) -> Tensor:
    empty = torch.zeros(len(levels), 0)
    rows = describe(empty, empty, empty.bool(), levels)
    network = ExactLevels()
    blank = network(rows, torch.float32)
    return draw_rows(network, blank, rows, own, turns, torch.float32, Marginals(0), said)[1]  # type: ignore[arg-type]


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


def residuals(rows: Rows, drawn: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What draws of the second and third column have beyond their expectation, and its covariance."""
    gain = COVARIANCE[1:, 0]
    left = COVARIANCE[1:, 1:] - gain[:, None] * gain
    return (drawn[:, 1:] - rows.z[:, :1] * gain).double().numpy(), left.double().numpy()


def test_exact_answers_give_the_exact_conditional_distribution() -> None:
    # 40,000 draws. Tolerances: mean 0.02 deviations; spread and correlation 2 %.
    rows = numbers(40_000)
    found, exact = residuals(rows, draw_numbers(rows, keys(40_000)))
    spread = np.sqrt(np.diag(exact))
    assert np.abs(found.mean(axis=0) / spread).max() < 0.02
    assert found.std(axis=0) == pytest.approx(spread, rel=0.02)
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(exact[0, 1] / spread.prod(), abs=0.02)
    for column in range(2):
        assert stats.kstest(found[:, column] / spread[column], "norm").statistic < 0.02


def test_what_is_said_of_a_cell_is_drawn_as_wide_as_its_width() -> None:
    # The first cell to be drawn is half as wide, and so is the second beside what it has of the first.
    rows = numbers(40_000)
    found, exact = residuals(rows, draw_numbers(rows, keys(40_000), width=0.5))
    assert found.std(axis=0) == pytest.approx(np.sqrt(np.diag(exact)) / 2, rel=0.03)
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(exact[0, 1] / np.sqrt(np.diag(exact)).prod(), abs=0.03)


@pytest.mark.parametrize(("turns", "largest"), [(12, 0.03), (6, 0.06), (3, 0.2)])
def test_more_cells_than_turns_keep_most_of_their_dependence(turns: int, largest: float) -> None:
    # Twelve columns, all correlated by 0.6, none known. What is lost of correlations lessens deviations, too.
    n, covariance = 20_000, torch.full((12, 12), 0.6) + 0.4 * torch.eye(12)
    nothing = torch.zeros(n, 12)
    network = ExactNumbers(covariance)
    rows = describe(nothing, nothing, nothing.bool(), torch.zeros(n, 0, dtype=torch.int64))
    drawn = draw_numbers(rows, keys(n), turns, network).numpy()
    assert network.evaluations == turns
    assert drawn.std(axis=0) == pytest.approx(np.ones(12), rel=max(0.03, largest / 2))
    between = np.corrcoef(drawn.T)[np.triu_indices(12, 1)]
    assert abs(between.mean() - 0.6) < largest


@pytest.mark.parametrize(
    ("n_cells", "turns"), [(1, 20), (7, 20), (20, 20), (21, 20), (500, 20), (9, 1), (9, 2)]
)
def test_every_cell_has_its_turn_and_later_turns_have_no_fewer(n_cells: int, turns: int) -> None:
    unknown = torch.ones(50, n_cells + 3, dtype=torch.bool)
    unknown[:, [0, 2, -1]] = False
    turn = choose_turns(unknown, keys(50), turns)
    assert torch.equal(turn < 0, ~unknown)
    used = min(n_cells, turns)
    counts = torch.stack([(turn == i).sum(dim=1) for i in range(used)], dim=1)
    assert (counts.sum(dim=1) == n_cells).all()
    assert (counts >= 1).all()
    if n_cells <= turns:
        assert (counts == 1).all()
    else:  # but for what whole numbers of cells leave over
        assert (counts.diff(dim=1) >= -1).all()
        assert (counts[:, 0] <= counts[:, -1]).all()
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


@pytest.mark.parametrize("turns", [1, 2, 3, 50])
def test_every_category_is_drawn_whatever_the_number_of_turns(turns: int) -> None:
    levels = draw_levels(torch.full((500, 2), -1), keys(500), turns)
    assert (levels >= 0).all()
    assert (levels < torch.tensor([2, 3])).all()


def test_rows_of_which_all_is_known_stay() -> None:
    given = torch.tensor([[0, 1], [1, 2]]).repeat(10, 1)
    assert torch.equal(draw_levels(given, keys(20)), given)


@pytest.mark.parametrize(
    ("evaluations", "networks", "turns"), [(20, 1, 20), (20, 4, 17), (20, 30, 16), (5, 4, 5), (2, 4, 2)]
)
def test_many_networks_leave_a_draw_its_turns(evaluations: int, networks: int, turns: int) -> None:
    assert turns_of_draw(ConditionalSettings(sampling_steps=evaluations), networks) == turns

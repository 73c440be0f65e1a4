"""The conditional M-step's objective: which cells are hidden, what the loss is, and that it falls."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from diffputer.diffusion.conditional import ConditionalNetwork, Rows
from diffputer.diffusion.marginals import Marginals
from diffputer.diffusion.planning import TrainingPlan
from diffputer.diffusion.prediction import Prediction, ask, average, mix
from diffputer.diffusion.residuals import QUANTILES
from diffputer.diffusion.splitting import Columns, RowSplitting, Table, Validation, level_loss, pinball
from diffputer.diffusion.training import MStep, Trainer
from diffputer.settings import ConditionalSettings

SETTINGS = ConditionalSettings(dropout=0.2)
CPU = torch.device("cpu")
each_backbone = pytest.mark.parametrize("backbone", ["mlp", "attention"])


def mixed(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers, a category of three levels and one of two, all of one cause; and the levels."""
    rng = np.random.default_rng(seed)
    cause = rng.normal(size=n)
    x = np.stack([
        cause + 0.3 * rng.normal(size=n), np.digitize(cause, [-0.5, 0.5]),
        -cause + 0.3 * rng.normal(size=n), cause > 0,
    ], axis=1)  # fmt: skip
    return x.astype(np.float32), np.array([0, 3, 0, 2])


class Setup:
    """An objective with all that belongs to it; the network's inputs are written down."""

    def __init__(
        self,
        x: np.ndarray,
        n_levels: np.ndarray,
        *,
        known: np.ndarray | None = None,
        holes: np.ndarray | None = None,
        held: np.ndarray | None = None,
        settings: ConditionalSettings = SETTINGS,
        backbone: str = "mlp",
        members: int = 1,
        batch: int = 64,
    ) -> None:
        known = np.ones(x.shape, dtype=bool) if known is None else known
        columns = Columns(n_levels)
        table = Table(x, known, ~known if holes is None else holes, columns, CPU)
        marginals = Marginals.fit(x[:, columns.numeric], ~known[:, columns.numeric])
        self.validation = Validation(table, marginals, held) if held is not None else None
        self.network = ConditionalNetwork(
            len(columns.numeric), columns.levels, backbone=backbone, members=members, width=32, depth=1,
            dropout=settings.dropout,
        )  # fmt: skip
        self.objective = RowSplitting(
            self.network, marginals, table, self.validation, settings, batch, torch.float32
        )
        self.seen: list[Rows] = []
        self.network.register_forward_pre_hook(lambda _, rows: self.seen.append(rows[0]))

    def loss(self, seed: int = 0) -> float:
        self.objective.begin(seed)
        with torch.no_grad():
            return float(self.objective.loss(torch.zeros((), dtype=torch.int64)))

    def train(self, steps: int = 60, seed: int = 0) -> tuple[Trainer, MStep]:
        plan = TrainingPlan(learning_rate=3e-3, max_steps=steps, patience=steps, weight_average=0.9)
        trainer = Trainer(self.network, self.network, self.objective, plan)
        return trainer, trainer.fit(seed=seed)

    def blank(self, batches: int = 30) -> Rows:
        """Give what the network saw of the blank rows of many batches."""
        self.seen.clear()
        for seed in range(batches):
            self.loss(seed)
        assert len(self.seen) == batches
        blanks = [rows.part(rows.blank) for rows in self.seen]
        return Rows(**{name: torch.cat([getattr(r, name) for r in blanks]) for name in vars(blanks[0])})


@each_backbone
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kinds", ["mixed", "numbers", "categories", "one number", "one category"])
def test_the_loss_falls_for_every_sort_of_table(kinds: str, members: int, backbone: str) -> None:
    # The same splits before and after sixty steps. A single column has only its mean to learn.
    x, n_levels = mixed()
    chosen = {"mixed": [0, 1, 2, 3], "numbers": [0, 2], "categories": [1, 3]}
    columns = chosen.get(kinds, [0] if kinds == "one number" else [1])
    setup = Setup(x[:, columns], n_levels[columns], backbone=backbone, members=members)
    setup.network.eval()
    trainer, _ = setup.train(steps=1)
    before = np.mean([setup.loss(seed) for seed in range(5)])
    _, result = setup.train()
    setup.network.eval()
    after = np.mean([setup.loss(seed) for seed in range(5)])
    assert np.isfinite([before, after, result.loss]).all()
    assert after < (0.97 if len(columns) > 1 else 1.05) * before
    assert all(torch.isfinite(p).all() for p in trainer.averaged.parameters())


def equal_weights(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@each_backbone
def test_same_seed_same_weights_and_global_generators_are_left_alone(backbone: str) -> None:
    x, n_levels = mixed()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    (a, _), (b, _), (c, _) = (
        Setup(x, n_levels, backbone=backbone, members=2).train(15, seed) for seed in (0, 0, 1)
    )
    assert equal_weights(a.averaged, b.averaged)
    assert not equal_weights(a.averaged, c.averaged)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


@each_backbone
def test_a_trainer_can_be_used_again(backbone: str) -> None:
    x, n_levels = mixed()
    trainer, _ = Setup(x, n_levels, backbone=backbone).train(15)
    first = copy.deepcopy(trainer.averaged)
    trainer.fit(seed=7)
    trainer.fit(seed=0)
    assert equal_weights(trainer.averaged, first)


def test_the_averaged_network_does_not_drop_anything_out() -> None:
    x, n_levels = mixed()
    held = np.random.default_rng(0).random(x.shape) < 0.1
    setup = Setup(x, n_levels, known=~held, held=held)
    trainer, _ = setup.train(5)
    assert not trainer.averaged.training
    assert setup.validation is not None
    a, b = (average(ask(trainer.averaged, setup.validation.rows, torch.float32)) for _ in range(2))  # type: ignore[arg-type]
    assert torch.equal(a.mean, b.mean)


@pytest.mark.parametrize("copied", [0.0, 0.75, 1.0])
def test_columns_that_are_complete_in_training_are_hidden_sometimes(copied: float) -> None:
    # Only the first column has holes. With patterns copied in all rows it is the other way round: rows whose
    # copied pattern hides nothing hide cells at a random rate instead.
    x, n_levels = mixed()
    known = np.ones(x.shape, dtype=bool)
    known[::2, 0] = False
    settings = dataclasses.replace(SETTINGS, copied_patterns=copied)
    rows = Setup(x, n_levels, known=known, settings=settings).blank()
    hidden = torch.cat([~rows.known, rows.levels < 0], dim=1).float().mean(dim=0)
    assert (hidden[1:] > 0.05).all()
    assert (hidden[1:] < 0.95).all()


def test_copied_patterns_are_those_of_rows() -> None:
    # Every row has one of two patterns of holes, three times as many of the first; values are all there, so
    # that every pattern can be copied. Shares within five deviations.
    x, n_levels = mixed()
    patterns = np.array([[True, True, False, False], [False, False, True, False]])
    holes = patterns[(np.arange(len(x)) % 4 == 3).astype(int)]
    settings = dataclasses.replace(SETTINGS, copied_patterns=1.0)
    rows = Setup(x, n_levels, holes=holes, settings=settings).blank(40)
    hidden = torch.stack(
        [~rows.known[:, 0], rows.levels[:, 0] < 0, ~rows.known[:, 1], rows.levels[:, 1] < 0], dim=1
    ).numpy()
    is_first, is_second = ((hidden == pattern).all(axis=1) for pattern in patterns)
    assert (is_first | is_second).all()
    assert is_first.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / len(hidden)))


def test_without_copied_patterns_any_number_of_cells_is_hidden_as_often() -> None:
    # Each of four cells is hidden at a rate that is uniform itself: 1, 2, 3 and 4 hidden cells are equally
    # likely (five deviations); rows that hide none teach nothing and are at most as many.
    x, n_levels = mixed()
    settings = dataclasses.replace(SETTINGS, copied_patterns=0.0)
    rows = Setup(x, n_levels, settings=settings).blank(60)
    count = ((~rows.known).sum(dim=1) + (rows.levels < 0).sum(dim=1)).numpy()
    shares = np.bincount(count, minlength=5) / len(count)
    allowed = 5 * np.sqrt(0.25 * 0.75 / len(count))
    assert np.ptp(shares[1:]) < 2 * allowed
    assert shares[0] < 0.2 + allowed


def test_cells_with_a_hole_are_never_shown() -> None:
    x, n_levels = mixed()
    known = np.random.default_rng(0).random(x.shape) > 0.3
    shown = Setup(x, n_levels, known=known).blank()
    for k, column in enumerate((0, 2)):
        values, is_known = shown.x[:, k], shown.known[:, k]
        assert set(values[is_known].tolist()) <= set(x[known[:, column], column].tolist())
        assert (values[~is_known] == 0).all()
    # What stands in the holes makes no difference to the loss either.
    tables = [np.where(known, x, np.float32(value)) for value in (0, 1)]
    losses = [Setup(table, n_levels, known=known).loss(3) for table in tables]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_filled_cells_are_shown_but_not_asked_for() -> None:
    # From the second EM round on half of the rows have their holes filled.
    x, n_levels = mixed()
    known = np.ones(x.shape, dtype=bool)
    known[:, 0] = False
    setup = Setup(x, n_levels, known=known, settings=dataclasses.replace(SETTINGS, copied_patterns=0.0))
    assert not setup.blank().known[:, 0].any()
    filled = x.copy()
    filled[:, 0] = 0.5
    setup.objective.use_filled(filled)
    shown = setup.blank()
    share = float(shown.known[:, 0].float().mean())
    assert 0.1 < share < 0.5  # half of the rows, less those that hide it
    assert (shown.x[shown.known[:, 0], 0] == 0.5).all()
    # A network that is asked for nothing in the first column gets no gradient from its outputs.
    setup.objective.begin(0)
    setup.objective.loss(torch.zeros((), dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
    bias = setup.network.exit.bias.grad
    assert bias is not None
    n_outputs = setup.network.n_outputs
    assert (bias[..., :n_outputs] == 0).all()
    assert (bias[..., n_outputs : 2 * n_outputs] != 0).any()


@given(st.integers(0, len(QUANTILES) - 1))
def test_the_quantile_loss_is_smallest_at_the_quantiles(k: int) -> None:
    z = torch.randn(4_000, generator=torch.Generator().manual_seed(0))
    level = torch.tensor([QUANTILES[k]])
    grid = torch.linspace(-3, 3, 601)
    losses = [float(pinball(torch.full((len(z), 1), float(q)), z, level).mean()) for q in grid[::4]]
    best = float(grid[::4][int(np.argmin(losses))])
    assert best == pytest.approx(float(torch.quantile(z, QUANTILES[k])), abs=0.05)


def test_levels_cost_one_if_they_are_guessed_from_their_shares() -> None:
    rng = np.random.default_rng(0)
    x, n_levels = rng.choice(3, p=[0.6, 0.3, 0.1], size=(5_000, 1)).astype(np.float32), np.array([3])
    known = np.ones(x.shape, dtype=bool)
    table = Table(x, known, ~known, Columns(n_levels), CPU)
    shares = np.bincount(x[:, 0].astype(int)) / len(x)
    logits = torch.tensor(np.log(shares), dtype=torch.float32).expand(1, len(x), 3)
    losses = level_loss([logits], torch.from_numpy(x).long()[None], table)
    assert float(losses.mean()) == pytest.approx(1.0, abs=1e-4)


def prediction(mean: Tensor) -> Prediction:
    quantiles = mean[..., None] + torch.special.ndtri(torch.tensor(QUANTILES))
    return Prediction(mean, quantiles, [])


def test_held_out_cells_say_how_far_means_are_trusted() -> None:
    x = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    held = np.zeros(x.shape, dtype=bool)
    held[:200, 0] = True
    setup = Setup(x, np.array([0, 0]), known=~held, held=held)
    validation = setup.validation
    assert validation is not None
    truth = torch.from_numpy(x[:200])
    assert validation.trust(prediction(truth)) == pytest.approx(1.0)
    assert validation.trust(prediction(2 * truth)) == pytest.approx(0.5)
    assert validation.trust(prediction(truth / 2)) == 1.0  # never more than what the network says
    assert validation.trust(prediction(-truth)) == 0.0
    assert validation.trust(prediction(0 * truth)) == 1.0
    losses = [validation.loss(prediction(a * truth)) for a in (1.0, 0.5, 0.0, -1.0)]
    assert losses == sorted(losses)
    # Other cells do not count.
    other = truth.clone()
    other[:, 1] = 99.0
    assert validation.loss(prediction(other)) == pytest.approx(validation.loss(prediction(truth)))


@given(st.floats(0, 1))
def test_mixed_predictions_are_weighted_means(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (prediction(torch.randn(5, 2, generator=generator)) for _ in range(2))
    a.probabilities, b.probabilities = [torch.eye(5)[:, :3]], [torch.full((5, 3), 1 / 3)]
    both = mix([a, b], [share, 1 - share])
    assert torch.allclose(both.mean, share * a.mean + (1 - share) * b.mean, atol=1e-6)
    assert torch.allclose(both.quantiles, share * a.quantiles + (1 - share) * b.quantiles, atol=1e-6)
    expected = share * a.probabilities[0] + (1 - share) * b.probabilities[0]
    assert torch.allclose(both.probabilities[0], expected, atol=1e-6)

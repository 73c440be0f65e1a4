"""The conditional engine whatever the table's size: same bits, no worse than means, networks combined."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from diffputer import DiffPuter
from diffputer.diffusion.calibration import calibrate
from diffputer.diffusion.conditional import ConditionalNetwork
from diffputer.diffusion.ensemble import LINEAR, Ensemble
from diffputer.diffusion.prediction import sharpen
from diffputer.diffusion.shares import best_sharpness
from diffputer.diffusion.splitting import Columns, Table, Validation
from diffputer.em import EMResult, draw, fit_em, impute
from diffputer.engines import conditional, sizes
from diffputer.engines.conditional import ConditionalEngine
from diffputer.runtime.progress import Progress
from diffputer.settings import ConditionalSettings

TINY = ConditionalSettings(
    mlp_members=2, mlp_width=32, mlp_depth=1, attention_members=1, attention_width=32, attention_depth=1,
    batch_size=64, max_steps=40, learning_rate=3e-3, weight_average=0.9, sampling_steps=10,
)  # fmt: skip
MLP = dataclasses.replace(TINY, attention_members=0)
ATTENTION = dataclasses.replace(TINY, mlp_members=0, attention_members=2)
N_LEVELS = np.array([0, 3, 0, 2, 0])
TREES = dataclasses.replace(MLP, boosted_trees=32)
each_ensemble = pytest.mark.parametrize(
    "settings", [MLP, ATTENTION, TINY, TREES], ids=["MLPs", "attention", "both sorts", "with trees"]
)


def mixed(n: int = 700, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three numbers and two categories of one cause, with holes, and a row with everything missing."""
    rng = np.random.default_rng(seed)
    cause = rng.normal(size=n)
    x = np.stack([
        cause, np.digitize(cause, [-0.5, 0.5]), 0.7 * cause + 0.7 * rng.normal(size=n), cause > 0,
        -cause + 0.3 * rng.normal(size=n),
    ], axis=1).astype(np.float32)  # fmt: skip
    missing = rng.random(x.shape) < 0.3
    missing[5] = True
    return np.where(missing, np.float32(0), x), missing


def fit(settings: ConditionalSettings, n: int = 700) -> EMResult:
    x, missing = mixed(n)
    return fit_em(ConditionalEngine(N_LEVELS, settings), x, missing, np.arange(5), seed=0)


def draws(x: np.ndarray, missing: np.ndarray, fitted: EMResult, n_draws: int = 3) -> np.ndarray:
    """All rows, n_draws times each."""
    result = np.stack([x] * n_draws)
    for rows, drawn in draw(x, missing, fitted, n_draws, seed=0):
        result[:, rows] = drawn
    return result


class TestBits:
    """The same row gets the same bits whatever stands around it."""

    @pytest.fixture(
        scope="class",
        params=[(MLP, 0.0), (ATTENTION, 0.0), (TINY, 0.0), (MLP, 0.5), (MLP, 1.0)],
        ids=["MLPs", "attention", "both sorts", "MLPs and copula", "copula"],
    )
    def fitted(self, request: pytest.FixtureRequest) -> EMResult:
        settings, share = request.param
        result = fit(settings)
        result.engine.model.linear_share.fill_(share)  # type: ignore[operator, union-attr]
        result.engine.model.network_shares.fill_(1 - share)  # type: ignore[operator, union-attr]
        result.engine.model.linear_draws.fill_(share)  # type: ignore[operator, union-attr]
        result.engine.model.draw_shape.copy_(torch.tensor([-0.2, 0.1]))  # type: ignore[operator, union-attr]
        return result

    @pytest.mark.parametrize("block", [64, 100, 512])
    def test_any_size_of_blocks(self, fitted: EMResult, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        x, missing = mixed()
        means, drawn = impute(x, missing, fitted, seed=0), draws(x, missing, fitted)
        monkeypatch.setattr(conditional, "BLOCK", {"cpu": block})
        assert np.array_equal(impute(x, missing, fitted, seed=0), means)
        assert np.array_equal(draws(x, missing, fitted), drawn)

    def test_any_order_of_rows(self, fitted: EMResult) -> None:
        x, missing = mixed()
        order = np.random.default_rng(1).permutation(len(x))
        for estimate in ("mean", "median"):
            means = impute(x, missing, fitted, seed=0, estimate=estimate)
            found = impute(x[order], missing[order], fitted, seed=0, estimate=estimate)
            assert np.array_equal(found, means[order])
        # Equal rows are told apart by their place; these have none.
        apart = np.flatnonzero(~missing.all(axis=1) & ~missing[:, [0, 2, 4]].all(axis=1))
        order = np.random.default_rng(1).permutation(apart)
        drawn = draws(x[apart], missing[apart], fitted)
        place = {row: k for k, row in enumerate(apart)}
        found = draws(x[order], missing[order], fitted)
        assert np.array_equal(found, drawn[:, [place[row] for row in order]])

    @pytest.mark.parametrize("part", [slice(3, 4), slice(100, 163), slice(50, 400)])
    def test_any_subset_of_rows(self, fitted: EMResult, part: slice) -> None:
        x, missing = mixed()
        means, drawn = impute(x, missing, fitted, seed=0), draws(x, missing, fitted)
        assert np.array_equal(impute(x[part], missing[part], fitted, seed=0), means[part])
        apart = ~missing[part][:, [0, 2, 4]].all(axis=1)
        assert np.array_equal(draws(x[part], missing[part], fitted)[:, apart], drawn[:, part][:, apart])

    def test_fewer_draws_are_the_first_of_more(self, fitted: EMResult) -> None:
        x, missing = mixed()
        assert np.array_equal(draws(x, missing, fitted, 2), draws(x, missing, fitted, 5)[:2])


@each_ensemble
def test_every_sort_of_ensemble_beats_column_means(settings: ConditionalSettings) -> None:
    fitted = fit(dataclasses.replace(settings, max_steps=150))
    line = fitted.trace[0]
    assert line.held_out_error < 0.8 * line.baseline_error
    engine = fitted.engine
    assert isinstance(engine, ConditionalEngine)
    shares = engine.model.shares
    assert float(shares.sum()) == pytest.approx(1.0)
    assert (shares >= 0).all()
    assert len(shares) == (2 if settings is TINY else 1)
    assert 0 <= float(engine.model.trust) <= 1


def test_two_sorts_of_network_are_no_worse_than_the_better_one() -> None:
    # How much each counts is chosen on held-out cells, and none at all is one of the choices.
    fitted = fit(dataclasses.replace(TINY, max_steps=150))
    both = fitted.trace[0].held_out_loss
    for alone in (dataclasses.replace(TINY, attention_members=0), dataclasses.replace(TINY, mlp_members=0)):
        assert both <= fit(dataclasses.replace(alone, max_steps=150)).trace[0].held_out_loss + 0.05


def test_draws_are_shared_out_by_shares_and_all_members_take_their_turn() -> None:
    model = fit(TINY).engine.model  # two MLPs, one with attention, a copula
    assert isinstance(model, Ensemble)
    model.linear_share.fill_(0.5)
    model.network_shares.fill_(0.5)
    model.linear_draws.fill_(0.5)
    model.shares.copy_(torch.tensor([0.75, 0.25]))
    owners = model.allot(16)
    parts = [part for part, _ in owners]
    assert [parts.count(part) for part in (LINEAR, 0, 1)] == [8, 6, 2]
    assert set(owners) == {(LINEAR, 0), (0, 0), (0, 1), (1, 0)}
    assert owners[:5] == model.allot(5)


def hold_out(fitted: EMResult) -> tuple[ConditionalEngine, Validation]:
    """Hide a twentieth of the cells of the mixed table of 2,000 rows from a fitted engine."""
    engine = fitted.engine
    assert isinstance(engine, ConditionalEngine)
    return engine, hold_out_cells(engine, *mixed(2_000))


def hold_out_cells(engine: ConditionalEngine, x: np.ndarray, missing: np.ndarray) -> Validation:
    """Hide a twentieth of the cells of a table."""
    held = (np.random.default_rng(3).random(x.shape) < 0.05) & ~missing
    table = Table(np.where(held, 0, x), ~(missing | held), missing, engine._columns, torch.device("cpu"))
    table.x = torch.from_numpy(x)
    return Validation(table, engine.model.marginals, held)


def test_draws_are_as_wide_as_held_out_cells_say() -> None:
    # Spoilt quantiles, a third too narrow in z, are made up for: the width of draws and intervals grows.
    fitted = fit(dataclasses.replace(MLP, mlp_members=1, max_steps=200), n=2_000)
    engine, validation = hold_out(fitted)
    model = engine.model
    model.linear_share.zero_()
    model.network_shares.fill_(1.0)
    model.linear_draws.zero_()
    calibrate(model, validation, engine.settings, torch.float32)
    before = model.stretch.clone(), model.widths[0].clone()
    network = model.networks[0]
    assert isinstance(network, ConditionalNetwork)
    assert network.exit.bias is not None
    p, n_outputs = network.p, network.n_outputs
    with torch.no_grad():
        network.exit.weight[..., : p * n_outputs] *= 0.67
        network.exit.bias[..., : p * n_outputs] *= 0.67
    calibrate(model, validation, engine.settings, torch.float32)
    assert (model.stretch > 1.1 * before[0]).all()
    assert (model.widths[0] > 1.1 * before[1]).all()


def test_means_do_not_contradict_quantiles() -> None:
    model = fit(dataclasses.replace(MLP, mlp_members=1, max_steps=20), n=200).engine.model
    least, most = model.marginals.values[0, 0], model.marginals.values[0, -1]
    p = len(model.marginals.values)
    quantiles = torch.linspace(0.5, 1.0, 15).expand(3, p, 15)
    low, high = (model.marginals.values_at(torch.full((1, p), z))[0, 0] for z in (0.5, 1.0))
    mean = torch.stack([least, (low + high) / 2, most])[:, None].expand(3, p)
    below, same, above = model._mend_means(mean, quantiles)[:, 0]
    outer = [model.marginals.values_at(quantiles[:1, :, k])[0, 0] for k in (0, -1)]
    assert [float(below), float(above)] == pytest.approx([float(value) for value in outer])
    assert same == mean[1, 0]
    # A rare event, which no quantile knows of, counts in means.
    rare = least + 0.004 * (most - least)
    never = torch.full((1, p, 15), -9.0)
    assert model._mend_means(torch.full((1, p), float(rare)), never)[0, 0] == pytest.approx(float(rare))


def curved(n: int = 3_000) -> tuple[np.ndarray, np.ndarray]:
    """A number, a step of it that no line and no short training finds, and noise; 20 % missing."""
    rng = np.random.default_rng(1)
    a = rng.normal(size=n)
    step = np.sign(np.sin(4 * a)) + 0.1 * rng.normal(size=n)
    x = np.stack([a, step, rng.normal(size=n)], axis=1).astype(np.float32)
    return x, rng.random(x.shape) < 0.2


def test_trees_count_where_they_know_more_and_do_no_harm_elsewhere() -> None:
    x, missing = curved()
    holes = np.where(missing, np.float32(0), x)
    settings = dataclasses.replace(MLP, max_steps=200)
    errors = []
    for trees in (0, 100):
        engine = ConditionalEngine(
            np.zeros(3, dtype=np.int64), dataclasses.replace(settings, boosted_trees=trees)
        )
        fitted = fit_em(engine, holes, missing, np.arange(3), seed=0)
        completed = impute(holes, missing, fitted, seed=0)
        errors.append([float(np.square(completed - x)[missing[:, j], j].mean()) for j in range(3)])
    assert engine.model.tree_shares[1] >= 0.75
    assert errors[1][1] < 0.7 * errors[0][1]
    assert errors[1][2] < 1.05 * errors[0][2]


def test_the_median_follows_the_trees_where_that_helps() -> None:
    x, missing = curved()
    holes = np.where(missing, np.float32(0), x)
    settings = dataclasses.replace(MLP, max_steps=200, boosted_trees=100)
    engine = ConditionalEngine(np.zeros(3, dtype=np.int64), settings)
    fitted = fit_em(engine, holes, missing, np.arange(3), seed=0)

    def error() -> float:
        median = impute(holes, missing, fitted, seed=0, estimate="median")
        return float(np.abs(median - x)[missing[:, 1], 1].mean())

    following = error()
    assert engine.model.follow[1] > 0
    engine.model.follow.zero_()
    assert following < 0.9 * error()


def test_draws_of_whole_numbers_hold_as_many_truths_as_they_should() -> None:
    # Truths share ranks with draws that are equal; as scores, which are never equal, they would not.
    rng = np.random.default_rng(0)
    a = rng.normal(size=2_000)
    b, c = (np.round(sign * a + 0.3 * rng.normal(size=2_000)) for sign in (1, -1))
    x = np.stack([np.round(a), b, c], axis=1).astype(np.float32)
    missing = rng.random(x.shape) < 0.2
    holes = np.where(missing, np.float32(0), x)
    settings = dataclasses.replace(MLP, max_steps=150, held_out=0.2)
    fitted = fit_em(
        ConditionalEngine(np.zeros(3, dtype=np.int64), settings), holes, missing, np.arange(3), seed=0
    )
    drawn = draws(holes, missing, fitted, 19)
    below, above = ((drawn < x - 1e-4).sum(axis=0), (drawn > x + 1e-4).sum(axis=0))
    outside = ((below == 0).astype(float) + (above == 0)) / (20 - below - above)
    assert 0.085 < outside[missing].mean() < 0.115


def test_every_column_has_a_width_of_its_own() -> None:
    # Of what the copula says of two columns one is far too wide: its draws alone become narrower.
    fitted = fit(dataclasses.replace(MLP, mlp_members=1, max_steps=100), n=2_000)
    engine, validation = hold_out(fitted)
    model = engine.model
    model.linear_share.fill_(1.0)
    model.network_shares.fill_(0.0)
    model.linear_draws.fill_(1.0)
    calibrate(model, validation, engine.settings, torch.float32)
    before = model.linear_width.clone()
    assert model.copula is not None
    model.copula.covariance[0, 0] *= 9
    calibrate(model, validation, engine.settings, torch.float32)
    assert model.linear_width[0] < 0.75 * before[0]
    assert model.linear_width[1] > 0.8 * before[1]
    rows = validation.rows
    keys = torch.arange(len(validation.held))
    narrow, _ = model.copula.draw(rows, keys, model.width_of(LINEAR))
    wide, _ = model.copula.draw(rows, keys)
    unknown = ~rows.known[:, 0]
    assert narrow[unknown, 0].std() < 0.9 * wide[unknown, 0].std()


def test_draws_of_a_copula_that_is_right_stay_as_they_are_however_sure_it_is() -> None:
    # A number that the other one tells to a two-hundredth: nearer than networks are ever believed.
    rng = np.random.default_rng(0)
    a = rng.normal(size=2_000)
    x = np.stack([a, a + 0.005 * rng.normal(size=2_000)], axis=1).astype(np.float32)
    missing = rng.random(x.shape) < 0.2
    engine = ConditionalEngine(np.zeros(2, dtype=np.int64), dataclasses.replace(MLP, mlp_members=1))
    fit_em(engine, np.where(missing, np.float32(0), x), missing, np.arange(2), seed=0)
    model = engine.model
    for of_columns in (model.marginals.values, model.marginals.probabilities):
        of_columns[1] = of_columns[0]  # else scores would differ by what other rows show
    validation = hold_out_cells(engine, x, missing)
    assert model.copula is not None
    scores = model.marginals.scores(torch.from_numpy(x)).double()
    model.copula.middle.copy_(scores.mean(dim=0))
    model.copula.covariance.copy_(torch.cov(scores.T))
    model.linear_draws.fill_(1.0)
    calibrate(model, validation, engine.settings, torch.float32)
    assert ((model.linear_width > 0.8) & (model.linear_width < 1.25)).all(), model.linear_width
    # Nor does a shape of all draws make its own narrower: it leaves the ends of 90 % intervals as they are.
    rows, keys = validation.rows, torch.arange(len(validation.held))
    ends = []
    for shape in ([0.0, 0.0], [-0.3 * 1.645, 0.3]):
        model.draw_shape.copy_(torch.tensor(shape))
        told = model.beforehand(rows, torch.float32)
        drawn = model.draw((LINEAR, 0), None, rows, keys, torch.float32, told).x
        left = drawn - validation.rows.x[:, [1, 0]]  # from the other column, which is nearly the same
        tells = ~rows.known[:, 1] & rows.known[:, 0]
        ends.append(float(left[tells, 1].abs().quantile(0.9)))
    assert ends[1] == pytest.approx(ends[0], rel=0.12)


def test_missing_categories_do_not_make_draws_of_the_copula_wide() -> None:
    # Numbers follow categories of four levels closely: draws given a wrong level lie far from the truth,
    # which is no reason to widen those that are given the right one.
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 4, size=(1_500, 2))
    x = np.hstack([levels, levels + 0.3 * rng.normal(size=levels.shape)]).astype(np.float32)
    missing = rng.random(x.shape) < 0.3
    settings = dataclasses.replace(MLP, mlp_members=1, max_steps=50)
    engine = ConditionalEngine(np.array([4, 4, 0, 0]), settings)
    fit_em(engine, np.where(missing, np.float32(0), x), missing, np.arange(4), seed=0)
    assert (engine.model.linear_width < 1.3).all()


def test_levels_are_drawn_as_often_as_their_probability_says_by_whom_ever() -> None:
    # A category that tells the middle of a number from its ends, which no linear part sees.
    rng = np.random.default_rng(0)
    a = rng.normal(size=3_000)
    x = np.stack([a, a + 0.2 * rng.normal(size=3_000), np.abs(a) > 0.7], axis=1).astype(np.float32)
    missing = rng.random(x.shape) < 0.2
    engine = ConditionalEngine(np.array([0, 0, 2]), dataclasses.replace(MLP, mlp_members=1))
    fit_em(engine, np.where(missing, np.float32(0), x), missing, np.arange(3), seed=0)
    model = engine.model
    holes = np.zeros((1_000, 3), dtype=bool)
    holes[:, 2] = True
    blank = np.where(holes, np.float32(0), x[:1_000])
    cells = engine.describe_cells(blank, holes, (0.05, 0.95), Progress())
    assert cells.probability[:, 2].mean() > 0.7  # 0.52 are of the more frequent level
    for share in (0.0, 1.0):
        model.linear_draws.fill_(share)
        (drawn,) = [d for _, d in engine.draw(blank, holes, 10, 0, Progress())]
        often = (drawn[:, :, 2] == cells.level[:, 2]).mean()
        assert often == pytest.approx(cells.probability[:, 2].mean(), abs=0.02), share


def test_probabilities_are_sharpened_as_far_as_held_out_cells_tell() -> None:
    rng = np.random.default_rng(0)
    chances = torch.from_numpy(rng.dirichlet([1.0, 1.0, 1.0], size=4_000)).float()
    levels = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(0))

    def find(n: int, power: float) -> float:
        told = SimpleNamespace(
            held_levels=torch.ones(n, 1, dtype=torch.bool),
            surprises=lambda said: -said[0].gather(1, levels[:n]).log().sum()[None],
        )
        return float(best_sharpness([sharpen(chances[:n], power)], told)[0])  # type: ignore[arg-type]

    assert find(4_000, 0.5) == pytest.approx(2.0, rel=0.1)
    assert find(4_000, 1.0) == pytest.approx(1.0, rel=0.06)
    assert 1.0 <= find(10, 0.5) < 1.5


def test_the_copula_counts_where_rows_are_few_and_draws_as_often_as_it_counts() -> None:
    fitted = fit(MLP, n=60)
    model = fitted.engine.model
    assert isinstance(model, Ensemble)
    assert 0 < float(model.linear_share) <= 1
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        model.linear_share.fill_(share)
        model.network_shares.fill_(1 - share)
        model.linear_draws.fill_(share)
        assert sum(part == LINEAR for part, _ in model.allot(20)) == 20 * share
    assert model.copula is not None
    model.linear_share.fill_(0.0)
    model.network_shares.fill_(1.0)
    model.linear_draws.fill_(0.0)
    model.dependence.fill_(0.0)
    x, missing = mixed(60)
    before = impute(x, missing, fitted, seed=0), draws(x, missing, fitted)
    model.copula.covariance.fill_(0.5)
    after = impute(x, missing, fitted, seed=0), draws(x, missing, fitted)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_second_round_runs_and_the_better_one_is_kept() -> None:
    fitted = fit(dataclasses.replace(MLP, em_rounds=2, max_steps=100))
    losses = [line.held_out_loss for line in fitted.trace]
    assert len(losses) == 2
    assert np.isfinite(losses).all()
    assert fitted.best_round == 1 + int(np.argmin(losses))
    once = fit(dataclasses.replace(MLP, em_rounds=1, max_steps=100))
    assert once.trace[0].held_out_loss == losses[0]
    x, missing = mixed()
    same = np.array_equal(impute(x, missing, once, seed=0), impute(x, missing, fitted, seed=0))
    assert same == (fitted.best_round == 1)


def test_a_batch_is_halved_until_it_fits_into_the_memory_of_a_gpu() -> None:
    settings, columns = ConditionalSettings(), Columns(np.zeros(32, dtype=np.int64))

    def batch(memory: int | None) -> int:
        return sizes.with_size(settings, columns, memory).batch_size

    assert batch(None) == batch(80 << 30) == settings.batch_size
    assert [batch(gib << 30) for gib in (8, 4)] == [512, 256]
    assert batch(1 << 20) == sizes.SMALLEST_GPU_BATCH


def test_attention_is_left_out_where_columns_are_many() -> None:
    many = np.zeros(sizes.MOST_ATTENDED + 1, dtype=np.int64)
    assert ConditionalEngine(many, TINY).settings.attention_members == 0
    assert ConditionalEngine(many[1:], TINY).settings.attention_members == 1
    # Where there is nothing else, MLPs take its place.
    alone = ConditionalEngine(many, ATTENTION).settings
    assert (alone.attention_members, alone.mlp_members) == (0, 2)
    # So it is where levels are many.
    levels = np.full(20, 2, dtype=np.int64)
    assert ConditionalEngine(levels, TINY).settings.attention_members == 1
    levels[0] = sizes.MOST_LEVELS
    assert ConditionalEngine(levels, TINY).settings.attention_members == 0


def test_another_precision_gives_nearly_the_same() -> None:
    # bfloat16 has eight bits: a tenth of a standard deviation (root mean square).
    fitted = fit(TINY)
    x, missing = mixed()
    rough = dataclasses.replace(fitted, engine=fitted.engine.use("cpu", torch.bfloat16))
    a, b = (impute(x, missing, result, seed=0)[:, [0, 2, 4]] for result in (fitted, rough))
    assert np.sqrt(np.mean((a - b) ** 2)) < 0.1
    assert np.isfinite(draws(x, missing, rough)).all()


SMALL: dict[str, Any] = {
    "mlp_width": 64, "mlp_depth": 1, "batch_size": 64, "learning_rate": 2e-3, "weight_average": 0.99,
    "boosted_trees": 64, "model_uncertainty": "none", "device": "cpu", "progress": False,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["two factors", "noise"])
@pytest.mark.parametrize(
    ("shape", "rate", "tables", "steps"),
    [((100, 5), 0.3, 3, 200), ((12, 2), 0.25, 14, 40), ((40, 200), 0.3, 1, 100), ((400, 6), 0.99, 3, 200)],
    ids=["small", "tiny", "wide", "nearly empty"],
)
def test_hidden_cells_are_imputed_no_worse_than_by_column_means(
    shape: tuple[int, int], rate: float, tables: int, steps: int, kind: str
) -> None:
    # Tolerance: 1.1 times the error of column means (root mean square over all hidden cells of the tables; a
    # table of twelve rows has few, and there are many of them).
    mine = means = 0.0
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=shape)
        if kind == "two factors":
            x = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1])) + 0.5 * x
        hidden = rng.random(shape) < rate
        hidden[rng.integers(shape[0], size=shape[1]), np.arange(shape[1])] = False  # a value in every column
        holes = np.where(hidden, np.nan, x)
        completed = DiffPuter(random_state=seed, max_steps=steps, **SMALL).fit_transform(holes)
        assert np.isfinite(completed).all()
        scaled = x.std(axis=0)
        mine += float((((completed - x) / scaled)[hidden] ** 2).sum())
        means += float((((np.nanmean(holes, axis=0) - x) / scaled)[hidden] ** 2).sum())
    assert np.sqrt(mine / means) < 1.1
    if kind == "two factors" and rate == 0.3:
        assert np.sqrt(mine / means) < 0.9


@pytest.mark.parametrize("how", ["together", "in_turn"])
@pytest.mark.parametrize("of_copula", [0.0, 0.5])
def test_blank_rows_are_asked_once_and_a_draw_takes_no_more_evaluations_than_may_be(
    how: str, of_copula: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(TINY, member_training=how, sampling_steps=20)
    fitted = fit(settings, n=200)
    model = fitted.engine.model
    n_networks = len(model.networks)  # type: ignore[arg-type]
    model.shares.fill_(1 / n_networks)  # type: ignore[operator, union-attr]
    model.linear_draws.fill_(of_copula)  # type: ignore[operator, union-attr]
    model.draw_shape.copy_(torch.tensor([-0.2, 0.1]))  # type: ignore[operator, union-attr]
    evaluations: list[bool] = []  # whether it is one of blank rows for all draws
    forward = ConditionalNetwork.forward

    def count(network: ConditionalNetwork, rows: Any, *args: Any, **kwargs: Any) -> Any:
        evaluations.append(kwargs.get("shared", False))
        return forward(network, rows, *args, **kwargs)

    monkeypatch.setattr(ConditionalNetwork, "forward", count)
    x, missing = mixed(200)
    counts = {}
    for n_draws in (1, 5):
        evaluations.clear()
        draws(x, missing, fitted, n_draws)
        assert evaluations.count(True) == n_networks
        counts[n_draws] = len(evaluations)
    assert 0 < counts[1] <= settings.sampling_steps
    assert counts[5] <= n_networks + 5 * (settings.sampling_steps - n_networks)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draws_of_a_gaussian_table_vary_as_they_should_and_not_as_networks_err(seed: int) -> None:
    # Conditional variances are known. What 1,000 rows tell of them has a standard error of 5 %, or of 2 % for
    # the mean of five columns; tolerance: 10 %.
    rng = np.random.default_rng(seed)
    covariance = np.full((5, 5), 0.6) + 0.4 * np.eye(5)
    x = rng.multivariate_normal(np.zeros(5), covariance, size=1_000).astype(np.float32)
    missing = rng.random(x.shape) < 0.3
    engine = ConditionalEngine(np.zeros(5, dtype=np.int64), dataclasses.replace(MLP, sampling_steps=20))
    fitted = fit_em(engine, np.where(missing, np.float32(0), x), missing, np.arange(5), seed=0)
    ratios = []
    for j in range(5):
        hidden = np.zeros_like(missing)
        hidden[:, j] = True
        drawn = draws(np.where(hidden, np.float32(0), x), hidden, fitted, n_draws=20)[:, :, j]
        others = [k for k in range(5) if k != j]
        gain = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, j])
        ratios.append(drawn.var(axis=0, ddof=1).mean() / (1 - covariance[j, others] @ gain))
    assert np.mean(ratios) == pytest.approx(1, abs=0.1), ratios


@pytest.mark.filterwarnings("ignore:Rows should be like")  # columns are wholly missing
def test_cells_that_are_missing_together_lie_on_their_curve_in_draws() -> None:
    # y = x^2 + 0.2 e and whether |x| > 1: nothing of it is a line. The third number tells of neither.
    rng = np.random.default_rng(0)
    x = rng.normal(size=3_000)
    frame = pd.DataFrame({"x": x, "y": x**2 + 0.2 * rng.normal(size=3_000), "other": rng.normal(size=3_000)})
    frame["far"] = np.where(np.abs(x) > 1, "yes", "no")
    fitted = DiffPuter(quality="fast", random_state=0).fit(frame[:2_000].mask(rng.random((2_000, 4)) < 0.2))
    unknown = frame[2_000:].assign(x=np.nan, y=np.nan, far=None)
    for drawn in fitted.sample(unknown, n_draws=2):
        assert np.corrcoef(drawn["x"] ** 2, drawn["y"])[0, 1] > 0.7
        assert ((drawn["y"] > 1) == (drawn["far"] == "yes")).mean() > 0.8  # of independent ones, 0.56
        assert (drawn["far"] == "yes").mean() == pytest.approx(0.317, abs=0.1)
        assert drawn["x"].std() == pytest.approx(1, abs=0.15)

"""The conditional engine whatever the table's size: same bits, no worse than means, experts combined."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from diffputer import DiffPuter
from diffputer.em import EMResult, draw, fit_em, impute
from diffputer.models.base import Columns
from diffputer.models.conditional import engine as engines
from diffputer.models.conditional.engine import ConditionalEngine
from diffputer.models.conditional.network import Network
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
    "settings", [MLP, ATTENTION, TINY, TREES], ids=["MLPs", "attention", "both backbones", "with trees"]
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
        params=[MLP, ATTENTION, TINY, TREES],
        ids=["MLPs", "attention", "both backbones", "with trees"],
    )
    def fitted(self, request: pytest.FixtureRequest) -> EMResult:
        return fit(request.param)

    @pytest.mark.parametrize("block", [64, 100, 512])
    def test_any_size_of_blocks(self, fitted: EMResult, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        x, missing = mixed()
        means, drawn = impute(x, missing, fitted, seed=0), draws(x, missing, fitted)
        monkeypatch.setattr(engines, "BLOCK", {"cpu": block})
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
    assert isinstance(fitted.engine, ConditionalEngine)
    fitted.engine.model.pool.check_values()


def test_two_sorts_of_network_are_no_worse_than_the_better_one() -> None:
    # How much each counts is chosen on held-out cells, and none at all is one of the choices.
    fitted = fit(dataclasses.replace(TINY, max_steps=150))
    both = fitted.trace[0].held_out_loss
    for alone in (dataclasses.replace(TINY, attention_members=0), dataclasses.replace(TINY, mlp_members=0)):
        assert both <= fit(dataclasses.replace(alone, max_steps=150)).trace[0].held_out_loss + 0.05


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
    errors = {}
    for trees in (0, 100):
        engine = ConditionalEngine(
            np.zeros(3, dtype=np.int64), dataclasses.replace(settings, boosted_trees=trees)
        )
        fitted = fit_em(engine, holes, missing, np.arange(3), seed=0)
        for estimate in ("mean", "median"):
            completed = impute(holes, missing, fitted, seed=0, estimate=estimate)
            miss = np.abs(completed - x)
            errors[trees, estimate] = [float(miss[missing[:, j], j].mean()) for j in range(3)]
    for estimate, better in (("mean", 0.9), ("median", 1.0)):  # trees know means only
        assert errors[100, estimate][1] < better * errors[0, estimate][1]
        assert errors[100, estimate][2] < 1.05 * errors[0, estimate][2]


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
        return engines._with_size(settings, columns, memory).batch_size

    assert batch(None) == batch(80 << 30) == settings.batch_size
    assert [batch(gib << 30) for gib in (6, 3)] == [512, 256]
    assert batch(1 << 20) == engines.SMALLEST_GPU_BATCH


def test_attention_is_left_out_where_columns_are_many() -> None:
    many = np.zeros(engines.MOST_ATTENDED + 1, dtype=np.int64)
    assert ConditionalEngine(many, TINY).settings.attention_members == 0
    assert ConditionalEngine(many[1:], TINY).settings.attention_members == 1
    # Where there is nothing else, MLPs take its place.
    alone = ConditionalEngine(many, ATTENTION).settings
    assert (alone.attention_members, alone.mlp_members) == (0, 2)
    # So it is where levels are many.
    levels = np.full(20, 2, dtype=np.int64)
    assert ConditionalEngine(levels, TINY).settings.attention_members == 1
    levels[0] = engines.MOST_LEVELS
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


@pytest.mark.parametrize("steps", [5, 20])
def test_a_draw_takes_as_many_evaluations_as_cells_are_missing_and_no_more_than_steps(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = fit(dataclasses.replace(MLP, sampling_steps=steps), n=200)
    evaluations: list[int] = []
    forward = Network.forward

    def count(network: Network, rows: Any, *args: Any, **kwargs: Any) -> Any:
        evaluations.append(len(rows))
        return forward(network, rows, *args, **kwargs)

    monkeypatch.setattr(Network, "forward", count)
    x, missing = mixed(200)
    missing[:, 1:] = True  # four or five cells
    draws(x, missing, fitted, 3)
    assert len(evaluations) == 3 * min(5, steps)


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

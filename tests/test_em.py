"""EM on tables whose answers are known, and the ways in which it stops."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diffputer import SettingError, em
from diffputer.em import Session, draw, fit_em, impute, observed_range
from diffputer.em_state import EMState
from diffputer.held_out import choose_held_out
from diffputer.models.conditional.engine import ConditionalEngine
from diffputer.models.paper.engine import PaperEngine
from diffputer.runtime.devices import Deadline
from diffputer.settings import ConditionalSettings, PaperSettings, Settings

TINY = PaperSettings(
    hidden_width=16, max_steps=40, patience=40, sampling_steps=4, resampling_rounds=2, n_draws=2, em_rounds=3
)
TINY_CONDITIONAL = ConditionalSettings(
    mlp_members=1, mlp_width=16, mlp_depth=1, attention_members=0, max_steps=40, batch_size=64, em_rounds=3
)
#: Large enough to learn a Gaussian of three columns in seconds.
SMALL = PaperSettings(
    hidden_width=48, max_steps=500, batch_size=512, learning_rate=3e-3, weight_average=0.99, patience=250,
    em_rounds=3, n_draws=4, sampling_steps=12, resampling_rounds=8, sigma_max=3.0, sigma_min=0.02,
)  # fmt: skip


def make(settings: Settings, width: int = 3) -> PaperEngine | ConditionalEngine:
    """Give the engine of the settings for a table of numbers."""
    n_levels = np.zeros(width, dtype=np.int64)
    if isinstance(settings, PaperSettings):
        return PaperEngine(n_levels, settings)
    return ConditionalEngine(n_levels, settings)


both = pytest.mark.parametrize("tiny", [TINY, TINY_CONDITIONAL], ids=["paper", "conditional"])


def gaussian(n: int = 1500, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    covariance = np.array([[1.0, 0.9, 0.6], [0.9, 1.0, 0.5], [0.6, 0.5, 1.0]])
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(n, 3)) @ np.linalg.cholesky(covariance).T).astype(np.float32)
    return x, rng.random((n, 3)) < 0.3, covariance


def exact_expectation(x: np.ndarray, m: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    result = x.copy()
    for i in range(len(x)):
        hole, seen = m[i], ~m[i]
        if hole.any():
            gain = covariance[np.ix_(hole, seen)] @ np.linalg.pinv(covariance[np.ix_(seen, seen)])
            result[i, hole] = gain @ x[i, seen]
    return result


def rms(a: np.ndarray) -> float:
    return float(np.sqrt(np.mean(a**2)))


def test_em_on_incomplete_gaussian_data_approaches_the_exact_expectation() -> None:
    # Tolerance: within 12 % of the error that the exact conditional mean makes; column means make 45 % more.
    x, m, covariance = gaussian()
    blocks = np.arange(3)
    fitted = fit_em(make(SMALL), np.where(m, np.float32(0), x), m, blocks, seed=0)
    completed = impute(np.where(m, np.float32(0), x), m, fitted, seed=0)
    exact = exact_expectation(x, m, covariance)
    error, exact_error, mean_error = (rms((c - x)[m]) for c in (completed, exact, np.where(m, 0, x)))
    assert error < 1.12 * exact_error < mean_error
    assert np.array_equal(completed[~m], x[~m])
    trace = fitted.trace
    assert trace[1].held_out_error < trace[0].held_out_error < trace[0].baseline_error
    assert trace[-1].change < trace[0].change
    # New rows are imputed as well as those of the fit.
    new, holes, _ = gaussian(seed=1)
    completed = impute(np.where(holes, np.float32(0), new), holes, fitted, seed=0)
    assert rms((completed - new)[holes]) < 1.15 * rms(
        (exact_expectation(new, holes, covariance) - new)[holes]
    )
    # Draws spread as the conditional distribution does (tolerance 20 %), and as widely in every draw.
    pattern = np.zeros_like(m[:200])
    pattern[:, 1] = True
    spread = np.concatenate([d for _, d in draw(x[:200], pattern, fitted, 20, seed=0)], axis=1)[:, :, 1].std(
        axis=0
    )
    exact_spread = np.sqrt(
        1 - covariance[1, [0, 2]] @ np.linalg.inv(covariance[np.ix_([0, 2], [0, 2])]) @ covariance[[0, 2], 1]
    )
    assert spread.mean() == pytest.approx(exact_spread, rel=0.2)


@both
def test_a_complete_table_is_one_m_step(tiny: Settings) -> None:
    x, _, _ = gaussian(200)
    fitted = fit_em(make(tiny), x, np.zeros(x.shape, dtype=bool), np.arange(3), seed=0)
    assert len(fitted.trace) == 1


def test_em_stops_when_held_out_cells_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x, m, _ = gaussian(200)
    errors = iter([9.0, 1.0, 0.5, 0.6, 0.7, 0.1])  # the first is the baseline
    monkeypatch.setattr(em, "cell_error", lambda *_: next(errors))
    settings = dataclasses.replace(TINY, em_rounds=5, em_patience=2)
    fitted = fit_em(make(settings), x, m, np.arange(3), seed=0)
    assert [line.held_out_error for line in fitted.trace] == [1.0, 0.5, 0.6, 0.7]
    assert fitted.best_round == 2


@both
def test_the_weights_of_the_best_round_are_kept(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    # The scores of the rounds are made up; the second is best and two worse ones end EM.
    x, m, _ = gaussian(200)
    engine = make(dataclasses.replace(tiny, em_rounds=9, em_patience=2))
    scores = {1: 0.9, 2: 0.5, 3: 0.6, 4: 0.7, 5: 0.1}
    begin = engine.begin

    def scored(*arguments: Any) -> Session:
        session = begin(*arguments)
        sessions.append(session)
        monkeypatch.setattr(session, "score", lambda line: scores[line.round])
        return session

    sessions: list[Session] = []
    monkeypatch.setattr(engine, "begin", scored)
    seen = _Memory()
    fitted = fit_em(engine, x, m, np.arange(3), seed=0, checkpoint=seen)
    assert len(fitted.trace) == 4
    assert fitted.best_round == 2
    kept = sessions[0].weights()
    # At the end what is linear, and the mixture, is fitted once more, with the held-out cells.
    linear = ("copula", "gaussian", "mixture", "variants")
    networks = [name for name in kept if not any(f".{part}." in name for part in linear)]
    assert all(torch.equal(kept[name], seen.weights[1][name]) for name in networks)
    assert not all(torch.equal(kept[name], value) for name, value in seen.weights[3].items())


@both
def test_a_round_is_judged_by_the_engines_own_score(tiny: Settings) -> None:
    x, m, _ = gaussian(300)
    engine = make(dataclasses.replace(tiny, em_patience=9))
    fitted = fit_em(engine, x, m, np.arange(3), seed=0)
    name = "held_out_error" if isinstance(tiny, PaperSettings) else "held_out_loss"
    scores = [getattr(line, name) for line in fitted.trace]
    assert fitted.best_round == 1 + int(np.argmin(scores))
    assert len(fitted.trace) == 3


@both
def test_without_held_out_cells_em_runs_all_rounds(tiny: Settings) -> None:
    x, m, _ = gaussian(200)
    fitted = fit_em(make(dataclasses.replace(tiny, held_out=0.0)), x, m, np.arange(3), seed=0)
    assert len(fitted.trace) == fitted.best_round == 3
    assert np.isnan(fitted.trace[0].held_out_error)


def test_a_time_budget_ends_in_a_result() -> None:
    x, m, _ = gaussian(400)
    settings = dataclasses.replace(
        TINY,
        max_steps=10**6,
        max_epochs=10**8,
        patience=10**6,
        em_rounds=50,
        sampling_steps=50,
        resampling_rounds=20,
        n_draws=10,
    )
    fitted = fit_em(make(settings), x, m, np.arange(3), seed=0, deadline=Deadline.after(2.0))
    assert 1 <= len(fitted.trace) < 50
    assert fitted.trace[0].steps < 10**6
    used = fitted.engine.settings
    assert isinstance(used, PaperSettings)
    assert used.evaluations < settings.evaluations
    assert np.isfinite(impute(x, m, fitted, seed=0)).all()


def test_a_time_budget_ends_training_of_every_network() -> None:
    x, m, _ = gaussian(400)
    settings = dataclasses.replace(
        TINY_CONDITIONAL, attention_members=1, attention_width=32, attention_depth=1, max_steps=10**6,
        max_epochs=10**8, patience=10**6, em_rounds=50,
    )  # fmt: skip
    fitted = fit_em(make(settings), x, m, np.arange(3), seed=0, deadline=Deadline.after(2.0))
    assert 1 <= len(fitted.trace) < 50
    assert fitted.trace[0].steps < 10**6
    assert np.isfinite(impute(x, m, fitted, seed=0)).all()


@both
def test_a_deadline_that_has_passed_still_gives_a_result(tiny: Settings) -> None:
    x, m, _ = gaussian(100)
    fitted = fit_em(make(tiny), x, m, np.arange(3), seed=0, deadline=Deadline.after(0.0))
    assert len(fitted.trace) == 1
    assert np.isfinite(impute(x, m, fitted, seed=0)).all()


def test_the_papers_engine_falls_back_to_column_means_where_they_do_better() -> None:
    x, m, _ = gaussian(300)
    hasty = dataclasses.replace(TINY, max_steps=1, em_rounds=1, n_draws=1, em_draws=1, sampling_steps=5)
    fitted = fit_em(make(hasty), x, m, np.arange(3), seed=0)
    assert fitted.best.held_out_error > fitted.best.baseline_error
    assert fitted.falls_back
    filled = impute(x, m, fitted, seed=0)
    assert (filled[m] == 0).all()  # standardised columns
    assert (filled[~m] == x[~m]).all()


@both
def test_training_that_diverges_is_said_to(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    x, m, _ = gaussian(100)
    engine = make(tiny)
    begin = engine.begin

    def diverging(*arguments: Any) -> Session:
        session = begin(*arguments)
        nothing = np.full((len(session.rows), x.shape[1]), np.nan, dtype=np.float32)
        monkeypatch.setattr(session, "e_step", lambda *_: nothing)
        return session

    monkeypatch.setattr(engine, "begin", diverging)
    with pytest.raises(SettingError, match=r"round 1 .* smaller learning_rate"):
        fit_em(engine, x, m, np.arange(3), seed=0)


def test_held_out_cells_are_whole_observed_cells() -> None:
    rng = np.random.default_rng(0)
    blocks = np.array([0, 2, 2, 2, 5])
    missing = (rng.random((2000, 3)) < 0.3)[:, np.searchsorted([0, 2, 5], blocks)]
    held = choose_held_out(missing, blocks, 0.05, seed=0)
    rows, cells = held.rows, held.cells
    assert len(rows) == 100
    assert not (cells & missing).any()
    assert (cells[:, 1] == cells[:, 2]).all()
    assert (cells[:, 2] == cells[:, 3]).all()
    share = cells[:, [0, 1, 4]].sum() / (~missing[:, [0, 1, 4]]).sum()
    assert share == pytest.approx(0.05, abs=0.001)


def test_small_tables_keep_nine_tenths_of_their_rows() -> None:
    held = choose_held_out(np.zeros((30, 2), dtype=bool), np.arange(2), 0.05, seed=0)
    assert len(held.rows) == 3
    assert not held.cells.any()


@given(
    shape=st.tuples(st.integers(1, 400), st.integers(1, 4)),
    rate=st.floats(0, 1),
    share=st.floats(0, 0.5),
    limits=st.sampled_from([(0, 5_000), (100, 20_000)]),
    always=st.booleans(),
)
def test_never_more_than_a_fifth_of_the_cells_is_held_out_unless_asked_for(
    shape: tuple[int, int], rate: float, share: float, limits: tuple[int, int], always: bool
) -> None:
    missing = np.random.default_rng(0).random(shape) < rate
    held = choose_held_out(missing, np.arange(shape[1]), share, seed=0, limits=limits, always=always)
    observed = int((~missing).sum())
    assert not (held.cells & missing).any()
    assert held.cells.sum() <= max(share, 0.2) * observed
    assert held.cells.sum() <= limits[1]
    if share == 0 or not (always or missing.any()):
        assert not held.cells.any()
    elif observed >= 1000:
        assert held.cells.sum() >= min(limits[0], int(share * observed))


@both
def test_imputed_values_stay_inside_the_observed_range(tiny: Settings) -> None:
    x, m, _ = gaussian(200)
    low, high = observed_range(x, m)
    assert (low == np.where(m, np.inf, x).min(axis=0)).all()
    fitted = fit_em(make(tiny), x, m, np.arange(3), seed=0)
    for completed in (impute(x, m, fitted, seed=0), impute(x, m, fitted, seed=0, estimate="median")):
        for j in range(3):
            assert completed[m[:, j], j].min() >= low[j]
            assert completed[m[:, j], j].max() <= high[j]


class _Memory:
    """A checkpoint that remembers every round and gives none back."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.weights: list[dict[str, torch.Tensor]] = []

    def load(self) -> EMState | None:
        return None

    def save(self, state: EMState) -> None:
        self.rounds.append(len(state.trace))
        self.weights.append(state.weights)


@both
def test_the_checkpoint_sees_every_round(tiny: Settings) -> None:
    x, m, _ = gaussian(200)
    memory = _Memory()
    fit_em(make(dataclasses.replace(tiny, em_patience=9)), x, m, np.arange(3), seed=0, checkpoint=memory)
    assert memory.rounds == [1, 2, 3]

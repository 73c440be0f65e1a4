"""DiffPuter's algorithm on one page: expectation-maximisation with a diffusion model.

Given the observed cells, repeat for k = 1, ..., K:

    M-step  theta_k  = fit the denoiser to the observed or completed table
    E-step  x^(k)    = E[x_mis | x_obs, theta_k]

Both steps are the engine's: the paper's (models/paper) completes the table by column means first, fits
it, and averages conditional draws; the conditional one (models/conditional) fits observed cells, and one
evaluation gives the expectation. Some observed cells, spread over all rows, are hidden: EM stops when their
imputation stops improving, and the last E-step has them back.

NOTE[paper]: the paper trains each M-step "until convergence" and fixes K. Trained that long, the network
memorises its own last imputations and EM stalls; docs/dev/deviations.md has the measurements.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .em_state import Checkpoint, EMState, open_journal
from .errors import SettingError, damaged_checkpoint
from .held_out import (
    ColumnErrors,
    HeldOut,
    cell_error,
    choose_held_out,
    column_centres,
    column_errors,
    hold_out_copies,
    ratio_errors,
)
from .nn.journal import Journal
from .nn.loading import check_values
from .nn.trainer import MStep
from .runtime.devices import Deadline
from .runtime.progress import Progress
from .runtime.seeding import derive_seed
from .settings import Settings
from .trace import EMRound

logger = logging.getLogger("diffputer")

#: Rows that are completed together, so that memory does not grow with the table.
CHUNK = 1 << 17


class Session(Protocol):
    """An engine that is being fitted to one table."""

    rows: NDArray[np.int64]
    """The rows that E-steps complete."""

    def m_step(
        self,
        k: int,
        completed: NDArray[np.float32],
        seed: int,
        deadline: Deadline,
        progress: Progress,
        journal: Journal,
    ) -> MStep:
        """Fit; completed are the rows that the last E-step gave. Goes on from what the journal has kept."""

    def e_step(
        self,
        k: int,
        x_obs: NDArray[np.float32],
        m: NDArray[np.bool_],
        bounds: NDArray[np.float32],
        seed: int,
        deadline: Deadline,
        progress: Progress,
    ) -> NDArray[np.float32]:
        """Give rows with the expectations of their unseen cells, whose values lie inside the bounds."""

    def finish(self) -> None:
        """Do what is left when the best round is known."""

    def score(self, line: EMRound) -> float:
        """Say how good a round was; the smallest is best."""

    def seconds_to_finish(self, last: EMRound) -> float:
        """Estimate how long the last E-step will take, from a round."""

    def weights(self) -> dict[str, Tensor]:
        """Copies of all weights, to go on from; those of the model under "model."."""

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take such weights."""


class Engine(Protocol):
    """A model of rows with missing cells: how it is fitted, imputes and draws. Shape: x, missing [n, d]."""

    name: str
    n_levels: NDArray[np.int64]
    """Levels of each encoded column that holds the position of a level; 0 for numbers. Shape: [d]."""
    held_out_cells: tuple[int, int]
    """Fewest and most cells to hold out."""
    holds_out_always: bool
    """Whether it wants cells held out even of a complete table."""
    shrinks: bool
    """Whether what it imputes comes shrunk to what held-out cells support."""

    @property
    def settings(self) -> Settings:
        """The constants in use."""

    @property
    def lines(self) -> NDArray[np.bool_]:
        """Columns that are lines of others: what follows a line may leave the observed range. Shape: [d]."""

    @property
    def model(self) -> nn.Module:
        """All weights that imputing needs."""

    def begin(
        self,
        x: NDArray[np.float32],
        m: NDArray[np.bool_],
        missing: NDArray[np.bool_],
        held: HeldOut,
        seed: int,
    ) -> Session:
        """Start to fit a table: m are all cells that must not be seen, missing those not observed."""

    def impute(
        self,
        x: NDArray[np.float32],
        missing: NDArray[np.bool_],
        bounds: NDArray[np.float32],
        seed: int,
        estimate: str,
        progress: Progress,
    ) -> NDArray[np.float32]:
        """Complete rows by their mean or median."""

    def draw(
        self,
        x: NDArray[np.float32],
        missing: NDArray[np.bool_],
        n_draws: int,
        seed: int,
        progress: Progress,
        *,
        first: int = 0,
        vary: bool = False,
    ) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Draw rows with holes, from draw number first on: yields rows and their draws [n_draws, r, d].

        With ``vary`` each draw is of a model that the table might have led to as well, if it can.
        """

    def use(self, device: torch.device | str, dtype: torch.dtype) -> Engine:
        """Give the same engine on another device, or in another precision, without the table."""


@dataclass(frozen=True)
class EMResult:
    """A fitted engine and the range of its imputations."""

    engine: Engine
    bounds: NDArray[np.float32]
    """Smallest and largest observed value of each encoded column. Shape: [2, d]."""
    trace: list[EMRound] = field(default_factory=list)
    best_round: int = 1
    held_out: ColumnErrors | None = None
    """How well the held-out cells of each column were imputed in the best round."""
    resampled: tuple[Engine, ...] = ()
    """The same fitted to rows drawn with replacement; where there are some, they draw in turn."""

    @property
    def best(self) -> EMRound:
        """The line of the round whose weights are used."""
        return self.trace[self.best_round - 1]

    @property
    def falls_back(self) -> bool:
        """Whether column means complete rows: held-out cells were imputed no better (NOTE[paper]: never)."""
        return bool(self.trace) and not self.engine.shrinks and self.best.useless

    def use(self, device: torch.device | str, dtype: torch.dtype) -> EMResult:
        """Give the same on another device, or in another precision, without the table."""
        engine, *others = (engine.use(device, dtype) for engine in (self.engine, *self.resampled))
        return dataclasses.replace(self, engine=engine, resampled=tuple(others))


def fit_em(
    engine: Engine,
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    *,
    seed: int,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    copies: NDArray[np.int64] | None = None,
    skipped: NDArray[np.bool_] | None = None,
) -> EMResult:
    """Fit an engine to an incomplete table.

    Shape: x [n, d] standardised, missing [n, d], blocks [d] (which column each encoded column is part of),
    copies [n] (which row of another table each is; None if all are different ones), skipped [d] (columns
    that are not imputed).
    """
    deadline, progress, settings = deadline or Deadline(), progress or Progress(), engine.settings
    limits, always = engine.held_out_cells, engine.holds_out_always
    if copies is None:
        held = choose_held_out(missing, blocks, settings.held_out, seed, limits=limits, always=always)
    else:
        _, first, place = np.unique(copies, return_index=True, return_inverse=True)
        held = choose_held_out(missing[first], blocks, settings.held_out, seed, limits=limits, always=always)
        held = hold_out_copies(held, place)
    m = missing | held.cells
    bounds = observed_range(x, missing)
    session = engine.begin(x, m, missing, held, derive_seed(seed, "begin"))
    rows = session.rows
    # What E-steps complete, and what is known of it: the held-out cells are among what is not.
    truth, unseen, held_cells = x[rows], m[rows], held.cells[rows]
    x_obs = np.where(unseen, np.float32(0), truth)
    centres = np.where(unseen, column_centres(x, m, engine.n_levels), truth)
    # Columns that are never imputed say nothing about the result.
    imputed = missing.any(axis=0) if skipped is None else missing.any(axis=0) & ~skipped
    counted = held_cells & imputed
    counted = counted if counted.any() else held_cells
    baseline = cell_error(truth, centres, counted, blocks, engine.n_levels)

    state = (checkpoint.load() if checkpoint else None) or EMState([], x_obs, {}, {})
    if state.weights:
        with damaged_checkpoint():
            if state.completed.shape != x_obs.shape or not np.isfinite(state.completed).all():
                raise ValueError("its completed rows are not those of the fit")
            for weights in (state.best_weights, state.weights):
                session.restore(weights)
                check_values(engine.model)
        logger.info("resumed after EM round %d", len(state.trace))
    K = settings.em_rounds if missing.any() else 1
    for k in range(len(state.trace) + 1, K + 1):
        if _finished(state, k, session, settings.em_patience, deadline):
            break
        # M-step: theta_k = argmax p(x | theta)
        journal = open_journal(state, checkpoint)
        seed_k = derive_seed(seed, "m-step", k)
        m_step = session.m_step(k, state.completed, seed_k, deadline, progress, journal)

        # E-step: x^(k) = E[x_mis | x_obs, theta_k]
        started = time.perf_counter()
        expected = session.e_step(
            k, x_obs, unseen, bounds, derive_seed(seed, "e-step", k), deadline, progress
        )
        if not np.isfinite(expected).all():
            raise SettingError(
                f"Training must converge, however: in EM round {k} it gave values that are not finite. "
                f"Use a smaller learning_rate than {settings.learning_rate:g}, or precision='float32'."
            )
        completed = np.where(unseen, np.clip(expected, *bounds), x_obs)
        moved = np.abs(completed - state.completed)
        change = _rms(np.where(engine.n_levels > 0, moved.clip(max=1), moved)[unseen])  # a level is a level
        error = cell_error(truth, completed, counted, blocks, engine.n_levels)
        state.trace.append(
            EMRound(
                k, m_step.steps, m_step.loss, m_step.held_out_loss, error, baseline, change,
                m_step.seconds + journal.earlier_seconds, time.perf_counter() - started,
            )
        )  # fmt: skip
        logger.info("EM round %d: %s", k, state.trace[-1])
        state.completed, state.weights, state.under_way = completed, session.weights(), None
        *earlier, score = map(session.score, state.trace)
        if not held_cells.any() or not earlier or score < min(earlier):
            state.best_round, state.best_weights = k, state.weights
            state.best_errors, _ = column_errors(truth, completed, held_cells, blocks, engine.n_levels)
            state.best_ratio_errors = ratio_errors(
                truth, completed, centres, held_cells, blocks, engine.n_levels
            )
        if checkpoint:
            checkpoint.save(state)
    session.restore(state.best_weights)
    session.finish()
    progress.end()
    bounds[:, engine.lines] = [[-np.inf], [np.inf]]
    errors = None
    if state.best_errors is not None and held_cells.any():
        baselines, n = column_errors(truth, centres, held_cells, blocks, engine.n_levels)
        errors = ColumnErrors(np.unique(blocks), n, state.best_errors, baselines, state.best_ratio_errors)
    return EMResult(engine, bounds, state.trace, state.best_round, errors)


def impute(
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    fitted: EMResult,
    *,
    seed: int,
    estimate: str = "mean",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Complete rows, old or new, by one E-step with the fitted engine: nothing is fitted again.

    With ``overwrite`` the holes of x itself are filled.

    Shape: x, missing [n, d] -> [n, d].
    """
    progress, seed = progress or Progress(), derive_seed(seed, "e-step")
    completed = x if overwrite else x.copy()
    rows = np.flatnonzero(missing.any(axis=1))
    at_once = len(rows) <= CHUNK  # the engine then tells how far it is
    progress.begin("imputing", len(rows))
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        holes = missing[chunk]
        x_obs = np.where(holes, np.float32(0), x[chunk])
        if fitted.falls_back:
            expected = np.zeros_like(x_obs)  # the means of standardised columns
        else:
            heard = progress if at_once else Progress()
            expected = fitted.engine.impute(x_obs, holes, fitted.bounds, seed, estimate, heard)
        # Observed cells are written back last.
        completed[chunk] = np.where(holes, np.clip(expected, *fitted.bounds), x[chunk])
        progress.advance(0 if at_once and not fitted.falls_back else len(chunk))
    progress.end()
    return completed


def draw(
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    fitted: EMResult,
    n_draws: int,
    *,
    seed: int,
    first: int = 0,
    vary: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Draw the rows that have holes, block by block, n_draws times each, from draw number first on.

    Equal rows get draws of their own, so that their uncertainty is not counted once. With ``vary``, draws are
    of models that the table might have led to as well, where the engine knows of such.

    Shape: x, missing [n, d] -> (row numbers [r], draws [n_draws, r, d]).
    """
    progress = progress or Progress()
    rows = np.flatnonzero(missing.any(axis=1))
    holes = missing[rows]
    x_obs = np.where(holes, np.float32(0), x[rows])
    if fitted.resampled:
        blocks = _draw_in_turn(fitted.resampled, x_obs, holes, range(first, first + n_draws), seed, progress)
    else:
        own = derive_seed(seed, "draws")
        blocks = fitted.engine.draw(x_obs, holes, n_draws, own, progress, first=first, vary=vary)
    for part, drawn in blocks:
        yield rows[part], np.where(holes[part], np.clip(drawn, *fitted.bounds), x_obs[part])
    progress.end()


def _draw_in_turn(
    engines: tuple[Engine, ...],
    x_obs: NDArray[np.float32],
    holes: NDArray[np.bool_],
    draws: range,
    seed: int,
    progress: Progress,
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Let engine d mod B make draw d, its own number d div B, so that fewer draws are the first of more."""
    B = len(engines)
    drawn = np.empty((len(draws), *x_obs.shape), dtype=np.float32)
    for b, engine in enumerate(engines):
        own, mine = derive_seed(seed, "draws", b), [d for d in draws if d % B == b]
        if mine:
            start = mine[0] - draws.start
            for part, values in engine.draw(x_obs, holes, len(mine), own, progress, first=mine[0] // B):
                drawn[start::B, part] = values
    yield slice(0, len(x_obs)), drawn


def observed_range(x: NDArray[np.float32], missing: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Give the smallest and largest observed value of each column.

    NOTE[paper]: imputed values are kept inside, in EM too, and each draw before draws are averaged. A network
    asked far outside its data can answer with anything: one such draw moves its mean, and one such row spoils
    the next M-step (log: RMSE 5.3 on Shoppers without).

    Shape: x, missing [n, d] -> [2, d].
    """
    low = np.min(x, axis=0, initial=np.inf, where=~missing)
    high = np.max(x, axis=0, initial=-np.inf, where=~missing)
    return np.where(np.isfinite([low, high]), [low, high], 0).astype(np.float32)


def _finished(state: EMState, k: int, session: Session, patience: int, deadline: Deadline) -> bool:
    if not state.trace:
        return False
    if state.best_round and k - 1 - state.best_round >= patience:
        logger.info("EM stops: no better score on held-out cells for %d rounds", patience)
        return True
    last = state.trace[-1]
    needed = 1.1 * last.e_seconds + 0.3 * last.m_seconds + 1.2 * session.seconds_to_finish(last)
    if deadline.remaining < needed:
        logger.info("EM stops: the time budget leaves no room for round %d", k)
        return True
    return False


def _rms(values: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0

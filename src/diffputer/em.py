"""DiffPuter's algorithm on one page: expectation-maximisation with a diffusion model.

Given the observed cells, repeat for k = 1, ..., K:

    M-step  theta_k  = fit the denoiser to the completed table x^(k-1)            (diffusion/training.py)
    E-step  x^(k)    = E[x_mis | x_obs, theta_k], the mean of N conditional draws (diffusion/sampling.py)

starting from column means, x^(0)_mis = 0. Some rows are held out: no M-step trains on them, and each stops
when its loss on them stops falling; some of their observed cells are hidden, and EM stops when the
imputation of those cells stops improving.

NOTE[paper]: the paper trains each M-step "until convergence" and fixes K. Trained that long, the network
memorises its own last imputations and EM stalls; docs/dev/deviations.md has the measurements.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .diffusion.denoiser import Denoiser
from .diffusion.sampling import Sampler
from .diffusion.training import Trainer
from .runtime.devices import Deadline
from .runtime.progress import Progress
from .runtime.seeding import derive_seed, row_keys
from .settings import PaperSettings

logger = logging.getLogger("diffputer")

#: Fewest and most rows held out; small tables keep at least nine tenths of their rows.
HELD_OUT_ROWS = (20, 2_000)
#: Share of the observed cells of held-out rows that is hidden, to be imputed and scored.
HELD_OUT_CELLS = 0.25
#: Of the time that is left, the share that one M-step or one E-step may take under a time budget.
MSTEP_SHARE, ESTEP_SHARE = 0.45, 0.3


@dataclass(frozen=True)
class EMRound:
    """One line of the trace; errors and changes are in standard deviations of the columns."""

    round: int
    steps: int
    loss: float
    held_out_loss: float
    held_out_error: float
    """Root mean squared error of the imputed held-out cells."""
    baseline_error: float
    """The same for column means (and level frequencies)."""
    change: float
    """Root mean squared change of the imputed cells since the last round."""
    m_seconds: float
    e_seconds: float


@dataclass
class EMState:
    """All that EM carries from one round to the next; what a checkpoint holds."""

    trace: list[EMRound]
    completed: NDArray[np.float32]
    best_completed: NDArray[np.float32]
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    best_round: int = 0


@dataclass(frozen=True)
class EMResult:
    """A fitted denoiser, the completed training table and how it came about."""

    denoiser: Denoiser
    settings: PaperSettings
    completed: NDArray[np.float32]
    trace: list[EMRound] = field(default_factory=list)
    best_round: int = 1


class Checkpoint(Protocol):
    """Where EM keeps its state after each round."""

    def load(self) -> EMState | None:
        """Give the last saved state, or None."""

    def save(self, state: EMState) -> None:
        """Replace the saved state."""


def e_step_keys(x: NDArray[np.float32], missing: NDArray[np.bool_], seed: int) -> NDArray[np.int64]:
    """Give the noise keys under which rows are imputed, in the fit and in transform alike.

    Shape: x, missing [n, d] -> [n].
    """
    return row_keys(x, missing, derive_seed(seed, "e-step"))


def fit_em(
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    settings: PaperSettings,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> EMResult:
    """Fit the denoiser to an incomplete table and complete it.

    Shape: x [n, d] standardised, missing [n, d], blocks [d] (which column each encoded column is part of).
    """
    deadline, progress = deadline or Deadline(), progress or Progress()
    held_rows, held_cells = choose_held_out(missing, blocks, settings.held_out, seed)
    m = missing | held_cells
    x_obs = np.where(m, np.float32(0), x)
    keys = e_step_keys(x_obs, m, seed)

    denoiser = Denoiser(x.shape[1], settings.hidden_width, settings.sigma_data).to(device)
    train_rows = np.setdiff1d(np.arange(len(x)), held_rows)
    trainer = Trainer(denoiser, len(train_rows), settings, dtype)
    sampler = Sampler(trainer.averaged, settings, dtype)
    baseline = _cell_error(x, x_obs, held_cells, blocks)

    state = (checkpoint.load() if checkpoint else None) or EMState([], x_obs, x_obs, {}, {})
    if state.weights:
        _restore(trainer, state.weights)
        logger.info("resumed after EM round %d", len(state.trace))
    K = settings.em_rounds if m.any() else 1
    for k in range(len(state.trace) + 1, K + 1):
        if _finished(state, k, settings, deadline):
            break
        # M-step: theta_k = argmax p(x^(k-1) | theta)
        scaled = torch.from_numpy(state.completed * np.float32(settings.sigma_data)).to(device)
        progress.begin(f"EM round {k}/{K}  M-step", settings.max_steps)
        m_step = trainer.fit(
            scaled[torch.from_numpy(train_rows).to(device)],
            held_out=scaled[torch.from_numpy(held_rows).to(device)],
            seed=derive_seed(seed, "m-step", k),
            fresh=settings.network_per_round == "fresh" or k == 1,
            deadline=deadline.share(MSTEP_SHARE),
            progress=progress,
        )
        sampler.refresh()

        # E-step: x^(k) = E[x_mis | x_obs, theta_k]
        started = time.perf_counter()
        sampler = _fit_into(deadline, sampler, x_obs, m, keys)
        progress.begin(f"EM round {k}/{K}  E-step", _count_passes(sampler, m))
        completed = sampler.mean(x_obs, m, keys, progress=progress)
        change = _rms((completed - state.completed)[m])
        error = _cell_error(x, completed, held_cells, blocks)
        state.trace.append(
            EMRound(
                k, m_step.steps, m_step.loss, m_step.held_out_loss, error, baseline, change,
                m_step.seconds, time.perf_counter() - started,
            )
        )  # fmt: skip
        logger.info("EM round %d: %s", k, state.trace[-1])
        state.completed, state.weights = completed, _weights(trainer)
        if not held_cells.any() or error <= min(line.held_out_error for line in state.trace):
            state.best_round, state.best_completed, state.best_weights = k, completed, state.weights
        if checkpoint:
            checkpoint.save(state)
    _restore(trainer, state.best_weights)
    sampler.refresh()

    # The hidden cells are known after all: impute the held-out rows again, with all that is observed.
    final = state.best_completed
    rows = held_rows[missing[held_rows].any(axis=1)]
    x_true = np.where(missing, np.float32(0), x)
    progress.begin("last E-step", _count_passes(sampler, missing[rows]))
    final = final.copy()
    final[rows] = sampler.mean(
        x_true[rows], missing[rows], e_step_keys(x_true[rows], missing[rows], seed), progress=progress
    )
    progress.end()
    final = np.where(missing, final, x)  # observed cells are written back last
    return EMResult(trainer.averaged, sampler.settings, final, state.trace, state.best_round)


def choose_held_out(
    missing: NDArray[np.bool_], blocks: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Choose rows to hold out of every M-step, and observed cells of them to hide.

    Cells are hidden whole: all encoded columns of a category together. A complete table hides none, as
    it has nothing to impute.

    Shape: missing [n, d], blocks [d] -> rows [v], cells [n, d].
    """
    n = len(missing)
    rng = np.random.default_rng(derive_seed(seed, "held-out") & ((1 << 63) - 1))
    cells = np.zeros_like(missing)
    n_rows = min(n // 10, int(np.clip(round(share * n), *HELD_OUT_ROWS))) if share > 0 else 0
    rows = np.sort(rng.choice(n, n_rows, replace=False))
    if missing.any():
        columns, first = np.unique(blocks, return_index=True)
        hidden = rng.random((n_rows, len(columns))) < HELD_OUT_CELLS
        cells[rows] = hidden[:, np.searchsorted(columns, blocks)] & ~missing[rows]
    return rows, cells


def _finished(state: EMState, k: int, settings: PaperSettings, deadline: Deadline) -> bool:
    if not state.trace:
        return False
    if state.best_round and k - 1 - state.best_round >= settings.em_patience:
        logger.info("EM stops: no better score on held-out cells for %d rounds", settings.em_patience)
        return True
    last = state.trace[-1]
    if deadline.remaining < 2.2 * last.e_seconds + 0.3 * last.m_seconds:
        logger.info("EM stops: the time budget leaves no room for round %d", k)
        return True
    return False


def _fit_into(
    deadline: Deadline, sampler: Sampler, x: NDArray[np.float32], m: NDArray[np.bool_], keys: NDArray[np.int64]
) -> Sampler:
    """Make the E-step cheaper until it fits into its share of a time budget."""
    if deadline.at is None or not m.any():
        return sampler
    allowed = max(0.0, ESTEP_SHARE * deadline.remaining)
    rows = np.flatnonzero(m.any(axis=1))
    a_pass = sampler.seconds_per_pass(x[rows], m[rows], keys[rows])
    settings = sampler.settings
    while a_pass * sampler.count_passes(len(rows), settings.n_draws) > allowed:
        for name, least in (("resampling_rounds", 4), ("n_draws", 5), ("sampling_steps", 20),
                            ("resampling_rounds", 1), ("n_draws", 1), ("sampling_steps", 5)):  # fmt: skip
            value = getattr(settings, name)
            if value > least:
                settings = dataclasses.replace(settings, **{name: max(least, int(value / 1.5))})
                break
        else:
            break
        sampler.use_settings(settings)
    return sampler


def _count_passes(sampler: Sampler, missing: NDArray[np.bool_]) -> int:
    return sampler.count_passes(int(missing.any(axis=1).sum()), sampler.settings.n_draws)


def _rms(values: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0


def _cell_error(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
) -> float:
    """Give the root mean squared error over cells; a one-hot cell counts once, as the mean of its block."""
    if not cells.any():
        return float("nan")
    weights = 1.0 / np.unique(blocks, return_counts=True)[1][np.searchsorted(np.unique(blocks), blocks)]
    squares = np.square(completed - truth, dtype=np.float64) * cells * weights
    return float(np.sqrt(squares.sum() / (cells * weights).sum()))


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    pairs = {"denoiser": trainer.denoiser, "averaged": trainer.averaged}
    return {
        f"{name}.{key}": value.detach().clone()
        for name, module in pairs.items()
        for key, value in module.state_dict().items()
    }


def _restore(trainer: Trainer, weights: dict[str, Tensor]) -> None:
    for name, module in (("denoiser", trainer.denoiser), ("averaged", trainer.averaged)):
        prefix = f"{name}."
        module.load_state_dict({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})

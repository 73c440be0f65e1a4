"""DiffPuter's algorithm on one page: expectation-maximisation with a diffusion model.

Given the observed cells, repeat for k = 1, ..., K:

    M-step  theta_k  = fit the denoiser to the completed table x^(k-1)            (diffusion/training.py)
    E-step  x^(k)    = E[x_mis | x_obs, theta_k], the mean of N conditional draws (diffusion/sampling.py)

starting from column means, x^(0)_mis = 0. Some rows are held out: no M-step trains on them, and each stops
when its loss on them stops falling. Some observed cells, spread over all rows, are hidden: EM stops when
their imputation stops improving, and the last E-step has them back.

NOTE[paper]: the paper trains each M-step "until convergence" and fixes K. Trained that long, the network
memorises its own last imputations and EM stalls; docs/dev/deviations.md has the measurements.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .diffusion.denoiser import Denoiser
from .diffusion.sampling import Sampler
from .diffusion.training import Trainer
from .errors import SettingError, warn_about_data
from .runtime.devices import Deadline
from .runtime.progress import Progress
from .runtime.seeding import derive_seed, distinct_keys, row_keys
from .settings import PaperSettings

logger = logging.getLogger("diffputer")

#: Fewest and most rows held out; small tables keep at least nine tenths of their rows.
HELD_OUT_ROWS = (20, 2_000)
#: Most observed cells that are hidden, to be imputed and scored.
HELD_OUT_CELLS = 5_000
#: Of the time that is left, the share that one M-step or one E-step may take under a time budget.
MSTEP_SHARE, ESTEP_SHARE = 0.4, 0.3


@dataclass(frozen=True)
class EMRound:
    """One line of the trace; errors and changes are in standard deviations of the columns."""

    round: int
    steps: int
    """Training steps after which the held-out loss was lowest: those of the weights that are used."""
    loss: float
    held_out_loss: float
    held_out_error: float
    """Mean absolute error of the imputed held-out cells."""
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
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    best_round: int = 0


@dataclass(frozen=True)
class EMResult:
    """A fitted denoiser and all that an E-step with it needs."""

    denoiser: Denoiser
    settings: PaperSettings
    bounds: NDArray[np.float32]
    """Smallest and largest observed value of each encoded column. Shape: [2, d]."""
    trace: list[EMRound] = field(default_factory=list)
    best_round: int = 1


class Checkpoint(Protocol):
    """Where EM keeps its state after each round."""

    def load(self) -> EMState | None:
        """Give the last saved state, or None."""

    def save(self, state: EMState) -> None:
        """Replace the saved state."""


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
    """Fit the denoiser to an incomplete table.

    Shape: x [n, d] standardised, missing [n, d], blocks [d] (which column each encoded column is part of).
    """
    deadline, progress = deadline or Deadline(), progress or Progress()
    held_rows, held_cells = choose_held_out(missing, blocks, settings.held_out, seed)
    m = missing | held_cells
    x_obs = np.where(m, np.float32(0), x)
    bounds = observed_range(x, missing)

    denoiser = Denoiser(x.shape[1], settings.hidden_width, settings.sigma_data).to(device)
    train_rows = np.setdiff1d(np.arange(len(x)), held_rows)
    trainer = Trainer(denoiser, len(train_rows), settings, dtype)
    sampler = Sampler(trainer.averaged, settings, dtype)
    baseline = _cell_error(x, x_obs, held_cells, blocks)

    state = (checkpoint.load() if checkpoint else None) or EMState([], x_obs, {}, {})
    if state.weights:
        _restore(trainer, state.weights)
        logger.info("resumed after EM round %d", len(state.trace))
    K = settings.em_rounds if m.any() else 1
    for k in range(len(state.trace) + 1, K + 1):
        if _finished(state, k, sampler.settings, deadline):
            break
        # M-step: theta_k = argmax p(x^(k-1) | theta)
        scaled = torch.from_numpy(state.completed * np.float32(settings.sigma_data)).to(device)
        progress.begin(f"EM round {k}/{K}  M-step", trainer.max_steps)
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
        keys = row_keys(x_obs, m, derive_seed(seed, "e-step", k))
        _fit_into(deadline, sampler, x_obs, m, keys)
        progress.begin(f"EM round {k}/{K}  E-step", _count_passes(sampler, m, sampler.settings.em_draws))
        expected = sampler.mean(x_obs, m, keys, sampler.settings.em_draws, progress)
        if not np.isfinite(expected).all():
            raise SettingError(
                f"Training must converge, however: in EM round {k} it gave values that are not finite. "
                f"Use a smaller learning_rate than {settings.learning_rate:g}, or precision='float32'."
            )
        completed = np.where(m, np.clip(expected, *bounds), x_obs)
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
            state.best_round, state.best_weights = k, state.weights
        if checkpoint:
            checkpoint.save(state)
    _restore(trainer, state.best_weights)
    progress.end()
    return EMResult(trainer.averaged, sampler.settings, bounds, state.trace, state.best_round)


def impute(
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    fitted: EMResult,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Complete rows, old or new, by one E-step with the fitted denoiser: nothing is fitted again.

    Shape: x, missing [n, d] -> [n, d].
    """
    progress = progress or Progress()
    sampler = Sampler(fitted.denoiser, fitted.settings, dtype)
    x_obs = np.where(missing, np.float32(0), x)
    keys = row_keys(x_obs, missing, derive_seed(seed, "e-step"))
    progress.begin("imputing", _count_passes(sampler, missing, fitted.settings.n_draws))
    expected = sampler.mean(x_obs, missing, keys, fitted.settings.n_draws, progress)
    progress.end()
    return np.where(missing, np.clip(expected, *fitted.bounds), x)  # observed cells are written back last


def draw(
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    fitted: EMResult,
    n_draws: int,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Draw the rows that have holes, block by block, n_draws times each.

    Equal rows get draws of their own, so that their uncertainty is not counted once.

    Shape: x, missing [n, d] -> (row numbers [r], draws [n_draws, r, d]).
    """
    progress = progress or Progress()
    sampler = Sampler(fitted.denoiser, fitted.settings, dtype)
    rows = np.flatnonzero(missing.any(axis=1))
    holes, x_obs = missing[rows], np.where(missing, np.float32(0), x)[rows]
    keys = distinct_keys(row_keys(x_obs, holes, derive_seed(seed, "draws")))
    progress.begin("drawing", _count_passes(sampler, missing, n_draws))
    for part, draws in sampler.draw(x_obs, holes, keys, n_draws, progress):
        drawn = np.clip(draws.permute(1, 0, 2).cpu().numpy(), *fitted.bounds)
        yield rows[part], np.where(holes[part], drawn, x_obs[part])
    progress.end()


def warn_if_useless(result: EMResult) -> None:
    """Warn where the held-out cells say that column means would have done as well."""
    best = result.trace[result.best_round - 1]
    if best.held_out_error >= best.baseline_error:
        warn_about_data(
            "Imputed values are no better than column means on held-out cells (error "
            f"{best.held_out_error:.2f} against {best.baseline_error:.2f} standard deviations). Columns may "
            "tell nothing about each other, or the fit was too short: try a larger time_budget or max_steps."
        )


def observed_range(x: NDArray[np.float32], missing: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Give the smallest and largest observed value of each column.

    NOTE[paper]: imputed values are kept inside, in EM too. A network asked far outside its data can
    answer with anything, and one such row spoils the next M-step (log: RMSE 5.3 on Shoppers without).

    Shape: x, missing [n, d] -> [2, d].
    """
    low = np.where(missing, np.inf, x).min(axis=0, initial=np.inf)
    high = np.where(missing, -np.inf, x).max(axis=0, initial=-np.inf)
    return np.where(np.isfinite([low, high]), [low, high], 0).astype(np.float32)


def choose_held_out(
    missing: NDArray[np.bool_], blocks: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Choose rows to hold out of every M-step, and observed cells to hide from EM.

    Cells are hidden whole: all encoded columns of a category together. A complete table hides none, as
    it has nothing to impute.

    Shape: missing [n, d], blocks [d] -> rows [v], cells [n, d].
    """
    n = len(missing)
    rng = np.random.default_rng(derive_seed(seed, "held-out") & ((1 << 63) - 1))
    n_rows = min(n // 10, int(np.clip(round(share * n), *HELD_OUT_ROWS))) if share > 0 else 0
    rows = np.sort(rng.choice(n, n_rows, replace=False))
    columns, first = np.unique(blocks, return_index=True)
    observed = ~missing[:, first]
    cells = np.zeros_like(observed)
    if missing.any():
        places = np.flatnonzero(observed)
        n_cells = min(int(share * len(places)), HELD_OUT_CELLS)
        cells.flat[rng.choice(places, n_cells, replace=False)] = True
    return rows, cells[:, np.searchsorted(columns, blocks)]


def _finished(state: EMState, k: int, settings: PaperSettings, deadline: Deadline) -> bool:
    if not state.trace:
        return False
    if state.best_round and k - 1 - state.best_round >= settings.em_patience:
        logger.info("EM stops: no better score on held-out cells for %d rounds", settings.em_patience)
        return True
    last = state.trace[-1]
    final = last.e_seconds * settings.n_draws / settings.em_draws
    if deadline.remaining < 1.1 * last.e_seconds + 0.3 * last.m_seconds + 1.2 * final:
        logger.info("EM stops: the time budget leaves no room for round %d", k)
        return True
    return False


#: In which order an E-step is made cheaper, each down to a least value.
_CHEAPER = (
    ("resampling_rounds", 4), ("n_draws", 4), ("sampling_steps", 12), ("em_draws", 2),
    ("resampling_rounds", 1), ("n_draws", 1), ("em_draws", 1), ("sampling_steps", 5),
)  # fmt: skip


def _fit_into(
    deadline: Deadline,
    sampler: Sampler,
    x: NDArray[np.float32],
    m: NDArray[np.bool_],
    keys: NDArray[np.int64],
) -> None:
    """Make the E-step cheaper until two of it, one inside EM and the last, fit into a time budget."""
    if deadline.at is None or not m.any():
        return
    allowed = max(0.0, ESTEP_SHARE * deadline.remaining)
    rows = np.flatnonzero(m.any(axis=1))
    seconds = sampler.seconds_per_row_evaluation(x[rows], m[rows], keys[rows])
    settings = sampler.settings

    def cost(s: PaperSettings) -> float:
        return seconds * len(rows) * s.evaluations * (s.em_draws + s.n_draws) / 2

    while cost(settings) > allowed:
        for name, least in _CHEAPER:
            if (value := getattr(settings, name)) > least:
                less = max(least, value * 2 // 3)
                if name.endswith("draws") and less > 1:
                    less -= less % 2  # draws come in pairs
                changes: dict[str, Any] = {name: less}
                settings = dataclasses.replace(settings, **changes)
                break
        else:
            break
    if settings != sampler.settings:
        logger.info("E-step reduced to fit the time budget: %s", settings)
        sampler.use_settings(settings)


def _count_passes(sampler: Sampler, missing: NDArray[np.bool_], n_draws: int) -> int:
    return sampler.count_passes(int(missing.any(axis=1).sum()), n_draws)


def _rms(values: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0


def _cell_error(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
) -> float:
    """Give the mean absolute error over cells; one of several encoded columns counts once, as their mean."""
    if not cells.any():
        return float("nan")
    columns, counts = np.unique(blocks, return_counts=True)
    weights = cells / counts[np.searchsorted(columns, blocks)]
    return float((np.abs(completed - truth) * weights).sum() / weights.sum())


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
        module.load_state_dict(
            {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        )

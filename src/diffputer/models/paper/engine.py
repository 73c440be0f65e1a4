"""The paper's engine: score matching on the completed table, expectations from many merged draws."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...held_out import HeldOut
from ...nn.journal import Journal
from ...nn.loading import load_exactly
from ...nn.trainer import MStep
from ...runtime.devices import Deadline
from ...runtime.progress import Progress
from ...runtime.seeding import distinct_keys, row_keys
from ...settings import PaperSettings
from ...trace import EMRound
from .denoiser import Denoiser
from .matching import ScoreMatching, make_trainer
from .sampling import Sampler

logger = logging.getLogger("diffputer")

#: Of the time that is left, the share that one M-step or one E-step may take under a time budget.
MSTEP_SHARE, ESTEP_SHARE = 0.4, 0.3
#: In which order an E-step is made cheaper, each down to a least value.
_CHEAPER = (
    ("resampling_rounds", 4), ("n_draws", 4), ("sampling_steps", 12), ("em_draws", 2),
    ("resampling_rounds", 1), ("n_draws", 1), ("em_draws", 1), ("sampling_steps", 5),
)  # fmt: skip


class PaperEngine:
    """DiffPuter as published (Zhang, Fang, Wu and Yu, ICLR 2025)."""

    name = "paper"
    held_out_cells = (0, 5_000)
    holds_out_always = False
    shrinks = False

    def __init__(
        self,
        n_levels: NDArray[np.int64],
        settings: PaperSettings,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.n_levels, self.settings = n_levels, settings
        self.lines = np.zeros(len(n_levels), dtype=bool)
        self.device, self.dtype = torch.device(device), dtype
        self.model = self.make_denoiser().requires_grad_(False)

    def make_denoiser(self) -> Denoiser:
        """A network of these settings, yet to be fitted."""
        s = self.settings
        return Denoiser(len(self.n_levels), s.hidden_width, s.sigma_data).to(self.device)

    def use(self, device: torch.device | str, dtype: torch.dtype) -> PaperEngine:
        """Give the same engine on another device, or in another precision."""
        other = PaperEngine(self.n_levels, self.settings, device, dtype)
        other.model.load_state_dict(self.model.state_dict())
        return other

    def begin(
        self,
        x: NDArray[np.float32],
        m: NDArray[np.bool_],
        missing: NDArray[np.bool_],
        held: HeldOut,
        seed: int,
    ) -> PaperSession:
        """Start to fit a table: m are all cells that must not be seen, missing those not observed."""
        return PaperSession(self, len(x), held.rows)

    def impute(
        self,
        x: NDArray[np.float32],
        missing: NDArray[np.bool_],
        bounds: NDArray[np.float32],
        seed: int,
        estimate: str,
        progress: Progress,
    ) -> NDArray[np.float32]:
        """Complete rows by the mean or the median of N draws."""
        sampler, N = Sampler(self.model, self.settings, self.dtype), self.settings.n_draws
        progress.begin("imputing", _count_passes(sampler, missing, N))
        keys = row_keys(x, missing, seed)
        if estimate == "median":
            return sampler.mean(x, missing, keys, N, progress, bounds=bounds, centre=_median)
        return sampler.mean(x, missing, keys, N, progress, bounds=bounds)

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
        """Draw rows with holes; of what else might have been fitted this engine knows nothing."""
        sampler = Sampler(self.model, self.settings, self.dtype)
        keys = distinct_keys(row_keys(x, missing, seed))
        progress.begin("drawing", _count_passes(sampler, missing, n_draws))
        for part, draws in sampler.draw(x, missing, keys, n_draws, progress, first=first):
            yield part, draws.permute(1, 0, 2).cpu().numpy()


class PaperSession:
    """Fits the denoiser of an engine to one table, which E-steps complete whole."""

    def __init__(self, engine: PaperEngine, n_rows: int, held_rows: NDArray[np.int64]) -> None:
        self.engine = engine
        self.rows = np.arange(n_rows)
        # NOTE[paper]: the paper trains on all rows. These tell when an M-step ends; they are completed too.
        self._held_rows = held_rows
        self._train_rows = np.setdiff1d(self.rows, held_rows)
        self._trainer = make_trainer(
            engine.make_denoiser(), len(self._train_rows), engine.settings, engine.dtype
        )
        assert isinstance(self._trainer.averaged, Denoiser)
        engine.model = self._trainer.averaged
        self._sampler = Sampler(engine.model, engine.settings, engine.dtype)

    def m_step(
        self,
        k: int,
        completed: NDArray[np.float32],
        seed: int,
        deadline: Deadline,
        progress: Progress,
        journal: Journal,
    ) -> MStep:
        """Fit the denoiser to the completed table (Algorithm 1)."""
        s = self.engine.settings
        scaled = torch.from_numpy(completed * np.float32(s.sigma_data)).to(self.engine.device)
        train, held = (
            torch.from_numpy(rows).to(self.engine.device) for rows in (self._train_rows, self._held_rows)
        )
        objective = self._trainer.objective
        assert isinstance(objective, ScoreMatching)
        objective.use_table(scaled[train], scaled[held])
        progress.begin(f"EM round {k}/{s.em_rounds}  M-step", self._trainer.plan.max_steps)
        m_step = self._trainer.fit(
            seed=seed,
            fresh=s.network_per_round == "fresh" or k == 1,
            deadline=deadline.share(MSTEP_SHARE),
            progress=progress,
            journal=journal,
        )
        self._sampler.refresh()
        return m_step

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
        """Average a few draws of every row (Algorithm 2)."""
        sampler = self._sampler
        keys = row_keys(x_obs, m, seed)
        self._fit_into(deadline, x_obs, m, keys)
        title = f"EM round {k}/{self.engine.settings.em_rounds}  E-step"
        progress.begin(title, _count_passes(sampler, m, self.engine.settings.em_draws))
        return sampler.mean(x_obs, m, keys, self.engine.settings.em_draws, progress, bounds=bounds)

    def finish(self) -> None:
        """Nothing is left to do."""

    def score(self, line: EMRound) -> float:
        """Say how good a round was."""
        return line.held_out_error

    def seconds_to_finish(self, last: EMRound) -> float:
        """Estimate how long the last E-step will take."""
        return last.e_seconds * self.engine.settings.n_draws / self.engine.settings.em_draws

    def weights(self) -> dict[str, Tensor]:
        """Give copies of all weights, to go on from."""
        pairs = {"network": self._trainer.module, "model": self.engine.model}
        return {
            f"{name}.{key}": value.detach().clone()
            for name, module in pairs.items()
            for key, value in module.state_dict().items()
        }

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take such weights."""
        for name, module in (("network", self._trainer.module), ("model", self.engine.model)):
            prefix = f"{name}."
            load_exactly(
                module, {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
            )

    def _fit_into(
        self,
        deadline: Deadline,
        x: NDArray[np.float32],
        m: NDArray[np.bool_],
        keys: NDArray[np.int64],
    ) -> None:
        """Make the E-step cheaper until two of it, one inside EM and the last, fit into a time budget."""
        if deadline.at is None or not m.any():
            return
        allowed = max(0.0, ESTEP_SHARE * deadline.remaining)
        rows = np.flatnonzero(m.any(axis=1))
        seconds = self._sampler.seconds_per_row_evaluation(x[rows], m[rows], keys[rows])
        settings = self.engine.settings

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
        if settings != self.engine.settings:
            logger.info("E-step reduced to fit the time budget: %s", settings)
            self._sampler.use_settings(settings)
            self.engine.settings = settings


def _median(draws: Tensor) -> Tensor:
    """Give the middle of the draws, the mean of the two middle ones. Shape: [r, N, d] -> [r, d]."""
    return torch.quantile(draws, 0.5, dim=1)


def _count_passes(sampler: Sampler, missing: NDArray[np.bool_], n_draws: int) -> int:
    return sampler.count_passes(int(missing.any(axis=1).sum()), n_draws)

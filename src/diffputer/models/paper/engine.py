"""The paper's engine: score matching on the completed table, expectations from many merged draws."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

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
        """The same engine on another device, or in another precision."""
        other = PaperEngine(self.n_levels, self.settings, device, dtype)
        other.model.load_state_dict(self.model.state_dict())
        return other

    def begin(self, x: Floats, m: Mask, missing: Mask, held: HeldOut, seed: int) -> PaperSession:
        """Start to fit a table: m are all cells that must not be seen, missing those not observed."""
        return PaperSession(self, len(x), held.rows)

    def impute(
        self, x: Floats, missing: Mask, bounds: Floats, seed: int, estimate: str, progress: Progress
    ) -> Floats:
        """Complete rows by the mean or the median of N draws."""
        sampler, N = Sampler(self.model, self.settings, self.dtype), self.settings.n_draws
        keys = row_keys(x, missing, seed)
        return sampler.mean(x, missing, keys, N, progress, bounds=bounds, median=estimate == "median")

    def draw(
        self, x: Floats, missing: Mask, n_draws: int, seed: int, progress: Progress,
        *, first: int = 0, vary: bool = False,
    ) -> Iterator[tuple[slice, Floats]]:  # fmt: skip
        """Draw incomplete rows; this engine does not know what else might have been fitted."""
        sampler = Sampler(self.model, self.settings, self.dtype)
        keys = distinct_keys(row_keys(x, missing, seed))
        for part, draws in sampler.draw(x, missing, keys, n_draws, progress, first=first):
            yield part, draws.permute(1, 0, 2).cpu().numpy()


class PaperSession:
    """Fits the denoiser of an engine to one table, which E-steps complete whole."""

    def __init__(self, engine: PaperEngine, n_rows: int, held_rows: NDArray[np.int64]) -> None:
        self.engine, s = engine, engine.settings
        self.rows = np.arange(n_rows)
        # NOTE[paper]: the paper trains on all rows. These tell when an M-step ends; they are completed too.
        self._held_rows = held_rows
        self._train_rows = np.setdiff1d(self.rows, held_rows)
        self._trainer = make_trainer(engine.make_denoiser(), len(self._train_rows), s, engine.dtype)
        assert isinstance(self._trainer.averaged, Denoiser)
        engine.model = self._trainer.averaged

    def m_step(
        self, k: int, completed: Floats, seed: int, deadline: Deadline, progress: Progress, journal: Journal
    ) -> MStep:
        """Fit the denoiser to the completed table (Algorithm 1)."""
        s, objective = self.engine.settings, self._trainer.objective
        assert isinstance(objective, ScoreMatching)
        scaled = torch.from_numpy(completed * np.float32(s.sigma_data)).to(self.engine.device)
        objective.use_table(scaled[self._train_rows], scaled[self._held_rows])
        progress.begin(f"EM round {k}/{s.em_rounds}  M-step", self._trainer.plan.max_steps)
        return self._trainer.fit(
            seed=seed,
            fresh=s.network_per_round == "fresh" or k == 1,
            deadline=deadline.share(MSTEP_SHARE),
            progress=progress,
            journal=journal,
        )

    def e_step(
        self,
        k: int,
        x_obs: Floats,
        m: Mask,
        bounds: Floats,
        seed: int,
        deadline: Deadline,
        progress: Progress,
    ) -> Floats:
        """Average a few draws of every row (Algorithm 2)."""
        keys = row_keys(x_obs, m, seed)
        self._fit_into(deadline, x_obs, m, keys)
        s = self.engine.settings
        sampler = Sampler(self.engine.model, s, self.engine.dtype)
        task = f"EM round {k}/{s.em_rounds}  E-step"
        return sampler.mean(x_obs, m, keys, s.em_draws, progress, task=task, bounds=bounds)

    def finish(self) -> None:
        """Nothing is left to do."""

    def score(self, line: EMRound) -> float:
        """How good a round was."""
        return line.held_out_error

    def seconds_to_finish(self, last: EMRound) -> float:
        """Estimate how long the last E-step will take."""
        return last.e_seconds * self.engine.settings.n_draws / self.engine.settings.em_draws

    @property
    def _both(self) -> nn.ModuleDict:
        """The network that is trained and the averaged one."""
        return nn.ModuleDict({"network": self._trainer.module, "model": self.engine.model})

    def weights(self) -> dict[str, Tensor]:
        """Copies of all weights, to go on from."""
        return {name: value.detach().clone() for name, value in self._both.state_dict().items()}

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take such weights."""
        load_exactly(self._both, weights)

    def _fit_into(self, deadline: Deadline, x: Floats, m: Mask, keys: NDArray[np.int64]) -> None:
        """Make the E-step cheaper until two of it, one inside EM and the last, fit into a time budget."""
        if deadline.at is None or not m.any():
            return
        allowed, settings = max(0.0, ESTEP_SHARE * deadline.remaining), self.engine.settings
        quick = dataclasses.replace(settings, sampling_steps=3, resampling_rounds=2)
        sampler, rows = Sampler(self.engine.model, quick, self.engine.dtype), np.flatnonzero(m.any(axis=1))
        some = rows[: sampler.blocks(len(rows), quick.n_draws)[0]]
        for _ in range(2):  # the first run warms up
            started = time.perf_counter()
            sampler.mean(x[some], m[some], keys[some])
            seconds = (time.perf_counter() - started) * len(rows) / len(some)
        of_one = seconds / (quick.n_draws * quick.evaluations)
        while of_one * _evaluations(settings) > allowed and (less := _cheaper(settings)):
            settings = less
        if settings != self.engine.settings:
            logger.info("E-step reduced to fit the time budget: %s", settings)
            self.engine.settings = settings


def _evaluations(s: PaperSettings) -> float:
    """Evaluations of a row in an E-step, half way from one inside EM to the last."""
    return s.evaluations * (s.em_draws + s.n_draws) / 2


def _cheaper(settings: PaperSettings) -> PaperSettings | None:
    """Settings of which the first setting that is not at its least is a third smaller, if there is one."""
    for name, least in _CHEAPER:
        if (value := getattr(settings, name)) > least:
            less = max(least, value * 2 // 3)
            if name.endswith("draws") and less > 1:
                less -= less % 2  # draws come in pairs
            changes: dict[str, Any] = {name: less}
            return dataclasses.replace(settings, **changes)
    return None

"""The conditional engine: one evaluation gives the expectation, a short reverse diffusion the draws."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..diffusion.calibration import FEW_ROWS, ROWS, calibrate
from ..diffusion.conditional import ConditionalNetwork, Rows
from ..diffusion.drawing import FEWEST_ROWS
from ..diffusion.ensemble import LINEAR, Ensemble
from ..diffusion.journal import Journal
from ..diffusion.linear_fit import LinearFit, LinearParts
from ..diffusion.loading import load_exactly
from ..diffusion.marginals import Marginals, normal_points
from ..diffusion.planning import TrainingPlan
from ..diffusion.prediction import Prediction
from ..diffusion.residuals import Residuals, Width, normal_quantiles
from ..diffusion.splitting import Columns, RowSplitting, Table, Validation, blank_rows
from ..diffusion.training import MStep, Trainer, train_all
from ..errors import SettingError
from ..held_out import HeldOut
from ..runtime.devices import Deadline, few_threads, total_memory
from ..runtime.progress import Progress
from ..runtime.seeding import derive_seed, distinct_keys, draw_keys, row_keys
from ..settings import ConditionalSettings
from ..trace import EMRound
from .cells import CellDistribution
from .growing import grow_trees, work
from .sizes import with_size

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

#: Rows evaluated together. A matrix product gives a row the same bits whatever stands around it if it is
#: not tiny (CPU) or always of the same size (CUDA), so that short blocks are filled up.
BLOCK = {"cuda": 16_384, "cpu": 2_048}
SMALLEST_BLOCK = {"cuda": 16_384, "cpu": FEWEST_ROWS}
#: GPUs with less memory impute smaller blocks.
SMALL_GPU = 20 << 30
#: Of the time that is left, the share that the M-step may take; the rest is for imputing.
MSTEP_SHARE = 0.85
#: Share of that, after trees, that linear parts may take for more than a fit each.
LINEAR_SHARE = 0.25
#: Seconds left with which draws are calibrated on few rows.
SHORT_OF_TIME = 10.0
#: Points of a cell's distribution that its deviation is of, and how far out they go.
DEVIATION_POINTS = 64, 4.5
#: Steps between two looks at the held-out loss.
CHECK_EVERY = 100
#: Rows a step at least, however few the table has, and steps that every table is allowed.
SMALLEST_BATCH, ALWAYS_ALLOWED = 16, 2_000
#: Training waits for a better held-out loss no longer than half of the steps that led to the best: networks
#: that find it early, those of small tables, are past it for good.
IMPATIENCE = 0.5


class ConditionalEngine:
    """A denoiser that is trained on random splits of rows into condition and target."""

    name = "conditional"
    held_out_cells = (100, 20_000)
    holds_out_always = True
    shrinks = True

    def __init__(
        self,
        n_levels: NDArray[np.int64],
        settings: ConditionalSettings,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._columns = Columns(n_levels)
        self._device, self.dtype = torch.device(device), dtype
        if self._device.type == "mps":
            raise SettingError(
                "The conditional engine computes partly in double precision, however: device='mps' has none. "
                "Use device='cpu'."
            )
        self._memory = total_memory(self._device)
        self.n_levels, self.settings = n_levels, with_size(settings, self._columns, self._memory)
        self.lines = np.zeros(len(n_levels), dtype=bool)
        self.model = Ensemble(self._columns, self.settings).to(self._device).requires_grad_(False).eval()
        self._numeric = torch.from_numpy(self._columns.numeric).to(self._device)
        self._categorical = torch.from_numpy(self._columns.categorical).to(self._device)

    def use(self, device: torch.device | str, dtype: torch.dtype) -> ConditionalEngine:
        """Give the same engine on another device, or in another precision."""
        other = ConditionalEngine(self.n_levels, self.settings, device, dtype)
        other.model.load_state_dict(self.model.state_dict())
        return other

    @property
    def varies(self) -> bool:
        """Whether draws can carry the uncertainty of the fit."""
        return self.model.varies

    def begin(self, x: Floats, m: Mask, missing: Mask, held: HeldOut, seed: int) -> NDArray[np.int64]:
        """Take the table to be fitted.

        E-steps complete the rows with held-out cells, which tell how good a round was. The others are not
        needed: the next M-step takes draws, and imputing comes at the end.
        """
        self._x, self._m, self._missing = x, m, missing
        self._completed_rows = int(held.cells.any(axis=1).sum())
        self.model.marginals = Marginals.fit(x, m, self._columns.numeric).to(self._device)
        table = Table(x, ~m, missing, self._columns, self._device)
        self._validation = Validation(table, self.model.marginals, held.cells) if held.cells.any() else None
        self._seed = seed
        self._linear: Future[LinearFit] | None = None
        s = self.settings
        batch = max(SMALLEST_BATCH, min(s.batch_size, 8 * len(x)))
        longest = min(s.max_steps, max(ALWAYS_ALLOWED, s.max_epochs * len(x) // batch))
        max_steps = min(s.planned_steps, longest)
        plan = TrainingPlan(
            learning_rate=s.learning_rate,
            max_steps=max_steps,
            patience=s.patience,
            impatience=IMPATIENCE,
            weight_average=s.weight_average,
            weight_decay=s.weight_decay,
            decay_from=s.rate_decay_from,
            warm_up=min(100, max_steps // 4),
            gradient_limit=1.0,
            second_moment_decay=0.99,
            orthogonal=True,
            check_every=CHECK_EVERY,
            longest=longest,
        )
        self._trainers, self._objectives = [], []
        for k, averaged in enumerate(self.model.networks):
            assert isinstance(averaged, ConditionalNetwork)
            network = averaged.fresh(averaged.members, self.dtype)
            objective = RowSplitting(
                network, self.model.marginals, table, self._validation, s, batch, self.dtype
            )
            trainer = Trainer(network, network, objective, plan)
            objective.follow(trainer.averaged)
            self.model.networks[k] = trainer.averaged
            self._trainers.append(trainer)
            self._objectives.append(objective)
        return np.flatnonzero(held.cells.any(axis=1))

    def m_step(
        self, k: int, completed: Floats, seed: int, deadline: Deadline, progress: Progress, journal: Journal
    ) -> MStep:
        """Fit every network to observed cells; from the second round on to a drawn table too."""
        started = time.perf_counter()
        if k > 1:
            filled = self._x.copy()
            rows = np.flatnonzero(self._m.any(axis=1))
            holes = self._m[rows]
            x_obs = np.where(holes, np.float32(0), self._x[rows])
            for part, drawn in self.draw(x_obs, holes, 1, seed, progress):
                filled[rows[part]] = np.where(holes[part], drawn[0], x_obs[part])
            for objective, trainer in zip(self._objectives, self._trainers, strict=True):
                objective.use_filled(filled)
                trainer.forget_graph()  # a captured step does not know of the filled table
        ends = deadline.share(MSTEP_SHARE)
        growing = None
        if k == 1 and self.model.trees is not None and self._validation is not None:
            growing = grow_trees(
                self.model.trees, self._x, ~self._m, self._columns, derive_seed(seed, "trees"), ends,
                beside=self._device.type != "cpu", journal=journal,
            )  # fmt: skip
        size = max(map(self._multiplications, self._trainers))
        if k == 1 and self._validation is not None:
            with few_threads(size, self._device):
                self._fit_linear(self._validation, ends.share(LINEAR_SHARE))
        ends = ends.share(1.0)  # what trees and lines took is not the networks' time
        progress.begin(
            f"EM round {k}/{self.settings.em_rounds}  M-step",
            sum(trainer.plan.max_steps for trainer in self._trainers),
        )
        with few_threads(size, self._device):
            steps = train_all(
                [
                    trainer.train(
                        seed=derive_seed(seed, "network", number),
                        fresh=k == 1,
                        deadline=ends,
                        progress=progress,
                        journal=journal,
                        name=f"network{number}",
                    )
                    for number, trainer in enumerate(self._trainers)
                ],
                self._device,
                ends,
            )
            if growing is not None and self.model.trees is not None:
                self.model.trees.load_state_dict(growing.result())
            held_out_loss = float("nan")
            self.model.share_evenly(len(steps))
            if self._validation is not None:
                if k == 1:
                    self.model.take_linear(self._fit_linear(self._validation, deadline).result().judged)
                held_out_loss = self.model.combine(self._validation, self.dtype, n_trained=len(steps))
                n_rows = FEW_ROWS if deadline.remaining < SHORT_OF_TIME else ROWS
                calibrate(self.model, self._validation, self.settings, self.dtype, n_rows)
        return MStep(
            steps=max(step.steps for step in steps),
            loss=float(np.mean([step.loss for step in steps])),
            held_out_loss=held_out_loss,
            seconds=time.perf_counter() - started,
        )

    def finish(self) -> None:
        """Let linear parts, whose shares are known by now, have seen the held-out cells too."""
        if self._validation is not None:
            self.model.take_linear(self._fit_linear(self._validation, Deadline()).result().final)

    def _fit_linear(self, validation: Validation, deadline: Deadline) -> Future[LinearFit]:
        """Fit linear parts, if that is not done or under way: at once, or beside the work of a GPU."""
        if self._linear is None:
            parts = LinearParts(self.model, self._x, self._m, self._missing, validation, self._columns)
            beside = self._device.type != "cpu"
            self._linear = work(partial(parts.fit, self._seed, deadline), beside=beside)
        return self._linear

    def _multiplications(self, trainer: Trainer) -> int:
        """Say how large a training step is: rows, blank and noised, times weights (and columns)."""
        weights = sum(parameter[0].numel() for parameter in trainer.module.parameters())
        attends = getattr(trainer.module, "backbone", "") == "attention"
        members = len(next(trainer.module.parameters()))
        rows = self.settings.batch_size * (1 + self.settings.noised_share) * members
        return int(rows * weights * (len(self.n_levels) if attends else 1))

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
        """Give expectations in one evaluation."""
        self._completed_rows = len(x_obs)
        return self.impute(x_obs, m, bounds, seed, "mean", progress)

    def score(self, line: EMRound) -> float:
        """Say how good a round was."""
        return line.held_out_loss

    def seconds_to_finish(self, last: EMRound) -> float:
        """Estimate how long the last E-step will take."""
        return last.e_seconds * len(self._x) / max(1, self._completed_rows)

    def _blocks(self, n: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Slices of n rows, and the rows of their block: it is padded with its last row."""
        most, least = BLOCK.get(self._device.type, 2_048), SMALLEST_BLOCK.get(self._device.type, FEWEST_ROWS)
        if self._memory is not None and self._memory < SMALL_GPU:
            most = least = most // 4
        for start in range(0, n, most):
            part = slice(start, min(start + most, n))
            size = part.stop - part.start
            # Whole vectors only: the rows of a short one would be computed by other instructions.
            whole = -(-size // least) * least
            yield part, np.minimum(np.arange(whole), size - 1) + start

    def _describe(self, x: Floats, missing: Mask) -> Rows:
        known = torch.from_numpy(~missing).to(self._device)
        values = torch.from_numpy(x).to(self._device)
        return blank_rows(values, known, self.model.marginals, self._numeric, self._categorical)

    def _predictions(
        self, x: Floats, missing: Mask, progress: Progress
    ) -> Iterator[tuple[slice, Prediction]]:
        progress.begin("imputing", len(x))
        for part, pick in self._blocks(len(x)):
            rows = self._describe(x[pick], missing[pick])
            yield part, self.model.predict(rows, self.model.ask(rows, self.dtype))
            progress.advance(part.stop - part.start)

    def impute(
        self, x: Floats, missing: Mask, bounds: Floats, seed: int, estimate: str, progress: Progress
    ) -> Floats:
        """Complete rows by mean or median and the most probable level, in one evaluation."""
        completed = x.copy()
        rows = np.flatnonzero(missing.any(axis=1))
        holes = missing[rows]
        for part, answer in self._predictions(x[rows], holes, progress):
            middle = answer.mean
            if estimate == "median":
                middle = self.model.median(answer)
            expected = self._join(middle, [p.argmax(dim=-1) for p in answer.probabilities])
            size = part.stop - part.start
            completed[rows[part]] = np.where(holes[part], expected[:size], x[rows[part]])
        return completed

    def describe_cells(
        self,
        x: Floats,
        missing: Mask,
        ends: tuple[float, float],
        progress: Progress,
        estimate: str = "mean",
    ) -> CellDistribution:
        """Estimate, deviation and two quantiles of numbers, level and probability of categories, together.

        Rows that lack nothing are not looked at: NaN.
        Shape: x, missing [n, c].
        """
        numeric, categorical = self._columns.numeric, self._columns.categorical
        result = CellDistribution(*(np.full(x.shape, np.nan, dtype=np.float32) for _ in range(6)))
        at_ends = torch.special.ndtri(torch.tensor(ends, device=self._device))
        rows = np.flatnonzero(missing.any(axis=1))
        for part, answer in self._predictions(x[rows], missing[rows], progress):
            size, at = part.stop - part.start, rows[part]
            if numeric.size:
                low, high = (v[:size].cpu().numpy() for v in self._values_at(answer.quantiles, at_ends))
                result.lower[np.ix_(at, numeric)], result.upper[np.ix_(at, numeric)] = low, high
                middle = self.model.median(answer) if estimate == "median" else answer.mean
                result.estimate[np.ix_(at, numeric)] = middle[:size].float().cpu().numpy()
                result.deviation[np.ix_(at, numeric)] = self._deviation(answer.quantiles)[:size].cpu().numpy()
            for j, probabilities in zip(categorical, answer.probabilities, strict=True):
                probability, level = (found.cpu().numpy() for found in probabilities[:size].max(dim=-1))
                result.probability[at, j], result.level[at, j] = probability, level
        return result

    def _deviation(self, quantiles: Tensor) -> Tensor:
        """Give the deviations of cells, with few tensors of their number. Shape: [n, p, Q] -> [n, p]."""
        points, weights = normal_points(*DEVIATION_POINTS, quantiles.device)
        (middle,) = self._values_at(quantiles, torch.zeros(1, device=quantiles.device))
        first, second = (torch.zeros_like(middle, dtype=torch.float64) for _ in range(2))
        values = self._values_at(quantiles, points)
        for value, weight in zip(values, weights.tolist(), strict=True):
            far = (value - middle).double()  # what is near to the middle does not cancel
            first += weight * far
            second += weight * far.square()
        return (second - first.square()).clamp_min(0).sqrt()

    def _values_at(self, quantiles: Tensor, r: Tensor) -> Iterator[Tensor]:
        """Give the values with any residuals, as held-out cells bear them out, one after the other.

        Shape: quantiles [n, p, Q], r [L] -> L of [n, p].
        """
        residuals = Residuals(quantiles, normal_quantiles(quantiles.device))
        at = Width(self.model.stretch, self.model.cell_shape).stretch(r[:, None])
        for some in at:
            yield self.model.marginals.values_at(residuals.scores(some.expand(quantiles.shape[:-1])))

    def _join(self, numbers: Tensor, levels: list[Tensor]) -> Floats:
        """Put numeric and categorical columns side by side. Shape: [n, p], q of [n] -> [n, c]."""
        joined = torch.empty(len(numbers), len(self.n_levels), device=numbers.device)
        joined[:, self._numeric] = numbers
        for j, level in zip(self._columns.categorical.tolist(), levels, strict=True):
            joined[:, j] = level.to(joined.dtype)
        return joined.cpu().numpy()

    def draw(
        self,
        x: Floats,
        missing: Mask,
        n_draws: int,
        seed: int,
        progress: Progress,
        *,
        first: int = 0,
        vary: bool = False,
    ) -> Iterator[tuple[slice, Floats]]:
        """Draw rows with holes; each draw is of one member, so that their disagreement is part of it."""
        keys = distinct_keys(row_keys(x, missing, seed))
        numbers = range(first, first + n_draws)
        owners = self.model.allot(numbers.stop)[first:]
        members = {owner: self.model.member(*owner) for owner in set(owners) if owner[0] != LINEAR}
        changes = self.model.changes(numbers) if vary else [None] * n_draws
        progress.begin("drawing", len(x) * n_draws)
        for part, pick in self._blocks(len(x)):
            rows = self._describe(x[pick], missing[pick])
            told = self.model.beforehand(rows, self.dtype)
            own = draw_keys(torch.from_numpy(keys[pick]).to(self._device), list(numbers))
            size = part.stop - part.start
            draws = np.empty((n_draws, size, x.shape[1]), dtype=np.float32)
            for j, (owner, change) in enumerate(zip(owners, changes, strict=True)):
                drawn = self.model.draw(owner, members.get(owner), rows, own[:, j], self.dtype, told, change)
                draws[j] = self._join(drawn.x, list(drawn.levels.unbind(1)))[:size]
                progress.advance(size)
            yield part, draws

    def weights(self) -> dict[str, Tensor]:
        """Give copies of all weights, to go on from."""
        parts = {"model": self.model.state_dict()}
        parts |= {f"network{k}": trainer.module.state_dict() for k, trainer in enumerate(self._trainers)}
        return {
            f"{name}.{key}": v.detach().clone() for name, state in parts.items() for key, v in state.items()
        }

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take such weights."""
        modules = {"model": self.model} | {f"network{k}": t.module for k, t in enumerate(self._trainers)}
        for name, module in modules.items():
            prefix = f"{name}."
            own = {key.removeprefix(prefix): v for key, v in weights.items() if key.startswith(prefix)}
            load_exactly(module, own)

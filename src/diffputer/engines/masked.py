"""Masked diffusion: experts are trained on observed cells, pooled and calibrated on held-out ones."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..diffusion.journal import Journal
from ..diffusion.loading import load_exactly
from ..diffusion.planning import TrainingPlan
from ..diffusion.training import MStep, Trainer, train_all
from ..errors import SettingError
from ..held_out import HeldOut
from ..models.base import Cells, Columns, Predictive, RowBatch
from ..models.masked.linear import ROUGH_TOLERANCE, TOLERANCE, LinearExpert
from ..models.masked.masking import MaskedCells, Table, Validation
from ..models.masked.model import MaskedModel
from ..models.masked.network import Network
from ..models.masked.support import Support
from ..runtime.devices import Deadline, few_threads, total_memory
from ..runtime.progress import Progress
from ..runtime.seeding import derive_seed, distinct_keys, draw_keys, row_keys
from ..settings import MaskedSettings
from ..trace import EMRound
from .cells import CellDistribution
from .sizes import MOST_ATTENDED, MOST_LEVELS, SMALLEST_GPU_BATCH, UNIT_BYTES

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
T = TypeVar("T")

#: Rows evaluated together. A matrix product gives a row the same bits whatever stands around it if it is
#: not tiny (CPU) or always of the same size (CUDA), so that short blocks are filled up.
BLOCK = {"cuda": 16_384, "cpu": 2_048}
SMALLEST_BLOCK = {"cuda": 16_384, "cpu": 64}
#: GPUs with less memory impute smaller blocks.
SMALL_GPU = 20 << 30
#: Of the time that is left, the share that training may take; the rest is for imputing.
TRAINING_SHARE = 0.85
#: Of that, the share that trees may take.
TREES_SHARE = 0.4
#: With fewer held-out cells all known cells are held out in folds, so many for a network of one member.
ENOUGH_HELD_OUT, FOLDS = 500, 5
#: Steps between two looks at the held-out loss.
CHECK_EVERY = 100
#: Rows a step at least, however few the table has, and steps that every table is allowed.
SMALLEST_BATCH, ALWAYS_ALLOWED = 16, 2_000
#: Training waits for a better held-out loss no longer than half of the steps that led to the best.
IMPATIENCE = 0.5
#: The plan is doubled while the held-out loss goes with the steps to this power, or faster.
FALLS_FAST = -0.05


class MaskedEngine:
    """Fits a :class:`MaskedModel`, imputes and draws with it."""

    name = "masked"
    held_out_cells = (100, 20_000)
    holds_out_always = True
    shrinks = True

    def __init__(
        self,
        n_levels: NDArray[np.int64],
        settings: MaskedSettings,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._columns = Columns(n_levels)
        self._device, self.dtype = torch.device(device), dtype
        if self._device.type == "mps":
            raise SettingError(
                "Masked diffusion computes partly in double precision, which device='mps' does not have. "
                "Use device='cpu'."
            )
        self._memory = total_memory(self._device)
        self.n_levels, self.settings = n_levels, _with_size(settings, self._columns, self._memory)
        self.model = MaskedModel(self._columns, self.settings)
        self.model.to(self._device).requires_grad_(False).eval()

    def use(self, device: torch.device | str, dtype: torch.dtype) -> MaskedEngine:
        """The same engine on another device, or in another precision."""
        other = MaskedEngine(self.n_levels, self.settings, device, dtype)
        other.model.load_state_dict(self.model.state_dict())
        return other

    @property
    def lines(self) -> Mask:
        """Columns that are lines of others: what follows a line may leave the observed range. Shape: [c]."""
        found = np.zeros(len(self.n_levels), dtype=bool)
        found[self._columns.numeric] = (self.model.widths > 0).cpu().numpy()
        return found

    @property
    def varies(self) -> bool:
        """Whether draws can carry the uncertainty of the fit."""
        return self.model.varies

    def begin(self, x: Floats, m: Mask, missing: Mask, held: HeldOut, seed: int) -> NDArray[np.int64]:
        """Take the table to be fitted: m are all cells that it must not see, missing those not observed.

        E-steps complete the rows with held-out cells, which tell how good a round was.
        """
        self._x, self._m, self._missing, self._seed = x, m, missing, seed
        self._completed_rows = int(held.cells.any(axis=1).sum())
        members = max(self.settings.mlp_members, self.settings.attention_members)
        folds = _choose_folds(x, m, held.cells, members, derive_seed(seed, "folds"))
        if len(folds) > 1:
            self._take_members(len(folds))
        columns, s = self._columns, self.settings
        self.model.support = Support.fit(x, m, columns.numeric, s.classes).to(self._device)
        self._table = Table(x, ~m, columns, self.model.support)
        self._validation = None
        if held.cells.any():
            truth = Table(x, ~missing, columns, self.model.support)
            self._validation = Validation(self._table, truth, folds, columns)
        self._answers: list[Predictive] | None = None
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
            falls_fast=FALLS_FAST,
            longest=longest,
        )
        order = np.concatenate([columns.numeric, columns.categorical])
        patterns = torch.from_numpy(missing[:, order]).to(self._device)
        self._trainers: list[Trainer] = []
        self._objectives: list[MaskedCells] = []
        for k, averaged in enumerate(self.model.networks):
            assert isinstance(averaged, Network)
            averaged.take_frequencies(
                self.model.support.frequencies, self.model.support.valid, _frequencies(self._table, columns)
            )
            network = averaged.fresh(averaged.members, self.dtype)
            objective = MaskedCells(
                network, self._table, patterns, self._validation,
                copied=s.copied_patterns, batch_size=batch, dtype=self.dtype,
            )  # fmt: skip
            trainer = Trainer(network, network, objective, plan)
            self.model.networks[k] = trainer.averaged
            self._trainers.append(trainer)
            self._objectives.append(objective)
        return np.flatnonzero(held.cells.any(axis=1))

    def _take_members(self, n: int) -> None:
        """Give each network a member for every fold."""
        s = self.settings
        members = {k: n for k in ("mlp_members", "attention_members") if getattr(s, k)}
        self.settings = dataclasses.replace(s, **members)
        self.model = MaskedModel(self._columns, self.settings)
        self.model.to(self._device).requires_grad_(False).eval()

    def m_step(
        self, k: int, completed: Floats, seed: int, deadline: Deadline, progress: Progress, journal: Journal
    ) -> MStep:
        """Train every expert on observed cells; from the second round on networks on a drawn table too."""
        started = time.perf_counter()
        if k > 1:
            self._use_drawn_table(seed, progress)
        ends = deadline.share(TRAINING_SHARE)
        size = max(map(self._multiplications, self._trainers))
        answers = None
        if self._answers is None and self._validation is not None:
            answers = self._beside(self._fit_others(derive_seed(seed, "trees"), ends.share(TREES_SHARE)))
        ends = ends.share(1.0)  # what trees took is not the networks' time
        progress.begin(
            f"EM round {k}/{self.settings.em_rounds}  M-step",
            sum(trainer.plan.max_steps for trainer in self._trainers),
        )
        with few_threads(size, self._device):
            runs = [
                trainer.train(
                    seed=derive_seed(seed, "network", number), fresh=k == 1, deadline=ends,
                    progress=progress, journal=journal, name=f"network{number}",
                )
                for number, trainer in enumerate(self._trainers)
            ]  # fmt: skip
            steps = train_all(runs, self._device, ends)
            if answers is not None:
                self._answers = [one.to(self._device) for one in answers.result()]
            self.model.to(self._device)
            held_out_loss = float("nan")
            if self._validation is not None:
                held_out_loss = self._pool()
        return MStep(
            steps=max(step.steps for step in steps),
            loss=float(np.mean([step.loss for step in steps])),
            held_out_loss=held_out_loss,
            seconds=time.perf_counter() - started,
        )

    def _beside(self, task: Callable[[], T]) -> Future[T]:
        """Do a task of the CPU: at once, or beside the work of a GPU."""
        if self._device.type == "cpu":
            result: Future[T] = Future()
            result.set_result(task())
            return result
        pool = ThreadPoolExecutor(1)
        result = pool.submit(task)
        pool.shutdown(wait=False)
        return result

    def _use_drawn_table(self, seed: int, progress: Progress) -> None:
        """Let networks learn from rows with drawn cells too."""
        drawn = self._x.copy()
        rows = np.flatnonzero(self._m.any(axis=1))
        missing = self._m[rows]
        x_obs = np.where(missing, np.float32(0), self._x[rows])
        for part, values in self.draw(x_obs, missing, 1, seed, progress):
            drawn[rows[part]] = np.where(missing[part], values[0], x_obs[part])
        table = Table(drawn, np.ones_like(self._m), self._columns, self.model.support)
        for objective, trainer in zip(self._objectives, self._trainers, strict=True):
            objective.use_imputed(table)
            trainer.forget_graph()  # a captured step does not know of the drawn table

    def _fit_others(self, seed: int, deadline: Deadline) -> Callable[[], list[Predictive]]:
        """What fits all experts but the networks, and gives what each predicts of held-out cells.

        All of it is on the CPU: a GPU would not add up in the same order every time, and has networks to
        train, whose captured steps allow no other thread on it.
        """
        assert self._validation is not None
        model, v = self.model, self._validation.to("cpu")
        support, rows = copy.deepcopy(model.support).to("cpu"), self._table.batch.to("cpu")
        linear, trees = [one.to("cpu") for one in model.linear], model.trees
        model.widths, model.line_scales = model.widths.to("cpu"), model.line_scales.to("cpu")
        threads, n_trees = torch.get_num_threads(), self.settings.boosted_trees

        def fit() -> list[Predictive]:
            found = [_fit_linear(expert, rows, v, support) for expert in linear]
            for expert in linear:
                if expert.kind == "values":
                    widths, scales = expert.find_lines(rows, support)
                    model.widths.copy_(widths)
                    model.line_scales.copy_(scales)
            if trees is not None:

                def grow(some: RowBatch) -> None:
                    trees.fit(
                        some, n_trees=n_trees, seed=seed, threads=threads,
                        is_over=lambda: deadline.remaining <= 0,
                    )  # fmt: skip

                trees.to("cpu")
                found.append(_cross_fit(grow, trees.predict, v))
                if len(v.folds) > 1:
                    grow(rows)
            return found

        return fit

    def _pool(self) -> float:
        """Choose weights and temperatures on held-out cells; gives the loss of what is pooled."""
        model, v = self.model, self._validation
        assert v is not None
        assert self._answers is not None
        in_turn = len(v.folds) > 1
        networks = [
            network.predict(v.rows, v.cells, self.dtype, in_turn=in_turn)  # type: ignore[operator]
            for network in model.networks
        ]
        experts = [*networks, *self._answers]
        model.pool.fit(experts, v.cells, model.support, v.x, v.levels)
        return v.loss(model.pool(experts, v.cells, model.support))

    def finish(self) -> None:
        """Let linear experts, whose weights are known by now, see the held-out cells too."""
        if self._validation is None:
            return
        model = self.model
        support = copy.deepcopy(model.support).to("cpu")
        rows = Table(self._x, ~self._missing, self._columns, support).batch
        for expert in model.linear:
            expert.to("cpu").fit(rows, float(expert.shrinking))
        if model.copula is not None and model.variants is not None:
            model.variants.to("cpu").fit(model.copula, rows, derive_seed(self._seed, "variants"))
        model.to(self._device)

    def _multiplications(self, trainer: Trainer) -> int:
        """How large a training step is: rows times weights (and columns)."""
        weights = sum(parameter[0].numel() for parameter in trainer.module.parameters())
        attends = getattr(trainer.module, "backbone", "") == "attention"
        members = len(next(trainer.module.parameters()))
        rows = self.settings.batch_size * members
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
        """Expectations, in one evaluation."""
        self._completed_rows = len(x_obs)
        return self.impute(x_obs, m, bounds, seed, "mean", progress)

    def score(self, line: EMRound) -> float:
        """How good a round was."""
        return line.held_out_loss

    def seconds_to_finish(self, last: EMRound) -> float:
        """Estimate how long the last E-step will take."""
        return last.e_seconds * len(self._x) / max(1, self._completed_rows)

    def _blocks(self, n: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Slices of n rows, and the rows of their block: it is padded with its last row."""
        most, least = BLOCK.get(self._device.type, 2_048), SMALLEST_BLOCK.get(self._device.type, 64)
        if self._memory is not None and self._memory < SMALL_GPU:
            most = least = most // 4
        for start in range(0, n, most):
            part = slice(start, min(start + most, n))
            size = part.stop - part.start
            # Whole vectors only: the rows of a short one would be computed by other instructions.
            whole = -(-size // least) * least
            yield part, np.minimum(np.arange(whole), size - 1) + start

    def _describe(self, x: Floats, missing: Mask) -> RowBatch:
        values = torch.from_numpy(x).to(self._device)
        return self.model.describe(values, torch.from_numpy(~missing).to(self._device))

    def _predictions(
        self, x: Floats, missing: Mask, progress: Progress
    ) -> Iterator[tuple[slice, Cells, Predictive]]:
        progress.begin("imputing", len(x))
        for part, pick in self._blocks(len(x)):
            rows = self._describe(x[pick], missing[pick])
            cells = Cells.of(~rows.all_known, rows.x.shape[1])
            yield part, cells, self.model.predict(rows, cells, self.dtype)
            progress.advance(part.stop - part.start)

    def impute(
        self, x: Floats, missing: Mask, bounds: Floats, seed: int, estimate: str, progress: Progress
    ) -> Floats:
        """Complete rows by mean or median and the most probable category, in one evaluation."""
        completed = x.copy()
        rows = np.flatnonzero(missing.any(axis=1))
        for part, cells, predictive in self._predictions(x[rows], missing[rows], progress):
            middle = self._table_of(cells, self._middle(predictive, cells, estimate))
            expected = self._join(middle, [one.argmax(dim=-1) for one in predictive.levels])
            size = part.stop - part.start
            completed[rows[part]] = np.where(missing[rows[part]], expected[:size], x[rows[part]])
        return completed

    def _middle(self, predictive: Predictive, cells: Cells, estimate: str) -> Tensor:
        if estimate != "median" or predictive.bins is None:
            return predictive.mean
        return self.model.support.quantile(predictive, cells.columns, 0.5)

    def _table_of(self, cells: Cells, values: Tensor) -> Tensor:
        """Values of cells at their places, 0 elsewhere. Shape: [m] -> [n, p]."""
        return cells.place(values, torch.Size((len(cells.levels), len(self._columns.numeric))))

    def describe_cells(
        self, x: Floats, missing: Mask, ends: tuple[float, float], progress: Progress, estimate: str = "mean"
    ) -> CellDistribution:
        """Estimate, standard deviation and two quantiles of numbers, category and probability.

        Cells that are not missing are not looked at: NaN.
        Shape: x, missing [n, c].
        """
        numeric, categorical = self._columns.numeric, self._columns.categorical
        result = CellDistribution(*(np.full(x.shape, np.nan, dtype=np.float32) for _ in range(6)))
        rows = np.flatnonzero(missing.any(axis=1))
        support = self.model.support
        for part, cells, predictive in self._predictions(x[rows], missing[rows], progress):
            size, at = part.stop - part.start, rows[part]
            if numeric.size:
                low, high = (support.quantile(predictive, cells.columns, end) for end in ends)
                inside = (cells.rows < size).cpu().numpy()
                row, column = (one.cpu().numpy()[inside] for one in (cells.rows, cells.columns))
                for target, values in (
                    (result.lower, low), (result.upper, high),
                    (result.deviation, support.std_of(predictive, cells.columns)),
                    (result.estimate, self._middle(predictive, cells, estimate)),
                ):  # fmt: skip
                    target[at[row], numeric[column]] = values.float().cpu().numpy()[inside]
            for j, probabilities in zip(categorical, predictive.levels, strict=True):
                probability, level = (found.cpu().numpy() for found in probabilities[:size].max(dim=-1))
                result.probability[at, j], result.level[at, j] = probability, level
        return result

    def _join(self, numbers: Tensor, levels: list[Tensor]) -> Floats:
        """Put numeric and categorical columns side by side. Shape: [n, p], q of [n] -> [n, c]."""
        joined = np.empty((len(numbers), len(self.n_levels)), dtype=np.float32)
        joined[:, self._columns.numeric] = numbers.float().cpu().numpy()
        for j, level in zip(self._columns.categorical, levels, strict=True):
            joined[:, j] = level.cpu().numpy()
        return joined

    def draw(
        self, x: Floats, missing: Mask, n_draws: int, seed: int, progress: Progress,
        *, first: int = 0, vary: bool = False,
    ) -> Iterator[tuple[slice, Floats]]:  # fmt: skip
        """Draw incomplete rows; each draw is of one member, so that their disagreement is part of it."""
        keys = distinct_keys(row_keys(x, missing, seed))
        numbers = range(first, first + n_draws)
        model = self.model
        owners = model.members_of(numbers)
        members = {owner: model.networks[owner[0]].member(owner[1]) for owner in set(owners)}  # type: ignore[operator]
        variants: list[LinearExpert | None] = [None] * n_draws
        if vary and model.varies and model.copula is not None and model.variants is not None:
            variants = list(model.variants.of_draws(model.copula, numbers))
        progress.begin("drawing", len(x) * n_draws)
        for part, pick in self._blocks(len(x)):
            by_missing = np.argsort(-missing[pick].sum(axis=1), kind="stable")
            at = np.argsort(by_missing)
            pick = pick[by_missing]
            rows = self._describe(x[pick], missing[pick])
            own = draw_keys(torch.from_numpy(keys[pick]).to(self._device), list(numbers))
            size = part.stop - part.start
            given = model.given(rows)
            draws = np.empty((n_draws, size, x.shape[1]), dtype=np.float32)
            for j, (owner, variant) in enumerate(zip(owners, variants, strict=True)):
                steps = self.settings.sampling_steps
                drawn, levels = model.draw(rows, given, own[:, j], members[owner], self.dtype, steps, variant)
                draws[j] = self._join(drawn, list(levels.unbind(1)))[at[:size]]
                progress.advance(size)
            yield part, draws

    def weights(self) -> dict[str, Tensor]:
        """Copies of all weights, to go on from."""
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
            load_exactly(
                module, {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
            )


def _frequencies(table: Table, columns: Columns) -> Tensor:
    """How frequent each category is, of all categorical columns side by side. Shape: [S]."""
    found = []
    for k, n in enumerate(columns.levels):
        column = table.batch.levels[:, k].cpu()
        counts = torch.bincount(column[column >= 0], minlength=n).float() + 0.5
        found.append(counts / counts.sum())
    return torch.cat(found) if found else torch.zeros(0)


def _choose_folds(x: Floats, m: Mask, held: Mask, n_members: int, seed: int) -> Mask:
    """Cells that each fold hides: those that are held out, or of small tables each part of all known ones.

    There are as many folds as a network has members, if it has several. Equal rows hide the same: a copy
    would tell what is hidden.

    Shape: x, m, held [n, c] -> [folds, n, c].
    """
    n_held = int(held.sum())
    if n_held == 0 or n_held >= ENOUGH_HELD_OUT:
        return held[None]
    kinds, kind = np.unique(np.where(m, np.nan, x), axis=0, return_inverse=True)
    rng = np.random.default_rng(seed & ((1 << 63) - 1))
    n_folds = n_members if n_members > 1 else FOLDS
    number = rng.permutation(kinds.size).reshape(kinds.shape)[kind.ravel()] % n_folds
    return np.stack([(number == fold) & ~m for fold in range(n_folds)])


def _fit_linear(expert: LinearExpert, rows: RowBatch, v: Validation, support: Support) -> Predictive:
    """Fit with the shrinkage that predicts held-out cells best; gives what is then predicted of them."""
    best, chosen, found = float("inf"), 1.0, None
    tolerance = ROUGH_TOLERANCE if len(v.folds) > 1 else TOLERANCE
    for f in expert.shrinkages(v.folds[0].fit):
        predictive = _cross_fit(
            lambda some, f=f: expert.fit(some, f, tolerance),  # type: ignore[misc]
            lambda some, cells: expert.predict(expert.given(some), cells, support)[0],
            v,
        )
        loss = v.loss(predictive)
        if found is None or loss < best - 1e-3 * abs(best):
            best, chosen, found = loss, f, predictive
    assert found is not None
    if len(v.folds) > 1 or float(expert.shrinking) != chosen:
        expert.fit(rows, chosen)
    return found


def _cross_fit(
    fit: Callable[[RowBatch], None], predict: Callable[[RowBatch, Cells], Predictive], v: Validation
) -> Predictive:
    """Predict the held-out cells of every fold by an expert that was fitted without them."""
    parts = []
    for fold in v.folds:
        fit(fold.fit)
        parts.append(predict(fold.rows, fold.cells))
    return Predictive.join(parts)


def _with_size(settings: MaskedSettings, columns: Columns, memory: int | None) -> MaskedSettings:
    """Adapt settings to a table and to the memory of a GPU (in bytes; None elsewhere).

    MLPs replace attention where columns or categories are so many that it would take too long, and a batch is
    halved until it fits.
    """
    s, c = settings, len(columns.n_levels)
    if c > MOST_ATTENDED or c * max(columns.levels, default=0) > MOST_LEVELS:
        members = max(s.mlp_members, s.attention_members)
        s = dataclasses.replace(s, attention_members=0, mlp_members=members)
    units = s.attention_members * s.attention_depth * s.attention_width * c
    units += s.mlp_members * s.mlp_depth * s.mlp_width
    batch = s.batch_size
    while memory is not None and batch > SMALLEST_GPU_BATCH and batch * units * UNIT_BYTES > memory / 2:
        batch //= 2
    return dataclasses.replace(s, batch_size=batch)

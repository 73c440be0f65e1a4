"""The fitting session: experts are trained on observed cells, pooled and calibrated on held-out ones."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...held_out import HeldOut
from ...nn.journal import Journal
from ...nn.loading import load_exactly
from ...nn.trainer import MStep, Trainer, TrainingPlan, train_all
from ...runtime.devices import Deadline, few_threads
from ...runtime.progress import Progress
from ...runtime.seeding import derive_seed
from ...settings import ConditionalSettings
from ...trace import EMRound
from ..base import Cells, Columns, Predictive, RowBatch
from .engine import ConditionalEngine
from .gaussian import ROUGH_TOLERANCE, TOLERANCE, LinearExpert, most_rows
from .masking import MaskedCells, Table, Validation
from .mixture import FEWEST_COMPONENTS, NOISES, POWERS, ROWS_A_COMPONENT, MixtureExpert
from .model import ConditionalModel
from .network import Network
from .support import Support

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
T = TypeVar("T")

#: Of the time that is left, the share that training may take; the rest is for imputing.
TRAINING_SHARE = 0.85
#: Of that, the share that the other experts may take.
OTHERS_SHARE = 0.4
#: With fewer held-out cells all known cells are held out in folds, at least so many.
ENOUGH_HELD_OUT, FOLDS = 500, 5
#: Steps between two looks at the held-out loss.
CHECK_EVERY = 100
#: Rows a step at least, however few the table has, and steps that every table is allowed.
SMALLEST_BATCH, ALWAYS_ALLOWED = 16, 2_000
#: Training waits for a better held-out loss no longer than half of the steps that led to the best.
IMPATIENCE = 0.5
#: The plan is doubled while the held-out loss goes with the steps to this power, or faster.
FALLS_FAST = -0.05


class FittingSession:
    """Fits the model of an engine to one table."""

    def __init__(
        self, engine: ConditionalEngine, x: Floats, m: Mask, missing: Mask, held: HeldOut, seed: int
    ) -> None:
        self.engine, self._columns, self._device, self.dtype = (
            engine,
            engine.columns,
            engine.device,
            engine.dtype,
        )
        self._x, self._m, self._missing, self._seed = x, m, missing, seed
        self.rows = np.flatnonzero(held.cells.any(axis=1))
        """The rows that E-steps complete: their held-out cells tell how good a round was."""
        s = engine.settings
        members = max(s.mlp_members, s.attention_members)
        folds = _choose_folds(x, m, held.cells, members, derive_seed(seed, "folds"))
        if len(folds) > 1:  # a member for every fold
            names = [name for name in ("mlp_members", "attention_members") if getattr(s, name)]
            engine.resize(dataclasses.replace(s, **dict.fromkeys(names, len(folds))))
        columns, s = self._columns, self.settings
        self.model.support = Support.fit(x, m, columns.numeric, s.classes).to(self._device)
        self._table = Table(x, ~m, columns, self.model.support)
        self._validation = None
        if held.cells.any():
            truth = Table(x, ~missing, columns, self.model.support)
            self._validation = Validation(self._table, truth, folds, columns)
        else:
            self.model.pool.use_networks_alone()
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

    @property
    def model(self) -> ConditionalModel:
        """What is fitted."""
        return self.engine.model

    @property
    def settings(self) -> ConditionalSettings:
        """The constants in use."""
        return self.engine.settings

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
            answers = self._beside(
                self._fit_others(derive_seed(self._seed, "experts"), ends.share(OTHERS_SHARE))
            )
        ends = ends.share(1.0)  # what others took is not the networks' time
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
            steps = train_all(runs, ends)
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
        for part, values in self.engine.draw(x_obs, missing, 1, seed, progress):
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
        linear, trees, mixture = [one.to("cpu") for one in model.linear], model.trees, model.mixture
        model.widths, model.line_scales = model.widths.to("cpu"), model.line_scales.to("cpu")
        threads, n_trees = torch.get_num_threads(), self.settings.boosted_trees

        def fit() -> list[Predictive]:
            with self._threads_of_linear(rows):
                found = [_fit_linear(expert, rows, v, support) for expert in linear]
                for expert in linear:
                    if expert.kind == "values":
                        widths, scales = expert.find_lines(rows, support)
                        model.widths.copy_(widths)
                        model.line_scales.copy_(scales)
                if mixture is not None:
                    ends = deadline if trees is None else deadline.share(0.5)
                    found.append(_fit_mixture(mixture.to("cpu"), linear[0], rows, v, support, seed, ends))
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
        with self._threads_of_linear(rows):
            for expert in model.linear:
                expert.to("cpu").fit(rows, float(expert.shrinking), warm=True)
            if model.mixture is not None:
                mixture = model.mixture.to("cpu")
                assert model.copula is not None
                mixture.fit(rows, model.copula, mixture.n_components, self._seed, warm=True)
            if model.copula is not None and model.variants is not None:
                model.variants.to("cpu").fit(model.copula, rows, derive_seed(self._seed, "variants"))
        model.to(self._device)

    def _threads_of_linear(self, rows: RowBatch) -> AbstractContextManager[None]:
        """As many threads as a round of EM keeps busy."""
        d = self.model.linear[0].d if self.model.linear else 1
        work = min(len(rows), most_rows(d)) * d**3 // 8  # a third of the cells are missing, say
        return few_threads(work, torch.device("cpu"))

    def _multiplications(self, trainer: Trainer) -> int:
        """How large a training step is: rows times weights (and columns)."""
        weights = sum(parameter[0].numel() for parameter in trainer.module.parameters())
        attends = getattr(trainer.module, "backbone", "") == "attention"
        members = len(next(trainer.module.parameters()))
        rows = self.settings.batch_size * members
        return int(rows * weights * (len(self._columns.n_levels) if attends else 1))

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
        return self.engine.impute(x_obs, m, bounds, seed, "mean", progress)

    def score(self, line: EMRound) -> float:
        """How good a round was."""
        return line.held_out_loss

    def seconds_to_finish(self, last: EMRound) -> float:
        """Estimate how long the last E-step will take."""
        return last.e_seconds * len(self._x) / max(1, len(self.rows))

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

    There are as many folds as a network has members, and five at least. Equal rows hide the same: a copy
    would tell what is hidden.

    Shape: x, m, held [n, c] -> [folds, n, c].
    """
    n_held = int(held.sum())
    if n_held == 0 or n_held >= ENOUGH_HELD_OUT:
        return held[None]
    kinds, kind = np.unique(np.where(m, np.nan, x), axis=0, return_inverse=True)
    rng = np.random.default_rng(seed & ((1 << 63) - 1))
    n_folds = max(n_members, FOLDS)
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


def _fit_mixture(
    mixture: MixtureExpert,
    copula: LinearExpert,
    rows: RowBatch,
    v: Validation,
    support: Support,
    seed: int,
    deadline: Deadline,
) -> Predictive:
    """Fit with the settings that predict held-out cells best; returns what is then predicted of them."""

    def is_over() -> bool:
        return deadline.remaining <= 0

    copulas = [copula.fresh(fold.fit) for fold in v.folds] if len(v.folds) > 1 else [copula]
    most = max(FEWEST_COMPONENTS, min(mixture.most, len(rows) // ROWS_A_COMPONENT))
    best, found, chosen = float("inf"), None, mixture.state_dict()
    for noise in NOISES if copula.levels else (0.0,):
        before = float("inf")
        for K in (FEWEST_COMPONENTS << k for k in range(most.bit_length() - 1)):
            mixture.noise.fill_(noise)
            parts = []
            for fold, own in zip(v.folds, copulas, strict=True):
                mixture.fit(fold.fit, own, K, seed, is_over=is_over)
                given = mixture.given(fold.rows, own)
                parts.append([mixture.predict(given, fold.cells, support, own, power) for power in POWERS])
            tried = [Predictive.join(one) for one in zip(*parts, strict=True)]
            losses = [v.loss(one) for one in tried]
            place = int(np.argmin(losses))
            if found is None or losses[place] < best:
                best, found = losses[place], tried[place]
                mixture.power.fill_(POWERS[place])
                chosen = copy.deepcopy(mixture.state_dict())
            if not losses[place] < before or is_over():
                break
            before = losses[place]
    assert found is not None
    mixture.load_state_dict(chosen)
    if len(v.folds) > 1:
        mixture.fit(rows, copula, mixture.n_components, seed, is_over=is_over)
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

"""The M-step's loop: stochastic gradient steps on an objective, averaged weights, a stop on held-out data.

Everything stays on the device; on CUDA one step is captured as a graph and replayed, so that no step waits
for Python. What is minimised is the engine's business: matching.py for the paper's (Algorithm 1),
splitting.py for the conditional one.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from ..errors import damaged_checkpoint
from ..runtime.devices import Deadline
from ..runtime.progress import Progress
from ..runtime.seeding import derive_seed, torch_generator
from ..runtime.threads import QuickestThreads
from .journal import Journal, Snapshot
from .loading import check_declared, describe_tensors
from .optimizers import AdamW, Muon, Optimizer

logger = logging.getLogger("diffputer")

#: A held-out loss falls fast if it goes with the steps to this power, or faster: 11 % less for twice as many.
#: Measured when the rate was to fall: Letter -0.22, Bean -0.19; Default -0.14, California -0.12, other tables
#: of the paper nearer to 0 (docs/dev/first-edition.md).
FALLS_FAST = -0.17
#: Steps without a better held-out loss that are always waited for.
SHORTEST_PATIENCE = 200
#: Steps between two updates of the averaged weights.
AVERAGE_EVERY = 10


@dataclass(frozen=True)
class TrainingPlan:
    """How long and how fast an M-step trains."""

    learning_rate: float
    max_steps: int
    """Steps that are planned."""
    patience: int
    """Steps without a better held-out loss before it stops, at most."""
    weight_average: float
    """Decay a step of the averaged weights."""
    weight_decay: float = 0.0
    warm_up: int = 0
    """Steps in which the learning rate rises to its value."""
    decay_from: float = 1.0
    """Share of the steps (or of the time) after which the learning rate falls evenly to zero."""
    gradient_limit: float | None = None
    """Longer gradients are cut to this length."""
    second_moment_decay: float = 0.999
    orthogonal: bool = False
    """Whether the matrices inside the network take orthogonalised steps (optimizers.py)."""
    check_every: int = 50
    """Steps between two looks at the held-out loss (and at the clock)."""
    falls_fast: float = FALLS_FAST
    """The power of the steps with which a loss falls fast."""
    longest: int = 0
    """While the held-out loss falls fast the plan is doubled, up to this many steps."""
    impatience: float | None = None
    """It stops sooner when it has waited for this share of the steps that led to the best loss."""

    def gives_up(self, best_step: int, step: int) -> bool:
        """Say whether a held-out loss that was lowest at a step will not be lower any more.

        Examples
        --------
        >>> plan = TrainingPlan(1e-3, max_steps=5_000, patience=1_000, weight_average=0.0, impatience=0.5)
        >>> [plan.gives_up(300, 500), plan.gives_up(1_000, 1_400), plan.gives_up(4_000, 4_900)]
        [True, False, False]
        """
        patience = self.patience
        if self.impatience is not None:
            patience = min(patience, max(SHORTEST_PATIENCE, int(self.impatience * best_step)))
        return step - best_step >= patience

    def rate(self, step: int, done: float) -> float:
        """Give the learning rate of a step when a share of the work is done."""
        falling = (1.0 - done) / (1.0 - self.decay_from) if self.decay_from < 1 else 1.0
        return self.learning_rate * max(0.0, min(1.0, (step + 1) / max(1, self.warm_up), falling))

    def is_cut_short(self, history: list[float], step: int, planned: int, passed: float) -> bool:
        """Say whether the learning rate is about to fall although the held-out loss still falls fast.

        ``history`` are held-out losses so far, ``passed`` is the share of the time that has.
        """
        falls_from = self.decay_from * planned
        if planned >= self.longest or not step <= falls_from < step + self.check_every:
            return False
        if passed >= self.decay_from or len(history) < 2:
            return False
        half = (len(history) + 1) // 2
        now, before = (max(value, 1e-12) for value in (history[-1], history[half - 1]))
        power = math.log(now / before) / math.log(len(history) / half)
        return power < self.falls_fast


@dataclass
class Course:
    """How far a training has come, besides its weights."""

    planned: int
    """Steps that are planned by now."""
    step: int = 0
    updates: int = 0
    """Of the averaged weights."""
    rate: float = 0.0
    loss: float = math.nan
    """Running mean of the training loss."""
    held_out: float | None = None
    history: list[float] = field(default_factory=list)
    """Held-out losses at every look but the last."""
    best: float = math.inf
    best_step: int = 0
    ended: bool = False
    """Whether it is over, for another reason than the time."""

    def check(self, plan: TrainingPlan) -> None:
        """Raise ValueError or TypeError unless a training of this plan can have come so far."""
        whole = (self.planned, self.step, self.updates, self.best_step)
        losses = (self.rate, self.loss, self.best, *self.history)
        if any(type(number) is not int or number < 0 for number in whole) or type(self.ended) is not bool:
            raise TypeError("steps of a training must be whole numbers")
        if any(type(loss) is not float for loss in losses) or type(self.held_out) not in (float, type(None)):
            raise TypeError("losses of a training must be numbers")
        if not max(self.step, self.best_step) <= self.planned <= max(plan.longest, plan.max_steps):
            raise ValueError("a training must not be longer than planned")

    def look(self, plan: TrainingPlan, loss: float, held_out: float | None, passed: float) -> bool:
        """Take the losses at this step, and decide how to go on; says whether they are the best so far."""
        self.loss, self.held_out = loss, held_out
        value = loss if held_out is None else held_out
        better = value < self.best or self.best_step == 0
        if better:
            self.best, self.best_step = value, self.step
        elif plan.gives_up(self.best_step, self.step):
            self.ended = True
            return better
        if held_out is not None:
            self.history.append(held_out)
            if plan.is_cut_short(self.history, self.step, self.planned, passed):
                self.planned = min(2 * self.planned, plan.longest)
        self.ended = self.step >= self.planned
        return better


@dataclass(frozen=True)
class MStep:
    """How one M-step went."""

    steps: int
    """Steps after which the held-out loss was lowest: those of the weights that are used."""
    loss: float
    held_out_loss: float
    seconds: float


class Objective(Protocol):
    """What is minimised."""

    def begin(self, seed: int) -> list[torch.Generator]:
        """Start all random streams afresh; give the generators that :meth:`loss` draws from."""

    def before_step(self, step: int) -> None:
        """Do what a step needs from outside of the device."""

    def loss(self, counter: Tensor) -> Tensor:
        """Give the loss of the step with this number; touches nothing but the device."""

    def held_out_loss(self, averaged: nn.Module) -> float | None:
        """Give the loss of the averaged weights on held-out data, None if there is none."""

    def state(self, step: int) -> dict[str, Tensor]:
        """Give what the step with this number and later ones need of those before it."""

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state, after :meth:`begin` with the same seed."""


class Trainable(Protocol):
    """A network that can be given fresh weights."""

    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights."""


#: A training that can be resumed where it pauses; it ends with the M-step.
Run = Generator[None, None, MStep]


def train_all(runs: Sequence[Run], device: torch.device, deadline: Deadline | None = None) -> list[MStep]:
    """Advance several trainings on a device until all have ended, and give the results of those that began.

    On CUDA each has a stream of its own, so that their kernels, most of which fill a part of the device
    only, run side by side. Elsewhere one follows the other: when time is short the first are as good as they
    can be, and none begins that would have less than half of the time that another took.
    """
    if device.type != "cuda":
        done: list[MStep] = []
        for run in runs:
            least = max((step.seconds / 2 for step in done), default=-math.inf)
            if deadline is not None and deadline.remaining < least:
                break
            done.append(_run_through(run))
        return done
    streams = [torch.cuda.Stream(device) for _ in runs]
    results: dict[int, MStep] = {}
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream(device))
    while len(results) < len(runs):
        for k, run in enumerate(runs):
            if k not in results:
                try:
                    with torch.cuda.stream(streams[k]) if len(runs) > 1 else nullcontext():
                        next(run)
                except StopIteration as stop:
                    results[k] = stop.value
    for stream in streams:
        torch.cuda.current_stream(device).wait_stream(stream)
    return [results[k] for k in range(len(runs))]


def _run_through(run: Run) -> MStep:
    while True:
        try:
            next(run)
        except StopIteration as stop:
            result: MStep = stop.value
            return result


class Trainer:
    """Fits one module again and again, once an EM round."""

    def __init__(
        self, module: nn.Module, network: Trainable, objective: Objective, plan: TrainingPlan
    ) -> None:
        self.module, self.objective, self.plan = module, objective, plan
        self._network = network
        self._device = device = next(module.parameters()).device
        on_cuda = device.type == "cuda"
        self._counter = torch.zeros((), dtype=torch.int64, device=device)
        self._loss = torch.zeros((), device=device)
        # A tensor, so that a captured step sees it change.
        self._rate = torch.tensor(plan.learning_rate, device=device) if on_cuda else plan.learning_rate
        # Weights in bfloat16 are too coarse for small steps: those that are trained are in float32.
        self._weights: list[Tensor] = list(module.parameters())
        self._masters = [
            p if p.dtype == torch.float32 else p.detach().float().requires_grad_() for p in self._weights
        ]
        self._is_coarse = any(p.dtype != torch.float32 for p in self._weights)
        matrices = {id(p) for p in module.matrices()} if plan.orthogonal else set()  # type: ignore[operator]
        pairs = list(zip(self._weights, self._masters, strict=True))
        others = [master for weight, master in pairs if id(weight) not in matrices]
        # Other devices may lack the kernel.
        adamw = AdamW if device.type in ("cpu", "cuda") else torch.optim.AdamW
        betas, decay = (0.9, plan.second_moment_decay), plan.weight_decay
        self._optimizers: list[Optimizer | torch.optim.Optimizer] = [
            adamw(others, lr=self._rate, betas=betas, weight_decay=decay)
        ]
        if plan.orthogonal:
            inner = [master for weight, master in pairs if id(weight) in matrices]
            self._optimizers.append(Muon(inner, self._rate, weight_decay=plan.weight_decay))
        # The E-step uses the averaged weights (NOTE[paper]: the paper uses the last, the authors' code
        # those of the lowest training loss; see docs/dev/deviations.md).
        self.averaged = copy.deepcopy(module).float().requires_grad_(False).eval()
        self._graph: torch.cuda.CUDAGraph | None = None

    def _step(self) -> None:
        loss = self.objective.loss(self._counter)
        self.module.zero_grad(set_to_none=True)
        loss.backward()
        if self._is_coarse:
            coarse: list[Tensor] = []
            fine: list[Tensor] = []
            for master, weight in zip(self._masters, self._weights, strict=True):
                master.grad = None if weight.grad is None else torch.empty_like(master)
                if weight.grad is not None and master.grad is not None:
                    coarse.append(weight.grad)
                    fine.append(master.grad)
            torch._foreach_copy_(fine, coarse)
        if self.plan.gradient_limit is not None:
            nn.utils.clip_grad_norm_(self._masters, self.plan.gradient_limit, foreach=True)
        for optimizer in self._optimizers:
            optimizer.step()
        if self._is_coarse:
            with torch.no_grad():
                torch._foreach_copy_(self._weights, self._masters)
        self._loss.lerp_(loss.detach(), torch.where(self._counter < 20, 0.5, 0.02))
        self._counter += 1

    def _capture(self, generators: list[torch.Generator]) -> torch.cuda.CUDAGraph:
        # On a stream of its own: graphs captured on one stream share the scratch memory of its matrix
        # products, and would spoil it for each other (or wait forever) when they run side by side.
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=stream):
            self._step()
        return graph

    def forget_graph(self) -> None:
        """Capture the step anew at the next fit: what the objective does has changed."""
        self._graph = None

    def _reset(self, seed: int, fresh: bool) -> None:
        if fresh:
            self._network.reset(torch_generator(derive_seed(seed, "weights")))
        with torch.no_grad():
            if self._is_coarse:
                torch._foreach_copy_(self._masters, self._weights)
            if fresh:
                torch._foreach_copy_(list(self.averaged.parameters()), self._masters)
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()
            if self._graph is None:
                optimizer.state.clear()
        self._counter.zero_()
        self._loss.zero_()

    def _begin(self, seed: int, fresh: bool) -> None:
        generators = self.objective.begin(seed)
        if self._device.type == "cuda" and self._graph is None:
            before = [p.detach().clone() for p in self.module.parameters()]
            self.objective.before_step(0)
            with torch.cuda.device(self._device):
                self._graph = self._capture(generators)
            with torch.no_grad():
                for parameter, value in zip(self.module.parameters(), before, strict=True):
                    parameter.copy_(value)
            self.objective.begin(seed)  # capturing has used up some of the streams
        self._reset(seed, fresh)

    @torch.no_grad()
    def _average(self, updates: int) -> None:
        weight = max(1.0 - self.plan.weight_average**AVERAGE_EVERY, 1.0 / (updates + 1))
        torch._foreach_lerp_(list(self.averaged.parameters()), self._masters, weight)

    def _set_rate(self, rate: float) -> None:
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate

    def _optimizer_states(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Give the state that optimizers have for each weight, with a name; empty before the first step."""
        for number, optimizer in enumerate(self._optimizers):
            weights = (weight for group in optimizer.param_groups for weight in group["params"])
            for k, weight in enumerate(weights):
                yield f"optimizer{number}.{k}.", optimizer.state[weight]

    def _weight_groups(self, best: list[Tensor]) -> dict[str, list[Tensor]]:
        return {"weights": self._masters, "averaged": list(self.averaged.parameters()), "best": best}

    def _snapshot(self, course: Course, best: list[Tensor]) -> Snapshot:
        """Copy the state after a look at the held-out loss, when it is whole."""
        tensors = {"counter": self._counter, "loss": self._loss}
        for name, weights in self._weight_groups(best).items():
            tensors |= {f"{name}.{k}": weight for k, weight in enumerate(weights)}
        for name, state in self._optimizer_states():
            tensors |= {f"{name}{key}": value for key, value in state.items()}
        for key, value in self.objective.state(course.step).items():
            tensors[f"objective.{key}"] = value
        return Snapshot.of(tensors, {"device": self._device.type, "course": dataclasses.asdict(course)})

    @torch.no_grad()
    def _resume(self, kept: Snapshot, best: list[Tensor]) -> Course:
        """Take a snapshot, in place: a captured step goes on with the tensors that it has seen."""
        course = Course(**kept.facts["course"])
        course.check(self.plan)
        mine = {"counter": self._counter, "loss": self._loss}
        for name, weights in self._weight_groups(best).items():
            mine |= {f"{name}.{k}": weight for k, weight in enumerate(weights)}
        found = {name: kept.tensors[name] for name in mine}
        check_declared(describe_tensors(found), describe_tensors(mine))
        for name, tensor in mine.items():
            tensor.copy_(found[name])
        if self._is_coarse:
            torch._foreach_copy_(self._weights, self._masters)
        for name, state in self._optimizer_states():
            for key, value in kept.part(name).items():
                state.setdefault(key, torch.empty_like(value, device=self._device)).copy_(value)
        self.objective.resume(kept.part("objective."))
        self._set_rate(course.rate)
        return course

    def fit(
        self,
        *,
        seed: int,
        fresh: bool = True,
        deadline: Deadline | None = None,
        progress: Progress | None = None,
        journal: Journal | None = None,
    ) -> MStep:
        """Train until the held-out loss stops improving, a limit is reached or time is up.

        Afterwards ``averaged`` holds the best weights. Without held-out data the training loss takes
        its place, as in the authors' code.
        """
        run = self.train(seed=seed, fresh=fresh, deadline=deadline, progress=progress, journal=journal)
        return train_all([run], self._device)[0]

    def train(
        self,
        *,
        seed: int,
        fresh: bool = True,
        deadline: Deadline | None = None,
        progress: Progress | None = None,
        journal: Journal | None = None,
        name: str = "network",
    ) -> Run:
        """Give what :meth:`fit` does in parts: it pauses whenever steps were started, before it waits.

        In the journal it has this name; it goes on from what is kept there, on the same sort of device.
        """
        # The clock starts when this training does: others may have been before it.
        plan, deadline, progress = self.plan, (deadline or Deadline()).share(1.0), progress or Progress()
        journal, started = journal or Journal(), time.perf_counter()
        self._begin(seed, fresh)
        self.module.train()
        best_weights = [p.clone() for p in self.averaged.parameters()]
        course, kept, threads = Course(plan.max_steps), journal.begin(name), QuickestThreads(self._device)
        if kept is not None and kept.facts["device"] == self._device.type:
            with damaged_checkpoint():
                course = self._resume(kept, best_weights)
            logger.info("resumed training after %d steps", course.step)
            if longer := course.planned - plan.max_steps:
                progress.extend(longer)
            progress.advance(course.step)
        while not course.ended:
            before, planned = course.step, course.planned
            self._take_steps(course, deadline, threads)
            yield
            loss, held_out = float(self._loss), self.objective.held_out_loss(self.averaged)
            progress.advance(course.step - before, loss=loss)
            if course.look(plan, loss, held_out, deadline.passed):
                torch._foreach_copy_(best_weights, list(self.averaged.parameters()))
            if deadline.remaining <= 0:
                break
            if longer := course.planned - planned:
                progress.extend(longer)
            if journal.wants(name) or (course.ended and journal.is_kept):
                journal.put(name, self._snapshot(course, best_weights), ended=course.ended)
        journal.end(name)
        progress.advance(course.planned - course.step)
        with torch.no_grad():
            torch._foreach_copy_(list(self.averaged.parameters()), best_weights)
        held_out_loss = course.best if course.held_out is not None else float("nan")
        return MStep(course.best_step, course.loss, held_out_loss, time.perf_counter() - started)

    def _take_steps(self, course: Course, deadline: Deadline, threads: QuickestThreads) -> None:
        """Take the steps up to the next look at the held-out loss, or to the deadline."""
        until = min(course.step + self.plan.check_every, course.planned)
        while course.step < until:
            step = course.step
            self.objective.before_step(step)
            if step <= self.plan.warm_up or step % AVERAGE_EVERY == 0:
                course.rate = self.plan.rate(step, max(step / course.planned, deadline.passed))
                self._set_rate(course.rate)
            if self._graph is not None:
                self._graph.replay()
            else:
                with threads.step(step):
                    self._step()
            course.step = step = step + 1
            # A step takes long on a CPU; a graph's replay returns at once and tells nothing.
            late = self._graph is None and deadline.remaining <= 0
            until = step if late else until
            if step % AVERAGE_EVERY == 0 or step == until:
                self._average(course.updates)
                course.updates += 1

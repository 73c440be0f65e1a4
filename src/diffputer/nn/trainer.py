"""The M-step's loop: stochastic gradient steps on an objective, averaged weights, a stop on held-out data.

Everything stays on the device; on CUDA one step is captured as a graph and replayed, so that no step waits
for Python. What is minimised is the engine's business: paper/matching.py (Algorithm 1),
conditional/masking.py.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

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
    falls_fast: float = -0.17
    """A held-out loss falls fast if it goes with the steps to this power, or faster."""
    longest: int = 0
    """While the held-out loss falls fast the plan is doubled, up to this many steps."""
    impatience: float | None = None
    """It stops sooner when it has waited for this share of the steps that led to the best loss."""

    def rate(self, step: int, done: float) -> float:
        """Learning rate of a step when a share of the work is done."""
        falling = (1.0 - done) / (1.0 - self.decay_from) if self.decay_from < 1 else 1.0
        return self.learning_rate * max(0.0, min(1.0, (step + 1) / max(1, self.warm_up), falling))


@dataclass
class TrainingState:
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
        """Record the losses of this step and decide how to go on; whether they are the best so far.

        ``passed`` is the share of the time that has.
        """
        self.loss, self.held_out = loss, held_out
        value = loss if held_out is None else held_out
        better = value < self.best or self.best_step == 0
        if better:
            self.best, self.best_step = value, self.step
        else:
            patience = plan.patience
            if plan.impatience is not None:
                patience = min(patience, max(SHORTEST_PATIENCE, int(plan.impatience * self.best_step)))
            if self.step - self.best_step >= patience:
                self.ended = True
                return False
        if held_out is not None:
            self.history.append(held_out)
            if self._is_cut_short(plan, passed):
                self.planned = min(2 * self.planned, plan.longest)
        self.ended = self.step >= self.planned
        return better

    def _is_cut_short(self, plan: TrainingPlan, passed: float) -> bool:
        """Whether the learning rate is about to fall although the held-out loss still falls fast."""
        falls_from = plan.decay_from * self.planned
        if self.planned >= plan.longest or not self.step <= falls_from < self.step + plan.check_every:
            return False
        if passed >= plan.decay_from or len(self.history) < 2:
            return False
        half = (len(self.history) + 1) // 2
        now, before = (max(value, 1e-12) for value in (self.history[-1], self.history[half - 1]))
        return math.log(now / before) / math.log(len(self.history) / half) < plan.falls_fast


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
        """Start all random streams afresh; returns the generators that :meth:`loss` draws from."""

    def before_step(self, step: int) -> None:
        """Do what a step needs from outside of the device."""

    def loss(self, counter: Tensor) -> Tensor:
        """The loss of the step with this number; touches nothing but the device."""

    def held_out_loss(self, averaged: nn.Module) -> float | None:
        """The loss of the averaged weights on held-out data, None if there is none."""

    def state(self, step: int) -> dict[str, Tensor]:
        """What the step with this number and later ones need of those before it."""

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state, after :meth:`begin` with the same seed."""


#: A training that is yet to be done.
Run = Callable[[], MStep]


def train_all(runs: Sequence[Run], deadline: Deadline | None = None) -> list[MStep]:
    """Do one training after the other, on any device; the results of those that began.

    When time is short the first are as good as they can be, and none begins that would have less than half
    of the time that another took.
    """
    done: list[MStep] = []
    for run in runs:
        least = max((step.seconds / 2 for step in done), default=-math.inf)
        if deadline is not None and deadline.remaining < least:
            break
        done.append(run())
    return done


def capture(
    step: Callable[[], None], device: torch.device, generators: Sequence[torch.Generator] = ()
) -> torch.cuda.CUDAGraph:
    """A graph of a step, which draws from these generators; it is taken a few times to warm up."""
    # On a stream of its own: graphs captured on one stream share the scratch memory of its matrix
    # products, and would spoil it for each other (or wait forever) when they run side by side.
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph


class Trainer:
    """Fits one module again and again, once an EM round."""

    def __init__(
        self, module: nn.Module, network: nn.Module, objective: Objective, plan: TrainingPlan
    ) -> None:
        self.module, self.objective, self.plan = module, objective, plan
        self._network = network
        self._device = device = next(module.parameters()).device
        self._counter = torch.zeros((), dtype=torch.int64, device=device)
        self._loss = torch.zeros((), device=device)
        # On CUDA a tensor, so that a captured step sees it change.
        rate: float | Tensor = plan.learning_rate
        self._rate = rate = torch.tensor(rate, device=device) if device.type == "cuda" else rate
        # Weights in bfloat16 are too coarse for small steps: those that are trained are in float32.
        self._weights: list[Tensor] = list(module.parameters())
        self._masters = [
            p if p.dtype == torch.float32 else p.detach().float().requires_grad_() for p in self._weights
        ]
        self._is_coarse = any(p.dtype != torch.float32 for p in self._weights)
        matrices = {id(p) for p in module.matrices()} if plan.orthogonal else set()  # type: ignore[operator]
        inner: list[Tensor] = []
        others: list[Tensor] = []
        for weight, master in zip(self._weights, self._masters, strict=True):
            (inner if id(weight) in matrices else others).append(master)
        # Other devices may lack the kernel.
        adamw = AdamW if device.type in ("cpu", "cuda") else torch.optim.AdamW
        betas = (0.9, plan.second_moment_decay)
        self._optimizers: list[Optimizer | torch.optim.Optimizer] = [
            adamw(others, lr=rate, betas=betas, weight_decay=plan.weight_decay)
        ]
        if plan.orthogonal:
            self._optimizers.append(Muon(inner, rate, weight_decay=plan.weight_decay))
        # The E-step uses the averaged weights (NOTE[paper]: the paper uses the last, the authors' code
        # those of the lowest training loss; see docs/dev/deviations.md).
        self.averaged = copy.deepcopy(module).float().requires_grad_(False).eval()
        self._graph: torch.cuda.CUDAGraph | None = None

    def _step(self) -> None:
        loss = self.objective.loss(self._counter)
        self.module.zero_grad(set_to_none=True)
        loss.backward()
        if self._is_coarse:
            pairs = [
                (m, w.grad) for m, w in zip(self._masters, self._weights, strict=True) if w.grad is not None
            ]
            fine = [torch.empty_like(master) for master, _ in pairs]
            torch._foreach_copy_(fine, [gradient for _, gradient in pairs])
            for (master, _), gradient in zip(pairs, fine, strict=True):
                master.grad = gradient
        if self.plan.gradient_limit is not None:
            nn.utils.clip_grad_norm_(self._masters, self.plan.gradient_limit, foreach=True)
        for optimizer in self._optimizers:
            optimizer.step()
        if self._is_coarse:
            with torch.no_grad():
                torch._foreach_copy_(self._weights, self._masters)
        self._loss.lerp_(loss.detach(), torch.where(self._counter < 20, 0.5, 0.02))
        self._counter += 1

    def forget_graph(self) -> None:
        """Capture the step anew at the next fit: what the objective does has changed."""
        self._graph = None

    def _reset(self, seed: int, fresh: bool) -> None:
        if fresh:
            self._network.reset(torch_generator(derive_seed(seed, "weights")))  # type: ignore[operator]
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
                self._graph = capture(self._step, self._device, generators)
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

    def _state(self, best: list[Tensor]) -> dict[str, Tensor]:
        """All tensors of the training but those of optimizers and objective, by name."""
        averaged: list[Tensor] = list(self.averaged.parameters())
        groups = {"weights": self._masters, "averaged": averaged, "best": best}
        return {"counter": self._counter, "loss": self._loss} | {
            f"{name}.{k}": weight for name, weights in groups.items() for k, weight in enumerate(weights)
        }

    def _optimizer_states(self) -> dict[str, dict[str, Tensor]]:
        """The state that optimizers have for each weight, by name; empty before the first step."""
        return {
            f"optimizer{number}.{k}.": optimizer.state[weight]
            for number, optimizer in enumerate(self._optimizers)
            for k, weight in enumerate(optimizer.param_groups[0]["params"])
        }

    def _snapshot(self, state: TrainingState, best: list[Tensor]) -> Snapshot:
        """Copy all state after a look at the held-out loss, when it is whole."""
        tensors = self._state(best)
        for name, of_weight in self._optimizer_states().items():
            tensors |= {f"{name}{key}": value for key, value in of_weight.items()}
        tensors |= {f"objective.{key}": value for key, value in self.objective.state(state.step).items()}
        return Snapshot.of(tensors, {"device": self._device.type, "course": dataclasses.asdict(state)})

    @torch.no_grad()
    def _resume(self, kept: Snapshot, best: list[Tensor]) -> TrainingState:
        """Take a snapshot, in place: a captured step goes on with the tensors that it has seen."""
        state = TrainingState(**kept.facts["course"])
        state.check(self.plan)
        mine = self._state(best)
        found = {name: kept.tensors[name] for name in mine}
        check_declared(describe_tensors(found), describe_tensors(mine))
        for name, tensor in mine.items():
            tensor.copy_(found[name])
        if self._is_coarse:
            torch._foreach_copy_(self._weights, self._masters)
        for name, of_weight in self._optimizer_states().items():
            for key, value in kept.part(name).items():
                of_weight.setdefault(key, torch.empty_like(value, device=self._device)).copy_(value)
        self.objective.resume(kept.part("objective."))
        self._set_rate(state.rate)
        return state

    def fit(
        self,
        *,
        seed: int,
        fresh: bool = True,
        deadline: Deadline | None = None,
        progress: Progress | None = None,
        journal: Journal | None = None,
        name: str = "network",
    ) -> MStep:
        """Train until the held-out loss stops improving, a limit is reached or time is up.

        Afterwards ``averaged`` holds the best weights. Without held-out data the training loss takes its
        place, as in the authors' code. Goes on from the snapshot that the journal has under this name, if it
        is of the same sort of device.
        """
        # The clock starts when this training does: others may have been before it.
        plan, deadline, progress = self.plan, (deadline or Deadline()).share(1.0), progress or Progress()
        journal, started = journal or Journal(), time.perf_counter()
        self._begin(seed, fresh)
        self.module.train()
        averaged: list[Tensor] = list(self.averaged.parameters())
        best = [p.clone() for p in averaged]
        state, threads = TrainingState(plan.max_steps), QuickestThreads(self._device)
        kept = journal.kept(name)
        if kept is not None and kept.facts["device"] == self._device.type:
            with damaged_checkpoint():
                state = self._resume(kept, best)
            logger.info("resumed training after %d steps", state.step)
            progress.extend(state.planned - plan.max_steps)
            progress.advance(state.step)
        while not state.ended:
            before, planned = state.step, state.planned
            self._take_steps(state, deadline, threads)
            loss, held_out = float(self._loss), self.objective.held_out_loss(self.averaged)
            progress.advance(state.step - before, loss=loss)
            if state.look(plan, loss, held_out, deadline.passed):
                torch._foreach_copy_(best, averaged)
            if deadline.remaining <= 0:
                break
            progress.extend(state.planned - planned)
            if journal.wants(ended=state.ended):
                journal.put(name, self._snapshot(state, best))
        progress.advance(state.planned - state.step)
        with torch.no_grad():
            torch._foreach_copy_(averaged, best)
        held_out_loss = state.best if state.held_out is not None else float("nan")
        return MStep(state.best_step, state.loss, held_out_loss, time.perf_counter() - started)

    def train(self, **options: Any) -> Run:
        """:meth:`fit`, to be done by :func:`train_all`."""
        return partial(self.fit, **options)

    def _take_steps(self, state: TrainingState, deadline: Deadline, threads: QuickestThreads) -> None:
        """Take the steps up to the next look at the held-out loss, or to the deadline."""
        until = min(state.step + self.plan.check_every, state.planned)
        while state.step < until:
            step = state.step
            self.objective.before_step(step)
            if step <= self.plan.warm_up or step % AVERAGE_EVERY == 0:
                state.rate = self.plan.rate(step, max(step / state.planned, deadline.passed))
                self._set_rate(state.rate)
            if self._graph is not None:
                self._graph.replay()
            else:
                with threads.step(step):
                    self._step()
                # A step takes long on a CPU; a graph's replay returns at once and tells nothing.
                until = step + 1 if deadline.remaining <= 0 else until
            state.step += 1
            if state.step % AVERAGE_EVERY == 0 or state.step == until:
                self._average(state.updates)
                state.updates += 1

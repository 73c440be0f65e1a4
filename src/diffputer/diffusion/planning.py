"""How long and how fast an M-step trains, and how far it has come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: A held-out loss falls fast if it goes with the steps to this power, or faster: 11 % less for twice as many.
#: Measured when the rate was to fall: Letter -0.22, Bean -0.19; Default -0.14, California -0.12, other tables
#: of the paper nearer to 0 (docs/dev/conditional.md).
FALLS_FAST = -0.17
#: Steps without a better held-out loss that are always waited for.
SHORTEST_PATIENCE = 200


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

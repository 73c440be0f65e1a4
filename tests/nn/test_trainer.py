from __future__ import annotations

import dataclasses

import pytest
import torch

from diffputer.models.paper.denoiser import Denoiser
from diffputer.models.paper.matching import make_trainer
from diffputer.nn.trainer import MStep, Run, Trainer, TrainingPlan, train_all
from diffputer.runtime.devices import Deadline
from diffputer.settings import PaperSettings

SETTINGS = PaperSettings(hidden_width=32, max_steps=200, batch_size=256, learning_rate=3e-3, patience=100)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) * 0.5


def fit(
    x: torch.Tensor,
    settings: PaperSettings = SETTINGS,
    *,
    held_out: torch.Tensor | None = None,
    deadline: Deadline | None = None,
) -> tuple[Trainer, MStep]:
    denoiser = Denoiser(x.shape[1], settings.hidden_width, 0.5)
    trainer = make_trainer(denoiser, len(x), settings, torch.float32)
    return trainer, fit_again(trainer, x, held_out, deadline=deadline)


def fit_again(
    trainer: Trainer, x: torch.Tensor, held_out: torch.Tensor | None = None, *, seed: int = 0, **more: object
) -> MStep:
    trainer.objective.use_table(x, held_out)  # type: ignore[attr-defined]
    return trainer.fit(seed=seed, **more)  # type: ignore[arg-type]


def test_same_seed_same_network(x: torch.Tensor) -> None:
    (a, _), (b, _) = fit(x), fit(x)
    for mine, theirs in zip(a.averaged.parameters(), b.averaged.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_trainer_can_be_used_again(x: torch.Tensor) -> None:
    first, _ = fit(x)
    weights = [p.clone() for p in first.averaged.parameters()]
    fit_again(first, x * 2, seed=1)
    fit_again(first, x)
    assert all(torch.equal(p, w) for p, w in zip(first.averaged.parameters(), weights, strict=True))


def test_the_m_step_stops_when_held_out_rows_get_worse(x: torch.Tensor) -> None:
    # Sixty rows of noise are soon memorised; other rows of the same noise show it.
    settings = dataclasses.replace(SETTINGS, max_steps=3_000, hidden_width=64)
    other = torch.randn(200, 4, generator=torch.Generator().manual_seed(1)) * 0.5
    _, result = fit(x, settings, held_out=other)
    assert result.steps < 2_000
    _, last = fit(x, dataclasses.replace(settings, patience=3_000))
    assert last.loss < result.loss


def test_epochs_limit_the_steps(x: torch.Tensor) -> None:
    settings = dataclasses.replace(SETTINGS, batch_size=20, max_epochs=10)
    trainer, result = fit(x, settings)
    assert trainer.plan.max_steps == 30
    assert result.steps <= 30


def test_warm_networks_go_on_where_they_were(x: torch.Tensor) -> None:
    trainer, first = fit(x)
    warm = fit_again(trainer, x, seed=1, fresh=False)
    assert warm.loss < first.loss * 1.05


def test_a_deadline_ends_training(x: torch.Tensor) -> None:
    _, result = fit(
        x, dataclasses.replace(SETTINGS, max_steps=10**7, patience=10**7), deadline=Deadline.after(0.0)
    )
    assert result.steps == 1


def test_trainings_do_not_disturb_each_other(x: torch.Tensor) -> None:
    alone = [fit(x * scale)[0] for scale in (1.0, 2.0)]
    together = []
    for scale in (1.0, 2.0):
        trainer = make_trainer(Denoiser(x.shape[1], 32, 0.5), len(x), SETTINGS, torch.float32)
        trainer.objective.use_table(x * scale)  # type: ignore[attr-defined]
        together.append(trainer)
    results = train_all([trainer.train(seed=0) for trainer in together])
    assert all(result.steps > 0 for result in results)
    for one, other in zip(alone, together, strict=True):
        for mine, theirs in zip(one.averaged.parameters(), other.averaged.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_no_training_begins_that_would_be_cut_short() -> None:
    order: list[str] = []

    def run(name: str, steps: int) -> Run:
        def fit() -> MStep:
            order.append(name)
            return MStep(steps, 0.0, 0.0, seconds=100.0)

        return fit

    def train(seconds: float | None) -> list[int]:
        order.clear()
        deadline = Deadline.after(seconds)
        results = train_all([run("first", 3), run("second", 2)], deadline)
        return [result.steps for result in results]

    assert train(None) == [3, 2]
    assert order == ["first", "second"]
    assert train(1_000.0) == [3, 2]
    assert train(40.0) == [3]  # half of the hundred seconds of the first would be too long
    assert order == ["first"]
    assert train(0.0) == [3]


class Falling:
    """An objective whose held-out loss falls with the steps to a power."""

    def __init__(self, parameter: torch.nn.Parameter, power: float) -> None:
        self.parameter, self.power, self.step = parameter, power, 0

    def begin(self, seed: int) -> list[torch.Generator]:
        self.step = 0
        return []

    def before_step(self, step: int) -> None:
        self.step = step + 1

    def loss(self, counter: torch.Tensor) -> torch.Tensor:
        return self.parameter.square().sum()

    def held_out_loss(self, averaged: torch.nn.Module) -> float | None:
        return float(self.step**self.power)


class One(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            self.weight.fill_(1.0)


@pytest.mark.parametrize(
    ("power", "longest", "steps"),
    [(-0.3, 10_000, 10_000), (-0.3, 700, 700), (-0.3, 0, 200), (-0.1, 10_000, 200)],
    ids=["twice and again", "no longer than allowed", "never asked for", "slowly falling"],
)
def test_a_plan_is_doubled_while_the_held_out_loss_falls_fast(power: float, longest: int, steps: int) -> None:
    one = One()
    plan = TrainingPlan(
        learning_rate=1e-3, max_steps=200, patience=10**6, weight_average=0.9, decay_from=0.3, check_every=10,
        longest=longest,
    )  # fmt: skip
    trainer = Trainer(one, one, Falling(one.weight, power), plan)
    assert trainer.fit(seed=0).steps == steps


def test_a_plan_is_not_doubled_when_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One()
    plan = TrainingPlan(
        learning_rate=1e-3, max_steps=200, patience=10**6, weight_average=0.9, decay_from=0.3, check_every=10,
        longest=10_000,
    )  # fmt: skip
    monkeypatch.setattr(Deadline, "passed", property(lambda deadline: 0.5))
    trainer = Trainer(one, one, Falling(one.weight, -0.3), plan)
    assert trainer.fit(seed=0, deadline=Deadline.after(1_000)).steps == 200

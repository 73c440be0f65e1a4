from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from diffputer.runtime import threads
from diffputer.runtime.threads import PERIOD, TRIED, QuickestThreads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Clock:
    """Time that passes by what a step takes with so many threads."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def take(steps: range, choice: QuickestThreads, clock: Clock, seconds: dict[int, float]) -> list[int]:
    used = []
    for number in steps:
        with choice.step(number):
            used.append(torch.get_num_threads())
            clock.now += seconds[used[-1]]
    return used


def test_the_quicker_is_taken_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(threads, "time", clock)
    choice = QuickestThreads(CPU)
    alone = take(range(PERIOD), choice, clock, {1: 3.0, 2: 2.0})
    assert alone.count(1) == TRIED
    busy = take(range(PERIOD, 2 * PERIOD), choice, clock, {1: 3.0, 2: 50.0})
    assert busy.count(2) == TRIED + 1  # the first of them goes by what was best before
    again = take(range(2 * PERIOD, 3 * PERIOD), choice, clock, {1: 3.0, 2: 2.0})
    assert again.count(1) == TRIED + 1
    assert torch.get_num_threads() == 2


def test_threads_are_as_before_after_an_error() -> None:
    choice, used = QuickestThreads(CPU), []

    def fail() -> None:
        used.append(torch.get_num_threads())
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"), choice.step(1):
        fail()
    assert used == [1]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_thread_and_gpus_are_left_alone(device: str) -> None:
    torch.set_num_threads(1 if device == "cpu" else 2)
    before, choice = torch.get_num_threads(), QuickestThreads(torch.device(device))
    for number in range(2 * PERIOD):
        with choice.step(number):
            assert torch.get_num_threads() == before

"""How many threads of a CPU the steps of a training shall have at the moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Steps after which it is tried again, and those that are timed with one thread and with all.
PERIOD, TRIED = 100, 4


class QuickestThreads:
    """Finds out again and again whether one thread or all are quicker for steps of one size.

    Threads of a step wait for each other actively. Where other programs want the cores, one waits until
    another is given a core again: a step of milliseconds then takes fifty times as long as with one thread
    (measured: docs/dev/log.md). No program can ask whether it has the cores to itself, but it can try.
    What a step computes does not depend on it.
    """

    def __init__(self, device: torch.device) -> None:
        self._most = torch.get_num_threads() if device.type == "cpu" else 1
        self._best = self._most
        self._seconds = {1: 0.0, self._most: 0.0}

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Take the step of this number, from 0 on, with as many threads as seem best."""
        if self._most == 1:
            yield
            return
        place = number % PERIOD
        tried = 1 if 1 <= place <= TRIED else self._most if TRIED < place <= 2 * TRIED else None
        if place == 1:
            self._seconds = dict.fromkeys(self._seconds, 0.0)
        if place == 2 * TRIED + 1:
            self._best = min(self._seconds, key=lambda threads: self._seconds[threads])
        with _threads(tried or self._best):
            started = time.perf_counter()
            yield
            if tried:
                self._seconds[tried] += time.perf_counter() - started


@contextmanager
def _threads(wanted: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)

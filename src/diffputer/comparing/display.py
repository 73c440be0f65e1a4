"""What a person sees while methods run: which one it is, how many are done, and the time left at most."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..runtime.progress import Progress, show_progress
from ..runtime.reporting import make_console


class RunsShown:
    """What is told of runs, and shows none of it: what everything uses unless somebody watches."""

    def begin(self, name: str, repetition: int, total: int) -> None:
        """Hear of a run that begins, and how many there are to be."""

    def end(self) -> None:
        """Hear that it has ended."""

    def tick(self) -> None:
        """Hear that time has passed."""


class RunsOnTerminal(RunsShown):
    """A bar on standard error."""

    def __init__(self, bar: Any, deadline: float) -> None:
        self._bar, self._deadline = bar, deadline
        self._words = "starting"
        self._ticked = 0.0
        self._task = bar.add_task(self._words, total=None, left="")

    def begin(self, name: str, repetition: int, total: int) -> None:
        self._words = name if repetition == 0 else f"{name}, repetition {repetition + 1}"
        self._bar.update(self._task, description=self._words, total=total)

    def end(self) -> None:
        self._bar.update(self._task, advance=1)

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked > 0.25:
            self._ticked = now
            left = max(self._deadline - now, 0.0)
            self._bar.update(self._task, left=f"at most {int(left // 60)}:{int(left % 60):02d} left")


class RunsInLines(RunsShown):
    """Lines on standard error, where there is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._total = progress, 0

    def begin(self, name: str, repetition: int, total: int) -> None:
        if not self._total:
            self._progress.begin("comparing methods", total)
        else:
            self._progress.extend(total - self._total)
        self._total = total

    def end(self) -> None:
        self._progress.advance()


@contextmanager
def show_runs(wanted: bool | None, deadline: float) -> Iterator[RunsShown]:
    """Show how far a comparison is: a bar on a terminal, else lines; None: only on a terminal."""
    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not (has_terminal if wanted is None else wanted):
        yield RunsShown()
        return
    if not has_terminal:
        with show_progress(wanted) as progress:
            yield RunsInLines(progress)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.description}", markup=False),
    )
    with Bars(*columns, console=make_console(stderr=True), transient=True) as bar:
        yield RunsOnTerminal(bar, deadline)

"""Progress of long work: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """The silent progress: the interface, and what everything uses unless somebody watches."""

    def begin(self, task: str, total: int) -> None:
        """Start a task of so many steps."""

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Report steps done, with numbers worth showing (loss, ...)."""

    def extend(self, steps: int) -> None:
        """Report that the task has so many steps more than was said."""

    def end(self) -> None:
        """Close the current task."""


class TerminalProgress(Progress):
    """One bar a task, on standard error, with the time left."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._task: Any = None

    def begin(self, task: str, total: int) -> None:
        self.end()
        self._task = self._display.add_task(task, total=total, facts="")

    def advance(self, steps: int = 1, **facts: float) -> None:
        if self._task is not None:
            text = "  ".join(f"{name} {value:.4g}" for name, value in facts.items())
            self._display.update(self._task, advance=steps, **({"facts": text} if facts else {}))

    def extend(self, steps: int) -> None:
        if self._task is not None:
            total = next(task.total for task in self._display.tasks if task.id == self._task)
            self._display.update(self._task, total=total + steps)

    def end(self) -> None:
        if self._task is not None:
            self._display.remove_task(self._task)
            self._task = None


@contextmanager
def show_progress(wanted: bool | None) -> Iterator[Progress]:
    """Open a progress display; ``None`` shows it when standard error is a terminal."""
    if wanted is None:
        wanted = sys.stderr.isatty()
    if not wanted:
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as display:
        yield TerminalProgress(display)

"""Progress of long work: a bar on a terminal, lines where there is none."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .reporting import make_console, visible

#: Seconds after which the first line of a task is written, and between two lines.
FIRST_LINE, NEXT_LINE = 3.0, 10.0


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
    """One bar for each task, on standard error, with the time left."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._task: Any = None

    def begin(self, task: str, total: int) -> None:
        self.end()
        self._display.start()
        self._task = self._display.add_task(visible(task), total=total, facts="")

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
            self._display.stop()  # until the next task, so that others can write
            self._task = None


class LineProgress(Progress):
    """Lines on standard error: the task, how much of it is done, the time it took and the time left.

    A task that ends soon has no line. The lines come from a thread, so that work that reports nothing for
    long is seen to go on.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._task = ""
        self._done, self._total, self._begun = 0, 0, 0.0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def begin(self, task: str, total: int) -> None:
        with self._change:
            self._task, self._done, self._total, self._begun = task, 0, total, time.monotonic()
            if self._thread is None:
                thread = threading.Thread(target=self._write_lines, daemon=True)
                with suppress(RuntimeError):  # no memory for another one: there are no lines, then
                    thread.start()
                    self._thread = thread
            self._change.notify()

    def advance(self, steps: int = 1, **facts: float) -> None:
        self._done += steps

    def extend(self, steps: int) -> None:
        self._total += steps

    def end(self) -> None:
        with self._change:
            self._task = ""

    def close(self) -> None:
        """Write no more."""
        with self._change:
            self._is_closed = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join()

    def _write_lines(self) -> None:
        with self._change:
            last, shown = 0.0, ""
            while not self._is_closed:
                now = time.monotonic()
                pause = self._begun + FIRST_LINE - now if self._task != shown else last + NEXT_LINE - now
                if self._task and pause <= 0:
                    try:
                        sys.stderr.write(f"{visible(self._line(now - self._begun))}\n")
                        sys.stderr.flush()
                    except (OSError, ValueError, AttributeError):  # nobody reads it any more
                        return
                    last, shown = now, self._task
                    pause = NEXT_LINE
                self._change.wait(max(pause, 0.01) if self._task else None)

    def _line(self, seconds: float) -> str:
        parts = [self._task]
        if self._done and self._total:
            parts.append(f"{100 * min(self._done / self._total, 1.0):.0f} %")
        parts.append(f"{_show_time(seconds)} elapsed")
        if 0 < self._done < self._total:
            parts.append(f"about {_show_time(seconds * (self._total / self._done - 1))} left")
        return ", ".join(parts)


def _show_time(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _show_time(7), _show_time(754), _show_time(4000)
    ('0:07', '12:34', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


#: The display of the command at work.
_of_command: Progress | None = None


@contextmanager
def share_progress(wanted: bool) -> Iterator[Progress]:
    """Open one display for a whole command, which all that it calls uses unless it is to be silent."""
    global _of_command
    with show_progress(wanted) as progress:
        _of_command = progress
        try:
            yield progress
        finally:
            _of_command = None


@contextmanager
def show_progress(wanted: bool | None) -> Iterator[Progress]:
    """Open a progress display: bars on a terminal or in a notebook, else lines.

    ``None`` is the command's display, or a new one when standard error is a terminal.
    """
    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    if wanted is None and _of_command is not None:
        yield _of_command
        _of_command.end()
        return
    if not (has_terminal if wanted is None else wanted):
        yield Progress()
        return
    console = make_console(stderr=True)
    if not (has_terminal or console.is_jupyter):
        lines = LineProgress()
        try:
            yield lines
        finally:
            lines.close()
        return
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
    display = RichProgress(*columns, console=console, transient=True)
    try:
        yield TerminalProgress(display)
    finally:
        display.stop()

"""What a person sees of results: a line for each, and a bar while they are being made."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..runtime.reporting import make_console
from .campaign import estimate_left
from .published import PUBLISHED_RATE, find_published, find_published_name
from .results import Row
from .runner import is_failure
from .suites import Job


def describe_row(row: Row) -> str:
    """Give a result as one line: scores times 100, the published ones in brackets ("?" if doubtful)."""
    label = f" ({row['label']})" if row["label"] else ""
    where = f"{row['task']}  {row['method']}{label}  {row['setting']}"
    if row["error"]:
        return f"{where}  {'FAILED ' if is_failure(row) else ''}{row['error']}"
    if row["em_round"]:
        where += f"  EM round {row['em_round']}"
    words = [where]
    for metric, title in (("mae", "MAE"), ("rmse", "RMSE"), ("accuracy", "accuracy")):
        if row[metric] is not None:
            beside = "" if row["em_round"] or row["rate"] != PUBLISHED_RATE else _show_published(row, metric)
            words.append(f"{title} {100 * row[metric]:.2f}{beside}")
    if row["mae_median"] is not None:
        words.append(f"median {100 * row['mae_median']:.2f}/{100 * row['rmse_median']:.2f}")
    if row["coverage"] is not None:
        words.append(f"coverage {100 * row['coverage']:.1f} %  CRPS {100 * row['crps']:.2f}")
    if row["energy"] is not None:
        words.append(f"energy {100 * row['energy']:.2f}")
    if row["auc"] is not None:
        words.append(f"AUC {row['auc']:.3f}")
    if row["fit_seconds"] is not None:
        rounds = f" (EM rounds {row['em_rounds']}, best {row['best_round']})" if row["em_rounds"] else ""
        words.append(f"fit {row['fit_seconds']:.1f} s{rounds}")
    words.append(f"transform {row['transform_seconds']:.1f} s")
    return "  ".join(words)


def _show_published(row: Row, metric: str) -> str:
    name = find_published_name(row["method"])
    published = name and find_published(row["dataset"], row["mechanism"], row["setting"], metric, name)
    return "" if not published else f" ({100 * published[0]:.2f}{'?' if published[1] else ''})"


class RunsShown:
    """What is told of runs, and shows none of it: what everything uses unless somebody watches."""

    def begun(self, job: Job) -> None:
        """Hear of a run that begins."""

    def ended(self, job: Job, rows: list[Row], seconds: float) -> None:
        """Hear of a run that has ended."""


class RunsOnTerminal(RunsShown):
    """A bar with how long the rest may take, how many failed, and what is running."""

    def __init__(self, jobs: Sequence[Job], workers: int, bar: Any) -> None:
        self._left, self._workers, self._bar = list(jobs), workers, bar
        self._running: list[Job] = []
        self._seconds: dict[str, list[float]] = {}
        self._failed = 0

    def begun(self, job: Job) -> None:
        self._running.append(job)
        self._bar.update(self._bar.task_ids[0], description=self._words())

    def ended(self, job: Job, rows: list[Row], seconds: float) -> None:
        self._left.remove(job)
        self._running.remove(job)
        self._seconds.setdefault(job.entry.method, []).append(seconds)
        self._failed += any(is_failure(row) for row in rows)
        self._bar.update(self._bar.task_ids[0], advance=1, description=self._words())

    def _words(self) -> str:
        rest = estimate_left(self._seconds, self._left, self._workers)
        parts = [] if rest is None else [f"about {show_duration(rest)} left"]
        parts += [f"{self._failed:,} failed"] if self._failed else []
        return ", ".join(parts + [f"{job.entry.method} on {job.task.dataset}" for job in self._running])


@contextmanager
def show_runs(jobs: Sequence[Job], workers: int, wanted: bool | None = None) -> Iterator[RunsShown]:
    """Show how far jobs are; None: if standard error is a terminal."""
    if wanted is None:
        wanted = sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        yield RunsShown()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        bar.add_task("", total=len(jobs))
        yield RunsOnTerminal(jobs, workers, bar)


def show_duration(seconds: float) -> str:
    """Give a duration as people say it.

    Examples
    --------
    >>> show_duration(9), show_duration(754), show_duration(50_000)
    ('9 s', '13 min', '13.9 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

"""Runs the simulation: finds what is done, runs the rest in several processes, keeps one row a result."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from ...errors import DiffputerError
from ...runtime.isolation import SAFE_PATH
from ...runtime.seeding import derive_seed
from ..processes import die_with_parent
from ..provenance import describe_versions, find_git_hash, hash_settings, name_device
from ..results import Row, append_rows, check_columns, read_rows
from .designs import DESIGNS, HIDEABLE, hide_cells
from .imputers import Answer, Entry, Sample, run_entries

#: The columns of a raw row: one repetition of a cell by one method. ``results`` is JSON, estimand ->
#: [estimate, standard error, degrees of freedom, low, high, fmi].
RAW_FIELDS = (
    "design", "mechanism", "rate", "rows", "draws", "repetition", "method", "title", "settings_hash",
    "missing", "fit_seconds", "draw_seconds", "threads", "machine", "git_hash", "error", "versions",
    "settings", "results",
)  # fmt: skip
#: All samples descend from this number, the design, the mechanism, the rate and the repetition.
SEED = 20_250
#: Fits by several processes are begun so many ahead.
_AHEAD = 2

Key = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One repetition of a cell of the simulation, by the methods that have not run it yet."""

    design: str
    mechanism: str
    rate: float
    rows: int
    draws: int
    repetition: int
    entries: tuple[Entry, ...]

    def sample(self) -> Sample:
        """Draw the table and hide cells: the same for every method, machine and order."""
        seed = derive_seed(SEED, self.design, self.mechanism, f"{self.rate:g}", self.rows, self.repetition)
        rng = np.random.default_rng(abs(seed))
        design = DESIGNS[self.design]
        complete = design.draw(self.rows, rng)
        incomplete = hide_cells(complete, self.mechanism, self.rate, rng)
        return Sample(design, complete, incomplete, self.draws, abs(seed))

    def key(self, entry: Entry) -> Key:
        """What tells the row of a method from all others."""
        return _key(
            self.design, self.mechanism, self.rate, self.rows, self.draws, self.repetition, entry.name,
            hash_settings(entry.described),
        )  # fmt: skip


def plan_jobs(
    path: str | os.PathLike[str],
    entries: Sequence[Entry],
    *,
    designs: Iterable[str],
    mechanisms: Iterable[str],
    rates: Iterable[float],
    repetitions: Iterable[int],
    rows: int = 400,
    draws: int = 20,
    retry_failed: bool = False,
) -> list[Job]:
    """Find out what is left to do.

    Repetitions are the outermost loop, so that what is there at any time has about as many of every cell.

    Parameters
    ----------
    path : path
        Of the raw rows; what is in it is done.
    entries : sequence of Entry
        Methods.
    designs, mechanisms, rates, repetitions : iterables
        All combinations of these.
    rows, draws : int
        Of each table; of each multiple imputation.
    retry_failed : bool
        Run again what failed.

    Returns
    -------
    list of Job
    """
    done = {_key_of(row) for row in last_rows(read_raw([path])) if not (retry_failed and row["error"])}
    cells = [(d, m, r) for d in designs for m in mechanisms for r in rates]
    jobs = []
    for repetition in repetitions:
        for design, mechanism, rate in cells:
            job = Job(design, mechanism, rate, rows, draws, repetition, tuple(entries))
            left = tuple(entry for entry in entries if job.key(entry) not in done)
            if left:
                jobs.append(Job(design, mechanism, rate, rows, draws, repetition, left))
    return jobs


def run_jobs(jobs: Sequence[Job], path: str | os.PathLike[str], workers: int = 1) -> Iterator[list[Row]]:
    """Run jobs; their rows are in the file before they are given.

    Parameters
    ----------
    jobs : sequence of Job
        Of `plan_jobs`.
    path : path
        Of the raw rows.
    workers : int
        Processes; each computes with one thread. One worker is this process.

    Yields
    ------
    list of dict
        Rows of a job, in the order in which jobs end.
    """
    if Path(path).exists():
        check_columns(path, RAW_FIELDS)
    facts = (find_git_hash(), name_device(torch.device("cpu")))
    with _one_thread() if workers == 1 else _pool(workers) as pool:
        for rows in _answers(jobs, facts, pool, workers):
            append_rows(path, rows, RAW_FIELDS)
            yield rows


def read_raw(paths: Iterable[str | os.PathLike[str]]) -> list[dict[str, str]]:
    """Read raw rows of several files; lines that were cut off are left out, with a warning."""
    rows: list[dict[str, str]] = []
    for path in paths:
        if Path(path).exists():
            check_columns(path, RAW_FIELDS)
            rows += read_rows(path)
    return rows


def last_rows(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Keep one row of every repetition by every method: a success, or the last failure."""
    kept: dict[Key, dict[str, str]] = {}
    for row in rows:
        key = _key_of(row)
        if key not in kept or kept[key]["error"]:
            kept[key] = row
    return list(kept.values())


def _key(*parts: Any) -> Key:
    return tuple(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def _key_of(row: dict[str, str]) -> Key:
    return _key(
        row["design"], row["mechanism"], float(row["rate"]), row["rows"], row["draws"], row["repetition"],
        row["method"], row["settings_hash"],
    )  # fmt: skip


def _answers(
    jobs: Sequence[Job], facts: tuple[str | None, str], pool: ProcessPoolExecutor | None, workers: int
) -> Iterator[list[Row]]:
    """Give the rows of every job as it ends; few are begun ahead, so that stopping costs little."""
    if pool is None:
        yield from (_run(job, *facts) for job in jobs)
        return
    waiting = iter(jobs)
    running: set[Future[list[Row]]] = set()
    try:
        while True:
            room = _AHEAD * workers - len(running)
            running |= {pool.submit(_run, job, *facts) for job in islice(waiting, room)}
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
    except BrokenProcessPool as error:
        raise DiffputerError(
            "Every process must live to its end, however: one was ended by the system, which happens when "
            "memory runs out. What was done is kept: run the same command again, with fewer workers."
        ) from error


def _run(job: Job, git_hash: str | None, machine: str) -> list[Row]:
    sample = job.sample()
    answers = run_entries(job.entries, sample)
    missing = float(sample.incomplete[list(HIDEABLE)].isna().to_numpy().mean())
    return [_describe(job, entry, answers[entry.name], missing, git_hash, machine) for entry in job.entries]


def _describe(
    job: Job, entry: Entry, answer: Answer, missing: float, git_hash: str | None, machine: str
) -> Row:
    error = answer.error
    if not error and not all(math.isfinite(i.low + i.high) for i in answer.intervals.values()):
        error = "NotFinite: an interval has an end that is no number."
    results = {name: [_short(v) for v in found.as_list()] for name, found in answer.intervals.items()}
    return {
        "design": job.design,
        "mechanism": job.mechanism,
        "rate": job.rate,
        "rows": job.rows,
        "draws": job.draws,
        "repetition": job.repetition,
        "method": entry.name,
        "title": entry.title,
        "settings_hash": hash_settings(entry.described),
        "missing": round(missing, 4),
        "fit_seconds": round(answer.fit_seconds, 4),
        "draw_seconds": round(answer.draw_seconds, 4),
        "threads": 1,
        "machine": machine,
        "git_hash": git_hash,
        "error": error,
        "versions": _versions(entry.packages),
        "settings": entry.described,
        "results": "" if error else json.dumps(results),
    }


@cache
def _versions(packages: tuple[str, ...]) -> str:
    return describe_versions(packages)


def _short(value: float | None) -> float | None:
    """Eight digits are enough for any question asked of a row."""
    return None if value is None else float(f"{value:.8g}")


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield None
    finally:
        torch.set_num_threads(before)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this block, whatever they are doing, and with this process, however it ends."""
    others = {child.pid for child in multiprocessing.active_children()}
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"  # of the processes that start in this block
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_begin_worker, initargs=(list(sys.path),)
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child.pid not in others:
                child.kill()
        if before is None:
            del os.environ[SAFE_PATH]


def _begin_worker(path: list[str]) -> None:
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's to answer
    die_with_parent()
    torch.set_num_threads(1)
    threadpool_limits(1)

"""Runs a suite: finds what is done, runs the rest, keeps one file of results for each method."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ..errors import InputError, SettingError
from ..methods.contract import Method
from ..methods.hyperimpute import HYPERIMPUTE, find_python
from ..methods.rmice import CART, PMM, find_versions
from ..methods.table import METHODS
from .datasets import DATA_VARIABLE, VARIANTS, file_of, fingerprint_of, split_name
from .results import Row, append_rows, check_columns, read_header, read_rows, replace_rows
from .runner import KEY_COLUMNS, OURS, Key, is_done, is_failure, key_of, make_key
from .scheduler import run_jobs
from .suites import Job, Limits, find_lack_of_file

_MODULES = {"scikit-learn": "sklearn"}
#: Method -> what refuses if the other program that runs it is not installed.
_OTHER_PROGRAMS: dict[str, Callable[[], object]] = {
    HYPERIMPUTE.name: find_python,
    PMM.name: find_versions,
    CART.name: find_versions,
}
#: What a CSV file must have to be one of results; in a folder of the user's there may be others.
_COLUMNS = {*KEY_COLUMNS, "setting", "em_round", "mae", "error"}


@dataclass
class Plan:
    """What is left to do of some jobs.

    Attributes
    ----------
    todo
        To be run.
    done
        Whose rows are there.
    failed
        Whose rows are there, with a failure.
    skipped
        Whose method cannot be run on this machine.
    lacks
        Method -> what it lacks; those of the skipped jobs.
    missing
        Data sets that are to be used and are not there.
    """

    todo: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    failed: list[Job] = field(default_factory=list)
    skipped: list[Job] = field(default_factory=list)
    lacks: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def skip(self, job: Job, lack: str) -> None:
        """Leave a job out for what its method lacks."""
        self.skipped.append(job)
        self.lacks[job.entry.method] = lack

    @property
    def lacks_own(self) -> bool:
        """Whether a method of the user's own cannot be run: a mistake, and not just an absent package."""
        return any(job.entry.file is not None for job in self.skipped)

    def check_data(self) -> None:
        """Refuse to begin without data."""
        if self.missing:
            bases = dict.fromkeys(VARIANTS.get(whole, whole) for whole, _ in map(split_name, self.missing))
            raise InputError(
                f"The data sets of a suite must be at hand, however: {', '.join(self.missing)} "
                f"{'is' if len(self.missing) == 1 else 'are'} not. Fetch them with: diffputer bench data "
                f"{' '.join(bases)}; or name a folder that has them (--data, {DATA_VARIABLE})."
            )


def plan_jobs(
    jobs: Iterable[Job],
    out: str | os.PathLike[str],
    *,
    data: str | None = None,
    retry_failed: bool = False,
) -> Plan:
    """Find out what is done and what can be run.

    Parameters
    ----------
    jobs : iterable of Job
        What should be there in the end.
    out : path
        Folder of the results; whatever file of it a run's rows are in, it is done.
    data : str, optional
        Folder of the data sets.
    retry_failed : bool
        Run again what failed.

    Returns
    -------
    Plan
        In the order of the jobs.
    """
    plan = Plan()
    known_data = _Fingerprints(data)
    known = _by_key(row for path in _list_files(out) for row in read_rows(path))
    for job in jobs:
        if job.entry.file is not None and (lack := find_lack_of_file(job.entry.file)):
            plan.skip(job, lack)
            continue
        rows = known.get(_key_of(job, known_data), [])
        if _is_complete(rows, job, known_data):
            failed = any(is_failure(row) for row in _last_rows(rows))
            if not (failed and retry_failed):
                (plan.failed if failed else plan.done).append(job)
                continue
        if job.entry.file is None and (lack := find_lack(job.entry.method)):
            plan.skip(job, lack)
        else:
            plan.todo.append(job)
    names = dict.fromkeys(job.task.dataset for job in plan.todo)
    plan.missing = [name for name in names if (file := file_of(name, data)) and not file.is_file()]
    return plan


def run_plan(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    workers: int = 1,
    threads: int = 1,
    limits: Limits | None = None,
    data: str | None = None,
    alone: bool = False,
    debug: bool = False,
    begun: Callable[[Job], None] = lambda job: None,
    ended: Callable[[Job, list[Row], float], None] = lambda job, rows, seconds: None,
) -> int:
    """Run what is left to do; rows are kept as soon as a job ends.

    Parameters
    ----------
    plan : Plan
        Of `plan_jobs`. Rows of failures that are to be run again are taken out first.
    out : path
        Folder of the results: ``<method>.csv`` for each method.
    workers, threads, limits, data, alone, debug
        See `diffputer.benchmark.scheduler.run_jobs`.
    begun, ended : callable
        Are told of every job that begins, and of every one that ended, with its rows and seconds.

    Returns
    -------
    int
        How many jobs failed.
    """
    plan.check_data()
    for path in {results_path(out, job) for job in plan.todo}:
        if path.exists():
            check_columns(path)
    _forget_failures(plan.todo, out, data)
    failures = 0
    running = run_jobs(
        plan.todo,
        workers=workers,
        threads=threads,
        limits=limits,
        data=data,
        alone=alone and workers == 1,
        debug=debug,
        begun=begun,
    )
    with closing(running):
        for job, rows, seconds in running:
            append_rows(results_path(out, job), rows)
            failures += any(is_failure(row) for row in rows)
            ended(job, rows, seconds)
    return failures


def _list_files(out: str | os.PathLike[str]) -> list[Path]:
    """Give the files of results in a folder, in the order in which reports read them."""
    return [path for path in sorted(Path(out).glob("*.csv")) if set(read_header(path)) >= _COLUMNS]


def results_path(out: str | os.PathLike[str], job: Job) -> Path:
    """Give the file that a job's rows are added to."""
    return Path(out) / f"{job.entry.method}.csv"


def find_lack(method: str) -> str | None:
    """Say what a method needs that this machine lacks, and how to get it; None if it can run."""
    if find := _OTHER_PROGRAMS.get(method):
        try:
            find()
        except SettingError as error:
            return str(error)
        return None
    lacking = [name for name in METHODS[method][0].packages if not find_spec(_MODULES.get(name, name))]
    return f"It needs {' and '.join(lacking)}: pip install 'diffputer[rivals]'." if lacking else None


def estimate_left(seconds: Mapping[str, Sequence[float]], left: Iterable[Job], workers: int) -> float | None:
    """Estimate the seconds until all is done; None as long as nothing is.

    Parameters
    ----------
    seconds : mapping
        Method -> what its finished jobs took.
    left : iterable of Job
        What is not finished.
    workers : int
        How many run at a time.

    Returns
    -------
    float or None
        A job is expected to take what its method took so far, or all methods together.
    """
    every = [value for values in seconds.values() for value in values]
    if not every:
        return None
    typical = sum(every) / len(every)
    means = {method: sum(values) / len(values) for method, values in seconds.items() if values}
    return sum(means.get(job.entry.method, typical) for job in left) / workers


class _Fingerprints(dict[str, str | None]):
    """Fingerprints of the data sets in a folder, found when first asked for."""

    def __init__(self, folder: str | None) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> str | None:
        self[name] = fingerprint_of(name, self._folder)
        return self[name]


def _key_of(job: Job, known_data: _Fingerprints) -> Key:
    return make_key(job.task, job.make(), job.task.mask_seed, known_data[job.task.dataset])


def _by_key(rows: Iterable[dict[str, str]]) -> dict[Key, list[dict[str, str]]]:
    found: dict[Key, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return found


def _last_rows(rows: Iterable[dict[str, str]]) -> Iterable[dict[str, str]]:
    """Give the last row of each setting: a later run counts, an earlier one was not good enough."""
    return {(row["setting"], row["em_round"]): row for row in rows}.values()


def _is_complete(rows: Sequence[Mapping[str, str]], job: Job, known_data: _Fingerprints) -> bool:
    made = job.make()
    method, parameters = (made, {}) if isinstance(made, Method) else (OURS, made)
    return is_done(
        rows,
        job.task,
        parameters,
        job.task.mask_seed,
        fingerprint=known_data[job.task.dataset],
        method=method,
        curve=job.curve,
        draws_scored=job.draws,
    )


def _forget_failures(jobs: Iterable[Job], out: str | os.PathLike[str], data: str | None = None) -> None:
    """Take the failures of jobs that will be run out of the results; nobody else may be writing."""
    known_data = _Fingerprints(data)
    mine = {_key_of(job, known_data) for job in jobs}
    for path in _list_files(out):
        found = _by_key(read_rows(path))
        stale = {
            key
            for key, rows in found.items()
            if key in mine and any(is_failure(row) for row in _last_rows(rows))
        }
        if stale:
            check_columns(path)
            replace_rows(path, [row for key, rows in found.items() if key not in stale for row in rows])

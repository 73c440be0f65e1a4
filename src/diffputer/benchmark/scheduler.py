"""Runs jobs in worker processes, several at a time; whatever happens to one becomes its rows."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from ..errors import DiffputerError, InputError
from ..runtime.isolation import worker_command, worker_environment
from ..runtime.reporting import visible
from .datasets import fingerprint_of
from .parts import SETTINGS_OF_ROWS
from .processes import FORKS, TemporaryFolder, describe_end, kill_session, resident_gigabytes, start_session
from .provenance import GIT_HASH_VARIABLE, find_git_hash, hash_settings
from .results import FIELDS, Row
from .runner import PROTOCOL_VERSION, describe_settings, name_method
from .suites import Job, Limits
from .worker import label_of, write_job

#: Seconds between two looks at the workers, and between two looks at their memory.
PAUSE, MEMORY_PAUSE = 0.03, 0.25
#: Seconds that a worker may take to import what it needs, on a busy machine with a slow disk.
START_SECONDS = 600.0
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "LOKY_MAX_CPU_COUNT",
)  # fmt: skip


class WorkerError(DiffputerError):
    """Processes that should run methods do not even start."""


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    threads: int = 1,
    limits: Limits | None = None,
    data: str | None = None,
    alone: bool = False,
    debug: bool = False,
    begun: Callable[[Job], None] = lambda job: None,
) -> Generator[tuple[Job, list[Row], float], None, None]:
    """Run jobs and give each with its rows and seconds as it ends; close it to end all that runs.

    Parameters
    ----------
    jobs : sequence of Job
        What to run, in this order.
    workers : int
        How many run at a time.
    threads : int
        For each of them.
    limits : Limits, optional
        What a job may use. One that uses more is killed.
    data : str, optional
        Folder of the data sets.
    alone : bool
        What rows say of the machine: that the run had it to itself.
    debug : bool
        Show on standard error what runs write there, the tracebacks of failures among it.
    begun : callable
        Is told of every job that begins.

    Yields
    ------
    tuple of Job, list of dict, float
        Its rows, of a failure too: they hold the reason.
    """
    waiting = deque(jobs)
    with TemporaryFolder("diffputer-bench-") as folder:
        order = {"data": None if data is None else os.path.abspath(data), "alone": alone}
        slots = [
            _Slot(Path(folder) / str(number), threads, limits or Limits(), order, debug)
            for number in range(min(workers, len(jobs)))
        ]
        try:
            while waiting or any(slot.job for slot in slots):
                for slot in slots:
                    if slot.job and (ended := slot.look()):
                        yield ended
                    if not slot.job and waiting:
                        slot.begin(job := waiting.popleft())
                        begun(job)
                time.sleep(PAUSE)
        finally:
            for slot in slots:
                slot.kill()


class _Slot:
    """A worker process and the job it has; a new process takes the place of one that is gone."""

    def __init__(
        self, folder: Path, threads: int, limits: Limits, order: dict[str, Any], debug: bool = False
    ) -> None:
        folder.mkdir()
        self._folder, self._threads, self._limits, self._order = folder, threads, limits, order
        self._debug = debug
        self._process: Any = None
        self._number = 0
        self.job: Job | None = None

    def begin(self, job: Job) -> None:
        """Take a job; it is sent as soon as the worker is ready."""
        self.job, self._sent = job, False
        self._begun = self._looked = time.monotonic()
        self._number += 1
        self._answer, self._draft = (self._folder / f"{self._number}.{name}" for name in ("answer", "draft"))
        if self._process is None:
            self._start()

    def look(self) -> tuple[Job, list[Row], float] | None:
        """Give the job and its rows if it has ended, one way or another."""
        now = time.monotonic()
        if self._answer.exists():
            given = json.loads(self._answer.read_text(encoding="utf-8"))
            if not FORKS:
                self.kill()
            return self._end(given.get("rows"), self._with_last_words(given.get("error", "")))
        if not self._sent and not self._ready.exists():
            self._check_start(now)
            return None
        if self._process.poll() is not None:
            end = describe_end(self._process.returncode)
            self.kill()
            return self._end(None, self._with_last_words(f"Crash: the process did not finish, {end}."))
        if not self._sent:
            self._send()
            return None
        seconds, gigabytes = self._limits.seconds, self._limits.gigabytes
        if seconds is not None and now - self._begun > seconds:
            self.kill()
            return self._end(None, f"TimeLimit: it took longer than {seconds:,g} seconds.")
        if gigabytes is not None and now - self._looked > MEMORY_PAUSE:
            self._looked = now
            if (used := resident_gigabytes(self._process.pid)) > gigabytes:
                self.kill()
                return self._end(None, f"MemoryLimit: it used {used:.2f} GB, more than {gigabytes:g} GB.")
        return None

    def kill(self) -> None:
        """End the worker and all that it started."""
        if self._process is not None:
            kill_session(self._process)
            self._process.stdin.close()
            self._process = None

    def _start(self) -> None:
        self._ready = self._folder / f"{self._number}.ready"
        self._log = self._folder / f"{self._number}.log"
        environment = worker_environment() | dict.fromkeys(_THREADS, str(self._threads))
        environment.setdefault(GIT_HASH_VARIABLE, find_git_hash() or "")
        command = worker_command("diffputer.benchmark.worker", str(self._ready), str(self._threads))
        if self._debug:
            command.append("debug")
        with self._log.open("wb") as log:
            self._process = start_session(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )

    def _check_start(self, now: float) -> None:
        """Give up if workers cannot start: that is no fault of a method, and the next would fail as well."""
        ended = self._process.poll() is not None
        if ended or now - self._begun > START_SECONDS:
            self.kill()
            words = " ".join(self._log.read_text(encoding="utf-8", errors="replace").split())[-800:]
            raise WorkerError(
                f"A worker must be able to start, however: it {'ended' if ended else 'took long'}. {words}"
            )

    def _send(self) -> None:
        assert self.job is not None
        paths = {"answer": str(self._answer), "draft": str(self._draft)}
        line = json.dumps(self._order | paths | {"job": write_job(self.job)})
        self._sent, self._begun = True, time.monotonic()
        self._spoken = self._log.stat().st_size
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has just ended, as the next look will find

    def _with_last_words(self, reason: str) -> str:
        """Add what a crashed job wrote last, where it wrote anything."""
        if not reason.startswith("Crash"):
            return reason
        last = " ".join(self._read_words().split())[-400:]
        return f"{reason} It wrote last: {last}" if last else reason

    def _read_words(self) -> str:
        """Give what the job has written so far."""
        return self._log.read_bytes()[self._spoken if self._sent else 0 :].decode(errors="replace")

    def _end(self, rows: list[Row] | None, reason: str) -> tuple[Job, list[Row], float]:
        assert self.job is not None
        job, self.job = self.job, None
        if self._debug and (words := self._read_words().strip()):
            sys.stderr.write(visible(f"{job.words} wrote:\n{words}\n"))
        if rows is None:
            draft = self._draft
            drafted = json.loads(draft.read_text(encoding="utf-8")) if draft.exists() else [{}, {}]
            plain = describe_plainly(job, self._threads, self._order["data"])
            plain |= {"alone": self._order["alone"]}
            rows = [
                plain | {"setting": setting} | {k: v for k, v in row.items() if v is not None}
                | {"error": reason}
                for setting, row in zip(SETTINGS_OF_ROWS, drafted, strict=True)
            ]  # fmt: skip
        for path in (self._answer, self._draft):
            path.unlink(missing_ok=True)
        return job, rows, time.monotonic() - self._begun


def describe_plainly(job: Job, threads: int, data: str | None = None) -> Row:
    """Give what is known of a job's rows without running anything."""
    made = job.make()
    settings, method = describe_settings(made), name_method(made)
    task = job.task
    row: Row = dict.fromkeys(FIELDS)
    with contextlib.suppress(InputError):  # without the data there is no fingerprint
        row["data_fingerprint"] = fingerprint_of(task.dataset, data)
    return row | {
        "task": task.id,
        "dataset": task.dataset,
        "mechanism": task.mechanism,
        "rate": task.rate,
        "mask_seed": task.mask_seed,
        "method": method,
        "label": label_of(job, method),
        "seed": task.mask_seed,
        "settings": settings,
        "settings_hash": hash_settings(settings),
        "threads": threads,
        "git_hash": find_git_hash(),
        "protocol_version": PROTOCOL_VERSION,
    }


def default_threads(workers: int) -> int:
    """Give ``OMP_NUM_THREADS``, or share the processor's cores among the workers."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable // workers)

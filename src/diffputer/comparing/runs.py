"""Runs methods one after the other, each within limits: in another process, or in this one without limits."""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import torch

from ..benchmark.processes import (
    TemporaryFolder,
    describe_end,
    kill_session,
    resident_gigabytes,
    start_session,
)
from ..benchmark.runner import reason_of
from ..errors import DiffputerError, warn_about_data
from ..methods.contract import Method
from ..methods.table import make_method
from ..runtime.devices import free_memory
from ..runtime.isolation import worker_command, worker_environment
from .hiding import Hidden
from .preparation import Coded, Floats
from .waiting import wait_quietly
from .worker import run_method

#: Seconds between two looks at the worker, and that it may take to import what it needs.
PAUSE, START_SECONDS = 0.02, 300.0
#: Share of the free memory that a method may use.
MEMORY_SHARE = 0.9


class WorkerError(DiffputerError):
    """The process that should run the methods does not even start."""


@dataclass(frozen=True)
class Run:
    """A method in one repetition: what to run and what it may take."""

    method: str
    own: Method | None
    settings: dict[str, Any]
    repetition: int
    seed: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Answer:
    """What came of a run: values and seconds, or why there are none."""

    values: Floats | None = None
    seconds: float = 0.0
    error: str = ""


class Runner(Protocol):
    """Something that runs a method."""

    def run(self, run: Run, tick: Callable[[], None]) -> Answer:
        """Run it to its end; ``tick`` is called now and then."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class RunnerHere:
    """Runs methods in this process: nothing can be stopped, but a debugger sees all."""

    def __init__(self, coded: Coded, hidden: Hidden) -> None:
        self._coded, self._hidden = coded, hidden

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        pass

    def run(self, run: Run, tick: Callable[[], None]) -> Answer:
        """Run it to its end, however long that takes."""
        tick()
        try:
            method = run.own or make_method(run.method, **run.settings)
            return Answer(*run_method(method, self._coded, self._hidden.cells[run.repetition], run.seed))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever fails is an answer
            return Answer(error=reason_of(error))


class RunnerElsewhere:
    """Runs methods in a process that is killed with all it started where it takes too long or too much."""

    def __init__(self, coded: Coded, hidden: Hidden) -> None:
        self._temporary = TemporaryFolder("diffputer-compare-")
        self._folder = Path(self._temporary.name)
        self._process: Any = None
        self._number = 0
        self._here = RunnerHere(coded, hidden)
        self._warned: set[str] = set()
        coded.save(self._folder / "table.npz", hidden.cells)

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *of_error: object) -> None:
        self._kill()
        self._temporary.cleanup()

    def run(self, run: Run, tick: Callable[[], None]) -> Answer:
        """Run it to its end, or to that of its time or of the memory."""
        try:
            own = self._keep(run.own)
        except Exception as error:  # noqa: BLE001 - objects refuse to be pickled in many ways
            self._warn(run.method, error)
            return self._here.run(run, tick)  # without limits, but it runs
        if self._process is None:
            self._start()
        self._await_start(tick)
        self._number += 1
        answer = self._folder / f"{self._number}.npz"
        order = {
            "method": run.method, "own": own, "settings": run.settings, "repetition": run.repetition,
            "seed": run.seed, "table": str(self._folder / "table.npz"), "answer": str(answer),
            "path": sys.path if own else [],
        }  # fmt: skip
        spoken = self._log.stat().st_size
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has just ended, as the next look will find
        given = self._await(answer, run.seconds, tick)
        if given.error.startswith("Crash"):
            words = self._log.read_bytes()[spoken:].decode(errors="replace")
            last = " ".join(words.split())[-300:]
            return Answer(error=f"{given.error} It wrote last: {last}" if last else given.error)
        return given

    def _await(self, answer: Path, limit: float, tick: Callable[[], None]) -> Answer:
        begun = time.monotonic()
        most = MEMORY_SHARE * free_memory(torch.device("cpu")) / 1e9
        looked = begun
        while not answer.exists():
            now = time.monotonic()
            if self._process.poll() is not None:
                end = describe_end(self._process.returncode)
                self._kill()
                return Answer(error=f"Crash: the process did not finish, {end}.")
            if now - begun > limit:
                self._kill()
                return Answer(error=f"stopped after {show_seconds(now - begun)}")
            if now - looked > 0.5:
                looked = now
                if (used := resident_gigabytes(self._process.pid)) > most:
                    self._kill()
                    return Answer(error=f"stopped as it used {used:.1f} GB of memory")
            tick()
            time.sleep(PAUSE)
        with np.load(answer) as file:
            content = {name: file[name] for name in file.files}
        if "error" in content:
            return Answer(error=str(content["error"]))
        return Answer(content["values"], float(content["seconds"]))

    def _warn(self, method: str, error: Exception) -> None:
        """Say before it begins, once, that nothing will stop a method."""
        if method not in self._warned:
            self._warned.add(method)
            warn_about_data(
                f"A method must be picklable to run in a process of its own, however: {method!r} is not "
                f"({reason_of(error)}). It runs in this process, where it cannot be stopped if it hangs. "
                "Define it in a module that can be imported, or install cloudpickle."
            )

    def _keep(self, own: Method | None) -> str:
        """Write a method of the user's where the worker finds it."""
        if own is None:
            return ""
        pickler: Any = pickle
        if type(own).__module__ == "__main__":  # a script's or a notebook's, which the worker cannot import
            pickler = importlib.import_module("cloudpickle")  # if it is there; else it runs here
        path = self._folder / f"{self._number}.pickle"
        path.write_bytes(pickler.dumps(own))
        return str(path)

    def _start(self) -> None:
        self._ready, self._log = (self._folder / f"{self._number}.{end}" for end in ("ready", "log"))
        self._ready.unlink(missing_ok=True)
        environment = worker_environment()
        wait_quietly(environment)
        self._begun = time.monotonic()
        with self._log.open("wb") as log:
            self._process = start_session(
                worker_command("diffputer.comparing.worker", str(self._ready)),
                stdin=subprocess.PIPE, stdout=log, stderr=log,
                env=environment,
            )  # fmt: skip

    def _await_start(self, tick: Callable[[], None]) -> None:
        while not self._ready.exists():
            ended = self._process.poll() is not None
            if ended or time.monotonic() - self._begun > START_SECONDS:
                self._kill()
                words = " ".join(self._log.read_text(encoding="utf-8", errors="replace").split())[-800:]
                raise WorkerError(
                    f"A process for the methods must be able to start, however: it "
                    f"{'ended' if ended else 'took long'}. {words} Or run them in this one: isolate=False."
                )
            tick()
            time.sleep(PAUSE)

    def _kill(self) -> None:
        if self._process is not None:
            kill_session(self._process)
            self._process.stdin.close()
            self._process = None


def show_seconds(seconds: float) -> str:
    """Give a duration as people say it.

    Examples
    --------
    >>> show_seconds(0.004), show_seconds(2.34), show_seconds(40.2), show_seconds(754)
    ('under 0.1 s', '2.3 s', '40 s', '13 min')
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

"""Cases by seed, in this process or in workers that may crash or hang without ending the run."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

SORTS = ("tables", "csv", "models")
#: Seconds after which a case counts as hanging.
TIMEOUT = 120.0


@dataclass
class Result:
    """How one case ended; ``failure`` is empty if all that must hold did."""

    sort: str
    seed: int
    container: str = ""
    kinds: tuple[str, ...] = ()
    refused: str = ""
    n_missing: int = 0
    seconds: float = 0.0
    failure: str = ""


def command_of(sort: str, seed: int) -> str:
    """The command that repeats one case."""
    return f"python -m tests.fuzz 1 --seed {seed} --only {sort} --jobs 0"


def run_case(sort: str, seed: int) -> Result:
    """Make and check the case of a seed, in this process."""
    make, check = _sort(sort)
    result, started = Result(sort, seed), time.perf_counter()
    description = ""
    try:
        case = make(seed)
        description = case.description
        result.container, result.kinds = case.container, tuple(case.kinds)
        outcome = check(case)
        result.refused, result.n_missing = outcome.refused, outcome.n_missing
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - polars panics with BaseException
        where = traceback.format_exception(error, limit=-4)
        result.failure = f"{description}\n{''.join(where)[-3000:]}{command_of(sort, seed)}"
    result.seconds = time.perf_counter() - started
    return result


def failures_of(sort: str, seeds: Iterable[int]) -> list[str]:
    """What went wrong with cases, each with the command that repeats it."""
    return [result.failure for result in (run_case(sort, seed) for seed in seeds) if result.failure]


def _sort(sort: str) -> tuple[Callable[[int], Any], Callable[[Any], Any]]:
    if sort == "tables":
        from .checks import check_table
        from .tables import make_table

        return make_table, check_table
    if sort == "csv":
        from .csv_texts import check_text, make_text

        return make_text, check_text
    from .damaged import check_model, make_model

    return make_model, check_model


def run_all(sort: str, seeds: range, jobs: int, timeout: float = TIMEOUT) -> Iterator[Result]:
    """Check cases in workers; one that crashes or hangs is a failure, and its worker is replaced."""
    if jobs < 1:
        yield from (run_case(sort, seed) for seed in seeds)
        return
    waiting, workers = iter(seeds), [_Worker() for _ in range(min(jobs, len(seeds)))]
    for worker in workers:
        worker.start(sort, next(waiting))
    try:
        while any(worker.seed is not None for worker in workers):
            wait([worker.pipe for worker in workers if worker.seed is not None], timeout=1.0)
            for worker in workers:
                result = worker.poll(sort, timeout)
                if result is not None:
                    yield result
                    if (seed := next(waiting, None)) is not None:
                        worker.start(sort, seed)
    finally:
        for worker in workers:
            worker.process.kill()


class _Worker:
    """A process that checks one case at a time."""

    def __init__(self) -> None:
        self._spawn()

    def _spawn(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there,), daemon=True)
        self.process.start()
        there.close()
        self.seed: int | None = None
        self.since = 0.0

    def start(self, sort: str, seed: int) -> None:
        self.pipe.send((sort, seed))
        self.seed, self.since = seed, time.monotonic()

    def poll(self, sort: str, timeout: float) -> Result | None:
        if self.seed is None:
            return None
        seed, failure = self.seed, ""
        try:
            if self.pipe.poll():
                result: Result = self.pipe.recv()
                self.seed = None
                return result
        except EOFError:
            failure = "the process ended"
        if time.monotonic() - self.since > timeout:
            failure = f"not done after {timeout:g} s"
        if not failure:
            return None
        self.process.kill()
        self._spawn()
        return Result(sort, seed, failure=f"{failure}\n{command_of(sort, seed)}")


def _serve(pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            sort, seed = pipe.recv()
        except EOFError:
            return
        pipe.send(run_case(sort, seed))


def summarise(results: list[Result], seconds: float) -> dict[str, Any]:
    """Counts of a run, small enough to be read and kept."""
    summary: dict[str, Any] = {"seconds": round(seconds), "sorts": {}}
    for sort in dict.fromkeys(result.sort for result in results):
        own = [result for result in results if result.sort == sort]
        seeds = [result.seed for result in own]
        failed = [result for result in own if result.failure]
        summary["sorts"][sort] = {
            "cases": len(own),
            "seeds": [min(seeds), max(seeds)],
            "completed": sum(not (result.failure or result.refused) for result in own),
            "refused": dict(Counter(result.refused for result in own if result.refused).most_common()),
            "failed": len(failed),
            "missing cells": sum(result.n_missing for result in own),
            "slowest seconds": round(max(result.seconds for result in own), 1),
            "by container": dict(Counter(result.container for result in own).most_common()),
            "by kind": dict(Counter(kind for result in own for kind in result.kinds).most_common()),
            "failures": [f"{result.seed}: {_last_words(result.failure)}" for result in failed[:20]],
        }
    return summary


def _last_words(failure: str) -> str:
    lines = [line for line in failure.splitlines() if line.strip()]
    return lines[-2][:200] if len(lines) > 1 else failure[:200]


def to_markdown(summary: dict[str, Any]) -> str:
    """The summary as a short page."""
    lines = ["# Fuzzing", "", f"{summary['seconds']:,} seconds in all.", ""]
    for sort, counts in summary["sorts"].items():
        lines += [f"## {sort}", "", "| | |", "|---|---|"]
        for name, value in counts.items():
            if name == "failures":
                continue
            if isinstance(value, dict):
                value = ", ".join(f"{key} {count:,}" for key, count in value.items()).replace("|", "\\|")
            lines.append(f"| {name} | {value if isinstance(value, str | list) else format(value, ',')} |")
        lines += ["", *(f"- {failure}" for failure in counts["failures"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def write_summary(summary: dict[str, Any], folder: Path) -> None:
    """Write ``fuzz.json`` and ``fuzz.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fuzz.json").write_text(json.dumps(summary, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "fuzz.md").write_text(to_markdown(summary), encoding="utf-8")

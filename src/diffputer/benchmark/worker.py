"""A process that takes jobs from standard input, writes their rows to files.

Where a process can fork, each job runs in a child of its own: what it does to memory, threads and the process
is gone when it ends, and torch is imported once for all. Elsewhere the process ends after one job.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joblib
import torch

from ..methods.contract import Method
from .datasets import load_dataset
from .processes import FORKS, describe_end, die_with_parent
from .results import Row
from .runner import describe_failure, note_failure, run_task
from .suites import Entry, Job
from .task import Task


def write_job(job: Job) -> str:
    """Give a job as a line of JSON."""
    return json.dumps(dataclasses.asdict(job))


def read_job(text: str) -> Job:
    """Read a job from a line of JSON.

    Examples
    --------
    >>> job = Job(Task("wine"), Entry("knn", settings={"neighbours": 3}))
    >>> read_job(write_job(job)) == job
    True
    """
    given = json.loads(text)
    task, entry = Task(**given.pop("task")), Entry(**given.pop("entry"))
    return Job(task, entry, **given)


def run_job(job: Job, folder: str | None, alone: bool, draft: Path) -> list[Row]:
    """Run a job; before that, leave the rows of its failure in a file, for whoever finds it dead."""
    dataset = load_dataset(job.task.dataset, folder)
    made = job.make()
    method: Any = made if isinstance(made, Method) else "diffputer"
    parameters: Mapping[str, Any] = {} if isinstance(made, Method) else made
    failure = describe_failure(job.task, dataset, method, parameters, job.task.mask_seed, "")
    write_file(draft, failure)
    label = label_of(job, failure[0]["method"])
    return run_task(
        job.task,
        dataset,
        parameters,
        method=method,
        curve=job.curve,
        draws_scored=job.draws,
        alone=alone,
        label=label,
    )


def label_of(job: Job, method: str) -> str:
    """Give the label of a job's rows: its own, or its method's name where the rows have another one."""
    return job.entry.label or ("" if method == job.entry.method else job.entry.method)


def write_file(path: Path, content: Any) -> None:
    """Write JSON to a file that appears whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(content, default=_plain), encoding="utf-8")
    os.replace(temporary, path)


def _plain(value: Any) -> Any:
    """Turn numbers of numpy into Python's."""
    return value.item()


def _answer(order: Mapping[str, Any]) -> None:
    try:
        # Forests and neighbours of scikit-learn have one thread unless they are told otherwise.
        with joblib.parallel_config("threading", n_jobs=torch.get_num_threads()):
            rows = run_job(read_job(order["job"]), order["data"], order["alone"], Path(order["draft"]))
        content: dict[str, Any] = {"rows": rows}
    except Exception as error:  # noqa: BLE001 - whatever fails is an answer
        content = {"error": note_failure(error)}
    sys.stdout.flush()  # a child ends without that, and whoever finds the answer may read what was written
    write_file(Path(order["answer"]), content)


def _show_tracebacks() -> None:
    """Write the tracebacks of failures to standard error, which whoever started this process keeps."""
    log = logging.getLogger(__package__)
    log.setLevel(logging.DEBUG)
    log.addHandler(logging.StreamHandler())


def _answer_in_a_child(order: Mapping[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            _answer(order)
        except BaseException as error:  # noqa: BLE001 - a method that leaves the process: it has a name
            write_file(Path(order["answer"]), {"error": note_failure(error)})
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not os.path.exists(order["answer"]):
        end = describe_end(os.waitstatus_to_exitcode(status))
        write_file(Path(order["answer"]), {"error": f"Crash: the process did not finish, {end}."})


def main() -> None:
    """Run jobs until standard input ends.

    Arguments: a file to make when ready, the threads to use, and ``debug`` to write tracebacks.
    """
    die_with_parent()
    ready, threads, *options = sys.argv[1:]
    if "debug" in options:
        _show_tracebacks()
    torch.set_num_threads(int(threads))
    Path(ready).touch()
    for line in sys.stdin:
        if not FORKS:
            _answer(json.loads(line))
            return
        _answer_in_a_child(json.loads(line))

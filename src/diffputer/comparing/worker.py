"""``python -m diffputer.comparing.worker``: runs methods that are asked for on standard input.

Where a process can fork, each method runs in a child of its own, so that heavy packages are imported once.
Elsewhere the process ends after one.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..benchmark.processes import FORKS, describe_end, die_with_parent
from ..benchmark.runner import reason_of
from ..methods.contract import Method
from ..methods.table import make_method
from .preparation import Booleans, Coded, Floats


def run_method(method: Method, coded: Coded, hidden: Booleans, seed: int) -> tuple[Floats, float]:
    """Give what a method fills into hidden cells, row by row, and the seconds that it took."""
    shown = coded.show(hidden)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one of many tries, on a table with holes made by us
        started = time.perf_counter()
        completed = method.fit_transform(shown, coded.categorical, seed)
        seconds = time.perf_counter() - started
    return coded.read(completed, hidden), seconds


def write_answer(path: Path, **content: Any) -> None:
    """Write an answer that appears whole or not at all."""
    temporary = path.with_name(path.name + ".part.npz")
    np.savez(temporary, **content)
    os.replace(temporary, path)


def _answer(order: Mapping[str, Any]) -> None:
    try:
        if order["own"]:
            method = pickle.loads(Path(order["own"]).read_bytes())
        else:
            method = make_method(order["method"], **order["settings"])
        coded, hidden = Coded.load(Path(order["table"]))
        values, seconds = run_method(method, coded, hidden[order["repetition"]], order["seed"])
        write_answer(Path(order["answer"]), values=values, seconds=seconds)
    except Exception as error:  # noqa: BLE001 - whatever fails is an answer
        write_answer(Path(order["answer"]), error=reason_of(error))


def _answer_in_a_child(order: Mapping[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            _answer(order)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not os.path.exists(order["answer"]):
        end = describe_end(os.waitstatus_to_exitcode(status))
        write_answer(Path(order["answer"]), error=f"Crash: the process did not finish, {end}.")


def main() -> None:
    """Answer orders until standard input ends. Argument: a file to make when ready."""
    die_with_parent()
    Path(sys.argv[1]).touch()
    for line in sys.stdin:
        if not FORKS:
            _answer(json.loads(line))
            return
        _answer_in_a_child(json.loads(line))


if __name__ == "__main__":
    main()

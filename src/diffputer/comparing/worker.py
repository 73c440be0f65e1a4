"""A process that runs methods that are asked for on standard input.

One after the other in one process, so that heavy packages are imported once; whoever asked starts another
where it crashes or must be killed.
"""

from __future__ import annotations

import dataclasses
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
from threadpoolctl import threadpool_limits

from ..benchmark.processes import die_with_parent
from ..benchmark.runner import reason_of
from ..methods.contract import Method
from ..methods.ours import Ours
from ..methods.table import make_method
from ..runtime.isolation import extend_path
from .preparation import Booleans, Coded, Floats

#: Of fewer cells rivals get one thread: several would wait for each other more than they work, and for long
#: where the machine does other work too. DiffPuter chooses its threads itself.
FEWEST_CELLS = 50_000


def run_method(method: Method, coded: Coded, hidden: Booleans, seed: int) -> tuple[Floats, float]:
    """Give what a method fills into hidden cells, row by row, and the seconds that it took.

    Numbers are shown in deviations of the cells that are seen, so that nothing tells of the hidden ones, and
    what comes back is cut off at the ends of what is seen, as it is when a table is filled in.
    """
    mean, deviation = coded.moments(hidden)
    seen = dataclasses.replace(coded, x=(coded.x - mean) / deviation)
    shown = seen.show(hidden)
    few = coded.x.size < FEWEST_CELLS and not isinstance(method, Ours)
    with warnings.catch_warnings(), threadpool_limits(1 if few else None):
        warnings.simplefilter("ignore")  # of one of many tries, on a table with holes made by us
        started = time.perf_counter()
        completed = method.fit_transform(shown, coded.categorical, seed)
        seconds = time.perf_counter() - started
    column = np.nonzero(hidden)[1]
    values = seen.cut_off(seen.read(completed, hidden), hidden)
    return values * deviation[column] + mean[column], seconds


def write_answer(path: Path, **content: Any) -> None:
    """Write an answer that appears whole or not at all."""
    temporary = path.with_name(path.name + ".part.npz")
    np.savez(temporary, **content)
    os.replace(temporary, path)


def _answer(order: Mapping[str, Any]) -> None:
    try:
        if order["own"]:
            extend_path(order["path"])  # where its module may be: a script's folder, the current one
            method = pickle.loads(Path(order["own"]).read_bytes())
        else:
            method = make_method(order["method"], **order["settings"])
        coded, hidden = Coded.load(Path(order["table"]))
        values, seconds = run_method(method, coded, hidden[order["repetition"]], order["seed"])
        write_answer(Path(order["answer"]), values=values, seconds=seconds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever fails is an answer
        write_answer(Path(order["answer"]), error=reason_of(error))


def main() -> None:
    """Answer orders until standard input ends. Argument: a file to make when ready."""
    die_with_parent()
    Path(sys.argv[1]).touch()
    for line in sys.stdin:
        _answer(json.loads(line))

"""``python -m diffputer.benchmark``: run tasks, append their results to a file, one line for each."""

if __name__ == "__main__":
    from ..runtime.isolation import leave_current_folder

    leave_current_folder()  # before anything else is imported

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any, cast

from ..errors import DiffputerError
from ..imputer import DiffPuter
from ..methods.ours import Ours
from ..methods.table import METHODS, make_method
from ..runtime.devices import resolve_device
from ..runtime.reporting import visible
from ..settings import DEFAULT_ENGINE, ENGINES, QUALITIES, SETTING_NAMES, resolve_settings
from .datasets import load_dataset
from .display import describe_row
from .metrics import end_rank
from .published import PUBLISHED_RATE
from .results import append_rows, read_rows
from .runner import OURS, find_method, is_done, is_failure, run_task
from .task import TASK_MECHANISMS, Task


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks that the command line names.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Returns
    -------
    int
        0 if everything ran, 1 if a result is a failure.
    """
    parser = _make_parser()
    options = parser.parse_args(arguments)
    try:
        _check_settings(options)
        chosen = {name: _read_parameters(name, options) for name in options.methods}
        tasks = [
            Task(name, options.mechanism, options.rate, seed)
            for name in options.datasets
            for seed in options.seeds
        ]
        if options.draws_scored:
            end_rank(options.draws_scored)
        datasets = {name: load_dataset(name, options.data) for name in options.datasets}
    except DiffputerError as error:
        parser.error(str(error))
    failed = False
    for task, (method, parameters) in itertools.product(tasks, chosen.items()):
        seed = task.mask_seed
        asked = {"method": method, "curve": options.curve, "draws_scored": options.draws_scored}
        data = datasets[task.dataset].fingerprint
        if not options.force and is_done(
            read_rows(options.out), task, parameters, seed, fingerprint=data, **asked
        ):
            _say(f"{task.id}  {method}  already in {options.out}")
            continue
        rows = run_task(
            task,
            datasets[task.dataset],
            parameters,
            seed=seed,
            curve_rows=options.curve_rows,
            draw_rows=options.draw_rows,
            **asked,
            alone=options.alone,
            label=options.label,
        )
        append_rows(options.out, rows)
        failed = failed or any(is_failure(row) for row in rows)
        for row in rows:
            _say(describe_row(row))
    return int(failed)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m diffputer.benchmark", description=__doc__)
    parser.add_argument("--data", help="folder with datasets.json (default: $DIFFPUTER_DATA)")
    parser.add_argument("--datasets", nargs="+", required=True, help="names in datasets.json")
    parser.add_argument("--mechanism", default="mcar", choices=TASK_MECHANISMS)
    parser.add_argument("--rate", type=float, default=PUBLISHED_RATE, help="share of hidden cells")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the masks and of the imputer")
    parser.add_argument("--out", required=True, help="CSV file to append to")
    parser.add_argument(
        "--methods", type=lambda text: text.split(","), default=[OURS], metavar="A,B,...",
        help=f"{OURS} (with --engine, --quality), {', '.join(METHODS)}",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="[METHOD:]NAME=VALUE",
        help="parameter of DiffPuter, or setting of another method",
    )  # fmt: skip
    parser.add_argument("--engine", default=DEFAULT_ENGINE, choices=ENGINES)
    qualities = sorted({quality for of_engine in QUALITIES.values() for quality in of_engine})
    parser.add_argument("--quality", default="auto", choices=qualities)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--curve", action="store_true", help="also score every EM round")
    parser.add_argument("--curve-rows", type=int, default=2000, help="rows that the curve is scored on")
    parser.add_argument(
        "--draws-scored", type=int, default=0, metavar="N",
        help="score coverage and CRPS of N draws: 19, 39, 59, ... (default: none)",
    )  # fmt: skip
    parser.add_argument("--draw-rows", type=int, default=2000, help="rows that are drawn for these scores")
    parser.add_argument("--alone", action="store_true", help="this run has the machine to itself")
    parser.add_argument("--label", default="", help="a remark for the rows")
    parser.add_argument("--force", action="store_true", help="run again what the file already holds")
    return parser


def _check_settings(options: argparse.Namespace) -> None:
    """Refuse settings that are of none of the methods."""
    for pair in options.set:
        of, colon, _ = pair.partition("=")[0].rpartition(":")
        if colon and of not in options.methods:
            raise DiffputerError(f"--set must name one of --methods before the colon, however: {pair!r}.")
        if not colon and not any(name.startswith(OURS) for name in options.methods):
            raise DiffputerError(
                f"--set must name a method other than DiffPuter, as in knn:neighbours=5, however: {pair!r}."
            )


def _read_parameters(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Give what is to be changed of a method; refuse bad names and values now, before anything runs."""
    ours = method == OURS or isinstance(make_method(method), Ours)
    on_device = ours or "device" in METHODS[method][0].settings
    parameters: dict[str, Any] = {"device": options.device} if on_device else {}
    if method == OURS:
        parameters |= {"engine": options.engine, "quality": options.quality}
    for pair in options.set:
        left, _, text = pair.partition("=")
        of, colon, name = left.rpartition(":")
        if not (of == method if colon else ours):
            continue
        if ours and name not in DiffPuter._get_param_names():
            raise DiffputerError(f"--set must name a parameter of DiffPuter, however: {pair!r} does not.")
        try:
            parameters[name] = json.loads(text)
        except json.JSONDecodeError:
            parameters[name] = text
    if ours:
        _check_parameters({**parameters, **cast(dict[str, Any], find_method(method, parameters))})
    else:
        make_method(method, **parameters)
    return parameters


def _check_parameters(parameters: dict[str, Any]) -> None:
    device = resolve_device(parameters["device"])
    own = {name: parameters[name] for name in SETTING_NAMES if name in parameters}
    engine, quality = parameters.get("engine", DEFAULT_ENGINE), parameters["quality"]
    resolve_settings(engine, quality, own, on_gpu=device.type == "cuda")


def _say(line: str) -> None:
    sys.stdout.write(visible(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

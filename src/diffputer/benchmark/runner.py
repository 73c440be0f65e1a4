"""Runs one task and writes what came out: one flat row for every result, a failure included."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch

from ..imputer import DiffPuter
from ..methods.contract import InSampleOnlyError, Method, check_completed
from ..methods.ours import Ours
from ..methods.table import make_method
from ..runtime.devices import resolve_device, resolve_precision
from ..settings import DEFAULT_ENGINE, SETTING_NAMES, ConditionalSettings, resolve_settings
from .curve import RoundScores, WatchedDiffPuter, count_draws
from .datasets import Dataset
from .metrics import end_rank
from .parts import SETTINGS_OF_ROWS, Part, make_parts, score_fields
from .provenance import describe_versions, find_git_hash, hash_settings, measure_peak_memory, name_device
from .results import FIELDS, Row
from .task import Task

_LOG = logging.getLogger(__name__)
PROTOCOL_VERSION = 1
#: The method whose engine and quality are among its parameters.
OURS = "diffputer"

#: What tells runs apart: columns of a row, in this order.
KEY_COLUMNS = ("task", "method", "settings_hash", "seed", "data_fingerprint", "protocol_version")
Key = tuple[str, ...]

#: Parameters that do not change a score; "precision" and "quality" enter by what they resolve to.
_NOT_A_SETTING = {
    "device", "quality", "precision", "progress", "random_state", "schema", "categorical_features",
    "checkpoint",
}  # fmt: skip


def run_task(
    task: Task,
    dataset: Dataset,
    parameters: Mapping[str, Any] | None = None,
    *,
    method: str | Method = OURS,
    seed: int | None = None,
    curve: bool = False,
    curve_rows: int = 2000,
    draws_scored: int = 0,
    draw_rows: int = 2000,
    alone: bool = False,
    label: str = "",
) -> list[Row]:
    """Hide cells, impute them, score them.

    Parameters
    ----------
    task : Task
        What to hide.
    dataset : Dataset
        The data set of the task.
    parameters : dict, optional
        Of DiffPuter, or settings of another method. Numeric columns are always taken as continuous: scores
        are of unrounded values.
    method : str or Method
        "diffputer", a name in `diffputer.methods.table.METHODS`, or a method that is none of them (it has
        its settings already). Only DiffPuter has a curve, and only methods that can draw have draws.
    seed : int, optional
        ``random_state`` of DiffPuter; default: the mask's.
    curve : bool
        Also give one row for each EM round and setting, scored on the first ``curve_rows`` rows with
        ``em_draws`` draws; what that takes is not in ``fit_seconds``.
    curve_rows : int
        Rows of each table that the curve is scored on.
    draws_scored : int
        Joint draws whose coverage, CRPS, ranks and AUC are scored: 19, 39, 59, ...; 0 takes none.
    draw_rows : int
        Rows of each table that are drawn for these scores, and that the energy distance is of.
    alone : bool
        Whether this run has the machine to itself, so that its seconds mean something.
    label : str
        A remark for the row.

    Returns
    -------
    list of dict
        With the columns `FIELDS`: the curve's rows, then one row in sample and one out of sample. What
        failed has the reason in ``error`` and only the scores that were made before.
    """
    seed = task.mask_seed if seed is None else seed
    if draws_scored:
        end_rank(draws_scored)  # refuse a number without such ends now, not after the fit
    made = find_method(method, parameters or {})
    base = _describe_run(task, dataset, made, seed) | {"alone": alone, "label": label}
    if isinstance(made, Method):
        return _run_method(made, make_parts(task, dataset), seed, base, draws_scored, draw_rows)
    try:
        device = _find_device(made)
        base["device"] = name_device(device)
        train, test = make_parts(task, dataset)
        kinds = dict.fromkeys(dataset.numeric, "continuous") | dict.fromkeys(
            dataset.categorical, "categorical"
        )
        options = {"progress": False, **made, "schema": kinds, "random_state": seed}
        watcher = RoundScores((train.first(curve_rows), test.first(curve_rows)))
        imputer = WatchedDiffPuter(**options) if curve else DiffPuter(**options)
        if isinstance(imputer, WatchedDiffPuter):
            imputer.watcher = watcher
        started = time.perf_counter()
        imputer.fit(train.holes)
        base["fit_seconds"] = time.perf_counter() - started - watcher.seconds
    except Exception as error:  # noqa: BLE001 - whatever fails is a row with the reason
        return [base | {"setting": setting, "error": note_failure(error)} for setting in SETTINGS_OF_ROWS]
    after = base | _describe_fit(imputer)
    memory = {"peak_memory_gb": measure_peak_memory(device)}
    curve_rows_made = [base | {"fit_seconds": None} | memory | row for row in watcher.rows]
    final = [
        after | _transform(imputer, part, device, draws_scored, part.first(draw_rows))
        for part in (train, test)
    ]
    return curve_rows_made + final


def describe_failure(
    task: Task, dataset: Dataset, method: str | Method, parameters: Mapping[str, Any], seed: int, reason: str
) -> list[Row]:
    """Give the rows of a run that left nothing behind but the reason."""
    made = find_method(method, parameters)
    base = _describe_run(task, dataset, made, seed)
    base |= {"device": name_device(_find_device(made)), "error": reason}
    return [base | {"setting": setting} for setting in SETTINGS_OF_ROWS]


def _transform(imputer: DiffPuter, part: Part, device: torch.device, draws_scored: int, drawn: Part) -> Row:
    """Impute one table with a fitted imputer and score it, and draws of its first rows."""
    row: Row = {"setting": part.setting, "rows": len(part.truth)}
    try:
        started = time.perf_counter()
        completed = imputer.transform(part.holes)
        row["transform_seconds"] = time.perf_counter() - started
        row |= score_fields(part.score(completed)) | {"peak_memory_gb": measure_peak_memory(device)}
        row |= _score_median(imputer, part)
        if draws_scored and part.has_numbers:
            row |= _score_draws(
                drawn, draws_scored, lambda: imputer.sample(drawn.holes, n_draws=draws_scored)
            )
        else:
            row["energy"] = drawn.score_energy([completed[: len(drawn.truth)]])
    except Exception as error:  # noqa: BLE001 - as above
        row["error"] = note_failure(error)
    return {"peak_memory_gb": measure_peak_memory(device)} | row


def _score_draws(drawn: Part, n_draws: int, draw: Callable[[], Iterable[pd.DataFrame]]) -> Row:
    started = time.perf_counter()
    draws = list(draw())
    seconds = time.perf_counter() - started
    made = {"draws_scored": n_draws, "rows_drawn": len(drawn.truth), "draw_seconds": seconds}
    of_rows = {"energy": drawn.score_energy(draws), "auc": drawn.score_auc(draws)}
    return made | drawn.score_draws(draws) | of_rows


def _run_method(
    method: Method, parts: tuple[Part, Part], seed: int, base: Row, draws_scored: int, draw_rows: int
) -> list[Row]:
    """Run a method other than DiffPuter: rows in sample and out of sample."""
    train, test = parts
    rows: list[Row] = []
    base = base | {"device": name_device(torch.device("cpu"))}
    try:
        device = _find_device(method)
        base["device"] = name_device(device)
        started = time.perf_counter()
        if method.out_of_sample:
            method.fit(train.holes, train.categorical, seed)
        else:
            completed = method.fit_transform(train.holes, train.categorical, seed)
        base["fit_seconds"] = time.perf_counter() - started
    except Exception as error:  # noqa: BLE001 - whatever fails is a row with the reason
        base["error"] = note_failure(error)
    base["versions"] = json.dumps(json.loads(base["versions"]) | dict(method.versions))
    if base["error"]:
        return [base | {"setting": setting} for setting in SETTINGS_OF_ROWS]
    for part in parts:
        row: Row = {"setting": part.setting, "rows": len(part.truth)}
        try:
            started = time.perf_counter()
            if method.out_of_sample or part is test:
                completed = method.transform(part.holes)
            check_completed(completed, part.holes)
            row["transform_seconds"] = time.perf_counter() - started
            row |= score_fields(part.score(completed))
            drawn = part.first(draw_rows)
            row["energy"] = drawn.score_energy([completed[:draw_rows]])
            if draws_scored and method.draws and part.has_numbers:
                draw = partial(method.sample, drawn.holes, draws_scored, seed)
                row |= _score_draws(drawn, draws_scored, draw)
        except Exception as error:  # noqa: BLE001 - as above
            row["error"] = note_failure(error)
        rows.append(base | row | {"peak_memory_gb": measure_peak_memory(device)})
    return rows


def _find_device(made: Method | Mapping[str, Any]) -> torch.device:
    """Give the device on which it computes, with its memory counted from now on."""
    chosen = made.settings.get("device", "cpu") if isinstance(made, Method) else made.get("device", "auto")
    device = resolve_device(chosen)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    return device


def _score_median(imputer: DiffPuter, part: Part) -> Row:
    """Score the medians of a fit whose means were scored, where they cost one network evaluation."""
    if imputer.estimate != "mean" or not isinstance(imputer.settings_, ConditionalSettings):
        return {}
    other = copy.copy(imputer)  # shares what was fitted
    other.estimate = "median"
    scores = part.score(other.transform(part.holes))
    return {"mae_median": scores.mae, "rmse_median": scores.rmse}


def _describe_run(task: Task, dataset: Dataset, made: Method | dict[str, Any], seed: int) -> Row:
    """What is known before anything runs; every column is there."""
    settings = describe_settings(made)
    packages = made.facts.packages if isinstance(made, Method) else ()
    row: Row = dict.fromkeys(FIELDS)
    return row | dataclasses.asdict(task) | {
        "task": task.id,
        "method": name_method(made),
        "seed": seed,
        "settings": settings,
        "settings_hash": hash_settings(settings),
        "threads": torch.get_num_threads(),
        "versions": describe_versions(packages),
        "git_hash": find_git_hash(),
        "data_fingerprint": dataset.fingerprint,
        "protocol_version": PROTOCOL_VERSION,
    }  # fmt: skip


def _describe_fit(imputer: DiffPuter) -> Row:
    trace = imputer.trace_
    return {
        "m_seconds": sum(line.m_seconds for line in trace),
        "e_seconds": sum(line.e_seconds for line in trace),
        "em_rounds": len(trace),
        "best_round": imputer._result.best_round if imputer._result else None,
        "draws": count_draws(imputer.settings_),
    }


def is_done(
    rows: Sequence[Mapping[str, str]],
    task: Task,
    parameters: Mapping[str, Any],
    seed: int,
    *,
    fingerprint: str | None,
    method: str | Method = OURS,
    curve: bool = False,
    draws_scored: int = 0,
) -> bool:
    """Say whether results hold a run of this task, method, settings and seed (failed or not).

    A run of other data (by their fingerprint) or of another protocol is none. A run without a curve, or with
    fewer draws scored, is not one with them; where no number was hidden there are no draws to score.
    """
    made = find_method(method, parameters)
    if isinstance(made, Method):
        curve, draws_scored = False, draws_scored if made.draws else 0
    key = make_key(task, made, seed, fingerprint)
    mine = [row for row in rows if key == key_of(row)]
    finished = {
        row["setting"]
        for row in mine
        if not row["em_round"]
        and (row["error"] or not row["mae"] or int(row.get("draws_scored") or 0) >= draws_scored)
    }
    has_curve = any(row["em_round"] or row["error"] for row in mine)
    return finished >= set(SETTINGS_OF_ROWS) and (has_curve or not curve)


def make_key(task: Task, made: Method | Mapping[str, Any], seed: int, fingerprint: str | None) -> Key:
    """Give what tells the rows of a run from those of others."""
    settings = hash_settings(describe_settings(made))
    return task.id, name_method(made), settings, str(seed), fingerprint or "", str(PROTOCOL_VERSION)


def key_of(row: Mapping[str, str]) -> Key:
    """Give the same of a row of results."""
    return tuple(row[name] for name in KEY_COLUMNS)


def find_method(method: str | Method, parameters: Mapping[str, Any]) -> Method | dict[str, Any]:
    """Make a method by its name, or take it as it is; of DiffPuter, under any name, give the parameters.

    Examples
    --------
    >>> find_method("diffputer-best", {"device": "cpu"})
    {'engine': 'conditional', 'quality': 'best', 'device': 'cpu'}
    """
    if method == OURS:
        return dict(parameters)
    made = method if isinstance(method, Method) else make_method(method, **parameters)
    return made.settings if isinstance(made, Ours) else made


def name_method(made: Method | Mapping[str, Any]) -> str:
    """Give the method's name in the results: DiffPuter's is that of its engine."""
    if isinstance(made, Method):
        return made.facts.name
    return f"diffputer-{made.get('engine', DEFAULT_ENGINE)}"


def describe_settings(made: Method | Mapping[str, Any]) -> str:
    """Give the settings of a method as JSON that tells runs apart.

    DiffPuter's parameters are resolved, or given as they are if they do not resolve. A method of the user's
    own file is told apart by the content of that file, too, and any method by its revision.

    Examples
    --------
    >>> describe_settings({"quality": "auto"}) == describe_settings({"quality": "balanced"})
    True
    """
    if isinstance(made, Method):
        own = {name: value for name, value in made.settings.items() if name != "device"}
        if made.fingerprint:
            own["file"] = made.fingerprint
        if made.facts.revision:  # rows from before there were revisions have none
            own["revision"] = made.facts.revision
        return json.dumps(own, sort_keys=True, default=str)
    parameters = made
    try:
        device = resolve_device(parameters.get("device", "auto"))
        own = {name: parameters[name] for name in SETTING_NAMES if name in parameters}
        engine, quality = parameters.get("engine", DEFAULT_ENGINE), parameters.get("quality", "auto")
        settings = resolve_settings(engine, quality, own, on_gpu=device.type == "cuda")
        described: Row = dataclasses.asdict(settings)
        precision = resolve_precision(parameters.get("precision", "auto"), device)
        described["precision"] = str(precision).removeprefix("torch.")
        described |= {k: v for k, v in parameters.items() if k not in {*SETTING_NAMES, *_NOT_A_SETTING}}
    except (ValueError, TypeError):
        described = dict(parameters)
    return json.dumps(described, sort_keys=True, default=str)


def is_failure(row: Mapping[str, Any]) -> bool:
    """Say whether a method failed at what it can do."""
    return bool(row["error"]) and not str(row["error"]).startswith(InSampleOnlyError.__name__)


def note_failure(error: BaseException) -> str:
    """Give an exception as one line for a row; its traceback is for the log, where someone asks for that."""
    if not isinstance(error, InSampleOnlyError):
        _LOG.debug("A run failed.", exc_info=error)
    return reason_of(error)


def reason_of(error: BaseException) -> str:
    """Give an exception as one line.

    Examples
    --------
    >>> reason_of(SystemExit(0))
    'SystemExit: the method ended its process with code 0 instead of returning.'
    """
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
        error = SystemExit(f"the method ended its process with code {code} instead of returning.")
    return " ".join(f"{type(error).__name__}: {error}".split())[:1000]

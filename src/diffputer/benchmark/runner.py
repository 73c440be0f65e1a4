"""Runs one task and writes what came out: one flat row for every result, a failure included."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch

from .. import __version__
from ..em import Checkpoint, EMResult, EMState, impute, observed_range
from ..engines import make_engine
from ..imputer import DiffPuter
from ..runtime.devices import resolve_device, resolve_precision
from ..settings import DEFAULT_ENGINE, SETTING_NAMES, PaperSettings, Settings, resolve_settings
from ..tables.encoding import Encoded
from ..tables.frames import read_table
from .datasets import Dataset
from .metrics import Booleans, Floats, Scores, observed_deviation, score_table
from .results import FIELDS, Row
from .task import Task

PROTOCOL_VERSION = 1
#: Environment variable with the commit, for copies of the source without their history.
GIT_HASH_VARIABLE = "DIFFPUTER_GIT_HASH"
SETTINGS_OF_ROWS = ("in_sample", "out_of_sample")

#: Parameters that do not change a score; "precision" and "quality" enter by what they resolve to.
_NOT_A_SETTING = {
    "device", "quality", "precision", "progress", "random_state", "schema", "categorical_features",
    "checkpoint",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Part:
    """One of the two tables of a task: complete, with holes, and the cells to score."""

    setting: str
    truth: pd.DataFrame
    holes: pd.DataFrame
    scored: Booleans
    deviation: Floats
    categorical: tuple[str, ...]

    def first(self, n: int) -> Part:
        """Give its first n rows (the split has shuffled them)."""
        return dataclasses.replace(self, truth=self.truth[:n], holes=self.holes[:n], scored=self.scored[:n])

    def score(self, completed: pd.DataFrame) -> Scores:
        """Score the table with its holes filled."""
        return score_table(self.truth, completed, self.scored, self.deviation, self.categorical)


def make_parts(task: Task, dataset: Dataset) -> tuple[Part, Part]:
    """Hide the cells of a task: the training table and the test table."""
    masks = task.masks(dataset)
    p = len(dataset.numeric)
    deviation = observed_deviation(dataset.train.iloc[:, :p].to_numpy(dtype=np.float64), masks[0][:, :p])
    parts = []
    tables = (dataset.train, dataset.test)
    rows = (dataset.train_rows, dataset.test_rows)
    for setting, truth, mask, row in zip(SETTINGS_OF_ROWS, tables, masks, rows, strict=True):
        scored = mask & ~np.isin(row, dataset.not_scored)[:, None]
        parts.append(Part(setting, truth, truth.mask(mask), scored, deviation, dataset.categorical))
    return parts[0], parts[1]


@dataclass
class RoundScores:
    """Scores the weights that each EM round ends with; EM takes it for a checkpoint that is always new."""

    parts: tuple[Part, ...]
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def open(self, imputer: DiffPuter, encoded: Encoded, settings: Settings) -> None:
        """Keep what an E-step needs: as the final one, but with em_draws draws."""
        self._imputer = imputer
        self._device = resolve_device(imputer.device)
        self._settings = settings
        if isinstance(settings, PaperSettings):
            self._settings = dataclasses.replace(settings, n_draws=settings.em_draws)
        self._bounds = observed_range(encoded.x, encoded.missing)

    def load(self) -> EMState | None:
        """Give nothing: every fit starts from the beginning."""
        return None

    def save(self, state: EMState) -> None:
        """Impute and score with the weights of the round that has just ended."""
        started = time.perf_counter()
        settings, encoder = self._settings, self._imputer._encoder
        dtype = resolve_precision(self._imputer.precision, self._device)
        engine = make_engine(encoder.n_levels, settings, self._device, dtype)
        weights = {k.removeprefix("model."): v for k, v in state.weights.items() if k.startswith("model.")}
        engine.model.load_state_dict(weights)
        fitted = EMResult(engine, self._bounds)
        for part in self.parts:
            begun = time.perf_counter()
            table = read_table(part.holes)
            encoded = encoder.encode(table)
            x = impute(encoded.x, encoded.missing, fitted, seed=self._imputer.seed_)
            self.rows.append(
                {
                    "setting": part.setting,
                    "em_round": len(state.trace),
                    "rows": len(part.truth),
                    "draws": _count_draws(settings),
                    "m_seconds": sum(line.m_seconds for line in state.trace),
                    "e_seconds": sum(line.e_seconds for line in state.trace),
                    "transform_seconds": time.perf_counter() - begun,
                    **_score_fields(part.score(encoder.fill(table, x))),
                }
            )
        self.seconds += time.perf_counter() - started


class _WatchedDiffPuter(DiffPuter):
    """DiffPuter that tells RoundScores of every round."""

    watcher: RoundScores

    def _open_checkpoint(self, encoded: Encoded, settings: Settings) -> Checkpoint:
        self.watcher.open(self, encoded, settings)
        return self.watcher


def run_task(
    task: Task,
    dataset: Dataset,
    parameters: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    curve: bool = False,
    curve_rows: int = 2000,
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
        Of DiffPuter. Numeric columns are always taken as continuous: scores are of unrounded values.
    seed : int, optional
        ``random_state`` of DiffPuter; default: the mask's.
    curve : bool
        Also give one row for each EM round and setting, scored on the first ``curve_rows`` rows with
        ``em_draws`` draws; what that takes is not in ``fit_seconds``.
    curve_rows : int
        Rows of each table that the curve is scored on.
    alone : bool
        Whether this run has the machine to itself, so that its seconds mean something.
    label : str
        A remark for the row.

    Returns
    -------
    list of dict
        With the columns `FIELDS`: the curve's rows, then one row in sample and one out of sample. What
        failed has the reason in ``error`` and no scores.
    """
    given = dict(parameters or {})
    seed = task.mask_seed if seed is None else seed
    base = _describe_run(task, dataset, given, seed) | {"alone": alone, "label": label}
    try:
        device = resolve_device(given.get("device", "auto"))
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        base["device"] = name_device(device)
        train, test = make_parts(task, dataset)
        kinds = dict.fromkeys(dataset.numeric, "continuous") | dict.fromkeys(
            dataset.categorical, "categorical"
        )
        options = {"progress": False, **given, "schema": kinds, "random_state": seed}
        watcher = RoundScores((train.first(curve_rows), test.first(curve_rows)))
        imputer = _WatchedDiffPuter(**options) if curve else DiffPuter(**options)
        if isinstance(imputer, _WatchedDiffPuter):
            imputer.watcher = watcher
        started = time.perf_counter()
        imputer.fit(train.holes)
        base["fit_seconds"] = time.perf_counter() - started - watcher.seconds
    except Exception as error:  # noqa: BLE001 - whatever fails is a row with the reason
        return [base | {"setting": setting, "error": _reason(error)} for setting in SETTINGS_OF_ROWS]
    after = base | _describe_fit(imputer)
    memory = {"peak_memory_gb": measure_peak_memory(device)}
    curve_rows_made = [base | {"fit_seconds": None} | memory | row for row in watcher.rows]
    return curve_rows_made + [after | _transform(imputer, part, device) for part in (train, test)]


def _transform(imputer: DiffPuter, part: Part, device: torch.device) -> Row:
    """Impute one table with a fitted imputer and score it."""
    row: Row = {"setting": part.setting, "rows": len(part.truth)}
    try:
        started = time.perf_counter()
        completed = imputer.transform(part.holes)
        row["transform_seconds"] = time.perf_counter() - started
        row |= _score_fields(part.score(completed))
    except Exception as error:  # noqa: BLE001 - as above
        row["error"] = _reason(error)
    return row | {"peak_memory_gb": measure_peak_memory(device)}


def _score_fields(scores: Scores) -> Row:
    columns = {
        name: {key: value if key == "n" else round(value, 6) for key, value in values.items()}
        for name, values in scores.columns.items()
    }
    return {
        "mae": scores.mae,
        "rmse": scores.rmse,
        "accuracy": scores.accuracy,
        "columns": json.dumps(columns, separators=(",", ":")),
    }


def _describe_run(task: Task, dataset: Dataset, given: Mapping[str, Any], seed: int) -> Row:
    """What is known before anything runs; every column is there."""
    settings = describe_settings(given)
    row: Row = dict.fromkeys(FIELDS)
    return row | dataclasses.asdict(task) | {
        "task": task.id,
        "method": name_method(given),
        "seed": seed,
        "settings": settings,
        "settings_hash": hash_settings(settings),
        "threads": torch.get_num_threads(),
        "versions": json.dumps(
            {
                "diffputer": __version__,
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "sklearn": sklearn.__version__,
                "python": platform.python_version(),
            }
        ),
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
        "draws": _count_draws(imputer.settings_),
    }


def _count_draws(settings: Settings | None) -> int | None:
    """Give the draws that an imputed value averages; the conditional engine takes none."""
    return settings.n_draws if isinstance(settings, PaperSettings) else None


def is_done(
    rows: Sequence[Mapping[str, str]],
    task: Task,
    parameters: Mapping[str, Any],
    seed: int,
    *,
    curve: bool = False,
) -> bool:
    """Say whether results hold a run of this task, method, settings and seed (failed or not)."""
    key = (task.id, name_method(parameters), hash_settings(describe_settings(parameters)), str(seed))
    mine = [row for row in rows if key == tuple(row[n] for n in ("task", "method", "settings_hash", "seed"))]
    finished = {row["setting"] for row in mine if not row["em_round"]}
    has_curve = any(row["em_round"] or row["error"] for row in mine)
    return finished >= set(SETTINGS_OF_ROWS) and (has_curve or not curve)


def name_method(parameters: Mapping[str, Any]) -> str:
    """Give the method's name in the results."""
    return f"diffputer-{parameters.get('engine', DEFAULT_ENGINE)}"


def describe_settings(parameters: Mapping[str, Any]) -> str:
    """Resolve DiffPuter's parameters into JSON that tells runs apart; as given if they do not resolve.

    Examples
    --------
    >>> describe_settings({"quality": "auto"}) == describe_settings({"quality": "balanced"})
    True
    """
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


def hash_settings(settings: str) -> str:
    """Give a short name to a description of settings."""
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def name_device(device: torch.device) -> str:
    """Give the name of the GPU or the model of the CPU."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def measure_peak_memory(device: torch.device) -> float | None:
    """Give the most memory used so far in GB: of the GPU since the task began, or of this whole process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e9, 3)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 3)


def find_git_hash() -> str | None:
    """Give the commit of this source ("-dirty" if changed since), or None outside its repository."""
    if given := os.environ.get(GIT_HASH_VARIABLE):
        return given
    package = Path(__file__).resolve().parents[1]
    try:
        top = _git(package, "rev-parse", "--show-toplevel")
        if Path(top) / "src" / "diffputer" != package:
            return None
        return _git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:1000]

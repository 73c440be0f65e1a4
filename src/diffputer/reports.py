"""Reports of a fitted imputer: what it can say of itself, and the draws that the pictures need."""

from __future__ import annotations

import dataclasses
import inspect
import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import __version__
from .analysis.origin import Origin
from .analysis.views import some_rows
from .em import Engine
from .runtime.devices import resolve_device
from .runtime.stages import stage
from .settings import check_number
from .tables.markers import MarkerWord
from .tables.paths import check_writable, write_bytes
from .tables.pieces import take_rows

#: What a report takes if nobody says: draws, and rows of long tables.
N_DRAWS, MAX_ROWS = 5, 20_000
#: Parameters that change no answer.
_SILENT = ("random_state", "progress", "checkpoint")


def origin_of(imputer: Any) -> Origin:
    """Say which model draws come from: a fitted DiffPuter."""
    import torch

    defaults = inspect.signature(type(imputer).__init__).parameters
    given = {
        name: value
        for name, value in imputer.get_params(deep=False).items()
        if name not in _SILENT and value is not None and not _same(value, defaults[name].default)
    }
    device = resolve_device(imputer.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    settings = {} if imputer.settings_ is None else dataclasses.asdict(imputer.settings_)
    if imputer._result is not None:
        engine = imputer._result.engine
        settings["model_uncertainty"] = _uncertainty_in_force(engine, imputer.model_uncertainty)
    quality = imputer.quality
    if imputer.engine == "conditional" and quality == "auto":
        quality = "balanced"
    return Origin(
        method=f"DiffPuter, {imputer.engine} engine, quality {quality}",
        parameters=given,
        settings=settings,
        seed=imputer.seed_,
        software={
            "diffputer": __version__,
            "Python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "device": f"{device} ({where})",
        },
        trace=tuple(imputer.trace_),
        held_out=imputer.held_out_scores_,
        estimate=_estimate_in_words(imputer),
    )


def write_report(
    imputer: Any,
    X: Any,
    path: str | os.PathLike[str],
    n_draws: int,
    max_rows: int = MAX_ROWS,
    *,
    title: str = "",
    command: str = "",
    written_as: str = "as transform returns",
    marker_words: Sequence[MarkerWord] = (),
) -> None:
    """Draw the rows of a table, or some of a long one, and write the report of it; see DiffPuter.report."""
    check_number("max_rows", max_rows, 1, 1 << 31, closed=True, whole=True)
    check_writable(path, format="csv")  # any suffix will do
    from .analysis.report import make_report

    n_rows = len(X) if hasattr(X, "__len__") else X.num_rows
    rows = some_rows(n_rows, max_rows, np.random.default_rng(imputer.seed_))
    part = X if len(rows) == n_rows else take_rows(X, rows)
    draws, written = imputer.sample(part, n_draws=n_draws), imputer.transform(part)
    with stage("report", rows=n_rows):
        page = make_report(
            X,
            draws,
            schema=imputer.schema_,
            origin=dataclasses.replace(origin_of(imputer), command=command),
            rows=None if len(rows) == n_rows else rows,
            title=title,
            written=written,
            written_as=written_as,
            marker_words=marker_words,
        )
    write_bytes(path, page.encode())


def _estimate_in_words(imputer: Any) -> str:
    """What `transform` of this imputer returns in place of missing values."""
    if imputer._result is not None and imputer._result.falls_back:
        return (
            "the mean of the column or its most frequent category, as held-out cells were imputed no better"
        )
    middle = "median" if imputer.estimate == "median" else "expected value"
    return f"the {middle} of a number, the most probable category"


def _uncertainty_in_force(engine: Engine, model_uncertainty: str) -> str:
    """Say which model uncertainty draws of an engine carry: without a copula "linear" is "none"."""
    from .models.conditional.engine import ConditionalEngine

    varies = isinstance(engine, ConditionalEngine) and engine.varies
    if model_uncertainty == "linear" and not varies:
        return "none: this engine has no linear model to vary, or had no time to"
    return model_uncertainty


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)

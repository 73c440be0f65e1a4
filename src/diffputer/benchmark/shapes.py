"""Small, wide and long tables: seconds, rows a second, memory and error of the default engine, as one row.

    python -P -m diffputer.benchmark.shapes --rows 2000 --columns 500 --out shapes.csv

Numbers are of five common factors, and half of the variance of a column is its own. The table is fitted and
completed, then as many new rows of it as wanted, from a data frame and back, three times; and a block of rows
that lie on the device is answered there, for the rate of the arithmetic alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..imputer import DiffPuter
from ..models.base import Cells
from ..models.conditional.engine import BLOCK, ConditionalEngine
from ..runtime.devices import resolve_device
from .provenance import describe_versions, find_git_hash, measure_peak_memory, name_device
from .results import append_rows

FIELDS = (
    "rows", "columns", "missing", "quality", "time_budget", "seed", "fit_seconds", "new_rows",
    "transform_seconds", "rows_per_second", "arithmetic_per_second", "rmse", "rmse_of_means", "data_gb",
    "start_memory_gb", "peak_memory_gb", "device", "threads", "git_hash", "versions",
)  # fmt: skip
FACTORS, REPEATS = 5, 3
#: Blocks that are answered before the clock runs, and while it does.
WARM_UP, TIMED = 3, 20
#: Errors are of the first rows: the truth of all would be a second table.
SCORED = 20_000


def make_table(n: int, columns: int, missing: float, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Give a table with holes, and the truth of its first rows.

    Examples
    --------
    >>> table, truth = make_table(50, 8, 0.2, seed=0)
    >>> table.shape, truth.shape, bool(table.isna().any(axis=None))
    ((50, 8), (50, 8), True)
    """
    loadings = np.random.default_rng(seed).normal(size=(FACTORS, columns))
    loadings /= np.linalg.norm(loadings, axis=0) * np.sqrt(2)
    rng = np.random.default_rng([seed, n])
    values, truth = np.empty((columns, n)), np.empty((min(n, SCORED), columns))
    factors = rng.normal(size=(FACTORS, n))
    for j, column in enumerate(values):
        column[:] = loadings[:, j] @ factors + np.sqrt(0.5) * rng.normal(size=n)
        truth[:, j] = column[: len(truth)]
        column[rng.random(n) < missing] = np.nan
    names = [f"x{j}" for j in range(columns)]
    return pd.DataFrame(values.T, columns=names, copy=False), truth


def measure(
    rows: int, columns: int, *, missing: float, new_rows: int, seed: int, **parameters: Any
) -> dict[str, Any]:
    """Fit and complete a table of a shape, then new rows of the same kind; give what it took."""
    table, truth = make_table(rows, columns, missing, seed)
    start = measure_peak_memory(torch.device("cpu"))
    imputer = DiffPuter(random_state=seed, progress=False, **parameters)
    began = time.perf_counter()
    completed = imputer.fit_transform(table)
    fit_seconds = time.perf_counter() - began
    holes = table[: len(truth)].isna().to_numpy()
    error = (completed[: len(truth)].to_numpy() - truth)[holes]
    peak = measure_peak_memory(torch.device("cpu"))
    of_means = (table.mean().to_numpy() - truth)[holes]
    new, _ = make_table(new_rows, columns, missing, seed)
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        imputer.transform(new)
        seconds.append(time.perf_counter() - began)
    return {
        "rows": rows,
        "columns": columns,
        "missing": missing,
        "quality": imputer.quality,
        "time_budget": imputer.time_budget,
        "seed": seed,
        "fit_seconds": round(fit_seconds, 2),
        "new_rows": new_rows,
        "transform_seconds": round(statistics.median(seconds), 3),
        "rows_per_second": round(new_rows / statistics.median(seconds)),
        "arithmetic_per_second": round(_measure_arithmetic(imputer, columns, missing)),
        "rmse": round(float(np.sqrt(np.mean(error**2))), 4),
        "rmse_of_means": round(float(np.sqrt(np.mean(of_means**2))), 4),
        "data_gb": round(8e-9 * rows * columns, 3),
        "start_memory_gb": start,
        "peak_memory_gb": peak,
        "device": name_device(resolve_device(imputer.device)),
        "threads": torch.get_num_threads(),
        "git_hash": find_git_hash(),
        "versions": describe_versions(),
    }


def _measure_arithmetic(imputer: DiffPuter, columns: int, missing: float) -> float:
    """Give the rows a second of one block after another, from a description to means, on the device."""
    assert imputer._result is not None
    engine = imputer._on_device(imputer._result).engine
    assert isinstance(engine, ConditionalEngine)
    device = engine.device
    generator = torch.Generator().manual_seed(0)
    n = BLOCK[device.type]
    values = torch.randn(n, columns, generator=generator).to(device)
    known = (torch.rand(n, columns, generator=generator) >= missing).to(device)

    def answer(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            rows = engine.model.describe(values, known)
            mean = engine.model.predict(rows, Cells.of(~known, columns), engine.dtype).mean
        float(mean[-1])  # waits for the device
        return time.perf_counter() - began

    answer(WARM_UP)
    return TIMED * n / answer(TIMED)


def main(arguments: list[str] | None = None) -> None:
    """Measure one shape, show it and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--missing", type=float, default=0.2)
    parser.add_argument("--new-rows", type=int, default=200_000)
    parser.add_argument("--quality", default="balanced")
    parser.add_argument("--time-budget", type=float)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    row = measure(
        given.rows, given.columns, missing=given.missing, new_rows=given.new_rows, seed=given.seed,
        quality=given.quality, time_budget=given.time_budget, device=given.device,
    )  # fmt: skip
    sys.stdout.writelines(f"{name:18} {value}\n" for name, value in row.items())
    if given.out is not None:
        append_rows(given.out, [row], FIELDS)


if __name__ == "__main__":
    main()

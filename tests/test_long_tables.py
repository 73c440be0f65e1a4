"""Long tables: memory grows with the table, and no faster."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from diffputer import DiffPuter

TINY: dict[str, Any] = {
    "max_steps": 5, "planned_steps": 5, "boosted_trees": 0, "mlp_members": 1, "mlp_width": 16, "mlp_depth": 1,
    "attention_members": 0, "progress": False, "device": "cpu", "random_state": 0,
}  # fmt: skip
ROWS, COLUMNS = 200_000, 10


@pytest.fixture(params=["frame", "mapped from a file"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 1)) + rng.normal(size=(ROWS, COLUMNS))
    x[rng.random(x.shape) < 0.2] = np.nan
    if request.param == "frame":
        return pd.DataFrame({f"c{j}": x[:, j].copy() for j in range(COLUMNS)})
    np.save(tmp_path / "table.npy", x)
    return np.load(tmp_path / "table.npy", mmap_mode="r")


@contextmanager
def peak_of_arrow() -> Iterator[list[int]]:
    """Watch the memory of Arrow, which holds columns, and is not among what Python traces."""
    peak, ended, before = [0], threading.Event(), pa.total_allocated_bytes()

    def watch() -> None:
        while not ended.wait(0.01):
            peak[0] = max(peak[0], pa.total_allocated_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


@pytest.mark.filterwarnings("ignore:Imputed values are no better")
def test_a_fit_takes_less_than_twice_the_table_and_completing_it_little_more_than_its_answer(
    table: Any,
) -> None:
    size = ROWS * COLUMNS * 8
    imputer = DiffPuter(**TINY).fit(table[:500])  # what is imported and kept for good
    imputer.transform(table[:500])
    tracemalloc.start()
    try:
        with peak_of_arrow() as arrow:
            imputer.fit(table)
        # Trees hold 50,000 rows at most, twice: as much as half of this table, and little of longer ones.
        assert tracemalloc.get_traced_memory()[1] + arrow[0] < 2.4 * size
        tracemalloc.reset_peak()
        completed = imputer.transform(table)
        assert tracemalloc.get_traced_memory()[1] < 2.6 * size  # 1.0 of it is the completed table
    finally:
        tracemalloc.stop()
    assert not np.isnan(np.asarray(completed)).any()

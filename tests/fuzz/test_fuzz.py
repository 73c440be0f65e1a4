"""300 ugly tables: each is refused with a sentence or completed by the rules."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from diffputer import DiffPuter

from .run import failures_of

CHUNKS, PER_CHUNK = 20, 15


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_ugly_tables_are_refused_or_completed_by_the_rules(chunk: int) -> None:
    seeds = range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK)
    failures = failures_of("tables", seeds)
    assert not failures, "\n\n".join(failures)


def test_labels_of_polars_may_hold_nul() -> None:
    frame = pl.DataFrame({"nul\0byte": [1.0, None, 3.0, 4.0], "other": [1.0, 2.0, 3.0, None]})
    completed = DiffPuter(random_state=0, max_steps=3, held_out=0, progress=False).fit_transform(frame)
    assert completed.columns == frame.columns
    assert np.isfinite(completed.to_numpy()).all()

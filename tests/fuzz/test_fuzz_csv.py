"""Ugly CSV texts: the command writes every observed cell as it was, or ends with a sentence and code 2."""

from __future__ import annotations

import pytest

from .run import failures_of

CHUNKS, PER_CHUNK = 10, 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_ugly_texts_are_refused_or_written_with_observed_cells_as_they_were(chunk: int) -> None:
    seeds = range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK)
    failures = failures_of("csv", seeds)
    assert not failures, "\n\n".join(failures)

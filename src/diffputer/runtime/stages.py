"""Stages of the work, each of which ends in one record of the standard ``logging`` module."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("diffputer.stages")
logging.getLogger("diffputer").addHandler(logging.NullHandler())


@contextmanager
def stage(name: str, **facts: int) -> Iterator[None]:
    """Log a stage when it ends, also by an error, with seconds and facts such as rows as attributes.

    Parameters
    ----------
    name : str
        read, encode, train, impute, sample, uncertainty, decode, compare, report or write.
    **facts : int
        More attributes of the record.
    """
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - started
        logger.info("%s took %.3f seconds", name, seconds, extra={"stage": name, "seconds": seconds, **facts})


def record_scores(n: int, error: float, baseline: float) -> None:
    """Log how well held-out cells were imputed, with the numbers as attributes of the record.

    Parameters
    ----------
    n : int
        Held-out cells of the columns that have missing values.
    error, baseline : float
        Of the model, and of column means and most frequent categories.
    """
    message = "error on %d held-out cells %.4f (column means: %.4f)"
    facts = {"stage": "score", "n": n, "error": error, "baseline": baseline}
    logger.info(message, n, error, baseline, extra=facts)

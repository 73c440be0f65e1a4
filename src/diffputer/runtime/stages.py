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
    """Log a stage when it ends, with its seconds and facts such as rows as attributes of the record.

    Parameters
    ----------
    name : str
        read, encode, train, impute, decode or write.
    **facts : int
        More attributes of the record.
    """
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    logger.info("%s took %.3f seconds", name, seconds, extra={"stage": name, "seconds": seconds, **facts})

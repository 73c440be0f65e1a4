"""The numbers of the paper, cell by cell, with those that are doubtful marked."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

#: Hidden share in the paper's tables.
PUBLISHED_RATE = 0.3
#: The device of the paper's seconds.
PUBLISHED_DEVICE = "RTX 4090"
_NAMES = ("setting", "metric", "method")
_SCALES = {"1": 1.0, "0.01": 0.01, "percent": 0.01, "seconds": 1.0}


def find_published(
    dataset: str, mechanism: str, setting: str, metric: str, method: str = "diffputer"
) -> tuple[float, bool] | None:
    """Give a score in the paper (plain, not times 100) and whether it is doubtful.

    Examples
    --------
    >>> find_published("california", "mcar", "out_of_sample", "mae")
    (0.3347, False)
    """
    return _read_published().get((dataset, mechanism, setting, metric, method))


def find_published_name(method: str) -> str | None:
    """Give the name that a method of a result has in the paper, if it is there.

    Examples
    --------
    >>> find_published_name("diffputer-conditional"), find_published_name("gbt-per-column")
    ('diffputer', None)
    """
    if method == "diffputer" or method.startswith("diffputer-"):
        return "diffputer"
    from ..methods.table import METHODS  # brings torch

    return METHODS[method][0].published if method in METHODS else None


def list_published_methods(metric: str) -> list[str]:
    """Give the methods of which the paper has a metric, in its order."""
    return list(dict.fromkeys(key[-1] for key in _read_published() if key[-2] == metric))


@lru_cache(maxsize=1)
def _read_published() -> dict[tuple[str, ...], tuple[float, bool]]:
    text = files("diffputer.benchmark").joinpath("published.csv").read_text(encoding="utf-8")
    found = {}
    for fact in csv.DictReader(text.splitlines()):
        if fact["scale"] in _SCALES and fact["mean"]:
            key = (fact["dataset"], fact["mechanism"].lower(), *(fact[n] for n in _NAMES))
            doubtful = "FLAG" in fact["note"] or "inferred" in fact["note"]
            found[key] = (round(float(fact["mean"]) * _SCALES[fact["scale"]], 8), doubtful)
    return found

"""From raw rows to one line for every estimand: coverage, bias, standard errors, widths."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...tables.paths import write_bytes
from .designs import DESIGNS, MECHANISMS
from .imputers import RIVALS, our_entries
from .simulation import last_rows


@dataclass(frozen=True)
class Line:
    """What the repetitions of a cell say of one method's intervals for one estimand.

    Attributes
    ----------
    rows, draws
        Of each table; of each multiple imputation.
    repetitions, failures
        That gave an interval, and that gave an error.
    missing
        Mean share of missing cells in the columns that can miss some.
    bias, empirical_se, mean_se
        Mean estimate less truth; standard deviation of the estimates; mean of the stated standard errors.
    width
        Mean length of the intervals.
    coverage, coverage_se
        Share of the intervals that hold the truth, and its Monte Carlo standard error.
    fmi
        Mean fraction of missing information.
    seconds
        Mean of a repetition, fit, draws and analysis, one thread.
    """

    design: str
    mechanism: str
    rate: float
    rows: int
    draws: int
    method: str
    title: str
    settings_hash: str
    estimand: str
    repetitions: int
    failures: int
    missing: float | None
    truth: float
    mean_estimate: float | None
    bias: float | None
    empirical_se: float | None
    mean_se: float | None
    width: float | None
    coverage: float | None
    coverage_se: float | None
    fmi: float | None
    seconds: float | None
    machine: str
    git_hash: str
    versions: str
    settings: str

    @property
    def cell(self) -> tuple[str, str, float, int, int]:
        """Where it was measured."""
        return self.design, self.mechanism, self.rate, self.rows, self.draws

    @property
    def of_mean(self) -> bool:
        """Whether the estimand is the mean of a column, not a coefficient."""
        return self.estimand.startswith("mean(")


SUMMARY_FIELDS = tuple(field.name for field in fields(Line))
_NUMBERS = {field.name: str(field.type) for field in fields(Line) if str(field.type) != "str"}


def summarise(rows: Iterable[dict[str, str]]) -> list[Line]:
    """Summarise raw rows, however many there are.

    Parameters
    ----------
    rows : iterable of dict
        Of one file or several; a repetition that is there twice counts once.

    Returns
    -------
    list of Line
        One for each cell, method with its settings, and estimand: the same for rows in any order.
    """
    groups: dict[tuple[int | float | str, ...], list[dict[str, str]]] = {}
    places = [list(names) for names in (DESIGNS, MECHANISMS, (*RIVALS, *our_entries({})))]
    for row in last_rows(rows):
        names = (row["design"], row["mechanism"], row["method"])
        if foreign := [name for name, known in zip(names, places, strict=True) if name not in known]:
            raise InputError(
                "Rows must be of designs, mechanisms and methods that this version has, however: "
                f"{', '.join(foreign)} is none of them."
            )
        design, mechanism, method = (known.index(name) for name, known in zip(names, places, strict=True))
        sizes = (float(row["rate"]), int(row["rows"]), int(row["draws"]))
        groups.setdefault((design, mechanism, *sizes, method, row["settings_hash"]), []).append(row)
    return [line for _, group in sorted(groups.items()) for line in _summarise_group(group)]


def _summarise_group(group: Sequence[dict[str, str]]) -> list[Line]:
    first = group[0]
    good = [row for row in group if not row["error"]]
    results = [json.loads(row["results"]) for row in good]
    shared: dict[str, Any] = {
        "design": first["design"],
        "mechanism": first["mechanism"],
        "rate": float(first["rate"]),
        "rows": int(first["rows"]),
        "draws": int(first["draws"]),
        "method": first["method"],
        "title": max(group, key=lambda row: int(row["repetition"]))["title"],
        "settings_hash": first["settings_hash"],
        "repetitions": len(good),
        "failures": len(group) - len(good),
        "missing": _mean([float(row["missing"]) for row in good], 4),
        "seconds": _mean([float(row["fit_seconds"]) + float(row["draw_seconds"]) for row in good], 3),
        **{name: " / ".join(sorted({row[name] for row in group}))
           for name in ("machine", "git_hash", "versions", "settings")},
    }  # fmt: skip
    return [
        Line(estimand=name, truth=truth, **{**shared, **measure([found[name] for found in results], truth)})
        for name, truth in DESIGNS[first["design"]].truth.items()
    ]


def measure(intervals: Sequence[Sequence[float | None]], truth: float) -> dict[str, float | None]:
    """Measure intervals, given as in raw rows, against the truth.

    Examples
    --------
    >>> found = measure([[1.0, 0.5, 9, 0.0, 2.0, None], [3.0, 0.7, 9, 2.0, 4.0, None]], 1.5)
    >>> found["bias"], found["coverage"], found["coverage_se"], found["width"], found["mean_se"]
    (0.5, 0.5, 0.353553, 2.0, 0.6)
    """
    names = ("mean_estimate", "bias", "empirical_se", "mean_se", "width", "coverage", "coverage_se", "fmi")
    if not intervals:
        return dict.fromkeys(names)
    estimate, error, _, low, high, fmi = np.array(intervals, dtype=np.float64).T
    n = len(estimate)
    covered = float(((low <= truth) & (truth <= high)).mean())
    values = (
        float(estimate.mean()),
        float(estimate.mean() - truth),
        float(estimate.std(ddof=1)) if n > 1 else math.nan,
        float(error.mean()),
        float((high - low).mean()),
        covered,
        math.sqrt(covered * (1 - covered) / n),
        float(fmi.mean()),
    )
    return {name: _rounded(value) for name, value in zip(names, values, strict=True)}


def pool(lines: Iterable[Line]) -> list[Line]:
    """Make one line of lines that summarise different repetitions of the same.

    Parameters
    ----------
    lines : iterable of Line
        Of several summaries, none of which has a repetition of another.

    Returns
    -------
    list of Line
        In the order in which each came first.
    """
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.cell, line.method, line.settings_hash, line.estimand), []).append(line)
    return [group[0] if len(group) == 1 else _pool_group(group) for group in groups.values()]


def _pool_group(group: Sequence[Line]) -> Line:
    good = [line for line in group if line.repetitions]
    counts = [line.repetitions for line in good]
    total = sum(counts)

    def mean(name: str, digits: int = 6) -> float | None:
        values = [getattr(line, name) for line in good]
        if not total or None in values:
            return None
        weighted: float = sum(n * value for n, value in zip(counts, values, strict=True))
        return round(weighted / total, digits)

    def texts(name: str) -> str:
        return " / ".join(sorted({part for line in group for part in getattr(line, name).split(" / ")}))

    middle, covered = mean("mean_estimate"), mean("coverage")
    spread = None
    if middle is not None and total > 1:
        inside = sum((n - 1) * (line.empirical_se or 0.0) ** 2 for n, line in zip(counts, good, strict=True))
        between = sum(
            n * ((line.mean_estimate or 0.0) - middle) ** 2 for n, line in zip(counts, good, strict=True)
        )
        spread = _rounded(math.sqrt((inside + between) / (total - 1)))
    return replace(
        group[0],
        repetitions=total,
        failures=sum(line.failures for line in group),
        missing=mean("missing", 4),
        mean_estimate=middle,
        bias=None if middle is None else _rounded(middle - group[0].truth),
        empirical_se=spread,
        mean_se=mean("mean_se"),
        width=mean("width"),
        coverage=covered,
        coverage_se=None if covered is None else _rounded(math.sqrt(covered * (1 - covered) / total)),
        fmi=mean("fmi"),
        seconds=mean("seconds", 3),
        machine=texts("machine"),
        git_hash=texts("git_hash"),
        versions=texts("versions"),
        settings=texts("settings"),
    )


def _rounded(value: float, digits: int = 6) -> float | None:
    return None if math.isnan(value) else round(value, digits)


def _mean(values: Sequence[float], digits: int) -> float | None:
    return round(sum(values) / len(values), digits) if values else None


def write_summary(path: str | os.PathLike[str], lines: Sequence[Line]) -> None:
    """Write lines as CSV, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SUMMARY_FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(line) for line in lines)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.getvalue().encode())


def read_summary(path: str | os.PathLike[str]) -> list[Line]:
    """Read what `write_summary` wrote."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != SUMMARY_FIELDS:
                raise InputError(
                    f"A coverage table must have the columns of this version, however: {path} has others. "
                    "Make it from its raw rows: diffputer bench coverage --from-rows RAW."
                )
            return [_read(row) for row in reader]
    except OSError as error:
        raise InputError(
            f"A coverage table must be a file, however: {path} cannot be read. {error}"
        ) from error


def _read(row: Mapping[str, str]) -> Line:
    values: dict[str, Any] = dict(row)
    for name, kind in _NUMBERS.items():
        text = row[name]
        if kind == "int":
            values[name] = int(text)
        else:
            values[name] = float(text) if text else None
    return Line(**values)

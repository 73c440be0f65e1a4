"""From rows as they are in files to results that can be compared; what cannot is refused, with reasons."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .measures import MEASURES, NOT_NEGATIVE, OF_TIME, SHARES

SETTINGS = ("in_sample", "out_of_sample")
#: How the reason begins where a method cannot complete a table that it was not fitted on.
_CANNOT = "InSampleOnlyError"
#: Mechanisms that are written in capitals.
_ABBREVIATED = ("mcar", "mar", "mnar")
_WHOLE = ("mask_seed", "em_round", "rows", "rows_drawn", "threads")
#: In names of devices that are no processors; rows do not say it otherwise.
_ACCELERATOR = re.compile(r"NVIDIA|GeForce|Tesla|Quadro|Radeon|Instinct|[GT]PU", re.IGNORECASE)


@dataclass(frozen=True)
class Record:
    """One result: a task, a setting, a method with its settings, and numbers or the reason for none."""

    dataset: str
    mechanism: str
    rate: float
    mask_seed: int
    setting: str
    method: str
    settings_hash: str
    label: str = ""
    em_round: int | None = None
    rows: int | None = None
    rows_drawn: int | None = None
    device: str = ""
    threads: int | None = None
    alone: bool = False
    fingerprint: str = ""
    protocol: str = ""
    error: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> tuple[str, str]:
        """The method with its settings."""
        return self.method, self.settings_hash

    @property
    def task(self) -> tuple[str, int]:
        """The data set and the mask."""
        return self.dataset, self.mask_seed

    @property
    def machine(self) -> str:
        """A GPU, or a processor and how many of its threads there were."""
        if not self.device or self.threads is None or _ACCELERATOR.search(self.device):
            return self.device
        return f"{self.device}, {self.threads} thread{'s' * (self.threads != 1)}"

    @property
    def cannot(self) -> bool:
        """Whether the method cannot do what was asked, which is no failure."""
        return self.error.startswith(_CANNOT)

    def __str__(self) -> str:
        round_of = f" EM round {self.em_round}" if self.em_round else ""
        return (
            f"{self.dataset}/{self.mechanism}/{self.rate:g}/{self.mask_seed} {self.setting} "
            f"{self.method} {self.settings_hash[:6]}{round_of}"
        )


@dataclass(frozen=True)
class Refusal:
    """Rows that cannot be compared with the others, and why."""

    reason: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """What can be compared, and what was set aside on the way.

    Attributes
    ----------
    final
        One record a task, setting, method and settings.
    curve
        Records of single EM rounds.
    refused
        Rows that are in neither, with reasons.
    repeated
        Names of results that were there more than once; the last one counted.
    ranked_on
        (mechanism, rate, setting) -> the tasks that averages over data sets, ranks and tests are confined
        to; None confines them to nothing. Cells are over all masks whatever stands here.
    """

    final: tuple[Record, ...]
    curve: tuple[Record, ...] = ()
    refused: tuple[Refusal, ...] = ()
    repeated: tuple[str, ...] = ()
    ranked_on: Mapping[tuple[str, float, str], frozenset[tuple[str, int]]] | None = None


def admit_rows(
    rows: Iterable[Mapping[str, Any]], wanted: Callable[[Record], bool] = lambda record: True
) -> Results:
    """Read rows and keep those that can be compared.

    Refused are rows that cannot be read or have scores that cannot be, such as a negative MAE, of another
    protocol version than the newest, of another state of a data set than most rows have, and those that were
    scored on another number of rows than most.

    Parameters
    ----------
    rows : iterable of dict
        With the columns of `diffputer.benchmark.results.FIELDS`, as text or as numbers; columns may lack.
    wanted : callable
        Whether a row counts; one that does not replaces none that does.

    Returns
    -------
    Results
        In the order of the rows.

    Examples
    --------
    >>> row = {"dataset": "toy", "mechanism": "mcar", "rate": "0.3", "mask_seed": "0", "setting": "in_sample",
    ...        "method": "mean", "settings_hash": "a", "mae": "0.5", "protocol_version": "1"}
    >>> results = admit_rows([row, row | {"mae": "0.4"}, row | {"rate": "much"}])
    >>> results.final[0].values["mae"], results.repeated
    (0.4, ('toy/mcar/0.3/0 in_sample mean a',))
    >>> results.refused[0].reason
    'the row has no readable rate'
    """
    read: list[Record] = []
    refused: dict[str, list[str]] = {}
    for number, row in enumerate(rows, start=1):
        try:
            read.append(read_row(row))
        except ValueError as error:
            refused.setdefault(str(error), []).append(f"row {number}: {_name_raw(row)}")
    newest = max((record.protocol for record in read), key=_version, default="")
    read = _keep(read, lambda r: r.protocol == newest, refused, lambda r: (
        f"protocol version {r.protocol or 'unknown'}, however: the newest here is {newest}"
    ))  # fmt: skip
    prints = _most_frequent((record.dataset, record.fingerprint) for record in read)
    read = _keep(read, lambda r: not r.fingerprint or r.fingerprint == prints[r.dataset], refused, lambda r: (
        f"the data set {r.dataset} has the fingerprint {r.fingerprint[:8]}, however: most rows of it have "
        f"{prints[r.dataset][:8]}"
    ))  # fmt: skip
    sizes = _most_frequent(((r.dataset, r.setting, r.em_round is None), r.rows) for r in read)

    def size(r: Record) -> int | None:
        return sizes.get((r.dataset, r.setting, r.em_round is None))

    read = _keep(read, lambda r: r.rows in (None, size(r)), refused, lambda r: (
        f"scored on {r.rows} rows of {r.dataset} ({r.setting}), however: most results are of {size(r)}"
    ))  # fmt: skip
    kept: dict[tuple[Any, ...], Record] = {}
    repeated: list[str] = []
    for record in filter(wanted, read):
        key = (record.mechanism, record.rate, record.task, record.setting, record.entry, record.em_round)
        if key in kept:
            repeated.append(str(record))
        kept[key] = record
    return Results(
        tuple(r for r in kept.values() if r.em_round is None),
        tuple(r for r in kept.values() if r.em_round is not None),
        tuple(Refusal(reason, tuple(names)) for reason, names in refused.items()),
        tuple(dict.fromkeys(repeated)),
    )


def read_row(row: Mapping[str, Any]) -> Record:
    """Read one row; a `ValueError` says what is not readable."""
    text = {name: "" if value is None else str(value).strip() for name, value in row.items() if name}
    for name in ("dataset", "mechanism", "rate", "mask_seed", "setting", "method"):
        if not text.get(name):
            raise ValueError(f"the row has no {name}")
    if text["setting"] not in SETTINGS:
        raise ValueError(f"the setting {text['setting']!r} is neither of {', '.join(SETTINGS)}")
    rate = _number(text["rate"])
    if rate is None or not 0.0 < rate < 1.0:
        raise ValueError("the row has no readable rate")
    whole: dict[str, int | None] = {}
    for name in _WHOLE:
        number = _number(text.get(name, ""))
        if (text.get(name) and number is None) or (number is not None and number != int(number)):
            raise ValueError(f"the row has no readable {name}")
        whole[name] = None if number is None else int(number)
    values, error = _read_values(text)
    return Record(
        text["dataset"], text["mechanism"].lower(), rate, whole.pop("mask_seed") or 0, text["setting"],
        text["method"], text.get("settings_hash", ""), text.get("label", ""), **whole,
        device=text.get("device", ""), alone=text.get("alone", "").lower() == "true",
        fingerprint=text.get("data_fingerprint", ""), protocol=text.get("protocol_version", ""),
        error=error, values=values, settings=_read_settings(text.get("settings", "")),
    )  # fmt: skip


def name_class(machine: str) -> str:
    """Give what machines of comparable seconds have in common: a GPU's name, or a CPU's number of threads.

    Examples
    --------
    >>> name_class("NVIDIA H200"), name_class("AMD EPYC, 2 threads"), name_class("AMD EPYC")
    ('NVIDIA H200', 'CPU, 2 threads', 'CPU')
    """
    if not machine or _ACCELERATOR.search(machine):
        return machine
    return re.sub(r"^.*?(, \d+ threads?)?$", r"CPU\1", machine)


def name_kind(mechanism: str, rate: float | None = None) -> str:
    """Name a mechanism, with a share of missing cells, for people.

    Examples
    --------
    >>> name_kind("mcar", 0.3), name_kind("self_masking")
    ('MCAR 30 %', 'self-masking')
    """
    name = mechanism.upper() if mechanism in _ABBREVIATED else mechanism.replace("_", "-")
    return name if rate is None else f"{name} {100 * rate:g} %"


def _read_values(text: Mapping[str, str]) -> tuple[dict[str, float], str]:
    values: dict[str, float] = {}
    error = text.get("error", "")
    for name in MEASURES:
        cell = text.get(name, "")
        number = _number(cell)
        if number is not None:
            if name in NOT_NEGATIVE and number < 0:
                raise ValueError(f"an error must not be negative, however: {name} is {cell}")
            if name in SHARES and not 0 <= number <= 1:
                raise ValueError(f"a share must be between 0 and 1, however: {name} is {cell}")
            values[name] = number
        elif cell and name not in OF_TIME and not error:
            error = f"{name} is {cell}, which is not a finite number"
    if "transform_seconds" in values and "fit_seconds" in values:
        values["seconds"] = values["fit_seconds"] + values["transform_seconds"]
    return values, error


def _read_settings(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return {}
    return settings if isinstance(settings, dict) else {}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _version(text: str) -> tuple[float, str]:
    number = _number(text)
    return (-math.inf if number is None else number, text)


def _name_raw(row: Mapping[str, Any]) -> str:
    return " ".join(str(row.get(name) or "?") for name in ("task", "setting", "method"))


def _keep(
    records: Sequence[Record],
    good: Callable[[Record], bool],
    refused: dict[str, list[str]],
    explain: Callable[[Record], str],
) -> list[Record]:
    for record in records:
        if not good(record):
            refused.setdefault(explain(record), []).append(str(record))
    return [record for record in records if good(record)]


def _most_frequent(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Give, for each first, the second that is most often with it; of equals the last. Empty is none."""
    counts: dict[Any, Counter[Any]] = {}
    last: dict[tuple[Any, Any], int] = {}
    for place, (first, second) in enumerate(pairs):
        if second not in (None, ""):
            counts.setdefault(first, Counter())[second] += 1
            last[first, second] = place
    return {
        first: max(counter, key=lambda second, first=first: (counter[second], last[first, second]))  # type: ignore[misc]
        for first, counter in counts.items()
    }

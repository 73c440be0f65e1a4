"""A suite: which methods on which tasks, read from a short TOML file.

The package brings some (``suites/*.toml``); any other is named by its path. Keys::

    about = "What it is for, in a sentence."
    datasets = ["california", "wine"]       # see `diffputer bench list`
    rows = 2000                             # cut each table to so many rows (optional)
    mechanisms = ["mcar", "mar"]
    rates = [0.3]
    seeds = [0, 1]                          # of the masks, and of the methods; { mcar = [0, 1], mar = [0] }
                                            # gives each mechanism its own
    methods = ["mean", { method = "knn", label = "3 neighbours", neighbours = 3 }, "*"]
                                            # "*": all that the list does not name; file = "own.py": your own
    draws = 19                              # score coverage, CRPS of so many draws (default 0: none)
    curve = true                            # score every EM round of DiffPuter as well (default false)
    limits = { seconds = 3600, gigabytes = 8 }
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import InputError, SettingError
from ..imputer import DiffPuter
from ..methods.contract import Facts, Method
from ..methods.ours import Ours
from ..methods.table import METHODS
from ..settings import check_number
from .datasets import split_name
from .metrics import end_rank
from .runner import find_method, reason_of
from .task import Task

_KEYS = (
    "about", "datasets", "rows", "mechanisms", "rates", "seeds", "methods", "draws", "curve", "limits",
)  # fmt: skip
_ENTRY_KEYS = ("method", "label", "file")


@dataclass(frozen=True)
class Limits:
    """What a single run may use; None is no limit."""

    seconds: float | None = None
    gigabytes: float | None = None


@dataclass(frozen=True)
class Entry:
    """A method of a suite: its name, a label for its rows, settings to change, a file that defines it."""

    method: str
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is DiffPuter, which has draws."""
        return self.file is None and METHODS[self.method][1] is Ours

    def make(self, device: str = "auto") -> Method | dict[str, Any]:
        """Make the method; of DiffPuter give its parameters."""
        if self.file is not None:
            facts, make = load_method_file(self.file)
            made = make(facts, **self._with(device, facts))
            made.fingerprint = hash_file(self.file)
            return made
        return find_method(self.method, self._with(device, METHODS[self.method][0]))

    def _with(self, device: str, facts: Facts) -> dict[str, Any]:
        return {"device": device, **self.settings} if "device" in facts.settings else dict(self.settings)


@dataclass(frozen=True)
class Job:
    """One task for one method: the smallest thing that can be run."""

    task: Task
    entry: Entry
    device: str = "auto"
    draws: int = 0
    curve: bool = False

    def make(self) -> Method | dict[str, Any]:
        """Make the method; of DiffPuter give its parameters."""
        return self.entry.make(self.device)

    @property
    def words(self) -> str:
        """Its name for people."""
        label = f" ({self.entry.label})" if self.entry.label else ""
        return f"{self.task.id}  {self.entry.method}{label}"


@dataclass(frozen=True)
class Suite:
    """Methods times tasks, and what a run of one on another may use.

    Every mechanism has all ``seeds``, unless ``seeds_of`` gives it its own.
    """

    name: str
    about: str
    datasets: tuple[str, ...]
    mechanisms: tuple[str, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    methods: tuple[Entry, ...]
    seeds_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    draws: int = 0
    curve: bool = False
    limits: Limits = Limits()

    def jobs(
        self,
        *,
        methods: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        mechanisms: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        device: str = "auto",
    ) -> list[Job]:
        """Give what is to be run, the first mask of everything first.

        Parameters
        ----------
        methods, datasets, mechanisms, seeds : sequence, optional
            Only these; a data set may be named without its cut.
        device : str
            Where DiffPuter computes, and others that can choose.

        Returns
        -------
        list of Job
            In the order in which they should run.
        """
        _check_chosen("method", methods, [entry.method for entry in self.methods], self.name)
        cuts = [name for name in self.datasets for name in (name, split_name(name)[0])]
        _check_chosen("data set", datasets, cuts, self.name)
        _check_chosen("mechanism", mechanisms, self.mechanisms, self.name)
        _check_chosen("seed", seeds, self.seeds, self.name)
        product = itertools.product(self.seeds, self.mechanisms, self.rates, self.datasets, self.methods)
        return [
            Job(Task(dataset, mechanism, rate, seed), entry, device, self.draws, self.curve)
            for seed, mechanism, rate, dataset, entry in product
            if seed in self.seeds_of.get(mechanism, self.seeds)
            and (methods is None or entry.method in methods)
            and (datasets is None or dataset in datasets or split_name(dataset)[0] in datasets)
            and (mechanisms is None or mechanism in mechanisms)
            and (seeds is None or seed in seeds)
        ]


def list_suites() -> list[str]:
    """Give the names of the suites that the package brings.

    Examples
    --------
    >>> "mini" in list_suites()
    True
    """
    names = [path.name for path in files("diffputer.benchmark").joinpath("suites").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_suite(name: str) -> Suite:
    """Read a suite of the package by its name, or any other by its path.

    Examples
    --------
    >>> load_suite("mini").seeds
    (0,)
    """
    if name in list_suites():
        content = files("diffputer.benchmark").joinpath("suites", f"{name}.toml").read_bytes()
        return read_suite(name, content, Path())
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"A suite must be one of {', '.join(list_suites())}, or a TOML file, however: {name!r} is none."
        )
    return read_suite(path.stem, path.read_bytes(), path.parent)


def read_suite(name: str, content: bytes, folder: Path) -> Suite:
    """Read a suite from TOML and check all of it; files of methods are looked for in the folder."""
    try:
        given = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"A suite must be valid TOML, however: {name}: {error}.") from error
    _check_keys(name, given, _KEYS, "keys")
    for key in ("datasets", "methods"):
        if not isinstance(given.get(key), list) or not given[key]:
            raise InputError(f"A suite must have a list of {key}, however: {name} has none.")
    limits = given.get("limits", {})
    _check_keys(name, limits, ("seconds", "gigabytes"), "limits")
    for key, value in limits.items():
        check_number(key, value, 0.0, 1e9, closed=False, whole=False)
    rows = f"@{given['rows']}" if "rows" in given else ""
    mechanisms = tuple(given.get("mechanisms", ["mcar"]))
    seeds, seeds_of = _read_seeds(name, given.get("seeds", [0]), mechanisms)
    suite = Suite(
        name=name,
        about=str(given.get("about", "")),
        datasets=tuple(f"{dataset}{rows}" for dataset in given["datasets"]),
        mechanisms=mechanisms,
        rates=tuple(given.get("rates", [0.3])),
        seeds=seeds,
        seeds_of=seeds_of,
        methods=_read_entries(name, given["methods"], folder),
        draws=int(given.get("draws", 0)),
        curve=bool(given.get("curve", False)),
        limits=Limits(**limits),
    )
    if suite.draws:
        end_rank(suite.draws)
    for job in suite.jobs():  # a task checks itself
        split_name(job.task.dataset)
    return suite


def _read_seeds(
    suite: str, given: Any, mechanisms: Sequence[str]
) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """Read the seeds: a list for all mechanisms, or a table with a list for each of them."""
    lists = list(given.values()) if isinstance(given, dict) else [given]
    if not lists or not all(isinstance(those, list) and those for those in lists):
        raise InputError(
            "The seeds of a suite must be a list, or a table with a list for each mechanism, however: "
            f"{suite} has {given!r}."
        )
    if not isinstance(given, dict):
        return tuple(given), {}
    if set(given) != set(mechanisms):
        raise InputError(
            f"A table of seeds must have exactly the mechanisms of its suite, {', '.join(mechanisms)}, "
            f"however: that of {suite} has {', '.join(given)}."
        )
    of = {mechanism: tuple(those) for mechanism, those in given.items()}
    return tuple(dict.fromkeys(seed for those in of.values() for seed in those)), of


def _read_entries(suite: str, given: Sequence[Any], folder: Path) -> tuple[Entry, ...]:
    """Read the methods; "*" stands for all those of the package that the list does not name."""
    named = [entry if isinstance(entry, str) else entry.get("method") for entry in given]
    others = [method for method in METHODS if method not in named]
    entries = [method for entry in given for method in (others if entry == "*" else [entry])]
    return tuple(_read_entry(suite, entry, folder) for entry in entries)


def _read_entry(suite: str, given: Any, folder: Path) -> Entry:
    """Read a method: a name, or a table with its name, a label, a file, and settings."""
    table = {"method": given} if isinstance(given, str) else given
    if not isinstance(table, dict) or not isinstance(table.get("method"), str):
        raise InputError(f"A method of suite {suite} must be a name or a table with one, however: {given!r}.")
    file = str(folder / table["file"]) if "file" in table else None
    settings = {key: value for key, value in table.items() if key not in _ENTRY_KEYS}
    entry = Entry(table["method"], str(table.get("label", "")), settings, file)
    if file is None and entry.method not in METHODS:
        raise SettingError(
            f"A method of suite {suite} must be one of {', '.join(METHODS)}, or have a file that defines it, "
            f"however: {entry.method!r} is not."
        )
    if file is not None and find_lack_of_file(file):
        return entry  # its runs are skipped
    if file is not None and (found := load_method_file(file)[0].name) != entry.method:
        raise SettingError(f"{file} must define the method {entry.method!r}, however: it defines {found!r}.")
    if entry.is_ours and (foreign := sorted(set(settings) - set(DiffPuter._get_param_names()))):
        raise SettingError(f"Settings of {entry.method} must be DiffPuter's, however: {foreign} are not.")
    entry.make("cpu")  # refuses settings that a method does not have
    return entry


def hash_file(path: str) -> str:
    """Give a short name to the content of a method's file."""
    if not Path(path).is_file():
        raise InputError(f"A method's file must be there, however: {path} is not.")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


def load_method_file(path: str) -> tuple[Facts, Callable[..., Method]]:
    """Load a method from a Python file of its own, which defines ``METHOD = (facts, class)``."""
    return _load_content(path, hash_file(path))


@cache
def _load_content(path: str, content: str) -> tuple[Facts, Callable[..., Method]]:
    """Load a file once for each content that it has."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"A method's file must be a Python file, however: {path} is not.")
    # It may import modules beside it, also later, while it runs. Last: these hide nothing that is installed.
    if (folder := str(Path(path).resolve().parent)) not in sys.path:
        sys.path.append(folder)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError:
        raise
    except Exception as error:
        raise InputError(
            f"A method's file must run when it is imported, however: {path} fails with {reason_of(error)}"
        ) from error
    method = getattr(module, "METHOD", None)
    if not (isinstance(method, tuple) and len(method) == 2 and isinstance(method[0], Facts)):
        raise InputError(f"A method's file must define METHOD = (facts, class), however: {path} does not.")
    return method


def find_lack_of_file(path: str) -> str | None:
    """Say what a method's file cannot import on this machine; None if it can be loaded."""
    return _find_lack_of_content(path, hash_file(path))


@cache
def _find_lack_of_content(path: str, content: str) -> str | None:
    try:
        _load_content(path, content)
    except ImportError as error:
        return (
            f"Its file must find what it imports, however: {path}: {error}. "
            "Install that, or put it beside the file."
        )
    return None


def _check_keys(suite: str, given: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    if foreign := sorted(set(given) - set(known)):
        raise InputError(
            f"The {what} of a suite must be among {', '.join(known)}, however: {suite} has "
            f"{', '.join(foreign)}."
        )


def _check_chosen(what: str, chosen: Sequence[Any] | None, known: Sequence[Any], suite: str) -> None:
    if foreign := [name for name in chosen or [] if name not in known]:
        there = ", ".join(map(str, dict.fromkeys(known)))
        raise SettingError(f"The {what} {foreign[0]!r} must be in suite {suite}, however: it has {there}.")

"""What ``diffputer bench list`` shows: suites, data sets and methods."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..methods.table import METHODS
from ..runtime.reporting import make_console
from .builtin import BUILTIN
from .campaign import find_lack
from .datasets import VARIANTS, file_of, find_folder, read_facts
from .suites import list_suites, load_suite

_VARIANT_WORDS = {
    "california_authors": "california as the authors split it: 207 training rows are tested again",
    "bean_authors": "bean as the authors read it: without its first row",
    "news_clean": "news with a channel of its own for articles without one",
}


def print_lists(data: str | None = None, console: Console | None = None) -> None:
    """Print the suites, the data sets and the methods.

    Parameters
    ----------
    data : str, optional
        Folder of the data sets.
    console : rich.console.Console, optional
        Where to print; standard output by default.
    """
    console = console or make_console(highlight=False)
    folder = find_folder(data)
    for table in (_suites(data), _datasets(data), _methods()):
        console.print(table)
        console.print()
    console.print(f"data sets are looked for in {folder}", soft_wrap=True, markup=False)


def count_lists(data: str | None = None) -> dict[str, Any]:
    """Number of suites, of data sets (present, missing) and of methods (installed, not installed).

    Parameters
    ----------
    data : str, optional
        Folder of the data sets.
    """
    folder = find_folder(data)
    present = [_is_present(name, data) for name in read_facts(folder)]
    present += [_is_present(base, data) for base in VARIANTS.values()] + [True] * len(BUILTIN)
    installed = [not find_lack(name) for name in METHODS]
    return {
        "folder": str(folder),
        "suites": len(list_suites()),
        "data_sets": {"present": present.count(True), "missing": present.count(False)},
        "methods": {"installed": installed.count(True), "not_installed": installed.count(False)},
    }


def _suites(data: str | None) -> Table:
    table = _start("Suites", ("name", "runs", "data", "about"))
    for name in list_suites():
        suite = load_suite(name)
        missing = sum(not _is_present(dataset, data) for dataset in suite.datasets)
        state = f"{missing} of {len(suite.datasets)} missing" if missing else "present"
        table.add_row(name, f"{len(suite.jobs()):,}", state, Text(suite.about))
    return table


def _datasets(data: str | None) -> Table:
    table = _start("Data sets", ("name", "rows", "numbers", "categories", "state", "about"))
    for name, fact in read_facts(find_folder(data)).items():
        rows = f"{fact['rows']:,}" if "rows" in fact else ""
        counts = (str(len(fact["numeric"])), str(len(fact["categorical"])))
        about = ", ".join(filter(None, (fact.get("title"), fact.get("license"))))
        table.add_row(name, rows, *counts, _state(name, data), Text(about))
    for name, base in VARIANTS.items():
        table.add_row(name, "", "", "", _state(base, data), _VARIANT_WORDS[name])
    for name, make in BUILTIN.items():
        content, numeric, categorical = make()
        shape = (f"{content.count(10) - 1:,}", str(len(numeric)), str(len(categorical)))
        table.add_row(name, *shape, "built in", Text((make.__doc__ or "").strip()))
    return table


def _methods() -> Table:
    table = _start("Methods", ("name", "installed", "what it is", "what it cannot"))
    for name, (facts, _) in METHODS.items():
        installed = "no" if find_lack(name) else "yes"
        table.add_row(name, installed, Text(facts.what), Text(facts.cannot))
    return table


def _is_present(name: str, data: str | None) -> bool:
    path = file_of(name, data)
    return path is None or path.is_file()


def _state(name: str, data: str | None) -> str:
    return "present" if _is_present(name, data) else "missing"


def _start(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        wide = column.startswith(("about", "what"))
        table.add_column(column, no_wrap=not wide, overflow="fold", ratio=1 if wide else None)
        if column in ("runs", "rows", "numbers", "categories"):
            table.columns[-1].justify = "right"
    return table

"""Which results are of record: DiffPuter as it is, and rivals; and on which tasks they are ranked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from .leaderboard import TaskKey
from .records import Record, Results

#: DiffPuter as it is has these labels, its methods' names in suites; others were experiments.
LABELS = ("", "diffputer-fast", "diffputer-balanced", "diffputer-best")
_OURS = "diffputer-"
#: Whose tasks count: the default engine's.
_DEFAULT = "diffputer-conditional"


def keep_record(results: Results) -> Results:
    """Leave out DiffPuter's variants that were experiments, and rank on masks that all methods have.

    Of methods that differ in how many masks they have those count that all have which have every data set
    of DiffPuter's: a rival is not left out because it is slower than others. Results on other masks are
    kept, for the cells of tables; where DiffPuter has no task in common with others, nothing is.
    """
    kept = [r for r in results.final if is_of_record(r)]
    tasks: dict[tuple[str, float, str], dict[tuple[str, str], set[TaskKey]]] = {}
    for record in kept:
        if not record.error:
            of_entry = tasks.setdefault((record.mechanism, record.rate, record.setting), {})
            of_entry.setdefault(record.entry, set()).add(record.task)
    common = {kind: frozenset(found) for kind, group in tasks.items() if (found := _find_tasks(group))}
    final = (r for r in kept if (r.mechanism, r.rate, r.setting) in common)
    curve = tuple(r for r in results.curve if is_of_record(r))
    named = {str(r) for r in (*kept, *curve)}
    repeated = (name for name in results.repeated if name in named)
    return dataclasses.replace(
        results, final=tuple(final), curve=curve, repeated=tuple(repeated), ranked_on=common
    )


def describe_absent(suites: Sequence[str], records: Iterable[Record]) -> str:
    """Name the methods that suites have and records have not, or say nothing.

    Parameters
    ----------
    suites : sequence of str
        Names, or paths of their folders; what is no suite of the package is passed over.
    records : iterable of Record
        Those of record.
    """
    from ..suites import list_suites, load_suite

    known = [name for suite in suites if (name := PurePath(suite).name) in list_suites()]
    there = {name for record in records for name in (record.method, record.label)}
    methods = dict.fromkeys(entry.method for name in known for entry in load_suite(name).methods)
    absent = [method for method in methods if method not in there]
    return f"Left out as they have no results here: {', '.join(absent)}." if absent else ""


def _find_tasks(of_entry: Mapping[tuple[str, str], set[TaskKey]]) -> set[TaskKey]:
    """Give the tasks that every entry has which has all data sets that the default engine's have."""
    ours = [tasks for (method, _), tasks in of_entry.items() if method == _DEFAULT]
    if not ours:
        return set()
    datasets = set.intersection(*({name for name, _ in tasks} for tasks in ours))
    full = [tasks for tasks in of_entry.values() if datasets <= {name for name, _ in tasks}]
    return {task for task in set.intersection(*ours, *full) if task[0] in datasets}


def is_of_record(record: Record) -> bool:
    """Whether a result is a rival's, or of DiffPuter as it is."""
    return not _is_ours(record) or record.label in LABELS


def _is_ours(record: Record) -> bool:
    return record.method.startswith(_OURS)

"""Who takes part: a method with its settings is an entry, and has a name of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..published import find_published_name
from .records import Record, name_class

Key = tuple[str, str]
#: So many settings are named where a label does not tell entries apart; else their hash.
_MOST_NAMED = 3


@dataclass(frozen=True)
class Entry:
    """A method with its settings.

    Attributes
    ----------
    name
        Unlike that of every other entry.
    published
        Its name in the paper, if it is there.
    devices
        Where it ran: GPUs, and CPUs with their number of threads.
    """

    key: Key
    name: str
    label: str = ""
    published: str | None = None
    devices: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether it is DiffPuter."""
        return self.published == "diffputer"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of its devices; seconds of entries compare where these are the same."""
        return tuple(dict.fromkeys(map(name_class, self.devices)))


def list_entries(
    records: Iterable[Record], published_name: Callable[[str], str | None] = find_published_name
) -> dict[Key, Entry]:
    """Name every entry: by its method, and where several have that, by label, device, then by what differs.

    DiffPuter's settings are others on a GPU than on a CPU unless they are given, so devices come first.

    Parameters
    ----------
    records : iterable of Record
        Results, all of them: names should not depend on what is shown.
    published_name : callable
        Gives the name that a method has in the paper, or None.

    Returns
    -------
    dict
        Key -> entry, in the order of appearance.

    Examples
    --------
    >>> common = ("toy", "mcar", 0.3, 0, "in_sample", "knn")
    >>> records = [Record(*common, "a", settings={"k": 5}), Record(*common, "b", settings={"k": 7})]
    >>> [entry.name for entry in list_entries(records, lambda method: method).values()]
    ['knn, k=5', 'knn, k=7']
    """
    of_key: dict[Key, list[Record]] = {}
    for record in records:
        of_key.setdefault(record.entry, []).append(record)
    names = {key: key[0] for key in of_key}
    labels = {key: next((r.label for r in reversed(of_key[key]) if r.label), "") for key in of_key}
    for same in _ambiguous(names):
        for key in same if len({labels[key] for key in same}) > 1 else ():
            names[key] = f"{key[0]}: {labels[key]}" if labels[key] else key[0]
    for same in _ambiguous(names):
        places = [_name_place(of_key[key]) for key in same]
        for key, place in zip(same, places, strict=True) if len(set(places)) == len(same) else ():
            names[key] += f" on {place}" if place else ""
    for same in _ambiguous(names):
        words = describe_differences([of_key[key][-1].settings for key in same])
        for key, difference in zip(same, words, strict=True):
            names[key] += f", {difference}" if difference else ""
    for same in _ambiguous(names):
        for key in same:
            names[key] += f" [{key[1][:6] or 'no hash'}]"
    paper = {method: published_name(method) for method in dict.fromkeys(key[0] for key in of_key)}
    return {
        key: Entry(
            key, names[key], labels[key], paper[key[0]],
            tuple(dict.fromkeys(r.machine for r in of_key[key] if r.machine)),
        )
        for key in of_key
    }  # fmt: skip


def _name_place(records: Iterable[Record]) -> str:
    """Name the devices of results, CPUs as one."""
    classes = (name_class(record.machine) for record in records if record.machine)
    return " and ".join(dict.fromkeys("a CPU" if name.startswith("CPU") else name for name in classes))


def _ambiguous(names: dict[Key, str]) -> list[list[Key]]:
    of_name: dict[str, list[Key]] = {}
    for key, name in names.items():
        of_name.setdefault(name, []).append(key)
    return [keys for keys in of_name.values() if len(keys) > 1]


def describe_differences(settings: Sequence[Any]) -> list[str]:
    """Name the settings that differ, if they are few; else nothing."""
    every = sorted(set().union(*settings))
    differing = [n for n in every if len({json.dumps(s.get(n), default=str) for s in settings}) > 1]
    if not 0 < len(differing) <= _MOST_NAMED:
        return [""] * len(settings)
    return [", ".join(f"{name}={_show(s.get(name))}" for name in differing) for s in settings]


def _show(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

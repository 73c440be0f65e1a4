"""Why a run differs from the paper: what was found out, cell by cell, and how surely."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from ...errors import InputError

#: How surely a reason is known: an experiment showed it, it follows from definitions, or it is supposed.
KINDS = ("measured", "derived", "guess")
UNEXPLAINED = "not explained yet"
#: Where a note may be confined to; a key that lacks confines nothing.
_WHERE = ("mechanisms", "settings", "measures", "datasets", "sides")
Explain = Callable[[str, str, str, str, str, str], "Note | None"]


@dataclass(frozen=True)
class Note:
    """Why a method differs from the paper, and where that is the reason.

    Attributes
    ----------
    method
        As in result rows.
    kind
        One of `KINDS`.
    why
        In a sentence or two.
    where
        mechanisms, settings, measures, data sets and sides of the paper's number ("better", "worse") that
        it is about; a key that lacks stands for all.
    """

    method: str
    kind: str
    why: str
    where: Mapping[str, tuple[str, ...]]

    def is_about(self, method: str, *place: str) -> bool:
        """Say whether it explains a method in a mechanism, setting, measure and data set, on a side."""
        if method != self.method:
            return False
        return all(name in self.where.get(key, (name,)) for key, name in zip(_WHERE, place, strict=True))


def find_note(
    method: str, mechanism: str, setting: str, measure: str, dataset: str, side: str
) -> Note | None:
    """Give the note on a method's result, or None; of several the one that is confined most, then the first.

    Examples
    --------
    >>> find_note("mice", "mcar", "in_sample", "accuracy", "adult", "better").kind
    'measured'
    >>> find_note("mice", "mcar", "in_sample", "accuracy", "a table of mine", "better") is None
    True
    """
    fitting = [n for n in read_shipped() if n.is_about(method, mechanism, setting, measure, dataset, side)]
    return max(fitting, key=lambda note: len(note.where), default=None)


def read_notes(text: str) -> tuple[Note, ...]:
    """Read notes from TOML: tables ``[[note]]`` with method, kind, why, and lists of where.

    Examples
    --------
    >>> read_notes('[[note]]\\nmethod = "knn"\\nkind = "guess"\\nwhy = "Who knows."')[0].why
    'Who knows.'
    """
    notes = []
    for given in tomllib.loads(text).get("note", []):
        lacking = [key for key in ("method", "kind", "why") if not isinstance(given.get(key), str)]
        foreign = sorted(set(given) - {"method", "kind", "why", *_WHERE})
        if lacking or foreign or given["kind"] not in KINDS:
            raise InputError(
                f"A note must have method, why, a kind of {', '.join(KINDS)}, and lists among "
                f"{', '.join(_WHERE)}, however: {given!r}."
            )
        where: dict[str, Any] = {key: tuple(given[key]) for key in _WHERE if key in given}
        notes.append(Note(given["method"], given["kind"], " ".join(given["why"].split()), where))
    return tuple(notes)


@lru_cache(maxsize=1)
def read_shipped() -> tuple[Note, ...]:
    """Give the notes that come with the package."""
    return read_notes(files("diffputer.benchmark.report").joinpath("notes.toml").read_text(encoding="utf-8"))

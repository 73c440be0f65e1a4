"""What is kept of an M-step that is under way, so that a killed one goes on instead of beginning again.

An M-step fits parts side by side: networks, trees. None depends on where the others are, so each hands in a
snapshot at a point where its own state is whole, and any collection of snapshots is one to go on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

#: Seconds between two savings; the parts are asked for their snapshots when they have passed.
SAVE_EVERY = 30.0
#: Saving may take this share of the time: after a slow one the next is further away.
SAVING_SHARE = 0.02


@dataclass(frozen=True)
class Snapshot:
    """All that a part goes on from: tensors on the CPU that nobody changes, and what JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: dict[str, Any] | None = None) -> Snapshot:
        """Copy tensors that will change."""
        copies = {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
        return cls(copies, facts or {})

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Give the tensors whose names begin so, by the rest of their names."""
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


@dataclass(frozen=True)
class UnderWay:
    """An M-step that is under way: the snapshots of its parts, and how long it has taken."""

    parts: dict[str, Snapshot] = field(default_factory=dict)
    seconds: float = 0.0


class Journal:
    """Collects the snapshots of parts, and saves them together every so often; without a place, never.

    Examples
    --------
    >>> saved = []
    >>> journal = Journal(save=saved.append)
    >>> journal.begin("network")  # nothing to go on from
    >>> journal.wants("network")  # too early
    False
    """

    def __init__(self, kept: UnderWay | None = None, save: Callable[[UnderWay], None] | None = None) -> None:
        kept = kept or UnderWay()
        self.earlier_seconds = kept.seconds
        """What the M-step had taken when it was killed."""
        self._parts, self._save = dict(kept.parts), save
        self._running: set[str] = set()
        self._asked: set[str] = set()
        self._started = self._saved = time.monotonic()
        self._wait = SAVE_EVERY

    @property
    def is_kept(self) -> bool:
        """Whether snapshots go anywhere."""
        return self._save is not None

    def kept(self, part: str) -> Snapshot | None:
        """Give the last snapshot of a part, if there is one."""
        return self._parts.get(part)

    def begin(self, part: str) -> Snapshot | None:
        """Let a part be asked for snapshots from now on; gives the one to go on from, if there is one."""
        self._running.add(part)
        return self.kept(part)

    def wants(self, part: str) -> bool:
        """Say whether a part shall hand in a snapshot now."""
        if not self._asked and self._is_due():
            self._asked = set(self._running)
        return part in self._asked

    def put(self, part: str, snapshot: Snapshot, *, ended: bool = False) -> None:
        """Take a snapshot; the last of those that were asked for lets all be saved."""
        self._parts[part] = snapshot
        self.wants(part)  # those that are still running come first if it is time
        self._asked.discard(part)
        if ended:
            self._running.discard(part)
        if not self._asked and self._is_due():
            self._save_all()

    def end(self, part: str) -> None:
        """Ask a part for no more snapshots: one that goes on from its last has none to hand in."""
        self._running.discard(part)
        self._asked.discard(part)

    def _is_due(self) -> bool:
        return self._save is not None and time.monotonic() - self._saved >= self._wait

    def _save_all(self) -> None:
        assert self._save is not None
        begun = time.monotonic()
        self._save(UnderWay(dict(self._parts), self.earlier_seconds + begun - self._started))
        self._saved = time.monotonic()
        self._wait = max(SAVE_EVERY, (self._saved - begun) / SAVING_SHARE)

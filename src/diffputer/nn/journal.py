"""Training checkpoints inside an M-step, so that a killed fit goes on instead of beginning the step again.

An M-step trains several networks, one after the other. Each hands in snapshots at points where its state is
whole; the last snapshots of all are what a fit goes on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

#: Seconds between two snapshots.
SAVE_EVERY = 30.0
#: Saving may take this share of the time: after a slow one the next is further away.
SAVING_SHARE = 0.02


@dataclass(frozen=True)
class Snapshot:
    """State from which a part goes on: tensors on the CPU that nobody changes, and what JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> Snapshot:
        """Copies of tensors that will change."""
        return cls({name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}, facts)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names begin so, by the rest of their names."""
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


@dataclass(frozen=True)
class UnderWay:
    """An unfinished M-step: the snapshots of its parts, and how long it has taken."""

    parts: dict[str, Snapshot] = field(default_factory=dict)
    seconds: float = 0.0


class Journal:
    """The training checkpoint of one M-step: keeps the snapshots of its parts, if it has where to save them.

    Examples
    --------
    >>> saved = []
    >>> journal = Journal(save=saved.append)
    >>> journal.kept("network")  # nothing to go on from
    >>> journal.wants()  # too early
    False
    """

    def __init__(self, kept: UnderWay | None = None, save: Callable[[UnderWay], None] | None = None) -> None:
        kept = kept or UnderWay()
        self.earlier_seconds = kept.seconds
        """What the M-step had taken when it was killed."""
        self._parts, self._save = dict(kept.parts), save
        self._started = time.monotonic()
        self._due = self._started + SAVE_EVERY

    def kept(self, part: str) -> Snapshot | None:
        """The last snapshot of a part, if there is one."""
        return self._parts.get(part)

    def wants(self, *, ended: bool = False) -> bool:
        """Whether the part that is trained shall hand in a snapshot now: every so often, and at its end."""
        return self._save is not None and (ended or time.monotonic() >= self._due)

    def put(self, part: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; when it is time, save it beside the last ones of the other parts."""
        self._parts[part] = snapshot
        begun = time.monotonic()
        if self._save is None or begun < self._due:
            return
        self._save(UnderWay(dict(self._parts), self.earlier_seconds + begun - self._started))
        ended = time.monotonic()
        self._due = ended + max(SAVE_EVERY, (ended - begun) / SAVING_SHARE)

"""How much memory a process may still take: what the machine has left, and what its container allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
#: Where Linux keeps the limit, the use and the part of it that it can take back, in versions 2 and 1.
_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_bytes(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """Give the bytes that this process may still take.

    Parameters
    ----------
    proc, groups : path
        Where the system tells about processes and about groups of them (containers, jobs of a batch system).
    """
    free = [*_left_by_the_machine(proc), *_left_by_groups(proc, groups)]
    if free:
        return max(0, min(free))
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def _left_by_the_machine(proc: Path) -> Iterator[int]:
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _left_by_groups(proc: Path, groups: Path) -> Iterator[int]:
    """What each limited group leaves to which the process belongs; a limit holds for all groups below it."""
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)  # such as 0::/jobs/7, or 4:memory:/jobs/7 in version 1
        kind = "memory" if "memory" in controllers.split(",") else controllers
        if kind in _FILES:
            own = Path(path.lstrip("/"))
            for group in (own, *own.parents):  # in a container those above it may not be seen
                yield from _left_by_group(groups / kind / group, *_FILES[kind])


def _left_by_group(group: Path, limit: str, used: str, reclaimable: str) -> Iterator[int]:
    most, now = _read(group / limit).strip(), _read(group / used).strip()
    if most.isdecimal() and now.isdecimal():  # else "max", or no such group
        stat = dict(
            line.split(maxsplit=1) for line in _read(group / "memory.stat").splitlines() if " " in line
        )
        yield int(most) - int(now) + int(stat.get(reclaimable, 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

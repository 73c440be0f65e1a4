"""Memory: what the machine and its container leave to a process, and errors where it does not suffice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import MemoryLimitError

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
    free = [*_left_by_the_machine(proc), *_left_by_the_limit(proc), *_left_by_groups(proc, groups)]
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


def _left_by_the_limit(proc: Path) -> Iterator[int]:
    """What a limit of the address space leaves, as ``ulimit -v`` sets it."""
    limit = re.search(r"^Max address space +(\d+)", _read(proc / "self" / "limits"), re.MULTILINE)
    used = re.search(r"^VmSize:\s*(\d+) kB", _read(proc / "self" / "status"), re.MULTILINE)
    if limit and used:
        yield int(limit[1]) - 1024 * int(used[1])


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


#: How numpy, torch (of a CPU or GPU) and Arrow state the size of an allocation that failed.
_FAILED = re.compile(r"(?:allocate|of size) ([0-9][0-9.,]*) ?(bytes|[KMGTP]i?B)?")
_GPU = re.compile(r"GPU \d+ has a total capacity of .*? free")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def failed_bytes(error: BaseException) -> int | None:
    """Size of the allocation that failed; None where the error does not state it.

    Examples
    --------
    >>> failed_bytes(MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,)"))
    7999376588
    """
    found = _FAILED.search(str(error))
    if found is None:
        return None
    return int(float(found[1].rstrip(".,").replace(",", "")) * _UNITS.get((found[2] or "b")[0], 1))


@contextmanager
def enough_memory(what: str, remedy: str) -> Iterator[None]:
    """Turn failed allocations of Python, numpy, torch and Arrow into a :class:`MemoryLimitError`.

    Parameters
    ----------
    what : str
        The work, as the beginning of a sentence: "Fitting 100 rows x 5 columns".
    remedy : str
        What to do.
    """
    try:
        yield
    except MemoryLimitError:
        raise
    except (MemoryError, RuntimeError) as error:
        needed = failed_bytes(error)
        # torch has no class of its own for the memory of a CPU; that of a GPU is a RuntimeError, too.
        if not isinstance(error, MemoryError) and (needed is None or "memory" not in str(error)):
            raise
        wanted = "more" if needed is None else f"another {_size(needed)}"
        gpu = _GPU.search(str(error))
        if gpu:
            found = f"it needs {wanted} at once, and {gpu[0]}"
        else:  # what it had taken may be free by now
            found = f"it had taken {_size(_most_taken())} and needed {wanted} at once; "
            found += f"now that it has ended, {_size(free_bytes())} are free"
        raise MemoryLimitError(f"{what} must fit into memory; {found}. {remedy}") from error


def _most_taken(proc: Path = _PROC) -> int:
    """The most bytes that this process has held so far; 0 where the system does not tell."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", _read(proc / "self" / "status"), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def check_memory(n_bytes: int, what: str, remedy: str) -> None:
    """Refuse work whose result cannot be held, before it starts."""
    free = free_bytes()
    if n_bytes > free:
        raise MemoryLimitError(
            f"{what} must fit into memory; about {_size(n_bytes)} are needed and {_size(free)} are free. "
            f"{remedy}"
        )


def _size(n_bytes: int) -> str:
    """Bytes in words.

    >>> _size(3 << 29), _size(3 << 19)
    ('1.50 GiB', '1.5 MiB')
    """
    return f"{n_bytes / 2**30:,.2f} GiB" if n_bytes >= 1 << 28 else f"{n_bytes / 2**20:,.1f} MiB"

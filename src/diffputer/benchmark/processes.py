"""What the benchmark asks of the operating system: memory of processes, their end, their temporary folders.

A limit of the address space (``setrlimit``) does not do: torch and CUDA reserve far more than they use. So
the memory that is resident is watched, several times a second, and whoever has too much is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ..tables.paths import fcntl

#: Whether a process may go on as two after it has imported torch; on macOS system libraries forbid it.
FORKS = sys.platform == "linux"
_HAS_PROC = os.path.isdir("/proc/self")
_PR_SET_PDEATHSIG = 1
#: Seconds after which a folder that nobody has locked is a leftover, and not one that is being made.
_LEFT_AFTER = 60.0


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder; those with the same prefix that killed processes have left are removed first."""

    def __init__(self, prefix: str) -> None:
        _remove_leftovers(prefix)
        super().__init__(prefix=prefix)
        self._lock: int | None = None
        if fcntl is not None:
            self._lock = os.open(self.name, os.O_RDONLY)
            with contextlib.suppress(OSError):  # of a file system without locks
                fcntl.flock(self._lock, fcntl.LOCK_EX)  # ends with the process, however that ends

    def cleanup(self) -> None:
        """Remove it."""
        super().cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_leftovers(prefix: str) -> None:
    """Remove this user's temporary folders that no process uses any more."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(prefix)]:
            with contextlib.suppress(OSError):  # it is in use, or gone
                found = entry.stat(follow_symlinks=False)
                old = time.time() - found.st_mtime > _LEFT_AFTER
                if not old or found.st_uid != os.getuid() or not entry.is_dir(follow_symlinks=False):
                    continue
                handle = os.open(entry.path, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path)
                finally:
                    os.close(handle)


def die_with_parent() -> None:
    """Ask that this process be killed when its parent ends, however that ends; only Linux can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start_session(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that leads a session, so that all it starts can be found, and Ctrl-C misses it."""
    return subprocess.Popen(command, start_new_session=True, **options)


def resident_gigabytes(leader: int) -> float:
    """Give the memory in use by the processes of a session.

    Of a leader that has started others (it forks, and shares its memory with them) only the others count.
    """
    members = dict(_members(leader))
    if len(members) > 1 and FORKS:
        members.pop(leader, None)
    return sum(members.values()) / 1e9


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, and wait until it is gone."""
    if hasattr(os, "killpg"):
        # Again until none is left: a process may be starting another while the first round is under way.
        for _ in range(10):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            members = [pid for pid, _ in _members(process.pid)]
            for pid in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not members:
                break
            process.poll()
    else:
        process.kill()
    process.wait()


def describe_end(code: int) -> str:
    """Say how a process ended, given its return code (negative: a signal).

    Examples
    --------
    >>> describe_end(-11), describe_end(3)
    ('it was ended by SIGSEGV', 'it ended with code 3: the method ended it instead of returning')
    """
    if code >= 0:
        return f"it ended with code {code}: the method ended it instead of returning"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        beyond = " (the system does that when memory runs out)" if name == "SIGKILL" else ""
        return f"it was ended by {name}{beyond}"
    return f"it was ended by signal {-code}"


def _members(session: int) -> Iterator[tuple[int, int]]:
    """Give process and resident bytes of all that belong to a session and still run."""
    if not _HAS_PROC:
        yield from _members_by_ps(session)
        return
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    # After the name in brackets: state, parent, group, session, ...; resident pages are 22nd.
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(entry), int(fields[21]) * page


def _members_by_ps(session: int) -> Iterator[tuple[int, int]]:
    """The same by ``ps``, for systems without /proc: of the process group, which is the session's first."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["ps", "-A", "-o", "pid=,pgid=,rss=,stat="], capture_output=True, text=True, check=True
        )
        for line in done.stdout.splitlines():
            pid, group, kilobytes, state = line.split()[:4]
            if int(group) == session and not state.startswith("Z"):
                yield int(pid), int(kilobytes) * 1024

"""Which device computes, in which precision, and how much fits into its memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..errors import SettingError
from .memory import free_bytes

#: Multiplications of a training step that are worth a thread of their own.
WORTH_A_THREAD = 25_000_000
#: Share of the free memory of a device that one block of work may take.
MEMORY_SHARE = 0.4


def resolve_device(device: str) -> torch.device:
    """Turn ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"`` into a torch device that is there.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SettingError(
            f"device must be 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps', however: device={device!r}. "
            "Choose one."
        ) from error
    available = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        available.append("mps")
    there = {
        "cpu": True,
        "cuda": (resolved.index or 0) < torch.cuda.device_count(),
        "mps": "mps" in available,
    }.get(resolved.type, False)
    if not there:
        raise SettingError(
            f"device must be one that this machine has, however: device={device!r} is not there; "
            f"available: {', '.join(available)}. Use device='auto' to take the best one."
        )
    return resolved


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """Give the type in which the network's matrix products run.

    ``"auto"`` is bfloat16 on CUDA (NOTE[paper]: float32; measured: no loss of accuracy, see
    docs/dev/deviations.md) and float32 elsewhere, where bit-for-bit repeatability is worth more than a
    factor of two.
    """
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


@contextmanager
def few_threads(multiplications: int, device: torch.device) -> Iterator[None]:
    """Run steps of so many multiplications on no more threads of a CPU than they keep busy.

    Threads wait for each other actively: more of them than a step is worth make it slower, by a factor of
    ten where another program wants their cores (measured: docs/dev/log.md).
    """
    before = torch.get_num_threads()
    wanted = max(1, multiplications // WORTH_A_THREAD)
    fewer = device.type == "cpu" and wanted < before
    if fewer:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if fewer:
            torch.set_num_threads(before)


def free_memory(device: torch.device) -> int:
    """Give the free memory of a device in bytes; of a CPU what the process may still take."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else free_bytes()


def total_memory(device: torch.device) -> int | None:
    """Give the memory of a GPU in bytes, None for other devices; unlike what is free it does not change."""
    return int(torch.cuda.mem_get_info(device)[1]) if device.type == "cuda" else None


@dataclass(frozen=True)
class Deadline:
    """A point in time after which only what is needed for a good result is still done."""

    at: float | None = None
    since: float = 0.0

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """Start the clock now; ``None`` never ends."""
        now = time.monotonic()
        return cls(None if seconds is None else now + seconds, now)

    @property
    def passed(self) -> float:
        """Share of the time that has passed since the clock was started, 0 without a limit."""
        if self.at is None:
            return 0.0
        return (time.monotonic() - self.since) / max(1e-9, self.at - self.since)

    @property
    def remaining(self) -> float:
        """Seconds left, infinity without a limit."""
        return float("inf") if self.at is None else self.at - time.monotonic()

    def share(self, part: float) -> Deadline:
        """Give a deadline that ends after a part of the time that is left."""
        return self if self.at is None else Deadline.after(max(0.0, part * self.remaining))

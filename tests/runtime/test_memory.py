"""Free memory: the least of what the machine and the groups of the process leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from diffputer.runtime.memory import free_bytes

MEGABYTE = 1 << 20


def put(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_dot_", ".")).write_text(f"{content}\n")


@pytest.fixture
def system(tmp_path: Path) -> tuple[Path, Path]:
    """A machine with 1,000 MB left, whose process is in no group."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    put(proc, meminfo=f"MemTotal: 9999999 kB\nMemAvailable: {1000 * 1024} kB\nSwapFree: 0 kB")
    return proc, groups


def test_without_groups_it_is_what_the_machine_has_left(system: tuple[Path, Path]) -> None:
    assert free_bytes(*system) == 1000 * MEGABYTE


def limit(folder: Path, most: object, now: int, cache: int = 0) -> None:
    stat = f"anon 5\ninactive_file {cache}\nactive_file 7"
    put(folder, memory_dot_max=most, memory_dot_current=now, memory_dot_stat=stat)


def test_a_container_sees_its_own_group_as_the_root(system: tuple[Path, Path]) -> None:
    proc, groups = system
    put(proc / "self", cgroup="0::/")
    limit(groups, 300 * MEGABYTE, 100 * MEGABYTE, cache=40 * MEGABYTE)
    assert free_bytes(proc, groups) == 240 * MEGABYTE  # the cache of files can be taken back
    limit(groups, "max", 100 * MEGABYTE)
    assert free_bytes(proc, groups) == 1000 * MEGABYTE
    limit(groups, 9000 * MEGABYTE, 100 * MEGABYTE)
    assert free_bytes(proc, groups) == 1000 * MEGABYTE
    limit(groups, 300 * MEGABYTE, 301 * MEGABYTE)
    assert free_bytes(proc, groups) == 0


def test_limits_hold_for_the_groups_below(system: tuple[Path, Path]) -> None:
    proc, groups = system
    put(proc / "self", cgroup="0::/jobs/7")
    limit(groups / "jobs" / "7", "max", 10 * MEGABYTE)
    limit(groups / "jobs", 500 * MEGABYTE, 50 * MEGABYTE)
    assert free_bytes(proc, groups) == 450 * MEGABYTE
    limit(groups / "jobs" / "7", 30 * MEGABYTE, 10 * MEGABYTE)
    assert free_bytes(proc, groups) == 20 * MEGABYTE


@pytest.mark.parametrize("seen", ["jobs/7", ""], ids=["from outside", "from inside a container"])
def test_version_1(system: tuple[Path, Path], seen: str) -> None:
    proc, groups = system
    put(proc / "self", cgroup="12:pids:/jobs/7\n4:cpu,memory:/jobs/7\n1:name=systemd:/jobs/7")
    put(
        groups / "memory" / seen,
        memory_dot_limit_in_bytes=200 * MEGABYTE,
        memory_dot_usage_in_bytes=80 * MEGABYTE,
        memory_dot_stat=f"inactive_file 1\ntotal_inactive_file {30 * MEGABYTE}",
    )
    assert free_bytes(proc, groups) == 150 * MEGABYTE


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) > MEGABYTE


def test_this_system() -> None:
    assert free_bytes() > MEGABYTE

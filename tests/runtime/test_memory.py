"""Free memory: the least of what the machine and the groups of the process leave."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import feather

from diffputer import DiffPuter
from diffputer.errors import InputError, MemoryLimitError
from diffputer.runtime import memory
from diffputer.runtime.memory import check_memory, enough_memory, free_bytes
from diffputer.tables.files import read_table_file
from diffputer.tables.paths import read_bytes

from ..cli_tools import run

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


def test_a_limit_of_the_address_space_counts(system: tuple[Path, Path]) -> None:
    proc = system[0]
    line = "Max address space         {}            unlimited            bytes"
    put(
        proc / "self", limits=line.format(300 * MEGABYTE), status=f"Name:\tpython\nVmSize:\t  {100 * 1024} kB"
    )
    assert free_bytes(*system) == 200 * MEGABYTE
    put(proc / "self", limits=line.format("unlimited"))
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


def test_work_that_cannot_be_held_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match=r"Tea must fit into memory.* GiB are needed.* Drink less"):
        check_memory(1 << 60, "Tea", "Drink less.")


@pytest.mark.parametrize(
    ("error", "needed"),
    [
        (MemoryError(), "more at once"),
        (MemoryError("Unable to allocate 7.45 GiB for an array with shape (10,)"), "another 7.45 GiB"),
        (MemoryError("malloc of size 1073741824 failed"), "another 1.00 GiB"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
                "you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"
            ),
            "another 2.00 GiB",
        ),
        (
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8.00 GiB of "
                "which 1.50 GiB is free. Including non-PyTorch memory, ..."
            ),
            "another 20.00 GiB at once, and GPU 0 has a total capacity of 8.00 GiB of which 1.50 GiB is free",
        ),
    ],
)
def test_failed_allocations_state_what_was_needed(error: Exception, needed: str) -> None:
    with pytest.raises(MemoryLimitError, match=re.escape(needed)), enough_memory("Tea", "Drink less."):
        raise error


def test_what_was_taken_before_is_stated_beside_what_is_free(system: tuple[Path, Path]) -> None:
    put(system[0] / "self", status=f"VmPeak: 9 kB\nVmHWM:\t {300 * 1024} kB")
    assert memory._most_taken(system[0]) == 300 * MEGABYTE
    with (
        pytest.raises(MemoryLimitError, match=r"had taken .* needed another 1.0 MiB .* has ended, .* free"),
        enough_memory("Tea", "Drink less."),
    ):
        raise MemoryError("malloc of size 1048576 failed")


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), enough_memory("Tea", "Drink less."):
        raise RuntimeError("shapes do not match")


LIMITED = """
import resource, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from diffputer import DiffPuter
x = np.random.default_rng(0).normal(size=(300, 3))
x[x > 1] = np.nan
imputer = DiffPuter(random_state=0, max_steps=3, held_out=0, progress=False).fit(x)
large = np.tile(x, (100_000, 1))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)
try:
    getattr(imputer, sys.argv[1])(large)
except MemoryError as error:
    print(type(error).__name__, "30,000,000 x 3" in str(error), "iB" in str(error))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("method", ["fit", "transform", "sample", "uncertainty"])
def test_a_process_without_memory_ends_in_a_sentence(method: str) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, method], capture_output=True, text=True)
    assert done.stdout.split() == ["MemoryLimitError", "True", "True"], done.stderr


LOADED = """
import resource, sys
from diffputer import DiffPuter
DiffPuter.load(sys.argv[1])
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), resource.RLIM_INFINITY))
try:
    DiffPuter.load(sys.argv[1])
except MemoryError as error:
    print(type(error).__name__, "model" in str(error), "iB" in str(error))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_a_model_that_does_not_fit_into_memory_is_not_damaged(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(100, 3))
    x[x > 1] = np.nan
    settings = {"max_steps": 1, "held_out": 0, "mlp_width": 1_500, "boosted_trees": 0}
    DiffPuter(random_state=0, **settings).fit(x).save(tmp_path / "model")
    command = [sys.executable, "-c", LOADED, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == ["MemoryLimitError", "True", "True"], done.stderr


def test_a_gzipped_file_is_decompressed_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "zeros.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"0,1\n" * 1_000_000))
    with pytest.raises(InputError, match=r"at most 0.001 GiB.*--max-gib"):
        read_table_file(path, max_gib=0.001)
    done = run("impute", path, "--max-gib", "0.001", "-o", tmp_path / "out.csv", code=2)
    assert "--max-gib" in done.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("name", "codec"), [("a.parquet", "zstd"), ("a.feather", "zstd"), ("a.arrow", "lz4"), ("a.arrow", None)]
)
def test_the_limit_holds_for_other_compressed_files(tmp_path: Path, name: str, codec: str | None) -> None:
    path = tmp_path / name
    table = pa.table({"a": np.zeros(1_000_000), "b": pa.array(["x", None] * 500_000).dictionary_encode()})
    if name.endswith("parquet"):
        pq.write_table(table, path, compression=codec)
    else:
        opened = pa.ipc.new_stream if name == "a.arrow" and codec else pa.ipc.new_file
        with opened(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table, 10_000)
    assert read_table_file(path, max_gib=0.02).frame.equals(table)
    if codec is None:  # nothing is decompressed
        assert len(read_table_file(path, max_gib=0.001).frame) == 1_000_000
        return
    with pytest.raises(InputError, match=rf"at most 0.001 GiB.*{name}.*--max-gib"):
        read_table_file(path, max_gib=0.001)
    done = run("impute", path, "--max-gib", "0.001", "-o", tmp_path / "out.csv", code=2)
    assert "--max-gib" in done.stderr


@pytest.mark.parametrize("kind", ["text", "dictionary", "nothing"])
def test_the_limit_counts_what_a_file_stores_once(tmp_path: Path, kind: str) -> None:
    n = 4_000
    values = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["x" * 10_000]))
    path = tmp_path / ("a.parquet" if kind == "text" else "a.feather")
    if kind == "text":
        pq.write_table(pa.table({"a": range(n), "b": values}), path, store_schema=False)
    elif kind == "dictionary":
        levels = pa.array([f"{k}" + "x" * 10_000 for k in range(n)])
        table = pa.table({"a": range(n), "b": pa.DictionaryArray.from_arrays(pa.array([0] * n), levels)})
        feather.write_feather(table, path, compression="zstd")
    else:
        feather.write_feather(pa.table({"a": pa.nulls(40_000_000)}), path)
    assert path.stat().st_size < 1 << 20
    assert read_table_file(path, max_gib=0.1).frame.num_columns
    with pytest.raises(InputError, match=r"at most 0.03 GiB"):
        read_table_file(path, max_gib=0.03)


def test_arrow_out_of_memory_is_no_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1.0, None]}), path)

    def fail(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 1073741824 failed")

    monkeypatch.setattr(pq, "ParquetFile", fail)
    with pytest.raises(MemoryLimitError, match=r"1\.00 GiB"):
        read_table_file(path)


def test_a_parquet_file_that_declares_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"a": np.zeros(1_000_000)}), tmp_path / "zeros.parquet", compression="zstd")
    monkeypatch.setattr(memory, "free_bytes", lambda: 10_000)
    with pytest.raises(MemoryLimitError, match="Take fewer rows"):
        read_table_file(tmp_path / "zeros.parquet")


def test_without_an_option_a_gzipped_file_is_decompressed_up_to_a_gibibyte(tmp_path: Path) -> None:
    path = tmp_path / "zeros.csv.gz"
    path.write_bytes(gzip.compress(bytes(1 << 24)) * 65)  # one MiB that holds 1,040
    with pytest.raises(InputError, match=re.escape(str(path))):
        read_bytes(path)


def test_a_high_limit_of_decompression_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"0,1\n" * 100))
    for most in (1e6, 1e300, float("inf")):
        assert len(read_table_file(path, max_gib=most).frame) == 100

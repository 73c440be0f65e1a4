"""Who may read what is written, and what a killed run leaves behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diffputer import DiffPuter
from tests.cli_tools import PROGRAM, TINY_OPTIONS, plain_frame, run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions are of POSIX")


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def survey(folder: Path, permissions: int) -> Path:
    path = folder / "survey.csv"
    plain_frame().to_csv(path, index=False)
    path.chmod(permissions)
    return path


@pytest.mark.parametrize(
    ("given", "table", "others", "end"),
    [(0o600, 0o600, 0o600, "csv"), (0o664, 0o664, 0o644, "parquet"), (0o444, 0o644, 0o644, "csv.gz")],
)
def test_what_is_written_is_no_more_open_than_the_input(tmp_path, given, table, others, end):
    path = survey(tmp_path, given)
    written = {name: tmp_path / name for name in (f"full.{end}", "m.diffputer", "r.html", "c.checkpoint")}
    output, model, report, checkpoint = written.values()
    run("impute", path, "-o", output, "--save-model", model, "--report", report, "--checkpoint", checkpoint)
    assert mode(output) == table
    assert {mode(one) for one in (model, report, checkpoint)} == {others}
    assert set(os.listdir(tmp_path)) == {"survey.csv", *written}


def test_what_is_replaced_keeps_its_permissions(tmp_path):
    path, output = survey(tmp_path, 0o644), tmp_path / "full.csv"
    output.write_text("old")
    output.chmod(0o620)
    run("impute", path, "-o", output)
    assert mode(output) == 0o620


def test_the_mode_of_one_command_does_not_reach_the_next_file(tmp_path):
    run("impute", survey(tmp_path, 0o600), "-o", tmp_path / "full.csv")
    DiffPuter(max_steps=3, held_out=0).fit(plain_frame()).save(tmp_path / "m.diffputer")
    assert mode(tmp_path / "m.diffputer") == 0o644


#: Says how the temporary file looks when it is half written, and waits to be killed.
_STOPPED = """
import os, sys, time
fsync = os.fsync
def stop(handle):
    print(oct(os.fstat(handle).st_mode & 0o777), flush=True)
    time.sleep(600)
os.fsync = stop
"""


def start_and_stop(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _STOPPED + PROGRAM[-1], *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "0o600\n"
    return process


def test_what_a_killed_run_leaves_is_removed_by_the_next_and_what_a_running_one_needs_is_not(tmp_path):
    survey(tmp_path, 0o644)
    (tmp_path / ".other.csv.0123456789ab.tmp").write_text("of another file")
    arguments = ["impute", "survey.csv", "-o", "full.csv", *TINY_OPTIONS]
    killed = start_and_stop(*arguments, folder=tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    left = set(os.listdir(tmp_path)) - {"survey.csv"}
    assert len(left) == 2
    assert "full.csv" not in left
    running = start_and_stop(*arguments, folder=tmp_path)
    try:
        in_use = set(os.listdir(tmp_path)) - {"survey.csv"}
        assert len(in_use) == 2  # the first leftover is gone, the second file is being written
        assert in_use != left
        run("impute", tmp_path / "survey.csv", "-o", tmp_path / "full.csv")
        assert set(os.listdir(tmp_path)) == {"survey.csv", "full.csv", *in_use}
    finally:
        running.kill()
        running.communicate()
    run("impute", tmp_path / "survey.csv", "-o", tmp_path / "full.csv")
    assert set(os.listdir(tmp_path)) == {"survey.csv", "full.csv", ".other.csv.0123456789ab.tmp"}
    assert len((tmp_path / "full.csv").read_text().splitlines()) == len(plain_frame()) + 1


@pytest.mark.parametrize("command", ["compare", "bench"])
def test_temporary_folders_of_killed_commands_are_removed_by_the_next(tmp_path, command):
    folder = tmp_path / "temporary"
    folder.mkdir()
    survey(tmp_path, 0o600)
    (tmp_path / "slow.toml").write_text(
        'datasets = ["wine"]\nmethods = [{ method = "diffputer-balanced", max_steps = 1000000 }]\n'
    )
    (tmp_path / "quick.toml").write_text('datasets = ["wine"]\nrows = 40\nmethods = ["mean"]\n')
    words = {
        "compare": (
            "compare survey.csv --methods mean,diffputer-best",
            "compare survey.csv --methods mean,knn",
        ),
        "bench": ("bench run slow.toml --threads 1", "bench run quick.toml --threads 1"),
    }
    slow, quick = ([*PROGRAM, *line.split()] for line in words[command])
    environment = os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    options = {"cwd": tmp_path, "env": environment, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(slow, **options, stdout=subprocess.DEVNULL) as process:
        while not list(folder.glob("diffputer-*")):
            assert process.poll() is None
            time.sleep(0.05)
        (used,) = folder.glob("diffputer-*")
        if command == "compare":
            os.utime(used, (0, 0))
            assert subprocess.run(quick, **options, stdout=subprocess.DEVNULL).returncode == 0
            assert list(folder.glob("diffputer-*")) == [used]  # it is in use
        process.kill()
    os.utime(used, (0, 0))
    other = folder / "diffputer-notes"
    other.mkdir()
    assert subprocess.run(quick, **options, stdout=subprocess.DEVNULL).returncode == 0
    assert list(folder.glob("diffputer-*")) == [other]

"""What reaches the terminal, and what becomes of a command whose terminal or disk is gone."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diffputer import DataWarning, DiffPuter, compare
from diffputer.tables import paths
from tests.cli_tools import PROGRAM, TINY_OPTIONS, plain_frame, run

ATTACK = "\x1b]0;pwned\x07"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and devices are of POSIX")


def evil_frame(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n).round(2)
    frame = pd.DataFrame(
        {
            f"x{ATTACK}": x,
            "y\u202e\x9b2J": (x + rng.normal(size=n)).round(2),
            "c": np.where(x > 0, ATTACK, "b"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    path = tmp_path / f"evil{ATTACK}.csv"
    evil_frame().to_csv(path, index=False)
    return path


def check(result, *, shown: str = r"\x1b]0;pwned") -> None:
    for text in (result.stdout, result.stderr):
        assert not CONTROLS.search(text), text
    assert shown in result.stdout + result.stderr


def test_control_characters_are_shown_and_never_sent(evil, tmp_path):
    check(run("impute", evil, "-o", tmp_path / f"full{ATTACK}.csv"))
    assert ATTACK in (tmp_path / f"full{ATTACK}.csv").read_text()  # the data are as they were
    page = tmp_path / f"r{ATTACK}.html"
    check(run("impute", evil, "-o", tmp_path / "draws.csv", "--draws", "2", "--report", page))
    assert not CONTROLS.search(page.read_text())
    check(run("compare", evil, "--methods", "mean,median", "--time-budget", "60", "-o", tmp_path / "o.csv",
              "--report", tmp_path / f"r{ATTACK}.html"))  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["impute", f"none{ATTACK}.csv"],
        ["impute", "EVIL", "--bounds", f"{ATTACK}:0:1"],
        ["impute", "EVIL", "--kind", f"{ATTACK}=integer"],
        ["impute", "EVIL", f"--{ATTACK}"],
        [f"command{ATTACK}"],
        ["impute", "EVIL", f"more{ATTACK}"],
        ["bench", "run", f"suite{ATTACK}"],
    ],
)
def test_mistakes_show_control_characters(evil, arguments):
    check(run(*[evil if one == "EVIL" else one for one in arguments], code=2, tiny=False), shown=r"\x1b")


def test_a_terminal_gets_no_control_character_of_a_table(evil, tmp_path):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "impute", str(evil), "-o", str(tmp_path / "full.csv"), *TINY_OPTIONS]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        sent += part
    os.close(ours)
    assert process.wait() == 0
    assert b"\x1b]" not in sent
    assert b"\x07" not in sent
    assert rb"\x1b]0;pwned" in sent


def test_a_traceback_shows_control_characters(evil):
    command = [*PROGRAM, "impute", str(evil), "--kind", f"{ATTACK}=integer", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" in done.stderr
    check(done)


def test_the_comparison_page_allows_its_own_script_alone(tmp_path):
    import base64
    import hashlib

    path = tmp_path / "page.html"
    compare(plain_frame(), methods=["mean", "median"], isolate=False, progress=False).report(
        path,
        source="caf\udce9.csv",  # a file name that is not UTF-8
    )
    page = path.read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


# --- ends


def test_a_closed_terminal_ends_a_command_as_a_request_to_end_does(tmp_path):
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    options = ["--set", "max_steps=1000000", "--summary", "run.json"]
    command = [*PROGRAM, "impute", "survey.csv", "-o", "full.csv", *options]
    heed = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # nohup would have it ignored
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as process:
        assert "rows" in process.stderr.readline()
        process.send_signal(signal.SIGHUP)
        said = process.stderr.read()
    assert process.returncode == 129
    assert said.startswith("interrupted: ")
    assert sorted(os.listdir(tmp_path)) == ["run.json", "survey.csv"]
    summary = json.loads((tmp_path / "run.json").read_text())
    assert summary["exit_status"] == 129
    assert summary["error"] == said.strip()


def test_a_command_under_nohup_goes_on(tmp_path):
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    command = [
        sys.executable,
        "-c",
        code + PROGRAM[-1],
        "impute",
        "survey.csv",
        "-o",
        "full.csv",
        *TINY_OPTIONS,
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        process.stderr.readline()
        process.send_signal(signal.SIGHUP)
        process.stderr.read()
    assert process.returncode == 0


def shell(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    line = text.replace("diffputer", f'"{sys.executable}" -c "{PROGRAM[-1]}"')
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done


TINY = " ".join(TINY_OPTIONS)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        f"impute survey.csv -o - {TINY}",
        "compare survey.csv --methods mean,median --repeats 1",
        "bench list",
        "info model",
        "bench run suite.toml --dry-run -q",
    ],
)
def test_a_full_disk_behind_standard_output_is_one_sentence(tmp_path, command):
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    DiffPuter(max_steps=3, held_out=0).fit(plain_frame()).save(tmp_path / "model")
    (tmp_path / "suite.toml").write_text('datasets = ["wine"]\nrows = 40\nmethods = ["mean"]\n')
    done = shell(tmp_path, f"diffputer {command} > /dev/full")
    assert done.returncode in (1, 2)
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert os.strerror(errno.ENOSPC) in sentence
    assert "unexpected" not in sentence
    assert "[Errno" not in sentence


@pytest.mark.parametrize(
    "command",
    [
        f"impute survey.csv -o - {TINY} | true; exit ${{PIPESTATUS[0]}}",
        f"impute survey.csv -o full.csv {TINY} 2>&1 >/dev/null | true; exit ${{PIPESTATUS[0]}}",
        f"impute survey.csv -o full.csv {TINY} 2> /dev/full",
        f"impute survey.csv -o - {TINY} >&-",
    ],
)
def test_a_stream_that_nobody_reads_ends_a_command(tmp_path, command):
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    done = shell(tmp_path, f"diffputer {command}")
    assert done.returncode in (1, 2)
    assert set(os.listdir(tmp_path)) <= {"survey.csv", "full.csv"}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("reader", ["head -c 1", "head -1"])
def test_a_reader_that_leaves_early_ends_a_command(tmp_path, monkeypatch, unbuffered, reader):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    plain_frame(20_000).to_csv(tmp_path / "survey.csv", index=False)  # more than a pipe holds
    options = "--set max_steps=3 --set held_out=0"
    line = (
        f"diffputer impute survey.csv -o - --summary run.json {options} | {reader}; exit ${{PIPESTATUS[0]}}"
    )
    done = shell(tmp_path, line)
    assert done.returncode == 1
    summary = json.loads((tmp_path / "run.json").read_text())
    assert (summary["exit_status"], summary["written"]) == (1, [])
    assert "closed" in summary["error"]
    assert "wrote" not in done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_takes_a_part_of_standard_output_is_an_error(tmp_path, monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    plain_frame(2_000).to_csv(tmp_path / "survey.csv", index=False)
    options = "--set max_steps=3 --set held_out=0"
    line = f"trap '' XFSZ; ulimit -f 8; diffputer impute survey.csv -o - {options} > full.csv"
    done = shell(tmp_path, line)
    assert done.returncode == 2
    assert os.strerror(errno.EFBIG) in done.stderr


def test_text_that_a_disk_takes_a_part_of_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    done = shell(tmp_path, "trap '' XFSZ; ulimit -f 1; diffputer impute --help > help.txt")
    assert done.returncode == 1
    assert os.strerror(errno.EFBIG) in done.stderr


def test_a_command_without_standard_input_is_one_sentence(tmp_path):
    done = shell(tmp_path, "diffputer impute - <&-")
    assert done.returncode == 2
    assert "closed" in done.stderr


def test_a_command_without_standard_error_does_its_work(tmp_path):
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    assert shell(tmp_path, f"diffputer impute survey.csv -o full.csv {TINY} 2>&-").returncode == 0
    assert (tmp_path / "full.csv").exists()


# --- checkpoints


def test_a_checkpoint_that_cannot_be_written_is_warned_of_once_and_the_fit_goes_on(tmp_path, monkeypatch):
    frame, path = plain_frame(), tmp_path / "fit.checkpoint"
    settings = {"engine": "paper", "em_rounds": 3, "max_steps": 3, "held_out": 0, "random_state": 0}
    expected = DiffPuter(**settings).fit_transform(frame)
    replace, tries = os.replace, []

    def fail_twice(source, target):
        tries.append(target)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(paths.os, "replace", fail_twice)
    with pytest.warns(DataWarning, match="checkpoint") as caught:
        completed = DiffPuter(checkpoint=path, **settings).fit_transform(frame)
    assert sum(os.strerror(errno.ENOSPC) in str(one.message) for one in caught) == 1
    pd.testing.assert_frame_equal(completed, expected)
    assert len(tries) == 3
    assert os.listdir(tmp_path) == ["fit.checkpoint"]


def test_a_checkpoint_whose_folder_goes_away_does_not_end_the_fit(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    from diffputer import persistence

    load = persistence.FileCheckpoint.load

    def load_and_remove(self):
        state = load(self)
        folder.rmdir()
        return state

    monkeypatch.setattr(persistence.FileCheckpoint, "load", load_and_remove)
    imputer = DiffPuter(max_steps=3, held_out=0, random_state=0, checkpoint=folder / "fit.checkpoint")
    with pytest.warns(DataWarning, match="checkpoint"):
        completed = imputer.fit_transform(plain_frame())
    assert not completed.isna().any().any()


def test_comparing_escapes_control_characters_as_imputing_does(tmp_path):
    frame = plain_frame(200).assign(**{ATTACK: 1})
    frame.to_csv(tmp_path / "a.csv", index=False)
    check(run("compare", tmp_path / "a.csv", "--methods", "mean,median", "--repeats", 1))

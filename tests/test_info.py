"""What a saved model says of itself, and what a command writes of its run."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from diffputer import DiffPuter, __version__
from diffputer.cli import app
from diffputer.modelfiles import MODEL, read_container, write_container

from .conftest import TINY, ugly_frame


def test_info_says_what_was_fitted(tmp_path: Path) -> None:
    path = tmp_path / "model"
    frame = ugly_frame()
    fitted = DiffPuter(random_state=3, **TINY).fit(frame)
    fitted.save(path)
    command = [sys.executable, "-m", "diffputer", "info", str(path)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["fit"]["version"] == __version__
    assert (found["fit"]["rows"], found["fit"]["columns"]) == frame.shape
    assert found["fit"]["missing"] == int(frame.isna().sum().sum())
    assert found["bytes"] == path.stat().st_size
    assert (found["seed"], found["settings"]["mlp_width"]) == (3, 16)
    assert [column["name"] for column in found["columns"]] == list(frame.columns)
    scores = fitted.held_out_scores_
    assert scores is not None
    assert found["columns"][0]["held_out"]["error"] == scores["error"].iloc[0]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "'town'" in text
    assert found["fit"]["fingerprint"][:16] in text
    assert DiffPuter.load(path).fit_facts_ == fitted.fit_facts_
    path.write_bytes(b"rubbish")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    DiffPuter(random_state=0, **{**TINY, "max_steps": 3}).fit(ugly_frame()).save(path)
    return path


ATTACK = "\x1b]0;pwned\x07\x9b2J"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["fit", "version"], ATTACK),
        (["fit", "device"], "\ud800"),
        (["fit", "seconds"], "long"),
        (["fit", "rows"], None),
        (["fit"], ATTACK),
        (["result", "engine"], ATTACK),
        (["result", "settings", "mlp_width"], ATTACK),
        (["result", "settings", ATTACK], 1),
        (["result", "held_out", "error"], [ATTACK] * 9),
        (["encoder", "schema", "columns", 0, "kind"], ATTACK),
        (["encoder", "schema", "columns", 0], {}),
        (["encoder", "schema", "columns", 0, "status"], "\ud800"),
    ],
)
def test_info_of_a_forged_model_is_text_or_a_sentence(
    saved: Path, tmp_path: Path, place: list[Any], value: Any
) -> None:
    tensors, facts = read_container(saved, MODEL)
    inner = facts
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    write_container(tmp_path / "forged", MODEL, tensors, facts)  # with a digest that fits
    for more in ([], ["--json"]):
        done = CliRunner().invoke(app, ["info", str(tmp_path / "forged"), *more])
        assert done.exit_code in (0, 2), done.stderr
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout + done.stderr)


@pytest.mark.skipif(os.name == "nt", reason="such file names are of POSIX")
@pytest.mark.parametrize("name", [b"m\x1b]0;pwned\x07", b"m\xe9"])
def test_info_shows_odd_file_names(saved: Path, tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).write_bytes(saved.read_bytes())
    command = [sys.executable, "-m", "diffputer", "info", str(tmp_path / os.fsdecode(name))]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"/m\\" in done.stdout
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout)


def test_equal_tables_have_the_same_fingerprint() -> None:
    pl = pytest.importorskip("polars")
    frame = ugly_frame()[["size", "town"]].reset_index(drop=True)
    fits = [
        DiffPuter(random_state=0, **{**TINY, "max_steps": 3, "held_out": 0}).fit(one).fit_facts_.fingerprint
        for one in (frame, frame.copy(), pl.from_pandas(frame), frame.assign(size=frame["size"] * 2))
    ]
    assert fits[0] == fits[1] == fits[2] != fits[3]


def test_every_stage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = ugly_frame()
    with caplog.at_level(logging.INFO, logger="diffputer"):
        DiffPuter(random_state=0, **{**TINY, "max_steps": 3, "held_out": 0}).fit_transform(frame)
    records = [record for record in caplog.records if hasattr(record, "stage")]
    assert [record.stage for record in records] == ["encode", "train", "impute", "decode"]
    assert all(record.rows == len(frame) and record.seconds >= 0 for record in records)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "diffputer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_summary_counts_what_was_done(plain: Path, tmp_path: Path) -> None:
    summary, output = tmp_path / "summary.json", tmp_path / "full.csv"
    done = run("impute", plain, "-o", output, "--summary", summary, "--set", "max_steps=3", "-q")
    assert done.returncode == 0, done.stderr
    found = json.loads(summary.read_text())
    assert found["exit_status"] == 0
    assert found["error"] is None
    assert found["written"] == [str(output)]
    assert {"total", "read", "encode", "train", "impute", "decode", "write"} <= found["seconds"].keys()
    frame = pd.read_csv(plain)
    for column in found["columns"]:
        missing = int(frame[column["name"]].isna().sum())
        assert (column["missing"], column["imputed"], column["left_missing"]) == (missing, missing, 0)
        assert column["observed"] == len(frame) - missing
        assert column["outside"] == column["unseen"] == 0
        assert column["held_out"]["n"] > 0


def test_a_summary_tells_of_failures_too(plain: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    done = run("impute", plain, "-o", tmp_path / "full.csv", "--summary", summary, "--bounds", "nothing:1:2")
    assert done.returncode == 2
    found = json.loads(summary.read_text())
    assert found["exit_status"] == 2
    assert "nothing" in found["error"]
    for command in ("compare", "impute"):
        done = run(command, plain, "--summary", tmp_path / "no" / "summary.json")
        assert done.returncode == 2
        assert "no" in done.stderr
    assert not list(tmp_path.glob("*imputed*"))

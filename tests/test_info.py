"""What a saved model says of itself, and what a command writes of its run."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from diffputer import DiffPuter, __version__

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

"""What a saved model says of itself, and what a command writes of its run."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

from diffputer import DiffPuter, __version__, demo
from diffputer.cli import app
from diffputer.modelfiles import MODEL, read_container, write_container

from .cli_tools import make_runner
from .conftest import TINY, ugly_frame


def test_info_says_what_was_fitted(tmp_path: Path) -> None:
    path = tmp_path / "model"
    frame = ugly_frame()
    fitted = DiffPuter(random_state=3, skip=["town"], **TINY).fit(frame)
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
    assert "'town': categorical, modelled, skipped" in text
    assert text.count("skipped") == 1
    assert "\nsettings:\n  " in text
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
        done = make_runner().invoke(app, ["info", str(tmp_path / "forged"), *more])
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


def test_draws_uncertainty_and_scores_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = ugly_frame()
    with caplog.at_level(logging.INFO, logger="diffputer"):
        fitted = DiffPuter(random_state=0, **{**TINY, "max_steps": 3}).fit(frame)
        fitted.sample(frame, n_draws=2)
        fitted.uncertainty(frame)
    records: dict[str, Any] = {r.stage: r for r in caplog.records if hasattr(r, "stage")}
    assert {"encode", "train", "score", "sample", "uncertainty"} <= records.keys()
    assert (records["sample"].rows, records["sample"].draws) == (len(frame), 2)
    assert records["uncertainty"].seconds >= 0
    scores = fitted.held_out_scores_
    assert scores is not None
    assert 0 < records["score"].n <= scores["n"].sum()
    assert scores["error"].min() <= records["score"].error <= scores["error"].max()
    assert records["score"].baseline > 0


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
        assert (column["status"], column["skipped"]) == ("modelled", False)
    assert found["columns"][0]["kind"] == "continuous"
    report = tmp_path / "report.html"
    for draws in ([], ["--draws", 2]):
        run("impute", plain, "--summary", summary, "--set", "max_steps=3", "--report", report, *draws)
        assert {"sample", "report"} <= json.loads(summary.read_text())["seconds"].keys()


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


@pytest.mark.parametrize(
    "words",
    [
        ["impute", "survey.csv"],
        ["impute", "survey.csv", "-o", "mine.csv"],
        ["impute", "survey.csv", "--model", "mine.csv"],
        ["impute", "survey.csv", "--checkpoint", "mine.csv"],
        ["compare", "survey.csv"],
        ["compare", "survey.csv", "-o", "mine.csv"],
        ["compare", "survey.csv", "--report", "mine.html"],
        ["bench", "run", "mine.csv"],
        ["bench", "table", "mine.csv"],
        ["bench", "table", "survey.csv", "--output", "mine.csv"],
        ["bench", "coverage", "--from-rows", "survey.csv", "--figure", "mine.html"],
        ["info", "mine.csv"],
    ],
)
def test_a_summary_never_takes_the_place_of_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["survey.csv", "survey.imputed.csv", "mine.csv", "mine.html"]
    for name in names:
        Path(name).write_text("x,y\n1,2\n")
    target = next((word for word in words if word.startswith("mine")), "survey.csv")
    for summary in (target, os.path.abspath(target), *(["survey.imputed.csv"] if len(words) == 2 else [])):
        if summary == "survey.imputed.csv" and words[0] != "impute":
            continue
        done = make_runner().invoke(app, [*words, "--summary", summary])
        assert done.exit_code == 2
        assert "--summary needs a file of its own" in done.stderr
    assert [Path(name).read_text() for name in names] == ["x,y\n1,2\n"] * len(names)


def test_a_summary_that_a_full_disk_refuses_is_warned_of(saved: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("a full disk is of Linux")
    done = run("info", saved, "--summary", "/dev/full")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: The summary '/dev/full' could not be written.")
    assert "fingerprint" in done.stdout


def test_a_summary_is_read_by_no_more_people_than_the_table(plain: Path, tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("permissions are of POSIX")
    plain.chmod(0o600)
    done = run("impute", plain, "--bounds", "nothing:1:2", "--summary", tmp_path / "summary.json")
    assert done.returncode == 2
    assert (tmp_path / "summary.json").stat().st_mode & 0o777 == 0o600


def all_commands(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from all_commands(command, *before, name)
        else:
            yield (*before, name), command


COMMANDS = dict(all_commands(typer.main.get_command(app)))


def test_all_commands_are_found() -> None:
    assert {("impute",), ("compare",), ("info",), ("bench", "list"), ("bench", "coverage")} <= COMMANDS.keys()


@pytest.mark.parametrize("words", list(COMMANDS), ids=" ".join)
def test_every_command_has_the_same_summary_option(words: tuple[str, ...]) -> None:
    option = next(one for one in COMMANDS[words].params if "--summary" in one.opts)
    assert (option.metavar, option.name) == ("FILE.json", "summary")
    assert option.help == next(one.help for one in COMMANDS["impute",].params if one.name == "summary")


@pytest.fixture
def summarised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs a command with a summary in another folder, and reads it."""
    monkeypatch.chdir(tmp_path)

    def summarise(*words: object, code: int = 0) -> dict[str, Any]:
        target = tmp_path / "summary.json"
        done = make_runner().invoke(app, [*map(str, words), "--summary", str(target)])
        assert done.exit_code == code, done.stderr
        found: dict[str, Any] = json.loads(target.read_text(), parse_constant=pytest.fail)
        target.unlink()
        assert found["exit_status"] == code
        assert (found["error"] is None) == (code == 0)
        assert found["seconds"]["total"] > 0
        return found

    return summarise


def test_info_writes_a_summary(saved: Path, summarised: Callable[..., dict[str, Any]]) -> None:
    frame = ugly_frame()
    found = summarised("info", saved)
    assert (found["model"], found["rows"]) == (str(saved), len(frame))
    counts = {column["name"]: (column["observed"], column["missing"]) for column in found["columns"]}
    assert counts == {
        name: (int(column.notna().sum()), int(column.isna().sum())) for name, column in frame.items()
    }
    assert found["columns"][0]["held_out"]["n"] > 0
    Path("rubbish").write_bytes(b"rubbish")
    assert "rubbish" in summarised("info", "rubbish", code=2)["error"]


def test_the_list_of_the_benchmark_writes_a_summary(summarised: Callable[..., dict[str, Any]]) -> None:
    found = summarised("bench", "list", "--data", ".")
    assert found["command"] == "diffputer bench list --data . --summary " + found["command"].split()[-1]
    assert found["data_sets"]["missing"] > 0
    assert found["data_sets"]["present"] > 0  # built in
    assert found["methods"]["installed"] > 0
    assert found["suites"] > 0


def test_a_simulation_writes_a_summary(summarised: Callable[..., dict[str, Any]]) -> None:
    words = "--methods complete --rows 60 --designs linear --mechanisms mcar --rates 0.2 --repetitions 1"
    found = summarised("bench", "coverage", *words.split(), "--out", "rows.csv", "--figure", "one.png")
    assert found["written"] == ["rows.table.csv", "one.png"]
    assert found["raw_rows"] == "rows.csv"
    assert found["failures"] == 0
    assert found["lines"] == len(pd.read_csv("rows.table.csv"))
    found = summarised("bench", "coverage", "--from-rows", "none.csv", code=2)
    assert "none.csv" in found["error"]
    found = summarised("bench", "coverage", "--from-rows", "rows.csv", "--table", "mine.csv")
    assert found["written"] == ["mine.csv"]


def test_a_comparison_counts_cells_and_scores_methods(
    plain: Path, summarised: Callable[..., dict[str, Any]]
) -> None:
    frame = pd.read_csv(plain)
    for more, share in ([], 0), (["-o", "full.csv"], 1):
        found = summarised("compare", plain, "--methods", "mean,median", "-q", *more)
        for column in found["columns"]:
            missing = int(frame[column["name"]].isna().sum())
            assert (column["missing"], column["imputed"]) == (missing, share * missing)
        assert found["best"] == found["scores"][0]["method"]


def test_the_demo_counts_cells_and_scores_methods(
    monkeypatch: pytest.MonkeyPatch, summarised: Callable[..., dict[str, Any]]
) -> None:
    whole = demo.run_demo
    small = {name: value for name, value in TINY.items() if name != "progress"}
    monkeypatch.setattr(
        demo,
        "run_demo",
        lambda folder, seed, progress: whole(folder, seed, n_rows=60, settings=small),
    )
    found = summarised("demo", "-o", "out", "-q")
    assert found["rows"] == 60
    assert all(one["missing"] == one["imputed"] > 0 == one["left_missing"] for one in found["columns"])
    assert all(Path(path).exists() for path in found["written"])
    assert {row["method"] for row in found["scores"]} == {demo.OURS, demo.ITERATIVE, demo.MEANS}


def test_comparisons_and_benchmarks_have_summaries(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    summary = tmp_path / "summary.json"

    def summarised(*words: object, code: int = 0) -> dict[str, Any]:
        done = run(*words, "--summary", summary)
        assert done.returncode == code, done.stderr
        found: dict[str, Any] = json.loads(summary.read_text())
        summary.unlink()
        assert found["exit_status"] == code
        assert found["command"].startswith(f"diffputer {words[0]} ")
        return found

    (tmp_path / "suite.toml").write_text('datasets = ["wine"]\nrows = 40\nmethods = ["mean"]\n')
    found = summarised("bench", "run", "suite.toml", "--out", "out", "--threads", "1")
    assert found["command"].startswith("diffputer bench run suite.toml")
    assert found["runs"] == {"done": 1, "failed": 0, "skipped": 0, "todo": 0, "failures": 0}
    found = summarised("bench", "table", "out", "-o", "table.md")
    assert found["written"] == ["table.md"]
    assert "nothing" in summarised("bench", "data", "nothing", code=2)["error"]
    found = summarised("compare", plain, "--methods", "mean,median", "-o", "full.csv", "-q")
    assert found["written"] == ["full.csv"]
    assert {"total", "read", "compare", "impute", "write"} <= found["seconds"].keys()

"""The command: names, folders and files; formats by option or suffix; mistakes are explained."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import typer

from diffputer.benchmark.table_command import find_files, read_results, table
from diffputer.benchmark.task import TASK_MECHANISMS

from ..cli_tools import make_runner
from .report_rows import Row, make_grid, make_row

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(table)
RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"


def write(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def suite(tmp_path, monkeypatch) -> Path:
    """A suite called "small" in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "benchmarks" / "results" / "small"
    rows = make_grid({"mean": [0.7, 0.8], "knn": [0.5, 0.6]}, ["california", "adult"])
    write(folder / "mean.csv", rows[:2])
    write(folder / "knn.csv", rows[2:])
    write(tmp_path / "more.csv", [make_row("mice", mechanism="mar")])
    return tmp_path


def run(*arguments: str) -> str:
    result = make_runner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_suites_are_found_by_name_folder_or_file(suite):
    for argument in ("small", "benchmarks/results/small", str(suite / "benchmarks" / "results")):
        assert "knn" in run(argument, "--metric", "mae")
    both = run("small", "more.csv", "--metric", "mae")
    assert "MCAR 30 %" in both
    assert "MAR 30 %" in both


def test_what_is_shown_can_be_chosen(suite):
    text = run("small", "more.csv", "--mechanism", "mar", "--metric", "mae", "--metric", "seconds")
    assert "mice" in text
    assert "knn" not in text
    assert "Fit and complete" in text
    assert "RMSE" not in text
    assert "no leaderboard" not in text
    assert "in sample," not in run("small", "--setting", "out_of_sample")
    assert "knn" not in run("small", "--method", "mean")


def test_the_help_names_every_mechanism(suite):
    words = run("--help")
    assert all(name in words for name in TASK_MECHANISMS)


def add_ours(suite: Path) -> None:
    rows = make_grid(
        {"diffputer-conditional": [0.3, 0.4]}, ["california", "adult"], label="diffputer-balanced"
    )
    odd = make_row("diffputer-conditional", mask=7, mae="0.1", label="an experiment", settings={"a": 1})
    more = make_grid({"mice": [0.9, 0.9]}, ["california", "adult"], masks=9)
    more += make_grid({"em": [0.9, 0.9]}, ["california", "adult"], masks=9)
    write(suite / "ours.csv", [*rows, odd, *more])


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex", "html"])
def test_the_ranking_of_record_has_diffputer_and_no_experiments(suite, format):
    add_ours(suite)
    names = ("small", "ours.csv", "--metric", "mae", "--format", format)
    text = run(*names, "--record")
    assert "Results of record, 42 of 43" in " ".join(text.split())
    assert "an experiment" not in text
    assert "5 entries on the 2 tasks" in " ".join(text.split())
    assert "Left out for want" not in text
    (absent,) = re.findall(r"Left out as they have no results here: ([^.]*)\.", " ".join(text.split()))
    assert "miceforest" in absent
    assert not {"mean", "knn", "diffputer-balanced"} & set(absent.split(", "))
    assert "2 entries on the 18 tasks" in " ".join(run(*names).split())


def test_experiments_do_not_replace_results_of_record(tmp_path):
    usual = make_row("diffputer-conditional", mae="0.3", label="diffputer-balanced")
    record = write(tmp_path / "record.csv", [usual, make_row("mean", mae="0.8")])
    again = write(tmp_path / "again.csv", [usual | {"mae": "0.2", "label": "timed again"}])
    for files in ((record, again), (again, record)):
        results = read_results([str(file) for file in files], record=True)
        assert {r.method: r.values["mae"] for r in results.final} == {
            "diffputer-conditional": 0.3,
            "mean": 0.8,
        }


def test_a_method_can_be_ranked_by_name(suite):
    add_ours(suite)
    text = run("small", "ours.csv", "--metric", "mae", "--rank", "diffputer-conditional")
    assert "5 entries on the 2 tasks" in " ".join(text.split())


def test_formats_follow_the_option_or_the_suffix(suite):
    assert "| entry |" in run("small", "--format", "markdown")
    assert r"\toprule" in run("small", "--format", "latex")
    for name, words in (
        ("a/t.md", "| entry |"),
        ("t.tex", r"\toprule"),
        ("t.html", "<!doctype"),
        ("t.txt", "entry"),
    ):
        assert run("small", "-o", name, "--metric", "mae") == f"wrote {name}\n"
        assert words in (suite / name).read_text(encoding="utf-8")


def test_figures_are_written_and_linked(suite):
    arguments = ["small", "-o", "out/page.md", "--figures", "out/figures", "--metric", "mae"]
    result = make_runner().invoke(app, arguments)
    n = len(list((suite / "out" / "figures").glob("*.png")))
    assert (result.stdout, result.stderr) == ("", f"wrote out/page.md and {n} figures in out/figures\n")
    assert (suite / "out" / "figures" / "bars-mae-out_of_sample-mcar-0.3.svg").exists()
    assert "](figures/bars-mae-out_of_sample-mcar-0.3.png)" in (suite / "out" / "page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "There are: small"),
        (["small", "--metric", "mse"], "mae, rmse"),
        (["small", "--format", "pdf"], "terminal, markdown, latex, html"),
        (["small", "-o", "x.pdf"], "one of .txt, .md, .tex, .html, .htm or have a --format"),
        (["small", "--setting", "sample"], "in_sample, out_of_sample or both"),
        (["small", "--mechanism", "mar"], "mar is not among mcar"),
        (["small", "--method", "em"], "em is not among knn, mean"),
        (["small", "--rate", "0.5"], "is not among"),
        (["small", "--rank", "em"], "em is not among the methods knn, mean"),
        (["small", "--record"], "results of DiffPuter as it is"),
        (["empty"], "has no CSV files"),
        (["empty.csv"], "have none"),
    ],
)
def test_mistakes_are_explained(suite, arguments, words):
    (suite / "empty").mkdir()
    write(suite / "empty.csv", [make_row()])
    (suite / "empty.csv").write_text("dataset,method\n")
    result = make_runner().invoke(app, arguments, env={"TERM": "dumb"})
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (suite / "x.pdf").exists()


def test_refused_rows_are_warned_of_and_too_many_are_a_failure(suite):
    few = write(suite / "few.csv", [*make_grid({"em": [0.4, 0.5]}, ["a", "b"]), make_row("mice", mae="-1")])
    result = make_runner().invoke(app, [str(few), "--metric", "mae"])
    assert result.exit_code == 0
    assert result.stderr == (
        "warning: 1 row cannot be compared and is refused, 2 remain: an error must not be negative, however: "
        "mae is -1 (1). The report names them.\n"
    )
    stray = write(suite / "stray.csv", [make_row("mice", protocol_version="2")])
    result = make_runner().invoke(app, ["small", str(stray), "--metric", "mae"])
    assert result.exit_code == 1
    assert "4 rows cannot be compared and are refused, 1 remain" in result.stderr
    assert "protocol version 1, however: the newest here is 2 (4)" in result.stderr
    assert "Refused: rows that cannot be compared" in result.stdout
    assert make_runner().invoke(app, ["small", "--metric", "mae"]).stderr == ""


def test_a_traceback_is_shown_where_it_is_wanted(suite):
    result = make_runner().invoke(app, ["small", "--setting", "x", "--debug"])
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def test_files_of_a_folder_come_in_order(suite):
    assert [path.name for path in find_files("small")] == ["knn.csv", "mean.csv"]


@pytest.mark.skipif(not RESULTS.exists(), reason="only a checkout has the rows of record")
def test_the_rows_of_record_can_be_reported(suite):
    text = run(str(RESULTS), "--format", "markdown", "--setting", "out_of_sample")
    assert "32.70 ± 0.16<br>33.47, 0.977" in text  # the README's California


@pytest.mark.skipif(not RESULTS.exists(), reason="only a checkout has the rows of record")
def test_the_ranking_of_record_is_the_readmes(suite):
    folders = [str(RESULTS / name) for name in ("paper-mcar",)]
    text = run(*folders, "--record", "--setting", "out_of_sample", "--metric", "mae", "--format", "markdown")
    page = (
        (RESULTS.parent.parent / "README.md").read_text(encoding="utf-8").partition("Out of sample, MCAR")[0]
    )
    shown = re.findall(r"^\| ([a-z-]+) \| (\S+) \| \S+ \| \S+ \| (\d+\.\d\d) \|", page, re.MULTILINE)
    assert len(shown) > 5
    for method, average, rank in shown:
        assert re.search(rf"^\| {method} \|.*\| {re.escape(average)} \| {rank} \|", text, re.MULTILINE), (
            method
        )

"""The documentation tells the truth: snippets run, tables are those of the code and of the result rows."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import demo, settings
from diffputer.settings import CONDITIONAL, FAST, ConditionalSettings, PaperSettings

from .cli_tools import make_runner
from .conftest import TINY, TINY_PAPER, ugly_frame

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = ROOT / "benchmarks" / "results"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Fast settings that are faster still, in a folder with a table for the commands to work on."""
    few_trees = {**TINY, "boosted_trees": 8}
    entries = [(few_trees, changes) for (_, on_gpu), changes in CONDITIONAL.items() if not on_gpu]
    for tiny, changes in [(TINY_PAPER, FAST), *entries]:
        for name, value in tiny.items():
            if name in settings.SETTING_NAMES:
                monkeypatch.setitem(changes, name, value)
    monkeypatch.chdir(tmp_path)
    some = demo.load_sample().iloc[::4]
    monkeypatch.setattr(demo, "load_sample", some.copy)
    frame = ugly_frame().reset_index(drop=True)
    frame["age"] = frame["count"]
    frame["remark"] = pd.Series(["?", "fine", "late"] * 20)
    frame.to_csv("survey.csv", index=False)
    frame.head(5).to_csv("new.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.filterwarnings("ignore::diffputer.DataWarning")
def test_python_snippets_run_in_order(page: Path, quick: Path) -> None:
    if "import statsmodels" in page.read_text():
        pytest.importorskip("statsmodels")
    namespace: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.filterwarnings("ignore::diffputer.DataWarning")
def test_commands_run_in_order(page: Path, quick: Path) -> None:
    from diffputer.cli import app

    for line in "".join(blocks(page, "console")).splitlines():
        command = shlex.split(line.removeprefix("$ "), comments=True)
        if command[0] == "diffputer" and command[1] in ("impute", "compare"):
            if command[1] == "compare" and "--time-budget" not in command:
                command += ["--time-budget", "4"]  # what it would use takes a minute
            result = make_runner().invoke(app, command[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}"
        elif command[:3] == ["diffputer", "bench", "run"]:
            result = make_runner().invoke(app, [*command[1:], "--dry-run"])
            assert result.exit_code == 0, f"{line}\n{result.output}"
            assert "to run" in result.stdout + result.stderr


def test_the_benchmark_pages_own_suite_and_method_work(tmp_path: Path) -> None:
    from diffputer.benchmark.datasets import load_dataset
    from diffputer.benchmark.runner import run_task
    from diffputer.benchmark.suites import list_suites, load_suite
    from diffputer.methods.contract import Method

    page = ROOT / "docs" / "benchmark.md"
    (suite,), (method,) = blocks(page, "toml"), blocks(page, "python")
    (tmp_path / "own.toml").write_text(suite)
    (tmp_path / "hot_deck.py").write_text(method)
    job = load_suite(str(tmp_path / "own.toml")).jobs(methods=["hot-deck"], datasets=["wine"])[0]
    made = job.make()
    assert isinstance(made, Method)
    rows = run_task(job.task, load_dataset(job.task.dataset), method=made)
    assert [row["error"] for row in rows] == [None, None]
    assert all(f"`{name}`" in page.read_text() for name in list_suites())


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def section(page: str, heading: str) -> list[str]:
    """Give the lines under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"docs/settings.md has no heading '## {heading}'"
    return found[1].splitlines()


def table(lines: list[str]) -> dict[str, list[str]]:
    """Give the cells of the rows whose first cell is a name in backquotes, by that name."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows if re.fullmatch(r"`\w+`", row[0])}


def holds(cell: str, value: object) -> bool:
    """Say whether a cell shows a value: text in quotes, or a number with or without commas."""
    shown = cell.strip(' `"').replace(",", "")
    return shown == value if isinstance(value, str) else float(shown) == value


def test_the_settings_page_has_every_setting_of_the_papers_engine_with_its_values() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    rows = table(section(page, "Paper's engine"))
    assert list(rows) == [field.name for field in dataclasses.fields(PaperSettings)]
    for field in dataclasses.fields(PaperSettings):
        cells = rows[field.name]
        assert len(cells) == 3
        for cell, value in zip(cells, (field.default, FAST.get(field.name, field.default)), strict=False):
            assert holds(cell, value), (field.name, cell, value)
        assert cells[-1]


@pytest.mark.parametrize(
    ("heading", "sort", "presets"),
    [
        ("Conditional engine", ConditionalSettings, CONDITIONAL),
    ],
)
def test_the_settings_page_has_every_setting_of_an_engine_with_its_values(
    heading: str, sort: Any, presets: dict[tuple[str, bool], dict[str, Any]]
) -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    lines = section(page, heading)
    columns = [(quality, on_gpu) for on_gpu in (False, True) for quality in ("fast", "balanced", "best")]
    head = ["setting", *(f"{'GPU' if on_gpu else 'CPU'} {quality}" for quality, on_gpu in columns), "meaning"]
    header = next(line for line in lines if line.startswith("| setting"))
    assert [cell.strip() for cell in header.strip("| ").split("|")] == head
    rows = table(lines)
    assert list(rows) == [field.name for field in dataclasses.fields(sort)]
    for field in dataclasses.fields(sort):
        cells = rows[field.name]
        assert len(cells) == 7
        for cell, column in zip(cells, columns, strict=False):
            value = presets[column].get(field.name, field.default)
            assert holds(cell, value), (field.name, column, cell, value)
        assert cells[-1]


def test_the_coverage_page_shows_the_committed_summary() -> None:
    from diffputer.benchmark.coverage.summary import read_summary
    from diffputer.benchmark.coverage.tables import make_report, put_into_page, write_part

    page = (ROOT / "docs" / "coverage.md").read_text()
    lines = read_summary(ROOT / "benchmarks" / "coverage" / "summary.csv")
    assert put_into_page(page, write_part(make_report(lines))) == page


def test_coverages_of_the_imputation_page_are_those_of_the_summary() -> None:
    from diffputer.benchmark.coverage.summary import read_summary

    page = (ROOT / "docs" / "multiple-imputation.md").read_text()
    lines = read_summary(ROOT / "benchmarks" / "coverage" / "summary.csv")

    def means(what: str, design: str, method: str, rate: float, mechanism: str) -> list[float]:
        found: dict[bool, list[float]] = {False: [], True: []}
        for line in lines:
            if (line.design, line.method, line.mechanism) == (
                design,
                method,
                mechanism,
            ) and line.rate == rate:
                found[line.estimand.startswith("mean(")].append(getattr(line, what))
        return [sum(values) / len(values) for values in found.values()]  # of coefficients, of column means

    def both(what: str, method: str, rate: float) -> list[float]:
        return [one for sort in ("mcar", "mar") for one in means(what, "linear", method, rate, sort)]

    methods = {"none": "diffputer-none", "linear": "diffputer-linear", "chained": "mice-norm"}
    for name, method in methods.items():
        row = next(line for line in page.splitlines() if re.match(rf'\| `?"?{name}\b.*\d–\d', line))
        shown = [tuple(map(int, pair)) for pair in re.findall(r"(\d+)–(\d+) %", row)]
        found = [both("coverage", method, rate) for rate in (0.2, 0.5)]
        assert shown == [(int(100 * min(one) + 0.5), int(100 * max(one) + 0.5)) for one in found]
    ours, theirs = (
        [one for rate in (0.2, 0.5) for one in both("width", methods[name], rate)]
        for name in ("linear", "chained")
    )
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    assert f"{min(ratios):.2f} to {max(ratios):.2f} times those of the chained regressions" in page
    best = means("coverage", "nonlinear", "diffputer-linear", 0.2, "mcar")[0]
    worst, chained = (
        means("coverage", "nonlinear", methods[name], 0.5, "mar")[0] for name in ("linear", "chained")
    )
    assert f"coefficients at {100 * best:.0f} % with 20 % MCAR" in page
    assert f"down to {100 * worst:.0f} % with 50 % MAR (chained regressions {100 * chained:.0f} %)" in page


def test_numbers_of_the_reproduction_table_are_those_of_the_rows() -> None:
    with open(RESULTS / "paper-mcar" / "diffputer-paper.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["em_round"]]
    table = re.findall(
        r"^\| (\w+) \| (\d+) \| ([\d.]+)/([\d.]+) \| ([\d.]+)/([\d.]+) \|",
        (ROOT / "docs" / "dev" / "engine.md").read_text(),
        re.MULTILINE,
    )
    assert len(table) == 6
    for name, masks, mae, rmse, *_published in table:
        mine = [
            row
            for row in rows
            if row["dataset"] == name.lower()
            and row["setting"] == "out_of_sample"
            and int(row["mask_seed"]) < 3
        ]
        assert len(mine) == int(masks)
        for metric, value in (("mae", mae), ("rmse", rmse)):
            mean = 100 * sum(float(row[metric]) for row in mine) / len(mine)
            assert f"{mean:.2f}" == value, (name, metric)


def test_numbers_of_the_default_on_a_gpu_are_those_of_the_rows() -> None:
    with open(RESULTS / "paper-mcar" / "diffputer-balanced.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["setting"] == "out_of_sample"]
    with open(RESULTS / "conditional" / "mcar-h200.csv", newline="") as file:
        timed = [row for row in csv.DictReader(file) if row["label"] == "balanced, one by one"]
    assert all(row["alone"] == "True" for row in timed)
    table = re.findall(
        r"^\| (\w+) \| ([\d.]+)/([\d.]+) \| [\d.]+/[\d.]+ \| [\d.]+/[\d.]+ \| ([\d.]+) \| (\d+) \|",
        (ROOT / "docs" / "dev" / "first-edition.md").read_text(),
        re.MULTILINE,
    )
    assert len(table) == 6
    for name, mae, rmse, median, seconds in table:
        mine = [row for row in rows if row["dataset"] == name.lower() and int(row["mask_seed"]) < 5]
        assert sorted(row["mask_seed"] for row in mine) == ["0", "1", "2", "3", "4"]

        def mean(field: str, mine: list[dict[str, str]] = mine) -> float:
            return sum(float(row[field]) for row in mine) / len(mine)

        for field, shown in (("mae", mae), ("rmse", rmse), ("mae_median", median)):
            assert f"{100 * mean(field):.2f}" == shown, (name, field)
        alone = [float(row["fit_seconds"]) for row in timed if row["dataset"] == name.lower()]
        assert f"{min(alone):.0f}" == seconds


@pytest.mark.parametrize(("file", "more"), [("", ""), ("-cpu", r" [\d./]+ \| [\d.]+ \|")])
def test_coverage_of_the_default_is_that_of_the_rows(file: str, more: str) -> None:
    with open(RESULTS / "paper-mcar" / f"diffputer-balanced{file}.csv", newline="") as lines:
        # The commits whose draws have the shape of all parts together.
        rows = [row for row in csv.DictReader(lines) if row["git_hash"].startswith(("15787fa", "f8824fd"))]
    table = re.findall(
        r"^\| (\w+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d. ]+) \|" + more + "$",
        (ROOT / "docs" / "dev" / "first-edition.md").read_text(),
        re.MULTILINE,
    )
    assert len(table) == 9
    for name, masks, *shown, histogram in table:
        found = []
        for setting, field, scale in (
            ("in_sample", "coverage", "100:.1f"), ("out_of_sample", "coverage", "100:.1f"),
            ("out_of_sample", "crps", "1:.3f"),
        ):  # fmt: skip
            values = [
                float(row[field])
                for row in rows
                if row["dataset"] == name.lower() and row["setting"] == setting
            ]
            assert len(values) == int(masks)
            factor, form = scale.split(":")
            found.append(format(int(factor) * sum(values) / len(values), form))
        assert found == shown, name
        counts = sum(
            np.array(json.loads(row["pit"]))
            for row in rows
            if row["dataset"] == name.lower() and row["setting"] == "out_of_sample"
        )
        assert " ".join(f"{bar:.2f}" for bar in 10 * counts / counts.sum()) == histogram, name


def test_numbers_of_the_default_on_a_cpu_are_those_of_the_rows() -> None:
    with open(RESULTS / "conditional" / "mcar-cpu.csv", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["dataset"] == "california"
            and row["setting"] == "out_of_sample"
            and row["label"] == "boosted trees and linear parts"
        ]
    assert [row["mask_seed"] for row in rows] == ["0", "1", "2"]
    mae, rmse = (100 * sum(float(row[field]) for row in rows) / 3 for field in ("mae", "rmse"))
    assert f"{mae:.2f}/{rmse:.2f}; published" in (ROOT / "README.md").read_text()


def test_the_table_of_record_is_that_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffputer.benchmark.report.readme import replace_table, summarise_record

    monkeypatch.chdir(ROOT)
    table, figure = summarise_record()
    page = (ROOT / "README.md").read_text()
    assert replace_table(page, table) == page, "make record"
    assert figure is not None
    assert (ROOT / "docs" / "images" / "record.png").exists()


def test_the_page_of_results_is_that_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffputer.benchmark.report.results_page import make_report, read_suites, write_page

    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "results.md").read_text()
    report = make_report(read_suites())
    assert write_page(report) == page, "make record"
    for picture in report.pictures:
        assert (ROOT / "docs" / "images" / f"{picture.name}.png").exists()


def test_hyperimpute_really_imputed_in_the_rows_of_record() -> None:
    """With other versions of its dependencies it silently gives back column means."""
    scores = {}
    for method in ("mean", "hyperimpute"):
        with open(RESULTS / "mini" / f"{method}.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["setting"] == "in_sample"]
        scores[method] = {row["task"]: (row["error"], float(row["mae"] or "nan")) for row in rows}
    assert scores["hyperimpute"].keys() == scores["mean"].keys()
    for task, (error, mae) in scores["hyperimpute"].items():
        assert not error, (task, error)
        assert abs(mae / scores["mean"][task][1] - 1) > 0.01, task


def test_what_shapes_of_draws_do_is_that_of_the_rows() -> None:
    with open(RESULTS / "conditional" / "shape-cpu.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    table = re.findall(
        r"^\| (\w+)" + 9 * r" \| ([\d.]+)" + r" \|$",
        (ROOT / "docs" / "dev" / "first-edition.md").read_text(),
        re.MULTILINE,
    )
    assert len(table) == 9
    for name, *printed in table:
        found = []
        for label in ("one factor", "shape", "pooled"):
            mine = [row for row in rows if row["dataset"] == name.lower() and row["label"] == label]
            bins = [np.array(json.loads(row["pit"])) for row in mine]
            apart = np.sqrt(np.mean([np.square(10 * counts / counts.sum() - 1).mean() for counts in bins]))
            percent = (100 * np.mean([float(row[score]) for row in mine]) for score in ("coverage", "crps"))
            found.append([*percent, apart])
        for score, tolerance in enumerate((0.051, 0.0051, 0.00051)):
            three = [float(x) for x in printed[3 * score : 3 * score + 3]]
            assert three == pytest.approx([of[score] for of in found], abs=tolerance), name

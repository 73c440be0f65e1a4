"""The documentation tells the truth: snippets run, tables are those of the code and of the result rows."""

from __future__ import annotations

import csv
import dataclasses
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from diffputer import settings
from diffputer.settings import FAST, PaperSettings

from .conftest import TINY, ugly_frame

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = ROOT / "benchmarks" / "results"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Fast settings that are faster still, in a folder with a table for the commands to work on."""
    for name, value in TINY.items():
        if name in settings.SETTING_NAMES:
            monkeypatch.setitem(FAST, name, value)
    monkeypatch.chdir(tmp_path)
    frame = ugly_frame().reset_index(drop=True)
    frame["age"] = frame["count"]
    frame["remark"] = pd.Series(["?", "fine", "late"] * 20)
    frame.to_csv("survey.csv", index=False)
    frame.head(5).to_csv("new.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.filterwarnings("ignore::diffputer.DataWarning")
def test_python_snippets_run_in_order(page: Path, quick: Path) -> None:
    namespace: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.filterwarnings("ignore::diffputer.DataWarning")
def test_commands_run_in_order(page: Path, quick: Path) -> None:
    from diffputer.cli import app

    for line in "".join(blocks(page, "console")).splitlines():
        command = shlex.split(line.removeprefix("$ "), comments=True)
        if command[0] == "diffputer" and command[1] == "impute":
            result = CliRunner().invoke(app, command[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_settings_page_has_every_setting_with_its_values() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    for field in dataclasses.fields(PaperSettings):
        line = next(line for line in page.splitlines() if line.startswith(f"| `{field.name}` |"))
        cells = [cell.strip(' `"').replace(",", "") for cell in line.split("|")[2:4]]
        for cell, value in zip(cells, (field.default, FAST.get(field.name, field.default)), strict=True):
            assert cell == value or float(cell) == value, line


def test_numbers_of_the_reproduction_table_are_those_of_the_rows() -> None:
    with open(RESULTS / "paper-engine" / "mcar-h200.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["em_round"]]
    table = re.findall(
        r"^\| (\w+) \| (\d) \| ([\d.]+)/([\d.]+) \| ([\d.]+)/([\d.]+) \|",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    assert len(table) == 4
    for name, masks, mae, rmse, *_published in table:
        mine = [
            row
            for row in rows
            if row["dataset"] == name.lower()
            and row["setting"] == "out_of_sample"
            and row["label"] == "paper engine: lr 1e-4, 6000 steps, N=20"
        ]
        assert len(mine) == int(masks)
        for metric, value in (("mae", mae), ("rmse", rmse)):
            mean = 100 * sum(float(row[metric]) for row in mine) / len(mine)
            assert f"{mean:.2f}" == value, (name, metric)

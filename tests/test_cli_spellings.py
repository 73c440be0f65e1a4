"""A saved model reads and writes the columns of a new file as those of its own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli_tools import run

HEADER = "day;smoker;price;when;count;city"
EMPTY = ["", "", "", "", "", "", "7.5"]


def write(path: Path, rows: list[list[str]], names: str = HEADER) -> Path:
    path.write_text("\n".join([names, *(";".join(row) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a semicolon file: American dates, yes and no, decimal commas, parted thousands."""
    folder = tmp_path_factory.mktemp("spelt")
    rng = np.random.default_rng(0)
    rows = []
    for k in rng.integers(0, 28, 60):
        row = [
            f"06/{k + 1:02d}/2019",
            "yes" if k > 14 else "no",
            f"{500 + k * 1.57:.2f}".replace(".", ","),
            f"{k + 1:02d}.06.2019 {k % 24:02d}:30",
            f"{10_000 + 321 * int(k):,}".replace(",", "."),
            "Bonn" if k > 14 else "Rome",
        ]
        rows.append([("" if rng.random() < 0.2 else cell) for cell in row] + [str(k)])
    path = write(folder / "fitted.csv", rows, HEADER + ";x")
    run("impute", path, "--thousands", ".", "--save-model", folder / "model", "--quiet")
    return folder / "model"


def cells(path: Path) -> list[list[str]]:
    return [line.split(";") for line in path.read_text().splitlines()[1:]]


PATTERNS = (
    r"06/[0-3]\d/2019",
    "yes|no",
    r"5\d\d,\d\d",
    r"\d\d\.06\.2019 \d\d:\d\d",
    r"1\d\.\d{3}",
    "Bonn|Rome",
)


def test_empty_columns_are_spelt_as_in_the_file_of_the_fit(model: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.csv", [EMPTY, EMPTY], HEADER + ";x")
    run("impute", new, "--model", model, "-o", tmp_path / "full.csv")
    for row in cells(tmp_path / "full.csv"):
        for cell, pattern in zip(row, PATTERNS, strict=False):
            assert re.fullmatch(pattern, cell), cell


def test_draws_are_spelt_so_too(model: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.csv", [EMPTY, EMPTY], HEADER + ";x")
    run("impute", new, "--model", model, "--draws", 2, "-o", tmp_path / "draws.csv")
    for row in cells(tmp_path / "draws.csv"):
        for cell, pattern in zip(row[2:], PATTERNS, strict=False):
            assert re.fullmatch(pattern, cell), cell


def test_doubtful_cells_are_read_as_the_model_read_its_own(model: Path, tmp_path: Path) -> None:
    # Day and month could be exchanged, and the dots could be decimal marks.
    rows = [
        ["06/05/2019", "no", "", "04.06.2019 04:30", "11.284", "", "4"],
        ["06/07/2019", "", "510", "", "11.926", "", "6"],
        ["", "no", "512", "", "", "", ""],
    ]
    new = write(tmp_path / "new.csv", rows, HEADER + ";x")
    result = run("impute", new, "--model", model, "-o", tmp_path / "full.csv")
    assert "read as text" not in result.stderr
    assert "another way" not in result.stderr
    found = cells(tmp_path / "full.csv")
    for row, read in zip(found, rows, strict=True):
        for cell, before, pattern in zip(row, read, PATTERNS, strict=False):
            assert cell == before or (not before and re.fullmatch(pattern, cell)), cell
    run("impute", new, "--model", model, "-o", tmp_path / "full.parquet")
    typed = pd.read_parquet(tmp_path / "full.parquet")
    assert typed["day"][0] == pd.Timestamp(2019, 6, 5)
    assert typed["count"].tolist()[:2] == [11284, 11926]
    assert typed["price"].tolist()[1:] == [510.0, 512.0]


def test_a_file_spelt_in_another_way_is_read_with_a_sentence(model: Path, tmp_path: Path) -> None:
    rows = [["2019-06-13", "YES", "517.5", "", "", "", "13"], ["", "", "", "", "", "", "14"]]
    new = write(tmp_path / "new.csv", rows, HEADER + ";x")
    result = run("impute", new, "--model", model, "-o", tmp_path / "full.csv")
    said = " ".join(result.stderr.split())
    assert "Column 'day' is spelt in another way" in said
    assert "Column 'price' is spelt in another way" in said
    last = cells(tmp_path / "full.csv")[1]
    for cell, pattern in zip(last, (r"2019-06-\d\d", "YES|NO", r"5\d\d\.\d\d"), strict=False):
        assert re.fullmatch(pattern, cell), cell


def test_models_of_text_complete_parquet_files_and_the_other_way_round(model: Path, tmp_path: Path) -> None:
    names = [*HEADER.split(";"), "x"]
    pq.write_table(pa.table({name: pa.nulls(2) for name in names}), tmp_path / "new.parquet")
    run("impute", tmp_path / "new.parquet", "--model", model, "-o", tmp_path / "full.parquet")
    types = [str(kind) for kind in pq.read_table(tmp_path / "full.parquet").schema.types]
    assert types[1:3] == ["bool", "double"]
    assert types[4:6] == ["int64", "string"]
    assert {kind.partition("[")[0] for kind in (types[0], types[3])} == {"timestamp"}

    rng = np.random.default_rng(0)
    k = rng.integers(0, 28, 60)
    mask = rng.random((5, 60)) < 0.2
    table = {
        "day": pa.array(k, mask=mask[0]).cast(pa.int32()).cast(pa.date32()),
        "ok": pa.array(k > 14, mask=mask[1]),
        "cost": pa.array([None if gone else f"{c / 4:.2f}" for c, gone in zip(k, mask[2], strict=True)]).cast(
            pa.decimal128(9, 2)
        ),
        "count": pa.array(k, pa.int8(), mask=mask[3]),
        "when": pa.array(k * 3600, mask=mask[4]).cast(pa.timestamp("s")),
        "x": pa.array(k * 1.0),
    }
    pq.write_table(pa.table(table), tmp_path / "fitted.parquet")
    run("impute", tmp_path / "fitted.parquet", "--save-model", tmp_path / "typed", "--quiet")
    write(tmp_path / "new.csv", [["", "", "", "", "", "3.5"], ["", "", "", "", "", ""]], ";".join(table))
    run("impute", tmp_path / "new.csv", "--model", tmp_path / "typed", "-o", tmp_path / "full.csv")
    patterns = (r"1970-01-\d\d", "true|false", r"\d\.\d\d", r"\d+", r"1970-01-\d\d \d\d:00:00")
    for row in cells(tmp_path / "full.csv"):
        for cell, pattern in zip(row, patterns, strict=False):
            assert re.fullmatch(pattern, cell), cell


def test_the_table_on_the_terminal_has_the_words_of_the_file(model: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.csv", [EMPTY, EMPTY], HEADER + ";x")
    said = run("impute", new, "--model", model, "-o", tmp_path / "full.csv").stderr
    (line,) = [line for line in said.splitlines() if " boolean " in line]
    assert re.search(r"(yes|no) \(\d+%\)", line)

"""Measuring tables of other shapes than the paper's."""

from __future__ import annotations

import csv

from diffputer.benchmark.shapes import FIELDS, main, make_table, measure

from ..conftest import TINY


def test_new_rows_are_of_the_same_kind_and_others():
    first, truth = make_table(2_000, 6, 0.2, seed=1)
    other, _ = make_table(1_000, 6, 0.2, seed=1)
    assert abs(first.corr() - other.corr()).to_numpy().max() < 0.15
    assert not first[:1_000].equals(other)
    assert (first.fillna(0).to_numpy() == truth)[first.notna().to_numpy()].all()


def test_a_row_says_what_a_shape_took(tmp_path, monkeypatch):
    settings = {name: value for name, value in TINY.items() if name != "progress"}
    row = measure(300, 5, missing=0.2, new_rows=100, seed=0, **settings)
    assert tuple(row) == FIELDS
    assert row["rmse"] < row["rmse_of_means"]
    assert row["rows_per_second"] > 0
    out = tmp_path / "shapes.csv"
    monkeypatch.setattr("diffputer.benchmark.shapes.measure", lambda *a, **k: row)
    main(["--rows", "300", "--columns", "5", "--out", str(out)])
    main(["--rows", "300", "--columns", "5", "--out", str(out)])
    with out.open(newline="") as file:
        assert [line["rows"] for line in csv.DictReader(file)] == ["300", "300"]

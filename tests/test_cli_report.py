"""The report from the command line and from the imputer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter, InputError
from diffputer.tables.frames import read_table

from .analysis.test_report import Page, data_of
from .cli_tools import plain_frame, run
from .conftest import ugly_frame


def test_a_report_beside_the_best_guess(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    result = run("impute", plain, "--report", out, "--seed", "5", "--bounds", "x:-9:9")
    assert f"and {out}" in result.stderr
    assert re.search(r"\(column means: \S+; \d+ cells?\)", result.stderr)
    page = out.read_text(encoding="utf-8")
    parsed, data = Page(page), data_of(page)
    assert data["draws"] == 5
    assert [column["name"] for column in data["columns"]] == ["x", "y", "c"]
    assert all(column["held"] for column in data["columns"])
    for words in ("plain.csv", "random_state=5", "--bounds x:-9:9", "--seed 5", "bounds={'x': (-9, 9)}"):
        assert words in parsed.text
    assert pd.read_csv(tmp_path / "plain.imputed.csv").notna().all().all()


def test_a_report_describes_the_values_that_were_written(plain: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "full.csv", tmp_path / "report.html"
    run("impute", plain, "-o", out, "--report", report)
    page, missing = data_of(report.read_text(encoding="utf-8")), plain_frame().isna()
    full = pd.read_csv(out)
    assert len(page["groups"]) == 3  # observed, written, draws
    for column in page["columns"]:
        filled = full[column["name"]][missing[column["name"]]]
        stats = {row[0]: row[1:] for row in column["stats"]}
        if column["kind"] == "continuous":
            assert float(stats["mean"][1]) == pytest.approx(filled.mean(), rel=1e-3, abs=1e-3)
            assert float(stats["standard deviation"][1]) == pytest.approx(filled.std(), rel=1e-3)
            assert stats["mean"][1] != stats["mean"][2]
            assert sum(column["chart"]["written"]) == pytest.approx(1, abs=0.01)
            assert all(len(cell) == 9 for cell in column["chart"]["cells"])
        else:
            shares = dict(zip(column["chart"]["levels"], column["chart"]["written"], strict=True))
            assert shares == pytest.approx({level: (filled == level).mean() for level in shares}, abs=1e-4)


def test_the_methods_sentence_is_true_of_the_run(plain: Path, tmp_path: Path) -> None:
    best, draws = tmp_path / "best.html", tmp_path / "draws.html"
    plain_frame().assign(id=range(60)).to_csv(plain, index=False)
    run("impute", plain, "--report", best, "--seed", "7", "--estimate", "median", "--quality", "fast")
    run("impute", plain, "--report", draws, "--draws", "3")
    once, several = (Page(path.read_text(encoding="utf-8")).text for path in (best, draws))
    for words in ("conditional engine", "quality fast", "seed 7", "single best estimate", "median", "id (id"):
        assert words in once
    assert "imputed 3 times" in several
    assert "quality balanced" in several
    assert "single best estimate" not in several
    assert len(data_of(draws.read_text())["groups"]) == 2


def test_the_methods_sentence_and_warnings_are_true_of_a_saved_model(tmp_path: Path) -> None:
    path, model, page = (tmp_path / name for name in ("noise.csv", "model", "page.html"))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    frame[rng.random(frame.shape) < 0.2] = np.nan
    frame.to_csv(path, index=False)
    run("impute", path, "--estimate", "median", "--save-model", model, "--report", page)
    text = Page(page.read_text(encoding="utf-8")).text
    assert "the mean absolute error of expected values was" in text
    assert "fitted to another table" not in text
    frame.head(50).fillna({"b": 0.0, "c": 0.0}).to_csv(path, index=False)
    run("impute", path, "--model", model, "--report", page)
    assert "The model was fitted to another table, of 200 rows." in Page(page.read_text()).text
    warned = {one["name"]: one["warnings"] for one in data_of(page.read_text())["columns"]}
    assert warned["a"]
    assert not warned["b"] + warned["c"]  # nothing of these is imputed here


def test_the_terminal_says_once_that_best_guesses_vary_less(plain: Path) -> None:
    assert run("impute", plain).stderr.count("--draws") == 1
    assert "--draws" not in run("impute", plain, "--draws", "2").stderr
    assert "best guesses" not in run("impute", plain, "--quiet").stderr


def test_headline_errors_count_columns_with_missing_values(tmp_path: Path) -> None:
    frame = plain_frame(200)
    frame["noise"] = np.random.default_rng(0).normal(size=200).round(3)  # complete, and unpredictable
    imputer = DiffPuter(random_state=0, max_steps=30, progress=False).fit(frame)
    scores = imputer.held_out_scores_.drop(index="noise")
    error = (scores["error"] * scores["n"]).sum() / scores["n"].sum()
    imputer.report(frame, tmp_path / "report.html", n_draws=2)
    text = Page((tmp_path / "report.html").read_text()).text
    assert f"On {scores['n'].sum():,} observed cells" in text
    assert f"mean absolute error was {error:.2f}" in text


def test_a_report_of_draws_and_of_a_saved_model(plain: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{k}.html" for k in range(3))
    model = tmp_path / "model"
    run("impute", plain, "--draws", "3", "--report", first, "--save-model", model)
    assert data_of(first.read_text())["draws"] == 3
    plain_frame().assign(extra=1.0)[["c", "extra", "y", "x"]].to_csv(plain, index=False)
    run("impute", plain, "--model", model, "--report", second)
    run("impute", plain, "--model", model, "--draws", "2", "--report", third)
    for path in (second, third):
        columns = {column["name"]: column for column in data_of(path.read_text())["columns"]}
        assert {"x", "y", "c"} <= set(columns)
        assert columns["x"]["held"] == data_of(first.read_text())["columns"][0]["held"]


def test_a_table_without_holes_has_a_report_too(tmp_path: Path) -> None:
    (tmp_path / "full.csv").write_text("a,b\n1,x\n2,y\n3,x\n")
    run("impute", tmp_path / "full.csv", "--report", tmp_path / "report.html")
    assert "Nothing is missing." in Page((tmp_path / "report.html").read_text()).text


@pytest.mark.parametrize("path", ["no/folder/report.html", "-", "plain.csv"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    path: str, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("impute", plain, "--report", path, code=2)
    assert not (tmp_path / "plain.imputed.csv").exists()


def test_the_imputer_reports_on_old_and_new_rows(tmp_path: Path, tiny: dict[str, Any]) -> None:
    frame, path = ugly_frame(), tmp_path / "report.html"
    imputer = DiffPuter(random_state=3, **tiny).fit(frame)
    imputer.report(frame, path, n_draws=2)
    whole = data_of(path.read_text(encoding="utf-8"))
    imputer.sample(frame, n_draws=2).report(path, title="Draws")
    draws = data_of(path.read_text(encoding="utf-8"))
    assert [c["chart"]["filled"] for c in draws["columns"]] == [
        c["chart"]["filled"] for c in whole["columns"]
    ]
    assert not any(c["chart"]["written"] for c in draws["columns"])  # here the draws are the result
    assert "seed 3" in Page(path.read_text(encoding="utf-8")).text
    assert f"{imputer.engine} engine" in Page(path.read_text(encoding="utf-8")).text

    imputer.report(frame, path, n_draws=2, max_rows=20)
    part = data_of(path.read_text(encoding="utf-8"))
    assert [c["missing"] for c in part["columns"]] == [c["missing"] for c in whole["columns"]]
    assert [c["left"] for c in part["columns"]] == [0] * 7
    imputer.report(frame.tail(1), path, n_draws=2)
    with pytest.raises(InputError, match="folder"):
        imputer.report(frame, tmp_path / "no" / "report.html")


def test_draws_without_a_model_have_a_report(tmp_path: Path) -> None:
    from diffputer import Imputations

    table = read_table(pd.DataFrame({"a": [1.0, 2.0, None]}))
    draws = Imputations(table, [{0: np.array([value])} for value in (1.5, 2.5)])
    draws.report(tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "did not come with their settings" in text
    assert data_of((tmp_path / "report.html").read_text(encoding="utf-8"))["draws"] == 2


@pytest.mark.filterwarnings("ignore:Filled cells shall")
def test_draws_from_a_file_report_as_before(tmp_path: Path, tiny: dict[str, Any]) -> None:
    frame = ugly_frame()
    imputer = DiffPuter(
        random_state=3, bounds={"size": (0, 99)}, derived={"count": lambda d: d["size"].round()}, **tiny
    )
    draws = imputer.fit(frame).sample(frame, n_draws=2)
    draws.to_parquet(tmp_path / "draws.parquet")
    pages = []
    for one in (draws, type(draws).from_parquet(tmp_path / "draws.parquet")):
        one.report(tmp_path / "report.html", title="Draws")
        pages.append((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert data_of(pages[0]) == data_of(pages[1])
    before, after = (re.sub(r"\d{4}-\d\d-\d\d.{0,20}", "", Page(page).text) for page in pages)
    assert after == before
    assert "random_state=3" in after


def test_joined_draws_report_on_every_fit(tmp_path: Path, tiny: dict[str, Any]) -> None:
    frame, path = ugly_frame(), tmp_path / "report.html"
    imputers = [DiffPuter(random_state=seed, **tiny).fit(frame) for seed in (3, 4)]
    one, other = (imputer.sample(frame, n_draws=2) for imputer in imputers)

    (one[:1] + one[1:]).report(path)
    assert "seed 3" in Page(path.read_text(encoding="utf-8")).text  # one fit, whose draws were taken apart

    joined = one + other + imputers[0].sample(frame, n_draws=2, first_draw=2)
    joined.to_parquet(tmp_path / "draws.parquet")
    for draws in (joined, type(joined).from_parquet(tmp_path / "draws.parquet")):
        draws.report(path)
        text = Page(path.read_text(encoding="utf-8")).text
        assert f"6 times by 2 fits of DiffPuter, {imputers[0].engine} engine" in text
        assert "random_state=3" in text
        assert "random_state=4" in text
        held = sum(int(imputer.held_out_scores_["n"].sum()) for imputer in imputers)
        assert f"On {held:,} observed cells" in text

    unknown = type(one)(read_table(frame), other._filled, other.schema)
    (one + unknown).report(path)
    assert "did not come with their settings" in Page(path.read_text(encoding="utf-8")).text


def test_a_report_and_a_summary_count_the_words_for_missing_values(tmp_path: Path) -> None:
    frame = plain_frame(60).drop(columns="c")
    frame["country"] = ["NA", "DE", "FR", "US", "ZA", ""] * 10
    table, report, summary = (tmp_path / name for name in ("a.csv", "a.html", "a.json"))
    frame.to_csv(table, index=False, na_rep="NA")
    n = int(frame["x"].isna().sum())
    said = run("impute", table, "--report", report, "--summary", summary).stderr
    words_said = [line for line in said.splitlines() if "'country'" in line and "little evidence" not in line]
    assert len(words_said) == 1  # reading the file has warned of it, and the fit does not again
    for path, words in ((report, ()), (tmp_path / "draws.html", ("--draws", "2"))):
        if words:
            run("impute", table, "--report", path, *words)
        page = path.read_text(encoding="utf-8")
        concerns = {w[1]: w[2] for column in data_of(page)["columns"] for w in column["warnings"]}
        assert concerns["Words kept as answers"].startswith("'NA' in 10 cells")
        assert f"'NA' in {n} cells" in Page(page).text
    words = {column["name"]: column["marker_words"] for column in json.loads(summary.read_text())["columns"]}
    assert [(one["word"], one["count"], one["taken_for_missing"]) for one in words["x"]] == [("NA", n, True)]
    assert [(one["word"], one["count"], one["taken_for_missing"]) for one in words["country"]] == [
        ("NA", 10, False)
    ]
    other = run("impute", table, "--keep", "country=NA").stderr
    assert "'NA' in 'country'" not in other  # as stated


def test_a_report_of_a_table_without_missing_values_counts_kept_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("code,x\n" + "NA,1\nDE,2\nFR,3\nUS,4\n" * 5)
    run("impute", tmp_path / "a.csv", "--report", tmp_path / "a.html")
    assert "'NA' in 5 cells" in Page((tmp_path / "a.html").read_text()).text


def test_a_column_that_is_empty_in_the_new_file_is_imputed_and_not_called_a_placeholder(
    plain: Path, tmp_path: Path
) -> None:
    model, new, report = (tmp_path / name for name in ("model", "new.csv", "new.html"))
    run("impute", plain, "--save-model", model)
    plain_frame().head(20).assign(c=None).to_csv(new, index=False)
    run("impute", new, "--model", model, "--report", report)
    page = report.read_text(encoding="utf-8")
    (column,) = (one for one in data_of(page)["columns"] if one["name"] == "c")
    assert (column["kind"], column["status"], column["left"]) == ("categorical", "modelled", 0)
    assert "Columns without any value in this table" in [title for _, title, _ in column["warnings"]]
    text = Page(page).text
    assert "placeholder" not in text
    assert "c (empty)" not in text

"""The coverage simulation: its truths are true, its arithmetic is right, stopping it loses nothing."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffputer.benchmark.coverage import imputers
from diffputer.benchmark.coverage.designs import DESIGNS, HIDEABLE, MECHANISMS, hide_cells
from diffputer.benchmark.coverage.estimates import analyse_draws, analyse_one
from diffputer.benchmark.coverage.imputers import Sample, find_entries, our_entries, run_entries
from diffputer.benchmark.coverage.simulation import RAW_FIELDS, Job, plan_jobs, read_raw, run_jobs
from diffputer.benchmark.coverage.summary import SUMMARY_FIELDS, Line, measure, pool, read_summary, summarise
from diffputer.benchmark.coverage.tables import BEGIN, END, make_report, write_part
from diffputer.cli import app
from diffputer.errors import DataWarning, InputError, SettingError

from ..cli_tools import make_runner
from ..conftest import TINY

ALL: dict[str, Any] = {
    "designs": list(DESIGNS),
    "mechanisms": list(MECHANISMS),
    "rates": [0.2, 0.5],
    "repetitions": range(3),
}
ONE: dict[str, Any] = {**ALL, "designs": ["linear"], "mechanisms": ["mar"], "rates": [0.5]}


def entries(*names: str) -> list[imputers.Entry]:
    found, lacking = find_entries(names, TINY)
    assert not lacking
    return found


def run(path: Path, *names: str, workers: int = 1, **plan: Any) -> list[Line]:
    list(run_jobs(plan_jobs(path, entries(*names), **{**ONE, **plan}), path, workers))
    return summarise(read_raw([path]))


def command(*arguments: str | Path) -> Any:
    return make_runner().invoke(app, ["bench", "coverage", *map(str, arguments)], catch_exceptions=False)


# --- truths and mechanisms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS.values(), ids=list(DESIGNS))
def test_stated_truths_are_those_of_a_large_sample(design):
    found = analyse_one(design, design.draw(400_000, np.random.default_rng(0)))
    assert set(found) == set(design.truth)
    for name, interval in found.items():
        assert abs(interval.estimate - design.truth[name]) < 4 * interval.std_error, name
        assert interval.std_error < 0.01


def test_the_skewed_column_is_skewed_and_the_auxiliary_one_tells_of_the_outcome():
    frame = DESIGNS["nonlinear"].draw(200_000, np.random.default_rng(1))
    assert frame["x1"].skew() == pytest.approx(1.0, abs=0.05)
    for design in DESIGNS.values():
        frame = design.draw(50_000, np.random.default_rng(1))
        assert 0.5 < frame["y"].corr(frame["z"]) < 0.8


@pytest.mark.parametrize("rate", [0.2, 0.5])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_mechanisms_hide_the_stated_share_of_the_stated_columns(mechanism, rate):
    rng = np.random.default_rng(2)
    for design in DESIGNS.values():
        complete = design.draw(40_000, rng)
        hidden = hide_cells(complete, mechanism, rate, rng)
        shares = hidden.isna().mean()
        assert np.allclose(shares[list(HIDEABLE)], rate, atol=0.01)
        assert (shares.drop(list(HIDEABLE)) == 0).all()
        assert (hidden.isna().sum(axis=1) > 1).mean() > 0.05
        assert complete.notna().all().all()
        z = (complete["z"] - complete["z"].mean()) / complete["z"].std()
        for column in HIDEABLE:
            own = (complete[column] - complete[column].mean()) / complete[column].std()
            gone = hidden[column].isna()
            by_z, by_own = (values[gone].mean() - values[~gone].mean() for values in (z, own))
            if mechanism == "mcar":
                assert abs(by_z) < 0.05
                assert abs(by_own) < 0.05
            else:
                assert (by_z if mechanism == "mar" else by_own) > 0.5


def test_an_unknown_mechanism_is_explained():
    with pytest.raises(SettingError, match="must be one of mcar, mar, mnar, however: 'odd'"):
        hide_cells(DESIGNS["linear"].draw(5, np.random.default_rng(0)), "odd", 0.2, np.random.default_rng(0))


# --- analysis -----------------------------------------------------------------------------------------------


def test_the_analysis_is_that_of_statsmodels():
    smf = pytest.importorskip("statsmodels.formula.api")
    design = DESIGNS["nonlinear"]
    frame = design.draw(80, np.random.default_rng(3))
    fit = smf.ols("y ~ c + x2 + I(c**2) + c:x2", frame.assign(c=frame["x1"] - 2)).fit()
    found = analyse_one(design, frame)
    for name, theirs in zip(design.terms, fit.params.index, strict=True):
        low, high = fit.conf_int().loc[theirs]
        expected = [fit.params[theirs], fit.bse[theirs], 75, low, high]
        assert np.allclose(found[name].as_list()[:5], expected)
        assert found[name].fmi is None
    assert found["mean(x1)"].std_error == pytest.approx(frame["x1"].sem())
    assert found["mean(x1)"].df == 79


def test_equal_draws_pool_to_nearly_the_analysis_of_one():
    design = DESIGNS["linear"]
    frame = design.draw(60, np.random.default_rng(4))
    one, pooled = analyse_one(design, frame), analyse_draws(design, [frame] * 3)
    for name in design.truth:
        assert np.allclose(one[name].as_list()[:5], pooled[name].as_list()[:5])
        assert pooled[name].fmi == 0


def test_too_few_or_incomplete_rows_are_refused():
    design = DESIGNS["linear"]
    frame = design.draw(60, np.random.default_rng(4))
    with pytest.raises(InputError, match="more rows than coefficients"):
        analyse_one(design, frame.head(4))
    with pytest.raises(InputError, match="complete rows"):
        analyse_one(design, frame.mask(frame > 1))


def test_complete_data_cover_and_the_column_mean_does_not(tmp_path):
    path = tmp_path / "raw.csv"
    lines = run(path, "complete", "mean", rates=[0.5], mechanisms=["mcar"], repetitions=range(250))
    for line in lines:
        if line.method == "complete":
            assert abs(line.coverage - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / 250), line.estimand
            assert abs(line.bias) < 4 * line.empirical_se / np.sqrt(250)
            assert line.mean_se == pytest.approx(line.empirical_se, rel=0.15)
        elif line.of_mean or line.estimand == "x1":
            assert line.coverage < 0.85, line.estimand
    assert {line.repetitions for line in lines} == {250}


def test_chained_bayesian_regressions_cover_where_they_are_the_right_model(tmp_path):
    lines = run(tmp_path / "raw.csv", "mice-norm", rows=100, draws=5, repetitions=range(40))
    assert np.mean([line.coverage for line in lines]) == pytest.approx(0.95, abs=0.05)
    assert all(abs(line.bias) < 4.5 * line.empirical_se / np.sqrt(40) for line in lines)


# --- methods ------------------------------------------------------------------------------------------------


def sample(draws: int = 3) -> Sample:
    return Job("linear", "mar", 0.3, 60, draws, 0, ()).sample()


def test_every_method_sees_the_same_table_and_every_repetition_another():
    one, again = sample(), sample()
    assert one.complete.equals(again.complete)
    assert one.incomplete.equals(again.incomplete)
    assert one.seed == again.seed
    other = Job("linear", "mar", 0.3, 60, 3, 1, ()).sample()
    assert not one.complete.equals(other.complete)


def test_methods_answer_every_estimand_with_an_interval_and_fmi_where_they_draw():
    there = sample()
    answers = run_entries(entries("complete", "cases", "mean", "mice", "mice-norm", "diffputer"), there)
    for name, answer in answers.items():
        assert not answer.error
        assert set(answer.intervals) == set(there.design.truth)
        for interval in answer.intervals.values():
            assert interval.low < interval.estimate < interval.high
            assert (interval.fmi is not None) == (name in ("mice", "mice-norm", "diffputer"))
    assert answers["complete"].intervals["x1"] == analyse_one(there.design, there.complete)["x1"]
    assert answers["cases"].intervals["x1"].df == len(there.incomplete.dropna()) - 4


def test_methods_that_cannot_run_here_are_skipped_with_a_reason(monkeypatch):
    monkeypatch.setattr(imputers, "find_spec", lambda name: None)
    found, lacking = find_entries(["mean", "miceforest", "diffputer-linear"], {})
    assert [entry.name for entry in found] == ["mean", "diffputer-linear"]
    assert list(lacking) == ["miceforest"]
    assert "diffputer[rivals]" in lacking["miceforest"]
    assert imputers.default_methods()[-2:] == ("diffputer-none", "diffputer-linear")
    with pytest.raises(SettingError, match=r"must be one of complete, .*, however: magic is not"):
        find_entries(["magic"], {})


class FakeDiffPuter:
    """Counts fits; draws what its model_uncertainty says."""

    fits: list[str] = []  # noqa: RUF012 - all instances write here

    def __init__(self, model_uncertainty: str = "linear", **rest: Any) -> None:
        self.model_uncertainty = model_uncertainty

    def get_params(self) -> dict[str, str]:
        return {"model_uncertainty": self.model_uncertainty}

    def set_params(self, model_uncertainty: str) -> None:
        self.model_uncertainty = model_uncertainty

    def fit(self, table: Any) -> FakeDiffPuter:
        self.fits.append(self.model_uncertainty)
        return self

    def sample(self, table: Any, n_draws: int) -> list[Any]:
        if self.model_uncertainty == "bootstrap":
            raise ValueError("no\nboots")
        spread = {"none": 0.0, "linear": 1.0}[self.model_uncertainty]
        return [table.fillna(spread * number) for number in range(n_draws)]


def test_one_fit_serves_all_but_bootstrap_and_a_failure_spoils_only_itself(monkeypatch):
    monkeypatch.setattr("diffputer.imputer.DiffPuter", FakeDiffPuter)
    monkeypatch.setattr(FakeDiffPuter, "fits", [])
    ours = list(our_entries({"quality": "fast"}).values())
    answers = run_entries(ours, sample())
    assert FakeDiffPuter.fits == ["linear", "bootstrap"]
    assert answers["diffputer-none"].intervals["x1"].fmi == 0
    assert answers["diffputer-linear"].intervals["x1"].fmi > 0
    assert answers["diffputer"].intervals == answers["diffputer-linear"].intervals
    assert answers["diffputer-bootstrap"].error == "ValueError: no boots"
    assert not answers["diffputer-bootstrap"].intervals


# --- rows, resuming, failures, workers ----------------------------------------------------------------------


def test_what_is_done_is_not_done_again_and_a_cut_line_does_no_harm(tmp_path):
    path = tmp_path / "raw.csv"
    jobs = plan_jobs(path, entries("complete", "mean"), **ALL)
    assert len(jobs) == 2 * 3 * 2 * 3
    running = run_jobs(jobs, path)
    next(running), next(running)
    running.close()  # as an interrupt does
    assert len(read_raw([path])) == 4
    left = plan_jobs(path, entries("complete", "mean", "cases"), **ALL)
    assert [len(job.entries) for job in left[:3]] == [1, 1, 3]
    assert len(plan_jobs(path, entries("complete", "mean"), **ALL)) == len(jobs) - 2
    assert len(plan_jobs(path, entries("complete"), **{**ALL, "rows": 50})) == len(jobs)
    with path.open("a") as file:
        file.write("linear,mcar,0.2,400")
    with pytest.warns(DataWarning, match=r"line 6 of .*raw\.csv has 4"):
        rows = read_raw([path])
    assert len(rows) == 4
    assert {line.repetitions for line in summarise(rows)} == {1}


def test_other_settings_are_other_rows(tmp_path):
    path = tmp_path / "raw.csv"
    job = plan_jobs(path, list(our_entries({"quality": "fast"}).values())[:1], **ONE)[0]
    other = plan_jobs(path, list(our_entries({"quality": "best"}).values())[:1], **ONE)[0]
    assert job.key(job.entries[0]) != other.key(other.entries[0])


def test_a_failure_is_a_row_that_is_run_again_only_on_request(tmp_path):
    path = tmp_path / "raw.csv"
    # Half of three columns of 30 rows missing leaves too few complete rows in some repetitions.
    plan = {"rows": 30, "repetitions": range(12)}
    lines = run(path, "cases", "mean", **plan)
    failures = {line.method: line.failures for line in lines}
    assert failures["mean"] == 0
    assert 0 < failures["cases"] < 12
    (cases,) = (line for line in lines if line.method == "cases" and line.estimand == "x1")
    assert cases.repetitions + cases.failures == 12
    errors = [row["error"] for row in read_raw([path]) if row["error"]]
    assert all(error.startswith("InputError: The analysis needs more rows") for error in errors)
    assert plan_jobs(path, entries("cases", "mean"), **{**ONE, **plan}) == []
    again = plan_jobs(path, entries("cases", "mean"), **{**ONE, **plan}, retry_failed=True)
    assert len(again) == failures["cases"]
    run(path, "cases", retry_failed=True, **plan)
    assert len(summarise(read_raw([path]))) == len(lines)  # rows that failed twice count once


def test_a_method_that_always_fails_has_lines_without_numbers(tmp_path, monkeypatch):
    path = tmp_path / "raw.csv"
    lines = run(path, "cases", rows=30, rates=[0.9])
    assert {(line.repetitions, line.failures, line.coverage) for line in lines} == {(0, 3, None)}
    assert "failed" in write_part(make_report(lines))


def test_workers_make_the_same_rows_as_this_process(tmp_path):
    results = []
    for workers in (1, 2):
        path = tmp_path / f"{workers}.csv"
        run(path, "complete", "mean", workers=workers)
        results.append(sorted((r["repetition"], r["method"], r["results"]) for r in read_raw([path])))
    assert len(results[0]) == 6
    assert results[0] == results[1]


def test_files_of_other_columns_are_refused(tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="columns of this version"):
        plan_jobs(path, entries("mean"), **ONE)


# --- summary ------------------------------------------------------------------------------------------------


def raw(repetition: int, interval: list[float | None], **changes: Any) -> dict[str, str]:
    names = DESIGNS["linear"].truth
    row = dict.fromkeys(RAW_FIELDS, "") | {
        "design": "linear", "mechanism": "mcar", "rate": "0.2", "rows": "400", "draws": "20",
        "repetition": str(repetition), "method": "mice", "title": "MICE", "settings_hash": "abc",
        "missing": "0.2", "fit_seconds": "2", "draw_seconds": "1", "machine": "m", "git_hash": "g",
        "versions": "v", "settings": "{}", "results": json.dumps(dict.fromkeys(names, interval)),
    }  # fmt: skip
    return row | changes


def test_the_arithmetic_of_the_summary():
    rows = [
        raw(0, [0.4, 0.1, 9, 0.2, 0.6, 0.3]),
        raw(1, [0.7, 0.2, 9, 0.6, 0.8, 0.1], fit_seconds="4", git_hash="h"),
        raw(2, [0.4, 0.3, 9, 0.1, 0.7, 0.2]),
        raw(2, [9.0, 0.3, 9, 8.0, 9.9, 0.2]),  # the same repetition from another file counts once
        raw(3, [], error="ValueError: x", results=""),
    ]
    line = next(line for line in summarise(rows) if line.estimand == "x1")
    assert line.truth == 0.5
    assert (line.repetitions, line.failures) == (3, 1)
    assert line.mean_estimate == 0.5
    assert line.bias == 0
    assert line.empirical_se == pytest.approx(np.std([0.4, 0.7, 0.4], ddof=1), abs=1e-6)
    assert line.mean_se == 0.2
    assert line.width == pytest.approx(0.4)
    assert line.coverage == pytest.approx(2 / 3, abs=1e-6)
    assert line.coverage_se == pytest.approx(np.sqrt(2 / 9 / 3), abs=1e-6)
    assert line.fmi == pytest.approx(0.2)
    assert line.seconds == pytest.approx(11 / 3, abs=1e-3)
    assert line.git_hash == "g / h"
    assert measure([[1, 1, 1, 0, 2, None]], 1.0)["empirical_se"] is None


def test_summaries_of_different_repetitions_are_pooled_as_if_their_rows_were_one():
    rng = np.random.default_rng(0)
    rows = [
        raw(k, [x, 0.1 + x / 9, 9, x - 0.2, x + 0.2, x / 2], git_hash="gh"[k > 4], fit_seconds=str(k))
        for k, x in enumerate(rng.normal(0.5, 0.2, 12))
    ]
    rows += [raw(12, [], error="ValueError: x", results="")]
    whole, parts = summarise(rows), pool([*summarise(rows[:5]), *summarise(rows[5:])])
    assert [line.estimand for line in whole] == [line.estimand for line in parts]
    for exact, line in zip(whole, parts, strict=True):
        for field in dataclasses.fields(line):
            theirs, mine = getattr(exact, field.name), getattr(line, field.name)
            close = isinstance(mine, float)
            assert mine == pytest.approx(theirs, abs=5e-6) if close else mine == theirs, field.name
    assert pool(whole) == whole


def test_the_order_of_rows_does_not_matter_and_foreign_ones_are_refused():
    rows = [raw(k, [0.4, 0.1, 9, 0.2, 0.6, 0.3], method=m) for k in range(2) for m in ("mice", "complete")]
    assert summarise(rows) == summarise(rows[::-1])
    assert next(iter(summarise(rows))).method == "complete"
    with pytest.raises(InputError, match="however: odd is none of them"):
        summarise([raw(0, [], design="odd")])


def test_a_success_replaces_a_failure_whichever_comes_first():
    good, bad = raw(0, [0.4, 0.1, 9, 0.2, 0.6, 0.3]), raw(0, [], error="E: x", results="")
    for rows in ([good, bad], [bad, good]):
        assert {(line.repetitions, line.failures) for line in summarise(rows)} == {(1, 0)}


# --- command ------------------------------------------------------------------------------------------------


def test_the_command_simulates_summarises_and_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    few = ("--methods", "complete,cases,mice", "--rows", "60", "--draws", "2", "--mechanisms", "mcar")
    done = command(*few, "--repetitions", "2", "--rates", "0.2", "--out", "a.csv", "--figure", "a.png")
    assert done.exit_code == 0, done.output
    assert "MCAR 20 %" in done.stdout
    assert "Nonlinear truth, 60 rows, 2 draws, 2 repetitions" in done.stdout
    assert Path("a.png").stat().st_size > 10_000
    with open("a.table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == SUMMARY_FIELDS
    assert {row["repetitions"] for row in rows} == {"2"}
    assert (
        "0 tables to do"
        in command(
            *few, "--repetitions", "2", "--rates", "0.2", "--out", "a.csv", "--designs", "linear"
        ).stderr
    )
    # Another machine does other repetitions, and both are merged.
    assert command(*few, "--repetitions", "2:3", "--rates", "0.2", "--out", "b.csv").exit_code == 0
    done = command("--from-rows", "a.csv", "b.csv", "--table", "both.csv", "--format", "markdown")
    assert done.exit_code == 0
    lines = read_summary("both.csv")
    assert {line.repetitions for line in lines} == {3}
    assert done.stdout == write_part(make_report(lines))
    assert "| MICE (scikit-learn) | " in done.stdout
    pooled = command("--from-table", "a.table.csv", "b.table.csv", "--table", "pooled.csv")
    assert pooled.exit_code == 0
    assert {line.repetitions for line in read_summary("pooled.csv")} == {3}
    assert re.search(r"\| MICE \(scikit-learn\) \|.*×1\.00 \|", done.stdout)
    Path("page.md").write_text(f"# Page\n\n{BEGIN}\nold\n{END}\nend\n")
    assert command("--from-table", "both.csv", "--page", "page.md").exit_code == 0
    assert Path("page.md").read_text() == f"# Page\n\n{BEGIN}\n{done.stdout}{END}\nend\n"


def test_diffputer_runs_from_the_command_with_settings_of_its_own(tmp_path):
    tiny = [f"--set={name}={value}" for name, value in TINY.items() if name not in ("device", "progress")]
    done = command(
        "--methods", "diffputer", "--designs", "nonlinear", "--mechanisms", "mar", "--rates", "0.5",
        "--repetitions", "1", "--draws", "2", "--out", tmp_path / "raw.csv", *tiny,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (row,) = read_raw([tmp_path / "raw.csv"])
    assert row["title"] == "DiffPuter, fast"
    assert json.loads(row["settings"])["mlp_width"] == 16


def test_failures_end_with_code_1_and_are_told(tmp_path):
    done = command(
        "--methods", "cases", "--rows", "30", "--rates", "0.9", "--repetitions", "1", "--designs", "linear",
        "--mechanisms", "mcar", "--out", tmp_path / "raw.csv",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "cases failed on linear mcar 0.9, repetition 0: InputError" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--designs", "odd"], "--designs must be among linear, nonlinear, however: odd"),
        (["--mechanisms", "odd"], "--mechanisms must be among"),
        (["--rates", "2"], "--rates must be shares between 0 and 1"),
        (["--rates", "x"], "--rates must be shares between 0 and 1"),
        (["--repetitions", "x"], "--repetitions must be as in 200 or 100:200"),
        (["--repetitions", "9:3"], "--repetitions must be as in 200 or 100:200"),
        (["--methods", "odd"], "A method must be one of"),
        (["--set", "odd"], "--set must be NAME=VALUE"),
        (["--set", "odd=1"], "--set must name parameters of DiffPuter, however: odd"),
        (["--format", "odd"], "--format must be one of terminal, markdown"),
        (["--figure", "a.gif"], "--figure must end in .png or .svg"),
        (["--from-rows"], "Files belong to --from-rows or --from-table, however: there are none"),
        (["a.csv"], "Files belong to --from-rows or --from-table, however: neither is given"),
        (["--from-rows", "--from-table", "a.csv"], "exclude each other"),
        (["--from-rows", "no.csv"], "Raw rows must be files, however: no.csv cannot be found"),
        (["--summary", "both.csv"], "--summary is a JSON file; got 'both.csv'"),
        (["--from-table", "no.csv"], "A coverage table must be a file, however: no.csv"),
        (["--page", "no.md"], "--page must be a text file; 'no.md' cannot be read"),
        (["--out", "raw.csv", "--table", "raw.csv"], "--table must not replace what it is made from"),
    ],
)
def test_mistakes_are_explained(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["--from-rows", "--from-table"])
def test_a_table_never_takes_the_place_of_what_it_is_made_from(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(Path("raw.csv"), "complete")
    assert command("--from-rows", "raw.csv", "--table", "table.csv").exit_code == 0
    source = {"--from-rows": Path("raw.csv"), "--from-table": Path("table.csv")}[kind]
    before = source.read_bytes()
    done = command(kind, source, "--table", f"./{source}")
    assert done.exit_code == 2
    assert "--table must not replace what it is made from" in done.stderr
    assert source.read_bytes() == before


def test_a_page_without_marks_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(Path("raw.csv"), "complete")
    Path("page.md").write_text("# Page\n")
    done = command("--from-rows", "raw.csv", "--page", "page.md")
    assert done.exit_code == 2
    assert "A page must have the lines" in done.stderr
    assert Path("page.md").read_text() == "# Page\n"

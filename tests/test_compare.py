"""Comparisons on a user's own table: who wins where the truth is known, what is said, and how it fails."""

from __future__ import annotations

import dataclasses
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import diffputer
from diffputer import InputError, SettingError
from diffputer.comparing.candidates import DEFAULT_METHODS
from diffputer.comparing.comparison import Outcome
from diffputer.comparing.hiding import Hidden, hide
from diffputer.comparing.preparation import Coded, prepare
from diffputer.comparing.runs import Run, RunnerElsewhere, RunnerHere
from diffputer.comparing.scoring import score
from diffputer.errors import DataWarning
from diffputer.methods.ours import DIFFPUTER_FAST
from diffputer.methods.table import METHODS

from .cli_tools import run
from .compare_fakes import (
    Crashes,
    Fake,
    Hangs,
    Interrupts,
    Leaves,
    LeavesHoles,
    LosesRows,
    Raises,
    Remembers,
    TellsItsSurroundings,
)
from .conftest import ugly_frame

QUICK = ["mean", "em-gaussian"]


def linear_frame(n=300, seed=0, holes=0.2):
    """Four columns that follow one, with a little noise: regression fills them well, means badly."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    x = z * [1.0, -2.0, 3.0, 0.5] + 0.3 * rng.normal(size=(n, 4)) * [1.0, 2.0, 3.0, 0.5]
    return pd.DataFrame(x, columns=list("abcd")).mask(rng.random((n, 4)) < holes)


def compare(table, methods=QUICK, **more):
    return diffputer.compare(table, methods=methods, **{"isolate": False, "progress": False, **more})


@pytest.fixture(scope="module")
def result():
    return compare(linear_frame(), methods=["mean", "em-gaussian", "knn-5"])


def test_the_method_that_fits_the_truth_wins_and_is_named(result):
    assert result.best == "em-gaussian"
    assert result.sentences[0].startswith("Use em-gaussian: its mean error is")
    assert "em-gaussian is best on 4 of 4 columns; more than 99 % sure that it is best" in result.verdict
    assert "best among these, by 3 repetitions." in result.verdict
    assert "Against filling in means and most frequent levels the error falls by" in result.verdict
    assert result.ties == ()


def test_the_table_has_what_one_asks_for(result):
    table = result.table.set_index("method")
    assert table["rank"].tolist() == [1, 2, 3]
    assert table["error"].is_monotonic_increasing
    assert 0.9 < table.loc["mean", "error"] < 1.1
    assert table.loc["em-gaussian", "error"] < 0.5
    assert table.loc["em-gaussian", "behind"] == 0
    assert (table["error_low"] <= table["error"]).all()
    assert (table["error"] <= table["error_high"]).all()
    assert table.loc["mean", "behind_low"] > 0
    assert table["probability_best"].sum() == pytest.approx(1)
    assert (table["mae"] <= table["rmse"]).all()
    assert table["accuracy"].isna().all()
    assert (table["seconds"] > 0).all()


def test_scores_by_column_are_those_of_the_mean(result):
    assert list(result.columns.columns) == list("abcd")
    assert result.columns.index.tolist() == result.table["method"].tolist()
    overall = result.columns.mean(axis=1).to_numpy()
    assert overall == pytest.approx(result.table["error"].to_numpy())
    facts = result.column_facts
    assert facts["cells"].sum() == sum(
        map(int, re.findall(r"^([\d,]+) known", result.notes[0].replace(",", "")))
    )
    assert facts["counts"].all()


def test_an_error_is_the_root_mean_square_in_deviations():
    frame = linear_frame()
    fake = Remembers("remembers")
    result = compare(frame, methods=["mean", fake], repeats=1)
    hidden = fake.seen[0] & frame.notna().to_numpy()
    a, cells = frame["a"], hidden[:, 0]
    filled = a[~cells].mean()
    expected = np.sqrt(((a[cells] - filled) ** 2).mean()) / a.std(ddof=0)
    assert result.columns.loc["mean", "a"] == pytest.approx(expected, rel=1e-5)


def test_it_prints_and_shows_itself(result):
    text = repr(result)
    assert result.verdict in text
    assert "knn-5" in text
    html = result._repr_html_()
    assert "<table>" in html
    assert "em-gaussian" in html


def test_equal_methods_are_called_ties():
    result = compare(linear_frame(), methods=["mean", Fake("twin")])
    assert result.best == "mean"
    assert result.ties == ("twin",)
    assert result.sentences[0].startswith("Too close to call: mean and twin cannot be told apart")
    assert result.table["probability_best"].tolist() == [0.5, 0.5]


def test_columns_that_tell_nothing_of_each_other_are_called_so():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("xyz")).mask(rng.random((200, 3)) < 0.2)
    result = compare(frame)
    assert "tell little of each other" in result.verdict


def test_methods_that_are_tried_only_where_they_are_named_are_named():
    assert "iterative-hgb" in DEFAULT_METHODS
    named = compare(linear_frame())
    assert named.unasked == ()
    assert "Tried only where" not in " ".join(named.notes)
    others = [name for name in DEFAULT_METHODS if name not in QUICK]
    all_of_them = (*named.outcomes, *(Outcome(METHODS[name][0], note="not tried") for name in others))
    usual = dataclasses.replace(named, outcomes=all_of_them)
    assert set(usual.unasked) == set(METHODS) - set(DEFAULT_METHODS)
    (said,) = [words for words in usual.notes if words.startswith("Tried only where")]
    assert "(methods, --methods): median, knn, r-mice-pmm, r-mice-cart, miwae" in said


def test_failures_are_notes():
    bad = [Raises("raises"), LeavesHoles("leaves"), LosesRows("loses"), Leaves("ends")]
    result = compare(linear_frame(), methods=[*QUICK, *bad])
    notes = result.table.set_index("method")["note"]
    assert notes["raises"] == "failed: RuntimeError: this method has a fault"
    assert "every hole" in notes["leaves"]
    assert "table that it is given, 300 x 4, however: it gave 3 x 4." in notes["loses"]
    assert notes["ends"].endswith("the method ended its process with code 0 instead of returning.")
    assert result.table["rank"].isna().sum() == 4
    assert "Not compared: raises, leaves, loses and ends." in result.verdict


def test_crashes_and_hangs_are_notes_where_methods_are_isolated():
    prepared = prepare(linear_frame(), max_rows=100, rng=np.random.default_rng(0))
    hidden = hide(prepared, 1, np.random.default_rng(0))
    with RunnerElsewhere(prepared.coded, hidden) as runner:

        def answer(method, seconds):
            return runner.run(Run(method.facts.name, method, {}, 0, 0, seconds), lambda: None)

        left = answer(Leaves("leaves"), 60)
        crashed = answer(Crashes("crashes"), 60)
        hung = answer(Hangs("hangs"), 0.5)
        well = answer(Fake("well"), 60)
    assert crashed.error == (
        "Crash: the process did not finish, it ended with code 3: the method ended it instead of returning."
    )
    assert left.error == "SystemExit: the method ended its process with code 0 instead of returning."
    assert hung.error.startswith("stopped after")
    assert well.error == ""
    assert well.values.shape == (hidden.cells.sum(),)


def test_methods_wait_quietly_and_share_no_small_table_among_threads(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    prepared = prepare(linear_frame(), max_rows=100, rng=np.random.default_rng(0))
    hidden = hide(prepared, 1, np.random.default_rng(0))
    order = Run("tells", TellsItsSurroundings("tells"), {}, 0, 0, 60)
    with RunnerElsewhere(prepared.coded, hidden) as runner:
        assert runner.run(order, lambda: None).error == "RuntimeError: PASSIVE, 1"


def test_a_method_that_cannot_go_elsewhere_runs_here_with_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.setattr(RunnerElsewhere, "_start", lambda self: None)
    mine = type("Mine", (Fake,), {"__module__": "__main__"})("mine")
    prepared = prepare(linear_frame(), max_rows=100, rng=np.random.default_rng(0))
    hidden = hide(prepared, 1, np.random.default_rng(0))
    with RunnerElsewhere(prepared.coded, hidden) as runner:
        order = Run("mine", mine, {}, 0, 0, 60)
        with pytest.warns(DataWarning, match="'mine' is not .*cannot be stopped.*install cloudpickle"):
            assert runner.run(order, lambda: None).error == ""
        assert runner.run(order, lambda: None).error == ""  # said once


def test_here_and_elsewhere_the_answers_are_the_same(result):
    elsewhere = compare(linear_frame(), methods=["mean", "em-gaussian", "knn-5"], isolate=True)
    pd.testing.assert_frame_equal(
        elsewhere.table.drop(columns="seconds"), result.table.drop(columns="seconds")
    )


def test_what_does_not_fit_the_time_budget_is_named():
    result = compare(linear_frame(), methods=[*QUICK, Fake("late"), Fake("later")], time_budget=1e-6)
    notes = result.table.set_index("method")["note"]
    assert notes["late"] == notes["later"] == "not tried: the time budget was used up"
    assert result.repetitions == 1
    assert "by one repetition, which cannot tell how much fits of a method differ." in result.verdict
    assert any("time budget allowed no more" in note for note in result.notes)


def test_methods_far_too_slow_for_the_table_are_not_tried():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 60))).mask(rng.random((400, 60)) < 0.1)
    result = compare(frame, methods=["mean", "median", "missforest"], time_budget=3, repeats=1)
    note = result.table.set_index("method")["note"]["missforest"]
    assert note.startswith("not tried: it would take about")


def test_methods_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.delenv("DIFFPUTER_HYPERIMPUTE", raising=False)
    result = compare(linear_frame(), methods=["mean", "median", "hyperimpute"], repeats=1)
    assert "it is not installed" in result.table.set_index("method")["note"]["hyperimpute"]


def test_an_interrupt_reaches_the_caller_and_the_command_keeps_what_there_is():
    methods = [*QUICK, Interrupts("interrupts")]
    with pytest.raises(KeyboardInterrupt):
        compare(linear_frame(), methods=methods)
    from diffputer.comparing.running import run_comparison

    kept = run_comparison(
        linear_frame(),
        methods=methods,
        time_budget=60,
        repeats=2,
        max_rows=1000,
        isolate=False,
        keep_partial=True,
    )
    assert kept.interrupted
    assert kept.best == "em-gaussian"
    assert kept.table["note"].tolist()[-1] == "not finished when the comparison was interrupted"


def test_the_same_seed_hides_the_same_cells():
    frame, seen = linear_frame(), []
    for seed in (5, 5, 6):
        fake = Remembers("remembers")
        compare(frame, methods=["mean", fake], random_state=seed)
        seen.append(fake.seen)
    assert all(np.array_equal(a, b) for a, b in zip(seen[0], seen[1], strict=True))
    assert not np.array_equal(seen[0][0], seen[2][0])


def test_hidden_cells_have_the_pattern_of_the_table():
    frame = linear_frame(holes=0.0)
    frame.loc[::3, ["a", "b"]] = np.nan  # always together; c and d have no holes
    fake = Remembers("remembers")
    compare(frame, methods=["mean", fake])
    for holes in fake.seen:
        hidden = holes & frame.notna().to_numpy()
        assert hidden[:, 0].sum() > 10
        assert np.array_equal(hidden[:, 0], hidden[:, 1])
        assert not hidden[:, 2:].any()
    both = [holes & frame.notna().to_numpy() for holes in fake.seen]
    assert not (both[0] & both[1]).any()


def test_what_a_method_sees_tells_nothing_of_the_hidden_cells():
    fake = Remembers("remembers")
    compare(linear_frame(), methods=["mean", fake])
    assert len(fake.shown) == 3
    for shown in fake.shown:
        assert np.allclose(shown.mean(), 0)
        assert np.allclose(shown.std(ddof=0), 1)


def test_a_table_without_holes_loses_cells_at_random():
    result = compare(linear_frame(holes=0.0))
    assert result.best == "em-gaussian"
    assert "completely at random, as the table has no holes" in result.notes[0]
    assert result.scores.n_cells.sum() == pytest.approx(0.3 * 1200, rel=0.3)


def test_a_row_that_is_hidden_in_several_repetitions_is_one_row():
    rng = np.random.default_rng(0)
    coded = Coded(("a", "b"), rng.normal(size=(60, 2)), np.zeros(2, dtype=int))
    gaps = rng.normal(size=60) ** 2  # of both columns alike: the second repetition tells nothing new
    cells = np.zeros((2, 60, 2), dtype=bool)
    cells[0, :, 0] = cells[1, :, 1] = True
    answers = {"one": {r: coded.x[:, r] + gaps for r in range(2)}}

    def score_of(*repetitions):
        return score(coded, Hidden(cells, "random"), answers, ["one"], repetitions, np.random.default_rng(1))

    assert score_of(0, 1).n_rows == 60
    assert score_of(0, 1).draws.std() == pytest.approx(score_of(0).draws.std(), rel=0.1)


@pytest.mark.parametrize("container", ["polars", "pyarrow", "numpy", "nullable"])
def test_other_containers_give_the_same(container, result):
    frame = linear_frame()
    if container == "polars":
        table = pytest.importorskip("polars").DataFrame(frame.to_dict("list"), nan_to_null=True)
    elif container == "pyarrow":
        table = pa.Table.from_pandas(frame)
    else:
        table = frame.to_numpy() if container == "numpy" else frame.convert_dtypes()
    other = compare(table, methods=["mean", "em-gaussian", "knn-5"])
    assert other.table["error"].to_numpy() == pytest.approx(result.table["error"].to_numpy())


def test_every_kind_of_column_is_compared_and_filled():
    frame = ugly_frame(200).reset_index(drop=True)
    frame["name"] = [f"person {i}" for i in range(len(frame))]
    frame["same"] = "x"
    frame["nothing"] = np.nan
    result = compare(frame, methods=["mean", "knn-5"])
    assert result.best == "knn-5"
    assert len(result.columns.columns) == 7
    assert set(result.prepared.left_out) == {"name", "same", "nothing"}
    assert result.table["accuracy"].between(0, 1).all()
    completed = result.impute(frame.drop(columns=["name", "same", "nothing"]))
    assert not completed.isna().any().any()
    assert completed.dtypes.equals(frame.dtypes[: len(completed.columns)])
    known = frame[completed.columns].notna()
    assert completed.where(known).equals(frame[completed.columns].where(known))


def test_categories_alone():
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=240)
    frame = pd.DataFrame({"a": np.array(list("xyz"))[z], "b": np.array(["u", "v", "w"])[z]})
    result = compare(frame.mask(rng.random(frame.shape) < 0.2), methods=["mean", "knn-5"])
    assert result.best == "knn-5"
    assert result.table["rmse"].isna().all()
    assert result.table["accuracy"].iloc[0] > result.table["accuracy"].iloc[1] + 0.3


def test_columns_with_hardly_any_hidden_cell_are_shown_but_do_not_count():
    frame = linear_frame()
    frame["few"] = frame["a"].fillna(0).where(frame.index > 3)
    result = compare(frame)
    facts = result.column_facts.set_index("column")
    assert facts["counts"].tolist() == [True] * 4 + [False]
    assert result.table["error"].to_numpy() == pytest.approx(
        result.columns[list("abcd")].mean(axis=1).to_numpy()
    )
    assert not facts.loc["few", "cells"] or any(
        "Too few hidden cells to count: few." in n for n in result.notes
    )


def test_a_long_table_is_sampled_and_that_is_said():
    result = compare(linear_frame(400), max_rows=150)
    assert any("150 of 400 rows, chosen at random" in note for note in result.notes)
    assert len(result.prepared.coded.x) == 150


def test_mistakes_are_told():
    with pytest.raises(InputError, match="needs 20 rows at least"):
        compare(linear_frame(8))
    with pytest.raises(InputError, match="two columns that can be filled"):
        compare(linear_frame()[["a"]])
    with pytest.raises(InputError, match="known cells to hide"):
        compare(linear_frame(25, holes=0.0).assign(a=lambda f: f["a"].where(f.index != 3)), repeats=1)
    with pytest.raises(SettingError, match="'mce' is not"):
        compare(linear_frame(), methods=["mean", "mce"])
    with pytest.raises(SettingError, match=r"two methods at least.*such as mice"):
        compare(linear_frame(), methods=["mean"])
    with pytest.raises(SettingError, match="twice"):
        compare(linear_frame(), methods=["mean", "mean"])
    with pytest.raises(SettingError, match="repeats must be"):
        compare(linear_frame(), repeats=0)
    with pytest.raises(SettingError, match="methods that finish, however: none did"):
        compare(linear_frame(), methods=[Raises("a"), Raises("b")])


def test_one_finisher_is_nothing_to_compare():
    result = compare(linear_frame(), methods=["mean", Raises("a")])
    assert result.verdict == (
        "There is nothing to compare with: only mean finished. The others did not (a: failed: RuntimeError: "
        "this method has a fault). Name other methods."
    )
    assert result.table.loc[0, ["probability_best", "columns_best", "columns_level"]].isna().all()
    assert "99 %" not in result._repr_html_()


@pytest.fixture
def towns_csv(tmp_path):
    """Two categories of very many levels, with which chained equations would take long."""
    frame = linear_frame(600).assign(
        town=[f"town {i % 200}" for i in range(600)],
        street=[f"street {i % 150}" for i in range(600)],
        sex="m",
    )
    frame.loc[::2, "sex"] = "f"
    path = tmp_path / "towns.csv"
    frame.to_csv(path, index=False)
    return path


def test_many_levels_are_named_as_the_likely_reason_of_a_slow_method(towns_csv):
    frame = pd.read_csv(towns_csv)
    alone = compare(frame, methods=["mean", "mice"], repeats=1, time_budget=5)
    assert "(mice: not tried: it would take about" in alone.verdict
    assert (
        "Columns with very many levels are the likely reason: town (200) and street (150)." in alone.verdict
    )
    assert "To mice each level is" in alone.verdict
    assert "--kind" in alone.verdict
    assert "--missing" in alone.verdict
    among = compare(frame, methods=["mean", "mice", "median"], repeats=1, time_budget=5)
    assert "Not compared: mice. Columns with very many levels are the likely reason" in among.verdict
    assert "sex (" not in among.verdict
    among.outcomes[1].note = "stopped after 40 s"
    stopped = dataclasses.replace(among)
    assert "To mice each level is" in stopped.verdict
    among.outcomes[1].facts = DIFFPUTER_FAST  # for which a level is no column
    assert "many levels" not in dataclasses.replace(among).verdict


@pytest.mark.usefixtures("here")
def test_the_command_fails_where_nothing_was_compared(towns_csv, tmp_path):
    options = ("compare", towns_csv, "--methods", "mean,mice", "--time-budget", "5", "--repeats", "1")
    full, report = tmp_path / "full.csv", tmp_path / "report.html"
    shown = run(*options, "--report", report, "--output", full, code=1)
    assert "99 %" not in shown.stdout + report.read_text().split("By column")[0].split("</style>")[1]
    assert "only mean finished. The others did not (mice:" in " ".join(shown.stdout.split())
    assert f"{full} was not written, as no two methods finished" in shown.stderr
    assert not full.exists()
    quiet = run(*options, "--quiet", code=1)
    assert quiet.stdout == ""
    assert quiet.stderr.startswith("error: There is nothing to compare with: only mean finished.")


def test_a_column_on_which_methods_are_level_is_no_win(tmp_path):
    rng = np.random.default_rng(0)
    frame = linear_frame().assign(level=np.where(rng.random(300) < 0.98, "x", "y"))
    frame["level"] = frame["level"].mask(rng.random(300) < 0.2)
    result = compare(frame, methods=["mean", "median"], repeats=1)
    table = result.table
    assert table["columns_level"].tolist() == [1, 1]
    assert table["columns_best"].sum() == 4
    assert (
        f"is best on {table['columns_best'][0]} of 5 columns alone, level with others on 1;" in result.verdict
    )
    assert result.column_facts.set_index("column")["best"]["level"] == ""
    result.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"{table['columns_best'][0]} of 5, level on 1" in page
    heat = page.split("<table class=heat>")[1].split("</table>")[0]
    (row,) = (row for row in heat.split("</tr>") if "<td class=words>level<" in row)
    assert "<b>" not in row
    assert heat.count("<b>") == 4


def test_methods_that_are_equal_throughout_have_no_winner_in_bold(tmp_path):
    result = compare(linear_frame(), methods=["mean", Fake("twin")], repeats=1)
    assert "mean is best on 0 of 4 columns alone, level with others on 4; 50 % sure" in result.verdict
    result.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<b>" not in page.split("<h2>Ranking")[1]
    assert "name best" not in page


def test_a_column_without_a_name_is_called_by_its_place():
    frame = linear_frame().rename(columns={"d": ""}).assign(id=[f"#{i}" for i in range(300)])
    frame[" "] = 1
    result = compare(frame, repeats=1)
    assert list(result.columns.columns) == ["a", "b", "c", "column 4"]
    assert any(note == "Left out (one value only): column 6." for note in result.notes)


def test_what_is_said_of_the_table_comes_before_the_first_fit():
    class Listens(Fake):
        def misbehave(self, table):
            heard.extend(str(one.message) for one in caught)

    heard = []
    frame = linear_frame().assign(code=["1", "2", "x"] * 100)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compare(frame, methods=[Listens("listens"), "mean"], repeats=1)
    assert any(words.startswith("Numbers stored as text") for words in heard)
    assert set(heard) <= set(result.notes)


def test_diffputer_takes_part():
    result = compare(linear_frame(80), methods=["mean", "diffputer-fast"], time_budget=4, repeats=1)
    assert result.table["rank"].notna().all()


def test_fill_with_keeps_what_imputers_promise():
    frame = ugly_frame(60)
    completed = diffputer.fill_with(frame, "mean")
    assert completed.index.equals(frame.index)
    assert completed.dtypes.equals(frame.dtypes)
    assert not completed.isna().any().any()


def test_the_report_is_whole_and_escaped(tmp_path):
    frame = linear_frame().rename(columns={"a": "<script>alert(1)</script>", "b": '"><img src=x>'})
    result = compare(frame, methods=["mean", "em-gaussian", Raises("<i>bad</i>")])
    path = tmp_path / "report.html"
    result.report(path, source="my <data>.csv")
    page = path.read_text()
    assert result.sentences[0] in page
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "<i>bad" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"<[^>]*(src|href)=", page)
    assert "://" not in page
    assert "fill_with(df, &quot;em-gaussian&quot;, random_state=0)" in page
    for word in ("Ranking", "By column", "What was done", "Not compared", "Settings"):
        assert word in page


def test_the_report_tells_how_to_use_diffputer():
    from diffputer.comparing.comparison import Outcome
    from diffputer.comparing.recipes import Source, write_command, write_python
    from diffputer.methods.ours import DIFFPUTER_BALANCED, DIFFPUTER_PAPER

    outcome = Outcome(DIFFPUTER_BALANCED)
    plain = Source("a b.csv")
    assert write_command(outcome, plain, 7) == "diffputer impute 'a b.csv' --quality balanced --seed 7"
    assert 'DiffPuter(quality="balanced", random_state=7)' in write_python(outcome, plain, 7)
    assert "pd.read_csv('a b.csv')" in write_python(outcome, plain, 7)
    odd = Source("a.tsv", {"missing": ["?"]}, {"categorical_features": ["zip"], "schema": None})
    command = write_command(Outcome(DIFFPUTER_PAPER), odd, 0)
    assert command == "diffputer impute a.tsv --missing '?' --categorical zip --engine paper --seed 0"
    code = write_python(Outcome(DIFFPUTER_PAPER), odd, 0)
    assert "read_table_file('a.tsv', missing=['?']).frame" in code
    assert "random_state=0, categorical_features=['zip']" in code
    assert write_command(outcome, Source(), 0) is None


@pytest.fixture
def ugly_csv(tmp_path):
    frame = ugly_frame(120).reset_index(drop=True)
    frame["id"] = [f"{i:05d}" for i in range(len(frame))]
    path = tmp_path / "ugly.csv"
    path.write_text("\ufeff" + frame.to_csv(index=False, sep=";", decimal=",", na_rep="?"), encoding="utf-8")
    return path


@pytest.fixture
def here(monkeypatch):
    """Methods run in the process of the test: starting another takes seconds."""
    monkeypatch.setattr("diffputer.comparing.running.RunnerElsewhere", RunnerHere)


@pytest.mark.usefixtures("here")
def test_the_command_warns_once_and_in_its_own_words(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,y,c\n" + "".join(f"{i},{i * i if i % 4 else ''},{'ab?'[i % 3]}\n" for i in range(60)))
    words = run("compare", path, "--methods", "mean,median", "--output", tmp_path / "full.csv").stderr
    assert words.count("'c' ('?')") == 1
    assert "If it marks one, name it with --missing" in words


@pytest.mark.usefixtures("here")
def test_the_command_ranks_reports_and_fills(ugly_csv, tmp_path):
    report, full = tmp_path / "report.html", tmp_path / "full.csv"
    shown = run(
        "compare", ugly_csv, "--missing", "?", "--methods", "mean,knn-5", "--report", report, "--output", full
    )
    assert "knn-5" in shown.stdout
    assert "sure that it is best among these" in " ".join(shown.stdout.split())
    assert "note: Left out (text or identifier): id." in shown.stderr
    assert f"wrote {report} and {full}" in shown.stderr
    assert "Which imputer for" in report.read_text()
    before, after = (pd.read_csv(path, sep=";", decimal=",", dtype=str) for path in (ugly_csv, full))
    assert (after != "?").all().all()
    assert (before.where(before != "?") == after).sum().sum() == (before != "?").sum().sum()


@pytest.mark.parametrize("budget", [1e-6, 1000.0])
def test_filling_in_is_within_the_time_budget(ugly_csv, tmp_path, monkeypatch, budget):
    from diffputer.comparing import running
    from diffputer.comparing.comparison import Comparison

    quick = compare(linear_frame(), methods=[Fake("first"), "mean"], repeats=1)
    quick.outcomes[0].facts, quick.outcomes[0].own = DIFFPUTER_FAST, None
    quick = dataclasses.replace(
        quick, scores=dataclasses.replace(quick.scores, methods=("diffputer-fast", "mean"))
    )
    asked, filled = [], []

    def run_nothing(*args, **options):
        asked.append((options["time_budget"], options["filling_share"]))
        return quick

    def impute(self, table, **settings):
        filled.append((self.best, settings))
        return table

    monkeypatch.setattr(running, "run_comparison", run_nothing)
    monkeypatch.setattr(Comparison, "impute", impute)
    options = ("--missing", "?", "--time-budget", str(budget), "--device", "cpu")
    run("compare", ugly_csv, *options)
    run("compare", ugly_csv, *options, "--output", tmp_path / "full.csv")
    assert asked == [(budget, 0.0), (budget, running.FILLING_SHARE)]
    ((best, settings),) = filled
    assert best == "diffputer-fast"
    assert settings["device"] == "cpu"
    most = max(running.OWN_LIMIT * budget, running.FEWEST_SECONDS)
    assert running.FEWEST_SECONDS <= settings["time_budget"] <= most


def test_what_is_kept_for_filling_in_is_not_raced_for():
    from diffputer.comparing.running import run_comparison

    kept = run_comparison(
        linear_frame(),
        methods=[*QUICK, Fake("late")],
        time_budget=1000,
        repeats=2,
        max_rows=1000,
        isolate=False,
        filling_share=1.0,
    )
    assert kept.time_budget == 1000
    assert kept.table.set_index("method")["note"]["late"] == "not tried: the time budget was used up"


@pytest.mark.usefixtures("here")
def test_a_table_on_standard_output_is_alone_there(ugly_csv):
    shown = run("compare", ugly_csv, "--missing", "?", "--methods", "mean,knn-5", "--output", "-")
    assert shown.stdout.startswith("\ufeffsize;count;")
    assert len(shown.stdout.splitlines()) == 121
    assert "best among these" in " ".join(shown.stderr.split())


@pytest.mark.usefixtures("here")
def test_the_quiet_command_says_the_name(ugly_csv):
    shown = run("compare", ugly_csv, "--missing", "?", "--methods", "mean,knn-5", "--quiet")
    assert shown.stdout == "knn-5\n"
    assert shown.stderr == ""


@pytest.mark.usefixtures("here")
def test_the_command_shows_what_an_interrupted_comparison_has(ugly_csv, monkeypatch):
    from diffputer.comparing import candidates
    from diffputer.methods.table import METHODS

    interrupts = Interrupts("interrupts")
    monkeypatch.setitem(METHODS, "interrupts", (interrupts.facts, lambda facts: interrupts))
    assert "interrupts" in candidates.METHODS
    shown = run("compare", ugly_csv, "--missing", "?", "--methods", "mean,knn-5,interrupts", code=130)
    assert "knn-5" in shown.stdout
    assert "interrupted" in shown.stderr
    shown = run("compare", ugly_csv, "--missing", "?", "--methods", "interrupts,mean", code=130)
    assert shown.stderr == "interrupted: no two methods had finished\n"


def test_mistakes_of_the_command_are_one_line(ugly_csv, tmp_path):
    assert "mce" in run("compare", ugly_csv, "--methods", "mean,mce", code=2).stderr
    assert "nowhere.csv" in run("compare", tmp_path / "nowhere.csv", code=2).stderr
    assert "file of its own" in run("compare", ugly_csv, "--report", ugly_csv, code=2).stderr
    roundabout = ugly_csv.parent / "." / ".." / ugly_csv.parent.name / ugly_csv.name
    assert "file of its own" in run("compare", ugly_csv, "--report", roundabout, code=2).stderr
    assert "not be the input" in run("compare", ugly_csv, "--output", roundabout, code=2).stderr
    assert "however: --repeats=0" in run("compare", ugly_csv, "--repeats", "0", code=2).stderr
    assert "--time-budget must be" in run("compare", ugly_csv, "--time-budget", "-3", code=2).stderr
    assert (
        "folder must exist" in run("compare", ugly_csv, "--report", tmp_path / "no" / "r.html", code=2).stderr
    )

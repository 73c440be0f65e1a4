"""What a report concludes: from held-out cells, from few observed cells, and from few draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diffputer.analysis import make_report
from diffputer.analysis.origin import Origin, join_origins
from diffputer.analysis.verdicts import Verdict, judge, judge_line, weak_columns
from diffputer.held_out import column_errors, ratio_errors
from diffputer.tables.frames import read_table
from diffputer.tables.kinds import describe
from diffputer.tables.schema import Column, Schema

from .test_report import Page, data_of, draws_of, table


def held_out(kind: str, n: int, error: float, baseline: float) -> Origin:
    line = {"kind": kind, "n": n, "error": error, "baseline": baseline, "ratio": error / baseline}
    return Origin(held_out=pd.DataFrame([line], index=["x" if kind == "continuous" else "c"]))


@pytest.mark.parametrize(
    ("kind", "n", "error", "baseline", "bar", "severity"),
    [
        ("continuous", 12, 0.68, 0.69, "", "look"),
        ("continuous", 200, 0.68, 0.69, "bad", "serious"),
        ("continuous", 200, 0.5, 0.69, "good", None),
        ("continuous", 12, 0.5, 0.69, "", "look"),
        ("categorical", 9, 0.33, 0.33, "", "look"),
        ("categorical", 900, 0.33, 0.33, "bad", "serious"),
        ("categorical", 900, 0.2, 0.33, "good", None),
        ("categorical", 3, 0.0, 0.33, "good", None),
    ],
)
def test_few_held_out_cells_settle_nothing(
    kind: str, n: int, error: float, baseline: float, bar: str, severity: str | None
) -> None:
    frame = table()
    page = make_report(frame, draws_of(frame), origin=held_out(kind, n, error, baseline))
    found = [line[0] for column in data_of(page)["columns"] for line in column["warnings"]]
    assert found == ([severity] if severity else [])
    bars = [one["class"] for one in Page(page).named("span") if (one.get("class") or "").startswith("bar ")]
    coloured = [word for word in bars if word != "bar "]
    assert coloured == ([f"bar {bar}"] if bar else [])
    assert ("not known yet" in page.split('id="data"')[0]) == (not bar)


@pytest.mark.parametrize("tail", [0.0, 1.0, 2.0])
def test_verdicts_are_right_as_often_as_they_say(tail: float) -> None:
    rng = np.random.default_rng(0)

    def share(r_squared: float, n: int, wanted: Verdict) -> float:
        """Of normal columns, or of their exponentials: lognormal ones, up to a skewness of 400."""
        signal = np.sqrt(r_squared) * rng.normal(size=(1000, n))
        truth, expected, mean = signal + np.sqrt(1 - r_squared) * rng.normal(size=(1000, n)), signal, 0.0
        if tail:
            truth, mean = np.exp(tail * truth), float(np.exp(tail**2 / 2))
            expected = np.exp(tail * signal + tail**2 * (1 - r_squared) / 2)
        everywhere = np.ones(truth.T.shape, dtype=bool), np.arange(1000), np.zeros(1000, dtype=np.int64)
        given = [one.T.astype(np.float32) for one in (truth, expected, np.full_like(truth, mean))]
        errors, baselines = (column_errors(given[0], one, *everywhere)[0] for one in given[1:])
        lines = zip(errors, baselines, ratio_errors(*given, *everywhere), strict=True)
        return float(np.mean([judge(e, b, n, levels=False, ratio_error=s) == wanted for e, b, s in lines]))

    for n in (12, 50, 200):
        assert share(0.36, n, Verdict.NO_BETTER) < 0.05  # a fifth better than the mean
        assert share(0.0, n, Verdict.BETTER) < 0.05
    assert share(0.0, 200, Verdict.NO_BETTER) > 0.95
    assert share(0.9, 50, Verdict.BETTER) > 0.95


def test_verdicts_without_standard_errors_suit_normal_columns() -> None:
    rng = np.random.default_rng(0)
    noise, signal = rng.normal(size=(2, 500, 50))
    for strength, wanted in ((0.0, Verdict.NO_BETTER), (0.87, Verdict.BETTER)):
        rest = np.sqrt(1 - strength**2) * noise
        errors, baselines = np.abs(rest).mean(axis=1), np.abs(rest + strength * signal).mean(axis=1)
        found = [judge(e, b, 50, levels=False) for e, b in zip(errors, baselines, strict=True)]
        assert found.count(wanted) > 0.95 * len(found)


def test_fits_that_are_joined_have_a_joined_standard_error() -> None:
    one = held_out("continuous", 100, 0.5, 0.8)
    assert one.held_out is not None
    one.held_out["ratio_error"] = 0.1
    other = Origin(seed=2, held_out=one.held_out)
    joined = join_origins(one, other)
    assert joined is not None
    assert joined.held_out is not None
    assert joined.held_out["ratio_error"].tolist() == pytest.approx([0.1 / np.sqrt(2)])
    older = join_origins(one, held_out("continuous", 50, 0.5, 0.8))
    assert older is not None
    assert older.held_out is not None
    assert "ratio_error" not in older.held_out


def test_a_column_filled_from_a_handful_of_cells_is_a_warning_whatever_it_holds() -> None:
    rng = np.random.default_rng(0)
    n = 240
    few = np.arange(n) < 5
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "once": np.where(np.arange(n) < 1, 3.0, np.nan),
            "same": np.where(few, 3.0, np.nan),
            "few": np.where(few, rng.normal(size=n), np.nan),
            "level": pd.Series(np.where(few, "a", None)),
        }
    )
    page = make_report(frame, draws_of(frame))
    title = "Columns imputed from little evidence"
    found = {
        column["name"]: [words for _, name, words in column["warnings"] if name == title]
        for column in data_of(page)["columns"]
    }
    assert found == {
        "x": [],
        "once": ["1 known value, 100% missing"],
        "same": ["5 known values, 98% missing"],
        "few": ["5 known values, 98% missing"],
        "level": ["5 known values, 98% missing"],
    }


def test_single_cells_are_shown_with_the_range_of_their_draws() -> None:
    frame = table()
    draws = draws_of(frame, 5)
    column = data_of(make_report(frame, draws))["columns"][0]
    assert column["sure"]["draws"] == 5
    drawn = np.array([one["x"].to_numpy() for one in draws])
    places = [cell[0] - 1 for cell in column["chart"]["cells"]]
    width = np.ptp(drawn[:, places], axis=0)
    shown = np.array([cell[3] - cell[1] for cell in column["chart"]["cells"]])
    assert np.corrcoef(width, shown)[0, 1] > 0.999
    assert "90 %" not in Page(make_report(frame, draws)).text.split("Glossary")[0]


@pytest.mark.parametrize(
    ("column", "kind", "n", "ratio", "bar", "title"),
    [
        ("x", "continuous", 200, 1.0, 0.01, "Columns that could not be predicted"),
        ("x", "continuous", 12, 1.0, 0.3, "Columns imputed from little evidence"),
        ("c", "categorical", 21, 0.95, 0.049, "Columns imputed from little evidence"),  # one cell of 21
    ],
)
def test_what_held_out_cells_say_of_a_column_is_said_once(
    column: str, kind: str, n: int, ratio: float, bar: float, title: str
) -> None:
    frame, baseline = table(), 20 / 21
    line = {"kind": kind, "n": n, "error": ratio * baseline, "baseline": baseline}
    scores = pd.DataFrame([{**line, "ratio": ratio, "ratio_error": bar}], index=[column])
    schema = describe(read_table(frame))
    page = data_of(make_report(frame, draws_of(frame), schema=schema, origin=Origin(held_out=scores)))
    found = {one["name"]: [words for _, words, _ in one["warnings"]] for one in page["columns"]}
    assert found.pop(column) == [title]
    assert not any(found.values())


def test_columns_without_clear_skill_are_those_that_the_report_does_not_find_better() -> None:
    rng = np.random.default_rng(0)
    n_cells, lines, kinds = 30, [], {}
    for number in range(400):
        numeric, skill = number % 2 == 0, number % 4 < 2
        if numeric:
            truth = rng.normal(size=n_cells)
            wrong = np.abs(truth - (truth + 0.1 * rng.normal(size=n_cells) if skill else 0.1))
            own = np.abs(truth)
        else:
            own = (rng.random(n_cells) < 0.4).astype(float)
            wrong = np.zeros(n_cells) if skill else (rng.random(n_cells) < 0.4).astype(float)
        ratio = wrong.mean() / own.mean()
        error = (wrong - ratio * own).std(ddof=1) / np.sqrt(n_cells) / own.mean()
        kinds[f"c{number}"] = "continuous" if numeric else "categorical"
        scores = (n_cells, wrong.mean(), own.mean(), ratio, error)
        lines.append((kinds[f"c{number}"], *scores))
    names = ["kind", "n", "error", "baseline", "ratio", "ratio_error"]
    held = pd.DataFrame(lines, columns=names, index=list(kinds))
    schema = Schema(tuple(Column(name, kind, n_observed=300, n_missing=30) for name, kind in kinds.items()))
    named = {one.column for one in weak_columns(schema, held)}
    assert named == {line.Index for line in held.itertuples() if judge_line(line) != Verdict.BETTER}
    noise = {f"c{number}" for number in range(400) if number % 4 >= 2}
    assert not named - noise
    assert len(named) > 0.9 * len(noise)


@pytest.mark.parametrize("wrong_by_mode", [0, 1, 2])
def test_a_column_whose_held_out_cells_are_all_right_is_not_weak(wrong_by_mode: int) -> None:
    line = {"kind": "boolean", "n": 12, "error": 0.0, "baseline": wrong_by_mode / 12, "ratio_error": 0.0}
    held = pd.DataFrame([{**line, "ratio": np.nan if not wrong_by_mode else 0.0}], index=["copy"])
    schema = Schema((Column("copy", "boolean", n_observed=300, n_missing=30),))
    assert weak_columns(schema, held) == []

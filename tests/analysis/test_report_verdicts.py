"""What a report concludes: from held-out cells, from few observed cells, and from few draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diffputer.analysis import make_report
from diffputer.analysis.origin import Origin
from diffputer.analysis.verdicts import Verdict, judge

from .test_report import Page, data_of, draws_of, table


def held_out(kind: str, n: int, error: float, baseline: float) -> Origin:
    line = {"kind": kind, "n": n, "error": error, "baseline": baseline, "ratio": error / baseline}
    return Origin(held_out=pd.DataFrame([line], index=["x" if kind == "continuous" else "c"]))


@pytest.mark.parametrize(
    ("kind", "n", "error", "baseline", "bar", "severity"),
    [
        ("continuous", 12, 0.68, 0.69, "", "note"),
        ("continuous", 200, 0.68, 0.69, "bad", "serious"),
        ("continuous", 200, 0.5, 0.69, "good", None),
        ("continuous", 12, 0.5, 0.69, "", None),
        ("categorical", 9, 0.33, 0.33, "", "note"),
        ("categorical", 900, 0.33, 0.33, "bad", "serious"),
        ("categorical", 900, 0.2, 0.33, "good", None),
        ("categorical", 3, 0.0, 0.33, "", None),
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


def test_verdicts_are_right_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)

    def share(r_squared: float, n: int, wanted: Verdict) -> float:
        signal = np.sqrt(r_squared) * rng.normal(size=(2000, n))
        truth = signal + np.sqrt(1 - r_squared) * rng.normal(size=(2000, n))
        errors, baselines = np.abs(truth - signal).mean(axis=1), np.abs(truth).mean(axis=1)
        pairs = zip(errors.tolist(), baselines.tolist(), strict=True)
        return float(np.mean([judge(e, b, n, levels=False) == wanted for e, b in pairs]))

    for n in (12, 50, 200):
        assert share(0.36, n, Verdict.NO_BETTER) < 0.05  # a fifth better than the mean
        assert share(0.0, n, Verdict.BETTER) < 0.05
    assert share(0.0, 200, Verdict.NO_BETTER) > 0.95
    assert share(0.75, 50, Verdict.BETTER) > 0.95


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
    title = "Filled from very few observed cells"
    found = {
        column["name"]: [words for _, name, words in column["warnings"] if name == title]
        for column in data_of(page)["columns"]
    }
    assert found == {
        "x": [],
        "once": ["1 observed cell for 239"],
        "same": ["5 observed cells for 235"],
        "few": ["5 observed cells for 235"],
        "level": ["5 observed cells for 235"],
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

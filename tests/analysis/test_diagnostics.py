"""Diagnostics say what is so: known drifts, exact samplers, traces of every shape."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from diffputer.analysis.diagnostics import (
    convergence,
    drift,
    kolmogorov_smirnov,
    never_filled,
    not_predicted,
)
from diffputer.analysis.overimputation import over_impute
from diffputer.errors import InputError, SettingError

from ..conftest import ugly_frame


def trace(errors, changes=None, baseline=0.8):
    changes = changes or [0.5] * len(errors)
    return [
        SimpleNamespace(round=k + 1, held_out_error=error, change=change, baseline_error=baseline)
        for k, (error, change) in enumerate(zip(errors, changes, strict=True))
    ]


@pytest.mark.parametrize("value", [7.0, 0.0, 0.1, -1e300])
def test_a_constant_that_is_filled_with_itself_has_not_drifted(value):
    holes = pd.DataFrame({"k": [value, value, None] * 20, "x": np.arange(60.0)})
    line = drift(holes, holes.fillna(value)).to_frame().iloc[0]
    assert line["difference"] == 0
    assert np.isnan(line["spread"])
    assert not line["marked"]
    assert drift(holes, holes.fillna(value + 1 + abs(value))).to_frame()["marked"][0]  # another value has


@pytest.mark.parametrize(
    ("lines", "converged", "words", "best"),
    [
        (trace([]), None, "Nothing was fitted", 0),
        (trace([0.4]), None, "One round", 1),
        (trace([0.5, 0.4, 0.41]), True, "after round 2", 2),
        (trace([0.5, 0.4, 0.3]), False, "raise em_rounds", 3),
        (trace([0.5, 0.4, 0.39], [0.5, 0.2, 0.001]), True, "changed filled cells by 0.001", 3),
        (trace([0.9, 0.85], baseline=0.8), None, "No better than column means", 2),
        (trace([np.nan, np.nan], [0.5, 0.01], np.nan), True, "no cells were held out", 2),
        (trace([np.nan, np.nan], [0.5, 0.3], np.nan), False, "Not settled", 2),
        (trace([np.nan], baseline=np.nan), None, "no held-out cells", 1),
    ],
)
def test_verdicts_on_traces(lines, converged, words, best):
    got = convergence(lines)
    assert got.converged is converged
    assert words in got.verdict
    assert got.best_round == best
    assert len(got.to_frame()) == len(lines)
    assert got.verdict in repr(got)


def test_the_trace_of_an_imputer_is_understood():
    from diffputer.trace import EMRound

    line = EMRound(1, 100, 0.5, 0.6, 0.4, 0.8, 0.5, 1.0, 1.0)
    assert convergence([line, line]).converged


def test_drift_of_a_known_shift():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    holes = pd.DataFrame({"x": np.where(np.arange(2000) < 1000, x, np.nan), "c": ["a"] * 1500 + [None] * 500})
    full = holes.assign(x=np.where(np.arange(2000) < 1000, x, 1 + 0.5 * x), c="b")
    full["c"] = holes["c"].fillna("b")
    lines = drift(holes, [full, full]).to_frame().set_index("column")
    assert lines.loc["x", "difference"] == pytest.approx(1.0, abs=0.1)
    assert lines.loc["x", "spread"] == pytest.approx(0.5, abs=0.03)
    assert lines.loc["x", "distance"] == pytest.approx(stats.ks_2samp(x[:1000], 1 + 0.5 * x[1000:]).statistic)
    assert lines.loc["c", "distance"] == 1.0
    assert lines["marked"].all()
    assert lines["n_filled"].tolist() == [1000, 500]  # not twice
    same = holes.assign(x=x, c="a")
    assert not drift(holes, same).to_frame()["marked"].any()
    assert "no verdict" in repr(drift(holes, same))


def marked(values, holes, filled=None):
    column = pd.Series(values)
    full = column if filled is None else column.where(~holes, filled)
    return bool(
        drift(pd.DataFrame({"c": column.mask(holes)}), pd.DataFrame({"c": full})).to_frame()["marked"][0]
    )


SAMPLES = {
    "60 levels": lambda rng: (rng.choice([f"L{k}" for k in range(60)], 400), rng.random(400) < 0.25),
    "2 levels": lambda rng: (rng.choice(["a", "b"], 60), rng.random(60) < 0.25),
    "few normal": lambda rng: (rng.normal(size=100), np.arange(100) < 15),
    "heavy tails": lambda rng: (rng.standard_t(2, size=120), np.arange(120) < 40),
    "skewed": lambda rng: (rng.lognormal(0, 1.5, 80), np.arange(80) < 20),
    "counts": lambda rng: (rng.poisson(0.7, 70).astype(float), np.arange(70) < 20),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_true_values_are_hardly_ever_marked(name):
    found = [marked(*SAMPLES[name](np.random.default_rng(seed))) for seed in range(100)]
    assert sum(found) <= 4  # 1 % is meant


def test_real_drift_is_still_found():
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, holes = rng.normal(size=800), np.arange(800) < 200
        levels = rng.choice([f"L{k}" for k in range(60)], 800)
        other = rng.choice(
            [f"L{k}" for k in range(60)], 800, p=np.r_[np.full(30, 0.7), np.full(30, 1.3)] / 60
        )
        found.append(
            (
                marked(x, holes, x + 0.5),
                marked(x, holes, 0.3 * x),
                marked(levels, holes, np.where(rng.random(800) < 0.3, "L0", levels)),
                marked(levels, holes, other),
            )
        )
    shares = np.mean(found, axis=0)
    assert shares[:3].tolist() == [1.0, 1.0, 1.0]
    assert shares[3] < 1.0  # a third less or more of each of 60 levels cannot be seen in 200 cells


def test_draws_of_the_same_cells_are_not_taken_for_more_cells():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        x, holes = rng.normal(size=60), np.arange(60) < 12
        table, full = pd.DataFrame({"x": np.where(holes, np.nan, x)}), pd.DataFrame({"x": x})
        noisy = [full + np.where(holes, rng.normal(0, 0.1, 60), 0)[:, None] for _ in range(20)]
        found.append(drift(table, noisy).to_frame()["marked"][0])
    assert sum(found) <= 2


def test_the_kolmogorov_smirnov_distance_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 50).astype(float), rng.integers(3, 12, 70).astype(float)
    assert kolmogorov_smirnov(a, b) == pytest.approx(stats.ks_2samp(a, b).statistic)


@pytest.mark.parametrize("convert", [lambda f: f, pl.from_pandas, pa.Table.from_pandas])
def test_every_kind_and_container(convert):
    holes = ugly_frame().reset_index(drop=True)
    full = holes.bfill().ffill()
    lines = drift(convert(holes), [convert(full)] * 2).to_frame()
    assert set(lines["column"]) == set(holes.columns)
    assert lines["distance"].between(0, 1).all()
    assert len(drift(convert(full), convert(full)).to_frame()) == 0
    with pytest.raises(InputError, match="rows and columns"):
        drift(convert(holes), convert(full.head(3)))


def test_columns_that_cannot_be_compared_are_left_out():
    frame = pd.DataFrame({"nothing": [np.nan] * 3, "k": [1.0, None, 1.0], "id": ["a", "b", None]})
    lines = drift(frame, frame.fillna({"k": 1.0})).to_frame()
    assert lines["column"].tolist() == ["k"]
    assert not lines["marked"].any()


def test_levels_that_were_never_filled():
    holes = pd.DataFrame({"c": pd.Categorical(["a"] * 90 + ["b"] * 10 + [None] * 50, categories=list("abz"))})
    got = never_filled(holes, [holes.fillna("a")] * 2)
    assert got["level"].tolist() == ["b"]  # z was declared and never seen
    assert got["expected"][0] == pytest.approx(5.0)
    assert got["probability"][0] == pytest.approx(0.9**50)
    assert never_filled(holes, holes).empty
    assert never_filled(holes, [holes.fillna("a"), holes.fillna("b")]).empty


def test_draws_of_the_same_cells_make_an_unfilled_level_no_less_likely():
    holes = pd.DataFrame({"c": ["a"] * 95 + ["b"] * 5 + [None] * 5, "x": range(105)})
    filled = holes.fillna({"c": "a"})
    once, often = never_filled(holes, [filled]), never_filled(holes, [filled] * 20)
    pd.testing.assert_frame_equal(once, often)
    assert once["expected"].tolist() == pytest.approx([0.25])
    assert once["probability"].tolist() == pytest.approx([0.95**5])


def exact_normal(table, m):
    """The right conditional draws of two standard normal columns of correlation 0.8."""
    rng = np.random.default_rng(int(table.isna().sum().sum()))
    out = []
    for _ in range(m):
        z = rng.normal(size=(2, len(table)))
        x = table["x"].fillna(0.8 * table["y"].fillna(0.0) + 0.6 * z[0])
        x = x.where(table.notna().any(axis=1), z[0])
        out.append(table.assign(x=x, y=table["y"].fillna(0.8 * x + 0.6 * z[1])))
    return out


def normal_table(n=1500):
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "y": 0.8 * x + 0.6 * rng.normal(size=n)})
    return frame.mask(rng.random(frame.shape) < 0.1)


def test_over_imputation_of_exact_draws_covers_what_it_says():
    frame = normal_table()
    checked = over_impute(frame, exact_normal)
    lines = checked.to_frame()
    assert lines["cells"].tolist() == frame.notna().sum().tolist()
    assert lines["coverage"].to_numpy() == pytest.approx(0.9, abs=0.03)
    # About a fifth of the other cells are hidden or missing as well: there the deviation is 1 and not 0.6.
    expected = np.sqrt((0.8 * 0.36 + 0.2) * (1 + 1 / 19))
    assert lines["error"].to_numpy() == pytest.approx(expected, abs=0.06)
    assert (lines["bias"].abs() < 4 * lines["bias_error"]).all()
    assert not_predicted(checked) == ()
    u = checked["x"].transform()
    assert stats.kstest(u, "uniform").pvalue > 0.001
    assert "1,3" in repr(checked) or "2,7" in repr(checked)


def test_the_baseline_knows_only_what_was_left_observed():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": ["a", "b"] * 50, "x": rng.normal(size=100)})

    def naive(table, m):  # what the baseline means: the mode and the mean of the cells that are left
        return [table.fillna({"c": table["c"].mode()[0], "x": table["x"].mean()})] * m

    for max_folds in (1, None):
        for seed in range(4):
            lines = over_impute(frame, naive, max_folds=max_folds, rng=seed).to_frame()
            assert lines["baseline"].tolist() == pytest.approx(lines["error"].tolist())
    # Of even levels the one that is left more often was hidden less often: the baseline is worse than a coin.
    assert lines["baseline"][0] >= 0.5


def test_over_imputation_finds_what_is_wrong():
    def shifted(table, m):
        rng = np.random.default_rng(0)
        noise = 0.1 * rng.normal(size=(m, *table.shape))
        return [table.fillna(pd.DataFrame(1.0 + one, table.index, table.columns)) for one in noise]

    checked = over_impute(normal_table(), shifted, max_folds=3)
    lines = checked.to_frame()
    assert lines["bias"].to_numpy() == pytest.approx(1.0, abs=0.1)
    assert (lines["coverage"] < 0.2).all()
    assert not_predicted(checked) == ("x", "y")
    cells = checked.to_cells()
    assert len(cells) == lines["cells"].sum()
    assert (cells["lower"] <= cells["upper"]).all()


def deck(convert):
    def draw(table, m):
        frame = table if isinstance(table, pd.DataFrame) else table.to_pandas()
        rng = np.random.default_rng(0)
        out = []
        for _ in range(m):
            full = frame.copy()
            for name in frame:
                known = frame[name].dropna()
                if len(known):
                    holes = frame[name].isna().to_numpy()
                    donors = known.iloc[rng.integers(len(known), size=holes.sum())].to_numpy()
                    full.loc[holes, name] = donors
            out.append(convert(full))
        return out

    return draw


@pytest.mark.parametrize("convert", [lambda f: f, pl.from_pandas, pa.Table.from_pandas])
def test_over_imputation_of_every_kind_and_container(convert):
    frame = ugly_frame(120).reset_index(drop=True)
    frame["id"], frame["nothing"], frame["k"] = [f"i{k}" for k in range(120)], np.nan, 1.0
    checked = over_impute(convert(frame), deck(convert), max_folds=4)
    lines = checked.to_frame().set_index("column")
    assert list(lines.index) == ["size", "count", "flag", "town", "grade", "day", "wait"]
    assert lines["coverage"].notna().tolist() == [True, True, False, False, False, True, True]
    assert (lines["error"] > 0.3).all()
    cells = checked.to_cells()
    town = cells[cells["column"] == "town"]
    assert set(town["truth"]) <= {"Ulm", "Köln", "Jena"}
    assert (town["truth"].to_numpy() == frame["town"][town["row"].to_numpy()].to_numpy()).all()
    day = cells[cells["column"] == "day"]
    assert all(pd.Timestamp(a) == b for a, b in zip(day["truth"], frame["day"][day["row"]], strict=True))
    with pytest.raises(InputError, match="'nonsense'"):
        checked["nonsense"]


def test_bad_wishes():
    frame = normal_table(30)
    with pytest.raises(SettingError, match="19"):
        over_impute(frame, exact_normal, n_draws=5)
    with pytest.raises(SettingError, match="folds"):
        over_impute(frame, exact_normal, n_folds=1)
    with pytest.raises(InputError, match="two different values"):
        over_impute(pd.DataFrame({"k": [1.0, 1.0]}), exact_normal)
    with pytest.raises(InputError, match="19 tables"):
        over_impute(frame, lambda table, m: exact_normal(table, 2))
    with pytest.raises(InputError, match="shape"):
        over_impute(frame, lambda table, m: [table.head(2)] * m)

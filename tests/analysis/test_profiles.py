"""Profiles of missing cells: counts by hand, Little's test in closed form, any table at all."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from diffputer.analysis import mcar_test, profiles
from diffputer.analysis.mcar_test import little_test
from diffputer.analysis.profiles import profile
from diffputer.errors import InputError

from ..conftest import ugly_frame
from .test_plots import odd_table


def holed(x, rate, rng):
    return np.where(rng.random(x.shape) < rate, np.nan, x)


def test_two_patterns_have_a_closed_form():
    # With y missing in some rows the fitted line absorbs y: d^2 = (n - 1) * between / total squares of x.
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    hidden = rng.random(200) < 0.3
    y = np.where(hidden, np.nan, 2 * x + rng.normal(size=200))
    between = sum(group.size * (group.mean() - x.mean()) ** 2 for group in (x[hidden], x[~hidden]))
    expected = 199 * between / ((x - x.mean()) ** 2).sum()
    got = little_test(np.column_stack([x, y]))
    assert got.statistic == pytest.approx(expected, rel=1e-4)
    assert (got.df, got.n_patterns) == (1, 2)
    assert got.p_value == pytest.approx(stats.chi2.sf(expected, 1), rel=1e-3)


def test_the_statistic_does_not_depend_on_units_order_or_mixtures_of_what_is_missing_together():
    rng = np.random.default_rng(1)
    x = holed(rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)), 0.2, rng)
    first = little_test(x)
    assert little_test(x * [1e-150, 1e150, -3, 1] + [0, 0, 100, 5]).statistic == pytest.approx(
        first.statistic, rel=1e-4
    )
    assert little_test(x[rng.permutation(300)][:, [2, 0, 3, 1]]).statistic == pytest.approx(
        first.statistic, rel=1e-4
    )
    # Columns that are always missing together may be mixed linearly.
    pair = rng.normal(size=(300, 2))
    hidden = rng.random(300) < 0.4
    both = np.column_stack([rng.normal(size=300), np.where(hidden[:, None], np.nan, pair)])
    mixed = both.copy()
    mixed[:, 1:] = both[:, 1:] @ np.array([[1.0, 2.0], [3.0, 1.0]])
    assert little_test(mixed).statistic == pytest.approx(little_test(both).statistic, rel=1e-3)


def test_a_column_that_others_determine_adds_nothing():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 2))
    x[rng.random(400) < 0.3, 1] = np.nan
    more = np.column_stack([x, 2 * x[:, 0] - 1, np.full(400, 7.0), np.full(400, np.nan)])
    one, other = little_test(x), little_test(more)
    assert other.df == one.df
    assert other.statistic == pytest.approx(one.statistic, rel=1e-3)


def test_p_values_are_uniform_under_mcar_and_small_under_mar():
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(3, 3))
    p_values = [little_test(holed(rng.normal(size=(300, 3)) @ mixing, 0.15, rng)).p_value for _ in range(200)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.001
    x = rng.normal(size=(300, 3)) @ mixing
    x[(x[:, 0] > 0) & (rng.random(300) < 0.5), 1] = np.nan
    assert little_test(x).p_value < 1e-4


@pytest.mark.parametrize(
    "x", [np.ones((5, 2)), np.full((5, 2), np.nan), np.zeros((0, 2)), np.array([[1.0, np.nan]])]
)
def test_nothing_to_test(x):
    assert np.isnan(little_test(x).p_value)
    assert "nothing to test" in str(little_test(x))
    with pytest.raises(InputError, match="1-D"):
        little_test(np.ones(3))


def test_little_takes_tables_of_every_kind():
    rng = np.random.default_rng(0)
    x = holed(rng.normal(size=(100, 2)), 0.2, rng)
    expected = little_test(x).statistic
    frame = pd.DataFrame(x, columns=["a", "b"]).convert_dtypes()
    assert frame.isna().to_numpy().any()
    frame["c"] = pd.array(rng.choice(["x", "y", None], 100), dtype="string")
    numbers = np.where(np.isnan(x), pd.NA, x)  # objects
    for table in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), numbers, x.tolist()):
        assert little_test(table).statistic == pytest.approx(expected)
    assert np.isnan(little_test(frame[["c"]]).p_value)


def test_counts_by_hand():
    frame = pd.DataFrame({"a": [1.0, None, None, 4.0], "b": ["x", None, None, None], "c": [1, 2, 3, 4]})
    got = profile(frame)
    assert (got.n_missing, got.n_complete_rows) == (5, 1)
    assert got.columns["n_missing"].tolist() == [2, 3, 0]
    assert got.patterns["rows"].tolist() == [2, 1, 1]
    assert got.patterns["missing"].tolist() == [("a", "b"), (), ("b",)]
    assert got.pairs.loc["a", "b"] == 2
    assert got.correlation.loc["a", "b"] == pytest.approx(np.corrcoef([0, 1, 1, 0], [0, 1, 1, 1])[0, 1])
    assert len(got.to_frame()) == 3
    assert "a, b" in repr(got)


def test_what_tells_of_holes_is_named():
    rng = np.random.default_rng(0)
    n = 1500
    frame = pd.DataFrame(
        {"age": rng.normal(size=n), "noise": rng.normal(size=n), "income": rng.normal(size=n)}
    )
    frame["town"] = rng.choice(["Ulm", "Bonn"], n)
    frame.loc[rng.random(n) < 1 / (1 + np.exp(-2 * frame["age"])), "income"] = np.nan
    frame.loc[rng.random(n) < 0.3, "noise"] = np.nan
    lines = profile(frame).to_frame().set_index("column")
    assert lines.loc["income", "told_by"] == ("age",)
    assert lines.loc["income", "auc"] > 0.75
    assert lines.loc["noise", "depends"] is False or not lines.loc["noise", "depends"]
    assert lines.loc["noise", "told_by"] == ()
    assert "told by" in repr(profile(frame))


@pytest.mark.parametrize("related", [False, True])
def test_columns_lost_together_by_chance_are_no_sign_against_mcar(related):
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    if related:  # a value that was put into a hole does not fit those beside it
        frame["c"], frame["d"] = frame["a"], frame["a"] - frame["b"]
    frame["text"] = [f"word {k}" for k in range(n)]
    frame.loc[rng.random(n) < 0.3, ["a", "b", "text"]] = np.nan
    got = profile(frame)
    assert not got.predictors["depends"].any()
    assert got.predictors["told_by"].tolist() == [(), (), ()]
    assert got.correlation.loc["a", "b"] == pytest.approx(1.0)


def test_values_of_a_column_with_holes_still_tell():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1000, 3)), columns=list("abc"))
    frame.loc[(frame["a"] > 0) & (rng.random(1000) < 0.6), "b"] = np.nan
    frame.loc[rng.random(1000) < 0.2, "a"] = np.nan
    got = profile(frame).predictors.set_index("column")
    assert got.loc["b", "told_by"][0] == "a"


def test_littles_test_keeps_the_complete_column_that_drives_the_holes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 22))
    x[np.ix_(x[:, 21] > 0, range(10))] = np.nan
    x[np.ix_(rng.random(1000) < 0.1, range(10, 20))] = np.nan
    got = profile(x, predictors=False)  # few patterns: all columns are tested
    assert got.little.p_value < 0.001
    assert got.little == little_test(x)
    assert "columns of numbers" not in str(got.little)


def wide_table(driven, seed, n=1200, p=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + rng.normal(size=(n, 4)) @ rng.normal(size=(4, p)) / 2
    holes = rng.random(x.shape) < 0.2
    holes[:, p // 2 :] = False
    if driven:  # five columns of thirty, by a column that has no holes itself
        holes[:, :5] = rng.random((n, 5)) < 1 / (1 + np.exp(1.4 - 0.7 * x[:, [p - 1]]))
    return np.where(holes, np.nan, x)


def test_of_a_wide_table_the_columns_that_tell_of_holes_are_tested_and_the_verdict_says_so():
    for seed in range(3):
        got = profile(wide_table(True, seed), predictors=False)
        assert got.little.p_value < 0.01
        assert re.search(r"\((8|9|10) of 60 columns of numbers\)", str(got.little))
        assert str(got.little) in repr(got)


def test_where_nearly_every_row_has_its_own_pattern_columns_are_chosen_until_few_have():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 45)) + rng.normal(size=(300, 3)) @ rng.normal(size=(3, 45))
    x[:, 1:][rng.random((300, 44)) < 1 / (1 + np.exp(1.4 - x[:, [0]]))] = np.nan
    every = little_test(x)
    assert every.alone > 0.8
    assert not every.tells
    assert "cannot tell, as" in str(every)
    assert "evidence" not in str(every)
    some = profile(x, predictors=False).little
    assert some.tells
    assert some.n_patterns <= 0.25 * 150
    assert some.p_value < 0.01


def test_a_test_whose_em_has_not_converged_cannot_tell(monkeypatch):
    monkeypatch.setattr(mcar_test, "MOST_ROUNDS", 2)
    rng = np.random.default_rng(0)
    got = little_test(holed(rng.normal(size=(300, 3)) + rng.normal(size=(300, 1)), 0.2, rng))
    assert not got.converged
    assert str(got).endswith("cannot tell, as EM did not converge")


def test_the_choice_of_columns_does_not_bend_p_values():
    p_values = [profile(wide_table(False, s), predictors=False).little.p_value for s in range(30)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_values) < 0.05) <= 0.2


HOSTILE = {
    "one row": pd.DataFrame({"a": [1.0], "b": [None]}),
    "complete": pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
    "all missing": pd.DataFrame({"a": [np.nan] * 3, "b": [None] * 3}),
    "constant": pd.DataFrame({"a": [1.0, 1.0, None] * 20, "b": ["k", None, "k"] * 20}),
    "text": pd.DataFrame({"t": [f"t{k}" if k % 3 else None for k in range(60)], "x": np.arange(60.0)}),
    "duplicates": pd.DataFrame([[1.0, None], [None, 2.0]] * 30, columns=["x", "x"]),
    "names": pd.DataFrame(
        {"<script>": [1.0, None] * 30, "$\\frac": [None, "a", "b"] * 20, ("t", 1): range(60), 7: 1}
    ),
    "every kind": ugly_frame(100),
    "odd": odd_table(100).mask(np.random.default_rng(0).random((100, 18)) < 0.2),
    "numpy": holed(np.random.default_rng(0).normal(size=(50, 3)), 0.2, np.random.default_rng(1)),
    "objects": np.array([["a", 1.5], [None, None], ["b", 2.5]], dtype=object),
    "polars": pl.from_pandas(ugly_frame(80).reset_index(drop=True)),
    "arrow": pa.Table.from_pandas(ugly_frame(80), preserve_index=False),
    "wide": holed(np.random.default_rng(0).normal(size=(28, 55)), 0.35, np.random.default_rng(1)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_any_table_has_a_profile(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = profile(HOSTILE[name])
        text = repr(got)
    assert f"{got.n_rows:,} rows" in text
    assert all(line.isprintable() for line in text.splitlines())
    assert got.patterns["rows"].sum() == got.n_rows
    assert len(got.to_frame()) == got.n_columns
    assert got.columns["n_missing"].sum() == got.n_missing


def test_long_and_wide_tables_are_sampled_and_say_so(monkeypatch):
    few = {"TEST_ROWS": 500, "TEST_WORK": 1, "TEST_COLUMNS": 3, "TREE_ROWS": 200, "TREE_TARGETS": 2}
    for name, value in few.items():
        monkeypatch.setattr(profiles, name, value)
    rng = np.random.default_rng(0)
    got = profile(holed(rng.normal(size=(600, 5)), 0.2, rng))
    # Half of the rows say which columns are tested, the other half tests them.
    assert any("250 rows of 3 columns" in note and "left out: 2" in note for note in got.notes)
    assert "3 of 5 columns of numbers" in str(got.little)
    assert any("200 rows" in note for note in got.notes)
    assert any("2 columns with most holes" in note for note in got.notes)
    assert got.columns["n_missing"].sum() == got.n_missing > 0
    assert len(got.predictors) == 2


def test_the_same_seed_gives_the_same_profile():
    frame = ugly_frame(60)
    assert repr(profile(frame, rng=1)) == repr(profile(frame, rng=1))

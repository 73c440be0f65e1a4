"""Rows unlike those of the fit are reported once, with counts; rows like them never."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter
from diffputer.errors import DataWarning, InputError
from diffputer.tables.frames import read_table
from diffputer.tables.kinds import describe
from diffputer.tables.shifts import find_shifts

from .conftest import TINY

SMALL = {**TINY, "max_steps": 3, "held_out": 0}


def frame_of(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "skewed": rng.lognormal(size=n),
            "count": rng.poisson(3, size=n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "word": rng.choice(["a", "b", "c", "rare"], n, p=[0.5, 0.3, 0.19, 0.01]),
            "flag": rng.random(n) < 0.3,
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


@pytest.fixture(scope="module")
def fitted() -> DiffPuter:
    return DiffPuter(random_state=0, **SMALL).fit(frame_of(400))


def test_one_warning_counts_what_differs(fitted: DiffPuter) -> None:
    new = frame_of(400, seed=1)
    new.loc[:2, "x"] = 1e6
    new.loc[100:, "count"] = None
    new["word"] = new["word"].where(new["word"].isna(), "b")
    with pytest.warns(
        DataWarning, match=r"'x' \(3 of .*'count' \(.*'word' \('b': \d+% at the fit, 100% now\)"
    ) as caught:
        filled = fitted.transform(new)
    assert len(caught) == 1
    for use in (fitted.uncertainty, lambda rows: fitted.sample(rows, 1)):
        with pytest.warns(DataWarning, match="'count'"):
            use(new)
    # A row's answer does not depend on the rows around it, nor on what is said of them.
    pd.testing.assert_frame_equal(filled.iloc[20:30], fitted.transform(new.iloc[20:30]))


def test_the_fitted_table_and_small_batches_are_not_reported(fitted: DiffPuter) -> None:
    frame = frame_of(400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.transform(frame)
        for start in range(0, 40, 5):
            fitted.transform(frame.iloc[start : start + 5])


def test_random_splits_are_not_reported() -> None:
    frame = frame_of(600, seed=2)
    rng = np.random.default_rng(3)
    for _ in range(200):
        chosen = rng.random(len(frame)) < rng.uniform(0.3, 0.8)
        schema = describe(read_table(frame[chosen]))
        for shift in find_shifts(schema, read_table(frame[~chosen])):
            assert not shift.far_outside, shift
            assert not shift.many_outside, shift
            assert not shift.missing_shifted, shift
            assert not shift.categories_shifted, shift


@pytest.mark.parametrize("n", [20, 400])
def test_other_units_and_signs_are_reported_although_no_value_is_far_outside(
    fitted: DiffPuter, n: int
) -> None:
    new = frame_of(n, seed=6)
    new["count"] = -1 - new["count"]
    new["day"] += pd.Timedelta(days=365)  # later dates are what one expects of new rows
    with pytest.warns(DataWarning, match=r"many values outside the fitted range: 'count' \(") as caught:
        fitted.transform(new)
    assert len(caught) == 1
    found = {shift.name: shift for shift in find_shifts(fitted.schema_, read_table(new))}
    assert [name for name, shift in found.items() if shift.many_outside] == ["count"]
    assert found["count"].outside == found["count"].observed
    assert not found["count"].far_outside


def test_shifts_are_counted_by_column(fitted: DiffPuter) -> None:
    frame = frame_of(50, seed=4)
    frame.loc[:3, "word"] = "new"
    frame.loc[:1, "x"] = [-1e9, 4.5]
    found = {shift.name: shift for shift in find_shifts(fitted.schema_, read_table(frame))}
    assert found["word"].unseen == 4
    assert (found["x"].outside, found["x"].far_outside) == (2, 1)
    assert found["flag"].missing == int(frame["flag"].isna().sum())


def test_heavy_tails_are_not_far_outside_but_codes_for_missing_values_are() -> None:
    rng = np.random.default_rng(5)
    kilos = np.append(rng.lognormal(0, 2, 40).clip(0.01, 500), 600.0)  # mammals, without the elephant
    schema = describe(read_table(pd.DataFrame({"kilos": kilos, "percent": np.linspace(0, 100, 41)})))
    new = pd.DataFrame({"kilos": [2.0, 5_000.0], "percent": [50.0, 999.0]})
    found = {shift.name: shift for shift in find_shifts(schema, read_table(new))}
    assert (found["kilos"].outside, found["kilos"].far_outside) == (1, 0)
    assert found["percent"].far_outside == 1


@pytest.mark.parametrize(
    ("values", "remedy"), [(["a", "0.5"], "Convert"), ([pd.Timestamp("2024-01-01")] * 2, "Convert")]
)
def test_a_column_that_holds_something_else_is_refused_before_it_is_compared(
    fitted: DiffPuter, values: list[object], remedy: str
) -> None:
    new = frame_of(2, seed=1)
    new["x"] = values
    for use in (fitted.transform, fitted.uncertainty, lambda rows: fitted.sample(rows, 1)):
        with pytest.raises(InputError, match=f"column 'x' held numbers.*{remedy}"):
            use(new)


def test_a_column_that_was_complete_at_the_fit_and_is_missing_now_is_reported() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=1000), "y": rng.normal(size=1000)})
    frame.loc[:9, "x"] = np.nan
    imputer = DiffPuter(random_state=0, **SMALL).fit(frame)
    with pytest.warns(DataWarning, match=r"another share of missing values: 'y' \(50 of 50\)"):
        imputer.transform(frame[100:150].assign(y=np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        imputer.transform(frame[100:105].assign(y=np.nan))

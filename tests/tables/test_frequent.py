"""Single precision: values that occur often are filled in exactly, and what it cannot tell apart is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffputer import DiffPuter
from diffputer.errors import DataWarning
from diffputer.tables.decoding import find_frequent, snap
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.frames import read_table

from ..conftest import TINY

values = st.lists(st.sampled_from([-1e6, -0.1, 0.0, 0.1, 0.3, 12.345, 1e6]), min_size=1, max_size=60)


@given(values)
def test_frequent_values_are_those_that_occur_at_least_three_times(given_values: list[float]) -> None:
    found = find_frequent(np.array(given_values))
    expected = sorted({value for value in given_values if given_values.count(value) >= 3})
    assert found.tolist() == expected


@given(values, st.floats(-2e6, 2e6))
def test_only_what_lies_next_to_a_frequent_value_is_moved(given_values: list[float], other: float) -> None:
    frequent = find_frequent(np.array(given_values))
    deviation = np.array([2.0])
    assert np.array_equal(snap(frequent, frequent, deviation), frequent)
    assert np.array_equal(snap(frequent + 1e-6, frequent, deviation), frequent)
    moved = snap(np.array([other]), frequent, deviation)[0]
    assert abs(moved - other) <= 4e-6
    if moved != other:
        assert moved in frequent


def test_nothing_is_moved_where_nothing_is_frequent() -> None:
    x = np.linspace(0, 1, 9)
    for frequent in (None, np.empty(0)):
        assert np.array_equal(snap(x, frequent, np.array([1.0])), x)


def test_zeros_of_a_column_full_of_zeros_are_filled_in_as_zeros() -> None:
    rng = np.random.default_rng(0)
    rain = np.where(rng.random(200) < 0.8, 0.0, rng.gamma(2.0, 3.7, 200))
    frame = pd.DataFrame({"rain": rain, "other": rng.normal(size=200)})
    frame.loc[::5, "rain"] = np.nan
    holes = frame["rain"].isna()
    fitted = DiffPuter(random_state=0, estimate="median", **TINY).fit(frame)
    assert (fitted.transform(frame)["rain"][holes] == 0.0).mean() > 0.5
    drawn = np.concatenate([table["rain"][holes] for table in fitted.sample(frame, 4)])
    assert 0.5 < (drawn == 0.0).mean() < 1.0
    assert not ((drawn != 0.0) & (np.abs(drawn) < 1e-4)).any()


def test_large_whole_numbers_and_times_that_occur_often_are_filled_in_exactly() -> None:
    rng = np.random.default_rng(0)
    often = rng.random(200) < 0.6
    seconds = pd.to_timedelta(rng.integers(0, 20 * 365 * 86_400, 200), unit="s")
    frame = pd.DataFrame(
        {
            "code": pd.array(np.where(often, 999_999_999, rng.integers(0, 10**9, 200)), dtype="Int64"),
            "when": (pd.Timestamp("2000-01-01") + seconds).where(~often, pd.Timestamp("1970-01-01")),
            "other": rng.normal(size=200),
        }
    )
    often_there = {"code": 999_999_999, "when": pd.Timestamp("1970-01-01")}
    frame.loc[::5, ["code", "when"]] = None
    draws = DiffPuter(random_state=0, **TINY).fit(frame).sample(frame, 4)
    for name, value in often_there.items():
        drawn = pd.concat([table[name][frame[name].isna()] for table in draws])
        assert 0.3 < (drawn == value).mean() < 0.9


def test_a_value_so_far_out_that_the_others_are_alike_is_told_by_its_column() -> None:
    percent = np.random.default_rng(0).normal(50.0, 10.0, 200)
    frame = pd.DataFrame({"percent": percent, "other": np.exp(percent / 5)})
    TableEncoder.fit(read_table(frame))  # without a warning: a long tail is not that far out
    frame.loc[7, "percent"] = 1e12
    with pytest.warns(DataWarning, match="some of 'percent' do"):
        encoder = TableEncoder.fit(read_table(frame))
    assert len(np.unique(encoder.encode(read_table(frame)).x[:, 0])) < 10

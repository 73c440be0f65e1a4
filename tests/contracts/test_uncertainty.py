"""How sure filled values are: intervals, deviations and probabilities for every kind of column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter, SettingError

from ..conftest import TINY, TINY_ENSEMBLE, TINY_PAPER, ugly_frame

pl = pytest.importorskip("polars")

NUMBERS = ["size", "count", "day", "wait"]
CATEGORIES = ["flag", "town", "grade"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return ugly_frame()


@pytest.fixture(scope="module", params=[TINY, TINY_ENSEMBLE], ids=["conditional", "ensemble"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame, settings: dict[str, Any]) -> DiffPuter:
    return DiffPuter(random_state=0, **settings).fit(frame)


def test_intervals_are_completed_tables_of_the_same_form(frame: pd.DataFrame, fitted: DiffPuter) -> None:
    sure, before = fitted.uncertainty(frame), frame.copy(deep=True)
    for table in (sure.lower, sure.upper):
        assert not table.isna().to_numpy().any()
        assert (table.dtypes == frame.dtypes).all()
        pd.testing.assert_index_equal(table.index, frame.index)
        pd.testing.assert_index_equal(table.columns, frame.columns)
        pd.testing.assert_frame_equal(table.where(frame.notna()), frame.where(frame.notna()))
    pd.testing.assert_frame_equal(frame, before)
    for name in NUMBERS:
        assert (sure.lower[name] <= sure.upper[name]).all()
    completed = fitted.transform(frame)
    for name in CATEGORIES:
        pd.testing.assert_series_equal(sure.lower[name], completed[name])
        pd.testing.assert_series_equal(sure.upper[name], completed[name])
    assert sure.lower["size"].min() >= frame["size"].min()
    assert sure.upper["size"].max() <= frame["size"].max()


def test_deviations_are_of_filled_numbers_and_probabilities_of_filled_levels(
    frame: pd.DataFrame, fitted: DiffPuter
) -> None:
    sure, holes = fitted.uncertainty(frame), frame.isna()
    for table in (sure.std, sure.probability):
        pd.testing.assert_index_equal(table.index, frame.index)
        assert list(table.columns) == list(frame.columns)
    for name in NUMBERS:
        assert sure.std[name].notna().equals(holes[name])
        assert (sure.std[name].dropna() > 0).all()
        assert sure.probability[name].isna().all()
    for name in CATEGORIES:
        assert sure.probability[name].notna().equals(holes[name])
        assert sure.probability[name].dropna().between(0.2, 1).all()
        assert sure.std[name].isna().all()
    numbers, levels = (int(holes[list(names)].to_numpy().sum()) for names in (NUMBERS, CATEGORIES))
    assert f"{numbers} numbers and {levels} levels" in repr(sure)


def test_deviations_are_in_the_units_of_the_column(frame: pd.DataFrame, fitted: DiffPuter) -> None:
    # A deviation of a cell is about that of its column, whatever else is known: within a factor of ten.
    sure = fitted.uncertainty(frame)
    day, wait = (frame[name].dropna() for name in ("day", "wait"))
    of_column = {
        "size": frame["size"].std(),
        "count": frame["count"].astype(float).std(),
        "day": (day - day.min()).dt.total_seconds().std(),
        "wait": wait.dt.total_seconds().std(),
    }
    for name, deviation in of_column.items():
        assert deviation / 10 < sure.std[name].mean() < 4 * deviation, name


def test_a_larger_unit_gives_smaller_deviations(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    metres = rng.normal(size=(80, 2)) * 1000
    metres[rng.random(metres.shape) < 0.2] = np.nan
    a, b = (DiffPuter(random_state=0, **settings).fit(x).uncertainty(x) for x in (metres, metres / 1000))
    assert np.allclose(a.std.to_numpy(), 1000 * b.std.to_numpy(), rtol=1e-3, equal_nan=True)
    assert np.allclose(a.lower, 1000 * b.lower, rtol=1e-3, atol=0.1)


def test_a_higher_level_gives_a_wider_interval(frame: pd.DataFrame, fitted: DiffPuter) -> None:
    narrow, wide = fitted.uncertainty(frame, level=0.5), fitted.uncertainty(frame, level=0.98)
    for name in NUMBERS:
        assert (wide.lower[name] <= narrow.lower[name]).all()
        assert (wide.upper[name] >= narrow.upper[name]).all()
    pd.testing.assert_frame_equal(narrow.std, wide.std)


def test_rows_do_not_depend_on_those_around_them(frame: pd.DataFrame, fitted: DiffPuter) -> None:
    whole, part = fitted.uncertainty(frame), fitted.uncertainty(frame.iloc[20:31])
    pd.testing.assert_frame_equal(part.std, whole.std.iloc[20:31], rtol=1e-5)
    pd.testing.assert_frame_equal(part.probability, whole.probability.iloc[20:31], rtol=1e-5)
    pd.testing.assert_frame_equal(part.lower, whole.lower.iloc[20:31], rtol=1e-5, atol=1e-6)


def test_a_loaded_model_is_as_sure(frame: pd.DataFrame, fitted: DiffPuter, tmp_path: Any) -> None:
    fitted.save(tmp_path / "m")
    loaded = DiffPuter.load(tmp_path / "m", device="cpu")
    pd.testing.assert_frame_equal(loaded.uncertainty(frame).std, fitted.uncertainty(frame).std)


@pytest.mark.parametrize("container", ["numpy", "polars"])
def test_other_containers(frame: pd.DataFrame, container: str, settings: dict[str, Any]) -> None:
    part = frame[["size", "count"]].astype(float).reset_index(drop=True)
    given = part.to_numpy() if container == "numpy" else pl.from_pandas(part)
    sure = DiffPuter(random_state=0, **settings).fit(given).uncertainty(given)
    assert type(sure.lower) is type(sure.upper) is type(given)
    assert isinstance(sure.std, pd.DataFrame)
    assert sure.std.notna().to_numpy().sum() == part.isna().to_numpy().sum()


def test_nothing_missing_and_nothing_to_model(settings: dict[str, Any]) -> None:
    full = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0) ** 2})
    sure = DiffPuter(random_state=0, **settings).fit(full).uncertainty(full)
    pd.testing.assert_frame_equal(sure.lower, full)
    assert sure.std.isna().to_numpy().all()
    constant = pd.DataFrame({"a": [1.0, None, 1.0]})
    sure = DiffPuter(random_state=0, **settings).fit(constant).uncertainty(constant)
    assert sure.lower["a"].tolist() == sure.upper["a"].tolist() == [1.0, 1.0, 1.0]


def test_categories_alone_have_probabilities_and_warn_of_nothing(settings: dict[str, Any]) -> None:
    town = np.where(np.arange(60) % 3 == 0, "a", "b")
    frame = pd.DataFrame({"town": town, "same": town}).astype(object)
    frame.loc[::7, "town"] = None
    sure = DiffPuter(random_state=0, **settings).fit(frame).uncertainty(frame)
    assert sure.probability["town"][::7].between(0.5, 1.0).all()
    assert sure.std.isna().to_numpy().all()


def test_what_cannot_be_asked_is_refused_in_a_sentence(frame: pd.DataFrame, fitted: DiffPuter) -> None:
    for level in (0.0, 1.0, 90):
        with pytest.raises(SettingError, match=r"level must lie in \(0, 1\)"):
            fitted.uncertainty(frame, level=level)
    paper = DiffPuter(random_state=0, **TINY_PAPER).fit(frame)
    with pytest.raises(SettingError, match=r"needs engine='conditional'.*engine='paper'\. Use sample"):
        paper.uncertainty(frame)


def test_constraints_hold_where_they_tie_a_cell_to_observed_ones(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    a = rng.gamma(2.0, size=80)
    frame = pd.DataFrame({"a": a, "b": a + rng.gamma(1.0, size=80), "c": rng.normal(size=80)})
    frame["sum"] = frame["a"] + frame["c"]
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.round(10 * a), unit="D")
    frame["end"] = frame["day"] + pd.to_timedelta(rng.integers(0, 9, 80), unit="D")
    frame.loc[0:9, "sum"] = None  # computed
    frame.loc[10:19, "c"] = None  # solved for
    frame.loc[20:39, "b"] = None  # not below a
    frame.loc[40:49, ["c", "sum"]] = None  # missing together
    frame.loc[50:59, "end"] = None  # not before day
    free = DiffPuter(random_state=0, **settings).fit(frame).uncertainty(frame)
    tied = DiffPuter(
        random_state=0, derived={"sum": "a + c"}, inequalities=["a <= b", "day <= end"], **settings
    )
    sure = tied.fit(frame).uncertainty(frame)

    for rows, name in ((slice(0, 9), "sum"), (slice(10, 19), "c")):
        exact = frame["a"] + frame["c"] if name == "sum" else frame["sum"] - frame["a"]
        for end in (sure.lower, sure.upper):
            np.testing.assert_allclose(end.loc[rows, name], exact.loc[rows], rtol=1e-6)
        assert (sure.std.loc[rows, name] == 0).all()
        assert (free.std.loc[rows, name] > 0).all()
    for end, plain in ((sure.lower, free.lower), (sure.upper, free.upper)):
        below = frame["a"][20:40]
        np.testing.assert_allclose(end["b"][20:40], np.maximum(plain["b"][20:40], below), rtol=1e-6)
        assert (end["end"][50:60] == np.maximum(plain["end"][50:60], frame["day"][50:60])).all()
        pd.testing.assert_frame_equal(end.loc[40:49, ["c", "sum"]], plain.loc[40:49, ["c", "sum"]])
    pd.testing.assert_series_equal(sure.std["b"], free.std["b"])  # the model's, before it is cut off


def test_a_function_counts_where_nothing_else_is_missing(settings: dict[str, Any]) -> None:
    a = np.append(np.arange(39.0), 50.0)  # no row number
    frame = pd.DataFrame({"a": a, "b": np.arange(40.0)[::-1] ** 2})
    frame["c"] = 7 * frame["a"] % 11  # which no model finds
    frame.loc[:4, "c"] = None
    frame.loc[3:8, "b"] = None
    sure = (
        DiffPuter(random_state=0, derived={"c": lambda d: 7 * d["a"] % 11}, **settings)
        .fit(frame)
        .uncertainty(frame)
    )
    assert sure.lower["c"][:3].tolist() == sure.upper["c"][:3].tolist() == [0.0, 7.0, 3.0]
    assert (sure.lower["c"][3:5] < sure.upper["c"][3:5]).all()


def test_stated_bounds_end_intervals(frame: pd.DataFrame, settings: dict[str, Any]) -> None:
    part = frame[["size", "count"]].reset_index(drop=True)
    middle = float(part["size"].median())
    part.loc[part["size"] > middle, "size"] = middle
    sure = DiffPuter(random_state=0, bounds={"size": (None, middle + 0.1)}, **settings).fit(part)
    assert sure.uncertainty(part, level=0.99).upper["size"].max() <= middle + 0.1


def test_complete_rows_change_nothing(frame: pd.DataFrame, fitted: DiffPuter) -> None:
    incomplete = frame[frame.isna().any(axis=1)]
    whole, part = fitted.uncertainty(frame), fitted.uncertainty(incomplete)
    kept = frame.isna().any(axis=1).to_numpy()
    assert 0 < kept.sum() < len(frame)
    for name in ("lower", "upper", "std", "probability"):
        pd.testing.assert_frame_equal(getattr(whole, name)[kept], getattr(part, name), check_exact=True)


def test_means_of_heavy_tails_are_not_the_smallest_value() -> None:
    # Most incomes are smaller than the error that a mean may have beside the column's deviation.
    rng = np.random.default_rng(1)
    n, sigma = 600, 2.0
    f = rng.normal(size=n)
    income, debts = (np.exp(sigma * f + 0.4 * rng.normal(size=n)) for _ in range(2))
    truth = pd.DataFrame({"income": income, "a": f + 0.5 * rng.normal(size=n), "debts": debts})
    truth["class"] = np.where(f + 0.5 * rng.normal(size=n) > 0, "x", "y")
    table = truth.mask(rng.random(truth.shape) < 0.25)
    imputer = DiffPuter(quality="fast", max_steps=300, random_state=0, progress=False)
    full = imputer.fit_transform(table)
    filled = table["income"].isna()
    assert (full["income"][filled] > 1.001 * table["income"].min()).mean() > 0.97

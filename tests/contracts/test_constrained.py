"""The imputer keeps to derived columns and inequalities, in every engine, container, copy and file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from diffputer import DiffPuter
from diffputer.errors import InputError

from ..conftest import TINY

RULES: dict[str, Any] = {
    "derived": {"total": "rent + food", "share": "rent / total"},
    "inequalities": ["start <= end", "low <= high"],
}


def budget(n: int = 80, seed: int = 0) -> pd.DataFrame:
    """Money spent and days, with holes everywhere."""
    rng = np.random.default_rng(seed)
    rent, food = rng.gamma(4.0, 100.0, size=(2, n)).round(2)
    first = rng.integers(0, 30, n)
    low = rng.integers(0, 9, n)
    frame = pd.DataFrame(
        {
            "rent": rent,
            "food": food,
            "total": rent + food,
            "share": rent / (rent + food),
            "start": pd.Timestamp("2024-01-01") + pd.to_timedelta(first, unit="D"),
            "end": pd.Timestamp("2024-01-01") + pd.to_timedelta(first + rng.integers(0, 5, n), unit="D"),
            "low": pd.array(low, dtype="Int64"),
            "high": low + rng.random(n).round(3),
        },
        index=np.arange(n) // 2,
    )
    holes = rng.random(frame.shape) < 0.25
    holes[:, 3] |= holes[:, [0, 1]].all(axis=1) & ~holes[:, 2]  # else the share fixes both parts
    return frame.mask(holes)


def assert_constrained(done: pd.DataFrame, frame: pd.DataFrame) -> None:
    np.testing.assert_allclose(done["total"], done["rent"] + done["food"], rtol=1e-9)
    computed = frame["share"].isna().to_numpy()
    np.testing.assert_allclose(done["share"][computed], (done["rent"] / done["total"])[computed], rtol=1e-9)
    assert (done["start"] <= done["end"]).all()
    assert (done["low"].astype(float) <= done["high"]).all()
    assert not done.isna().any().any()
    assert done.dtypes.equals(frame.dtypes)
    assert done.index.equals(frame.index)
    known = frame.notna().to_numpy()
    assert done.where(known).equals(frame.where(known))


@pytest.fixture(scope="module")
def fitted(tiny: dict[str, Any]) -> DiffPuter:
    return DiffPuter(random_state=0, **RULES, **tiny).fit(budget())


@pytest.mark.filterwarnings("ignore:Filled cells shall", "ignore:Draws should seldom contradict")
def test_completed_tables_and_draws_keep_to_the_constraints(fitted: DiffPuter) -> None:
    frame = budget()
    assert_constrained(fitted.transform(frame), frame)
    draws, more = fitted.sample(frame, 3), fitted.sample(frame, 3, first_draw=3)
    for table in draws:
        assert_constrained(table, frame)
    assert not draws[0].equals(draws[1])
    for summed_up in (draws.mean(), draws.median(), draws.mode(), draws[1:].mean(), (draws + more).mode()):
        assert_constrained(summed_up, frame)


@pytest.mark.filterwarnings("ignore:Filled cells shall")
def test_new_rows_keep_to_them_too(fitted: DiffPuter) -> None:
    new = budget(20, seed=1)
    assert_constrained(fitted.transform(new), new)
    row = budget().iloc[:1].copy()
    row.loc[:, ["rent", "total"]] = [np.nan, 500.0]
    row.loc[:, "food"] = 120.0
    assert fitted.transform(row)["rent"].iloc[0] == pytest.approx(380.0)


def test_they_survive_copies_and_files(fitted: DiffPuter, tmp_path: Path) -> None:
    copy = clone(fitted)
    assert copy.get_params()["derived"] == RULES["derived"]
    assert copy.get_params()["inequalities"] == RULES["inequalities"]
    fitted.save(tmp_path / "model")
    again = DiffPuter.load(tmp_path / "model", device="cpu")
    assert again.get_params()["derived"] == RULES["derived"]
    assert again.get_params()["inequalities"] == RULES["inequalities"]
    row = budget().iloc[:1].copy()
    row.loc[:, ["rent", "food", "total", "share"]] = [3.0, 4.0, np.nan, np.nan]
    assert again.transform(row)["total"].iloc[0] == pytest.approx(7.0)


def test_other_containers() -> None:
    pl = pytest.importorskip("polars")
    frame = budget()[["rent", "food", "total"]].reset_index(drop=True)
    imputer = DiffPuter(random_state=0, derived={"total": "rent + food"}, **TINY)
    for table in (pl.from_pandas(frame), pl.from_pandas(frame).to_arrow()):
        done = imputer.fit_transform(table)
        assert type(done) is type(table)
        for one in (done, *imputer.sample(table, 2)):
            pandas = one.to_pandas()
            np.testing.assert_allclose(pandas["total"], pandas["rent"] + pandas["food"], rtol=1e-9)
    numbered = DiffPuter(random_state=0, derived={2: "`0` + `1`"}, **TINY).fit_transform(frame.to_numpy())
    np.testing.assert_allclose(numbered[:, 2], numbered[:, 0] + numbered[:, 1], rtol=1e-9)


def test_stated_bounds_are_kept() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0] * 10, "b": [5.0, np.nan, np.nan, 9.0] * 10})
    frame["sum"] = frame["a"] + frame["b"]
    frame.loc[2::4, "sum"] = 8.0
    imputer = DiffPuter(random_state=0, derived={"sum": "a + b"}, bounds={"a": (0, 2.5)}, **TINY)
    for table in imputer.fit(frame).sample(frame, 3):
        assert table["a"][frame["a"].isna()].between(0, 2.5).all()
        np.testing.assert_allclose(table["sum"], table["a"] + table["b"], rtol=1e-9)


def test_a_column_without_values_can_be_computed() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0] * 5, "twice": [np.nan] * 20})
    imputer = DiffPuter(random_state=0, derived={"twice": lambda d: 2 * d["a"]}, **TINY)
    with pytest.warns(UserWarning, match="without any observed value"):
        done = imputer.fit_transform(frame)
    assert done["twice"].tolist() == (2 * done["a"]).tolist()


def test_functions_are_not_saved(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0] * 5, "b": [2.0, 4.0, np.nan, 8.0] * 5})
    imputer = DiffPuter(random_state=0, derived={"b": lambda d: 2 * d["a"]}, **TINY).fit(frame)
    with pytest.raises(InputError, match=r"derived\['b'\] is a function"):
        imputer.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"derived": {"total": "rent + fod"}}, "'fod'"),
        ({"derived": {"total": "rent ** 2"}}, "pow"),
        ({"derived": {"start": "rent + food"}}, "'start' is datetime"),
        ({"derived": {"total": "rent - food"}}, "Correct the formula"),
        ({"inequalities": ["end <= start"]}, "'end' <= 'start'.*row"),
        ({"inequalities": ["start < end"]}, "<= or >="),
        ({"derived": {"rent": "share"}, "categorical_features": ["share"]}, "'share' is categorical"),
    ],
)
def test_impossible_constraints_are_found_before_the_fit(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        DiffPuter(random_state=0, **rules, **TINY).fit(budget())


def test_constraints_give_a_row_the_same_cells_whatever_rows_are_around_it() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(3, 1, 300), rng.normal(10, 4, 300)
    frame = pd.DataFrame({"a": a, "b": b, "total": a + b})
    frame.loc[:99, ["a", "b"]] = np.nan
    imputer = DiffPuter(random_state=0, derived={"total": "a + b"}, max_steps=20, progress=False).fit(frame)
    whole, part = imputer.transform(frame), imputer.transform(frame.iloc[:3])
    pd.testing.assert_frame_equal(whole.iloc[:3], part)

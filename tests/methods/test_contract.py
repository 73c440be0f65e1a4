"""What every imputer must keep, ours and rivals: checked over the whole table of methods."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer.errors import InputError, SettingError
from diffputer.methods.contract import InSampleOnlyError, Method
from diffputer.methods.hyperimpute import PYTHON_VARIABLE
from diffputer.methods.rmice import find_versions
from diffputer.methods.table import METHODS, make_method

from ..conftest import TINY, TINY_PAPER

_OURS = {name: value for name, value in TINY.items() if name != "progress"}
_MIWAE = {"hidden": 32, "train_samples": 5, "samples": 100, "learning_rate": 3e-3, "max_epochs": 100}
#: Settings under which a method takes a fraction of a second.
QUICK: dict[str, dict[str, Any]] = {
    "iterative-hgb": {"max_iter": 2, "n_trees": 10},
    "missforest": {"max_iter": 3, "n_trees": 10},
    "gbt-per-column": {"n_trees": 20},
    "miceforest": {"datasets": 2, "iterations": 2},
    "r-mice-pmm": {"m": 5, "maxit": 3},
    "r-mice-cart": {"m": 5, "maxit": 3},
    "miwae": _MIWAE,
    "em-miwae": {**_MIWAE, "rounds": 2},
    "hyperimpute": {"n_inner_iter": 2},
    "diffputer-fast": _OURS,
    "diffputer-balanced": _OURS,
    "diffputer-best": {**_OURS, "mlp_members": 1, "attention_members": 0},
    "diffputer-paper": {k: v for k, v in TINY_PAPER.items() if k != "progress"},
}
CATEGORICAL = ["town", "size"]
COLUMNWISE = ("mean", "median")


def _needs(name: str) -> list[pytest.MarkDecorator]:
    if name == "miceforest":
        absent = importlib.util.find_spec("miceforest") is None
        return [pytest.mark.skipif(absent, reason="needs miceforest: pip install 'diffputer[rivals]'")]
    if name.startswith("r-mice"):
        return [pytest.mark.skipif(not has_r(), reason="needs R and its package mice")]
    if name == "hyperimpute":
        absent = not os.environ.get(PYTHON_VARIABLE)
        return [pytest.mark.skipif(absent, reason=f"needs an environment that {PYTHON_VARIABLE} names")]
    return []


def has_r() -> bool:
    """Whether R is there, with its package mice."""
    try:
        return bool(find_versions())
    except SettingError:
        return False


ALL = [pytest.param(name, marks=_needs(name)) for name in METHODS]


def make(name: str) -> Method:
    return make_method(name, **QUICK.get(name, {}))


def complete_table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return pd.DataFrame(
        {
            "town": np.where(z + 0.3 * rng.normal(size=n) > 0.4, "Ulm", np.where(z < -0.4, "Köln", "Jena")),
            "x": 100 + 5 * z + rng.normal(size=n),
            "y": -2 * z + 0.3 * rng.normal(size=n),
            "size": pd.Categorical(np.where(z > 0, "big", "small"), categories=["small", "none", "big"]),
            "w": z**2 + 0.1 * rng.normal(size=n),
        },
        index=pd.Index(np.arange(n)[::-1], name="row"),
    )


def with_holes(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < 0.25)


TRUTH = complete_table(150, 0)
TRAIN = with_holes(TRUTH, 1)
TEST = with_holes(complete_table(40, 2), 3)


@pytest.fixture(scope="module", params=ALL)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(name: str) -> tuple[Method, pd.DataFrame]:
    method = make(name)
    return method, method.fit_transform(TRAIN, CATEGORICAL, seed=0)


def check(holes: pd.DataFrame, completed: pd.DataFrame) -> None:
    assert not completed.isna().to_numpy().any()
    assert list(completed.columns) == list(holes.columns)
    assert (completed.dtypes == holes.dtypes).all()
    pd.testing.assert_index_equal(completed.index, holes.index)
    pd.testing.assert_frame_equal(completed.where(holes.notna()), holes)
    assert set(completed["town"]) <= {"Ulm", "Köln", "Jena"}
    assert set(completed["size"]) <= {"small", "big"}


def test_in_sample(fitted: tuple[Method, pd.DataFrame]) -> None:
    check(TRAIN, fitted[1])


def test_input_is_not_changed_and_the_same_seed_gives_the_same(name: str, fitted: Any) -> None:
    before = TRAIN.copy(deep=True)
    again = make(name).fit_transform(TRAIN, CATEGORICAL, seed=0)
    pd.testing.assert_frame_equal(TRAIN, before)
    pd.testing.assert_frame_equal(again, fitted[1])


def test_global_generators_do_not_matter(name: str, fitted: Any) -> None:
    np.random.seed(5)
    state = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    again = make(name).fit_transform(TRAIN, CATEGORICAL, seed=0)
    pd.testing.assert_frame_equal(again, fitted[1])
    assert (np.random.get_state()[1] == state).all()  # type: ignore[index]


def test_draws_keep_what_is_known_and_differ_or_are_refused(fitted: tuple[Method, pd.DataFrame]) -> None:
    method, _ = fitted
    if not method.draws:
        with pytest.raises(SettingError, match="must be able to draw"):
            method.sample(TEST, 2, seed=1)
        return
    draws = method.sample(TEST, 3, seed=1)
    for draw in draws:
        check(TEST, draw)
    assert not draws[0].equals(draws[1])
    pd.testing.assert_frame_equal(method.sample(TEST, 3, seed=1)[2], draws[2])
    whole = complete_table(4, 3)
    pd.testing.assert_frame_equal(method.sample(whole, 2, seed=1)[1], whole)


def test_out_of_sample_works_or_says_that_it_cannot(fitted: tuple[Method, pd.DataFrame]) -> None:
    method, _ = fitted
    if method.out_of_sample:
        completed = method.transform(TEST)
        check(TEST, completed)
        pd.testing.assert_frame_equal(method.transform(TEST), completed)
        check(TEST.iloc[[7]], method.transform(TEST.iloc[[7]]))
        pd.testing.assert_frame_equal(method.transform(complete_table(5, 9)), complete_table(5, 9))
        with pytest.raises(ValueError, match=r"columns|feature names"):
            method.transform(TEST[TEST.columns[::-1]])
        with pytest.raises(ValueError, match="fitted"):
            make(method.facts.name).transform(TEST)
    else:
        for refuse in (lambda: method.transform(TEST), lambda: method.fit(TRAIN, CATEGORICAL, 0)):
            with pytest.raises(InSampleOnlyError, match="only the table that it is fitted on"):
                refuse()


def test_it_is_not_mean_imputation_and_better(name: str, fitted: tuple[Method, pd.DataFrame]) -> None:
    holes = TRAIN["y"].isna().to_numpy()
    filled, truth = fitted[1]["y"].to_numpy()[holes], TRUTH["y"].to_numpy()[holes]
    if name in COLUMNWISE:
        assert len(np.unique(filled)) == 1
        return
    assert len(np.unique(filled)) > 0.3 * holes.sum()
    error = np.sqrt(np.mean((filled - truth) ** 2))
    assert error < (0.95 if name.startswith("diffputer") else 0.6) * TRAIN["y"].std()
    if not name.startswith("diffputer"):  # those fits are too short to be good
        gone = TRAIN["town"].isna().to_numpy()
        right = (fitted[1]["town"].to_numpy() == TRUTH["town"].to_numpy())[gone].mean()
        assert right > TRAIN["town"].value_counts(normalize=True).iloc[0] + 0.1


@pytest.mark.filterwarnings("ignore:Rows should be like")
def test_a_column_that_was_complete_may_have_holes_later(name: str) -> None:
    method = make(name)
    if not method.out_of_sample:
        pytest.skip("completes only the table it is fitted on")
    table = TRAIN.assign(x=TRUTH["x"], town=TRUTH["town"])
    check(TEST, method.fit(table, CATEGORICAL, seed=0).transform(TEST))


def test_columns_may_never_be_there_together(name: str) -> None:
    # Two tables one below the other: no row tells what x and town have to do with each other.
    stacked = TRAIN.copy()
    stacked.loc[stacked.index[:75], "x"] = np.nan
    stacked.loc[stacked.index[75:], "town"] = None
    check(stacked, make(name).fit_transform(stacked, CATEGORICAL, seed=0))


def test_facts_are_complete(name: str) -> None:
    facts, _ = METHODS[name]
    assert facts.name == name
    assert all([facts.what, facts.source, facts.cannot])
    assert all(setting.origin for setting in facts.settings.values())


def test_settings_must_be_known() -> None:
    with pytest.raises(SettingError, match="it has: neighbours, weights"):
        make_method("knn", k=3)
    with pytest.raises(SettingError, match="A method must be one of mean"):
        make_method("nonsense")


def test_tables_that_cannot_be_learnt_from_are_named() -> None:
    with pytest.raises(InputError, match="'x'"):
        make_method("mean").fit(TRAIN.assign(x=np.nan), CATEGORICAL, 0)
    with pytest.raises(InputError, match="'town' holds text"):
        make_method("mean").fit(TRAIN, ["size"], 0)
    with pytest.raises(InputError, match="nothing"):
        make_method("mean").fit(TRAIN, ["nothing"], 0)


def test_other_dtypes_are_kept() -> None:
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, 2, None, 4] * 5, dtype="Int64"),
            "flag": pd.array([True, None, False, True] * 5, dtype="boolean"),
            "single": np.array([1.0, np.nan, 2.0, 3.0] * 5, dtype=np.float32),
            "code": [1.0, 2.0, 2.0, np.nan] * 5,
        }
    )
    completed = make_method("mean").fit_transform(frame, ["flag", "code"], 0)
    assert (completed.dtypes == frame.dtypes).all()
    assert completed.iloc[:4].astype(float).to_numpy().tolist() == [
        [1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 2.0, 2.0], [2.0, 0.0, 2.0, 2.0], [4.0, 1.0, 3.0, 2.0]
    ]  # fmt: skip


def test_levels_never_seen_stay_as_they_are() -> None:
    new = TEST.assign(town="Bonn")
    for method in ("mean", "knn", "gbt-per-column"):
        completed = make(method).fit(TRAIN, CATEGORICAL, 0).transform(new)
        assert set(completed["town"]) == {"Bonn"}

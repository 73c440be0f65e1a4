"""What the imputer promises, checked on tables that have holes."""

from __future__ import annotations

import dataclasses
import pickle
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import NotFittedError

from diffputer import DataWarning, DiffPuter, InputError, SettingError
from diffputer.analysis.verdicts import overall_error
from diffputer.models.conditional import engine
from diffputer.models.paper import sampling
from diffputer.settings import ConditionalSettings, PaperSettings

from ..conftest import ugly_frame

pl = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return ugly_frame()


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame, tiny: dict[str, Any]) -> DiffPuter:
    return DiffPuter(random_state=0, **tiny).fit(frame)


@pytest.fixture(scope="module")
def completed(frame: pd.DataFrame, fitted: DiffPuter) -> pd.DataFrame:
    return fitted.transform(frame)


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, rtol=1e-5, atol=1e-6)


class TestWhatComesOut:
    def test_nothing_is_missing_and_everything_observed_is_untouched(
        self, frame: pd.DataFrame, completed: pd.DataFrame
    ) -> None:
        assert not completed.isna().to_numpy().any()
        assert (completed.dtypes == frame.dtypes).all()
        pd.testing.assert_index_equal(completed.index, frame.index)
        pd.testing.assert_index_equal(completed.columns, frame.columns)
        pd.testing.assert_frame_equal(completed.where(frame.notna()), frame.where(frame.notna()))

    def test_filled_values_are_possible(self, frame: pd.DataFrame, completed: pd.DataFrame) -> None:
        assert set(completed["town"]) <= {"Ulm", "Köln", "Jena"}
        assert list(completed["grade"].cat.categories) == ["low", "mid", "high"]
        assert "mid" not in set(completed["grade"])  # a level that was never seen
        assert completed["count"].min() >= frame["count"].min() >= 0
        assert (completed["day"] == completed["day"].dt.normalize()).all()
        assert completed["size"].between(frame["size"].min(), frame["size"].max()).all()

    def test_it_is_not_mean_imputation(self, frame: pd.DataFrame, completed: pd.DataFrame) -> None:
        filled = completed["size"][frame["size"].isna().to_numpy()]
        assert filled.nunique() > len(filled) // 2

    def test_the_input_is_not_changed(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        before = frame.copy(deep=True)
        fitted.transform(frame)
        pd.testing.assert_frame_equal(frame, before)

    @pytest.mark.parametrize("container", ["polars", "pyarrow", "object array"])
    def test_other_containers_get_the_same_values(
        self, frame: pd.DataFrame, container: str, tiny: dict[str, Any]
    ) -> None:
        columns = ["size", "count", "flag", "town"]
        part = frame[columns].reset_index(drop=True)
        expected = DiffPuter(random_state=0, **tiny).fit_transform(part)
        if container == "polars":
            given = pl.from_pandas(part)
        elif container == "pyarrow":
            given = pa.Table.from_pandas(part, preserve_index=False)
        else:
            given = part.astype(object).to_numpy()
        found = DiffPuter(random_state=0, **tiny).fit_transform(given)
        assert type(found) is type(given)
        values = found.to_numpy(allow_copy=True) if container == "polars" else found
        if container == "pyarrow":
            assert found.schema == given.schema
            values = found.to_pandas().to_numpy()
        assert np.allclose(values[:, 0].astype(float), expected["size"], rtol=1e-5)
        assert (values[:, 1].astype(int) == expected["count"].to_numpy(int)).all()
        assert (values[:, 3] == expected["town"].to_numpy(str)).all()

    def test_complete_tables_come_back_as_they_are(
        self, fitted: DiffPuter, completed: pd.DataFrame, tiny: dict[str, Any]
    ) -> None:
        pd.testing.assert_frame_equal(fitted.transform(completed), completed)
        pd.testing.assert_frame_equal(DiffPuter(random_state=0, **tiny).fit_transform(completed), completed)


class TestSameSeedSameAnswer:
    def test_repeated_transform(
        self, frame: pd.DataFrame, fitted: DiffPuter, completed: pd.DataFrame
    ) -> None:
        pd.testing.assert_frame_equal(fitted.transform(frame), completed)

    def test_fit_transform_is_the_in_sample_result(
        self, frame: pd.DataFrame, completed: pd.DataFrame, tiny: dict[str, Any]
    ) -> None:
        pd.testing.assert_frame_equal(DiffPuter(random_state=0, **tiny).fit_transform(frame), completed)

    def test_row_subsets_and_row_order(
        self, frame: pd.DataFrame, fitted: DiffPuter, completed: pd.DataFrame
    ) -> None:
        same(fitted.transform(frame.iloc[20:41]), completed.iloc[20:41])
        same(fitted.transform(frame.iloc[[7]]), completed.iloc[[7]])
        same(fitted.transform(frame.iloc[::-1]), completed.iloc[::-1])

    @pytest.mark.parametrize("block", [64, 200])
    def test_batch_sizes(
        self,
        frame: pd.DataFrame,
        fitted: DiffPuter,
        completed: pd.DataFrame,
        block: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setitem(sampling.BLOCK, "cpu", block)
        monkeypatch.setitem(engine.BLOCK, "cpu", block)
        same(fitted.transform(frame), completed)

    def test_threads(self, frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
        # Steps large enough for two threads; some of the twelve are tried with one.
        wide = {"hidden_width": 256} if tiny.get("engine") == "paper" else {"mlp_width": 256}
        short = {**tiny, "max_steps": 12, "batch_size": 256, **wide}
        one = DiffPuter(random_state=0, **short).fit_transform(frame)
        torch.set_num_threads(2)
        try:
            same(DiffPuter(random_state=0, **short).fit_transform(frame), one)
        finally:
            torch.set_num_threads(1)

    def test_another_seed_gives_another_answer(self, frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
        # Estimates of linear experts alone are the same; draws never are.
        one, other = (DiffPuter(random_state=k, **tiny).fit(frame).sample(frame, 1)[0] for k in (0, 1))
        assert not np.allclose(one["size"], other["size"])

    def test_global_generators_are_not_touched(self, frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
        np.random.seed(0)
        torch.manual_seed(0)
        DiffPuter(random_state=0, **tiny).fit_transform(frame)
        assert np.random.rand() == np.random.RandomState(0).rand()
        assert torch.rand(()) == torch.rand((), generator=torch.Generator().manual_seed(0))

    def test_the_seed_in_use_repeats_an_unseeded_fit(self, frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
        first = DiffPuter(**tiny)
        out = first.fit_transform(frame)
        again = DiffPuter(random_state=first.seed_, **tiny).fit_transform(frame)
        pd.testing.assert_frame_equal(out, again)

    def test_pickle(self, frame: pd.DataFrame, fitted: DiffPuter, completed: pd.DataFrame) -> None:
        copy = pickle.loads(pickle.dumps(fitted))
        pd.testing.assert_frame_equal(copy.transform(frame), completed)


class TestDraws:
    def test_draws_differ_only_where_cells_were_missing(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        draws = fitted.sample(frame, n_draws=3)
        assert len(draws) == len(list(draws)) == 3
        assert len(draws[1:]) == 2
        for table in draws:
            assert not table.isna().to_numpy().any()
            pd.testing.assert_frame_equal(table.where(frame.notna()), frame.where(frame.notna()))
        holes = frame["size"].isna().to_numpy()
        # Two draws of an observed value may be the same.
        assert (draws[0]["size"][holes] != draws[1]["size"][holes]).mean() > 0.8

    def test_fewer_draws_are_the_first_of_more(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        same(fitted.sample(frame, n_draws=4)[1], fitted.sample(frame, n_draws=2)[1])

    def test_equal_rows_are_drawn_independently(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        row = frame.iloc[[int(np.flatnonzero(frame["size"].isna())[0])]]
        twins = fitted.sample(pd.concat([row] * 5), n_draws=1)[0]
        assert twins["size"].nunique() > 1

    def test_more_draws_than_memory(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        with pytest.raises(SettingError, match=r"draws .* must fit into memory; .* GiB are needed"):
            fitted.sample(frame, n_draws=2_000_000_000)


class TestColumnsAreMatchedByName:
    def test_before_fit(self, frame: pd.DataFrame) -> None:
        with pytest.raises(NotFittedError):
            DiffPuter().transform(frame)

    def test_missing_extra_renamed_and_reordered_columns(
        self, frame: pd.DataFrame, fitted: DiffPuter
    ) -> None:
        with pytest.raises(ValueError, match="town"):
            fitted.transform(frame.drop(columns="town"))
        with pytest.raises(ValueError, match="extra"):
            fitted.transform(frame.assign(extra=1))
        with pytest.raises(ValueError, match="city"):
            fitted.transform(frame.rename(columns={"town": "city"}))
        with pytest.raises(ValueError, match=r"same order .*\n.*schema_.names"):
            fitted.transform(frame[frame.columns[::-1]])

    def test_columns_that_are_not_text(self, tiny: dict[str, Any]) -> None:
        frame = pd.DataFrame({2020: [1.0, 2.0, None, 4.0] * 5, 2021: [1.0, None, 3.0, 4.0] * 5})
        fitted = DiffPuter(random_state=0, **tiny).fit(frame)
        assert list(fitted.transform(frame).columns) == [2020, 2021]
        with pytest.raises(InputError, match=r"must be \(2020, 2021\), however: \(2020, 2022\). Hand over"):
            fitted.transform(frame.rename(columns={2021: 2022}))

    def test_column_names_of_several_types(self, tiny: dict[str, Any]) -> None:
        frame = pd.DataFrame({"a": [1.0, 2.0], 1: [3.0, None]})
        with pytest.raises(TypeError, match="string names") as caught:
            DiffPuter(random_state=0, **tiny).fit(frame)
        assert isinstance(caught.value, InputError)

    @pytest.mark.filterwarnings("ignore:X does not have valid feature names")
    def test_arrays_with_other_columns(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        with pytest.raises(InputError, match="Hand over the columns of the fit"):
            fitted.transform(frame.to_numpy(dtype=object)[:, :2])

    def test_unseen_levels_are_kept_and_reported(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        new = frame.iloc[:3].copy()
        new["town"] = ["Bonn", "Ulm", None]
        with pytest.warns(DataWarning, match="'town' has 'Bonn'"):
            out = fitted.transform(new)
        assert out["town"].tolist()[:2] == ["Bonn", "Ulm"]

    def test_rows_with_everything_missing(self, frame: pd.DataFrame, fitted: DiffPuter) -> None:
        empty = frame.iloc[:2].copy().mask(np.ones((2, frame.shape[1]), dtype=bool))
        assert not fitted.transform(empty).isna().to_numpy().any()


def test_the_constants_in_use_are_those_of_the_engine(fitted: DiffPuter, tiny: dict[str, Any]) -> None:
    sort = PaperSettings if tiny.get("engine") == "paper" else ConditionalSettings
    assert isinstance(fitted.settings_, sort)
    own = {field.name for field in dataclasses.fields(sort)}
    for name in own & set(tiny):
        if not name.endswith("_members"):  # small tables have a member for every fold
            assert getattr(fitted.settings_, name) == tiny[name]
    assert [line.round for line in fitted.trace_] == list(range(1, len(fitted.trace_) + 1))


def test_schema_can_be_printed_and_overridden(
    frame: pd.DataFrame, fitted: DiffPuter, tiny: dict[str, Any]
) -> None:
    text = str(fitted.schema_)
    assert "town" in text
    assert "categorical" in text
    free = DiffPuter(random_state=0, schema={"size": "text"}, **tiny)
    out = free.fit_transform(frame.assign(size=frame["size"].astype(str).where(frame["size"].notna())))
    assert out["size"].isna().sum() == frame["size"].isna().sum()


@pytest.mark.filterwarnings("ignore:Stated bounds should hold")
def test_bounds_may_be_wider_than_what_was_observed(tiny: dict[str, Any]) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "b": [1.0, np.nan] * 20})
    frame.loc[::4, "b"] = 2.0
    imputer = DiffPuter(random_state=0, bounds={"b": (3.0, 9.0)}, **tiny).fit(frame)
    filled = imputer.transform(frame)["b"][frame["b"].isna()]
    assert (filled >= 3.0).all()


@pytest.mark.filterwarnings("default:Imputed values are no better")
def test_an_imputation_no_better_than_column_means_says_so(tiny: dict[str, Any]) -> None:
    # Noise cannot be imputed; by luck a few held-out cells may seem to be, and then there is no warning.
    said = []
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=(80, 3))
        noise[::2, 0] = np.nan
        with warnings.catch_warnings(record=True) as caught:
            fitted = DiffPuter(random_state=seed, **{**tiny, "max_steps": 1}).fit(noise)
        said.append([str(w.message) for w in caught if "no better than" in str(w.message)])
        line = fitted.trace_[fitted._result.best_round - 1]  # type: ignore[union-attr]
        assert bool(said[-1]) == (line.held_out_error >= line.baseline_error)
        # One number, of the column that has missing values: in the warning, in the scores, in the summary.
        assert fitted.held_out_scores_ is not None
        overall = overall_error(fitted.held_out_scores_, {0: 40})
        assert overall is not None
        assert overall[:2] == pytest.approx((line.held_out_error, line.baseline_error))
        assert overall[2] < fitted.held_out_scores_["n"].sum()
    messages = [message for one in said for message in one]
    assert messages
    for message in messages:
        assert re.search("no better than column means .* try a larger max_steps", message)
        assert "time_budget" not in message  # there was none


def test_the_median_is_another_estimate_of_the_same_cells(frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
    settings = {**tiny, "n_draws": 3} if tiny.get("engine") == "paper" else tiny
    mean = DiffPuter(random_state=0, **settings).fit_transform(frame)
    median = DiffPuter(random_state=0, estimate="median", **settings).fit_transform(frame)
    holes = frame["size"].isna().to_numpy()
    assert (mean["size"][~holes] == median["size"][~holes]).all()
    assert (mean["size"][holes] != median["size"][holes]).any()
    assert median["size"].between(frame["size"].min(), frame["size"].max()).all()
    assert not median.isna().to_numpy().any()


def test_a_time_budget_ends_a_fit_that_would_not_end(frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
    endless = {**tiny, "max_steps": 10**8, "max_epochs": 10**8, "patience": 10**8}
    endless |= {"em_rounds": 1000, "em_patience": 1000}
    imputer = DiffPuter(random_state=0, time_budget=1.5, **endless)
    assert not imputer.fit_transform(frame).isna().to_numpy().any()
    assert 1 <= len(imputer.trace_) < 1000


def test_polars_enums_with_nulls(tiny: dict[str, Any]) -> None:
    levels = ["low", "mid", "high"]
    frame = pl.DataFrame(
        {
            "e": pl.Series(["low", None, "high", "low"] * 8, dtype=pl.Enum(levels)),
            "x": [1.0, 2.0, None, 4.0] * 8,
        }
    )
    out = DiffPuter(random_state=0, **tiny).fit_transform(frame)
    assert out.schema == frame.schema
    assert out.null_count().sum_horizontal().item() == 0


def test_bounds_and_categorical_features(frame: pd.DataFrame, tiny: dict[str, Any]) -> None:
    imputer = DiffPuter(random_state=0, bounds={"size": (10.0, 10.5)}, categorical_features=["count"], **tiny)
    out = imputer.fit_transform(frame)
    filled = out["size"][frame["size"].isna().to_numpy()]
    assert filled.between(10.0, 10.5).all()
    assert imputer.schema_["count"].kind == "categorical"
    assert set(out["count"]) <= set(frame["count"].dropna())

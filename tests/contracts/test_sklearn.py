"""scikit-learn's own checks, and the places of scikit-learn in which an imputer must work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from diffputer import DiffPuter

from ..conftest import TINY, TINY_PAPER

pl = pytest.importorskip("polars")


@pytest.mark.filterwarnings(
    "ignore"
)  # the checks feed odd tables on purpose and look at the warnings themselves
@parametrize_with_checks([DiffPuter(**TINY), DiffPuter(**TINY_PAPER)])
def test_sklearn(estimator: DiffPuter, check: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)  # type: ignore[operator]


@pytest.fixture
def numbers() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def test_pipeline_and_cross_validation(numbers: np.ndarray, tiny: dict[str, Any]) -> None:
    y = np.nansum(numbers, axis=1)
    pipeline = make_pipeline(DiffPuter(random_state=0, **tiny), StandardScaler(), LinearRegression())
    scores = cross_val_score(pipeline, numbers, y, cv=2)
    assert np.isfinite(scores).all()


def test_column_transformer_with_a_data_frame(numbers: np.ndarray, tiny: dict[str, Any]) -> None:
    frame = pd.DataFrame(numbers, columns=list("abcd"))
    transformer = ColumnTransformer(
        [("fill", DiffPuter(random_state=0, **tiny), ["a", "b", "c"])], remainder="drop"
    )
    assert not np.isnan(transformer.fit_transform(frame)).any()
    assert transformer.get_feature_names_out().tolist() == ["fill__a", "fill__b", "fill__c"]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_set_output(numbers: np.ndarray, tiny: dict[str, Any], kind: str) -> None:
    plain = DiffPuter(random_state=0, **tiny).fit(numbers)
    named = DiffPuter(random_state=0, **tiny).set_output(transform=kind).fit(numbers)
    out = named.transform(numbers)
    assert isinstance(out, pd.DataFrame if kind == "pandas" else pl.DataFrame)
    assert list(out.columns) == ["x0", "x1", "x2", "x3"]
    assert np.array_equal(out.to_numpy(), plain.transform(numbers))


def test_set_output_turns_one_kind_of_frame_into_another(numbers: np.ndarray, tiny: dict[str, Any]) -> None:
    frame = pd.DataFrame(numbers, columns=list("abcd"))
    out = DiffPuter(random_state=0, **tiny).set_output(transform="polars").fit(frame).transform(frame)
    assert isinstance(out, pl.DataFrame)
    assert out.columns == list("abcd")
    out = (
        DiffPuter(random_state=0, **tiny).set_output(transform="pandas").fit_transform(pl.from_pandas(frame))
    )
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == list("abcd")
    assert not out.isna().to_numpy().any()
    table = pa.Table.from_pandas(frame)
    out = DiffPuter(random_state=0, **tiny).set_output(transform="pandas").fit_transform(table)
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == list("abcd")


def test_clone_keeps_parameters_and_forgets_the_fit(numbers: np.ndarray, tiny: dict[str, Any]) -> None:
    fitted = DiffPuter(random_state=3, **tiny).fit(numbers)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "seed_")
    assert np.array_equal(copy.fit(numbers).transform(numbers), fitted.transform(numbers))

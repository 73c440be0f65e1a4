"""Warnings about data point at the line of the user that led to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from diffputer import DataWarning, DiffPuter
from diffputer.tables.files import read_table_file

from .conftest import TINY

EMPTY = pd.DataFrame({"x": [1.5, 2.5, None] * 5, "empty": [np.nan] * 15})
NOISE = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])


def imputer() -> DiffPuter:
    return DiffPuter(random_state=0, **TINY)


def read_headless(folder: Path) -> None:
    path = folder / "t.csv"
    path.write_text("1,2\n3,4\n")
    read_table_file(path)


def transform_unseen() -> None:
    towns = pd.DataFrame({"town": ["Ulm", "Jena", None] * 5})
    fitted = imputer().fit(towns)
    fitted.transform(pd.DataFrame({"town": ["Rome", None]}))


@pytest.mark.filterwarnings("ignore:Imputed values")
@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda _: imputer().fit(EMPTY), "without any observed value"),
        (lambda _: imputer().fit_transform(EMPTY), "without any observed value"),
        (lambda _: make_pipeline(FunctionTransformer(), imputer()).fit_transform(EMPTY), "without any"),
        (lambda _: make_pipeline(imputer(), FunctionTransformer()).fit(EMPTY), "without any"),
        (read_headless, "must hold the column names"),
        (lambda _: transform_unseen(), "not seen at fit"),
        (lambda _: imputer().fit(NOISE.mask(NOISE > 1)), "no better than column means"),
    ],
)
def test_warnings_point_here(work: Callable[[Path], object], sentence: str, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=sentence) as caught:
        work(tmp_path)
    lines = Path(__file__).read_text().splitlines()
    for warning in caught:
        assert warning.filename == inspect.getfile(imputer)
        assert any(call in lines[warning.lineno - 1] for call in ("fit", "transform(", "read_table_file("))

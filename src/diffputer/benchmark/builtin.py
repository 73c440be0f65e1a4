"""Small real tables that come with the package and with scikit-learn: a benchmark without a download."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pandas as pd
from sklearn import datasets as bundled

#: A table as CSV, its numeric columns and its categorical ones.
Content = tuple[bytes, tuple[str, ...], tuple[str, ...]]


def california_sample() -> Content:
    """4,000 block groups of the California housing data, with the category that the paper leaves out."""
    content = gzip.decompress(files("diffputer").joinpath("data", "california.csv.gz").read_bytes())
    *numeric, category = content.split(b"\n", 1)[0].decode().strip().split(",")
    return content, tuple(numeric), (category,)


def wine() -> Content:
    """178 wines of three growers: 13 chemical measurements and the grower."""
    return _from_sklearn(bundled.load_wine, target="grower")


def breast_cancer() -> Content:
    """569 tumours: 30 measurements, many nearly the same, and the diagnosis."""
    return _from_sklearn(bundled.load_breast_cancer, target="diagnosis")


def diabetes() -> Content:
    """442 patients: nine measurements, the sex, and the progress of their disease."""
    frame = bundled.load_diabetes(as_frame=True, scaled=False).frame
    frame["sex"] = frame["sex"].astype(int).astype(str)
    return _as_content(frame.rename(columns={"target": "progress"}), ("sex",))


#: Name -> what gives the table.
BUILTIN: dict[str, Callable[[], Content]] = {
    make.__name__: make for make in (california_sample, wine, breast_cancer, diabetes)
}


def _from_sklearn(load: Callable[..., Any], target: str) -> Content:
    given = load(as_frame=True)
    frame = given.data.rename(columns=lambda name: name.replace(" ", "_"))
    frame[target] = given.target_names[given.target]
    return _as_content(frame, (target,))


def _as_content(frame: pd.DataFrame, categorical: tuple[str, ...]) -> Content:
    numeric = tuple(name for name in frame.columns if name not in categorical)
    return frame.to_csv(index=False, lineterminator="\n").encode(), numeric, categorical

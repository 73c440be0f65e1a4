"""One value for a column: its mean or median, its most frequent level. And the neighbours' mean."""

from __future__ import annotations

import math

import numpy as np
from sklearn.impute import KNNImputer

from .coding import Counts, Floats, Indicators
from .contract import CodedMethod, Facts, Setting

MEAN = Facts(
    name="mean",
    what="The column's mean; of categories the most frequent level.",
    source="Folklore; own code.",
    cannot="Use what other columns say.",
    published="mean_mode",
)
MEDIAN = Facts(
    name="median",
    what="The column's median; of categories the most frequent level.",
    source="Folklore; own code.",
    cannot="Use what other columns say.",
)
_NEAREST = "nearest rows that show the cell; of categories their most frequent level."
_NEIGHBOURS = {
    "source": "Troyanskaya et al. 2001; scikit-learn's KNNImputer.",
    "cannot": "Weigh columns: one that says nothing counts as much as one that says all.",
    "packages": ("scikit-learn",),
}
KNN = Facts(
    name="knn",
    what=f"The mean over the k = sqrt(n) {_NEAREST}",
    settings={
        "neighbours": Setting("sqrt", "the paper: k = sqrt(n) of n training rows"),
        "weights": Setting("uniform", "scikit-learn's default"),
    },
    published="knn",
    **_NEIGHBOURS,  # type: ignore[arg-type]
)
KNN_5 = Facts(
    name="knn-5",
    what=f"The mean over the k = 5 {_NEAREST}",
    settings={
        "neighbours": Setting(5, "scikit-learn's default"),
        "weights": Setting("uniform", "scikit-learn's default"),
    },
    **_NEIGHBOURS,  # type: ignore[arg-type]
)


def most_frequent(x: Floats, n_levels: Counts) -> Floats:
    """Give the most frequent level of each category, NaN of numbers; the first of several. [n, c] -> [c]."""
    frequent = np.full(len(n_levels), np.nan)
    for j in np.flatnonzero(n_levels):
        seen = x[~np.isnan(x[:, j]), j].astype(np.int64)
        frequent[j] = np.bincount(seen, minlength=n_levels[j]).argmax()
    return frequent


class ColumnValue(CodedMethod):
    """The same value for every hole of a column."""

    def _fit(self, x: Floats, n_levels: Counts, seed: int) -> None:
        middle = np.nanmedian(x, axis=0) if self.facts.name == "median" else np.nanmean(x, axis=0)
        self._values = np.where(n_levels > 0, most_frequent(x, n_levels), middle)

    def _complete(self, x: Floats) -> Floats:
        return np.where(np.isnan(x), self._values, x)


class Neighbours(CodedMethod):
    """The nearest rows, by the distance over cells that both rows show.

    Two different levels are as far apart as two numbers that differ by one deviation.
    """

    def _fit(self, x: Floats, n_levels: Counts, seed: int) -> None:
        k = self.settings["neighbours"]
        k = round(math.sqrt(len(x))) if k == "sqrt" else int(k)
        self._indicators = Indicators(n_levels)
        # Two indicators differ where levels do: scaled so that their squares add up to one.
        hot = n_levels[self._indicators.owners] > 0
        self._scale = np.where(hot, math.sqrt(0.5), 1.0)
        self._imputer = KNNImputer(n_neighbors=k, weights=self.settings["weights"])
        self._imputer.fit(self._indicators.expand(x) * self._scale)

    def _complete(self, x: Floats) -> Floats:
        completed = self._imputer.transform(self._indicators.expand(x) * self._scale)
        return self._indicators.collapse(completed / self._scale)

"""An interval contains its estimate, or marks that it does not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter


def table_of(seed: int) -> pd.DataFrame:
    """Skewed, rounded, bounded and zero-inflated columns, with missing values."""
    rng = np.random.default_rng(seed)
    n = 60
    x = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "amount": np.exp(2 * x + rng.normal(size=n)),
            "count": rng.poisson(np.exp(x)).astype(float),
            "often_zero": np.where(rng.random(n) < 0.6, 0.0, x),
            "price": (10 + x + rng.normal(size=n)).round(1),
            "yes": (x > 0).astype(float),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta((30 * x).round(), unit="D"),
            "wait": pd.to_timedelta(np.exp(x), unit="h"),
        }
    )
    frame["count"] = np.minimum(frame["count"], np.floor(frame["price"]))
    frame["total"] = frame["count"] + frame["price"]
    return frame.mask(rng.random(frame.shape) < 0.3)


@pytest.mark.parametrize("estimate", ["mean", "median"])
@pytest.mark.parametrize("level", [0.2, 0.9])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::diffputer.errors.DataWarning")
def test_estimates_outside_of_their_interval_are_marked(seed: int, level: float, estimate: str) -> None:
    frame = table_of(seed)
    rules = {"derived": {"total": "count + price"}, "inequalities": ["count <= price"]} if seed else {}
    imputer = DiffPuter(random_state=0, max_steps=3, held_out=0, estimate=estimate, **rules).fit(frame)
    full, sure = imputer.transform(frame), imputer.uncertainty(frame, level=level)
    for name in frame:
        beyond = (full[name] < sure.lower[name]) | (full[name] > sure.upper[name])
        assert beyond.equals(sure.outside[name].astype(bool)), name
        assert not sure.outside.loc[frame[name].notna(), name].any()
    assert not sure.outside["yes"].any()
    if sure.outside.to_numpy().any():
        assert f"{int(sure.outside.to_numpy().sum())} estimates" in repr(sure)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.filterwarnings("ignore::diffputer.errors.DataWarning")
def test_intervals_contain_medians_that_rounding_and_rules_moved(seed: int) -> None:
    frame = table_of(seed)[["count", "price", "yes", "total"]]
    rules = {"derived": {"total": "count + price"}, "inequalities": ["count <= price"]}
    quick = {"max_steps": 3, "held_out": 0, "boosted_trees": 0}  # trees move estimates besides
    imputer = DiffPuter(random_state=0, estimate="median", **rules, **quick).fit(frame)
    full, sure = imputer.transform(frame), imputer.uncertainty(frame, level=0.2)
    for name in frame:
        assert full[name].between(sure.lower[name], sure.upper[name]).all(), name

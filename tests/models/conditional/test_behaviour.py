"""The default engine as users meet it: lines, curves, several rounds, many columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter

SMALL: dict[str, Any] = {
    "quality": "fast",
    "device": "cpu",
    "progress": False,
    "random_state": 0,
}


def test_what_follows_a_line_is_imputed_and_drawn_on_it() -> None:
    rng = np.random.default_rng(0)
    sleep = np.round(rng.uniform(2, 20, 83), 1)
    full = pd.DataFrame(
        {
            "sleep": sleep,
            "awake": 24 - sleep,
            "dream": (0.2 * sleep + rng.normal(0, 0.5, 83)).round(1),
            "body": np.exp(rng.normal(size=83)),
            "diet": rng.choice(list("abc"), 83),
        }
    )
    missing = rng.random(83) < 0.3
    missing[[sleep.argmin(), sleep.argmax()]] = True  # a line leads beyond the observed range
    frame = full.copy()
    frame.loc[missing, "awake"] = np.nan
    frame.loc[(rng.random(83) < 0.2) & ~missing, "dream"] = np.nan
    imputer = DiffPuter(max_steps=100, **SMALL).fit(frame)
    tables = {"mean": imputer.transform(frame), "draw": imputer.sample(frame, 2)[1]}
    imputer.estimate = "median"
    tables["median"] = imputer.transform(frame)
    for name, table in tables.items():
        miss = (table["awake"] - full["awake"])[missing].abs()
        assert miss.max() < 0.1, name
        assert table["dream"].between(frame["dream"].min(), frame["dream"].max()).all()
    known = imputer.uncertainty(frame).std["awake"][missing]
    assert (known < 0.2).all()


def test_dates_a_few_days_apart() -> None:
    rng = np.random.default_rng(1)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, 239), unit="D")
    full = pd.DataFrame(
        {
            "start": start,
            "end": start + pd.to_timedelta(rng.integers(1, 4, 239), unit="D"),
            "share": rng.normal(45, 4, 239).round(1),
            "pollster": rng.choice(list("abcd"), 239),
        }
    )
    missing = rng.random(239) < 0.2
    frame = full.copy()
    frame.loc[missing, "start"] = pd.NaT
    filled = DiffPuter(max_steps=100, **SMALL).fit_transform(frame)
    days = (filled["start"] - full["start"])[missing].abs() / pd.Timedelta(days=1)
    assert days.mean() < 1.2


def test_draws_know_curves_between_cells_that_are_missing_together() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    full = np.stack([x, x**2 + 0.2 * rng.normal(size=2000)], axis=1)
    frame = full.copy()
    both = rng.random(2000) < 0.3
    frame[both] = np.nan
    drawn = DiffPuter(max_steps=800, boosted_trees=0, **SMALL).fit(frame).sample(frame, 1)[0][both]
    assert np.corrcoef(drawn[:, 0] ** 2, drawn[:, 1])[0, 1] > 0.8
    assert drawn.std(axis=0) == pytest.approx(full.std(axis=0), rel=0.15)


def test_further_rounds_learn_from_a_drawn_table() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1)) + 0.3 * rng.normal(size=(200, 4))
    x[rng.random(x.shape) < 0.3] = np.nan
    imputer = DiffPuter(max_steps=60, em_rounds=2, boosted_trees=0, **SMALL).fit(x)
    assert [line.round for line in imputer.trace_][:2] == [1, 2]
    assert not np.isnan(imputer.transform(x)).any()


def test_a_survey_of_more_latent_columns_than_a_full_covariance_takes() -> None:
    rng = np.random.default_rng(0)
    traits = rng.normal(size=(300, 2))
    answers = traits @ rng.normal(size=(2, 24)) + 0.7 * rng.normal(size=(300, 24))
    frame = pd.DataFrame(np.clip(np.round(answers), -2, 2)).add_prefix("q")
    for k in range(12):
        frame[f"c{k}"] = np.where(traits[:, k % 2] + 0.5 * rng.normal(size=300) > 0, "yes", "no")
    frame["region"] = rng.choice(list("abcdefghijklmnopqr"), 300)
    missing = pd.DataFrame(rng.random(frame.shape) < 0.2, columns=frame.columns)
    imputer = DiffPuter(max_steps=100, boosted_trees=0, **SMALL).fit(frame.mask(missing))
    filled = imputer.transform(frame.mask(missing))
    numbers = [name for name in frame if name.startswith("q")]
    error = (filled[numbers] - frame[numbers]).where(missing[numbers]).stack().pow(2).mean() ** 0.5
    assert error < 0.8 * frame[numbers].to_numpy().std()
    drawn = imputer.sample(frame.mask(missing), 1)[0]
    assert set(np.unique(drawn["q0"])) <= set(frame["q0"])

"""R's mice: draws of a known distribution, columns that its defaults leave out, what is not installed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diffputer.benchmark.campaign import find_lack
from diffputer.comparing.candidates import DEFAULT_METHODS, choose_candidates
from diffputer.errors import InputError, SettingError
from diffputer.methods.table import METHODS, make_method

from .test_contract import has_r

NAMES = ("r-mice-pmm", "r-mice-cart")
needs_r = pytest.mark.skipif(not has_r(), reason="needs R and its package mice")


def gaussian_pair(n: int, seed: int, slope: float = 2.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": 1.0 + slope * a + rng.normal(size=n)})


def line(table: pd.DataFrame) -> tuple[float, float]:
    """Slope of b on a, and the deviation around the line."""
    slope, intercept = np.polyfit(table["a"], table["b"], 1)
    return slope, float(np.std(table["b"] - slope * table["a"] - intercept))


@needs_r
@pytest.mark.parametrize(("name", "tolerance"), [("r-mice-pmm", 0.12), ("r-mice-cart", 0.2)])
def test_draws_of_a_gaussian_have_its_slope_and_its_spread(name: str, tolerance: float) -> None:
    table = gaussian_pair(1000, 0)
    gone = np.random.default_rng(1).random(1000) < 0.5
    holes = table.assign(b=table["b"].mask(gone))
    method = make_method(name).fit(holes, [], seed=0)
    lines = np.array([line(draw[gone]) for draw in method.sample(holes, 10, seed=0)])
    # Of 500 cells: standard errors of about 0.05 (slope) and 0.03, and leaves are steps.
    assert lines.mean(axis=0) == pytest.approx([2.0, 1.0], abs=tolerance)
    assert lines[:, 0].std() > 0.01
    assert line(method.transform(holes)[gone])[1] < 0.7  # a mean of 20 draws does not scatter as they do


@needs_r
@pytest.mark.parametrize("name", NAMES)
def test_new_rows_do_not_inform_the_models(name: str) -> None:
    method = make_method(name, maxit=2).fit(gaussian_pair(300, 0), [], seed=0)
    new = gaussian_pair(2000, 1, slope=-2.0)
    gone = np.arange(2000) < 300
    drawn = method.sample(new.assign(b=new["b"].mask(gone)), 1, seed=0)[0]
    assert line(drawn[gone])[0] == pytest.approx(2.0, abs=0.25)
    assert drawn["b"][~gone].equals(new["b"][~gone])


@needs_r
def test_drawn_numbers_are_observed_ones_and_few_draws_are_the_first_of_many() -> None:
    holes = gaussian_pair(120, 0).mask(np.random.default_rng(1).random((120, 2)) < 0.3)
    method = make_method("r-mice-pmm", m=3, maxit=2).fit(holes, [], seed=0)
    draws = method.sample(holes, 3, seed=0)
    for name in holes:
        donors = holes[name].dropna().to_numpy()
        nearest = np.abs(draws[0][name].to_numpy()[:, None] - donors).min(axis=1)
        assert nearest.max() < 1e-12
    pd.testing.assert_frame_equal(method.sample(holes, 2, seed=0)[1], draws[1])
    mean = sum(draw.to_numpy() for draw in draws) / 3
    assert method.transform(holes).to_numpy() == pytest.approx(mean)


@needs_r
@pytest.mark.parametrize("name", NAMES)
def test_columns_that_mice_leaves_out_by_default_are_imputed(name: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    truth = pd.DataFrame(
        {
            "a": 1e-9 * a,  # a variance below 1000 times the precision
            "twin": a + 1e-3 * rng.normal(size=400),  # correlates by more than 0.999
            "same": 3.0,
            "one": "u",
            "rare": np.where(np.arange(400) == 7, "once", np.where(a > 0, "high", "low")),
        }
    )
    holes = truth.mask(rng.random(truth.shape) < 0.2)
    holes.loc[holes.index[7], "rare"] = "once"
    completed = make_method(name, m=5, maxit=3).fit(holes, ["one", "rare"], 0).transform(holes)
    assert not completed.isna().to_numpy().any()
    assert set(completed["same"]) == {3.0}
    assert set(completed["one"]) == {"u"}
    alone = (holes["a"].isna() & holes["twin"].notna()).to_numpy()
    assert np.corrcoef(completed["a"][alone], truth["a"][alone])[0, 1] > 0.95


@needs_r
def test_categories_beside_mean_matching_can_be_imputed_by_trees() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=200)
    levels = pd.Series(np.select([a < -0.5, a < 0.5], ["low", "middle"], "high"))
    table = pd.DataFrame({"a": a, "level": levels.mask(rng.random(200) < 0.3)})
    for categories in ("polyreg", "cart", "pmm"):
        method = make_method("r-mice-pmm", m=3, maxit=2, categories=categories).fit(table, ["level"], 0)
        gone = table["level"].isna()
        assert (method.transform(table)["level"] == levels)[gone].mean() > 0.8
    with pytest.raises(SettingError, match=r"`categories` must be one of .*; got 'forest'"):
        make_method("r-mice-pmm", categories="forest").fit(table, ["level"], 0)


@needs_r
def test_a_table_of_one_column_is_refused() -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, None], "same": [1.0, 1.0, 1.0]})
    with pytest.raises(InputError, match="two columns whose values differ"):
        make_method("r-mice-pmm").fit(table, [], 0).transform(table)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingError, match=r"Rscript, which must be on the PATH; it is not\. Install R"):
        make_method("r-mice-pmm").fit(gaussian_pair(9, 0), [], 0)
    assert "Install R" in str(find_lack("r-mice-cart"))
    candidates = choose_candidates(["mean", "r-mice-cart"])
    assert [bool(one.absence()) for one in candidates] == [False, True]
    assert not set(NAMES) & set(DEFAULT_METHODS)
    assert set(NAMES) < set(METHODS)
    if os.name == "posix":
        without = tmp_path / "Rscript"
        without.write_text('#!/bin/sh\necho "R 4.2.2"\n')
        without.chmod(0o755)
        with pytest.raises(SettingError, match="must have its package mice"):
            make_method("r-mice-cart").fit(gaussian_pair(9, 0), [], 0)

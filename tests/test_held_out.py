"""Scores of held-out cells, column by column: what they tell, and that they are kept."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter
from diffputer.held_out import cell_error, choose_held_out, column_errors, ratio_errors

from .conftest import TINY, ugly_frame

SMALL: dict[str, Any] = {**TINY, "max_steps": 300, "learning_rate": 3e-3, "mlp_width": 32}


def frame_of(n: int = 600) -> pd.DataFrame:
    """A pair of columns that tell of each other, a category that one tells of, and noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "x": x,
            "twin": 2 * x + 0.05 * rng.normal(size=n),
            "noise": rng.normal(size=n),
            "side": np.where(x > 0, "right", "left"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.1)


def test_a_column_that_others_tell_is_scored_well_and_noise_is_not() -> None:
    imputer = DiffPuter(random_state=0, **SMALL).fit(frame_of(1500))
    scores = imputer.held_out_scores_
    assert scores is not None
    assert list(scores.columns) == ["kind", "n", "error", "baseline", "ratio", "ratio_error"]
    assert scores.index.tolist() == ["x", "twin", "noise", "side"]
    assert scores.loc[["x", "twin"], "ratio"].max() < 0.5
    assert scores.loc["side", "ratio"] < 0.6
    assert scores.loc["noise", "ratio"] > 0.85
    assert scores.loc["side", "baseline"] == pytest.approx(0.5, abs=0.2)  # half of the cells have each level
    # Columns together are what the trace says.
    pooled = float((scores["error"] * scores["n"]).sum() / scores["n"].sum())
    assert pooled == pytest.approx(imputer.trace_[0].held_out_error)


def test_scores_are_saved(tmp_path: Path, tiny: dict[str, Any]) -> None:
    imputer = DiffPuter(random_state=0, **tiny).fit(ugly_frame())
    imputer.save(tmp_path / "model")
    scores = imputer.held_out_scores_
    assert scores is not None
    pd.testing.assert_frame_equal(DiffPuter.load(tmp_path / "model").held_out_scores_, scores)


def test_a_fit_that_goes_on_from_a_checkpoint_has_the_same_scores(
    tmp_path: Path, tiny: dict[str, Any]
) -> None:
    settings = {**tiny, "em_rounds": 2, "checkpoint": tmp_path / "state"}
    first = DiffPuter(random_state=0, **settings).fit(ugly_frame())
    again = DiffPuter(random_state=0, **settings).fit(ugly_frame())
    pd.testing.assert_frame_equal(first.held_out_scores_, again.held_out_scores_)


def test_there_are_no_scores_where_nothing_is_held_out_or_modelled() -> None:
    frame = frame_of(60)
    assert DiffPuter(random_state=0, held_out=0.0, **TINY).fit(frame).held_out_scores_ is None
    constant = pd.DataFrame({"x": [1.0, None, 1.0]})
    assert DiffPuter(random_state=0, **TINY).fit(constant).held_out_scores_ is None


def test_errors_of_columns_add_up_to_that_of_all_cells() -> None:
    rng = np.random.default_rng(0)
    truth, filled = (rng.normal(size=(50, 5)).astype(np.float32) for _ in range(2))
    blocks, n_levels = np.array([0, 1, 1, 3, 4]), np.array([0, 0, 0, 0, 3])
    cells = rng.random((50, 4)) < 0.3
    cells[:, 2] = False
    cells = cells[:, [0, 1, 1, 2, 3]]  # several encoded columns of one are held out together
    errors, n = column_errors(truth, filled, cells, blocks, n_levels)
    assert np.isnan(errors[2])
    assert n.tolist() == cells[:, [0, 1, 3, 4]].sum(axis=0).tolist()
    assert errors[1] == pytest.approx(np.abs(truth - filled)[:, 1:3][cells[:, 1:3]].mean())
    assert errors[3] <= 1  # a wrong level counts as one
    assert cell_error(truth, filled, cells, blocks, n_levels) == pytest.approx(
        np.nansum(errors * n) / n.sum()
    )


def test_the_standard_error_of_a_ratio_is_what_repetition_shows() -> None:
    rng = np.random.default_rng(0)
    signal, noise = rng.normal(size=(2, 400, 300))
    truth, mean = np.exp(signal + noise), np.exp(signal + 0.5)  # a long tail, and what is expected of it
    where = np.ones(truth.shape, dtype=bool), np.arange(300), np.zeros(300, dtype=np.int64)
    own = np.full_like(truth, np.e)
    given = [one.astype(np.float32) for one in (truth, mean, own)]
    errors, baselines = (column_errors(given[0], one, *where)[0] for one in given[1:])
    claimed = ratio_errors(*given, *where)
    assert np.sqrt((claimed**2).mean()) == pytest.approx((errors / baselines).std(), rel=0.15)
    none = np.zeros_like(where[0])
    assert np.isnan(ratio_errors(*given, none, *where[1:])).all()


def test_choosing_cells_takes_no_list_of_all_cells() -> None:
    missing = np.random.default_rng(0).random((100_000, 20)) < 0.2
    tracemalloc.start()
    try:
        held = choose_held_out(missing, np.arange(20), 0.05, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held.cells.sum() == 5_000
    assert not (held.cells & missing).any()
    assert peak < 5 * missing.nbytes

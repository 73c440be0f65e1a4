"""The demonstration: the sample is what its README says, the comparison is fair, the files are there."""

from __future__ import annotations

import io
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from diffputer import demo
from diffputer.errors import InputError
from diffputer.tables.missingness import mcar

SETTINGS = {"max_steps": 20, "mlp_width": 16, "mlp_depth": 1, "batch_size": 64, "device": "cpu"}


def test_sample():
    assert files("diffputer").joinpath("data", "california.csv.gz").stat().st_size <= 120_000
    sample = demo.load_sample()
    assert sample.shape == (4000, 10)
    assert sample.isna().sum().to_dict() == {**dict.fromkeys(sample, 0), "total_bedrooms": 39}
    assert sorted(sample["ocean_proximity"].unique()) == ["<1H OCEAN", "INLAND", "NEAR BAY", "NEAR OCEAN"]
    assert {str(dtype) for dtype in sample.dtypes[2:7]} == {"Int64"}
    assert str(sample["longitude"].dtype) == "float64"


def run(folder, **more):
    console = Console(file=io.StringIO(), width=120)
    result = demo.run_demo(folder, 0, n_rows=300, settings=SETTINGS, progress=False, console=console, **more)
    return result, console.file.getvalue()


def test_demo_writes_and_shows_everything(tmp_path):
    result, words = run(tmp_path / "new" / "folder")
    names = [
        "california.incomplete.csv",
        "california.completed.csv",
        "scores.csv",
        "observed_and_imputed.png",
    ]
    assert [path.name for path in result.files] == names
    incomplete, completed, scores = (pd.read_csv(path) for path in result.files[:3])
    assert result.files[3].read_bytes().startswith(b"\x89PNG")
    assert completed.notna().all().all()
    pd.testing.assert_frame_equal(completed.where(incomplete.notna()), incomplete, check_dtype=False)
    hidden = incomplete.isna() & demo.load_sample().head(300).notna()
    assert hidden.to_numpy().mean() == pytest.approx(0.2, abs=0.03)
    whole = scores[scores["column"] == demo.ALL].set_index("method")
    assert list(whole.index) == [demo.OURS, demo.ITERATIVE, demo.MEANS]
    assert (whole["cells"] == hidden.iloc[:, :9].to_numpy().sum()).all()
    assert whole.loc[demo.MEANS, "rmse"] == pytest.approx(1.0, abs=0.15)  # by the choice of the unit
    for text in ("DiffPuter", "IterativeImputer", "RMSE, median_income", "ocean_proximity", "seconds"):
        assert text in words
    pd.testing.assert_frame_equal(
        result.scores.drop(columns="seconds"), scores.drop(columns="seconds"), rtol=1e-4
    )


def test_scores_by_hand():
    truth = pd.DataFrame({"x": [1.0, 2.0, 3.0, 5.0], "c": ["a", "b", "a", "b"]})
    hidden = np.array([[False, True], [False, False], [True, True], [True, False]])
    frame = truth.mask(hidden)  # x: 1 and 2 are seen, of standard deviation 0.5
    guess = pd.DataFrame({"x": [1.0, 2.0, 2.5, 4.0], "c": ["a", "b", "b", "b"]})
    scores = demo._score("m", frame, guess, truth, hidden, 1.5).set_index("column")
    assert scores.loc["x", "rmse"] == pytest.approx(np.sqrt((1.0 + 4.0) / 2))
    assert scores.loc["x", "mae"] == pytest.approx(1.5)
    assert scores.loc["c", "accuracy"] == 0.5
    assert scores.loc[demo.ALL, ["cells", "rmse", "seconds"]].tolist() == [
        2,
        pytest.approx(np.sqrt(2.5)),
        1.5,
    ]


def test_the_rival_is_not_crippled():
    """With an indicator for every level its guesses would all be the most frequent one."""
    truth = demo.load_sample().head(1500)
    hidden = mcar(truth, 0.2, 0)
    frame = truth.mask(hidden)
    accuracy = [
        demo._score("m", frame, impute(frame, 0), truth, hidden, 0.0)["accuracy"].max()
        for impute in (demo._iterative, demo._means)
    ]
    assert accuracy[0] > accuracy[1] + 0.1


def test_rivals_keep_what_was_observed():
    truth = demo.load_sample().head(200)
    frame = truth.mask(mcar(truth, 0.2, 0))
    for impute in (demo._iterative, demo._means):
        completed = impute(frame, 0)
        assert completed.notna().all().all()
        for name in frame:
            seen = frame[name].notna()
            assert (completed[name][seen] == frame[name][seen]).all()


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        run(tmp_path / "file")

"""Bad input gets a sentence: the rule, the fact, the remedy, the column's name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diffputer import DataWarning, DiffPuter, InputError, SettingError
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.frames import read_table

from ..conftest import TINY


def fit(table: object, **parameters: object) -> object:
    return DiffPuter(**{"random_state": 0, **TINY, **parameters}).fit_transform(table)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (pd.DataFrame(), "columns"),
        (pd.DataFrame({"a": pd.Series(dtype=float)}), "rows"),
        (np.empty((0, 3)), "rows|sample"),
        (np.empty((3, 0)), "columns|feature"),
        (pd.DataFrame({"a": [np.nan, np.nan], "b": [np.nan, np.nan]}), "all 4 cells are missing"),
        (pd.DataFrame([[1.0, np.nan], [2.0, 3.0]], columns=["a", "a"]), "'a'"),
        (pd.DataFrame({"price": ["abc", 3.5, None, 1.0]}), "'price'"),
        (pd.DataFrame({"speed": [1.0, np.inf, np.nan]}), "'speed'.*inf"),
        (np.array([1.0, np.nan]), "2-D|2D|two"),
    ],
    ids=[
        "empty",
        "no rows",
        "no rows, numpy",
        "no columns",
        "all missing",
        "duplicates",
        "mixed",
        "inf",
        "1-D",
    ],
)
def test_tables_that_cannot_be_imputed(table: object, sentence: str) -> None:
    with pytest.raises(InputError, match=f"(?s){sentence}"):
        fit(table)


def test_one_row() -> None:
    with pytest.warns(DataWarning, match="'b'"):
        out = fit(pd.DataFrame({"a": [1.5], "b": [np.nan]}))
    assert out.iloc[0].tolist() == [1.5, 0.0]  # type: ignore[attr-defined]


def test_one_column() -> None:
    out = fit(pd.DataFrame({"a": [1.0, 2.5, np.nan, 4.0] * 5}))
    assert out["a"].between(1.0, 4.0).all()  # type: ignore[index]


def test_a_column_of_a_single_value() -> None:
    out = fit(pd.DataFrame({"a": [1.0, np.nan, 3.5] * 5, "same": [7.0, np.nan, np.nan] * 5}))
    assert (out["same"] == 7.0).all()  # type: ignore[index]


def test_an_all_missing_column_is_kept_and_filled_with_a_warning() -> None:
    with pytest.warns(DataWarning, match="'void'"):
        out = fit(pd.DataFrame({"a": [1.0, np.nan, 3.5] * 5, "void": [np.nan] * 15}))
    assert list(out.columns) == ["a", "void"]  # type: ignore[attr-defined]
    assert (out["void"] == 0).all()  # type: ignore[index]


def test_identifiers_are_passed_through_with_a_warning() -> None:
    frame = pd.DataFrame({"id": [f"person {i}" for i in range(30)], "a": [1.0, np.nan, 3.5] * 10})
    frame.loc[3, "id"] = None
    with pytest.warns(DataWarning, match="'id'"):
        out = fit(frame)
    pd.testing.assert_series_equal(out["id"], frame["id"])  # type: ignore[index]


def test_numbers_as_strings_are_said_to_be_so() -> None:
    frame = pd.DataFrame({"price": [f"{i}.5" for i in range(30)], "a": [1.0, np.nan, 3.5] * 10})
    with pytest.warns(DataWarning, match="'price'.*number"):
        fit(frame)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_million_levels(repeats: int) -> None:
    # Once each they are identifiers; twice each, a category of which the most frequent levels are modelled.
    code = np.tile(np.arange(1_000_000 // repeats).astype(str), repeats)
    code[:5000] = "common"
    table = read_table(pd.DataFrame({"code": pd.Series(code, dtype=object), "a": np.arange(1_000_000.0)}))
    with pytest.warns(DataWarning, match="'code'"):
        encoder = TableEncoder.fit(table)
    assert encoder.width <= 201


def test_settings_that_are_whole_floats_are_taken() -> None:
    fit(pd.DataFrame({"a": [1.0, 2.5, np.nan, 4.0] * 5}), hidden_width=16.0, em_rounds=np.int64(1))


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"n_draws": -1}, r"n_draws must lie in \[1, .*however: n_draws=-1"),
        ({"hidden_width": 0}, "hidden_width must lie"),
        ({"learning_rate": -0.1}, "learning_rate must lie"),
        ({"learning_rate": float("nan")}, "learning_rate must lie"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"held_out": 0.9}, "held_out must lie"),
        ({"em_rounds": "three"}, "em_rounds must be a whole number"),
        ({"sigma_min": 90.0}, "sigma_min must be below sigma_max"),
        ({"codes": "ordinal"}, "codes must be one of 'onehot', 'binary'"),
        ({"engine": "vae"}, "engine must be one of"),
        ({"quality": "ultra"}, "quality must be one of"),
        ({"precision": "float16"}, "precision must be one of"),
        ({"time_budget": -5}, "time_budget must lie"),
        ({"max_levels": 1}, "max_levels must lie"),
        ({"device": "cuda:99"}, "cuda:99.*is not there; available: cpu"),
        ({"device": "abacus"}, "device must be"),
        ({"bounds": {"a": (5, 1)}}, "'a'"),
        ({"bounds": {"zzz": (0, 1)}}, "zzz"),
        ({"schema": {"zzz": "integer"}}, "zzz"),
        ({"schema": {"a": "colour"}}, "colour"),
        ({"categorical_features": ["zzz"]}, "zzz"),
        ({"checkpoint": "no/such/folder/file"}, "no/such/folder"),
        ({"checkpoint": "file", "random_state": None}, "checkpoint belongs to one seed"),
        ({"random_state": -1}, "random_state must be a whole number from 0"),
        ({"random_state": 1.7}, "random_state must be"),
        ({"n_draws": float("nan")}, "n_draws must lie"),
        ({"n_draws": np.ones(3)}, "n_draws must be a whole number"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings(parameters: dict[str, object], sentence: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0] * 5, "b": [1.5, np.nan, 3.0, 4.0] * 5})
    with pytest.raises((SettingError, InputError), match=sentence):
        fit(frame, **parameters)


def test_sparse_input() -> None:
    from scipy.sparse import csr_matrix

    with pytest.raises(TypeError, match="sparse"):
        DiffPuter().fit(csr_matrix(np.eye(3)))


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (12, 1), (5, 40)])
def test_tiny_and_wide_tables_work(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    x[0, 0] = np.nan
    out = fit(x)
    assert np.isfinite(out).all()  # type: ignore[arg-type]


def test_99_percent_missing() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    x[rng.random(x.shape) < 0.99] = np.nan
    assert np.isfinite(fit(x)).all()  # type: ignore[arg-type]

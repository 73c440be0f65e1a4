"""Bad input gets a sentence: the rule, the fact, the remedy, the column's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DataWarning, DiffPuter, InputError, SettingError
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.frames import read_table

from ..conftest import TINY, TINY_PAPER

Fit = Callable[..., Any]


@pytest.fixture
def fit(tiny: dict[str, Any]) -> Fit:
    """Fit and impute a table with every engine."""

    def fit_transform(table: object, **parameters: object) -> Any:
        return DiffPuter(**{"random_state": 0, **tiny, **parameters}).fit_transform(table)

    return fit_transform


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
def test_tables_that_cannot_be_imputed(fit: Fit, table: object, sentence: str) -> None:
    with pytest.raises(InputError, match=f"(?s){sentence}"):
        fit(table)


def test_one_row(fit: Fit) -> None:
    with pytest.warns(DataWarning, match="'b'"):
        out = fit(pd.DataFrame({"a": [1.5], "b": [np.nan]}))
    assert out.iloc[0].tolist() == [1.5, 0.0]


def test_one_column(fit: Fit) -> None:
    out = fit(pd.DataFrame({"a": [1.0, 2.5, np.nan, 4.0] * 5}))
    assert out["a"].between(1.0, 4.0).all()


def test_a_column_of_a_single_value(fit: Fit) -> None:
    out = fit(pd.DataFrame({"a": [1.0, np.nan, 3.5] * 5, "same": [7.0, np.nan, np.nan] * 5}))
    assert (out["same"] == 7.0).all()


def test_an_all_missing_column_is_kept_and_filled_with_a_warning(fit: Fit) -> None:
    with pytest.warns(DataWarning, match="'void'"):
        out = fit(pd.DataFrame({"a": [1.0, np.nan, 3.5] * 5, "void": [np.nan] * 15}))
    assert list(out.columns) == ["a", "void"]
    assert (out["void"] == 0).all()


def test_identifiers_are_passed_through_with_a_warning(fit: Fit) -> None:
    frame = pd.DataFrame({"id": [f"person {i}" for i in range(30)], "a": [1.0, np.nan, 3.5] * 10})
    frame.loc[3, "id"] = None
    with pytest.warns(DataWarning, match="'id'"):
        out = fit(frame)
    pd.testing.assert_series_equal(out["id"], frame["id"])


def test_numbers_as_strings_are_said_to_be_so(fit: Fit) -> None:
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


@pytest.mark.parametrize(
    "settings",
    [{**TINY, "mlp_width": 16.0}, {**TINY_PAPER, "hidden_width": 16.0}],
    ids=["conditional", "paper"],
)
def test_settings_that_are_whole_floats_are_taken(settings: dict[str, Any]) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.5, np.nan, 4.0] * 5})
    DiffPuter(**{**settings, "em_rounds": np.int64(1)}).fit(frame)


HOLES = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0] * 5, "b": [1.5, np.nan, 3.0, 4.0] * 5})


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"learning_rate": -0.1}, "learning_rate must lie"),
        ({"learning_rate": float("nan")}, "learning_rate must lie"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"held_out": 0.9}, "held_out must lie"),
        ({"em_rounds": "three"}, "em_rounds must be a whole number"),
        ({"engine": "vae"}, "engine must be one of 'conditional', 'paper', however: engine='vae'"),
        ({"quality": "ultra"}, "quality must be one of .* with engine="),
        ({"estimate": "mode"}, "estimate must be one of 'mean', 'median', however: estimate='mode'"),
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
        ({"categorical_features": 1}, "categorical_features must be a list of names or positions"),
        ({"schema": "continuous"}, "schema must be a Schema or a dict of column -> kind"),
        ({"bounds": "a"}, "bounds must be a dict of column -> "),
        ({"checkpoint": "no/such/folder/file"}, "no/such/folder"),
        ({"checkpoint": "file", "random_state": None}, "checkpoint belongs to one seed"),
        ({"random_state": -1}, "random_state must be a whole number from 0"),
        ({"random_state": 1.7}, "random_state must be"),
        ({"max_steps": float("nan")}, "max_steps must lie"),
        ({"max_steps": np.ones(3)}, "max_steps must be a whole number"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings(fit: Fit, parameters: dict[str, object], sentence: str) -> None:
    with pytest.raises((SettingError, InputError), match=sentence):
        fit(HOLES, **parameters)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"n_draws": -1}, r"n_draws must lie in \[1, .*however: n_draws=-1"),
        ({"n_draws": float("nan")}, "n_draws must lie"),
        ({"n_draws": np.ones(3)}, "n_draws must be a whole number"),
        ({"hidden_width": 0}, "hidden_width must lie"),
        ({"sigma_min": 90.0}, "sigma_min must be below sigma_max"),
        ({"codes": "ordinal"}, "codes must be one of 'onehot', 'binary'"),
        ({"quality": "balanced"}, "quality must be one of 'auto', 'fast', 'paper' with engine='paper'"),
        ({"mlp_width": 16}, "mlp_width is not of engine='paper' but of engine='conditional'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings_of_the_papers_engine(parameters: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        DiffPuter(**{**TINY_PAPER, **parameters}).fit(HOLES)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"mlp_width": 0}, r"mlp_width must lie in \[8, .*however: mlp_width=0"),
        ({"mlp_depth": 1.5}, "mlp_depth must be a whole number"),
        ({"attention_width": 48}, "`attention_width` must be a multiple of 32; got 48"),
        ({"mlp_members": 0, "attention_members": 0}, "needs a member; got mlp_members=0"),
        ({"dropout": 1.0}, "dropout must lie"),
        ({"copied_patterns": 1.1}, "copied_patterns must lie"),
        (
            {"quality": "paper"},
            "quality must be one of 'auto', 'fast', 'balanced', 'best' with engine='conditional'",
        ),
        ({"churn": 1.0}, "churn is not of engine='conditional' but of engine='paper'"),
        ({"n_draws": 3, "codes": "binary"}, "codes, n_draws are not of engine='conditional' but of"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings_of_the_conditional_engine(parameters: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        DiffPuter(**{**TINY, **parameters}).fit(HOLES)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"time_bugdet": 3}, "'time_bugdet' is none. Did you mean time_budget"),
        ({"foo": 1}, r"'foo' is none. help\(DiffPuter\)"),
    ],
)
def test_unknown_parameters(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        DiffPuter(**given)


def test_parameters_without_a_name() -> None:
    with pytest.raises(TypeError, match=r"are given by name, however: 3 has none"):
        DiffPuter(3)  # type: ignore[call-arg]


def test_sparse_input() -> None:
    from scipy.sparse import csr_matrix

    with pytest.raises(TypeError, match="sparse"):
        DiffPuter().fit(csr_matrix(np.eye(3)))


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (12, 1), (5, 40)])
def test_tiny_and_wide_tables_work(fit: Fit, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    x[0, 0] = np.nan
    out = fit(x)
    assert np.isfinite(out).all()


def test_99_percent_missing(fit: Fit) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    x[rng.random(x.shape) < 0.99] = np.nan
    assert np.isfinite(fit(x)).all()

"""Numbers that are 0 and 1, and numbers that name rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from diffputer import DiffPuter, InputError
from diffputer.errors import DataWarning

from ..cli_tools import run

pl = pytest.importorskip("polars")
QUICK: dict[str, Any] = {"random_state": 0, "max_steps": 3, "held_out": 0, "progress": False}


def frame_of(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    smokes = (x > 0).astype(float)
    smokes[::5] = np.nan
    return pd.DataFrame({"x": x.round(3), "smokes": smokes, "y": (x + rng.normal(size=n)).round(3)})


def as_objects(values: pd.Series, sort: Any) -> pd.Series:
    return pd.Series([None if value != value else sort(int(value)) for value in values], dtype=object)


FORMS = {
    "float": lambda f: f,
    "float32": lambda f: f.astype({"smokes": "float32"}),
    "Int64": lambda f: f.astype({"smokes": "Int64"}),
    "arrow dtype": lambda f: f.astype({"smokes": "Int8"}).astype({"smokes": "int8[pyarrow]"}),
    "integers": lambda f: f.assign(smokes=as_objects(f["smokes"], int)),
    "decimals": lambda f: f.assign(smokes=as_objects(f["smokes"], Decimal)),
    "polars": lambda f: pl.from_pandas(f.astype({"smokes": "Int64"})),
    "pyarrow": lambda f: pa.Table.from_pandas(f.astype({"smokes": "Int8"}), preserve_index=False),
    "numpy": lambda f: f.to_numpy(),
}


@pytest.mark.parametrize("engine", ["conditional", "paper"])
@pytest.mark.parametrize("form", FORMS)
def test_zeros_and_ones_are_binary_and_stay_numbers(form: str, engine: str) -> None:
    table = FORMS[form](frame_of())
    imputer = DiffPuter(engine=engine, **QUICK).fit(table)
    full = imputer.transform(table)
    column = full[:, 1] if form == "numpy" else full["smokes"]
    values = column.to_pylist() if form == "pyarrow" else list(column)
    assert imputer.schema_.columns[1].kind == "boolean"
    assert not any(isinstance(value, bool | np.bool_) for value in values)
    assert set(values) == {0, 1}
    if form not in ("numpy", "pyarrow"):
        assert column.dtype == table["smokes"].dtype
    if engine == "conditional":
        probability = imputer.uncertainty(table).probability.iloc[:, 1].dropna()
        assert len(probability) == 16
        assert probability.between(0.5, 1).all()


@pytest.mark.parametrize("wish", [{"schema": {"smokes": "integer"}}, {"bounds": {"smokes": (0, 1)}}])
def test_wishes_and_bounds_keep_a_number(wish: dict[str, Any]) -> None:
    assert DiffPuter(**wish, **QUICK).fit(frame_of()).schema_["smokes"].kind == "integer"


def test_a_schema_can_be_passed_on_and_saved(tmp_path: Path) -> None:
    frame = frame_of()
    imputer = DiffPuter(**QUICK).fit(frame)
    assert DiffPuter(schema=imputer.schema_, **QUICK).fit(frame).schema_ == imputer.schema_
    imputer.save(tmp_path / "model")
    loaded = DiffPuter.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.transform(frame), imputer.transform(frame))
    with pytest.raises(InputError, match="smokes"):
        DiffPuter(schema={"smokes": "boolean"}, **QUICK).fit(frame.assign(smokes=frame["smokes"] + 1))


def test_other_pairs_of_numbers_are_integers() -> None:
    frame = frame_of()
    assert (
        DiffPuter(**QUICK).fit(frame.assign(smokes=frame["smokes"] + 1)).schema_["smokes"].kind == "integer"
    )


def test_new_rows_with_other_numbers_keep_them_with_a_warning() -> None:
    frame = frame_of()
    imputer = DiffPuter(**QUICK).fit(frame)
    with pytest.warns(DataWarning, match="smokes"):
        full = imputer.transform(frame.assign(smokes=frame["smokes"].replace(1.0, 7.0)))
    assert set(full["smokes"]) <= {0.0, 1.0, 7.0}
    assert (full["smokes"] == 7).sum() == (frame["smokes"] == 1).sum()


def test_formulas_read_zeros_and_ones_as_numbers() -> None:
    frame = frame_of()
    frame["fee"] = 3 * frame["smokes"]
    full = DiffPuter(derived={"fee": "3 * smokes"}, **QUICK).fit_transform(frame)
    assert (full["fee"] == 3 * full["smokes"]).all()


def test_scores_and_comparisons_take_zeros_and_ones_as_categories() -> None:
    imputer = DiffPuter(random_state=0, max_steps=3, progress=False).fit(frame_of())
    assert imputer.held_out_scores_.loc["smokes", "kind"] == "boolean"
    from diffputer.comparing.preparation import prepare

    prepared = prepare(frame_of(), max_rows=40, rng=np.random.default_rng(0))
    assert prepared.coded.categorical == ["smokes"]


def test_declared_kinds_encode_as_ever() -> None:
    """The protocol of the benchmark declares its columns, whatever they hold."""
    frame = frame_of().assign(id=np.arange(80.0))
    imputer = DiffPuter(schema=dict.fromkeys(frame, "continuous"), **QUICK).fit(frame)
    assert {str(column.kind) for column in imputer.schema_} == {"continuous"}
    assert {str(column.status) for column in imputer.schema_} == {"modelled"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", np.arange(80)[::-1] * 7),
        ("PassengerId", np.arange(1, 81)),
        ("patient_id", np.arange(80) + 1000),
        ("ID", np.arange(80) % 74 * 7 + 1000),  # some rows are there twice
        ("Unnamed: 0", np.arange(80) * 3),
        ("", np.arange(80)),
        ("rownames", np.arange(1, 81)),
        ("index", np.arange(80)),
        ("X", np.arange(1, 81)),
    ],
)
def test_identifiers_inform_no_other_column(name: str, values: Any) -> None:
    frame = frame_of()
    frame.insert(0, name, values)
    imputer = DiffPuter(**QUICK).fit(frame)  # none of its values is missing: no warning
    assert imputer.schema_[name].status == "identifier"
    assert "identifier" in str(imputer.schema_)
    full = imputer.transform(frame)
    shuffled = imputer.transform(frame.assign(**{name: np.roll(values, 5)}))
    pd.testing.assert_frame_equal(full.drop(columns=name), shuffled.drop(columns=name))
    pd.testing.assert_series_equal(full[name], frame[name])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("day", np.arange(1, 81)),
        ("year", np.arange(1940, 2020)),
        ("index", np.arange(80) * 3),  # an index of something
        ("patient_id", np.arange(80) // 2),  # two rows of each
        ("patient_id", np.arange(80) % 70),
        ("Unnamed: 0", np.arange(80) % 74),
        ("t", np.arange(80)),
        ("user_id", np.arange(80) + 0.5),
    ],
)
def test_trends_groups_and_measurements_are_modelled(name: str, values: Any) -> None:
    frame = frame_of()
    frame.insert(0, name, values)
    assert DiffPuter(**QUICK).fit(frame).schema_[name].status == "modelled"


def test_columns_of_arrays_are_no_identifiers() -> None:
    x = np.column_stack([np.arange(80.0), frame_of().to_numpy()])
    assert {str(column.status) for column in DiffPuter(**QUICK).fit(x).schema_} == {"modelled"}


def test_a_missing_identifier_stays_missing_unless_its_kind_is_stated(tmp_path: Path) -> None:
    frame = frame_of().assign(id=np.arange(80.0))
    frame.loc[3, "id"] = np.nan
    with pytest.warns(DataWarning, match="'id'"):
        imputer = DiffPuter(**QUICK).fit(frame)
    assert imputer.transform(frame).isna().sum().to_dict() == {"x": 0, "smokes": 0, "y": 0, "id": 1}
    again = DiffPuter(schema=imputer.schema_, **QUICK).fit(frame)
    assert again.schema_ == imputer.schema_
    frame.to_csv(tmp_path / "t.csv", index=False)
    run("impute", tmp_path / "t.csv", "--kind", "id=integer", "--quiet")
    assert pd.read_csv(tmp_path / "t.imputed.csv").notna().all().all()


@pytest.mark.parametrize("values", [np.arange(1.0, 81.0), np.arange(80.0)[::-1] * 5 + 1000])
def test_a_row_number_with_missing_values_is_left_alone_and_named(tmp_path: Path, values: Any) -> None:
    frame = frame_of().assign(serial=values)
    frame.loc[np.random.default_rng(1).random(80) < 0.2, "serial"] = np.nan
    with pytest.warns(DataWarning, match="[Ii]dentifiers and row numbers .*'serial'"):
        imputer = DiffPuter(**QUICK).fit(frame)
    assert imputer.schema_["serial"].status == "identifier"
    pd.testing.assert_series_equal(imputer.transform(frame)["serial"], frame["serial"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    run("impute", tmp_path / "t.csv", "--kind", "serial=integer", "--quiet")
    assert pd.read_csv(tmp_path / "t.imputed.csv").notna().all().all()


@pytest.mark.parametrize("change", ["order", "gap", "array"])
def test_numbers_that_do_not_count_the_rows_are_imputed(change: str) -> None:
    values = np.arange(1.0, 81.0)
    if change == "order":
        values = np.random.default_rng(0).permutation(values)
    elif change == "gap":  # a row was removed
        values[40:] += 1
    frame: Any = frame_of().assign(serial=values)
    frame.loc[::7, "serial"] = np.nan
    if change == "array":
        frame = frame.to_numpy()
    assert DiffPuter(**QUICK).fit(frame).schema_.columns[3].status == "modelled"


def test_the_command_line_notes_identifiers_without_missing_values(tmp_path: Path) -> None:
    frame_of().assign(id=np.arange(80)).to_csv(tmp_path / "t.csv", index=False)
    said = run("impute", tmp_path / "t.csv").stderr
    assert "note: identifiers and row numbers inform no other column: 'id'" in said
    assert "warning: Identifiers" not in said

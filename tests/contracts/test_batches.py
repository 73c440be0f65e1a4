"""What is imputed does not depend on the batch: one call, chunks and a saved imputer give the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from diffputer import DiffPuter, Imputations
from diffputer.errors import DataWarning, InputError, ModelFileError

pl = pytest.importorskip("polars")

N = 40
DAY = dt.date(2020, 1, 1)
CONTAINERS = ["pandas", "pyarrow", "polars"]


def fit(table: Any, **options: Any) -> DiffPuter:
    return DiffPuter(**{"max_steps": 3, "held_out": 0, "random_state": 0, **options}).fit(table)


class _Maker:
    """Columns of whole numbers below 40, turned into values of every type."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)

    def numbers(self) -> np.ndarray:
        return self.rng.integers(0, 40, N)

    def objects(self, make: Any) -> np.ndarray:
        cells = np.empty(N, dtype=object)
        cells[:] = [None if self.rng.random() < 0.4 else make(int(k)) for k in self.numbers()]
        return cells

    def letters(self) -> list[str | None]:
        return [None if self.rng.random() < 0.4 else "abc"[k % 3] for k in self.numbers()]

    def mask(self) -> np.ndarray:
        return self.rng.random(N) < 0.4


def arrow_table() -> pa.Table:
    make = _Maker()

    def cast(kind: Any, factor: int = 1, width: str = "int64") -> Any:
        return pa.array((make.numbers() * factor).astype(width), mask=make.mask()).cast(kind)

    columns = {
        "date32": pa.array(make.objects(lambda k: DAY + dt.timedelta(days=k)).tolist(), pa.date32()),
        "date64": pa.array(make.objects(lambda k: DAY + dt.timedelta(days=k)).tolist(), pa.date64()),
        "time32[s]": cast(pa.time32("s"), width="int32"),
        "time32[ms]": cast(pa.time32("ms"), width="int32"),
        "time64[us]": cast(pa.time64("us")),
        "time64[ns]": cast(pa.time64("ns"), 1000),
        "decimal128": pa.array(make.objects(lambda k: Decimal(k) / 4).tolist(), pa.decimal128(9, 2)),
        "decimal256": pa.array(make.objects(lambda k: Decimal(k) / 4).tolist(), pa.decimal256(50, 3)),
        "dictionary": pa.array(make.letters())
        .dictionary_encode()
        .cast(pa.dictionary(pa.int8(), pa.string())),
        "ordered": pa.DictionaryArray.from_arrays(
            pa.array((make.numbers() % 3).astype("int16"), mask=make.mask()),
            pa.array(["z", "x", "y", "unused"]),
            ordered=True,
        ),
        "string": pa.array(make.letters()),
        "large_string": pa.array(make.letters(), pa.large_string()),
        "bool": pa.array(make.numbers() % 2 == 0, mask=make.mask()),
        "halffloat": pa.array((make.numbers() / 8).astype("float16"), mask=make.mask()),
        "float": pa.array((make.numbers() / 8).astype("float32"), mask=make.mask()),
        "double": pa.array(make.numbers() / 8, mask=make.mask()),
        "constant": pa.array([None if gone else 7 for gone in make.mask()], pa.int8()),
    }
    for unit in ("s", "ms", "us", "ns"):
        columns[f"timestamp[{unit}]"] = cast(pa.timestamp(unit), 1000)
        columns[f"zoned[{unit}]"] = cast(pa.timestamp(unit, "Europe/Berlin"), 1000)
        columns[f"duration[{unit}]"] = cast(pa.duration(unit), 1000)
    for bits in (8, 16, 32, 64):
        columns[f"int{bits}"] = cast(getattr(pa, f"int{bits}")())
        columns[f"uint{bits}"] = cast(getattr(pa, f"uint{bits}")())
    if int(pa.__version__.partition(".")[0]) >= 18:  # older ones cannot cast to it
        columns["string_view"] = pa.array(make.letters()).cast(pa.string_view())
    return pa.table(columns)


def pandas_table() -> pd.DataFrame:
    make = _Maker()
    berlin = ZoneInfo("Europe/Berlin")
    objects = {
        "date": lambda k: DAY + dt.timedelta(days=k),
        "datetime": lambda k: dt.datetime(2020, 1, 1, k % 24, 3),
        "datetime, zone": lambda k: dt.datetime(2020, 1, 1, k % 24, 3, tzinfo=berlin),
        "Timestamp": lambda k: pd.Timestamp(2020, 1, 1 + k % 28, 5),
        "Timestamp, zone": lambda k: pd.Timestamp(2020, 1, 1 + k % 28, 5, tz="UTC"),
        "Decimal": lambda k: Decimal(k) / 4,
        "timedelta": lambda k: dt.timedelta(seconds=k),
        "Timedelta": lambda k: pd.Timedelta(seconds=k),
        "time": lambda k: dt.time(k % 24, k),
        "np.int64": np.int64,
        "np.int8": np.int8,
        "np.bool": lambda k: np.bool_(k % 2),
        "np.float32": lambda k: np.float32(k / 8),
        "np.datetime64": lambda k: np.datetime64("2020-01-01", "s") + k,
        "np.timedelta64": lambda k: np.timedelta64(k, "s"),
        "np.datetime64, days": lambda k: np.datetime64("2020-01-01") + k,
        "np.timedelta64, hours": lambda k: np.timedelta64(k, "h"),
        "int": int,
        "float": lambda k: k / 8,
        "int or float": lambda k: k if k % 2 else k / 8,
        "bool objects": lambda k: k % 2 == 0,
        "str objects": lambda k: "abc"[k % 3],
        "constant date": lambda k: DAY,
    }
    frame = {name: pd.Series(make.objects(one), dtype=object) for name, one in objects.items()}
    frame["int64"] = pd.Series(make.numbers())
    frame["bool"] = pd.Series(make.numbers() % 2 == 0)
    for dtype in ("float16", "float32", "float64", "Int8", "UInt64", "Int64", "Float32"):
        frame[dtype] = pd.Series(make.numbers()).astype(dtype).mask(make.mask())
    frame["boolean"] = pd.Series(make.numbers() % 2 == 0).astype("boolean").mask(make.mask())
    for dtype in ("string", "str"):
        frame[dtype + " dtype"] = pd.Series(make.letters()).astype(dtype).mask(make.mask())
    for ordered in (False, True):
        kind = pd.CategoricalDtype(["c", "a", "unused", "b"], ordered=ordered)
        frame[f"category {ordered}"] = pd.Series(make.letters()).astype(kind)
    frame["category of int8"] = (
        pd.Series(make.numbers() % 3).astype("int8").astype("category").mask(make.mask())
    )
    moments = pd.Series(np.datetime64("2020-01-01", "s") + make.numbers())
    frame["datetime64[s]"] = moments.mask(make.mask())
    frame["datetime64[ns]"] = moments.astype("datetime64[ns]").mask(make.mask())
    frame["datetime64[s, zone]"] = moments.dt.tz_localize("America/New_York").mask(make.mask())
    frame["timedelta64[ms]"] = pd.Series(make.numbers().astype("timedelta64[ms]")).mask(make.mask())
    for fill in (0.0, np.nan):
        sparse = np.where(make.mask(), np.nan, make.numbers() % 5 / 2)
        frame[f"sparse {fill}"] = pd.Series(pd.arrays.SparseArray(sparse, fill_value=fill))
    for name, column in zip(arrow_table().column_names, arrow_table().columns, strict=True):
        frame[f"Arrow {name}"] = pd.Series(pd.arrays.ArrowExtensionArray(column))
    return pd.DataFrame(frame)


def polars_table() -> Any:
    make = _Maker()
    columns = {
        "Date": pl.Series(make.objects(lambda k: DAY + dt.timedelta(days=k)).tolist()),
        "Time": pl.Series(make.objects(lambda k: dt.time(k % 24)).tolist()),
        "Decimal": pl.Series(
            make.objects(lambda k: Decimal(k * 250).scaleb(-3)).tolist(), dtype=pl.Decimal(12, 3)
        ),
        "Boolean": pl.Series(make.objects(lambda k: k % 2 == 0).tolist()),
        "String": pl.Series(make.letters()),
        "Categorical": pl.Series(make.letters(), dtype=pl.Categorical),
        "Enum": pl.Series(make.letters(), dtype=pl.Enum(["unused", "c", "a", "b"])),
    }
    for unit in ("ms", "us", "ns"):
        for name, dtype in (
            ("Datetime", pl.Datetime(unit)),
            ("Zoned", pl.Datetime(unit, "Europe/Berlin")),
            ("Duration", pl.Duration(unit)),
        ):
            cells = make.objects(lambda k: k * 1_000_000).tolist()
            columns[f"{name}[{unit}]"] = pl.Series(cells, dtype=pl.Int64).cast(dtype)
    for name in (
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "Int128",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Float32",
    ):
        if hasattr(pl, name):
            columns[name] = pl.Series(make.objects(int).tolist(), dtype=pl.Int64).cast(getattr(pl, name))
    columns["Float64"] = pl.Series(make.objects(lambda k: k / 8).tolist())
    return pl.DataFrame(columns)


TABLES = {"pandas": pandas_table, "pyarrow": arrow_table, "polars": polars_table}


def columns_of(table: Any) -> dict[str, tuple[Any, list[Any]]]:
    """Of each column its dtype and its cells, with the type of each."""
    found = {}
    for name in table.column_names if isinstance(table, pa.Table) else table.columns:
        column = table[name]
        dtype = column.type if isinstance(table, pa.Table) else column.dtype
        cells = column.to_pylist() if isinstance(table, pa.Table) else list(column)
        found[name] = dtype, [(type(cell), str(cell)) for cell in cells]
    return found


def rows_of(table: Any, start: int, stop: int) -> Any:
    return table.iloc[start:stop] if isinstance(table, pd.DataFrame) else table.slice(start, stop - start)


def joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], pd.DataFrame):
        return pd.concat(parts)
    return pa.concat_tables(parts) if isinstance(parts[0], pa.Table) else pl.concat(parts)


def assert_same(left: Any, right: Any) -> None:
    one, other = columns_of(left), columns_of(right)
    assert list(one) == list(other)
    for name, column in one.items():
        assert column == other[name], name


@pytest.fixture(scope="module", params=CONTAINERS)
def fitted(request: pytest.FixtureRequest) -> tuple[Any, DiffPuter, Any]:
    table = TABLES[request.param]()
    imputer = fit(table)
    return table, imputer, imputer.transform(table)


@pytest.mark.parametrize("size", [1, 5, 17])
def test_chunks_have_the_values_and_types_of_one_call(fitted: Any, size: int) -> None:
    table, imputer, whole = fitted
    parts = [imputer.transform(rows_of(table, start, min(N, start + size))) for start in range(0, N, size)]
    assert_same(joined(parts), whole)


def test_saved_imputers_know_the_types(fitted: Any, tmp_path: Any) -> None:
    table, imputer, whole = fitted
    imputer.save(tmp_path / "model")
    again = DiffPuter.load(tmp_path / "model")
    assert_same(again.transform(table), whole)
    assert_same(again.transform(empty(table)), imputer.transform(empty(table)))


def empty(table: Any, container: str | None = None, nothing: Any = None) -> Any:
    """Three rows without any value, in columns without a type."""
    names = table.column_names if isinstance(table, pa.Table) else list(table.columns)
    if (container or type(table).__module__.partition(".")[0]) == "pandas":
        return pd.DataFrame(
            {name: pd.Series([nothing] * 3, dtype=object if nothing is None else float) for name in names}
        )
    if (container or type(table).__module__.partition(".")[0]) == "pyarrow":
        return pa.table({name: pa.nulls(3) for name in names})
    return pl.DataFrame({name: pl.Series([None] * 3, dtype=pl.Null) for name in names})


def test_columns_without_a_value_get_the_type_of_the_fit(fitted: Any) -> None:
    table, imputer, whole = fitted
    cells = columns_of(imputer.transform(empty(table)))
    for name, (dtype, values) in columns_of(whole).items():
        assert cells[name][0] == dtype, name
        assert {sort for sort, _ in cells[name][1]} <= {sort for sort, _ in values}, name
    if isinstance(table, pd.DataFrame):
        assert_same(imputer.transform(empty(table, nothing=np.nan)), imputer.transform(empty(table)))


def test_draws_and_intervals_have_the_type_of_the_fit(fitted: Any, tmp_path: Any) -> None:
    table, imputer, whole = fitted
    few = imputer.sample(empty(table), 2)
    few.to_parquet(tmp_path / "draws.parquet")
    again = Imputations.from_parquet(tmp_path / "draws.parquet")
    assert_same(again[1], few[1])
    uncertainty = imputer.uncertainty(empty(table))
    for one in (few[0], few.mean(), uncertainty.lower, uncertainty.upper):
        assert {name: dtype for name, (dtype, _) in columns_of(one).items()} == {
            name: dtype for name, (dtype, _) in columns_of(whole).items()
        }


@pytest.mark.parametrize("container", CONTAINERS)
def test_other_containers_get_the_equivalent_type(fitted: Any, container: str) -> None:
    table, imputer, _ = fitted
    own = columns_of(imputer.transform(empty(table)))
    other = columns_of(imputer.transform(empty(table, container)))
    assert list(own) == list(other)
    for name, (_, cells) in other.items():
        assert not any(value in ("None", "nan", "NaT", "<NA>") for _, value in cells), name


def test_equivalents_of_types_in_arrow_and_pandas() -> None:
    frame = pandas_table()
    wanted = {
        "date": "date32[day]",
        "Decimal": "decimal128(38, 2)",
        "datetime, zone": "timestamp[us, tz=Europe/Berlin]",
        "timedelta": "duration[us]",
        "time": "time64[us]",
        "datetime64[s]": "timestamp[s]",
        "datetime64[s, zone]": "timestamp[s, tz=America/New_York]",
        "Int8": "int8",
        "float16": "halffloat",
        "boolean": "bool",
        "str objects": "string",
        "category True": "dictionary<values=string, indices=int32, ordered=1>",
        "Arrow time32[ms]": "time32[ms]",
    }
    found = fit(frame).transform(empty(frame, "pyarrow"))
    assert {name: str(found.schema.field(name).type) for name in wanted} == wanted
    arrow = arrow_table()
    back = fit(arrow).transform(empty(arrow, "pandas"))
    dtypes = {name: str(back[name].dtype) for name in ("int8", "timestamp[ms]", "ordered", "date32", "bool")}
    assert dtypes == {
        "int8": "int8",
        "timestamp[ms]": "datetime64[ms]",
        "ordered": "category",
        "date32": "object",
        "bool": "bool",
    }
    assert type(back["date32"][0]) is dt.date
    assert back["decimal128"][0].as_tuple().exponent == -2
    assert back["ordered"].cat.categories.tolist() == ["z", "x", "y", "unused"]


def test_arrays_of_objects_get_the_python_type_of_the_fit() -> None:
    make = _Maker()
    array = np.array([make.objects(lambda k: DAY + dt.timedelta(days=k)), make.objects(np.int8)], object).T
    imputer = fit(array)
    found = imputer.transform(np.full((2, 2), None, dtype=object))
    assert [type(cell) for cell in found[0]] == [dt.date, np.int8]


def test_decimal_places_are_those_of_the_fit() -> None:
    make = _Maker()
    frame = pd.DataFrame({"d": make.objects(lambda k: Decimal(k) / 4), "x": make.numbers() / 8})
    batch = pd.DataFrame({"d": [Decimal("1.5"), None, Decimal("2.12345"), None], "x": [1.0, 2.0, 3.0, 4.0]})
    imputer = fit(frame)
    found = imputer.transform(batch)["d"]
    assert [found[1].as_tuple().exponent, found[3].as_tuple().exponent] == [-2, -2]
    assert found[1] == imputer.transform(batch.iloc[1:2])["d"][1]


# ---------------------------------------------------------------------------------------------------------
# Categories


def letters(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    code = rng.integers(0, 4, n)
    return pd.DataFrame({"x": code * 10.0, "c": [None if rng.random() < 0.3 else "abcd"[k] for k in code]})


@pytest.mark.parametrize("declared", [True, False])
def test_categories_of_a_batch_do_not_change_what_is_imputed(declared: bool) -> None:
    frame = letters()
    imputer = fit(frame.astype({"c": "category"}) if declared else frame, max_steps=60)
    whole = imputer.transform(frame.astype({"c": "category"}))["c"].tolist()
    assert len({whole[row] for row in np.flatnonzero(frame["c"].isna())}) > 1
    batches = [frame.iloc[start : start + 5].astype({"c": "category"}) for start in range(0, 60, 5)]
    parts = [imputer.transform(batch) for batch in batches]
    assert [cell for part in parts for cell in part["c"]] == whole
    for batch, part in zip(batches, parts, strict=True):
        own, now = batch["c"].cat.categories.tolist(), part["c"].cat.categories.tolist()
        if set(part["c"]) <= set(own):
            assert now == own
        else:
            assert now == own + [level for level in "abcd" if level not in own]


def test_draws_do_not_depend_on_the_categories_of_a_batch() -> None:
    frame = letters()
    frame["x"] += np.random.default_rng(0).random(len(frame))  # equal rows are told apart by their place
    imputer = fit(frame.astype({"c": "category"}), max_steps=60)
    whole = [table["c"].tolist() for table in imputer.sample(frame.astype({"c": "category"}), 3)]
    chunks = [
        [table["c"].tolist() for table in imputer.sample(frame.iloc[k : k + 5].astype({"c": "category"}), 3)]
        for k in range(0, 60, 5)
    ]
    assert [[cell for part in chunks for cell in part[draw]] for draw in range(3)] == whole


def test_ordered_categories_keep_the_order_of_the_fit() -> None:
    order = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, 80)
    frame = pd.DataFrame({"x": code * 10.0, "c": pd.Categorical.from_codes(code, dtype=order)})
    imputer = fit(frame, max_steps=200)

    def batch(levels: list[str]) -> pd.DataFrame:
        cells = pd.Categorical(["high", None], categories=levels, ordered=True)
        return pd.DataFrame({"x": [20.0, 10.0], "c": cells})

    found = imputer.transform(batch(["low", "high"]))["c"]
    assert found.tolist() == ["high", "mid"]
    assert found.cat.categories.tolist() == ["low", "mid", "high"]
    assert found.cat.ordered
    for levels in (["high", "low"], ["low", "high", "unheard of"]):
        with pytest.raises(InputError, match=r"'c'.*'mid'"):
            imputer.transform(batch(levels))
    assert imputer.transform(batch(["high", "mid"]))["c"].tolist() == ["high", "mid"]  # it has what is needed


def test_an_enum_that_lacks_a_category_is_refused_and_a_dictionary_is_extended() -> None:
    frame = letters()
    imputer = fit(frame, max_steps=200)
    known = ["a", "b", "c"]  # x = 30 stands for d
    with pytest.raises(InputError, match=r"'c' of dtype Enum.*'d'.*categories 'a', 'b', 'c', 'd'"):
        imputer.transform(
            pl.DataFrame({"x": [10.0, 30.0], "c": pl.Series(["b", None], dtype=pl.Enum(known))})
        )
    batch = pa.table({"x": [10.0, 30.0], "c": pa.array(["b", None]).dictionary_encode()})
    found = imputer.transform(batch)["c"]
    assert found.type == batch["c"].type
    assert found.to_pylist() == ["b", "d"]


# ---------------------------------------------------------------------------------------------------------
# Numbers that a dtype cannot hold


@pytest.mark.parametrize(
    "dtype", [pa.int8(), pa.uint8(), pa.uint32(), pa.decimal128(3, 1), pa.float16()], ids=str
)
def test_numbers_beyond_a_dtype_are_refused(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], 60)
    scale = 1e5 if dtype == pa.float16() else 300
    frame = pa.table({"x": sign, "n": (sign * scale + rng.integers(0, 9, 60)).astype(int)})
    imputer = fit(frame, max_steps=100)
    cells = pa.array([np.float16(1), None])  # pyarrow 15 casts neither from nor to float16
    cells = cells if dtype == pa.float16() else pa.array([1.0, None]).cast(dtype)
    batch = pa.table({"x": [-1.0, -1.0], "n": cells})
    with pytest.raises(InputError, match=r"'n' of dtype.*cannot hold -.*int64"):
        imputer.transform(batch)
    with pytest.raises(InputError, match="'n' of dtype"):
        imputer.sample(batch, 2)
    wide = pa.table({"x": [-1.0, -1.0], "n": pa.array([1.0, None])})
    assert imputer.transform(wide)["n"].to_pylist()[1] < -200


def test_coarser_dtypes_are_warned_of() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=50), "y": rng.normal(size=50)})
    imputer = fit(frame)
    batch = pl.DataFrame({"x": [1, None], "y": [0.5, 0.25]})
    with pytest.warns(DataWarning, match=r"'x'.*int64"):
        assert imputer.transform(batch)["x"].dtype == pl.Int64
    imputer.transform(batch.cast({"x": pl.Float32}))  # without a warning


def test_objects_that_are_whole_in_a_batch_hold_fractions() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": (rng.normal(size=50)).astype(object), "y": rng.normal(size=50)})
    imputer = fit(frame)
    batch = pd.DataFrame({"x": [1, None, 2.5], "y": [1.0, 2.0, 3.0]}, dtype=object).astype({"y": float})
    assert imputer.transform(batch.iloc[:2])["x"].tolist() == imputer.transform(batch)["x"].tolist()[:2]


# ---------------------------------------------------------------------------------------------------------
# Files


@pytest.mark.parametrize(
    "change",
    [
        {"arrow": "struct<a: int8>"},
        {"arrow": 7},
        {"dtype": "(9,9)f8"},
        {"dtype": "no such dtype"},
        {"container": "excel"},
        {"cells": "os.system"},
        {"decimals": 10**9},
        {"text": {"kind": "number", "decimals": 10**9}},
        {"text": {"kind": "date", "date_format": "%Z"}},
        {"unknown": 1},
    ],
)
def test_damaged_types_are_refused(change: dict[str, Any], tmp_path: Any) -> None:
    from diffputer import persistence

    imputer = fit(
        pd.DataFrame({"x": [1.0, 2.0, None], "d": [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1)]})
    )
    imputer.save(tmp_path / "model")
    tensors, facts = persistence.read_file(tmp_path / "model", persistence.MODEL)
    column = facts["encoder"]["schema"]["columns"][0]
    column["type"] = {**column["type"], **change}
    persistence.write_file(tmp_path / "model", persistence.MODEL, tensors, facts)
    with pytest.raises(ModelFileError):
        DiffPuter.load(tmp_path / "model")

"""Reading tables of every container, and writing into their holes without touching anything else."""

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandas.testing as pdt
import pyarrow as pa
import pytest

from diffputer.errors import InputError
from diffputer.tables.cells import Family
from diffputer.tables.frames import read_table

DAYS = [dt.datetime(2020, 1, 1), None, dt.datetime(2021, 5, 1)]
NEW_DAY = np.array(["2020-06-01"], dtype="datetime64[us]")
NEW_SPAN = np.array([90_000_000], dtype="timedelta64[us]")


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def zoned(unit: str, zone: Any) -> pd.Series:
    return pd.Series(pd.to_datetime(DAYS)).dt.as_unit(unit).dt.tz_localize(zone)


NUMBER, LABEL = np.array([2.0]), objects("b")
PANDAS = {
    "float64": (pd.Series([1.0, None, 3.0]), NUMBER),
    "float32": (pd.Series([1.0, None, 3.0], dtype="float32"), NUMBER),
    "float16": (pd.Series([1.0, None, 3.0], dtype="float16"), NUMBER),
    "Int8": (pd.Series([1, None, 3], dtype="Int8"), np.array([2])),
    "UInt64": (pd.Series([1, None, 2**64 - 1], dtype="UInt64"), np.array([2**64 - 2], dtype=np.uint64)),
    "Float32": (pd.Series([1, None, 3], dtype="Float32"), NUMBER),
    "boolean": (pd.Series([True, None, True], dtype="boolean"), np.array([False])),
    "string": (pd.Series(["a", None, "c"], dtype="string"), LABEL),
    "string python": (pd.Series(["a", None, "c"], dtype="string[python]"), LABEL),
    "inferred text": (pd.Series(["a", None, "c"]), LABEL),
    "object text": (pd.Series(["a", None, "c"], dtype=object), LABEL),
    "object bool": (pd.Series([True, None, False], dtype=object), np.array([False])),
    "object int": (pd.Series([1, None, 3], dtype=object), np.array([2])),
    "object float": (pd.Series([1.5, None, 3], dtype=object), NUMBER),
    "object date": (pd.Series([d and d.date() for d in DAYS], dtype=object), NEW_DAY),
    "object datetime": (pd.Series(DAYS, dtype=object), NEW_DAY),
    "object decimal": (pd.Series([Decimal("1.25"), None, Decimal("3.5")], dtype=object), NUMBER),
    "object span": (pd.Series([dt.timedelta(1), None, dt.timedelta(2)], dtype=object), NEW_SPAN),
    "object time": (pd.Series([dt.time(1), None, dt.time(2)], dtype=object), objects(dt.time(3))),
    "category": (pd.Series(pd.Categorical(["a", None, "c"], categories=list("zcba"), ordered=True)), LABEL),
    "category int": (pd.Series(pd.Categorical([1, None, 2], categories=[3, 2, 1])), objects(3)),
    "datetime ns": (pd.Series(pd.to_datetime(DAYS)).dt.as_unit("ns"), NEW_DAY),
    "datetime s": (pd.Series(pd.to_datetime(DAYS)).dt.as_unit("s"), NEW_DAY),
    "datetime tz": (zoned("ms", "Europe/Berlin"), NEW_DAY),
    "datetime offset": (zoned("ns", dt.timezone(dt.timedelta(hours=2))), NEW_DAY),
    "timedelta": (pd.Series(pd.to_timedelta([1, None, 2], unit="D")), NEW_SPAN),
    "sparse": (pd.Series(pd.arrays.SparseArray([1.0, np.nan, 3.0])), NUMBER),
    "arrow int": (pd.Series([1, None, 3], dtype=pd.ArrowDtype(pa.int16())), np.array([2])),
    "arrow float": (pd.Series([1, None, 3], dtype=pd.ArrowDtype(pa.float32())), NUMBER),
    "arrow bool": (pd.Series([True, None, True], dtype=pd.ArrowDtype(pa.bool_())), np.array([False])),
    "arrow text": (pd.Series(["a", None, "c"], dtype=pd.ArrowDtype(pa.string())), LABEL),
    "arrow date": (pd.Series(DAYS, dtype=pd.ArrowDtype(pa.date32())), NEW_DAY),
    "arrow time": (
        pd.Series([dt.time(1), None, dt.time(2)], dtype=pd.ArrowDtype(pa.time64("us"))),
        objects(dt.time(3)),
    ),
    "arrow decimal": (
        pd.Series([Decimal("1.25"), None, Decimal("3.5")], dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
        NUMBER,
    ),
}


@pytest.mark.parametrize("case", PANDAS, ids=str)
def test_pandas_keeps_dtype_and_observed_cells(case: str) -> None:
    series, values = PANDAS[case]
    frame = series.to_frame("x")
    before = frame.copy()
    table = read_table(frame)
    assert table.missing[:, 0].tolist() == [False, True, False]
    filled = table.with_filled({0: values})
    assert filled.dtypes.equals(frame.dtypes)
    assert not filled["x"].isna().any()
    pdt.assert_frame_equal(filled.iloc[[0, 2]], frame.iloc[[0, 2]], check_exact=True)
    assert type(filled["x"].iloc[1]) is type(filled["x"].iloc[0])
    pdt.assert_frame_equal(frame, before)
    assert read_table(filled).missing.sum() == 0


ARROW = {
    "int": (pa.chunked_array([[1, None], [3]], type=pa.int8()), np.array([2])),
    "float": (pa.chunked_array([[1.0, float("nan")], [3.0]]), NUMBER),
    "half": (pa.chunked_array([pa.array([np.float16(1), None, np.float16(2)], pa.float16())]), NUMBER),
    "bool": (pa.chunked_array([[True, None, True]]), np.array([False])),
    "text": (pa.chunked_array([["a", None], ["c"]]), LABEL),
    "large text": (pa.chunked_array([pa.array(["a", None, "c"], pa.large_string())]), LABEL),
    "dictionary": (
        pa.chunked_array([pa.array(["a", None]).dictionary_encode(), pa.array(["c"]).dictionary_encode()]),
        LABEL,
    ),
    "int dictionary": (pa.chunked_array([pa.array([7, None, 9]).dictionary_encode()]), objects(9)),
    "decimal": (
        pa.chunked_array([pa.array([Decimal("1.5"), None, Decimal("2")], pa.decimal128(5, 2))]),
        NUMBER,
    ),
    "date32": (pa.chunked_array([pa.array(DAYS, pa.date32())]), NEW_DAY),
    "date64": (pa.chunked_array([pa.array(DAYS, pa.date64())]), NEW_DAY),
    "timestamp": (pa.chunked_array([pa.array(DAYS, pa.timestamp("s"))]), NEW_DAY),
    "timestamp tz": (pa.chunked_array([pa.array(DAYS, pa.timestamp("ns", "Asia/Tokyo"))]), NEW_DAY),
    "duration": (pa.chunked_array([pa.array([1, None, 2], pa.duration("ms"))]), NEW_SPAN),
    "time": (
        pa.chunked_array([pa.array([dt.time(1), None, dt.time(2)], pa.time32("s"))]),
        objects(dt.time(3)),
    ),
}


@pytest.mark.parametrize("case", ARROW, ids=str)
def test_pyarrow_keeps_schema_and_observed_cells(case: str) -> None:
    column, values = ARROW[case]
    schema = pa.schema([pa.field("x", column.type, metadata={"unit": "m"})], metadata={"source": "here"})
    frame = pa.Table.from_arrays([column], schema=schema)
    table = read_table(frame)
    assert table.missing[:, 0].tolist() == [False, True, False]
    filled = table.with_filled({0: values})
    assert filled.schema.equals(frame.schema, check_metadata=True)
    was, now = frame["x"].to_pylist(), filled["x"].to_pylist()
    assert (now[0], now[2]) == (was[0], was[2])
    assert read_table(filled).missing.sum() == 0
    expected = values[0] if not isinstance(values[0], np.generic) else values[0].item()
    if case not in ("date32", "date64", "timestamp tz", "duration"):
        assert now[1] == expected


POLARS = [
    ([1, None, 3], "Int8", np.array([2])),
    ([1.0, float("nan"), 3.0], "Float32", NUMBER),
    ([1.0, None, 3.0], "Float64", NUMBER),
    ([True, None, False], "Boolean", np.array([False])),
    (["a", None, "c"], "String", LABEL),
    (["a", None, "c"], "Categorical", LABEL),
    (["a", None, "c"], "Enum", LABEL),
    (DAYS, "Date", NEW_DAY),
    (DAYS, "Datetime", NEW_DAY),
    (DAYS, "zoned", NEW_DAY),
    ([dt.timedelta(1), None, dt.timedelta(2)], "Duration", NEW_SPAN),
    ([dt.time(1), None, dt.time(2)], "Time", objects(dt.time(3))),
    ([Decimal("1.25"), None, Decimal("2.50")], "Decimal", NUMBER),
    ([1, None, 3], "Int128", np.array([2])),
]


@pytest.mark.parametrize(("cells", "dtype", "values"), POLARS, ids=[case[1] for case in POLARS])
def test_polars_keeps_dtype_and_observed_cells(cells: list[Any], dtype: str, values: np.ndarray) -> None:
    pl = pytest.importorskip("polars")
    special = {"Enum": lambda: pl.Enum(list("zcba")), "Decimal": lambda: pl.Decimal(9, 2)}
    if dtype == "Int128" and not hasattr(pl, dtype):
        pytest.skip("this polars has no Int128")
    if dtype == "zoned":
        column = pl.Series("x", cells, dtype=pl.Datetime("ms")).dt.replace_time_zone("Europe/Berlin")
    else:
        column = pl.Series("x", cells, dtype=special.get(dtype, lambda: getattr(pl, dtype))())
    frame = pl.DataFrame([column, pl.Series("y", [1, 2, 3])])
    table = read_table(frame)
    assert table.missing[:, 0].tolist() == [False, True, False]
    filled = table.with_filled({0: values})
    assert filled.schema == frame.schema
    assert filled["x"].to_list()[::2] == frame["x"].to_list()[::2]
    assert read_table(filled).missing.sum() == 0


def test_pandas_index_labels_and_attributes_come_back() -> None:
    columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2)], names=["upper", "lower"])
    index = pd.MultiIndex.from_tuples([("k", 1), ("k", 1), ("l", 2)])
    frame = pd.DataFrame([[1.0, 2.0], [np.nan, 4.0], [5.0, np.nan]], index=index, columns=columns)
    frame.attrs["source"] = "here"
    table = read_table(frame)
    assert table.names == (("a", 1), ("a", 2))
    filled = table.with_filled({0: np.array([3.0]), 1: np.array([6.0])})
    expected = frame.copy()
    expected.iloc[1, 0], expected.iloc[2, 1] = 3.0, 6.0
    pdt.assert_frame_equal(filled, expected)
    assert filled.attrs == {"source": "here"}
    filled.iloc[0, 0] = 99.0
    assert frame.iloc[0, 0] == 1.0  # the copy is a copy


def test_integer_labels_and_column_index_name() -> None:
    frame = pd.DataFrame([[1.0, None]], columns=pd.Index([7, 9], name="id"))
    table = read_table(frame)
    assert table.names == (7, 9)
    assert table.with_filled({1: np.array([4.0])}).columns.equals(frame.columns)
    assert table.with_filled({1: np.array([4.0])}).columns.name == "id"


def test_everything_that_means_missing() -> None:
    values = objects(None, np.nan, pd.NA, pd.NaT, float("nan"), np.float32("nan"))
    frame = pd.DataFrame({"x": pd.Series([*values, 1.0], dtype=object)})
    assert read_table(frame).missing[:, 0].tolist() == [True] * 6 + [False]
    array = np.concatenate([values, objects("a")])[:, None]
    assert read_table(array).missing.sum() == 6


def test_nothing_missing_gives_the_same_table() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [True, False]})
    pdt.assert_frame_equal(read_table(frame).with_filled({}), frame)
    array = np.arange(4).reshape(2, 2)
    assert read_table(array).with_filled({}) is not array


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f2", ">f4", ">f8", "<f8"])
def test_numpy_floats_keep_their_precision_and_byte_order(dtype: str) -> None:
    array = np.array([[1, np.nan], [3, 4]], dtype=dtype)
    filled = read_table(array).with_filled({1: np.array([2.0])})
    assert filled.dtype == array.dtype
    assert filled.tolist() == [[1, 2], [3, 4]]
    assert np.isnan(array[0, 1])


@pytest.mark.parametrize("dtype", [">i4", ">f8"])
def test_pandas_columns_of_another_byte_order(dtype: str) -> None:
    frame = pd.DataFrame({"a": np.array([1, 2, 3], dtype=dtype), "b": [1.0, None, 3.0]})
    filled = read_table(frame).with_filled({1: np.array([2.0])})
    assert filled["a"].dtype == frame["a"].dtype
    assert filled["a"].to_list() == [1, 2, 3]


def test_numpy_objects_keep_their_types() -> None:
    array = objects(1, "a", np.float32(1.5), None, None, None).reshape(2, 3)
    filled = read_table(array).with_filled({0: np.array([2.0]), 1: objects("b"), 2: np.array([2.5])})
    assert filled[1].tolist() == [2, "b", 2.5]
    assert [type(value) for value in filled[1]] == [float, str, np.float32]


@pytest.mark.parametrize("array", [np.ones((2, 2), int), np.ones((2, 2), bool), np.full((2, 2), "a")])
def test_arrays_without_holes(array: np.ndarray) -> None:
    table = read_table(array)
    assert (table.container, table.names, table.n_rows) == ("numpy", (0, 1), 2)
    assert not table.missing.any()
    assert (table.with_filled({}) == array).all()


def test_lists_become_arrays() -> None:
    assert read_table([[1.0, 2.0], [3.0, 4.0]]).native.dtype == np.float64
    assert read_table([["a", 1], ["b", None]]).missing.tolist() == [[False, False], [False, True]]


def test_days_and_months_of_numpy() -> None:
    array = np.array([["2020-01-01", "NaT"], ["2020-01-02", "2020-01-03"]], dtype="datetime64[D]")
    filled = read_table(array).with_filled({1: NEW_DAY})
    assert filled.dtype == array.dtype
    assert str(filled[0, 1]) == "2020-06-01"


def test_an_empty_column_takes_the_dtype_of_its_values() -> None:
    frame = pd.DataFrame({"x": [np.nan, np.nan]})
    assert read_table(frame).with_filled({0: objects("a", "b")})["x"].tolist() == ["a", "b"]
    arrow = pa.table({"x": pa.nulls(2)})
    assert read_table(arrow).with_filled({0: np.array([1, 2])})["x"].to_pylist() == [1, 2]
    pl = pytest.importorskip("polars")
    polars = read_table(pl.DataFrame({"x": [None, None]}))
    assert polars.with_filled({0: objects("a", "b")})["x"].to_list() == ["a", "b"]


def test_values_must_suit_their_column() -> None:
    table = read_table(pd.DataFrame({"x": [1.0, None]}))
    with pytest.raises(InputError, match=r"column 'x' holds numbers \(dtype .*\) and was given \['a'\]"):
        table.with_filled({0: objects("a")})
    with pytest.raises(InputError, match="column 'x' has 1 missing cells and was given 2 values"):
        table.with_filled({0: np.array([1.0, 2.0])})
    with pytest.raises(InputError, match=r"column 'x' holds text or categories .* given \['q'\]"):
        read_table(pd.DataFrame({"x": pd.Categorical(["a", None])})).with_filled({0: objects("q")})
    with pytest.raises(InputError, match="column 0 holds numbers"):
        read_table(np.array([[np.nan]])).with_filled({0: objects("a")})


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinities_are_refused_by_name(value: float) -> None:
    message = r"Values must be finite; column 'x' holds inf in 2 rows; replace"
    for table in (
        pd.DataFrame({"x": [value, 1.0, value]}),
        pd.DataFrame({"x": pd.array([value, 1.0, value], dtype="Float64")}),
        pd.DataFrame({"x": pd.Series([value, 1.0, value], dtype=object)}),
        pa.table({"x": [value, 1.0, value]}),
    ):
        with pytest.raises(InputError, match=message):
            read_table(table)
    with pytest.raises(InputError, match="column 1 holds inf in 1 row;"):
        read_table(np.array([[1.0, value]], dtype=np.float32))


def test_values_that_would_overflow_are_refused_by_name() -> None:
    for value in (1.7e308, -1.7e308):
        with pytest.raises(InputError, match=r"column 'x' holds larger ones in 2 rows. Replace them by NaN"):
            read_table(pd.DataFrame({"x": [value, 1.0, None, value]}))
    read_table(pd.DataFrame({"x": [1e300, -1e300, None]}))


def test_mixed_types_are_refused_with_a_remedy_that_keeps_holes() -> None:
    frame = pd.DataFrame({"x": pd.Series(["abc", 3.5, None], dtype=object)})
    with pytest.raises(InputError, match=r"astype\('string'\)"):
        read_table(frame)
    assert read_table(frame.astype("string")).missing.sum() == 1


def test_mixed_types_are_refused_with_examples() -> None:
    with pytest.raises(InputError, match=r"column 'x' mixes 3.5 \(float\), 'abc' \(str\). Convert"):
        read_table(pd.DataFrame({"x": ["abc", 3.5, None]}))
    with pytest.raises(InputError, match=r"of one type; column 'x' mixes"):
        read_table(
            pd.DataFrame({"x": pd.Series([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)], dtype=object)})
        )


def test_objects_that_no_dtype_could_hold_are_refused() -> None:
    aware = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(InputError, match=r"all have a time zone, or none; column 0 mixes them"):
        read_table(objects(aware, dt.datetime(2020, 1, 1))[:, None])
    with pytest.raises(InputError, match=r"fit into 64 bits; those of column 0 do not"):
        read_table(objects(2**70, None)[:, None])


@pytest.mark.parametrize("stranger", [{"a": 1}, [1, 2], object()], ids=["dict", "list", "object"])
def test_strange_cells_are_a_type_error_too(stranger: Any) -> None:
    array = objects(1.0, 2.0).reshape(2, 1)
    array[0, 0] = stranger
    with pytest.raises(TypeError, match=r"argument must be .* string.* number") as caught:
        read_table(array)
    assert isinstance(caught.value, InputError)
    with pytest.raises(InputError, match=r"column 'x' holds .*Convert or leave out"):
        read_table(pd.DataFrame({"x": pd.Series(array[:, 0], dtype=object)}))


def test_complex_numbers_are_refused() -> None:
    for array in (np.array([[1j]]), objects(1j, 2.0).reshape(2, 1)):
        with pytest.raises(ValueError, match="Complex data not supported"):
            read_table(array)


def test_shapes_that_are_no_tables() -> None:
    with pytest.raises(InputError, match=r"Expected a 2-D table.*got 1-D.*Reshape your data"):
        read_table(np.ones(3))
    with pytest.raises(
        InputError, match=r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required"
    ):
        read_table(np.ones((3, 0)))
    with pytest.raises(InputError, match=r"must have columns"):
        read_table(pd.DataFrame(index=[1, 2]))
    with pytest.raises(InputError, match=r"single Series. Call .to_frame\(\)"):
        read_table(pd.Series([1.0]))
    with pytest.raises(InputError, match="equally long"):
        read_table([[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="this is a dict"):
        read_table({"a": [1]})
    with pytest.raises(InputError, match=r"this is a str.*read_csv"):
        read_table("survey.csv")
    with pytest.raises(InputError, match=r"this is a RecordBatch.*to_pandas\(\)"):
        read_table(pa.table({"a": [1]}).to_batches()[0])
    with pytest.raises(InputError, match=r"Masked arrays are not read.*filled"):
        read_table(np.ma.masked_invalid([[1.0]]))
    assert read_table(pd.DataFrame({"a": []})).n_rows == 0


def test_a_table_mapped_from_a_file_is_read_and_not_held(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(50_000, 8))
    array[::3, 2] = np.nan
    mapped = np.memmap(tmp_path / "table", dtype=np.float64, mode="w+", shape=array.shape)
    mapped[:] = array
    before = pa.total_allocated_bytes()
    table = read_table(mapped)
    assert pa.total_allocated_bytes() - before < array.nbytes / 4
    assert np.array_equal(table.missing, np.isnan(array))
    for column in (0, 2, -1):
        found = table.cells[column].numbers()
        np.testing.assert_array_equal(
            found[~np.isnan(array[:, column])], array[~np.isnan(array[:, column]), column]
        )
    assert [len(cells.numbers()) for cells in table.cells[1:3]] == [50_000, 50_000]
    filled = table.with_filled({2: np.zeros(int(table.missing.sum()))})
    assert np.array_equal(filled, np.where(np.isnan(array), 0, array))
    assert np.isnan(mapped[0, 2])


def test_lazy_frames_want_collecting() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(InputError, match=r"LazyFrame. Call .collect\(\) first"):
        read_table(pl.LazyFrame({"a": [1]}))


def test_repeated_names_are_refused() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    with pytest.raises(InputError, match=r"must be unique; repeated: 'a'. Rename"):
        read_table(frame)
    arrow = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InputError, match="repeated: 'a'"):
        read_table(arrow)


def test_types_that_cannot_be_modelled_are_only_looked_at() -> None:
    arrow = pa.table({"list": [[1], None], "bytes": [b"a", None], "struct": [{"a": 1}, None]})
    table = read_table(arrow)
    assert [cells.storage.family for cells in table.cells] == [Family.OTHER] * 3
    assert table.missing.tolist() == [[False] * 3, [True] * 3]
    frame = pd.DataFrame({"p": pd.PeriodIndex(["2020-01", None], freq="M"), "b": objects(b"a", None)})
    assert [cells.storage.family for cells in read_table(frame).cells] == [Family.OTHER] * 2
    pl = pytest.importorskip("polars")
    assert read_table(pl.DataFrame({"l": [[1], None]})).missing[:, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    "stranger",
    [[1, 2], {"a": 1}, (1, 2), {1}, np.arange(2), uuid.UUID(int=1), object()],
    ids=lambda stranger: type(stranger).__name__,
)
def test_columns_of_strange_objects_only_are_looked_at(stranger: Any) -> None:
    column = np.empty(3, dtype=object)
    column[0] = column[2] = stranger
    frame = pd.DataFrame({"x": column})
    for table in (read_table(frame), read_table(column[:, None])):
        assert table.cells[0].storage.family == Family.OTHER
        assert table.missing[:, 0].tolist() == [False, True, False]
    assert read_table(frame).with_filled({})["x"][0] is stranger


def test_strange_objects_of_several_types_are_looked_at() -> None:
    table = read_table(pd.DataFrame({"x": [[1], {"a": 1}, (1, 2)]}))
    assert table.cells[0].storage.family == Family.OTHER


def test_arrow_dictionaries_may_hold_nulls_and_lack_levels() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["a", None, "c"]))
    table = read_table(pa.table({"x": array}))
    assert table.missing[:, 0].tolist() == [False, True, False]
    filled = table.with_filled({0: objects("new")})
    assert filled["x"].to_pylist() == ["a", "new", "c"]
    assert filled.schema == pa.table({"x": array}).schema


def test_many_columns_stay_quiet() -> None:
    array = np.full((3, 150), np.nan)
    array[:2] = 1.0
    filled = read_table(pd.DataFrame(array)).with_filled({j: np.array([2.0]) for j in range(150)})
    assert filled.iloc[2].tolist() == [2.0] * 150


def test_changing_the_filled_table_does_not_change_the_first() -> None:
    df = pd.DataFrame({"a": [1.0, np.nan], "b": [1.0, 2.0], "c": ["x", "y"]})
    before = df.copy()
    full = read_table(df).with_filled({0: np.array([5.0])})
    full.loc[0, ["a", "b"]] = -1.0
    full.loc[1, "c"] = "z"
    pdt.assert_frame_equal(df, before)

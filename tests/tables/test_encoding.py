"""Tables as numbers and back: kinds, rules, warnings, and round trips over random tables."""

import json
import tracemalloc
import warnings
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pandas.testing as pdt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffputer.errors import DataWarning, InputError, SettingError
from diffputer.tables.decoding import as_fitted
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.frames import read_table
from diffputer.tables.schema import Column, Kind, Schema, Status

try:
    import polars as pl
except ImportError:
    pl = None  # type: ignore[assignment]

# ---------------------------------------------------------------------------------------------------------
# Round trips over random tables

START = datetime(2020, 3, 1)
AUTUMN = datetime(2020, 10, 24, tzinfo=UTC)  # a clock change follows
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "float": (pa.float64(), lambda r, n: r.normal(3, 2, n)),
    "small float": (pa.float32(), lambda r, n: r.normal(1e-6, 1e-7, n).astype(np.float32)),
    "whole float": (pa.float64(), lambda r, n: r.integers(-50, 50, n).astype(float)),
    "int": (pa.int64(), lambda r, n: r.integers(-1000, 1000, n)),
    "byte": (pa.int8(), lambda r, n: r.integers(-128, 128, n)),
    "unsigned": (pa.uint64(), lambda r, n: r.integers(0, 1000, n)),
    "bool": (pa.bool_(), lambda r, n: r.random(n) < 0.5),
    "text": (pa.string(), lambda r, n: r.choice(["a", "b", "", "dé"], n)),
    "category": (pa.dictionary(pa.int8(), pa.string()), lambda r, n: r.choice(["x", "y", "z"], n)),
    "day": (pa.date32(), lambda r, n: [START.date() + timedelta(int(k)) for k in r.integers(0, 900, n)]),
    "moment": (pa.timestamp("us"), lambda r, n: [
        START + timedelta(seconds=int(k)) for k in r.integers(0, 9**5, n)
    ]),
    "zoned": (pa.timestamp("ns", "Europe/Berlin"), lambda r, n: [
        AUTUMN + timedelta(0, 60 * int(k)) for k in r.integers(0, 3000, n)
    ]),
    "span": (pa.duration("ms"), lambda r, n: [timedelta(seconds=int(k)) for k in r.integers(-999, 9999, n)]),
    "clock": (pa.time64("us"), lambda r, n: [time(int(k) // 60, int(k) % 60) for k in r.integers(0, 999, n)]),
    "price": (pa.decimal128(9, 2), lambda r, n: [Decimal(int(k)).scaleb(-2) for k in r.integers(0, 9999, n)]),
}  # fmt: skip
CODES = ["onehot", "binary", "mixed", "levels"]
CONTAINERS = ["pandas", "nullable", "arrow-backed", "pyarrow", "numpy", *(["polars"] if pl else [])]


def build(arrow: pa.Table, container: str) -> Any:
    if container == "pyarrow":
        return arrow
    if container == "polars":
        return pl.from_arrow(arrow)
    if container == "arrow-backed":
        return arrow.to_pandas(types_mapper=pd.ArrowDtype)
    frame = arrow.to_pandas()
    frame.index = pd.Index(np.arange(len(frame)) // 2, name="twice")
    if container == "nullable":
        return frame.convert_dtypes()
    return frame.to_numpy(dtype=object) if container == "numpy" else frame


def hide(arrow: pa.Table, holes: np.ndarray) -> pa.Table:
    columns = []
    for j, column in enumerate(arrow.columns):
        keep = pa.array(np.where(holes[:, j], None, np.arange(len(holes))), type=pa.int64())
        columns.append(column.take(keep))
    return pa.Table.from_arrays(columns, names=arrow.column_names)


def lists(native: Any) -> list[list[Any]]:
    """Columns as Python lists, whatever the container."""
    if isinstance(native, np.ndarray):
        return [native[:, j].tolist() for j in range(native.shape[1])]
    if isinstance(native, pd.DataFrame):
        return [native.iloc[:, j].tolist() for j in range(native.shape[1])]
    if isinstance(native, pa.Table):
        return [column.to_pylist() for column in native.columns]
    return [native.to_series(j).to_list() for j in range(native.width)]


def dtypes(native: Any) -> Any:
    if isinstance(native, pd.DataFrame):
        return native.dtypes.tolist()
    return native.dtype if isinstance(native, np.ndarray) else native.schema


def same(left: Any, right: Any) -> bool:
    """Equal values of equal types; missing is missing."""
    return bool((pd.isna(left) and pd.isna(right)) or (left == right and type(left) is type(right)))


@st.composite
def random_tables(draw: Any) -> tuple[pa.Table, np.ndarray, str, str]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=5))
    n = draw(st.integers(4, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = [pa.array(list(TYPES[name][1](rng, n)), type=TYPES[name][0]) for name in names]
    holes = rng.random((n, len(names))) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    arrow = pa.Table.from_arrays(columns, names=[f"{name} {k}" for k, name in enumerate(names)])
    return arrow, holes, draw(st.sampled_from(CONTAINERS)), draw(st.sampled_from(CODES))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_tables())
def test_hidden_truth_comes_back(case: tuple[pa.Table, np.ndarray, str, str]) -> None:
    arrow, holes, container, codes = case
    holes[0] = False  # a column of holes does not say which objects it holds
    truth, holed = build(arrow, container), build(hide(arrow, holes), container)
    before, kept = lists(holed), dtypes(holed)
    table = read_table(holed)
    assert (table.missing == holes).all()
    overrides = {name: "categorical" for name in table.names if str(name).startswith("text")}
    if container == "numpy":
        overrides = {j: "categorical" for j, name in enumerate(arrow.column_names) if name.startswith("text")}
    encoder = TableEncoder.fit(read_table(truth), codes=codes, schema=overrides)
    numbers = encoder.encode(read_table(truth))
    assert numbers.x.shape == numbers.missing.shape == (len(holes), encoder.width)
    assert not numbers.missing.any()
    assert encoder.n_levels.shape == (encoder.width,)
    if codes == "levels":
        assert encoder.width == sum(column.status == Status.MODELLED for column in encoder.schema)
        assert ((encoder.n_levels == 0) == encoder.numeric).all()
        positions, n_levels = numbers.x[:, ~encoder.numeric], encoder.n_levels[~encoder.numeric]
        assert ((positions == np.rint(positions)) & (positions >= 0) & (positions < n_levels)).all()
    filled = encoder.fill(table, numbers.x)

    for was, now, true, column in zip(before, lists(filled), lists(truth), encoder.schema, strict=True):
        for old, new, wanted in zip(was, now, true, strict=True):
            if not pd.isna(old):
                assert same(old, new)  # observed cells are as they were
            elif column.kind == Kind.CONTINUOUS:
                span = float(column.upper) - float(column.lower) if column.upper is not None else 0.0
                assert float(new) == pytest.approx(float(wanted), rel=1e-6, abs=1e-5 * span)
            else:
                assert new == wanted
    assert dtypes(filled) == kept
    if isinstance(holed, pd.DataFrame):
        assert filled.index.equals(holed.index)
    assert all(
        same(a, b) for x, y in zip(lists(holed), before, strict=True) for a, b in zip(x, y, strict=True)
    )

    # A copy through JSON does the same, bit by bit.
    copy = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert copy.schema == encoder.schema
    assert (copy.n_levels == encoder.n_levels).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        again = copy.encode(table)
        assert again.x.tobytes() == encoder.encode(table).x.tobytes()
    ours, theirs = encoder.decode(table, numbers.x), copy.decode(table, numbers.x)
    assert ours.keys() == theirs.keys()
    assert all((ours[j] == theirs[j]).all() for j in ours)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_tables(), st.integers(0, 9))
def test_whatever_the_model_says_the_table_is_sound(
    case: tuple[pa.Table, np.ndarray, str, str], seed: int
) -> None:
    arrow, holes, container, codes = case
    holed = build(hide(arrow, holes), container)
    table = read_table(holed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        encoder = TableEncoder.fit(table, codes=codes)
    wild = np.random.default_rng(seed).normal(0, 1e4, (table.n_rows, encoder.width))
    result = read_table(encoder.fill(table, wild))
    numbers = encoder.encode(table)
    assert (numbers.x[numbers.missing] == 0).all()
    for j, column in enumerate(encoder.schema):
        if column.status in (Status.MODELLED, Status.CONSTANT):
            assert not result.missing[:, j].any()
        if column.kind == Kind.CATEGORICAL and column.levels:
            assert {v for v in lists(result.native)[j] if not pd.isna(v)} <= set(column.levels)
        elif column.kind.is_numeric and column.status == Status.MODELLED and table.missing[:, j].any():
            seen = table.cells[j].numbers()
            filled = result.cells[j].numbers()[table.missing[:, j]]
            assert np.nanmin(seen) <= filled.min()
            assert filled.max() <= np.nanmax(seen)


def fit(frame: Any, **options: Any) -> TableEncoder:
    return TableEncoder.fit(read_table(frame), **options)


def filled_with(frame: Any, value: float, encoder: TableEncoder | None = None, **options: Any) -> Any:
    """Fill a table as if the model had put the same standardised value everywhere."""
    table = read_table(frame)
    encoder = encoder or TableEncoder.fit(table, **options)
    table = as_fitted(table, encoder.schema)
    return encoder.fill(table, np.full((table.n_rows, encoder.width), value))


def kind_of(values: Any, **options: Any) -> Kind:
    return fit(pd.DataFrame({"x": values}), **options).schema["x"].kind


# ---------------------------------------------------------------------------------------------------------
# Kinds


def test_kinds_are_found() -> None:
    assert kind_of([1.0, 2.0, None]) == Kind.INTEGER
    assert kind_of([1.0, 2.5, None]) == Kind.CONTINUOUS
    assert kind_of([1.0, None]) == Kind.CONTINUOUS  # one value is too little to tell
    assert kind_of([1e299, 2e299]) == Kind.CONTINUOUS  # every large double is whole
    assert kind_of([1, 2]) == Kind.INTEGER
    assert kind_of([True, False]) == Kind.BOOLEAN
    assert kind_of(pd.Series([True, None, False], dtype=object)) == Kind.BOOLEAN
    assert kind_of(["a", "b"]) == Kind.CATEGORICAL
    assert kind_of(pd.Categorical([1, 2, 1])) == Kind.CATEGORICAL
    assert kind_of([datetime(2020, 1, 1), datetime(2020, 1, 2)]) == Kind.DATETIME
    assert kind_of([timedelta(1), timedelta(2)]) == Kind.DURATION
    assert kind_of([time(1), time(2)]) == Kind.TIME
    assert kind_of([Decimal("1.5"), Decimal("2.5")]) == Kind.CONTINUOUS


def test_schema_tells_levels_range_resolution_and_counts() -> None:
    frame = pd.DataFrame(
        {
            "n": [3.0, None, 7.0],
            "x": [0.5, 1.5, 2.5],
            "c": pd.Categorical(["b", "a", None], categories=["z", "b", "a"], ordered=True),
            "day": pd.to_datetime(["2020-01-05", "2020-01-01", None]),
            "minute": pd.to_datetime(["2020-01-05 10:30", "2020-01-01 00:00", None]),
            "span": pd.to_timedelta([1.5, 2.5, 4], unit="s"),
            "price": pd.Series([Decimal("1.25"), Decimal("2.50"), None], dtype=object),
        }
    )
    schema = fit(frame).schema
    n, c, day = schema["n"], schema["c"], schema["day"]
    assert (n.lower, n.upper, n.resolution, n.n_observed, n.n_missing) == (3, 7, 1, 2, 1)
    assert (schema["x"].lower, schema["x"].upper, schema["x"].resolution) == (0.5, 2.5, None)
    assert (c.levels, c.ordered) == (("b", "a"), True)
    assert (day.lower, day.upper, day.resolution) == (
        datetime(2020, 1, 1),
        datetime(2020, 1, 5),
        timedelta(days=1),
    )
    assert schema["minute"].resolution == timedelta(minutes=1)
    assert schema["span"].resolution == timedelta(milliseconds=1)
    assert schema["price"].resolution == 0.01


@pytest.mark.parametrize(
    "chosen", [["zip"], [1], [-1], [False, True], np.array([False, True]), "zip"], ids=str
)
def test_categorical_features_turn_numbers_into_levels(chosen: Any) -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5, 2.5], "zip": [101.0, None, 202.0]})
    encoder = fit(frame, categorical_features=chosen)
    assert encoder.schema["zip"].levels == (101.0, 202.0)
    assert encoder.schema["x"].kind == Kind.CONTINUOUS
    x = encoder.encode(read_table(frame)).x
    x[1, 1:] = -5, 5
    assert encoder.fill(read_table(frame), x)["zip"].tolist() == [101.0, 202.0, 202.0]


def test_categories_of_every_sort_come_back_as_they_are() -> None:
    columns = {
        "int": pd.array([1, None, 2**60 + 1], dtype="Int64"),
        "date": pd.Series([date(2020, 1, 1), None, date(2021, 1, 1)], dtype=object),
        "moment": pd.to_datetime(["2020-01-01", None, "2021-01-01"]).tz_localize("Asia/Tokyo"),
        "span": pd.to_timedelta([1, None, 2], unit="h"),
        "bool": pd.array([True, None, False], dtype="boolean"),
        "clock": pd.Series([time(1), None, time(2)], dtype=object),
        "price": pd.Series([Decimal("1.20"), None, Decimal("3.40")], dtype=object),
    }
    frame = pd.DataFrame(columns)
    encoder = fit(frame, categorical_features=list(columns))
    encoder = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    x = encoder.encode(read_table(frame)).x
    x[1] = x[2]
    filled = encoder.fill(read_table(frame), x)
    assert filled.iloc[1].tolist() == frame.iloc[2].tolist()
    assert filled.dtypes.equals(frame.dtypes)


def test_unknown_names_and_contradictions() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(InputError, match=r"'zip' is not there. The table has: 'a', 'b'"):
        fit(frame, categorical_features=["zip"])
    with pytest.raises(InputError, match="5 is not there"):
        fit(frame, categorical_features=[5])
    with pytest.raises(InputError, match="has 3 entries and the table 2 columns"):
        fit(frame, categorical_features=[True, False, True])
    with pytest.raises(InputError, match="'c', 'd' are not there"):
        fit(frame, bounds={"c": (0, 1), "d": (0, 1)})
    with pytest.raises(InputError, match="'q' is not there"):
        fit(frame, schema={"q": "text"})
    with pytest.raises(
        InputError, match=r"column 'a' is in categorical_features and is integer in the schema"
    ):
        fit(frame, schema={"a": "integer"}, categorical_features=["a"])
    with pytest.raises(InputError, match="kind must be one of continuous"):
        fit(frame, schema={"a": "float"})


def test_schema_overrides_guesses() -> None:
    frame = pd.DataFrame({"zip": [1.0, 2.0, None], "x": [1.0, 2.0, None], "note": ["a", "b", None]})
    schema = fit(frame, schema={"zip": "categorical", "x": "continuous", "note": "text"}).schema
    assert [column.kind for column in schema] == [Kind.CATEGORICAL, Kind.CONTINUOUS, Kind.TEXT]
    assert schema["note"].status == Status.PASSED_THROUGH
    edited = schema.replace("x", kind="integer", lower=-5).replace("zip", levels=(2.0,))
    again = fit(frame, schema=edited).schema
    assert (again["x"].kind, again["x"].lower, again["x"].upper) == (Kind.INTEGER, -5, 2)
    assert (again["zip"].levels, again["zip"].other_levels) == ((2.0,), 1)
    assert fit(frame, schema=schema).schema == schema
    with pytest.raises(InputError, match=r"none does. It holds 1.0, 2.0"):
        fit(frame, schema=schema.replace("zip", levels=(7.0,)))


@pytest.mark.parametrize(
    ("values", "kind", "possible"),
    [
        (["a", "b"], "continuous", "categorical, text"),
        ([1, 2], "continuous", "integer, categorical, text"),
        ([1.5, 2], "datetime", "integer, continuous, categorical, text"),
        ([True, False], "integer", "boolean, categorical, text"),
        ([datetime(2020, 1, 1), None], "duration", "datetime, categorical, text"),
    ],
)
def test_impossible_kinds_are_refused(values: list[Any], kind: str, possible: str) -> None:
    with pytest.raises(
        InputError, match=rf"column 'x' of dtype .* cannot be {kind}. Choose from {possible},"
    ):
        fit(pd.DataFrame({"x": values}), schema={"x": kind})


# ---------------------------------------------------------------------------------------------------------
# Bounds, rounding and dtypes of filled numbers


def test_fills_stay_in_the_observed_range_unless_told_otherwise() -> None:
    frame = pd.DataFrame({"x": [0.5, 2.5, None]})
    assert filled_with(frame, -50.0)["x"].tolist() == [0.5, 2.5, 0.5]
    assert filled_with(frame, -50.0, bounds={"x": (-1.5, None)})["x"].tolist() == [0.5, 2.5, -1.5]
    assert filled_with(frame, 50.0, bounds={"x": (None, None)})["x"][2] == pytest.approx(51.5)
    assert filled_with(frame, 50.0, bounds={"x": (0, 1)})["x"].tolist() == [
        0.5,
        2.5,
        1.0,
    ]  # observed 2.5 stays


def test_bounds_of_dates_durations_and_times() -> None:
    frame = pd.DataFrame(
        {
            "day": pd.to_datetime(["2020-01-01", "2020-01-09", None]),
            "zoned": pd.to_datetime(["2020-01-01", "2020-01-09", None]).tz_localize("Europe/Berlin"),
            "span": pd.to_timedelta([1, 2, None], unit="h"),
            "clock": pd.Series([time(1), time(2), None], dtype=object),
        }
    )
    bounds = {
        "day": (None, "2020-03-01"),
        "zoned": (None, date(2020, 3, 1)),
        "span": (None, timedelta(hours=3)),
        "clock": ("00:00", "02:30"),
    }
    filled = filled_with(frame, 90.0, bounds=bounds)
    assert filled.iloc[2].tolist() == [
        pd.Timestamp("2020-03-01"), pd.Timestamp("2020-03-01", tz="Europe/Berlin"),
        pd.Timedelta(hours=3), time(2),
    ]  # fmt: skip
    assert filled.dtypes.equals(frame.dtypes)
    with pytest.raises(InputError, match=r"'day' is datetime and was given \(0, 1\)"):
        fit(frame, bounds={"day": (0, 1)})
    with pytest.raises(InputError, match="'day' is datetime and was given"):
        fit(frame, bounds={"day": (pd.Timestamp("2020-01-01", tz="UTC"), None)})


def test_bounds_that_hold_no_observed_value_are_reported() -> None:
    frame = pd.DataFrame({"x": [0.5, 2.5, None], "day": pd.to_datetime(["2024-01-02", "2024-01-05", None])})
    with pytest.warns(DataWarning, match=r"hold none of 'x' \(0.5 to 2.5\)\. Correct them"):
        fit(frame, bounds={"x": (1000, 2000)})
    with pytest.warns(DataWarning, match=r"none of 'x' \(0.5 to 2.5\), 'day' \(2024-01-02"):
        fit(frame, bounds={"x": (None, 0), "day": (None, pd.Timestamp("2023-12-31"))})
    fit(frame, bounds={"x": (2.5, 9), "day": (None, pd.Timestamp("2024-01-02"))})


def test_bad_bounds_are_refused() -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5], "n": [1, 2], "c": ["a", "b"]})
    for bad in [("a", 1), (0, "b"), 3, (1,), (float("nan"), 1), (True, 2)]:
        with pytest.raises(InputError, match=r"low and a high end.*column 'x' is continuous and was given"):
            fit(frame, bounds={"x": bad})
    with pytest.raises(InputError, match=r"lower bound must not exceed.*'x' was given \(2, 1\). Swap"):
        fit(frame, bounds={"x": (2, 1)})
    with pytest.raises(InputError, match="must hold a whole number; those of 'n'"):
        fit(frame, bounds={"n": (0.2, 0.8)})
    with pytest.raises(InputError, match=r"column 'c' is categorical. Leave out its bounds"):
        fit(frame, bounds={"c": (0, 1)})


@pytest.mark.parametrize("dtype", ["Int8", "UInt8", "Int64", "UInt64"])
@pytest.mark.parametrize("value", [-1e5, 0.3, 1e5])
def test_integers_fit_their_dtype(dtype: str, value: float) -> None:
    limits = np.iinfo(dtype.lower())
    frame = pd.DataFrame({"x": pd.array([limits.min, None, limits.max], dtype=dtype)})
    for bounds in (None, {"x": (None, None)}, {"x": (-1000, 2**70)}):
        filled = filled_with(frame, value, bounds=bounds)
        assert filled["x"].dtype == dtype
        assert limits.min <= int(filled["x"][1]) <= limits.max


def test_large_integers_have_exact_bounds_and_constants() -> None:
    big = 2**60 + 1
    frame = pd.DataFrame(
        {"x": pd.array([big, None, big + 2], dtype="Int64"), "y": pd.array([big, None, big], dtype="Int64")}
    )
    assert big <= int(filled_with(frame, 9.0)["x"][1]) <= big + 2
    assert int(filled_with(frame, 9.0)["y"][1]) == big
    text = json.dumps(fit(frame).to_dict())
    assert TableEncoder.from_dict(json.loads(text)).schema["x"].lower == big


LARGE = 2**64 - 1
LARGE_COLUMNS = {
    "near the top": [LARGE, None, LARGE - 4, LARGE - 2, LARGE],
    "whole range": [0, None, LARGE, 5, 7],
    "around int64": [2**63 - 1, None, 2**63 + 1, 2**63, 2**63 + 3],
    "top of int64": [2**63 - 1, None, 2**63 - 5, 2**63 - 3, 2**63 - 1],
    "one value": [LARGE, None, LARGE, LARGE, LARGE],
}


def large_frames(values: list[int | None]) -> list[Any]:
    arrow = pa.table({"x": pa.array(values, pa.uint64())})
    frames = [
        arrow,
        pa.table({"x": pa.array(values, pa.decimal128(20, 0))}),
        pd.DataFrame({"x": pd.array(values, dtype="UInt64")}),
        pd.DataFrame({"x": pd.array(values, dtype=pd.ArrowDtype(pa.uint64()))}),
        pd.DataFrame({"x": pd.Series(values, dtype=object)}),
        pd.DataFrame({"x": pd.Series(values[:1] + values[2:], dtype="uint64")}),
    ]
    if pl:
        frames += [pl.DataFrame({"x": pl.Series(values, dtype=dtype)}) for dtype in (pl.UInt64, pl.Int128)]
    return frames


@pytest.mark.parametrize("values", LARGE_COLUMNS.values(), ids=LARGE_COLUMNS)
@pytest.mark.parametrize("options", [{}, {"categorical_features": ["x"]}], ids=["numbers", "levels"])
@pytest.mark.parametrize("codes", ["onehot", "levels"])
def test_integers_up_to_64_unsigned_bits_neither_wrap_nor_round(
    values: list[int | None], options: dict[str, Any], codes: str
) -> None:
    seen = [value for value in values if value is not None]
    for frame in large_frames(values):
        encoder = fit(frame, codes=codes, **options)
        encoder = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
        assert np.isfinite(encoder.encode(read_table(frame)).x).all()
        for number in (-9e5, -1.0, 0.0, 0.3, 2.0, 9e5):
            filled = filled_with(frame, number, encoder)
            assert dtypes(filled) == dtypes(frame)
            for old, new in zip(*lists(frame), *lists(filled), strict=True):
                assert same(old, new) if not pd.isna(old) else min(seen) <= int(new) <= max(seen)
                assert not options or int(new) in seen


def test_stated_bounds_of_large_integers_are_exact() -> None:
    bounds = {"x": (LARGE - 3, LARGE - 1)}
    for frame in large_frames(LARGE_COLUMNS["near the top"]):
        schema = fit(frame, bounds=bounds).schema
        assert (schema["x"].lower, schema["x"].upper) == bounds["x"]
        assert fit(frame, schema=schema).schema == schema
        for number in (-9e5, 0.0, 9e5):
            filled = filled_with(frame, number, schema=schema)
            new = [n for o, n in zip(*lists(frame), *lists(filled), strict=True) if pd.isna(o)]
            assert all(LARGE - 3 <= int(value) <= LARGE - 1 for value in new)
    with pytest.raises(InputError, match="column 'x' is integer and was given"):
        fit(frame, bounds={"x": (0, 10**400)})


def test_an_empty_column_takes_large_integers_too() -> None:
    encoder = fit(pd.DataFrame({"x": pd.array([LARGE, LARGE - 4], dtype="UInt64")}))
    for empty in (pd.DataFrame({"x": [None]}, dtype=object), pa.table({"x": pa.nulls(1)})):
        assert LARGE - 4 <= lists(filled_with(empty, 0.0, encoder))[0][0] <= LARGE


def test_negative_numbers_of_wide_dtypes_do_not_wrap() -> None:
    frames = [pa.table({"x": pa.array([-5, None, 7, -3], pa.decimal128(digits, 0))}) for digits in (20, 38)]
    if pl:
        frames.append(pl.DataFrame({"x": pl.Series([-5, None, 7, -3], dtype=pl.Int128)}))
    for frame in frames:
        assert int(lists(filled_with(frame, -9.0))[0][1]) == -5
        assert int(lists(filled_with(frame, -9.0, bounds={"x": (None, None)}))[0][1]) < -5
        assert int(lists(filled_with(frame, 1e30, bounds={"x": (None, None)}))[0][1]) > 10**19


def test_narrow_floats_do_not_leave_bounds_by_rounding() -> None:
    for dtype in ("float16", "float32"):
        frame = pd.DataFrame({"x": np.array([0.3, np.nan, 0.7], dtype=dtype)})
        for value in (-99.0, 99.0):
            filled = float(filled_with(frame, value, bounds={"x": (0.1, 0.9)})["x"][1])
            assert 0.1 <= filled <= 0.9
    encoder = fit(pd.DataFrame({"x": [0.5, 1e6]}))
    with pytest.raises(InputError, match="cannot hold 1000000"):
        filled_with(np.array([[1.0], [np.nan]], dtype="float16"), 9.0, encoder)


def test_a_transformed_table_may_have_a_coarser_dtype() -> None:
    encoder = fit(
        pd.DataFrame({"x": [0.5, 9.5], "d": pd.to_datetime(["2020-01-01 10:00", "2020-01-03 11:30"])})
    )
    arrow = pa.table({"x": pa.array([1, None], pa.int8()), "d": pa.array([date(2020, 1, 2), None])})
    filled = filled_with(arrow, -0.1, encoder)
    assert filled.schema == arrow.schema
    assert filled.to_pylist()[1]["d"] == date(2020, 1, 2)


def test_days_of_a_time_zone_begin_at_its_midnight() -> None:
    days = pd.Series(pd.to_datetime(["2020-03-01", "2020-07-01", None])).dt.tz_localize("Europe/Berlin")
    for frame in [pd.DataFrame({"x": days}), *([pl.from_pandas(days.to_frame("x"))] if pl else [])]:
        encoder = fit(frame)
        assert encoder.schema["x"].resolution == timedelta(days=1)
        for value in (-0.77, 0.123, 0.9):
            stamp = pd.Timestamp(filled_with(frame, value, encoder)["x"][2])
            assert (stamp.hour, stamp.minute) == (0, 0)
            assert str(stamp.tz) == "Europe/Berlin"


def test_time_zones_may_differ_but_must_be_there() -> None:
    days = pd.Series(pd.to_datetime(["2020-03-01", "2020-07-01", None]))
    encoder = fit(days.dt.tz_localize("Europe/Berlin").to_frame("x"))
    tokyo = days.dt.tz_localize("Europe/Berlin").dt.tz_convert("Asia/Tokyo").to_frame("x")
    assert encoder.encode(read_table(tokyo)).x[:2, 0].tolist() == pytest.approx([-1, 1])
    with pytest.raises(InputError, match=r"time zone.*column 'x' was Europe/Berlin and is none"):
        encoder.encode(read_table(days.to_frame("x")))
    with pytest.raises(InputError, match="was none and is Europe/Berlin"):
        fit(days.to_frame("x")).encode(read_table(days.dt.tz_localize("Europe/Berlin").to_frame("x")))


# ---------------------------------------------------------------------------------------------------------
# Text, levels, constants and empty columns


def test_free_text_is_passed_through_with_one_warning() -> None:
    frame = pd.DataFrame(
        {
            "note": [f"word {k}" for k in range(29)] + [None],
            "id": [str(k) for k in range(29)] + ["n/a"],
            "short": [*"aabbccddee" * 2, *"aabbccddee"],
            "blob": [b"x"] * 29 + [None],
        }
    )
    with pytest.warns(DataWarning) as caught:
        encoder = fit(frame)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "'note' (29 distinct values)" in message
    assert "'id' (30 distinct values, reads as numbers but for 'n/a')" in message
    assert "categorical_features" in message
    assert "If a word among numbers marks a missing value, say so when the table is read." in message
    assert "'blob' (object)" in message
    assert encoder.schema["note"].status == encoder.schema["blob"].status == Status.PASSED_THROUGH
    assert encoder.schema["short"].kind == Kind.CATEGORICAL
    pdt.assert_frame_equal(filled_with(frame, 0.0, encoder), frame)


def test_text_that_the_user_declared_is_modelled() -> None:
    names = [f"name {k}" for k in range(19)] + [None]
    assert kind_of(names, categorical_features=["x"]) == Kind.CATEGORICAL
    assert kind_of(pd.Categorical(names)) == Kind.CATEGORICAL
    assert kind_of(names, schema={"x": "categorical"}) == Kind.CATEGORICAL
    assert kind_of(names[:9]) == Kind.CATEGORICAL  # too few to tell


def test_numbers_stored_as_text_are_pointed_out() -> None:
    values = [str(k % 25) for k in range(99)] + ["?"]
    with pytest.warns(
        DataWarning, match=r"stored as text.*'x' \(reads as numbers but for '\?'\).*to_numeric"
    ):
        fit(pd.DataFrame({"x": values}))
    with pytest.warns(DataWarning, match=r"'x' \(reads as numbers\)"):
        fit(pd.DataFrame({"x": values[:99]}))


def test_rare_levels_stay_but_are_never_filled_in() -> None:
    values = ["a"] * 50 + ["b"] * 40 + ["c", "d", "e"] * 2 + [None]
    frame = pd.DataFrame({"x": values})
    with pytest.warns(
        DataWarning, match=r"'x' \(3 of 5 levels modelled, 96% of its cells\).*raise max_levels"
    ):
        encoder = fit(frame, max_levels=3)
    column = encoder.schema["x"]
    assert (column.levels, column.other_levels) == (("a", "b", "c"), 2)
    encoded = encoder.encode(read_table(frame))  # no warning: the user knows
    assert encoded.missing[91].all()
    assert not encoded.missing[:91].any()
    filled = filled_with(frame, 3.0, encoder)
    assert filled["x"][:96].tolist() == values[:96]
    assert filled["x"][96] in ("a", "b", "c")
    with pytest.warns(DataWarning, match="Too many levels"):
        shuffled = fit(frame.sample(frac=1, random_state=0), max_levels=3)
    assert shuffled.schema["x"].levels == column.levels


def test_very_many_levels_are_no_trouble() -> None:
    values = pd.array(np.repeat(np.arange(200_000), 2).astype(str), dtype="string")
    with pytest.warns(DataWarning) as caught:
        encoder = fit(pd.DataFrame({"x": values}), max_levels=10)
    assert len(caught) == 2
    assert encoder.width == 10


def test_constants_are_filled_but_not_modelled() -> None:
    frame = pd.DataFrame(
        {
            "x": [0.1, None, 0.1],
            "n": pd.array([7, None, 7], dtype="Int8"),
            "c": ["a", None, "a"],
            "b": pd.array([True, None, True], dtype="boolean"),
            "d": pd.to_datetime(["2020-01-01", None, "2020-01-01"]).tz_localize("Asia/Tokyo"),
            "k": pd.Categorical(["a", None, "a"], categories=["b", "a"]),
            "p": pd.Series([Decimal("1.20"), None, Decimal("1.20")], dtype=object),
        }
    )
    encoder = fit(frame)
    assert encoder.width == 0
    assert {column.status for column in encoder.schema} == {Status.CONSTANT}
    filled = filled_with(frame, 0.0, encoder)
    assert filled.iloc[1].tolist() == frame.iloc[0].tolist()
    assert filled.dtypes.equals(frame.dtypes)
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    pdt.assert_frame_equal(filled_with(frame, 0.0, again), filled)


def test_empty_columns_follow_the_documented_rule() -> None:
    frame = pd.DataFrame(
        {
            "float": [np.nan] * 2,
            "Int8": pd.array([None] * 2, dtype="Int8"),
            "bool": pd.array([None] * 2, dtype="boolean"),
            "text": pd.array([None] * 2, dtype="string"),
            "object": pd.Series([None] * 2, dtype=object),
            "category": pd.Categorical([None] * 2, categories=["z", "a"]),
            "no levels": pd.Categorical([None] * 2, categories=[]),
            "date": pd.to_datetime([None] * 2),
            "span": pd.to_timedelta([None] * 2),
        }
    )
    with pytest.warns(DataWarning) as caught:
        encoder = fit(frame)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "by zero: 'float', 'Int8'. Left missing: 'bool', 'text'" in message
    filled = filled_with(frame, 0.0, encoder)
    assert filled.iloc[1, :2].tolist() == [0.0, 0]
    assert filled.iloc[:, 2:].isna().all().all()  # an answer would be invented
    assert filled.dtypes.equals(frame.dtypes)
    later = frame.assign(float=["a", None], text=[1.5, None])  # may hold anything later
    assert filled_with(later, 0.0, encoder).iloc[1, [0, 3]].isna().all()
    with pytest.warns(DataWarning, match=r"Left missing: 'float'"):
        assert filled_with(frame[["float"]], 0.0, fit(frame[["float"]], empty="keep")).isna().all().all()
    with pytest.warns(DataWarning, match=r"'float' \(by 1.0\)"):
        fit(frame[["float"]], bounds={"float": (1, 2)})
    arrow = pa.table({"x": pa.nulls(2), "d": pa.array([None, None], pa.dictionary(pa.int8(), pa.string()))})
    with pytest.warns(DataWarning, match=r"Left missing: 'x', 'd'"):
        assert filled_with(arrow, 0.0)["d"].to_pylist() == [None] * 2


# ---------------------------------------------------------------------------------------------------------
# Codes


@pytest.mark.parametrize("codes", ["onehot", "binary"])
def test_codes_are_standardised_and_decode_to_seen_levels(codes: str) -> None:
    frame = pd.DataFrame({"c": list("aabbbcde") * 4 + [None]})
    encoder = fit(frame, codes=codes)
    encoded = encoder.encode(read_table(frame))
    known = encoded.x[:-1]
    assert encoder.width == (5 if codes == "onehot" else 3)
    assert known.mean(axis=0) == pytest.approx(np.zeros(encoder.width), abs=1e-5)
    assert known.std(axis=0) == pytest.approx(np.ones(encoder.width), abs=1e-5)
    assert encoded.missing[-1].all()
    for value in (-30.0, 0.0, 30.0):  # all bits on is no level's code
        assert filled_with(frame, value, encoder)["c"].iloc[-1] in "abcde"


def test_rare_indicators_respect_the_floor() -> None:
    frame = pd.DataFrame({"c": ["a"] * 9999 + ["b"]})
    assert np.abs(fit(frame, min_deviation=0.1).encode(read_table(frame)).x).max() == pytest.approx(
        10, rel=1e-3
    )


def test_booleans_are_one_indicator_cut_in_the_middle() -> None:
    frame = pd.DataFrame({"b": pd.array([True, True, True, False, None], dtype="boolean")})
    encoder = fit(frame)
    assert (encoder.width, encoder.numeric.tolist()) == (1, [False])
    middle = (0.5 - encoder.mean[0]) / encoder.deviation[0]
    assert filled_with(frame, middle + 0.01, encoder)["b"][4]
    assert not filled_with(frame, middle - 0.01, encoder)["b"][4]


def test_levels_are_positions_in_one_column_each() -> None:
    frame = pd.DataFrame({
        "c": ["b", "a", None, "c"],
        "x": [0.5, 1.5, 2.5, None],
        "one": [1, 1, 1, 1],
        "b": pd.array([True, None, False, True], dtype="boolean"),
    })  # fmt: skip
    encoder = fit(frame, codes="levels")
    assert encoder.blocks.tolist() == [0, 1, 3]
    assert (encoder.n_levels.tolist(), encoder.n_levels.dtype) == ([3, 0, 2], np.int64)
    assert encoder.mean[[0, 2]].tolist() == [0, 0]
    assert encoder.deviation[[0, 2]].tolist() == [1, 1]
    encoded = encoder.encode(read_table(frame))
    assert encoder.schema["c"].levels == ("a", "b", "c")
    assert encoded.x[:, 0].tolist() == [1, 0, 0, 2]
    assert encoded.x[:, 2].tolist() == [1, 0, 0, 1]
    assert encoded.missing[:, 0].tolist() == [False, False, True, False]
    assert encoded.missing[:, 2].tolist() == [False, True, False, False]
    assert fit(frame).n_levels.tolist() == [0] * 5  # indicators are numbers to the model


@pytest.mark.parametrize(
    ("number", "level"),
    [(-1e300, "a"), (-0.6, "a"), (0.4, "a"), (0.6, "b"), (1.4, "b"), (1.9, "c"), (2.6, "c"), (1e300, "c")],
)
def test_numbers_become_the_nearest_level(number: float, level: str) -> None:
    frame = pd.DataFrame({"c": ["a", "b", "c", None], "b": pd.array([True, False, None, None], "boolean")})
    filled = filled_with(frame, number, codes="levels")
    assert filled["c"][3] == level
    assert filled["b"].tolist()[2:] == [number > 0.5] * 2


def test_hundreds_of_levels_take_one_column_and_no_memory() -> None:
    frame = pd.DataFrame({"c": np.tile([f"level {k:03d}" for k in range(300)], 200)})
    holed = frame.assign(c=frame["c"].where(np.arange(len(frame)) % 7 > 0))
    table = read_table(holed)
    tracemalloc.start()
    encoder = TableEncoder.fit(table, codes="levels", max_levels=300)
    x = encoder.encode(table).x
    x[:, 0] = np.tile(np.arange(300), 200)
    values = encoder.decode(table, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (encoder.width, encoder.n_levels.tolist()) == (1, [300])
    pdt.assert_frame_equal(table.with_filled(values), frame)
    assert peak < len(frame) * 300  # not even a boolean for each cell and level


def test_positions_are_not_cut_off() -> None:
    levels = tuple(range(1_200_000))
    column = Column("n", Kind.CATEGORICAL, levels=levels, n_observed=2)
    encoder = TableEncoder(Schema((column,)), "levels", np.zeros(1), np.ones(1))
    table = read_table(pd.DataFrame({"n": pd.array([1_199_999, 7, None], dtype="Int64")}))
    x = encoder.encode(table).x
    assert x[:, 0].tolist() == [1_199_999, 7, 0]
    x[2] = 1_100_001
    assert encoder.fill(table, x)["n"].tolist() == [1_199_999, 7, 1_100_001]


def test_blocks_name_the_original_columns() -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5], "one": [1, 1], "c": ["a", "b"], "n": [1, 2]})
    encoder = fit(frame)
    assert encoder.blocks.tolist() == [0, 2, 2, 3]
    assert encoder.numeric.tolist() == [True, False, False, True]


@pytest.mark.parametrize("codes", CODES)
def test_unseen_levels_are_unknown_and_stay(codes: str) -> None:
    encoder = fit(pd.DataFrame({"c": ["a", "b"], "k": pd.Categorical(["a", "b"])}), codes=codes)
    new = pd.DataFrame({"c": ["a", *"vwxyz", None], "k": pd.Categorical(["a"] * 6 + ["q"])})
    with pytest.warns(DataWarning) as caught:
        encoded = encoder.encode(read_table(new))
    assert len(caught) == 1
    assert "'c' has 'v', 'w', 'x' and 2 more; 'k' has 'q'" in str(caught[0].message)
    assert encoded.missing[:, 0].tolist() == [False] + [True] * 6
    assert (encoded.x[1:, 0] == 0).all()
    assert filled_with(new, 1.0, encoder)["c"][:6].tolist() == new["c"][:6].tolist()


def test_unseen_levels_of_columns_that_had_one_are_told() -> None:
    fitted = {"t": ["u", "u", None], "yes": [True, True, True], "n": [3, 3, 3], "id": [7, 7, 7]}
    encoder = fit(pd.DataFrame(fitted), categorical_features=["id"])
    encoder.encode(read_table(pd.DataFrame(fitted)))  # no warning
    new = pd.DataFrame({"t": ["v", "u", None], "yes": [True, False, True], "n": [3, 4, 3], "id": [8, 7, 7]})
    with pytest.warns(DataWarning, match="'t' has 'v'; 'yes' has False; 'id' has 8. They stay"):
        encoder.encode(read_table(new))
    assert filled_with(new, 0.0, encoder)["t"].tolist() == ["v", "u", "u"]


@pytest.mark.parametrize("codes", CODES)
def test_a_level_that_the_dtype_cannot_hold_is_refused_or_added(codes: str) -> None:
    def filled_as(batch: pd.DataFrame, other: pd.DataFrame, encoder: TableEncoder) -> pd.Series:
        """Fill a batch as if the model had said what another table holds."""
        x = encoder.encode(read_table(other)).x
        return encoder.fill(as_fitted(read_table(batch), encoder.schema), x).iloc[:, 0]

    encoder = fit(pd.DataFrame({"c": pd.Categorical(["a", "b", "c"])}), codes=codes)
    narrow = pd.DataFrame({"c": pd.Categorical(["b", None], categories=["b", "q"])})
    found = filled_as(narrow, pd.DataFrame({"c": ["c", "c"]}), encoder)
    assert found.tolist() == ["b", "c"]
    assert found.cat.categories.tolist() == ["b", "q", "a", "c"]
    numbers = fit(pd.DataFrame({"n": [1, 300, 1]}), categorical_features=["n"], codes=codes)
    batch = pd.DataFrame({"n": pd.array([1, None], dtype="Int8")})
    with pytest.raises(InputError, match="cannot hold 300"):
        filled_as(batch, pd.DataFrame({"n": [300, 300]}), numbers)
    constant = fit(pd.DataFrame({"n": [300, 300]}))
    with pytest.raises(InputError, match="cannot hold 300"):
        filled_with(pd.DataFrame({"n": pd.array([1, None], dtype="Int8")}), 1.0, constant)


def test_the_nearest_level_is_taken_whatever_the_categories_of_the_batch() -> None:
    encoder = fit(pd.DataFrame({"c": pd.Categorical(list("abcdef"))}), codes="levels")
    frame = pd.DataFrame({"c": pd.Categorical(["b", None], categories=["q", "e", "b"])})
    filled = [str(filled_with(frame, number, encoder)["c"][1]) for number in range(-1, 7)]
    assert "".join(filled) == "aabcdeff"
    switch = pd.DataFrame({"b": pd.array([True, False], dtype="boolean")})
    only = pd.DataFrame({"b": pd.Categorical([True, None], categories=[True])})
    assert filled_with(only, 0.0, fit(switch, codes="levels"))["b"].tolist() == [True, False]


# ---------------------------------------------------------------------------------------------------------
# Numbers


@pytest.mark.parametrize(
    "values",
    [[1e-30, 2e-30, 3e-30], [1e20, 1e20 + 1e5, 1e20], [1e300, -1e300, 0.5], [5e-324, 0.0, 1e-323]],
)
def test_extreme_numbers_neither_explode_nor_vanish(values: list[float]) -> None:
    frame = pd.DataFrame({"x": [*values, None]})
    encoder = fit(frame)
    x = encoder.encode(read_table(frame)).x
    assert np.isfinite(x).all()
    assert 0.5 < np.abs(x).max() < 3
    filled = filled_with(frame, 0.3, encoder)["x"][3]
    assert min(values) <= filled <= max(values)
    absurd = read_table(pd.DataFrame({"x": [1e300, -1e300, 0.0, 1.0]}))
    assert np.isfinite(encoder.encode(absurd).x).all()


def test_outliers_do_not_crush_the_deviation_below_the_floor() -> None:
    frame = pd.DataFrame({"x": [0.5] * 100_000 + [1e9]})
    assert np.abs(fit(frame, min_deviation=0.01).encode(read_table(frame)).x).max() == pytest.approx(
        100, rel=1e-3
    )


def test_rows_are_encoded_by_themselves() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=50), "c": rng.choice(list("abc"), 50), "b": rng.random(50) < 0.5}
    )
    encoder = fit(frame)
    whole = encoder.encode(read_table(frame)).x
    for row in (0, 17, 49):
        alone = encoder.encode(read_table(frame.iloc[[row]])).x
        assert alone.tobytes() == whole[[row]].tobytes()


def test_statistics_come_from_observed_cells() -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, None, None]})
    encoder = fit(frame)
    assert (encoder.mean[0], encoder.deviation[0]) == (2.0, 0.5)
    encoded = encoder.encode(read_table(frame))
    assert encoded.x[:, 0].tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert encoded.missing[:, 0].tolist() == [False, False, True, True]
    assert encoded.x.dtype == np.float32


# ---------------------------------------------------------------------------------------------------------
# Other tables than that of fit


def test_tables_without_rows() -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5], "c": ["a", "b"]})
    with pytest.raises(InputError, match=r"0 sample\(s\) \(shape=\(0, 2\)\)"):
        fit(frame.iloc[:0])
    encoder = fit(frame)
    assert encoder.encode(read_table(frame.iloc[:0])).x.shape == (0, 3)
    pdt.assert_frame_equal(filled_with(frame.iloc[:0], 0.0, encoder), frame.iloc[:0])


def test_an_entirely_missing_column_may_have_any_dtype_later() -> None:
    encoder = fit(
        pd.DataFrame({"c": ["a", "b"], "d": pd.to_datetime(["2020-01-01", "2020-01-02"]), "n": [1, 2]})
    )
    new = pd.DataFrame({"c": [np.nan], "d": [np.nan], "n": pd.Series([None], dtype=object)})  # as from a CSV
    assert encoder.encode(read_table(new)).missing.all()
    filled = filled_with(new, 0.1, encoder)
    assert filled["c"][0] in ("a", "b")
    assert filled["d"][0] in (pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02"))
    assert filled["n"][0] in (1, 2)


def test_columns_must_hold_the_same_as_at_fit() -> None:
    encoder = fit(pd.DataFrame({"x": [0.5, 1.5], "c": ["a", "b"]}))
    with pytest.raises(InputError, match=r"column 'x' held numbers and now holds text or categories"):
        encoder.encode(read_table(pd.DataFrame({"x": ["a", "b"], "c": ["a", "b"]})))
    with pytest.raises(InputError, match="column 'c' held text or categories and now holds numbers"):
        filled_with(pd.DataFrame({"x": [0.5, 1.5], "c": [1.0, None]}), 0.0, encoder)
    with pytest.raises(InputError, match="this one has 1 and not 2"):
        encoder.encode(read_table(pd.DataFrame({"x": [1.0]})))


def test_completed_numbers_are_checked() -> None:
    table = read_table(pd.DataFrame({"x": [0.5, 1.5, None]}))
    encoder = TableEncoder.fit(table)
    with pytest.raises(InputError, match=r"shape \(3, 1\); they have \(3, 2\)"):
        encoder.decode(table, np.zeros((3, 2)))
    with pytest.raises(InputError, match="must be finite; those of column 'x' are not"):
        encoder.decode(table, np.full((3, 1), np.nan))


def test_settings_are_checked() -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5]})
    for bad in ({"codes": "hash"}, {"min_deviation": -1}, {"max_levels": 1}):
        with pytest.raises(SettingError):
            fit(frame, **bad)


def test_intervals_are_modelled_but_cannot_be_saved() -> None:
    frame = pd.DataFrame({"x": pd.cut([1.0, 2.0, np.nan, 9.0], 2)})
    encoder = fit(frame)
    assert not filled_with(frame, 1.0, encoder)["x"].isna().any()
    with pytest.raises(InputError, match="column 'x' has the level Interval"):
        encoder.to_dict()


def test_a_schema_prints_and_round_trips() -> None:
    encoder = fit(pd.DataFrame({("a", 1): [0.5, None], ("a", 2): [1, 2]}))
    assert Schema.from_dict(json.loads(json.dumps(encoder.schema.to_dict()))) == encoder.schema
    assert "modelled" in str(encoder.schema)


def test_whole_numbers_have_no_negative_zeros() -> None:
    table = read_table(pd.DataFrame({"x": [-1.0, 0.0, 1.0, 2.0, np.nan, np.nan]}))
    encoder = TableEncoder.fit(table)
    encoded = encoder.encode(table)
    mean = float(np.mean([-1.0, 0.0, 1.0, 2.0]))
    deviation = float(np.std([-1.0, 0.0, 1.0, 2.0]))
    completed = np.where(encoded.missing, np.float32((-0.3 - mean) / deviation), encoded.x)
    filled = encoder.decode(table, completed)[0]
    assert filled.tolist() == [0.0, 0.0]
    assert not np.signbit(filled).any()

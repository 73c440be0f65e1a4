"""Several completed tables: what they give, in every container, on disk and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diffputer import DiffPuter, Imputations
from diffputer.errors import InputError, SettingError
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.frames import read_table

from .conftest import TINY, ugly_frame

pl = pytest.importorskip("polars")


def draw(native: Any, m: int = 4, seed: int = 0, **wishes: Any) -> Imputations:
    """Complete a table m times with noise, without a model."""
    table = read_table(native)
    encoder = TableEncoder.fit(table, codes="levels", **wishes)
    rng = np.random.default_rng(seed)
    x = encoder.encode(table).x
    counts = np.where(encoder.n_levels > 0, encoder.n_levels, 1)
    noise = np.where(
        encoder.n_levels > 0, rng.random((m, *x.shape)) * counts - 0.5, rng.normal(size=(m, *x.shape))
    )
    filled = [encoder.decode(table, one) for one in noise.astype(np.float32)]
    return Imputations(table, filled, encoder.schema)


def nullable() -> pd.DataFrame:
    frame = ugly_frame()
    frame["exact"] = pd.array([1, None, 3] * 20, dtype="Int8")
    frame["share"] = pd.array([0.5, None, 0.25] * 20, dtype="Float32")
    frame["word"] = pd.array(["a", None, "b"] * 20, dtype="string")
    frame["zoned"] = pd.to_datetime(frame["day"]).dt.tz_localize("Europe/Berlin")
    frame["zoned hours"] = (frame["day"] + pd.Timedelta(hours=5, microseconds=7)).dt.tz_localize("Asia/Tokyo")
    frame["small"] = frame["size"].astype("float32")
    return frame


def arrow_backed() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "a": pd.array([1.5, None, 2.5, 4.0], dtype="double[pyarrow]"),
            "n": pd.array([1, None, 3, None], dtype="int16[pyarrow]"),
            "t": pd.array(["x", "y", None, "x"], dtype="string[pyarrow]"),
            "d": pd.array(
                [datetime.date(2020, 1, 1), None, datetime.date(2020, 2, 1), datetime.date(2020, 3, 1)],
                dtype=pd.ArrowDtype(pa.date32()),
            ),
            "ok": pd.array([True, None, False, True], dtype="bool[pyarrow]"),
        },
        index=pd.MultiIndex.from_tuples([("a", 1), ("a", 1), ("b", 2), ("b", 3)], names=["x", "y"]),
    )


def objects() -> pd.DataFrame:
    return pd.DataFrame(
        {
            7: pd.Series([1, 2, None, 4], dtype=object),
            "time": pd.Series(
                [datetime.time(8), None, datetime.time(9, 30), datetime.time(10)], dtype=object
            ),
            "cost": pd.Series([Decimal("1.10"), None, Decimal("2.25"), Decimal("3.00")], dtype=object),
            "sparse": pd.arrays.SparseArray([0.0, np.nan, 2.0, 0.5]),
            "level": pd.Categorical([1, 2, None, 1], categories=[2, 1, 3]),
            "whole": [1.0, np.nan, 3.0, 8.0],
        }
    ).set_axis(["p", "p", "q", "r"])


def polars_frame() -> Any:
    return pl.DataFrame(
        {
            "x": [1.5, None, 2.5, 4.0],
            "n": pl.Series([1, None, 3, None], dtype=pl.UInt8),
            "c": pl.Series(["u", None, "v", "u"], dtype=pl.Categorical),
            "e": pl.Series(["u", None, "v", "u"], dtype=pl.Enum(["v", "u", "w"])),
            "day": [datetime.date(2020, 1, 1), None, datetime.date(2020, 3, 1), datetime.date(2021, 1, 1)],
            "at": pl.Series([datetime.datetime(2020, 1, 1, 5), None, None, datetime.datetime(2020, 3, 1, 6)]),
            "clock": [datetime.time(8), None, datetime.time(9, 30), datetime.time(10)],
            "ok": [True, None, False, True],
        }
    )


def arrow_table() -> pa.Table:
    return pa.table(
        {
            "x": pa.array([1.5, None, 2.5, 4.0], pa.float32()),
            "c": pa.array(["u", None, "v", "u"]).dictionary_encode(),
            "s": pa.array(["u", None, "v", "u"], pa.large_string()),
            "w": pa.array([None, 5, 7, 9], pa.duration("s")),
            "at": pa.array([0, 3, None, 4], pa.timestamp("ms", "UTC")),
            "money": pa.array([Decimal("1.10"), None, Decimal("2.25"), Decimal("3.00")], pa.decimal128(9, 2)),
        },
        metadata={"made by": "hand"},
    )


def array() -> np.ndarray:
    return np.array([[1.0, np.nan], [2.5, 4.0], [np.nan, 5.0], [3.0, 1.0]])


def object_array() -> np.ndarray:
    return np.array([[1.0, "u"], [None, "v"], [2.5, None], [3.0, "u"]], dtype=object)


TABLES: list[Callable[[], Any]] = [
    ugly_frame,
    nullable,
    arrow_backed,
    objects,
    polars_frame,
    arrow_table,
    array,
    object_array,
]
each_table = pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)


def same(one: Any, other: Any) -> bool:
    """Whether two tables agree in container, dtypes, labels and every cell."""
    if type(one) is not type(other):
        return False
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
        return True
    if isinstance(one, pa.Table):
        return bool(one.schema.equals(other.schema, check_metadata=True) and one.equals(other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and pd.DataFrame(one).equals(pd.DataFrame(other))
    return bool(one.schema == other.schema and one.equals(other))


def as_pandas(table: Any) -> pd.DataFrame:
    if isinstance(table, pd.DataFrame):
        return table
    return pd.DataFrame(table) if isinstance(table, np.ndarray) else table.to_pandas()


@each_table
def test_a_sequence_of_completed_tables(make: Callable[[], Any]) -> None:
    native = make()
    draws = draw(native)
    assert (len(draws), draws.n_draws) == (4, 4)
    assert draws.original is not native or isinstance(native, pa.Table)
    assert same(draws.original, native)
    assert np.array_equal(draws.missing, read_table(native).missing)
    assert all(same(one, draws[number]) for number, one in enumerate(draws))
    assert len(draws[1:3]) == 2
    assert same(draws[1:3][0], draws[1])
    assert draws.map(len) == [len(native)] * 4
    assert "4 completed tables" in repr(draws)
    assert f"{draws.missing.sum()} cells" in repr(draws)


@each_table
def test_summaries_are_completed_tables_of_the_same_kind(make: Callable[[], Any]) -> None:
    native = make()
    draws = draw(native, m=5)
    before, complete = read_table(native), draws[0]
    for table in (draws.mean(), draws.median(), draws.mode(), *draws.interval(0.8)):
        assert type(table) is type(complete)
        after = read_table(table)
        assert not after.missing.any()
        assert [cells.storage for cells in after.cells] == [cells.storage for cells in before.cells]
        for position in range(before.n_columns):  # what was observed still is
            known = pa.array(~before.missing[:, position])
            for old, new in ((before.cells[position], after.cells[position]),):
                assert old.array.filter(known).equals(new.array.filter(known)) or old.levels is not None


@each_table
def test_intervals_are_ordered_and_hold_the_median(make: Callable[[], Any]) -> None:
    draws = draw(make(), m=7)
    lower, upper = map(read_table, draws.interval(0.9))
    middle = read_table(draws.median())
    assert draws.schema is not None
    for position, column in enumerate(draws.schema):
        if column.kind.is_numeric:
            low, mid, high = (table.cells[position].numbers() for table in (lower, middle, upper))
            assert (low <= mid).all()
            assert (mid <= high).all()


@each_table
def test_agreeing_draws_have_themselves_as_mean_median_and_mode(make: Callable[[], Any]) -> None:
    one = draw(make(), m=1)
    thrice = Imputations(read_table(make()), one._filled * 3, one.schema)
    for table in (thrice.mean(), thrice.median(), thrice.mode(), *thrice.interval()):
        assert same(table, one[0])
    deviations = thrice.std().to_numpy()
    assert np.nanmax(deviations) == 0
    assert np.isnan(deviations[~thrice.missing]).all()


def test_numbers_are_summarised_by_hand() -> None:
    day = pd.Timestamp("2024-01-01")
    frame = pd.DataFrame(
        {
            "x": [1.0, 9.5, np.nan],
            "n": pd.array([1, 90, None], dtype="Int64"),
            "day": [day, day + pd.Timedelta(days=30), pd.NaT],
            "town": ["Ulm", "Bonn", None],
            "ok": pd.array([True, False, None], dtype="boolean"),
        }
    )
    table = read_table(frame)
    schema = TableEncoder.fit(table).schema
    filled = [
        {
            0: np.array([x]),
            1: np.array([n]),
            2: np.array([(day + pd.Timedelta(days=days)).to_datetime64()]),
            3: np.array([town], dtype=object),
            4: np.array([ok]),
        }
        for x, n, days, town, ok in [
            (2.0, 2, 3, "Ulm", True),
            (3.0, 3, 4, "Bonn", False),
            (7.0, 5, 8, "Bonn", True),
        ]
    ]
    for known in (schema, None):
        draws = Imputations(table, filled, known)
        mean, median, mode = (t.iloc[2].tolist() for t in (draws.mean(), draws.median(), draws.mode()))
        assert mean == [4.0, 3, day + pd.Timedelta(days=5), "Bonn", True]
        assert median == [3.0, 3, day + pd.Timedelta(days=4), "Bonn", True]
        assert mode == [2.0, 2, day + pd.Timedelta(days=3), "Bonn", True]
        std = draws.std().iloc[2]
        assert std["x"] == pytest.approx(np.std([2, 3, 7], ddof=1))
        assert std["day"] == pytest.approx(np.std([3, 4, 8], ddof=1) * 86400)
        assert std[["town", "ok"]].isna().all()
        lower, upper = draws.interval(0.5)
        assert (lower.loc[2, "x"], upper.loc[2, "x"]) == (2.0, 7.0)  # between them lies half of what is drawn
        assert (lower.loc[2, "town"], upper.loc[2, "town"]) == ("Bonn", "Bonn")


@each_table
def test_the_long_layout(make: Callable[[], Any]) -> None:
    native = make()
    draws = draw(native, m=3)
    n = len(native)
    for original in (False, True):
        long = draws.to_long(include_original=original)
        assert isinstance(long, pd.DataFrame if isinstance(native, np.ndarray) else type(native))
        table = read_table(long)
        assert table.names == (".imp", ".id", *read_table(native).names)
        keys = as_pandas(long)
        assert keys[".imp"].tolist() == np.repeat(range(0 if original else 1, 4), n).tolist()
        assert keys[".id"].tolist() == list(range(1, n + 1)) * (3 + original)
        holes = int(draws.missing.sum()) if original else 0
        assert table.missing.sum() == holes
        if not isinstance(native, np.ndarray):
            stored = [cells.storage for cells in table.cells[2:]]
            assert stored == [cells.storage for cells in read_table(native).cells]
        if isinstance(native, pd.DataFrame):
            part = long[long[".imp"] == 2].drop(columns=[".imp", ".id"])
            pd.testing.assert_frame_equal(part, draws[1])


def test_the_long_layout_needs_its_names() -> None:
    with pytest.raises(InputError, match=r"'\.imp'"):
        draw(pd.DataFrame({".imp": [1.0, None, 2.0]})).to_long()


def test_the_long_layout_of_names_of_several_levels() -> None:
    frame = pd.DataFrame({("a", 1): [1.0, None, 2.0], ("b", 2): [None, 1.0, 2.0]})
    assert frame.columns.nlevels == 2
    long = draw(frame, m=2).to_long()
    assert long.columns.tolist() == [(".imp", ""), (".id", ""), ("a", 1), ("b", 2)]
    assert long[".imp"].tolist() == [1, 1, 1, 2, 2, 2]


def test_columns_without_any_value_can_be_stacked() -> None:
    frame = pd.DataFrame({"a": [1.0, None, 2.0], "b": [np.nan] * 3})
    with pytest.warns(UserWarning, match="without any observed value"):
        encoder = TableEncoder.fit(read_table(frame))
    table = read_table(frame)
    draws = Imputations(table, [{0: np.array([1.5]), 1: np.array(["x", "y", "z"], dtype=object)}] * 2)
    assert encoder.width == 1
    long = draws.to_long(include_original=True)
    assert long["b"].tolist()[3:] == ["x", "y", "z"] * 2
    assert long["b"].isna().tolist() == [True] * 3 + [False] * 6


@each_table
def test_files_give_back_what_was_written(make: Callable[[], Any], tmp_path: Path) -> None:
    draws = draw(make(), m=3)
    path = tmp_path / "draws.parquet"
    draws.to_parquet(path)
    again = Imputations.from_parquet(path)
    assert again.schema == draws.schema
    assert len(again) == 3
    if not isinstance(draws.original, np.ndarray):
        assert same(again.original, draws.original)
    assert all(same(new, old) for new, old in zip(again, draws, strict=True))
    assert same(again.mean(), draws.mean())
    assert [file.name for file in tmp_path.iterdir()] == ["draws.parquet"]


@pytest.mark.parametrize("storage", ["python", "pyarrow"])
@pytest.mark.parametrize("missing", [pd.NA, np.nan], ids=["NA", "nan"])
def test_text_comes_back_from_a_file_in_its_storage(missing: Any, storage: str, tmp_path: Path) -> None:
    """Whichever storage is the default of this pandas."""
    try:
        dtype = pd.StringDtype(storage) if missing is pd.NA else pd.StringDtype(storage, na_value=missing)
    except TypeError:
        pytest.skip("this pandas has no text with nan")
    draws = draw(pd.DataFrame({"t": pd.array(["x", "y", None, "x"], dtype=dtype)}))
    draws.to_parquet(tmp_path / "draws.parquet")
    again = Imputations.from_parquet(tmp_path / "draws.parquet")
    assert again.original["t"].dtype == dtype
    assert again.original["t"].isna().tolist() == [False, False, True, False]
    assert same(again[0], draws[0])


def test_a_file_holds_the_table_once_and_lists_of_draws(tmp_path: Path) -> None:
    draws = draw(ugly_frame(), m=3)
    draws.to_parquet(tmp_path / "draws.parquet")
    table = pq.read_table(tmp_path / "draws.parquet")
    assert table.num_rows == len(draws.original)
    cells = table.column(".draws.size").to_pylist()
    size = ugly_frame()["size"].isna().to_numpy()
    assert [cell is not None for cell in cells] == size.tolist()
    assert cells[int(size.argmax())] == [one["size"].iloc[int(size.argmax())] for one in draws]


def test_foreign_truncated_and_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "draws.parquet"
    draw(ugly_frame()).to_parquet(path)
    data = path.read_bytes()
    middle = bytearray(data)
    middle[100:110] = b"0123456789"
    for bad in (data[:-20], data[: len(data) // 2], b"", b"a,b\n1,2\n", bytes(middle)):
        path.write_bytes(bad)
        with pytest.raises(InputError, match=r"draws\.parquet"):
            Imputations.from_parquet(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match=r"other Parquet file.*draws\.parquet"):
        Imputations.from_parquet(path)
    with pytest.raises(InputError, match="there is no"):
        Imputations.from_parquet(tmp_path / "nothing.parquet")


def test_what_a_file_could_not_give_back_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "draws.parquet"
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "b": pd.Categorical([1, "x", None], categories=[1, "x"])})
    with pytest.raises(InputError, match="however"):
        draw(frame).to_parquet(path)
    with pytest.raises(InputError, match="types that it knows"):
        draw(pl.DataFrame({"a": [1.0, None], "b": pl.Series([1, 2], dtype=pl.Int128)})).to_parquet(path)
    with pytest.raises(InputError, match=r"'\.draws\.a'"):
        draw(pd.DataFrame({"a": [1.0, None, 3.0], ".draws.a": [1.0, 2.0, 3.0]})).to_parquet(path)
    assert not path.exists()


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be written"):
        draw(ugly_frame()).to_parquet(tmp_path / "no folder" / "draws.parquet")


@pytest.mark.parametrize("index", [3, -4, 99])
def test_a_draw_that_is_not_there(index: int) -> None:
    draws = draw(ugly_frame(), m=3)
    with pytest.raises(IndexError, match=rf"counted from 0 to 2, however: {index}. Draw more"):
        draws[index]
    assert len(list(draws)) == 3


def test_too_few_draws_are_refused() -> None:
    one = draw(ugly_frame(), m=1)
    for act in (one.std, lambda: one.pool(lambda d: (1.0, 1.0))):
        with pytest.raises(InputError, match="at least 2 draws, however: there is 1"):
            act()
    for act in (one[:0].mean, one[:0].to_long, one[:0].mode):
        with pytest.raises(InputError, match="at least 1 draw, however: there are 0"):
            act()
    with pytest.raises(SettingError, match="level"):
        one.interval(90)


def test_draws_that_fill_different_columns_are_refused() -> None:
    table = read_table(pd.DataFrame({"a": [1.0, None], "b": [1.0, None]}))
    with pytest.raises(InputError, match="same columns"):
        Imputations(table, [{0: np.array([1.0])}, {1: np.array([1.0])}])


def test_draws_of_the_same_table_can_be_joined() -> None:
    frame = ugly_frame()
    one, other = draw(frame, m=2), draw(frame, m=3, seed=1)
    joined = one + other
    assert len(joined) == 5
    assert same(joined[4], other[2])
    assert joined.schema == one.schema
    with pytest.raises(InputError, match="same table"):
        _ = one + draw(frame.head(30))
    with pytest.raises(TypeError):
        _ = one + frame.to_dict()


def test_pooling_names_the_draw_in_which_the_analysis_fails() -> None:
    draws = draw(ugly_frame(), m=3)
    calls: list[int] = []

    def fit(table: pd.DataFrame) -> tuple[float, float]:
        calls.append(len(calls))
        if len(calls) == 2:
            raise ZeroDivisionError("nothing to divide by")
        return 1.0, 1.0

    with pytest.raises(InputError, match=r"draw 2 of 3 .*ZeroDivisionError: nothing.*draws\[1\]"):
        draws.pool(fit)
    calls.clear()
    with pytest.raises(ZeroDivisionError) as caught:
        draws.map(fit)
    assert caught.value.__notes__ == ["in draw 2 of 3"]


def test_pooling_regressions_of_drawn_tables() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    frame = pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=120)})
    frame.loc[rng.random(120) < 0.3, "y"] = np.nan
    draws = DiffPuter(random_state=0, **TINY).fit(frame).sample(frame, 5)
    pooled = draws.pool(lambda d: smf.ols("y ~ x", d).fit())
    fits = [smf.ols("y ~ x", one).fit() for one in draws]
    assert list(pooled.table.index) == ["Intercept", "x"]
    assert pooled.df_complete == 118
    np.testing.assert_allclose(pooled.table["estimate"], np.mean([fit.params for fit in fits], axis=0))
    assert (pooled.table["std_error"] > np.sqrt(np.diag(pooled.within))).all()
    assert pooled.table["fmi"].between(0, 1).all()

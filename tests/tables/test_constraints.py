"""Constraints hold in completed tables, move filled cells only, and say what is impossible."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffputer.errors import DataWarning, InputError
from diffputer.tables.constraints import Constraints
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.expressions import LONGEST, NotAffineError, parse_expression, parse_inequality
from diffputer.tables.frames import read_table

NAN = np.nan
#: For tables so small that what is solved for is seldom inside what was observed.
unlike_observed = pytest.mark.filterwarnings("ignore:Cells for which a formula is solved")


def complete(frame: pd.DataFrame, fill: Any = 100.0, **rules: Any) -> pd.DataFrame:
    """Fill the holes with anything, then apply constraints."""
    result: pd.DataFrame = Constraints(**rules).apply(frame.fillna(fill), frame.isna())
    return result


# Formulas


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b", 5.0),
        ("a - -b", 5.0),
        ("2 * (a + b) / 4", 2.5),
        ("+a * b", 6.0),
        ("`a` + `two words`", 9.0),
        ("1.5e1 + a", 17.0),
        ("a / b / 2", 1 / 3),
    ],
)
def test_formulas_are_computed(text: str, value: float) -> None:
    values = {"a": np.array([2.0]), "b": np.array([3.0]), "two words": np.array([7.0])}
    assert parse_expression(text).evaluate(values)[0] == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "a ** 2",
        "a % 2",
        "a // 2",
        "a if b else c",
        "f(a)",
        "a.real",
        "a[0]",
        "lambda: a",
        "a = b",
        "a; b",
        "a and b",
        "'a' + b",
        "True + a",
        "a + 1j",
        "a + 1e999",
        "__import__('os').system('true')",
        "(a := b)",
        "a +",
        "",
        "3",
        "a < b",
        "two words + a",
        "not a",
        "~a",
        "[a]",
        "a" * (LONGEST + 1),
        "(" * 400 + "a" + ")" * 400,
    ],
)
def test_nothing_else_is_read(text: str) -> None:
    with pytest.raises(InputError, match="A formula"):
        parse_expression(text)


numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


@given(a=numbers, b=numbers, c=numbers)
def test_formulas_agree_with_python(a: float, b: float, c: float) -> None:
    text = "a - 2 * (b - c / 4) + -c"
    found = parse_expression(text).evaluate({k: np.array([v]) for k, v in {"a": a, "b": b, "c": c}.items()})
    assert found[0] == pytest.approx(a - 2 * (b - c / 4) + -c, abs=1e-9)


@given(a=numbers, b=numbers, c=numbers)
def test_solving_is_the_inverse_of_computing(a: float, b: float, c: float) -> None:
    formula = parse_expression("a * b - (c + 3 * a) / 2")
    constant, slopes = formula.solve_for({"a": np.array([a])}, ["b", "c"])
    found = constant + slopes["b"] * b + slopes["c"] * c
    assert found[0] == pytest.approx(a * b - (c + 3 * a) / 2, abs=1e-6)


@pytest.mark.parametrize("text", ["a * a", "1 / a", "a * (a + b)", "b / a"])
def test_what_is_not_linear_is_not_solved(text: str) -> None:
    with pytest.raises(NotAffineError):
        parse_expression(text).solve_for({"b": np.array([1.0])}, ["a"])


@pytest.mark.parametrize(
    "text", ["a < b", "a == b", "a", "a <= 3", "a + 1 <= b", "a <= a", "a <= b < c", "<=", "s=e", "a =< b"]
)
def test_other_comparisons_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"An inequality compares columns by <= or >=, such as .*, however"):
        parse_inequality(text)


# Derived columns


@unlike_observed
def test_missing_derived_cells_are_computed_and_missing_inputs_solved_for() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, NAN, 3.0, NAN], "b": [2.0, 5.0, NAN, 1.0], "total": [NAN, 9.0, 7.0, NAN]},
        index=list("wxyz"),
    )
    done = complete(frame, derived={"total": "a + b"})
    assert done["total"].tolist() == [3.0, 9.0, 7.0, 101.0]
    assert done["a"].tolist() == [1.0, 4.0, 3.0, 100.0]
    assert done["b"].tolist() == [2.0, 5.0, 4.0, 1.0]
    assert list(done.index) == list("wxyz")


@unlike_observed
def test_what_follows_is_followed_through_several_formulas() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, 1.0], "b": [NAN, 2.0], "c": [4.0, 4.0], "ab": [NAN, NAN], "abc": [9.0, NAN]}
    )
    done = complete(frame, derived={"abc": "ab + c", "ab": "a + b"})
    assert done["ab"].tolist() == [5.0, 3.0]
    assert done["b"].tolist() == [4.0, 2.0]
    assert done["abc"].tolist() == [9.0, 7.0]


@unlike_observed
def test_a_product_is_solved_for_one_factor() -> None:
    frame = pd.DataFrame({"price": [2.0, NAN, 3.0], "n": [4.0, 5.0, NAN], "sum": [NAN, 20.0, 6.0]})
    done = complete(frame, derived={"sum": "price * n"})
    assert done.to_numpy().tolist() == [[2, 4, 8], [4, 5, 20], [3, 2, 6]]


@unlike_observed
def test_several_missing_inputs_share_the_difference() -> None:
    frame = pd.DataFrame(
        {"a": [0.0, 2.0, NAN], "b": [0.0, 2.0, NAN], "c": [1.0, 1.0, 1.0], "total": [1.0, 5.0, 11.0]}
    )
    done = complete(frame, fill=3.0, derived={"total": "a + b + c"})
    assert done.loc[2, ["a", "b"]].tolist() == [5.0, 5.0]
    wider = frame.assign(a=[0.0, 6.0, NAN], total=[1.0, 9.0, 11.0])
    done = complete(wider, fill=3.0, derived={"total": "a + b + c"})
    assert done.loc[2, "a"] - 3 == pytest.approx(9 * (done.loc[2, "b"] - 3))  # 3 times the deviation
    assert done.loc[2, ["a", "b", "c"]].sum() == pytest.approx(11.0)


def test_shares_keep_to_the_bounds() -> None:
    frame = pd.DataFrame({"a": [0.0, 9.0, NAN], "b": [0.0, 9.0, NAN], "total": [0.0, 18.0, 12.0]})
    done = complete(frame, fill=3.0, derived={"total": "a + b"}, bounds={"a": (0, 4)})
    assert done.loc[2].tolist() == [4.0, 8.0, 12.0]


def test_whole_numbers_stay_whole() -> None:
    frame = pd.DataFrame(
        {
            "a": pd.array([0, 7, None], dtype="Int64"),
            "b": pd.array([0, 1, None], dtype="Int8"),
            "c": pd.array([0, 3, None], dtype="Int16"),
            "total": pd.array([0, 11, 8], dtype="Int64"),
        }
    )
    done = complete(frame, fill=1, derived={"total": "a + b + c"})
    assert done.loc[2, ["a", "b", "c"]].sum() == 8
    assert done.dtypes.equals(frame.dtypes)


@unlike_observed
def test_bounds_decide_whether_an_input_is_solved_for() -> None:
    frame = pd.DataFrame({"a": [5.0, NAN], "b": [1.0, 9.0], "total": [6.0, 4.0]})
    assert complete(frame, derived={"total": "a + b"}).loc[1, "a"] == -5.0
    with pytest.warns(DataWarning, match="'total' do not follow its formula within the bounds"):
        done = complete(frame, fill=2.0, derived={"total": "a + b"}, bounds={"a": (0, None)})
    assert done.loc[1, "a"] >= 0


def test_formulas_that_cannot_be_solved_are_reported() -> None:
    frame = pd.DataFrame({"a": [2.0, NAN], "square": [4.0, 9.0]})
    with pytest.warns(DataWarning, match="row 1 .counted from 0"):
        assert complete(frame, fill=1.0, derived={"square": "a * a"}).loc[1, "a"] == 1.0
    zero = pd.DataFrame({"a": [2.0, 1.0], "b": [1.0, 0.0], "share": [2.0, NAN]})
    with pytest.warns(DataWarning, match="division by zero"):
        assert complete(zero, fill=7.0, derived={"share": "a / b"}).loc[1, "share"] == 7.0


@unlike_observed
def test_functions_compute_columns() -> None:
    frame = pd.DataFrame({"a": [1.0, 4.0, 9.0], "root": [1.0, NAN, NAN], "twice": [2.0, NAN, 6.0]})
    rules = {"root": lambda d: np.sqrt(d["a"]), "twice": "2 * root"}
    done = complete(frame, derived=rules)
    assert done["root"].tolist() == [1.0, 2.0, 3.0]
    assert done["twice"].tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda d: d["a"] / 0, "is inf"),
        (lambda d: [1.0], "returned 1 for 2 rows"),
        (lambda d: ["x", "y"], "something else"),
        (lambda d: d["zzz"], "KeyError"),
    ],
)
def test_functions_that_fail_are_named(function: Callable[[Any], Any], words: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 4.0], "b": [1.0, NAN]})
    with pytest.raises(InputError, match=f"'b'.*{words}"):
        complete(frame, derived={"b": function})


def test_observed_cells_that_disagree_with_a_formula() -> None:
    frame = pd.DataFrame({"a": np.arange(1.0, 41.0)})
    frame["total"] = 2 * frame["a"]
    frame.loc[[7, 9], "total"] += 5
    with pytest.warns(DataWarning, match="in 2 of 40 rows it is not, such as row 7"):  # 5 %
        Constraints(derived={"total": "2 * a"}).check(frame)
    frame.loc[11, "total"] += 5
    with pytest.raises(InputError, match=r"in 3 of 40 rows.*Correct the formula, or these rows"):
        Constraints(derived={"total": "2 * a"}).check(frame)
    with pytest.raises(InputError, match=r"in 40 of 40 rows"):
        Constraints(derived={"total": "3 * a"}).check(frame)


def test_rounded_inputs_contradict_no_formula() -> None:
    rng = np.random.default_rng(0)
    height, weight = rng.uniform(1.5, 2.0, 100), rng.uniform(50, 100, 100)
    frame = pd.DataFrame(
        {"height": height.round(2), "weight": weight.round(), "bmi": (weight / height**2).round(1)}
    )
    with pytest.warns(DataWarning, match="These rows stay as they are"):
        Constraints(derived={"bmi": "weight / (height * height)"}).check(frame)
    with pytest.raises(InputError, match="Correct the formula"):
        Constraints(derived={"bmi": "weight / height"}).check(frame)


def test_computed_cells_beyond_stated_bounds_are_reported() -> None:
    frame = pd.DataFrame({"a": [1.0, 20.0, 30.0], "b": [2.0, 3.0, 4.0], "total": [3.0, NAN, NAN]})
    with pytest.warns(
        DataWarning, match=r"2 of 'total' are computed to be outside of 0 to 10, such as row 1"
    ):
        done = complete(frame, derived={"total": "a + b"}, bounds={"total": (0, 10)})
    assert done["total"].tolist() == [3.0, 23.0, 34.0]
    with pytest.warns(DataWarning, match="'total' are computed to be outside of 0 to 10"):
        complete(frame, derived={"total": lambda d: d["a"] + d["b"]}, bounds={"total": (0, 10)})
    complete(frame, derived={"total": "a + b"}, bounds={"total": (0, 34)})


def test_solved_cells_unlike_observed_ones_are_reported() -> None:
    frame = pd.DataFrame({"p": [0.0, 9.0, 4.0, NAN], "q": [1.0, 2.0, 3.0, 8.0], "t": [1.0, 11.0, 7.0, 2.0]})
    words = "1 of 'p' are outside of its observed range, 0 to 9, 1 of them below zero, such as row 3"
    with pytest.warns(DataWarning, match=words):
        assert complete(frame, derived={"t": "p + q"}).loc[3, "p"] == -6.0
    complete(frame, derived={"t": "p + q"}, bounds={"p": (None, None)})  # said to be possible
    near = frame.assign(t=[1.0, 11.0, 7.0, 17.5])
    assert complete(near, derived={"t": "p + q"}).loc[3, "p"] == 9.5  # the largest may be among the missing
    with pytest.warns(DataWarning, match="1 of 'p' are outside of its observed range, 0 to 9, such as row 3"):
        complete(frame.assign(t=[1.0, 11.0, 7.0, 25.0]), derived={"t": "p + q"})


def test_functions_that_observed_results_do_not_follow_are_reported() -> None:
    frame = pd.DataFrame({"a": [1.0, NAN, 3.0], "b": [1.0, 1.0, 1.0], "total": [2.0, 9.0, 4.0]})
    with pytest.warns(DataWarning, match=r"1 rows of 'total' do not follow its function.*row 1"):
        done = complete(frame, derived={"total": lambda d: d["a"] + d["b"]})
    assert done.loc[1].tolist() == [100.0, 1.0, 9.0]
    complete(frame, fill=8.0, derived={"total": lambda d: d["a"] + d["b"]})


# Inequalities


def test_filled_cells_stop_at_observed_ones_and_two_filled_ones_meet() -> None:
    frame = pd.DataFrame({"low": [1.0, NAN, 3.0, NAN], "high": [2.0, 5.0, NAN, NAN]})
    filled = frame.copy()
    filled.loc[1, "low"], filled.loc[2, "high"] = 7.0, 0.0
    filled.loc[3] = [8.0, 4.0]
    done = Constraints(inequalities=["low <= high"]).apply(filled, frame.isna())
    assert done["low"].tolist() == [1.0, 5.0, 3.0, 6.0]
    assert done["high"].tolist() == [2.0, 5.0, 3.0, 6.0]


def test_dates_and_times_are_compared() -> None:
    days = pd.to_datetime(["2024-01-05", None, "2024-01-09", None])
    frame = pd.DataFrame(
        {
            "start": days,
            "end": pd.to_datetime(["2024-01-06", "2024-01-07", None, None]),
            "from": pd.Series([datetime.time(9), None, None, datetime.time(7)], dtype=object),
            "to": pd.Series([datetime.time(10), datetime.time(8), datetime.time(9), None], dtype=object),
        }
    )
    filled = frame.copy()
    filled.loc[1, "start"], filled.loc[2, "end"] = pd.Timestamp("2024-02-01"), pd.Timestamp("2023-01-01")
    filled.loc[3, ["start", "end"]] = pd.Timestamp("2024-01-09"), pd.Timestamp("2024-01-03")
    filled.loc[1, "from"], filled.loc[2, "from"], filled.loc[3, "to"] = (
        datetime.time(9),
        datetime.time(5),
        datetime.time(6),
    )
    rules = Constraints(inequalities=["start <= end", "to >= `from`"])
    done = rules.apply(filled, frame.isna())
    assert done.loc[1, "start"] == pd.Timestamp("2024-01-07")
    assert done.loc[2, "end"] == pd.Timestamp("2024-01-09")
    assert done.loc[3, ["start", "end"]].tolist() == [pd.Timestamp("2024-01-06")] * 2
    assert done["from"].tolist() == [datetime.time(h) for h in (9, 8, 5, 7)]
    assert done["to"].tolist() == [datetime.time(h) for h in (10, 8, 9, 7)]


def test_rounding_never_crosses_an_inequality() -> None:
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, None], dtype="Int64"),
            "narrow": np.array([NAN, NAN, 9.0], dtype="float32"),
            "real": [2.5, 3.1, NAN],
        }
    )
    filled = frame.copy()
    filled["whole"] = pd.array([1, 9, 9], dtype="Int64")
    filled["narrow"] = np.array([9.0, 9.0, 9.0], dtype="float32")
    filled["real"] = [2.5, 3.1, 0.3]
    done = Constraints(inequalities=["whole <= real", "narrow <= real"]).apply(filled, frame.isna())
    assert done["whole"].tolist() == [1, 3, 9]
    assert (done["narrow"].astype(float) <= done["real"]).all()
    assert (done["whole"].astype(float) <= done["real"]).all()
    assert done["narrow"].dtype == np.float32


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"inequalities": ["a <= b"]}, r"'a' <= 'b'.*1 of 3 rows.*row 1 \(counted from 0\)"),
        ({"inequalities": ["a <= zzz"]}, "'zzz' is not there"),
        ({"inequalities": ["a <= text"]}, "'text' is text"),
        ({"inequalities": ["a <= day"]}, "'a' holds numbers and 'day' dates"),
        ({"inequalities": ["b <= c", "c <= b"]}, "circle"),
        ({"derived": {"zzz": "a + b"}}, "'zzz' is not there"),
        ({"derived": {"a": "zzz + b"}}, "'zzz' is not there"),
        ({"derived": {"text": "a + b"}}, "'text' is text"),
        ({"derived": {"day": "a + b"}}, "'day' is datetime"),
        ({"derived": {"a": "day + b"}}, "'day' is datetime"),
        ({"derived": {"level": "a + b"}}, "'level' is categorical"),
        ({"derived": {"a": "a + 1"}}, "circle"),
        ({"derived": {"a": "b + 1", "b": "c * 2", "c": "a - 1"}}, "'a' -> 'b' -> 'c' -> 'a'"),
        ({"derived": {"c": "a + b"}, "inequalities": ["a <= c"]}, "'c' is derived"),
        ({"derived": ["a"]}, "a list"),
        ({"derived": {"a": 3}}, "A formula must be text"),
        ({"derived": {"c": "a + b"}, "bounds": {"a": ("x", None)}}, "Bounds.*'a'"),
        ({"inequalities": ["b <= c"], "bounds": {"b": (7, None), "c": (None, 3)}}, "'b' <= 'c'"),
    ],
)
def test_impossible_constraints_are_explained(rules: dict[str, Any], words: str) -> None:
    frame = pd.DataFrame(
        {
            "a": [1.0, 5.0, NAN],
            "b": [2.0, 3.0, NAN],
            "c": [NAN, NAN, NAN],
            "text": ["x", "y", "z"],
            "day": pd.to_datetime(["2024-01-01"] * 3),
            "level": pd.Categorical([1, 2, 1]),
        }
    )
    with pytest.raises(InputError, match=words):
        Constraints(**rules).check(frame)


def test_tables_that_are_not_complete_and_masks_of_another_shape_are_refused() -> None:
    frame = pd.DataFrame({"a": [1.0, NAN], "b": [2.0, 3.0]})
    rules = Constraints(inequalities=["a <= b"])
    with pytest.raises(InputError, match="'a' has"):
        rules.apply(frame, frame.isna())
    with pytest.raises(InputError, match="shape"):
        rules.apply(frame.fillna(0), frame.isna().to_numpy()[:1])


@unlike_observed
@pytest.mark.parametrize("container", ["polars", "pyarrow", "numpy"])
def test_other_containers(container: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 9.0], "b": [2.0, 3.0], "total": [7.0, 8.0]})
    missing = np.array([[False, False, True], [True, False, False]])
    rules: dict[str, Any] = {"derived": {"total": "a + b"}}
    if container == "polars":
        pl = pytest.importorskip("polars")
        done = Constraints(**rules).apply(pl.from_pandas(frame), missing).to_numpy()
    elif container == "pyarrow":
        done = Constraints(**rules).apply(pa.Table.from_pandas(frame), missing).to_pandas().to_numpy()
    else:
        done = Constraints(derived={2: "`0` + `1`"}).apply(frame.to_numpy(), missing)
    assert done.tolist() == [[1, 2, 3], [5, 3, 8]]


def test_rounding_is_no_contradiction() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.random((3, 200))
    frame = pd.DataFrame({"a": a, "b": b, "c": c, "total": a + b + c, "same": a})
    mask = np.zeros(frame.shape, dtype=bool)
    mask[:, 0] = True
    rules = Constraints(derived={"total": "a + b + c"}, inequalities=["a <= same"])
    done = rules.apply(frame.assign(a=7.0), mask)  # a follows from the total, but for its last digit
    assert (done["a"] <= done["same"]).all()
    np.testing.assert_allclose(done["a"], a, rtol=1e-12)


def test_days_of_a_time_zone_stay_days() -> None:
    days = pd.date_range("2024-03-25", periods=14).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"start": days, "end": days + pd.DateOffset(days=2)})
    mask = np.tile([[True, False], [False, True], [True, True]], (5, 1))[:14]
    filled = frame.assign(
        start=frame["start"].where(~mask[:, 0], days[9]), end=frame["end"].where(~mask[:, 1], days[2])
    )
    schema = TableEncoder.fit(read_table(frame.mask(mask))).schema
    done = Constraints(inequalities=["start <= end"]).apply(filled, mask, schema)
    assert (done["start"] <= done["end"]).all()
    assert (done == done.apply(lambda column: column.dt.normalize())).all().all()


# Properties


@st.composite
def holes_and_fills(draw: Any, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A complete table, a mask, and arbitrary fills."""
    n = draw(st.integers(1, 6))
    cells = st.floats(-50, 50).map(lambda x: round(x, 2))

    def table(of: Any) -> np.ndarray:
        return np.array(
            draw(st.lists(st.lists(of, min_size=columns, max_size=columns), min_size=n, max_size=n))
        )

    return table(cells), table(st.booleans()), table(cells)


@unlike_observed
@settings(max_examples=150, deadline=None)
@given(holes_and_fills(4))
def test_sums_that_hold_in_the_data_hold_in_every_completion(drawn: Any) -> None:
    truth, missing, fills = drawn
    frame = pd.DataFrame(truth, columns=list("abcd"))
    frame["total"] = frame["a"] + 2 * frame["b"] - frame["c"]
    frame["rest"] = frame["total"] - frame["d"]
    mask = np.hstack([missing, missing[:, ::2] ^ missing[:, 1::2]])
    filled = frame.mask(mask, pd.DataFrame(np.hstack([fills, fills[:, :2]]), columns=frame.columns))
    rules = Constraints(derived={"rest": "total - d", "total": "a + 2 * b - c"})
    done = rules.apply(filled, mask)
    assert np.array_equal(done.to_numpy()[~mask], frame.to_numpy()[~mask])
    np.testing.assert_allclose(done["total"], done["a"] + 2 * done["b"] - done["c"], atol=1e-10)
    np.testing.assert_allclose(done["rest"], done["total"] - done["d"], atol=1e-10)
    again = rules.apply(done, mask)
    np.testing.assert_allclose(again.to_numpy(), done.to_numpy(), atol=1e-8)


@unlike_observed
@settings(max_examples=100, deadline=None)
@given(holes_and_fills(3))
def test_whole_sums_hold_in_every_completion(drawn: Any) -> None:
    truth, missing, fills = (np.floor(part).astype("int64") for part in drawn)
    frame = pd.DataFrame(truth, columns=list("abc")).astype("Int64")
    frame["total"] = frame["a"] + frame["b"] - frame["c"]
    mask = np.column_stack([missing, missing[:, 0] ^ missing[:, 1]]).astype(bool)
    filled = frame.mask(mask, pd.DataFrame(np.column_stack([fills, fills[:, 0]]), columns=frame.columns))
    done = Constraints(derived={"total": "a + b - c"}).apply(filled, mask)
    assert done.dtypes.equals(frame.dtypes)
    assert (done["total"] == done["a"] + done["b"] - done["c"]).all()
    assert (done.where(~mask) == frame.where(~mask)).fillna(True).all().all()


@settings(max_examples=150, deadline=None)
@given(holes_and_fills(4), st.booleans())
def test_inequalities_hold_in_every_completion(drawn: Any, whole: bool) -> None:
    truth, missing, fills = drawn
    frame = pd.DataFrame(np.sort(truth, axis=1), columns=list("abcd"))
    filled = frame.mask(missing, pd.DataFrame(fills, columns=frame.columns))
    if whole:
        frame, filled = (np.floor(t).astype({"b": "int64", "d": "int32"}) for t in (frame, filled))
    done = Constraints(inequalities=["a <= b <= c", "c <= d", "a <= d"]).apply(filled, missing)
    assert np.array_equal(done.to_numpy()[~missing], frame.to_numpy()[~missing])
    assert done.dtypes.equals(frame.dtypes)
    for low, high in ("ab", "bc", "cd"):
        assert (done[low] <= done[high]).all()
    right = (filled["a"] <= filled["b"]) & (filled["b"] <= filled["c"]) & (filled["c"] <= filled["d"])
    assert done[right].equals(filled[right])  # what is right is left alone


@unlike_observed
@settings(max_examples=100, deadline=None)
@given(holes_and_fills(2))
def test_parts_of_a_whole_hold_both_ways(drawn: Any) -> None:
    truth, missing, fills = drawn
    part, whole = np.sort(np.abs(truth), axis=1).T
    frame = pd.DataFrame({"part": part, "whole": whole, "rest": whole - part})
    mask = np.column_stack([missing, missing[:, 0] ^ missing[:, 1]])
    filled = frame.mask(mask, pd.DataFrame(np.column_stack([fills, fills[:, 0]]), columns=frame.columns))
    done = Constraints(derived={"rest": "whole - part"}, inequalities=["part <= whole"]).apply(filled, mask)
    np.testing.assert_allclose(done["rest"], done["whole"] - done["part"], atol=1e-10)
    assert (done["part"] <= done["whole"] + 1e-9).all()

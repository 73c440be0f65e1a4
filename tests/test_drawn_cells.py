"""Drawn cells: what their summaries keep to, that they stay as drawn, and how further ones are had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diffputer import DiffPuter, Imputations
from diffputer.errors import DataWarning, InputError, SettingError
from diffputer.tables.constraints import Constraints
from diffputer.tables.draws import interval_ends
from diffputer.tables.encoding import TableEncoder
from diffputer.tables.frames import read_table

from .conftest import TINY, TINY_PAPER

pl = pytest.importorskip("polars")
NAN = np.nan


def numbers(n: int = 60, seed: int = 0, dtype: str = "float64") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"), dtype=dtype)
    frame["b"] += frame["a"]
    return frame.mask(rng.random(frame.shape) < 0.25)


@pytest.fixture(scope="module")
def fitted() -> DiffPuter:
    return DiffPuter(random_state=0, **TINY).fit(numbers())


# Summaries of derived cells


def sums(rules: dict[str, Any], totals: tuple[float, ...] = (21.0, 22.0, 23.0)) -> Imputations:
    """Draws of a sum beyond all that was observed: a = 8, 9, 10, b = 13 is observed, the total is not."""
    frame = pd.DataFrame({"a": [1.5, 5.0, NAN], "b": [4.0, 6.0, 13.0], "t": [5.5, 11.0, NAN]})
    table = read_table(frame)
    schema = TableEncoder.fit(table, bounds={"a": (0, 20)}).schema
    bound = Constraints(**rules).on(table, schema)
    filled = [bound({0: np.array([t - 13.0]), 2: np.array([0.0])}) for t in totals]
    return Imputations(table, filled, schema, None, bound)


BY_TEXT = {"derived": {"t": "a + b"}}
BY_FUNCTION = {"derived": {"t": lambda d: d["a"] + d["b"]}}


@pytest.mark.parametrize("rules", [BY_TEXT, BY_FUNCTION], ids=["formula", "function"])
def test_derived_cells_are_summarised_beyond_what_was_observed(rules: dict[str, Any], tmp_path: Path) -> None:
    draws = sums(rules)
    draws.to_parquet(tmp_path / "draws.parquet")
    for found in (draws, Imputations.from_parquet(tmp_path / "draws.parquet")):
        for table in (found.mean(), found.median()):
            assert table["t"].tolist() == [5.5, 11.0, 22.0]
        assert found.mode()["t"].iloc[2] == 21.0
        assert found.std()["t"].iloc[2] == pytest.approx(1.0)
        lower, upper = found.interval(0.5)
        assert (lower["t"].iloc[2], upper["t"].iloc[2]) == (21.0, 23.0)
        lower, upper = found.interval(0.9)  # 22 -+ 2.92 sqrt(4 / 3)
        assert (lower["t"].iloc[2], upper["t"].iloc[2]) == pytest.approx((18.628, 25.372), abs=1e-3)


def test_formulas_and_inequalities_hold_in_summaries_of_what_a_file_gives(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "a": [1.0, 5.0, NAN, 3.0],
            "b": [4.0, 6.0, NAN, 9.0],
            "c": [5.0, 7.0, NAN, 9.0],
            "p": [4.0, 30.0, NAN, 27.0],
        }
    )
    table = read_table(frame)
    bound = Constraints({"p": "a * b"}, ["b <= c"], {"a": (0.0, 20.0)}).on(table)
    filled = [
        bound({position: np.array([value]) for position, value in enumerate(values)})
        for values in ([1.0, 5.0, 6.0, 0.0], [2.0, 8.0, 8.5, 0.0], [4.0, 6.0, 9.0, 0.0])
    ]
    draws = Imputations(table, filled, None, None, bound)
    draws.to_parquet(tmp_path / "draws.parquet")
    again = Imputations.from_parquet(tmp_path / "draws.parquet")
    for one, other in ((draws.mean(), again.mean()), (draws.median(), again.median())):
        pd.testing.assert_frame_equal(one, other)
        assert other["p"].iloc[2] == pytest.approx(other["a"].iloc[2] * other["b"].iloc[2])
    for one, other in zip(draws.interval(), again.interval(), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_files_of_the_first_version_are_read(tmp_path: Path) -> None:
    path = tmp_path / "draws.parquet"
    sums(BY_TEXT).to_parquet(path)
    table = pq.read_table(path)
    facts = json.loads(table.schema.metadata[b"diffputer"])
    assert facts["version"] == 2
    old = {key: value for key, value in facts.items() if key not in ("constraints", "numbers")} | {
        "version": 1
    }
    metadata = {**table.schema.metadata, b"diffputer": json.dumps(old).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    again = Imputations.from_parquet(path)
    assert again.mean()["t"].tolist() == [5.5, 11.0, 22.0]
    lower, upper = again.interval()
    assert 11.0 < lower["t"].iloc[2] < upper["t"].iloc[2] == 23.0  # nobody knows that it is derived


# Intervals


@pytest.mark.parametrize("m", [5, 10, 20, 50])
def test_intervals_hold_new_draws_as_often_as_they_say(m: int) -> None:
    rng = np.random.default_rng(m)
    for draw, least, most in ((rng.normal, 0.89, 0.91), (rng.exponential, 0.875, 0.915)):
        lower, upper = interval_ends(draw(size=(m, 40_000)))
        new = draw(size=40_000)
        assert least < ((lower <= new) & (new <= upper)).mean() < most


def test_ends_of_intervals_are_possible_values() -> None:
    day = pd.Timestamp("2024-03-01", tz="Europe/Berlin")
    frame = pd.DataFrame(
        {
            "n": pd.array([0, 9, None], dtype="Int64"),
            "x": [0.0, 9.0, NAN],
            "day": [day, day + pd.DateOffset(days=60), pd.NaT],
            "town": ["Ulm", "Bonn", None],
        }
    )
    table = read_table(frame)
    drawn = [(1, 0.1, 29, "Ulm"), (2, 0.3, 31, "Ulm"), (3, 2.0, 32, "Bonn")]
    filled = [
        {
            0: np.array([n]),
            1: np.array([x]),
            2: np.array(
                [(day + pd.DateOffset(days=days)).tz_convert("UTC").tz_localize(None).to_datetime64()]
            ),
            3: np.array([town], dtype=object),
        }
        for n, x, days, town in drawn
    ]
    lower, upper = Imputations(table, filled, TableEncoder.fit(table).schema).interval()
    # 2 -+ 3.4, outwards, and not below what was seen
    assert (lower["n"].iloc[2], upper["n"].iloc[2]) == (0, 6)
    assert lower["x"].iloc[2] == 0.0
    assert upper["x"].iloc[2] > 2.0
    ends = lower["day"].iloc[2], upper["day"].iloc[2]
    assert ends[0] < day + pd.DateOffset(days=29) < day + pd.DateOffset(days=32) < ends[1]
    assert all(end.hour == end.minute == 0 for end in ends)
    assert lower["town"].iloc[2] == upper["town"].iloc[2] == "Ulm"


def test_intervals_keep_to_inequalities_with_observed_cells() -> None:
    frame = pd.DataFrame({"s": [1.0, 2.0, 5.0], "e": [2.0, 9.0, NAN]})
    table = read_table(frame)
    bound = Constraints(inequalities=["s <= e"]).on(table)
    draws = Imputations(table, [{1: np.array([e])} for e in (5.1, 6.0, 8.0)], None, None, bound)
    lower, upper = draws.interval()
    assert (lower["e"].iloc[2], upper["e"].iloc[2]) == (5.0, 9.0)


def test_functions_are_not_asked_about_ends_of_intervals() -> None:
    frame = pd.DataFrame({"a": [1.0, 4.0, NAN], "b": [1.0, 2.0, NAN]})
    table = read_table(frame)

    def root(completed: pd.DataFrame) -> pd.Series:
        assert completed["a"].isin([1.0, 4.0, 1.5, 2.5]).all()
        return np.sqrt(completed["a"])

    bound = Constraints(derived={"b": root}).on(table)
    filled = [bound({0: np.array([a]), 1: np.array([0.0])}) for a in (1.5, 2.5)]
    lower, upper = Imputations(table, filled, None, None, bound).interval()
    assert lower["b"].iloc[2] < np.sqrt(1.5) < np.sqrt(2.5) < upper["b"].iloc[2]


def test_an_interval_needs_two_draws(fitted: DiffPuter) -> None:
    with pytest.raises(InputError, match="at least 2 draws"):
        fitted.sample(numbers(), 1).interval()


# Draws stay as they were drawn


def change_frame(frame: pd.DataFrame) -> None:
    frame.fillna(0.0, inplace=True)
    frame["new"] = 1
    frame.index.name = "place"
    frame.iloc[0, 0] = 1e6
    frame.drop(index=frame.index[:5], inplace=True)
    frame.index.name = "other"


def change_extension_array(frame: pd.DataFrame) -> None:
    frame["a"].array[:] = 7.0


def change_array(array: np.ndarray) -> None:
    array[:] = 7


def change_polars(frame: Any) -> None:
    frame[0, "a"] = 1e6
    frame.drop_in_place("b")


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (numbers, change_frame),
        (lambda: numbers(dtype="Float64"), change_extension_array),
        (lambda: numbers().to_numpy(), change_array),
        (lambda: pl.from_pandas(numbers()), change_polars),
    ],
    ids=["pandas", "nullable", "numpy", "polars"],
)
def test_draws_do_not_follow_later_changes_of_the_table(make: Any, change: Any, tmp_path: Path) -> None:
    native = make()
    imputer = DiffPuter(random_state=0, **TINY).fit(native)
    draws = imputer.sample(native, 2)

    def state() -> list[Any]:
        tables = [*draws, draws.original, draws.mean(), draws.to_long(include_original=True)]
        return [
            t if isinstance(t, pd.DataFrame) else pd.DataFrame(np.asarray(t)) for t in (*tables, draws.std())
        ]

    before = state()
    change(native)
    change(draws.original)
    for one, other in zip(before, state(), strict=True):
        pd.testing.assert_frame_equal(one, other)
    draws.to_parquet(tmp_path / "draws.parquet")
    draws.report(tmp_path / "report.html")


def test_arrow_tables_need_no_copy(fitted: DiffPuter) -> None:
    arrow = pa.Table.from_pandas(numbers(), preserve_index=False)
    assert fitted.sample(arrow, 1).original is arrow


# Further draws


def assert_continued(imputer: DiffPuter, frame: pd.DataFrame, n: int, first: int) -> None:
    whole = imputer.sample(frame, n)
    joined = imputer.sample(frame, first) + imputer.sample(frame, n - first, first_draw=first)
    assert len(joined) == n
    for one, other in zip(whole, joined, strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-5)
    assert len({one.to_numpy().tobytes() for one in whole}) == n


def test_draws_are_continued(fitted: DiffPuter) -> None:
    assert_continued(fitted, numbers(), 23, 18)  # beyond the twenty variants of the linear part


@pytest.mark.parametrize("settings", [TINY, TINY_PAPER], ids=["conditional", "paper"])
def test_draws_of_resampled_models_are_continued(settings: dict[str, Any]) -> None:
    frame = numbers()
    imputer = DiffPuter(
        random_state=0, model_uncertainty="bootstrap", bootstrap_models=2, **{**settings, "max_steps": 5}
    ).fit(frame)
    assert_continued(imputer, frame, 5, 1)
    assert_continued(imputer, frame, 5, 2)
    assert_continued(imputer.set_params(model_uncertainty="none"), frame, 4, 1)


def test_the_first_draw_is_a_whole_number(fitted: DiffPuter) -> None:
    for wrong in (-1, 1.5):
        with pytest.raises(SettingError, match="first_draw"):
            fitted.sample(numbers(), 2, first_draw=wrong)  # type: ignore[arg-type]


def test_joining_refuses_draws_that_are_there_already(fitted: DiffPuter, tmp_path: Path) -> None:
    frame = numbers()
    five = fitted.sample(frame, 5)
    five.to_parquet(tmp_path / "draws.parquet")
    again = Imputations.from_parquet(tmp_path / "draws.parquet")
    for other in (five, five[4:], fitted.sample(frame, 3), again):
        with pytest.raises(InputError, match=r"must differ, however.*count twice.*first_draw=5\)"):
            _ = five + other
    assert len(again + fitted.sample(frame, 2, first_draw=5)) == 7
    assert len(five[:2] + five[2:]) == 5
    unknown = Imputations(read_table(frame), five._filled, five.schema)  # of which nobody knows the number
    with pytest.raises(InputError, match="must differ"):
        _ = five + unknown


def test_chance_may_draw_the_same_levels_again() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0] * 20, "c": ["u", "v"] * 19 + ["u", None]})
    one, other = (DiffPuter(random_state=seed, **TINY).fit(frame).sample(frame, 4) for seed in (0, 1))
    assert len(one + other) == 8
    imputer = DiffPuter(random_state=0, **TINY).fit(frame)
    assert len(imputer.sample(frame, 4) + imputer.sample(frame, 4, first_draw=4)) == 8


# Inequalities


def ordered(shift: float, equal: float = 0.0, n: int = 120) -> pd.DataFrame:
    """Starts and ends; the larger the shift, the clearer are ends after starts."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=n)
    end = start + np.where(rng.random(n) < equal, 0.0, shift + rng.exponential(size=n))
    frame = pd.DataFrame({"x": rng.normal(size=n), "s": start, "e": end})
    return frame.mask((rng.random((n, 3)) < 0.4) & [False, True, True])


@pytest.mark.parametrize("rule", ["s <= e", "e >= s"])
def test_draws_that_heap_where_an_inequality_ends_are_told_of(rule: str) -> None:
    frame = ordered(0.0)
    imputer = DiffPuter(random_state=0, inequalities=[rule], **TINY).fit(frame)
    with pytest.warns(
        DataWarning, match=r"seldom contradict.*% of those of 's' <= 'e' did.*difference"
    ) as said:
        draws = imputer.sample(frame, 4)
    assert len(said) == 1
    holes = frame[["s", "e"]].isna().any(axis=1)
    assert np.mean([(table["s"] == table["e"])[holes].mean() for table in draws]) > 0.05


def test_the_difference_is_imputed_without_a_heap() -> None:
    frame = ordered(0.0)
    frame["gap"] = frame["e"] - frame["s"]
    rules: dict[str, Any] = {"derived": {"e": "s + gap"}, "bounds": {"gap": (0, None)}}
    imputer = DiffPuter(random_state=0, **rules, **TINY).fit(frame)
    holes = frame["e"].isna()
    for table in imputer.sample(frame, 4):
        assert (table["s"] <= table["e"])[holes].all()
        assert (table["s"] == table["e"])[holes].mean() < 0.05


@pytest.mark.parametrize(("shift", "equal"), [(9.0, 0.0), (0.0, 0.7)], ids=["clear", "often equal"])
def test_few_contradictions_are_not_told_of(shift: float, equal: float) -> None:
    frame = ordered(shift, equal)
    DiffPuter(random_state=0, inequalities=["s <= e"], **TINY).fit(frame).sample(frame, 4)

"""Schemas: printing, editing and exact JSON round trips."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from diffputer.errors import InputError
from diffputer.tables.schema import Column, Kind, Schema, Status, from_plain, to_plain


@pytest.fixture
def schema() -> Schema:
    return Schema(
        (
            Column("age", Kind.INTEGER, lower=1, upper=9, resolution=1, n_observed=3, n_missing=1),
            Column("city", Kind.CATEGORICAL, levels=("a", "b", "c", "d"), other_levels=7, n_observed=4),
            Column("when", Kind.DATETIME, lower=datetime(2020, 1, 1), upper=float("inf")),
            Column("same", Kind.CONTINUOUS, Status.CONSTANT, fill=0.5),
            Column("void", Kind.DATETIME, Status.EMPTY, n_missing=4),
            Column("note", Kind.TEXT, Status.PASSED_THROUGH),
            Column("ok", Kind.BOOLEAN),
        )
    )


def test_prints_as_an_aligned_table(schema: Schema) -> None:
    lines = str(schema).splitlines()
    assert len(lines) == 8
    assert len({len(line) for line in lines}) == 1
    assert "1 … 9" in lines[1]
    assert lines[1].endswith("25.0%")
    assert "a, b, c, … 1 more (+ 7 rare)" in lines[2]
    assert "2020-01-01 … inf" in lines[3]
    assert "always 0.5" in lines[4]
    assert "stays missing" in lines[5]
    assert "passed through" in lines[6]


def test_printing_shows_control_characters_and_sends_none() -> None:
    attack = "\x1b]0;title\x07\x9b2J\u202e\r\n"
    levels = (f"a{attack}b", "c")
    text = str(Schema((Column(f"x{attack}y", Kind.CATEGORICAL, levels=levels, n_observed=2),)))
    assert len(text.splitlines()) == 2
    assert text.count(r"\x1b]0;title\x07\x9b2J\u202e") == 2
    assert text.replace("\n", "").isprintable()


def test_json_round_trip_is_exact(schema: Schema) -> None:
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


LEVELS = [
    None, "a", "", 3, 2**70, 0.1, -0.0, float("inf"), True, False, date(2020, 2, 29), time(1, 2, 3, 4),
    datetime(2020, 1, 1, 2, 3, 4, 5), datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=-3, microseconds=7),
    pd.Timestamp("2020-01-01 00:00:00.123456789"), pd.Timedelta(123456789, unit="ns"), Decimal("1.20"),
    ("a", 1), (1, ("b", None)),
]  # fmt: skip


@pytest.mark.parametrize("level", LEVELS, ids=repr)
def test_levels_keep_value_and_type(level: object) -> None:
    back = from_plain(json.loads(json.dumps(to_plain(level, "c"))))
    assert back == level
    assert type(back) is type(level)
    assert str(back) == str(level)  # tells -0.0 from 0.0, 1.20 from 1.2


def test_numpy_scalars_become_python_values() -> None:
    assert to_plain(np.int64(3), "c") == 3
    assert type(to_plain(np.str_("x"), "c")) is str


def test_levels_of_other_types_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"must be text, numbers.*column 'bins'.*Interval.*Convert"):
        Schema((Column("bins", Kind.CATEGORICAL, levels=(pd.Interval(0, 1),)),)).to_dict()


def test_replace_edits_a_copy(schema: Schema) -> None:
    edited = schema.replace("age", lower=0)
    assert (edited["age"].lower, edited["age"].upper, schema["age"].lower) == (0, 9, 1)
    assert edited.names == schema.names


def test_a_new_kind_forgets_what_belonged_to_the_old_one(schema: Schema) -> None:
    column = schema.replace("age", kind="categorical")["age"]
    assert (column.kind, column.lower, column.upper, column.resolution) == (
        Kind.CATEGORICAL,
        None,
        None,
        None,
    )
    assert schema.replace("city", kind="text")["city"].status == Status.PASSED_THROUGH
    assert schema.replace("age", kind="integer")["age"].lower == 1


def test_errors_say_what_exists(schema: Schema) -> None:
    with pytest.raises(InputError, match=r"'agee' is not there. The table has: 'age', 'city'"):
        schema["agee"]
    with pytest.raises(InputError, match=r"kind must be one of continuous, integer.*'age' was given 'float'"):
        schema.replace("age", kind="float")
    with pytest.raises(InputError, match=r"\['kindd'\] are none. Choose from \['fill', 'kind'"):
        schema.replace("age", kindd="float")


def test_kinds_read_as_plain_text() -> None:
    assert [str(kind) for kind in Kind] == [
        "continuous", "integer", "boolean", "categorical", "datetime", "duration", "time", "text",
    ]  # fmt: skip
    assert len(Schema(())) == 0

"""Pieces of tables are of the same container, and hidden cells are missing there."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from diffputer.errors import InputError
from diffputer.tables.frames import read_table
from diffputer.tables.pieces import hide_cells, take_columns, take_rows, with_distinct_names

FRAME = pd.DataFrame(
    {
        "i": [1, 2, 3],
        "f": [1.5, 2.5, np.nan],
        "b": [True, False, True],
        "c": pd.Categorical(["u", "v", "u"]),
        "t": ["x", "y", "z"],
        "d": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
    }
)
CONTAINERS = {
    "pandas": lambda: FRAME,
    "polars": lambda: pl.from_pandas(FRAME),
    "pyarrow": lambda: pa.Table.from_pandas(FRAME),
    "numpy": lambda: FRAME[["i", "f"]].to_numpy(),
    "objects": lambda: FRAME.to_numpy(dtype=object),
    "integers": lambda: FRAME[["i"]].to_numpy(),
    "moments": lambda: FRAME[["d"]].to_numpy(),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_hidden_cells_are_missing_and_others_stay(name):
    table = CONTAINERS[name]()
    before = read_table(table)
    hidden = np.zeros(before.missing.shape, dtype=bool)
    hidden[0] = True
    got = hide_cells(table, hidden)
    after = read_table(got)
    assert (after.missing == (before.missing | hidden)).all()
    assert after.container == before.container
    assert read_table(table).missing.sum() == before.missing.sum()  # not changed itself
    for one, other in zip(before.cells, after.cells, strict=True):
        a, b = one.labels(), other.labels()
        assert [a[1][k] for k in a[0][1:] if k >= 0] == [b[1][k] for k in b[0][1:] if k >= 0]


@pytest.mark.parametrize("name", CONTAINERS)
def test_rows_and_columns(name):
    table = CONTAINERS[name]()
    before = read_table(table)
    assert read_table(take_rows(table, [2, 0])).n_rows == 2
    last = before.n_columns - 1
    assert read_table(take_columns(table, [last])).n_columns == 1
    if before.container != "numpy":
        assert read_table(take_columns(table, [last])).names == (before.names[last],)


def test_an_index_is_kept_and_duplicate_names_are_told_apart():
    frame = pd.DataFrame([[1, 2.0, "a"]] * 2, columns=["x", "x", "x (2)"], index=[7, 7])
    got = with_distinct_names(frame)
    assert got.columns.tolist() == ["x", "x (3)", "x (2)"]
    assert hide_cells(frame, [[True, False, False], [False, True, False]]).index.tolist() == [7, 7]
    arrow = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    assert with_distinct_names(arrow).column_names == ["x", "x (2)"]
    assert with_distinct_names(pd.DataFrame({("a", 1): [dt.date(2020, 1, 1)]})).columns.tolist() == [("a", 1)]


def test_large_integers_stay_exact():
    large = 2**60 + 1
    frame = pd.DataFrame({"i": [large, 1], "u": np.array([2**63 + 1, 1], dtype=np.uint64)})
    got = hide_cells(frame, [[False, False], [True, True]])
    assert got["i"][0] == large
    assert got["u"][0] == 2**63 + 1
    assert hide_cells(frame[["i"]].to_numpy(), [[False], [True]])[0, 0] == large


def test_the_mask_has_the_shape_of_the_table():
    with pytest.raises(InputError, match="shape"):
        hide_cells(FRAME, np.zeros((2, 6), dtype=bool))

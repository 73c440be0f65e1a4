"""What must hold of every table: refused with a sentence, or completed by the rules.

A violation is an ``AssertionError`` that names the column; any other exception is one too.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from diffputer import DataWarning, DiffPuter, InputError
from diffputer.errors import DiffputerError

from .tables import Case

#: Relative to the largest number of a column: batches of other sizes round otherwise.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Outcome:
    """How a case ended: the name of the error that refused it, or how many cells were missing."""

    refused: str = ""
    n_missing: int = 0


def cells_of(table: Any, column: int) -> list[Any]:
    """The cells of a column as Python values that show every bit."""
    if isinstance(table, pd.DataFrame):
        return table.iloc[:, column].tolist()
    if isinstance(table, np.ndarray):
        return list(table[:, column])
    if hasattr(table, "to_series"):  # polars
        series = table.to_series(column)
        return (series.to_physical() if series.dtype.is_temporal() else series).to_list()
    return table.column(column).to_pylist()


def rows_of(table: Any, rows: np.ndarray) -> Any:
    """Some rows of a table, in the given order."""
    if isinstance(table, pd.DataFrame):
        return table.iloc[rows]
    if isinstance(table, np.ndarray) or hasattr(table, "to_series"):
        return table[rows.tolist()]
    return table.take(rows)


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NA, NaT or NaN."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    return isinstance(value, float | np.generic | Decimal) and bool(value != value)


def snapshot(table: Any) -> tuple[Any, ...]:
    """Everything of a table that must not change when it is read."""
    columns = [[exact(value) for value in cells_of(table, j)] for j in range(table.shape[1])]
    return (type(table), frame_of(table), columns)


def frame_of(table: Any) -> tuple[Any, ...]:
    """Labels, order, index, dtypes and attributes of a table."""
    if isinstance(table, pd.DataFrame):
        dtypes = [dtype_of(table.iloc[:, j]) for j in range(table.shape[1])]
        return (list(table.columns), table.columns.names, list(map(repr, table.index)), dtypes, table.attrs)
    if isinstance(table, np.ndarray):
        return (table.shape, table.dtype)
    if hasattr(table, "to_series"):
        return (table.height, dict(table.schema))
    return (table.num_rows, table.schema)


def dtype_of(series: pd.Series) -> Any:
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return ("category", list(dtype.categories), dtype.categories.dtype, dtype.ordered)
    return dtype


def exact(value: Any) -> Any:
    """A value by which two cells can be compared bit for bit."""
    return "missing" if is_missing(value) else (type(value), repr(value))


@contextmanager
def only_data_warnings() -> Iterator[None]:
    """Let nothing be warned of but what is in the data."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    for warning in seen:
        assert issubclass(warning.category, DataWarning | DeprecationWarning), (
            f"{warning.category.__name__} from {warning.filename}:{warning.lineno}: {warning.message}"
        )


def check_table(case: Case) -> Outcome:
    """Fit, complete, draw, save and load one table; raise at the first thing that must not be."""
    rng = np.random.default_rng([case.seed, 17])
    frame, before = case.frame, snapshot(case.frame)
    imputer = new_imputer(case)
    with only_data_warnings():
        try:
            completed = imputer.fit(frame).transform(frame)
        except DiffputerError as error:
            assert snapshot(frame) == before, "the input was changed"
            check_refusal(case, error)
            return Outcome(type(error).__name__)
        check_completed(frame, completed, imputer)
        check_same(completed, imputer.transform(frame), "another transform")
        chance = rng.random(6)
        if chance[0] < 0.5:
            for draw in imputer.sample(frame, 2):
                check_completed(frame, draw, imputer)
        if chance[1] < 0.5:
            check_batches(frame, completed, imputer, rng)
        if chance[2] < 0.4:
            check_saved(frame, completed, imputer)
        if chance[3] < 0.2:
            check_same(completed, new_imputer(case).fit_transform(frame), "another fit")
        if chance[4] < 0.2 and "engine" not in case.settings:
            imputer.uncertainty(frame)
    assert snapshot(frame) == before, "the input was changed"
    return Outcome(
        n_missing=sum(map(is_missing, (v for j in range(frame.shape[1]) for v in cells_of(frame, j))))
    )


def new_imputer(case: Case) -> DiffPuter:
    return DiffPuter(random_state=case.seed, device="cpu", progress=False, **case.settings)


def check_refusal(case: Case, error: DiffputerError) -> None:
    """A refusal has a reason that the case knows, and is a sentence."""
    words = str(error)
    assert case.refusable, f"refused for no known reason: {words}"
    assert len(words.split()) > 4, f"no sentence: {words!r}"


def check_observed(frame: Any, completed: Any) -> None:
    """Container, labels, order, dtypes and observed cells are as they were."""
    assert type(completed) is type(frame)
    assert frame_of(completed) == frame_of(frame), "labels, order, index or dtypes differ"
    for j in range(frame.shape[1]):
        pairs = zip(cells_of(frame, j), cells_of(completed, j), strict=True)
        kept = [exact(old) == exact(new) for old, new in pairs if not is_missing(old)]
        assert all(kept), f"column {j}: {kept.count(False)} observed cells were changed"


def check_completed(frame: Any, completed: Any, imputer: DiffPuter) -> None:
    """Observed cells are as they were, and imputed ones are possible."""
    check_observed(frame, completed)
    for j, column in enumerate(imputer.schema_):
        old, new = cells_of(frame, j), cells_of(completed, j)
        gone = [is_missing(value) for value in old]
        where = f"column {column.name!r:.60} ({column.kind}, {column.status})"
        imputed = [value for value, hole in zip(new, gone, strict=True) if hole]
        observed = [value for value, hole in zip(old, gone, strict=True) if not hole]
        if column.status not in ("modelled", "constant"):
            if column.status == "passed through":
                assert all(map(is_missing, imputed)), f"{where}: passed through, and imputed"
            continue
        left = sum(map(is_missing, imputed))
        assert not left, f"{where}: {left} of {len(imputed)} missing values are left"
        if imputed and observed:
            check_possible(observed, imputed, where, str(column.kind))


def check_possible(observed: list[Any], imputed: list[Any], where: str, kind: str) -> None:
    """Imputed values are of the types, categories, range and resolution that were observed."""
    types = {type(value) for value in imputed} - {type(value) for value in observed}
    assert not types, f"{where}: imputed values are {types}, observed ones are not"
    if kind in ("categorical", "boolean"):
        unseen = [value for value in imputed if value not in observed]
        assert not unseen, f"{where}: {unseen[0]!r} was never observed"
        return
    low, high = min(observed), max(observed)
    outside = [value for value in imputed if not low <= value <= high]
    assert not outside, f"{where}: {outside[0]!r} is not between {low!r} and {high!r}"
    if kind == "integer":
        broken = [value for value in imputed if value != int(value)]
        assert not broken, f"{where}: {broken[0]!r} is not whole"
    if isinstance(low, dt.datetime) and all(is_midnight(value) for value in observed):
        assert all(is_midnight(value) for value in imputed), f"{where}: not a whole day"
    if isinstance(low, Decimal):
        digits = min(value.as_tuple().exponent for value in observed)
        assert all(value.as_tuple().exponent >= digits for value in imputed), f"{where}: more decimals"


def is_midnight(value: dt.datetime) -> bool:
    return value.time() == dt.time()


def check_same(expected: Any, found: Any, what: str) -> None:
    """Two completed tables are the same, bit for bit."""
    assert frame_of(found) == frame_of(expected), f"{what}: labels, order, index or dtypes differ"
    for j in range(expected.shape[1]):
        pairs = zip(cells_of(expected, j), cells_of(found, j), strict=True)
        differ = [(a, b) for a, b in pairs if exact(a) != exact(b)]
        assert not differ, f"{what}: column {j} has {differ[0][1]!r}, not {differ[0][0]!r}"


def check_batches(frame: Any, completed: Any, imputer: DiffPuter, rng: np.random.Generator) -> None:
    """Rows are completed alike in any order and in batches of any size."""
    order = rng.permutation(frame.shape[0])
    pieces = np.array_split(order, min(len(order), int(rng.integers(1, 5))))
    for rows in pieces:
        part = rows_of(frame, rows)
        found = imputer.transform(part)
        for j in range(frame.shape[1]):
            whole, batch = cells_of(completed, j), cells_of(found, j)
            for row, value in zip(rows.tolist(), batch, strict=True):
                assert is_near(whole[row], value, whole), (
                    f"batch of {len(rows)}: column {j} has {value!r}, not {whole[row]!r}"
                )


def is_near(expected: Any, found: Any, column: list[Any]) -> bool:
    """Whether two cells are the same, but for the rounding of numbers."""
    if exact(expected) == exact(found):
        return True
    if type(expected) is not type(found) or isinstance(expected, str | bool | tuple | list):
        return False
    known = [value for value in column if not is_missing(value)]
    gap, span = abs(expected - found), max(known) - min(known)
    if isinstance(gap, dt.timedelta | np.timedelta64):
        return gap <= max(type(gap)(1), span * TOLERANCE) if isinstance(gap, dt.timedelta) else True
    return float(gap) <= TOLERANCE * max(float(span), abs(float(max(known, key=abs))))


def check_saved(frame: Any, completed: Any, imputer: DiffPuter) -> None:
    """A model that was saved and loaded completes as it did before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.diffputer"
        try:
            imputer.save(path)
        except InputError:  # categories of a type that no file holds
            return
        check_same(completed, DiffPuter.load(path, device="cpu").transform(frame), "the saved model")

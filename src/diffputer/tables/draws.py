"""Several draws of the same missing cells: their mean, median, mode, quantiles and spread.

Draws come as values for the holes of a column, as decoding gives them. Numbers, dates, durations and times
are summarised as numbers and turned back by the rules that decode what the model completed (whole numbers
stay whole, whole days whole days); booleans and categories by their most frequent level.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from diffputer.tables.cells import SECOND, Cells, Floats
from diffputer.tables.clock import to_wall_clock
from diffputer.tables.decoding import decode_numbers, is_local
from diffputer.tables.filling import Values
from diffputer.tables.schema import Column, Kind

_MOMENTS = (Kind.DATETIME, Kind.DURATION, Kind.TIME)
_EPOCH = pd.Timestamp(0)


def column_of(name: Hashable, cells: Cells, values: Values) -> Column:
    """Say what a column holds if no schema does, by the type of its values."""
    natural = {
        "f": Kind.CONTINUOUS,
        "i": Kind.INTEGER,
        "u": Kind.INTEGER,
        "b": Kind.BOOLEAN,
        "M": Kind.DATETIME,
        "m": Kind.DURATION,
    }
    kind = natural.get(values.dtype.kind, Kind.CATEGORICAL)
    if values.dtype.kind == "O" and all(isinstance(value, datetime.time) for value in values.tolist()):
        kind = Kind.TIME
    return Column(name, Kind.CATEGORICAL if cells.storage.declared else kind)


def is_number(column: Column) -> bool:
    """Whether draws of a column are summarised as numbers, rather than by their most frequent level."""
    return column.kind.is_numeric


def to_numbers(column: Column, values: Values) -> Floats:
    """Values for holes as the numbers that stand for them; moments in microseconds (UTC), [...]."""
    kind = values.dtype.kind
    if kind in "mM":
        return values.astype(f"{kind}8[us]").astype(np.int64).astype(np.float64)
    if kind != "O" or column.kind not in _MOMENTS:
        return values.astype(np.float64)
    flat = np.array([_microseconds(value) for value in values.ravel().tolist()], dtype=np.float64)
    return flat.reshape(values.shape)


def _microseconds(value: Any) -> float:
    if isinstance(value, datetime.time):
        seconds = 3600 * value.hour + 60 * value.minute + value.second
        return seconds * SECOND + value.microsecond
    stamp = pd.Timestamp(value)
    utc = stamp.tz_convert("UTC").tz_localize(None) if stamp.tzinfo is not None else stamp
    return float((utc - _EPOCH) // pd.Timedelta(microseconds=1))


def from_numbers(column: Column, cells: Cells, numbers: Floats, all_missing: bool) -> Values:
    """Undo :func:`to_numbers`: inside the bounds of the column, as fine as it is, [n]."""
    if is_local(column):
        numbers = to_wall_clock(numbers, str(column.timezone))
    return decode_numbers(column, cells, numbers, all_missing)


def summarise_draws(
    column: Column,
    cells: Cells,
    draws: Sequence[Values],
    summary: Callable[[Floats], Floats],
    all_missing: bool,
) -> Values:
    """One value for each hole of a column, [n].

    Parameters
    ----------
    column, cells
        What the column holds, and its cells.
    draws
        m arrays [n].
    summary
        Turns numbers [m, n] into [n]; not asked about booleans and categories, nor where all draws agree.
    all_missing
        Whether the column has no observed cell.
    """
    first = draws[0]
    agreed = np.all([values == first for values in draws], axis=0)
    if agreed.all():
        return first
    if not is_number(column):
        return most_frequent(draws)
    numbers = summary(to_numbers(column, np.stack(draws)[:, ~agreed]))
    found = from_numbers(column, cells, numbers, all_missing)
    values = first.astype(np.result_type(first, found)) if first.dtype.kind != "O" else first.copy()
    values[~agreed] = found
    return values


def most_frequent(draws: Sequence[Values]) -> Values:
    """The most frequent value of each hole, the one that was drawn first of several, [n].

    Examples
    --------
    >>> most_frequent([np.array(["a", "b"]), np.array(["c", "c"]), np.array(["c", "b"])])
    array(['c', 'b'], dtype='<U1')
    """
    stacked = np.stack(draws)
    # The same numbers for the same levels, so that they can be counted whatever they are.
    codes = pd.factorize(stacked.ravel())[0].reshape(stacked.shape)
    n = stacked.shape[1]
    _, same, counts = np.unique(codes * np.int64(n) + np.arange(n), return_inverse=True, return_counts=True)
    winner = counts[same.reshape(codes.shape)].argmax(axis=0)
    values: Values = stacked[winner, np.arange(n)]
    return values


def spread(column: Column, draws: Sequence[Values]) -> Floats:
    """Standard deviation between draws in the units of the column, seconds for moments; NaN for levels, [n].

    Examples
    --------
    >>> spread(Column("a", Kind.CONTINUOUS), [np.array([1.0]), np.array([3.0])]).round(3)
    array([1.414])
    """
    if not is_number(column):
        return np.full(len(draws[0]), np.nan)
    numbers = to_numbers(column, np.stack(draws))
    numbers = numbers - numbers[0]  # microseconds since 1970 are large
    return np.asarray(numbers.std(axis=0, ddof=1) * (1 / SECOND if column.kind in _MOMENTS else 1.0))

"""Several draws of the same missing cells: their mean, median, mode, quantiles and spread.

Draws come as values for the holes of a column, as decoding gives them. Numbers, dates, durations and times
are summarised as numbers and turned back by the rules that decode what the model completed (whole numbers
stay whole, whole days whole days); booleans and categories by their most frequent level.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from diffputer.tables.cells import SECOND, Cells, Floats
from diffputer.tables.clock import step_to_number, to_number, to_utc, to_wall_clock
from diffputer.tables.decoding import decode_numbers, is_local
from diffputer.tables.filling import Values
from diffputer.tables.schema import Column, Kind

#: The seed of a fit and the number of a draw: draws of one table that share both are the same.
Number = tuple[int, int]
_MOMENTS = (Kind.DATETIME, Kind.DURATION, Kind.TIME)
_EPOCH = pd.Timestamp(0)
_CLOSE = 1e-9  # relative: float rounding


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

    It is as fine as the column is. Bounds are not looked at: what lies between draws is as possible as they
    are, and computed cells may be beyond what was observed.

    Parameters
    ----------
    column, cells
        What the column holds, and its cells.
    draws
        m arrays [n].
    summary
        Turns numbers [m, n] into [n], between the smallest and the largest of each; not asked about booleans
        and categories, nor where all draws agree.
    all_missing
        Whether the column has no observed cell.
    """
    if not is_number(column):
        return most_frequent(draws)
    agreed = _agreed(draws)
    if agreed.all():
        return draws[0]
    numbers = summary(to_numbers(column, np.stack(draws)[:, ~agreed]))
    return _replace(draws[0], ~agreed, from_numbers(_without_bounds(column), cells, numbers, all_missing))


def interval_ends(draws: Floats, level: float = 0.9) -> tuple[Floats, Floats]:
    """Give the ends of an interval that holds another draw of the same cell with a probability.

    One of the m + 1 is as likely to be the k-th as any other, so that the k-th smallest and the k-th largest
    of the m have 1 - 2 k / (m + 1) of the probability between them: the ends are the draws with
    k = (m + 1) (1 - level) / 2, or between two of them if k is not whole. If k is below 1 (for 90 %, with
    fewer than 19 draws) no draw is that far out, and the ends are

        mean -+ t(m - 1) s sqrt(1 + 1 / m),

    s being the standard deviation of the draws: exact if these are normal. Quantiles of few draws,
    interpolated, would cover less than they say. Shares of new draws inside an interval of 90 %, in per cent
    (400,000 cells; whole numbers are Poisson draws of mean 4, ends rounded outwards as they are in tables):

    ============= ====== ======= ======= =======
    draws         5      10      20      50
    ============= ====== ======= ======= =======
    normal        90.1    90.1    90.2    90.3
    exponential   88.8    90.6    90.1    90.2
    whole numbers 95.7    96.4    94.3    95.4
    ============= ====== ======= ======= =======

    Shape: draws [m, ...], m of 2 or more -> two of [...].

    Examples
    --------
    >>> draws = np.arange(1.0, 20.0)[:, None]
    >>> interval_ends(draws, 0.9), interval_ends(draws, 0.8)
    ((array([1.]), array([19.])), (array([2.]), array([18.])))
    >>> [end.round(2).tolist() for end in interval_ends(draws[:5])]
    [[-0.69], [6.69]]
    """
    m, tail = len(draws), (1 - level) / 2
    if (m + 1) * tail >= 1 - _CLOSE:
        lower, upper = np.quantile(draws, [tail, 1 - tail], axis=0, method="weibull")
        return lower, upper
    moved = draws - draws[0]  # microseconds since 1970 are large
    middle = draws[0] + moved.mean(axis=0)
    margin = stdtrit(m - 1, 1 - tail) * np.sqrt(1 + 1 / m) * moved.std(axis=0, ddof=1)
    return middle - margin, middle + margin


def interval_of_draws(
    column: Column, cells: Cells, draws: Sequence[Values], level: float, all_missing: bool, bounded: bool
) -> tuple[Values, Values]:
    """Both ends of an interval for each hole of a column, by :func:`interval_ends`, [n] each.

    They are values that the column can hold, whole numbers and whole days rounded outwards. If bounded, they
    keep to the bounds of the column (without any, to what was observed) and to what was drawn.
    """
    if not is_number(column):
        frequent = most_frequent(draws)
        return frequent, frequent
    agreed = _agreed(draws)
    if agreed.all():
        return draws[0], draws[0]
    numbers = to_numbers(column, np.stack(draws)[:, ~agreed])
    ends = []
    for end, up in zip(interval_ends(numbers, level), (False, True), strict=True):
        outer = _rounded(column, end, up=up)
        if bounded:
            low, high = _bounds(column, cells, all_missing)
            outer = np.clip(
                outer, np.minimum(low, numbers.min(axis=0)), np.maximum(high, numbers.max(axis=0))
            )
        found = from_numbers(_without_bounds(column), cells, outer, all_missing)
        ends.append(_replace(draws[0], ~agreed, found))
    return ends[0], ends[1]


def _bounds(column: Column, cells: Cells, all_missing: bool) -> tuple[float, float]:
    """The bounds of a column as numbers; those that it does not have are what was observed."""
    known = all_missing or None not in (column.lower, column.upper)
    observed = np.empty(0) if known else cells.numbers()
    observed = observed[np.isfinite(observed)]
    low, high = (observed.min(), observed.max()) if len(observed) else (-np.inf, np.inf)
    return (
        low if column.lower is None else float(to_number(column.kind, column.lower, column.timezone)),
        high if column.upper is None else float(to_number(column.kind, column.upper, column.timezone)),
    )


def _rounded(column: Column, numbers: Floats, *, up: bool) -> Floats:
    """The next multiples of the column's resolution above or below, whole days in its time zone."""
    step = step_to_number(column.kind, column.resolution) or float(column.kind == Kind.INTEGER)
    if not step:
        return numbers
    local = to_wall_clock(numbers, str(column.timezone)) if is_local(column) else numbers
    whole = step * (np.ceil(local / step - _CLOSE) if up else np.floor(local / step + _CLOSE))
    return to_utc(whole, str(column.timezone)) if is_local(column) else whole


def _without_bounds(column: Column) -> Column:
    return dataclasses.replace(column, lower=None, upper=None, type=None)


def _agreed(draws: Sequence[Values]) -> Any:
    """Where all draws are the same, [n]."""
    return np.all([values == draws[0] for values in draws], axis=0)


def _replace(first: Values, where: Any, found: Values) -> Values:
    values = first.astype(np.result_type(first, found)) if first.dtype.kind != "O" else first.copy()
    values[where] = found
    return values


def find_repeated(
    filled: Sequence[Mapping[int, Values]],
    others: Sequence[Mapping[int, Values]],
    numbers: Sequence[Number | None],
    other_numbers: Sequence[Number | None],
) -> tuple[int, int] | None:
    """Give the positions of a draw (column position -> values) and the same one among others, or None.

    Draws of different numbers may have filled in the same by chance, in small tables. Of draws without a
    number those are the same that repeat real numbers, which chance does not.

    Examples
    --------
    >>> one, other = {0: np.array([1.5])}, {0: np.array([2.5])}
    >>> find_repeated([one, other], [other], [None, None], [None])
    (1, 0)
    >>> find_repeated([one, other], [other], [(7, 0), (7, 1)], [(7, 2)])
    """
    for i, (mine, number) in enumerate(zip(filled, numbers, strict=True)):
        real = any(values.dtype.kind == "f" for values in mine.values())
        for j, (theirs, their_number) in enumerate(zip(others, other_numbers, strict=True)):
            possible = number == their_number if number and their_number else real
            if possible and all(np.array_equal(mine[place], theirs[place]) for place in mine):
                return i, j
    return None


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

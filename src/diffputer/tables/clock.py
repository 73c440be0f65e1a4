"""Dates, durations and times of day as numbers of microseconds, and back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd

from diffputer.tables.cells import Floats
from diffputer.tables.schema import Kind

MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
_MARGIN = timedelta(days=2)  # so that a change of time zone stays inside the calendar
EARLIEST = (datetime.min + _MARGIN - _EPOCH) // MICROSECOND
LATEST = (datetime.max - _MARGIN - _EPOCH) // MICROSECOND
_SHORTEST, _LONGEST = timedelta.min // MICROSECOND, timedelta.max // MICROSECOND


def to_number(kind: Kind, value: Any, zone: str | None = None) -> float:
    """Express a bound, a constant or a resolution as the number that the model sees.

    Integers stay integers, since float64 cannot tell large ones apart. Dates without a time zone are read
    in the zone of the column. Raises ValueError or TypeError for what the kind cannot compare with.

    Examples
    --------
    >>> to_number(Kind.DATETIME, "1970-01-02") / 3.6e9
    24.0
    >>> to_number(Kind.DURATION, timedelta(seconds=2))
    2000000.0
    """
    if isinstance(value, float) and math.isinf(value):
        return value
    if isinstance(value, bool | np.bool_):
        raise TypeError("a boolean")
    if kind == Kind.DATETIME:
        if not isinstance(value, str | date | np.datetime64):
            raise TypeError("not a date")
        stamp = pd.Timestamp(value)
        if stamp is pd.NaT:
            raise ValueError("no date")
        if (stamp.tzinfo is None) and zone is not None:
            stamp = stamp.tz_localize(zone)
        elif (stamp.tzinfo is not None) and zone is None:
            raise ValueError("a time zone, which the column has not")
        if zone is not None:
            stamp = stamp.tz_convert("UTC").tz_localize(None)
        return float(stamp.as_unit("us").asm8.astype(np.int64))
    if kind == Kind.TIME:
        at = time.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(at, time):
            return float((datetime.combine(_EPOCH, at.replace(tzinfo=None)) - _EPOCH) // MICROSECOND)
    if kind in (Kind.DURATION, Kind.TIME):
        if not isinstance(value, str | timedelta | np.timedelta64):
            raise TypeError("not a duration")
        return float(pd.Timedelta(value).as_unit("us").asm8.astype(np.int64))
    if isinstance(value, str):
        raise TypeError("text")
    number = float(value)
    if kind == Kind.INTEGER and isinstance(value, int | np.integer):
        return int(value)
    if math.isnan(number):
        raise ValueError("not a number")
    return number


def step_to_number(kind: Kind, resolution: Any) -> float | None:
    """Express the resolution of a column as a number; that of dates is a duration."""
    if resolution is None:
        return None
    return to_number(Kind.DURATION if kind in (Kind.DATETIME, Kind.TIME) else kind, resolution)


def from_number(kind: Kind, number: float, zone: str | None = None) -> Any:
    """Undo :func:`to_number`: an int, float, datetime, timedelta or time.

    Examples
    --------
    >>> from_number(Kind.TIME, 3.6e9)
    datetime.time(1, 0)
    """
    if math.isinf(number) or kind == Kind.CONTINUOUS:
        return float(number)
    whole = round(number)
    if kind == Kind.DATETIME:
        moment = _EPOCH + timedelta(microseconds=min(max(whole, EARLIEST), LATEST))
        if zone is None:
            return moment
        # With a plain offset: Python calls datetimes of a doubled hour unequal if their zone has a name.
        offset = pd.Timestamp(moment, tz="UTC").tz_convert(zone).utcoffset()
        return moment.replace(tzinfo=UTC).astimezone(timezone(offset))
    if kind == Kind.DURATION:
        return timedelta(microseconds=min(max(whole, _SHORTEST), _LONGEST))
    if kind == Kind.TIME:
        return (_EPOCH + timedelta(microseconds=whole)).time()
    return whole


def to_wall_clock(microseconds: Floats, zone: str) -> Floats:
    """Turn UTC into the time that a clock in ``zone`` shows, [n]; no NaN."""
    utc = pd.DatetimeIndex(microseconds.astype(np.int64).view("datetime64[us]")).tz_localize("UTC")
    return np.asarray(utc.tz_convert(zone).tz_localize(None).as_unit("us").asi8, dtype=np.float64)


def to_utc(microseconds: Floats, zone: str) -> Floats:
    """Undo :func:`to_wall_clock`; an hour that a clock change skips moves forward, [n]."""
    wall = pd.DatetimeIndex(microseconds.astype(np.int64).view("datetime64[us]"))
    early = np.ones(len(wall), dtype=bool)
    zoned = wall.tz_localize(zone, ambiguous=early, nonexistent="shift_forward")
    return np.asarray(zoned.tz_convert("UTC").tz_localize(None).as_unit("us").asi8, dtype=np.float64)

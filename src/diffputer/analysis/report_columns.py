"""What a report shows of one column: counts, distributions and single cells, ready to be drawn.

Everything is plain and small: positions on an axis between 0 and 1, shares, and words. The page draws it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.dates import num2date
from numpy.typing import NDArray

from ..tables.cells import DAY, Cells
from ..tables.clock import from_number
from ..tables.schema import Column, Kind
from .style import fit_to_axis
from .summary import as_declared, write_number
from .views import centre_and_deviation, common_codes
from .wording import share_text, short

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

BINS = 36
LEVELS = 12  # of a category are shown, the rest as one
CELLS = 48  # filled cells are shown singly
SHOWN_DRAWS = 5  # have a line of their own
NAME = 120  # characters of a name, VALUE of a level
VALUE = 40
_MOMENTS = (Kind.DATETIME, Kind.TIME)
_FEW_DAYS = 3 * DAY  # within which dates are told with their time


def chart_of(
    column: Column,
    cells: Cells,
    drawn: list[Cells],
    holes: Booleans,
    rows: NDArray[np.int64],
    seed: int,
    written: Cells | None = None,
) -> dict[str, Any]:
    """Describe a column and what was filled into it.

    Parameters
    ----------
    column, cells
        What it holds, and its cells.
    drawn
        Its cells in the completed tables.
    holes, rows
        Where it was missing, [n], and the number of each row in the table, [n].
    seed
        Of the choice of single cells.
    written
        Its cells in the table that was written, where that is none of ``drawn``.

    Returns
    -------
    dict
        ``stats``: rows of name, observed, written (where given), filled. ``sure``: how much draws
        differ, None where it cannot be told. ``chart``: numbers or levels to draw, None without values.

    Examples
    --------
    >>> import pandas as pd
    >>> from .views import look
    >>> view = look(pd.DataFrame({"c": ["a", "b", "a", None]}))
    >>> full = look(pd.DataFrame({"c": ["a", "b", "a", "b"]})).table.cells
    >>> cells, holes = view.table.cells[0], view.missing[:, 0]
    >>> found = chart_of(view.schema["c"], cells, [full[0]], holes, np.arange(4), 0)
    >>> found["chart"]["levels"], found["chart"]["observed"], found["chart"]["filled"]
    (['a', 'b'], [0.6667, 0.3333], [0.0, 1.0])
    """
    if column.kind.is_numeric:
        return _numbers(column, cells, drawn, holes, rows, np.random.default_rng(seed), written)
    return _levels(column, cells, drawn, holes, written)


def _numbers(
    column: Column,
    cells: Cells,
    drawn: list[Cells],
    holes: Booleans,
    rows: NDArray[np.int64],
    rng: np.random.Generator,
    written: Cells | None,
) -> dict[str, Any]:
    observed = cells.numbers()
    observed = observed[~holes & np.isfinite(observed)]
    filled = np.array([one.numbers()[holes] for one in drawn]).reshape(len(drawn), -1)
    there = np.isfinite(filled).all(axis=0)
    filled, where = filled[:, there], rows[holes][there]
    guess = None if written is None else written.numbers()[holes][there]
    _, deviation = centre_and_deviation(observed)
    sure = None
    if len(filled) > 1 and filled.size:
        units = filled / deviation - filled[0] / deviation
        sure = {
            "spread": _rounded(float(units.std(axis=0, ddof=1).mean())),
            "width": _length(column, float(np.median(np.ptp(units, axis=0)) * deviation)),
            "draws": len(filled),
        }
    groups = [observed, *([] if guess is None else [guess]), filled.ravel()]
    stats = [
        [name, *(_write(column, name, values, summary) for values in groups)]
        for name, summary in _SUMMARIES.items()
    ]
    ends = [float(np.mean((filled == end).ravel())) for end in _ends(observed)] if filled.size else [0, 0]
    usual = [float(np.mean(observed == end)) for end in _ends(observed)] if observed.size else [0, 0]
    return {
        "stats": stats,
        "sure": sure,
        "piled": _rounded(max(_beyond(e, u, filled.shape[1]) for e, u in zip(ends, usual, strict=True))),
        "chart": _histograms(column, observed, filled, where, rng, guess) if observed.size else None,
    }


_SUMMARIES = {
    "mean": np.mean,
    "standard deviation": lambda values: _deviation(values),
    "smallest": np.min,
    "lower quarter": lambda values: np.quantile(values, 0.25),
    "median": np.median,
    "upper quarter": lambda values: np.quantile(values, 0.75),
    "largest": np.max,
}


def _deviation(values: Floats) -> float:
    if values.size < 2:
        return 0.0
    largest = float(np.abs(values).max()) or 1.0  # so that squares do not overflow
    return float((values / largest).std(ddof=1)) * largest


def _write(column: Column, name: str, values: Floats, summary: Any) -> str:
    if not values.size:
        return ""
    first = float(values[0]) if column.kind in _MOMENTS else 0.0  # microseconds since 1970 are large
    value = float(summary(values - first))
    if name == "standard deviation":
        return _length(column, value)
    if column.kind == Kind.DATETIME and np.ptp(values) < _FEW_DAYS:
        return f"{from_number(column.kind, value + first, column.timezone):%Y-%m-%d %H:%M}"
    return _without_comma(write_number(column, value + first))


def _without_comma(text: str) -> str:
    """Write numbers of four digits, such as years, as one word.

    >>> _without_comma("1,984"), _without_comma("12,000")
    ('1984', '12,000')
    """
    return text.replace(",", "") if len(text.lstrip("-−")) == 5 else text


def _length(column: Column, value: float) -> str:
    """Write a difference of two values."""
    if column.kind in _MOMENTS:
        return write_number(Column(column.name, Kind.DURATION), value)
    return _without_comma(write_number(column, value))


def _beyond(share: float, usual: float, n: int) -> float:
    """How far the share of n cells lies above the usual one; 0 within two standard errors."""
    return 0.0 if share - usual <= 2 * math.sqrt(usual * (1 - usual) / max(n, 1)) else share - usual


def _ends(values: Floats) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if values.size else (math.nan, math.nan)


def _histograms(
    column: Column,
    observed: Floats,
    filled: Floats,
    where: NDArray[np.int64],
    rng: np.random.Generator,
    guess: Floats | None,
) -> dict[str, Any]:
    """Count all in the same bins; place some filled cells on the same axis."""
    axis = _Axis()
    groups = [observed, filled.ravel(), np.empty(0) if guess is None else guess]
    (x, y, z), low, high = fit_to_axis(axis, column, groups)
    is_log = column.kind in (Kind.CONTINUOUS, Kind.INTEGER) and x is not observed
    edges = _edges(x, np.concatenate([y, z]), low, high, is_log)
    low, high = float(edges[0]), float(edges[-1])
    y = y.reshape(len(filled), -1)
    chart: dict[str, Any] = {
        "type": "numbers",
        "observed": _shares(x, edges),
        "filled": _shares(y.ravel(), edges),
        "written": [] if guess is None else _shares(z, edges),
        "draws": [_shares(one, edges) for one in y[:SHOWN_DRAWS]] if len(y) > 1 else [],
        "outside": _rounded(float(np.mean((x < low) | (x > high)))),
        "edges": [axis.write(edge, low, high) for edge in edges.tolist()],
        "ticks": axis.ticks(low, high),
        "unit": axis.offset(low, high) or ("logarithmic" if is_log else ""),
        "cells": [],
    }
    if len(y) > 1 and y.size:
        chosen = rng.choice(y.shape[1], min(CELLS, y.shape[1]), replace=False)
        # Smallest, median and largest: quantiles of few draws would not hold what they say.
        ends = np.quantile(y[:, chosen], [0.0, 0.5, 1.0], axis=0)
        places = np.clip((ends - low) / (high - low), 0.0, 1.0)
        order = np.argsort(places[1], kind="stable")
        chart["cells"] = [
            [
                int(where[chosen[k]]) + 1,
                *(round(float(place), 4) for place in places[:, k]),
                *(axis.write(float(end), low, high) for end in ends[:, k]),
                *_mark(z, int(chosen[k]), axis, low, high),
            ]
            for k in order
        ]
    return chart


def _mark(z: Floats, cell: int, axis: _Axis, low: float, high: float) -> list[Any]:
    """Place the written value of a cell; nothing where none was written but the draws."""
    if not z.size:
        return []
    place = min(max((float(z[cell]) - low) / (high - low), 0.0), 1.0)
    return [round(place, 4), axis.write(float(z[cell]), low, high)]


def _edges(x: Floats, y: Floats, low: float, high: float, is_log: bool) -> Floats:
    """Give the edges of bins; those of whole numbers hold equally many, lest counts look like a comb."""
    if high <= low:
        margin = max(abs(low) * 0.05, 0.5)
        return np.linspace(low - margin, high + margin, 4)
    whole = not is_log and bool(np.all(x == np.round(x)) and np.all(y == np.round(y)))
    if whole and high - low >= 1:
        step = math.ceil((high - low + 1) / BINS)
        return np.arange(math.floor(low) - 0.5, math.ceil(high) + step, step)
    return np.linspace(low, high, BINS + 1)


def _shares(values: Floats, edges: Floats) -> list[float]:
    counts = np.histogram(values, edges)[0]
    return [_rounded(share) for share in (counts / max(values.size, 1)).tolist()]


def _rounded(value: float) -> float:
    return round(float(value), 4) if math.isfinite(value) else 0.0


class _Axis:
    """Takes what a picture would get from `fit_to_axis`, and gives ticks as numbers and words."""

    locator: Any = None
    formatter: Any = None

    def set_major_locator(self, locator: Any) -> None:
        self.locator = locator

    def set_major_formatter(self, formatter: Any) -> None:
        self.formatter = formatter

    def get_offset_text(self) -> _Axis:
        return self

    def set(self, **_: Any) -> None:
        """Colours do not matter here."""

    @property
    def _is_date(self) -> bool:
        return hasattr(self.formatter, "get_offset") and hasattr(self.formatter, "zero_formats")

    def _places(self, low: float, high: float) -> Floats:
        ends = (num2date(low), num2date(high)) if self._is_date else (low, high)  # type: ignore[no-untyped-call]
        places = np.asarray(self.locator.tick_values(*ends), dtype=np.float64)
        return places[(places >= low) & (places <= high)]

    def ticks(self, low: float, high: float) -> list[list[Any]]:
        """Give places between 0 and 1 and their labels."""
        places = self._places(low, high)
        words = self.formatter.format_ticks(places) if self._is_date else [self.formatter(p) for p in places]
        return [
            [round(float((p - low) / (high - low)), 4), _without_comma(str(word))]
            for p, word in zip(places, words, strict=True)
        ]

    def offset(self, low: float, high: float) -> str:
        """Give what the labels of dates leave out, such as the year."""
        if not self._is_date:
            return ""
        self.formatter.format_ticks(self._places(low, high))
        return str(self.formatter.get_offset())

    def write(self, value: float, low: float, high: float) -> str:
        """Write any place."""
        if not self._is_date:
            return _without_comma(str(self.formatter(float(f"{value:.4g}"))))
        moment = num2date(value)  # type: ignore[no-untyped-call]
        return f"{moment:%Y-%m-%d}" if high - low > 3 else f"{moment:%Y-%m-%d %H:%M}"


def _levels(
    column: Column, cells: Cells, drawn: list[Cells], holes: Booleans, written: Cells | None
) -> dict[str, Any]:
    codes, levels = common_codes([cells, *drawn, *([] if written is None else [written])])
    guess = None if written is None else codes.pop()[holes]
    levels = [as_declared(column, level) for level in levels]
    observed = codes[0][~holes]
    observed = observed[observed >= 0]
    filled = np.array([one[holes] for one in codes[1:]]).reshape(len(drawn), -1)
    filled = filled[:, (filled >= 0).all(axis=0)]
    n = len(levels)
    share = np.bincount(observed, minlength=n) / max(observed.size, 1)
    each = np.array([np.bincount(one, minlength=n) for one in filled]) / max(filled.shape[1], 1)
    sure = None
    if len(filled) > 1 and filled.size:
        agreeing = np.max([np.sum(filled == one, axis=0) for one in filled], axis=0)
        sure = {
            "agreement": _rounded(float(np.mean(agreeing / len(filled)))),
            "cells": [_rounded(float(np.mean(agreeing == k))) for k in range(1, len(filled) + 1)],
        }
    pooled = each.mean(axis=0) if len(each) else np.zeros(n)
    own = [] if guess is None else [np.bincount(guess[guess >= 0], minlength=n) / max((guess >= 0).sum(), 1)]
    occurs = np.sum([share, pooled, *own], axis=0) > 0  # not just declared
    order = [k for k in _order(column, levels, share) if occurs[k]]
    n = len(order)
    shown = order[:LEVELS] if n > LEVELS + 1 else order
    names = [short(levels[k], VALUE) or "(empty)" for k in shown]
    parts = [[k] for k in shown]
    if len(shown) < n:
        names.append(f"{n - len(shown):,} other levels")
        parts.append([k for k in order if k not in set(shown)])
    sums = [[_rounded(float(one[part].sum())) for part in parts] for one in (share, pooled, *each)]
    chart = {
        "type": "levels",
        "levels": names,
        "observed": sums[0],
        "filled": sums[1] if filled.size else [],
        "written": [_rounded(float(own[0][part].sum())) for part in parts] if own else [],
        "low": [min(column) for column in zip(*sums[2:], strict=True)] if len(filled) > 1 else [],
        "high": [max(column) for column in zip(*sums[2:], strict=True)] if len(filled) > 1 else [],
    }
    groups = [share, *own, pooled]
    top = [short(levels[int(np.argmax(one))], VALUE) if one.sum() else "" for one in groups]
    stats = [
        ["most frequent", *top],
        ["its share", *(share_text(float(one.max())) if one.sum() else "" for one in groups)],
        ["levels that occur", *(f"{int((one > 0).sum()):,}" if one.sum() else "" for one in groups)],
    ]
    return {"stats": stats, "sure": sure, "piled": 0.0, "chart": chart if observed.size else None}


def _order(column: Column, levels: list[Any], share: Floats) -> list[int]:
    """Give the levels as they are declared where they have an order, else the most frequent first."""
    if column.ordered:
        declared = {level: place for place, level in enumerate(column.levels)}
        return sorted(range(len(levels)), key=lambda k: declared.get(levels[k], len(declared)))
    return sorted(range(len(levels)), key=lambda k: -share[k])

"""What all pictures share: colours that can be told apart in black and white, axes for any kind of column.

Nothing here or in the pictures uses pyplot: no display, no state, no figure is left open. Text from tables is
never read as mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from ..tables.cells import DAY, SECOND
from ..tables.schema import Column, Kind
from .wording import short

Floats = NDArray[np.float64]

# Light, middle and dark, so that the picture can be read in black and white.
OBSERVED: dict[str, Any] = {"color": "#d5d8dc"}
IMPUTED: dict[str, Any] = {"color": "#d9480f"}
TRUTH: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": (0, (4, 2))}

TAIL = 0.01  # share of each tail that may lie outside a panel, so that outliers do not flatten the rest
STEEP = 30  # times the median: where the axis would end that far out, it is logarithmic
MOST_STEPS = 30  # integers that take no more values are drawn as steps, others as a curve
GRID = 256  # points of a curve
LETTER, SMALL_LETTER = 0.09, 0.065  # inches: letters of titles and of notes are about so wide
SMALL, GREY, DARK = 8, "#55595e", "#8a9099"
_UNITS = (("d", DAY), ("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1000.0))
_DAYS_OF_MATPLOTLIB = (-719_162.0, 2_932_896.0)  # the years 1 to 9999, counted from 1970


def new_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """Give the axes to draw on: those given, or the only ones of a new figure (inches).

    Examples
    --------
    >>> new_axes(None).figure.get_size_inches().tolist()
    [6.0, 4.0]
    """
    if ax is not None:
        return ax
    return Figure(figsize=(width, height), dpi=150, layout="constrained").add_subplot()


def written(value: Any, length: int) -> str:
    """Write a name or a level as a picture can show it: signs that the font lacks become boxes.

    Examples
    --------
    >>> written("Größe", 10), written("日!", 10)
    ('Größe', '□!')
    """
    known = _signs(tuple(FontProperties().get_family()))
    return "".join(sign if ord(sign) in known else "□" for sign in short(value, length))


@cache
def _signs(families: tuple[str, ...]) -> frozenset[int]:
    """Code points that the fonts in use can draw, those of matplotlib's settings."""
    found: set[int] = set()
    for family in families:
        found |= set(get_font(findfont(FontProperties(family=[family]))).get_charmap())
    return frozenset(found)


def fit_beside(axes: Axes, title: str, note: str) -> bool:
    """Whether a title and a note fit side by side above axes.

    Examples
    --------
    >>> [fit_beside(new_axes(None, inches), "Cells", "300 rows") for inches in (6.0, 1.5)]
    [True, False]
    """
    inches = float(axes.bbox.width / axes.figure.dpi)
    words = written(title, max(int(inches / LETTER), 12))
    # A layout may narrow the axes later on, to make room for labels.
    return LETTER * len(words) + SMALL_LETTER * len(note) <= 0.8 * inches


def head(axes: Axes, title: str, note: str = "", *, above: bool | None = None) -> None:
    """Write a title to the left and a note to the right, and take away lines that say nothing.

    Where both do not fit side by side, or if it shall, the title stands above the note.

    Examples
    --------
    >>> wide, narrow = new_axes(None, 6.0), new_axes(None, 2.5)
    >>> head(wide, "Missing cells", "300 rows, 24% missing"), head(narrow, "Missing cells", "300 rows")
    (None, None)
    >>> wide.get_title("left"), narrow.get_title("left")
    ('Missing cells', 'Missing cells\\n')
    """
    words = written(title, max(int(axes.bbox.width / axes.figure.dpi / LETTER), 12))
    if above is None:
        above = bool(note) and not fit_beside(axes, title, note)
    axes.set_title(words + "\n" * above, loc="left", fontsize=10, fontweight="bold", parse_math=False)
    if note:
        axes.set_title(note, loc="right", fontsize=SMALL, color=GREY, parse_math=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(labelsize=SMALL, color=GREY, labelcolor=GREY, length=2.5)


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Name the axes, in small grey letters; words that are longer than the axes go on below.

    Examples
    --------
    >>> axes = new_axes(None, 3.0)
    >>> label(axes, "a label that is longer than such narrow axes")
    >>> axes.get_xlabel().splitlines()
    ['a label that is longer than', 'such narrow axes']
    """
    # A layout may narrow the axes later on, to make room for labels.
    inches = [0.8 * float(side) / axes.figure.dpi for side in (axes.bbox.width, axes.bbox.height)]
    x, y = (
        fill(written(words, most), max(int(room / SMALL_LETTER), 12), break_long_words=False)
        for words, most, room in zip((x, y), (90, 50), inches, strict=True)
    )
    axes.set_xlabel(x, fontsize=SMALL, color=GREY, parse_math=False)
    axes.set_ylabel(y, fontsize=SMALL, color=GREY, parse_math=False)


def name_places(axis: Any, names: Sequence[Any], length: int = 18, **style: Any) -> None:
    """Write names at 0, 1, 2, ... of an axis, sloping where they would touch; of very many only some."""
    step = max(1, math.ceil(len(names) / 60))
    labels = [written(name, length) for name in names[::step]]
    room = axis.axes.bbox.width / axis.axes.figure.dpi / max(len(labels), 1)
    widths = [0.065 * (len(one) + len(two) + 3) / 2 for one, two in pairwise(labels)]
    if axis.axis_name == "x" and max(widths, default=0.0) > room:
        style = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} | style
    axis.set_ticks(list(range(0, len(names), step)))
    axis.set_ticklabels(labels, parse_math=False, **style)


def legend(axes: Axes, handles: list[Any], **where: Any) -> None:
    """Explain marks and lines below the axes, or where told."""
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 4} | where
    for text in axes.legend(handles=handles, frameon=False, fontsize=SMALL, **place).get_texts():
        text.set_parse_math(False)


def fit_to_axis(
    axis: Any, column: Column, groups: list[Floats], ticks: int = 6
) -> tuple[list[Floats], float, float]:
    """Prepare an axis for the numbers of a column: units, logarithm where steep, and its ends.

    Gives the numbers as they are to be drawn, and both ends; groups without numbers stay empty.
    """
    if not any(group.size for group in groups):
        return groups, 0.0, 1.0
    values = in_units(axis, column, groups, ticks)
    low, high = ends_of(values)
    if low < high and column.kind in (Kind.CONTINUOUS, Kind.INTEGER) and is_steep(values, high):
        axis.set_major_locator(MaxNLocator(ticks, integer=True))
        axis.set_major_formatter(FuncFormatter(lambda power, _: tick(10.0**power)))
        values = [np.log10(part) for part in values]
        low, high = ends_of(values)
    return values, low, high


def in_units(axis: Any, column: Column, values: list[Floats], ticks: int) -> list[Floats]:
    """Numbers of an axis: dates in days since 1970, durations and times in a unit that suits them."""
    if column.kind == Kind.DATETIME:
        days = [part / DAY for part in values]
        every = np.concatenate(days)
        if _DAYS_OF_MATPLOTLIB[0] <= every.min() and every.max() <= _DAYS_OF_MATPLOTLIB[1]:
            locator = AutoDateLocator(minticks=3, maxticks=ticks + 1)  # type: ignore[no-untyped-call]
            axis.set_major_locator(locator)
            formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
            axis.set_major_formatter(formatter)
            axis.get_offset_text().set(size=SMALL, color=GREY)
            return days
        _count_ticks(axis, ticks)
        return [1970 + part / 365.2425 for part in days]
    _count_ticks(axis, ticks)
    if column.kind not in (Kind.DURATION, Kind.TIME):
        return values
    largest = float(np.abs(np.concatenate(values)).max())
    unit, size = next(((u, s) for u, s in _UNITS if largest >= 2 * s), ("ms", 1000.0))
    if column.kind == Kind.TIME:
        unit, size = "h", 3600 * SECOND
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{tick(value)} {unit}"))
    return [part / size for part in values]


def _count_ticks(axis: Any, ticks: int) -> None:
    axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(tick))


def finite(values: Floats) -> Floats:
    """Give the numbers that can be drawn."""
    return values[np.isfinite(values)]


def tick(value: float, _: Any = None) -> str:
    """A number in few characters: 2,500, 40k, 1.2M.

    >>> [tick(value) for value in (-122.5, 0.25, 2500, 40_000, 1.2e6, 3e-7)]
    ['−122.5', '0.25', '2,500', '40k', '1.2M', '3e-07']
    """
    size = abs(value)
    for limit, unit, suffix in ((1e15, 1.0, None), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            text = f"{value:.3g}" if suffix is None else f"{value / unit:,.5g}{suffix}"
            break
    else:
        text = f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def ends_of(values: list[Floats]) -> tuple[float, float]:
    """Ends of the axis: all values but the outermost of each group, and no further than needed."""
    ends = [np.quantile(part, [0.0, TAIL, 1.0 - TAIL, 1.0]) for part in values if part.size]
    low, near_low, near_high, high = (
        float(end) for end in (pick(e[k] for e in ends) for k, pick in enumerate((min, min, max, max)))
    )
    width = near_high - near_low
    if not math.isfinite(width) or width <= 0:
        return low, high
    # An end that is close anyway is shown whole.
    low = low if near_low - low < 0.15 * width else near_low
    high = high if high - near_high < 0.15 * width else near_high
    return low, high


def is_steep(values: list[Floats], high: float) -> bool:
    """Whether positive values spread so far that only their logarithm can be seen."""
    every = np.concatenate(values)
    return bool(every.min() > 0 and high > STEEP * np.median(every))


def edges_of(column: Column, low: float, high: float) -> tuple[Floats, bool]:
    """Give the edges of the bins of a density, and whether they hold one integer each."""
    steps = column.kind == Kind.INTEGER and low == round(low) and high - low < MOST_STEPS
    return (np.arange(low, high + 2.0) - 0.5 if steps else np.linspace(low, high, GRID + 1)), steps


def density(values: Floats, edges: Floats, *, smooth: bool) -> Floats:
    """Density at the middle of each bin, [bins]; smoothed by a normal kernel that stays inside the ends."""
    if not values.size:
        return np.zeros(len(edges) - 1)
    counts = np.histogram(values, edges)[0].astype(np.float64)
    bin_width = edges[1] - edges[0]
    if smooth:
        quarter, three_quarters = np.quantile(values, [0.25, 0.75])
        inside = values[(values >= edges[0]) & (values <= edges[-1])]
        spreads = [s for s in (inside.std(), (three_quarters - quarter) / 1.34) if s > 0]
        width = 0.9 * min(spreads, default=0.0) * len(values) ** -0.2  # Silverman's rule
        counts = gaussian_filter1d(counts, max(width / bin_width, 1.5), mode="reflect")
    density: Floats = counts / (len(values) * bin_width)
    return density


def say(axes: Axes, words: str) -> None:
    """Write a few words where a picture would be."""
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes, fontsize=9, color=GREY)

"""Pictures of what is missing in a table: where, how much, with what else.

Each function draws on the axes it is given, or on a new figure, and returns the axes:
``plot_missing_matrix(table).figure.savefig("missing.png")``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..errors import SettingError
from ..tables.frames import read_table
from ..tables.pieces import with_distinct_names
from .profiles import co_missingness, patterns
from .style import DARK, GREY, IMPUTED, OBSERVED, SMALL, head, label, name_places, new_axes, say
from .wording import count as count_of

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

MOST_COLUMNS = 60  # of a wider table the columns with most holes are shown
MOST_PIXELS = 500  # rows of a picture; longer tables are averaged to so many
MOST_NUMBERS = 12  # columns of a square of pairs up to which numbers are written into it
SCALE = (1.0, 0.5, 0.1)  # squares that are explained beside it
_SHADES = LinearSegmentedColormap.from_list("missing", [OBSERVED["color"], "black"])


def plot_missing_matrix(
    table: Any, *, sort: bool = False, max_columns: int = MOST_COLUMNS, ax: Axes | None = None
) -> Axes:
    """Draw the table with its missing cells in black.

    Rows of a long table are averaged: the darker, the more of them miss the cell.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With or without holes.
    sort : bool
        Put rows of the same pattern together, those with most missing cells first.
    max_columns : int
        Of a wider table the columns with most missing cells are shown, in their order.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> axes = plot_missing_matrix(pd.DataFrame({"a": [1.0, None], "b": ["x", None]}))
    >>> axes.images[0].get_array().tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    missing, names = _read(table)
    shown = _most_missing(missing, max_columns)
    part = missing[:, shown]
    if sort and len(part):
        part = part[np.lexsort((*part.T[::-1], -part.sum(axis=1)))]
    axes = new_axes(ax, max(4.0, 1.6 + 0.32 * len(shown)), 4.4)
    n = len(part)
    averaged = f"; a line is {n / MOST_PIXELS:.3g} rows" if n > MOST_PIXELS else ""
    head(axes, "Missing cells", _counts(missing, len(shown)) + averaged)
    if not n:
        say(axes, "no rows")
        return axes
    edges = np.linspace(0, n, min(n, MOST_PIXELS) + 1).astype(int)
    shares = np.add.reduceat(part, edges[:-1], axis=0, dtype=np.int64) / np.diff(edges)[:, None]
    # A pixel with any missing cell is never as light as one with none.
    shares = np.where(shares > 0, 0.25 + 0.75 * shares, 0.0)
    axes.imshow(
        shares,
        cmap=_SHADES,
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, len(shown) - 0.5, n, 0),
    )
    for place in range(1, len(shown)):
        axes.axvline(place - 0.5, color="white", linewidth=1.2 if len(shown) <= 30 else 0.5)
    name_places(axes.xaxis, [names[k] for k in shown], rotation=45, ha="right", rotation_mode="anchor")
    label(axes, y="rows, the most holes first" if sort else "rows")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))  # there is no half a row
    axes.spines[["left", "bottom"]].set_visible(False)
    return axes


def plot_missing_rates(table: Any, *, max_columns: int = MOST_COLUMNS, ax: Axes | None = None) -> Axes:
    """Draw the share of missing cells of each column as bars, in the order of the table.

    Parameters
    ----------
    table, max_columns, ax
        As in `plot_missing_matrix`.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> axes = plot_missing_rates(pd.DataFrame({"a": [1.0, None], "b": ["x", "y"]}))
    >>> [float(bar.get_width()) for bar in axes.patches]
    [0.5, 0.0]
    """
    missing, names = _read(table)
    shown = _most_missing(missing, max_columns)
    counts = missing[:, shown].sum(axis=0)
    shares = counts / max(len(missing), 1)
    axes = new_axes(ax, 6.0, max(1.6, 0.9 + 0.2 * len(shown)))
    head(axes, "Missing cells by column", _counts(missing, len(shown)))
    places = np.arange(len(shown))
    axes.barh(places, shares, height=0.72, color=DARK, edgecolor="black", linewidth=0.5, hatch="////")
    for place, (share, count) in enumerate(zip(shares.tolist(), counts.tolist(), strict=True)):
        words = f"{_percent(share)} ({count:,})" if count else "complete"
        axes.text(share, place, f" {words}", va="center", fontsize=SMALL, color=GREY)
    name_places(axes.yaxis, [names[k] for k in shown], 24)
    top = float(shares.max(initial=0.0))
    axes.set(ylim=(len(shown) - 0.4, -0.6), xlim=(0.0, max(top * 1.3, 0.01)))
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}" if share <= 1.0 else "")
    axes.tick_params(axis="y", length=0)
    return axes


def plot_co_missingness(
    table: Any, *, values: str = "correlation", max_columns: int = 30, ax: Axes | None = None
) -> Axes:
    """Draw how often columns are missing together: the larger a square, the more; three stand for a scale.

    Parameters
    ----------
    table, ax
        As in `plot_missing_matrix`; columns without holes are left out.
    values : {"correlation", "share"}
        The correlation of the indicators of missing cells (negative ones are hollow squares), or the share
        of rows in which both are missing among those in which one is.
    max_columns : int
        Of more columns with holes those with most are shown.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> axes = plot_co_missingness(pd.DataFrame({"a": [1.0, None, 2.0], "b": ["x", None, "y"]}))
    >>> [text.get_text() for text in axes.texts]  # of the pair, then of the scale
    ['1.00', '1', '0.5']
    """
    if values not in ("correlation", "share"):
        raise SettingError(f"Values are 'correlation' or 'share', however: they are {values!r}.")
    missing, names = _read(table)
    holes = [k for k in _most_missing(missing, missing.shape[1]) if missing[:, k].any()]
    shown = sorted(sorted(holes, key=lambda k: -int(missing[:, k].sum()))[:max_columns])
    size = max(3.6, 1.9 + 0.36 * len(shown))
    axes = new_axes(ax, size + 1.2, size)  # with room for the scale
    signed = values == "correlation"
    head(axes, "Missing together")
    if len(shown) < 2:
        say(axes, "fewer than two columns have missing cells")
        return axes
    pairs, correlation = co_missingness(missing[:, shown], tuple(names[k] for k in shown))
    if signed:
        matrix = correlation.to_numpy(float)
    else:
        both = pairs.to_numpy(float)
        matrix = both / (np.diag(both)[:, None] + np.diag(both) - both)
    lower = np.tri(len(shown), k=-1, dtype=bool)
    draw_squares(axes, np.where(lower, matrix, np.nan))
    numbered = len(shown) <= MOST_NUMBERS
    for row, column in zip(*np.nonzero(lower.T & ~np.isnan(matrix)), strict=True) if numbered else ():
        words = f"{matrix[row, column]:.2f}".replace("-", "−")
        axes.text(float(column), float(row), words, ha="center", va="center", fontsize=SMALL, color="black")
    name_places(axes.yaxis, [names[k] for k in shown])
    name_places(axes.xaxis, [names[k] for k in shown], rotation=45, ha="right", rotation_mode="anchor")
    axes.set(xlim=(-0.5, len(shown) + 2.0), ylim=(len(shown) - 0.5, -0.5))
    axes.spines["bottom"].set_bounds(-0.5, len(shown) - 0.5)
    _scale_of_squares(axes, len(shown))
    label(axes, "correlation (hollow: negative)" if signed else "rows that miss both, of those that miss one")
    return axes


def plot_patterns(
    table: Any, *, max_patterns: int = 20, max_columns: int = 30, ax: Axes | None = None
) -> Axes:
    """Draw the most frequent patterns of missing cells, one a line, with the number of rows that have it.

    Parameters
    ----------
    table, ax
        As in `plot_missing_matrix`; columns without holes are left out.
    max_patterns, max_columns : int
        How many lines and columns are shown.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> axes = plot_patterns(pd.DataFrame({"a": [1.0, None, None], "b": ["x", "y", "z"]}))
    >>> [text.get_text() for text in axes.get_yticklabels()]
    ['2 rows (67%)', '1 row (33%)']
    """
    missing, names = _read(table)
    holes = [k for k in range(missing.shape[1]) if missing[:, k].any()]
    shown = sorted(sorted(holes, key=lambda k: -int(missing[:, k].sum()))[:max_columns])
    found = patterns(missing[:, shown], tuple(range(len(shown)))) if shown else None
    lines = 0 if found is None else min(len(found), max_patterns)
    axes = new_axes(ax, max(4.0, 2.2 + 0.34 * len(shown)), max(2.0, 1.6 + 0.22 * lines))
    head(axes, "Patterns of missing cells", "" if found is None else f"{lines:,} of {len(found):,}")
    if found is None:
        say(axes, "nothing is missing")
        return axes
    picture = np.zeros((lines, len(shown)))
    for line, columns in enumerate(found["missing"].head(lines)):
        picture[line, list(columns)] = 1.0
    axes.imshow(picture, cmap=_SHADES, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for place in range(1, len(shown)):
        axes.axvline(place - 0.5, color="white", linewidth=1.5)
    for line in range(1, lines):
        axes.axhline(line - 0.5, color="white", linewidth=1.5)
    counts = [
        f"{rows:,} row{'s' * (rows != 1)} ({_percent(share)})"
        for rows, share in zip(found["rows"].head(lines), found["share"].head(lines), strict=True)
    ]
    axes.set_yticks(range(lines))
    axes.set_yticklabels(counts)
    name_places(axes.xaxis, [names[k] for k in shown], rotation=45, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    return axes


def _scale_of_squares(axes: Axes, place: int) -> None:
    """Say beside a picture of squares how large they are, in the units of its axes."""
    for row, value in enumerate(SCALE[: max(place, 1)]):
        side = _side(value)
        corner = (place + 0.4 - side / 2, row - side / 2)
        axes.add_patch(Rectangle(corner, side, side, facecolor=DARK, edgecolor="black", linewidth=0.6))
        axes.text(place + 1.0, row, f"{value:g}", va="center", fontsize=SMALL, color=GREY)


def _side(value: float) -> float:
    """Of a square whose area tells a number, as a part of its place."""
    return 0.94 * float(np.sqrt(min(abs(value), 1.0)))


def draw_squares(axes: Axes, matrix: Floats, *, mark_diagonal: bool = False) -> None:
    """Draw numbers between -1 and 1 as squares whose area they are; negative ones hollow, NaN not at all.

    On request those of the diagonal are coloured and hatched.

    Shape: matrix [rows, columns], the first row at the top.
    """
    for row, column in zip(*np.nonzero(~np.isnan(matrix)), strict=True):
        value = float(matrix[row, column])
        side = _side(value)
        corner = (float(column) - side / 2, float(row) - side / 2)
        marked = mark_diagonal and row == column
        colour = IMPUTED["color"] if marked else DARK if value > 0 else "white"
        square = Rectangle(corner, side, side, facecolor=colour, edgecolor="black", linewidth=0.6)
        if marked:
            square.set_hatch("////")
        axes.add_patch(square)
    axes.set_aspect("equal")


def _read(table: Any) -> tuple[Booleans, tuple[Any, ...]]:
    read = read_table(with_distinct_names(table))
    return read.missing, read.names


def _most_missing(missing: Booleans, most: int) -> list[int]:
    by_holes = np.argsort(-missing.sum(axis=0), kind="stable")
    return sorted(by_holes[: max(most, 1)].tolist())


def _counts(missing: Booleans, shown: int) -> str:
    n, p = missing.shape
    parts = f"{shown} of {p:,} columns, " if shown < p else ""
    return f"{count_of(n, 'row')}, {parts}{_percent(missing.mean() if missing.size else 0.0)} missing"


def _percent(share: float) -> str:
    """A share as a percentage that is 0 or 100 only if it is.

    >>> [_percent(share) for share in (0.0, 0.0004, 0.25, 0.9999, 1.0)]
    ['0%', '<1%', '25%', '>99%', '100%']
    """
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"

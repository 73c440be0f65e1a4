"""Pictures of filled values beside observed ones: densities, strips, pairs.

Each function takes the incomplete table and one or several completed ones, draws on the axes it is given, or
on a new figure, and returns the axes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..tables.cells import Cells
from ..tables.schema import Column, Schema, Status, unknown_names
from .plots import plot_constant
from .style import (
    GREY,
    IMPUTED,
    OBSERVED,
    density,
    edges_of,
    finite,
    fit_to_axis,
    head,
    label,
    legend,
    name_places,
    new_axes,
    say,
)
from .views import View, common_codes, look, read_forms
from .wording import short

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

MOST_POINTS = 800  # of one strip or one sort of point; more are drawn by chance
MOST_LEVELS = 12  # of a category; the rest is one
HATCHED: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.4, "hatch": "////"}  # bars of filled cells
_OBSERVED_MARK: dict[str, Any] = {
    "marker": "o",
    "s": 9,
    "facecolors": "none",
    "edgecolors": "#8a9099",
    "linewidths": 0.6,
}
_FILLED_MARKS: dict[str, dict[str, Any]] = {
    "x": {"marker": ">", "s": 13, "color": IMPUTED["color"], "linewidths": 0},
    "y": {"marker": "^", "s": 13, "color": IMPUTED["color"], "linewidths": 0},
    "both": {"marker": "x", "s": 14, "color": "black", "linewidths": 0.8},
}


def plot_density(
    table: Any, completed: Any, column: Hashable, *, schema: Schema | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the density of the observed cells of a column, and of the filled ones of each completed table.

    Categories are bars: the share of a level among observed cells, among filled ones, and a line from the
    smallest to the largest share over the completed tables.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    completed : table or sequence of tables
        Completed, once or several times.
    column : label
        Which column; a position for arrays.
    schema : Schema, optional
        What the columns hold.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [1.5, 2.0, 4.0, None, None]})
    >>> axes = plot_density(holes, [holes.fillna(2.0), holes.fillna(3.0)], "x")
    >>> len(axes.lines)  # one for each completed table
    2
    """
    axes = new_axes(ax, 5.0, 3.0)
    what, cells, holes = _read(table, completed, column, schema)
    head(axes, str(what.name), _missing(holes))
    if not _can_be_drawn(axes, what, cells, holes):
        return axes
    if not what.kind.is_numeric:
        _level_bars(axes, cells, holes)
        return axes
    groups = [finite(cells[0].numbers()[~holes]), *(finite(one.numbers()[holes]) for one in cells[1:])]
    groups, low, high = fit_to_axis(axes.xaxis, what, groups)
    words = "filled" if len(groups) == 2 else f"filled, {len(groups) - 1} times"
    handles: list[Any] = [Patch(**OBSERVED, label="observed")]
    if low == high:
        legend(axes, [*handles, Patch(facecolor=IMPUTED["color"], **HATCHED, label=words)])
        plot_constant(axes, low, [groups[0], np.concatenate(groups[1:])], **HATCHED)
        axes.spines["left"].set_visible(False)
        return axes
    legend(axes, [*handles, Line2D([], [], **IMPUTED, linewidth=1.5, label=words)])
    edges, whole = edges_of(what, low, high)
    middle = (edges[:-1] + edges[1:]) / 2
    top = 0.0
    for order, part in enumerate(groups):
        if not part.size:
            continue
        curve = density(part, edges, smooth=not whole)
        top = max(top, float(curve.max()))
        if order == 0:
            axes.fill_between(edges, np.append(curve, curve[-1]), step="post", **OBSERVED, linewidth=0)
        elif whole:
            axes.stairs(curve, edges, baseline=None, **IMPUTED, linewidth=2.0 if len(groups) == 2 else 0.9)
        else:
            axes.plot(middle, curve, **IMPUTED, linewidth=2.0 if len(groups) == 2 else 0.9)
    axes.set(yticks=[], ylim=(0.0, 1.08 * top or 1.0), xlim=(edges[0], edges[-1]))
    axes.spines["left"].set_visible(False)
    return axes


def plot_strips(
    table: Any,
    completed: Any,
    column: Hashable,
    *,
    schema: Schema | None = None,
    ax: Axes | None = None,
    max_draws: int = 20,
) -> Axes:
    """Draw the cells of a column as points: those observed, then those filled, one strip for each table.

    Parameters
    ----------
    table, completed, column, schema, ax
        As in `plot_density`.
    max_draws : int
        Of more completed tables the first are shown.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [1.0, 2.0, 4.0, None, None]})
    >>> axes = plot_strips(holes, [holes.fillna(2.0), holes.fillna(3.0)], "x")
    >>> [text.get_text() for text in axes.get_xticklabels()]
    ['observed', '1', '2']
    """
    what, cells, holes = _read(table, completed, column, schema)
    cells = cells[: max_draws + 1]
    axes = new_axes(ax, max(3.5, 1.6 + 0.42 * len(cells)), 3.2)
    head(axes, str(what.name), _missing(holes))
    if not _can_be_drawn(axes, what, cells, holes):
        return axes
    groups, low, high = _on_axis(axes.yaxis, what, cells, [~holes] + [holes] * (len(cells) - 1))
    rng = np.random.default_rng(0)
    spread = 0.0 if what.kind.is_numeric else 0.3
    for place, part in enumerate(groups):
        part = part[~np.isnan(part)]
        part = part if len(part) <= MOST_POINTS else rng.choice(part, MOST_POINTS, replace=False)
        x = place + rng.uniform(-0.3, 0.3, len(part))
        y = part + rng.uniform(-spread, spread, len(part))
        axes.scatter(x, y, **(_OBSERVED_MARK if place == 0 else _FILLED_MARKS["y"]))
    _margin(axes.set_ylim, low, high)
    axes.axvline(0.5, color=GREY, linewidth=0.6, linestyle=(0, (1, 2)))
    name_places(axes.xaxis, ["observed", *range(1, len(cells))])
    axes.set_xlim(-0.5, len(cells) - 0.5)
    label(axes, x="filled, by completed table" if len(cells) > 2 else "")
    return axes


def plot_pair(
    table: Any,
    completed: Any,
    x: Hashable,
    y: Hashable,
    *,
    schema: Schema | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw two columns against each other; marks tell which of the two was filled.

    Parameters
    ----------
    table, schema, ax
        As in `plot_density`.
    completed : table or sequence of tables
        Of several, the first is drawn.
    x, y : label
        The columns.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [1.0, 2.0, None, 4.0], "c": ["a", None, None, "b"]})
    >>> axes = plot_pair(holes, holes.fillna({"x": 3.0, "c": "a"}), "x", "c")
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['both observed', 'y filled', 'both filled']
    """
    axes = new_axes(ax, 4.6, 4.0)
    view = look(table, schema)
    form = read_forms(view, completed)[0]
    columns = [_position(view, name) for name in (x, y)]
    whats = [view.schema.columns[k] for k in columns]
    head(axes, "")
    label(axes, short(whats[0].name, 50), str(whats[1].name))
    for what, k in zip(whats, columns, strict=True):
        if not _can_be_drawn(axes, what, [form.cells[k]], np.zeros(view.table.n_rows, dtype=bool)):
            return axes
    rng = np.random.default_rng(0)
    drawn = []
    sides: list[tuple[Any, Any]] = [(axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)]
    for what, k, (axis, limit) in zip(whats, columns, sides, strict=True):
        (values,), low, high = _on_axis(axis, what, [form.cells[k]], [np.ones(view.table.n_rows, dtype=bool)])
        spread = 0.0 if what.kind.is_numeric else 0.25
        drawn.append(values + rng.uniform(-spread, spread, len(values)))
        _margin(limit, low, high)
    no_x, no_y = view.missing[:, columns[0]], view.missing[:, columns[1]]
    sorts: list[tuple[str, Booleans, dict[str, Any]]] = [
        ("both observed", ~no_x & ~no_y, _OBSERVED_MARK),
        ("x filled", no_x & ~no_y, _FILLED_MARKS["x"]),
        ("y filled", no_y & ~no_x, _FILLED_MARKS["y"]),
        ("both filled", no_x & no_y, _FILLED_MARKS["both"]),
    ]
    handles = []
    for words, rows, mark in sorts:
        places = np.flatnonzero(rows & ~np.isnan(drawn[0]) & ~np.isnan(drawn[1]))
        if len(places) > MOST_POINTS:
            places = rng.choice(places, MOST_POINTS, replace=False)
        if len(places):
            handles.append(axes.scatter(drawn[0][places], drawn[1][places], **mark, label=words))
    # Above: names of levels may need the room below.
    legend(axes, handles, loc="lower left", bbox_to_anchor=(-0.04, 1.0), handletextpad=0.2, columnspacing=1.2)
    return axes


def _read(
    table: Any, completed: Any, name: Hashable, schema: Schema | None
) -> tuple[Column, list[Cells], Booleans]:
    """What a column holds, its cells in the incomplete table and in the completed ones, and its holes."""
    view = look(table, schema)
    position = _position(view, name)
    cells = [view.table.cells[position], *(form.cells[position] for form in read_forms(view, completed))]
    return view.schema.columns[position], cells, view.missing[:, position]


def _position(view: View, name: Hashable) -> int:
    if name not in view.table.names:
        raise unknown_names([name], view.table.names)
    return view.table.names.index(name)


def _can_be_drawn(axes: Axes, column: Column, cells: Sequence[Cells], holes: Booleans) -> bool:
    """Whether there is anything to draw; if not, say why."""
    if column.status in (Status.PASSED_THROUGH, Status.IDENTIFIER):
        say(axes, "passed through")
        return False
    if all(bool((one.missing() | holes_of).all()) for one, holes_of in _sorts(cells, holes)):
        say(axes, "nothing observed, nothing filled")
        return False
    return True


def _sorts(cells: Sequence[Cells], holes: Booleans) -> list[tuple[Cells, Booleans]]:
    """Each form of a column with the cells of it that are of no interest: holes before, others after."""
    return [(one, holes if order == 0 else ~holes) for order, one in enumerate(cells)]


def _on_axis(
    axis: Any, column: Column, cells: Sequence[Cells], rows: Sequence[Booleans]
) -> tuple[list[Floats], float, float]:
    """Values of some rows of each form of a column, prepared for an axis; levels at 0, 1, 2, ...

    NaN where nothing is, so that rows still belong together.
    """
    if column.kind.is_numeric:
        numbers = [one.numbers()[part] for one, part in zip(cells, rows, strict=True)]
        scaled, low, high = fit_to_axis(axis, column, [finite(part) for part in numbers])
        whole = []
        for part, values in zip(numbers, scaled, strict=True):
            full = np.full(len(part), np.nan)
            full[np.isfinite(part)] = values
            whole.append(full)
        return whole, low, high
    codes, levels = common_codes(cells)
    codes = [one[part] for one, part in zip(codes, rows, strict=True)]
    counts = np.bincount(np.concatenate([one[one >= 0] for one in codes]), minlength=len(levels))
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    place = np.full(len(levels) + 1, np.nan)
    place[order] = np.minimum(np.arange(len(order)), MOST_LEVELS)
    names = [levels[k] for k in order[:MOST_LEVELS]]
    if len(order) > MOST_LEVELS:
        names.append(f"{len(order) - MOST_LEVELS} others")
    name_places(axis, names, 14)
    return [place[one] for one in codes], -0.5, len(names) - 0.5


def _margin(set_limits: Any, low: float, high: float) -> None:
    """A little room beyond the outermost points."""
    room = 0.03 * (high - low) if high > low else 0.5
    set_limits(low - room, high + room)


def _level_bars(axes: Axes, cells: Sequence[Cells], holes: Booleans) -> None:
    codes, levels = common_codes(cells)
    counts = np.stack(
        [
            np.bincount(one[rows][one[rows] >= 0], minlength=len(levels))
            for one, rows in zip(codes, [~holes] + [holes] * (len(codes) - 1), strict=True)
        ]
    ).astype(np.float64)
    order = np.lexsort((-counts[1:].sum(axis=0), -counts[0]))
    order = order[counts[:, order].sum(axis=0) > 0]
    shown, names = counts[:, order[:MOST_LEVELS]], [levels[k] for k in order[:MOST_LEVELS]]
    if len(order) > MOST_LEVELS:
        shown = np.column_stack([shown, counts[:, order[MOST_LEVELS:]].sum(axis=1)])
        names.append(f"{len(order) - MOST_LEVELS} others")
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1.0)
    places = np.arange(len(names))
    filled = shares[1:].mean(axis=0)
    axes.bar(places - 0.2, shares[0], 0.38, **OBSERVED, edgecolor="black", linewidth=0.4, label="observed")
    axes.bar(places + 0.2, filled, 0.38, **IMPUTED, **HATCHED, label="filled")
    if len(cells) > 2:
        low, high = shares[1:].min(axis=0), shares[1:].max(axis=0)
        axes.vlines(places + 0.2, low, high, color="black", linewidth=1.6)
    name_places(
        axes.xaxis,
        names,
        14,
        rotation=30 if len(names) > 4 else 0,
        ha="right" if len(names) > 4 else "center",
    )
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_ylim(0.0, 1.22 * float(shares.max()))  # room for the legend
    handles, _ = axes.get_legend_handles_labels()
    legend(axes, handles, loc="upper right", bbox_to_anchor=(1.0, 1.0), ncols=2)


def _missing(holes: Booleans) -> str:
    share = float(holes.mean()) if holes.size else 0.0
    return f"{int(holes.sum()):,} of {len(holes):,} missing" if share else "complete"

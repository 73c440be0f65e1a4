"""Pictures of completed tables, drawn on matplotlib figures of their own: no pyplot, no display, no state."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ..tables.cells import Cells
from ..tables.schema import Column, Kind, Schema, Status
from .style import (
    GREY,
    IMPUTED,
    OBSERVED,
    SMALL,
    TAIL,
    TRUTH,
    density,
    edges_of,
    finite,
    fit_beside,
    fit_to_axis,
    head,
    say,
    written,
)
from .views import look, read_forms

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

MOST_PANELS = 24  # of a wider table the columns with most holes are shown
MOST_LEVELS = 7  # of a category; the rest is one bar
_BARS = [OBSERVED["color"], IMPUTED["color"]]


def plot_distributions(
    table: Any,
    completed: Any,
    *,
    truth: Any = None,
    schema: Schema | None = None,
    title: str = "Observed and imputed values",
    note: str = "",
    max_panels: int = MOST_PANELS,
) -> Figure:
    """Draw, for each column, the values that were observed beside those that were filled in.

    Other pictures are of one column or one thing and give axes; this one has a panel for each column, so that
    it gives a figure.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    completed : table or sequence of tables
        Completed; values of several are put together.
    truth : table, optional
        The same table with the values that were hidden, where they are known.
    schema : Schema, optional
        What the columns hold; found by default.
    title : str
        Above the picture.
    note : str
        Below the picture, after the counts of rows and cells.
    max_panels : int
        Of a wider table, the columns with most missing cells are shown.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig("distributions.png")``.

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [1.0, 2.0, None, 3.5], "c": ["a", None, "b", "b"]})
    >>> figure = plot_distributions(holes, holes.fillna({"x": 2.2, "c": "b"}))
    >>> [panel.get_title(loc="left") for panel in figure.axes]
    ['x', 'c']
    """
    view = look(table, schema)
    forms = read_forms(view, completed)
    known = None if truth is None else read_forms(view, truth)[0]
    before, missing, columns = view.table, view.missing, view.schema.columns
    shown = _choose(missing, max_panels)
    n_columns = _grid_width(len(shown))
    n_rows = math.ceil(len(shown) / n_columns)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.09, wspace=0.0, hspace=0.0)
    figure = Figure(figsize=(max(3.0 * n_columns, 6.0), 2.05 * n_rows + 0.9), dpi=150, layout=layout)
    clipped, heads = False, []
    for place, position in enumerate(shown):
        axes = figure.add_subplot(n_rows, n_columns, place + 1)
        holes = missing[:, position]
        groups = [[(before.cells[position], ~holes)], [(form.cells[position], holes) for form in forms]]
        if known is not None:
            groups.append([(known.cells[position], holes & ~known.missing[:, position])])
        clipped |= _plot_cells(axes, columns[position], groups)
        axes.spines["left"].set_visible(False)
        heads.append((axes, str(columns[position].name), _missing(holes)))
    above = not all(fit_beside(*one) for one in heads)  # all titles at one height
    for one in heads:
        head(*one, above=above)
    parts = f"{len(shown)} of {len(columns)} columns, " if len(shown) < len(columns) else ""
    times = f" {len(forms)} times" if len(forms) > 1 else ""
    counts = f"{before.n_rows:,} rows, {parts}{int(missing.sum()):,} cells filled{times}"
    if clipped:
        counts += f"; outermost {TAIL:.0%} of long tails not drawn"
    words = ". ".join(filter(None, [counts, note]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", parse_math=False)
    figure.supxlabel(words, x=0.01, ha="left", fontsize=SMALL, color=GREY, parse_math=False)
    figure.legend(
        handles=_legend(known is not None), loc="outside upper right", ncols=3, frameon=False, fontsize=10
    )
    return figure


def plot_column(
    axes: Axes, column: Column, observed: Cells, imputed: Cells, truth: Cells | None = None
) -> Axes:
    """Draw one column: its observed cells, its imputed cells and, where known, the true ones.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    column : Column
        What the column holds.
    observed, imputed, truth : Cells
        What ``read_table(table).cells`` has for the column; missing cells are left out.

    Returns
    -------
    matplotlib.axes.Axes
        ``axes``.

    Examples
    --------
    >>> from diffputer.tables.cells import cells_of_numpy
    >>> axes = Figure().add_subplot()
    >>> values = cells_of_numpy(np.array([1.0, 2.0, 2.5]))
    >>> plot_column(axes, Column("x", "continuous"), values, values) is axes
    True
    """
    groups = [cells for cells in (observed, imputed, truth) if cells is not None]
    _plot_cells(axes, column, [[(cells, np.ones(len(cells.array), dtype=bool))] for cells in groups])
    return axes


def _choose(missing: Booleans, most: int) -> list[int]:
    """Positions of the columns to show, in order: all, or those with most holes."""
    by_holes = np.argsort(-missing.sum(axis=0), kind="stable")
    return sorted(by_holes[: max(most, 1)].tolist())


def _grid_width(panels: int) -> int:
    """How many panels stand side by side: few empty places, and neither a strip nor a tower."""
    if panels <= 4:
        return max(panels, 1)
    widths = (4, 5, 3) if panels <= 9 else (4, 5)
    return min(widths, key=lambda width: -panels % width)


def _missing(holes: Booleans) -> str:
    share = float(holes.mean()) if holes.size else 0.0
    percent = f"{min(max(share, 0.01), 1.0 if share == 1.0 else 0.99):.0%}"
    return f"{percent} missing" if share > 0 else "complete"


def _legend(with_truth: bool) -> list[Any]:
    handles: list[Any] = [
        Patch(**OBSERVED, label="observed"),
        Line2D([], [], **IMPUTED, linewidth=2.2, label="imputed"),
    ]
    if with_truth:
        handles.append(Line2D([], [], **TRUTH, label="hidden truth"))
    return handles


def _plot_cells(axes: Axes, column: Column, groups: list[list[tuple[Cells, Booleans]]]) -> bool:
    """Draw the observed, imputed and true cells of a column; say whether some lie outside the panel.

    Each group is cells and which rows of them, of one table or of several.
    """
    if column.status in (Status.PASSED_THROUGH, Status.IDENTIFIER) or column.kind == Kind.TEXT:
        say(axes, "passed through")
        return False
    if not column.kind.is_numeric:
        _plot_levels(axes, [[level for part in group for level in _levels(*part)] for group in groups])
        return False
    values = [
        np.concatenate([finite(cells.numbers()[rows]) for cells, rows in group] or [np.empty(0)])
        for group in groups
    ]
    shown = np.concatenate(values)
    if not shown.size:
        say(axes, "nothing observed, nothing filled")
        return False
    values, low, high = fit_to_axis(axes.xaxis, column, values, ticks=4)
    if low == high:
        plot_constant(axes, low, values)
        return False
    edges, whole = edges_of(column, low, high)
    middle = (edges[:-1] + edges[1:]) / 2
    top = 0.0
    styles = ({**OBSERVED, "linewidth": 0}, {**IMPUTED, "linewidth": 2.0}, TRUTH)
    for order, (part, style) in enumerate(zip(values, styles, strict=False)):
        if not part.size:
            continue
        curve = density(part, edges, smooth=not whole)
        top = max(top, float(curve.max()))
        if whole:
            axes.stairs(curve, edges, fill=order == 0, baseline=0.0 if order == 0 else None, **style)
        elif order == 0:
            axes.fill_between(middle, curve, **style)
        else:
            axes.plot(middle, curve, **style)
    axes.set(yticks=[], ylim=(0.0, 1.08 * top if top > 0 else 1.0), xlim=(edges[0], edges[-1]))
    return any(bool(((part < low) | (part > high)).any()) for part in values)


def plot_constant(axes: Axes, value: float, values: list[Floats], **filled: Any) -> None:
    """Draw a column of one value: its share of the observed cells, and that of the filled ones.

    ``filled`` is how bars of these look, beyond their colour.
    """
    shares = [float((part == value).mean()) if part.size else 0.0 for part in values[:2]]
    axes.bar(-0.2, shares[0], width=0.36, color=_BARS[0])
    axes.bar(0.2, shares[1], width=0.36, color=_BARS[1], **filled)
    axes.set(xlim=(-1.2, 1.2), ylim=(0.0, 1.08), yticks=[], xticks=[0.0])
    if isinstance(axes.xaxis.get_major_formatter(), ConciseDateFormatter):
        axes.set_xticklabels([str(np.datetime64(int(value), "D"))])
    else:
        axes.set_xticklabels([f"{value:,.6g}"])


def _plot_levels(axes: Axes, groups: list[list[Any]]) -> None:
    """Shares of the levels as paired bars, the most frequent at the top."""
    counts = [_count(group) for group in groups]
    order = sorted(set().union(*counts), key=lambda level: (-counts[0].get(level, 0), str(level)))
    if not order:
        say(axes, "nothing observed, nothing filled")
        return
    labels = [written(level, 14) for level in order]
    shares = [np.array([count.get(level, 0) for level in order], dtype=float) for count in counts]
    if len(order) > MOST_LEVELS + 1:
        labels = [*labels[:MOST_LEVELS], f"{len(order) - MOST_LEVELS} others"]
        shares = [np.append(share[:MOST_LEVELS], share[MOST_LEVELS:].sum()) for share in shares]
    shares = [share / max(share.sum(), 1.0) for share in shares]
    places = np.arange(len(labels))
    for share, colour, shift in zip(shares[:2], _BARS, (-0.2, 0.2), strict=True):
        axes.barh(places + shift, share, height=0.38, color=colour, linewidth=0)
    for share in shares[2:]:
        axes.vlines(share, places, places + 0.4, color="black", linewidth=1.6)
    axes.set_yticks(places)
    axes.set_yticklabels(labels, parse_math=False)
    axes.set(ylim=(len(labels) - 0.4, -0.6), xlim=(0.0, 1.05 * max(float(s.max()) for s in shares)))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))


def _levels(cells: Cells, rows: Booleans) -> list[Any]:
    codes, levels = cells.labels()
    return [levels[code] for code in codes[rows].tolist() if code >= 0]


def _count(levels: Iterable[Any]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for level in levels:
        counts[level] = counts.get(level, 0) + 1
    return counts

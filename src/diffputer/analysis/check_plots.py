"""Pictures of checks: EM rounds, over-imputation, how much draws differ, propensity, probability transform.

Each function draws on the axes it is given, or on a new figure, and returns the axes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..errors import InputError
from ..tables.cells import Cells
from ..tables.schema import Column, Schema, Status
from .diagnostics import Round, convergence
from .missing_plots import draw_squares
from .overimputation import WHY_ALONE, OverImputation, Redrawn
from .scores import covered
from .style import DARK, GREY, IMPUTED, OBSERVED, fit_to_axis, head, label, legend, name_places, new_axes, say
from .views import centre_and_deviation, common_codes, look, read_forms

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

MOST_COLUMNS = 40
MOST_CELLS = 150  # intervals in a picture; more would hide each other
MOST_LEVELS = 12


def plot_trace(trace: Sequence[Round], *, ax: Axes | None = None) -> Axes:
    """Draw the rounds of EM: error on held-out cells, that of column means, and how much cells changed.

    Parameters
    ----------
    trace : sequence of EMRound
        ``imputer.trace_``.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from types import SimpleNamespace as Line
    >>> trace = [Line(round=k, change=1 / k, held_out_error=0.4, baseline_error=0.8) for k in (1, 2, 3)]
    >>> [text.get_text() for text in plot_trace(trace).get_legend().get_texts()]
    ['error on held-out cells', 'column means', 'change of filled cells']
    """
    axes = new_axes(ax, 5.0, 3.2)
    found = convergence(trace)
    rounds = found.rounds
    words = {True: "converged", False: "not converged", None: ""}[found.converged]
    head(axes, "Rounds of EM", words)
    if not len(rounds):
        say(axes, "nothing was fitted")
        return axes
    x = rounds["round"].to_numpy(float)
    series: list[tuple[str, str, dict[str, Any]]] = [
        ("held_out_error", "error on held-out cells", {"color": IMPUTED["color"], "marker": "o"}),
        ("baseline_error", "column means", {"color": GREY, "linestyle": (0, (4, 2)), "marker": None}),
        ("change", "change of filled cells", {"color": "black", "linestyle": (0, (1, 1.5)), "marker": "s"}),
    ]
    handles = []
    for name, words, style in series:
        y = rounds[name].to_numpy(float)
        if not np.isfinite(y).any():
            continue
        if name == "baseline_error" and len(x) == 1:
            handles.append(axes.axhline(float(y[0]), label=words, **(style | {"marker": None})))
        else:
            handles += axes.plot(x, y, label=words, linewidth=1.6, markersize=4.5, **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0.0)
    if len(x) == 1:
        axes.set(xlim=(x[0] - 1, x[0] + 1), xticks=[x[0]])
    label(axes, "round", "standard deviations")
    legend(axes, handles, bbox_to_anchor=(0.5, -0.2))
    return axes


def plot_over_imputation(checked: OverImputation, column: Hashable, *, ax: Axes | None = None) -> Axes:
    """Draw known cells of a column against what was filled in for them, with intervals.

    Intervals that miss the truth, which lies on the line, have an open mark and are dashed. Of a category,
    squares tell how often each level was drawn where the truth is another: right ones lie on the diagonal.
    Of columns that were left alone (text, empty and constant ones) a sentence says why.

    Parameters
    ----------
    checked : OverImputation
        What `diffputer.analysis.overimputation.over_impute` gives.
    column : label
        Which column.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from diffputer.analysis.overimputation import over_impute
    >>> frame = pd.DataFrame({"x": np.arange(40.0)})
    >>> checked = over_impute(frame, lambda t, m: [t.fillna(20.0 + k) for k in range(m)])
    >>> plot_over_imputation(checked, "x").get_xlabel()
    'truth'
    """
    for alone in checked.left_alone:
        if alone.name == column:
            axes = new_axes(ax, 4.6, 4.2)
            head(axes, str(column))
            say(axes, f"{WHY_ALONE.get(alone.status, 'no model')}:\nnothing was hidden")
            return axes
    one = checked[column]
    axes = new_axes(ax, 4.6, 4.2)
    if not len(one.rows):
        head(axes, str(one.column.name))
        say(axes, "no cell was filled")
        return axes
    if one.levels:
        _confusion(axes, one)
        return axes
    inside = covered(one.truth, one.draws, checked.level)
    head(axes, str(one.column.name), f"{inside.mean():.0%} inside {checked.level:.0%} intervals")
    chosen = np.random.default_rng(0).permutation(len(one.rows))[:MOST_CELLS]
    lower, upper = one.interval(checked.level)
    groups = [part[chosen] for part in (one.truth, one.estimate(), lower, upper)]
    fit_to_axis(axes.xaxis, one.column, groups)
    (truth, estimate, lower, upper), _, _ = fit_to_axis(axes.yaxis, one.column, groups)
    if 3 * len(steps := np.unique(truth)) < len(truth) and len(steps) > 1:  # else marks hide each other
        jitter = 0.3 * float(np.diff(steps).min())
        truth = truth + np.random.default_rng(0).uniform(-jitter, jitter, len(truth))
    for good, style, mark in (
        (True, "solid", {"color": IMPUTED["color"], "markerfacecolor": IMPUTED["color"]}),
        (False, (0, (2, 1.5)), {"color": "black", "markerfacecolor": "white"}),
    ):
        rows = inside[chosen] == good
        axes.vlines(truth[rows], lower[rows], upper[rows], color=DARK, linewidth=0.8, linestyle=style)
        axes.plot(truth[rows], estimate[rows], linestyle="none", marker="o", markersize=3.5, **mark)
    ends = [float(np.min([truth, lower])), float(np.max([truth, upper]))]
    room = 0.03 * (ends[1] - ends[0]) or 0.5
    ends = [ends[0] - room, ends[1] + room]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(xlim=ends, ylim=ends)
    label(axes, "truth", "mean of the draws, and interval")
    names = (("truth inside", IMPUTED["color"], IMPUTED["color"]), ("truth outside", "black", "white"))
    handles = [
        Line2D(
            [], [], linestyle="none", marker="o", markersize=4, color=edge, markerfacecolor=face, label=words
        )
        for words, edge, face in names
    ]
    legend(axes, handles)
    return axes


def plot_uncertainty(
    table: Any, completed: Any, *, schema: Schema | None = None, ax: Axes | None = None
) -> Axes:
    """Draw how much the draws of each missing cell differ, column by column.

    Of a number, the standard deviation over the completed tables, in standard deviations of the observed
    cells: near 0 the other columns tell it, near 1 they tell nothing. Of a category, the share of the draws
    that do not have the most frequent level. A line from the 5th to the 95th percentile of the cells, a bar
    from the 25th to the 75th, and a mark at the median.

    Parameters
    ----------
    table, schema, ax
        As in `plot_density`.
    completed : sequence of tables
        Random completions, two or more.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import pandas as pd
    >>> holes = pd.DataFrame({"x": [0.0, 2.0, None], "c": ["a", None, "b"]})
    >>> axes = plot_uncertainty(holes, [holes.fillna({"x": k, "c": "a"}) for k in (0.0, 2.0)])
    >>> [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "|"]
    [1.0, 0.0]
    """
    view = look(table, schema)
    forms = read_forms(view, completed)
    lines = []
    for position, column in view.usable():
        holes = view.missing[:, position]
        cells = [view.table.cells[position], *(form.cells[position] for form in forms)]
        spread = _spread(column, cells, holes) if holes.any() else np.empty(0)
        if spread.size and column.status == Status.MODELLED:
            lines.append((column, np.quantile(spread, [0.05, 0.25, 0.5, 0.75, 0.95])))
    more = len(lines) - MOST_COLUMNS
    lines = lines[:MOST_COLUMNS]
    axes = new_axes(ax, 6.0, max(1.8, 1.1 + 0.24 * len(lines)))
    head(axes, "How much draws differ", f"{len(forms)} draws" + (f", {more} columns not shown" * (more > 0)))
    if not lines or len(forms) < 2:
        say(axes, "two draws or more are needed" if lines else "nothing was filled")
        return axes
    for place, (column, (low, lower, middle, upper, high)) in enumerate(lines):
        hatch, colour = (None, OBSERVED["color"]) if column.kind.is_numeric else ("////", "white")
        axes.plot([low, high], [place, place], color="black", linewidth=0.9)
        axes.barh(
            place,
            upper - lower,
            0.56,
            lower,
            color=colour,
            edgecolor="black",
            linewidth=0.6,
            hatch=hatch,
            zorder=2,
        )
        axes.plot(
            middle, place, color=IMPUTED["color"], marker="|", markersize=9, markeredgewidth=2.4, zorder=3
        )
    name_places(axes.yaxis, [column.name for column, _ in lines], 24)
    right = max(1.0, max(float(numbers[-1]) for _, numbers in lines))
    axes.set(ylim=(len(lines) - 0.4, -0.6), xlim=(-0.02 * right, 1.03 * right))
    axes.axvline(1.0, color=GREY, linewidth=0.6, linestyle=(0, (1, 2)))
    label(axes, "deviation of draws in deviations of observed cells (hatched: share of other levels)")
    return axes


def plot_propensity(found: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw whether filled cells can be told from observed ones, column by column.

    From what the other columns tell of a hole (open mark), which is no fault, to what the column's own
    filled values add (filled mark). Marks inside the grey band of chance and short lines are good.

    Parameters
    ----------
    found : pandas.DataFrame
        What `diffputer.analysis.propensities.propensity` gives.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> found = pd.DataFrame({"column": ["x"], "auc": [0.8], "auc_others": [0.6], "deviation": [0.02]})
    >>> plot_propensity(found).get_xlabel()
    'area under the ROC curve'
    """
    lines = found[found["auc"].notna()].head(MOST_COLUMNS)
    axes = new_axes(ax, 6.0, max(1.9, 1.3 + 0.24 * len(lines)))
    head(axes, "Can filled cells be told from observed ones?")
    if not len(lines):
        say(axes, "too few filled or observed cells to tell")
        return axes
    places = np.arange(len(lines))
    whole, others = lines["auc"].to_numpy(float), lines["auc_others"].to_numpy(float)
    chance = 2 * lines["deviation"].to_numpy(float)
    axes.barh(places, 2 * chance, 0.8, 0.5 - chance, color=OBSERVED["color"], linewidth=0, label="chance")
    axes.hlines(places, others, whole, color="black", linewidth=1.2)
    axes.plot(
        others, places, "o", color="black", markerfacecolor="white", markersize=5, label="by other columns"
    )
    axes.plot(whole, places, "o", color=IMPUTED["color"], markersize=5, label="and by its own values")
    axes.axvline(0.5, color=GREY, linewidth=0.6)
    name_places(axes.yaxis, lines["column"].tolist(), 24)
    left = float(np.nanmin([*whole, *others, *(0.5 - chance)]))
    axes.set(ylim=(len(lines) - 0.4, -0.6), xlim=(left - 0.03, max(1.0, float(whole.max())) + 0.02))
    label(axes, "area under the ROC curve")
    handles, _ = axes.get_legend_handles_labels()
    legend(axes, handles, bbox_to_anchor=(0.5, -0.28 if len(lines) < 8 else -0.14))
    return axes


def plot_transform(
    values: Any, *, bins: int = 10, title: str = "Ranks of the truth among draws", ax: Axes | None = None
) -> Axes:
    """Draw the histogram of the probability integral transform: level if draws are right.

    A heap in the middle means draws too wide, heaps at the ends too narrow, a slope too large or too small.
    The band holds 95 % of the bars that chance gives.

    Parameters
    ----------
    values : array, or OverImputation
        Numbers between 0 and 1, from `diffputer.analysis.scores.probability_transform`; of an
        over-imputation those of all its numbers.
    bins : int
        How many bars.
    title : str
        Above the picture.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> axes = plot_transform(np.linspace(0.01, 0.99, 50), bins=5)
    >>> [float(bar.get_height()) for bar in axes.patches[-5:]]
    [0.2, 0.2, 0.2, 0.2, 0.2]
    """
    if isinstance(values, OverImputation):
        values = np.concatenate([np.empty(0), *(one.transform() for one in values.columns if not one.levels)])
    u = np.asarray(values, dtype=np.float64)
    u = u[~np.isnan(u)]
    if ((u < 0) | (u > 1)).any():
        raise InputError("Probability transforms lie between 0 and 1, however: some do not.")
    axes = new_axes(ax, 4.6, 3.0)
    head(axes, title, f"{len(u):,} cells")
    if not len(u):
        say(axes, "no numbers were drawn")
        return axes
    from scipy.stats import binom

    low, high = (float(binom.ppf(q, len(u), 1 / bins)) / len(u) for q in (0.025, 0.975))
    axes.axhspan(low, high, color=OBSERVED["color"], linewidth=0)
    axes.axhline(1 / bins, color=GREY, linewidth=0.8, linestyle=(0, (4, 2)))
    counts, edges = np.histogram(u, bins, (0.0, 1.0))
    width = 1 / bins
    axes.bar(
        edges[:-1] + width / 2,
        counts / len(u),
        0.92 * width,
        facecolor="none",
        edgecolor="black",
        linewidth=1.1,
        hatch="////",
    )
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.15 * max(float(counts.max()) / len(u), high)))
    label(axes, "probability transform", "share of cells")
    return axes


def _confusion(axes: Axes, one: Redrawn) -> None:
    codes, drawn = one.truth.astype(np.int64), one.draws.astype(np.int64)
    counts = np.bincount(codes, minlength=len(one.levels))
    order = np.argsort(-counts, kind="stable")
    used = np.zeros(len(one.levels), dtype=bool)
    used[np.unique(np.concatenate([codes, drawn.ravel()]))] = True
    order = order[used[order]]
    place = np.zeros(len(one.levels), dtype=np.int64)
    place[order] = np.minimum(np.arange(len(order)), MOST_LEVELS)
    names = [one.levels[k] for k in order[:MOST_LEVELS]]
    if len(order) > MOST_LEVELS:
        names.append(f"{len(order) - MOST_LEVELS} others")
    matrix = np.zeros((len(names), len(names)))
    for draw in drawn:
        np.add.at(matrix, (place[draw], place[codes]), 1.0)
    total = matrix.sum(axis=0)
    shares = np.where(total > 0, matrix / np.maximum(total, 1.0), np.nan)
    right = float((one.draws == one.truth).mean())
    head(axes, str(one.column.name), f"{right:.0%} of the draws right")
    draw_squares(axes, np.where(shares > 0, shares, np.nan), mark_diagonal=True)
    name_places(axes.xaxis, names, 14)
    name_places(axes.yaxis, names, 14)
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(len(names) - 0.4, -0.6))
    label(axes, "truth", "drawn (areas of a column add up to 1)")


def _spread(column: Column, cells: Sequence[Cells], holes: Booleans) -> Floats:
    """How much the draws of each missing cell differ, between 0 and about 1; cells that stay missing not."""
    spread: Floats
    if column.kind.is_numeric:
        _, deviation = centre_and_deviation(cells[0].numbers())
        draws = np.stack([one.numbers()[holes] for one in cells[1:]]) / deviation
        spread = draws[:, ~np.isnan(draws).any(axis=0)].std(axis=0)
        return spread
    codes, levels = common_codes(cells[1:])
    drawn = np.stack([one[holes] for one in codes])
    drawn = drawn[:, (drawn >= 0).all(axis=0)]
    most = np.max([(drawn == code).mean(axis=0) for code in range(len(levels))], axis=0, initial=0.0)
    spread = 1.0 - most if drawn.size else np.empty(0)
    return spread

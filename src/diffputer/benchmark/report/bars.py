"""Bars: every entry on every data set, with the paper's numbers marked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from .drawing import BLACK, GREY, LIGHT, OURS, PUBLISHED, SMALL, clean, new_figure, settle, wrap
from .entries import Entry, Key
from .leaderboard import Leaderboard, Score, title_board
from .measures import OF_TIME

#: More entries than these: only those that are ranked best are drawn.
MOST_ENTRIES = 24
#: Seconds that differ by more than this factor are on a logarithmic axis.
_WIDE = 20


def draw_bars(board: Leaderboard) -> Figure:
    """Draw a leaderboard as bars, one panel a data set, the best-ranked entry at the top of each.

    Parameters
    ----------
    board : Leaderboard
        Of any measure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    entries = board.entries[:MOST_ENTRIES]
    n_rows, n_columns = _make_grid(len(board.datasets))
    names = [wrap(entry.name) for entry in entries]
    lines = sum(max(name.count("\n") + 1, 1.35) for name in names)
    height = 0.17 * lines + 0.55
    notes = []
    if any(score.deviation for score in board.scores.values()):
        notes.append("whiskers: standard deviation over masks")
    if board.measure.name in OF_TIME:
        notes.append(f"axes over more than a factor of {_WIDE} are logarithmic")
    if board.measure.target is not None and math.isfinite(board.measure.target):
        notes.append("dashed: what is aimed at")
    if len(entries) < len(board.entries):
        notes.append(f"the first {len(entries)} of {len(board.entries)} entries")
    places = {dataset: board.places(dataset) for dataset in board.datasets}
    if any(places.values()):
        notes.append(f"bold: best of the ranked entries on their common tasks ({board.measure.direction})")
    else:
        notes.append(board.measure.direction)
    note = "; ".join(notes)
    figure = new_figure(
        2.1 + 2.35 * n_columns, n_rows * height + 1.05, title_board(board), note[:1].upper() + note[1:]
    )
    positions = _positions(names)
    for place, dataset in enumerate(board.datasets):
        axes = figure.add_subplot(n_rows, n_columns, place + 1)
        clean(axes, dataset)
        axes.grid(visible=False, axis="y")
        best = {key for key, rank in places[dataset].items() if rank == 1}
        _draw_panel(axes, board, dataset, entries, best, positions)
        axes.set_yticks(positions, names if place % n_columns == 0 else [""] * len(names))
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(positions[-1] + 0.9, positions[0] - 0.9)
        if place >= len(board.datasets) - n_columns:
            axes.set_xlabel(board.measure.heading, fontsize=SMALL, color=GREY)
    if any(score.published is not None for score in board.scores.values()):
        figure.legend(
            handles=_legend(board), loc="outside upper right", frameon=False, fontsize=SMALL, ncols=2
        )
    return settle(figure)


def _make_grid(n_panels: int) -> tuple[int, int]:
    """Give rows and columns: names stand at the left of every row, so few rows, and few empty places."""
    columns = n_panels if n_panels <= 4 else min((4, 5, 3), key=lambda width: -n_panels % width)
    return math.ceil(n_panels / columns), columns


def _positions(names: list[str]) -> list[float]:
    """Places of the bars, further apart where names have several lines."""
    positions, at = [], 0.0
    for name in names:
        size = max(name.count("\n") + 1, 1.35)
        positions.append(at + size / 2)
        at += size
    return positions


def _draw_panel(
    axes: Axes,
    board: Leaderboard,
    dataset: str,
    entries: Sequence[Entry],
    best: Collection[Key],
    positions: Sequence[float],
) -> None:
    scale = board.measure.scale
    scores = [board.score(entry, dataset) for entry in entries]
    shown = [s.mean * scale for s in scores if s is not None and s.mean is not None]
    shown += [s.published * scale for s in scores if s is not None and s.published is not None]
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    start, end = min(low, 0.0), 1.05 * high
    for score, entry, y in zip(scores, entries, positions, strict=True):
        if score is None or score.mean is None:
            word = "" if score is None else ("– in sample only" if score.cannot else "× failed")
            axes.text(start, y, f" {word}", va="center", fontsize=SMALL - 1, color=GREY)
        else:
            _draw_bar(axes, score, scale, start, y, entry.ours)
            reach = score.mean * scale + (score.deviation or 0.0) * scale
            end = max(end, 1.05 * reach)
            bold = "bold" if entry.key in best else "normal"
            axes.annotate(
                board.measure.show(score.mean), (1.0, y), (3, 0), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="center", fontsize=SMALL - 1, fontweight=bold,
            )  # fmt: skip
        if score is not None and score.published is not None:
            face = "white" if score.doubtful else BLACK
            axes.plot([score.published * scale], [y], **{**PUBLISHED, "markerfacecolor": face}, zorder=4)
    axes.set_xlim(start, end if end > start else start + 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if board.measure.target is not None and math.isfinite(board.measure.target):
        axes.axvline(board.measure.target * scale, color=BLACK, linewidth=1.0, linestyle=(0, (4, 2)))
    if board.measure.name in OF_TIME and shown and min(shown) > 0 and max(shown) > _WIDE * min(shown):
        axes.set_xscale("log")
        axes.set_xlim(min(shown) / 2, max(shown) * 2)
        axes.xaxis.set_major_locator(LogLocator(10, numticks=5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.xaxis.set_minor_locator(NullLocator())


def _draw_bar(axes: Axes, score: Score, scale: float, start: float, y: float, mine: bool) -> None:
    if score.mean is None:
        return
    axes.barh(
        y, score.mean * scale - start, left=start, height=0.85, color=OURS if mine else LIGHT,
        edgecolor=BLACK, linewidth=0.5, hatch="///" if mine else None, alpha=0.85 if mine else 1.0,
        xerr=None if not score.deviation else score.deviation * scale,
        error_kw={"elinewidth": 1.0, "capsize": 2.0, "ecolor": BLACK},
    )  # fmt: skip


def _legend(board: Leaderboard) -> list[Line2D]:
    kinds = {s.doubtful for s in board.scores.values() if s.published is not None}
    handles = []
    if False in kinds:
        handles.append(Line2D([], [], **PUBLISHED, label="published, of the same method"))
    if True in kinds:
        handles.append(
            Line2D([], [], **{**PUBLISHED, "markerfacecolor": "white"}, label="published, doubtful")
        )
    return handles

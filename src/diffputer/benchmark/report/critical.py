"""The critical-difference diagram of Demsar (2006): mean ranks, with a bar over those that do not differ."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from .document import describe_friedman
from .drawing import BLACK, GREY, OURS, SMALL, new_figure, settle, wrap
from .leaderboard import Leaderboard, title_board
from .statistics import find_cliques

_NAME_LINES = 2


def draw_critical_difference(board: Leaderboard) -> Figure | None:
    """Draw mean ranks and which entries Nemenyi's test cannot tell apart.

    Parameters
    ----------
    board : Leaderboard
        Of any measure.

    Returns
    -------
    matplotlib.figure.Figure or None
        None where fewer than two entries or data sets can be ranked.
    """
    test = board.friedman
    if test is None:
        return None
    order = sorted(range(len(test.ranks)), key=lambda i: test.ranks[i])
    ranks = [test.ranks[i] for i in order]
    entries = [board.ranked[i] for i in order]
    cliques = find_cliques(ranks, test.critical_difference)
    k, half = len(ranks), (len(ranks) + 1) // 2
    step, gap = 0.36, 0.14
    below = 0.3 + gap * len(cliques)
    depth = below + step * half
    note = describe_friedman(board) + " Bars join entries that Nemenyi's test cannot tell apart."
    figure = new_figure(10.0, depth + 2.0, f"Mean ranks: {title_board(board)}", note)
    axes = figure.add_subplot()
    axes.set_axis_off()
    # Units of the vertical axis are inches, so that words keep their distance whatever the number of entries.
    width = max(k - 1, 1)
    axes.set_xlim(1 - 0.62 * width, k + 0.62 * width)
    axes.set_ylim(-depth - 0.1, 0.85)
    axes.plot([1, k], [0, 0], color=BLACK, linewidth=1.1)
    every = 1 if k <= 15 else math.ceil(k / 12)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, 0.08], color=BLACK, linewidth=1.0)
        if (tick - 1) % every == 0:
            axes.text(tick, 0.13, str(tick), ha="center", va="bottom", fontsize=SMALL)
    length = min(test.critical_difference, width)
    axes.plot([1, 1 + length], [0.5, 0.5], color=BLACK, linewidth=1.6, marker="|", markersize=7)
    cut = "" if length == test.critical_difference else ", longer than the axis"
    axes.text(
        1, 0.58, f"critical difference {test.critical_difference:.2f}{cut}", fontsize=SMALL, va="bottom"
    )
    reach = 0.03 * width
    axes.text(1 - reach, 0, "best", fontsize=SMALL, color=GREY, ha="right", va="center")
    axes.text(k + reach, 0, "worst", fontsize=SMALL, color=GREY, ha="left", va="center")
    for place, (rank, entry) in enumerate(zip(ranks, entries, strict=True)):
        left = place < half
        level = place if left else k - 1 - place
        y = -below - step * (level + 0.5)
        edge = 1 - 0.06 * width if left else k + 0.06 * width
        colour = OURS if entry.ours else BLACK
        axes.plot([rank, rank, edge], [0, y, y], color=colour, linewidth=1.6 if entry.ours else 0.9)
        name = wrap(entry.name, 34, _NAME_LINES)
        text = f"{name}  {rank:.2f}" if "\n" not in name else f"{name} {rank:.2f}"
        axes.text(
            edge + (-0.02 if left else 0.02) * width, y, text, ha="right" if left else "left", va="center",
            fontsize=SMALL, color=BLACK, fontweight="bold" if entry.ours else "normal", parse_math=False,
            linespacing=1.0,
        )  # fmt: skip
    for level, (first, last) in enumerate(cliques):
        y = -0.16 - gap * level
        reach = 0.012 * width
        axes.plot([ranks[first] - reach, ranks[last] + reach], [y, y], color=BLACK, linewidth=3.6)
    return settle(figure)

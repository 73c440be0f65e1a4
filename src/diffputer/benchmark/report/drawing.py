"""How the benchmark's figures look: one style, readable in black and white, without pyplot or display."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .entries import Entry

GREY, LIGHT, OURS, BLACK = "#55595e", "#ced4da", "#d9480f", "#212529"
SMALL, NORMAL = 8, 10
#: The paper's numbers: a black diamond, hollow where they are doubtful.
PUBLISHED: dict[str, Any] = {"marker": "D", "markersize": 5.5, "color": BLACK, "linestyle": "none"}
#: Tints of our entries.
_OURS = (OURS, "#7f2704", "#f59f00", "#a8324a")
_MARKERS = "osD^v<>PXph*"
_RIVALS = ("#1f4e79", "#5b8db8", "#7a7a7a", "#2f6b4f", "#8a6d3b", "#6f4a8e", "#9aa5b1", "#3b3b3b")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))


def new_figure(width: float, height: float, title: str, note: str = "") -> Figure:
    """Make a figure with a title at its left and a note below."""
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08, wspace=0.0, hspace=0.0)
    figure = Figure(figsize=(width, height), dpi=150, layout=layout)
    room = max(int(width * 9.5), 40)
    figure.suptitle(
        textwrap.fill(title, room), x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False
    )
    if note:
        words = textwrap.fill(note, int(width * 16), break_on_hyphens=False)
        figure.supxlabel(words, x=0.01, ha="left", fontsize=SMALL, color=GREY, parse_math=False)
    return figure


def make_grid(n_panels: int, widest: int = 3) -> tuple[int, int]:
    """Give rows and columns of a grid with few empty places.

    Examples
    --------
    >>> make_grid(1), make_grid(4), make_grid(6), make_grid(9)
    ((1, 1), (2, 2), (2, 3), (3, 3))
    """
    columns = 2 if n_panels == 4 else min(widest, max(n_panels, 1))
    return math.ceil(max(n_panels, 1) / columns), columns


def clean(axes: Axes, title: str = "") -> None:
    """Take what is not needed off the axes."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(labelsize=SMALL, color=GREY, labelcolor=BLACK, length=2.5)
    axes.grid(visible=True, color="#e9ecef", linewidth=0.7)
    axes.set_axisbelow(True)
    if title:
        axes.set_title(title, loc="left", fontsize=NORMAL, fontweight="bold", parse_math=False)


def wrap(name: str, width: int = 32, lines: int = 3) -> str:
    """Break a long name into lines.

    Examples
    --------
    >>> wrap("diffputer-paper: lr 3e-4, 2500 steps", 20)
    'diffputer-paper: lr\\n3e-4, 2500 steps'
    """
    parts = textwrap.wrap(name, width, break_on_hyphens=False) or [""]
    if len(parts) > lines:
        parts = [*parts[: lines - 1], textwrap.shorten(" ".join(parts[lines - 1 :]), width, placeholder=" …")]
    return "\n".join(parts)


def style_entries(entries: Sequence[Entry]) -> dict[tuple[str, str], dict[str, Any]]:
    """Give every entry a marker, a dash and a colour: ours tints of orange, rivals blue, grey and green."""
    styles = {}
    counts = {True: 0, False: 0}
    for place, entry in enumerate(entries):
        colours = _OURS if entry.ours else _RIVALS
        colour = colours[counts[entry.ours] % len(colours)]
        counts[entry.ours] += 1
        styles[entry.key] = {
            "marker": _MARKERS[place % len(_MARKERS)],
            "linestyle": _DASHES[(place // len(_MARKERS) + place) % len(_DASHES)],
            "color": colour,
            # The second dozen is hollow, the third pale: no two look the same in black and white.
            "markerfacecolor": (colour, "white", LIGHT)[place // len(_MARKERS) % 3],
        }
    return styles


def scale_seconds(axes: Axes, seconds: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, with seconds a reader can read."""
    axes.set_xscale("log")
    low, high = min(seconds), max(seconds)
    if high / low < 4:
        low, high = low / 2, high * 2
    axes.set_xlim(low / 1.6, high * 1.6)
    wide = math.log10(high / low) > 2.5
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("seconds", fontsize=SMALL, color=GREY)


def settle(figure: Figure) -> Figure:
    """Lay a figure out once and for all: every later drawing would do it again, which takes seconds."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Put a legend to the right of the panels, clear of the title."""
    legend = figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=SMALL)
    for text in legend.get_texts():
        text.set_parse_math(False)


def save_svg(figure: Figure, target: str | Path | BinaryIO) -> None:
    """Save as SVG: the same picture gives the same bytes, and words stay words."""
    with matplotlib.rc_context({"svg.hashsalt": "diffputer", "svg.fonttype": "none"}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": "diffputer"})


def save_png(figure: Figure, target: str | Path) -> None:
    """Save as PNG."""
    figure.savefig(target, format="png", metadata={"Software": "diffputer"})

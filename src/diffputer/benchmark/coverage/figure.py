"""One picture of the summary: coverage by method, design and mechanism, with Monte Carlo intervals."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MultipleLocator

from ..report.drawing import BLACK, GREY, LIGHT, OURS, SMALL, add_legend, clean, new_figure, settle, wrap
from .summary import Line
from .tables import BAND, Group, name_methods, select

#: Where the axis begins; what covers less stands at its edge, with its number.
LEAST = 0.70
#: Vertical room between the marks of a method.
_STEP = 0.26


def draw_coverage(lines: Sequence[Line]) -> Figure:
    """Draw the coverage of every method, one panel a design and mechanism.

    A large mark is the mean over all estimands of a cell, a small dot one estimand.

    Parameters
    ----------
    lines : sequence of Line
        Of `diffputer.benchmark.coverage.summary.summarise`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    designs = list(dict.fromkeys((line.design, line.rows, line.draws) for line in lines))
    mechanisms = list(dict.fromkeys(line.mechanism for line in lines))
    rates = sorted({line.rate for line in lines})
    titles = name_methods(lines)
    height = len(designs) * (0.34 * max(len(titles), 2) + 0.5) + 1.3
    figure = new_figure(
        2.6 + 2.5 * len(mechanisms),
        height,
        "Coverage of 95 % intervals",
        "Large: mean over estimands, with a 95 % Monte Carlo interval; small: each estimand. Shaded: 93 to "
        f"97 %. Arrows: less than {100 * LEAST:g} %.",
    )
    for row, (design, n, m) in enumerate(designs):
        for column, mechanism in enumerate(mechanisms):
            axes = figure.add_subplot(len(designs), len(mechanisms), row * len(mechanisms) + column + 1)
            size = f", n = {n}, m = {m}" if len(designs) > len({d[0] for d in designs}) else ""
            clean(axes, f"{design}, {mechanism.upper()}{size}")
            axes.grid(visible=False, axis="y")
            panel = select(lines, design=design, mechanism=mechanism, rows=n, draws=m).lines
            _draw_panel(axes, panel, titles, rates)
            names = [wrap(title, 26) for title in titles.values()]
            axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names))
            if column == 0:
                for label, (method, _) in zip(axes.get_yticklabels(), titles, strict=True):
                    label.set_color(OURS if method.startswith("diffputer") else BLACK)
    add_legend(figure, [_sample(place, rate) for place, rate in enumerate(rates)])
    return settle(figure)


def _draw_panel(
    axes: Axes, lines: Sequence[Line], titles: dict[tuple[str, str], str], rates: Sequence[float]
) -> None:
    axes.axvspan(*BAND, color="#e6f4ea", zorder=0)
    axes.axvline(0.95, color=GREY, linewidth=0.8, zorder=1)
    for y, (method, settings) in enumerate(titles):
        colour = OURS if method.startswith("diffputer") else BLACK
        for place, rate in enumerate(rates):
            group = select(lines, method=method, settings_hash=settings, rate=rate)
            _draw_marks(axes, group, y + (place - (len(rates) - 1) / 2) * _STEP, colour, _face(place, colour))
    axes.set_xlim(LEAST - 0.012, 1.006)
    axes.set_ylim(len(titles) - 0.45, -0.55)
    axes.xaxis.set_major_locator(MultipleLocator(0.1))
    axes.xaxis.set_minor_locator(MultipleLocator(0.05))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))


def _draw_marks(axes: Axes, group: Group, y: float, colour: str, face: str) -> None:
    for line in group.lines:
        if line.coverage is not None and line.coverage >= LEAST:
            axes.plot(line.coverage, y, ".", markersize=2.5, color=colour, alpha=0.55, zorder=2)
    coverage, ends = group.coverage, group.monte_carlo
    if coverage is None or ends is None:
        return
    if coverage < LEAST:
        axes.plot(LEAST, y, "<", markersize=4.5, color=colour, markerfacecolor=face, zorder=4)
        axes.annotate(
            f"{100 * coverage:.0f}", (LEAST, y), (5, 0), textcoords="offset points", fontsize=SMALL - 2,
            color=colour, va="center", zorder=5, bbox={"facecolor": "white", "linewidth": 0, "pad": 0.4},
        )  # fmt: skip
        return
    axes.plot((max(ends[0], LEAST), ends[1]), (y, y), "-", linewidth=1.1, color=colour, zorder=3)
    axes.plot(coverage, y, "o", markersize=4.5, color=colour, markerfacecolor=face, zorder=4)


def _face(place: int, colour: str) -> str:
    """Low rates are filled, the next hollow, others grey."""
    return (colour, "white", LIGHT)[min(place, 2)]


def _sample(place: int, rate: float) -> Line2D:
    return Line2D([], [], marker="o", linestyle="-", linewidth=1.1, markersize=4.5, color=BLACK,
                  markerfacecolor=_face(place, BLACK), label=f"{100 * rate:g} % missing")  # fmt: skip

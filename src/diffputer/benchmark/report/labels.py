"""Words beside points of a figure, placed so that they can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from .drawing import BLACK, GREY, SMALL

Box = tuple[float, float, float, float]
#: In pixels: half a point's mark, and how finely a leader is covered.
_MARK, _STEP = 11, 3
_LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 4}


@dataclass(frozen=True)
class Label:
    """Words for a point of the axes."""

    text: str
    x: float
    y: float
    colour: str = BLACK
    size: float = SMALL


def place_labels(
    figure: Figure, axes: Axes, labels: Sequence[Label], others: Sequence[tuple[float, float]] = ()
) -> None:
    """Write words beside their points, where they cover neither other words nor points nor lines.

    Parameters
    ----------
    figure : Figure
        Drawn once already, so that the axes are where they will be.
    axes : Axes
        Of the points.
    labels : sequence of Label
        Words with their points.
    others : sequence of (x, y)
        More points that are not to be covered.
    """
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    frame = axes.get_window_extent(renderer)
    to_pixels = axes.transData.transform
    marks = [(label.x, label.y) for label in labels] + list(others)
    taken: list[Box] = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in map(to_pixels, marks)]
    taken += _cover_front(axes)
    for label in sorted(labels, key=lambda label: label.y):
        best: tuple[float, Annotation, list[Box]] | None = None
        for dx, dy, side, reach in _candidates():
            text = axes.annotate(
                label.text, (label.x, label.y), (dx, dy), textcoords="offset points", fontsize=label.size,
                ha=side, va="center", parse_math=False, color=label.colour, linespacing=1.0, zorder=5,
                arrowprops=_LEADER if reach else None,
            )  # fmt: skip
            text.set_in_layout(False)
            text.update_positions(renderer)
            box = Text.get_window_extent(text, renderer)
            corners = (box.x0, box.y0, box.x1, box.y1)
            outside = max(frame.x0 - box.x0, 0) + max(box.x1 - frame.x1, 0)
            outside += max(frame.y0 - box.y0, 0) + max(box.y1 - frame.y1, 0)
            leader = _cover_leader(corners, *to_pixels((label.x, label.y))) if reach else []
            cost = 50 * outside + 2 * reach
            cost += 3 * sum(_overlap(part, other) for part in (corners, *leader) for other in taken)
            if best is not None and cost >= best[0]:
                text.remove()
                continue
            if best is not None:
                best[1].remove()
            best = (cost, text, [corners, *leader])
        if best is not None:
            taken += best[2]


def _cover_front(axes: Axes) -> list[Box]:
    """Boxes along the lines of the axes that are there so far."""
    boxes: list[Box] = []
    for line in axes.get_lines():
        corners = axes.transData.transform(line.get_path().vertices)
        for (x0, y0), (x1, y1) in pairwise(corners):
            boxes.append((min(x0, x1) - 2, min(y0, y1) - 2, max(x0, x1) + 2, max(y0, y1) + 2))
    return boxes


def _cover_leader(words: Box, x: float, y: float) -> list[Box]:
    """Boxes along the line from the middle of words to their point, outside both."""
    x0, y0 = (words[0] + words[2]) / 2, (words[1] + words[3]) / 2
    dx, dy = x - x0, y - y0
    length = math.hypot(dx, dy)
    boxes: list[Box] = []
    for way in range(0, max(0, int(length) - _MARK), _STEP):
        at_x, at_y = x0 + dx * way / length, y0 + dy * way / length
        box = (at_x - _STEP, at_y - _STEP, at_x + _STEP, at_y + _STEP)
        if not _overlap(box, words):
            boxes.append(box)
    return boxes


def _candidates() -> list[tuple[float, float, str, float]]:
    """Offsets in points, side, and how far: right and left first, then above and below, then further off."""
    near = [(7.0, 0.0, "left", 0.0), (-7.0, 0.0, "right", 0.0)]
    for far in (11.0, 20.0, 32.0, 46.0, 64.0):
        for sign in (1, -1):
            near += [
                (0.0, sign * far, "center", 0.0 if far == 11.0 else far),
                (12.0, sign * far, "left", far),
                (-12.0, sign * far, "right", far),
            ]
    return near


def _overlap(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0

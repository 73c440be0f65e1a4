"""Error against seconds: which method is worth its time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..published import PUBLISHED_DEVICE, PUBLISHED_RATE, find_published, list_published_methods
from .document import title_board
from .drawing import (
    BLACK,
    GREY,
    OURS,
    SMALL,
    clean,
    make_grid,
    new_figure,
    scale_seconds,
    style_entries,
    wrap,
)  # fmt: skip
from .entries import Entry, Key
from .leaderboard import Leaderboard

_FRONT: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": (0, (4, 2))}


@dataclass(frozen=True)
class Point:
    """Seconds and error of an entry; the loss decides which is better."""

    entry: Entry
    seconds: float
    value: float
    loss: float


def find_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Give the positions of the points that no other beats in both numbers, by the first number.

    Examples
    --------
    >>> find_front([(1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (9.0, 1.0), (9.0, 2.0)])
    [0, 1, 3]
    """
    front: list[int] = []
    for position in sorted(range(len(points)), key=lambda i: points[i]):
        if not front or points[position][1] < points[front[-1]][1]:
            front.append(position)
    return front


def draw_error_against_seconds(errors: Leaderboard, seconds: Leaderboard) -> Figure | None:
    """Draw every ranked entry's average error against its seconds, with the Pareto front.

    Parameters
    ----------
    errors, seconds : Leaderboard
        Of the same rows and setting, an error and "seconds".

    Returns
    -------
    matplotlib.figure.Figure or None
        None where no entry has both on the common data sets.
    """
    points = []
    for entry in errors.ranked:
        average = errors.average(entry)
        scores = [seconds.score(entry, name) for name in errors.common_datasets]
        times = [s.mean for s in scores if s is not None and s.mean is not None and s.mean > 0]
        if average is None or len(times) < len(errors.common_datasets):
            continue
        points.append(Point(entry, statistics.geometric_mean(times), average, errors.measure.loss(average)))
    if not points:
        return None
    n = len(errors.common_datasets)
    where = f"average of {n} data sets, geometric mean of seconds" if n > 1 else errors.common_datasets[0]
    note = f"{where[:1].upper() + where[1:]}. {_describe_devices([p.entry for p in points])}"
    if errors.left_out:
        note += f" Not drawn for want of results: {', '.join(e.name for e in errors.left_out)}."
    figure = new_figure(8.6, 5.2, f"Error against seconds: {title_board(errors)}", note)
    axes = figure.add_subplot()
    clean(axes)
    styles = style_entries(errors.entries)
    _draw_points(axes, points, styles, errors.measure.scale)
    _frame(axes, errors, points)
    _label_points(figure, axes, points, errors.measure.scale)
    axes.set_xlabel("seconds to fit and complete (logarithmic)", fontsize=SMALL + 1, color=GREY)
    axes.set_ylabel(f"{errors.measure.heading}, {errors.measure.direction}", fontsize=SMALL + 1, color=GREY)
    axes.legend(handles=[Line2D([], [], **_FRONT, label="Pareto front")], frameon=False, fontsize=SMALL)
    return figure


def draw_error_against_seconds_by_dataset(errors: Leaderboard, seconds: Leaderboard) -> Figure | None:
    """Draw the same with one panel a data set, every entry that has both there, and the paper's points."""
    panels: dict[str, list[Point]] = {}
    for dataset in errors.datasets:
        for entry in errors.entries:
            score, time = errors.score(entry, dataset), seconds.score(entry, dataset)
            if score is None or time is None or score.mean is None or not time.mean:
                continue
            point = Point(entry, time.mean, score.mean, errors.measure.loss(score.mean))
            panels.setdefault(dataset, []).append(point)
    if not panels:
        return None
    present = [e for e in errors.entries if any(p.entry == e for points in panels.values() for p in points)]
    n_rows, n_columns = make_grid(len(panels))
    published = {name: _find_published_points(errors, name) for name in panels}
    shown = sum(map(bool, published.values()))
    note = _describe_devices(present)
    if shown:
        note += f" Crosses: the paper's error and training seconds ({PUBLISHED_DEVICE})."
    lines = sum(wrap(e.name, 34).count("\n") + 1 for e in present) + 2
    height = max(n_rows * 2.35 + 0.9, 0.17 * lines + 1.2)
    figure = new_figure(2.5 * n_columns + 3.2, height, f"Error against seconds: {title_board(errors)}", note)
    styles = style_entries(errors.entries)
    for place, (dataset, points) in enumerate(panels.items()):
        axes = figure.add_subplot(n_rows, n_columns, place + 1)
        clean(axes, dataset)
        _draw_points(axes, points, styles, errors.measure.scale)
        for name, when, value in published[dataset]:
            axes.plot([when], [value * errors.measure.scale], "x", color=BLACK, markersize=6)
            axes.annotate(
                name, (when, value * errors.measure.scale), (-5, 4), textcoords="offset points",
                fontsize=SMALL - 1.5, ha="right",
            )  # fmt: skip
        _frame(axes, errors, points, published[dataset])
        if place % n_columns == 0:
            axes.set_ylabel(errors.measure.heading, fontsize=SMALL, color=GREY)
    handles = [
        Line2D([], [], **{**styles[e.key], "linestyle": "none"}, label=wrap(e.name, 34)) for e in present
    ]
    handles.append(Line2D([], [], **_FRONT, label="Pareto front"))
    if shown:
        handles.append(Line2D([], [], marker="x", color=BLACK, linestyle="none", label="published"))
    legend = figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=SMALL)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _draw_points(
    axes: Axes, points: Sequence[Point], styles: Mapping[Key, Mapping[str, Any]], scale: float
) -> None:
    front = [points[i] for i in find_front([(p.seconds, p.loss) for p in points])]
    if len(front) > 1:
        axes.plot([p.seconds for p in front], [p.value * scale for p in front], **_FRONT, zorder=1)
    for point in points:
        style = {**styles[point.entry.key], "linestyle": "none", "markersize": 7, "markeredgewidth": 1.2}
        axes.plot([point.seconds], [point.value * scale], **style, zorder=3)


def _frame(
    axes: Axes,
    errors: Leaderboard,
    points: Sequence[Point],
    published: Sequence[tuple[str, float, float]] = (),
) -> None:
    scale_seconds(axes, [p.seconds for p in points] + [when for _, when, _ in published])
    values = [p.value * errors.measure.scale for p in points]
    values += [value * errors.measure.scale for _, _, value in published]
    room = 0.14 * (max(values) - min(values) or abs(max(values)) or 1.0)
    axes.set_ylim(min(values) - room, max(values) + room)
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _find_published_points(errors: Leaderboard, dataset: str) -> list[tuple[str, float, float]]:
    """Give name, training seconds and error of the methods of which the paper has both."""
    if errors.rate != PUBLISHED_RATE or errors.mechanism != "mcar":
        return []
    found = []
    for name in list_published_methods("seconds"):
        when = find_published(dataset, "mcar", "in_sample", "seconds", name)
        error = find_published(dataset, "mcar", errors.setting, errors.measure.name, name)
        if when and error and not error[1]:
            found.append((name, when[0], error[0]))
    return found


def _describe_devices(entries: Sequence[Entry]) -> str:
    devices = dict.fromkeys(device for entry in entries for device in entry.devices)
    if len(devices) > 1:
        return f"Seconds are of different devices and compare only in order of size: {', '.join(devices)}."
    return f"Device: {next(iter(devices), 'unknown')}."


def _label_points(figure: Figure, axes: Axes, points: Sequence[Point], scale: float) -> None:
    """Write each name beside its point, where it covers neither another name nor a point."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    frame = axes.get_window_extent(renderer)
    at = [axes.transData.transform((p.seconds, p.value * scale)) for p in points]
    taken: list[tuple[float, float, float, float]] = [(x - 7, y - 7, x + 7, y + 7) for x, y in at]
    for point, _ in sorted(zip(points, at, strict=True), key=lambda pair: float(pair[1][1])):
        best = None
        for dx, dy, side, reach in _candidates():
            text = axes.annotate(
                wrap(point.entry.name, 30, 2), (point.seconds, point.value * scale), (dx, dy),
                textcoords="offset points", fontsize=SMALL, ha=side, va="center", parse_math=False,
                color=OURS if point.entry.ours else BLACK, annotation_clip=False, linespacing=1.0,
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5} if reach else None,
            )  # fmt: skip
            box = text.get_window_extent(renderer)
            corners = (box.x0, box.y0, box.x1, box.y1)
            outside = max(frame.x0 - box.x0, 0) + max(box.x1 - frame.x1, 0)
            outside += max(frame.y0 - box.y0, 0) + max(box.y1 - frame.y1, 0)
            cost = 10 * outside + sum(_overlap(corners, other) for other in taken) + 2 * reach
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = (cost, text, corners)
            else:
                text.remove()
        if best is not None:
            taken.append(best[2])


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


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0

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
from .drawing import (
    BLACK,
    GREY,
    OURS,
    SMALL,
    add_legend,
    clean,
    make_grid,
    new_figure,
    scale_seconds,
    settle,
    style_entries,
    wrap,
)
from .entries import Entry, Key
from .labels import Label, place_labels
from .leaderboard import Leaderboard, title_board
from .records import name_class

_FRONT: dict[str, Any] = {"color": GREY, "linewidth": 1.2}
#: Of the fronts of different devices.
_DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (9, 3)))
_MOST_NAMED = 4
#: Beside names, where classes of devices differ.
_NUMBERS = "①②③④⑤⑥⑦⑧⑨⑩"
#: Of devices: seconds of entries compare where these are the same.
Classes = tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """Seconds and error of an entry, on devices of these classes; the loss decides which is better."""

    entry: Entry
    seconds: float
    value: float
    loss: float
    classes: Classes


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


def average_seconds(errors: Leaderboard, seconds: Leaderboard, entry: Entry) -> float | None:
    """Give the geometric mean over the common data sets of an entry's mean seconds on the common tasks.

    Where an entry had the machine to itself for some masks of a data set, its seconds are of these.

    Parameters
    ----------
    errors, seconds : Leaderboard
        Of the same rows and setting, an error, whose common tasks count, and "seconds".
    entry : Entry
        A ranked one.

    Returns
    -------
    float or None
        None where a common task has no seconds.
    """
    means = []
    for name in errors.common_datasets:
        score = seconds.score(entry, name)
        masks = [mask for dataset, mask in errors.tasks if dataset == name]
        if score is None or not all(score.by_mask.get(mask, 0.0) > 0 for mask in masks):
            return None
        undisturbed = score.undisturbed.values()
        means.append(statistics.fmean(undisturbed or [score.by_mask[mask] for mask in masks]))
    return statistics.geometric_mean(means) if means else None


def title_seconds(errors: Leaderboard) -> str:
    """Name a figure of error against seconds: MAE (× 100), in sample, MCAR 30 %, against seconds."""
    return f"{title_board(errors)}, against seconds"


def describe_busy(seconds: Leaderboard, entries: Sequence[Entry]) -> str:
    """Name the entries whose machine did other work at the same time, or say nothing."""
    busy = [
        entry.name
        for entry in entries
        if any(s.busy and not s.undisturbed for (key, _), s in seconds.scores.items() if key == entry.key)
    ]
    if not busy:
        return ""
    quiet = [entry.name for entry in entries if entry.name not in busy]
    named = ", ".join(busy)
    if len(busy) > max(1, 2 * len(quiet)):
        named = f"all but {', '.join(quiet)}" if quiet else "all"
    return f"The machine did other work at the same time, so that seconds are too many: {named}."


def draw_error_against_seconds(
    errors: Leaderboard, seconds: Leaderboard, everyone: Sequence[Entry]
) -> Figure | None:
    """Draw the average error of every ranked entry against its seconds, and fronts: one a class of devices.

    Parameters
    ----------
    errors, seconds : Leaderboard
        Of the same rows and setting, an error and "seconds".
    everyone : sequence of Entry
        Of the report: markers, colours and numbers of devices' classes are the same in all of its figures.

    Returns
    -------
    matplotlib.figure.Figure or None
        None where no entry has both on the common data sets.
    """
    points = []
    for entry in errors.ranked:
        average, time = errors.average(entry), average_seconds(errors, seconds, entry)
        if average is None or time is None:
            continue
        points.append(Point(entry, time, average, errors.measure.loss(average), entry.classes))
    if not points:
        return None
    n = len(errors.common_datasets)
    where = f"average of {n} data sets, geometric mean of seconds" if n > 1 else errors.common_datasets[0]
    numbers = _number_classes(everyone, [p.entry for p in points])
    note = f"{where[:1].upper() + where[1:]}. {describe_devices([p.entry for p in points], numbers)}"
    note += f" {describe_busy(seconds, [p.entry for p in points])}".rstrip()
    if errors.left_out:
        absent = [entry.name for entry in errors.left_out]
        more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
        note += f" Not drawn for want of results: {'; '.join(absent[:_MOST_NAMED])}{more}."
    figure = new_figure(8.6, 5.2, title_seconds(errors), note)
    axes = figure.add_subplot()
    clean(axes)
    fronts = _style_fronts(points, numbers)
    _draw_points(axes, points, style_entries(everyone), fronts, errors.measure.scale)
    _frame(axes, errors, points)
    axes.set_xlabel("seconds to fit and complete (logarithmic)", fontsize=SMALL + 1, color=GREY)
    axes.set_ylabel(f"{errors.measure.heading}, {errors.measure.direction}", fontsize=SMALL + 1, color=GREY)
    axes.legend(handles=_list_fronts([points], fronts), frameon=False, fontsize=SMALL)
    settle(figure)
    labels = [
        Label(
            wrap(_name_with_numbers(p.entry, numbers), 34, 3), p.seconds, p.value * errors.measure.scale,
            OURS if p.entry.ours else BLACK,
        )
        for p in points
    ]  # fmt: skip
    place_labels(figure, axes, labels)
    return figure


def draw_error_against_seconds_by_dataset(
    errors: Leaderboard, seconds: Leaderboard, everyone: Sequence[Entry]
) -> Figure | None:
    """Draw the same with one panel a data set, every entry that has both there, and the paper's points.

    Where an entry had the machine to itself for some masks of a data set, its seconds are of these.
    """
    panels: dict[str, list[Point]] = {}
    for dataset in errors.datasets:
        for entry in errors.entries:
            score, time = errors.score(entry, dataset), seconds.score(entry, dataset)
            if score is None or time is None or score.mean is None or not time.quiet_mean:
                continue
            point = Point(entry, time.quiet_mean, score.mean, errors.measure.loss(score.mean), time.classes)
            panels.setdefault(dataset, []).append(point)
    if not panels:
        return None
    present = [e for e in errors.entries if any(p.entry == e for points in panels.values() for p in points)]
    n_rows, n_columns = make_grid(len(panels))
    published = {name: _find_published_points(errors, name) for name in panels}
    shown = sum(map(bool, published.values()))
    numbers = _number_classes(everyone, present)
    note = f"{describe_devices(present, numbers)} {describe_busy(seconds, present)}".rstrip()
    if shown:
        note += f" Crosses: the paper's error and training seconds ({PUBLISHED_DEVICE})."
    fronts = _style_fronts([point for points in panels.values() for point in points], numbers)
    of_fronts = _list_fronts(list(panels.values()), fronts)
    names = {e.key: wrap(_name_with_numbers(e, numbers), 34) for e in present}
    lines = sum(name.count("\n") + 1 for name in names.values()) + len(of_fronts) + 1
    height = max(n_rows * 2.35 + 0.9, 0.17 * lines + 1.2)
    figure = new_figure(2.5 * n_columns + 3.2, height, title_seconds(errors), note)
    styles = style_entries(everyone)
    for place, (dataset, points) in enumerate(panels.items()):
        axes = figure.add_subplot(n_rows, n_columns, place + 1)
        clean(axes, dataset)
        _draw_points(axes, points, styles, fronts, errors.measure.scale)
        for _, when, value in published[dataset]:
            axes.plot([when], [value * errors.measure.scale], "x", color=BLACK, markersize=6)
        _frame(axes, errors, points, published[dataset])
        if place < len(panels) - n_columns:
            axes.set_xlabel("")
        if place % n_columns == 0:
            axes.set_ylabel(errors.measure.heading, fontsize=SMALL, color=GREY)
    handles = [Line2D([], [], **{**styles[e.key], "linestyle": "none"}, label=names[e.key]) for e in present]
    handles += of_fronts
    if shown:
        handles.append(Line2D([], [], marker="x", color=BLACK, linestyle="none", label="published"))
    add_legend(figure, handles)
    settle(figure)
    scale = errors.measure.scale
    for axes, (dataset, points) in zip(figure.axes, panels.items(), strict=True):
        labels = [Label(name, x, y * scale, size=SMALL - 1.5) for name, x, y in published[dataset]]
        place_labels(figure, axes, labels, [(p.seconds, p.value * scale) for p in points])
    return figure


def _draw_points(
    axes: Axes,
    points: Sequence[Point],
    styles: Mapping[Key, Mapping[str, Any]],
    fronts: Mapping[Classes, Mapping[str, Any]],
    scale: float,
) -> None:
    for classes, front in _find_fronts(points).items():
        across, up = [p.seconds for p in front], [p.value * scale for p in front]
        axes.step(across, up, where="post", **fronts[classes], zorder=1)
    for point in points:
        style = {**styles[point.entry.key], "linestyle": "none", "markersize": 7, "markeredgewidth": 1.2}
        if point.entry.ours and style["markerfacecolor"] == style["color"]:
            # Ours are often close together: a white edge tells one from another that it covers in part.
            style |= {"markeredgecolor": "white", "markersize": 8, "markeredgewidth": 0.8}
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


def _find_fronts(points: Sequence[Point]) -> dict[Classes, list[Point]]:
    """Give the front of the points of the same classes of devices, where it has two at least."""
    groups: dict[Classes, list[Point]] = {}
    for point in points:
        groups.setdefault(point.classes, []).append(point)
    fronts = {
        classes: [group[i] for i in find_front([(p.seconds, p.loss) for p in group])]
        for classes, group in groups.items()
    }
    return {classes: front for classes, front in fronts.items() if len(front) > 1}


def _style_fronts(points: Sequence[Point], numbers: Mapping[str, str]) -> dict[Classes, dict[str, Any]]:
    """Give every front a dash of its own, and a label that tells its devices where they differ."""
    order = list(numbers)
    groups = sorted({p.classes for p in points}, key=lambda classes: [order.index(c) for c in classes])
    return {
        classes: {
            **_FRONT,
            "linestyle": _DASHES[place % len(_DASHES)],
            "label": _add_numbers("Pareto front", classes, numbers),
        }
        for place, classes in enumerate(groups)
    }


def _list_fronts(
    panels: Sequence[Sequence[Point]], fronts: Mapping[Classes, Mapping[str, Any]]
) -> list[Line2D]:
    """Give lines for a legend, of the fronts that are drawn."""
    drawn = {classes for points in panels for classes in _find_fronts(points)}
    return [Line2D([], [], **style) for classes, style in fronts.items() if classes in drawn]


def _name_with_numbers(entry: Entry, numbers: Mapping[str, str]) -> str:
    return _add_numbers(entry.name, entry.classes, numbers)


def _add_numbers(name: str, classes: Classes, numbers: Mapping[str, str]) -> str:
    """Add the numbers of classes of devices to a name, where a figure has several."""
    return f"{name} {''.join(numbers[c] for c in classes)}".rstrip() if len(numbers) > 1 else name


def _number_classes(everyone: Sequence[Entry], shown: Sequence[Entry]) -> dict[str, str]:
    """Give the classes of the entries shown, with the numbers that they have in all figures of a report."""
    classes = dict.fromkeys(name for entry in everyone for name in entry.classes)
    there = {name for entry in shown for name in entry.classes}
    return {
        name: _NUMBERS[place] if place < len(_NUMBERS) else f"({place + 1})"
        for place, name in enumerate(classes)
        if name in there
    }


def describe_devices(entries: Sequence[Entry], numbers: Mapping[str, str] | None = None) -> str:
    """Name the devices by class, with the numbers of classes in a figure; say what does not compare."""
    devices = dict.fromkeys(device for entry in entries for device in entry.devices)
    of_class: dict[str, list[str]] = {}
    for device in devices:
        of_class.setdefault(name_class(device), []).append(device)
    words = []
    for name in numbers or of_class:
        several = [device.removesuffix(name.removeprefix("CPU")) for device in of_class[name]]
        told = f"{name} ({' or '.join(several)})" if len(several) > 1 else of_class[name][0]
        words.append(f"{numbers[name]} {told}" if numbers and len(numbers) > 1 else told)
    if len(words) > 1:
        return f"Seconds of different devices do not compare: {'; '.join(words)}."
    return f"Device: {next(iter(words), 'unknown')}."

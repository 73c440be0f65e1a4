"""Curves: EM rounds, number of draws, sampling steps, share of missing cells."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from ..metrics import Floats
from ..published import PUBLISHED_RATE, find_published
from .drawing import (
    GREY,
    PUBLISHED,
    SMALL,
    add_legend,
    clean,
    make_grid,
    new_figure,
    settle,
    style_entries,
    wrap,
)
from .entries import Entry, Key, describe_differences
from .measures import NOT_NEGATIVE, OF_TIME, SHARES, Measure, order_datasets
from .records import Record, name_kind

#: Of the horizontal axis; logit is that of a share in percent.
Scale = Literal["linear", "log", "logit"]
#: Horizontal number -> mask -> value.
Points = dict[float, dict[int, float]]
_TITLES = {"in_sample": "in sample", "out_of_sample": "out of sample"}
_LEGEND_WIDTH = 34
#: Of failed points so many are named.
_MOST_NAMED = 6
#: An axis from 0 ends at so many times the largest number: at its very end a line would be cut in half.
_HEADROOM = 1.08
#: How labels name a setting, and what they are where nothing else was changed.
_LETTERS = {"n_draws": "N", "sampling_steps": "M"}
_UNCHANGED = ("", "base", "default")


@dataclass(frozen=True)
class Curves:
    """Panel -> line -> points; lines have names and styles. Whiskers of positive numbers end at 0."""

    panels: Mapping[str, Mapping[str, Points]]
    names: Mapping[str, str]
    styles: Mapping[str, Mapping[str, Any]]
    positive: bool = True

    def height_of_legend(self) -> float:
        """Inches."""
        return 0.17 * sum(wrap(name, _LEGEND_WIDTH).count("\n") + 1 for name in self.names.values()) + 0.5


def draw_em_curve(
    curve: Sequence[Record], entries: Mapping[Key, Entry], measure: Measure, setting: str
) -> Figure | None:
    """Draw the error after every EM round, one panel a data set.

    The paper's number is left out: it is of whole tables and of all draws.
    """
    mine = [r for r in curve if r.setting == setting]
    curves = _collect(mine, entries, measure, lambda r: r.em_round, keep=_drop_rounds, at_least=1)
    if curves is None:
        return None
    rows = sorted({r.rows for r in mine if r.rows})
    size = f"the first {rows[0]:,} rows" if len(rows) == 1 else "the first rows"
    note = f"Scored on {size} of each table, with the few draws that EM takes; rounds that all masks have."
    title = f"{measure.heading} after each EM round, {_TITLES[setting]}, {_kinds(mine)}"
    return _draw(curves, title, "EM round", measure, note)


def draw_draws(
    records: Sequence[Record], entries: Mapping[Key, Entry], measure: Measure, setting: str
) -> Figure | None:
    """Draw the error against the number N of draws, of results that differ in nothing else."""
    curves = _collect_setting(records, entries, measure, setting, "n_draws")
    if curves is None:
        return None
    title = f"{measure.heading} against the number of draws N, {_TITLES[setting]}, {_kinds(records)}"
    return _draw(curves, title, "draws N that an imputed value averages", measure, scale="log")


def draw_steps(
    records: Sequence[Record],
    entries: Mapping[Key, Entry],
    measure: Measure,
    seconds: Measure,
    setting: str,
) -> Figure | None:
    """Draw the error, and below it the seconds, against the number M of sampling steps."""
    errors = _collect_setting(records, entries, measure, setting, "sampling_steps")
    if errors is None:
        return None
    title = f"{measure.heading} and seconds against sampling steps M, {_TITLES[setting]}, {_kinds(records)}"
    times = _collect_setting(records, entries, seconds, setting, "sampling_steps")
    below = None if times is None else (times, seconds)
    return _draw(errors, title, "sampling steps M", measure, scale="log", below=below)


def draw_rates(
    records: Sequence[Record], entries: Mapping[Key, Entry], measure: Measure, setting: str, mechanism: str
) -> Figure | None:
    """Draw the error against the share of missing cells."""
    mine = [r for r in records if r.setting == setting and r.mechanism == mechanism]
    curves = _collect(mine, entries, measure, lambda r: 100 * r.rate)
    if curves is None:
        return None
    title = (
        f"{measure.heading} against the share of missing cells, {_TITLES[setting]}, {name_kind(mechanism)}"
    )
    published = {
        name: number
        for name in curves.panels
        if (number := _published(mine, name, measure, setting)) is not None
    }
    note = "Diamond: published, DiffPuter at 30 %." if published else ""
    note = f"{note} {_describe_failed(mine, entries, measure)}".strip()
    across = "missing cells (%), logit scale"
    return _draw(curves, title, across, measure, note, scale="logit", published=published)


def _describe_failed(records: Iterable[Record], entries: Mapping[Key, Entry], measure: Measure) -> str:
    """Name the points that are not drawn as their runs failed, or say nothing."""
    failed: dict[tuple[str, float], dict[str, None]] = {}
    for record in records:
        if record.error and not record.cannot and measure.name not in record.values:
            place = (entries[record.entry].name, record.rate)
            failed.setdefault(place, {})[record.dataset] = None
    named = [
        f"{name} at {100 * rate:g} % ({', '.join(order_datasets(set(datasets)))})"
        for (name, rate), datasets in sorted(failed.items())
    ]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"Failed, on some mask at least: {'; '.join(named[:_MOST_NAMED])}{more}." if named else ""


def _collect(
    records: Iterable[Record],
    entries: Mapping[Key, Entry],
    measure: Measure,
    where: Callable[[Record], float | None],
    keep: Callable[[Points], Points] | None = None,
    at_least: int = 2,
) -> Curves | None:
    """Lines of entries; one that has too few points on a data set is left out there."""
    panels: dict[str, dict[str, Points]] = {}
    for record in records:
        x = where(record)
        if x is not None and measure.name in record.values:
            line = panels.setdefault(record.dataset, {}).setdefault(entries[record.entry].name, {})
            line.setdefault(x, {})[record.mask_seed] = record.values[measure.name] * measure.scale
    kept = _keep_lines(panels, keep or _drop_masks, at_least)
    if not kept:
        return None
    styles = style_entries(list(entries.values()))
    keys = {entry.name: key for key, entry in entries.items()}
    names = list(dict.fromkeys(name for lines in kept.values() for name in lines))
    looks = {name: styles[keys[name]] for name in names}
    return Curves(kept, {name: name for name in names}, looks, _is_positive(measure))


def _collect_setting(
    records: Iterable[Record], entries: Mapping[Key, Entry], measure: Measure, setting: str, name: str
) -> Curves | None:
    """Lines of results that differ in one setting only, in their labels too.

    A label tells of what settings do not: an experiment that changed the code has the settings of others.
    """
    panels: dict[str, dict[str, Points]] = {}
    first: dict[str, Entry] = {}
    for record in records:
        x = record.settings.get(name)
        if record.setting != setting or measure.name not in record.values:
            continue
        if isinstance(x, bool) or not isinstance(x, int | float):
            continue
        others = {k: v for k, v in record.settings.items() if k != name}
        rest = _drop_setting(record.label, name)
        line = json.dumps([record.method, others, rest], sort_keys=True, default=str)
        first.setdefault(line, entries[record.entry])
        points = panels.setdefault(record.dataset, {}).setdefault(line, {})
        points.setdefault(float(x), {})[record.mask_seed] = record.values[measure.name] * measure.scale
    kept = _keep_lines(panels, _drop_masks, 2)
    if not kept:
        return None
    used = list(dict.fromkeys(line for lines in kept.values() for line in lines))
    styles = style_entries(list(entries.values()))
    looks = {line: styles[first[line].key] for line in used}
    return Curves(kept, _name_lines(used), looks, _is_positive(measure))


def _name_lines(lines: Sequence[str]) -> dict[str, str]:
    """Name lines by method, label and other settings, as far as these differ.

    >>> lines = [json.dumps(["diffputer-paper", {"lr": lr}, ""]) for lr in (1, 2)]
    >>> list(_name_lines(lines).values()), list(_name_lines(lines[:1]).values())
    (['diffputer-paper, lr=1', 'diffputer-paper, lr=2'], ['diffputer-paper'])
    """
    parts = {line: json.loads(line) for line in lines}
    methods = [method for method, _, _ in parts.values()]
    names = {
        line: f"{method}: {rest}" if rest and methods.count(method) > 1 else method
        for line, (method, _, rest) in parts.items()
    }
    for name in set(names.values()):
        same = [line for line in lines if names[line] == name]
        if len(same) > 1:
            words = describe_differences([parts[line][1] for line in same])
            for place, (line, difference) in enumerate(zip(same, words, strict=True), start=1):
                names[line] = f"{name}, {difference or place}"
    return names


def _is_positive(measure: Measure) -> bool:
    return measure.name in (*NOT_NEGATIVE, *SHARES, *OF_TIME)


def _drop_setting(label: str, name: str) -> str:
    """Give what a label says besides a setting's value.

    >>> _drop_setting("lr 1e-4, N = 20, 8 rounds", "n_draws"), _drop_setting("n_draws=5", "n_draws")
    ('lr 1e-4, 8 rounds', '')
    """
    said = rf"\b(?:{name}|{_LETTERS[name]})\s*=\s*\d+"
    parts = (re.sub(said, "", part).strip() for part in label.split(","))
    rest = ", ".join(part for part in parts if part)
    return "" if rest in _UNCHANGED else rest


def _drop_masks(points: Points) -> Points:
    """Keep the masks that all points have: what differs between points is then not the mask."""
    common = set.intersection(*(set(masks) for masks in points.values()))
    return {x: {mask: masks[mask] for mask in sorted(common)} for x, masks in points.items() if common}


def _drop_rounds(points: Points) -> Points:
    """Keep the points that all masks have: EM stops earlier on some masks than on others."""
    every = set.union(*(set(masks) for masks in points.values()))
    return {x: masks for x, masks in points.items() if set(masks) == every}


def _keep_lines(
    panels: Mapping[str, Mapping[str, Points]], keep: Callable[[Points], Points], at_least: int
) -> dict[str, dict[str, Points]]:
    kept: dict[str, dict[str, Points]] = {}
    for dataset in order_datasets(set(panels)):
        lines = {line: keep(points) for line, points in panels[dataset].items()}
        if lines := {line: points for line, points in lines.items() if len(points) >= at_least}:
            kept[dataset] = lines
    return kept


def _draw(
    curves: Curves,
    title: str,
    across: str,
    measure: Measure,
    note: str = "",
    *,
    scale: Scale = "linear",
    published: Mapping[str, float] | None = None,
    below: tuple[Curves, Measure] | None = None,
) -> Figure:
    names = list(curves.panels)
    n_rows, n_columns = make_grid(len(names), 4 if below else 3)
    if below and len(names) == 4:
        n_rows, n_columns = 1, 4
    times = 2 if below else 1
    several = any(len(v) > 1 for lines in curves.panels.values() for p in lines.values() for v in p.values())
    if several:
        note = f"{note} Whiskers: standard deviation over masks.".strip()
    height = max(2.2 * n_rows * times + 0.9, curves.height_of_legend() + 1.0)
    figure = new_figure(2.45 * n_columns + 3.1, height, title, note)
    for place, dataset in enumerate(names):
        row, column = divmod(place, n_columns)
        axes = figure.add_subplot(n_rows * times, n_columns, row * times * n_columns + column + 1)
        clean(axes, dataset)
        _draw_lines(axes, curves, dataset, scale)
        if published and dataset in published:
            axes.plot([100 * PUBLISHED_RATE], [published[dataset]], **PUBLISHED, zorder=4)
        lowest = axes
        if column == 0:
            axes.set_ylabel(measure.heading, fontsize=SMALL, color=GREY)
        if below and dataset in below[0].panels:
            lowest = figure.add_subplot(n_rows * 2, n_columns, (row * 2 + 1) * n_columns + column + 1)
            clean(lowest)
            _draw_lines(lowest, below[0], dataset, scale, curves.styles)
            lowest.set_ylim(0, max(lowest.get_ylim()[1], _HEADROOM * lowest.dataLim.y1))
            if column == 0:
                lowest.set_ylabel(below[1].heading, fontsize=SMALL, color=GREY)
        if place >= len(names) - n_columns:
            lowest.set_xlabel(across, fontsize=SMALL, color=GREY)
    handles = [
        Line2D([], [], **curves.styles[line], markersize=5, label=wrap(name, _LEGEND_WIDTH))
        for line, name in curves.names.items()
    ]
    if published:
        handles.append(Line2D([], [], **PUBLISHED, label="DiffPuter, published"))
    add_legend(figure, handles)
    return settle(figure)


def _draw_lines(
    axes: Axes,
    curves: Curves,
    dataset: str,
    scale: Scale,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    every: set[float] = set()
    for line, points in curves.panels[dataset].items():
        places = sorted(points)
        every |= set(places)
        means = [statistics.fmean(points[x].values()) for x in places]
        spreads = [statistics.stdev(points[x].values()) if len(points[x]) > 1 else 0.0 for x in places]
        style = {**(styles or curves.styles)[line], "markersize": 5, "linewidth": 1.4}
        below = [min(*pair) for pair in zip(spreads, means, strict=True)] if curves.positive else spreads
        whiskers = [below, spreads] if any(spreads) else None
        axes.errorbar(places, means, yerr=whiskers, elinewidth=0.8, capsize=2, **style)
    if scale == "log" and min(every) > 0:
        axes.set_xscale("log")
    elif scale == "logit":  # shares near 100 % are close together, and the error changes most there
        axes.set_xscale("function", functions=(_logit, _share))
    if axes.get_xscale() != "linear":
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(sorted(every))
    elif len(every) <= 8:
        axes.set_xticks(sorted(every))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _logit(percent: Floats) -> Floats:
    share = np.clip(np.asarray(percent, dtype=np.float64) / 100, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(share / (1 - share)))


def _share(logit: Floats) -> Floats:
    return np.asarray(100 / (1 + np.exp(-np.asarray(logit))))


def _published(records: Iterable[Record], dataset: str, measure: Measure, setting: str) -> float | None:
    """The paper's number of DiffPuter, unless the rows are of another kind of task or it is doubtful."""
    kinds = {r.mechanism for r in records if r.rate == PUBLISHED_RATE}
    if len(kinds) != 1:
        return None
    found = find_published(dataset, kinds.pop(), setting, measure.name)
    return None if found is None or found[1] else found[0] * measure.scale


def _kinds(records: Iterable[Record]) -> str:
    kinds = sorted({(r.mechanism, r.rate) for r in records})
    return ", ".join(name_kind(mechanism, rate) for mechanism, rate in kinds)

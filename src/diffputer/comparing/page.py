"""A comparison as one HTML file that needs nothing else: the verdict first, then what it rests on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import __version__
from ..analysis.report_html import content_policy
from ..benchmark.provenance import describe_versions, name_device
from ..benchmark.report.html import SCRIPT, STYLE, write_table
from ..benchmark.report.layout import Cell, Table
from ..runtime.devices import resolve_device
from .recipes import Source, write_recipes
from .runs import show_seconds
from .scoring import DRAWS, LEVEL, leads
from .verdict import join, show_probability

if TYPE_CHECKING:
    from .comparison import Comparison

_OWN_STYLE = """
body { max-width: 1080px; background: #f8f9fa } main { display: block }
h1 { margin-bottom: .2rem; overflow-wrap: anywhere } .sub { color: #55595e; margin-top: 0 }
section { background: #fff; border: 1px solid #e3e6ea; border-radius: 10px; padding: .4rem 1.4rem 1.1rem }
section { margin: 1.1rem 0 } section h2 { border: 0; margin: .8rem 0 .4rem }
.verdict { border-left: 6px solid #d9480f } .verdict.tie { border-left-color: #868e96 }
.verdict .lead { font-size: 1.25rem; font-weight: 600; margin: .7rem 0 .5rem; line-height: 1.35 }
.facts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 .3rem; padding: 0; list-style: none }
.facts li { background: #f1f3f5; border-radius: 8px; padding: .5rem .9rem; min-width: 6.5rem }
.facts b { display: block; font-size: 1.15rem; overflow-wrap: anywhere }
.facts span { color: #55595e; font-size: 13px }
.lines { display: grid; grid-template-columns: max-content 1fr max-content; gap: .35rem .8rem }
.lines { align-items: center; font-size: 14px; margin: .6rem 0 1rem } .lines .best { font-weight: 600 }
.track { position: relative; height: 20px; background: #f1f3f5; border-radius: 4px }
.track i { position: absolute; top: 9px; height: 3px; background: #868e96; border-radius: 2px }
.track s { position: absolute; top: 5px; width: 10px; height: 10px; margin-left: -5px; border-radius: 50% }
.track s { background: #495057 }
.track em { position: absolute; top: 0; bottom: 0; border-left: 1px dashed #495057 }
.best.track s { background: #d9480f } .best.track i { background: #f0a27e }
.value { font-variant-numeric: tabular-nums }
.key { color: #55595e; font-size: 13px }
.heat th { white-space: normal; max-width: 5.2rem; vertical-align: bottom } .heat td { border-bottom: 0 }
.heat th.words { max-width: none } .rank td:first-child { overflow-wrap: normal; white-space: nowrap }
.heat td.number { text-align: center; vertical-align: middle; border: 1px solid #fff; min-width: 3.4rem }
.heat td:first-child, .heat th:first-child { position: sticky; left: 0; background: #fff }
.heat td:first-child { max-width: 14rem; overflow-wrap: anywhere } .heat tr.off td { color: #868e96 }
pre { background: #212529; color: #f8f9fa; padding: .8rem 1rem; border-radius: 8px }
pre { overflow-x: auto; font-size: 13px }
.methods { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)) }
.methods { gap: 1rem 1.6rem }
.methods { margin: .4rem 0 } dt { font-weight: 600 }
dd { margin: 0; font-size: 13px; overflow-wrap: anywhere }
dd + dd { color: #55595e } td.words { overflow-wrap: break-word } table { font-variant-numeric: tabular-nums }
details summary { cursor: pointer; font-weight: 600; margin: .4rem 0 }
footer { color: #55595e; font-size: 13px }
@media (max-width: 600px) { body { margin: .8rem auto; padding: 0 .6rem } }
@media (max-width: 600px) { section { padding: .2rem .9rem .9rem } }
@media (max-width: 600px) { .heat td:first-child { max-width: 7.5rem } .verdict .lead { font-size: 1.1rem } }
@media print { body { background: #fff } section { border: 0; padding: 0 } }
"""


def write_page(comparison: Comparison, source: Source) -> str:
    """Write the report.

    Parameters
    ----------
    comparison : Comparison
        What was found.
    source : Source
        Where the table came from.

    Returns
    -------
    str
        HTML; every name of the table is escaped.
    """
    prepared = comparison.prepared
    name = Path(str(source.path)).name if source.is_file else "this table"
    missing = prepared.missing.mean()
    title = f"Which imputer for {name}?"
    sections = [
        _write_verdict(comparison),
        _section("Ranking", _write_lines(comparison), write_ranking(comparison), _write_lost(comparison)),
        _section("By column", _write_heat(comparison)),
        _section("How to use it", *write_recipes(comparison, source)),
        _section("What was done", _list(comparison.notes), _write_method()),
        _section("The methods", _write_methods(comparison)),
        _section("Settings", _write_settings(comparison)),
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{content_policy(SCRIPT)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}{_OWN_STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            f"<p class=sub>{prepared.n_rows:,} rows × {prepared.n_columns:,} columns; in the "
            f"{len(prepared.columns):,} that can be filled {100 * missing:.1f} % of cells are missing</p>",
            *sections,
            f"<footer>Written by diffputer {__version__}.</footer>",
            f"</main><script>{SCRIPT}</script></body></html>\n",
        ]
    )


def write_ranking(comparison: Comparison) -> str:
    """Write the ranking as a table that a click sorts."""
    frame = comparison.table.dropna(subset="rank")
    has_numbers, has_levels = frame["rmse"].notna().any(), frame["accuracy"].notna().any()
    head = ["method", "error", "behind the best", "probability of being best", "columns best"]
    head += ["MAE", "RMSE"] if has_numbers else []
    head += ["accuracy"] if has_levels else []
    head += ["time"]
    known, has_order = comparison.has_compared, not comparison.scores.are_equal
    apart = set(frame["method"]) - ({comparison.best, *comparison.ties} if known else set())
    n_columns = int(comparison.scores.counted.sum())
    rows, notes = [], []
    for row in frame.itertuples():
        marks: tuple[int, ...] = ()
        if row.note:
            notes.append(f"{row.method}: {row.note}")
            marks = (len(notes),)
        behind = "–" if row.rank == 1 else f"{row.behind:.3f} ({row.behind_low:.3f} to {row.behind_high:.3f})"
        place = 1 if row.rank == 1 and has_order else None if row.method in apart else 2
        cells = [
            Cell(row.method, place=place, notes=marks),
            Cell(f"{row.error:.3f}", order=float(row.error)),
            Cell(behind, order=float(row.behind)),
            Cell(_brief(row.probability_best), order=float(row.probability_best)) if known else Cell(),
            Cell(_tell_columns(row, n_columns), order=float(row.columns_best)) if known else Cell(),
        ]
        if has_numbers:
            cells += [Cell(f"{value:.3f}", order=float(value)) for value in (row.mae, row.rmse)]
        if has_levels:
            cells.append(Cell(f"{100 * row.accuracy:.1f} %", order=float(row.accuracy)))
        cells.append(Cell(show_seconds(row.seconds), order=float(row.seconds)))
        rows.append(tuple(cells))
    return f"<div class=rank>{write_table(Table('', tuple(head), tuple(rows), tuple(notes)))}</div>"


def _tell_columns(row: Any, n: int) -> str:
    return f"{row.columns_best} of {n}" + (f", level on {row.columns_level}" if row.columns_level else "")


def _brief(probability: float) -> str:
    return show_probability(probability).replace("more than ", ">").replace("less than ", "<")


def _write_verdict(comparison: Comparison) -> str:
    first, *others = comparison.sentences
    scores = comparison.scores
    best = scores.order[0]
    tie = " tie" if comparison.ties or not comparison.has_compared else ""
    facts = [(comparison.best, "smallest error")]
    if comparison.has_compared:
        row = comparison.table.iloc[0]
        facts.append((show_probability(scores.probability_best[best]), "sure that it is best"))
        facts.append((_tell_columns(row, int(scores.counted.sum())), "columns where it is best"))
    facts.append((f"{len(scores.methods)}", "methods compared"))
    facts.append((f"{int(scores.n_cells.sum()):,}", "known cells hidden"))
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(words)}</span></li>" for value, words in facts)
    rest = "".join(f"<p>{escape(words)}</p>" for words in others)
    return (
        f'<section class="verdict{tie}" aria-label="Verdict"><p class=lead>{escape(first)}</p>{rest}'
        f"<ul class=facts>{items}</ul></section>"
    )


def _write_lines(comparison: Comparison) -> str:
    """Draw each method's error with its interval, as lines that grow with the page."""
    frame = comparison.table.dropna(subset="rank")
    # One method that is far off must not squeeze the others.
    end = min(float(frame["error_high"].max()), max(2.5 * float(frame["error"].min()), 1.15)) * 1.04
    lines = []
    for row in frame.itertuples():
        chosen = " best" if row.rank == 1 and not comparison.scores.are_equal else ""
        low, middle, high = (100 * min(x, end) / end for x in (row.error_low, row.error, row.error_high))
        words = f"{row.method}: error {row.error:.3f}, between {row.error_low:.3f} and {row.error_high:.3f}"
        one = f'<em style="left:{100 / end:.2f}%"></em>' if end > 1 else ""
        lines.append(
            f'<span class="name{chosen}">{escape(row.method)}</span>'
            f'<span class="track{chosen}" role="img" aria-label="{escape(words)}">{one}'
            f'<i style="left:{low:.2f}%;width:{high - low:.2f}%"></i>'
            f'<s style="left:{middle:.2f}%"></s></span>'
            f'<span class="value{chosen}">{row.error:.3f}</span>'
        )
    dashed = " (dashed)" if end > 1 else ""
    return (
        f"<div class=lines>{''.join(lines)}</div><p class=key>Mean error over columns, with intervals of "
        f"{LEVEL:.0%}: 0 is perfect, about 1{dashed} is what one value for all holes of a column gets. "
        "Intervals of two methods may overlap although they differ for sure, since they are scored on the "
        "same cells: “behind the best” tells. Underlined in the table: cannot be told apart from it.</p>"
    )


def _write_lost(comparison: Comparison) -> str:
    lost = comparison.table[comparison.table["rank"].isna()]
    if lost.empty:
        return ""
    items = [f"{row.method}: {row.note}" for row in lost.itertuples()]
    return f"<h3>Not compared</h3>{_list(items)}"


def _write_heat(comparison: Comparison) -> str:
    """Write errors by column and method, the smaller the greener; the best is bold, if any is."""
    facts, errors = comparison.column_facts, comparison.columns
    shown = facts[facts["cells"] > 0].sort_values("missing", ascending=False, kind="stable")
    head = ["column", "cells", *errors.index]
    heads = "".join(
        f'<th scope="col"{" class=words" * (place == 0)}><button type="button">{escape(name)}</button></th>'
        for place, name in enumerate(head)
    )
    rows = []
    for fact in shown.itertuples():
        values = errors[fact.column].to_numpy()
        cells = [
            f"<td class=words>{escape(fact.column)}"
            f"<small>{escape(fact.kind)}, {100 * fact.missing:.0f} % missing</small></td>",
            f'<td class=number data-order="{fact.cells}">{fact.cells:,}</td>',
        ]
        for value, is_best in zip(values, leads(values), strict=True):
            text = f"<b>{value:.2f}</b>" if is_best else f"{value:.2f}"
            look = f'style="background:{_colour(value)}" data-order="{float(value)!r}"'
            cells.append(f"<td class=number {look}>{text}</td>")
        rows.append(f"<tr{'' if fact.counts else ' class=off'}>{''.join(cells)}</tr>")
    few = "" if shown["counts"].all() else " Grey columns have too few hidden cells to count."
    return (
        f"<p class=key>Error of each method on each column: 0 is perfect, 1 is what one value for all gets; "
        f"the best is bold, unless all are equal.{few}</p><div class=scroll><table class=heat>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _colour(error: float) -> str:
    """Green towards 0, white at 1, red beyond; pale enough for black letters.

    >>> _colour(1.0), _colour(0.0), _colour(3.0)
    ('rgb(255,255,255)', 'rgb(140,206,160)', 'rgb(246,177,160)')
    """
    far = (140, 206, 160) if error < 1 else (246, 177, 160)
    share = min(abs(1 - error), 1.0)
    return f"rgb({','.join(str(round(255 + share * (end - 255))) for end in far)})"


def _write_method() -> str:
    words = [
        "Every method saw the same table, without the same hidden cells, and is scored on these alone.",
        "Error of a column of numbers (and dates): root mean squared error in standard deviations of its "
        "known cells. Of categories: share of wrong levels, divided by the share that the most frequent one "
        "gets wrong. Overall: the mean over columns, each counting the same. Numbers are scored before "
        "they are rounded.",
        f"How sure: rows with hidden cells are drawn again with replacement {DRAWS:,} times, the same for "
        f"every method. Intervals hold {LEVEL:.0%} of what comes out, and the probability of being best is "
        "how often a method is. What another fit of the same method would change is not in it.",
        "The ranking holds for cells like the known ones. If cells are missing because of their own value, "
        "no comparison on known cells can see that. And a small error is not all: for standard errors and "
        "tests use several draws (diffputer impute --draws), not one best guess.",
    ]
    return f"<details><summary>How errors and probabilities are made</summary>{_list(words)}</details>"


def _write_methods(comparison: Comparison) -> str:
    items = []
    for one in comparison.outcomes:
        facts = one.facts
        settings = ", ".join(f"{name} = {setting.value}" for name, setting in facts.settings.items())
        lines = [facts.what, f"What it cannot do: {_small(facts.cannot)}", f"Source: {facts.source}"]
        lines += [f"Settings: {settings}."] if settings else []
        described = "".join(f"<dd>{escape(line)}</dd>" for line in lines)
        items.append(f"<div><dt>{escape(facts.name)}</dt>{described}</div>")
    return f"<dl class=methods>{''.join(items)}</dl>"


def _small(text: str) -> str:
    """Begin with a small letter, but for words that are capital throughout."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _write_settings(comparison: Comparison) -> str:
    packages = sorted({package for one in comparison.outcomes for package in one.facts.packages})
    versions = json.loads(describe_versions(packages))
    versions.pop("sklearn", None) if "scikit-learn" in versions else None
    threads = torch.get_num_threads()
    facts = [
        ("Seed", str(comparison.seed)),
        ("Time", f"{show_seconds(comparison.seconds)} of {show_seconds(comparison.time_budget)} allowed"),
        ("Repetitions", f"{comparison.repetitions} of {comparison.hidden.n_repetitions}"),
        ("Rows looked at", f"{len(comparison.prepared.coded.x):,} of {comparison.prepared.n_rows:,}"),
        ("Columns looked at", join(list(comparison.prepared.coded.names))),
        ("Machine", f"{name_device(resolve_device('auto'))}, {threads} thread{'s' * (threads > 1)}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    rows = tuple((Cell(name), Cell(value)) for name, value in facts)
    return write_table(Table("", ("setting", "value"), rows, words=frozenset({"value"})))


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _list(items: Iterable[Any] | Sequence[Any]) -> str:
    return f"<ul>{''.join(f'<li>{escape(str(item))}</li>' for item in items)}</ul>"

"""The page of a report: every text of the table is escaped, and the page can load nothing.

Tables and words are in the page itself and can be read without JavaScript; charts are drawn by page/report.js
from the numbers in a block of JSON. A content security policy allows that one script and no other.
"""

from __future__ import annotations

import base64
import hashlib
import math
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any

from .report_columns import NAME
from .report_facts import ColumnFacts, Facts
from .report_html import Cell, bar, link_to, name_of, sortable, to_json
from .report_warnings import LOOK, NOTE, SERIOUS
from .report_words import GLOSSARY, count, methods_text, percent, reasons
from .wording import short

SHOWN_PATTERNS, SHOWN_NAMES = 12, 5
_SEVERITIES = {SERIOUS: "serious", LOOK: "worth a look", NOTE: "to know"}


def write_page(facts: Facts) -> str:
    """Write everything as one HTML file."""
    style, script = (_part(name) for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    heading = short(facts.title, 100) if facts.title else "Imputation report"
    sections = {
        "summary": ("Summary", _summary(facts)),
        "warnings": ("Warnings", _warnings(facts)),
        "missing": ("What was missing", _missing(facts)),
        "columns": ("Columns", _columns(facts)),
        "sure": ("How sure it is", _sure(facts)),
        "reproduce": ("To reproduce it", _reproduce(facts)),
        "glossary": ("Glossary", _glossary()),
    }
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, (title, _) in sections.items())
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 '
        f'id="{key}-title">{title}</h2>{content}</section>'
        for key, (title, content) in sections.items()
    )
    over = '<p class="over">Imputation report</p>' if facts.title else ""
    p = facts.profile
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(heading)}</title><style>{style}</style></head><body>"
        '<a class="skip" href="#main">Skip to the content</a>'
        f"<header>{over}<h1>{escape(heading)}</h1><p>{count(p.n_rows, 'row')} × "
        f"{count(p.n_columns, 'column')}"
        f"{_dot(facts.origin.method)}{_dot(_draws(facts))}{_dot(made)}</p></header>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main id="main">{body}</main>'
        f"<footer><p>Made by diffputer on {made}. This file is complete in itself: it loads "
        "nothing.</p></footer>"
        '<svg id="blank" width="0" height="0" aria-hidden="true"></svg>'
        f'<script type="application/json" id="data">{to_json(_data(facts))}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _part(name: str) -> str:
    return (files("diffputer.analysis") / "page" / name).read_text(encoding="utf-8")


def _dot(words: str) -> str:
    return f' <span class="dot">·</span> {escape(words)}' if words else ""


def _draws(facts: Facts) -> str:
    return count(facts.n_draws, "draw") if facts.n_draws > 1 else "one completed table"


def _summary(facts: Facts) -> str:
    p = facts.profile
    serious = sum(one.severity == SERIOUS for one in facts.warnings)
    tiles = [
        ("Cells missing", f"{p.n_missing:,}", percent(p.n_missing, p.n_rows * p.n_columns)),
        ("Complete rows", f"{p.n_complete_rows:,}", percent(p.n_complete_rows, p.n_rows)),
        ("Cells filled", f"{p.n_missing - facts.n_left:,}", f"{facts.n_left:,} left missing"),
        ("Warnings", f"{len(facts.warnings):,}", f"{serious:,} serious"),
    ]
    errors = [line for line in facts.origin.trace if not math.isnan(line.held_out_error)]
    if errors:
        best = min(errors, key=lambda line: line.held_out_error)
        tiles.insert(
            3, ("Held-out error", f"{best.held_out_error:.2f}", f"{best.baseline_error:.2f} by column means")
        )
    shown = "".join(f"<div><dt>{t}</dt><dd>{v}<small>{s}</small></dd></div>" for t, v, s in tiles)
    return (
        f'<dl class="tiles">{shown}</dl><h3>In words</h3><p id="words" '
        f'class="words">{escape(methods_text(facts))}</p>'
        '<p class="js"><button type="button" data-copy="words">Copy the words</button></p>'
    )


def _warnings(facts: Facts) -> str:
    if not facts.warnings:
        return '<p class="good">None. Columns were predicted better than by their means, and nothing '
        "looks odd.</p>"
    items = []
    for one in facts.warnings:
        chips = "".join(
            f"<li>{link_to(place, facts.columns[place].column.name, 40)}<small>{escape(words)}</small></li>"
            for place, words in one.columns.items()
        )
        many = len(one.columns) > 6
        listed = f'<ul class="chips">{chips}</ul>' if chips else ""
        if many:
            listed = f"<details><summary>{count(len(one.columns), 'column')}</summary>{listed}</details>"
        items.append(
            f'<li class="{one.severity}"><h3><span class="badge '
            f'{one.severity}">{_SEVERITIES[one.severity]}</span> '
            f"{escape(one.title)}</h3><p>{escape(one.words)}</p>{listed}</li>"
        )
    return f'<ul class="warnings">{"".join(items)}</ul>'


def _missing(facts: Facts) -> str:
    p = facts.profile
    words = "".join(f"<p>{escape(text)}</p>" for text in reasons(p))
    if not p.n_missing:
        return words
    little = "" if p.little is None else (
        f"<p>{escape(str(p.little))}. The test looks at means of numbers alone and assumes that they are "
        "normal; "
        "categories are left out, and not rejecting proves nothing.</p>"
    )  # fmt: skip
    notes = "".join(f"<li>{escape(note)}.</li>" for note in p.notes)
    places = {name: place for place, name in enumerate(p.columns["column"].tolist())}
    patterns = []
    for line in p.patterns.head(SHOWN_PATTERNS).itertuples():
        names = ", ".join(link_to(places[name], name, 30) for name in line.missing[:SHOWN_NAMES])
        more = f" and {len(line.missing) - SHOWN_NAMES:,} more" if len(line.missing) > SHOWN_NAMES else ""
        share = bar(line.share, percent(line.rows, p.n_rows))
        patterns.append(
            (Cell(f"{line.rows:,}", line.rows), Cell(share, line.share), Cell(names + more or "nothing"))
        )
    heads = [("Rows", "number"), ("Share", ""), ("Missing together", "names")]
    hidden = len(p.patterns) - len(patterns)
    caption = "Most frequent patterns of missing cells" + (
        f" ({hidden:,} more are not shown)" if hidden else ""
    )
    return (
        f'<h3>Why it may be missing</h3><div class="prose">{words}{little}</div>'
        f"<h3>Where it is missing</h3>"
        '<figure class="js"><div id="matrix" class="chart"></div><figcaption>Rows from top to bottom in '
        "the order of "
        "the table, a block of them each line; the darker, the more is missing.</figcaption></figure>"
        f"{sortable(caption, heads, patterns)}"
        '<figure class="js" id="together-figure"><div id="together" class="chart"></div><figcaption>What '
        "is missing "
        "together: correlation of holes, orange where two columns tend to be missing in the same rows, "
        "blue where "
        "one is there when the other is not.</figcaption></figure>"
        f"{_telling(facts)}{f'<ul class=notes>{notes}</ul>' if notes else ''}"
    )


def _telling(facts: Facts) -> str:
    rows = []
    places = {one.column.name: place for place, one in enumerate(facts.columns)}
    for place, one in enumerate(facts.columns):
        if one.told is None:
            continue
        names = ", ".join(link_to(places[name], name, 30) for name in one.told.told_by)
        auc = bar(2 * (one.told.auc - 0.5), f"{one.told.auc:.2f}") if one.told.auc == one.told.auc else ""
        verdict = names or ("yes" if one.told.depends else "no sign of it")
        rows.append((Cell(link_to(place, one.column.name)), Cell(auc, one.told.auc), Cell(verdict)))
    if not rows:
        return ""
    heads = [("Column", "names"), ("AUC", ""), ("Told by", "names")]
    return sortable("Do other columns tell where a column is missing?", heads, rows)


_HEADS = [
    ("Column", "names"), ("Kind", "wide"), ("Missing", ""), ("Held-out error", ""), ("Spread of "
    "draws", "wide number"),
    ("Drift", "wide number"), ("Warnings", "number"),
]  # fmt: skip


def _columns(facts: Facts) -> str:
    rows = []
    for place, one in enumerate(facts.columns):
        status = (
            "" if one.column.status == "modelled" else f" <small>{escape(str(one.column.status))}</small>"
        )
        worst = one.warnings[0][0] if one.warnings else ""
        badge = f'<span class="badge {worst}">{len(one.warnings)}</span>' if worst else ""
        rows.append(
            (
                Cell(link_to(place, one.column.name, 40)),
                Cell(f"{one.column.kind}{status}"),
                Cell(bar(one.share, percent(one.n_missing, one.n_rows)), one.share),
                Cell(_held(one), _ratio(one)),
                Cell(*_spread(one)),
                Cell(*_drift(one)),
                Cell(badge, len(one.warnings)),
            )
        )
    kinds = sorted({str(one.column.kind) for one in facts.columns})
    options = "".join(f"<option>{escape(kind)}</option>" for kind in kinds)
    chosen = "".join(
        f'<option value="{k}">{name_of(one.column.name)}</option>' for k, one in enumerate(facts.columns)
    )
    filters = (
        '<form class="filters js" role="search" aria-label="Filter columns"><label>Name <input id="find" '
        'type="search" '
        'placeholder="part of a name" autocomplete="off"></label><label>Kind <select id="kind"><option '
        'value="">all'
        f'</option>{options}</select></label><label>Show <select id="which"><option value="">all '
        "columns</option>"
        '<option value="holes">with missing cells</option><option value="warned">with '
        "warnings</option></select>"
        '</label><output id="found" aria-live="polite"></output></form>'
    )
    panel = (
        '<div id="column" class="panel js" role="region" aria-label="One column" tabindex="-1"><div '
        'class="chooser">'
        '<button type="button" id="before" aria-label="Previous column">←</button>'
        f'<label><span class="hidden">Column</span><select id="choose">{chosen}</select></label>'
        '<button type="button" id="after" aria-label="Next column">→</button>'
        '<button type="button" id="every" aria-pressed="false">Show every column</button></div>'
        '<div id="shown"></div></div><noscript><p>Charts of each column need JavaScript; all numbers are '
        "in the "
        "tables.</p></noscript>"
    )
    hint = (
        '<p class="hint js">Titles sort. A name opens the column; <kbd>/</kbd> finds one, <kbd>←</kbd> and '
        "<kbd>→</kbd> go to its neighbours.</p>"
    )
    return f"{filters}{hint}{sortable('Columns', _HEADS, rows, 'all', data_tall='1')}{panel}"


def _ratio(one: ColumnFacts) -> float | None:
    return (
        None
        if one.held is None or not one.held.n or not math.isfinite(one.held.ratio)
        else float(one.held.ratio)
    )


def _held(one: ColumnFacts) -> str:
    ratio = _ratio(one)
    if ratio is None:
        return ""
    words = f"{one.held.error:.2f} <small>of {one.held.baseline:.2f}</small>"
    return bar(ratio, words, "bad" if ratio >= 0.98 else "good")


def _spread(one: ColumnFacts) -> tuple[str, float | None]:
    sure = None if one.described is None else one.described["sure"]
    if sure is None:
        return "", None
    if "spread" in sure:
        return f"{sure['spread']:.2f} <small>sd</small>", sure["spread"]
    return f"{sure['agreement']:.0%} <small>agree</small>", 1 - sure["agreement"]


def _drift(one: ColumnFacts) -> tuple[str, float | None]:
    if one.drift is None:
        return "", None
    if one.drift.difference == one.drift.difference:
        return f"{one.drift.difference:+.2f} <small>sd</small>".replace("-", "−"), abs(one.drift.difference)
    return f"{one.drift.distance:.0%} <small>moved</small>", float(one.drift.distance)


def _sure(facts: Facts) -> str:
    words = [
        "Filled values are estimates. Two things tell how good they are: how well cells were filled in "
        "that had been "
        "hidden although they were known, and how much random draws of the same cell differ."
    ]
    scored = [(place, one) for place, one in enumerate(facts.columns) if _ratio(one) is not None]
    if facts.origin.held_out is None:
        words.append("No scores of held-out cells are known for these tables.")
    elif scored:
        better = sum(1 for _, one in scored if (_ratio(one) or 0.0) < 0.98)
        words.append(
            f"{better:,} of {count(len(scored), 'column')} were filled in better than by their mean or "
            "most frequent "
            "level. Cells were hidden completely at random; where holes are not, errors may be larger."
        )
    scored.sort(key=lambda pair: _ratio(pair[1]) or 0.0)
    longest = max((max(one.held.error, one.held.baseline) for _, one in scored), default=1.0) or 1.0
    rows = [
        (
            Cell(link_to(place, one.column.name)),
            Cell(
                f'<span class="track" style="--e:{100 * one.held.error / longest:.1f}%;'
                f'--b:{100 * one.held.baseline / longest:.1f}%"></span>',
                one.held.error / one.held.baseline,
            ),
            Cell(f"{one.held.error:.2f}", one.held.error),
            Cell(f"{one.held.baseline:.2f}", one.held.baseline),
            Cell(f"{one.held.n:,}", one.held.n),
        )
        for place, one in scored
    ]
    heads = [("Column", "names"), ("Error, and that of the column mean", "grow"), ("Error", "number"),
             ("Mean’s", "number"), ("Cells", "number wide")]  # fmt: skip
    table = sortable("Errors on held-out cells", heads, rows, data_tall="1") if rows else ""
    legend = (
        '<p class="hint">The bar is the error, the line that of the column mean or most frequent level.</p>'
    )
    trace = f"<h3>Convergence</h3><p>{escape(facts.convergence.verdict)}</p>" if facts.origin.trace else ""
    chart = (
        '<figure class="js"><div id="trace" class="chart"></div></figure>'
        if len(facts.origin.trace) > 1
        else ""
    )
    prose = "".join(f"<p>{escape(text)}</p>" for text in words)
    return f'<div class="prose">{prose}</div>{legend if rows else ""}{table}{trace}{chart}'


def _reproduce(facts: Facts) -> str:
    origin = facts.origin
    if not origin.software and origin.seed is None:
        return "<p>The tables did not come with their settings.</p>"
    parts = []
    if origin.command:
        parts.append(f'<h3>Command</h3><pre id="command" tabindex="0">{escape(origin.command)}</pre>')
    given = {**origin.parameters, "random_state": origin.seed}
    listed = ", ".join(f"{name}={_shown(value)}" for name, value in given.items())
    code = (
        f"from diffputer import DiffPuter\n\nimputer = DiffPuter({listed})\n"
        "completed = imputer.fit_transform(table)           # table: the one the model was fitted to\n"
        f"draws = imputer.sample(table, n_draws={facts.n_draws})"
    )
    parts.append(f'<h3>Python</h3><pre id="code" tabindex="0">{escape(code)}</pre>')
    parts.append('<p class="js"><button type="button" data-copy="code">Copy the code</button></p>')
    software = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in origin.software.items())
    settings = "".join(
        f"<dt>{escape(k)}</dt><dd>{escape(_shown(v))}</dd>" for k, v in origin.settings.items()
    )
    parts.append(f'<h3>Software</h3><dl class="facts">{software}<dt>seed</dt><dd>{origin.seed}</dd></dl>')
    if settings:
        parts.append(f'<details><summary>Every setting</summary><dl class="facts">{settings}</dl></details>')
    looked = facts.n_rows_seen < facts.profile.n_rows
    if looked:
        parts.append(f"<p>Filled values were looked at in {facts.n_rows_seen:,} rows, chosen by chance.</p>")
    return "".join(parts)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 2_000 else "...  # too long to show"


def _glossary() -> str:
    entries = sorted(GLOSSARY.items(), key=lambda item: item[0].lower())
    return (
        '<dl class="glossary">' + "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in entries) + "</dl>"
    )


def _data(facts: Facts) -> dict[str, Any]:
    """Give what the charts are drawn from."""
    columns = []
    for one in facts.columns:
        described = one.described or {"stats": [], "sure": None, "chart": None}
        held = (
            None
            if _ratio(one) is None
            else [float(one.held.error), float(one.held.baseline), int(one.held.n)]
        )
        told = None if one.told is None else [_number(one.told.auc), [short(n, 60) for n in one.told.told_by]]
        columns.append(
            {
                "name": short(one.column.name, NAME) or "(no name)",
                "kind": str(one.column.kind),
                "status": str(one.column.status),
                "rows": one.n_rows,
                "missing": one.n_missing,
                "left": one.n_left,
                "held": held,
                "told": told,
                "drift": None
                if one.drift is None
                else _drift(one)[0].replace("<small>", "").replace("</small>", ""),
                "warnings": [list(line) for line in one.warnings],
                **{name: described[name] for name in ("stats", "sure", "chart")},
            }
        )
    trace = [
        [int(line.round), _number(line.held_out_error), _number(line.baseline_error), _number(line.change)]
        for line in facts.origin.trace
    ]
    return {
        "columns": columns,
        "matrix": facts.matrix,
        "together": facts.together,
        "trace": trace,
        "draws": facts.n_draws,
        "best": facts.convergence.best_round,
    }


def _number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None

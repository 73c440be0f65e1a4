"""The page of a report: every text of the table is escaped, and the page can load nothing.

Tables and words are in the page itself and can be read without JavaScript; charts are drawn by page/report.js
from the numbers in a block of JSON. A content security policy allows that one script and no other.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ..runtime.reporting import visible
from .origin import Origin
from .report_charts import chart_data, drift_cell, held_cell, ratio_of, spread_cell
from .report_facts import Facts
from .report_html import Cell, bar, content_policy, link_to, sortable, to_json
from .report_warnings import LOOK, NOTE, SERIOUS
from .report_words import GLOSSARY, methods_text, overall_errors, percent, reasons
from .verdicts import Verdict, judge_line
from .wording import count, short

SHOWN_PATTERNS, SHOWN_NAMES, PARTS = 12, 5, 10
_SEVERITIES = {SERIOUS: "serious", LOOK: "worth a look", NOTE: "to know"}


def write_page(facts: Facts) -> str:
    """Write everything as one HTML file."""
    style, script = (_part(name) for name in ("report.css", "report.js"))
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
        f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{title}</h2>{words}</section>'
        for key, (title, words) in sections.items()
    )
    p, made = facts.profile, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    size = f"{count(p.n_rows, 'row')} × {count(p.n_columns, 'column')}"
    # Substitution is a single pass, so that a dollar in a name means nothing.
    page = Template(_part("report.html")).substitute(
        policy=content_policy(script),
        title=escape(heading),
        style=style,
        over='<p class="over">Imputation report</p>' if facts.title else "",
        facts=" · ".join(
            escape(words) for words in (size, facts.origin.method, _draws(facts), made) if words
        ),
        links=links,
        sections=body,
        made=made,
        data=to_json(chart_data(facts)),
        script=script,
    )
    return page.encode("utf-8", "replace").decode()  # halves of surrogate pairs cannot be written


def _part(name: str) -> str:
    return (files("diffputer.analysis") / "page" / name).read_text(encoding="utf-8")


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
    if (scores := overall_errors(facts)) is not None:
        tiles.insert(3, ("Held-out error", f"{scores[0]:.2f}", f"{scores[1]:.2f} by column means, in sd"))
    shown = "".join(f"<div><dt>{t}</dt><dd>{v}<small>{s}</small></dd></div>" for t, v, s in tiles)
    words = escape(methods_text(facts))
    return (
        f'<dl class="tiles">{shown}</dl><h3>In words</h3><p id="words" class="words">{words}</p>'
        '<p class="js"><button type="button" data-copy="words">Copy the words</button></p>'
    )


def _warnings(facts: Facts) -> str:
    if not facts.warnings:
        return '<p class="good">None: nothing looks odd.</p>'
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
        badge = f'<span class="badge {one.severity}">{_SEVERITIES[one.severity]}</span>'
        head = f"<h3>{badge} {escape(one.title)}</h3>"
        items.append(f'<li class="{one.severity}">{head}<p>{escape(one.words)}</p>{listed}</li>')
    return f'<ul class="warnings">{"".join(items)}</ul>'


def _missing(facts: Facts) -> str:
    p = facts.profile
    words = "".join(f"<p>{escape(text)}</p>" for text in reasons(facts))
    if not p.n_missing:
        return words
    little = ""
    if p.little is not None:
        limits = (
            "The test looks at means of numbers alone and assumes that they are normal; categories are left "
            "out, and not rejecting proves nothing."
        )
        little = f"<p>{escape(str(p.little))}. {limits}</p>"
    notes = "".join(f"<li>{escape(note)}.</li>" for note in p.notes)
    places = {name: place for place, name in enumerate(p.columns["column"].tolist())}
    patterns = []
    for line in p.patterns.head(SHOWN_PATTERNS).itertuples():
        names = ", ".join(link_to(places[name], name, 30) for name in line.missing[:SHOWN_NAMES])
        more = f" and {len(line.missing) - SHOWN_NAMES:,} more" if len(line.missing) > SHOWN_NAMES else ""
        share = bar(line.rows / p.patterns["rows"].max(), percent(line.rows, p.n_rows))
        patterns.append(
            (Cell(f"{line.rows:,}", line.rows), Cell(share, line.share), Cell(names + more or "nothing"))
        )
    heads = [("Rows", "number"), ("Share", ""), ("Missing together", "names")]
    hidden = len(p.patterns) - len(patterns)
    caption = "Most frequent patterns of missing cells" + (
        f" ({hidden:,} more are not shown)" if hidden else ""
    )
    many = int((p.columns["n_missing"] > 0).sum()) > len(facts.matrix["columns"])
    repeated = p.n_rows < 5 or p.patterns["rows"].iloc[0] > 1
    unique = "No two rows are missing the same cells."
    return Template(_part("missing.html")).substitute(
        reasons=words + little,
        shown=f" Of many columns, the {len(facts.matrix['columns'])} with most holes." if many else "",
        patterns=sortable(caption, heads, patterns) if repeated else f"<p>{unique}</p>",
        telling=_telling(facts),
        notes=f'<ul class="notes">{notes}</ul>' if notes else "",
    )


def _telling(facts: Facts) -> str:
    rows = []
    places = {one.column.name: place for place, one in enumerate(facts.columns)}
    for place, one in enumerate(facts.columns):
        if one.told is None or math.isnan(one.told.auc):
            continue
        names = ", ".join(link_to(places[name], name, 30) for name in one.told.told_by)
        auc = bar(2 * (one.told.auc - 0.5), f"{one.told.auc:.2f}")
        verdict = names or ("yes" if one.told.depends else "no sign of it")
        rows.append((Cell(link_to(place, one.column.name)), Cell(auc, one.told.auc), Cell(verdict)))
    if not rows:
        return ""
    heads = [("Column", "names"), ("AUC", ""), ("Told by", "names")]
    return sortable("Do values of other columns tell where a column is missing?", heads, rows)


_HEADS = [
    ("Column", "names"),
    ("Kind", "wide"),
    ("Missing", ""),
    ("Held-out error", ""),
    ("Spread of draws", "wide number"),
    ("Drift", "wide number"),
    ("Warnings", "number"),
]


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
                Cell(held_cell(one), ratio_of(one)),
                Cell(*spread_cell(one)),
                Cell(*drift_cell(one)),
                Cell(badge, len(one.warnings)),
            )
        )
    kinds = sorted({str(one.column.kind) for one in facts.columns})
    options = "".join(f"<option>{escape(kind)}</option>" for kind in kinds)
    chosen = "".join(
        f'<option value="{k}">{escape(short(one.column.name, 60) or "(no name)")}</option>'
        for k, one in enumerate(facts.columns)
    )
    table = sortable("Columns", _HEADS, rows, "all", data_tall="1")
    return Template(_part("columns.html")).substitute(kinds=options, choices=chosen, table=table)


def _sure(facts: Facts) -> str:
    words = [
        "Filled values are estimates. Two things tell how good they are: how well cells were filled in "
        "that had been hidden although they were known, and how much random draws of the same cell differ."
    ]
    scored = [(place, one) for place, one in enumerate(facts.columns) if ratio_of(one) is not None]
    if facts.origin.held_out is None:
        words.append("No scores of held-out cells are known for these tables.")
    elif scored:
        verdicts = [judge_line(one.held) for _, one in scored]
        unknown = verdicts.count(Verdict.UNKNOWN)
        words.append(
            f"{verdicts.count(Verdict.BETTER):,} of {count(len(scored), 'column')} were filled in better "
            "than by their mean or most frequent level"
            f"{f'; of {unknown:,} it is not known yet' if unknown else ''}. Cells were hidden completely at "
            "random; where holes are not, errors may be larger."
        )
    if facts.n_rows_seen < facts.profile.n_rows:
        words.append(f"Filled values are shown of {facts.n_rows_seen:,} rows, chosen by chance.")
    scored.sort(key=lambda pair: ratio_of(pair[1]) or 0.0)
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
    if not origin.software and origin.seed is None and not origin.parts:
        return "<p>The tables did not come with their settings.</p>"
    parts = []
    if origin.command:
        parts.append(
            f'<h3>Command</h3><pre id="command" tabindex="0">{escape(visible(origin.command))}</pre>'
        )
    if origin.parts:
        code = "from diffputer import DiffPuter\n\n# Draws of several fits were joined:\n"
        code += "\n".join(_constructor(part) for part in origin.parts[:PARTS])
        code += f"\n# and {len(origin.parts) - PARTS} more" if len(origin.parts) > PARTS else ""
    else:
        code = (
            f"from diffputer import DiffPuter\n\nimputer = {_constructor(origin)}\n"
            "completed = imputer.fit_transform(table)  # table: the one the model was fitted to\n"
            f"draws = imputer.sample(table, n_draws={facts.n_draws})"
        )
    parts.append(f'<h3>Python</h3><pre id="code" tabindex="0">{escape(code)}</pre>')
    parts.append('<p class="js"><button type="button" data-copy="code">Copy the code</button></p>')
    software = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in origin.software.items())
    settings = "".join(
        f"<dt>{escape(k)}</dt><dd>{escape(_shown(v))}</dd>" for k, v in origin.settings.items()
    )
    seeds = ", ".join(str(part.seed) for part in origin.parts[:PARTS]) or origin.seed
    parts.append(f'<h3>Software</h3><dl class="facts">{software}<dt>seed</dt><dd>{seeds}</dd></dl>')
    if settings:
        parts.append(f'<details><summary>Every setting</summary><dl class="facts">{settings}</dl></details>')
    return "".join(parts)


def _constructor(origin: Origin) -> str:
    given = {**origin.parameters, "random_state": origin.seed}
    listed = ", ".join(f"{name}={_shown(value)}" for name, value in given.items())
    if len(listed) > 80:
        listed = "".join(f"\n    {name}={_shown(value)}," for name, value in given.items()) + "\n"
    return f"DiffPuter({listed})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 2_000 else "...  # too long to show"


def _glossary() -> str:
    entries = sorted(GLOSSARY.items(), key=lambda item: item[0].lower())
    return (
        '<dl class="glossary">' + "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in entries) + "</dl>"
    )

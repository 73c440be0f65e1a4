"""A report as one HTML file that needs nothing else: pictures inside, tables sorted by a click."""

from __future__ import annotations

import base64
import io
from html import escape

from .layout import Cell, Picture, Report, Table

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #212529 }
body { max-width: 1200px; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid #ced4da }
h3 { font-size: 1.05rem; margin-top: 2rem } p { max-width: 60rem } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px; margin: .8rem 0 }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #dee2e6; text-align: right; vertical-align: top }
th { border-bottom: 2px solid #495057; white-space: nowrap }
th button { all: unset; cursor: pointer } th button:focus-visible { outline: 2px solid #d9480f }
th[aria-sort=ascending] button::after { content: " ▲" }
th[aria-sort=descending] button::after { content: " ▼" }
.words { text-align: left } td small { display: block; color: #55595e; white-space: nowrap }
td.number { white-space: nowrap } .differs { color: #b02a0c; font-weight: 600 } .failed { color: #b02a0c }
ol.notes { font-size: 13px; color: #55595e } img { max-width: 100%; height: auto } figure { margin: 1rem 0 }
figcaption { font-size: 13px; color: #55595e }
"""
# Cells without a number go last whichever way a column is sorted.
SCRIPT = """
document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const head = button.closest("th"), place = head.cellIndex, body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  const key = row => row.cells[place].dataset.order;
  const words = row => row.cells[place].textContent.trim();
  const numbers = [...body.rows].some(row => key(row) !== undefined);
  const empty = row => numbers ? key(row) === undefined : words(row) === "";
  const compare = (a, b) => numbers ? key(a) - key(b) : words(a).localeCompare(words(b));
  const signed = (a, b) => empty(a) ? 0 : (down ? -1 : 1) * compare(a, b);
  const rows = [...body.rows].sort((a, b) => empty(a) - empty(b) || signed(a, b));
  head.parentNode.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows);
}));
"""


def write_html(report: Report) -> str:
    """Write a report as one HTML file.

    Parameters
    ----------
    report : Report
        From `diffputer.benchmark.report.document.make_report`.

    Returns
    -------
    str
    """
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(report.title)}</h1>",
    ]
    for section in report.sections:
        parts.append(f"<h{section.level}>{escape(section.title)}</h{section.level}>")
        parts += [f"<p>{escape(words)}</p>" for words in section.words]
        parts += [write_table(table) for table in section.tables]
        parts += [_embed(picture) for picture in section.pictures]
    parts.append(f"<script>{SCRIPT}</script></body></html>")
    return "\n".join(parts) + "\n"


def write_table(table: Table) -> str:
    """Give a table and its footnotes.

    Examples
    --------
    >>> cells = (Cell("<b>"), Cell("0.5", order=0.5))
    >>> "&lt;b&gt;</td>" in write_table(Table("", ("entry", "toy"), (cells,)))
    True
    """
    is_words = [place == 0 or name in table.words for place, name in enumerate(table.columns)]
    heads = "".join(
        f'<th scope="col"{" class=words" if words else ""}><button type="button">{escape(name)}</button></th>'
        for name, words in zip(table.columns, is_words, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(_write(c, words) for c, words in zip(row, is_words, strict=True)) + "</tr>\n"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.footnotes)
    listed = f"<ol class=notes>{notes}</ol>" if notes else ""
    body = f"<thead><tr>{heads}</tr></thead>\n<tbody>{rows}</tbody>"
    return f"<div class=scroll><table>{caption}{body}</table></div>{listed}"


def _write(cell: Cell, words: bool) -> str:
    text = escape(cell.text)
    if cell.place == 1:
        text = f"<b>{text}</b>"
    elif cell.place == 2:
        text = f"<u>{text}</u>"
    elif cell.text == "failed":
        text = f"<span class=failed>{text}</span>"
    if cell.spread:
        text += f" ± {escape(cell.spread)}"
    if cell.notes:
        text += f"<sup>{', '.join(map(str, cell.notes))}</sup>"
    if cell.published:
        ratio = cell.ratio and f", {cell.ratio}"
        if cell.differs:
            ratio = f', <span class=differs title="more than 10 % from the paper">{cell.ratio} ≠</span>'
        doubtful = '<span title="doubtful">?</span>' if cell.doubtful else ""
        text += f"<small>{escape(cell.published)}{doubtful}{ratio}</small>"
    order = "" if cell.order is None else f' data-order="{cell.order!r}"'
    return f"<td class={'words' if words else 'number'}{order}>{text}</td>"


def _embed(picture: Picture) -> str:
    buffer = io.BytesIO()
    from .drawing import save_svg

    save_svg(picture.figure, buffer)
    code = base64.b64encode(buffer.getvalue()).decode("ascii")
    words = escape(picture.title)
    image = f'<img alt="{words}" src="data:image/svg+xml;base64,{code}">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"

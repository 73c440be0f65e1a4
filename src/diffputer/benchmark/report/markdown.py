"""A report as Markdown, for a repository's pages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .layout import Cell, Report, Table

_SPECIAL = re.compile(r"([\\`*_\[\]|#$~])")


def write_markdown(report: Report, pictures: Mapping[str, str] | None = None) -> str:
    """Write a report as Markdown.

    Parameters
    ----------
    report : Report
        From `diffputer.benchmark.report.document.make_report`.
    pictures : dict, optional
        Name of a picture -> where its file is, seen from the page.

    Returns
    -------
    str
    """
    lines = [f"# {escape_markdown(report.title)}", ""]
    for section in report.sections:
        lines += ["#" * section.level + f" {escape_markdown(section.title)}", ""]
        for words in section.words:
            lines += [escape_markdown(words), ""]
        for table in section.tables:
            lines += [*write_table(table), ""]
        for picture in section.pictures:
            if pictures and picture.name in pictures:
                path = pictures[picture.name].replace(" ", "%20")
                lines += [f"![{escape_markdown(picture.title)}]({path})", ""]
    return "\n".join(lines).rstrip() + "\n"


def write_table(table: Table) -> list[str]:
    """Give the lines of a table and its footnotes.

    Examples
    --------
    >>> cells = (Cell("a|b"), Cell("28.80", "0.12", "33.47", False, "0.860", True, 1))
    >>> print(*write_table(Table("", ("entry", "california"), (cells,))), sep="\\n")
    | entry | california |
    |---|---:|
    | a\\|b | **28.80** ± 0.12<br>33.47, 0.860 ≠ |
    """
    lines = [f"**{escape_markdown(table.title)}**", ""] if table.title else []
    lines.append("| " + " | ".join(escape_markdown(name) for name in table.columns) + " |")
    sides = ["---" if i == 0 or name in table.words else "---:" for i, name in enumerate(table.columns)]
    lines.append("|" + "|".join(sides) + "|")
    lines += ["| " + " | ".join(_write(cell) for cell in row) + " |" for row in table.rows]
    if table.footnotes:
        notes = (f"{n}: {escape_markdown(note)}" for n, note in enumerate(table.footnotes, start=1))
        lines += ["", *(f"<sup>{note}</sup><br>" for note in notes)]
    return lines


def escape_markdown(text: str) -> str:
    """Make text mean itself.

    Examples
    --------
    >>> escape_markdown("a_b <c> | 50 % *")
    'a\\\\_b &lt;c&gt; \\\\| 50 % \\\\*'
    """
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", flat)


def _write(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    if cell.place == 1:
        text = f"**{text}**"
    elif cell.place == 2:
        text = f"<u>{text}</u>"
    if cell.spread:
        text += f" ± {cell.spread}"
    if cell.notes:
        text += f"<sup>{', '.join(map(str, cell.notes))}</sup>"
    if cell.published:
        text += f"<br>{cell.published}{'?' if cell.doubtful else ''}"
    if cell.ratio:
        text += f", {cell.ratio}{' ≠' if cell.differs else ''}"
    return text

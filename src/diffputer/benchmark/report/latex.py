"""A report as LaTeX, to be included in a document that has booktabs and graphicx."""

from __future__ import annotations

from collections.abc import Mapping

from .layout import Cell, Report, Table

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "×": r"$\times$",
    "≠": r"$\neq$", "−": r"$-$", "²": r"$^2$", "–": "--", "…": r"\dots{}", "[": "{[}", "]": "{]}",
    "→": r"$\rightarrow$", "σ": r"$\sigma$", "∞": r"$\infty$", "\u00a0": "~",
}  # fmt: skip
_LAST_LATIN = 0x17F
_HEADINGS = {2: "section", 3: "subsection"}


def write_latex(report: Report, pictures: Mapping[str, str] | None = None) -> str:
    """Write a report as LaTeX.

    Parameters
    ----------
    report : Report
        From `diffputer.benchmark.report.document.make_report`.
    pictures : dict, optional
        Name of a picture -> where its file is, seen from the document.

    Returns
    -------
    str
        Without a preamble; a comment at its head says which packages it needs.
    """
    lines = [
        f"% {' '.join(report.title.split())}",
        "% Needs \\usepackage[T1]{fontenc}, \\usepackage{booktabs} and \\usepackage{graphicx}.",
    ]
    for section in report.sections:
        lines += ["", f"\\{_HEADINGS.get(section.level, 'subsection')}*{{{escape_latex(section.title)}}}"]
        lines += [f"{escape_latex(words)}\n" for words in section.words]
        for table in section.tables:
            lines += write_table(table)
        for picture in section.pictures:
            if pictures and picture.name in pictures:
                lines += [
                    r"\begin{figure}[htbp]\centering",
                    f"\\includegraphics[width=\\linewidth]{{\\detokenize{{{pictures[picture.name]}}}}}",
                    f"\\caption{{{escape_latex(picture.title)}}}",
                    r"\end{figure}",
                ]
        if section.tables:
            lines.append(r"\clearpage % so that floats do not pile up")
    return "\n".join(lines) + "\n"


def write_table(table: Table) -> list[str]:
    """Give the lines of a table: a line a row, and one below it where the paper has numbers.

    Examples
    --------
    >>> cells = (Cell("a_b"), Cell("28.80", "0.12", "33.47", False, "0.860", place=1))
    >>> lines = write_table(Table("", ("entry", "california"), (cells,)))
    >>> print(*lines[4:7], sep="\\n")
    \\midrule
    a\\_b & \\textbf{28.80} $\\pm$ 0.12 \\\\
    \\quad published (ratio) & 33.47 (0.860) \\\\
    """
    sides = "".join("l" if i == 0 or name in table.words else "r" for i, name in enumerate(table.columns))
    caption = f"\\caption{{{escape_latex(table.title)}}}" if table.title else ""
    lines = [
        r"\begin{table}[htbp]\centering" + caption,
        f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{\\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        " & ".join(escape_latex(name) for name in table.columns) + r" \\",
        r"\midrule",
    ]
    for row in table.rows:
        lines.append(" & ".join(_write(cell) for cell in row) + r" \\")
        if any(cell.published for cell in row):
            below = (_write_published(cell) for cell in row[1:])
            lines.append(" & ".join([r"\quad published (ratio)", *below]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}"]
    lines += [
        f"\\par\\footnotesize {number}: {escape_latex(note)}"
        for number, note in enumerate(table.footnotes, start=1)
    ]
    return [*lines, r"\end{table}"]


def escape_latex(text: str) -> str:
    """Make text mean itself.

    Examples
    --------
    >>> print(escape_latex("in_sample, 30 % & more"))
    in\\_sample, 30 \\% \\& more
    """
    return "".join(_SPECIAL.get(letter) or _spell(letter) for letter in " ".join(text.split()))


def _spell(letter: str) -> str:
    """Name what a document in a Latin script has no glyph for, such as emoji in somebody's reason."""
    return letter if ord(letter) <= _LAST_LATIN else f"(U+{ord(letter):04X})"


def _write(cell: Cell) -> str:
    text = escape_latex(cell.text)
    if cell.place == 1:
        text = f"\\textbf{{{text}}}"
    elif cell.place == 2:
        text = f"\\underline{{{text}}}"
    if cell.spread:
        text += f" $\\pm$ {cell.spread}"
    if cell.notes:
        text += f"$^{{{','.join(map(str, cell.notes))}}}$"
    return text


def _write_published(cell: Cell) -> str:
    if not cell.published:
        return ""
    differs = " $\\neq$" if cell.differs else ""
    ratio = f" ({cell.ratio}{differs})" if cell.ratio else ""
    return f"{cell.published}{'?' if cell.doubtful else ''}{ratio}"

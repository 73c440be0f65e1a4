"""A report in the terminal; wide tables are split into blocks that fit."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from .layout import Cell, Report, Table

_NAME_WIDTH, _CELL_WIDTH, _WIDEST_NAME = 24, 16, 40


def print_report(report: Report, console: Console) -> None:
    """Print a report.

    Parameters
    ----------
    report : Report
        From `diffputer.benchmark.report.document.make_report`.
    console : rich.console.Console
        Where to; its width decides how many data sets stand side by side.
    """
    console.print(Text(report.title, style="bold"))
    if not console.is_terminal:
        console.print("Here ** stands for bold, * for underlined.")
    for section in report.sections:
        if not section.words and not section.tables and section.pictures:
            continue  # nothing but pictures
        console.print()
        console.rule(Text(section.title), align="left", style="dim", characters="─")
        for words in section.words:
            console.print(Text(words, style="dim"))
        for table in section.tables:
            for block in split_table(table, console.width):
                console.print(_draw(block, plain=not console.is_terminal))
            for number, note in enumerate(table.footnotes, start=1):
                console.print(Text(f"[{number}] {note}"))


def split_table(table: Table, width: int) -> list[Table]:
    """Split a table of measurements into blocks that are no wider than a terminal.

    The first column is in every block, the last ones (average, ranks) in the last block.

    Examples
    --------
    >>> row = tuple(Cell(str(i)) for i in range(7))
    >>> table = Table("", ("entry", *"abcde", "average"), (row,), n_measured=5)
    >>> [block.columns for block in split_table(table, 80)]
    [('entry', 'a', 'b', 'c'), ('entry', 'd', 'e', 'average')]
    """
    if not table.n_measured:
        return [table]
    fit = max((width - _NAME_WIDTH) // _CELL_WIDTH, 1)
    numbers = list(range(1, len(table.columns)))
    groups = [numbers[start : start + fit] for start in range(0, len(numbers), fit)]
    return [
        Table(
            table.title if place == 0 else "",
            tuple(table.columns[i] for i in (0, *group)),
            tuple(tuple(row[i] for i in (0, *group)) for row in table.rows),
            words=table.words,
        )
        for place, group in enumerate(groups)
    ]


def _draw(table: Table, plain: bool) -> RichTable:
    drawn = RichTable(
        title=escape(table.title) or None, title_justify="left", title_style="bold", header_style="bold",
        show_edge=False, pad_edge=False, show_lines=any(c.published for row in table.rows for c in row),
    )  # fmt: skip
    for place, name in enumerate(table.columns):
        is_text = place == 0 or name in table.words
        drawn.add_column(
            escape(name), justify="left" if is_text else "right", overflow="fold",
            max_width=_WIDEST_NAME if is_text else None,
        )  # fmt: skip
    for row in table.rows:
        drawn.add_row(*(_write(cell, plain) for cell in row))
    return drawn


def _write(cell: Cell, plain: bool) -> Text:
    style = {1: "bold green", 2: "underline"}.get(cell.place or 0, "red" if cell.text == "failed" else "")
    text = Text(cell.text, style=style)
    if plain and cell.place:  # neither bold nor underlined in a file or a pipe
        text.append("*" * (3 - cell.place))
    if cell.spread:
        text.append(f" ±{cell.spread}", style="not bold not underline")
    for note in cell.notes:
        text.append(f" [{note}]", style="not bold not underline")
    if cell.published:
        text.append(f"\n{cell.published}{'?' if cell.doubtful else ''}", style="not bold not underline dim")
    if cell.ratio:
        text.append(f" {cell.ratio}{'≠' if cell.differs else ''}", style="not bold not underline dim")
    return text

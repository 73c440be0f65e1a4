"""What the command line says of a table that was filled, and the report that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SettingError

if TYPE_CHECKING:
    from .imputer import DiffPuter
    from .runtime.reporting import Reporter
    from .tables.files import TableFile


def write_report_of(
    path: str,
    table: TableFile,
    completed: Sequence[Any],
    imputer: DiffPuter,
    draws: int | None,
    input: str,
    command: str,
) -> None:
    """Write the report; a best guess shows no uncertainty, so that some draws are made for it."""
    import dataclasses

    from .analysis.report import make_report
    from .reports import N_DRAWS, origin_of, write_report
    from .tables.matching import match_columns
    from .tables.paths import write_bytes

    title = "" if input == "-" else Path(input).name
    if not imputer.__sklearn_is_fitted__():  # nothing was missing
        write_bytes(path, make_report(table.frame, completed[0], title=title).encode())
    elif draws is None:
        part = match_columns(table, imputer.schema_).part
        write_report(imputer, part, path, N_DRAWS, title=title, command=command)
    else:
        origin = dataclasses.replace(origin_of(imputer), command=command)
        page = make_report(table.frame, completed, schema=imputer.schema_, origin=origin, title=title)
        write_bytes(path, page.encode())


def summarise_run(
    session: Reporter, table: TableFile, completed: Sequence[Any], imputer: DiffPuter, seconds: float
) -> None:
    """Say what was filled, how well, and where it went."""
    from rich.table import Table
    from rich.text import Text as Cell

    from .analysis.summary import as_cells, in_words, summarise
    from .runtime.reporting import make_console, visible

    if imputer.__sklearn_is_fitted__():  # else nothing was missing
        lines = summarise(table.frame, completed, imputer.schema_)
        titles, *rows = as_cells(lines)
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for place, title in enumerate(titles):
            shown.add_column(title, justify="left" if place < 2 else "right")
        for row in rows:
            shown.add_row(*(Cell(visible(text)) for text in row))
        if rows:
            make_console(stderr=True).print(shown)
        session.say(f"{in_words(lines)}; {seconds:.1f} seconds, seed {imputer.seed_}")
        tried = [trace for trace in imputer.trace_ if trace.held_out_error == trace.held_out_error]  # not NaN
        if tried:
            best = imputer.trace_[imputer._result.best_round - 1] if imputer._result else tried[-1]
            session.say(
                f"error on held-out cells {best.held_out_error:.2f} standard deviations "
                f"(column means: {best.baseline_error:.2f})"
            )
    session.say(f"wrote {' and '.join(session.written)}")


def check_report(path: str | None) -> None:
    """Refuse a name under which a page would not be opened as one."""
    if path is not None and not path.lower().endswith((".html", ".htm")):
        raise SettingError(
            f"--report is a page, whose name must end in .html, however: {path!r}. Name it so; a browser "
            "prints it to PDF."
        )

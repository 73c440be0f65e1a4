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
        as_file = "written to the file"
        write_report(imputer, part, path, N_DRAWS, title=title, command=command, written_as=as_file)
    else:
        origin = dataclasses.replace(origin_of(imputer), command=command)
        page = make_report(table.frame, completed, schema=imputer.schema_, origin=origin, title=title)
        write_bytes(path, page.encode())


def summarise_run(
    session: Reporter,
    table: TableFile,
    completed: Sequence[Any],
    imputer: DiffPuter,
    seconds: float,
    draws: int | None,
) -> None:
    """Say what was filled, how well, and where it went."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Cell

    from .analysis.summary import as_cells, in_words, summarise
    from .analysis.verdicts import overall_error

    if imputer.__sklearn_is_fitted__():  # else nothing was missing
        lines = summarise(table.frame, completed, imputer.schema_)
        titles, *rows = as_cells(lines)
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for place, title in enumerate(titles):
            shown.add_column(title, justify="left" if place < 2 else "right")
        for row in rows:
            shown.add_row(*map(Cell, row))
        if rows:
            Console(stderr=True).print(shown)
        session.say(f"{in_words(lines)}; {seconds:.1f} seconds, seed {imputer.seed_}")
        scores, n_missing = imputer.held_out_scores_, {line.name: line.n_missing for line in lines}
        if scores is not None and (overall := overall_error(scores, n_missing)) is not None:
            session.say(
                f"error on held-out cells {overall[0]:.2f} standard deviations "
                f"(column means: {overall[1]:.2f})"
            )
        if draws is None and any(line.n_missing > line.n_left for line in lines):
            session.say(
                "best guesses vary less than the true values: for statistics such as standard errors and "
                "correlations use --draws M",
                "note",
            )
    session.say(f"wrote {' and '.join(session.written)}")


def check_report(path: str | None) -> None:
    """Refuse a name under which a page would not be opened as one."""
    if path is not None and not path.lower().endswith((".html", ".htm")):
        raise SettingError(
            f"--report is a page, whose name must end in .html, however: {path!r}. Name it so; a browser "
            "prints it to PDF."
        )

"""What the command line says of a table that was filled, and the report that it writes."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .cli_options import command_of
from .errors import SettingError

if TYPE_CHECKING:
    import pandas as pd
    import typer

    from .imputer import DiffPuter
    from .runtime.reporting import Reporter
    from .tables.files import TableFile
    from .tables.markers import MarkerWord


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
    from .runtime.stages import stage
    from .tables.matching import match_columns
    from .tables.paths import write_bytes

    title = "" if input == "-" else Path(input).name
    if not imputer.__sklearn_is_fitted__():  # nothing was missing
        with stage("report"):
            page = make_report(table.frame, completed[0], title=title, marker_words=table.marker_words)
        write_bytes(path, page.encode())
    elif draws is None:
        part = match_columns(table, imputer.schema_).part
        write_report(
            imputer,
            part,
            path,
            N_DRAWS,
            title=title,
            command=command,
            written_as="written to the file",
            marker_words=table.marker_words,
        )
    else:
        origin = dataclasses.replace(origin_of(imputer), command=command)
        with stage("report"):
            page = make_report(
                table.frame,
                completed,
                schema=imputer.schema_,
                origin=origin,
                title=title,
                marker_words=table.marker_words,
            )
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
    from rich.table import Table
    from rich.text import Text as Cell

    from .analysis.summary import as_cells, in_words, summarise
    from .analysis.verdicts import overall_error
    from .analysis.wording import count, listed
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
        scores = imputer.held_out_scores_
        n_imputed = {line.name: line.n_missing - line.n_left for line in lines}
        if scores is not None and (overall := overall_error(scores, n_imputed)) is not None:
            session.say(
                f"error on held-out cells {overall[0]:.2f} standard deviations "
                f"(column means: {overall[1]:.2f}; {count(overall[2], 'cell')})"
            )
        if draws is None and any(line.n_missing > line.n_left for line in lines):
            session.say(
                "best guesses vary less than the true values: for statistics such as standard errors and "
                "correlations use --draws M",
                "note",
            )
    session.say(f"wrote {listed(session.written)}")


def check_report(path: str | None) -> None:
    """Refuse a name under which a page would not be opened as one."""
    if path is not None and not path.lower().endswith((".html", ".htm")):
        raise SettingError(
            f"--report is a page, whose name must end in .html, however: {path!r}. Name it so; a browser "
            "prints it to PDF."
        )


def show_model(facts: dict[str, Any], *, as_json: bool) -> str:
    """Write what a model file says of itself, for a reader or as JSON."""
    if as_json:
        return json.dumps(facts, indent=2, allow_nan=False)
    fit = facts["fit"]
    lines = [
        f"{facts['file']}: {facts['bytes']:,} bytes, format version {facts['format_version']}",
        f"fitted by diffputer {fit['version']} on {fit['date']} in {fit['seconds']:.1f} seconds on "
        f"{fit['device']}, seed {facts['seed']}",
        f"table: {fit['rows']:,} rows, {fit['columns']:,} columns, {fit['missing']:,} cells missing, "
        f"fingerprint {fit['fingerprint'][:16]}",
        f"engine: {facts['engine'] or 'none'}",
        "columns (held-out error against that of the mean or the most frequent category):",
    ]
    for column in facts["columns"]:
        held = column.get("held_out") or {}
        scores = [held.get(name) for name in ("error", "baseline")]
        score = "" if None in scores else f", error {scores[0]:.2f} against {scores[1]:.2f}, n={held['n']}"
        kept = ", skipped" if column.get("skip") else ""
        lines.append(f"  {column['name']!r}: {column['kind']}, {column['status']}{kept}{score}")
    if settings := facts["settings"]:
        lines += ["settings:", *(f"  {name}={value}" for name, value in settings.items())]
    return "\n".join(lines)


class _Stages(logging.Handler):
    """Adds up the seconds of every stage that is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "stage") and hasattr(record, "seconds"):
            self.seconds[record.stage] = self.seconds.get(record.stage, 0.0) + record.seconds


@contextmanager
def summarising(session: Reporter, path: str | None, command: str, *taken: str | None) -> Iterator[None]:
    """Write a summary of a command when it ends, also when it fails; around ``session.reporting()``.

    A path that cannot be written, or is one of the other files of the command (``taken``), is refused before
    the work. Afterwards no summary makes a command fail.
    """
    from .errors import DiffputerError
    from .tables.paths import check_writable, write_bytes

    if path is None:
        yield
        return
    with session.reporting():
        if path in ("", "-") or os.path.realpath(path) in {os.path.realpath(one) for one in taken if one}:
            raise SettingError(f"--summary needs a file of its own; got {path!r}. Name another one.")
        check_writable(path, format="csv")  # any suffix will do
    started, status, stages = time.perf_counter(), 1, _Stages()
    logger = logging.getLogger("diffputer")
    level = logger.level
    logger.addHandler(stages)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        logger.removeHandler(stages)
        logger.setLevel(level)
        facts = {
            "command": command,
            "diffputer": __version__,
            "exit_status": status,
            "error": session.error,
            "warnings": session.warnings,
            "seconds": {"total": time.perf_counter() - started, **stages.seconds},
            "written": session.written,
            **session.facts,
        }
        try:
            text = json.dumps(_finite(facts), indent=2, default=str, allow_nan=False)
            write_bytes(path, f"{text}\n".encode())
        except (OSError, DiffputerError, ValueError) as error:
            with suppress(OSError):
                session.say(f"The summary {path!r} could not be written. {error}", "warning")


@contextmanager
def running(
    session: Reporter, context: typer.Context, summary: str | None, *taken: str | None
) -> Iterator[None]:
    """Run a command: its summary is written when it ends, and its errors become a sentence and an exit code.

    Parameters
    ----------
    session : Reporter
        Of the command. ``session.facts`` and ``session.written`` go to the summary.
    context : typer.Context
        Of the command.
    summary : str or None
        The file of ``--summary``.
    *taken : str or None
        Other files of the command, which the summary must not replace.
    """
    with summarising(session, summary, command_of(context), *taken), session.reporting():
        yield


def _finite(value: Any) -> Any:
    """A value without NaN and infinite numbers, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table of scores, as JSON values."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return rows


def column_counts(frame: Any, completed: Any, marker_words: Sequence[MarkerWord] = ()) -> dict[str, Any]:
    """Number of rows, and the observed, missing, imputed and left missing cells of every column."""
    import dataclasses

    from .tables.frames import read_table

    before, after = read_table(frame), read_table(completed)
    columns: list[dict[str, Any]] = []
    for place, name in enumerate(before.names):
        missing, left = int(before.missing[:, place].sum()), int(after.missing[:, place].sum())
        counts = {"missing": missing, "imputed": missing - left, "left_missing": left}
        words = [dataclasses.asdict(one) for one in marker_words if one.column == name]
        columns.append({"name": name, "observed": before.n_rows - missing, **counts, "marker_words": words})
    return {"rows": before.n_rows, "columns": columns}


def model_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """What a summary holds of a saved model: counts and scores of every column, the fit, no cell's value."""
    columns = [
        {
            "name": column["name"],
            "kind": column["kind"],
            "status": column["status"],
            "skipped": column.get("skip"),
            "observed": column.get("n_observed"),
            "missing": column.get("n_missing"),
            **({"held_out": column["held_out"]} if "held_out" in column else {}),
        }
        for column in facts["columns"]
    ]
    known = {name: facts[name] for name in ("bytes", "format_version", "engine", "seed", "fit")}
    return {"model": facts["file"], "rows": facts["fit"]["rows"], "columns": columns, **known}


def column_facts(table: TableFile, completed: Any, imputer: DiffPuter) -> dict[str, Any]:
    """Counts of every column, for a summary: observed, missing, imputed, left missing, and shifts."""
    import dataclasses

    from .tables.frames import read_table
    from .tables.matching import match_columns
    from .tables.shifts import find_shifts

    facts = column_counts(table.frame, completed, table.marker_words)
    if imputer.__sklearn_is_fitted__():
        part = read_table(match_columns(table, imputer.schema_).part)
        shifts = {one.name: dataclasses.asdict(one) for one in find_shifts(imputer.schema_, part)}
        scores, known = imputer.held_out_scores_, {column.name: column for column in imputer.schema_}
        for column in facts["columns"]:
            name = column["name"]
            shift = shifts.get(name, {})
            if name in known:
                own = known[name]
                column |= {"kind": str(own.kind), "status": str(own.status), "skipped": own.skip}
            column |= {key: shift[key] for key in shift if key not in column}
            observed = shift.get("observed") or 1
            column["outside_share"] = shift.get("outside", 0) / observed
            if scores is not None and name in scores.index:
                line = scores.loc[name, ["n", "error", "baseline"]].to_dict()
                scored = {key: None if one != one else float(one) for key, one in line.items()}
                column["held_out"] = {**scored, "n": int(line["n"])}
        facts["seed"] = imputer.seed_
        facts["fit"] = dataclasses.asdict(imputer.fit_facts_)
    return facts

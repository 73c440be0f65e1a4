"""``diffputer bench coverage``: simulate, pool into a coverage table, show."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...cli_options import summary_option
from ...cli_results import running
from ...errors import InputError, SettingError
from ...runtime.reporting import EXIT_FAILURE, Reporter, make_console, visible

if TYPE_CHECKING:
    from .summary import Line

#: The rows that the documentation shows.
SUMMARY = Path("benchmarks") / "coverage" / "summary.csv"
FORMATS = ("terminal", "markdown")


def coverage(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Of --from-rows and --from-table.", show_default=False),
    ] = None,
    from_rows: Annotated[
        bool,
        typer.Option("--from-rows", help="Simulate nothing: take the raw rows in FILE..., merged."),
    ] = False,
    from_table: Annotated[
        bool,
        typer.Option(
            "--from-table",
            help="Simulate nothing: show the coverage tables in FILE..., pooled: each must be of repetitions "
            "of its own.",
        ),
    ] = False,
    repetitions: Annotated[
        str, typer.Option(metavar="R|FIRST:END", help="How many, or which: 100:200 for a second machine.")
    ] = "200",
    designs: Annotated[
        str | None, typer.Option(metavar="A,B", help="linear, nonlinear.", show_default="all")
    ] = None,
    mechanisms: Annotated[
        str | None, typer.Option(metavar="A,B", help="mcar, mar, mnar.", show_default="all")
    ] = None,
    rates: Annotated[str, typer.Option(metavar="A,B", help="Shares of missing cells.")] = "0.2,0.5",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="complete, cases, mean, mice, mice-norm, miceforest, diffputer, diffputer-none, "
            "diffputer-linear, diffputer-bootstrap.",
            show_default="all but bootstrap",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=30, help="Of each table.")] = 400,
    draws: Annotated[int, typer.Option(min=2, help="Of each multiple imputation.")] = 20,
    quality: Annotated[str, typer.Option(metavar="fast|balanced|best", help="Of DiffPuter.")] = "fast",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another parameter of DiffPuter. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Raw rows; what is there is done.")] = Path(
        "coverage.csv"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes, of one thread each.")] = 1,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Where the coverage table goes: a line for each cell, method and estimand.",
            show_default="beside the raw rows: NAME.table.csv",
        ),
    ] = None,
    summary: Annotated[str | None, summary_option()] = None,
    format: Annotated[str, typer.Option(metavar="|".join(FORMATS), help="Of the tables.")] = "terminal",
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the picture into FILE (.png or .svg).")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Put the tables between the marks of a page.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Do pooled 95 % intervals hold the truth 95 % of the time? Simulate tables whose truth is known.

    What is done is skipped: stop it with Ctrl-C, and the same command goes on.

    [cyan]diffputer bench coverage --repetitions 200 --workers 16 --out rows.csv[/]

    [cyan]diffputer bench coverage --from-rows rows.csv other.csv --table both.csv[/]

    [cyan]diffputer bench coverage --from-table both.csv --format markdown --figure coverage.png[/]
    """
    session = Reporter(quiet, debug)
    paths = [*(files or []), out, table, figure, page]
    with session.reporting():
        if summary is not None and summary.lower().endswith(".csv"):
            raise SettingError(
                f"--summary is a JSON file; got {summary!r}. Write the coverage table with --table."
            )
    with running(session, context, summary, *(str(path) for path in paths if path is not None)):
        if format not in FORMATS:
            raise SettingError(f"--format must be one of {', '.join(FORMATS)}, however: {format!r} is not.")
        if figure is not None and figure.suffix.lower() not in (".png", ".svg"):
            raise SettingError(f"--figure must end in .png or .svg, however: {str(figure)!r} does not.")
        if from_rows and from_table:
            raise SettingError("--from-rows and --from-table exclude each other, however: both are given.")
        if (from_rows or from_table) != bool(files):
            raise SettingError(
                "Files belong to --from-rows or --from-table, however: "
                + ("there are none." if not files else "neither is given.")
            )
        sources, failed = files or [out], 0
        target = table if table or from_table else sources[0].with_suffix(".table.csv")
        if target is not None and target.resolve() in {path.resolve() for path in sources}:
            raise SettingError(
                f"--table must not replace what it is made from; got {str(target)!r}. Name another file."
            )
        if page is not None:
            _read_page(page)  # a mistake is found before the work
        if target is None or from_table:
            lines = _read_tables(session, sources, target)
        else:
            if not from_rows:
                session.facts["raw_rows"] = str(out)
                failed = _simulate(
                    session, out, repetitions, designs, mechanisms, rates, methods, rows, draws,
                    _read_settings(quality, settings or []), workers, retry_failed,
                )  # fmt: skip
            lines = _summarise(session, sources, target)
        session.facts |= {"lines": len(lines), "failures": failed}
        _show(session, lines, format, figure, page)
        if failed:
            sys.exit(EXIT_FAILURE)


def _simulate(
    session: Reporter,
    out: Path,
    repetitions: str,
    designs: str | None,
    mechanisms: str | None,
    rates: str,
    methods: str | None,
    rows: int,
    draws: int,
    parameters: dict[str, Any],
    workers: int,
    retry_failed: bool,
) -> int:
    """Run what is left; give the number of failures."""
    from ..display import show_duration
    from .designs import DESIGNS, MECHANISMS
    from .imputers import default_methods, find_entries
    from .simulation import plan_jobs, run_jobs

    session.interrupted = (
        f"stopped; what was done is in {out}: the same command goes on from there, and "
        f"diffputer bench coverage --from-rows {out} makes the table of it"
    )
    entries, lacking = find_entries(_split(methods) or list(default_methods()), parameters)
    for name, reason in lacking.items():
        session.say(f"{name} is skipped. {reason}", "note")
    jobs = plan_jobs(
        out,
        entries,
        designs=_choose("--designs", designs, DESIGNS),
        mechanisms=_choose("--mechanisms", mechanisms, MECHANISMS),
        rates=_read_rates(rates),
        repetitions=_read_repetitions(repetitions),
        rows=rows,
        draws=draws,
        retry_failed=retry_failed,
    )
    session.say(f"{len(jobs):,} tables to do, {workers} at a time; rows go to {out}")
    started, failed, said = time.monotonic(), 0, 0.0
    for number, found in enumerate(run_jobs(jobs, out, workers), start=1):
        for row in found:
            if row["error"]:
                failed += 1
                session.say(f"{row['method']} failed on {_name(row)}: {row['error']}", "note")
        passed = time.monotonic() - started
        if passed - said > 30 or number == len(jobs):
            said = passed
            left = show_duration(passed / number * (len(jobs) - number))
            session.say(f"{number:,} of {len(jobs):,} tables after {show_duration(passed)}; {left} left")
    return failed


def _summarise(session: Reporter, sources: Sequence[Path], target: Path) -> list[Line]:
    from .simulation import read_raw
    from .summary import summarise

    if absent := [str(path) for path in sources if not path.is_file()]:
        raise InputError(f"Raw rows must be files, however: {', '.join(absent)} cannot be found.")
    lines = summarise(read_raw(sources))
    _write(session, lines, target)
    return lines


def _read_tables(session: Reporter, files: Sequence[Path], target: Path | None) -> list[Line]:
    from .summary import pool, read_summary

    lines = pool(line for path in files for line in read_summary(path))
    if target is not None:
        _write(session, lines, target)
    return lines


def _write(session: Reporter, lines: Sequence[Line], target: Path) -> None:
    from .summary import write_summary

    write_summary(target, lines)
    session.written.append(str(target))
    session.say(f"the coverage table is in {target}")


def _show(
    session: Reporter, lines: Sequence[Line], format: str, figure: Path | None, page: Path | None
) -> None:
    from ..report.terminal import print_report
    from .tables import make_report, put_into_page, write_part

    if not lines:
        raise InputError("There must be rows to show, however: there are none. Run the simulation first.")
    report = make_report(lines)
    if page is not None:
        page.write_text(put_into_page(_read_page(page), write_part(report)), encoding="utf-8")
        session.written.append(str(page))
    elif format == "markdown":
        sys.stdout.write(visible(write_part(report)))
    else:
        print_report(report, make_console())
    if figure is not None:
        from ..report.drawing import save_png, save_svg
        from .figure import draw_coverage

        figure.parent.mkdir(parents=True, exist_ok=True)
        (save_svg if figure.suffix.lower() == ".svg" else save_png)(draw_coverage(lines), figure)
        session.written.append(str(figure))
        session.say(f"the picture is in {figure}")


def _read_page(page: Path) -> str:
    """The text of a page that has the marks."""
    from .tables import BEGIN, END

    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--page must be a text file; {str(page)!r} cannot be read. {error}") from error
    if BEGIN not in text or END not in text:
        raise InputError(f"A page must have the lines {BEGIN} and {END}, however: {page} has not.")
    return text


def _read_settings(quality: str, given: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE; a value that is no number is text."""
    parameters: dict[str, Any] = {"quality": quality}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise SettingError(f"--set must be NAME=VALUE, however: {text!r} is not.")
        parameters[name.strip()] = _number(value.strip())
    from ...parameters import Parameters

    known = Parameters().get_params()
    if foreign := sorted(set(parameters) - set(known)):
        raise SettingError(f"--set must name parameters of DiffPuter, however: {', '.join(foreign)} is none.")
    return parameters


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _choose(option: str, text: str | None, known: Any) -> list[str]:
    wanted = _split(text) or list(known)
    if foreign := [name for name in wanted if name not in known]:
        raise SettingError(
            f"{option} must be among {', '.join(known)}, however: {', '.join(foreign)} is not."
        )
    return wanted


def _read_rates(text: str) -> list[float]:
    try:
        rates = [float(part) for part in _split(text)]
    except ValueError:
        rates = []
    if not rates or not all(0 < rate < 1 for rate in rates):
        raise SettingError(f"--rates must be shares between 0 and 1, as in 0.2,0.5, however: {text!r}.")
    return rates


def _read_repetitions(text: str) -> range:
    first, _, end = text.rpartition(":")
    try:
        found = range(int(first or 0), int(end))
    except ValueError:
        found = range(0)
    if not found or found.start < 0:
        raise SettingError(f"--repetitions must be as in 200 or 100:200, however: {text!r} is not.")
    return found


def _name(row: dict[str, Any]) -> str:
    return f"{row['design']} {row['mechanism']} {row['rate']:g}, repetition {row['repetition']}"

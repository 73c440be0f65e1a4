"""``diffputer compare``: parse, call `diffputer.compare`, show. The ranking goes to standard output."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from .cli_options import KEEP_HELP, MISSING_HELP, ONLY_MISSING_HELP, pair, summary_option, words_here
from .cli_results import check_report, column_counts, records_of, running
from .comparing.waiting import wait_quietly
from .errors import SettingError
from .runtime.progress import share_progress
from .runtime.reporting import EXIT_FAILURE, Reporter, make_console
from .runtime.stages import stage
from .tables.paths import MAX_GIB, check_writable, permissions_of, read_bytes

if TYPE_CHECKING:
    from .comparing.comparison import Comparison
    from .tables.files import TableFile

Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None
_IN, _OUT, _RUN = "Input", "Output", "Comparison"


def _option(name: str, panel: str, value: str | None, words: str, **more: Any) -> Any:
    short = ["-" + name[0]] if name in ("output", "quiet") else []
    return typer.Option(
        "--" + name.replace("_", "-"), *short, metavar=value, help=words, rich_help_panel=panel, **more
    )


_Input = typer.Argument(
    metavar="INPUT", help="A CSV, TSV (also .gz), Parquet or Arrow file; - is standard input."
)
_Missing = _option("missing", _IN, "[COL=]WORD", MISSING_HELP)
_Keep = _option("keep", _IN, "[COL=]WORD", KEEP_HELP)
_OnlyMissing = _option("only_missing", _IN, "[COL=]WORD", ONLY_MISSING_HELP)
_Delimiter = _option("delimiter", _IN, "D", "Between the cells of text.", show_default="found out")
_Encoding = _option("encoding", _IN, "E", "Of text.", show_default="utf-8")
_Decimal = _option("decimal", _IN, ".|,", "In the numbers of text.", show_default="found out")
_Thousands = _option("thousands", _IN, "MARK", "That parts their thousands: . , ' _ or a blank.")
_Format = _option(
    "format", _IN, "csv|tsv|parquet|arrow", "Of standard input, or instead of the suffix.", show_default="csv"
)
_MaxGib = typer.Option(
    "--max-gib",
    metavar="GIB",
    min=0,
    help="That a gzipped, Parquet or Arrow file may decompress to.",
    rich_help_panel=_IN,
)
_Categorical = _option("categorical", _IN, "COL", "A column of numbers that are categories. Repeatable.")
_Kind = _option(
    "kind", _IN, "COL=KIND", "What a column holds: continuous, integer, categorical, text ... Repeatable."
)
_Report = _option("report", _OUT, "FILE.html", "Write a report: one file that needs nothing else.")
_Output = _option("output", _OUT, "FILE", "Also fill in the table with the best method, and write it there.")
_Quiet = _option("quiet", _OUT, None, "No progress bar, no notes: only the name of the best method.")
_Debug = _option("debug", _OUT, None, "Show the traceback of an error.")
_Methods = _option(
    "methods",
    _RUN,
    "A,B,...",
    "Which methods, of those that diffputer bench list shows.",
    show_default="those that fit",
)
_Budget = _option(
    "time_budget",
    _RUN,
    "SECONDS",
    "For all of it; quick methods come first. With -o a part is kept for filling in, where DiffPuter ends "
    "in time and another method takes what it takes.",
)
_Repeats = _option("repeats", _RUN, "N", "How often other cells are hidden, if the time suffices.")
_MaxRows = _option("max_rows", _RUN, "N", "Of a longer table so many rows are taken at random.")
_Device = _option("device", _RUN, "auto|cpu|cuda|mps", "Where DiffPuter and MIWAE compute.")
_Seed = _option("seed", _RUN, "N", "Same seed, same hidden cells.", min=0)


def compare(
    context: typer.Context,
    input: Annotated[str, _Input],
    missing: Annotated[Texts, _Missing] = None,
    keep: Annotated[Texts, _Keep] = None,
    only_missing: Annotated[Texts, _OnlyMissing] = None,
    delimiter: Annotated[Text, _Delimiter] = None,
    encoding: Annotated[Text, _Encoding] = None,
    decimal: Annotated[Text, _Decimal] = None,
    thousands: Annotated[Text, _Thousands] = None,
    format: Annotated[Text, _Format] = None,
    max_gib: Annotated[float, _MaxGib] = MAX_GIB,
    categorical: Annotated[Texts, _Categorical] = None,
    kind: Annotated[Texts, _Kind] = None,
    report: Annotated[Text, _Report] = None,
    output: Annotated[Text, _Output] = None,
    summary: Annotated[Text, summary_option(_OUT)] = None,
    methods: Annotated[Text, _Methods] = None,
    time_budget: Annotated[float, _Budget] = 120.0,
    repeats: Annotated[int, _Repeats] = 3,
    max_rows: Annotated[int, _MaxRows] = 5_000,
    device: Annotated[str, _Device] = "auto",
    seed: Annotated[int, _Seed] = 0,
    quiet: Annotated[bool, _Quiet] = False,
    debug: Annotated[bool, _Debug] = False,
) -> None:
    """Find out which imputer suits a table: hide known cells, let each method fill them in, rank them.

    [bold]Examples[/]

    [cyan]diffputer compare survey.csv[/]

    [cyan]diffputer compare survey.csv --report survey.html --time-budget 600[/]

    [cyan]diffputer compare survey.csv --methods mean,mice,diffputer-balanced -o full.csv[/]
    """
    session = Reporter(quiet, debug, words_here(context), interrupted="no two methods had finished")
    started = time.monotonic()
    wait_quietly(os.environ)  # before anything heavy is imported: the table is filled in in this process
    with (
        permissions_of(input),
        running(session, context, summary, input, output, report),
        share_progress(not quiet) as progress,
    ):
        _check_targets(input, report, output)
        wishes: dict[str, Any] = {
            "categorical_features": categorical or None,
            "schema": dict(pair(text, "--kind", "COL=KIND", first=False) for text in kind or []) or None,
        }
        from .comparing.running import FILLING_SHARE, choose_settings, run_comparison
        from .tables.files import read_table_file
        from .tables.suspicions import known_answers

        given = {
            "missing": missing, "keep": keep, "only_missing": only_missing,
            "delimiter": delimiter, "encoding": encoding, "decimal": decimal,
            "thousands": thousands, "format": format, "max_gib": max_gib if max_gib != MAX_GIB else None,
        }  # fmt: skip
        reading: dict[str, Any] = {name: value for name, value in given.items() if value}
        with stage("read"):
            table = read_table_file(input, **reading, kinds=wishes["schema"], progress=progress)
        answers = [word for word in table.marker_words if not (word.taken_for_missing or word.stated)]
        if answers:  # lines of Python that read the file must keep them too
            kept = [*reading.get("keep", ()), *(f"{word.column}={word.word}" for word in answers)]
            reading = {**reading, "keep": list(dict.fromkeys(kept))}
        with stage("compare"), known_answers(table.answers):  # reading the file has warned of these
            result = run_comparison(
                table.frame,
                methods=None
                if methods is None
                else [name.strip() for name in methods.split(",") if name.strip()],
                time_budget=time_budget,
                repeats=repeats,
                max_rows=max_rows,
                device=device,
                random_state=seed,
                progress=not quiet,
                keep_partial=True,
                filling_share=0.0 if output is None else FILLING_SHARE,
                **wishes,
            )
        if summary is not None:
            session.facts |= column_counts(table.frame, table.frame, table.marker_words)
            session.facts |= {"best": result.best, "scores": records_of(result.table)}
        _show(session, result, to_error=output == "-")
        if report is not None:
            with stage("report"):
                result.report(report, source=input, reading=reading)
            session.written.append(report)
        if output is not None and not result.interrupted and result.has_compared:
            settings = choose_settings(result, started + time_budget, device)
            with known_answers(table.answers):
                completed = _fill(table, result, output, settings, quiet)
            if summary is not None:
                session.facts |= column_counts(table.frame, completed, table.marker_words)
            session.written.append(output)
        if session.written:
            session.say(f"wrote {' and '.join(session.written)}")
        if result.interrupted:
            sys.exit(session.interrupt_code)
        if not result.has_compared:
            if output is not None:
                session.say(f"{output} was not written, as no two methods finished", "warning")
            sys.exit(EXIT_FAILURE)


def _check_targets(input: str, report: str | None, output: str | None) -> None:
    """Find mistakes before the work."""
    if input != "-" and not os.path.isfile(input):
        read_bytes(input)  # says what is wrong
    taken = {os.path.realpath(path) for path in (input, output) if path and path != "-"}
    if report == "-" or (report is not None and os.path.realpath(report) in taken):
        raise SettingError(f"--report needs a file of its own, however: {report!r}. Name another one.")
    if report is not None:
        check_writable(report, format="csv")  # any suffix will do
        check_report(report)
    if output is not None:
        if output != "-" and os.path.realpath(output) == os.path.realpath(input):
            raise SettingError(f"--output must not be the input, however: {output!r}. Name another one.")
        check_writable(output)


def _show(session: Reporter, result: Comparison, to_error: bool) -> None:
    """Print the ranking and the verdict, unless a table goes to standard output, and say what to know."""
    if session.quiet and not result.has_compared:
        session.say(result.verdict, "error")
        return
    if session.quiet:
        (sys.stderr if to_error else sys.stdout).write(f"{result.best}\n")
        return
    from rich.table import Table
    from rich.text import Text as Words

    from .comparing.runs import show_seconds
    from .comparing.verdict import show_probability

    console = make_console(stderr=to_error)
    wide = console.width >= 100
    frame = result.table.dropna(subset="rank")
    shown = Table(box=None, header_style="bold", pad_edge=False)
    numbers, levels = (bool(frame[name].notna().any()) for name in ("rmse", "accuracy"))
    titles = [
        "method",
        "error",
        "behind (95 %)" if wide else "behind",
        "best?",
        "columns",
        *["RMSE"] * numbers,
        *["accuracy"] * levels,
        "time",
    ]
    for place, title in enumerate(titles):
        shown.add_column(title, justify="right" if place else "left", no_wrap=place == 0)
    known, has_order = result.has_compared, not result.scores.are_equal
    for row in frame.itertuples():
        level = f", level on {row.columns_level}" if known and row.columns_level else ""
        behind = "" if row.rank == 1 else f"{row.behind:.3f}"
        if behind and wide:
            behind += f" ({row.behind_low:.3f} to {row.behind_high:.3f})"
        cells = [
            row.method,
            f"{row.error:.3f}",
            behind,
            _brief(show_probability(row.probability_best)) if known else "",
            f"{row.columns_best}{level}" if known else "",
        ]
        cells += [f"{row.rmse:.3f}"] if numbers else []
        cells += [f"{100 * row.accuracy:.1f} %"] if levels else []
        cells.append(_brief(show_seconds(row.seconds)))
        shown.add_row(
            *(Words(text, style="bold green" if row.rank == 1 and has_order else "") for text in cells)
        )
    console.print(shown)
    console.print(Words("\n" + result.verdict, style="bold"))
    for row in result.table[result.table["rank"].isna()].itertuples():
        session.say(f"{row.method}: {row.note}", "note")
    for words in result.notes:
        if words not in result.prepared.notes:  # these were warned of before the fits
            session.say(words, "note")


def _brief(words: str) -> str:
    return words.replace("more than ", ">").replace("less than ", "<").replace("under ", "<")


def _fill(table: TableFile, result: Comparison, output: str, settings: dict[str, Any], quiet: bool) -> Any:
    from .tables.files import write_table_file

    if quiet and result.best.startswith("diffputer-"):
        settings = {**settings, "progress": False}
    with stage("impute"):
        completed = result.impute(table.frame, **settings)
    with stage("write"):
        write_table_file(output, table, completed)
    return completed

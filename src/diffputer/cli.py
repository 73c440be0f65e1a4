"""The command line: parse, call the public API, write. Data go to standard output, words to standard error.

Nothing heavy is imported until a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer
from typer.core import TyperGroup

from . import __version__
from .benchmark.cli import app as bench
from .cli_options import (
    KEEP_HELP,
    MISSING_HELP,
    ONLY_MISSING_HELP,
    check_bounds,
    command_of,
    pair,
    read_bounds,
    read_settings,
    summary_option,
    words_here,
)
from .cli_results import (
    check_report,
    column_counts,
    column_facts,
    model_facts,
    records_of,
    running,
    summarise_run,
    write_report_of,
)
from .compare_command import compare
from .errors import InputError, SettingError, damage_as_error
from .runtime.isolation import SAFE_PATH
from .runtime.progress import share_progress
from .runtime.reporting import EXIT_FAILURE, EXIT_INTERRUPTED, Reporter, leave, visible
from .runtime.stages import stage
from .settings import DEFAULT_ENGINE, ENGINES, ESTIMATES, MODEL_UNCERTAINTIES, QUALITIES
from .tables.paths import MAX_GIB, check_writable, file_kind, permissions_of, read_bytes, write_bytes
from .tables.paths import Kind as Format

if TYPE_CHECKING:
    from .imputer import DiffPuter
    from .tables.files import TableFile


class _Commands(TyperGroup):
    """Commands whose usage errors show the control characters of arguments."""

    def make_context(self, *given: Any, **more: Any) -> Any:
        with _visible_errors():
            return super().make_context(*given, **more)

    def invoke(self, *given: Any) -> Any:
        with _visible_errors():
            return super().invoke(*given)


@contextmanager
def _visible_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # The exceptions of click, which newer versions of typer bring along under another name.
        if hasattr(error, "format_message") and type(error).__name__ != "NoArgsIsHelpError":
            error.message = visible(str(error.message))  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench, name="bench")

_IN, _OUT, _FIT = "Input", "Output", "Model"
_KINDS = "continuous, integer, boolean, categorical, datetime, duration, time, or text, which is not filled"
#: The options of ``impute`` by parameter: panel, value and help.
_HELP = {
    "missing": (_IN, "[COL=]WORD", MISSING_HELP),
    "keep": (_IN, "[COL=]WORD", KEEP_HELP),
    "only_missing": (_IN, "[COL=]WORD", ONLY_MISSING_HELP),
    "delimiter": (_IN, "D", "Between the cells of text."),
    "encoding": (_IN, "E", "Of text."),
    "decimal": (_IN, ".|,", "In the numbers of text."),
    "thousands": (_IN, "MARK", "That parts their thousands: . , ' _ or a blank."),
    "max_gib": (_IN, "GIB", "That a gzipped, Parquet or Arrow file may decompress to."),
    "format": (_IN, "csv|tsv|parquet|arrow", "Of standard streams and files whose suffix does not tell."),
    "output": (_OUT, "FILE", "The suffix tells the format; - is standard output."),
    "draws": (_OUT, "M", "Write M random completions, not one best guess, with columns .imp and .id first."),
    "report": (
        _OUT,
        "FILE.html",
        "One page on what was missing, what was filled in and how sure that is. Without --draws it costs "
        "five draws of at most 20,000 rows.",
    ),
    "save_model": (_OUT, "FILE", "Keep the fitted model, for --model."),
    "quiet": (_OUT, None, "No progress and no summary; only warnings and errors."),
    "debug": (_OUT, None, "Show the traceback of an error."),
    "model": (_FIT, "FILE", "Use a saved model: nothing is fitted, columns are matched by name."),
    "engine": (_FIT, "|".join(ENGINES), "Which algorithm."),
    "quality": (
        _FIT,
        "|".join(QUALITIES[DEFAULT_ENGINE]),
        "Time against accuracy; auto is balanced. With --engine paper: auto|fast|paper, where auto is fast "
        "without a GPU.",
    ),
    "estimate": (_FIT, "|".join(ESTIMATES), "Of numbers: mean for squared, median for absolute error."),
    "time_budget": (_FIT, "SECONDS", "Stop in time, with the best found so far."),
    "model_uncertainty": (_FIT, "|".join(MODEL_UNCERTAINTIES), "What --draws vary besides cells."),
    "device": (_FIT, "auto|cpu|cuda|mps", "Where to compute."),
    "seed": (_FIT, "N", "Same seed, same answer."),
    "categorical": (_FIT, "COL", "A column of numbers that are categories. Repeatable."),
    "skip": (_FIT, "COL", "A column that keeps its missing values. Repeatable."),
    "fill_all": (_FIT, None, "Also impute text that is no category: comments, addresses, identifiers."),
    "bounds": (_FIT, "COL:LOW:HIGH", "Filled values stay inside; an empty end is open. Repeatable."),
    "kind": (_FIT, "COL=KIND", f"What a column holds: {_KINDS}. Repeatable."),
    "derived": (_FIT, "COL=FORMULA", 'A column computed from others: "total=a + b". Repeatable.'),
    "inequality": (_FIT, "A<=B", "Between columns; filled values keep to it. Repeatable."),
    "checkpoint": (_FIT, "FILE", "Keep the state of the fit; if killed, the same command goes on from it."),
    "set": (_FIT, "NAME=VALUE", "Any other setting of DiffPuter, such as max_steps=20000. Repeatable."),
}
_DEFAULTS = {
    "output": "INPUT.imputed.SUFFIX",
    "format": "csv",
    "encoding": "utf-8",
    "bounds": "observed range",
    **dict.fromkeys(("delimiter", "decimal", "kind"), "found out"),
}
Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None


def _option(name: str, **more: Any) -> Any:
    panel, value, words = _HELP[name]
    names = ["--" + name.replace("_", "-")] + (["-" + name[0]] if name in ("output", "quiet") else [])
    given = {"metavar": value, "help": words, "rich_help_panel": panel}
    return typer.Option(*names, **{**given, "show_default": _DEFAULTS.get(name, True), **more})


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diffputer {__version__}")
        raise typer.Exit


_Version = typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
_Input = typer.Argument(
    metavar="INPUT", help="A CSV, TSV (also .gz), Parquet or Arrow file; - is standard input."
)
_Folder = _option(
    "output", rich_help_panel=None, metavar="DIR", help="Folder to write to.", show_default=True
)


@app.callback()
def diffputer(version: Annotated[bool, _Version] = False) -> None:
    """Fill in the missing values of a table. Begin with [bold]diffputer impute --help[/]."""


@app.command()
def impute(
    context: typer.Context,
    input: Annotated[str, _Input],
    missing: Annotated[Texts, _option("missing")] = None,
    keep: Annotated[Texts, _option("keep")] = None,
    only_missing: Annotated[Texts, _option("only_missing")] = None,
    delimiter: Annotated[Text, _option("delimiter")] = None,
    encoding: Annotated[Text, _option("encoding")] = None,
    decimal: Annotated[Text, _option("decimal")] = None,
    thousands: Annotated[Text, _option("thousands")] = None,
    max_gib: Annotated[float, _option("max_gib", min=0)] = MAX_GIB,
    format: Annotated[Text, _option("format")] = None,
    output: Annotated[Text, _option("output")] = None,
    draws: Annotated[int | None, _option("draws", min=1)] = None,
    report: Annotated[Text, _option("report")] = None,
    save_model: Annotated[Text, _option("save_model")] = None,
    summary: Annotated[Text, summary_option(_OUT)] = None,
    model: Annotated[Text, _option("model")] = None,
    engine: Annotated[str, _option("engine")] = DEFAULT_ENGINE,
    quality: Annotated[str, _option("quality")] = "auto",
    estimate: Annotated[str, _option("estimate")] = "mean",
    time_budget: Annotated[float | None, _option("time_budget")] = None,
    model_uncertainty: Annotated[str, _option("model_uncertainty")] = "linear",
    device: Annotated[str, _option("device")] = "auto",
    seed: Annotated[int, _option("seed", min=0)] = 0,
    categorical: Annotated[Texts, _option("categorical")] = None,
    skip: Annotated[Texts, _option("skip")] = None,
    fill_all: Annotated[bool, _option("fill_all")] = False,
    bounds: Annotated[Texts, _option("bounds")] = None,
    kind: Annotated[Texts, _option("kind")] = None,
    derived: Annotated[Texts, _option("derived")] = None,
    inequality: Annotated[Texts, _option("inequality")] = None,
    checkpoint: Annotated[Text, _option("checkpoint")] = None,
    settings: Annotated[Texts, _option("set")] = None,
    quiet: Annotated[bool, _option("quiet")] = False,
    debug: Annotated[bool, _option("debug")] = False,
) -> None:
    """Fill in the missing values of a table file. Observed cells come back as they are.

    [bold]Examples[/]

    [cyan]diffputer impute survey.csv[/]  writes survey.imputed.csv

    [cyan]diffputer impute survey.csv -o full.parquet --missing "?" --bounds age:0:120[/]

    [cyan]diffputer impute survey.csv --draws 20 -o draws.csv[/]  to pool

    [cyan]diffputer impute survey.csv --report survey.html[/]  what was missing and how sure it is now

    [cyan]diffputer impute survey.csv --save-model survey.diffputer --time-budget 300[/]

    [cyan]diffputer impute new.csv --model survey.diffputer[/]  the same columns, nothing fitted

    [cyan]zcat survey.csv.gz | diffputer impute - > full.csv[/]
    """
    session = Reporter(quiet, debug, words_here(context), checkpoint=checkpoint)
    others = {"report": report, "save-model": save_model, "checkpoint": checkpoint}
    paths = [input, output or _default_output(input), model, *others.values()]
    with (
        permissions_of(input),
        running(session, context, summary, *paths),
        share_progress(not quiet) as progress,
    ):
        started = time.perf_counter()
        if model is not None:
            _refuse_for_model(context)
        target, formats = _check_paths(input, output, format, model, others)
        given = read_settings(settings or [])
        check_bounds(bounds or [])
        kinds = dict(pair(text, "--kind", "COL=KIND", first=False) for text in kind or [])
        formulas = dict(pair(text, "--derived", "COL=FORMULA", first=False) for text in derived or [])

        from .imputer import DiffPuter
        from .tables.constraints import Constraints
        from .tables.files import read_table_file, write_long, write_table_file
        from .tables.suspicions import known_answers

        if model is not None:
            imputer = DiffPuter.load(model, device=device)
            if _is_given(context, "estimate"):
                imputer.set_params(estimate=estimate)
                imputer._check_parameters()
        else:
            imputer = DiffPuter(
                engine=engine,
                quality=quality,
                estimate=estimate,
                categorical_features=categorical or None,
                schema=kinds or None,
                skip=skip or None,
                fill_all=fill_all,
                derived=formulas or None,
                inequalities=inequality or None,
                random_state=seed,
                device=device,
                time_budget=time_budget,
                model_uncertainty=model_uncertainty,
                checkpoint=checkpoint,
                **{"empty": "keep", **given},
            )
            # Mistakes are told before a file is read that may be long.
            imputer._check_parameters()
            Constraints(imputer.derived, imputer.inequalities)
        imputer.progress = False if quiet else None
        with stage("read"):
            table = read_table_file(
                input,
                missing=missing or (),
                keep=keep or (),
                only_missing=only_missing or None,
                delimiter=delimiter,
                encoding=encoding,
                decimal=decimal,
                thousands=thousands,
                format=formats[0],
                schema=None if model is None else imputer.schema_,
                kinds=kinds,
                max_gib=max_gib,
                progress=progress,
            )
        if model is None:
            imputer.bounds = read_bounds(bounds or [], _names(table.frame)) or None
        with known_answers(table.answers):  # reading the file has warned of them
            table, completed = _complete(
                session, table, imputer, draws, model is not None, save_model is not None
            )
        with stage("write"):
            if draws is None:
                write_table_file(target, table, completed[0], format=formats[1], progress=progress)
            else:
                write_long(target, table, completed, format=formats[1], progress=progress)
        session.written.append("standard output" if target == "-" else target)
        if save_model is not None:
            imputer.save(save_model)
            session.written.append(save_model)
        if report is not None:
            write_report_of(report, table, completed, imputer, draws, input, command_of(context))
            session.written.append(report)
        if summary is not None:
            session.facts |= column_facts(table, completed[0], imputer)
        if not quiet:
            summarise_run(session, table, completed, imputer, time.perf_counter() - started, draws)


app.command()(compare)


@app.command()
def demo(
    context: typer.Context,
    output: Annotated[str, _Folder] = "demo_output",
    seed: Annotated[int, _option("seed", min=0, rich_help_panel=None)] = 0,
    summary: Annotated[Text, summary_option()] = None,
    quiet: Annotated[bool, _option("quiet", rich_help_panel=None, help="No progress bars.")] = False,
    debug: Annotated[bool, _option("debug", rich_help_panel=None)] = False,
) -> None:
    """Impute the embedded sample: hide known cells, fill them in, show scores and a picture."""
    session = Reporter(quiet, debug, interrupted="the demo was stopped")
    with running(session, context, summary):
        from .demo import run_demo
        from .tables.files import read_table_file

        result = run_demo(output, seed, progress=not quiet)
        session.written += map(str, result.files)
        if summary is not None:
            incomplete, completed = (read_table_file(path).frame for path in result.files[:2])
            session.facts |= column_counts(incomplete, completed)
            session.facts["scores"] = records_of(result.scores)


@app.command()
def info(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file of --save-model.")],
    json: Annotated[bool, typer.Option("--json", help="All of it, as JSON.")] = False,
    summary: Annotated[Text, summary_option()] = None,
    debug: Annotated[bool, _option("debug", rich_help_panel=None)] = False,
) -> None:
    """Show what a saved model is: version, date, fitted table, schema, held-out scores, settings."""
    session = Reporter(False, debug)
    with permissions_of(model), running(session, context, summary, model):
        from .cli_results import show_model
        from .modelfiles import MODEL, REMEDIES, describe_model

        facts = describe_model(model)
        with damage_as_error(repr(model), REMEDIES[MODEL]):
            text = show_model(facts, as_json=json)
            session.facts |= model_facts(facts)
        write_bytes("-", f"{visible(text)}\n".encode())


def main() -> None:
    """Run the command line."""
    os.environ[SAFE_PATH] = "1"  # whatever it starts imports nothing from the current folder
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED: such a stream drops, without an error, what a full disk or a closed pipe refuses.
        old = sys.stdout
        sys.stdout = open(old.fileno(), "w", encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
    code: Any = 0
    try:
        app(prog_name="diffputer")
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except OSError as error:  # of a stream: commands answer for their own errors
        if sys.stderr is not None:
            with suppress(OSError):
                sys.stderr.write(f"error: Standard output could not be written ({error.strerror}).\n")
        code = EXIT_FAILURE
    leave(code if isinstance(code, int) else EXIT_FAILURE)


def _check_paths(
    input: str, output: str | None, format: str | None, model: str | None, others: dict[str, str | None]
) -> tuple[str, tuple[Format | None, Format | None]]:
    """Find mistakes before the work; give the output, and the formats of input and output."""
    if input != "-" and (not os.path.exists(input) or os.path.isdir(input)):
        read_bytes(input)  # says what is wrong
    target = _default_output(input) if output is None else output
    formats: list[Format | None] = [None, None]
    if format is not None:
        unclear = [_is_unclear(path) for path in (input, target)]
        known = file_kind("-", cast(Format, format))[0]
        # With no stream and no odd suffix, the suffix of the input must be misleading.
        formats = [known if here else None for here in (unclear if any(unclear) else (True, False))]
    file_kind(input, formats[0])
    check_writable(target, format=formats[1])
    if target != "-" and os.path.realpath(target) == os.path.realpath(input):
        raise SettingError(
            f"--output must not be the input, however: {target!r}. Name another one, so that it can still be "
            "seen which cells were filled in."
        )
    taken = {os.path.realpath(path) for path in (input, target, model) if path and path != "-"}
    for option, path in others.items():
        if path is not None and (path == "-" or os.path.realpath(path) in taken):
            raise SettingError(f"--{option} needs a file of its own, however: {path!r}. Name another one.")
        if path is not None:
            taken.add(os.path.realpath(path))
            check_writable(path, format="csv")  # any suffix will do
    check_report(others["report"])
    return target, (formats[0], formats[1])


def _is_unclear(path: str) -> bool:
    try:
        file_kind(path)
    except InputError:
        return True
    return path == "-"


def _default_output(input: str) -> str:
    """Name the output after the input.

    >>> _default_output("a/survey.csv.gz"), _default_output("-")
    ('a/survey.imputed.csv.gz', '-')
    """
    path = Path(input)
    zipped = path.suffix if path.suffix.lower() == ".gz" else ""
    inner = path.parent / path.stem if zipped else path
    return "-" if input == "-" else str(inner.parent / f"{inner.stem}.imputed{inner.suffix}{zipped}")


def _is_given(context: typer.Context, name: str) -> bool:
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _refuse_for_model(context: typer.Context) -> None:
    """With --model, refuse what only a fit could use: silence would look as if it had worked."""
    given = [
        option.opts[0]
        for option in context.command.params
        if _is_given(context, str(option.name))
        and (getattr(option, "rich_help_panel", "") == _FIT or option.name == "save_model")
        and option.name not in ("model", "device", "estimate")
    ]
    if given:
        raise SettingError(f"With --model nothing is fitted, so leave out {', '.join(given)}.")


def _names(frame: Any) -> list[str]:
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def _check_columns(imputer: DiffPuter, frame: Any) -> None:
    """Find mistakes in what was said of columns where no fit would find them."""
    from .tables.constraints import Constraints
    from .tables.frames import read_table
    from .tables.kinds import describe

    table = read_table(frame)
    schema = describe(
        table,
        categorical_features=imputer.categorical_features,
        bounds=imputer.bounds,
        schema=imputer.schema,
        max_levels=imputer.max_levels,
        skip=imputer.skip,
        empty=imputer.empty,
        fill_all=imputer.fill_all,
    )
    Constraints(imputer.derived, imputer.inequalities).check(table, schema)


def _complete(
    session: Reporter, table: TableFile, imputer: DiffPuter, draws: int | None, fitted: bool, must_fit: bool
) -> tuple[TableFile, Sequence[Any]]:
    """Fit unless that was done, and fill; the completed tables have the columns of the file."""
    from .runtime.memory import check_memory
    from .tables.frames import read_table
    from .tables.matching import match_columns

    missing = read_table(table.frame).missing
    rows, columns = missing.shape
    session.say(
        f"{rows:,} row{'' if rows == 1 else 's'} x {columns:,} columns, "
        f"{missing.sum():,} of {missing.size:,} cells missing"
    )
    if not missing.any():
        as_it_is = not (fitted or must_fit)
        if as_it_is:
            _check_columns(imputer, table.frame)
            copies = draws or 1
            check_memory(8 * missing.size * copies, f"{copies:,} copies of the table", "Ask for fewer draws.")
        session.say("nothing is missing: the table is copied as it is")
        if as_it_is:
            return table, [table.frame] * (draws or 1)
    if not fitted:
        imputer.fit(table.frame)
        # Of those that lack values the fit has warned.
        if known := [
            repr(one.name) for one in imputer.schema_ if one.status == "identifier" and not one.n_missing
        ]:
            session.say(f"identifiers and row numbers inform no other column: {', '.join(known)}", "note")
        if table.columns:
            imputer._keep_spellings(dict(zip(_names(table.frame), table.columns, strict=True)), table.stated)
        frame = table.frame
        return table, [imputer.transform(frame)] if draws is None else imputer.sample(frame, draws)
    match = match_columns(table, imputer.schema_)
    if match.extra:
        session.say(
            f"columns that the model does not know are left as they are: {', '.join(map(str, match.extra))}",
            "note",
        )
    completed = [imputer.transform(match.part)] if draws is None else imputer.sample(match.part, draws)
    return match.table, [match.restore(one) for one in completed]

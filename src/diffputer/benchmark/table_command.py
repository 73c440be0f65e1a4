"""``diffputer bench table``: results beside the paper's, in the terminal, as Markdown, LaTeX or HTML."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..cli_options import summary_option
from ..cli_results import running
from ..errors import InputError, SettingError
from ..runtime.reporting import EXIT_FAILURE, Reporter, make_console, visible

if TYPE_CHECKING:
    from .report.layout import Report
    from .report.records import Results

#: Where a suite's results are, seen from the folder in which the command runs.
RESULTS_FOLDER = Path("benchmarks") / "results"
FORMATS = ("terminal", "markdown", "latex", "html")
#: Reasons of refusals that a warning gives; the report has all.
_MOST_REASONS = 4
_SUFFIXES = {".txt": "terminal", ".md": "markdown", ".tex": "latex", ".html": "html", ".htm": "html"}


def table(
    context: typer.Context,
    suite: Annotated[
        list[str],
        typer.Argument(
            help=f"Name of a suite (its results are in {RESULTS_FOLDER.as_posix()}/SUITE), a folder or a CSV "
            "file. Several are set beside each other.",
            show_default=False,
        ),
    ],
    setting: Annotated[
        str, typer.Option(metavar="in_sample|out_of_sample|both", help="Which table was completed.")
    ] = "both",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="mae, rmse, accuracy, mae_median, rmse_median, crps, coverage, energy, auc, seconds, "
            "fit_seconds, transform_seconds, draw_seconds, peak_memory_gb. Repeatable.",
            show_default="mae, rmse, accuracy",
        ),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="mcar, mar, mnar, censoring, self_masking. Repeatable.",
            show_default="all that there are",
        ),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            metavar="R",
            help="Shares of missing cells that get leaderboards, such as 0.3. Repeatable.",
            show_default="the one that most rows have",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these methods. Repeatable.", show_default="all"),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Only results of record: DiffPuter as it is, no experiments, ranked on tasks that all have.",
        ),
    ] = False,
    rank: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Rank this method or entry, on tasks that it has, whoever is left out then. Repeatable.",
            show_default="as many results as possible",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Also list the paper's methods that are not among the rows.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(FORMATS), help="Of the report.", show_default="by the suffix of --output"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it here, not to standard output."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write every figure that the rows allow here, as PNG and SVG."),
    ] = None,
    summary: Annotated[str | None, summary_option()] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show results beside the paper's numbers: means over masks, ratios, ranks and tests."""
    from .report.document import make_report
    from .report.measures import PAPERS_MEASURES, find_measure
    from .report.records import SETTINGS

    session = Reporter(debug=debug)
    taken = [*suite, None if output is None else str(output)]
    with running(session, context, summary, *taken):
        kind = _choose_format(format, output)
        if setting not in (*SETTINGS, "both"):
            raise SettingError(
                f"--setting must be {', '.join(SETTINGS)} or both, however: {setting!r} is not."
            )
        measures = [find_measure(name).name for name in metric or PAPERS_MEASURES]
        rows = _read_rows(suite)
        results, about = _admit(rows, suite), ""
        too_few = _warn_of_refused(session, results)
        refused = sum(len(refusal.rows) for refusal in results.refused)
        session.facts["rows"] = {"kept": len(results.final) + len(results.curve), "refused": refused}
        if record:
            results, about = _keep_record(rows, len(results.final), suite)
        results = _select(results, mechanism, method)
        _check_rank(results, rank or ())
        there = sorted({record.rate for record in results.final})
        if absent := sorted(set(rate or ()) - set(there)):
            raise InputError(f"--rate must name what the rows have, however: {absent} is not among {there}.")
        pictures = figures is not None or kind == "html"
        with _show_work("drawing figures" if pictures else "comparing results"):
            report = make_report(
                results,
                title="Results: " + ", ".join(suite),
                measures=measures,
                settings=SETTINGS if setting == "both" else (setting,),
                rates=rate or None,
                rank=rank or (),
                about=[about] if about else (),
                published=published,
                pictures=pictures,
            )
            paths = {} if figures is None else _save_figures(report, figures, output)
        _write(report, kind, output, paths)
        _tell_written(session, output, figures, len(paths))
        if too_few:
            sys.exit(EXIT_FAILURE)


def _warn_of_refused(session: Reporter, results: Results) -> bool:
    """Say how many rows are refused and why; give whether those that are left tell too little."""
    refused = sum(len(refusal.rows) for refusal in results.refused)
    kept = len(results.final) + len(results.curve)
    if refused:
        reasons = [f"{r.reason} ({len(r.rows):,})" for r in results.refused]
        more = f"; and {len(reasons) - _MOST_REASONS} more reasons" if len(reasons) > _MOST_REASONS else ""
        session.say(
            f"{refused:,} row{'s' * (refused != 1)} cannot be compared and {'are' if refused != 1 else 'is'} "
            f"refused, {kept:,} remain: {'; '.join(reasons[:_MOST_REASONS])}{more}. The report names them.",
            "warning",
        )
    return refused > kept or (refused > 0 and not results.final)


@contextmanager
def _show_work(words: str) -> Iterator[None]:
    """Show that something is being done, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        bar.add_task(words, total=None)
        yield


def _save_figures(report: Report, folder: Path, output: Path | None) -> dict[str, str]:
    """Save the figures of a report; give their names and where they are, seen from the report."""
    from .report.gallery import save_pictures

    start = output.parent if output is not None else Path()
    saved = save_pictures(report.pictures, folder)
    return {name: Path(os.path.relpath(path, start)).as_posix() for name, path in saved.items()}


def _tell_written(session: Reporter, output: Path | None, figures: Path | None, n_figures: int) -> None:
    written = [] if output is None else [str(output)]
    if figures is not None:
        written.append(f"{n_figures} figure{'s' * (n_figures != 1)} in {figures}")
    if written:
        session.written += written
        session.say(f"wrote {' and '.join(written)}")


def _write(report: Report, kind: str, output: Path | None, paths: Mapping[str, str]) -> None:
    """Write a report to a file or to standard output, with links to the files of its figures."""
    if kind == "terminal":
        _print(report, output)
        return
    if kind == "markdown":
        from .report.markdown import write_markdown

        text = write_markdown(report, paths)
    elif kind == "latex":
        from .report.latex import write_latex

        text = write_latex(report, paths)
    else:
        from .report.html import write_html

        text = write_html(report)
    if output is None:
        sys.stdout.write(visible(text))
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")


def find_files(suite: str) -> list[Path]:
    """Give the CSV files of a suite by its name, of a folder, or a file itself; several files in order.

    Parameters
    ----------
    suite : str
        Name or path.

    Returns
    -------
    list of Path
        At least one.
    """
    for place in (Path(suite), RESULTS_FOLDER / suite):
        if place.is_file():
            return [place]
        if place.is_dir():
            found = sorted(place.rglob("*.csv"))
            if found:
                return found
            raise InputError(f"A suite must have results, however: {place} has no CSV files. Run it first.")
    known = sorted(path.name for path in RESULTS_FOLDER.glob("*") if path.is_dir())
    raise InputError(
        f"A suite must be a folder in {RESULTS_FOLDER.as_posix()}, another folder or a CSV file, however: "
        f"{suite!r} is none. "
        + (f"There are: {', '.join(known)}." if known else "There are no results here.")
    )


def read_results(suites: Sequence[str], record: bool = False) -> Results:
    """Read the results of suites, folders or files, and keep what can be compared; or what is of record."""
    return _admit(_read_rows(suites), suites, record)


def _read_rows(suites: Sequence[str]) -> list[dict[str, str]]:
    from .results import read_rows

    return [row for path in _list_paths(suites) for row in read_rows(path)]


def _list_paths(suites: Sequence[str]) -> list[Path]:
    return list(dict.fromkeys(path for suite in suites for path in find_files(suite)))


def _admit(rows: Sequence[Mapping[str, str]], suites: Sequence[str], record: bool = False) -> Results:
    """Keep the rows of suites that can be compared, or that are of record: there must be some."""
    from .report.of_record import is_of_record
    from .report.records import admit_rows

    results = admit_rows(rows, is_of_record) if record else admit_rows(rows)
    if not results.final and not results.curve:
        reasons = "; ".join(refusal.reason for refusal in results.refused)
        raise InputError(
            f"There must be a row of results, however: {', '.join(map(str, _list_paths(suites)))} "
            + (f"have none that can be read ({reasons})." if reasons else "have none.")
        )
    return results


def _keep_record(
    rows: Sequence[Mapping[str, str]], n_results: int, suites: Sequence[str]
) -> tuple[Results, str]:
    """Leave out what is not of record, and say so; name methods of the suites that have no results."""
    from .report.of_record import describe_absent, keep_record

    kept = keep_record(_admit(rows, suites, record=True))
    if not kept.final:
        raise InputError(
            "--record must find results of DiffPuter as it is, however: these rows have none on a task that "
            "others have too. Name a suite that has them, or leave --record out."
        )
    about = (
        f"Results of record, {len(kept.final):,} of {n_results:,}: without DiffPuter's experiments. "
        "Averages, ranks and tests are on the tasks that DiffPuter and every rival with all of its data sets "
        "have; a cell is the mean over all masks that its entry has."
    )
    return kept, f"{about} {describe_absent(suites, kept.final)}".rstrip()


def _check_rank(results: Results, names: Sequence[str]) -> None:
    from .report.entries import list_entries
    from .report.leaderboard import is_named

    entries = list_entries((*results.final, *results.curve)).values()
    if absent := [name for name in names if not any(is_named(entry, name) for entry in entries)]:
        there = sorted({entry.key[0] for entry in entries})
        raise InputError(
            f"--rank must name what the rows have, however: {', '.join(absent)} is not among the methods "
            f"{', '.join(there)}, nor an entry's name. Choose one of these."
        )


def _select(results: Results, mechanisms: Sequence[str] | None, methods: Sequence[str] | None) -> Results:
    final, curve = results.final, results.curve
    for name, wanted in (("mechanism", mechanisms), ("method", methods)):
        if not wanted:
            continue
        there = sorted({getattr(record, name) for record in (*final, *curve)})
        if absent := sorted({word.lower() for word in wanted} - set(there)):
            raise InputError(
                f"--{name} must name what the rows have, however: {', '.join(absent)} is not among "
                f"{', '.join(there)}."
            )
        keep = {word.lower() for word in wanted}
        final = tuple(r for r in final if getattr(r, name) in keep)
        curve = tuple(r for r in curve if getattr(r, name) in keep)
    return dataclasses.replace(results, final=final, curve=curve)


def _choose_format(format: str | None, output: Path | None) -> str:
    if format is None:
        suffix = output.suffix.lower() if output is not None else ""
        if suffix and suffix not in _SUFFIXES:
            raise SettingError(
                f"--output must end in one of {', '.join(_SUFFIXES)} or have a --format, however: {output} "
                f"ends in {suffix}. Change its name, or choose a --format of {', '.join(FORMATS)}."
            )
        return _SUFFIXES.get(suffix, "terminal")
    if format not in FORMATS:
        raise SettingError(f"--format must be one of {', '.join(FORMATS)}, however: {format!r} is not.")
    return format


def _print(report: Report, output: Path | None) -> None:

    from .report.terminal import print_report

    if output is None:
        print_report(report, make_console())
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as file:
        print_report(report, make_console(file=file, width=120))

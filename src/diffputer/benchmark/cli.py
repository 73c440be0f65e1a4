"""``diffputer bench``: list what there is, fetch data, run suites, show results.

Nothing heavy is imported until a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..cli_options import summary_option
from ..cli_results import running
from ..errors import SettingError
from ..runtime.reporting import EXIT_FAILURE, Reporter, visible
from ..tables.paths import write_bytes
from .coverage.command import coverage
from .table_command import table

if TYPE_CHECKING:
    from .campaign import Plan
    from .suites import Job, Suite

#: Where results go unless told otherwise: DIR/<suite>/<method>.csv.
RESULTS = Path("benchmarks") / "results"

app = typer.Typer(
    no_args_is_help=True,
    help="Compare imputers on the paper's tasks: fetch data, run suites, show results.",
    rich_markup_mode="rich",
)
app.command()(table)
app.command()(coverage)

_Data = typer.Option(
    "--data", metavar="DIR", help="Folder of the data sets.", show_default="$DIFFPUTER_DATA, else the cache"
)
_Debug = typer.Option("--debug", help="Show the traceback of an error.")
_DebugRuns = typer.Option("--debug", help="Show tracebacks, of runs that fail too, and what runs write.")
_Quiet = typer.Option("--quiet", "-q", help="Only warnings and errors.")
_Summary = summary_option()
_Suite = typer.Argument(
    metavar="SUITE", help="A name that [bold]diffputer bench list[/] shows, or a TOML file."
)
_Methods = typer.Option(
    "--methods", metavar="A,B", help="Only these methods.", show_default="all of the suite"
)
_Datasets = typer.Option("--datasets", metavar="A,B", help="Only these data sets.", show_default="all")
_Mechanisms = typer.Option("--mechanisms", metavar="A,B", help="Only these mechanisms.", show_default="all")
_Seeds = typer.Option("--seeds", metavar="0,1", help="Only these mask seeds.", show_default="all")
_Out = typer.Option(
    "--out", metavar="DIR", help="Folder of the results.", show_default="benchmarks/results/SUITE"
)
_Workers = typer.Option("--workers", min=1, help="Runs at a time.")
_Threads = typer.Option(
    "--threads", min=1, help="For each run.", show_default="$OMP_NUM_THREADS, else cores / workers"
)
_Seconds = typer.Option("--limit-seconds", metavar="S", min=0, help="Time of a run.", show_default="suite's")
_Gigabytes = typer.Option(
    "--limit-gb", metavar="GB", min=0, help="Memory of a run.", show_default="the suite's"
)
_Device = typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where DiffPuter and MIWAE compute.")
_DryRun = typer.Option("--dry-run", help="Say what is done and what would be run.")
_Retry = typer.Option("--retry-failed", help="Run again what failed.")
_Alone = typer.Option("--alone", help="Note in the rows that this run has the machine to itself.")
_Names = typer.Argument(metavar="[NAME]...", help="Data sets.", show_default="the nine of the paper")
_Raw = typer.Option("--raw", metavar="DIR", help="Folder with the files as downloaded by hand.")
_Force = typer.Option("--force", help="Fetch also what is there.")
_Accept = typer.Option("--accept-changed", help="Keep tables that are not those of the recorded results.")


@app.command("list")
def list_all(
    context: typer.Context,
    data: Annotated[str | None, _Data] = None,
    summary: Annotated[str | None, _Summary] = None,
    debug: Annotated[bool, _Debug] = False,
) -> None:
    """Show the suites, the data sets (present or missing) and the methods (what each is, what it cannot)."""
    session = Reporter(debug=debug)
    with running(session, context, summary):
        from .listing import count_lists, print_lists

        print_lists(data)
        if summary is not None:
            session.facts |= count_lists(data)


@app.command()
def data(
    context: typer.Context,
    names: Annotated[list[str] | None, _Names] = None,
    data: Annotated[str | None, _Data] = None,
    raw: Annotated[str | None, _Raw] = None,
    force: Annotated[bool, _Force] = False,
    accept_changed: Annotated[bool, _Accept] = False,
    summary: Annotated[str | None, _Summary] = None,
    quiet: Annotated[bool, _Quiet] = False,
    debug: Annotated[bool, _Debug] = False,
) -> None:
    """Fetch data sets from their public homes and prepare them; what is there stays as it is.

    [cyan]diffputer bench data[/]  fetches the nine data sets of the paper

    [cyan]diffputer bench data letter gesture_full --data tables[/]

    [cyan]diffputer bench data --raw downloads[/]  for a machine without a network
    """
    session = Reporter(quiet, debug, interrupted="stopped; the same command fetches what is missing")
    with running(session, context, summary):
        from .datasets import PAPER_DATASETS
        from .fetch import fetch_datasets

        paths = fetch_datasets(
            names or PAPER_DATASETS,
            data,
            raw_folder=raw,
            force=force,
            accept_changed=accept_changed,
            report=session.say,
        )
        session.facts["data_sets"] = [str(path) for path in paths]


@app.command()
def run(
    context: typer.Context,
    suite: Annotated[str, _Suite],
    methods: Annotated[str | None, _Methods] = None,
    datasets: Annotated[str | None, _Datasets] = None,
    mechanisms: Annotated[str | None, _Mechanisms] = None,
    seeds: Annotated[str | None, _Seeds] = None,
    out: Annotated[Path | None, _Out] = None,
    data: Annotated[str | None, _Data] = None,
    workers: Annotated[int, _Workers] = 1,
    threads: Annotated[int | None, _Threads] = None,
    limit_seconds: Annotated[float | None, _Seconds] = None,
    limit_gb: Annotated[float | None, _Gigabytes] = None,
    device: Annotated[str, _Device] = "auto",
    dry_run: Annotated[bool, _DryRun] = False,
    retry_failed: Annotated[bool, _Retry] = False,
    alone: Annotated[bool, _Alone] = False,
    summary: Annotated[str | None, _Summary] = None,
    quiet: Annotated[bool, _Quiet] = False,
    debug: Annotated[bool, _DebugRuns] = False,
) -> None:
    """Run a suite. What is done is skipped: stop it with Ctrl-C, and the same command goes on.

    A run that crashes, takes too long or too much memory is a row with the reason; the others go on.

    [cyan]diffputer bench run mini[/]  three quarters of an hour on one core, nothing to download

    [cyan]diffputer bench run small --workers 2 --limit-seconds 1800[/]

    [cyan]diffputer bench run paper-mcar --methods diffputer-balanced --seeds 0,1 --device cuda[/]
    """
    session = Reporter(quiet, debug)
    with running(session, context, summary, suite):
        from .suites import Limits, load_suite

        chosen = load_suite(suite)
        folder = RESULTS / chosen.name if out is None else out
        session.interrupted = (
            f"stopped; the rows of finished runs are in {folder}, and the same command goes on from there"
        )
        limits = Limits(
            chosen.limits.seconds if limit_seconds is None else limit_seconds or None,
            chosen.limits.gigabytes if limit_gb is None else limit_gb or None,
        )
        jobs = chosen.jobs(
            methods=_split(methods),
            datasets=_split(datasets),
            mechanisms=_split(mechanisms),
            seeds=_numbers(seeds),
            device=device,
        )
        plan = _plan(session, chosen, jobs, folder, data, retry_failed)
        counts = {name: len(getattr(plan, name)) for name in ("done", "failed", "skipped", "todo")}
        session.facts |= {"runs": counts, "results": str(folder)}
        if dry_run:
            if plan.missing:
                session.say(f"data sets that are not there yet: {', '.join(plan.missing)}", "note")
            states = {"done": plan.done, "failed": plan.failed, "skipped": plan.skipped, "to run": plan.todo}
            lines = [f"{state}\t{visible(job.words)}\n" for state, those in states.items() for job in those]
            write_bytes("-", "".join(lines).encode())
        counts["failures"] = 0
        if not dry_run:
            _run(session, plan, counts, folder, workers, threads, limits, data, alone, quiet)
        if counts["failures"] or plan.lacks_own or (plan.failed and not dry_run):
            sys.exit(EXIT_FAILURE)


def _plan(
    session: Reporter, suite: Suite, jobs: list[Job], out: Path, data: str | None, retry_failed: bool
) -> Plan:
    from .campaign import plan_jobs

    plan = plan_jobs(jobs, out, data=data, retry_failed=retry_failed)
    own = {job.entry.method for job in plan.skipped if job.entry.file is not None}
    for method, lack in plan.lacks.items():
        if method in own:
            session.say(f"{method} is skipped. {lack}", "warning")
        else:
            session.say(f"{method} is skipped, as it is not installed. {lack}", "note")
    failed = f", {len(plan.failed):,} failed before (--retry-failed runs them again)" if plan.failed else ""
    skipped = f", {len(plan.skipped):,} skipped" if plan.skipped else ""
    session.say(
        f"{suite.name}: {_count_runs(jobs)}, {len(plan.done):,} done{failed}{skipped}, "
        f"{len(plan.todo):,} to run; results in {out}"
    )
    return plan


def _run(
    session: Reporter,
    plan: Plan,
    counts: dict[str, int],
    out: Path,
    workers: int,
    threads: int | None,
    limits: Any,
    data: str | None,
    alone: bool,
    quiet: bool,
) -> None:
    """Run what is left; ``counts`` say at any time how many runs are done, failed and left."""
    from .campaign import run_plan
    from .display import describe_row, show_duration, show_runs
    from .runner import is_failure
    from .scheduler import default_threads

    if not plan.todo:
        return
    started = time.monotonic()
    with show_runs(plan.todo, workers, None if not quiet else False) as display:

        def ended(job: Job, rows: list[dict[str, Any]], seconds: float) -> None:
            display.ended(job, rows, seconds)
            has_failed = any(is_failure(row) for row in rows)
            counts["todo"] -= 1
            counts["failed" if has_failed else "done"] += 1
            counts["failures"] += has_failed
            for row in rows:
                if not row["em_round"]:
                    session.say(describe_row(row))

        run_plan(
            plan,
            out,
            workers=workers,
            threads=default_threads(workers) if threads is None else threads,
            limits=limits,
            data=data,
            alone=alone,
            debug=session.debug,
            begun=display.begun,
            ended=ended,
        )
    taken = show_duration(time.monotonic() - started)
    failures = counts["failures"]
    failed = f"{failures:,} failed, column error tells why" if failures else "none failed"
    skipped = f", {len(plan.skipped):,} skipped" if plan.skipped else ""
    session.say(f"{_count_runs(plan.todo)} took {taken}; {failed}{skipped}")


def _count_runs(jobs: list[Job]) -> str:
    return f"{len(jobs):,} run{'s' * (len(jobs) != 1)}"


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in _split(text) or []]
    except ValueError:
        raise SettingError(f"--seeds must be whole numbers, as in 0,1,2, however: {text!r}.") from None

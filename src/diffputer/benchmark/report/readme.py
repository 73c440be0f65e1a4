"""What a README shows of results: a table of averages, and error against seconds.

``make record`` writes both: ``python -m diffputer.benchmark.report.readme README.md docs/images/record.png``
puts the table of the rows of record between two comments of the page, and the figure into its file.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ...errors import InputError
from ..published import PUBLISHED_RATE, find_published
from .document import make_boards
from .entries import Entry, list_entries
from .layout import Cell, Table
from .leaderboard import Leaderboard, Lookup
from .markdown import escape_markdown, write_table
from .measures import MEASURES
from .of_record import describe_absent, keep_record
from .pareto import average_seconds, describe_busy, describe_devices, draw_error_against_seconds
from .records import Results, name_kind

#: Of which the README tells.
RECORD = ("paper-mcar",)
_BEGIN, _END = "<!-- the rows of record: make record -->", "<!-- end of the rows of record -->"


def summarise(
    results: Results,
    *,
    setting: str = "out_of_sample",
    mechanism: str = "mcar",
    rate: float = 0.3,
    measures: Sequence[str] = ("mae", "rmse", "accuracy"),
    lookup: Lookup = find_published,
    absent: str = "",
    on_seconds: bool = True,
) -> tuple[str, Figure | None]:
    """Give a Markdown table of averages over data sets, and the figure of error against seconds.

    Parameters
    ----------
    results : Results
        From `diffputer.benchmark.report.records.admit_rows`.
    setting, mechanism, rate
        Which results.
    measures : sequence of str
        Columns; the first is the error in the figure, and orders the rows.
    lookup : callable
        Gives the paper's number and whether it is doubtful, or None.
    absent : str
        A sentence on methods that have no rows, to be said after those that lack some.
    on_seconds : bool
        Whether to say what the seconds are of; not where the next table does.

    Returns
    -------
    table : str
        Averages are over the tasks that all entries have, which the line below the table counts; entries
        that lack results are named there. Ratios are to the paper's DiffPuter, on the data sets of which
        it has a number that is not doubtful. Seconds are geometric means over data sets.
    figure : matplotlib.figure.Figure or None
        None where no entry has both numbers.

    Examples
    --------
    >>> from diffputer.benchmark.report.records import admit_rows
    >>> row = {"dataset": "toy", "mechanism": "mcar", "rate": 0.3, "mask_seed": 0, "setting": "out_of_sample"}
    >>> rows = [row | {"method": m, "mae": e, "settings_hash": m} for m, e in (("mean", 0.8), ("knn", 0.5))]
    >>> print(summarise(admit_rows(rows))[0])
    | method | MAE (× 100) | mean rank |
    |---|---:|---:|
    | knn | **50.00** | 1.00 |
    | mean | <u>80.00</u> | 2.00 |
    <BLANKLINE>
    Out of sample, MCAR 30 %: averages over 1 data set, 1 task that all have (MAE: toy).
    <BLANKLINE>
    """
    entries = list_entries(results.final)
    boards = [
        board
        for board in make_boards(results, entries, (*measures, "seconds"), (setting,), lookup)
        if (board.mechanism, board.rate) == (mechanism, rate)
        and any(s.by_mask for s in board.scores.values())
    ]
    chosen = [board for board in boards if board.measure.name in measures]
    where = f"{setting.replace('_', ' ').capitalize()}, {name_kind(mechanism, rate)}"
    if not chosen:
        return f"{where}: no results.\n", None
    first = chosen[0]
    time = next((board for board in boards if board.measure == MEASURES["seconds"]), None)
    ratios = [board for board in chosen if _divide_by_paper(board, first.ranked[0], lookup)]
    several = len({name for entry in first.ranked for name in entry.classes}) > 1
    columns = (
        "method",
        *(board.measure.heading for board in chosen),
        "mean rank",
        *(f"{board.measure.title} ÷ DiffPuter's, published" for board in ratios),
        *(["seconds"] if time is not None else []),
        *(["on"] if several else []),
    )
    rows = []
    for entry in first.ranked:
        cells = [Cell(entry.name), *(_write_average(entry, board) for board in chosen)]
        rank = first.mean_ranks.get(entry.key)
        cells.append(Cell("" if rank is None else f"{rank:.2f}"))
        for board in ratios:
            ratio = _divide_by_paper(board, entry, lookup)
            cells.append(Cell(f"{ratio[0]:.3f}" if ratio else ""))
        if time is not None:
            took = average_seconds(first, time, entry)
            cells.append(Cell("" if took is None else MEASURES["seconds"].show(took)))
        if several:
            cells.append(Cell("; ".join(entry.classes)))
        rows.append(tuple(cells))
    below = [_describe_tasks(where, chosen), *_describe_ratios(ratios, lookup)]
    if time is not None and on_seconds:
        below.append(
            "Seconds to fit and complete are geometric means over data sets, of runs that had the machine to "
            "themselves where there are any."
        )
        below += filter(None, [describe_busy(time, first.ranked)])
        below += [describe_devices(first.ranked)] if several else []
    if first.left_out:
        lacking = "; ".join(
            f"{e.name} ({_tell_lack(first, e)})" for e in sorted(first.left_out, key=lambda e: e.name)
        )
        below.append(f"Left out for want of results: {lacking}.")
    below += filter(None, [absent])
    failed = sum(len(score.failures) for score in first.scores.values())
    if failed:
        below.append(f"{failed} result{'s' * (failed != 1)} failed.")
    table = Table("", columns, tuple(rows), words=frozenset({"on"}))
    figure = None if time is None else draw_error_against_seconds(first, time, list(entries.values()))
    return "\n".join([*write_table(table), "", escape_markdown(" ".join(below)), ""]), figure


def replace_table(page: str, table: str) -> str:
    """Put a table between the two comments of a page.

    Examples
    --------
    >>> print(replace_table(f"before\\n{_BEGIN}\\nold\\n{_END}\\n", "new").splitlines()[3])
    new
    """
    if page.count(_BEGIN) != 1 or page.count(_END) != 1:
        raise InputError(f"The page must have {_BEGIN!r} and {_END!r} once each, however: it has not.")
    return re.sub(
        f"{re.escape(_BEGIN)}.*{re.escape(_END)}",
        lambda _: f"{_BEGIN}\n\n{table.strip()}\n\n{_END}",
        page,
        flags=re.DOTALL,
    )


def _write_average(entry: Entry, board: Leaderboard) -> Cell:
    value = board.average(entry)
    if value is None:
        return Cell()
    place = board.average_places.get(entry.key)
    return Cell(board.measure.show(value), place=place if place in (1, 2) else None)


def _divide_by_paper(board: Leaderboard, entry: Entry, lookup: Lookup) -> tuple[float, list[str]] | None:
    """Give the mean ratio to the paper's DiffPuter over common data sets, and which these are."""
    if board.rate != PUBLISHED_RATE or entry not in board.ranked:
        return None
    ratios: dict[str, float] = {}
    for name in board.common_datasets:
        found = lookup(name, board.mechanism, board.setting, board.measure.name, "diffputer")
        if found and not found[1]:
            ratios[name] = board.common_mean(entry, name) / found[0]
    return (statistics.fmean(ratios.values()), list(ratios)) if ratios else None


def _describe_tasks(where: str, boards: Sequence[Leaderboard]) -> str:
    first = boards[0]
    counted = "; ".join(
        f"{b.measure.title}: {', '.join(b.common_datasets)}" + (f", {len(b.tasks)} tasks" if i else "")
        for i, b in enumerate(_distinct(boards))
    )
    n = len(first.common_datasets)
    return (
        f"{where}: averages over {n} data set{'s' * (n != 1)}, {len(first.tasks)} "
        f"task{'s' * (len(first.tasks) != 1)} that all have ({counted})."
    )


def _describe_ratios(boards: Sequence[Leaderboard], lookup: Lookup) -> list[str]:
    found = [_divide_by_paper(board, board.ranked[0], lookup) for board in boards]
    names = [ratio[1] for ratio in found if ratio]
    return [f"Ratios are over those that the paper has: {', '.join(names[0])}."] if names else []


def _tell_lack(board: Leaderboard, entry: Entry) -> str:
    scores = [score for (key, _), score in board.scores.items() if key == entry.key]
    if scores and all(score.cannot for score in scores):
        return "completes only the table that it is fitted on"
    return f"has {board.count_common(entry)} of {len(board.tasks)} tasks"


def _distinct(boards: Sequence[Leaderboard]) -> list[Leaderboard]:
    """Boards that are over other data sets than the first, and the first."""
    return [b for i, b in enumerate(boards) if i == 0 or b.common_datasets != boards[0].common_datasets]


def summarise_record() -> tuple[str, Figure | None]:
    """Give the tables of both settings and the figure of the rows of record in benchmarks/results.

    The figure is of the table that is fitted, which every method completes.
    """
    from ..table_command import read_results

    kept = keep_record(read_results(RECORD, record=True))
    absent = describe_absent(RECORD, kept.final)
    unseen, _ = summarise(kept, on_seconds=False)
    fitted, figure = summarise(kept, setting="in_sample", absent=absent)
    between = "And the holes of the table that is fitted, all that some methods complete:"
    return f"{unseen}\n{between}\n\n{fitted}", figure


def _main(page: Path, picture: Path) -> None:
    from .drawing import save_png

    table, figure = summarise_record()
    page.write_text(replace_table(page.read_text(encoding="utf-8"), table), encoding="utf-8")
    if figure is not None:
        save_png(figure, picture)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))

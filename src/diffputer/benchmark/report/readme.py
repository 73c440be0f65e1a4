"""What a README shows of results: a table of averages, and error against seconds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from ..published import find_published
from .document import make_boards
from .entries import Entry, list_entries
from .layout import Cell, Table
from .leaderboard import Leaderboard, Lookup
from .markdown import escape_markdown, write_table
from .measures import MEASURES
from .pareto import draw_error_against_seconds
from .records import Results


def summarise(
    results: Results,
    *,
    setting: str = "out_of_sample",
    mechanism: str = "mcar",
    rate: float = 0.3,
    measures: Sequence[str] = ("mae", "rmse", "accuracy", "seconds"),
    lookup: Lookup = find_published,
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

    Returns
    -------
    table : str
        Averages are over the tasks that all entries have, which the line below the table counts; entries
        that lack results are named there.
    figure : matplotlib.figure.Figure or None
        None where no entry has both numbers.

    Examples
    --------
    >>> from diffputer.benchmark.report.records import admit_rows
    >>> row = {"dataset": "toy", "mechanism": "mcar", "rate": 0.3, "mask_seed": 0, "setting": "out_of_sample"}
    >>> rows = [row | {"method": m, "mae": e, "settings_hash": m} for m, e in (("mean", 0.8), ("knn", 0.5))]
    >>> print(summarise(admit_rows(rows))[0])
    | entry | MAE (× 100) | rank |
    |---|---:|---:|
    | knn | **50.00** | 1.00 |
    | mean | <u>80.00</u> | 2.00 |
    <BLANKLINE>
    Out of sample, MCAR 30 %: averages over 1 data set, 1 task that all have (MAE: toy).
    <BLANKLINE>
    """
    entries = list_entries(results.final)
    chosen = [
        board
        for board in make_boards(results, entries, measures, (setting,), lookup)
        if (board.mechanism, board.rate) == (mechanism, rate)
        and any(s.by_mask for s in board.scores.values())
    ]
    where = f"{setting.replace('_', ' ').capitalize()}, {mechanism.upper()} {100 * rate:g} %"
    if not chosen:
        return f"{where}: no results.\n", None
    first = chosen[0]
    rows = tuple(_write_row(entry, chosen) for entry in first.ranked)
    ratio = [f"{first.measure.title} / paper's"] if any(first.average_ratio(e) for e in first.ranked) else []
    columns = ("entry", *(board.measure.heading for board in chosen), "rank", *ratio)
    rows = tuple(row[: len(columns)] for row in rows)
    counted = "; ".join(f"{b.measure.title}: {', '.join(b.common_datasets)}" for b in _distinct(chosen))
    n = len(first.common_datasets)
    below = (
        f"{where}: averages over {n} data set{'s' * (n != 1)}, {len(first.tasks)} "
        f"task{'s' * (len(first.tasks) != 1)} that all have ({counted})."
    )
    if first.left_out:
        below += f" Left out for want of results: {'; '.join(e.name for e in first.left_out)}."
    failed = sum(len(score.failures) for score in first.scores.values())
    if failed:
        below += f" {failed} result{'s' * (failed != 1)} failed."
    table = Table("", columns, rows)
    seconds = make_boards(results, entries, ("seconds",), (setting,), lookup)
    time = next((b for b in seconds if (b.mechanism, b.rate) == (mechanism, rate)), None)
    figure = None if time is None else draw_error_against_seconds(first, time)
    return "\n".join([*write_table(table), "", escape_markdown(below), ""]), figure


def _write_row(entry: Entry, boards: Sequence[Leaderboard]) -> tuple[Cell, ...]:
    cells = [Cell(entry.name)]
    for board in boards:
        value = board.average(entry)
        averages = [a for other in board.ranked if (a := board.average(other)) is not None]
        place = None
        if value is not None and board.measure != MEASURES["seconds"]:
            place = 1 + sum(board.measure.loss(a) < board.measure.loss(value) for a in averages)
        shown = "" if value is None else board.measure.show(value)
        cells.append(Cell(shown, place=place if place in (1, 2) else None))
    rank, ratio = boards[0].mean_ranks.get(entry.key), boards[0].average_ratio(entry)
    cells.append(Cell("" if rank is None else f"{rank:.2f}"))
    cells.append(Cell(f"{ratio[0]:.3f} ({ratio[1]})" if ratio else ""))
    return tuple(cells)


def _distinct(boards: Sequence[Leaderboard]) -> list[Leaderboard]:
    """Boards that are over other data sets than the first, and the first."""
    return [b for i, b in enumerate(boards) if i == 0 or b.common_datasets != boards[0].common_datasets]

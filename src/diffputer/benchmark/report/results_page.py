"""The page of results: every table of the paper's comparison, ours beside theirs, from the rows of record.

``make record`` writes it: ``python -m diffputer.benchmark.report.results_page docs/results.md``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ..published import find_published
from .document import LEGEND, describe_common, describe_friedman, make_boards
from .entries import list_entries
from .layout import Report, Section
from .leaderboard import Leaderboard
from .markdown import write_markdown
from .of_record import describe_absent, keep_record
from .records import Results
from .tabulate import tabulate_board

_MEASURES = ("mae", "mae_median", "rmse", "accuracy")


@dataclass(frozen=True)
class Part:
    """A suite with a mechanism and a setting: what the page says of it, and under which heading."""

    title: str
    suite: str
    mechanism: str
    setting: str
    words: tuple[str, ...] = ()


_MASKS = (
    "Which columns drive the holes, and how, is drawn with the mask, and where large values are hidden "
    "errors are large: masks differ more than methods. Methods compare on the same masks, as here; a ratio "
    "to the paper is also one of its masks to ours. How hard ours are EM tells, a method that both have."
)
_UNPUBLISHED = "The same masks and fits; the paper has no numbers of it."
PARTS = (
    Part(
        "Completely at random, rows not seen in the fit",
        "paper-mcar", "mcar", "out_of_sample",
        ("The authors' split; 30 % of the cells are missing, in the fit and in the rows to complete.",),
    ),
    Part("Completely at random, the table of the fit", "paper-mcar", "mcar", "in_sample"),
    Part("At random, the table of the fit", "paper-mar", "mar", "in_sample", (_MASKS,)),
    Part("At random, rows not seen in the fit", "paper-mar", "mar", "out_of_sample", (_UNPUBLISHED,)),
    Part("Not at random, the table of the fit", "paper-mnar", "mnar", "in_sample", (_MASKS,)),
    Part("Not at random, rows not seen in the fit", "paper-mnar", "mnar", "out_of_sample", (_UNPUBLISHED,)),
    Part(
        "2,000 rows, rows not seen in the fit",
        "small", "mcar", "out_of_sample",
        (
            "The same tables cut to 2,000 rows for the fit and 2,000 to complete, on a CPU; em-miwae of News and "
            "two of its masks of Default on a GPU.",
        ),
    ),
    Part("2,000 rows, the table of the fit", "small", "mcar", "in_sample"),
)  # fmt: skip


def make_page(results: dict[str, Results], parts: tuple[Part, ...] = PARTS) -> str:
    """Write the page.

    Parameters
    ----------
    results : dict
        Suite -> its results; suites that lack are left out.
    parts : tuple of Part
        Headings, in this order.

    Returns
    -------
    str
        Markdown.
    """
    about = (
        "Made of the rows in benchmarks/results by make record: DiffPuter as it is, and its rivals with the "
        "settings of their authors or packages. A cell is over all masks that its entry has, which the last "
        "column counts; averages, ranks and tests are on the tasks that DiffPuter and every rival with all "
        "of its data sets have. diffputer-conditional is the default engine, diffputer-paper the published "
        'algorithm. MAE of the median is that of the same fit with estimate="median"; it is set beside the '
        "paper's MAE. diffputer bench table SUITE --record shows the same with tests of every pair.",
    )
    sections = [Section("How to read it", words=(*about, LEGEND))]
    for part in parts:
        if part.suite in results:
            kept = keep_record(results[part.suite])
            absent = describe_absent([part.suite], (r for r in kept.final if r.mechanism == part.mechanism))
            sections.append(Section(part.title, words=(*part.words, *filter(None, [absent]))))
            sections += [_write(board) for board in _make_boards(kept, part)]
    return write_markdown(Report("Results", tuple(sections)))


def _make_boards(results: Results, part: Part) -> list[Leaderboard]:
    boards = make_boards(results, list_entries(results.final), _MEASURES, (part.setting,), _look_up)
    return [board for board in boards if board.mechanism == part.mechanism]


def _look_up(
    dataset: str, mechanism: str, setting: str, metric: str, method: str
) -> tuple[float, bool] | None:
    """Set the median's error beside the paper's, which has one number a method."""
    return find_published(dataset, mechanism, setting, metric.removesuffix("_median"), method)


def _write(board: Leaderboard) -> Section:
    words = (describe_common(board), describe_friedman(board)) if len(board.ranked) > 1 else ()
    table = tabulate_board(board)
    return Section(table.title, 3, tuple(filter(None, words)), (replace(table, title=""),))


def read_suites() -> dict[str, Results]:
    """Read what is in benchmarks/results of the page's suites."""
    from ..table_command import read_results

    return {suite: read_results((suite,)) for suite in dict.fromkeys(part.suite for part in PARTS)}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(make_page(read_suites()), encoding="utf-8")

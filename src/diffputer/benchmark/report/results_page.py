"""The page of results: tables and curves of the paper's comparison, ours beside theirs, from committed rows.

``make record`` writes it: ``python -m diffputer.benchmark.report.results_page docs/results.md``; the figures
are put into ``images`` beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from ..published import find_published
from ..suites import list_suites
from .document import LEGEND, describe_common, describe_friedman, make_boards
from .drawing import save_png
from .entries import list_entries
from .layout import Picture, Report, Section
from .leaderboard import Leaderboard
from .markdown import write_markdown
from .measures import MEASURES, order_datasets
from .of_record import describe_absent, keep_record
from .records import Results
from .series import draw_draws, draw_em_curve, draw_rates, draw_steps
from .tabulate import tabulate_board

_MEASURES = ("mae", "mae_median", "rmse", "accuracy")
#: Of figures.
_ERROR, _SETTING = MEASURES["mae"], "out_of_sample"


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
            "The same tables cut to 2,000 rows for the fit and 2,000 to complete, on a CPU; em-miwae of News "
            "and two of its masks of Default on a GPU.",
        ),
    ),
    Part("2,000 rows, the table of the fit", "small", "mcar", "in_sample"),
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """A suite that the paper shows as curves: how they are drawn, and what is said of them."""

    title: str
    suite: str
    draw: Callable[[Results], Figure | None]
    words: tuple[str, ...] = ()


def _draw_em(results: Results) -> Figure | None:
    return draw_em_curve(results.curve, list_entries(results.final), _ERROR, _SETTING)


def _draw_draws(results: Results) -> Figure | None:
    return draw_draws(results.final, list_entries(results.final), _ERROR, _SETTING)


def _draw_steps(results: Results) -> Figure | None:
    return draw_steps(results.final, list_entries(results.final), _ERROR, MEASURES["seconds"], _SETTING)


def _draw_rates(results: Results) -> Figure | None:
    return draw_rates(results.final, list_entries(results.final), _ERROR, _SETTING, "mcar")


CURVES = (
    Curve(
        "EM rounds", "ablation-em-rounds", _draw_em,
        (
            "Every round of the published algorithm, and of the default engine, whose default is one round; "
            "here four were run. Published numbers are of whole tables, and are not drawn.",
        ),
    ),
    Curve("Number of draws N", "ablation-draws", _draw_draws),
    Curve("Sampling steps M against time", "ablation-sampling-steps", _draw_steps),
    Curve("Share of missing cells", "ablation-missing-ratio", _draw_rates),
)  # fmt: skip


#: Suites of which the page has curves, or says that they were not run, have names that begin so.
_ABLATION = "ablation-"


def make_report(results: dict[str, Results], parts: tuple[Part, ...] = PARTS) -> Report:
    """Make the page's tables and figures.

    Parameters
    ----------
    results : dict
        Suite -> its results. Suites that lack are left out; ablations among them are named at the end.
    parts : tuple of Part
        Headings of tables, in this order; curves come after them.

    Returns
    -------
    Report
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
    sections += [_draw(curve, results[curve.suite]) for curve in CURVES if curve.suite in results]
    return Report("Results", (*sections, *_name_others(results)))


def write_page(report: Report) -> str:
    """Write the page as Markdown, with figures in ``images`` beside it."""
    return write_markdown(report, {picture.name: f"images/{picture.name}.png" for picture in report.pictures})


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


def _draw(curve: Curve, results: Results) -> Section:
    figure = curve.draw(results)
    pictures = () if figure is None else (Picture(curve.suite, f"{curve.title}: {_ERROR.heading}", figure),)
    done = [record for record in results.final if record.setting == _SETTING and not record.error]
    masks = sorted({record.mask_seed for record in done})
    extent = (
        f"So far: {', '.join(order_datasets({record.dataset for record in done}))}; "
        f"mask{'s' * (len(masks) != 1)} {', '.join(map(str, masks))}. "
        f"diffputer bench table {curve.suite} has the numbers, diffputer bench run {curve.suite} the rest."
    )
    return Section(curve.title, words=(*curve.words, extent), pictures=pictures)


def _name_others(results: dict[str, Results]) -> list[Section]:
    """Name the ablations without a curve: where their numbers are, and which were not run."""
    others = [name for name in _list_ablations() if name not in {curve.suite for curve in CURVES}]
    words = [f"diffputer bench table {name} has the numbers." for name in others if name in results]
    if absent := [name for name in _list_ablations() if name not in results]:
        words.append(f"Not run: {', '.join(absent)}. diffputer bench run SUITE makes their rows.")
    return [Section("Other ablations", words=tuple(words))] if words else []


def _list_ablations() -> list[str]:
    return [name for name in list_suites() if name.startswith(_ABLATION)]


def read_suites() -> dict[str, Results]:
    """Read what is in benchmarks/results of the page's suites; there need not be ablations."""
    from ..table_command import RESULTS_FOLDER, read_results

    results = {part.suite: read_results((part.suite,), record=True) for part in PARTS}
    there = (name for name in _list_ablations() if (RESULTS_FOLDER / name).is_dir())
    return results | {suite: read_results((suite,)) for suite in there}


def main(page: Path) -> None:
    """Write the page and its figures."""
    report = make_report(read_suites())
    page.write_text(write_page(report), encoding="utf-8")
    for picture in report.pictures:
        save_png(picture.figure, page.parent / "images" / f"{picture.name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

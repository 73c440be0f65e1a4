"""Writes a report of results: leaderboards beside the paper, tests, what failed and what was refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..published import PUBLISHED_DEVICE, find_published, list_published_methods
from .entries import Entry, Key, list_entries
from .layout import Picture, Report, Section, Table
from .leaderboard import TOLERANCE, Leaderboard, Lookup, TaskKey, make_leaderboard, title_board
from .measures import OF_TIME, PAPERS_MEASURES, find_measure
from .notes import Explain, find_note
from .records import SETTINGS, Record, Results
from .statistics import ALPHA
from .tabulate import (
    DASH,
    MOST_PAIRS,
    list_differences,
    show_p,
    tabulate_board,
    tabulate_entries,
    tabulate_pairs,
    tabulate_published,
)

_MOST_NAMED = 6
#: What Friedman's p is of.
_HOW = {
    "exact": "exact: of all arrangements of the ranks",
    "F": "of the F distribution",
    "smallest": "the smallest that there can be: all data sets agree",
}

#: What signs in the cells of a leaderboard mean.
LEGEND = (
    "Mean ± standard deviation over masks (n − 1; none where there is one mask). Below it the paper's number "
    "and measured / published. Best in bold, second best underlined: of the ranked entries, by their means "
    "over the common tasks, where two at least are ranked. ? marks a published number that is doubtful: it "
    f"is in no average. ≠ marks a ratio more than {100 * TOLERANCE:g} % from 1; its footnote "
    "says why, and whether that was measured, is derived or a guess. "
    f"{DASH}: the method completes only the table that it is fitted on. Empty: not run."
)


def make_boards(
    results: Results,
    entries: Mapping[Key, Entry],
    measures: Sequence[str] = PAPERS_MEASURES,
    settings: Sequence[str] = SETTINGS,
    lookup: Lookup = find_published,
    rates: Collection[float] | None = None,
    rank: Collection[str] = (),
) -> list[Leaderboard]:
    """Make every leaderboard that the rows allow: one a mechanism, rate, setting and measure."""
    kinds: dict[tuple[str, float], list[Record]] = {}
    for record in results.final:
        if rates is None or record.rate in rates:
            kinds.setdefault((record.mechanism, record.rate), []).append(record)

    def find_ranked_on(kind: tuple[str, float], setting: str) -> Collection[TaskKey] | None:
        return None if results.ranked_on is None else results.ranked_on.get((*kind, setting), ())

    found = [
        make_leaderboard(
            kinds[kind], entries, find_measure(name), setting, lookup, rank, find_ranked_on(kind, setting)
        )
        for kind in sorted(kinds)
        for setting in settings
        for name in measures
    ]
    return [
        board
        for board in found
        if board.scores and any(s.by_mask or s.failures for s in board.scores.values())
    ]


def make_report(
    results: Results,
    *,
    title: str = "Benchmark",
    measures: Sequence[str] = PAPERS_MEASURES,
    settings: Sequence[str] = SETTINGS,
    rates: Collection[float] | None = None,
    lookup: Lookup = find_published,
    explain: Explain = find_note,
    rank: Collection[str] = (),
    about: Sequence[str] = (),
    published: bool = False,
    pictures: bool = False,
) -> Report:
    """Write a report of results.

    Parameters
    ----------
    results : Results
        From `diffputer.benchmark.report.records.admit_rows`.
    title : str
        Of the report.
    measures : sequence of str
        Names in `diffputer.benchmark.report.measures.MEASURES`.
    settings : sequence of {"in_sample", "out_of_sample"}
        Which to show.
    rates : collection of float, optional
        Shares of missing cells that get leaderboards; default: the one that most results have. Others are
        counted, and are in the figure over shares.
    lookup : callable
        Gives the paper's number and whether it is doubtful, or None.
    explain : callable
        Gives the note on what is far from the paper, or None.
    rank : collection of str
        Names of entries or methods that must be among the ranked ones.
    about : sequence of str
        Sentences on how the results were chosen, to be said first.
    published : bool
        Whether to list the paper's other methods below each leaderboard.
    pictures : bool
        Whether to draw.

    Returns
    -------
    Report
        To be written by `write_terminal`, `write_markdown`, `write_latex` or `write_html`.
    """
    entries = list_entries((*results.final, *results.curve))
    counts = Counter(record.rate for record in results.final)
    shown = set(rates) if rates is not None else {rate for rate, _ in counts.most_common(1)}
    boards = make_boards(results, entries, measures, settings, lookup, shown, rank)
    words = (*about, *_describe_rows(results), *_describe_other_rates(counts, shown))
    sections = [Section("Entries", words=words, tables=(tabulate_entries(results, entries),))]
    if results.refused:
        refused = tuple(f"{_capital(r.reason)}: {_name_some(r.rows)}." for r in results.refused)
        sections.append(Section("Refused: rows that cannot be compared", words=refused))
    sections.append(Section("Leaderboards", words=(LEGEND,)))
    for board in boards:
        others = list_published_methods(board.measure.name) if published else []
        tables = [tabulate_board(board, explain), tabulate_published(board, others, lookup)]
        sections.append(_write_board(board, [table for table in tables if table], pictures))
    sections.append(list_differences(boards, explain))
    if pictures:
        from .gallery import draw_overviews

        drawn = draw_overviews(results, entries, boards)
        if drawn:
            sections.append(Section("Figures", pictures=drawn))
    return Report(title, tuple(sections))


def _write_board(board: Leaderboard, tables: list[Table], pictures: bool) -> Section:
    words = [describe_common(board)]
    if board.measure.name in OF_TIME:
        words.append(_describe_time(board))
    for name, reason in board.refused:
        words.append(f"Refused: {name} {reason}.")
    if board.friedman is not None:
        words.append(describe_friedman(board))
    if board.pairs:
        words.append(_describe_pairs(board))
        tables = [*tables, tabulate_pairs(board)]
    drawn: tuple[Picture, ...] = ()
    if pictures:
        from .gallery import draw_board

        drawn = draw_board(board)
    return Section(title_board(board), 3, tuple(filter(None, words)), tuple(tables), drawn)


def describe_common(board: Leaderboard) -> str:
    """Say on which tasks entries are ranked, and who is left out."""
    if len(board.wanted) > 1 and not board.tasks:
        return f"Nobody is ranked: {_name_some(e.name for e in board.wanted)} have no task in common."
    if len(board.ranked) < 2 or not board.tasks:
        return "Too few results in common to rank: average and mean rank are of this entry alone or empty."
    n, every = len(board.common_datasets), board.all_tasks
    words = (
        f"Average and mean rank: {len(board.ranked)} entries on the {_count(len(board.tasks), 'task')} "
        f"(data set and mask) that all of them have, {_count(n, 'data set')}: "
        f"{', '.join(board.common_datasets)}."
    )
    if len(every) > len(board.tasks):
        words += (
            f" Results are there of {_count(len(every), 'task')}; a cell is the mean over all masks that its "
            "entry has, the mean ratio over all data sets that it has (their number in brackets)."
        )
    if board.left_out:
        lacking = [f"{e.name} (has {board.count_common(e)} of {len(board.tasks)})" for e in board.left_out]
        words += f" Left out for want of results: {_name_some(lacking)}."
    return words


def _describe_time(board: Leaderboard) -> str:
    devices = dict.fromkeys(device for entry in board.entries for device in entry.devices)
    ours = ", ".join(devices) or "an unknown device"
    words = f"Seconds are those of {ours}; the paper's of an {PUBLISHED_DEVICE}."
    return words + (" Seconds of different devices do not compare." if len(devices) > 1 else "")


def describe_friedman(board: Leaderboard) -> str:
    """Give the test of all ranked entries in words."""
    test = board.friedman
    if test is None:
        return ""
    k = len(test.ranks)
    rough = "Nemenyi's test is" if test.how == "exact" else "these tests are"
    return (
        f"Friedman over {test.n} data sets, {k} entries: chi² = {test.chi2:.2f}, F({k - 1}, "
        f"{(k - 1) * (test.n - 1)}) = {_show_f(test.f)}, p {show_p(test.p, '= ')} ({_HOW[test.how]}). "
        f"Nemenyi: mean ranks differ where they are more than {test.critical_difference:.2f} apart (level "
        f"{ALPHA:g})." + (f" Of so few data sets {rough} rough." if test.n < 5 else "")
    )


def _describe_pairs(board: Leaderboard) -> str:
    words = (
        f"Wilcoxon signed-rank tests over {_count(len(board.tasks), 'pair')} of the same data set and mask, "
        f"Holm's correction over {_count(len(board.pairs), 'comparison')}"
    )
    if len(board.tasks) > len(board.common_datasets):
        words += "; masks of one data set are not independent, so that these p are too small"
    if len(board.pairs) > MOST_PAIRS:
        words += "; listed are the comparisons with the best-ranked entry"
    smallest = 2.0 ** (1 - len(board.tasks))
    if smallest * len(board.pairs) > ALPHA:
        words += f"; of so few pairs no p can be below {smallest:.3f}"
    return words + "."


def _describe_rows(results: Results) -> tuple[str, ...]:
    words = [
        f"{_count(len(results.final), 'result')}, "
        f"{_count(len(results.curve), 'point')} of curves over EM rounds. "
        "A method with other settings is another entry."
    ]
    if results.repeated:
        words.append(
            f"{_count(len(results.repeated), 'result')} stood there more than once; the last one counted: "
            f"{_name_some(results.repeated)}."
        )
    return tuple(words)


def _describe_other_rates(counts: Counter[float], shown: Collection[float]) -> list[str]:
    others = sorted(set(counts) - set(shown))
    if not others:
        return []
    named = ", ".join(f"{100 * rate:g} % ({counts[rate]})" for rate in others)
    return [f"Results at other shares of missing cells have no leaderboard here: {named}; --rate gives one."]


def _name_some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f"; and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return "; ".join(listed[:_MOST_NAMED]) + more


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _show_f(f: float) -> str:
    return "∞" if math.isinf(f) else f"{f:.2f}"

"""Writes a report of results: leaderboards beside the paper, tests, what failed and what was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ..published import PUBLISHED_DEVICE, find_published
from .entries import Entry, Key, list_entries
from .layout import Cell, Picture, Report, Section, Table
from .leaderboard import TOLERANCE, Leaderboard, Lookup, Score, make_leaderboard
from .measures import OF_TIME, PAPERS_MEASURES, Measure, find_measure
from .records import SETTINGS, Record, Results
from .statistics import ALPHA

DASH, NOT_RUN = "–", ""
_SETTING_TITLES = {"in_sample": "in sample", "out_of_sample": "out of sample"}
#: More pairs than these: only those with the best entry are listed.
_MOST_PAIRS = 15
_MOST_NAMED = 6
_LONGEST_REASON = 240

_LEGEND = (
    "Mean ± standard deviation over masks (n − 1; none where there is one mask). Below it the paper's number "
    "and measured / published. Best in bold, second best underlined. ? marks a published number that is "
    f"doubtful: it is in no average. ≠ marks a ratio more than {100 * TOLERANCE:g} % from 1. {DASH}: the "
    "method completes only the table that it is fitted on. Empty: not run."
)


def make_boards(
    results: Results,
    entries: Mapping[Key, Entry],
    measures: Sequence[str] = PAPERS_MEASURES,
    settings: Sequence[str] = SETTINGS,
    lookup: Lookup = find_published,
    rates: Collection[float] | None = None,
) -> list[Leaderboard]:
    """Make every leaderboard that the rows allow: one a mechanism, rate, setting and measure."""
    kinds: dict[tuple[str, float], list[Record]] = {}
    for record in results.final:
        if rates is None or record.rate in rates:
            kinds.setdefault((record.mechanism, record.rate), []).append(record)
    found = [
        make_leaderboard(kinds[kind], entries, find_measure(name), setting, lookup)
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
    boards = make_boards(results, entries, measures, settings, lookup, shown)
    words = (*_describe_rows(results), *_describe_other_rates(counts, shown))
    sections = [Section("Entries", words=words, tables=(_list_entries(results, entries),))]
    if results.refused:
        refused = tuple(f"{_capital(r.reason)}: {_name_some(r.rows)}." for r in results.refused)
        sections.append(Section("Refused: rows that cannot be compared", words=refused))
    sections.append(Section("Leaderboards", words=(_LEGEND,)))
    for board in boards:
        sections.append(_write_board(board, pictures))
    sections.append(_list_differences(boards))
    if pictures:
        from .gallery import draw_overviews

        drawn = draw_overviews(results, entries, boards)
        if drawn:
            sections.append(Section("Figures", pictures=drawn))
    return Report(title, tuple(sections))


def title_board(board: Leaderboard) -> str:
    """Name a leaderboard: MAE (× 100), out of sample, MCAR 30 %."""
    where = _SETTING_TITLES[board.setting]
    return f"{board.measure.heading}, {where}, {board.mechanism.upper()} {100 * board.rate:g} %"


def _write_board(board: Leaderboard, pictures: bool) -> Section:
    words = [_describe_common(board)]
    tables = [tabulate_board(board)]
    if board.measure.name in OF_TIME:
        words.append(_describe_time(board))
    for name, reason in board.refused:
        words.append(f"Refused: {name} {reason}.")
    if board.friedman is not None:
        words.append(describe_friedman(board))
    if board.pairs:
        words.append(_describe_pairs(board))
        tables.append(_tabulate_pairs(board))
    drawn: tuple[Picture, ...] = ()
    if pictures:
        from .gallery import draw_board

        drawn = draw_board(board)
    return Section(title_board(board), 3, tuple(filter(None, words)), tuple(tables), drawn)


def tabulate_board(board: Leaderboard) -> Table:
    """Lay a leaderboard out: entries down, data sets across, then average, mean rank and mean ratio."""
    footnotes: dict[str, int] = {}
    places = {name: board.places(name) for name in board.datasets}
    averages = {e.key: average for e in board.ranked if (average := board.average(e)) is not None}
    with_ratio = any(board.average_ratio(entry) for entry in board.entries)
    order = _places({key: board.measure.loss(value) for key, value in averages.items()})
    rows = []
    for entry in board.entries:
        scores = [board.score(entry, name) for name in board.datasets]
        cells = [Cell(entry.name)]
        for name, score in zip(board.datasets, scores, strict=True):
            cells.append(_fill(score, board.measure, places[name].get(entry.key), footnotes))
        counts = sorted({len(score.by_mask) for score in scores if score is not None and score.by_mask})
        average, rank = averages.get(entry.key), board.mean_ranks.get(entry.key)
        cells.append(_number(average, board.measure.show, order.get(entry.key)))
        cells.append(_number(rank, lambda value: f"{value:.2f}"))
        if with_ratio:
            ratio = board.average_ratio(entry)
            cells.append(Cell(f"{ratio[0]:.3f} ({ratio[1]})", order=ratio[0]) if ratio else Cell())
        cells.append(Cell("–".join(str(n) for n in dict.fromkeys((*counts[:1], *counts[-1:])))))
        rows.append(tuple(cells))
    columns = (
        "entry",
        *board.datasets,
        "average",
        "mean rank",
        *(["mean ratio"] if with_ratio else []),
        "masks",
    )
    return Table(
        f"{title_board(board)}; {board.measure.direction}", columns, tuple(rows), tuple(footnotes),
        n_measured=len(board.datasets),
    )  # fmt: skip


def _fill(score: Score | None, measure: Measure, place: int | None, footnotes: dict[str, int]) -> Cell:
    if score is None:
        return Cell(NOT_RUN)
    notes = []
    runs = len(set(score.by_mask) | set(score.failures))
    for reason in dict.fromkeys(score.failures.values()):
        count = sum(other == reason for other in score.failures.values())
        how_many = f"{count} of {runs} masks failed: " if runs > 1 else ""
        kind = "failed afterwards: " if set(score.failures) <= set(score.by_mask) else how_many
        notes.append(footnotes.setdefault(kind + _shorten(reason), len(footnotes) + 1))
    if measure.name in OF_TIME and score.by_mask and not score.alone:
        notes.append(footnotes.setdefault("the machine did other work at the same time", len(footnotes) + 1))
    if score.mean is None:
        text = DASH if score.cannot else "failed"
        published = "" if score.published is None else measure.show(score.published)
        return Cell(text, published=published, doubtful=score.doubtful, notes=tuple(notes))
    return Cell(
        measure.show(score.mean),
        "" if score.deviation is None else measure.show(score.deviation),
        "" if score.published is None else measure.show(score.published),
        score.doubtful,
        "" if score.ratio is None else f"{score.ratio:.3f}",
        score.differs,
        place if place in (1, 2) else None,
        tuple(notes),
        score.mean,
    )


def _number(value: float | None, show: Callable[[float], str], place: int | None = None) -> Cell:
    if value is None:
        return Cell()
    return Cell(show(value), place=place if place in (1, 2) else None, order=value)


def _places(losses: Mapping[Key, float]) -> dict[Key, int]:
    return {key: 1 + sum(other < loss for other in losses.values()) for key, loss in losses.items()}


def _describe_common(board: Leaderboard) -> str:
    if len(board.ranked) < 2 or not board.tasks:
        return "Too few results in common to rank: average and mean rank are of this entry alone or empty."
    n = len(board.common_datasets)
    words = (
        f"Average and mean rank: {len(board.ranked)} entries on the {_count(len(board.tasks), 'task')} "
        f"(data set and mask) that all of them have, {_count(n, 'data set')}: "
        f"{', '.join(board.common_datasets)}."
    )
    if board.left_out:
        words += f" Left out for want of results: {_name_some([e.name for e in board.left_out], 99)}."
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
    return (
        f"Friedman over {test.n} data sets, {k} entries: chi² = {test.chi2:.2f}, F({k - 1}, "
        f"{(k - 1) * (test.n - 1)}) = {test.f:.2f}, p {_show_p(test.p, '= ')}. Nemenyi: mean ranks "
        f"differ where they are more than {test.critical_difference:.2f} apart (level {ALPHA:g})."
        + (" Of so few data sets these tests are rough." if test.n < 5 else "")
    )


def _describe_pairs(board: Leaderboard) -> str:
    words = (
        f"Wilcoxon signed-rank tests over {_count(len(board.tasks), 'pair')} of the same data set and mask, "
        f"Holm's correction over {_count(len(board.pairs), 'comparison')}"
    )
    if len(board.tasks) > len(board.common_datasets):
        words += "; masks of one data set are not independent, so that these p are too small"
    if len(board.pairs) > _MOST_PAIRS:
        words += "; listed are the comparisons with the best-ranked entry"
    return words + "."


def _tabulate_pairs(board: Leaderboard) -> Table:
    rows = []
    for pair in board.pairs:
        if len(board.pairs) > _MOST_PAIRS and pair.first != 0:
            continue
        scale = board.measure.scale
        rows.append(
            (
                Cell(board.ranked[pair.first].name),
                Cell(board.ranked[pair.second].name),
                Cell(f"{pair.wins}/{pair.ties}/{pair.losses}"),
                Cell(f"{scale * pair.median_difference:+.2f}", order=pair.median_difference),
                Cell(_show_p(pair.p), order=pair.p),
                Cell(_show_p(pair.p_holm) + (" *" if pair.p_holm < ALPHA else ""), order=pair.p_holm),
            )
        )
    return Table(
        f"Pairs, {title_board(board)} (* at the level {ALPHA:g}; a difference below 0 is good for the first)",
        ("first", "second", "wins/ties/losses", "median difference", "p", "p (Holm)"), tuple(rows),
        words=frozenset({"second"}),
    )  # fmt: skip


def _list_differences(boards: Sequence[Leaderboard]) -> Section:
    """List where a run is more than the tolerance from the paper, rivals first."""
    rows, compared = [], 0
    for board in boards:
        for entry in board.entries:
            for name in board.datasets:
                score = board.score(entry, name)
                if score is None or score.ratio is None or score.doubtful or score.mean is None:
                    continue
                compared += 1
                if score.differs and score.published is not None:
                    better = board.measure.loss(score.mean) < board.measure.loss(score.published)
                    rows.append((entry.ours, (
                        Cell(entry.name), Cell(title_board(board)), Cell(name),
                        Cell(board.measure.show(score.mean), order=score.mean),
                        Cell(board.measure.show(score.published), order=score.published),
                        Cell(f"{score.ratio:.3f}", order=score.ratio),
                        Cell("better" if better else "worse"),
                    )))  # fmt: skip
    title = f"Differs from the paper by more than {100 * TOLERANCE:g} %"
    words = (
        f"{len(rows)} of {compared} measurements with a published number that is not doubtful; rivals first."
    )
    if not rows:
        return Section(title, words=(words,))
    columns = ("entry", "what", "data set", "measured", "published", "ratio", "measured is")
    ordered = tuple(cells for _, cells in sorted(rows, key=lambda row: row[0]))
    table = Table("", columns, ordered, words=frozenset({"what", "data set", "measured is"}))
    return Section(title, words=(words,), tables=(table,))


def _list_entries(results: Results, entries: Mapping[Key, Entry]) -> Table:
    counts = Counter(r.entry for r in results.final)
    failed = Counter(r.entry for r in results.final if r.error and not r.cannot)
    rows = tuple(
        (
            Cell(entry.name), Cell("" if entry.label in entry.name else entry.label), Cell(key[1]),
            Cell(entry.published or ""),
            Cell(", ".join(entry.devices)), Cell(str(counts[key]), order=counts[key]),
            Cell(str(failed[key]), order=failed[key]),
        )
        for key, entry in entries.items()
    )  # fmt: skip
    columns = ("entry", "label", "settings", "in the paper", "device", "results", "failed")
    words = frozenset({"label", "settings", "in the paper", "device"})
    return Table("", columns, rows, words=words)


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


def _name_some(names: Iterable[str], most: int = _MOST_NAMED) -> str:
    listed = list(names)
    more = f"; and {len(listed) - most} more" if len(listed) > most else ""
    return "; ".join(listed[:most]) + more


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1].rstrip() + "…"


def _show_p(p: float, equals: str = "") -> str:
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"

"""Lays results out in tables: leaderboards, pairs, entries, and what differs from the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..published import PUBLISHED_RATE
from .entries import Entry, Key
from .layout import Cell, Section, Table
from .leaderboard import TOLERANCE, Leaderboard, Lookup, Score, title_board
from .measures import OF_TIME, Measure
from .notes import UNEXPLAINED, Explain, Note, find_note
from .records import Results
from .statistics import ALPHA

DASH, NOT_RUN = "–", ""
#: More pairs than these: only those with the best entry are listed.
MOST_PAIRS = 15
_LONGEST_REASON = 240
#: Of what an energy distance is where a row tells of no draws.
_OF_ONE_FILLING = "of the table filled in once, not of draws, which alone vary as the truth does"


def tabulate_board(board: Leaderboard, explain: Explain = find_note) -> Table:
    """Lay a leaderboard out: entries down, data sets across, then average, mean rank and mean ratio.

    What is far from the paper has a footnote that tells why, as far as that is known.
    """
    footnotes: dict[str, int] = {}
    places = {name: board.places(name) for name in board.datasets}
    averages = {e.key: average for e in board.ranked if (average := board.average(e)) is not None}
    with_ratio = any(board.average_ratio(entry) for entry in board.entries)
    rows = []
    for entry in board.entries:
        scores = [board.score(entry, name) for name in board.datasets]
        cells = [Cell(entry.name)]
        for name, score in zip(board.datasets, scores, strict=True):
            why = ""
            if score is not None and score.differs:
                note = _find_note(board, entry, name, score, explain)
                why = f"≠ {UNEXPLAINED}" if note is None else f"≠ {note.kind}: {note.why}"
            cells.append(_fill(score, board.measure, places[name].get(entry.key), footnotes, why))
        counts = sorted({len(score.by_mask) for score in scores if score is not None and score.by_mask})
        average, rank = averages.get(entry.key), board.mean_ranks.get(entry.key)
        cells.append(_number(average, board.measure.show, board.average_places.get(entry.key)))
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


def tabulate_published(board: Leaderboard, names: Sequence[str], lookup: Lookup) -> Table | None:
    """Lay out what the paper has of methods that are not among the entries."""
    if board.rate != PUBLISHED_RATE:
        return None
    rows = []
    for name in names:
        found = [lookup(d, board.mechanism, board.setting, board.measure.name, name) for d in board.datasets]
        if any(found) and name not in {entry.published for entry in board.entries}:
            cells = (
                Cell() if number is None
                else Cell(board.measure.show(number[0]) + "?" * number[1], order=number[0])
                for number in found
            )  # fmt: skip
            rows.append((Cell(name), *cells))
    title = f"Published only, not run here: {title_board(board)}"
    columns = ("method", *board.datasets)
    return Table(title, columns, tuple(rows), n_measured=len(board.datasets)) if rows else None


def _find_note(board: Leaderboard, entry: Entry, dataset: str, score: Score, explain: Explain) -> Note | None:
    side = _name_side(board, score)
    return explain(entry.key[0], board.mechanism, board.setting, board.measure.name, dataset, side)


def _name_side(board: Leaderboard, score: Score) -> str:
    """Say on which side of the paper's number a measured one is."""
    if score.mean is None or score.published is None:
        return ""
    better = board.measure.loss(score.mean) < board.measure.loss(score.published)
    return "better" if better else "worse"


def _fill(
    score: Score | None, measure: Measure, place: int | None, footnotes: dict[str, int], why: str = ""
) -> Cell:
    if score is None:
        return Cell(NOT_RUN)
    notes = []
    runs = len(set(score.by_mask) | set(score.failures))
    for reason in dict.fromkeys(score.failures.values()):
        count = sum(other == reason for other in score.failures.values())
        how_many = f"{count} of {runs} masks failed: " if runs > 1 else ""
        kind = "failed afterwards: " if set(score.failures) <= set(score.by_mask) else how_many
        notes.append(footnotes.setdefault(kind + _shorten(reason), len(footnotes) + 1))
    if measure.name in OF_TIME and score.busy:
        notes.append(footnotes.setdefault("the machine did other work at the same time", len(footnotes) + 1))
    if measure.name == "energy" and score.by_mask and not score.drawn:
        notes.append(footnotes.setdefault(_OF_ONE_FILLING, len(footnotes) + 1))
    if why:
        notes.append(footnotes.setdefault(why, len(footnotes) + 1))
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


def tabulate_pairs(board: Leaderboard) -> Table:
    rows = []
    for pair in board.pairs:
        if len(board.pairs) > MOST_PAIRS and pair.first != 0:
            continue
        advantage = -board.measure.scale * pair.median_difference
        rows.append(
            (
                Cell(board.ranked[pair.first].name),
                Cell(board.ranked[pair.second].name),
                Cell(f"{pair.wins}/{pair.ties}/{pair.losses}"),
                Cell(f"{advantage:+.2f}" if round(advantage, 2) else "0.00", order=-pair.median_difference),
                Cell(show_p(pair.p), order=pair.p),
                Cell(show_p(pair.p_holm) + (" *" if pair.p_holm < ALPHA else ""), order=pair.p_holm),
            )
        )
    return Table(
        f"Pairs, {title_board(board)} (* at the level {ALPHA:g}; an advantage is the first's)",
        ("first", "second", "wins/ties/losses", "median advantage", "p", "p (Holm)"), tuple(rows),
        words=frozenset({"second"}),
    )  # fmt: skip


def list_differences(boards: Sequence[Leaderboard], explain: Explain = find_note) -> Section:
    """List where a run is more than the tolerance from the paper, rivals first; is it known why?"""
    rows, compared, unexplained = [], 0, []
    for board in boards:
        for entry in board.entries:
            for name in board.datasets:
                score = board.score(entry, name)
                if score is None or score.ratio is None or score.doubtful or score.mean is None:
                    continue
                compared += 1
                if score.differs and score.published is not None:
                    note = _find_note(board, entry, name, score, explain)
                    if note is None:
                        unexplained.append(f"{entry.name} on {name} ({title_board(board)})")
                    rows.append((entry.ours, (
                        Cell(entry.name), Cell(title_board(board)), Cell(name),
                        Cell(board.measure.show(score.mean), order=score.mean),
                        Cell(board.measure.show(score.published), order=score.published),
                        Cell(f"{score.ratio:.3f}", order=score.ratio),
                        Cell(_name_side(board, score)),
                        Cell(UNEXPLAINED if note is None else note.kind),
                    )))  # fmt: skip
    title = f"Differs from the paper by more than {100 * TOLERANCE:g} %"
    words = [
        f"{len(rows)} of {compared} measurements with a published number that is not doubtful; rivals first. "
        "Why stands below each leaderboard; the last column tells how surely that is known."
    ]
    if not rows:
        return Section(title, words=(words[0].partition(" Why ")[0],))
    if unexplained:
        words.append(f"{UNEXPLAINED.capitalize()}, {len(unexplained)}: {'; '.join(unexplained)}.")
    columns = ("entry", "what", "data set", "measured", "published", "ratio", "measured is", "reason")
    ordered = tuple(cells for _, cells in sorted(rows, key=lambda row: row[0]))
    table = Table("", columns, ordered, words=frozenset({"what", "data set", "measured is", "reason"}))
    return Section(title, words=tuple(words), tables=(table,))


def tabulate_entries(results: Results, entries: Mapping[Key, Entry]) -> Table:
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


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1].rstrip() + "…"


def show_p(p: float, equals: str = "") -> str:
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"

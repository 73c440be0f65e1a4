"""A leaderboard: every entry on every data set, beside the paper, with averages and ranks on common tasks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ..published import PUBLISHED_RATE, find_published
from .entries import Entry, Key
from .measures import OF_DRAWS, Measure, order_datasets
from .records import Record, name_class, name_kind
from .statistics import Friedman, Pair, compare_pairs, rank_rows, run_friedman

_SETTING_TITLES = {"in_sample": "in sample", "out_of_sample": "out of sample"}
#: A ratio to the paper that is further from 1 is marked and listed.
TOLERANCE = 0.1
Lookup = Callable[..., tuple[float, bool] | None]
TaskKey = tuple[str, int]


@dataclass(frozen=True)
class Score:
    """What an entry reached on a data set.

    Attributes
    ----------
    by_mask
        Mask -> number; empty where nothing worked.
    failures
        Mask -> reason, of those that failed.
    cannot
        Whether the method cannot do this at all: it completes only the table that it is fitted on.
    published, doubtful
        The paper's number, and whether it is better not relied upon.
    busy
        Masks during whose run the machine did other work as well.
    drawn
        Whether the method was asked for draws as well.
    classes
        Of the devices; seconds compare where these are the same.
    """

    by_mask: Mapping[int, float]
    failures: Mapping[int, str]
    cannot: bool = False
    published: float | None = None
    doubtful: bool = False
    busy: frozenset[int] = frozenset()
    drawn: bool = True
    classes: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Over masks."""
        return statistics.fmean(self.by_mask.values()) if self.by_mask else None

    @property
    def undisturbed(self) -> Mapping[int, float]:
        """Of the masks during whose run the machine did nothing else."""
        return {mask: value for mask, value in self.by_mask.items() if mask not in self.busy}

    @property
    def quiet_mean(self) -> float | None:
        """Mean over the undisturbed masks where there are any, else over all."""
        values = self.undisturbed.values() or self.by_mask.values()
        return statistics.fmean(values) if values else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over masks (n - 1); none of a single mask."""
        return statistics.stdev(self.by_mask.values()) if len(self.by_mask) > 1 else None

    @property
    def ratio(self) -> float | None:
        """Measured divided by published."""
        return self.mean / self.published if self.mean is not None and self.published else None

    @property
    def differs(self) -> bool:
        """Whether it is more than `TOLERANCE` from a published number that is not doubtful."""
        return self.ratio is not None and not self.doubtful and abs(self.ratio - 1) > TOLERANCE


@dataclass(frozen=True)
class Leaderboard:
    """Entries by data sets for one measure, setting, mechanism and rate; the best entry first."""

    measure: Measure
    setting: str
    mechanism: str
    rate: float
    entries: tuple[Entry, ...]
    datasets: tuple[str, ...]
    scores: Mapping[tuple[Key, str], Score]
    #: Entries that are ranked, best first, and the tasks that all of these have.
    ranked: tuple[Entry, ...]
    tasks: tuple[TaskKey, ...]
    #: Why results of draws were left out.
    refused: tuple[tuple[str, str], ...] = ()
    #: Entries that were to be ranked whatever that does to the number of common tasks.
    wanted: tuple[Entry, ...] = ()

    @property
    def left_out(self) -> tuple[Entry, ...]:
        """Entries that lack results of the common tasks."""
        return tuple(entry for entry in self.entries if entry not in self.ranked)

    @cached_property
    def common_datasets(self) -> tuple[str, ...]:
        """Data sets of the common tasks."""
        names = {dataset for dataset, _ in self.tasks}
        return tuple(name for name in self.datasets if name in names)

    @cached_property
    def all_tasks(self) -> frozenset[TaskKey]:
        """Tasks of which some entry has a result."""
        return frozenset((name, mask) for (_, name), score in self.scores.items() for mask in score.by_mask)

    def count_common(self, entry: Entry) -> int:
        """Give how many of the common tasks an entry has."""
        scores = {name: self.scores.get((entry.key, name)) for name in self.common_datasets}
        return sum(mask in score.by_mask for name, mask in self.tasks if (score := scores[name]) is not None)

    def score(self, entry: Entry, dataset: str) -> Score | None:
        """Give what an entry reached, or None if it was not run."""
        return self.scores.get((entry.key, dataset))

    def common_mean(self, entry: Entry, dataset: str) -> float:
        """Mean over the common masks of a data set."""
        masks = [mask for name, mask in self.tasks if name == dataset]
        return statistics.fmean(self.scores[entry.key, dataset].by_mask[mask] for mask in masks)

    def average(self, entry: Entry) -> float | None:
        """Mean over the common data sets; None of an entry that is left out."""
        if entry not in self.ranked or not self.tasks:
            return None
        return statistics.fmean(self.common_mean(entry, name) for name in self.common_datasets)

    def average_ratio(self, entry: Entry) -> tuple[float, int] | None:
        """Mean ratio over data sets with a published, unflagged number, and how many these are."""
        scores = [self.score(entry, name) for name in self.datasets]
        ratios = [s.ratio for s in scores if s is not None and s.ratio is not None and not s.doubtful]
        return (statistics.fmean(ratios), len(ratios)) if ratios else None

    def places(self, dataset: str) -> dict[Key, int]:
        """Give the places of the ranked entries on a data set by their means over the common masks.

        Equal ones share theirs. An entry that lacks a common mask has none, however good it is on others:
        masks differ by more than good methods do.
        """
        if dataset not in self.common_datasets:
            return {}
        return self._find_places({entry.key: self.common_mean(entry, dataset) for entry in self.ranked})

    @cached_property
    def average_places(self) -> dict[Key, int]:
        """Places of the ranked entries by their averages."""
        averages = {entry.key: self.average(entry) for entry in self.ranked}
        return self._find_places({key: value for key, value in averages.items() if value is not None})

    def _find_places(self, values: Mapping[Key, float]) -> dict[Key, int]:
        """None where there are not two: nobody is best alone."""
        if len(values) < 2:
            return {}
        losses = {key: self.measure.loss(value) for key, value in values.items()}
        return {key: 1 + sum(other < loss for other in losses.values()) for key, loss in losses.items()}

    @cached_property
    def friedman(self) -> Friedman | None:
        """The test over the common data sets; None for fewer than two entries or data sets."""
        if len(self.ranked) < 2 or len(self.common_datasets) < 2:
            return None
        return run_friedman(self.losses_by_dataset())

    @cached_property
    def mean_ranks(self) -> dict[Key, float]:
        """Mean rank of every ranked entry over the common data sets."""
        if len(self.ranked) < 2:
            return {}
        ranks = rank_rows(self.losses_by_dataset()).mean(axis=0)
        return {entry.key: float(rank) for entry, rank in zip(self.ranked, ranks, strict=True)}

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every two ranked entries compared over the common tasks."""
        if len(self.ranked) < 2:
            return []
        rows = [[self.scores[e.key, name].by_mask[mask] for e in self.ranked] for name, mask in self.tasks]
        return compare_pairs(np.array([[self.measure.loss(v) for v in row] for row in rows]))

    def losses_by_dataset(self) -> NDArray[np.float64]:
        """Means over common masks as losses. Shape: [common data sets, ranked entries]."""
        means = [[self.common_mean(e, name) for e in self.ranked] for name in self.common_datasets]
        return np.array([[self.measure.loss(value) for value in row] for row in means])


def make_leaderboard(
    records: Sequence[Record],
    entries: Mapping[Key, Entry],
    measure: Measure,
    setting: str,
    lookup: Lookup = find_published,
    rank: Collection[str] = (),
    ranked_on: Collection[TaskKey] | None = None,
) -> Leaderboard:
    """Set results of one mechanism and rate beside each other.

    Parameters
    ----------
    records : sequence of Record
        Final results; those of another setting are passed over.
    entries : dict
        From `diffputer.benchmark.report.entries.list_entries`.
    measure : Measure
        What to compare.
    setting : {"in_sample", "out_of_sample"}
        Which table was completed.
    lookup : callable
        Gives the paper's number and whether it is doubtful, or None.
    rank : collection of str
        Names of entries, or of methods, whose entry with most tasks is meant, that must be among the ranked
        ones; those that have no result here are passed over.
    ranked_on : collection of TaskKey, optional
        Tasks that averages, ranks and tests are confined to; cells are over all masks.

    Returns
    -------
    Leaderboard
        The best entry first, then those that cannot be ranked.
    """
    kinds = sorted({(r.mechanism, r.rate) for r in records})
    if len(kinds) != 1:
        named = ", ".join(f"{mechanism} {rate:g}" for mechanism, rate in kinds) or "none"
        raise InputError(
            "A leaderboard must be of one mechanism and one rate of missing cells, however: these rows have "
            f"{named}. Make one for each."
        )
    mechanism, rate = kinds[0]
    mine = [r for r in records if r.setting == setting]
    mine, refused = _refuse_other_draws(mine, measure)
    groups: dict[tuple[Key, str], list[Record]] = {}
    for record in mine:
        groups.setdefault((record.entry, record.dataset), []).append(record)
    scores: dict[tuple[Key, str], Score] = {}
    for (key, dataset), group in groups.items():
        published = None
        if rate == PUBLISHED_RATE and entries[key].published:
            published = lookup(dataset, mechanism, setting, measure.name, entries[key].published)
        score = _make_score(group, measure.name, published)
        if score is not None:
            scores[key, dataset] = score
    # A data set without, say, categories is no column of their accuracy.
    datasets = order_datasets({name for (_, name), score in scores.items() if score.by_mask})
    if not datasets:
        datasets = order_datasets({name for _, name in scores})
    # A method that has no such number where it worked, say a method without draws, has not failed at it.
    lacking = {
        r.entry for r in mine if not r.error and r.dataset in datasets and measure.name not in r.values
    }
    lacking -= {key for (key, _), score in scores.items() if score.by_mask}
    scores = {(k, name): s for (k, name), s in scores.items() if name in datasets and k not in lacking}
    shown = [entry for key, entry in entries.items() if any(k == key for k, _ in scores)]
    tasks_of = {
        e.key: {(name, mask) for (k, name), s in scores.items() if k == e.key for mask in s.by_mask}
        for e in shown
    }
    if ranked_on is not None:
        tasks_of = {key: tasks.intersection(ranked_on) for key, tasks in tasks_of.items()}
    wanted = _find_wanted(shown, tasks_of, rank)
    ranked, tasks = find_common(tasks_of, [entry.key for entry in wanted])
    board = Leaderboard(
        measure, setting, mechanism, rate, tuple(shown), tuple(datasets), scores,
        tuple(e for e in shown if e.key in ranked), tasks, refused, wanted,
    )  # fmt: skip
    return _order(board)


def _find_wanted(
    entries: Sequence[Entry], tasks_of: Mapping[Key, set[TaskKey]], names: Collection[str]
) -> tuple[Entry, ...]:
    """Give the entries that names mean: of a method's the one with most tasks, of equals the newest."""
    found = {}
    for name in names:
        meant = [e for e in entries if tasks_of[e.key] and is_named(e, name)]
        if meant:
            best = max(reversed(meant), key=lambda e: len(tasks_of[e.key]))
            found[best.key] = best
    return tuple(found.values())


def is_named(entry: Entry, name: str) -> bool:
    """Say whether a name is that of an entry, or of its method."""
    return name.lower() in (entry.name.lower(), entry.key[0].lower())


def find_common(
    tasks_of: Mapping[Key, set[TaskKey]], wanted: Sequence[Key] = ()
) -> tuple[set[Key], tuple[TaskKey, ...]]:
    """Choose which entries to rank on which tasks: all of these have all of those, and they are many results.

    Beginning with each entry in turn, the entry that shares most tasks with those taken is taken next; of
    all stages the one with most results, entries times tasks, is chosen, of equals that with most entries.
    Where entries are wanted, it begins with all of these; if they share nothing, nobody is ranked.

    Examples
    --------
    >>> many, few = {("d", 0), ("e", 0), ("f", 0)}, {("d", 0)}
    >>> find_common({("a", ""): many, ("b", ""): many, ("c", ""): few})[1]
    (('d', 0), ('e', 0), ('f', 0))
    >>> find_common({("a", ""): many, ("b", ""): many, ("c", ""): few}, [("c", "")])[1]
    (('d', 0),)
    """
    keys = [key for key in tasks_of if tasks_of[key]]
    best: tuple[int, set[TaskKey]] = (0, set())
    for begin in [list(wanted)] if wanted else [[key] for key in keys]:
        common, count = set.intersection(*(tasks_of[key] for key in begin)), len(begin)
        waiting = [key for key in keys if key not in begin]
        while common:
            # One entry cannot be ranked, so two of anything are better than one of much.
            size = len(common) * count if count > 1 else 1
            if size > best[0] or (size == best[0] and len(common) < len(best[1])):
                best = (size, common)
            if not waiting:
                break
            following = max(waiting, key=lambda key: len(common & tasks_of[key]))
            waiting.remove(following)
            common, count = common & tasks_of[following], count + 1
    return {key for key in keys if best[1] and best[1] <= tasks_of[key]}, tuple(sorted(best[1]))


def _make_score(group: Sequence[Record], name: str, published: tuple[float, bool] | None) -> Score | None:
    """None where there is neither a number nor a reason: the measure is not of this data set or method."""
    values = {r.mask_seed: r.values[name] for r in group if name in r.values}
    failures = {r.mask_seed: r.error for r in group if r.error and not r.cannot}
    cannot = not values and not failures and any(r.cannot for r in group)
    if not values and not failures and not cannot:
        return None
    number, doubtful = published or (None, False)
    scored = [r for r in group if name in r.values]
    busy = frozenset(r.mask_seed for r in scored if not r.alone)
    drawn = all(r.rows_drawn for r in scored)
    classes = tuple(dict.fromkeys(name_class(r.machine) for r in scored if r.machine))
    return Score(values, failures, cannot, number, doubtful, busy, drawn, classes)


def _refuse_other_draws(
    records: Sequence[Record], measure: Measure
) -> tuple[list[Record], tuple[tuple[str, str], ...]]:
    """Scores of draws compare only where the same number of rows was drawn: keep what most have."""
    if measure.name not in OF_DRAWS:
        return list(records), ()
    counts: dict[str, list[int]] = {}
    for record in records:
        if record.rows_drawn:
            counts.setdefault(record.dataset, []).append(record.rows_drawn)
    usual = {dataset: statistics.mode(drawn) for dataset, drawn in counts.items()}
    kept = [r for r in records if not r.rows_drawn or r.rows_drawn == usual[r.dataset]]
    refused = tuple(
        (str(r), f"drew {r.rows_drawn} rows, however: most results of {r.dataset} drew {usual[r.dataset]}")
        for r in records
        if r.rows_drawn and r.rows_drawn != usual[r.dataset]
    )
    return kept, refused


def _order(board: Leaderboard) -> Leaderboard:
    """Ranked entries by mean rank, then average; the others by how many data sets they have, then name."""

    def of_ranked(entry: Entry) -> tuple[float, float]:
        average = board.average(entry)
        return board.mean_ranks.get(entry.key, 0.0), board.measure.loss(average or 0.0)

    ranked = tuple(sorted(board.ranked, key=of_ranked))
    rest = sorted(
        board.left_out,
        key=lambda e: (-sum(bool(s.by_mask) for (key, _), s in board.scores.items() if key == e.key), e.name),
    )
    return replace(board, entries=(*ranked, *rest), ranked=ranked)


def title_board(board: Leaderboard) -> str:
    """Name a leaderboard: MAE (× 100), out of sample, MCAR 30 %."""
    where = _SETTING_TITLES[board.setting]
    return f"{board.measure.heading}, {where}, {name_kind(board.mechanism, board.rate)}"

"""Compare imputers on a table of the user's own: within a time budget, quick methods first."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SettingError, warn_about_data
from ..methods.contract import Method
from ..runtime.seeding import derive_seed, resolve_seed
from ..tables.schema import Schema
from .candidates import FAR_TOO_LONG, Candidate, choose_candidates, guess_seconds
from .comparison import Comparison, Outcome
from .display import RunsShown, show_runs
from .hiding import hide
from .preparation import Coded, Floats, prepare
from .runs import Answer, Run, Runner, RunnerElsewhere, RunnerHere, show_seconds
from .scoring import score

#: Share of the budget that quicker methods leave to DiffPuter, and share of the rest that it takes if more
#: methods are to come: it gains most from time.
RESERVED, OURS_SHARE = 0.4, 0.75
#: Share of its limit that DiffPuter is told to take, so that it ends by itself: what it does after training
#: takes some time as well.
OWN_LIMIT = 0.7
#: Share of the budget that is kept where the table is to be filled in with the best method.
FILLING_SHARE = 0.3
#: The two quickest methods get so many seconds whatever the budget is: with fewer there is no comparison. So
#: does DiffPuter if it is the best and fills in the table.
FEWEST_SECONDS = 5.0


def compare(
    table: Any,
    *,
    methods: Sequence[str | Method] | None = None,
    time_budget: float = 120.0,
    repeats: int = 3,
    max_rows: int = 5_000,
    categorical_features: Sequence[Any] | NDArray[Any] | None = None,
    schema: Schema | Mapping[Any, str] | None = None,
    device: str = "auto",
    random_state: Any = 0,
    progress: bool | None = None,
    isolate: bool = True,
) -> Comparison:
    """Find out which imputer suits a table: hide known cells, let each method fill them in, and rank them.

    Rows receive the holes of other rows, so that what is hidden has the table's own pattern; a table without
    holes loses a tenth of its cells at random. Every method sees the same cells and is scored on the same
    ones. The ranking says how well cells *like the known ones* are filled; if cells are missing because of
    their own value, no table can tell.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With or without holes. Free text and identifiers are left out, dates count as numbers.
    methods : sequence of str or Method, optional
        Names in `diffputer.methods.table.METHODS`, or methods of your own; by default those of
        `diffputer.comparing.candidates.DEFAULT_METHODS` that fit.
    time_budget : float
        Seconds for all of it. Quick methods come first; what did not fit is named.
    repeats : int
        How often other cells are hidden, if the time suffices.
    max_rows : int
        Of a longer table so many rows are taken at random.
    categorical_features, schema
        Which columns are categories and what columns hold, as in DiffPuter.
    device : str
        Where DiffPuter and MIWAE compute: auto, cpu, cuda, mps.
    random_state : int, generator or None
        Same seed, same hidden cells.
    progress : bool, optional
        Show a bar; by default on a terminal.
    isolate : bool
        Run methods in another process, which is stopped where it takes too long or too much memory. False
        runs them in this one, where nothing can be stopped. A method of yours that cannot be pickled runs
        here whatever is said, with a warning.

    Returns
    -------
    Comparison
        Print it; see ``verdict``, ``table``, ``columns``, ``best``, ``report(path)`` and ``impute(table)``.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=200)
    >>> df = pd.DataFrame({"x": x, "y": 2 * x + 0.1 * rng.normal(size=200)}).mask(rng.random((200, 2)) < 0.2)
    >>> result = compare(df, methods=["mean", "em-gaussian"], isolate=False)
    >>> result.best
    'em-gaussian'
    """
    return run_comparison(
        table, methods=methods, time_budget=time_budget, repeats=repeats, max_rows=max_rows,
        categorical_features=categorical_features, schema=schema, device=device, random_state=random_state,
        progress=progress, isolate=isolate,
    )  # fmt: skip


def run_comparison(
    table: Any,
    *,
    methods: Sequence[str | Method] | None,
    time_budget: float,
    repeats: int,
    max_rows: int,
    categorical_features: Sequence[Any] | NDArray[Any] | None = None,
    schema: Schema | Mapping[Any, str] | None = None,
    device: str = "auto",
    random_state: Any = 0,
    progress: bool | None = None,
    isolate: bool = True,
    keep_partial: bool = False,
    filling_share: float = 0.0,
) -> Comparison:
    """Do what :func:`compare` says; on Ctrl-C give what there is by then, if ``keep_partial``.

    ``filling_share`` of the time budget is left over, for whoever fills in the table afterwards.
    """
    started = time.monotonic()
    _check("time_budget", time_budget, 0, math.inf)
    _check("repeats", repeats, 1, 100, whole=True)
    _check("max_rows", max_rows, 20, math.inf, whole=True)
    candidates = choose_candidates(methods, device)
    seed = resolve_seed(random_state)
    rng = np.random.default_rng([seed & 0xFFFFFFFF, 1])
    prepared = prepare(
        table, categorical_features=categorical_features, schema=schema, max_rows=int(max_rows), rng=rng
    )
    for words in prepared.notes:  # before the fits: whoever reads it may want to stop and say more
        warn_about_data(words)
    hidden = hide(prepared, int(repeats), rng)
    for_race = (1 - filling_share) * time_budget
    race = _Race(prepared.coded, candidates, int(repeats), started + for_race, for_race, seed)
    make_runner = RunnerElsewhere if isolate else RunnerHere
    interrupted = False
    try:
        with make_runner(prepared.coded, hidden) as runner, show_runs(progress, race.deadline) as shown:
            race.run(runner, shown)
    except KeyboardInterrupt:
        if not keep_partial or len(race.finishers) < 2:
            raise
        interrupted = True
    finishers = race.finishers
    if not finishers:
        reasons = "; ".join(f"{name}: {one.note}" for name, one in race.outcomes.items() if one.note)
        raise SettingError(
            f"A comparison needs methods that finish, however: none did in {time_budget:g} seconds. Raise "
            f"the time budget, or name other methods. ({reasons[:600]})"
        )
    repetitions = race.common_repetitions()
    scores = score(
        prepared.coded,
        hidden,
        race.answers,
        finishers,
        repetitions,
        np.random.default_rng([seed & 0xFFFFFFFF, 2]),
    )
    return Comparison(
        scores=scores, outcomes=tuple(race.outcomes[one.name] for one in candidates), prepared=prepared,
        hidden=hidden, repetitions=len(repetitions), seed=seed, time_budget=float(time_budget),
        seconds=time.monotonic() - started, interrupted=interrupted, isolated=isolate,
        wishes={"categorical_features": categorical_features, "schema": schema},
    )  # fmt: skip


def choose_settings(result: Comparison, deadline: float, device: str) -> dict[str, Any]:
    """Give the settings with which the best method fills in the table that was compared on.

    Parameters
    ----------
    result : Comparison
        Of methods that have names, not of the user's own.
    deadline : float
        When all should be done, on the clock of `time.monotonic`. DiffPuter is told how long it may take,
        a few seconds at least; other methods cannot be.
    device : str
        Where it computes, if it can choose.

    Returns
    -------
    dict
        For `Comparison.impute`.
    """
    (best,) = (Candidate(one.facts, one.own) for one in result.outcomes if one.facts.name == result.best)
    settings: dict[str, Any] = {"device": device} if "device" in best.facts.settings else {}
    if best.is_ours:
        settings["time_budget"] = round(max(OWN_LIMIT * (deadline - time.monotonic()), FEWEST_SECONDS), 1)
    return settings


@dataclass
class _Race:
    """Who has run what by when."""

    coded: Coded
    candidates: list[Candidate]
    repeats: int
    deadline: float
    budget: float
    seed: int
    answers: dict[str, dict[int, Floats]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _limits: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.candidates:
            self.outcomes[one.name] = Outcome(
                one.facts, one.own, note="not finished when the comparison was interrupted"
            )

    @property
    def finishers(self) -> list[str]:
        """The methods that can be compared: they finished the first repetition and did not fail later."""
        return [name for name, one in self.outcomes.items() if not one.note]

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()

    def common_repetitions(self) -> list[int]:
        """The repetitions that all finishers have finished."""
        return [r for r in range(self.repeats) if all(r in self.answers[name] for name in self.finishers)]

    def run(self, runner: Runner, shown: RunsShown) -> None:
        """Try every method once, then all again as often as time allows."""
        present = []
        for one in self.candidates:
            if absence := one.absence():
                self.outcomes[one.name].note = f"not tried: {absence}"
            else:
                present.append(one)
        total = len(present) * self.repeats
        for place, one in enumerate(present):
            limit = self._find_limit(present[place:])
            if place < 2:
                limit = max(limit, FEWEST_SECONDS)
            if reason := self._refuse(one, limit):
                self.outcomes[one.name].note = f"not tried: {reason}"
                continue
            shown.begin(one.name, 0, total)
            self._limits[one.name] = limit
            self._take(one, 0, runner.run(self._order(one, 0, limit), shown.tick))
            shown.end()
        for r in range(1, self.repeats):
            again = [one for one in present if one.name in self.finishers]
            if not again or 1.2 * sum(self.outcomes[one.name].mean_seconds for one in again) > self.left:
                return
            for one in again:
                shown.begin(one.name, r, len(again) * self.repeats)
                limit = min(3 * self.outcomes[one.name].mean_seconds + FEWEST_SECONDS, max(self.left, 1.0))
                answer = runner.run(self._order(one, r, limit), shown.tick)
                shown.end()
                if answer.error.startswith("stopped after"):
                    return  # this repetition does not count; the ones before do
                self._take(one, r, answer)

    def _find_limit(self, to_come: Sequence[Candidate]) -> float:
        """Give the seconds that the first of the methods to come may take."""
        first, *later = to_come
        if first.is_ours:
            return self.left * (OURS_SHARE if later else 1.0)
        reserved = RESERVED * self.budget if any(one.is_ours for one in later) else 0.0
        return (self.left - reserved) / math.sqrt(len(to_come))

    def _refuse(self, one: Candidate, limit: float) -> str:
        if limit <= 0:
            return "the time budget was used up"
        guess = guess_seconds(one, self.coded)
        if guess > FAR_TOO_LONG * limit:
            return (
                f"it would take about {show_seconds(guess)} on this table, and {show_seconds(limit)} are left"
            )
        return ""

    def _order(self, one: Candidate, repetition: int, limit: float) -> Run:
        settings = dict(one.settings)
        if one.is_ours:
            settings["time_budget"] = round(max(OWN_LIMIT * self._limits[one.name], 1.0), 1)
            limit = max(limit, self.left)  # it ends by itself, and is not stopped a second before
        seed = derive_seed(self.seed, "compare", repetition) % (1 << 31)
        return Run(one.name, one.own, settings, repetition, seed, limit)

    def _take(self, one: Candidate, repetition: int, answer: Answer) -> None:
        outcome = self.outcomes[one.name]
        if answer.values is None:
            stopped = answer.error.startswith("stopped")
            again = f" in repetition {repetition + 1}" if repetition else ""
            outcome.note = answer.error if stopped else f"failed{again}: {answer.error}"
            return
        outcome.note = ""
        outcome.seconds.append(answer.seconds)
        if one.is_ours:
            outcome.limit = OWN_LIMIT * self._limits[one.name]
        self.answers.setdefault(one.name, {})[repetition] = answer.values


def _check(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high or value == 0:
        what = "a whole number" if whole else "a number"
        bounds = (
            f"from {low:g} to {high:g}" if math.isfinite(high) else f"{'from' if low else 'above'} {low:g}"
        )
        raise SettingError(
            f"{name} must be {what} {bounds}, however: {name}={value!r}. Give one, or leave it out."
        )

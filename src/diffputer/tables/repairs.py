"""Moving filled cells until formulas and inequalities between columns hold; observed cells never move.

All columns are numbers here (dates in microseconds). For one table:

1. What follows from observed cells is computed: a derived cell from its inputs, and the one missing input of
   an observed derived cell if the formula is linear in it.
2. Filled cells that violate an inequality are moved as little as possible: to the limit that observed cells
   set, or, where both sides were filled, to their midpoint.
3. Several missing inputs of an observed derived cell share the difference in proportion to the squared
   ranges of their columns, inside the observed range where that is possible.
4. The other derived cells are computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diffputer.errors import InputError
from diffputer.tables.cells import Booleans, Floats, Storage
from diffputer.tables.clock import to_utc, to_wall_clock
from diffputer.tables.expressions import Expression, NotAffineError

ROUNDS = 20  # of inequalities and sums by turns, where they share columns
CLOSE = 1e-9  # relative: float rounding


@dataclass(frozen=True)
class Numbers:
    """A numeric column that constraints speak of.

    Attributes
    ----------
    name
        Its label.
    observed, values
        Where it is observed, and its numbers (NaN elsewhere), [n].
    storage
        What its dtype can hold.
    step
        Values filled in by choice are multiples of it; 0 for real numbers.
    zone
        The time zone in whose days the steps are counted, if any.
    soft
        The range inside which values are filled in where there is a choice.
    hard
        The range that the user has stated.
    """

    name: Hashable
    observed: Booleans
    values: Floats
    storage: Storage
    step: float = 0.0
    zone: str | None = None
    soft: tuple[float, float] = (-np.inf, np.inf)
    hard: tuple[float, float] = (-np.inf, np.inf)

    def held(self, values: Floats) -> Floats:
        """The values as the column will hold them: the nearest of its dtype; NaN for what is not finite."""
        found = np.where(np.isfinite(values), values, 0.0)
        if self.step:
            near = np.rint(found / self.step) * self.step
            found = np.where(
                np.abs(near - found) <= CLOSE * np.maximum(np.abs(found), self.step), near, found
            )
        if self.storage.resolution:
            found = np.rint(found / self.storage.resolution) * self.storage.resolution
        found = np.clip(found, self.storage.low, self.storage.high)
        if self.storage.precision is not None:
            found = found.astype(self.storage.precision).astype(np.float64)
        return np.where(np.isfinite(values), found, np.nan)

    def rounded(self, values: Floats, *, up: bool) -> Floats:
        """The next value that the column can hold which is not below (above) these."""
        finite = np.isfinite(values)
        found = values.copy()
        part = values[finite]
        step = max(self.step, self.storage.resolution or 0.0)
        if step:
            local = to_wall_clock(part, self.zone) if self.zone else part
            ratio = local / step
            whole = np.ceil(ratio - CLOSE) if up else np.floor(ratio + CLOSE)
            part = to_utc(whole * step, self.zone) if self.zone else whole * step
        elif self.storage.precision is not None:
            narrow = part.astype(self.storage.precision)
            wrong = narrow.astype(np.float64) < part if up else narrow.astype(np.float64) > part
            towards = np.array(np.inf if up else -np.inf, dtype=narrow.dtype)
            part = np.where(wrong, np.nextafter(narrow, towards), narrow).astype(np.float64)
        found[finite] = part
        return found


@dataclass
class Repair:
    """The cells of one table while they are being repaired.

    Attributes
    ----------
    columns
        By the names that formulas use.
    formulas
        Derived columns in an order in which they can be computed.
    pairs
        Inequalities as (smaller, larger), in an order in which the smaller ones come first.
    contradictions
        Of each inequality: how many rows contradicted it before their cells were moved, and how many had a
        hole in it, over all draws so far.
    """

    columns: dict[str, Numbers]
    formulas: Sequence[tuple[str, Expression]]
    pairs: Sequence[tuple[str, str]]
    values: dict[str, Floats] = field(default_factory=dict)
    known: dict[str, Booleans] = field(default_factory=dict)
    notes: dict[str, list[int]] = field(default_factory=dict)
    contradictions: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _limits: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    _variances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {name: column.values.copy() for name, column in self.columns.items()}
        self.known = {name: column.observed.copy() for name, column in self.columns.items()}
        self._variances = _variances(self.columns)
        self._deduce()
        self._settle()
        self._limits = self._find_limits()

    def complete(self, filled: dict[str, Floats]) -> dict[str, Floats]:
        """Give all columns of a draw, [n] each, from what was filled into their holes."""
        self.notes = {}
        now = self._start(filled)
        self._count_contradictions(now)
        for _ in range(ROUNDS):
            self._order(now)
            moved = self._share(now)
            if not moved or not self._disordered(now):
                break
        if rows := self._disordered(now):
            self.notes["could not be brought in line with the inequalities"] = rows
        return now

    def _start(self, filled: dict[str, Floats]) -> dict[str, Floats]:
        """All columns, with what follows from observed cells and what was filled in."""
        start = {}
        for name, column in self.columns.items():
            numbers = column.values.copy()
            numbers[~column.observed] = filled[name]
            start[name] = np.where(self.known[name], self.values[name], numbers)
        return start

    def _deduce(self) -> None:
        """Compute what follows from observed cells, until nothing new does."""
        before = -1
        while before != (before := sum(int(known.sum()) for known in self.known.values())):
            for target, formula in self.formulas:
                self._deduce_forward(target, formula)
                for name in formula.names:
                    self._deduce_backward(target, formula, name)

    def _settle(self) -> None:
        """Undo rounding by which a deduced cell is a hair's breadth on the wrong side of an inequality."""
        for smaller, larger in self.pairs:
            low, high = self.values[smaller], self.values[larger]
            close = (low > high) & (low - high <= CLOSE * np.maximum(np.abs(low), np.abs(high)))
            close &= self.known[smaller] & self.known[larger]
            deduced = close & ~self.columns[smaller].observed
            low[deduced] = self.columns[smaller].rounded(high[deduced], up=False)
            deduced = close & ~deduced & ~self.columns[larger].observed
            high[deduced] = self.columns[larger].rounded(low[deduced], up=True)

    def _deduce_forward(self, target: str, formula: Expression) -> None:
        rows = ~self.known[target] & self._all_known(formula.names)
        found = self.columns[target].held(formula.evaluate(self._at(self.values, formula.names, rows)))
        self._learn(target, np.flatnonzero(rows), found)

    def _deduce_backward(self, target: str, formula: Expression, name: str) -> None:
        others = [other for other in formula.names if other != name]
        rows = self.known[target] & ~self.known[name] & self._all_known(others)
        if not rows.any():
            return
        try:
            constant, slopes = formula.solve_for(self._at(self.values, others, rows), [name])
        except NotAffineError:
            return
        slope = np.broadcast_to(slopes.get(name, np.zeros(1)), constant.shape)
        with np.errstate(all="ignore"):
            found = (self.values[target][rows] - constant) / slope
        low, high = self.columns[name].hard
        found = self.columns[name].held(found)
        self._learn(name, np.flatnonzero(rows), np.where((found >= low) & (found <= high), found, np.nan))

    def _learn(self, name: str, rows: Any, found: Floats) -> None:
        sure = np.isfinite(found)
        self.values[name][rows[sure]] = found[sure]
        self.known[name][rows[sure]] = True

    def _all_known(self, names: Sequence[str]) -> Booleans:
        n = len(next(iter(self.known.values())))
        return np.all([self.known[name] for name in names], axis=0) if names else np.ones(n, dtype=bool)

    @staticmethod
    def _at(values: dict[str, Floats], names: Sequence[str], rows: Any) -> dict[str, Floats]:
        some = {name: values[name][rows] for name in names}
        return some or {"": next(iter(values.values()))[rows]}  # a formula of the unknown alone

    def _find_limits(self) -> dict[str, tuple[Floats, Floats]]:
        """The range that stated bounds, inequalities and known cells leave to each cell."""
        n = len(next(iter(self.known.values()))) if self.known else 0
        limits = {}
        for name, column in self.columns.items():
            known, values = self.known[name], self.values[name]
            low, high = (
                column.rounded(np.array([end]), up=up)
                for end, up in zip(column.hard, (True, False), strict=True)
            )
            limits[name] = (np.where(known, values, low), np.where(known, values, high))
        for smaller, larger in self.pairs:
            low, high = limits[larger]
            raised = self.columns[larger].rounded(np.maximum(low, limits[smaller][0]), up=True)
            limits[larger] = (np.where(self.known[larger], low, raised), high)
            self._refuse(smaller, larger, limits, n)
        for smaller, larger in reversed(self.pairs):
            low, high = limits[smaller]
            lowered = self.columns[smaller].rounded(np.minimum(high, limits[larger][1]), up=False)
            limits[smaller] = (low, np.where(self.known[smaller], high, lowered))
            self._refuse(smaller, larger, limits, n)
        return limits

    def _refuse(self, smaller: str, larger: str, limits: dict[str, tuple[Floats, Floats]], n: int) -> None:
        (low, high), (low_larger, high_larger) = limits[smaller], limits[larger]
        bad = np.flatnonzero((low > high_larger) | (low > high) | (low_larger > high_larger))
        if len(bad):
            row = int(bad[0])
            one, other = self.columns[smaller].name, self.columns[larger].name
            raise InputError(
                f"{one!r} <= {other!r} must be possible in every row, however: {len(bad):,} of {n:,} rows "
                f"contradict it by their observed cells or stated bounds, such as row {row} (counted from 0)"
                ". Correct these rows, or drop the inequality."
            )

    def _order(self, now: dict[str, Floats]) -> None:
        """Move filled cells until the inequalities hold."""
        if not self.pairs:
            return
        involved = dict.fromkeys(name for pair in self.pairs for name in pair)
        for name in involved:
            now[name] = np.where(self.known[name], now[name], np.clip(now[name], *self._limits[name]))
        for _ in range(ROUNDS):
            moved = False
            for smaller, larger in self.pairs:
                bad = (now[smaller] > now[larger]) & ~self.known[smaller] & ~self.known[larger]
                if bad.any():
                    moved = True
                    middle = now[smaller][bad] / 2 + now[larger][bad] / 2
                    now[smaller][bad] = self.columns[smaller].rounded(middle, up=False)
                    now[larger][bad] = self.columns[larger].rounded(middle, up=True)
            if not moved:
                break
        # What midpoints approach but do not reach, in chains of inequalities.
        for smaller, larger in self.pairs:
            bad = (now[smaller] > now[larger]) & ~self.known[larger]
            now[larger][bad] = self.columns[larger].rounded(now[smaller][bad], up=True)
        for smaller, larger in reversed(self.pairs):
            bad = (now[smaller] > now[larger]) & ~self.known[smaller]
            now[smaller][bad] = self.columns[smaller].rounded(now[larger][bad], up=False)

    def _count_contradictions(self, now: dict[str, Floats]) -> None:
        for smaller, larger in self.pairs:
            open_ = ~(self.known[smaller] & self.known[larger])
            before = self.contradictions.get((smaller, larger), (0, 0))
            new = int((open_ & (now[smaller] > now[larger])).sum()), int(open_.sum())
            self.contradictions[smaller, larger] = before[0] + new[0], before[1] + new[1]

    def _disordered(self, now: dict[str, Floats]) -> list[int]:
        rows: set[int] = set()
        for smaller, larger in self.pairs:
            rows |= set(np.flatnonzero(now[smaller] > now[larger]).tolist())
        return sorted(rows)

    def _share(self, now: dict[str, Floats]) -> bool:
        """Move several missing inputs of known derived cells; compute the derived cells that are missing."""
        fixed = {name: known.copy() for name, known in self.known.items()}
        moved = False
        for target, formula in self.formulas:  # in case one of them is an input of another
            self._compute(now, target, formula, ~fixed[target])
        for target, formula in reversed(self.formulas):
            free = np.stack([~fixed[name] for name in formula.names], axis=1)
            rows = np.flatnonzero(fixed[target] & free.any(axis=1))
            if len(rows) == 0:
                continue
            patterns, groups = np.unique(free[rows], axis=0, return_inverse=True)
            for number, pattern in enumerate(patterns):
                chosen = [name for name, is_free in zip(formula.names, pattern, strict=True) if is_free]
                self._close_gap(now, target, formula, chosen, rows[groups.ravel() == number])
                moved = True
            for place, name in enumerate(formula.names):
                fixed[name][rows[free[rows, place]]] = True
        for target, formula in self.formulas:
            self._compute(now, target, formula, ~fixed[target])
        return moved

    def _compute(self, now: dict[str, Floats], target: str, formula: Expression, rows: Booleans) -> None:
        if not rows.any():
            return
        found = self.columns[target].held(formula.evaluate(self._at(now, formula.names, rows)))
        places = np.flatnonzero(rows)
        sure = np.isfinite(found)
        now[target][places[sure]] = found[sure]
        if not sure.all():
            self._note(
                f"of {self.columns[target].name!r} cannot be computed (a division by zero)", places[~sure]
            )

    def _close_gap(
        self, now: dict[str, Floats], target: str, formula: Expression, chosen: list[str], rows: Any
    ) -> None:
        """Move the chosen inputs so that the formula gives the known target."""
        label = self.columns[target].name
        others = [name for name in formula.names if name not in chosen]
        try:
            constant, found = formula.solve_for(self._at(now, others, rows), chosen)
        except NotAffineError:
            self._note(f"of {label!r} do not follow its formula, which cannot be solved for its inputs", rows)
            return
        slopes = {name: np.broadcast_to(found.get(name, np.zeros(1)), rows.shape) for name in chosen}
        goal = now[target][rows] - constant
        x = {name: now[name][rows] for name in chosen}

        def gap() -> Floats:
            return np.asarray(goal - np.sum([slopes[name] * x[name] for name in chosen], axis=0))

        size = np.abs(goal) + np.sum([np.abs(slopes[name] * x[name]) for name in chosen], axis=0)
        sure = np.isfinite(goal) & np.all([np.isfinite(slopes[name]) for name in chosen], axis=0)
        for _ in range(len(chosen)):
            rest, room = gap(), {}
            for name in chosen:
                low, high = self._range(name, rows, soft=True)
                towards = rest * np.sign(slopes[name])
                open_ = ((towards > 0) & (x[name] < high)) | ((towards < 0) & (x[name] > low))
                room[name] = np.where(open_, slopes[name] * self._variances[name], 0.0)
            total = np.sum([slopes[name] * room[name] for name in chosen], axis=0)
            with np.errstate(all="ignore"):
                pace = np.where(sure & (total > 0), rest / total, 0.0)
            for name in chosen:
                low, high = self._range(name, rows, soft=True)
                step = pace * room[name]
                x[name] = np.where(step == 0, x[name], np.clip(x[name] + step, low, high))
        for name in chosen:
            near = np.clip(self._nearest_step(name, x[name]), *self._range(name, rows, soft=False))
            x[name] = np.where(sure, self.columns[name].held(near), x[name])
        for soft in (True, False):  # what rounding and limits have left, in one of the inputs
            for name in sorted(chosen, key=lambda name: self._variances[name], reverse=True):
                rest = gap()
                with np.errstate(all="ignore"):
                    wanted = self.columns[name].held(x[name] + rest / slopes[name])
                low, high = self._range(name, rows, soft=soft)
                fits = sure & np.isfinite(wanted) & (wanted >= low) & (wanted <= high)
                x[name] = np.where(fits & (np.abs(rest) > 0), wanted, x[name])
        for name in chosen:
            now[name][rows[sure]] = x[name][sure]
        slack = (self.columns[target].storage.resolution or 0.0) / 2
        missed = ~sure | (np.abs(gap()) > 1e-6 * size + slack)
        if missed.any():
            self._note(
                f"of {label!r} do not follow its formula within the bounds of its inputs", rows[missed]
            )

    def _nearest_step(self, name: str, values: Floats) -> Floats:
        step = self.columns[name].step
        return np.rint(values / step) * step if step else values

    def _range(self, name: str, rows: Any, *, soft: bool) -> tuple[Floats, Floats]:
        low, high = (end[rows] for end in self._limits[name])
        if not soft:
            return low, high
        # The observed range gives way where it contradicts the limits.
        least, most = self.columns[name].soft
        inner = np.clip(least, low, high), np.clip(most, low, high)
        return np.minimum(*inner), np.maximum(*inner)

    def _note(self, words: str, rows: Any) -> None:
        self.notes[words] = sorted({*self.notes.get(words, []), *np.asarray(rows).tolist()})


def _variances(columns: dict[str, Numbers]) -> dict[str, float]:
    """How much columns vary: by their ranges, which a fit knows, so that it is the same for any rows.

    Where a range has no ends, by the variances of the observed cells.
    """
    squares = {name: float(column.soft[1] - column.soft[0]) ** 2 for name, column in columns.items()}
    if not np.isfinite(list(squares.values())).all():
        known = {name: column.values[column.observed] for name, column in columns.items()}
        squares = {name: float(values.var()) if len(values) else 0.0 for name, values in known.items()}
    return {name: square or 1.0 for name, square in squares.items()}

"""What must hold between the columns of a completed table: derived columns and inequalities.

>>> import numpy as np, pandas as pd
>>> constraints = Constraints(derived={"total": "a + b"}, inequalities=["a <= b"])
>>> table = pd.DataFrame({"a": [1.0, np.nan, 4.0], "b": [2.0, 3.0, 5.0], "total": [3.0, 4.0, np.nan]})
>>> constraints.check(table)
>>> constraints.apply(table.fillna(9.0), table.isna())
     a    b  total
0  1.0  2.0    3.0
1  1.0  3.0    4.0
2  4.0  5.0    9.0
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from diffputer.errors import DataWarning, InputError, warn_about_data
from diffputer.tables.cells import Booleans, Floats
from diffputer.tables.constrained_columns import check_comparable, find_place, read_numbers, without_limits
from diffputer.tables.contradictions import (
    compare_observed,
    describe_heap,
    describe_out_of_bounds,
    describe_out_of_range,
    slack_of,
)
from diffputer.tables.draws import from_numbers, to_numbers
from diffputer.tables.expressions import Expression, parse_expression, parse_inequality
from diffputer.tables.filling import Values
from diffputer.tables.frames import Table, read_table
from diffputer.tables.repairs import Repair
from diffputer.tables.schema import Schema, from_plain, to_plain, unknown_names

Derived = Mapping[Any, str | Callable[[Any], Any]]


class Constraints:
    """Derived columns and inequalities, applied to tables after imputation.

    Only cells that were missing are changed.

    Parameters
    ----------
    derived : dict of column -> formula or function
        A missing cell of the column is computed. A formula is text of column names, numbers, + - * / and
        brackets; names that are no identifiers stand in backquotes. A function gets the completed table and
        returns the column. If a derived cell is observed and inputs of it are missing, these are solved for,
        where the formula is linear in them: one missing input exactly, several by sharing the difference.
    inequalities : sequence of str
        ``"start <= end"``, of numbers, dates, durations or times; chains are possible. A filled cell on the
        wrong side of an observed one takes its value; two filled cells meet in their midpoint.
    bounds : dict of column -> (low, high)
        What solved and moved cells keep to. Computed cells do not: there is a warning if they leave them.

    Examples
    --------
    See the module.
    """

    def __init__(
        self,
        derived: Derived | None = None,
        inequalities: Sequence[str] | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
    ) -> None:
        if derived is not None and not isinstance(derived, Mapping):
            raise InputError(
                f"derived must be a dict of column -> formula, however: it is a {type(derived).__name__}."
            )
        if isinstance(inequalities, str):
            inequalities = [inequalities]
        self._formulas: dict[Any, Expression] = {}
        self._functions: dict[Any, Callable[[Any], Any] | None] = {}  # None: a file has lost it
        for target, rule in (derived or {}).items():
            if callable(rule):
                self._functions[target] = rule
            else:
                self._formulas[target] = parse_expression(rule)
        self._pairs = [pair for text in inequalities or () for pair in parse_inequality(text)]
        self._bounds = dict(bounds or {})

    def __bool__(self) -> bool:
        return bool(self._formulas or self._functions or self._pairs)

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for JSON; of functions only the columns, as no file holds code."""
        return {
            "derived": [[to_plain(name, name), rule.text] for name, rule in self._formulas.items()],
            "functions": [to_plain(name, name) for name in self._functions],
            "inequalities": [[to_plain(name, name) for name in pair] for pair in self._pairs],
            "bounds": [
                [to_plain(name, name), *(to_plain(end, name) for end in ends)]
                for name, ends in self._bounds.items()
            ],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild what :meth:`to_dict` gave; columns of functions keep what was filled in."""
        found = cls(
            {from_plain(name): text for name, text in plain["derived"]},
            bounds={from_plain(name): tuple(map(from_plain, ends)) for name, *ends in plain["bounds"]},
        )
        found._functions = {from_plain(name): None for name in plain["functions"]}
        found._pairs = [(from_plain(one), from_plain(other)) for one, other in plain["inequalities"]]
        return found

    def check(self, table: Any, schema: Schema | None = None) -> None:
        """Say what is impossible in an incomplete table, or raise nothing.

        Unknown columns, columns that are not numbers, circular definitions and observed cells that contradict
        an inequality are errors. So is a formula that more than 5 % of the rows in which all of it is
        observed contradict, by more than rounding; if fewer do, there is a warning.
        """
        seen = table if isinstance(table, Table) else read_table(table)
        self.on(seen, schema).compare_observed()

    def apply(self, completed: Any, missing: Any, schema: Schema | None = None) -> Any:
        """Return a completed table in which the constraints hold.

        Parameters
        ----------
        completed : pandas.DataFrame, or another table
            Without holes in the columns concerned.
        missing : array or pandas.DataFrame of bool, of the same shape
            Which cells were filled in; no other is changed.
        """
        table = read_table(completed)
        holes = np.asarray(missing, dtype=bool)
        if holes.shape != table.missing.shape:
            raise InputError(
                f"The mask must have the shape of the table, {table.missing.shape}, however: it has "
                f"{holes.shape}."
            )
        masked = dataclasses.replace(table, missing=holes | table.missing)
        bound = self.on(masked, schema)
        filled = {}
        for name, position in bound.positions.items():
            if table.missing[:, position].any():
                raise InputError(
                    f"A completed table must have no holes in columns with constraints, however: {name!r} "
                    "has. Impute it first."
                )
            numbers = table.cells[position].numbers()[holes[:, position]]
            filled[position] = bound.to_values(name, numbers)
        return masked.with_filled(bound(filled))

    def on(self, table: Table, schema: Schema | None = None) -> BoundConstraints:
        """Find the columns of a table, and all that follows from its observed cells."""
        return BoundConstraints(self, table, schema)


class BoundConstraints:
    """Constraints and the table to which they are applied; call it with the filled cells of a draw."""

    def __init__(self, constraints: Constraints, table: Table, schema: Schema | None) -> None:
        self._table = table
        self.constraints = constraints
        self._labels = {str(name): name for name in table.names}
        self._functions = {self._find(name): rule for name, rule in constraints._functions.items()}
        formulas = {self._find(name): rule for name, rule in constraints._formulas.items()}
        self._pairs = pairs = [(self._find(a), self._find(b)) for a, b in constraints._pairs]
        for rule in formulas.values():
            for name in rule.names:
                self._find(name)
        derived = {*formulas, *self._functions}
        if both := [name for pair in pairs for name in pair if name in derived]:
            raise InputError(
                "An inequality is between columns that are not derived from others, however: "
                f"{self._labels[both[0]]!r} is derived. State it of the columns that it is derived from."
            )
        order = _sorted(
            {target: [n for n in rule.names if n in formulas] for target, rule in formulas.items()}
        )
        self._formulas = [(target, formulas[target]) for target in order]
        involved = dict.fromkeys(
            [*derived, *(n for rule in formulas.values() for n in rule.names), *(n for p in pairs for n in p)]
        )
        numbers_only = {*derived, *(name for rule in formulas.values() for name in rule.names)}
        self._places = {
            name: find_place(table, self._labels[name], schema, number=name in numbers_only)
            for name in involved
        }
        self.positions = {name: place.position for name, place in self._places.items()}
        for smaller, larger in pairs:
            check_comparable(self._places[smaller], self._places[larger])
        above = {
            name: [b for a, b in pairs if a == name] for name in dict.fromkeys(n for p in pairs for n in p)
        }
        ranks = {name: rank for rank, name in enumerate(reversed(_sorted(above, "Inequalities")))}
        bounds = {str(name): ends for name, ends in constraints._bounds.items()}
        self._stated = {name for name in involved if name in bounds}
        columns = {name: read_numbers(self._places[name], table, bounds.get(name)) for name in involved}
        self._repair = Repair(columns, self._formulas, sorted(pairs, key=lambda pair: ranks[pair[0]]))
        self._said: set[str] = set()

    def __call__(self, filled: Mapping[int, Values]) -> dict[int, Values]:
        """Give the filled cells of a draw (column position -> values) with the constraints in force."""
        found = self._once(dict(filled))
        for name, function in self._functions.items():
            if function is not None:
                found = self._compute(name, function, found)
        if any(name in rule.names for name in self._functions for _, rule in self._formulas):
            found = self._once(found)
        for words, rows in self._repair.notes.items():
            self._report_unmet(words, rows)
        self._look_at_limits(found)
        return found

    def warn_of_heaps(self) -> None:
        """Warn of inequalities that many draws contradicted: their cells lie on the limit now."""
        for pair, counts in self._repair.contradictions.items():
            smaller, larger = (self._repair.columns[name] for name in pair)
            self._say(f"heap of {pair}", describe_heap(smaller, larger, *counts))

    def _say(self, key: str, message: str) -> None:
        """Warn once of each thing, not in every draw."""
        if message and key not in self._said:
            self._said.add(key)
            warn_about_data(message)

    def _report_unmet(self, words: str, rows: Sequence[int]) -> None:
        self._say(
            words,
            f"Filled cells shall meet the constraints, however: {len(rows):,} rows {words}, such as row "
            f"{rows[0]} (counted from 0). They keep what was filled in, as far as need be.",
        )

    def _look_at_limits(self, filled: Mapping[int, Values]) -> None:
        """Warn of computed cells beyond stated bounds, and of solved ones beyond what was observed."""
        derived = {*self._functions, *(target for target, _ in self._formulas)}
        for name, place in self._places.items():
            column, holes = self._repair.columns[name], self._table.missing[:, place.position]
            if not holes.any():
                continue
            numbers = np.full(len(holes), np.nan)
            numbers[holes] = to_numbers(place.column, filled[place.position])
            if name in derived:
                self._say(f"bounds of {name}", describe_out_of_bounds(column, numbers))
            elif name not in self._stated:
                targets = [target for target, rule in self._formulas if name in rule.names]
                if not targets:
                    continue
                solved = np.any([self._repair.known[target] for target in targets], axis=0)
                self._say(
                    f"range of {name}", describe_out_of_range(column, np.where(solved, numbers, np.nan))
                )

    def compare_observed(self) -> None:
        """Compare derived cells that are observed with their formulas."""
        for target, rule in self._formulas:
            compare_observed(self._repair.columns, target, rule)

    def only_holes(self) -> Booleans:
        """Say which missing cells the constraints tie to observed cells alone. Shape: [n, columns]."""
        missing = self._table.missing
        groups: list[set[str]] = []
        for tied in [*({target, *rule.names} for target, rule in self._formulas), *map(set, self._pairs)]:
            near = [group for group in groups if group & tied]
            groups = [*(group for group in groups if not group & tied), tied.union(*near)]
        found = np.zeros_like(missing)
        for group in [sorted(self.positions[name] for name in names) for names in groups]:
            found[:, group] = missing[:, group] & (missing[:, group].sum(axis=1, keepdims=True) == 1)
        for position in (self.positions[name] for name in self._functions):  # they may look at all columns
            found[:, position] = missing[:, position] & (missing.sum(axis=1) == 1)
        return found

    def repair_ends(
        self, ends: Sequence[Mapping[int, Values]], *, functions: bool = True
    ) -> tuple[list[dict[int, Values]], Booleans]:
        """Put the constraints in force in ends of intervals, where they tie a cell to observed ones alone.

        There, the end is cut off at the other side of an inequality, or is the one value that a formula
        allows. Cells that were missing together keep their ends: repaired ones would say nothing of them.
        Gives the ends and where cells are tied, [n, columns].
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # ends are no values that anybody fills in
            repaired = [self(end) if functions else self._once(dict(end)) for end in ends]
        tied = self.only_holes()
        kept: list[dict[int, Values]] = []
        for new, old in zip(repaired, ends, strict=True):
            kept.append({position: values.copy() for position, values in old.items()})
            for position, values in kept[-1].items():
                only = tied[self._table.missing[:, position], position]
                values[only] = new[position][only]
        return kept, tied

    @property
    def derived(self) -> set[int]:
        """Positions of columns that have a formula or a function."""
        return {self.positions[name] for name in (*self._functions, *(t for t, _ in self._formulas))}

    @property
    def computed(self) -> set[int]:
        """Positions of columns that formulas and functions can determine."""
        names = {name for target, rule in self._formulas for name in (target, *rule.names)}
        return {self.positions[name] for name in names | set(self._functions)}

    def to_values(self, name: str, numbers: Floats) -> Values:
        """Numbers as values for cells of a column."""
        place = self._places[name]
        holes = self._table.missing[:, place.position]
        return from_numbers(without_limits(place.column), place.cells, numbers, bool(holes.all()))

    def _once(self, filled: dict[int, Values]) -> dict[int, Values]:
        """Apply formulas and inequalities."""
        old = {}
        for name, place in self._places.items():
            holes = self._table.missing[:, place.position]
            if holes.any() and place.position not in filled:
                raise InputError(
                    f"Columns with constraints must be imputed, however: {self._labels[name]!r} stays "
                    "missing. Drop it, or its constraints."
                )
            values = filled.get(place.position, np.empty(0))
            old[name] = to_numbers(place.column, values) if len(values) else np.empty(0)
        new = self._repair.complete(old)
        for name, place in self._places.items():
            holes = self._table.missing[:, place.position]
            numbers = new[name][holes]
            changed = numbers != old[name]
            if changed.any():
                values = filled[place.position].copy()
                values[changed] = self.to_values(name, numbers[changed])
                filled[place.position] = values
        return filled

    def _compute(
        self, name: str, function: Callable[[Any], Any], filled: dict[int, Values]
    ) -> dict[int, Values]:
        """Fill the holes of a column with what a function says of the completed table."""
        place, label = self._places[name], self._labels[name]
        holes = self._table.missing[:, place.position]
        given = ~holes & self._table.missing.any(axis=1)  # rows in which an input may have been filled in
        if not (holes | given).any():
            return filled
        rule = f"The function of the derived column {label!r} must return one number for each row, however:"
        try:
            result = function(self._table.with_filled(filled))
        except Exception as error:
            raise InputError(f"{rule} it raised {type(error).__name__}: {error}.") from error
        try:
            numbers = np.asarray(result, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise InputError(f"{rule} it returned a {type(result).__name__} of something else.") from None
        if len(numbers) != self._table.n_rows:
            raise InputError(f"{rule} it returned {len(numbers):,} for {self._table.n_rows:,} rows.")
        if not np.isfinite(numbers[holes]).all():
            row = int(np.flatnonzero(holes & ~np.isfinite(numbers))[0])
            raise InputError(f"{rule} that of row {row} (counted from 0) is {numbers[row]}.")
        column = self._repair.columns[name]
        with np.errstate(invalid="ignore"):
            apart = given & (np.abs(numbers - column.values) > slack_of(column))
        if apart.any():
            words = f"of {label!r} do not follow its function, which cannot be solved for its inputs"
            self._report_unmet(words, np.flatnonzero(apart).tolist())
        if not holes.any():
            return filled
        return {**filled, place.position: self.to_values(name, numbers[holes])}

    def _find(self, name: Any) -> str:
        """The column that is meant, as text: by its label, or by the text of its label."""
        if str(name) not in self._labels:
            raise unknown_names([name], self._table.names)
        if sum(str(label) == str(name) for label in self._table.names) > 1:
            raise InputError(
                f"Constraints name columns by text, however: several columns read {str(name)!r}. Rename one."
            )
        return str(name)


def _sorted(needs: Mapping[str, Sequence[Hashable]], what: str = "Definitions") -> list[Any]:
    """Names so that each comes after those it needs; a circle is an error."""
    done: list[Any] = []
    path: list[Any] = []

    def visit(name: Any) -> None:
        if name in path:
            circle = " -> ".join(map(repr, [*path[path.index(name) :], name]))
            raise InputError(f"{what} must not go in a circle, however: {circle}. Take one out.")
        if name not in done:
            path.append(name)
            for other in needs.get(name, ()):
                visit(other)
            path.pop()
            done.append(name)

    for name in needs:
        visit(name)
    return done

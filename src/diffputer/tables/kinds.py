"""Finding the schema of a table: what each column holds, how it is modelled, and what the user said.

The rules, in order; the user's ``schema`` and ``categorical_features`` come before all of them:

* numbers whose observed values are exactly 0 and 1 are booleans, unless bounds are stated: the imputed
  values are 0 or 1, numbers of the column's dtype;
* floating-point columns whose observed values are all whole (pandas reads integers with holes so) are
  integers;
* whole numbers that are all distinct in a column named like an identifier, or that count the rows, are an
  identifier (``identifiers.py``), and passed through;
* text that is no category (identifiers, comments, addresses) is passed through;
* of a category with very many levels the most frequent ones are modelled; rarer ones stay where they are;
* filled numbers, dates, durations and times stay inside the observed range unless ``bounds`` say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.types as pt

from diffputer.errors import InputError, warn_about_data
from diffputer.tables.cells import DAY, SECOND, Cells, Family, Floats, Storage
from diffputer.tables.clock import from_number, step_to_number, to_number, to_wall_clock
from diffputer.tables.frames import Table
from diffputer.tables.identifiers import is_identifier
from diffputer.tables.schema import Column, Kind, Schema, Status, unknown_names
from diffputer.tables.suspicions import find_markers, reads_as_numbers, why_free_text
from diffputer.tables.wishes import chosen_names, read_wishes

MAX_LEVELS = 200
BINARY = (0, 1)  # the values of a boolean column of numbers
LARGEST_WHOLE = 2.0**53  # beyond it every double is whole, which says nothing

_STEPS = (DAY, 3600 * SECOND, 60 * SECOND, SECOND, 1000.0, 1.0)
_NATURAL = {
    Family.NUMBER: Kind.CONTINUOUS,
    Family.BOOLEAN: Kind.BOOLEAN,
    Family.LABEL: Kind.CATEGORICAL,
    Family.DATETIME: Kind.DATETIME,
    Family.DURATION: Kind.DURATION,
    Family.TIME: Kind.TIME,
    Family.NOTHING: Kind.CATEGORICAL,
    Family.OTHER: Kind.TEXT,
}


@dataclass
class _Notes:
    """What the user should know, gathered over all columns so that each sort is said once."""

    text: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    identifiers: list[str] = field(default_factory=list)
    numeric: list[str] = field(default_factory=list)
    markers: list[str] = field(default_factory=list)
    rare: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def say(self) -> None:
        passed = []
        if self.text:
            passed.append(
                f"This text is no category: {', '.join(self.text)}. To impute such a column, name it in "
                "categorical_features, or convert it to numbers or dates if it holds them; set fill_all=True "
                "to impute all of them."
            )
            if any("numbers but for " in words for words in self.text):
                passed.append("If a word among numbers marks a missing value, say so when the table is read.")
        if self.unsupported:
            passed.append(f"This type cannot be modelled: {', '.join(self.unsupported)}. Convert or drop it.")
        if passed:
            warn_about_data(
                "Some columns are passed through as they are, missing values included. " + " ".join(passed)
            )
        if self.identifiers:
            warn_about_data(
                "Identifiers and row numbers are not imputed: they inform no other column and keep their "
                f"missing values: {', '.join(self.identifiers)}. If the numbers mean "
                "something, state their kind in the schema, such as 'integer'."
            )
        if self.numeric:
            warn_about_data(
                f"Numbers stored as text are treated as categories: {', '.join(self.numeric)}. "
                "If a word among them stands for a missing value, say so when the table is read; else "
                "convert them, for example with pandas.to_numeric(errors='coerce')."
            )
        if self.markers:
            warn_about_data(
                "Text that often marks a missing value is treated as a level, which may be filled in: "
                f"{', '.join(self.markers)}. If it marks one, say so when the table is read."
            )
        if self.rare:
            warn_about_data(
                f"Too many levels to model them all: {', '.join(self.rare)}. Rarer levels stay where they "
                "are observed, are unknown to the model and are never filled in. Merge levels, or raise "
                "max_levels."
            )
        if self.outside:
            warn_about_data(
                "Stated bounds should hold some of the observed values, however: they hold none of "
                f"{', '.join(self.outside)}. Correct them, unless it is meant."
            )
        rules = []
        if self.filled:
            rules.append(f"Imputed by zero: {', '.join(self.filled)}.")
        if self.left:
            rules.append(f"Left missing: {', '.join(self.left)}.")
        if rules:
            warn_about_data(
                "Columns without any observed value cannot be modelled. " + " ".join(rules) + " Drop them."
            )


def describe(
    table: Table,
    *,
    categorical_features: Sequence[Any] | npt.NDArray[Any] | None = None,
    bounds: Mapping[Any, tuple[Any, Any]] | None = None,
    schema: Schema | Mapping[Any, str] | None = None,
    max_levels: int = MAX_LEVELS,
    skip: Sequence[Any] | npt.NDArray[Any] | None = None,
    empty: str = "zero",
    fill_all: bool = False,
) -> Schema:
    """Find the schema of a table.

    Parameters
    ----------
    table
        What :func:`diffputer.tables.frames.read_table` returns.
    categorical_features
        Names or positions of columns, or a boolean mask, to be treated as categories. A whole number is
        a name where a column has that name, else a position.
    bounds
        Column name -> (low, high) of filled values; None leaves an end open. Dates, durations and times
        may be given as objects or as ISO text.
    schema
        Column name -> kind, or an edited :class:`Schema`, where the rules guess wrong.
    max_levels
        How many levels of a category are modelled, the most frequent ones.
    skip
        Columns that keep their missing values, as ``categorical_features`` names columns.
    empty
        ``"zero"`` gives numbers without any observed value 0, ``"keep"`` leaves them missing.
    fill_all
        Whether text that is no category is modelled as if it were one.

    Returns
    -------
    Schema
        One column for each column of the table.

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer.tables.frames import read_table
    >>> frame = pd.DataFrame({"age": [31, None, 52], "zip": [101, 202, None], "ok": [True, False, True]})
    >>> print(describe(read_table(frame), categorical_features=["zip"], bounds={"age": (0, None)}))
    name  kind         status    levels or range  missing
    age   integer      modelled  0 … inf            33.3%
    zip   categorical  modelled  101, 202           33.3%
    ok    boolean      modelled  False, True         0.0%
    """
    if table.n_rows == 0:
        raise InputError(
            "A table must have rows to learn from; this one has 0 sample(s) "
            f"(shape=(0, {table.n_columns})) while a minimum of 1 is required."
        )
    wishes = read_wishes(table.names, categorical_features, schema)
    if bounds is not None and not isinstance(bounds, Mapping):
        raise InputError(f"bounds must be a dict of column -> (low, high), however: it is {bounds!r}.")
    limits = dict(bounds or {})
    if unknown := [name for name in limits if name not in table.names]:
        raise unknown_names(unknown, table.names)
    skipped = chosen_names(table.names, skip, "skip")
    skipped += [name for name, wish in wishes.items() if wish.skip]
    notes = _Notes()
    columns = []
    for position, name in enumerate(table.names):
        n_missing = int(table.missing[:, position].sum())
        cells, wish, stated = table.cells[position], wishes.get(name), limits.get(name)
        base = Column(
            name,
            Kind.TEXT,
            n_observed=table.n_rows - n_missing,
            n_missing=n_missing,
            skip=name in skipped,
            type=table.column_type(position, cells),
        )
        column = _column(cells, base, wish, stated, max_levels, notes, empty, fill_all)
        guessed = wish is None and stated is None and column.kind == Kind.INTEGER
        if wish is not None and wish.status == Status.IDENTIFIER:
            column = replace(column, status=Status.IDENTIFIER)
        elif guessed and column.status == Status.MODELLED and is_identifier(name, position, cells):
            column = replace(column, status=Status.IDENTIFIER)
            if n_missing:
                notes.identifiers.append(f"{name!r} ({column.lower} … {column.upper})")
        columns.append(column)
    notes.say()
    return Schema(tuple(columns))


def neutral_value(cells: Cells, kind: Kind) -> Any:
    """Zero for a column of numbers without any observed value, as scikit-learn has it; None for others.

    The kind decides where the dtype does not tell what a column holds.
    """
    if cells.storage.family == Family.NOTHING:
        return {Kind.INTEGER: 0, Kind.CONTINUOUS: 0.0}.get(kind)
    if cells.storage.family != Family.NUMBER:
        return None
    return 0 if cells.storage.whole else 0.0


def _possible(storage: Storage) -> list[Kind]:
    """The kinds of model that a column of this storage allows."""
    if storage.family == Family.NOTHING:
        return list(Kind)
    if storage.family == Family.OTHER:
        return [Kind.TEXT]
    kinds = [_NATURAL[storage.family], Kind.CATEGORICAL, Kind.TEXT]
    if storage.family == Family.NUMBER:
        kinds = [Kind.INTEGER, *kinds, Kind.BOOLEAN]
    if storage.whole:
        kinds.remove(Kind.CONTINUOUS)
    return list(dict.fromkeys(kinds))


def _column(
    cells: Cells,
    base: Column,
    wish: Column | None,
    bounds: Any,
    max_levels: int,
    notes: _Notes,
    empty: str,
    fill_all: bool,
) -> Column:
    """Describe one column; ``base`` has its name and counts."""
    storage = cells.storage
    if wish is not None and wish.status == Status.EMPTY and base.n_observed:
        wish = None  # a schema of an emptier table: its guess counts for nothing now
    if wish is not None and wish.kind not in _possible(storage):
        raise InputError(
            f"A kind must suit the dtype; column {base.name!r} of dtype {storage.dtype} cannot be "
            f"{wish.kind}. Choose from {', '.join(_possible(storage))}, or convert the column."
        )
    if storage.family == Family.OTHER and wish is None:
        notes.unsupported.append(f"{base.name!r} ({storage.dtype})")
    kind = wish.kind if wish is not None else _guess(cells, base, bounded=bounds is not None)
    if bounds is not None and not kind.is_numeric:
        raise InputError(
            f"Bounds are for numbers, dates, durations and times; column {base.name!r} is {kind}. "
            "Leave out its bounds, or give it another kind."
        )
    if kind == Kind.TEXT:
        return replace(base, kind=kind, status=Status.PASSED_THROUGH)
    column = replace(base, kind=kind, timezone=storage.timezone, ordered=storage.ordered)
    if base.n_observed == 0:
        return _empty(cells, column, wish, bounds, notes, empty)
    if kind.is_numeric:
        return _numeric(cells, column, wish, bounds, notes)
    return _discrete(cells, column, wish, max_levels, notes, fill_all)


def _guess(cells: Cells, base: Column, *, bounded: bool) -> Kind:
    """The kind that suits a column about which the user said nothing, but perhaps its bounds."""
    if cells.storage.family != Family.NUMBER:
        return _NATURAL[cells.storage.family]
    values = cells.numbers()
    values = values[~np.isnan(values)]
    if not bounded and values.size and values.min() == 0 and values.max() == 1 and _is_binary(values):
        return Kind.BOOLEAN
    if cells.storage.whole:
        return Kind.INTEGER
    whole = len(values) >= 2 and np.all(values == np.rint(values)) and np.abs(values).max() <= LARGEST_WHOLE
    return Kind.INTEGER if whole else Kind.CONTINUOUS


def _is_binary(values: Floats) -> bool:
    return bool(np.all((values == 0) | (values == 1)))


def _empty(
    cells: Cells, column: Column, wish: Column | None, bounds: Any, notes: _Notes, empty: str
) -> Column:
    fill = None if wish is None else wish.fill
    if fill is None and empty == "zero" and not column.skip:
        fill = neutral_value(cells, column.kind)
    if fill is not None and bounds is not None:
        low, high = _read_bounds(column, bounds)
        fill = type(fill)(min(max(fill, low), high))
    if fill is None:
        notes.left.append(repr(column.name))
    else:
        notes.filled.append(repr(column.name) if not fill else f"{column.name!r} (by {fill!r})")
    return replace(column, status=Status.EMPTY, fill=fill)


def _numeric(cells: Cells, column: Column, wish: Column | None, bounds: Any, notes: _Notes) -> Column:
    values = cells.numbers()
    values = values[~np.isnan(values)]
    low, high = float(values.min()), float(values.max())
    ends: tuple[Any, Any] = (low, high)
    if pt.is_integer(cells.array.type) or (pt.is_decimal(cells.array.type) and cells.storage.whole):
        # Exact, also beyond 2**53.
        exact = pc.min_max(cells.array).as_py()
        ends = (exact["min"], exact["max"])
    zone = column.timezone
    column = replace(column, observed_range=(low, high))
    stated = bounds if bounds is not None or wish is None else (wish.lower, wish.upper)
    least, most = _read_bounds(column, (None, None) if stated is None else stated)
    if ends[0] > most or ends[1] < least:
        seen = [str(from_number(column.kind, end, zone)) for end in (low, high)]
        notes.outside.append(f"{column.name!r} ({' to '.join(dict.fromkeys(seen))})")
    if ends[0] == ends[1]:
        fill = int(ends[0]) if column.kind == Kind.INTEGER else from_number(column.kind, low, zone)
        return replace(column, status=Status.CONSTANT, fill=fill)
    resolution = _resolution(values, column, cells.storage)
    if wish is not None and wish.resolution is not None:
        resolution = wish.resolution
        step_to_number(column.kind, resolution)
    if bounds is None and wish is not None and (wish.lower is not None or wish.upper is not None):
        given = _read_bounds(column, (wish.lower, wish.upper))
        low = given[0] if wish.lower is not None else min(low, given[1])
        high = given[1] if wish.upper is not None else max(high, given[0])
    elif bounds is not None:
        low, high = _read_bounds(column, bounds)
    elif column.kind == Kind.INTEGER:
        return replace(column, lower=math.ceil(ends[0]), upper=math.floor(ends[1]), resolution=resolution)
    if column.kind == Kind.INTEGER:
        low = low if math.isinf(low) else math.ceil(low)
        high = high if math.isinf(high) else math.floor(high)
        if low > high:
            raise InputError(
                f"The bounds of an integer column must hold a whole number; those of {column.name!r} are "
                f"{bounds!r}. Widen them, or give the column the kind continuous."
            )
    lower, upper = from_number(column.kind, low, zone), from_number(column.kind, high, zone)
    return replace(column, lower=lower, upper=upper, resolution=resolution)


def _read_bounds(column: Column, bounds: Any) -> tuple[float, float]:
    """Check (low, high) and express it in numbers."""
    try:
        low, high = bounds
        ends = (
            -math.inf if low is None else to_number(column.kind, low, column.timezone),
            math.inf if high is None else to_number(column.kind, high, column.timezone),
        )
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"Bounds must be a low and a high end that suit the column; column {column.name!r} is "
            f"{column.kind} and was given {bounds!r}. Correct them, or leave an end open."
        ) from None
    if ends[0] > ends[1]:
        raise InputError(
            f"The lower bound must not exceed the upper one; column {column.name!r} was given {bounds!r}. "
            "Swap them."
        )
    return ends


def _resolution(values: Floats, column: Column, storage: Storage) -> Any:
    """The coarsest step of which all observed values are multiples."""
    if column.kind == Kind.INTEGER:
        return 1
    if column.kind == Kind.CONTINUOUS:
        return storage.resolution
    steps = [step for step in _STEPS if column.kind != Kind.TIME or step < DAY]
    for step in steps:
        local = to_wall_clock(values, column.timezone) if column.timezone and step == DAY else values
        if np.all(np.mod(local, step) == 0):
            return timedelta(microseconds=step)
    return timedelta(microseconds=1)


def _discrete(
    cells: Cells, column: Column, wish: Column | None, max_levels: int, notes: _Notes, fill_all: bool
) -> Column:
    codes, found = cells.labels()
    counts = np.bincount(codes[codes >= 0], minlength=len(found))
    levels = [level for level, count in zip(found, counts.tolist(), strict=True) if count]
    sizes = dict(zip(levels, counts[counts > 0].tolist(), strict=True))
    binary = column.kind == Kind.BOOLEAN and cells.storage.family == Family.NUMBER
    if binary and not all(level in BINARY for level in sizes):
        raise InputError(
            f"A boolean column of numbers must hold 0 and 1 only; column {column.name!r} holds "
            f"{', '.join(map(repr, levels[:5]))}. Choose the kind integer or categorical."
        )
    if len(sizes) == 1:
        return replace(column, status=Status.CONSTANT, fill=levels[0])
    if column.kind == Kind.BOOLEAN:
        counts_of_two = tuple(sizes.get(level, 0) for level in (False, True))
        return replace(column, levels=BINARY if binary else (), level_counts=counts_of_two)
    text = cells.storage.family == Family.LABEL and isinstance(levels[0], str) and wish is None
    numeric = reads_as_numbers(levels) if text else ""
    may_be_free = text and not cells.storage.declared and not fill_all
    free = may_be_free and why_free_text(list(map(str, levels)), column.n_observed, column.n_missing)
    if free:
        notes.text.append(f"{column.name!r} ({free}{numeric and ', ' + numeric})")
        return replace(column, kind=Kind.TEXT, status=Status.PASSED_THROUGH)
    if numeric:
        notes.numeric.append(f"{column.name!r} ({numeric})")
    elif text and (markers := find_markers(column.name, levels)):
        notes.markers.append(f"{column.name!r} ({', '.join(map(repr, markers))})")
    if wish is not None and wish.levels:
        kept = [level for level in wish.levels if level in sizes]
        if not kept:
            raise InputError(
                f"The levels of a column must occur in it; of those given for {column.name!r} none does. "
                f"It holds {', '.join(map(repr, levels[:5]))}."
            )
        return _with_levels(column, kept, sizes)
    kept = _most_frequent(sizes, max_levels)
    if len(kept) < len(sizes):
        cells_kept = sum(sizes[level] for level in kept)
        notes.rare.append(
            f"{column.name!r} ({len(kept)} of {len(sizes)} levels modelled, "
            f"{cells_kept / max(column.n_observed, 1):.0%} of its cells)"
        )
    if cells.storage.levels is not None:
        chosen = set(kept)
        kept = [level for level in cells.storage.levels if level in chosen]
    return _with_levels(column, kept, sizes)


def _with_levels(column: Column, kept: Sequence[Any], sizes: Mapping[Any, int]) -> Column:
    counts = tuple(sizes[level] for level in kept)
    return replace(column, levels=tuple(kept), level_counts=counts, other_levels=len(sizes) - len(kept))


def _most_frequent(sizes: Mapping[Any, int], limit: int) -> list[Any]:
    """The most frequent levels in sorted order; ties go to the smaller level, whatever the row order."""
    levels = list(sizes)
    if len(levels) > limit:
        threshold = sorted(sizes.values(), reverse=True)[limit - 1]
        above = [level for level in levels if sizes[level] > threshold]
        tied = _sorted([level for level in levels if sizes[level] == threshold])
        levels = above + tied[: limit - len(above)]
    return _sorted(levels)


def _sorted(levels: list[Any]) -> list[Any]:
    try:
        return sorted(levels)
    except TypeError:  # levels of several types, which a pandas category may have
        return sorted(levels, key=lambda level: (type(level).__name__, str(level)))


def check_column(column: Column) -> None:
    """Raise ValueError or TypeError where the parts of a column do not suit its kind and status."""
    hash((column.name, column.levels))
    counts = (column.n_observed, column.n_missing, column.other_levels, *column.level_counts)
    if any(type(count) is not int or not 0 <= count < 1 << 62 for count in counts):
        raise ValueError(f"counts of column {column.name!r} must be whole numbers")
    if type(column.ordered) is not bool or type(column.skip) is not bool:
        raise ValueError(f"ordered and skip of column {column.name!r} must be booleans")
    seen = column.observed_range
    if seen and (len(seen) != 2 or any(type(end) is not float for end in seen) or not seen[0] <= seen[1]):
        raise ValueError(f"the observed range of column {column.name!r} must be two numbers in order")
    if column.kind == Kind.BOOLEAN and column.levels not in ((), BINARY):
        raise ValueError(f"the values of the boolean column {column.name!r} must be 0 and 1")
    idle = {
        "fill": column.status in (Status.MODELLED, Status.PASSED_THROUGH),
        "timezone": column.kind != Kind.DATETIME,
        **dict.fromkeys(("lower", "upper", "resolution"), not column.kind.is_numeric),
    }
    for name in (name for name, is_idle in idle.items() if is_idle and getattr(column, name) is not None):
        raise ValueError(f"the {column.status} column {column.name!r} ({column.kind}) has no {name}")
    if column.timezone is not None:
        to_wall_clock(np.zeros(1), column.timezone)
    if column.status == Status.PASSED_THROUGH:
        return
    if column.kind == Kind.TEXT:
        raise ValueError(f"column {column.name!r} is text, which is passed through")
    if column.status == Status.CONSTANT:
        if column.fill is None:
            raise ValueError(f"column {column.name!r} is constant and must have a value")
        if column.kind.is_numeric:
            _check_ends(column, column.fill, column.fill)
    elif column.status == Status.MODELLED and column.kind.is_numeric:
        _check_ends(column, column.lower, column.upper)
        step = step_to_number(column.kind, column.resolution)
        if step is not None and not (0 < step < math.inf):
            raise ValueError(f"the resolution of column {column.name!r} must be above zero")
    elif (
        column.status == Status.MODELLED
        and column.kind == Kind.CATEGORICAL
        and (not column.levels or len(set(column.levels)) < len(column.levels))
    ):
        raise ValueError(f"the categories of column {column.name!r} must be distinct")


def _check_ends(column: Column, lower: Any, upper: Any) -> None:
    if isinstance(lower, str) or isinstance(upper, str):
        raise TypeError(f"bounds of column {column.name!r} must not be text")
    if not to_number(column.kind, lower, column.timezone) <= to_number(column.kind, upper, column.timezone):
        raise ValueError(f"the lower bound of column {column.name!r} must not exceed the upper one")

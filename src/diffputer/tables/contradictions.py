"""What cells say against formulas and bounds: observed cells before the work, computed cells after it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from diffputer.errors import InputError, warn_about_data
from diffputer.tables.cells import Booleans, Floats
from diffputer.tables.expressions import Expression
from diffputer.tables.repairs import CLOSE, Numbers

#: Of the rows that can be checked, so many may contradict a formula, as slips of the pen do.
MOST_SLIPS = 0.05

#: Of the cells of an inequality, so many more may come to lie on its limit than observed ones do.
MOST_MOVED, FEWEST_MOVED = 0.05, 5

#: Of the observed range: the largest value may well be among those that are missing.
MARGIN = 0.25


def slack_of(column: Numbers) -> float:
    """How far a value may be from what is computed: rounding to what the column can hold."""
    observed = column.values[column.observed]
    largest = float(np.abs(observed).max()) if len(observed) else 0.0
    return 1e-6 * largest + max(column.step, column.storage.resolution or 0.0) / 2


def compare_observed(columns: Mapping[str, Numbers], target: str, rule: Expression) -> None:
    """Compare derived cells that are observed with their formula.

    It is an error if no row agrees, or if more than :data:`MOST_SLIPS` of the rows disagree by more than
    rounding of the inputs explains; it is a warning if fewer do.
    """
    derived, inputs = columns[target], {name: columns[name] for name in rule.names}
    rows = np.all([column.observed for column in (derived, *inputs.values())], axis=0)
    if not rows.any():
        return
    found = rule.evaluate({name: column.values[rows] for name, column in inputs.items()})
    observed = derived.values[rows]
    apart = np.abs(found - observed)
    far = ~(apart <= slack_of(derived))
    if not far.any():
        return
    example = int(np.argmax(far))
    words = (
        f"{derived.name!r} must be {rule.text!r} where all of it is observed, however: in {far.sum():,} "
        f"of {len(far):,} rows it is not, such as row {np.flatnonzero(rows)[example]} (counted from 0), with "
        f"{observed[example]:g} and {found[example]:g}."
    )
    beyond = far & ~(apart <= slack_of(derived) + _rounding(rule, derived, inputs, rows))
    if far.all() or beyond.sum() > MOST_SLIPS * len(far):
        raise InputError(f"{words} Correct the formula, or these rows.")
    warn_about_data(f"{words} These rows stay as they are.")


def _rounding(rule: Expression, derived: Numbers, inputs: Mapping[str, Numbers], rows: Booleans) -> Floats:
    """How far rounding of a derived column and its inputs can take them apart: half a last digit of each."""
    values = {name: column.values[rows] for name, column in inputs.items()}
    middle = rule.evaluate(values)
    reach = np.full(len(middle), _last_digit(derived) / 2)
    for name, column in inputs.items():
        half = _last_digit(column) / 2
        moved = [rule.evaluate({**values, name: values[name] + step}) for step in (-half, half)]
        reach = reach + np.max([np.abs(other - middle) for other in moved], axis=0)
    return np.where(np.isnan(reach), np.inf, reach)


def _last_digit(column: Numbers) -> float:
    """The coarsest of 1, 0.1, ... of which all observed values are multiples; 0 if there is none."""
    observed = column.values[column.observed]
    for digits in range(7):
        scaled = observed * 10.0**digits
        if (np.abs(scaled - np.rint(scaled)) <= 1e-6 + 1e-12 * np.abs(scaled)).all():
            return float(10.0**-digits)
    return 0.0


def describe_out_of_bounds(column: Numbers, filled: Floats) -> str:
    """Say which computed cells of a derived column leave its stated bounds; nothing if none does.

    Cells of ``filled`` that are not looked at are NaN. Shape: [n].
    """
    low, high = column.hard
    rows = np.flatnonzero((filled < low - CLOSE * abs(low)) | (filled > high + CLOSE * abs(high)))
    if len(rows) == 0:
        return ""
    return (
        f"Derived cells shall keep to stated bounds, however: {len(rows):,} of {column.name!r} are computed "
        f"to be outside of {low:g} to {high:g}, such as row {rows[0]} (counted from 0). The formula counts: "
        "correct it or the bounds, or state bounds of the columns that it is made of."
    )


def describe_out_of_range(column: Numbers, filled: Floats) -> str:
    """Say which solved cells of an input are unlike what was observed of it; nothing if none is.

    That is, further from the observed range than :data:`MARGIN` of it, or below zero where nothing is.
    """
    observed = column.values[column.observed]
    low, high = (
        end if np.isfinite(end) else float(pick(observed)) if len(observed) else end
        for end, pick in zip(column.soft, (np.min, np.max), strict=True)
    )
    if not np.isfinite([low, high]).all():
        return ""
    margin = MARGIN * (high - low)
    below = (filled < -CLOSE * abs(high)) & (low >= 0)
    rows = np.flatnonzero(below | (filled < low - margin) | (filled > high + margin))
    if len(rows) == 0:
        return ""
    negative = f", {below.sum():,} of them below zero" if below.any() else ""
    return (
        f"Cells for which a formula is solved should be like observed ones, however: {len(rows):,} of "
        f"{column.name!r} are outside of its observed range, {low:g} to {high:g}{negative}, such as row "
        f"{rows[0]} (counted from 0). State its bounds, if such values cannot be."
    )


def describe_heap(smaller: Numbers, larger: Numbers, moved: int, total: int) -> str:
    """Say that many filled cells of an inequality had to be moved onto its limit; nothing if few had.

    ``moved`` of ``total`` drawn pairs contradicted it. Observed cells that are equal are no heap.
    """
    both = smaller.observed & larger.observed
    equal = (smaller.values == larger.values)[both]
    natural = float(equal.mean()) if len(equal) else 0.0
    if moved < FEWEST_MOVED or moved <= (MOST_MOVED + natural) * total:
        return ""
    one, other = smaller.name, larger.name
    return (
        f"Draws should seldom contradict an inequality, however: {moved / total:.0%} of those of {one!r} <= "
        f"{other!r} did, and were moved until the two are equal, which {natural:.0%} of the observed are. "
        "Impute the difference: add a column of it, with bounds (0, None), and derive one side from it."
    )

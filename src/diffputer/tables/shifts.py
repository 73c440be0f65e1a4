"""Distribution shift: how the columns of new rows differ from those of the fit.

Far outside
    A number beyond the fitted range by more than eight widths of that range. Of 384 random splits of 64
    real tables, heavy tails reached seven; codes such as 999 among percentages are beyond.
Many outside
    More than a tenth of the numbers beyond the fitted range, more than chance gives: the share of new values
    beyond the range of n fitted ones has a Beta(2, n - 1) distribution. Other units or signs are found so.
    Dates are left out: those of new rows are often later.
Missing share, category frequencies
    They have shifted where the difference is large (more than 0.1 of all cells) and chance would hardly ever
    give it (one test in a million), so that small batches and random splits are not reported. The test of
    missing shares is exact, as a column that was complete at the fit may be missing now; fewer than ten
    cells are never reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import betabinom, chi2, hypergeom

from diffputer.errors import warn_about_data
from diffputer.tables.cells import Family
from diffputer.tables.frames import Table
from diffputer.tables.levels import level_indices, levels_of
from diffputer.tables.schema import Column, Kind, Schema, Status

#: Differences of shares that are worth a warning, and how rarely chance may give them.
LARGE, BY_CHANCE = 0.1, 1e-6
#: Widths of the range beyond it from which a number is far outside.
FAR = 8.0
#: Expected cells of a category below which it is counted with others.
FEWEST_EXPECTED = 5.0
#: Cells by which the number of missing ones must differ from what is expected.
FEWEST_MISSING = 10


@dataclass(frozen=True)
class ColumnShift:
    """How one column of new rows differs from that of the fit."""

    name: Any
    observed: int
    missing: int
    outside: int = 0
    """Numbers outside the fitted range."""
    far_outside: int = 0
    """Those beyond it by more than eight times its width."""
    many_outside: bool = False
    """Whether more are outside than chance gives."""
    unseen: int = 0
    """Cells whose category was not there at the fit."""
    missing_shifted: bool = False
    categories_shifted: bool = False
    most_shifted: Any = None
    """Category whose share differs most, if they have shifted, """
    shares: tuple[float, ...] = ()
    """and its share of the observed cells at the fit and now."""


def find_shifts(schema: Schema, table: Table) -> list[ColumnShift]:
    """Compare every column of a table with what the schema knows of the fit."""
    return [_shift(column, table, position) for position, column in enumerate(schema)]


def _shift(column: Column, table: Table, position: int) -> ColumnShift:
    cells, missing = table.cells[position], table.missing[:, position]
    n_missing = int(missing.sum())
    n_observed = table.n_rows - n_missing
    counts: dict[str, Any] = {}
    if n_observed and column.status == Status.MODELLED and cells.storage.family != Family.OTHER:
        if column.kind.is_numeric:
            counts = _outside(column, cells.numbers()[~missing]) if column.observed_range else {}
        else:
            codes, found = cells.labels()
            places = level_indices(column, codes, found)
            known = np.bincount(places[places >= 0], minlength=len(levels_of(column)))
            unseen = 0 if column.other_levels else n_observed - int(known.sum())
            counts = {"unseen": unseen, "categories_shifted": _differ(column.level_counts, known)}
            if counts["categories_shifted"]:
                shares = np.array([column.level_counts, known], dtype=np.float64)
                shares /= shares.sum(axis=1, keepdims=True)
                most = int(np.abs(np.diff(shares, axis=0)).argmax())
                counts["most_shifted"] = levels_of(column)[most]
                counts["shares"] = tuple(shares[:, most].tolist())
    shifted = _missing_shifted(column.n_missing, column.n_observed, n_missing, n_observed)
    return ColumnShift(column.name, n_observed, n_missing, missing_shifted=shifted, **counts)


def _outside(column: Column, values: Any) -> dict[str, Any]:
    low, high = column.observed_range
    width = high - low
    outside = int(((values < low) | (values > high)).sum())
    many = column.kind != Kind.DATETIME and column.n_observed > 1 and outside > LARGE * len(values)
    return {
        "outside": outside,
        "many_outside": bool(
            many and betabinom.sf(outside - 1, len(values), 2, column.n_observed - 1) < BY_CHANCE
        ),
        "far_outside": int(((values < low - FAR * width) | (values > high + FAR * width)).sum()),
    }


def _missing_shifted(missing_before: int, observed_before: int, missing: int, observed: int) -> bool:
    """Whether another share of the cells is missing: a large difference, and Fisher's exact test.

    Examples
    --------
    >>> _missing_shifted(0, 3000, 80, 0), _missing_shifted(0, 3000, 3, 0), _missing_shifted(90, 210, 20, 40)
    (True, False, False)
    """
    before, now = missing_before + observed_before, missing + observed
    if not before or not missing:  # nothing is to be imputed
        return False
    expected = now * missing_before / before
    if abs(missing - expected) < max(LARGE * now, FEWEST_MISSING):
        return False
    count = hypergeom(before + now, missing_before + missing, now)
    return bool(min(count.cdf(missing), count.sf(missing - 1)) < BY_CHANCE)


def _differ(before: Sequence[int], now: Any) -> bool:
    """Whether two tables of counts are of other shares: a large difference, and a chi-squared test.

    Examples
    --------
    >>> _differ((500, 500), (450, 550)), _differ((500, 500), (10, 2)), _differ((500, 500), (900, 100))
    (False, False, True)
    """
    counts = np.array([before, now], dtype=np.float64) if len(before) == len(now) else np.zeros((2, 0))
    totals = counts.sum(axis=1, keepdims=True)
    if counts.shape[1] < 2 or not totals.all():
        return False
    if np.abs(np.diff(counts / totals, axis=0)).sum() / 2 <= LARGE:
        return False
    expected = totals * counts.sum(axis=0) / counts.sum()
    few = expected.min(axis=0) < FEWEST_EXPECTED
    counts, expected = (
        np.column_stack([one[:, ~few], one[:, few].sum(axis=1)]) for one in (counts, expected)
    )
    there = expected.min(axis=0) >= FEWEST_EXPECTED
    if there.sum() < 2:
        return False
    statistic = ((counts - expected)[:, there] ** 2 / expected[:, there]).sum()
    return bool(chi2.sf(statistic, there.sum() - 1) < BY_CHANCE)


def warn_about_shifts(shifts: Sequence[ColumnShift]) -> None:
    """Warn once, with counts, of columns that differ from those of the fit."""
    far = [f"{one.name!r} ({one.far_outside:,} of {one.observed:,})" for one in shifts if one.far_outside]
    many = [f"{one.name!r} ({one.outside:,} of {one.observed:,})" for one in shifts if one.many_outside]
    missing = [
        f"{one.name!r} ({one.missing:,} of {one.missing + one.observed:,})"
        for one in shifts
        if one.missing_shifted
    ]
    categories = [
        f"{one.name!r} ({one.most_shifted!r}: {one.shares[0]:.0%} at the fit, {one.shares[1]:.0%} now)"
        for one in shifts
        if one.categories_shifted
    ]
    parts = [
        f"{what}: {', '.join(names)}"
        for what, names in (
            ("values far outside the fitted range", far),
            ("many values outside the fitted range", many),
            ("another share of missing values", missing),
            ("other frequencies of categories", categories),
        )
        if names
    ]
    if parts:
        warn_about_data(
            f"Rows should be like those of the fit. These differ: {'; '.join(parts)}. Imputed values may be "
            "poor. Check units and filters, or fit again on rows like these."
        )

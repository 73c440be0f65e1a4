"""A profile of what is missing in a table: where, with what else, and whether other columns tell.

References: van Buuren, "Flexible Imputation of Missing Data" (2018), section 4.1, for patterns and counts of
pairs (md.pattern and md.pairs of mice); Little (JASA 1988) for the test of MCAR. Whether other columns tell
of holes is asked of boosted trees, see `diffputer.analysis.propensities`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..tables.schema import Schema, Status
from .mcar_test import LittleTest, little_test, telling_columns
from .propensities import chance_deviation, feature, tell_apart
from .views import View, look, some_rows
from .wording import as_text, short

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

TEST_ROWS = 5_000  # Little's test at most
TEST_WORK = 1e7  # patterns times columns cubed up to which it is of all columns: about two CPU seconds
CROWDED = 0.25  # patterns for each row from which it sees next to nothing
TEST_COLUMNS = 10  # at most, where there is too much work or too many patterns
TREE_ROWS, TREE_TARGETS, TREE_FEATURES = 2_000, 20, 50  # asking trees at most
SURE = 3.0  # standard deviations above 0.5 at which an AUC is no chance
NAMED = 3  # columns that tell most of a hole are named
SHOWN_PATTERNS = 8


@dataclass(frozen=True, repr=False)
class MissingnessProfile:
    """What is missing in a table; see `profile`.

    Attributes
    ----------
    n_rows, n_columns, n_missing, n_complete_rows : int
        Counts of rows, columns, missing cells, and rows without any.
    columns : pandas.DataFrame
        column, kind, n_missing, share.
    patterns : pandas.DataFrame
        rows, share, n_missing (columns) and missing (a tuple of their names), the most frequent first.
    pairs : pandas.DataFrame
        Rows in which two columns are both missing; on the diagonal, each alone. Columns with holes.
    correlation : pandas.DataFrame
        Of the indicators of missing cells; NaN for columns without any observed cell.
    predictors : pandas.DataFrame
        column; auc of trees that guess from the values of the other columns where it is missing; deviation
        of an AUC that is 0.5 by chance; depends, if it is no chance; told_by, the names of the columns that
        tell most. Holes of the other columns count for nothing here: see ``pairs`` and ``correlation``.
        Empty if not asked for.
    little : LittleTest or None
        Little's test on the numbers; None if not asked for or impossible.
    notes : tuple of str
        What was sampled or left out.
    """

    n_rows: int
    n_columns: int
    n_missing: int
    n_complete_rows: int
    columns: pd.DataFrame
    patterns: pd.DataFrame
    pairs: pd.DataFrame
    correlation: pd.DataFrame
    predictors: pd.DataFrame
    little: LittleTest | None
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Give one row for each column: counts, and what the others tell of its holes."""
        return self.columns.merge(self.predictors, on="column", how="left")

    def __repr__(self) -> str:
        cells = self.n_rows * self.n_columns
        lines = [
            f"{self.n_rows:,} rows x {self.n_columns:,} columns; missing cells: {self.n_missing:,} of "
            f"{cells:,} ({_percent(self.n_missing, cells)})",
            f"complete rows: {self.n_complete_rows:,} ({_percent(self.n_complete_rows, self.n_rows)}); "
            f"patterns of missing cells: {len(self.patterns):,}",
        ]
        if self.n_missing:
            lines += ["", self._columns_text(), "", self._patterns_text()]
        words = [] if self.little is None else [str(self.little)]
        words += [f"Note: {note}." for note in self.notes]
        lines += ["", *words] if words else []
        return "\n".join(lines)

    def _columns_text(self) -> str:
        shown = self.to_frame()
        shown = shown[shown["n_missing"] > 0].sort_values("n_missing", ascending=False, kind="stable")
        told = [
            ", ".join(short(name, 20) for name in names) if depends is True else ""
            for names, depends in zip(shown["told_by"].tolist(), shown["depends"].tolist(), strict=True)
        ]
        text = pd.DataFrame(
            {
                "column": [short(name, 32) for name in shown["column"]],
                "kind": shown["kind"].tolist(),
                "missing": shown["n_missing"].tolist(),
                "share": [_Right(f"{share:.1%}") for share in shown["share"]],
                "AUC": [float(value) for value in shown["auc"]],
                "told by": told,
            }
        )
        return as_text(
            text if len(self.predictors) else text[["column", "kind", "missing", "share"]], digits=2
        )

    def _patterns_text(self) -> str:
        shown = self.patterns.head(SHOWN_PATTERNS)
        text = pd.DataFrame(
            {
                "rows": shown["rows"].tolist(),
                "share": [_Right(f"{share:.1%}") for share in shown["share"]],
                "missing": [_names(names) for names in shown["missing"]],
            }
        )
        more = len(self.patterns) - len(shown)
        return as_text(text) + (f"\nand {more:,} more patterns" if more else "")


class _Right:
    """Text that is set to the right, as numbers are."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def profile(
    table: Any,
    *,
    schema: Schema | None = None,
    predictors: bool = True,
    test: bool = True,
    rng: np.random.Generator | int = 0,
) -> MissingnessProfile:
    """Describe what is missing in a table, before anything is imputed.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With or without holes.
    schema : Schema, optional
        What the columns hold; found by default.
    predictors : bool
        Ask, for each of the (at most 20) columns with most holes, whether values of other columns tell where
        it is missing: boosted trees on at most 2,000 rows.
    test : bool
        Little's test on the numbers, of at most 5,000 rows. With more patterns of missing cells than a
        quarter of the rows it would see next to nothing, and of many columns be slow: then one half of the
        rows says which columns, two to ten, tell most of holes, or have holes that are told of, and the
        other half tests as many of those as leave few patterns. The result says so.
    rng : numpy Generator or int
        Which rows of longer tables are looked at.

    Returns
    -------
    MissingnessProfile
        Print it.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1.0, None, 3.0, None], "b": ["x", "y", None, None], "c": range(4)})
    >>> print(profile(frame, predictors=False, test=False))
    4 rows x 3 columns; missing cells: 4 of 12 (33.3%)
    complete rows: 1 (25.0%); patterns of missing cells: 4
    <BLANKLINE>
    column  kind         missing  share
    a       integer            2  50.0%
    b       categorical        2  50.0%
    <BLANKLINE>
    rows  share  missing
       1  25.0%  nothing
       1  25.0%  a
       1  25.0%  b
       1  25.0%  a, b
    """
    view = look(table, schema)
    generator = np.random.default_rng(rng)
    notes: list[str] = []
    missing = view.missing
    counts = missing.sum(axis=0)
    names = view.table.names
    columns = pd.DataFrame(
        {
            "column": pd.Series(list(names), dtype=object),
            "kind": [str(column.kind) for column in view.schema],
            "n_missing": counts.astype(int),
            "share": counts / max(view.table.n_rows, 1),
        }
    )
    pairs, correlation = co_missingness(missing, names)
    little = _test(view, generator, notes) if test and missing.any() else None
    asked = _predictors(view, generator, notes) if predictors else []
    frame = pd.DataFrame(asked, columns=["column", "auc", "deviation", "depends", "told_by"])
    return MissingnessProfile(
        view.table.n_rows,
        view.table.n_columns,
        int(counts.sum()),
        int((~missing.any(axis=1)).sum()),
        columns,
        patterns(missing, names),
        pairs,
        correlation,
        frame.astype({"column": object}),
        little,
        tuple(notes),
    )


def patterns(missing: Booleans, names: tuple[Hashable, ...]) -> pd.DataFrame:
    """Count the patterns of missing cells: rows, share, n_missing and the names of the missing columns.

    Shape: missing [n, p].

    Examples
    --------
    >>> patterns(np.array([[True, False], [False, False], [True, False]]), ("a", "b"))
       rows     share  n_missing missing
    0     2  0.666667          1    (a,)
    1     1  0.333333          0      ()
    """
    # Eight columns a byte: sorting rows of bytes is far quicker than rows of booleans.
    packed = np.ascontiguousarray(np.packbits(missing, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    sizes = missing[first].sum(axis=1)
    order = np.lexsort((first, sizes, -counts))
    found = [tuple(names[k] for k in np.flatnonzero(missing[first[place]])) for place in order]
    return pd.DataFrame(
        {
            "rows": counts[order].astype(int),
            "share": counts[order] / max(len(missing), 1),
            "n_missing": sizes[order].astype(int),
            "missing": pd.Series(found, dtype=object),
        }
    )


def co_missingness(missing: Booleans, names: tuple[Hashable, ...]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count rows in which two columns are both missing, and correlate the indicators.

    Columns without holes are left out. Shape: missing [n, p].

    Examples
    --------
    >>> both = np.array([[True, True], [True, True], [False, False], [False, True]])
    >>> pairs, correlation = co_missingness(both, ("a", "b"))
    >>> pairs.to_numpy().tolist(), float(correlation.round(3).loc["a", "b"])
    ([[2, 2], [2, 3]], 0.577)
    """
    holes = np.flatnonzero(missing.any(axis=0))
    indicators = missing[:, holes].astype(np.float32)
    counts = (
        (indicators.T @ indicators).astype(np.float64) if len(missing) < 2**24 else _exact(missing, holes)
    )
    share = np.diag(counts) / max(len(missing), 1)
    covariance = counts / max(len(missing), 1) - np.outer(share, share)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    deviation = np.where(deviation > 1e-9, deviation, np.nan)
    correlation = np.clip(covariance / np.outer(deviation, deviation), -1.0, 1.0)
    labels = pd.Index([names[k] for k in holes], tupleize_cols=False)
    return (
        pd.DataFrame(counts.round().astype(np.int64), index=labels, columns=labels),
        pd.DataFrame(correlation, index=labels, columns=labels),
    )


def _exact(missing: Booleans, holes: NDArray[np.intp]) -> Floats:
    """Counts of pairs in parts, since float32 counts to 2**24 only."""
    counts = np.zeros((len(holes), len(holes)))
    for start in range(0, len(missing), 2**20):
        part = missing[start : start + 2**20, holes].astype(np.float32)
        counts += part.T @ part
    return counts


def _test(view: View, rng: np.random.Generator, notes: list[str]) -> LittleTest | None:
    numeric = [
        k for k, column in view.usable() if column.kind.is_numeric and column.status == Status.MODELLED
    ]
    rows = some_rows(view.table.n_rows, TEST_ROWS, rng)
    chosen = numeric
    n_patterns = _count_patterns(view, rows, numeric)
    heavy = len(numeric) > TEST_COLUMNS and n_patterns * len(numeric) ** 3 > TEST_WORK
    crowded = len(numeric) > 2 and n_patterns > CROWDED * len(rows)
    if heavy or crowded or (len(numeric) > TEST_COLUMNS and len(rows) <= len(numeric) + 1):
        # Chosen and tested on the same rows, columns would tell of holes by chance. How many they are may be
        # told by the rows of the test: patterns know no values.
        order = rng.permutation(rows)
        first, rows = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        numbers = np.column_stack([view.table.cells[k].numbers()[first] for k in numeric])
        for most in range(min(TEST_COLUMNS, len(numeric)), 1, -1):
            chosen = [numeric[k] for k in telling_columns(numbers, most)]
            if _count_patterns(view, rows, chosen) <= CROWDED * len(rows):
                break
    if not chosen or len(rows) <= len(chosen) + 1:
        notes.append("Little's test needs numbers that vary and more rows than columns")
        return None
    if len(rows) < view.table.n_rows or len(chosen) < view.table.n_columns:
        notes.append(
            f"Little's test looked at {len(rows):,} rows of {len(chosen):,} columns of numbers"
            f" (columns left out: {view.table.n_columns - len(chosen):,})"
        )
    result = little_test(np.column_stack([view.table.cells[k].numbers()[rows] for k in chosen]))
    few = f"{len(chosen):,} of {len(numeric):,} columns of numbers" if len(chosen) < len(numeric) else ""
    return replace(result, part=few)


def _count_patterns(view: View, rows: NDArray[np.int64], columns: list[int]) -> int:
    return len(np.unique(view.missing[rows][:, columns], axis=0)) if columns else 0


def _predictors(view: View, rng: np.random.Generator, notes: list[str]) -> list[tuple[Any, ...]]:
    """Ask trees, for each column with holes, whether values of other columns tell of them.

    Columns may be lost together by pure chance, so the holes of the others must tell nothing. They are filled
    with observed values of their column, by chance. Beside a column that it belongs to, such a value would
    still be conspicuous; hence columns that were filled have an effect of their own and no joint one. Where
    cells are missing completely at random, each then looks the same in rows with and without the hole.
    """
    rows = some_rows(view.table.n_rows, TREE_ROWS, rng)
    missing = view.missing[rows]
    values: dict[int, Floats] = {}
    for k, column in view.usable():
        numbers = feature(view.table.cells[k], column, rows)
        empty = np.isnan(numbers)
        if not empty.all():
            numbers[empty] = rng.choice(numbers[~empty], int(empty.sum()))
            values[k] = numbers
    partly = [k for k in range(view.table.n_columns) if view.missing[:, k].any()]
    targets = sorted(partly, key=lambda k: -int(view.missing[:, k].sum()))[:TREE_TARGETS]
    if len(rows) < view.table.n_rows and targets:
        notes.append(f"Trees looked at {len(rows):,} rows")
    if len(targets) < len(partly):
        notes.append(f"Trees were asked of the {len(targets):,} columns with most holes")
    lines = []
    for target in sorted(targets):
        holes = missing[:, target]
        others = _most_telling({k: x for k, x in values.items() if k != target}, holes)
        deviation = chance_deviation(int(holes.sum()), int((~holes).sum()))
        area, drops = tell_apart(
            [values[k] for k in others],
            holes,
            int(rng.integers(2**31)),
            drops_from=0.5 + SURE * deviation,
            alone=[place for place, k in enumerate(others) if missing[:, k].any()],
        )
        depends = bool(area > 0.5 + SURE * deviation)
        strength = dict(zip(others, drops.tolist(), strict=True))
        best = sorted((k for k in others if strength[k] > 0.005), key=lambda k: -strength[k])[:NAMED]
        told = tuple(view.table.names[k] for k in best) if depends else ()
        lines.append((view.table.names[target], area, deviation, depends, told))
    return lines


def _most_telling(values: dict[int, Floats], holes: Booleans) -> list[int]:
    """All columns, or of many those whose ranks differ most between rows with and without holes."""
    if len(values) <= TREE_FEATURES:
        return list(values)
    from scipy.stats import rankdata

    centred = holes - holes.mean()
    strength = {}
    for k, x in values.items():
        ranks = rankdata(x)
        ranks -= ranks.mean()
        strength[k] = abs(float(centred @ ranks)) / max(float(np.linalg.norm(ranks)), 1e-12)
    return sorted(sorted(values, key=lambda k: -strength[k])[:TREE_FEATURES])


def _names(names: tuple[Any, ...]) -> str:
    shown = ", ".join(short(name, 20) for name in names[:6])
    return (shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")) or "nothing"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"

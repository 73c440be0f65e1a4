"""How strongly columns belong together, and how much of that a completed table has kept.

Two numbers: Pearson's or Spearman's correlation. A number and a category: the correlation ratio (the root of
the share of the variance that lies between levels; Fisher 1925). Two categories: Cramér's V (Cramér,
"Mathematical Methods of Statistics", 1946).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import InputError, SettingError
from ..tables.schema import Schema
from .views import View, look

Floats = NDArray[np.float64]
Method = Literal["pearson", "spearman"]


def association_matrix(
    table: Any, *, method: Method = "pearson", schema: Schema | None = None
) -> pd.DataFrame:
    """Give the association of every two columns, from the rows that have both.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With or without holes.
    method : {"pearson", "spearman"}
        For two numbers, and for ranks or values of a number beside a category.
    schema : Schema, optional
        What the columns hold.

    Returns
    -------
    pandas.DataFrame
        Between -1 and 1 for two numbers, between 0 and 1 for others; NaN where fewer than two rows have
        both or one of them does not vary. Text that differs from row to row is left out.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "c": ["a", "a", "b", "b"]})
    >>> association_matrix(frame).round(3).to_numpy().tolist()
    [[1.0, 0.894], [0.894, 1.0]]
    """
    _check(method)
    view = look(table, schema)
    return _matrix(view, [position for position, _ in view.usable()], method)


@dataclass(frozen=True)
class AssociationError:
    """How far the associations of a completed table are from the true ones.

    Attributes
    ----------
    correlation : float
        Mean absolute difference over pairs of numbers; NaN where there is none.
    association : float
        The same over all pairs, categories included.
    differences : pandas.DataFrame
        Completed minus true, pair by pair; NaN where one is not defined.
    """

    correlation: float
    association: float
    differences: pd.DataFrame


def association_error(
    truth: Any, completed: Any, *, method: Method = "pearson", schema: Schema | None = None
) -> AssociationError:
    """Compare the associations in a completed table with those in the true one.

    Parameters
    ----------
    truth, completed : table
        With the same columns. Without a truth, hand over the incomplete table: its pairs of observed cells
        are what one knows, though not the same when cells are missing at random.
    method, schema
        As in `association_matrix`.

    Returns
    -------
    AssociationError

    Examples
    --------
    >>> truth = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [2.0, 4.0, 6.0, 8.0]})
    >>> association_error(truth, truth.assign(y=[4.0, 8.0, 2.0, 6.0])).correlation
    1.0
    """
    _check(method)
    view = look(truth, schema)
    other = look(completed, view.schema)
    if other.schema.names != view.schema.names:
        raise InputError("Tables to compare have the same columns in order, however: these have not.")
    positions = [position for position, _ in view.usable()]
    differences = _matrix(other, positions, method) - _matrix(view, positions, method)
    gaps = np.abs(differences.to_numpy(float))
    pairs = np.triu(np.ones(gaps.shape, dtype=bool), 1) & ~np.isnan(gaps)
    numeric = np.array([view.schema.columns[k].kind.is_numeric for k in positions], dtype=bool)
    both = pairs & numeric[:, None] & numeric
    return AssociationError(_mean(gaps[both]), _mean(gaps[pairs]), differences)


def _check(method: str) -> None:
    if method not in ("pearson", "spearman"):
        raise SettingError(f"The method is 'pearson' or 'spearman', however: it is {method!r}.")


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def _matrix(view: View, positions: list[int], method: str) -> pd.DataFrame:
    columns = [view.schema.columns[position] for position in positions]
    values: list[Floats] = []
    for position, column in zip(positions, columns, strict=True):
        cells = view.table.cells[position]
        if column.kind.is_numeric:
            values.append(cells.numbers())
        else:
            codes = cells.labels()[0].astype(np.float64)
            values.append(np.where(codes < 0, np.nan, codes))
    matrix = np.eye(len(columns))
    for i in range(len(columns)):
        for j in range(i):
            both = ~(np.isnan(values[i]) | np.isnan(values[j]))
            a, b = values[i][both], values[j][both]
            matrix[i, j] = matrix[j, i] = associate(
                a, b, columns[i].kind.is_numeric, columns[j].kind.is_numeric, method
            )
    names = pd.Index([column.name for column in columns], tupleize_cols=False)
    return pd.DataFrame(matrix, index=names, columns=names)


def associate(a: Floats, b: Floats, a_is_number: bool, b_is_number: bool, method: str = "pearson") -> float:
    """Give the association of two columns without holes; categories as codes.

    Shape: a, b [n].

    Examples
    --------
    >>> a = np.array([0.0, 1.0, 0.0, 1.0])
    >>> associate(a, 1 - a, False, False), round(associate(a, 1 - a, True, True), 6)
    (1.0, -1.0)
    """
    if len(a) < 2 or not np.ptp(a) > 0 or not np.ptp(b) > 0:
        return float("nan")
    if a_is_number and b_is_number:
        return _correlation(_ranked(a, method), _ranked(b, method))
    if not a_is_number and not b_is_number:
        return _cramers_v(a, b)
    number, codes = (a, b) if a_is_number else (b, a)
    return _correlation_ratio(_ranked(number, method), codes)


def _ranked(values: Floats, method: str) -> Floats:
    if method == "pearson":
        return values
    from scipy.stats import rankdata

    ranks: Floats = rankdata(values)
    return ranks


def _scaled(values: Floats) -> Floats:
    """Values between -1 and 1 around their mean, so that squares neither overflow nor vanish."""
    centred = values / np.abs(values).max()
    centred = centred - centred.mean()
    largest = np.abs(centred).max()
    scaled: Floats = centred / largest if largest > 0 else centred
    return scaled


def _correlation(a: Floats, b: Floats) -> float:
    x, y = _scaled(a), _scaled(b)
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip((x @ y) / size, -1.0, 1.0)) if size > 0 else float("nan")


def _correlation_ratio(number: Floats, codes: Floats) -> float:
    y = _scaled(number)
    _, groups = np.unique(codes, return_inverse=True)
    counts, sums = np.bincount(groups), np.bincount(groups, weights=y)
    total = float(y @ y)
    return float(np.sqrt(min((sums**2 / counts).sum() / total, 1.0))) if total > 0 else float("nan")


def _cramers_v(a: Floats, b: Floats) -> float:
    _, rows = np.unique(a, return_inverse=True)
    _, columns = np.unique(b, return_inverse=True)
    n_rows, n_columns = int(rows.max()) + 1, int(columns.max()) + 1
    counts = np.bincount(rows * n_columns + columns, minlength=n_rows * n_columns).reshape(n_rows, n_columns)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / len(a)
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    return float(np.sqrt(min(chi_squared / (len(a) * (min(n_rows, n_columns) - 1)), 1.0)))

"""How sure the filled values of a table are, without drawing."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .errors import DataWarning
from .tables.constraints import BoundConstraints
from .tables.decoding import is_binary
from .tables.encoding import TableEncoder
from .tables.filling import Values
from .tables.frames import Table
from .tables.schema import Kind


@dataclass(frozen=True)
class Uncertainty:
    """How sure the filled values of a table are.

    Attributes
    ----------
    lower, upper
        The table completed by the ends of an interval: dates have dates, integers integers. Categories have
        the level that is filled in. An interval contains its estimate, what ``transform`` returns, but for
        the cells that ``outside`` marks.
    std
        Standard deviation of each filled number in the units of its column (seconds for dates, times and
        durations); NaN elsewhere and where a column shows no two values, which tells nothing of its holes; 0
        where a formula and observed cells leave no choice. A pandas frame.
    probability
        Probability of each filled level; NaN elsewhere. A pandas frame.
    outside
        Whether the estimate of a cell lies outside of its interval. There are two reasons. The mean of a
        skewed distribution lies beyond its middle part: often at small levels, and in heavy tails. And
        boosted trees and linear parts move the mean, while intervals are of the networks and the copula.
        A pandas frame.
    """

    lower: Any
    upper: Any
    std: pd.DataFrame
    probability: pd.DataFrame
    outside: pd.DataFrame

    def __repr__(self) -> str:
        """Say what there is; four tables would fill a screen."""
        filled = int(self.std.notna().sum().sum()), int(self.probability.notna().sum().sum())
        rows, columns = self.std.shape
        beyond = int(self.outside.to_numpy().sum())
        words = f"; {beyond:,} estimates lie outside of their interval (skewed, or moved by trees)"
        return (
            f"<Uncertainty of {filled[0]:,} numbers and {filled[1]:,} levels filled in {rows:,} rows × "
            f"{columns:,} columns: lower, upper, std, probability, outside{words if beyond else ''}>"
        )

    @classmethod
    def of_cells(
        cls,
        table: Table,
        encoder: TableEncoder,
        x: NDArray[np.float32],
        cells: Any | None,
        constrain: BoundConstraints | None = None,
    ) -> Uncertainty:
        """Turn what the engine says of encoded cells into tables.

        Shape: x [n, d]; cells has deviation, lower, upper, probability and estimate [n, d], or is None
        where no column is modelled. Constraints are in force where they tie a cell to observed ones alone.
        """
        shape = (table.n_rows, table.n_columns)
        std, probability = np.full(shape, np.nan), np.full(shape, np.nan)
        lower = upper = x
        if cells is not None:
            known = np.where(np.isnan(cells.level), x, cells.level)
            lower, upper = (np.where(np.isnan(end), known, end) for end in (cells.lower, cells.upper))
            unit = np.where(encoder.n_levels > 0, 1.0, encoder.deviation)
            imputed = np.array([not column.skip for column in encoder.schema])
            holes = (table.missing & imputed)[:, encoder.blocks]
            seconds = np.array(
                [1e-6 if column.kind in _IN_MICROSECONDS else 1.0 for column in encoder.schema]
            )
            std[:, encoder.blocks] = np.where(holes, cells.deviation * unit * seconds[encoder.blocks], np.nan)
            probability[:, encoder.blocks] = np.where(holes, cells.probability, np.nan)
        ends = [encoder.decode(table, end) for end in (lower, upper)]
        if constrain is not None and constrain.positions:
            ends = _constrain(table, ends, std, constrain)
        outside = np.zeros(shape, dtype=bool)
        if cells is not None:
            guess = encoder.decode(table, np.where(np.isnan(cells.estimate), known, cells.estimate))
            if constrain is not None and constrain.positions:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DataWarning)  # `transform` warns
                    guess = constrain(guess)
            within = (cells.lower <= cells.estimate) & (cells.estimate <= cells.upper)
            _contain(table, encoder, ends, guess, within, outside)
        index = table.native.index if isinstance(table.native, pd.DataFrame) else None
        columns = list(table.names)
        return cls(
            table.with_filled(ends[0]),
            table.with_filled(ends[1]),
            pd.DataFrame(std, index=index, columns=columns),
            pd.DataFrame(probability, index=index, columns=columns),
            pd.DataFrame(outside, index=index, columns=columns),
        )


def _contain(
    table: Table,
    encoder: TableEncoder,
    ends: list[dict[int, Values]],
    guess: dict[int, Values],
    within: NDArray[np.bool_],
    outside: NDArray[np.bool_],
) -> None:
    """Widen intervals which rounding or a constraint moved off their estimate; mark other estimates beyond.

    Shape: within [n, d], whether the model's estimate is in the model's interval; outside [n, columns].
    """
    for place, position in enumerate(encoder.blocks.tolist()):
        column, holes = encoder.schema.columns[position], np.flatnonzero(table.missing[:, position])
        if column.skip or not holes.size or not (column.kind.is_numeric or is_binary(column)):
            continue
        low, high, middle = ends[0][position], ends[1][position], guess[position]
        moved = within[holes, place] if column.kind.is_numeric else np.ones(len(holes), dtype=bool)
        below, above = (np.asarray(sign, dtype=bool) for sign in (middle < low, middle > high))
        ends[0][position] = np.where(below & moved, middle, low)
        ends[1][position] = np.where(above & moved, middle, high)
        outside[holes, position] = (below | above) & ~moved


def _constrain(
    table: Table, ends: list[dict[int, Values]], std: NDArray[np.float64], constrain: BoundConstraints
) -> list[dict[int, Values]]:
    """Put constraints in force where they tie a missing cell to observed ones alone.

    ``std`` is set to 0 where a formula leaves no choice.
    """
    kept, tied = constrain.repair_ends(ends)
    for position in constrain.computed & set(ends[0]):
        holes = table.missing[:, position]
        equal = kept[0][position] == kept[1][position]
        sure = tied[holes, position] & equal & (ends[0][position] != ends[1][position])
        std[np.flatnonzero(holes)[sure], position] = 0.0
    return kept


_IN_MICROSECONDS = (Kind.DATETIME, Kind.DURATION, Kind.TIME)

"""The energy-I-score: rank imputers on a table whose holes nobody knows.

Reference: Näf, Grzesiak and Scornet, "How to rank imputation methods?" (arXiv:2507.11297, 2025), which goes
back to Näf, Spohn, Michel and Meinshausen, "Imputation scores" (Annals of Applied Statistics 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError, SettingError
from ..tables.cells import Booleans, Cells
from ..tables.frames import read_table
from ..tables.pieces import hide_cells, take_columns, take_rows, with_distinct_names
from ..tables.schema import Column, Schema, Status
from .overimputation import Draw
from .scores import crps, level_score
from .views import centre_and_deviation, common_codes, look, read_forms, some_rows


@dataclass(frozen=True)
class EnergyIScore:
    """The energy-I-score of an imputer on a table.

    Attributes
    ----------
    score : float
        The weighted mean over columns: smaller is better. NaN if no column could be scored.
    columns : pandas.DataFrame
        column, score (in standard deviations; of categories between 0 and 1), weight, n_observed, n_missing
        and n_predictors, of each column that was scored.
    skipped : tuple
        Columns with holes that were not: text, empty or constant ones, and those beyond ``max_columns``.
    """

    score: float
    columns: pd.DataFrame
    skipped: tuple[Any, ...]

    def __repr__(self) -> str:
        words = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"<EnergyIScore {self.score:.4g}: {len(self.columns)} columns scored{words}>"


def energy_i_score(
    table: Any,
    draw: Draw,
    *,
    n_draws: int = 20,
    completed: Any = None,
    schema: Schema | None = None,
    max_columns: int | None = None,
    max_rows: int | None = None,
    rng: np.random.Generator | int = 0,
) -> EnergyIScore:
    """Score an imputer without knowing what is missing: smaller is better.

    For each column j that has holes, with L the rows that have it observed:

    1. The predictors are the other columns that are observed in all rows of L; if there is none, the one
       column that is observed in most of them.
    2. The table, completed once, is cut down to j and its predictors. Column j keeps the values that were
       *filled in* and loses those that were observed (rows L).
    3. The imputer learns from that and fills j in again, ``n_draws`` times: draws of X_j given the
       predictors as the imputer believes them to be where X_j is missing.
    4. They are compared with the observed values: E|X - x| - E|X - X'| / 2 over all pairs of draws (the
       ensemble's CRPS), averaged over L. Numbers are in standard deviations of the observed cells (the
       paper leaves units as they are); two levels are at distance 1.

    The score is the mean over columns, weighted by |L| (n - |L|) / n². It is proper, that is, on average
    smallest for an imputer that draws from the true conditional distributions, under conditions on the
    missingness that the paper states; expected values in place of draws are punished.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    draw : callable
        ``draw(table, m)`` gives m completed tables. It must *learn from the table it is given*, which has
        other columns and other holes each time: ``lambda t, m: DiffPuter().fit(t).sample(t, m)``.
    n_draws : int
        Draws of each observed cell; 1 for an imputer that gives the same every time.
    completed : table, optional
        The table completed once by the same imputer; by default ``draw(table, 1)[0]``.
    schema : Schema, optional
        What the columns hold.
    max_columns : int, optional
        Score only so many columns, those of largest weight: each costs one call of ``draw``.
    max_rows : int, optional
        Of a longer table so many rows, chosen at random.
    rng : numpy Generator or int
        For that choice.

    Returns
    -------
    EnergyIScore

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [0.0, 1.0] * 20, "y": [0.0, 1.0] * 18 + [None] * 4})
    >>> energy_i_score(frame, lambda t, m: [t.assign(y=t["x"])] * m, n_draws=2).score
    0.0
    >>> energy_i_score(frame, lambda t, m: [t.assign(y=t["y"].fillna(0.5))] * m, n_draws=2).score
    1.0
    """
    if n_draws < 1:
        raise SettingError(f"Draws are counted from 1, however: n_draws is {n_draws}.")
    generator = np.random.default_rng(rng)
    table = with_distinct_names(table)
    view = look(table, schema)
    rows = some_rows(view.table.n_rows, max_rows, generator)
    if len(rows) < view.table.n_rows:
        table = take_rows(view.table.native, rows)
        completed = None if completed is None else take_rows(completed, rows)
        view = look(table, schema)
    if completed is None:
        completed = next(iter(draw(table, 1)))
    full = read_forms(view, [completed])[0]
    missing, n = view.missing, view.table.n_rows
    weight = (~missing).sum(axis=0) * missing.sum(axis=0) / max(n, 1) ** 2
    possible = [
        position
        for position, column in view.usable()
        if column.status == Status.MODELLED and weight[position] > 0 and not full.missing[:, position].any()
    ]
    order = sorted(possible, key=lambda position: -weight[position])[:max_columns]
    lines = []
    for position in sorted(order):
        observed = ~missing[:, position]
        others = [k for k in range(view.table.n_columns) if k != position and not full.missing[:, k].any()]
        predictors = [k for k in others if not missing[observed, k].any()]
        if not predictors:
            seen = [int((~missing[observed, k]).sum()) for k in others]
            predictors = [others[int(np.argmax(seen))]] if others else []
        part = take_columns(full.native, [position, *predictors])
        hidden = np.zeros((n, 1 + len(predictors)), dtype=bool)
        hidden[:, 0] = observed
        draws = list(draw(hide_cells(part, hidden), n_draws))
        if len(draws) != n_draws:
            raise InputError(f"draw(table, {n_draws}) gives {n_draws} tables, however: it gave {len(draws)}.")
        score = _score(view.table.cells[position], view.schema.columns[position], draws, observed)
        name = view.schema.columns[position].name
        n_observed = int(observed.sum())
        lines.append((name, score, float(weight[position]), n_observed, n - n_observed, len(predictors)))
    names = ["column", "score", "weight", "n_observed", "n_missing", "n_predictors"]
    columns = pd.DataFrame(lines, columns=names)
    total = float(np.average(columns["score"], weights=columns["weight"])) if lines else float("nan")
    left = [name for k, name in enumerate(view.table.names) if missing[:, k].any() and k not in order]
    return EnergyIScore(total, columns, tuple(left))


def _score(cells: Cells, column: Column, draws: Sequence[Any], observed: Booleans) -> float:
    """Compare the draws of one column, which is their first, with what was observed."""
    drawn = [read_table(with_distinct_names(one)) for one in draws]
    for one in drawn:
        if one.missing[observed, 0].any():
            raise InputError(
                f"Every missing cell must be filled, however: draws leave {column.name!r} with "
                f"{int(one.missing[observed, 0].sum()):,} holes."
            )
    if column.kind.is_numeric:
        truth = cells.numbers()
        mean, deviation = centre_and_deviation(truth)
        values = np.stack([(one.cells[0].numbers()[observed] - mean) / deviation for one in drawn])
        return crps((truth[observed] - mean) / deviation, values, fair=False)
    codes, _ = common_codes([cells, *(one.cells[0] for one in drawn)])
    return level_score(codes[0][observed], np.stack([one[observed] for one in codes[1:]]), fair=False)

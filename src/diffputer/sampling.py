"""Completed tables that are drawn: what an engine draws, decoded, with constraints in force.

A draw of a row that contradicts an inequality is drawn again, by the same model and with noise of its own,
until it does not: what is kept is a draw given that the inequality holds. Rows that contradict it each time
are left to :mod:`diffputer.tables.repairs`, which moves their cells onto the limit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .analysis.origin import Origin
from .em import EMResult, draw
from .imputations import Imputations
from .runtime.devices import check_memory
from .runtime.progress import Progress
from .runtime.seeding import derive_seed
from .tables.constraints import Constraints
from .tables.encoding import Encoded, TableEncoder
from .tables.filling import Values
from .tables.frames import Table, read_table
from .tables.pieces import take_rows

#: How often a row that contradicts an inequality is drawn again.
ATTEMPTS = 10


def draw_tables(
    table: Table,
    encoder: TableEncoder,
    constraints: Constraints,
    models: tuple[EMResult, bool] | None,
    numbers: range,
    seed: int,
    origin: Origin | None = None,
    progress: Progress | None = None,
) -> Imputations:
    """Draw the missing cells of a table.

    Parameters
    ----------
    models
        What draws are made of, and whether the model varies; None if no cell is drawn.
    numbers
        Which draws: the same number is the same draw, whatever others there are.
    """
    rows = int(table.missing.any(axis=1).sum())
    check_memory(
        len(numbers) * (4 * rows * encoder.width + 16 * int(table.missing.sum())),
        f"{len(numbers):,} draws of {rows:,} rows",
        "Ask for fewer draws, or draw for a part of the rows at a time.",
    )
    encoded = encoder.encode(table)
    bound = constraints.on(table, encoder.schema)
    names = [(seed, number) for number in numbers]
    if models is None:
        filled = [bound(encoder.decode(table, encoded.x))] * len(numbers)
        return Imputations(table, filled, encoder.schema, origin, bound, names)
    result, vary = models
    blocks = list(
        draw(
            encoded.x,
            encoded.missing,
            result,
            len(numbers),
            first=numbers.start,
            seed=seed,
            vary=vary,
            progress=progress,
        )
    )
    filled = []
    for place, number in enumerate(numbers):
        completed = encoded.x.copy()
        for part, drawn in blocks:
            completed[part] = drawn[place]
        decoded = encoder.decode(table, completed)
        wrong = bound.contradicted(decoded)
        if len(wrong):
            again = _draw_again(table, encoder, encoded, constraints, models, wrong, number, seed)
            for row, values in again.items():
                completed[row] = values
            decoded = encoder.decode(table, completed)
        filled.append(bound(decoded))
    return Imputations(table, filled, encoder.schema, origin, bound, names)


def _draw_again(
    table: Table,
    encoder: TableEncoder,
    encoded: Encoded,
    constraints: Constraints,
    models: tuple[EMResult, bool],
    wrong: NDArray[np.int64],
    number: int,
    seed: int,
) -> dict[int, NDArray[np.float32]]:
    """Draw rows until they keep to the inequalities; gives those that do, encoded."""
    found: dict[int, NDArray[np.float32]] = {}
    for attempt in range(ATTEMPTS):
        own = derive_seed(seed, "again", attempt)
        tried = encoded.x[wrong]
        drawn = draw(tried, encoded.missing[wrong], models[0], 1, first=number, seed=own, vary=models[1])
        for part, values in drawn:
            tried[part] = values[0]
        some = read_table(take_rows(table.native, wrong))
        decoded: dict[int, Values] = encoder.decode(some, tried)
        still = constraints.on(some, encoder.schema).contradicted(decoded)
        good = np.setdiff1d(np.arange(len(wrong)), still)
        found |= {int(wrong[place]): tried[place] for place in good}
        wrong = wrong[still]
        if len(wrong) == 0:
            break
    return found

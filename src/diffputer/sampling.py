"""Completed tables that are drawn: what an engine draws, decoded, with constraints in force."""

from __future__ import annotations

import numpy as np

from .analysis.origin import Origin
from .em import EMResult, draw
from .imputations import Imputations
from .runtime.memory import check_memory
from .runtime.progress import Progress
from .tables.constraints import Constraints
from .tables.encoding import TableEncoder
from .tables.frames import Table


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
    rows = int(table.missing[:, np.unique(encoder.blocks)].any(axis=1).sum())
    check_memory(
        len(numbers) * (4 * rows * encoder.width + 16 * int(table.missing.sum())),
        f"{len(numbers):,} draws of {rows:,} rows",
        "Ask for fewer draws, or draw for a part of the rows at a time.",
    )
    encoded, bound = encoder.encode(table), constraints.on(table, encoder.schema)
    x, first = encoded.x, numbers.start
    if models is None:
        filled = [bound(encoder.decode(table, x))] * len(numbers)
    else:
        result, vary = models
        drawn = draw(
            x, encoded.missing, result, len(numbers), first=first, seed=seed, vary=vary, progress=progress
        )
        blocks, filled = list(drawn), []
        for place in range(len(numbers)):
            completed = x.copy()
            for part, draws in blocks:
                completed[part] = draws[place]
            filled.append(bound(encoder.decode(table, completed)))
        bound.warn_of_heaps()
    names = [(seed, number) for number in numbers]
    return Imputations(table, filled, encoder.schema, origin, bound, names)

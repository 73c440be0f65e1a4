"""Which known cells are hidden: those that are missing in other rows; the pattern is the table's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..tables.missingness import copy_patterns
from .preparation import Booleans, Prepared

#: Most known cells that one repetition hides: methods should see nearly what they will see in the end.
MOST_HIDDEN = 0.2
#: Share of the known cells that a repetition hides of a table without holes.
AT_RANDOM = 0.1
#: Fewest cells, over all repetitions, that say anything.
FEWEST_CELLS = 20


@dataclass(frozen=True, eq=False)
class Hidden:
    """What is hidden in each repetition, [repetitions, n, c], and in what manner: "pattern" or "random".

    No cell is hidden twice; by pattern no row is.
    """

    cells: Booleans
    manner: str

    @property
    def n_repetitions(self) -> int:
        """How many repetitions there are."""
        return len(self.cells)


def hide(prepared: Prepared, repeats: int, rng: np.random.Generator) -> Hidden:
    """Choose known cells to hide, repetition by repetition.

    Rows are dealt out at random, each to one repetition at most, and each that is dealt out receives the
    holes of another row of the table, drawn from those that have any. A table without holes loses cells
    completely at random.

    Parameters
    ----------
    prepared : Prepared
        The table.
    repeats : int
        How many repetitions.
    rng : numpy Generator
        Same state, same cells.

    Returns
    -------
    Hidden
    """
    known = ~np.isnan(prepared.coded.x)
    patterns = prepared.missing[prepared.missing.any(axis=1)]
    if len(patterns):
        cells, manner = _by_pattern(known, patterns, repeats, rng), "pattern"
    else:
        share = min(AT_RANDOM, 1 / repeats)
        deal = np.floor(rng.uniform(size=known.shape) / share)
        cells, manner = np.stack([known & (deal == r) for r in range(repeats)]), "random"
    for one in cells:
        _leave_enough(one, prepared.coded.x)
    if (n := int(cells.sum())) < FEWEST_CELLS:
        raise InputError(
            f"A comparison needs {FEWEST_CELLS} known cells to hide and compare with, however: in the "
            f"pattern of this table there are {n}. Use more rows; "
            "with so few, methods cannot be told apart."
        )
    return Hidden(cells, manner)


def _by_pattern(
    known: Booleans, patterns: Booleans, repeats: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    n = len(known)
    # If every row received a pattern, this share of the known cells would be hidden.
    all_hidden = float((known.mean(axis=0) * patterns.mean(axis=0)).sum() / known.mean(axis=0).sum())
    share = min(1 / repeats, 0.5, MOST_HIDDEN / max(all_hidden, 1e-9))
    n_dealt = max(1, int(share * n))
    order = rng.permutation(n)
    cells = np.zeros((repeats, *known.shape), dtype=bool)
    numbers = np.where(known, 0.0, np.nan)
    for r in range(repeats):
        rows = order[r * n_dealt : (r + 1) * n_dealt]
        cells[r, rows] = copy_patterns(numbers[rows], None, rng, patterns=patterns)
    return cells


def _leave_enough(hidden: Booleans, x: NDArray[np.float64]) -> None:
    """Give a column back that would be left without two different values to learn from."""
    for j in range(x.shape[1]):
        seen = x[~hidden[:, j], j]
        seen = seen[~np.isnan(seen)]
        if len(seen) < 2 or seen.min() == seen.max():
            hidden[:, j] = False

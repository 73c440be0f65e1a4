"""Linear systems of the missing part of each row, solved together for rows that miss the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .coding import Counts, Floats

#: Numbers in the matrices that are held at a time.
_MOST_NUMBERS = 4_000_000


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows and the inverse of the missing part of a matrix for each of their patterns.

    Shape: rows [r], pattern [r] (which of the u inverses a row needs), inverse [u, d, d] (0 outside of the
    missing part), counts [u] (rows of each).
    """

    rows: Counts
    pattern: Counts
    inverse: Floats
    counts: Counts

    def solve(self, right: Floats) -> Floats:
        """Give P_MM^-1 b_M for the right side b of every row, 0 where observed. Shape: [r, d] -> [r, d]."""
        solved: Floats = np.einsum("rij,rj->ri", self.inverse[self.pattern], right)
        return solved


class Patterns:
    """Which rows miss the same cells.

    Parameters
    ----------
    missing
        Where cells are missing, [n, d].

    Examples
    --------
    >>> patterns = Patterns(np.array([[True, False], [False, False], [True, False]]))
    >>> [(block.rows.tolist(), block.counts.tolist()) for block in patterns.blocks(2 * np.eye(2))]
    [([1, 0, 2], [1, 2])]
    """

    def __init__(self, missing: NDArray[np.bool_]) -> None:
        self.missing = missing
        self._distinct, of_row = np.unique(missing, axis=0, return_inverse=True)
        self._of_row = of_row.reshape(-1)
        self._order = np.argsort(self._of_row, kind="stable")

    def blocks(self, matrix: Floats) -> Iterator[Block]:
        """Give all rows, block by block, with the inverses of their missing parts. Shape: matrix [d, d]."""
        d = len(matrix)
        step = max(1, _MOST_NUMBERS // d**2)
        for start in range(0, len(self._order), step):
            rows = self._order[start : start + step]
            numbers = self._of_row[rows]
            pattern = numbers - numbers[0]
            gone = self._distinct[numbers[0] : numbers[-1] + 1].astype(np.float64)
            part = gone[:, :, None] * gone[:, None, :]
            # Observed rows and columns are those of the identity, and cut off afterwards.
            inverse = np.linalg.inv(part * matrix + (1 - gone)[:, :, None] * np.eye(d)) * part
            yield Block(rows, pattern, inverse, np.bincount(pattern))

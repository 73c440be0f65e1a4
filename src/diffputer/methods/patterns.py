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
    """Some rows that miss equally many cells, and the inverse of the missing part for each of their patterns.

    Shape: rows [r], pattern [r] (which of the u inverses a row needs), columns [u, m] (what is missing),
    inverse [u, m, m], counts [u] (rows of each).
    """

    rows: Counts
    pattern: Counts
    columns: Counts
    inverse: Floats
    counts: Counts

    def solve(self, right: Floats) -> Floats:
        """Give P_MM^-1 b_M for the right side b of every row, 0 where observed. Shape: [r, d] -> [r, d]."""
        columns = self.columns[self.pattern]
        given = np.take_along_axis(right, columns, axis=1)
        solved = np.zeros_like(right)
        np.put_along_axis(solved, columns, (self.inverse[self.pattern] @ given[:, :, None])[:, :, 0], axis=1)
        return solved

    def diagonals(self, d: int) -> Floats:
        """Give the diagonal of the inverse of every row, 0 where observed. Shape: [r, d]."""
        found = np.zeros((len(self.rows), d))
        own = np.diagonal(self.inverse, axis1=1, axis2=2)[self.pattern]
        np.put_along_axis(found, self.columns[self.pattern], own, axis=1)
        return found

    def sum(self, d: int) -> Floats:
        """Give the sum of the inverses of all rows, each at its place. Shape: [d, d]."""
        places = self.columns[:, :, None] * d + self.columns[:, None, :]
        weighted = self.counts[:, None, None] * self.inverse
        summed = np.bincount(places.ravel(), weighted.ravel(), minlength=d * d).reshape(d, d)
        return np.asarray(summed, dtype=np.float64)


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
    [([0, 2], [2])]
    """

    def __init__(self, missing: NDArray[np.bool_]) -> None:
        self.missing = missing
        distinct, of_row = np.unique(missing, axis=0, return_inverse=True)
        # Patterns with equally many holes stand together: their missing parts make one array.
        order = np.argsort(distinct.sum(axis=1), kind="stable")
        self._distinct, self._sizes = distinct[order], distinct.sum(axis=1)[order]
        self._of_row = np.argsort(order, kind="stable")[of_row.reshape(-1)]
        self._rows = np.argsort(self._of_row, kind="stable")
        self._starts = np.searchsorted(self._of_row[self._rows], np.arange(len(order) + 1))

    def blocks(self, matrix: Floats) -> Iterator[Block]:
        """Give all rows with holes, block by block, with the inverses of their missing parts.

        Shape: matrix [d, d].
        """
        start = int(np.searchsorted(self._sizes, 1))
        while start < len(self._sizes):
            size = int(self._sizes[start])
            same = int(np.searchsorted(self._sizes, size, side="right"))
            stop = min(same, start + max(1, _MOST_NUMBERS // size**2))
            columns = np.nonzero(self._distinct[start:stop])[1].reshape(-1, size)
            rows = self._rows[self._starts[start] : self._starts[stop]]
            pattern = self._of_row[rows] - start
            inverse = np.asarray(np.linalg.inv(matrix[columns[:, :, None], columns[:, None, :]]), np.float64)
            yield Block(rows, pattern, columns, inverse, np.bincount(pattern))
            start = stop

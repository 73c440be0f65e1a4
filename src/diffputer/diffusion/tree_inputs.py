"""What boosted trees are told: in which groups the values of a number fall, and which columns say most."""

from __future__ import annotations

import numpy as np
import torch

from .tree_growing import Codes, Floats, Places

#: Columns from which another is predicted: those that say most about it.
MOST_FEATURES = 32
#: Rows that choose them.
SCREENING_ROWS = 5_000
#: The outermost group of a number, as a share of one of those in the middle.
FINEST_TAIL = 0.05


def group_borders(values: Floats, bins: int) -> Floats:
    """Give thresholds between at most so many groups, of equal size but for finer ones at both ends.

    Shape: [m] -> [< bins].

    Examples
    --------
    >>> group_borders(np.array([3, 1, 1, 2], dtype=np.float32), 10)  # a value is in a group or above it
    array([1., 2.], dtype=float32)
    """
    distinct = np.unique(values)
    if len(distinct) <= bins:
        return distinct[:-1]
    n_tail = bins // 5
    n_groups = bins - 2 * n_tail
    tail = 0.5 / n_groups * np.geomspace(1.0, FINEST_TAIL, n_tail)
    places = np.concatenate([np.arange(1, n_groups) / n_groups, tail, 1 - tail])
    return np.unique(np.quantile(values, places, method="lower"))


def most_telling(
    cells: Codes, left_out: list[int], y: Floats, n_levels: int, rng: np.random.Generator
) -> Places:
    """Give the sources that vary, of many those whose groups of codes differ most in the target.

    Shape: cells [S, n], y [n].
    """
    varies = cells.max(axis=1, initial=0) > cells.min(axis=1, initial=255)
    varies[left_out] = False
    chosen = np.flatnonzero(varies)
    if len(chosen) <= MOST_FEATURES:
        return chosen
    cells, y = cells[:, :SCREENING_ROWS], y[:SCREENING_ROWS]
    # Levels become numbers at random: what tells them apart tells these apart.
    numbers = rng.normal(size=max(1, n_levels))
    target = numbers[y.astype(np.int64)] if n_levels else y.astype(np.float64)
    target = (target - target.mean()) / max(float(target.std()), 1e-12)
    explained = np.zeros(len(chosen))
    for i, source in enumerate(chosen):
        group = torch.from_numpy(-(-cells[source].astype(np.int32) // 8))
        sums = torch.bincount(group, torch.from_numpy(target)).numpy()
        counts = torch.bincount(group).numpy()
        # Noise alone explains one unit a group.
        explained[i] = (sums**2 / np.maximum(counts, 1)).sum() - np.count_nonzero(counts)
    return np.sort(chosen[np.argsort(-explained, kind="stable")[:MOST_FEATURES]])

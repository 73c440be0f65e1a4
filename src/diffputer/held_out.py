"""Observed cells that are kept back from training, and how well they are imputed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .runtime.seeding import derive_seed

#: Fewest and most rows held out; small tables keep at least nine tenths of their rows.
HELD_OUT_ROWS = (20, 2_000)


@dataclass(frozen=True)
class HeldOut:
    """What is kept back from training: whole rows (paper's engine), and cells.

    Shape: rows [v], cells [n, d].
    """

    rows: NDArray[np.int64]
    cells: NDArray[np.bool_]


def choose_held_out(
    missing: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    share: float,
    seed: int,
    *,
    limits: tuple[int, int] = (0, 5_000),
    always: bool = False,
) -> HeldOut:
    """Choose rows to hold out of every M-step, and observed cells to hide from EM.

    Cells are hidden whole: all encoded columns of a category together, and never more than a fifth of
    them. A complete table hides none unless ``always``, as it has nothing to impute.

    Shape: missing [n, d], blocks [d].
    """
    n = len(missing)
    rng = np.random.default_rng(derive_seed(seed, "held-out") & ((1 << 63) - 1))
    n_rows = min(n // 10, int(np.clip(round(share * n), *HELD_OUT_ROWS))) if share > 0 else 0
    rows = np.sort(rng.choice(n, n_rows, replace=False))
    columns, first = np.unique(blocks, return_index=True)
    observed = ~missing[:, first]
    cells = np.zeros_like(observed)
    if share > 0 and (always or missing.any()):
        places = np.flatnonzero(observed)
        wanted = int(share * len(places))
        n_cells = min(int(np.clip(wanted, *limits)), max(wanted, len(places) // 5))
        cells.flat[rng.choice(places, n_cells, replace=False)] = True
    return HeldOut(rows, cells[:, np.searchsorted(columns, blocks)])


def column_centres(
    x: NDArray[np.float32], m: NDArray[np.bool_], n_levels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Give what one would fill in without a model: means, which are 0, and most frequent levels.

    Shape: x, m [n, d] -> [d].
    """
    centres = np.zeros(x.shape[1], dtype=np.float32)
    for j in np.flatnonzero(n_levels):
        centres[j] = np.bincount(x[~m[:, j], j].astype(np.int64), minlength=1).argmax()
    return centres


def cell_error(
    truth: NDArray[np.float32],
    completed: NDArray[np.float32],
    cells: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    n_levels: NDArray[np.int64],
) -> float:
    """Give the mean absolute error over cells; one of several encoded columns counts once, as their mean."""
    if not cells.any():
        return float("nan")
    columns, counts = np.unique(blocks, return_counts=True)
    total = n_cells = 0.0
    for j in range(len(blocks)):
        error = np.abs(completed[cells[:, j], j] - truth[cells[:, j], j])
        if n_levels[j]:
            error = np.minimum(error, 1)
        weight = 1 / counts[np.searchsorted(columns, blocks[j])]
        total += weight * float(error.sum(dtype=np.float64))
        n_cells += weight * len(error)
    return total / n_cells

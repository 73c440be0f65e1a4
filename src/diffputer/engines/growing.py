"""What the conditional engine's CPU does before networks are trained, or beside them: growing trees, say."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..diffusion.conditional import LARGEST_INPUT
from ..diffusion.journal import Journal, Snapshot
from ..diffusion.loading import check_values, load_exactly
from ..diffusion.splitting import Columns
from ..diffusion.trees import BoostedTrees
from ..errors import damaged_checkpoint
from ..runtime.devices import Deadline

T = TypeVar("T")

#: Of the M-step's time the share that trees may take, and the rows that they learn from.
TREES_SHARE, MOST_TREE_ROWS = 0.3, 300_000


def grow_trees(
    trees: BoostedTrees,
    x: NDArray[np.float32],
    known: NDArray[np.bool_],
    columns: Columns,
    seed: int,
    deadline: Deadline,
    *,
    beside: bool,
    journal: Journal,
) -> Future[dict[str, Tensor]]:
    """Grow trees like these, and give what they shall be when it is there: at once, or ``beside`` other work.

    The journal keeps trees that were waited for; others are grown again.

    Shape: x, known [n, c].
    """
    if (kept := journal.kept("trees")) is not None:
        with damaged_checkpoint():
            load_exactly(trees, kept.tensors)
            check_values(trees)
        there: Future[dict[str, Tensor]] = Future()
        there.set_result(kept.tensors)
        return there
    some = np.linspace(0, len(x) - 1, min(len(x), MOST_TREE_ROWS)).astype(np.int64)
    part = np.ix_(some, np.concatenate([columns.numeric, columns.categorical]))
    x, known = x[part], known[part]
    p = len(columns.numeric)
    x[:, :p] = x[:, :p].clip(-LARGEST_INPUT, LARGEST_INPUT)  # as they will be asked
    apart = BoostedTrees(trees.n_levels, n_trees=trees.n_trees, depth=trees.depth)
    ends, threads = deadline.share(TREES_SHARE), torch.get_num_threads()

    def grow() -> dict[str, Tensor]:
        return apart.fit(x, known, seed=seed, deadline=ends, threads=threads).state_dict()

    growing = work(grow, beside=beside)
    if not beside and journal.is_kept:
        journal.put("trees", Snapshot(growing.result()), ended=True)
    return growing


def work(task: Callable[[], T], *, beside: bool) -> Future[T]:
    """Do a task, at once or ``beside`` what follows, and give what it gives when that is there."""
    if not beside:
        result: Future[T] = Future()
        result.set_result(task())
        return result
    pool = ThreadPoolExecutor(1)
    result = pool.submit(task)
    pool.shutdown(wait=False)
    return result

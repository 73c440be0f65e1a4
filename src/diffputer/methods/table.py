"""Every method by its name; nothing is registered anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import SettingError
from . import chained, gaussian, hyperimpute, lowrank, miwae, multiple, ours, rmice, simple, trees
from .contract import Facts, Method

_ENTRIES: tuple[tuple[Facts, Callable[..., Method]], ...] = (
    (simple.MEAN, simple.ColumnValue),
    (simple.MEDIAN, simple.ColumnValue),
    (simple.KNN, simple.Neighbours),
    (simple.KNN_5, simple.Neighbours),
    (gaussian.EM_GAUSSIAN, gaussian.GaussianEM),
    (gaussian.COPULA, gaussian.GaussianCopula),
    (lowrank.SOFTIMPUTE, lowrank.SoftImpute),
    (chained.MICE, chained.Iterative),
    (chained.ITERATIVE_HGB, chained.Iterative),
    (trees.MISSFOREST, trees.MissForest),
    (trees.GBT_PER_COLUMN, trees.BoostedColumns),
    (multiple.MICEFOREST, multiple.MiceForest),
    (rmice.PMM, rmice.RMice),
    (rmice.CART, rmice.RMice),
    (hyperimpute.HYPERIMPUTE, hyperimpute.HyperImpute),
    (miwae.MIWAE, miwae.Miwae),
    (miwae.EM_MIWAE, miwae.Miwae),
    (ours.DIFFPUTER_FAST, ours.Ours),
    (ours.DIFFPUTER_BALANCED, ours.Ours),
    (ours.DIFFPUTER_BEST, ours.Ours),
    (ours.DIFFPUTER_PAPER, ours.Ours),
)
#: Name -> what one should know of it, and what makes it.
METHODS: dict[str, tuple[Facts, Callable[..., Method]]] = {
    facts.name: (facts, make) for facts, make in _ENTRIES
}


def make_method(name: str, **settings: Any) -> Method:
    """Make a method by its name, with its own settings unless others are given.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": [1.0, 2.0, None], "b": ["x", "x", None]})
    >>> make_method("mean").fit_transform(frame, ["b"], seed=0)
         a  b
    0  1.0  x
    1  2.0  x
    2  1.5  x
    """
    if name not in METHODS:
        raise SettingError(f"A method must be one of {', '.join(METHODS)}, however: {name!r} is not.")
    facts, make = METHODS[name]
    return make(facts, **settings)

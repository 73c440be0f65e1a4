"""Gradient-boosted trees, one model a column: scikit-learn's HistGradientBoosting, kept as plain arrays.

Trees learn from rows with missing cells as they are. They know expectations of numbers and probabilities of
categories. A fitted model is a set of tensors, so that it can be saved without pickle and needs no private
class of scikit-learn to predict.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...nn.loading import require, require_between
from ..base import Cells, Predictive, RowBatch

#: Categories with more levels are not predicted; as inputs they are numbers.
MOST_LEVELS = 64
#: Trees of a column, over all of its categories.
MOST_TREES = 800
#: Known cells that a column needs, and values of another column that can inform it.
FEWEST_CELLS, FEWEST_VALUES = 40, 20
#: Known cells from which some are kept back to stop at, and rounds of boosting where none are.
FEWEST_TO_STOP, MOST_WITHOUT = 1_000, 100
#: Rows from which a column is learnt at most.
MOST_ROWS = 50_000
#: Rows whose way through all trees is followed at once.
BLOCK = 4096
#: Levels of a tree at most: scikit-learn's have 31 leaves.
DEPTH = 30


class BoostedTrees(nn.Module):
    """One boosted model for each column, all trees side by side as arrays.

    A node asks one column: known cells up to the threshold (or, of a category, in a set) go left, missing
    cells as learnt. A leaf is its own child and has a value.

    Shape (N nodes, T trees, S sets of categories): feature, left, right, members [N]; threshold, value [N];
    missing_left [N]; sets [S, 256]; root, column, output [T]; start [outputs of all columns].
    """

    may_be_infinite = ("start",)
    start: Tensor
    feature: Tensor
    left: Tensor
    right: Tensor
    members: Tensor
    threshold: Tensor
    value: Tensor
    missing_left: Tensor
    sets: Tensor
    root: Tensor
    column: Tensor
    output: Tensor

    def __init__(self, n_numeric: int, levels: list[int]) -> None:
        super().__init__()
        self.p, self.levels = n_numeric, levels
        self.outputs = [1] * n_numeric + levels
        self.register_buffer("start", torch.zeros(sum(self.outputs)))
        for name, values in _arrays().items():
            self.register_buffer(name, values)

    @property
    def n_trees(self) -> list[int]:
        """Trees of every column."""
        return torch.bincount(self.column.long(), minlength=len(self.outputs)).tolist()

    def check_values(self) -> None:
        """Raise ValueError unless every node asks about a column and leads to a node."""
        n, trees = len(self.feature), len(self.root)
        of_nodes = (self.left, self.right, self.members, self.threshold, self.value, self.missing_left)
        require(all(one.shape == (n,) for one in of_nodes), "nodes must have all their arrays")
        require(all(one.shape == (trees,) for one in (self.column, self.output)), "trees must have columns")
        require(self.sets.ndim == 2 and self.sets.shape[1] == 256, "sets must be of 256 categories")
        last = max(0, n - 1)
        require_between(0, last, left=self.left, right=self.right, root=self.root)
        require_between(0, len(self.outputs) - 1, feature=self.feature, column=self.column)
        require_between(-1, len(self.sets) - 1, members=self.members)
        sizes = torch.tensor(self.outputs, device=self.column.device)[self.column.long()]
        require((self.output >= 0) & (self.output < sizes), "trees must add to outputs that there are")

    @torch.no_grad()
    def fit(
        self,
        rows: RowBatch,
        *,
        n_trees: int,
        seed: int,
        threads: int = 1,
        is_over: Callable[[], bool] = lambda: False,
    ) -> BoostedTrees:
        """Learn every column from the others; columns that are not begun in time keep their mean."""
        from threadpoolctl import threadpool_limits

        x = _matrix(rows).double().cpu().numpy()

        def learn(j: int) -> _Forest:
            # A thread a column: threads that share a column wait for each other actively (measured: 20 times
            # slower where another program wants the core). The limit is of the thread that sets it.
            with threadpool_limits(1, user_api="openmp"):
                return _learn(j, x, self.p, self.levels, n_trees, seed, is_over)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of categories with one value, say
            with ThreadPoolExecutor(threads) as pool:
                forests = list(pool.map(learn, range(len(self.outputs))))
        arrays = _arrays()
        for j, forest in enumerate(forests):
            arrays = _append(arrays, forest.arrays, j)
        self.start.copy_(torch.cat([forest.start for forest in forests]))
        self.take(arrays)
        return self

    def take(self, arrays: dict[str, Tensor]) -> None:
        """Take the arrays of all trees, which are as long as there are nodes."""
        for name, values in arrays.items():
            setattr(self, name, values.to(self.start.device))

    def take_sizes(self, tensors: Mapping[str, Tensor]) -> None:
        """Make room for arrays of trees that are about to be loaded."""
        for name, values in _arrays().items():
            found = tensors.get(name)
            if found is not None and found.dtype == values.dtype and found.shape[1:] == values.shape[1:]:
                setattr(self, name, torch.empty_like(found, device=self.start.device))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self.take_sizes({k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)})
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.no_grad()
    def predict(self, rows: RowBatch, cells: Cells) -> Predictive:
        """Expectations of numbers and probabilities of categories."""
        x = _matrix(rows)
        mean = torch.zeros(len(cells), device=x.device)
        levels: list[Tensor] = []
        for j, start in enumerate(self.start.split(self.outputs)):
            trees = (self.column == j).nonzero()[:, 0]
            if j < self.p:
                own = (cells.columns == j).nonzero()[:, 0]
                mean[own] = start + self._sums(trees, x[cells.rows[own]], 1)[:, 0]
            else:
                own = cells.levels[:, j - self.p].nonzero()[:, 0]
                raw = start.repeat(len(rows), 1)
                raw[own] += self._sums(trees, x[own], len(start))
                levels.append(raw.softmax(dim=1))
        return Predictive(mean, None, levels)

    def _sums(self, trees: Tensor, x: Tensor, n_outputs: int) -> Tensor:
        """Sums of what trees add to each output. Shape: trees [t], x [n, c] -> [n, outputs]."""
        # In double and in one order: a row has the same bits in any batch.
        sums = torch.zeros(len(x), n_outputs, dtype=torch.float64, device=x.device)
        for part in torch.arange(len(x), device=x.device).split(BLOCK) if len(trees) else ():
            values = self.value[self._leaves(trees, x[part])].double()
            sums[part] = sums[part].index_add_(1, self.output[trees].long(), values)
        return sums.float()

    def _leaves(self, trees: Tensor, x: Tensor) -> Tensor:
        """The leaf of each tree. Shape: trees [t], x [n, c] -> [n, t]."""
        # Every column stands there twice: missing cells go right in the first, left in the second.
        x = torch.cat([x.nan_to_num(torch.inf), x.nan_to_num(-torch.inf)], dim=1)
        feature = self.feature.long() + self.missing_left * (x.shape[1] // 2)
        children = torch.stack([self.left, self.right], dim=1).flatten().long()
        node = self.root[trees].long().repeat(len(x), 1)
        has_sets = bool((self.members >= 0).any())
        for _ in range(DEPTH):
            cell = x.gather(1, feature[node])
            right = cell > self.threshold[node]
            if has_sets:
                members = self.members[node].long()
                outside = ~self.sets[members.clamp_min(0), cell.clamp(0, 255).long()]
                right = torch.where((members >= 0) & cell.isfinite(), outside, right)
            after = children[2 * node + right]
            if torch.equal(after, node):
                break
            node = after
        return node


@dataclass
class _Forest:
    """The trees of one column and what they start from."""

    start: Tensor
    arrays: dict[str, Tensor]


def _learn(
    j: int,
    x: NDArray[np.float64],
    p: int,
    levels: list[int],
    n_trees: int,
    seed: int,
    is_over: Callable[[], bool],
) -> _Forest:
    """Learn one column. Shape: x [n, c]."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    n_levels = 0 if j < p else levels[j - p]
    known = np.flatnonzero(~np.isnan(x[:, j]))
    y = x[known, j]
    if n_levels:
        counts = np.bincount(y.astype(np.int64), minlength=n_levels) + 0.5
        start = torch.from_numpy(np.log(counts / counts.sum())).float()
    else:
        start = torch.full((1,), float(y.mean()) if len(y) else 0.0)
    forest = _Forest(start, _arrays())
    if len(known) > MOST_ROWS:
        known = known[np.linspace(0, len(known) - 1, MOST_ROWS).astype(np.int64)]
        y = x[known, j]
    # Columns that are never there together with this one cannot inform it.
    others = ((~np.isnan(x[known])).sum(axis=0) >= FEWEST_VALUES) & (np.arange(x.shape[1]) != j)
    classes = np.unique(y)
    if len(y) < FEWEST_CELLS or len(classes) < 2 or n_levels > MOST_LEVELS or not others.any() or is_over():
        return forest
    is_set = np.array([False] * p + [n <= 255 for n in levels], dtype=bool)
    rarest = np.unique(y, return_counts=True)[1].min() if n_levels else 2
    kind = HistGradientBoostingClassifier if n_levels else HistGradientBoostingRegressor
    stops = len(y) > FEWEST_TO_STOP and rarest > 1
    rounds = min(
        n_trees if stops else min(n_trees, MOST_WITHOUT), MOST_TREES // (n_levels if n_levels > 2 else 1)
    )
    model = kind(
        max_iter=max(10, rounds),
        early_stopping=stops,
        n_iter_no_change=10,
        categorical_features=is_set[others],
        # Rare categories have so little curvature that their leaves run away without.
        l2_regularization=10.0 if n_levels else 0.0,
        random_state=seed & 0x7FFFFFFF,
    ).fit(x[np.ix_(known, others)], y)
    # scikit-learn puts categorical columns first, and counts the categories that occur.
    sets, numbers = np.flatnonzero(others & is_set), np.flatnonzero(others & ~is_set)
    occur = {int(k): np.unique(x[known, k][~np.isnan(x[known, k])]).astype(np.int64) for k in sets}
    baseline = torch.from_numpy(np.asarray(model._baseline_prediction, dtype=np.float64).ravel()).float()
    places = torch.from_numpy(classes.astype(np.int64)) if n_levels else torch.zeros(1, dtype=torch.int64)
    if n_levels:
        forest.start.fill_(-torch.inf)
    if n_levels and len(classes) == 2:
        places = places[1:]
        forest.start[int(classes[0])] = 0.0
    forest.start[places] = baseline
    for one in model._predictors:
        for tree, place in zip(one, places.tolist(), strict=True):
            forest.arrays = _append(
                forest.arrays, _read(tree, np.concatenate([sets, numbers]), occur, place), j
            )
    return forest


def _read(
    tree: Any, features: NDArray[np.int64], occur: dict[int, NDArray[np.int64]], output: int
) -> dict[str, Tensor]:
    """The arrays of one tree of scikit-learn."""
    nodes = tree.nodes
    leaf, own = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
    feature = features[np.where(leaf, 0, nodes["feature_idx"])]
    members = np.full(len(nodes), -1)
    sets: list[NDArray[np.bool_]] = []
    for place in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf):
        words = tree.raw_left_cat_bitsets[nodes["bitset_idx"][place]]
        codes = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
        # A category that these rows lack goes where missing cells go.
        goes_left = np.full(256, bool(nodes["missing_go_to_left"][place]))
        known = occur[int(feature[place])]
        goes_left[known] = codes[: len(known)]
        members[place] = len(sets)
        sets.append(goes_left)

    def ints(values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values.astype(np.int32))

    return {
        "feature": ints(feature),
        "left": ints(np.where(leaf, own, nodes["left"])),
        "right": ints(np.where(leaf, own, nodes["right"])),
        "members": ints(members),
        "threshold": torch.from_numpy(nodes["num_threshold"].clip(-3e38, 3e38).astype(np.float32)),
        "value": torch.from_numpy(np.where(leaf, nodes["value"], 0).astype(np.float32)),
        "missing_left": torch.from_numpy(nodes["missing_go_to_left"].astype(bool)),
        "sets": torch.from_numpy(np.array(sets, dtype=bool).reshape(-1, 256)),
        "root": torch.zeros(1, dtype=torch.int32),
        "column": torch.zeros(1, dtype=torch.int32),
        "output": torch.full((1,), output, dtype=torch.int32),
    }


def _arrays() -> dict[str, Tensor]:
    """Arrays of no trees."""
    arrays = {
        name: torch.zeros(0, dtype=torch.int32)
        for name in ("feature", "left", "right", "members", "root", "column", "output")
    }
    reals = {name: torch.zeros(0) for name in ("threshold", "value")}
    return {
        **arrays,
        **reals,
        "missing_left": torch.zeros(0, dtype=torch.bool),
        "sets": torch.zeros(0, 256, dtype=torch.bool),
    }


def _append(arrays: dict[str, Tensor], more: dict[str, Tensor], column: int) -> dict[str, Tensor]:
    """Trees of a column behind others: their nodes and sets are counted on."""
    n, n_sets = len(arrays["feature"]), len(arrays["sets"])
    moved = dict(more)
    for name in ("left", "right", "root"):
        moved[name] = more[name] + n
    moved["members"] = torch.where(more["members"] >= 0, more["members"] + n_sets, -1)
    moved["column"] = torch.full_like(more["column"], column)
    return {name: torch.cat([values, moved[name]]) for name, values in arrays.items()}


def _matrix(rows: RowBatch) -> Tensor:
    """Cells as trees take them: NaN where missing, categories by their place. Shape: [n, p + q]."""
    numbers = torch.where(rows.known, rows.x, torch.nan)
    return torch.cat([numbers, torch.where(rows.levels >= 0, rows.levels.float(), torch.nan)], dim=1)

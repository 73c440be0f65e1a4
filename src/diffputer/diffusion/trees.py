"""Boosted oblivious trees, one forest for each column: the member of the ensemble that learns in seconds.

Cells come in as codes: of a number the place among quantiles of its column, of a category the place of its
level when levels are ordered by what they say about the target; 0 where unknown. So trees are learnt and
asked in rows with holes as they are. Some rows take part a second time with more holes than they have, so
that columns which were never missing may be so later.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..runtime.devices import Deadline
from ..runtime.seeding import derive_seed
from .loading import require, require_between
from .tree_growing import Codes, CrossEntropy, Floats, Forest, Growing, Loss, Places, SquaredError, boost
from .tree_inputs import group_borders, most_telling

#: The code of an unknown cell that is above all thresholds; known ones are smaller.
UNKNOWN_ABOVE = 127
#: Categories with more levels are not predicted, and as inputs taken for numbers.
MOST_LEVELS = 256
#: Trees times levels of a category, at most: each leaf has a number for each level.
MOST_VECTORS = 8_192
#: Known cells that a column needs to be predicted from others.
FEWEST_CELLS = 10
#: Rows from which a column is learnt at most.
MOST_ROWS = 100_000
#: Rows that take part with more holes, as a share of all.
COPIES = 0.5
#: Share of the known cells of a column that choose the number of its trees: of few more, of many fewer.
LARGE_TEST, SMALL_TEST, FEW_ROWS = 0.2, 0.1, 1_000
#: As many average rows are added to those of a level before levels are ordered.
LEVEL_PRIOR = 20.0
#: Rows that are predicted at once; memory of a block is about so many times the splits of a forest.
_BLOCK = 2048


class BoostedTrees(nn.Module):
    """Oblivious boosted trees, one forest for each column.

    Parameters
    ----------
    n_levels : sequence of int
        For each column 0 if it is numeric, else the number of its levels.
    n_trees, depth : int
        Of each forest, at most; depth no more than 8.
    bins : int
        Quantiles that a number is told by, at most 126.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 1000, dtype=np.float32)[:, None] * np.array([1, -1], dtype=np.float32)
    >>> known = np.ones_like(x, dtype=bool)
    >>> trees = BoostedTrees([0, 0], n_trees=30).fit(x, known, seed=0)
    >>> means, _ = trees.predict(torch.tensor([[0.5, 0.0]]), torch.tensor([[True, False]]))
    >>> round(float(means[0, 1]), 1)
    -0.5
    """

    may_be_infinite = ("borders",)
    borders: Tensor
    ranks: Tensor
    sources: Tensor
    thresholds: Tensor
    used: Tensor

    def __init__(
        self, n_levels: Sequence[int], *, n_trees: int = 256, depth: int = 6, bins: int = 126
    ) -> None:
        super().__init__()
        self.n_levels, self.n_trees, self.depth = [int(n) for n in n_levels], n_trees, depth
        # A leaf's number is a byte, and so is a code beside the two of unknown cells.
        assert depth <= 8
        self.bins = min(bins, UNKNOWN_ABOVE - 1)
        c = len(self.n_levels)
        # Categories that are told by their levels; each enters in two orders, the second as an added row.
        self.coded = [j for j, n in enumerate(self.n_levels) if 0 < n <= MOST_LEVELS]
        sizes = [self.n_levels[j] for j in self.coded]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64).tolist()
        self.n_sources = c + len(self.coded)
        self.register_buffer("borders", torch.full((c, self.bins - 1), torch.inf))
        self.register_buffer("ranks", torch.zeros(c, 2, self.offsets[-1], dtype=torch.uint8))
        self.register_buffer("sources", torch.zeros(c, n_trees, depth, dtype=torch.int32))
        self.register_buffer("thresholds", torch.zeros(c, n_trees, depth, dtype=torch.uint8))
        self.register_buffer("used", torch.zeros(c, dtype=torch.int64))
        for j, n in enumerate(self.n_levels):
            self.register_buffer(f"start_{j}", torch.zeros(max(1, n)))
            n_forest = 0 if n > MOST_LEVELS else min(n_trees, MOST_VECTORS // max(1, n))
            self.register_buffer(f"leaves_{j}", torch.zeros(n_forest, 1 << depth, max(1, n)))

    def check_values(self) -> None:
        """Raise ValueError unless every tree asks about cells that there are."""
        forests = torch.tensor([len(self.get_buffer(f"leaves_{j}")) for j in range(len(self.n_levels))])
        forests = forests.to(self.used.device)
        require((self.used >= 0) & (self.used <= forests), "trees must be as many as are there")
        require_between(0, 2 * self.n_sources - 1, sources=self.sources)
        require_between(0, UNKNOWN_ABOVE, thresholds=self.thresholds)
        require_between(0, self.bins, ranks=self.ranks)
        low, high = self.borders[:, :-1], self.borders[:, 1:]
        require(~self.borders.isnan(), "borders must be numbers")
        require(low <= high, "borders must ascend")

    def fit(
        self,
        x: Floats,
        known: NDArray[np.bool_],
        *,
        held: NDArray[np.bool_] | None = None,
        seed: int,
        deadline: Deadline | None = None,
        learning_rate: float = 0.2,
        shrinkage: float = 3.0,
        threads: int | None = None,
    ) -> BoostedTrees:
        """Learn a forest for each column.

        Parameters
        ----------
        x : array [n, c]
            Standardised numbers and positions of levels; unknown cells may hold anything.
        known : array of bool [n, c]
            Cells that may be used, as inputs and as targets.
        held : array of bool [n, c], optional
            Cells that are not known but true in ``x``: they choose how many trees each column keeps.
            Default: some of the known cells of the column, which are then not learnt from.
        seed : int
            Of all randomness.
        deadline : Deadline, optional
            No tree is begun after it; columns share the time evenly.
        learning_rate : float
            Share of each tree's answer that is added.
        shrinkage : float
            As many rows without error are added to each leaf.
        threads : int, optional
            Columns that are learnt at the same time, default: torch's number of threads. The result does not
            depend on it.

        Returns
        -------
        BoostedTrees
            Itself.
        """
        device = self.borders.device
        self.cpu()  # trees grow there
        for buffer in self.buffers():
            buffer.zero_()
        x = np.where(known if held is None else known | held, x, np.float32(0)).astype(np.float32)
        c = len(self.n_levels)
        for j in range(c):
            borders = group_borders(x[known[:, j], j], self.bins)
            self.borders[j] = torch.inf
            self.borders[j, : len(borders)] = torch.from_numpy(borders)
        codes = self._bin(torch.from_numpy(x), torch.from_numpy(known)).numpy()
        growings = [
            Growing(len(self.get_buffer(f"leaves_{j}")), self.depth, learning_rate, shrinkage)
            for j in range(c)
        ]
        clock, workers = deadline or Deadline(), threads or torch.get_num_threads()

        def learn(j: int) -> None:
            rng = np.random.default_rng(derive_seed(seed, "trees", j) & ((1 << 63) - 1))
            self._fit_column(j, x, known, held, codes, growings[j], rng, clock, workers)

        if workers == 1:
            for j in range(c):
                learn(j)
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(learn, range(c)))
        return self.to(device)

    def _fit_column(
        self,
        j: int,
        x: Floats,
        known: NDArray[np.bool_],
        held: NDArray[np.bool_] | None,
        codes: Codes,
        growing: Growing,
        rng: np.random.Generator,
        clock: Deadline,
        workers: int,
    ) -> None:
        n_levels = self.n_levels[j]
        rows = np.flatnonzero(known[:, j])
        y = x[:, j]
        levels = y.astype(np.int64) if n_levels else np.zeros(0, dtype=np.int64)
        start = self._start(j, y[rows], levels[rows] if n_levels else levels)
        if len(rows) < FEWEST_CELLS or n_levels > MOST_LEVELS or len(np.unique(y[rows])) < 2:
            return
        if clock.remaining <= 0:
            return
        if len(rows) > MOST_ROWS:
            rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
        if held is not None:
            test = np.flatnonzero(held[:, j] & ~known[:, j])
        else:
            is_test = rng.random(len(rows)) < (LARGE_TEST if len(rows) < FEW_ROWS else SMALL_TEST)
            rows, test = rows[~is_test], rows[is_test]
            if not len(test) or len(np.unique(y[rows])) < 2:
                return  # nothing would tell when to stop, or nothing is to be learnt
        copied = np.sort(rng.choice(rows, round(COPIES * len(rows)), replace=False))
        n_train = len(rows) + len(copied)
        order = rng.permutation(n_train)
        everything = np.concatenate([np.concatenate([rows, copied])[order], test])
        target = np.eye(n_levels)[levels[rows]] if n_levels else y[rows, None].astype(np.float64)
        self._order_levels(j, x, known, rows, target - target.mean(axis=0))
        cells = self._sources(j, codes[:, everything], torch.from_numpy(x[everything])).numpy()
        # Each copy hides its cells at a rate of its own.
        hidden = rng.random((len(codes), len(copied))) < rng.random(len(copied))
        hidden = np.concatenate([hidden, hidden[self.coded]])
        cells[:, np.argsort(order)[len(rows) :]] *= ~hidden
        own = [j, *(len(codes) + k for k, column in enumerate(self.coded) if column == j)]
        chosen = most_telling(cells[:, :n_train], own, y[everything[:n_train]], n_levels, rng)
        if not len(chosen):
            return
        loss: Loss
        if n_levels:
            loss = CrossEntropy(levels[everything], n_train, start)
        else:
            loss = SquaredError(y[everything] - start, n_train)
        # What is left is shared with the columns still to come, once everything is prepared.
        deadline = clock.share(min(1.0, workers / (len(self.n_levels) - j)))
        forest = boost(cells[chosen], n_train, loss, growing, rng, lambda: deadline.remaining <= 0)
        self._keep(j, forest, chosen)

    def _start(self, j: int, y: Floats, levels: Places) -> Floats:
        if self.n_levels[j]:
            counts = np.bincount(levels, minlength=self.n_levels[j]) + 0.5
            start = np.asarray(np.log(counts / counts.sum()), dtype=np.float32)
        else:
            start = np.array([y.mean(dtype=np.float64) if len(y) else 0.0], dtype=np.float32)
        self.get_buffer(f"start_{j}").copy_(torch.from_numpy(start))
        return start

    def _keep(self, j: int, forest: Forest, chosen: Places) -> None:
        n = len(forest.leaves)
        self.used[j] = n
        sources = chosen[forest.features] + self.n_sources * forest.unknown_above
        self.sources[j, :n] = torch.from_numpy(sources.astype(np.int32))
        self.thresholds[j, :n] = torch.from_numpy(forest.thresholds)
        self.get_buffer(f"leaves_{j}")[:n] = torch.from_numpy(forest.leaves)

    def _order_levels(
        self, j: int, x: Floats, known: NDArray[np.bool_], rows: Places, target: NDArray[np.float64]
    ) -> None:
        """Order the levels of each category by the mean of the centred target. Shape: target [m, L]."""
        for k, column in enumerate(self.coded):
            L = self.n_levels[column]
            there = known[rows, column]
            levels = x[rows[there], column].astype(np.int64)
            counts = np.bincount(levels, minlength=L)
            sums = np.stack([np.bincount(levels, t, L) for t in target[there].T], axis=1)
            means = sums / (counts + LEVEL_PRIOR)[:, None]
            directions = means
            if means.shape[1] > 2:
                # Several things to say: in the two directions in which most is said.
                u, s, _ = np.linalg.svd(means * np.sqrt(counts + 1.0)[:, None], full_matrices=False)
                directions = (u * s)[:, :2] / np.sqrt(counts + 1.0)[:, None]
            for order in range(min(2, directions.shape[1])):
                rank = np.argsort(np.argsort(directions[:, order], kind="stable"), kind="stable")
                code = 1 + (rank if self.bins >= L else rank * self.bins // L)
                place = slice(self.offsets[k], self.offsets[k + 1])
                self.ranks[j, order, place] = torch.from_numpy(code.astype(np.uint8))

    def _bin(self, x: Tensor, known: Tensor) -> Tensor:
        """Give the codes of cells as numbers. Shape: x, known [n, c] -> [c, n], 0 where unknown."""
        codes = torch.searchsorted(self.borders, x.t().contiguous(), out_int32=True) + 1
        return (codes * known.t()).to(torch.uint8)

    def _sources(self, j: int, codes: Tensor | Codes, x: Tensor) -> Tensor:
        """Give what the forest of column j asks about. Shape: codes [c, n], x [n, c] -> [n_sources, n]."""
        codes = torch.as_tensor(codes)
        if not self.coded:
            return codes
        sources = torch.cat([codes, codes.new_zeros(len(self.coded), codes.shape[1])])
        for k, column in enumerate(self.coded):
            place = self.offsets[k]
            level = x[:, column].to(torch.int32).clamp(0, self.n_levels[column] - 1) + place
            is_known = (codes[column] > 0).to(torch.uint8)
            for order, row in enumerate((column, len(codes) + k)):
                sources[row] = self.ranks[j, order].index_select(0, level) * is_known
        return sources

    @torch.no_grad()
    def predict(
        self, x: Tensor, known: Tensor, columns: Sequence[bool] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Predict every unknown cell from what is known of its row.

        Parameters
        ----------
        x, known : tensors [n, c]
            As in :meth:`fit`, on the device of the buffers.
        columns : sequence of bool, optional
            Which columns are asked for, default: all. Cells of others, and known ones, get what is said
            where nothing is known.

        Returns
        -------
        means : tensor [n, p]
            Of numeric columns.
        probabilities : list of q tensors [n, L_k]
            Of the levels of each categorical column.
        """
        asked = [True] * len(self.n_levels) if columns is None else columns
        answers = [self.get_buffer(f"start_{j}").repeat(len(x), 1) for j in range(len(self.n_levels))]
        block = _BLOCK if x.device.type == "cpu" else 32 * _BLOCK
        for s in range(0, len(x), block):
            some, there = x[s : s + block].float(), known[s : s + block]
            codes = self._bin(torch.where(there, some, 0.0), there)
            for j, n_used in enumerate(self.used.tolist()):
                if asked[j] and n_used:
                    rows = (~there[:, j]).nonzero()[:, 0]
                    answers[j][s + rows] = self._forest(j, n_used, codes[:, rows], some[rows])
        numbers = [answers[j][:, 0] for j, n in enumerate(self.n_levels) if not n]
        means = torch.stack(numbers, dim=1) if numbers else x.new_zeros(len(x), 0)
        return means, [F.softmax(answers[j], dim=1) for j, n in enumerate(self.n_levels) if n]

    def _forest(self, j: int, n_used: int, codes: Tensor, x: Tensor) -> Tensor:
        """Give the mean, or the logits of levels, of one column. Shape: codes [c, n] -> [n, L]."""
        n, start = codes.shape[1], self.get_buffer(f"start_{j}")
        if not n:
            return start.expand(n, -1)
        below = self._sources(j, codes, x)
        both = torch.cat([below, torch.where(below == 0, UNKNOWN_ABOVE, below)])
        # Sums of a code and 127 - threshold have the highest bit where the code is above: comparing bytes
        # this way is several times as fast as by an operator.
        sources, thresholds = self.sources[j, :n_used].t(), self.thresholds[j, :n_used].t()
        bits = both.index_select(0, sources.reshape(-1)).view(self.depth, n_used, n)
        bits.add_((UNKNOWN_ABOVE - thresholds)[..., None]).bitwise_and_(128)
        leaf = bits[0]
        for level in range(1, self.depth):
            leaf.bitwise_right_shift_(1).add_(bits[level])
        leaf.bitwise_right_shift_(8 - self.depth)
        leaves = self.get_buffer(f"leaves_{j}")[:n_used].flatten(0, 1)
        first = torch.arange(n_used, dtype=torch.int32, device=leaf.device) << self.depth
        if not self.n_levels[j]:
            values = leaves[:, 0].index_select(0, (leaf + first[:, None]).reshape(-1))
            # In double precision the sum is exact: the same bits in any block.
            return (values.view(n_used, n).sum(dim=0, dtype=torch.float64) + start.double()).float()[:, None]
        return start + F.embedding_bag((leaf.t() + first).contiguous(), leaves, mode="sum")

"""Growing boosted oblivious trees: every level of a tree asks one question of all rows.

A tree of depth D is D questions "is the code of this feature above that one?", the answers are the bits of
a leaf's number. What is known of a row are codes: 0 for unknown, 1, 2, ... in the order of the values. An
unknown cell is below all thresholds or above all, whichever the question finds better.

Gradients are rounded to whole numbers and packed with the row count into one double: sums are then exact,
whatever their order, and one histogram gives both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = NDArray[np.int64]
#: (feature, threshold, whether unknown cells are above) of every level.
Questions = list[tuple[int, int, int]]

#: Bits of a double that hold whole numbers.
_EXACT_BITS = 52
#: Gradients of so many directions choose the questions, however many levels a category has.
DIRECTIONS = 3
#: Trees without a gain on held-out cells after which growing ends.
PATIENCE = 20
#: Thresholds of every feature that are tried first; of the best feature all are tried then.
COARSE = 16
#: Rows that choose the questions of a tree.
MOST_ROWS_OF_A_TREE = 50_000
#: Trees are less deep where leaves would have fewer rows on average.
ROWS_OF_A_LEAF = 20
#: Nothing is above the largest code.
NO_QUESTION = (0, 127, 0)
#: Leaves are whole multiples of this: double precision then adds them up exactly, in any order.
LEAF_UNIT = 2.0**-24


@dataclass(frozen=True)
class Growing:
    """How trees grow."""

    n_trees: int
    depth: int
    learning_rate: float
    shrinkage: float
    """As many rows of gradient zero are added to each leaf."""


@dataclass
class Forest:
    """Trees of one column. Shape: features, thresholds, unknown_above [T, D]; leaves [T, 2^D, L]."""

    features: Places
    thresholds: Codes
    unknown_above: NDArray[np.bool_]
    leaves: Floats


class Loss(Protocol):
    """What a forest makes small; it knows the truth of all rows and keeps what is predicted so far."""

    n_values: int
    """L, of a leaf."""

    def directions(self, rows: slice, rng: np.random.Generator) -> Doubles:
        """Give gradients that the questions should explain. Shape: [K, m]."""
        ...

    def leaf_values(self, leaf: Codes, n_leaves: int, shrinkage: float) -> Floats:
        """Give the best step in each leaf. Shape: leaf [n] -> [n_leaves, L]."""
        ...

    def add(self, leaf: Codes, values: Floats) -> None:
        """Add a tree to what is predicted."""
        ...

    def held_out(self) -> float:
        """Give the mean loss of held-out rows, NaN without any."""
        ...


class SquaredError:
    """Of a number. Rows after the first n_train are held out."""

    def __init__(self, y: Floats, n_train: int) -> None:
        self._residual, self._n, self.n_values = y.astype(np.float64), n_train, 1

    def directions(self, rows: slice, rng: np.random.Generator) -> Doubles:
        return self._residual[None, rows].copy()

    def leaf_values(self, leaf: Codes, n_leaves: int, shrinkage: float) -> Floats:
        train = torch.from_numpy(leaf[: self._n])
        counts = torch.bincount(train, minlength=n_leaves).numpy()
        sums = torch.bincount(train, torch.from_numpy(self._residual[: self._n]), n_leaves).numpy()
        return (sums / (counts + shrinkage))[:, None].astype(np.float32)

    def add(self, leaf: Codes, values: Floats) -> None:
        self._residual -= values[:, 0].take(leaf)

    def held_out(self) -> float:
        held = self._residual[self._n :]
        return float(np.square(held).mean()) if len(held) else math.nan


class CrossEntropy:
    """Of the levels of a category: all of them share the questions of a tree, each has leaves of its own."""

    def __init__(self, levels: Places, n_train: int, start: Floats) -> None:
        self._levels, self._n, self.n_values = levels, n_train, len(start)
        self._scores = np.tile(start, (len(levels), 1))
        self._predict()

    def _predict(self) -> None:
        p = np.exp(self._scores - self._scores.max(axis=1, keepdims=True))
        self._p = p / p.sum(axis=1, keepdims=True)

    def directions(self, rows: slice, rng: np.random.Generator) -> Doubles:
        gradient, levels = -self._p[rows], self._levels[rows]
        gradient[np.arange(len(levels)), levels] += 1
        L = gradient.shape[1]
        if L <= DIRECTIONS + 1:
            # They sum to zero: the last follows from the others.
            gradient = gradient[:, : max(1, L - 1)]
            return np.ascontiguousarray(gradient.T, dtype=np.float64)
        mixing = rng.normal(size=(DIRECTIONS, L)).astype(np.float32)
        return np.asarray(mixing @ gradient.T, dtype=np.float64)

    def leaf_values(self, leaf: Codes, n_leaves: int, shrinkage: float) -> Floats:
        leaf, p, L = leaf[: self._n], self._p[: self._n], self._p.shape[1]
        order = np.argsort(leaf, kind="stable")
        ordered = leaf[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        p = p[order]
        expected, curvature = np.zeros((n_leaves, L)), np.zeros((n_leaves, L))
        expected[ordered[starts]] = np.add.reduceat(p, starts, axis=0)
        curvature[ordered[starts]] = np.add.reduceat(p * (1 - p), starts, axis=0)
        places = torch.from_numpy(leaf * np.int64(L) + self._levels[: self._n])
        found = torch.bincount(places, minlength=n_leaves * L).numpy().reshape(n_leaves, L)
        return np.asarray((L - 1) / L * (found - expected) / (curvature + shrinkage), dtype=np.float32)

    def add(self, leaf: Codes, values: Floats) -> None:
        self._scores += values[leaf]
        self._predict()

    def held_out(self) -> float:
        p = self._p[self._n :]
        if not len(p):
            return math.nan
        right = p[np.arange(len(p)), self._levels[self._n :]]
        return float(-np.log(np.maximum(right, 1e-6)).mean())


def boost(
    codes: Codes,
    n_train: int,
    loss: Loss,
    growing: Growing,
    rng: np.random.Generator,
    out_of_time: Callable[[], bool],
) -> Forest:
    """Grow trees, each on what those before it left over, until held-out rows gain nothing more.

    Shape: codes [F, n], of which the first n_train rows, in random order, are learnt from, others held out.
    """
    depth, n_leaves = growing.depth, 1 << growing.depth
    questions: list[Questions] = []
    leaves: list[Floats] = []
    best, n_best = loss.held_out(), 0
    m = min(MOST_ROWS_OF_A_TREE, n_train)
    asked_levels = min(depth, max(1, int(math.log2(max(2.0, m / ROWS_OF_A_LEAF)))))
    search = Search(codes[:, :n_train], growing.shrinkage)
    while len(leaves) < growing.n_trees and not out_of_time():
        first = int(rng.integers(n_train - m + 1))
        rows = slice(first, first + m)
        asked = search.questions(rows, loss.directions(rows, rng), asked_levels)
        asked += [NO_QUESTION] * (depth - asked_levels)
        leaf = answer(codes, asked)
        values = growing.learning_rate * loss.leaf_values(leaf, n_leaves, growing.shrinkage)
        values = (np.round(values / LEAF_UNIT) * LEAF_UNIT).astype(np.float32)
        loss.add(leaf, values)
        questions.append(asked)
        leaves.append(values)
        now = loss.held_out()
        if math.isnan(now) or now < best:
            best, n_best = now, len(leaves)
        elif len(leaves) - n_best >= PATIENCE:
            break
    kept = np.array(questions[:n_best], dtype=np.int64).reshape(n_best, depth, 3)
    return Forest(
        features=kept[..., 0],
        thresholds=kept[..., 1].astype(np.uint8),
        unknown_above=kept[..., 2] > 0,
        leaves=np.array(leaves[:n_best], dtype=np.float32).reshape(n_best, n_leaves, loss.n_values),
    )


def answer(codes: Codes, questions: Questions) -> Codes:
    """Give the leaf of every row. Shape: codes [F, n] -> [n]."""
    leaf = np.zeros(codes.shape[1], dtype=np.uint8)
    for level, question in enumerate(questions):
        leaf |= _is_above(codes, question).view(np.uint8) << np.uint8(level)
    return leaf


def _is_above(codes: Codes, question: tuple[int, int, int]) -> NDArray[np.bool_]:
    feature, threshold, unknown_above = question
    bit: NDArray[np.bool_] = codes[feature] > threshold
    return bit | (codes[feature] == 0) if unknown_above else bit


class Search:
    """The search for questions: among few thresholds of all features, then among all of the best one.

    Shape: codes [F, n].
    """

    def __init__(self, codes: Codes, shrinkage: float) -> None:
        self._codes, self._shrinkage = codes, shrinkage
        largest = codes.max(axis=1, initial=1).astype(np.int32)
        self._n_fine = int(largest.max()) + 1
        self._stride = -(-largest // COARSE)
        coarse = -(-codes.astype(np.int32) // self._stride[:, None])
        self._n_coarse = COARSE + 1
        self._places: NDArray[np.int32] = (
            coarse + self._n_coarse * np.arange(len(codes), dtype=np.int32)[:, None]
        )

    def questions(self, rows: slice, gradients: Doubles, depth: int) -> Questions:
        """Choose the questions of a tree, one after the other, each for all nodes.

        Shape: gradients [K, m].
        """
        codes, places = self._codes[:, rows], self._places[:, rows]
        F, m = places.shape
        weights = Weights.of(gradients)
        node = np.zeros(m, dtype=np.int32)
        bit = np.zeros(m, dtype=bool)
        histograms: list[Doubles] = []
        chosen: Questions = []
        for level in range(depth):
            shape = (max(1, 1 << level >> 1), F, self._n_coarse)
            if level == 0:
                histograms = [_histogram(places, w, shape) for w in weights.packed]
            else:
                # Only the rows of the smaller side are counted, the others are what is left.
                few = bool(2 * np.count_nonzero(bit) <= m)
                side = np.flatnonzero(bit == few)
                index = places.take(side, axis=1, mode="clip") + node[side] * np.int32(F * self._n_coarse)
                for k, w in enumerate(weights.packed):
                    small = _histogram(index, w[side], shape)
                    rest = histograms[k] - small
                    histograms[k] = np.concatenate([rest, small] if few else [small, rest])
                node[bit] += shape[0]
            gains = weights.gains(histograms, self._shrinkage)
            above, feature, threshold = map(int, np.unravel_index(int(gains.argmax()), gains.shape))
            if self._stride[feature] > 1:
                index = (codes[feature] + node * np.int32(self._n_fine))[None]
                shape = (1 << level, 1, self._n_fine)
                gains = weights.gains([_histogram(index, w, shape) for w in weights.packed], self._shrinkage)
                above, threshold = divmod(int(gains.argmax()), self._n_fine)
            chosen.append((feature, threshold, above))
            bit = _is_above(codes, chosen[-1])
        return chosen


@dataclass
class Weights:
    """Gradients as whole numbers; the first also hold 2^shift, which counts rows. Shape: K of [m]."""

    packed: list[Doubles]
    one_row: float

    @classmethod
    def of(cls, gradients: Doubles) -> Weights:
        m = gradients.shape[1]
        one_row = 2.0 ** (_EXACT_BITS - math.ceil(math.log2(m + 1)))
        largest = max(float(np.abs(gradients).max(initial=0.0)), 1e-30)
        packed = np.round(gradients * (one_row / 4 / largest / m))
        packed[0] += one_row
        return cls(list(packed), one_row)

    def gains(self, histograms: list[Doubles], shrinkage: float) -> Floats:
        """Give what each question explains, unknown cells below or above, in a unit of its own.

        Shape: histograms K of [nodes, F, codes] -> [2, F, codes], float32.
        """
        unit = 4.0 / self.one_row
        for k, histogram in enumerate(histograms):
            left = histogram.cumsum(axis=2)
            both = np.stack([left, left - histogram[:, :, :1]])
            if k == 0:
                n = np.floor(both * (1 / self.one_row) + 0.5)
                both -= n * self.one_row
                g = (both * unit).astype(np.float32)
                n = n.astype(np.float32)
                n_all = n[:1, :, :1, -1:]
                low, high = 1 / (n + np.float32(shrinkage)), 1 / (n_all - n + np.float32(shrinkage))
                total = np.zeros(n.shape, dtype=np.float32)
            else:
                g = (both * unit).astype(np.float32)
            rest = g[:1, :, :1, -1:] - g
            g *= g
            g *= low
            rest *= rest
            rest *= high
            total += g
            total += rest
        return np.asarray(total.sum(axis=1))


def _histogram(index: NDArray[np.int32], weights: Doubles, shape: tuple[int, int, int]) -> Doubles:
    repeated = np.empty(index.shape)
    repeated[:] = weights
    sums = torch.bincount(
        torch.from_numpy(index.reshape(-1)), torch.from_numpy(repeated.reshape(-1)), math.prod(shape)
    )
    return sums.numpy().reshape(shape)

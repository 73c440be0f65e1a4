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

#: Bits of a double that hold whole numbers.
_EXACT_BITS = 52
#: Gradients of so many directions choose the questions, however many levels a category has.
DIRECTIONS = 3
#: Trees without a gain on held-out cells after which growing ends.
PATIENCE = 15
#: Leaves are whole multiples of this: double precision then adds them up exactly, in any order.
LEAF_UNIT = 2.0**-24


@dataclass(frozen=True)
class Growing:
    """How trees grow."""

    n_trees: int
    depth: int
    learning_rate: float
    subsample: float = 0.6
    most_rows: int = 20_000
    """Of a tree."""
    shrinkage: float = 5.0
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

    def directions(self, rows: Places, rng: np.random.Generator) -> Doubles:
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
        self._residual, self._n = y.astype(np.float64), n_train

    def directions(self, rows: Places, rng: np.random.Generator) -> Doubles:
        return self._residual[None, rows]

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
        self._levels, self._n = levels, n_train
        self._scores = np.tile(start, (len(levels), 1))
        self._predict()

    def _predict(self) -> None:
        p = np.exp(self._scores - self._scores.max(axis=1, keepdims=True))
        self._p = p / p.sum(axis=1, keepdims=True)

    def directions(self, rows: Places, rng: np.random.Generator) -> Doubles:
        gradient = -self._p[rows]
        gradient[np.arange(len(rows)), self._levels[rows]] += 1
        L = gradient.shape[1]
        if L <= DIRECTIONS + 1:
            # They sum to zero: the last follows from the others.
            return gradient.T[: max(1, L - 1)].astype(np.float64)
        mixing = rng.normal(size=(DIRECTIONS, L)).astype(np.float32)
        return (mixing @ gradient.T).astype(np.float64)

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
        return ((L - 1) / L * (found - expected) / (curvature + shrinkage)).astype(np.float32)

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

    Shape: codes [F, n]; rows after the first n_train are held out.
    """
    depth, n_leaves = growing.depth, 1 << growing.depth
    features, thresholds, above, leaves = [], [], [], []
    best, n_best = loss.held_out(), 0
    n_rows = max(1, min(growing.most_rows, round(growing.subsample * n_train)))
    offsets = ((int(codes.max(initial=0)) + 1) * np.arange(len(codes), dtype=np.int32))[:, None]
    n_codes = int(codes.max(initial=0)) + 1
    while len(leaves) < growing.n_trees and not out_of_time():
        rows = np.sort(rng.choice(n_train, n_rows, replace=False, shuffle=False))
        places = codes.take(rows, axis=1) + offsets
        f, t, u = _questions(places, n_codes, loss.directions(rows, rng), depth, growing.shrinkage)
        leaf = answer(codes, f, t, u)
        values = growing.learning_rate * loss.leaf_values(leaf, n_leaves, growing.shrinkage)
        values = (np.round(values / LEAF_UNIT) * LEAF_UNIT).astype(np.float32)
        loss.add(leaf, values)
        features.append(f)
        thresholds.append(t)
        above.append(u)
        leaves.append(values)
        now = loss.held_out()
        if math.isnan(now) or now < best:
            best, n_best = now, len(leaves)
        elif len(leaves) - n_best >= PATIENCE:
            break
    some = slice(0, n_best)
    return Forest(
        np.array(features[some], dtype=np.int64).reshape(-1, depth),
        np.array(thresholds[some], dtype=np.uint8).reshape(-1, depth),
        np.array(above[some], dtype=bool).reshape(-1, depth),
        np.array(leaves[some], dtype=np.float32).reshape(n_best, n_leaves, -1),
    )


def answer(codes: Codes, features: Places, thresholds: Codes, unknown_above: NDArray[np.bool_]) -> Codes:
    """Give the leaf of every row. Shape: codes [F, n] -> [n]."""
    leaf = np.zeros(codes.shape[1], dtype=np.uint8)
    for level, (f, t, u) in enumerate(zip(features, thresholds, unknown_above, strict=True)):
        bit = (codes[f] > t) | (codes[f] == 0) if u else codes[f] > t
        leaf |= bit.view(np.uint8) << np.uint8(level)
    return leaf


def _questions(
    places: NDArray[np.int32], n_codes: int, gradients: Doubles, depth: int, shrinkage: float
) -> tuple[Places, Codes, NDArray[np.bool_]]:
    """Choose the questions of a tree, one after the other, each for all nodes.

    Shape: places [F, m] in a histogram of F x n_codes, gradients [K, m].
    """
    F, m = places.shape
    size = F * n_codes
    shift, unit, packed = _pack(gradients)
    whole, parts = 2.0**shift, [unit] * len(packed)
    node = np.zeros(m, dtype=np.int32)
    features = np.zeros(depth, dtype=np.int64)
    thresholds = np.zeros(depth, dtype=np.uint8)
    above = np.zeros(depth, dtype=bool)
    histograms: list[Doubles] = []
    bit = np.zeros(m, dtype=bool)
    for level in range(depth):
        nodes = 1 << level
        if level == 0:
            histograms = [_histogram(places, w, 1, F, n_codes) for w in packed]
        else:
            # Only the rows of the smaller side are counted, the others are what is left.
            few = bool(2 * np.count_nonzero(bit) <= m)
            rows = np.flatnonzero(bit == few)
            index = places.take(rows, axis=1) + node[rows] * np.int32(size)
            for k, weights in enumerate(packed):
                small = _histogram(index, weights[rows], nodes >> 1, F, n_codes)
                rest = histograms[k] - small
                histograms[k] = np.concatenate([rest, small] if few else [small, rest])
            node += (bit * np.int32(nodes >> 1)).astype(np.int32)
        f, t, u = _best_question(histograms, whole, parts, shrinkage)
        features[level], thresholds[level], above[level] = f, t, u
        code = places[f] - np.int32(f * n_codes)
        bit = (code > t) | (code == 0) if u else code > t
    return features, thresholds, above


def _pack(gradients: Doubles) -> tuple[int, float, list[Doubles]]:
    """Round gradients to multiples of a unit; add 2^shift, which counts rows, to those of the first."""
    m = gradients.shape[1]
    shift = _EXACT_BITS - math.ceil(math.log2(m + 1))
    unit = max(float(np.abs(gradients).max(initial=0.0)), 1e-30) * m / 2.0 ** (shift - 2)
    whole = np.round(gradients / unit)
    whole[0] += 2.0**shift
    return shift, unit, list(whole)


def _histogram(index: NDArray[np.int32], weights: Doubles, nodes: int, F: int, n_codes: int) -> Doubles:
    repeated = np.tile(weights, len(index))
    counts = torch.bincount(
        torch.from_numpy(index.reshape(-1)), torch.from_numpy(repeated), nodes * F * n_codes
    )
    return counts.numpy().reshape(nodes, F, n_codes)


def _best_question(
    histograms: list[Doubles], whole: float, units: list[float], shrinkage: float
) -> tuple[int, int, bool]:
    """Give feature, threshold, and whether unknown cells are above it. Shape: K of [nodes, F, codes]."""
    total = np.zeros(0)
    for k, (histogram, unit) in enumerate(zip(histograms, units, strict=True)):
        left = histogram.cumsum(axis=2)  # unknown cells below
        both = np.stack([left, left - histogram[:, :, :1]])  # ... or above
        if k == 0:
            n = np.floor(both / whole + 0.5)
            g = both - n * whole
            n_all, g_all = n[:1, :, :1, -1:], g[:1, :, :1, -1:]
            low, high = 1 / (n + shrinkage), 1 / (n_all - n + shrinkage)
        else:
            g, g_all = both, both[:1, :, :1, -1:]
        gain = ((g * g * low + np.square(g_all - g) * high).sum(axis=1)) * unit**2  # [2, F, codes]
        total = gain if k == 0 else total + gain
    u, f, t = np.unravel_index(int(total.argmax()), total.shape)
    return int(f), int(t), bool(u)

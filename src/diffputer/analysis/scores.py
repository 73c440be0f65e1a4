"""Scores of draws against the truth: how sharp they are, and whether they mean what they say.

References: Gneiting and Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation" (JASA 2007), for
the CRPS and the energy score; Ferro, "Fair scores for ensemble forecasts" (QJRMS 2014), for estimators that
do not reward the number of draws; Dawid, "Statistical theory: the prequential approach" (JRSS A 1984), for
the probability integral transform; Hamill (Monthly Weather Review 2001) for rank histograms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, SettingError

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


def end_rank(n_draws: int, level: float = 0.9) -> int:
    """Say which draws, counted from the smallest and from the largest, are the ends of an interval.

    A value drawn like the n others is as likely to have any of the n + 1 ranks, so that it lies between
    the k-th smallest and the k-th largest with probability 1 - 2 k / (n + 1): exactly, for any n of which
    k is whole. Quantiles of few draws, interpolated, would cover less than they say.

    Examples
    --------
    >>> end_rank(19), end_rank(39), end_rank(99)
    (1, 2, 5)
    """
    k = (n_draws + 1) * (1 - level) / 2
    if n_draws < 1 or k < 0.5 or abs(k - round(k)) > 1e-9:
        raise SettingError(
            f"Two of the draws must have {level:.0%} of the probability between them (for 90% draw 19, "
            f"39, 59, ... times), however: of {n_draws:,} no two have. Change the draws or the level."
        )
    return round(k)


def covered(truth: Floats, draws: Floats, level: float = 0.9) -> Booleans:
    """Say of each cell whether it lies inside the interval between two of its draws.

    With 19, 39, 59, ... draws 90 % have draws for ends, see `end_rank`. Else an end lies between two draws,
    and a cell between these is inside by chance, as often as makes the probability exact: of 20 draws, one
    below the smallest never, one between it and the next 19 times of 20. (`Imputations.interval`, which
    must name its ends, interpolates.)

    A cell that equals draws, zeros say, is above or below them by chance: an interval that ends at such a
    value would otherwise hold all of it, and the draws of a column with spikes would seem too wide.

    Shape: truth [m], draws [N, m] -> [m].

    Examples
    --------
    >>> draws = np.arange(1.0, 40.0)[:, None].repeat(4, axis=1)
    >>> covered(np.array([1.9, 2.1, 37.9, 38.1]), draws)
    array([False,  True,  True, False])
    """
    truth, draws = _read(truth, draws, "[m]")
    if not 0 < level < 1:
        raise SettingError(f"A level must lie between 0 and 1, however: it is {level!r}. 0.9 is 90 %.")
    n, rng = len(draws), np.random.default_rng(0)
    place = _ranks(truth, draws, rng) + rng.uniform(size=len(truth))
    k = (n + 1) * (1 - level) / 2
    inside: Booleans = (place >= k) & (place <= n + 1 - k)
    return inside


def coverage(truth: Floats, draws: Floats, level: float = 0.9) -> float:
    """Give the share of cells inside the interval between two draws, see `covered`.

    Of values drawn like the draws it is the level on average, whatever the number of draws.

    Shape: truth [m], draws [N, m].

    Examples
    --------
    >>> draws = np.arange(1.0, 40.0)[:, None].repeat(4, axis=1)
    >>> coverage(np.array([1.9, 2.1, 37.9, 38.1]), draws)
    0.5
    """
    return float(covered(truth, draws, level).mean())


def crps(truth: Floats, draws: Floats, *, fair: bool = True) -> float:
    """Give the continuous ranked probability score, averaged over cells: smaller is better.

    E|X - y| - E|X - X'| / 2. Fair: the second mean is over pairs of *different* draws, so that the number
    of draws does not change what the score is on average; it needs two draws or more. Otherwise, that of
    the ensemble itself: the mean is over all pairs, and of a single value it is the absolute error.

    Shape: truth [m], draws [N, m].

    Examples
    --------
    >>> truth, draws = np.array([0.0]), np.array([[1.0], [3.0]])
    >>> crps(truth, draws), crps(truth, draws, fair=False)
    (1.0, 1.5)
    """
    truth, draws = _read(truth, draws, "[m]")
    n = len(draws)
    _check_draws(n, fair)
    # With draws in order the sum of x_j - x_i over pairs i < j is that of (2 i - n - 1) x_i, i from 1.
    weight = 2.0 * np.arange(1, n + 1) - n - 1
    between = weight @ np.sort(draws, axis=0) / (n * (n - 1 if fair else n))
    return float((np.abs(draws - truth).mean(axis=0) - between).mean())


def energy_score(truth: Floats, draws: Floats, *, fair: bool = True) -> float:
    """Give the energy score of draws of whole rows, averaged over rows: smaller is better.

    E‖X - y‖ - E‖X - X'‖ / 2 with the Euclidean norm: the CRPS of rows, which also sees whether cells are
    drawn together. `diffputer.analysis.views.points_of` places the rows of mixed tables.

    Shape: truth [n, d], draws [N, n, d].

    Examples
    --------
    >>> energy_score(np.array([[0.0, 0.0]]), np.array([[[3.0, 4.0]], [[3.0, 4.0]]]))
    5.0
    """
    truth, draws = _read(truth, draws, "[n, d]")
    n = len(draws)
    _check_draws(n, fair)
    to_truth = np.linalg.norm(draws - truth, axis=2).mean(axis=0)
    between = np.zeros(len(truth))
    for later in range(1, n):
        between += np.linalg.norm(draws[:later] - draws[later], axis=2).sum(axis=0)
    return float((to_truth - between / (n * (n - 1 if fair else n))).mean())


def level_score(truth: NDArray[np.int64], draws: NDArray[np.int64], *, fair: bool = True) -> float:
    """Give the energy score of draws of levels, two different ones being at distance 1: smaller is better.

    With shares p of the levels among the draws it is half the Brier score, sum of (p_k - 1{y = k})² / 2.

    Shape: truth [m], draws [N, m], codes of levels.

    Examples
    --------
    >>> level_score(np.array([0]), np.array([[0], [1]]), fair=False)
    0.25
    """
    truth, draws = np.asarray(truth), np.asarray(draws)
    _check_shapes(truth, draws, "[m]")
    n = len(draws)
    _check_draws(n, fair)
    wrong = (draws != truth).mean(axis=0)
    between = np.zeros(len(truth))
    for later in range(1, n):
        between += (draws[:later] != draws[later]).sum(axis=0)
    return float((wrong - between / (n * (n - 1 if fair else n))).mean())


def probability_transform(truth: Floats, draws: Floats, rng: np.random.Generator | int = 0) -> Floats:
    """Give the probability integral transform of each cell: uniform on (0, 1) if the draws are right.

    (rank + U) / (N + 1), where the rank counts the draws below the truth, one among equal draws has any of
    the ranks they share, and U is uniform: exactly uniform whatever the number of draws and the ties.

    Shape: truth [m], draws [N, m] -> [m].

    Examples
    --------
    >>> probability_transform(np.array([0.0, 9.0]), np.arange(1.0, 10.0)[:, None].repeat(2, axis=1)).round(1)
    array([0. , 0.9])
    """
    truth, draws = _read(truth, draws, "[m]")
    generator = np.random.default_rng(rng)
    ranks = _ranks(truth, draws, generator)
    u: Floats = (ranks + generator.uniform(size=len(truth))) / (len(draws) + 1)
    return u


def rank_histogram(truth: Floats, draws: Floats, bins: int = 10) -> list[int]:
    """Count the cells whose rank among their draws falls into each of some equal bins.

    A cell among equal draws gets one of the ranks they share, by a generator of its own. Draws like the
    truth give level bins; a heap in the middle means draws too wide, heaps at the ends too narrow.

    Shape: truth [m], draws [N, m]; N + 1 must be a multiple of bins.

    Examples
    --------
    >>> rank_histogram(np.array([0.5, 9.5, 99.0]), np.arange(1.0, 20.0)[:, None].repeat(3, axis=1))
    [1, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    """
    truth, draws = _read(truth, draws, "[m]")
    n_ranks = len(draws) + 1
    if n_ranks % bins:
        raise SettingError(f"{bins} bins must divide {n_ranks} ranks evenly, however: they do not.")
    counts = np.bincount(_ranks(truth, draws) * bins // n_ranks, minlength=bins)
    return [int(count) for count in counts]


def _ranks(truth: Floats, draws: Floats, rng: np.random.Generator | int = 0) -> NDArray[np.int64]:
    """Count the draws below each cell; one among equal draws gets any of the ranks they share.

    Shape: truth [m], draws [N, m] -> [m].
    """
    below, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    ranks: NDArray[np.int64] = below + np.random.default_rng(rng).integers(0, equal + 1)
    return ranks


def _read(truth: Any, draws: Any, expected: str) -> tuple[Floats, Floats]:
    """Give both as numbers; refuse others: a single NaN would make a score NaN or, unseen, wrong."""
    arrays = []
    for name, given in (("truth", truth), ("draws", draws)):
        try:
            arrays.append(np.asarray(given, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The {name} must be numbers, however: {error}. Give arrays, or lists of equal length."
            ) from error
    _check_shapes(arrays[0], arrays[1], expected)
    for name, array in zip(("truth", "draws"), arrays, strict=True):
        if bad := int((~np.isfinite(array)).sum()):
            raise InputError(
                f"Scores need finite numbers, however: {bad:,} of the {name} {'is' if bad == 1 else 'are'} "
                "missing or infinite. Score the cells whose truth is known, and draws that fill them."
            )
    return arrays[0], arrays[1]


def _check_shapes(truth: NDArray[Any], draws: NDArray[Any], expected: str) -> None:
    """Refuse draws that are not of the cells of the truth: they would be broadcast, or fail far from here."""
    shape, of_draws = np.shape(truth), np.shape(draws)
    if len(shape) != expected.count(",") + 1 or of_draws[1:] != shape or len(of_draws) != len(shape) + 1:
        raise InputError(
            f"The truth must have the shape {expected} and the draws [N, {expected[1:]}, however: the shapes "
            f"are {list(shape)} and {list(of_draws)}. Give each draw the cells of the truth."
        )
    if not np.size(truth) or not np.size(draws):
        raise InputError(
            "Scores need a cell and a draw of it, however: there is none. Hide some known cells."
        )


def _check_draws(n_draws: int, fair: bool) -> None:
    if n_draws < 1 + fair:
        raise SettingError(
            f"A {'fair ' * fair}score needs {'two draws' if fair else 'a draw'} or more, however: there "
            f"{'is' if n_draws == 1 else 'are'} {n_draws}. Draw more{', or pass fair=False' * fair}."
        )

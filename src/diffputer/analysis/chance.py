"""How far two samples of one distribution lie apart by chance: a permutation test of differences.

Reference: Pitman, "Significance tests which may be applied to samples from any populations" (JRSS Supplement
1937): whatever the distribution, samples of it lie no further apart than what shuffling gives.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .views import centre_and_deviation

Floats = NDArray[np.float64]

SHUFFLES = 499
MOST_CELLS = 2_000  # of each sample: of larger ones, chance is told of so many, which overstates it


def probabilities(
    observed: Floats, filled: Floats, found: tuple[float, float, float], *, ordered: bool, seed: int
) -> tuple[float, float, float]:
    """Give the probability that chance alone would set two samples so far apart, in each of three ways.

    Parameters
    ----------
    observed, filled
        Numbers, or codes of levels.
    found
        Difference of means in standard deviations of the first, ratio of standard deviations, and distance:
        of Kolmogorov and Smirnov if ``ordered``, else total variation. NaN where there is none.
    ordered
        Whether they are numbers.
    seed
        Of the shuffles.

    Returns
    -------
    tuple of float
        In the same order; 1 where nothing was found.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=200)
    >>> probabilities(x[:100], x[100:] + 1, (1.1, 1.0, 0.4), ordered=True, seed=0)[0]
    0.002
    >>> probabilities(x[:100], x[100:], (0.1, 1.0, 0.1), ordered=True, seed=0)[0] > 0.1
    True
    """
    rng = np.random.default_rng(seed)
    sizes = [min(part.size, MOST_CELLS) for part in (observed, filled)]
    pool = np.concatenate([observed, filled])
    if pool.size > sum(sizes):
        pool = rng.choice(pool, sum(sizes), replace=False)
    values, counts = np.unique(pool, return_counts=True)
    second = rng.multivariate_hypergeometric(counts, sizes[1], size=SHUFFLES, method="count")
    shares = [(counts - second) / sizes[0], second / sizes[1]]  # [shuffles, values] each
    gaps = shares[1] - shares[0]
    if not ordered:
        return 1.0, 1.0, _share_of_larger(np.abs(gaps).sum(axis=1) / 2, found[2])
    centre, deviation = centre_and_deviation(pool)
    z = (values - centre) / deviation
    means = [part @ z for part in shares]
    deviations = [
        np.sqrt(np.maximum(part @ z**2 - mean**2, 0.0)) for part, mean in zip(shares, means, strict=True)
    ]
    unit = np.where(deviations[0] > 1e-9, deviations[0], 1.0)
    spreads = np.maximum(deviations[1] / unit, 1e-9)
    return (
        _share_of_larger(np.abs(means[1] - means[0]) / unit, abs(found[0])),
        _share_of_larger(np.abs(np.log(spreads)), abs(math.log(max(found[1], 1e-9)))),
        _share_of_larger(np.abs(np.cumsum(gaps, axis=1)).max(axis=1), found[2]),
    )


def _share_of_larger(by_chance: Floats, found: float) -> float:
    """The share that is as large as what was found, which counts as one of them; rounding is forgiven."""
    if math.isnan(found):
        return 1.0
    return (1 + int((by_chance >= found - 1e-9).sum())) / (len(by_chance) + 1)

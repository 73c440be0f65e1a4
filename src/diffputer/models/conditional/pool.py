"""The pool: experts' means and distributions become one, chosen on held-out cells.

Means are weighted so that their squared error is least. Distributions are weighted so that held-out cells
are most probable (a linear pool, by EM for a mixture of fixed components). Such a mixture is wider than the
truth, and its mean is not as good as the weighted mean. So it is sharpened twice: by a temperature,
p^(1 / T) renormalised, and by normal kernels around the weighted mean, whose standard deviations are
fractions of the mixture's and whose weights the same EM finds. Inside a class of the support the density is
a normal one around the mean, too.

Everything is shrunk towards what all columns share, so that few cells do not decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor, nn

from ...nn.loading import require, require_between
from ..base import Cells, Predictive
from .support import FAINTEST, Support

Floats = NDArray[np.float64]

#: Held-out cells that common weights count as much as: of distributions, of means, of temperatures.
PRIOR_CELLS, MEAN_PRIOR_CELLS, TEMPERATURE_PRIOR_CELLS = 20.0, 40.0, 100.0
#: Steps of EM for the weights of distributions.
ROUNDS = 200
#: Temperatures that are tried, and beforehand the standard deviation of their logarithms above 1:
#: kernels make up for nearly any, and standard deviations of Gaussian columns were up to 9 % too large.
TEMPERATURES = (0.35, 0.42, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5)
LOG_TEMPERATURE_STD = 0.15
#: Standard deviations of the kernels around the mean, in those of the mixture.
KERNELS = (0.225, 0.45, 0.9)
#: The same for the density inside a class; 0 is an even one.
INNER = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
#: Parts of a class in which that density is compared with held-out cells.
PARTS = 4
#: Probabilities are at least this where logarithms are taken.
SMALLEST = 1e-6


class Pool(nn.Module):
    """Weights of K experts, the first N of them networks, for p numeric and q categorical columns.

    Shape: mean_weights [K + N, p] (the means of experts, then those of the networks' distributions),
    weights [K, p + q], kernel_weights [1 + kernels, p] (the mixture comes first), temperature [p + q],
    inner [p].
    """

    mean_weights: Tensor
    weights: Tensor
    kernel_weights: Tensor
    temperature: Tensor
    inner: Tensor

    def __init__(self, n_experts: int, n_networks: int, n_numeric: int, n_categorical: int) -> None:
        super().__init__()
        self.p, self.n_networks = n_numeric, n_networks
        c, means = n_numeric + n_categorical, n_experts + n_networks
        self.register_buffer("mean_weights", torch.full((means, n_numeric), 1 / means))
        self.register_buffer("weights", torch.full((n_experts, c), 1 / n_experts))
        self.register_buffer("kernel_weights", torch.zeros(1 + len(KERNELS), n_numeric))
        self.kernel_weights[0] = 1.0
        self.register_buffer("temperature", torch.ones(c))
        self.register_buffer("inner", torch.zeros(n_numeric))

    def check_values(self) -> None:
        """Raise ValueError unless weights are weights."""
        for name in ("weights", "mean_weights", "kernel_weights"):
            weights = getattr(self, name)
            require_between(0, 1, **{name: weights})
            require((weights.sum(dim=0) - 1).abs() < 1e-3, "weights of a column must sum up to one")
        require_between(0.1, 10, temperature=self.temperature)
        require_between(0, 10, inner=self.inner)

    def use_networks_alone(self) -> None:
        """Leave out the other experts, whose worth no held-out cells tell."""
        for weights in (self.weights, self.mean_weights):
            weights.zero_()
            weights[: self.n_networks] = 1 / self.n_networks

    @torch.no_grad()
    def fit(
        self, experts: Sequence[Predictive], cells: Cells, support: Support, x: Tensor, levels: Tensor
    ) -> None:
        """Choose everything on held-out cells.

        They are few: all sums are taken on a CPU, where they have the same bits every time.

        Shape: x [m], levels [n, q].
        """
        if len(cells):
            means = self._means(experts, cells, support).cpu().double()
            bins = [None if one.bins is None else one.bins.cpu().double() for one in experts]
            self._fit_numeric(means, bins, _HeldOut(support, cells.columns, x))
        if cells.levels.any():
            self._fit_categories([one.levels for one in experts], levels, cells.levels)

    def _fit_numeric(self, means: Tensor, bins: list[Tensor | None], cells: _HeldOut) -> None:
        """Shape: means [K + N, m], bins K of [m, B] or none."""
        p, columns = self.p, cells.columns
        self.mean_weights.copy_(stack_means(means - cells.x, columns, p))
        mean = (self.mean_weights.cpu()[:, columns] * means).sum(dim=0)
        # An expert without a distribution of numbers has no weight.
        absent = torch.zeros_like(cells.x)
        likelihood = torch.stack([absent if one is None else cells.likelihood(one) for one in bins])
        weights = stack_distributions(likelihood, columns, p)
        self.weights[:, :p] = weights
        mixed = torch.stack(
            [w[columns, None] * one for w, one in zip(weights, bins, strict=True) if one is not None]
        ).sum(dim=0)
        surprises, kernel_weights, stds = [], [], []
        for temperature in TEMPERATURES:
            some = tempered(mixed, mixed.new_tensor(temperature))
            std = cells.std(some)
            parts = [cells.likelihood(some), *(cells.likelihood_of_normal(mean, k * std) for k in KERNELS)]
            likelihood = torch.stack(parts)
            found = stack_distributions(likelihood, columns, p)
            surprises.append(_sum_by(-(found[:, columns] * likelihood).sum(dim=0).log(), columns, p))
            kernel_weights.append(found)
            stds.append(std)
        best = _least(torch.stack(surprises) + _surprise_of_temperatures(), len(columns))
        self.temperature[:p] = self.temperature.new_tensor(TEMPERATURES)[best]
        self.kernel_weights.copy_(torch.stack(kernel_weights)[best, :, torch.arange(p)].T)
        std = torch.stack(stds)[best[columns], torch.arange(len(columns))]
        surprises = [_sum_by(cells.surprise_inside(mean, width * std), columns, p) for width in INNER]
        best = _least(torch.stack(surprises), len(columns))
        self.inner.copy_(self.inner.new_tensor(INNER)[best])

    def _fit_categories(self, experts: list[list[Tensor]], levels: Tensor, held: Tensor) -> None:
        """Shape: K times q of [n, L], levels, held [n, q]."""
        q = levels.shape[1]
        true = [levels[held[:, j], j].cpu() for j in range(q)]
        known = [torch.stack([one[j][held[:, j]].cpu().double() for one in experts]) for j in range(q)]
        likelihood = torch.cat([one[:, range(len(t)), t] for one, t in zip(known, true, strict=True)], dim=1)
        columns = torch.cat([torch.full((len(one),), j) for j, one in enumerate(true)])
        weights = stack_distributions(likelihood.clamp_min(SMALLEST), columns, q)
        self.weights[:, self.p :] = weights
        surprises = torch.zeros(len(TEMPERATURES), q, dtype=torch.float64)
        for j, (one, t) in enumerate(zip(known, true, strict=True)):
            mixed = (weights[:, j, None, None] * one).sum(dim=0)
            for k, temperature in enumerate(TEMPERATURES):
                right = tempered(mixed, mixed.new_tensor(temperature))[range(len(t)), t]
                surprises[k, j] = -right.clamp_min(SMALLEST).log().sum()
        best = _least(surprises + _surprise_of_temperatures(), len(columns))
        self.temperature[self.p :] = self.temperature.new_tensor(TEMPERATURES)[best]

    def _means(self, experts: Sequence[Predictive], cells: Cells, support: Support) -> Tensor:
        """All means of numbers that are weighted. Shape: -> [K + N, m]."""
        networks = experts[: self.n_networks]
        of_bins = [support.mean(one.bins, cells.columns) for one in networks if one.bins is not None]
        return torch.stack([*(one.mean for one in experts), *of_bins])

    def forward(self, experts: Sequence[Predictive], cells: Cells, support: Support) -> Predictive:
        """The pooled, calibrated distributions of cells."""
        p, columns = self.p, cells.columns
        levels = []
        for j in range(self.weights.shape[1] - p):
            parts = [w[p + j] * one.levels[j] for w, one in zip(self.weights, experts, strict=True)]
            levels.append(tempered(torch.stack(parts).sum(dim=0), self.temperature[p + j]))
        if not p:
            return Predictive(experts[0].mean, experts[0].bins, levels)
        mean = (self.mean_weights[:, columns] * self._means(experts, cells, support)).sum(dim=0)
        bins: Tensor | None = None
        for w, one in zip(self.weights, experts, strict=True):
            if one.bins is not None:
                part = w[columns, None] * one.bins
                bins = part if bins is None else bins.add_(part)
        assert bins is not None
        bins = tempered(bins, self.temperature[columns, None])
        std = support.std(bins, columns)
        bins = self.kernel_weights[0, columns, None] * bins
        for w, width in zip(self.kernel_weights[1:], KERNELS, strict=True):
            kernel = support.normal_probabilities(mean, (width * std).clamp_min(1e-6), support.edges[columns])
            bins = bins.add_(kernel.mul_(w[columns, None]))
        return Predictive(mean, bins, levels, inner=self.inner[columns] * std)


class _HeldOut:
    """m held-out cells of numeric columns, on a CPU. Shape: columns, x, classes [m]."""

    def __init__(self, support: Support, columns: Tensor, x: Tensor) -> None:
        borders = support.borders[columns]
        classes = (support.edges[columns] < x[:, None]).sum(dim=1)
        low, high = (borders.gather(1, classes[:, None] + k)[:, 0] for k in (0, 1))
        # The outermost classes have no end for a normal distribution.
        low = torch.where(classes == 0, -torch.inf, low)
        high = torch.where(classes == support.n_classes[columns] - 1, torch.inf, high)
        parts, place = support.parts_of(columns, classes, x, PARTS)
        self.columns, self.classes, self._place = columns.cpu(), classes.cpu(), place.cpu()
        self.x, self._low, self._high, self._parts, self._means, self._variances = (
            values.cpu().double()
            for values in (x, low, high, parts, support.means[columns], support.variances[columns])
        )
        self._is_bin = self._variances.gather(1, self.classes[:, None])[:, 0] > 0

    def likelihood(self, bins: Tensor) -> Tensor:
        """Probability of the true class. Shape: [m, B] -> [m]."""
        return bins.gather(1, self.classes[:, None])[:, 0].clamp_min(SMALLEST)

    def likelihood_of_normal(self, mean: Tensor, std: Tensor) -> Tensor:
        """The same of normal distributions. Shape: [m], [m] -> [m]."""
        std = std.clamp_min(1e-6)
        high, low = (torch.special.ndtr((end - mean) / std) for end in (self._high, self._low))
        likelihood: Tensor = (high - low).clamp_min(SMALLEST)
        return likelihood

    def std(self, bins: Tensor) -> Tensor:
        """Standard deviations. Shape: [m, B] -> [m]."""
        far = self._means - (bins * self._means).sum(dim=1, keepdim=True)
        return (bins * (self._variances + far.square())).sum(dim=1).clamp_min(0).sqrt()

    def surprise_inside(self, mean: Tensor, std: Tensor) -> Tensor:
        """How surprising the part of its class is in which the value lies. Shape: [m], [m] -> [m]."""
        even = torch.full_like(mean, 1 / PARTS)
        below = torch.special.ndtr((self._parts - mean[:, None]) / std.clamp_min(1e-9)[:, None])
        within = (below[:, -1] - below[:, 0]).clamp_min(1e-12)
        own = below.diff(dim=1).gather(1, self._place[:, None])[:, 0] / within
        probability = torch.where((std > 0) & (within > FAINTEST), own, even)
        return torch.where(self._is_bin, -probability.clamp_min(1e-3).log(), 0.0)


def tempered(probabilities: Tensor, temperature: Tensor) -> Tensor:
    """p^(1 / T), renormalised. Shape: [..., B], broadcast with the temperature."""
    return (probabilities.clamp_min(1e-12).log() / temperature).softmax(dim=-1)


def stack_distributions(likelihood: Tensor, columns: Tensor, n_columns: int) -> Tensor:
    """Mixture weights per column that maximise the likelihood of cells, shrunk to common ones.

    An expert without any likelihood has no weight.

    Shape: likelihood [K, m], columns [m] -> [K, columns].
    """
    able = (likelihood.sum(dim=1, keepdim=True) > 0).to(likelihood.dtype)
    weights = (able / able.sum()).expand(-1, n_columns)
    for _ in range(ROUNDS):
        shares = weights[:, columns] * likelihood
        shares = shares / shares.sum(dim=0).clamp_min(1e-30)
        counts = torch.stack([_sum_by(one, columns, n_columns) for one in shares])
        common = counts.sum(dim=1, keepdim=True) / max(1, len(columns))
        counts = counts + PRIOR_CELLS * common
        weights = counts / counts.sum(dim=0)
    return weights


def stack_means(errors: Tensor, columns: Tensor, n_columns: int) -> Tensor:
    """Weights of means with the least squared error, not negative, shrunk to common ones.

    Shape: errors [M, m], columns [m] -> [M, columns].
    """
    M = len(errors)
    products = torch.stack(
        [_sum_by(errors[k] * errors[other], columns, n_columns) for k in range(M) for other in range(M)]
    )
    squares = products.view(M, M, n_columns).permute(2, 0, 1)
    # Columns count alike: the common weights are those of relative errors.
    best = squares.diagonal(dim1=1, dim2=2).min(dim=1).values.clamp_min(1e-30)
    relative = (squares / best[:, None, None]).numpy()
    counts = torch.bincount(columns, minlength=n_columns).numpy()
    common = _simplex_least_squares(relative[counts > 0].mean(axis=0), np.zeros(M))
    weights = np.tile(common[:, None], n_columns)
    for j in np.flatnonzero(counts):
        prior = MEAN_PRIOR_CELLS / counts[j]
        weights[:, j] = _simplex_least_squares(relative[j] + prior * np.eye(M), prior * common)
    return torch.from_numpy(weights)


def _simplex_least_squares(H: Floats, g: Floats) -> Floats:
    """The w >= 0 with sum 1 that minimises w'Hw - 2 g'w. Shape: [M, M], [M] -> [M]."""
    root = np.linalg.cholesky(H + 1e-9 * np.trace(H) * np.eye(len(H)))
    sum_to_one = 1e3
    left = np.vstack([root.T, np.full(len(H), sum_to_one)])
    weights, _ = nnls(left, np.append(np.linalg.solve(root, g), sum_to_one))
    normalised: Floats = weights / weights.sum()
    return normalised


def _sum_by(values: Tensor, columns: Tensor, n_columns: int) -> Tensor:
    """Sums over the cells of each column. Shape: [m], [m] -> [columns]."""
    return torch.bincount(columns, values, minlength=n_columns)


def _surprise_of_temperatures() -> Tensor:
    """How surprising a temperature is beforehand. Shape: -> [temperatures, 1]."""
    logarithms = torch.tensor(TEMPERATURES, dtype=torch.float64).log().clamp_min(0)
    return (logarithms / LOG_TEMPERATURE_STD).square()[:, None] / 2


def _least(surprises: Tensor, n_cells: int) -> Tensor:
    """The best choice for each column, shrunk to that of all. Shape: [choices, columns] -> [columns]."""
    common = surprises.sum(dim=1, keepdim=True) / max(1, n_cells)
    return (surprises + TEMPERATURE_PRIOR_CELLS * common).argmin(dim=0)

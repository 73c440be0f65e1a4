"""The linear pool: stacking weights per expert and column, then a temperature per column.

Weights of probabilities maximise the likelihood of held-out cells (EM for a mixture of fixed components);
weights of means minimise their squared error. Both are shrunk towards weights that all columns share, so that
few cells do not decide. Mixtures are wider than the truth: the temperature, p^(1 / T) renormalised, is chosen
on the same cells and shrunk to a common one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...diffusion.loading import require, require_between
from ..base import Predictive

#: Held-out cells that the common weights count as much as.
PRIOR_CELLS = 20.0
#: Steps of EM for the weights of probabilities.
ROUNDS = 200
#: Weights of means are multiples of one over this.
GRID = 20
#: Temperatures that are tried.
TEMPERATURES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5)
#: Probabilities are at least this where logarithms are taken.
SMALLEST = 1e-6


class Pool(nn.Module):
    """Weights of K experts and temperatures of p + q columns.

    Shape: mean_weights [K, p], weights [K, p + q], temperature [p + q].
    """

    mean_weights: Tensor
    weights: Tensor
    temperature: Tensor

    def __init__(self, n_experts: int, n_numeric: int, n_categorical: int) -> None:
        super().__init__()
        self.p = n_numeric
        c = n_numeric + n_categorical
        self.register_buffer("mean_weights", torch.full((n_experts, n_numeric), 1 / n_experts))
        self.register_buffer("weights", torch.full((n_experts, c), 1 / n_experts))
        self.register_buffer("temperature", torch.ones(c))

    def check_values(self) -> None:
        """Raise ValueError unless weights are weights."""
        require_between(0, 1, weights=self.weights, mean_weights=self.mean_weights)
        for weights in (self.weights, self.mean_weights):
            require((weights.sum(dim=0) - 1).abs() < 1e-3, "weights of a column must sum up to one")
        require_between(0.1, 10, temperature=self.temperature)

    @torch.no_grad()
    def fit(
        self, experts: Sequence[Predictive], x: Tensor, classes: Tensor, levels: Tensor, held: Tensor
    ) -> None:
        """Choose weights and temperatures on held-out cells.

        Shape: x, classes [n, p], levels [n, q], held [n, p + q].
        """
        p = self.p
        if p:
            errors = torch.stack([(one.mean - x) * held[:, :p] for one in experts])
            self.mean_weights.copy_(stack_means(errors, held[:, :p]))
        # An expert without a distribution of numbers has no weight there, one without categories none there.
        likelihood = torch.zeros(len(experts), *held.shape, device=held.device)
        for k, one in enumerate(experts):
            if one.bins is not None:
                likelihood[k, :, :p] = one.bins.gather(-1, classes[..., None])[..., 0].clamp_min(SMALLEST)
            for j, probabilities in enumerate(one.levels):
                true = levels[:, j : j + 1].clamp_min(0)
                likelihood[k, :, p + j] = probabilities.gather(1, true)[:, 0].clamp_min(SMALLEST)
        able = likelihood.sum(dim=1) > 0
        for columns in (slice(0, p), slice(p, None)):
            weights = stack_probabilities(likelihood[:, :, columns], held[:, columns], able[:, columns])
            self.weights[:, columns] = weights
        pooled = self.mix(experts)
        tried = torch.tensor(TEMPERATURES, device=held.device)
        surprises = torch.zeros(len(tried), held.shape[1], device=held.device)
        for t, T in enumerate(TEMPERATURES):
            if pooled.bins is not None and p:
                logs = tempered(pooled.bins, torch.full((), T, device=held.device)).clamp_min(SMALLEST).log()
                surprise = -logs.gather(-1, classes[..., None])[..., 0]
                surprises[t, :p] = (surprise * held[:, :p]).sum(dim=0)
            for j, probabilities in enumerate(pooled.levels):
                logs = (
                    tempered(probabilities, torch.full((), T, device=held.device)).clamp_min(SMALLEST).log()
                )
                surprise = -logs.gather(1, levels[:, j : j + 1].clamp_min(0))[:, 0]
                surprises[t, p + j] = (surprise * held[:, p + j]).sum()
        common = surprises.sum(dim=1, keepdim=True) / held.sum().clamp_min(1)
        best = (surprises + 5 * PRIOR_CELLS * common).argmin(dim=0)
        self.temperature.copy_(tried[best])

    def mix(self, experts: Sequence[Predictive]) -> Predictive:
        """Weighted means and probabilities, before the temperature."""
        p = self.p
        mean = sum(w * one.mean for w, one in zip(self.mean_weights, experts, strict=True))
        bins = None
        for w, one in zip(self.weights, experts, strict=True):
            if one.bins is not None:
                part = w[:p, None] * one.bins
                bins = part if bins is None else bins.add_(part)
        levels: list[Tensor] = []
        for j in range(self.weights.shape[1] - p):
            mixed = sum(
                w[p + j] * one.levels[j]
                for w, one in zip(self.weights, experts, strict=True)
                if j < len(one.levels)
            )
            assert isinstance(mixed, Tensor)
            levels.append(mixed)
        assert isinstance(mean, Tensor)
        return Predictive(mean, bins, levels)

    def forward(self, experts: Sequence[Predictive]) -> Predictive:
        """Pool and calibrate what experts predict."""
        mixed, p = self.mix(experts), self.p
        bins = None if mixed.bins is None else tempered(mixed.bins, self.temperature[:p, None])
        levels = [tempered(one, self.temperature[p + j]) for j, one in enumerate(mixed.levels)]
        return Predictive(mixed.mean, bins, levels)


def tempered(probabilities: Tensor, temperature: Tensor) -> Tensor:
    """p^(1 / T), renormalised. Shape: [..., B], broadcast with the temperature."""
    return (probabilities.clamp_min(1e-12).log() / temperature).softmax(dim=-1)


def stack_probabilities(likelihood: Tensor, held: Tensor, able: Tensor) -> Tensor:
    """Mixture weights per column, shrunk to common ones. Shape: [K, n, c], [n, c], [K, c] -> [K, c]."""
    weights = able / able.sum(dim=0).clamp_min(1)
    for _ in range(ROUNDS):
        shares = weights[:, None] * likelihood
        shares = shares / shares.sum(dim=0).clamp_min(1e-30) * held
        counts = shares.sum(dim=1)
        common = counts.sum(dim=1, keepdim=True) * able
        common = common / common.sum(dim=0).clamp_min(1e-30)
        counts = counts + PRIOR_CELLS * common
        weights = counts / counts.sum(dim=0).clamp_min(1e-30)
    empty = weights.sum(dim=0) < 0.5
    return torch.where(empty, 1 / len(weights), weights)


def stack_means(errors: Tensor, held: Tensor) -> Tensor:
    """Weights of means with the least squared error, shrunk to common ones. Shape: [K, n, p] -> [K, p]."""
    K = len(errors)
    errors = errors.double()
    square = torch.einsum("knp,lnp->klp", errors, errors)
    n = held.sum(dim=0).clamp_min(1).double()
    steps = [g for g in itertools.product(range(GRID + 1), repeat=K - 1) if sum(g) <= GRID]
    grid = torch.tensor([(*g, GRID - sum(g)) for g in steps], dtype=errors.dtype, device=errors.device) / GRID
    losses = torch.einsum("gk,klp,gl->gp", grid, square, grid)
    # Columns count alike: the common weights are those of relative errors.
    best = square.diagonal(dim1=0, dim2=1).min(dim=1).values.clamp_min(1e-30)
    common = grid[(losses / best).sum(dim=1).argmin()]
    penalty = PRIOR_CELLS / 2 * ((grid - common) ** 2).sum(dim=1)[:, None] * best / n
    return grid[(losses + penalty).argmin(dim=0)].T.float()

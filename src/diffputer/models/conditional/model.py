"""The fitted model: experts, pool, calibration; what is predicted and drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...nn.loading import require_between
from ...settings import ConditionalSettings
from ..base import Cells, Columns, Normal, Predictive, RowBatch
from .gaussian import Given, LinearExpert, Variants
from .masking import describe
from .mixture import MOST_COLUMNS as MOST_OF_MIXTURE
from .mixture import MixtureExpert, Posterior
from .network import Network
from .pool import Pool
from .sampler import unmask
from .support import Support
from .trees import BoostedTrees

#: A bootstrapped linear expert changes the logarithm of a probability by at most this much.
MOST_TILT = 2.0
#: An expectation in this share of its distribution, at either end, contradicts it.
TAIL = 0.05


class ConditionalModel(nn.Module):
    """Experts that predict any cells from any others, in one language, and how they are pooled.

    The experts are, in the order of the pool's weights: networks (one for each backbone), the Gaussian
    copula, the Gaussian of the values, boosted trees.
    """

    widths: Tensor
    """The standard deviation below which the Gaussian alone knows a cell: that of a class, 0 where it has not
    shown that it knows lines. Shape: [p]."""
    line_scales: Tensor
    """Standard deviations on lines, in those of the Gaussian. Shape: [p]."""

    def __init__(self, columns: Columns, settings: ConditionalSettings) -> None:
        super().__init__()
        p, levels, s = len(columns.numeric), columns.levels, settings
        self.columns = columns
        self.support = Support(p, s.classes)
        shapes = [
            ("mlp", s.mlp_members, s.mlp_width, s.mlp_depth),
            ("attention", s.attention_members, s.attention_width, s.attention_depth),
        ]
        self.networks = nn.ModuleList(
            Network(
                p,
                s.classes,
                levels,
                backbone=kind,
                members=members,
                width=width,
                depth=depth,
                dropout=s.dropout,
            )
            for kind, members, width, depth in shapes
            if members
        )
        d = p + sum(levels)
        self.copula = LinearExpert("copula", p, levels) if len(columns.n_levels) > 1 else None
        self.gaussian = LinearExpert("values", p, levels) if len(columns.n_levels) > 1 and p else None
        self.variants: Variants | None = None
        if self.copula is not None:
            self.variants = Variants(d)
        self.mixture: MixtureExpert | None = None
        if self.copula is not None and s.mixture_components and d <= MOST_OF_MIXTURE:
            self.mixture = MixtureExpert(d, s.mixture_components)
        self.trees = BoostedTrees(p, levels) if s.boosted_trees else None
        n_experts = len(self.networks) + sum(
            one is not None for one in (self.copula, self.gaussian, self.mixture, self.trees)
        )
        self.pool = Pool(n_experts, len(self.networks), p, len(levels))
        self.register_buffer("widths", torch.zeros(p))
        self.register_buffer("line_scales", torch.ones(p))

    def check_values(self) -> None:
        """Raise ValueError unless these can be standard deviations."""
        require_between(0, float("inf"), widths=self.widths, line_scales=self.line_scales)

    def take_sizes(self, tensors: Mapping[str, Tensor]) -> None:
        """Make room for the trees among tensors that are about to be loaded."""
        if self.trees is not None:
            prefix = "trees."
            own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            self.trees.take_sizes(own)

    @property
    def varies(self) -> bool:
        """Whether draws can carry the uncertainty of the fit."""
        return self.variants is not None and bool(self.variants.fitted)

    def describe(self, x: Tensor, known: Tensor) -> RowBatch:
        """Rows as experts see them. Shape: x, known [n, c], columns in the order of the table."""
        return describe(x, known, self.columns, self.support)

    @property
    def linear(self) -> list[LinearExpert]:
        """The Gaussian copula and the Gaussian of the values, where there are two columns."""
        return [expert for expert in (self.copula, self.gaussian) if expert is not None]

    def given(self, rows: RowBatch, *, learns: bool = False) -> list[Given | Posterior]:
        """What the linear experts and the mixture know of rows, and whether they will learn more."""
        found: list[Given | Posterior] = [expert.given(rows) for expert in self.linear]
        if self.mixture is not None and self.copula is not None:
            found.append(self.mixture.given(rows, self.copula, learns=learns))
        return found

    def experts(
        self,
        rows: RowBatch,
        cells: Cells,
        dtype: torch.dtype,
        given: list[Given | Posterior],
        member: Network | None = None,
    ) -> tuple[list[Predictive], Normal | None]:
        """What every expert predicts, and normal distributions of cells on lines (std 0 elsewhere).

        In a draw one member speaks for all networks.
        """
        if member is None:
            found = [network.predict(rows, cells, dtype) for network in self.networks]  # type: ignore[operator]
        else:
            found = [member.predict(rows, cells, dtype)] * len(self.networks)
        lines = None
        for expert, own in zip(self.linear, given, strict=False):
            assert isinstance(own, Given)
            predictive, normal = expert.predict(own, cells, self.support)
            found.append(predictive)
            if expert.kind == "values":
                mean, std = normal
                is_sure = std < self.widths[cells.columns]
                lines = mean, std * self.line_scales[cells.columns] * is_sure
        if self.mixture is not None and self.copula is not None:
            assert isinstance(given[-1], Posterior)
            found.append(self.mixture.predict(given[-1], cells, self.support, self.copula))
        if self.trees is not None:
            found.append(self.trees.predict(rows, cells))
        return found, lines

    @torch.no_grad()
    def predict(self, rows: RowBatch, cells: Cells, dtype: torch.dtype) -> Predictive:
        """The pooled, calibrated distributions of cells."""
        experts, lines = self.experts(rows, cells, dtype, self.given(rows))
        return self._refine(self.pool(experts, cells, self.support), lines, cells)

    def _refine(self, pooled: Predictive, lines: Normal | None, cells: Cells) -> Predictive:
        """The Gaussian alone where it is finer than a class; elsewhere means that do not contradict the pool.

        Expectations of heavy tails by lines would be below the smallest value.
        """
        if not len(self.support.means) or pooled.bins is None:
            return pooled
        low, high = (self.support.quantile(pooled, cells.columns, level) for level in (TAIL, 1 - TAIL))
        is_wrong = (pooled.mean < low) | (pooled.mean > high)
        own = self.support.mean(pooled.bins, cells.columns)
        mean = self.support.inside(torch.where(is_wrong, own, pooled.mean), cells.columns)
        if lines is None:
            return replace(pooled, mean=mean)
        return replace(pooled, mean=torch.where(lines[1] > 0, lines[0], mean), line_std=lines[1])

    def members_of(self, draws: range) -> list[tuple[int, int]]:
        """Network and member of each draw: members take turns, those of the better network more often."""
        weights = self.pool.weights[: len(self.networks)].mean(dim=1)
        shares = (weights / weights.sum().clamp_min(1e-9)).tolist()
        counts = [0] * len(shares)
        found = []
        for draw in range(draws.stop):
            behind = [(draw + 1) * share - count for share, count in zip(shares, counts, strict=True)]
            k = behind.index(max(behind))
            network = self.networks[k]
            assert isinstance(network, Network)
            found.append((k, counts[k] % network.members))
            counts[k] += 1
        return found[draws.start :]

    @torch.no_grad()
    def draw(
        self,
        rows: RowBatch,
        given: list[Given | Posterior],
        keys: Tensor,
        member: Network,
        dtype: torch.dtype,
        steps: int,
        variant: LinearExpert | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw missing cells with one member of a network, and a bootstrapped copula where there is one.

        Shape: rows of n, keys [n] -> x [n, p], levels [n, q].
        """
        known = [one.clone() for one in given]
        changed = None if variant is None else variant.given(rows)

        def conditional(some: RowBatch, cells: Cells) -> Predictive:
            nonlocal changed
            for k, own in enumerate(known):
                if isinstance(own, Given):
                    known[k] = self.linear[k].learn(own.first(len(some)), some)
                elif self.mixture is not None and self.copula is not None:
                    known[k] = self.mixture.learn(own.first(len(some)), some, self.copula)
            experts, lines = self.experts(some, cells, dtype, known, member)
            predictive = self.pool(experts, cells, self.support)
            if variant is not None and changed is not None:
                changed = variant.learn(changed.first(len(some)), some)
                tilted, _ = variant.predict(changed, cells, self.support)
                predictive = _tilt(predictive, experts[len(self.networks)], tilted)
            return self._refine(predictive, lines, cells)

        return unmask(rows, keys, self.support, conditional, steps)


def _tilt(predictive: Predictive, fitted: Predictive, variant: Predictive) -> Predictive:
    """Probabilities times those of a bootstrapped expert over those of the fitted one."""

    def tilt(probabilities: Tensor, before: Tensor, after: Tensor) -> Tensor:
        change = (after.clamp_min(1e-6).log() - before.clamp_min(1e-6).log()).clamp(-MOST_TILT, MOST_TILT)
        tilted = probabilities * change.exp()
        return tilted / tilted.sum(dim=-1, keepdim=True).clamp_min(1e-30)

    assert predictive.bins is not None
    assert fitted.bins is not None
    assert variant.bins is not None
    levels = zip(predictive.levels, fitted.levels, variant.levels, strict=True)
    bins = tilt(predictive.bins, fitted.bins, variant.bins)
    return replace(predictive, bins=bins, levels=[tilt(*one) for one in levels])

"""All that an E-step of the conditional engine needs: marginals, networks, copula, trees, their shares."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from ..runtime.seeding import keyed_uniform, mix64
from ..settings import ConditionalSettings
from .conditional import ConditionalNetwork, Rows
from .drawing import draw_residuals
from .gaussian import MOST_COLUMNS, GaussianCopula
from .marginals import Marginals
from .prediction import Prediction, mix, predict
from .residuals import MEDIAN, QUANTILES, Residuals, normal_quantiles
from .splitting import Columns, Validation, evenly
from .trees import BoostedTrees

#: Shares that are tried when two predictions are combined.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Rows with held-out cells, and draws of each, from which the width of draws is chosen; its smallest and
#: largest value.
CALIBRATION_ROWS, CALIBRATION_DRAWS = 2_000, 4
WIDTHS = (0.1, 3.0)
#: Rows, and draws of all parts together, from which the factor of the mixture is chosen: nine in ten truths
#: lie between the outermost of 19 draws. Its ends.
MIXTURE_ROWS, MIXTURE_DRAWS = 1_000, 19
MIXTURE_FACTORS = (0.4, 1.4)
#: As many cells of a column are taken to have said what those of all columns say together, and as many of
#: all columns that widths are right; where a column has fewer its median does not lean.
PRIOR_CELLS = 50


class Ensemble(nn.Module):
    """Networks of one or two backbones, boosted trees and, where columns are few, a Gaussian copula.

    Trees say means and probabilities only: draws are of the others.
    """

    shares: Tensor
    widths: Tensor
    linear_share: Tensor
    linear_width: Tensor
    together: Tensor
    trust: Tensor
    tree_shares: Tensor
    lean: Tensor
    follow: Tensor
    stretch: Tensor

    def __init__(self, columns: Columns, settings: ConditionalSettings) -> None:
        super().__init__()
        p, levels, s = len(columns.numeric), columns.levels, settings
        self.marginals = Marginals(p)
        self.copula = GaussianCopula(p, levels) if p + sum(levels) <= MOST_COLUMNS else None
        # Numbers first, then categories, as rows are described.
        self.trees = (
            BoostedTrees([0] * p + levels, n_trees=s.boosted_trees, depth=s.tree_depth)
            if s.boosted_trees
            else None
        )
        shapes = (
            ("mlp", s.mlp_members, s.mlp_width, s.mlp_depth),
            ("attention", s.attention_members, s.attention_width, s.attention_depth),
        )
        self.networks = nn.ModuleList(
            ConditionalNetwork(
                p, levels, backbone=backbone, members=members, width=width, depth=depth, dropout=s.dropout
            )
            for backbone, members, width, depth in shapes
            if members
        )
        self.register_buffer("shares", torch.full((len(self.networks),), 1 / len(self.networks)))
        self.register_buffer("widths", torch.ones(len(self.networks), p))
        self.register_buffer("linear_share", torch.zeros(()))
        self.register_buffer("linear_width", torch.ones(p))
        self.register_buffer("together", torch.ones(()))
        self.register_buffer("trust", torch.ones(()))
        self.register_buffer("tree_shares", torch.zeros(p + len(levels)))
        self.register_buffer("lean", torch.zeros(p))
        self.register_buffer("follow", torch.zeros(p))
        self.register_buffer("stretch", torch.ones(p))

    def predict(self, rows: Rows, dtype: torch.dtype) -> Prediction:
        """Combine all answers to blank rows."""
        linear = float(self.linear_share)
        shares = [(1 - linear) * share for share in self.shares.tolist()]
        answers = [
            (predict(network, rows, dtype), share)  # type: ignore[arg-type]
            for network, share in zip(self.networks, shares, strict=True)
            if share > 0
        ]
        if self.copula is not None and linear > 0:
            answers.append((self.copula.predict(rows, self.marginals), linear))
        answer = answers[0][0] if len(answers) == 1 else mix(*map(list, zip(*answers, strict=True)))
        if self.trees is not None and self.tree_shares.any():
            answer = _add_trees(answer, self._ask_trees(self.trees, rows), self.tree_shares)
        # Means are zero: what held-out cells do not bear out is shrunk towards the column's mean.
        answer.mean = answer.mean * self.trust
        return answer

    def _ask_trees(self, trees: BoostedTrees, rows: Rows) -> tuple[Tensor, list[Tensor]]:
        known = torch.cat([rows.known, rows.levels >= 0], dim=1)
        return trees.predict(torch.cat([rows.x, rows.levels.clamp_min(0).float()], dim=1), known)

    def combine(self, validation: Validation, dtype: torch.dtype) -> float:
        """Choose on held-out cells how much each part counts and how far the mean is trusted.

        Gives the loss on these cells.
        """
        answers = [predict(network, validation.rows, dtype) for network in self.networks]  # type: ignore[arg-type]
        answer = answers[0]
        if len(answers) == 2:
            share, answer = _best_mix(answers[0], answers[1], validation)
            self.shares.copy_(torch.tensor([share, 1 - share]))
        if self.copula is not None:
            linear = self.copula.predict(validation.rows, self.marginals)
            share, answer = _best_mix(linear, answer, validation)
            self.linear_share.fill_(share)
        if self.trees is not None:
            of_trees = self._ask_trees(self.trees, validation.rows)
            mixes = [_add_trees(answer, of_trees, torch.full_like(self.tree_shares, t)) for t in SHARES]
            self.tree_shares.copy_(_best_shares(mixes, validation))
            answer = _add_trees(answer, of_trees, self.tree_shares)
        self.trust.fill_(validation.trust(answer))
        answer.mean = answer.mean * self.trust
        self._choose_lean(answer, validation)
        return validation.loss(answer)

    def _choose_lean(self, answer: Prediction, validation: Validation) -> None:
        ways = [
            (lean, follow) for follow in (SHARES if self.tree_shares.any() else (0.0,)) for lean in SHARES
        ]
        middle, mean = self._middle(answer), self._mean_of_quantiles(answer)
        errors = torch.stack(
            [
                (middle + lean * (mean - middle) + follow * answer.shift - validation.x).abs()
                for lean, follow in ways
            ]
        )
        total = (errors * validation.held).sum(dim=1)  # [ways, p]
        n_cells = validation.held.sum(dim=0)
        # A gain must be more than chance would give.
        total[1:] += total[0] / n_cells.clamp_min(1).sqrt() / 4
        best = torch.tensor(ways, device=total.device)[total.argmin(dim=0)]
        best = torch.where(n_cells[:, None] >= PRIOR_CELLS, best, 0.0)
        self.lean.copy_(best[:, 0])
        self.follow.copy_(best[:, 1])

    def _middle(self, answer: Prediction) -> Tensor:
        return self.marginals.values_at(answer.quantiles[..., MEDIAN])

    def _mean_of_quantiles(self, answer: Prediction) -> Tensor:
        # Each quantile stands for the levels that are nearest to it.
        edges = [0.0, *((a + b) / 2 for a, b in pairwise(QUANTILES)), 1.0]
        total = torch.zeros_like(answer.mean)
        for k, (low, high) in enumerate(pairwise(edges)):
            total += (high - low) * self.marginals.values_at(answer.quantiles[..., k])
        return total

    def median(self, answer: Prediction) -> Tensor:
        """Give the value of least absolute error: the median, or nearer to the mean of the quantiles.

        Where cells are hard to predict their medians are drawn to the middle of the column more than they
        should be; held-out cells of the column tell how far to lean back, and how far to follow the trees.
        """
        middle = self._middle(answer)
        if self.lean.any():
            middle = middle + self.lean * (self._mean_of_quantiles(answer) - middle)
        return middle + self.follow * answer.shift

    def calibrate(self, validation: Validation, settings: ConditionalSettings, dtype: torch.dtype) -> None:
        """Choose on held-out cells how wide intervals and draws of each column are.

        A network knows its training rows better than others, so that the residuals it learns from are too
        small. Those of held-out cells are not: what it says is stretched until mean squares agree.
        """
        some = evenly(len(validation.held), CALIBRATION_ROWS, validation.held.device)
        rows, held = validation.rows.part(some), validation.held[some]
        if not held.any():
            return
        below, upto = self.marginals.distribution(validation.x[some])
        normal = normal_quantiles(held.device)
        places = torch.arange(len(held), device=held.device)
        # A value that occurs often is anywhere in its interval of scores.
        chance = keyed_uniform(mix64(places + len(held) * CALIBRATION_DRAWS), 0, held.shape[1])
        z = torch.special.ndtri(below + (upto - below) * chance)

        def squares(values: Tensor) -> Tensor:
            return (values.square() * held).sum(dim=0)

        n_cells = held.sum(dim=0)
        self.stretch.copy_(
            _ratio(squares(Residuals(self.predict(rows, dtype).quantiles, normal).of(z)), n_cells)
        )
        if self.copula is not None and self.linear_share > 0:
            answer = self.copula.predict(rows, self.marginals)
            self.linear_width.copy_(_ratio(squares(Residuals(answer.quantiles, normal).of(z)), n_cells))
        for k, share in enumerate(self.shares.tolist()):
            if share == 0:
                continue
            members, true, drawn = self._members(k), torch.zeros_like(z[0]), torch.zeros_like(z[0])
            for draw in range(CALIBRATION_DRAWS):
                keys, member = mix64(places + len(held) * draw), members[draw % len(members)]
                answers, r, _ = draw_residuals(member, rows, keys, settings, dtype)
                true += squares(answers.of(z)) / CALIBRATION_DRAWS
                drawn += squares(r) / CALIBRATION_DRAWS
            self.widths[k] = _ratio(true, drawn)
        few = slice(None, MIXTURE_ROWS)
        self._narrow_mixture(rows.part(few), z[few], held[few], settings, dtype)

    def _narrow_mixture(
        self, rows: Rows, z: Tensor, held: Tensor, settings: ConditionalSettings, dtype: torch.dtype
    ) -> None:
        """Make draws of all parts narrower or wider by one factor, until they hold as many truths as due.

        Where parts disagree their draws are wider together than each is alone.

        Shape: rows of n; z, held [n, p].
        """
        self.together.fill_(1.0)
        owners = self.share_out(MIXTURE_DRAWS)
        if not held.any() or len({id(network) for network, _ in owners}) == 1:
            return
        keys = [
            mix64(torch.arange(len(held), device=held.device) + len(held) * j) for j in range(len(owners))
        ]
        residuals = [
            None if network is None else draw_residuals(network, rows, key, settings, dtype)
            for (network, _), key in zip(owners, keys, strict=True)
        ]

        def outside(factor: float) -> float:
            """Give the share of truths below or above all of their draws."""
            below, above = torch.zeros_like(z), torch.zeros_like(z)
            for (_, width), key, of_network in zip(owners, keys, residuals, strict=True):
                if of_network is None:
                    assert self.copula is not None
                    drawn = self.copula.draw(rows, key, factor * width)[0]
                else:
                    drawn = of_network[0].scores(factor * width * of_network[1])
                below += drawn < z
                above += drawn > z
            most = torch.maximum(below, above)[held]
            return float((most == len(owners)).float().mean())

        low, high = MIXTURE_FACTORS
        for _ in range(8):
            middle = (low + high) / 2
            low, high = (low, middle) if outside(middle) < 2 / (len(owners) + 1) else (middle, high)
        self.together.fill_((low + high) / 2)

    def share_out(self, n_draws: int) -> list[tuple[ConditionalNetwork | None, Tensor]]:
        """Say which member makes each draw, and how wide it is; None is the copula.

        Each part gets as many draws as its share, evenly spread, and its members take turns; fewer draws
        are the first of more.
        """
        linear = float(self.linear_share) if self.copula is not None else 0.0
        shares = [linear, *((1 - linear) * share for share in self.shares.tolist())]
        members = [self._members(k) if shares[k + 1] > 0 else [] for k in range(len(self.networks))]
        counts = [0] * len(shares)
        owners: list[tuple[ConditionalNetwork | None, Tensor]] = []
        for draw in range(n_draws):
            part = int(np.argmax([share * (draw + 1) - n for share, n in zip(shares, counts, strict=True)]))
            if part == 0:
                owners.append((None, self.together * self.linear_width))
            else:
                of_part = members[part - 1]
                owners.append((of_part[counts[part] % len(of_part)], self.together * self.widths[part - 1]))
            counts[part] += 1
        return owners

    def _members(self, k: int) -> list[ConditionalNetwork]:
        network = self.networks[k]
        assert isinstance(network, ConditionalNetwork)
        return [network.member(e) for e in range(network.members)]


def _ratio(true: Tensor, said: Tensor) -> Tensor:
    """Give the factors between sums of squares of columns; those of few cells are nearer to that of all.

    Shape: true, said [p] -> [p].
    """
    of_all = (true.sum() + PRIOR_CELLS) / (said.sum() + PRIOR_CELLS)
    return ((true + PRIOR_CELLS * of_all) / (said + PRIOR_CELLS)).sqrt().clamp(*WIDTHS)


def _best_mix(a: Prediction, b: Prediction, validation: Validation) -> tuple[float, Prediction]:
    mixes = [mix([a, b], [share, 1 - share]) for share in SHARES]
    best = int(np.argmin([validation.loss(prediction) for prediction in mixes]))
    return SHARES[best], mixes[best]


def _add_trees(answer: Prediction, of_trees: tuple[Tensor, list[Tensor]], shares: Tensor) -> Prediction:
    """Let trees have a share in what is said of each column; ``shift`` is what they change of means.

    Shape: of_trees [n, p] and q of [n, L_k]; shares [p + q].
    """
    means, probabilities = of_trees
    shift = shares[: means.shape[1]] * (means - answer.mean)
    mixed = [
        torch.lerp(mine, theirs, share)
        for mine, theirs, share in zip(
            answer.probabilities, probabilities, shares[means.shape[1] :], strict=True
        )
    ]
    return Prediction(answer.mean + shift, answer.quantiles, mixed, shift)


def _best_shares(mixes: list[Prediction], validation: Validation) -> Tensor:
    """Choose for each column which of the mixes, one for each of SHARES, is best on held-out cells.

    Columns with few of them do as all do together.

    Shape: -> [p + q].
    """
    chosen = []
    for losses, held in zip(
        zip(*(validation.losses(mixed) for mixed in mixes), strict=True),
        (validation.held, validation.held_levels),
        strict=True,
    ):
        of_column = torch.stack(losses)  # [shares, columns]
        of_all = of_column.sum(dim=1, keepdim=True) / held.sum().clamp_min(1)
        chosen.append((of_column + PRIOR_CELLS * of_all).argmin(dim=0))
    return torch.tensor(SHARES, device=held.device)[torch.cat(chosen)]

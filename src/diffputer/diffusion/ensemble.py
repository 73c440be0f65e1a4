"""All that an E-step of the conditional engine needs: marginals, networks, copula, and their shares."""

from __future__ import annotations

import math
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
from .residuals import MEDIAN, QUANTILES
from .splitting import Columns, Validation

#: Shares that are tried when two predictions are combined.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Rows with held-out cells, and draws of each, from which the width of draws is chosen; its smallest and
#: largest value.
CALIBRATION_ROWS, CALIBRATION_DRAWS = 2_000, 4
WIDTHS = (0.5, 2.0)


class Ensemble(nn.Module):
    """Networks of one or two backbones and, where columns are not too many, a Gaussian copula."""

    shares: Tensor
    widths: Tensor
    linear_share: Tensor
    trust: Tensor
    lean: Tensor

    def __init__(self, columns: Columns, settings: ConditionalSettings) -> None:
        super().__init__()
        p, levels, s = len(columns.numeric), columns.levels, settings
        self.marginals = Marginals(p)
        self.copula = GaussianCopula(p, levels) if p + sum(levels) <= MOST_COLUMNS else None
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
        self.register_buffer("widths", torch.ones(len(self.networks)))
        self.register_buffer("linear_share", torch.zeros(()))
        self.register_buffer("trust", torch.ones(()))
        self.register_buffer("lean", torch.zeros(()))

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
        # Means are zero: what held-out cells do not bear out is shrunk towards the column's mean.
        answer.mean = answer.mean * self.trust
        return answer

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
        self.trust.fill_(validation.trust(answer))
        answer.mean = answer.mean * self.trust
        self._choose_lean(answer, validation)
        return validation.loss(answer)

    def _choose_lean(self, answer: Prediction, validation: Validation) -> None:
        if validation.held.any():
            middle, mean = self._middle(answer), self._mean_of_quantiles(answer)
            leaning = [middle + lean * (mean - middle) for lean in SHARES]
            errors = [float((guess - validation.x)[validation.held].abs().mean()) for guess in leaning]
            self.lean.fill_(SHARES[int(np.argmin(errors))])

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
        should be; held-out cells tell how far to lean back.
        """
        middle, lean = self._middle(answer), float(self.lean)
        return middle if lean == 0 else middle + lean * (self._mean_of_quantiles(answer) - middle)

    def calibrate(self, validation: Validation, settings: ConditionalSettings, dtype: torch.dtype) -> None:
        """Choose on held-out cells how wide draws are.

        A network knows its training rows better than others, so that the residuals it learns from are too
        small. Those of held-out cells are not: draws are stretched until their mean square is the same.
        """
        some = slice(CALIBRATION_ROWS)
        rows, held = validation.rows.part(some), validation.held[some]
        below, upto = self.marginals.distribution(validation.x[some])
        for k, network in enumerate(self.networks):
            if not held.any() or not isinstance(network, ConditionalNetwork):
                continue
            true, drawn = 0.0, 0.0
            for draw in range(CALIBRATION_DRAWS):
                keys = mix64(torch.arange(len(held), device=held.device) + draw * len(held))
                # A value that occurs often is anywhere in its interval of scores.
                z = torch.special.ndtri(below + (upto - below) * keyed_uniform(keys, 2, held.shape[1]))
                member = network.member(draw % network.members)
                left, r, _ = draw_residuals(member, rows, keys, settings, dtype)
                true += float(left.of(z)[held].square().mean())
                drawn += float(r[held].square().mean())
            low, high = WIDTHS
            self.widths[k] = min(high, max(low, math.sqrt(true / drawn))) if drawn > 0 else 1.0

    def members(self) -> list[tuple[ConditionalNetwork, float]]:
        """Give every member of the networks that count, one by one, and how wide its draws are."""
        return [
            (network.member(e), width)
            for network, share, width in zip(
                self.networks, self.shares.tolist(), self.widths.tolist(), strict=True
            )
            if share > 0 and isinstance(network, ConditionalNetwork)
            for e in range(network.members)
        ]

    def is_linear(self, draw: int) -> bool:
        """Say whether a draw is the copula's: as often as its share, evenly spread over the draws."""
        share = float(self.linear_share)
        return math.floor((draw + 1) * share) > math.floor(draw * share)


def _best_mix(a: Prediction, b: Prediction, validation: Validation) -> tuple[float, Prediction]:
    mixes = [mix([a, b], [share, 1 - share]) for share in SHARES]
    best = int(np.argmin([validation.loss(prediction) for prediction in mixes]))
    return SHARES[best], mixes[best]

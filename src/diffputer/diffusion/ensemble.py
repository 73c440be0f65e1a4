"""All that an E-step of the conditional engine needs: marginals, networks, copula, trees, their shares."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..settings import ConditionalSettings
from .asking import Asked, Beforehand, Counts
from .conditional import ConditionalNetwork, Rows
from .drawing import draw_rows, plan_draw
from .gaussian import MOST_COLUMNS, GaussianCopula
from .linear import LinearValues
from .loading import require, require_between
from .marginals import Marginals
from .prediction import Prediction, ask, average, mix, sharpen
from .residuals import (
    CHANGES_UNTIL,
    MEDIAN,
    QUANTILES,
    Part,
    Residuals,
    Width,
    normal_quantiles,
    pool,
    quantile_weights,
    reshape,
)
from .shares import PREJUDICE, PRIOR_CELLS, SHARES, add, best_mix, best_pool, best_shares, best_sharpness
from .splitting import Columns, Validation
from .trees import BoostedTrees
from .variants import Change, Variants
from .weighing import count_known, knows_well

#: The copula's number among the parts that draw; networks are counted from 0.
LINEAR = -1


@dataclass
class Drawn:
    """Drawn values of unknown cells (of known ones anything) and levels of all categories.

    Shape: x [n, p], levels [n, q].
    """

    x: Tensor
    levels: Tensor


class Ensemble(nn.Module):
    """Networks of one or two backbones, boosted trees and, where columns are few, two linear parts.

    Trees and the Gaussian of the values say means and probabilities only: draws are of the others.
    """

    shares: Tensor
    widths: Tensor
    linear_share: Tensor
    linear_draws: Tensor
    linear_width: Tensor
    draw_shape: Tensor
    dependence: Tensor
    """How much of the copula's denoiser is in that of each network."""
    trust: Tensor
    network_shares: Tensor
    line_shares: Tensor
    tree_shares: Tensor
    sharpness: Tensor
    """Power of the probabilities of each category: mixtures of parts are less sure than they should be."""
    lean: Tensor
    follow: Tensor
    stretch: Tensor
    cell_shape: Tensor

    def __init__(self, columns: Columns, settings: ConditionalSettings) -> None:
        super().__init__()
        p, levels, s = len(columns.numeric), columns.levels, settings
        self._settings = settings
        self.marginals = Marginals(p)
        self.copula = GaussianCopula(p, levels) if p + sum(levels) <= MOST_COLUMNS else None
        self.variants = Variants(p + sum(levels)) if self.copula is not None else None
        self.line = LinearValues.of(p, levels)
        # Numbers first, then categories, as rows are described.
        self.trees = (
            BoostedTrees([0] * p + levels, n_trees=s.boosted_trees, depth=s.tree_depth)
            if s.boosted_trees
            else None
        )
        shapes = [
            ("mlp", s.mlp_members, s.mlp_width, s.mlp_depth),
            ("attention", s.attention_members, s.attention_width, s.attention_depth),
        ]
        if s.member_training == "in_turn":
            shapes = [(kind, 1, width, depth) for kind, n, width, depth in shapes for _ in range(n)]
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
        self.register_buffer("linear_draws", torch.zeros(()))
        self.register_buffer("linear_width", torch.ones(p))
        self.register_buffer("draw_shape", torch.zeros(2))
        self.register_buffer("dependence", torch.zeros(len(self.networks)))
        self.register_buffer("trust", torch.ones(()))
        self.register_buffer("network_shares", torch.ones(p + len(levels)))
        self.register_buffer("line_shares", torch.zeros(p + len(levels)))
        self.register_buffer("tree_shares", torch.zeros(p + len(levels)))
        self.register_buffer("sharpness", torch.ones(len(levels)))
        self.register_buffer("lean", torch.zeros(p))
        self.register_buffer("follow", torch.zeros(p))
        self.register_buffer("stretch", torch.ones(p))
        self.register_buffer("cell_shape", torch.zeros(2))

    def check_values(self) -> None:
        """Raise ValueError unless shares are shares and widths are widths."""
        require_between(
            0, 1,
            shares=self.shares, linear_share=self.linear_share, linear_draws=self.linear_draws,
            dependence=self.dependence, trust=self.trust, network_shares=self.network_shares,
            line_shares=self.line_shares, tree_shares=self.tree_shares, lean=self.lean, follow=self.follow,
        )  # fmt: skip
        require((self.shares.sum() - 1).abs() < 1e-3, "shares must sum up to one")
        widths = {"widths": self.widths, "linear_width": self.linear_width, "stretch": self.stretch}
        require_between(1e-6, 1e6, **widths, sharpness=self.sharpness)
        for shape in (self.draw_shape, self.cell_shape):
            require(shape[1] > -1 / CHANGES_UNTIL, "a wider distribution must be in the same order")

    def _counts(self) -> Counts:
        return Counts.read(
            shares=self.shares,
            linear=self.linear_share,
            linear_draws=self.linear_draws,
            networks=self.network_shares,
            line=self.line_shares,
            trees=self.tree_shares,
        )

    def ask(self, rows: Rows, dtype: torch.dtype, *, to_draw: bool = False) -> Asked:
        """Evaluate every network that counts in what is said of blank rows, or in draws of them, once."""
        counts = self._counts()
        needed = counts.asks_networks(to_draw=to_draw, has_levels=len(self.sharpness) > 0)
        numbers = [k for k, share in enumerate(counts.shares) if share > 0 and needed]
        return Asked({k: ask(self._network(k), rows, dtype) for k in numbers}, counts)

    def predict(self, rows: Rows, asked: Asked) -> Prediction:
        """Combine all answers to blank rows, of which those of the networks are given."""
        outputs, counts = asked.outputs, asked.counts
        networks = None
        if outputs:
            networks = mix(list(map(average, outputs.values())), [counts.shares[k] for k in outputs])
        if self.copula is not None and (counts.linear > 0 or min(counts.networks) < 1):
            answer = self._join(self._ask_linear(self.copula, rows, counts.line), networks, counts.linear)
        else:
            assert networks is not None
            answer = networks if self.copula is not None else self._add_line(networks, rows, counts.line)
        if self.trees is not None and any(counts.trees):
            of_trees = self._ask_trees(self.trees, rows, [share > 0 for share in counts.trees])
            answer = add(answer, *of_trees, self.tree_shares)
        # Means are zero: what held-out cells do not bear out is shrunk towards the column's mean.
        answer.mean = self._mend_means(answer.mean * self.trust, answer.quantiles)
        answer.probabilities = list(map(sharpen, answer.probabilities, self.sharpness))
        return answer

    def _mend_means(self, mean: Tensor, quantiles: Tensor) -> Tensor:
        """Keep means from contradicting quantiles. Shape: [n, p], [n, p, Q] -> [n, p].

        In heavy tails errors of means that are small beside the column's deviation are large beside most of
        its values. Means are between the outermost quantiles unless what is rarer than their level α is
        extreme. Where these are one value, what is rarer is all that differs, and may draw a mean away by α
        times the distance from the column's ends.
        """
        values = self.marginals.values
        low, high = (self.marginals.values_at(quantiles[..., k]) for k in (0, -1))
        rare = QUANTILES[0] * (low == high)
        lower, upper = low - rare * (low - values[:, 0]), high + rare * (values[:, -1] - high)
        return torch.minimum(torch.maximum(mean, lower), upper)

    def say_levels(self, rows: Rows, asked: Asked) -> list[Tensor]:
        """Give how probable all parts together say that levels of blank rows are. Shape: q of [n, L_k]."""
        return self.predict(rows, asked).probabilities if len(self.sharpness) else []

    def _join(self, linear: Prediction, networks: Prediction | None, share: float) -> Prediction:
        """Combine linear parts and networks: means and probabilities column by column, quantiles at once."""
        if networks is None:
            return linear
        together = mix([linear, networks], [share, 1 - share])
        own = add(linear, networks.mean, networks.probabilities, self.network_shares)
        shift = together.shift + own.mean - together.mean
        return Prediction(own.mean, together.quantiles, own.probabilities, shift)

    def _ask_linear(self, copula: GaussianCopula, rows: Rows, line: list[float]) -> Prediction:
        """Give what the copula says, and of each column a share of what the Gaussian of the values says."""
        return self._add_line(copula.predict(rows, self.marginals), rows, line)

    def _add_line(self, answer: Prediction, rows: Rows, line: list[float]) -> Prediction:
        if self.line is None or not any(line):
            return answer
        return add(answer, *self.line.answer(rows), self.line_shares)

    def _ask_trees(
        self, trees: BoostedTrees, rows: Rows, columns: list[bool] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        known = torch.cat([rows.known, rows.levels >= 0], dim=1)
        x = torch.cat([rows.x, rows.levels.clamp_min(0).float()], dim=1)
        return trees.predict(x, known, columns)

    def take_linear(self, values: dict[str, Tensor]) -> None:
        """Take the values of linear parts, by name."""
        unknown = self.load_state_dict(values, strict=False).unexpected_keys
        assert not unknown, unknown

    def share_evenly(self, n_trained: int) -> None:
        """Let the first networks count as much as each other, and those that were not trained nothing."""
        self.shares.zero_()
        self.shares[:n_trained] = 1 / n_trained

    def combine(self, validation: Validation, dtype: torch.dtype, n_trained: int) -> float:
        """Choose on held-out cells how much each part counts and how far the mean is trusted.

        Networks but the first ``n_trained`` count nothing. Gives the loss on these cells.
        """
        answers = [average(ask(self._network(k), validation.rows, dtype)) for k in range(n_trained)]
        answer, shares = answers[0], torch.zeros(len(self.networks))
        shares[0] = 1.0
        for k, other in enumerate(answers[1:], start=1):
            share, answer = best_mix(answer, other, validation)
            shares *= 1 - share
            shares[k] = share
        self.shares.copy_(shares)
        if self.copula is not None:
            networks, copula = answer, self.copula.predict(validation.rows, self.marginals)
            linear = self._ask_linear(self.copula, validation.rows, self._counts().line)
            share, _ = best_mix(linear, networks, validation, PREJUDICE)
            self.linear_share.fill_(1 - share)
            said = networks.mean, networks.probabilities
            mixes = [add(linear, *said, torch.full_like(self.network_shares, t)) for t in SHARES]
            self.network_shares.copy_(best_shares([mixes], [validation], PREJUDICE))
            answer = self._join(linear, networks, float(self.linear_share))
            known_well = knows_well(self.copula, count_known(validation.table))
            self.linear_draws.fill_(best_pool(networks, copula, validation, alone=known_well))
        elif self.line is not None:
            of_line = self.line.answer(validation.rows)
            mixes = [add(answer, *of_line, torch.full_like(self.line_shares, t)) for t in SHARES]
            self.line_shares.copy_(best_shares([mixes], [validation]))
            answer = add(answer, *of_line, self.line_shares)
        if self.trees is not None:
            of_trees = self._ask_trees(self.trees, validation.rows)
            mixes = [add(answer, *of_trees, torch.full_like(self.tree_shares, t)) for t in SHARES]
            # Beside networks alone trees learn as much of few rows as they do.
            prejudice = PREJUDICE if self.copula is not None else 0.0
            self.tree_shares.copy_(best_shares([mixes], [validation], prejudice))
            answer = add(answer, *of_trees, self.tree_shares)
        self.trust.fill_(validation.trust(answer))
        answer.mean = self._mend_means(answer.mean * self.trust, answer.quantiles)
        self.sharpness.copy_(best_sharpness(answer.probabilities, validation))
        answer.probabilities = list(map(sharpen, answer.probabilities, self.sharpness))
        self._choose_lean(answer, validation)
        return validation.loss(answer)

    def _choose_lean(self, answer: Prediction, validation: Validation) -> None:
        ways = [
            (lean, follow)
            for follow in (SHARES if isinstance(answer.shift, Tensor) else (0.0,))
            for lean in SHARES
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
        # Columns with few cells do as all do together.
        total = total + PRIOR_CELLS * total.sum(dim=1, keepdim=True) / n_cells.sum().clamp_min(1)
        # A gain must be more than chance would give.
        total[1:] += total[0] / (n_cells + PRIOR_CELLS).sqrt() / 4
        best = torch.tensor(ways, device=total.device)[total.argmin(dim=0)]
        self.lean.copy_(best[:, 0])
        self.follow.copy_(best[:, 1])

    def _middle(self, answer: Prediction) -> Tensor:
        return self.marginals.values_at(answer.quantiles[..., MEDIAN])

    def _mean_of_quantiles(self, answer: Prediction) -> Tensor:
        total = torch.zeros_like(answer.mean)
        for k, weight in enumerate(quantile_weights().tolist()):
            total += weight * self.marginals.values_at(answer.quantiles[..., k])
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

    def allot(self, n_draws: int) -> list[tuple[int, int]]:
        """Say which part (LINEAR is the copula) and which of its members makes each draw.

        Each part gets as many draws as its share, evenly spread, and its members take turns; fewer draws
        are the first of more.
        """
        linear = float(self.linear_draws) if self.copula is not None else 0.0
        shares = {k: (1 - linear) * share for k, share in enumerate(self.shares.tolist())} | {LINEAR: linear}
        counts = dict.fromkeys(shares, 0)
        owners = []
        for draw in range(n_draws):
            part = max(shares, key=lambda k: shares[k] * (draw + 1) - counts[k])
            members = 1 if part == LINEAR else self._network(part).members
            owners.append((part, counts[part] % members))
            counts[part] += 1
        return owners

    @property
    def varies(self) -> bool:
        """Whether draws can be of other models that the table might have led to."""
        return self.copula is not None and self.variants is not None and bool(self.variants.fitted)

    def changes(self, draws: range) -> list[Change | None]:
        """Say how the model differs in each draw; where there is no copula it cannot be told."""
        if self.copula is None or self.variants is None or not self.varies:
            return [None] * len(draws)
        return list(self.variants.changes(self.copula, draws))

    def draw(
        self,
        owner: tuple[int, int],
        member: ConditionalNetwork | None,
        rows: Rows,
        keys: Tensor,
        dtype: torch.dtype,
        told: Beforehand,
        change: Change | None = None,
    ) -> Drawn:
        """Draw blank rows once by a member of a part (None: the copula), of a model that may be changed.

        The owner of the draw, a part and the number of its member, is as `allot` says.
        """
        part, number = owner
        width = self.width_of(part)
        said = told.said if change is None else change.tilt(told.said, rows)
        if member is not None:
            outputs = told.asked.outputs
            blank, plan = outputs[part].member(number), plan_draw(self._settings, len(outputs))
            beside = self.beside(told.dependence[part])
            drawn = draw_rows(member, blank, rows, keys, plan, dtype, self.marginals, said, width, beside)
            z, levels = drawn.z, drawn.levels
            if change is not None:
                spread = Residuals(blank.quantiles[0], normal_quantiles(keys.device)).spread
                z = z + change.shift(rows, levels, width.of_columns * spread)
        else:
            copula = self.copula if change is None else change.variant
            assert copula is not None
            z, levels = copula.draw(rows, keys, width, said)
        if told.pooled is not None:
            z = told.pooled.scores(reshape(told.pooled.of(z), self.draw_shape))
        return Drawn(self.marginals.values_at(z), levels)

    def beforehand(self, rows: Rows, dtype: torch.dtype) -> Beforehand:
        """Say of blank rows what all of their draws need."""
        asked = self.ask(rows, dtype, to_draw=True)
        said, pooled = self.say_levels(rows, asked), self.pool_in(rows, asked)
        return Beforehand(asked, said, pooled, self.dependence.tolist())

    def beside(self, share: float) -> tuple[GaussianCopula, float] | None:
        """Give what is beside a network's denoiser, and its share."""
        return None if self.copula is None or share == 0 else (self.copula, share)

    def width_of(self, part: int) -> Width:
        """Give how wide the draws of a part are, before all draws are given their shape."""
        return Width(self.linear_width if part == LINEAR else self.widths[part])

    def pool(self, rows: Rows, asked: Asked) -> Residuals:
        """Give the distribution that all parts that draw have together, of the cells of blank rows."""
        normal = normal_quantiles(rows.label.device)
        linear = asked.counts.linear_draws
        parts = []
        if linear < 1:
            for k, outputs in asked.outputs.items():
                weight = (1 - linear) * asked.counts.shares[k] / len(outputs.quantiles)
                parts += [Part(Residuals(q, normal), self.widths[k], weight) for q in outputs.quantiles]
        if self.copula is not None and linear > 0:
            parts.append(Part(self.copula.maps(rows), self.linear_width, linear))
        return pool(parts, normal)

    def pool_in(self, rows: Rows, asked: Asked) -> Residuals | None:
        """Give that distribution where draws are given a shape in it."""
        return self.pool(rows, asked) if self.draw_shape.any() else None

    def member(self, part: int, number: int) -> ConditionalNetwork:
        """Give a network that holds one member of a part."""
        return self._network(part).member(number)

    def _network(self, part: int) -> ConditionalNetwork:
        network = self.networks[part]
        assert isinstance(network, ConditionalNetwork)
        return network

"""All that an E-step of the conditional engine needs: marginals, networks, copula, trees, their shares."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..settings import ConditionalSettings
from .conditional import ConditionalNetwork, Rows
from .drawing import Drawn, draw_rows
from .gaussian import MOST_COLUMNS, GaussianCopula
from .linear import LinearValues
from .marginals import Marginals
from .prediction import Prediction, mix, predict
from .residuals import MEDIAN, QUANTILES
from .splitting import Columns, Validation
from .trees import BoostedTrees
from .variants import Change, Variants

#: The copula's number among the parts that draw; networks are counted from 0.
LINEAR = -1
#: Shares that are tried when two predictions are combined.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Losses that differ by no more standard errors of their difference are not told apart.
UNDECIDED = 1.0
#: As many cells of a column are taken to have said what those of all columns say together, and as many of
#: all columns that widths are right; where a column has fewer its median does not lean.
PRIOR_CELLS = 50
#: Errors of so many cells say as much as one would if errors were independent and normal.
CELLS_ALIKE = 2
#: Shares nearer to 0 or 1 than this are 0 or 1, and a part that always errs less than this is perfect.
LEAST_SHARE, SMALLEST_LOSS = 0.02, 1e-9


class Ensemble(nn.Module):
    """Networks of one or two backbones, boosted trees and, where columns are few, a Gaussian copula.

    Trees say means and probabilities only: draws are of the others.
    """

    shares: Tensor
    widths: Tensor
    linear_share: Tensor
    linear_draws: Tensor
    linear_width: Tensor
    together: Tensor
    trust: Tensor
    line_shares: Tensor
    tree_shares: Tensor
    lean: Tensor
    follow: Tensor
    stretch: Tensor

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
        self.register_buffer("linear_draws", torch.zeros(()))
        self.register_buffer("linear_width", torch.ones(p))
        self.register_buffer("together", torch.ones(()))
        self.register_buffer("trust", torch.ones(()))
        self.register_buffer("line_shares", torch.zeros(p))
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
        if self.line is not None and self.line_shares.any():
            answer = _add(answer, self.line.means(rows), None, self.line_shares)
        if self.trees is not None and self.tree_shares.any():
            of_trees = self._ask_trees(self.trees, rows, [share > 0 for share in self.tree_shares.tolist()])
            answer = _add(answer, *of_trees, self.tree_shares)
        # Means are zero: what held-out cells do not bear out is shrunk towards the column's mean.
        answer.mean = answer.mean * self.trust
        return answer

    def _ask_trees(
        self, trees: BoostedTrees, rows: Rows, columns: list[bool] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        known = torch.cat([rows.known, rows.levels >= 0], dim=1)
        x = torch.cat([rows.x, rows.levels.clamp_min(0).float()], dim=1)
        return trees.predict(x, known, columns)

    def fit_linear(self, describe: Callable[[GaussianCopula], Rows], validation: Validation) -> None:
        """Fit copula and Gaussian to the rows that each can afford; held-out cells say how far to shrink."""
        if (copula := self.copula) is not None:
            copula.fit_best(
                describe(copula),
                lambda: copula.predict(validation.rows, self.marginals),
                validation.first_good,
            )
        if (line := self.line) is not None:
            line.fit_best(
                describe(line),
                lambda: validation.squared_error(line.means(validation.rows)),
                lambda errors: errors.index(min(errors)),
            )

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
            networks = answer
            share, answer = _best_mix(linear, networks, validation)
            self.linear_share.fill_(share)
            self.linear_draws.fill_(_simplest_share(linear, networks, share, validation))
        if self.line is not None:
            means = self.line.means(validation.rows)
            mixes = [_add(answer, means, None, torch.full_like(self.line_shares, t)) for t in SHARES]
            self.line_shares.copy_(_best_shares(mixes, validation)[: len(self.line_shares)])
            answer = _add(answer, means, None, self.line_shares)
        if self.trees is not None:
            of_trees = self._ask_trees(self.trees, validation.rows)
            mixes = [_add(answer, *of_trees, torch.full_like(self.tree_shares, t)) for t in SHARES]
            self.tree_shares.copy_(_best_shares(mixes, validation))
            answer = _add(answer, *of_trees, self.tree_shares)
        self.trust.fill_(validation.trust(answer))
        answer.mean = answer.mean * self.trust
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

    def changes(self, n_draws: int) -> list[Change | None]:
        """Say how the model differs in each draw; where there is no copula it cannot be told."""
        if self.copula is None or self.variants is None or not self.varies:
            return [None] * n_draws
        return list(self.variants.changes(self.copula, n_draws))

    def draw(
        self,
        part: int,
        member: ConditionalNetwork | None,
        rows: Rows,
        keys: Tensor,
        dtype: torch.dtype,
        change: Change | None = None,
    ) -> Drawn:
        """Draw blank rows once by a member of a part (None: the copula), of a model that may be changed."""
        width = self.width_of(part)
        if member is not None:
            return draw_rows(member, self.marginals, rows, keys, self._settings, dtype, width, change)
        copula = self.copula if change is None else change.variant
        assert copula is not None
        z, levels = copula.draw(rows, keys, width)
        return Drawn(self.marginals.values_at(z), levels)

    def width_of(self, part: int) -> Tensor:
        """Give how wide the draws of a part are. Shape: [p]."""
        width: Tensor = self.together * (self.linear_width if part == LINEAR else self.widths[part])
        return width

    def member(self, part: int, number: int) -> ConditionalNetwork:
        """Give a network that holds one member of a part."""
        return self._network(part).member(number)

    def _network(self, part: int) -> ConditionalNetwork:
        network = self.networks[part]
        assert isinstance(network, ConditionalNetwork)
        return network


def _likely_share(losses: Tensor, n_cells: Tensor | float) -> Tensor:
    """Average SHARES, each as probable as its loss L of n cells makes it: L^(-n / 2c), c = CELLS_ALIKE.

    Where cells are few no share stands out, and both parts count; where they are many the best is taken.

    Shape: losses [shares, columns], n_cells [columns] -> [columns].

    Examples
    --------
    >>> losses = torch.tensor([[1.4], [1.3], [1.2], [1.1], [1.0]])
    >>> [round(float(_likely_share(losses, n)), 2) for n in (0, 10, 100, 1_000)]
    [0.5, 0.6, 0.97, 1.0]
    """
    worse = losses.clamp_min(SMALLEST_LOSS).log()
    likely = torch.softmax(-worse * n_cells / (2 * CELLS_ALIKE), dim=0)
    share = (torch.tensor(SHARES, device=losses.device)[:, None] * likely).sum(dim=0)
    # What hardly counts is not worth its time.
    share = torch.where(share < LEAST_SHARE, 0.0, share)
    return torch.where(share > 1 - LEAST_SHARE, 1.0, share)


def _best_mix(a: Prediction, b: Prediction, validation: Validation) -> tuple[float, Prediction]:
    mixes = [mix([a, b], [share, 1 - share]) for share in SHARES]
    losses = torch.tensor([validation.loss(prediction) for prediction in mixes])
    share = float(_likely_share(losses[:, None], validation.n_cells)[0])
    return share, mix([a, b], [share, 1 - share])


def _simplest_share(linear: Prediction, networks: Prediction, best: float, validation: Validation) -> float:
    """Give the largest share of the copula that held-out cells do not tell from the best one.

    How the missing cells of a row go together is learnt from few rows by the copula, not by the networks, and
    single cells that are held out do not show it: where they leave the choice, draws are the copula's.
    """
    chosen = mix([linear, networks], [best, 1 - best])
    for share in sorted(SHARES, reverse=True):
        worse, error = validation.worse_by(mix([linear, networks], [share, 1 - share]), chosen)
        if worse <= UNDECIDED * error:
            return share
    return best


def _add(answer: Prediction, means: Tensor, probabilities: list[Tensor] | None, shares: Tensor) -> Prediction:
    """Let another part have a share in what is said of each column; ``shift`` is what means have changed.

    Shape: means [n, p]; probabilities, if it says any, q of [n, L_k]; shares [p] or [p + q].
    """
    p = means.shape[1]
    shift = shares[:p] * (means - answer.mean)
    mixed = answer.probabilities
    if probabilities is not None:
        mixed = [
            torch.lerp(mine, theirs, share)
            for mine, theirs, share in zip(mixed, probabilities, shares[p:], strict=True)
        ]
    return Prediction(answer.mean + shift, answer.quantiles, mixed, answer.shift + shift)


def _best_shares(mixes: list[Prediction], validation: Validation) -> Tensor:
    """Say for each column how much a part should count of which mixes have all SHARES.

    Columns with few held-out cells do as all do together.

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
        chosen.append(_likely_share(of_column + PRIOR_CELLS * of_all, held.sum(dim=0) + PRIOR_CELLS))
    return torch.cat(chosen)

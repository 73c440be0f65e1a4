"""Joint draws in a few turns: each draws some of the unknown cells of a row, by a short reverse diffusion.

A row is drawn in an order that is random,

    p(x_1, ..., x_k | c) = p(x_1 | c) p(x_2 | c, x_1) ... ,

where x_1, x_2, ... are groups of cells: what one turn has drawn is known in the next. Answers to blank rows,
which the network is trained for most, know dependence on known cells in any form, curves too; its denoiser,
which takes a group from noise to data, adds what the cells of the group have in common, and the shape of
single ones that quantiles do not tell. Either alone does worse (docs/dev/conditional.md).

In a turn, which begins with a blank answer, numbers follow dr/dsigma = (r - D(r; sigma, c)) / sigma in what
that answer leaves open (residuals.py). For a D that does not change the solution is

    r_{i+1} = (sigma_{i+1} / sigma_i) r_i + (1 - sigma_{i+1} / sigma_i) D_bar,

and D_bar is D where the step is half done in lambda = -ln sigma, extrapolated from the last two evaluations,

    D_bar   = D_i + (D_i - D_{i-1}) h / (2 h_{i-1}),   h = lambda_{i+1} - lambda_i:

one evaluation a step, of second order (Lu et al. 2022). The noisy start is r = sqrt(sigma^2 + 1) eps. D is
the network's, and the copula's by some share (dependence.py). The blank answer of the first turn serves all
draws of a row.

A missing category is drawn from its probabilities given the condition, the present noisy numbers and the
categories that were drawn before it; from then on it is part of the condition. Each has a step of its own
as long as there are not more of them than three quarters of the steps. Of the condition alone all parts of an
ensemble together say better than one member how probable levels are, P; so the member's probabilities p are
taken times P / p of the blank row: what it says of dependence stays, and levels are nearly as frequent as P.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..runtime.seeding import keyed_normal, keyed_uniform
from ..settings import ConditionalSettings
from .conditional import ConditionalNetwork, Outputs, Rows, add_noise, describe
from .dependence import Dependence
from .gaussian import GaussianCopula
from .marginals import Marginals
from .prediction import correction
from .residuals import Residuals, Width, normal_quantiles
from .schedule import noise_levels, scalings

#: By this part of the steps of a turn all of its categories are known, so that numbers can still follow them.
REVEALED_BY = 0.75
#: Evaluations of a turn, that of the blank row among them: with fewer steps numbers come out too narrow, and
#: with fewer turns curves are lost (docs/dev/conditional.md).
EVALUATIONS_A_TURN = 5
#: Rows that are evaluated together at least, on a CPU: of fewer a matrix product gives a row other bits.
FEWEST_ROWS = 64


@dataclass(frozen=True)
class Plan:
    """How a draw is made: its turns, and the noise levels of each, the last of which is zero.

    Shape: sigma [steps + 1].
    """

    turns: int
    sigma: Tensor

    @property
    def steps(self) -> int:
        return len(self.sigma) - 1


def plan_draw(settings: ConditionalSettings, n_networks: int = 1) -> Plan:
    """Plan a draw: evaluations are as many as may be with those of blank rows, which all draws share.

    Networks are asked about these one by one; more than a quarter of the evaluations is not given up for it.

    Examples
    --------
    >>> plans = [plan_draw(ConditionalSettings(sampling_steps=n)) for n in (3, 5, 10, 20, 40)]
    >>> [(plan.turns, plan.steps) for plan in plans]
    [(3, 0), (1, 4), (2, 4), (4, 4), (8, 4)]
    """
    evaluations = settings.sampling_steps - max(0, min(n_networks, settings.sampling_steps // 4) - 1)
    if evaluations < EVALUATIONS_A_TURN:
        # Too few steps would end too near to where they began; without any, residuals are the noise itself.
        return Plan(evaluations, torch.zeros(1, dtype=torch.float64))
    turns = evaluations // EVALUATIONS_A_TURN
    steps = evaluations // turns - 1
    return Plan(
        turns, noise_levels(steps, settings.sigma_min, settings.sigma_max, settings.schedule_exponent)
    )


@dataclass
class DrawnRows:
    """Scores of drawn numbers, the residuals that they are of in what their turn left open, and levels.

    Shape: z, r [n, p], of known numbers anything; levels [n, q].
    """

    z: Tensor
    r: Tensor
    levels: Tensor

    @classmethod
    def join(cls, parts: list[DrawnRows]) -> DrawnRows:
        """Put draws of blocks of rows one below the other."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("z", "r", "levels")))


@torch.no_grad()
def draw_rows(
    network: ConditionalNetwork,
    blank: Outputs,
    rows: Rows,
    keys: Tensor,
    plan: Plan,
    dtype: torch.dtype,
    marginals: Marginals,
    said: list[Tensor] | None = None,
    width: Width | None = None,
    beside: tuple[GaussianCopula, float] | None = None,
) -> DrawnRows:
    """Draw the unknown cells of blank rows by one member, once.

    What the member says of the blank rows is given; each noise level, and each turn but the first, takes one
    more evaluation. Levels are as probable as is said, or as the member says. Residuals are stretched by a
    width; noise is a function of the keys alone. The denoiser of what is beside the network counts by its
    share.

    Shape: rows of n, keys [n], said q of [n, L_k].
    """
    p, q = rows.x.shape[1], rows.levels.shape[1]
    width, normal = width or Width(), normal_quantiles(keys.device)
    turn = choose_turns(torch.cat([~rows.known, rows.levels < 0], dim=1), keys, plan.turns)
    eps = keyed_normal(keys, 0, max(1, p))[:, :p]
    chances = keyed_uniform(keys, 1, max(1, q))
    tilts = None
    if said is not None:
        own = (F.softmax(logits[0], dim=-1) for logits in blank.logits)
        tilts = [correction(all_say, mine) for all_say, mine in zip(said, own, strict=True)]

    drawn, z, r = rows.part(slice(None)), torch.zeros_like(rows.z), torch.zeros_like(rows.z)
    for i in range(int(turn.max()) + 1 if turn.numel() else 0):
        some = _rows_with((turn == i).any(dim=1))
        now, (numbers, categories) = drawn.part(some), (turn[some] == i).split([p, q], dim=1)
        answer: Outputs = network(now, dtype) if i else blank.at(some)
        maps = Residuals(answer.quantiles[0], normal)
        group = _Group(now, maps, numbers, categories, chances[some], tilts and [t[some] for t in tilts])
        found, levels = group.denoise(network, answer, eps[some], keys[some], plan.sigma, dtype, beside)
        scores = maps.scores(width.stretch(found))
        r[some] = torch.where(numbers, found, r[some])
        z[some] = torch.where(numbers, scores, z[some])
        # Known from now on, as values are that have these scores: of one that occurs often the middle score.
        x = torch.where(numbers, marginals.values_at(scores), now.x)
        known_scores = torch.where(numbers, marginals.scores(x), now.z)
        drawn.put(some, describe(x, known_scores, now.known | numbers, levels))
    return DrawnRows(z, r, drawn.levels)


@dataclass
class _Group:
    """The cells of rows that one turn draws.

    Shape: rows of n; maps and numbers [n, p]; categories and chances [n, q]; tilts q of [n, L_k].
    """

    rows: Rows
    maps: Residuals
    numbers: Tensor
    categories: Tensor
    chances: Tensor
    tilts: list[Tensor] | None

    def denoise(
        self,
        network: ConditionalNetwork,
        blank: Outputs,
        eps: Tensor,
        keys: Tensor,
        sigma: Tensor,
        dtype: torch.dtype,
        beside: tuple[GaussianCopula, float] | None,
    ) -> tuple[Tensor, Tensor]:
        """Take the group from noise to data: residuals, and levels. Shape: eps [n, p] -> [n, p], [n, q]."""
        steps, levels = len(sigma) - 1, self.rows.levels.clone()
        dependence = None if beside is None else Dependence(beside[0], self.rows)
        reveal_at = _reveal_steps(self.categories, keys, max(1, round(REVEALED_BY * steps)))
        self._reveal(levels, blank, reveal_at == 0)
        r = torch.sqrt(sigma[0] ** 2 + 1).float() * eps
        before: Tensor | None = None
        for i in range(steps):
            level = torch.full((len(keys), 1), float(sigma[i]), device=r.device)
            noisy = add_noise(self.rows, self.maps, self.numbers, r, level, levels)
            outputs: Outputs = network(noisy, dtype)
            c_skip, c_out, _, _ = scalings(level, 1.0)
            denoised = c_skip * r + c_out * outputs.denoised[0]
            if dependence is not None and beside is not None:
                linear = dependence.denoise(r, self.numbers, level, levels)
                denoised = torch.lerp(denoised, linear, beside[1])
            self._reveal(levels, outputs, reveal_at == i + 1)
            target = denoised
            if before is not None and i + 1 < steps:
                h, h_before = (float(torch.log(sigma[j] / sigma[j + 1])) for j in (i, i - 1))
                target = denoised + (denoised - before) * (h / (2 * h_before))
            ratio = float(sigma[i + 1] / sigma[i])
            r = ratio * r + (1 - ratio) * target
            before = denoised
        return r, levels

    def _reveal(self, levels: Tensor, outputs: Outputs, now: Tensor) -> None:
        """Draw the categories whose time has come, in place. Shape: levels, now [n, q]."""
        for k, logits in enumerate(outputs.logits):
            tilted = logits[0] if self.tilts is None else logits[0] + self.tilts[k]
            cumulative = F.softmax(tilted, dim=-1).cumsum(dim=-1)
            drawn = (cumulative < self.chances[:, k : k + 1]).sum(dim=-1).clamp_max(logits.shape[-1] - 1)
            levels[:, k] = torch.where(now[:, k], drawn, levels[:, k])


def choose_turns(unknown: Tensor, keys: Tensor, turns: int) -> Tensor:
    """Say in which turn each unknown cell of rows is drawn, in random order; -1 where known.

    Turns draw as many cells as each other, one if there are not more of them.

    Shape: unknown [n, c], keys [n] -> [n, c].
    """
    n_unknown = unknown.sum(dim=1, keepdim=True)
    rank = _ranks(unknown, keys, 2)
    return torch.where(unknown, rank * turns // n_unknown.clamp_min(turns), -1)


def _reveal_steps(categories: Tensor, keys: Tensor, steps: int) -> Tensor:
    """Spread the categories of a turn over its steps, in random order; -1 where not drawn.

    Shape: categories [n, q], keys [n] -> [n, q].
    """
    count = categories.sum(dim=1, keepdim=True).clamp_min(1)
    return torch.where(categories, _ranks(categories, keys, 0) * steps // count, -1)


def _ranks(cells: Tensor, keys: Tensor, stream: int) -> Tensor:
    """Number some cells of each row in random order. Shape: cells [n, c], keys [n] -> [n, c]."""
    chances = keyed_uniform(keys, stream, max(1, cells.shape[1]))[:, : cells.shape[1]]
    order = chances.masked_fill(~cells, 2.0)
    return order.argsort(dim=1, stable=True).argsort(dim=1, stable=True)


def _rows_with(cells: Tensor) -> Tensor:
    """Give the numbers of rows that have something to draw, on a GPU of all: blocks are to keep their size.

    Shape: cells [n] -> [m].
    """
    if cells.is_cuda:
        return torch.arange(len(cells), device=cells.device)
    some = cells.nonzero()[:, 0]
    missing = min(len(cells), FEWEST_ROWS) - len(some)
    return torch.cat([some, (~cells).nonzero()[:missing, 0]]) if missing > 0 else some

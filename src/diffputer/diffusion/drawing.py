"""Joint draws by the reverse of hiding: the unknown cells of a row become known in turns, in any order.

What takes a row from data to noise here hides its cells: each is known until its time comes, and then
nothing is left of it, sigma = infinity (Austin et al. 2021, Hoogeboom et al. 2022). The way back draws hidden
cells in a random order, each given the known ones and those that were drawn before it,

    p(x_1, ..., x_k | c) = p(x_1 | c) p(x_2 | c, x_1) ... p(x_k | c, x_1, ..., x_{k-1}),

and every factor is what the network says of blank rows, which it was trained and calibrated for: of a number
the quantiles of its score z, in which a residual r = eps is drawn (residuals.py), of a category the
probabilities of its levels. So dependence of any form that answers know is in draws: curves, modes, cells
that follow from others. Residuals noised at a finite sigma, on which the network is trained besides
(splitting.py), could draw all cells at once; they learn lines, but hardly curves (docs/dev/log.md).

A turn takes one evaluation, the first none of its own: the blank answer serves all draws of a row. If there
are more cells than turns, later turns draw several, which are then independent given all before: the more is
known, the less is left for them to have in common.

Of the condition alone all parts of an ensemble together say better than one member how probable levels are,
P; so the member's probabilities p are taken times P / p of the blank row: what it says of dependence stays,
and levels are nearly as frequent as P.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..runtime.seeding import keyed_normal, keyed_uniform
from ..settings import ConditionalSettings
from .conditional import ConditionalNetwork, Outputs, Rows, describe
from .marginals import Marginals
from .prediction import correction
from .residuals import Residuals, Width, normal_quantiles
from .variants import Change

#: Rows that are evaluated together at least, on a CPU: of fewer a matrix product gives a row other bits.
FEWEST_ROWS = 64


def turns_of_draw(settings: ConditionalSettings, n_networks: int = 1) -> int:
    """Say in how many turns a draw may be made: evaluations are as many as may be with those of blank rows.

    Networks are asked about these one by one; more than a quarter of the turns is not given up for it.

    Examples
    --------
    >>> settings = ConditionalSettings(sampling_steps=20)
    >>> [turns_of_draw(settings, n) for n in (1, 4, 30)]
    [20, 17, 16]
    """
    return 1 + settings.sampling_steps - min(n_networks, max(1, settings.sampling_steps // 4))


@torch.no_grad()
def draw_rows(
    network: ConditionalNetwork,
    blank: Outputs,
    rows: Rows,
    keys: Tensor,
    turns: int,
    dtype: torch.dtype,
    marginals: Marginals,
    said: list[Tensor] | None = None,
    width: Width | None = None,
    change: Change | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw the unknown cells of blank rows by one member, once: scores of numbers, and levels.

    What the member says of the blank rows is given; each turn but the first takes one more evaluation. Levels
    are as probable as is said, or as the member says. Residuals are stretched by a width; noise is a function
    of the keys alone. A change of the model moves drawn numbers.

    Shape: rows of n, keys [n], said q of [n, L_k] -> z [n, p], levels [n, q].
    """
    width, normal = width or Width(), normal_quantiles(keys.device)
    p, q = rows.x.shape[1], rows.levels.shape[1]
    turn = choose_turns(torch.cat([~rows.known, rows.levels < 0], dim=1), keys, turns)
    r = width.stretch(keyed_normal(keys, 0, max(1, p))[:, :p])
    chances = keyed_uniform(keys, 1, max(1, q))
    tilts = None
    if said is not None:
        own = (F.softmax(logits[0], dim=-1) for logits in blank.logits)
        tilts = [correction(all_say, mine) for all_say, mine in zip(said, own, strict=True)]

    z, drawn = torch.zeros_like(rows.z), rows.part(slice(None))
    last = turn.amax(dim=1) if p + q else turn.new_zeros(len(turn))
    for i in range(int(last.max()) + 1 if len(last) else 0):
        some = _rows_left(last >= i)
        now, (numbers, categories) = drawn.part(some), (turn[some] == i).split([p, q], dim=1)
        outputs = network(now, dtype) if i else blank.at(some)
        cells = Residuals(outputs.quantiles[0][numbers], normal)
        scores = torch.zeros_like(now.z)
        scores[numbers] = cells.scores(r[some][numbers])
        z[some] = torch.where(numbers, scores, z[some])
        levels = _reveal(now.levels, outputs, categories, chances[some], tilts and [t[some] for t in tilts])
        # Known from now on, as values are whose scores they have: of those that occur often the middle one.
        x = torch.where(numbers, marginals.values_at(scores), now.x)
        known_scores = torch.where(numbers, marginals.scores(x), now.z)
        drawn.put(some, describe(x, known_scores, now.known | numbers, levels))
    if change is not None:
        spread = Residuals(blank.quantiles[0], normal).spread
        z = z + change.shift(rows, drawn.levels, width.of_columns * spread)
    return z, drawn.levels


def choose_turns(unknown: Tensor, keys: Tensor, turns: int) -> Tensor:
    """Say in which turn each unknown cell of rows is drawn, in random order; -1 where known.

    Every turn draws one cell; what is too many for that is drawn late, by a number that grows evenly from
    turn to turn.

    Shape: unknown [n, c], keys [n] -> [n, c].
    """
    order = keyed_uniform(keys, 2, max(1, unknown.shape[1]))[:, : unknown.shape[1]].masked_fill(~unknown, 2.0)
    rank = order.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    too_many = (unknown.sum(dim=1, keepdim=True) - turns).clamp_min(0)
    ends = torch.arange(1, turns + 1, device=keys.device)
    drawn_by = ends + (too_many * (ends / turns) ** 2).long()  # [n, turns], cells by the end of each turn
    return torch.where(unknown, torch.searchsorted(drawn_by, rank, right=True), -1)


def _rows_left(left: Tensor) -> Tensor:
    """Give the numbers of rows that are left, on a GPU of all: blocks are to keep their size there.

    Shape: left [n] -> [m].
    """
    if left.is_cuda:
        return torch.arange(len(left), device=left.device)
    some = left.nonzero()[:, 0]
    missing = min(len(left), FEWEST_ROWS) - len(some)
    return torch.cat([some, (~left).nonzero()[:missing, 0]]) if missing > 0 else some


def _reveal(
    levels: Tensor, outputs: Outputs, now: Tensor, chances: Tensor, tilts: list[Tensor] | None
) -> Tensor:
    """Draw the categories whose time has come.

    Shape: levels, now, chances [n, q] -> [n, q].
    """
    levels = levels.clone()
    for k, logits in enumerate(outputs.logits):
        tilted = logits[0] if tilts is None else logits[0] + tilts[k]
        cumulative = F.softmax(tilted, dim=-1).cumsum(dim=-1)
        drawn = (cumulative < chances[:, k : k + 1]).sum(dim=-1).clamp_max(logits.shape[-1] - 1)
        levels[:, k] = torch.where(now[:, k], drawn, levels[:, k])
    return levels

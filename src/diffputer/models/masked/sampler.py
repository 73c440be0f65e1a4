"""The sampler: the reverse process of masked diffusion.

Missing cells of a row are unmasked in random order, one by one while there are at most STEPS, in blocks
beyond. Every step draws from the pooled conditional given what is known and what was drawn before. All
randomness is keyed to rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime.seeding import keyed_uniform
from ..base import Predictive, RowBatch
from .support import Support

#: A distribution of wanted cells given the known ones.
Conditional = Callable[[RowBatch, Tensor], Predictive]


def unmask(
    rows: RowBatch, keys: Tensor, support: Support, conditional: Conditional, steps: int
) -> tuple[Tensor, Tensor]:
    """Draw the missing cells of rows.

    Shape: keys [n] -> x [n, p], levels [n, q].
    """
    n, p = rows.x.shape
    c = p + rows.levels.shape[1]
    known = rows.all_known
    # The rank of each missing cell in the random order of its row.
    order = keyed_uniform(keys, 0, c).masked_fill(known, 2.0)
    rank = order.argsort(dim=1).argsort(dim=1)
    missing = (~known).sum(dim=1, keepdim=True)
    turns = missing.clamp_max(steps)
    turn = torch.where(known, steps, (rank * turns).div(missing.clamp_min(1), rounding_mode="floor"))
    for t in range(int(turns.max()) if n else 0):
        now = turn == t
        predictive = conditional(rows, now)
        chance = keyed_uniform(keys, 1 + t, 2 * c)
        x, z, shown, levels = rows.x, rows.z, rows.known, rows.levels.clone()
        if p:
            drawn = predictive.draw(support, chance[:, :p], chance[:, c : c + p])
            x = torch.where(now[:, :p], drawn, x)
            z = torch.where(now[:, :p], support.marginals.scores(drawn), z)
            shown = shown | now[:, :p]
        for k, probabilities in enumerate(predictive.levels):
            below = probabilities.cumsum(dim=1)
            level = (below < chance[:, p + k, None] * below[:, -1:]).sum(dim=1)
            levels[:, k] = torch.where(
                now[:, p + k], level.clamp_max(probabilities.shape[1] - 1), levels[:, k]
            )
        rows = RowBatch(x, z, shown, levels)
    return rows.x, rows.levels

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
from ..base import WHOLE, Cells, Predictive, RowBatch
from .support import Support

#: The distributions of cells given the known ones.
Conditional = Callable[[RowBatch, Cells], Predictive]


def unmask(
    rows: RowBatch, keys: Tensor, support: Support, conditional: Conditional, steps: int
) -> tuple[Tensor, Tensor]:
    """Draw the missing cells of rows; quickest where those that miss most come first.

    Shape: keys [n] -> x [n, p], levels [n, q].
    """
    n, p = rows.x.shape
    c = p + rows.levels.shape[1]
    rows, known = RowBatch(*(one.clone() for one in vars(rows).values())), rows.all_known
    # The rank of each missing cell in the random order of its row.
    order = keyed_uniform(keys, 0, c).masked_fill(known, 2.0)
    rank = order.argsort(dim=1).argsort(dim=1)
    missing = (~known).sum(dim=1, keepdim=True)
    blocks = missing.clamp_max(steps)
    block = torch.where(known, steps, (rank * blocks).div(missing.clamp_min(1), rounding_mode="floor"))
    for step in range(int(blocks.max()) if n else 0):
        # Rows that are complete need no evaluation: those with most missing cells come first.
        active = int((blocks > step).nonzero()[-1, 0]) + 1
        active = n if rows.x.is_cuda else min(n, -(-active // WHOLE) * WHOLE)
        part = slice(0, active)
        some, now = rows.part(part), block[part] == step
        cells = Cells.of(now, p)
        predictive = conditional(some, cells)
        chance = keyed_uniform(keys[part], 1 + step, 2 * c)
        x, z, shown, levels = rows.x, rows.z, rows.known, rows.levels
        if p:
            place = cells.pick(chance[:, c:])
            drawn = support.draw(predictive, cells.columns, cells.pick(chance), place)
            drawn = cells.place(drawn, some.x.shape)
            x[part] = torch.where(now[:, :p], drawn, some.x)
            z[part] = torch.where(now[:, :p], support.marginals.scores(drawn), some.z)
            shown[part] |= now[:, :p]
        for k, probabilities in enumerate(predictive.levels):
            below = probabilities.cumsum(dim=1)
            level = (below < chance[:, p + k, None] * below[:, -1:]).sum(dim=1)
            level = level.clamp_max(probabilities.shape[1] - 1)
            levels[part, k] = torch.where(now[:, p + k], level, some.levels[:, k])
    return rows.x, rows.levels

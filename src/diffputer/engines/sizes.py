"""What a table and a GPU leave of the settings of the conditional engine."""

from __future__ import annotations

import dataclasses

from ..diffusion.splitting import Columns
from ..settings import ConditionalSettings

#: Columns up to which attention between them is affordable, and levels of all categories if each had as
#: many as the largest.
MOST_ATTENDED, MOST_LEVELS = 128, 8_192
#: Boosted trees of all columns together, and of each column at least.
MOST_TREES, FEWEST_TREES = 1 << 14, 16
#: Memory that a training step takes for each hidden unit (of a column), block and row: Gesture, 32 columns,
#: peaks at 6.3 GB on the H200.
UNIT_BYTES = 42
#: Batches are not halved below this size.
SMALLEST_GPU_BATCH = 64


def with_size(
    settings: ConditionalSettings, columns: Columns, memory: int | None = None
) -> ConditionalSettings:
    """Adapt settings to a table and to the memory of a GPU (in bytes; None elsewhere).

    MLPs replace attention where columns or levels are so many that it would take too long, columns share
    a number of trees, and a batch is halved until it fits.
    """
    padded = len(columns.levels) * max(columns.levels, default=0)
    if len(columns.n_levels) > MOST_ATTENDED or padded > MOST_LEVELS:
        members = max(settings.mlp_members, settings.attention_members)
        settings = dataclasses.replace(settings, attention_members=0, mlp_members=members)
    c = len(columns.n_levels)
    trees = min(settings.boosted_trees, max(FEWEST_TREES, MOST_TREES // max(1, c)))
    settings = dataclasses.replace(settings, boosted_trees=trees)
    if memory is not None:
        s = settings
        units = s.attention_members * s.attention_depth * s.attention_width * c
        units += s.mlp_members * s.mlp_depth * s.mlp_width
        batch = s.batch_size
        while batch > SMALLEST_GPU_BATCH and batch * (1 + s.noised_share) * units * UNIT_BYTES > memory / 2:
            batch //= 2
        settings = dataclasses.replace(settings, batch_size=batch)
    return settings

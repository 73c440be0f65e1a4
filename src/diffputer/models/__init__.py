"""The models of a table: the default one (``conditional``) and the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from ..nn.loading import Declared
    from ..settings import Settings
    from .conditional.engine import ConditionalEngine
    from .paper.engine import PaperEngine

    FittedEngine = ConditionalEngine | PaperEngine


def declared_tensors(
    n_levels: NDArray[np.int64], settings: Settings, found: Mapping[str, Tensor]
) -> Declared:
    """Type and shape of the tensors that these settings declare, of which none is allocated.

    Trees have as many nodes as there are in the tensors that were found.

    Shape: n_levels [d].
    """
    import torch

    from ..nn.loading import describe_tensors

    with torch.device("meta"):
        engine = make_engine(n_levels, settings, "meta", torch.float32)
    declared = describe_tensors(engine.model.state_dict())
    for name in declared:
        if name.startswith("trees.") and name != "trees.start" and 0 in declared[name][1] and name in found:
            dtype, (_, *rest) = declared[name]
            declared[name] = dtype, (found[name].shape[0] if found[name].ndim else 0, *rest)
    return declared


def fewest_tensors(settings: Settings) -> int:
    """Count tensors that a model of these settings has at least, without making anything."""
    from ..settings import PaperSettings

    if isinstance(settings, PaperSettings):
        return 1
    s = settings
    backbones = ((s.mlp_members, s.mlp_depth), (s.attention_members, s.attention_depth))
    return sum(min(1, members) * 2 * depth for members, depth in backbones)


def make_engine(
    n_levels: NDArray[np.int64], settings: Settings, device: torch.device | str, dtype: torch.dtype
) -> FittedEngine:
    """Make the engine that these settings belong to.

    Shape: n_levels [d], levels of each encoded column, 0 for numbers.
    """
    from ..settings import PaperSettings
    from .conditional.engine import ConditionalEngine
    from .paper.engine import PaperEngine

    if isinstance(settings, PaperSettings):
        return PaperEngine(n_levels, settings, device, dtype)
    return ConditionalEngine(n_levels, settings, device, dtype)

"""The engines: models of rows with holes that EM fits and that impute and draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from ..settings import Settings
    from .conditional import ConditionalEngine
    from .paper import PaperEngine

    FittedEngine = ConditionalEngine | PaperEngine


def make_engine(
    n_levels: NDArray[np.int64], settings: Settings, device: torch.device | str, dtype: torch.dtype
) -> FittedEngine:
    """Make the engine that these settings belong to.

    Shape: n_levels [d], levels of each encoded column, 0 for numbers.
    """
    from ..settings import PaperSettings
    from .conditional import ConditionalEngine
    from .paper import PaperEngine

    if isinstance(settings, PaperSettings):
        return PaperEngine(n_levels, settings, device, dtype)
    return ConditionalEngine(n_levels, settings, device, dtype)

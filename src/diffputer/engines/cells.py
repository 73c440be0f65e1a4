"""What an engine says of single cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass
class CellDistribution:
    """What is known of each cell without drawing, in standardised numbers; NaN where it does not apply.

    Shape: each [n, c].
    """

    deviation: NDArray[np.float32]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    level: NDArray[np.float32]
    probability: NDArray[np.float32]
    estimate: NDArray[np.float32]
    """The mean or the median of a number."""

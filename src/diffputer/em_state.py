"""What EM carries from round to round, and where it is kept for a fit that may be killed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .nn.journal import Journal, UnderWay
from .trace import EMRound


@dataclass
class EMState:
    """All that EM carries from one round to the next, and what a checkpoint holds."""

    trace: list[EMRound]
    completed: NDArray[np.float32]
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    best_round: int = 0
    best_errors: NDArray[np.float64] | None = None
    """Of the held-out cells of each column. Shape: [c]."""
    best_ratio_errors: NDArray[np.float64] | None = None
    """Standard errors of these beside those of the column's centre. Shape: [c]."""
    under_way: UnderWay | None = None
    """The M-step of the round after those in the trace, as far as it has come."""


class Checkpoint(Protocol):
    """Where EM keeps its state: after each round and, in a long M-step, every so often."""

    def load(self) -> EMState | None:
        """Give the last saved state, or None."""

    def save(self, state: EMState) -> None:
        """Replace the saved state."""


def open_journal(state: EMState, checkpoint: Checkpoint | None) -> Journal:
    """Give the journal of the next M-step, which writes into the checkpoint, beside the finished rounds."""
    if checkpoint is None:
        return Journal()
    return Journal(
        state.under_way,
        lambda under_way: checkpoint.save(dataclasses.replace(state, under_way=under_way)),
    )

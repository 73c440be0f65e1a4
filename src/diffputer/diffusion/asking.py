"""What the parts of an ensemble are asked of blank rows, once for all that needs it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .conditional import Outputs
from .dependence import Dependence
from .residuals import Residuals


@dataclass
class Counts:
    """How much the parts of an ensemble count.

    Numbers and not tensors: a GPU is waited for whenever one is asked of it.
    """

    shares: list[float]
    """Of the networks among each other."""
    linear: float
    """Of linear parts, in quantiles."""
    linear_draws: float
    """Of the copula, in draws."""
    networks: list[float]
    """Of all networks, in means and probabilities of each column; of lines and of trees likewise."""
    line: list[float]
    trees: list[float]

    @classmethod
    def read(cls, *shares: Tensor) -> Counts:
        """Read shares in the order of the fields, all at once."""
        flat = [share.reshape(-1) for share in shares]
        numbers = [part.tolist() for part in torch.cat(flat).cpu().split([len(part) for part in flat])]
        of_networks, (linear,), (linear_draws,), networks, line, trees = numbers
        return cls(of_networks, linear, linear_draws, networks, line, trees)

    def asks_networks(self, *, to_draw: bool, has_levels: bool) -> bool:
        """Whether networks count in what is said, or in draws, for which levels alone must be said."""
        speak = self.linear < 1 or any(self.networks)
        return self.linear_draws < 1 or (speak and has_levels) if to_draw else speak


@dataclass
class Asked:
    """What each network that counts says, by its number, and how much it and all else count."""

    outputs: dict[int, Outputs]
    counts: Counts


@dataclass
class Beforehand:
    """What is told of blank rows before they are drawn, once for all draws.

    Attributes
    ----------
    asked
        What networks say.
    said
        How probable levels are; q of [n, L_k].
    dependence, pooled
        See `Ensemble.dependence_in` and `Ensemble.pool_in`.
    """

    asked: Asked
    said: list[Tensor]
    dependence: Dependence | None
    pooled: Residuals | None

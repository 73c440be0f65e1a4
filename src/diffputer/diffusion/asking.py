"""What the parts of an ensemble are asked of blank rows, once for all that needs it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .conditional import Outputs
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
    """Of all networks, in means and probabilities of each column."""
    line: list[float]
    """Of the Gaussian of the values, likewise."""
    trees: list[float]
    """Of trees, likewise."""

    @classmethod
    def read(
        cls,
        *,
        shares: Tensor,
        linear: Tensor,
        linear_draws: Tensor,
        networks: Tensor,
        line: Tensor,
        trees: Tensor,
    ) -> Counts:
        """Read all of them at once."""
        parts = [shares, linear.view(1), linear_draws.view(1), networks, line, trees]
        numbers = torch.cat(parts).cpu().split([len(part) for part in parts])
        of_networks, (of_linear,), (of_draws,), *of_columns = (part.tolist() for part in numbers)
        return cls(of_networks, of_linear, of_draws, *of_columns)

    def asks_networks(self, *, to_draw: bool, has_levels: bool) -> bool:
        """Whether networks count in what is said, or in draws, for which levels alone must be said."""
        speak = self.linear < 1 or any(self.networks)
        if not to_draw:
            return speak
        return self.linear_draws < 1 or (speak and has_levels)


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
    pooled
        See `Ensemble.pool_in`.
    dependence
        How much of the copula's denoiser is in that of each network.
    """

    asked: Asked
    said: list[Tensor]
    pooled: Residuals | None
    dependence: list[float]

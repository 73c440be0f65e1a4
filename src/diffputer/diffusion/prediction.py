"""What is said of blank rows: means, quantiles and probabilities, averaged over members."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .conditional import ConditionalNetwork, Outputs, Rows

#: No level is taken to be less probable where logarithms of probabilities are needed.
SMALLEST = 1e-6


@dataclass
class Prediction:
    """What the members agree on, for blank rows.

    Shape: mean [n, p]; quantiles [n, p, Q] of z, ascending; probabilities: q of [n, L_k]; shift [n, p] or
    nothing: how far trees and lines have moved the mean, which quantiles have not followed.
    """

    mean: Tensor
    quantiles: Tensor
    probabilities: list[Tensor]
    shift: Tensor | float = 0.0

    @classmethod
    def join(cls, parts: list[Prediction]) -> Prediction:
        """Put predictions of blocks of rows one below the other."""
        levels = zip(*(part.probabilities for part in parts), strict=True)
        return cls(
            torch.cat([part.mean for part in parts]),
            torch.cat([part.quantiles for part in parts]),
            [torch.cat(of_column) for of_column in levels],
        )


@torch.no_grad()
def ask(network: ConditionalNetwork, rows: Rows, dtype: torch.dtype) -> Outputs:
    """Give what each member of a network says of blank rows."""
    outputs: Outputs = network(rows, dtype, shared=True)
    return outputs


def average(outputs: Outputs) -> Prediction:
    """Average what the members of a network say of blank rows."""
    return Prediction(
        outputs.mean.mean(dim=0),
        outputs.quantiles.mean(dim=0).sort(dim=-1).values,
        [F.softmax(of_column, dim=-1).mean(dim=0) for of_column in outputs.logits],
    )


def mix(predictions: list[Prediction], weights: list[float]) -> Prediction:
    """Average several predictions with weights that sum to one."""

    def weigh(parts: list[Tensor]) -> Tensor:
        return torch.stack([w * part for w, part in zip(weights, parts, strict=True)]).sum(dim=0)

    return Prediction(
        weigh([p.mean for p in predictions]),
        weigh([p.quantiles for p in predictions]),
        [weigh(list(parts)) for parts in zip(*(p.probabilities for p in predictions), strict=True)],
        sum(w * p.shift for w, p in zip(weights, predictions, strict=True)),
    )


def sharpen(probabilities: Tensor, sharpness: Tensor | float) -> Tensor:
    """Give powers of probabilities, which sum to one again: above one the probable is more so.

    Shape: [n, L] -> [n, L].

    Examples
    --------
    >>> sharpen(torch.tensor([[0.8, 0.2]]), 2.0)
    tensor([[0.9412, 0.0588]])
    """
    return F.softmax(sharpness * probabilities.clamp_min(SMALLEST).log(), dim=-1)


def correction(said: Tensor, own: Tensor) -> Tensor:
    """Give what is added to logarithms of a part's probabilities for them to be what is said of blank rows.

    Shape: [n, L] -> [n, L].
    """
    return said.clamp_min(SMALLEST).log() - own.clamp_min(SMALLEST).log()

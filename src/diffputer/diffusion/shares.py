"""How much each part of an ensemble counts, and how sure it is of levels, told by cells it has not seen."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .prediction import Prediction, mix, sharpen
from .residuals import quantile_weights
from .splitting import Validation

#: Shares that are tried when two predictions are combined.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: As many cells of a column are taken to have said what those of all columns say together, and as many of
#: all columns that widths are right.
PRIOR_CELLS = 50
#: Errors of so many cells say as much as one would if errors were independent and normal.
CELLS_ALIKE = 2
#: Shares nearer to 0 or 1 than this are 0 or 1, and a part that always errs less than this is perfect.
LEAST_SHARE, SMALLEST_LOSS = 0.02, 1e-9
#: A full share of networks and of trees beside linear parts is, before cells have spoken, e^-2 times as
#: probable as none: of few rows linear parts learn more, and a network was stopped where it was best on the
#: very cells that speak. Of 0, 1, 2, 3 and 5 it was among the best on small and middling tables (log).
PREJUDICE = 2.0
#: Held-out numbers from which on a part may draw alone: of fewer a mix is safer, as they hardly tell whether
#: another adds something (log).
CELLS_TO_BE_ALONE = 150
#: Powers of probabilities that are tried, and the deviation of their logarithm that is thought of beforehand.
SHARPNESSES, USUAL_SHARPNESS = [1.04**k for k in range(-20, 31)], 0.2


def likely_share(losses: Tensor, n_cells: Tensor | float, prejudice: float = 0.0) -> Tensor:
    """Average SHARES s, each as probable as its loss L of n cells makes it: L^(-n / 2c) e^(-s prejudice).

    Where cells are few no share stands out, and both parts count; where they are many the best is taken.
    c is CELLS_ALIKE.

    Shape: losses [shares, columns], n_cells [columns] -> [columns].

    Examples
    --------
    >>> losses = torch.tensor([[1.4], [1.3], [1.2], [1.1], [1.0]])
    >>> [round(float(likely_share(losses, n)), 2) for n in (0, 10, 100, 1_000)]
    [0.5, 0.6, 0.97, 1.0]
    >>> [round(float(likely_share(losses, n, PREJUDICE)), 2) for n in (0, 10, 100, 1_000)]
    [0.27, 0.36, 0.95, 1.0]
    """
    worse = losses.clamp_min(SMALLEST_LOSS).log()
    shares = torch.tensor(SHARES, device=losses.device)[:, None]
    likely = torch.softmax(-worse * n_cells / (2 * CELLS_ALIKE) - prejudice * shares, dim=0)
    share = (shares * likely).sum(dim=0)
    # What hardly counts is not worth its time.
    share = torch.where(share < LEAST_SHARE, 0.0, share)
    return torch.where(share > 1 - LEAST_SHARE, 1.0, share)


def best_mix(
    a: Prediction, b: Prediction, validation: Validation, prejudice: float = 0.0
) -> tuple[float, Prediction]:
    """Give the share of b in a mix of both, and that mix."""
    mixes = [mix([a, b], [1 - share, share]) for share in SHARES]
    losses = torch.tensor([validation.loss(prediction) for prediction in mixes])
    share = float(likely_share(losses[:, None], validation.n_cells, prejudice)[0])
    return share, mix([a, b], [1 - share, share])


def best_pool(a: Prediction, b: Prediction, validation: Validation, *, alone: bool) -> float:
    """Give the share of draws that should be of b.

    Draws of both are a sample of F = (1 - s) F_a + s F_b, which is wide where they disagree, and not of the
    mean of their quantiles; so F is scored itself, by its CRPS of held-out numbers. If b may be alone, it is
    where it is not worse than the best share by more than a standard error of many numbers: what a adds to it
    would be width.
    """
    if not validation.held.any():
        return best_mix(a, b, validation)[0]
    losses = _scores_of_pools(a, b, validation)
    mean, n_cells = losses.mean(dim=1), losses.shape[1]
    more = (losses[-1] - losses[mean.argmin()]).double()
    if alone and n_cells >= CELLS_TO_BE_ALONE and more.mean() <= more.std() / n_cells**0.5:
        return 1.0
    return float(likely_share(mean[:, None], n_cells)[0])


def _scores_of_pools(a: Prediction, b: Prediction, validation: Validation) -> Tensor:
    """Give E|X - z| - E|X - X'| / 2 of held-out scores z, for each share of b. Shape: [shares, cells]."""
    z = validation.z[validation.held]
    of_a, of_b = (part.quantiles[validation.held] for part in (a, b))
    weight = quantile_weights(z.device)

    def from_truth(x: Tensor) -> Tensor:
        return ((x - z[:, None]).abs() * weight).sum(dim=1)

    def apart(x: Tensor, y: Tensor) -> Tensor:
        return ((x[:, :, None] - y[:, None, :]).abs() * weight * weight[:, None]).sum(dim=(1, 2))

    from_a, from_b, aa, ab, bb = (
        from_truth(of_a), from_truth(of_b), apart(of_a, of_a), apart(of_a, of_b), apart(of_b, of_b),
    )  # fmt: skip
    return torch.stack(
        [
            (1 - s) * from_a + s * from_b - ((1 - s) ** 2 * aa + 2 * s * (1 - s) * ab + s**2 * bb) / 2
            for s in SHARES
        ]
    )


def add(answer: Prediction, means: Tensor, probabilities: list[Tensor] | None, shares: Tensor) -> Prediction:
    """Let another part have a share in what is said of each column; ``shift`` is what means have changed.

    Shape: means [n, p]; probabilities, if it says any, q of [n, L_k]; shares [p] or [p + q].
    """
    p = means.shape[1]
    shift = shares[:p] * (means - answer.mean)
    mixed = answer.probabilities
    if probabilities is not None:
        mixed = [
            torch.lerp(mine, theirs, share)
            for mine, theirs, share in zip(mixed, probabilities, shares[p:], strict=True)
        ]
    return Prediction(answer.mean + shift, answer.quantiles, mixed, answer.shift + shift)


def best_shares(
    mixes: Sequence[Sequence[Prediction]], validations: Sequence[Validation], prejudice: float = 0.0
) -> Tensor:
    """Say for each column how much a part should count of which mixes have all SHARES, on all cells together.

    Columns with few held-out cells do as all do together.

    Shape: mixes [validations][shares] -> [p + q].
    """
    told = [
        [validation.losses(mixed) for mixed in of] for of, validation in zip(mixes, validations, strict=True)
    ]
    chosen = []
    for kind in (0, 1):
        of_column = torch.stack([torch.stack([losses[kind] for losses in of]) for of in told]).sum(dim=0)
        n_cells = torch.stack([(v.held, v.held_levels)[kind].sum(dim=0) for v in validations]).sum(dim=0)
        of_all = of_column.sum(dim=1, keepdim=True) / n_cells.sum().clamp_min(1)
        # Those of all columns count as PRIOR_CELLS, or as many as they are.
        prior = n_cells.sum().clamp_max(PRIOR_CELLS)
        n_all = (n_cells + prior).clamp_min(1)
        chosen.append(likely_share((of_column + prior * of_all) / n_all, n_all, prejudice))
    return torch.cat(chosen)


def best_sharpness(probabilities: list[Tensor], validation: Validation) -> Tensor:
    """Give the powers of the probabilities of each category that make held-out levels most probable.

    Of few cells they are near to that of all categories, and to one.

    Shape: q of [n, L_k] -> [q].
    """
    losses = torch.stack(
        [
            validation.surprises([sharpen(of_column, power) for of_column in probabilities])
            for power in SHARPNESSES
        ]
    )
    # The cells of all categories count as PRIOR_CELLS, or as many as they are.
    of_all = losses.sum(dim=1, keepdim=True) * min(
        1.0, PRIOR_CELLS / max(1, int(validation.held_levels.sum()))
    )
    powers = torch.tensor(SHARPNESSES, device=losses.device)
    doubt = (powers.log() / USUAL_SHARPNESS).square()[:, None] / 2
    return powers[(losses + of_all + doubt).argmin(dim=0)]

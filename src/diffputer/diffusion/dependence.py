"""How residuals of a row go together, as the Gaussian copula says: a linear denoiser beside a network's.

Given the known part of a row, the copula says that its unknown scores have a covariance, whose correlations R
are those of the residuals r (residuals.py). Of noised residuals r_t = r + sigma eps a Gaussian has

    D_0(r_t; sigma) = E[r | r_t] = R (R + sigma^2 I)^-1 r_t

A network has to learn that for every set of known columns and every sigma, and few rows do not teach it to
(docs/dev/conditional.md). So the denoiser is (1 - w) D + w D_0, with w chosen on held-out cells. Categories
that were revealed on the way count as seen without noise: what they tell of numbers is in D_0, too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .conditional import ConditionalNetwork, Outputs, Rows, add_noise, describe
from .gaussian import GaussianCopula
from .gaussian_em import smooth
from .residuals import Residuals, normal_quantiles
from .schedule import scalings
from .splitting import Validation

#: Variances, as shares of one, below which a cell is taken to follow from the others: it has no residual.
SMALLEST_VARIANCE = 1e-6
#: Noise of categories, whose indicators follow from each other.
INDICATOR_NOISE = 1e-3
#: How often held-out rows are noised to choose w; of few cells it is near to what it is of most tables, by so
#: many squares of the difference.
TIMES, PRIOR_SHARE, PRIOR_SQUARES = 4, 0.75, 30.0


class Dependence:
    """The copula's denoiser of blank rows, of which some unknown numbers are noised.

    Shape: rows of n.
    """

    def __init__(self, copula: GaussianCopula, rows: Rows) -> None:
        self._copula, self._rows = copula, rows
        values, self._known = copula.latent(rows)
        self._expected, rest = copula.condition(values, self._known)
        variance = rest.diagonal(dim1=1, dim2=2)
        varies = variance > SMALLEST_VARIANCE
        self._scale = torch.where(varies, variance, 1.0).sqrt()
        rest = rest * (varies[:, :, None] & varies[:, None, :])
        self._correlation = rest / self._scale[:, :, None] / self._scale[:, None, :]
        self._correlation.diagonal(dim1=1, dim2=2).fill_(1.0)

    def denoise(self, r_t: Tensor, noised: Tensor, sigma: Tensor, levels: Tensor) -> Tensor:
        """Give D_0 of noised residuals, with categories that are known by now; of other cells anything.

        Shape: r_t, noised [n, p]; sigma [n, 1]; levels [n, q] -> [n, p].
        """
        p = self._copula.p
        now = self._rows.part(slice(None))
        now.levels = levels
        latent, known = self._copula.latent(now)
        seen = known & ~self._known
        values = torch.where(seen, (latent - self._expected) / self._scale, 0.0)
        noise = torch.full_like(values, INDICATOR_NOISE)
        values[:, :p], noise[:, :p], seen[:, :p] = r_t.double(), sigma.double() ** 2, noised
        return smooth(values, seen, noise, self._correlation)[:, :p].float()


@torch.no_grad()
def choose_share(
    network: ConditionalNetwork,
    copula: GaussianCopula,
    validation: Validation,
    some: Tensor,
    log_noise: tuple[float, float],
    dtype: torch.dtype,
) -> float:
    """Choose w of the members of a network: the least squared error on noised held-out cells of some rows.

    Other cells of these rows are hidden and noised besides, as many as it may be, so that there is something
    that a held-out cell can go together with.
    """
    rows, held = validation.rows.part(some), validation.held[some]
    z = torch.where(held, validation.z[some], rows.z)
    generator = torch.Generator().manual_seed(0)
    device = held.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator).to(device)

    def any_part(shape: torch.Size) -> Tensor:
        return uniform(*shape) < uniform(shape[0], 1)

    cross, square = PRIOR_SHARE * PRIOR_SQUARES, PRIOR_SQUARES
    for time in range(TIMES):
        hidden, hidden_levels = rows.known & any_part(held.shape), any_part(rows.levels.shape)
        shown = torch.where(hidden_levels, -1, rows.levels)
        blank = describe(rows.x, rows.z, rows.known & ~hidden, shown)
        noised = held | hidden
        levels = torch.where(any_part(rows.levels.shape), rows.levels, shown)
        normal = torch.randn(len(held), 1 + held.shape[1], generator=generator).to(device)
        sigma = torch.exp(log_noise[0] + log_noise[1] * normal[:, :1])
        member = network.member(time % network.members)
        answer: Outputs = member(blank, dtype)
        residuals = Residuals(answer.quantiles[0], normal_quantiles(device))
        r = residuals.of(z)
        r_t = r + sigma * normal[:, 1:]
        c_skip, c_out, _, _ = scalings(sigma, 1.0)
        outputs: Outputs = member(add_noise(blank, residuals, noised, r_t, sigma, levels), dtype)
        of_network = c_skip * r_t + c_out * outputs.denoised[0]
        apart = (Dependence(copula, blank).denoise(r_t, noised, sigma, levels) - of_network) / c_out
        counts = held & (noised.sum(dim=1, keepdim=True) > 1)
        cross += float((apart * ((r - of_network) / c_out) * counts).sum())
        square += float((apart.square() * counts).sum())
    return min(1.0, max(0.0, cross / square))

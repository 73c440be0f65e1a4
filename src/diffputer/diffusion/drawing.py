"""Joint draws by a short reverse diffusion: numbers from noise to data, categories revealed one by one.

Numbers follow dr/dsigma = (r - D(r; sigma, c)) / sigma in what the blank row leaves open (residuals.py). For
a D that does not change the solution is

    r_{i+1} = (sigma_{i+1} / sigma_i) r_i + (1 - sigma_{i+1} / sigma_i) D_bar,

and D_bar is D where the step is half done in lambda = -ln sigma, extrapolated from the last two evaluations,

    D_bar   = D_i + (D_i - D_{i-1}) h / (2 h_{i-1}),   h = lambda_{i+1} - lambda_i:

one evaluation a step, of second order (Lu et al. 2022). The blank evaluation, which gives the quantiles,
comes first and serves all draws of a row; the noisy start is r = sqrt(sigma^2 + 1) eps.

D is the network's, and the copula's by some share (dependence.py).

A missing category is drawn from its probabilities given the condition, the present noisy numbers and the
categories that were drawn before it; from then on it is part of the condition. Each has a step of its own
as long as there are not more of them than three quarters of the steps. Of the condition alone all parts of an
ensemble together say better than one member how probable levels are, P; so the member's probabilities p are
taken times P / p of the blank row: what it says of dependence stays, and levels are nearly as frequent as P.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..runtime.seeding import keyed_normal, keyed_uniform
from ..settings import ConditionalSettings
from .conditional import ConditionalNetwork, Outputs, Rows, add_noise
from .dependence import Dependence
from .prediction import correction
from .residuals import Residuals, Width, normal_quantiles
from .schedule import noise_levels, scalings
from .variants import Change

#: By this part of the steps all categories are known, so that numbers can still follow them.
REVEALED_BY = 0.75


def steps_of_draw(settings: ConditionalSettings, n_networks: int = 1) -> Tensor:
    """Give the noise levels of a draw: evaluations are as many as may be with those of blank rows.

    Networks are asked about these one by one; more than a quarter of the steps is not given up for it.
    """
    steps = settings.sampling_steps - min(n_networks, max(1, settings.sampling_steps // 4))
    return noise_levels(steps, settings.sigma_min, settings.sigma_max, settings.schedule_exponent)


def draw_rows(
    network: ConditionalNetwork,
    blank: Outputs,
    rows: Rows,
    keys: Tensor,
    sigma: Tensor,
    dtype: torch.dtype,
    said: list[Tensor] | None = None,
    width: Width | None = None,
    change: Change | None = None,
    beside: tuple[Dependence, float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw the unknown cells of blank rows by one member, once: scores of numbers, and levels.

    What the member says of the blank rows is given; each noise level takes one more evaluation. Levels are
    as probable as is said, or as the member says. Residuals are stretched by a width; noise is a function of
    the keys alone. A change of the model moves drawn numbers. What is beside the network counts by its share.

    Shape: rows of n, keys [n], sigma [steps + 1], said q of [n, L_k] -> z [n, p], levels [n, q].
    """
    width = width or Width()
    residuals, r, levels = draw_residuals(network, blank, rows, keys, sigma, dtype, said, beside)
    z = residuals.scores(width.stretch(r))
    if change is not None:
        z = z + change.shift(rows, levels, width.of_columns * residuals.spread)
    return z, levels


@torch.no_grad()
def draw_residuals(
    network: ConditionalNetwork,
    blank: Outputs,
    rows: Rows,
    keys: Tensor,
    sigma: Tensor,
    dtype: torch.dtype,
    said: list[Tensor] | None = None,
    beside: tuple[Dependence, float] | None = None,
) -> tuple[Residuals, Tensor, Tensor]:
    """Draw what blank answers leave open, levels as probable as is said.

    Shape: rows of n, keys [n], sigma [steps + 1], said q of [n, L_k] -> maps, r [n, p], levels [n, q].
    """
    p, q = rows.x.shape[1], rows.levels.shape[1]
    steps = len(sigma) - 1
    unknown = ~rows.known
    levels = rows.levels.clone()
    reveal_at = _reveal_steps(levels < 0, keys, max(1, round(REVEALED_BY * steps)))
    chances = keyed_uniform(keys, 1, max(1, q))

    residuals = Residuals(blank.quantiles[0], normal_quantiles(keys.device))
    r = torch.sqrt(sigma[0] ** 2 + 1).float() * keyed_normal(keys, 0, max(1, p))[:, :p]
    tilts = None
    if said is not None:
        own = (F.softmax(logits[0], dim=-1) for logits in blank.logits)
        tilts = [correction(all_say, mine) for all_say, mine in zip(said, own, strict=True)]
    _reveal(levels, blank, reveal_at == 0, chances, tilts)

    before: Tensor | None = None
    for i in range(steps):
        level = torch.full((len(keys), 1), float(sigma[i]), device=r.device)
        noisy = add_noise(rows, residuals, unknown, r, level, levels)
        outputs: Outputs = network(noisy, dtype)
        c_skip, c_out, _, _ = scalings(level, 1.0)
        denoised = c_skip * r + c_out * outputs.denoised[0]
        if beside is not None:
            denoised = torch.lerp(denoised, beside[0].denoise(r, unknown, level, levels), beside[1])
        _reveal(levels, outputs, reveal_at == i + 1, chances, tilts)
        target = denoised
        if before is not None and i + 1 < steps:
            h, h_before = (float(torch.log(sigma[j] / sigma[j + 1])) for j in (i, i - 1))
            target = denoised + (denoised - before) * (h / (2 * h_before))
        ratio = float(sigma[i + 1] / sigma[i])
        r = ratio * r + (1 - ratio) * target
        before = denoised
    return residuals, r, levels


def _reveal_steps(unknown: Tensor, keys: Tensor, steps: int) -> Tensor:
    """Spread the unknown categories of each row over the steps, in random order; -1 where known.

    Shape: unknown [n, q], keys [n] -> [n, q].
    """
    n, q = unknown.shape
    if q == 0:
        return torch.zeros(n, 0, dtype=torch.int64, device=unknown.device)
    order = keyed_uniform(keys, 0, q).masked_fill(~unknown, 2.0)
    rank = order.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    count = unknown.sum(dim=1, keepdim=True).clamp_min(1)
    return torch.where(unknown, rank * steps // count, -1)


def _reveal(
    levels: Tensor, outputs: Outputs, now: Tensor, chances: Tensor, tilts: list[Tensor] | None
) -> None:
    """Draw the categories whose time has come, in place.

    Shape: levels, now [n, q], chances [n, q].
    """
    for k, logits in enumerate(outputs.logits):
        tilted = logits[0] if tilts is None else logits[0] + tilts[k]
        cumulative = F.softmax(tilted, dim=-1).cumsum(dim=-1)
        drawn = (cumulative < chances[:, k : k + 1]).sum(dim=-1).clamp_max(logits.shape[-1] - 1)
        levels[:, k] = torch.where(now[:, k], drawn, levels[:, k])

"""How wide intervals and draws are, chosen on held-out cells.

A network knows its training rows better than others, so that the residuals it learns from are too small.
Those of held-out cells are not: what is said of a column is stretched until mean squares agree. Where parts
of an ensemble disagree, their draws are wider together than each is alone: last, one factor makes all of
them narrower or wider until they hold as many truths as they should.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..runtime.seeding import keyed_uniform, mix64
from ..settings import ConditionalSettings
from .conditional import ConditionalNetwork, Rows
from .dependence import choose_share
from .drawing import draw_residuals
from .ensemble import LINEAR, Ensemble
from .residuals import Residuals, normal_quantiles
from .shares import PRIOR_CELLS
from .splitting import Validation, evenly

#: Rows with held-out cells (fewer if time is short), and draws of each: nine in ten truths should lie between
#: the outermost of 19.
ROWS, FEW_ROWS, DRAWS = 2_000, 400, 19
#: Held-out cells from which on draws of a single part are made narrower or wider by one factor more.
ENOUGH_CELLS = 1_000
#: Cells of these rows at most: wide tables have fewer rows drawn.
MOST_CELLS = 50_000
#: What is known of widths beforehand, in cells: that columns have that of all (they differ by some 7 %), and
#: that draws of all parts together are as wide as each says (to some 10 %). Fewer cells tell less than that.
CELLS_OF_COLUMN, CELLS_TOGETHER = 100, 100
#: Smallest and largest width of a column, and of all together.
WIDTHS, ALL_WIDTHS = (0.1, 3.0), (0.4, 1.4)


def calibrate(
    model: Ensemble,
    validation: Validation,
    settings: ConditionalSettings,
    dtype: torch.dtype,
    n_rows: int = ROWS,
) -> None:
    """Choose ``stretch``, ``dependence``, widths and ``together`` of an ensemble, on so many rows."""
    width = max(1, validation.held.shape[1])
    some = evenly(len(validation.held), min(n_rows, -(-MOST_CELLS // width)), validation.held.device)
    rows, held = validation.rows.part(some), validation.held[some]
    if not held.any():
        return
    z = _any_scores(model, validation.x[some])
    normal = normal_quantiles(held.device)

    def squares(values: Tensor) -> Tensor:
        """Sums of squares of held-out cells by column. Shape: [t n, p] -> [p], the mean over t."""
        by_turn = values.view(-1, *held.shape)
        return (by_turn.square() * held).sum(dim=1).mean(dim=0)

    n_cells = held.sum(dim=0)
    said = Residuals(model.predict(rows, dtype).quantiles, normal)
    model.stretch.copy_(_ratio(squares(said.of(z)), n_cells))
    if model.copula is not None and model.linear_draws > 0:
        linear = Residuals(model.copula.predict(rows, model.marginals).quantiles, normal)
        model.linear_width.copy_(_ratio(squares(linear.of(z)), n_cells))
    model.together.fill_(1.0)
    log_noise = settings.noise_log_mean, settings.noise_log_deviation
    for k, share in enumerate(model.shares.tolist()):
        if model.copula is not None and share > 0:
            network = model.networks[k]
            assert isinstance(network, ConditionalNetwork)
            model.dependence[k] = choose_share(network, model.copula, validation, some, log_noise, dtype)
    groups = _draw_groups(model, rows, settings, dtype)
    for k in range(len(model.networks)):
        mine = [group for group in groups if group.part == k]
        if mine:
            true = torch.stack([squares(group.residuals_of(z)) for group in mine]).mean(dim=0)
            model.widths[k] = _ratio(true, torch.stack([squares(group.r) for group in mine]).mean(dim=0))
    if len(groups) > 1 or int(n_cells.sum()) >= ENOUGH_CELLS:
        model.together.fill_(_width_together(model, groups, validation.x[some], held))


@dataclass
class _Group:
    """Draws of one member, t turns of n rows: residuals of a network, distances from the mean of the copula.

    Shape: r [t n, p].
    """

    part: int
    r: Tensor
    maps: Residuals | Tensor
    """Of residuals; the copula's are distances from these means."""

    def residuals_of(self, z: Tensor) -> Tensor:
        """Give what these scores would have been drawn as in each turn. Shape: z [n, p] -> [t n, p]."""
        z = z.repeat(len(self.r) // len(z), 1)
        return z - self.maps if isinstance(self.maps, Tensor) else self.maps.of(z)

    def scores(self, width: Tensor) -> Tensor:
        """Give the scores of draws of a width. Shape: width [p] -> [t n, p]."""
        r = width * self.r
        return self.maps + r if isinstance(self.maps, Tensor) else self.maps.scores(r)


def _draw_groups(
    model: Ensemble, rows: Rows, settings: ConditionalSettings, dtype: torch.dtype
) -> list[_Group]:
    """Draw rows by each member as often as it counts, all turns of a member at once."""
    n, device = len(rows.label), rows.label.device
    allotted, dependence = model.allot(DRAWS), model.dependence_in(rows)
    groups = []
    for owner in dict.fromkeys(allotted):
        turns = torch.tensor([j for j in range(DRAWS) if allotted[j] == owner], device=device)
        keys = mix64((torch.arange(n, device=device) + n * turns[:, None]).reshape(-1))
        many = rows.repeat(len(turns))
        if owner[0] == LINEAR:
            assert model.copula is not None
            drawn, centre = (model.copula.draw(many, keys, width)[0] for width in (1.0, 0.0))
            groups.append(_Group(LINEAR, drawn - centre, centre))
        else:
            beside = None
            if dependence is not None:
                beside = dependence.repeat(len(turns)), float(model.dependence[owner[0]])
            maps, r, _ = draw_residuals(model.member(*owner), many, keys, settings, dtype, beside=beside)
            groups.append(_Group(owner[0], r, maps))
    return groups


def _width_together(model: Ensemble, groups: list[_Group], x: Tensor, held: Tensor) -> float:
    """Find the factor with which as many truths lie outside all of their draws as should.

    Values, not scores, are compared: a value that occurs often may be drawn too, and the truth is then as
    likely to have any of the ranks that it shares with such draws.
    """

    def outside(factor: float) -> float:
        below, above = torch.zeros_like(x), torch.zeros_like(x)
        for group in groups:
            drawn = model.marginals.values_at(group.scores(factor * model.width_of(group.part)))
            drawn = drawn.view(-1, *x.shape)
            below += (drawn < x).sum(dim=0)
            above += (drawn > x).sum(dim=0)
        ranks = DRAWS + 1 - below - above
        return float(((((below == 0).float() + (above == 0).float()) / ranks)[held]).mean())

    low, high = ALL_WIDTHS
    n_cells = int(held.sum())
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (low, middle) if outside(middle) < 2 / (DRAWS + 1) else (middle, high)
    found: float = ((low + high) / 2) ** (n_cells / (n_cells + CELLS_TOGETHER))
    return found


def _any_scores(model: Ensemble, x: Tensor) -> Tensor:
    """Give scores of values; one that occurs often is anywhere in its interval. Shape: [n, p] -> [n, p]."""
    below, upto = model.marginals.distribution(x)
    keys = mix64(torch.arange(len(x), device=x.device) + len(x) * DRAWS)
    z: Tensor = torch.special.ndtri(below + (upto - below) * keyed_uniform(keys, 0, x.shape[1]))
    return z


def _ratio(true: Tensor, said: Tensor) -> Tensor:
    """Give the factors between sums of squares of columns; those of few cells are nearer to that of all.

    Shape: true, said [p] -> [p].
    """
    of_all = (true.sum() + PRIOR_CELLS) / (said.sum() + PRIOR_CELLS)
    return ((true + CELLS_OF_COLUMN * of_all) / (said + CELLS_OF_COLUMN)).sqrt().clamp(*WIDTHS)

"""How wide intervals and draws are, chosen on held-out cells.

A network knows its training rows better than others, so that the residuals it learns from are too small.
Those of held-out cells are not: what is said of a column is stretched until mean squares agree. Where parts
of an ensemble disagree, their draws are wider together than each is alone; and where some rows tell much more
than others, and the parts do not see it, most truths are nearer to the middle than said, and a few farther.
So all draws are given a shape last, in the residuals of what the parts say together (``pool`` in
residuals.py), with which intervals of any level hold as many truths as they should. A shape of each part's
own residuals would not do: narrower parts disagree as much, and truths lie between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..runtime.seeding import keyed_uniform, mix64
from ..settings import ConditionalSettings
from .asking import Asked
from .conditional import ConditionalNetwork, Rows
from .dependence import choose_share
from .drawing import DrawnRows, draw_rows, plan_draw
from .ensemble import LINEAR, Ensemble
from .residuals import Residuals, normal_quantiles, reshape, undo_reshape
from .shares import PRIOR_CELLS
from .splitting import Validation, evenly
from .weighing import weigh_cells

#: Rows with held-out cells (fewer if time is short), and draws of each: nine in ten truths should lie between
#: the outermost of 19.
ROWS, FEW_ROWS, DRAWS = 2_000, 400, 19
#: Rows that are drawn together: each takes the square of the copula's columns.
ROWS_AT_ONCE = 4_096
#: Draws that tell how wide a network's residuals come out.
DRAWS_OF_WIDTH = 4
#: Held-out cells from which on draws of a single member are given a shape if no cell is weighed: of small
#: tables pooled intervals were measured to hold what they should without one.
ENOUGH_CELLS = 1_000
#: Misfit of distances that are uniform, on average, times their number (Cramér and von Mises).
BY_CHANCE = 1 / 6
#: Part of the truths that should lie between the outermost draws; halvings of the range of widths.
LEVEL, HALVINGS = (DRAWS - 1) / (DRAWS + 1), 8
#: Cells of these rows at most, of few rows as much fewer: wide tables have fewer rows drawn.
MOST_CELLS = 50_000
#: What is known of widths beforehand, in cells: that columns have that of all (they differ by some 7 %), and
#: that all parts together are as wide as each says (to some 10 %), in the middle as at the ends. Fewer cells
#: tell less than that.
CELLS_OF_COLUMN, CELLS_OF_SHAPE = 100, (100, 400)
#: Known cells that tell how unusual held-out ones are, for each of these rows.
KNOWN_OF_ROW = 5
#: Smallest and largest width of a column, logarithm of all widths at the ends, and b of a shape.
WIDTHS, LOG_WIDTHS, CHANGES = (0.1, 3.0), (-0.92, 0.34), (-0.2, 0.5)


def calibrate(
    model: Ensemble,
    validation: Validation,
    settings: ConditionalSettings,
    dtype: torch.dtype,
    n_rows: int = ROWS,
) -> None:
    """Choose widths, ``dependence`` and shapes of an ensemble, on so many rows."""
    most = -(-MOST_CELLS * n_rows // (ROWS * max(1, validation.held.shape[1])))
    some = evenly(len(validation.held), min(n_rows, most), validation.held.device)
    rows, held = validation.rows.part(some), validation.held[some]
    if not held.any():
        return
    truth = _Truth.of(model, validation.x[some], held)
    truth.weight = weigh_cells(model.copula, validation, rows, truth.z, held, KNOWN_OF_ROW * n_rows)
    _widen_cells(model, rows, truth, model.ask(rows, dtype))
    log_noise = settings.noise_log_mean, settings.noise_log_deviation
    for k, share in enumerate(model.shares.tolist()):
        if model.copula is not None and share > 0:
            network = model.networks[k]
            assert isinstance(network, ConditionalNetwork)
            model.dependence[k] = choose_share(network, model.copula, validation, some, log_noise, dtype)
    artist = _Artist(model, rows, model.ask(rows, dtype, to_draw=True), settings, dtype)
    _widen_parts(model, truth, artist)
    _shape_draws(model, truth, artist)


def _widen_cells(model: Ensemble, rows: Rows, truth: _Truth, asked: Asked) -> None:
    """Choose ``stretch`` and ``cell_shape``, for intervals of single cells."""
    held, weight = truth.held, truth.weight
    said = Residuals(model.predict(rows, asked).quantiles, normal_quantiles(held.device))
    model.stretch.copy_(_ratio(_squares(said.of(truth.z), weight), weight.sum(dim=0)))
    low, high = ((said.of(edge) / model.stretch)[held] for edge in (truth.low, truth.high))

    def place(shape: Tensor) -> Tensor:
        below, upto = (torch.special.ndtr(undo_reshape(edge, shape)) for edge in (low, high))
        return torch.lerp(below, upto, truth.uniform[held])

    model.cell_shape.copy_(choose_shape(place, weight[held]))


def _widen_parts(model: Ensemble, truth: _Truth, artist: _Artist) -> None:
    """Choose the widths of networks and copula: cells are drawn as wide as truths are in what is said."""
    weight, normal = truth.weight, normal_quantiles(truth.held.device)
    model.widths.fill_(1.0)
    # Networks may be asked for levels alone.
    drawing = artist.asked.outputs if artist.asked.counts.linear_draws < 1 else {}
    for k, outputs in drawing.items():
        said = [Residuals(quantiles, normal) for quantiles in outputs.quantiles]
        true = torch.stack([_squares(maps.of(truth.z), weight) for maps in said]).mean(dim=0)
        times = -(-DRAWS_OF_WIDTH // len(said))
        drawn = [artist.draw((k, member), list(range(times))).r for member in range(len(said))]
        model.widths[k] = _ratio(true, torch.stack([_squares(r, weight) for r in drawn]).mean(dim=0))
    if model.copula is not None:
        # Not by its draws, whose residuals are given levels that may have been drawn wrong.
        said_of_scores = model.copula.maps(artist.rows)
        model.linear_width.copy_(_ratio(_squares(said_of_scores.of(truth.z), weight), weight.sum(dim=0)))


def _shape_draws(model: Ensemble, truth: _Truth, artist: _Artist) -> None:
    """Choose ``draw_shape``."""
    held, weight = truth.held, truth.weight
    model.draw_shape.zero_()
    owners = model.allot(DRAWS)
    alone = len(set(owners)) == 1
    if alone and int(held.sum()) < ENOUGH_CELLS and bool((weight[held] == 1).all()):
        return
    drawn = []
    for owner in dict.fromkeys(owners):
        numbers = [j for j, other in enumerate(owners) if other == owner]
        drawn.append(artist.draw(owner, numbers).z.view(len(numbers), *held.shape)[:, held])
    pooled = model.pool(artist.rows, artist.asked).at(held)
    r = pooled.of(torch.cat(drawn).T).T

    def place(shape: Tensor) -> Tensor:
        return truth.ranks(pooled.scores(reshape(r, shape).T).T)

    model.draw_shape.copy_(choose_shape(place, weight[held], doubted=alone))


@dataclass
class _Artist:
    """Draws rows with held-out cells."""

    model: Ensemble
    rows: Rows
    asked: Asked
    settings: ConditionalSettings
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self._said = self.model.say_levels(self.rows, self.asked)
        self._plan = plan_draw(self.settings, len(self.asked.outputs))
        self._dependence = self.model.dependence.tolist()

    def draw(self, owner: tuple[int, int], numbers: list[int]) -> DrawnRows:
        """Make the draws with these numbers by a member of a part, as wide as it is by now."""
        n, device = len(self.rows.label), self.rows.label.device
        number = torch.tensor(numbers, device=device)[:, None]
        keys = mix64((torch.arange(n, device=device) + n * number).reshape(-1))
        row = torch.arange(n, device=device).repeat(len(numbers))
        member = None if owner[0] == LINEAR else self.model.member(*owner)
        return DrawnRows.join(
            [
                self._draw(owner, member, row[part], keys[part])
                for part in torch.arange(len(row), device=device).split(ROWS_AT_ONCE)
            ]
        )

    def _draw(
        self, owner: tuple[int, int], member: ConditionalNetwork | None, row: Tensor, keys: Tensor
    ) -> DrawnRows:
        model, (part, number) = self.model, owner
        rows, said, width = self.rows.part(row), [p[row] for p in self._said], model.width_of(part)
        if member is None:
            assert model.copula is not None
            z, levels = model.copula.draw(rows, keys, width, said)
            return DrawnRows(z, torch.zeros_like(z), levels)
        blank, beside = self.asked.outputs[part].member(number).at(row), model.beside(self._dependence[part])
        return draw_rows(
            member, blank, rows, keys, self._plan, self.dtype, model.marginals, said, width, beside
        )


@dataclass
class _Truth:
    """What held-out cells are: a value that occurs often has an interval of scores, in which z is anywhere.

    Shape: all [n, p].
    """

    low: Tensor
    high: Tensor
    z: Tensor
    uniform: Tensor
    held: Tensor
    weight: Tensor
    """How much a held-out cell counts, 0 for others."""

    @classmethod
    def of(cls, model: Ensemble, x: Tensor, held: Tensor) -> _Truth:
        below, upto = model.marginals.distribution(x)
        keys = mix64(torch.arange(len(x), device=x.device) + len(x) * DRAWS)
        uniform = keyed_uniform(keys, 0, x.shape[1])
        low, z, high = (torch.special.ndtri(p) for p in (below, below + (upto - below) * uniform, upto))
        return cls(low, high, z, uniform, held, held.float())

    def ranks(self, drawn: Tensor) -> Tensor:
        """Give the places of held-out cells among draws, from 0 to 1.

        A draw in the interval of the truth is the same value; the truth is then as likely to have any of the
        ranks that it shares.

        Shape: [DRAWS, cells] -> [cells].
        """
        below = (drawn < self.low[self.held]).sum(dim=0)
        above = (drawn > self.high[self.held]).sum(dim=0)
        return (below + (DRAWS + 1 - below - above) * self.uniform[self.held]) / (DRAWS + 1)


def choose_shape(place: Callable[[Tensor], Tensor], weight: Tensor, *, doubted: bool = False) -> Tensor:
    """Find the shape with which 90 % intervals hold nine in ten truths, and others as many as they should.

    ``place`` gives, for a shape, where the truths lie in what is said of them, from 0 to 1. For any b the
    width at the ends is the one that holds nine in ten; the best b has distances from the middle that are
    nearest to uniform (Cramér and von Mises). Where a shape is doubted, as that of a member alone is, which
    has no others to disagree with, as much is taken of it as the misfit without one is not chance.

    Shape: place [2] -> [cells]; weight [cells]; the result [2].
    """
    n_cells = float(weight.sum() ** 2 / weight.square().sum())  # that count alike would tell as much
    weight = weight / weight.sum()

    def distances(width: float, b: float) -> Tensor:
        return (2 * place(_shape(width, b)) - 1).abs()

    def width_of(b: float) -> float:
        low, high = LOG_WIDTHS
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            outside = float(((distances(middle, b) > LEVEL) * weight).sum())
            low, high = (low, middle) if outside < 1 - LEVEL else (middle, high)
        return (low + high) / 2

    def misfit(width: float, b: float) -> float:
        ordered, order = distances(width, b).sort()
        # On a CPU: sums in a row are not the same twice on a GPU.
        even = weight[order].cpu().double().cumsum(dim=0).to(ordered) - weight[order] / 2
        return float(((ordered - even).square() * weight[order]).sum())

    best = minimize_scalar(
        lambda b: misfit(width_of(b), b), bounds=CHANGES, method="bounded", options={"xatol": 0.01}
    )
    b = float(best.x)
    believed = 1 - BY_CHANCE / max(BY_CHANCE, n_cells * misfit(0.0, 0.0)) if doubted else 1.0
    kept = [believed * n_cells / (n_cells + prior) for prior in CELLS_OF_SHAPE]
    return _shape(kept[0] * width_of(b), kept[1] * b)


def _shape(width: float, b: float) -> Tensor:
    """Give the shape with this logarithmic width at the ends of 90 % intervals. Shape: [2]."""
    return torch.tensor([width - b * NormalDist().inv_cdf((1 + LEVEL) / 2), b])


def _squares(values: Tensor, weight: Tensor) -> Tensor:
    """Give sums of squares of held-out cells by column. Shape: [t n, p], [n, p] -> [p], the mean over t."""
    by_turn = values.view(-1, *weight.shape)
    return (by_turn.square() * weight).sum(dim=1).mean(dim=0)


def _ratio(true: Tensor, said: Tensor) -> Tensor:
    """Give the factors between sums of squares of columns; those of few cells are nearer to that of all.

    Shape: true, said [p] -> [p].
    """
    of_all = (true.sum() + PRIOR_CELLS) / (said.sum() + PRIOR_CELLS)
    return ((true + CELLS_OF_COLUMN * of_all) / (said + CELLS_OF_COLUMN)).sqrt().clamp(*WIDTHS)

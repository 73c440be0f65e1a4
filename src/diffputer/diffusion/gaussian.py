"""A Gaussian copula: the linear member of the ensemble, which needs few rows.

Normal scores z of numbers and centred indicators of levels are taken to be jointly Gaussian, N(m, S). Both
are found by EM over rows with holes, shrunk towards independence where rows are few:

    E-step  the expectation of every row's unknown part and its covariance given the known part
    M-step  m and S from their first and second moments, then (1 - a) S + a diag(S),  a = f d / (d + pairs)

with pairs the rows that show a pair of columns, and f the least that held-out cells do not tell from the
best: shrinking takes slopes towards zero, and columns that follow from each other want none. Small tables
were imputed better by it than by the networks (docs/dev/conditional.md); held-out cells say how much it
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..runtime.devices import Deadline
from ..runtime.seeding import keyed_normal, keyed_uniform
from .backbones import has_kernels
from .conditional import Rows
from .gaussian_em import JITTER, Holes, condition_in_turn, invert, settle
from .loading import require_between, require_covariance
from .marginals import Marginals
from .prediction import Prediction, correction
from .residuals import Normal, Width, normal_quantiles

#: How often expectations are taken at most, and the change of a parameter below which they are not.
ROUNDS, TOLERANCE = 100, 1e-4
#: Latent columns up to which it is used: every row takes the square of them.
MOST_COLUMNS = 64
#: No level is less probable.
SMALLEST_PROBABILITY = 1e-3
#: What is tried for f, and the a up to which it is: of few rows the copula would find columns to follow from
#: each other that do not, and be sure of it.
SHRINKINGS = {0.001: 0.1, 0.1: 0.3, 1.0: 1.0}
#: With a less than this f does not matter.
SMALLEST_SHRINKING = 1e-2
#: Rows that are treated together; a GPU wants many.
_BLOCK = {"cuda": 16_384, "cpu": 4_096}

T = TypeVar("T")


def blocks(n: int, device: torch.device) -> Iterator[slice]:
    """Give slices of n rows that are treated together."""
    size = _BLOCK.get(device.type, _BLOCK["cpu"])
    return (slice(start, start + size) for start in range(0, n, size))


def most_rows(n_columns: int) -> int:
    """Say from how many rows the covariance is found at most: a row takes the cube of its unknown columns.

    Examples
    --------
    >>> most_rows(10), most_rows(20), most_rows(64)
    (20000, 12500, 2560)
    """
    return min(20_000, max(40 * n_columns, int(1e8 / n_columns**3)))


def shrinkage(known: Tensor) -> float:
    """Say how far S is shrunk with f = 1: rows that show two columns against columns. Shape: known [n, d]."""
    n, d = known.shape
    pairs = float(known.double().mean(dim=0).square().mean()) * n
    return d / (d + pairs)


class GaussianCopula(nn.Module):
    """Rows as a Gaussian of p scores and sum(levels) indicators.

    Shape: middle [d], covariance [d, d], frequencies [d - p].
    """

    shrinkings = SHRINKINGS
    shrinking: Tensor
    """f."""
    middle: Tensor
    covariance: Tensor
    frequencies: Tensor
    slot_column: Tensor
    slot_level: Tensor

    def __init__(self, n_numeric: int, levels: list[int]) -> None:
        super().__init__()
        self.p, self.levels = n_numeric, levels
        d = n_numeric + sum(levels)
        slots = [(k, level) for k, n in enumerate(levels) for level in range(n)]
        pairs = torch.tensor(slots, dtype=torch.int64).reshape(-1, 2)
        self.register_buffer("slot_column", pairs[:, 0], persistent=False)
        self.register_buffer("slot_level", pairs[:, 1], persistent=False)
        self.register_buffer("shrinking", torch.ones((), dtype=torch.float64))
        self.register_buffer("middle", torch.zeros(d, dtype=torch.float64))
        self.register_buffer("covariance", torch.eye(d, dtype=torch.float64))
        self.register_buffer("frequencies", torch.zeros(d - n_numeric, dtype=torch.float64))

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of a copula."""
        require_between(0, 1, shrinking=self.shrinking, frequencies=self.frequencies)
        require_covariance(self.covariance, "covariance")

    def latent(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Give the latent values of known cells (0 elsewhere) and which are known.

        Shape: two of [n, d].
        """
        return self._with_indicators(rows.z, rows)

    def _with_indicators(self, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        known_levels = (rows.levels >= 0)[:, self.slot_column]
        indicators = (rows.levels[:, self.slot_column] == self.slot_level).double() - self.frequencies
        values = torch.cat([numbers.double() * rows.known, indicators * known_levels], dim=1)
        return values, torch.cat([rows.known, known_levels], dim=1)

    def condition(self, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Give expectation and covariance of every row given its known part.

        Shape: values, known [n, d] -> [n, d], [n, d, d].
        """
        if values.is_cuda and has_kernels():
            from . import gaussian_kernels

            return gaussian_kernels.condition(values, known, self.middle, self.covariance, JITTER)
        if values.is_cuda:
            return condition_in_turn(values, known, self.middle, self.covariance)
        k, S = known.double(), self.covariance
        # Unknown columns are cut off: their rows and columns are those of the identity.
        seen = k[:, :, None] * S * k[:, None, :]
        seen = seen + torch.diag_embed(1 - k) + JITTER * torch.eye(len(S), device=S.device)
        across = S * k[:, None, :]
        gain = torch.cholesky_solve(across.transpose(1, 2), torch.linalg.cholesky(seen)).transpose(1, 2)
        expected = self.middle + (gain @ ((values - self.middle) * k)[..., None])[..., 0]
        rest = S - gain @ across.transpose(1, 2)
        return torch.where(known, values, expected), rest * (1 - k)[:, :, None] * (1 - k)[:, None, :]

    def expect(self, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Give expectation and variance of every cell given the known part of its row.

        Shape: values, known [n, d] -> [n, d], [n, d].
        """
        if values.is_cuda:  # where large batches cost less than sorting rows by their holes
            expected, rest = self.condition(values, known)
            return expected, rest.diagonal(dim1=1, dim2=2)
        holes = Holes(known)
        inverse = invert(self.covariance)
        expected, covariances = holes.expect(values, self.middle, inverse, reproducible=True)
        variance = torch.zeros_like(expected)
        for group, of_patterns in zip(holes.groups, covariances, strict=True):
            variances = of_patterns.diagonal(dim1=1, dim2=2)
            variance[group.rows[:, None], group.columns[group.pattern]] = variances[group.pattern]
        return torch.where(known, values, self.middle + expected), variance

    def tried(self, rows: Rows) -> list[float]:
        """Give what is tried for f, the least first."""
        a = shrinkage(self.latent(rows)[1])
        tried = [f for f, most in self.shrinkings.items() if a <= most]
        return tried[:1] if a < SMALLEST_SHRINKING else tried

    @torch.no_grad()
    def fit_best(
        self,
        rows: Rows,
        answer: Callable[[], T],
        choose: Callable[[list[T]], int],
        deadline: Deadline | None = None,
    ) -> None:
        """Fit it with the shrinking chosen from its answers, of SHRINKINGS as many as there is time for."""
        found, answers = [], []
        for f in self.tried(rows):
            self.shrinking.fill_(f)
            self.fit(rows)
            found.append([part.clone() for part in (self.shrinking, self.middle, self.covariance)])
            answers.append(answer())
            if deadline is not None and deadline.remaining <= 0:
                break
        for part, best in zip(
            (self.shrinking, self.middle, self.covariance), found[choose(answers)], strict=True
        ):
            part.copy_(best)

    @torch.no_grad()
    def fit(self, rows: Rows, rounds: int = ROUNDS, tolerance: float = TOLERANCE) -> None:
        """Find the covariance from rows in which only known cells are described."""
        seen = (rows.levels >= 0).double()[:, self.slot_column]
        there = (rows.levels[:, self.slot_column] == self.slot_level).double()
        self.frequencies.copy_(there.sum(dim=0) / seen.sum(dim=0).clamp_min(1))
        # On the CPU: a GPU would not add up in the same order every time.
        values, known = (part.cpu() for part in self.latent(rows))
        spread = (values.square().sum(dim=0) / known.sum(dim=0).clamp_min(1)).clamp_min(1e-4)
        m, S = settle(
            values,
            Holes(known),
            torch.zeros_like(spread),
            torch.diag(spread),
            float(self.shrinking) * shrinkage(known),
            rounds=rounds,
            tolerance=tolerance,
        )
        self.middle.copy_(m)
        self.covariance.copy_(S)

    def with_parameters(self, middle: Tensor, covariance: Tensor) -> GaussianCopula:
        """Give a copula of the same columns with other parameters. Shape: [d], [d, d]."""
        other = GaussianCopula(self.p, self.levels).to(self.middle.device)
        other.frequencies, other.middle, other.covariance = self.frequencies, middle, covariance
        return other

    @torch.no_grad()
    def predict(self, rows: Rows, marginals: Marginals) -> Prediction:
        """Answer blank rows as the networks do."""
        among = blocks(len(rows.levels), rows.levels.device)
        return Prediction.join([self._predict(rows.part(part), marginals) for part in among])

    def _predict(self, rows: Rows, marginals: Marginals) -> Prediction:
        expected, variance = self.expect(*self.latent(rows))
        middle = expected[:, : self.p].float()
        spread = self._deviation(variance)
        levels = normal_quantiles(middle.device)
        mean = torch.where(rows.known, rows.x, marginals.means_at(middle, spread, ~rows.known))
        return Prediction(
            mean=mean,
            quantiles=middle[..., None] + spread[..., None] * levels,
            probabilities=[self.probabilities(expected, k).float() for k in range(len(self.levels))],
        )

    @torch.no_grad()
    def maps(self, rows: Rows) -> Normal:
        """Give what is said of numbers given what is known of blank rows, unknown levels left open."""
        said = [
            self.expect(*self.latent(rows.part(part)))
            for part in blocks(len(rows.levels), rows.levels.device)
        ]
        expected, variance = (torch.cat(parts) for parts in zip(*said, strict=True))
        return Normal(expected[:, : self.p].float(), self._deviation(variance))

    def _deviation(self, variance: Tensor) -> Tensor:
        return variance[:, : self.p].clamp_min(1e-8).sqrt().float()

    def probabilities(self, expected: Tensor, k: int) -> Tensor:
        """Give the probabilities of the levels of a category. Shape: expected [n, d] -> [n, L_k]."""
        start = sum(self.levels[:k])
        slots = slice(start, start + self.levels[k])
        shares = expected[:, self.p :][:, slots] + self.frequencies[slots]
        shares = shares.clamp_min(SMALLEST_PROBABILITY)
        return shares / shares.sum(dim=1, keepdim=True)

    @torch.no_grad()
    def draw(
        self, rows: Rows, keys: Tensor, width: Width | None = None, said: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw unknown cells: categories one after the other, then all numbers together.

        Numbers are as much farther from their expectation as a width says. Levels are as probable as is said
        of blank rows, if anything is (see drawing.py).

        Shape: rows of n, keys [n], said q of [n, L_k] -> z [n, p], levels [n, q].
        """
        results = [
            self._draw(rows.part(part), keys[part], said and [of_column[part] for of_column in said])
            for part in blocks(len(keys), keys.device)
        ]
        expected, deviation, r, levels = (torch.cat(parts) for parts in zip(*results, strict=True))
        return Normal(expected, deviation).scores(r if width is None else width.stretch(r)), levels

    def _draw(
        self, rows: Rows, keys: Tensor, said: list[Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows = rows.part(slice(None))
        rows.levels = rows.levels.clone()
        chances = keyed_uniform(keys, 1, max(1, len(self.levels)))
        blank = None if said is None else self.expect(*self.latent(rows))[0]
        for k, n_levels in enumerate(self.levels):
            probabilities = self.probabilities(self.expect(*self.latent(rows))[0], k)
            if said is not None and blank is not None:
                probabilities = probabilities * correction(said[k], self.probabilities(blank, k)).exp()
            cumulative = probabilities.cumsum(dim=1) / probabilities.sum(dim=1, keepdim=True)
            drawn = (cumulative < chances[:, k : k + 1]).sum(dim=1).clamp_max(n_levels - 1)
            rows.levels[:, k] = torch.where(rows.levels[:, k] < 0, drawn, rows.levels[:, k])
        expected, rest = self.condition(*self.latent(rows))
        p = self.p
        jitter = 1e-8 * torch.eye(p, device=rest.device, dtype=rest.dtype)
        root = torch.linalg.cholesky(rest[:, :p, :p] + jitter)
        noise = keyed_normal(keys, 0, max(1, p))[:, :p].double()
        deviation = root.square().sum(dim=-1).sqrt()
        r = (root @ noise[..., None])[..., 0] / deviation
        return expected[:, :p].float(), deviation.float(), r.float(), rows.levels

"""The linear experts: a Gaussian copula of normal scores, and a Gaussian of the values.

Both take numbers and centred indicators of categories to be jointly Gaussian, N(m, S), found by EM over rows
with missing cells. The copula knows each column's own distribution; the Gaussian of the values knows exact
lines and extrapolates them. S is shrunk towards independence where rows are few,

    M-step  m and S from the expected first and second moments, then (1 - a) S + a diag(S)

with a = f d / (d + pairs), pairs the rows that show a pair of columns, and f chosen on held-out cells. Of
many columns S has low rank, L L' + diag(psi): a row costs the square of the factors, not the cube of columns.

The copula has replicates by the Bayesian bootstrap (Rubin 1981: rows get exponential weights), so that draws
carry the uncertainty of the fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...nn.layers import has_kernels
from ...nn.loading import require, require_between, require_covariance
from ...runtime.seeding import derive_seed, torch_generator
from ..base import Cells, Normal, Predictive, RowBatch
from .factors import Factors, n_factors
from .gaussian_em import (
    JITTER,
    MissingPatterns,
    invert,
    invert_each,
    multiply,
    one_cell_at_a_time,
    settle,
    spread_rows,
)
from .support import Support

#: Rounds of EM at most, and the change of a parameter at which it ends.
ROUNDS, TOLERANCE = 100, 1e-4
#: The change where fits are compared, or differ by much more.
ROUGH_TOLERANCE = 1e-3
#: Latent columns up to which S has full rank: every row takes the cube of those it misses.
MOST_COLUMNS = 64
#: What is tried for f, and the a up to which it is.
SHRINKAGES = {1e-5: 0.1, 0.001: 0.1, 0.1: 0.3, 1.0: 1.0}
#: With a less than this f does not matter.
SMALLEST_SHRINKAGE = 1e-2
#: No category is less probable.
SMALLEST_PROBABILITY = 1e-3
#: Added to variances of indicators, so that a category that is certain given the rest has a density.
INDICATOR_JITTER = 1e-4
#: Standard deviations of predictions are at least this.
SMALLEST_STD = 1e-4
#: A class has at least this share of its frequency: no normal distribution knows its own tails.
FLOOR = 1e-3
#: Rows on which lines are looked for, cells that show one, and how far they may miss it, in its own standard
#: deviations.
LINE_ROWS, FEWEST_SURE, MOST_MISS = 2_000, 10, 1.5
#: Standard deviations on a line are reduced to this share at least.
SMALLEST_SCALE = 1e-2
#: Bootstrap replicates of the copula; draws beyond mix them.
VARIANTS = 20
#: Rounds of EM for each, from the fitted parameters on, and multiplications that all may take.
VARIANT_ROUNDS, FEWEST_ROUNDS, VARIANT_WORK = 50, 8, 2e9
#: Rounds of EM for each replicate of low rank, and rows that it is found from at most.
FACTOR_ROUNDS, MOST_FACTOR_ROWS = 4, 2_000
#: Rows that replicates are found from at most; of many columns fewer, but some a column.
MOST_ROWS, MOST_WORK, ROWS_A_COLUMN = 10_000, 1e7, 10


def most_rows(n_columns: int) -> int:
    """Most rows from which the covariance is found: a row takes the cube of its missing columns.

    Examples
    --------
    >>> most_rows(10), most_rows(20), most_rows(64)
    (20000, 12500, 2560)
    """
    return min(20_000, max(40 * n_columns, int(1e8 / n_columns**3)))


def shrinkage(known: Tensor) -> float:
    """The a of f = 1: columns against rows that show two of them. Shape: known [n, d]."""
    n, d = known.shape
    pairs = float(known.double().mean(dim=0).square().mean()) * n
    return d / (d + pairs)


@dataclass
class Given:
    """Gaussians of n rows given what is known of them, which can learn more cells.

    A cell that becomes known changes a row's Gaussian by a matrix of rank one, so that drawing cell by cell
    takes the square of the columns where conditioning anew takes the cube.

    Shape: known, expected [n, d]; rest [n, d, d] are covariances, or [n, d] variances alone.
    """

    known: Tensor
    expected: Tensor
    rest: Tensor

    def clone(self) -> Given:
        """A copy that learns for itself."""
        return Given(self.known, self.expected.clone(), self.rest.clone())

    def first(self, n: int) -> Given:
        """The first rows; they share memory."""
        return Given(self.known[:n], self.expected[:n], self.rest[:n])

    def learn(self, values: Tensor, known: Tensor) -> None:
        """Learn what is known by now, one cell of each row at a time. Shape: two of [n, d]."""
        for rows, column in one_cell_at_a_time(known & ~self.known):
            rest, expected = self.rest[rows], self.expected[rows]
            every = torch.arange(len(rows), device=rows.device)
            shared = rest[every, column]
            gain = shared / (shared[every, column] + JITTER)[:, None]
            miss = values[rows, column] - expected[every, column]
            self.expected[rows] = expected + gain * miss[:, None]
            self.rest[rows] = rest - gain[:, :, None] * shared[:, None, :]
        self.known, self.expected = known, torch.where(known, values, self.expected)


class LinearExpert(nn.Module):
    """Rows as a Gaussian of p numbers and sum(levels) indicators.

    Parameters
    ----------
    kind : {"copula", "values"}
        Whether numbers enter by their normal scores or by their values.
    n_numeric, levels
        The columns.

    Attributes
    ----------
    middle, covariance
        m [d] and S [d, d]; of many columns the factors take the place of S.
    """

    shrinking: Tensor
    middle: Tensor
    covariance: Tensor
    frequencies: Tensor
    slot_column: Tensor
    slot_level: Tensor

    def __init__(self, kind: str, n_numeric: int, levels: list[int]) -> None:
        super().__init__()
        self.kind, self.p, self.levels = kind, n_numeric, list(levels)
        self.d = d = n_numeric + sum(levels)
        starts = [sum(levels[:k]) for k in range(len(levels))]
        self.slots = [slice(start, start + n) for start, n in zip(starts, levels, strict=True)]
        slots = [(k, level) for k, n in enumerate(levels) for level in range(n)]
        pairs = torch.tensor(slots, dtype=torch.int64).reshape(-1, 2)
        self.register_buffer("slot_column", pairs[:, 0], persistent=False)
        self.register_buffer("slot_level", pairs[:, 1], persistent=False)
        self.register_buffer("shrinking", torch.ones((), dtype=torch.float64))
        self.register_buffer("middle", torch.zeros(d, dtype=torch.float64))
        self.factors = Factors(d) if d > MOST_COLUMNS else None
        self.register_buffer("covariance", torch.eye(0 if self.factors else d, dtype=torch.float64))
        self.register_buffer("frequencies", torch.zeros(d - n_numeric, dtype=torch.float64))

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of a Gaussian."""
        require_between(0, 1, shrinking=self.shrinking, frequencies=self.frequencies)
        require_covariance(self.covariance, "covariance")

    def latent(self, rows: RowBatch) -> tuple[Tensor, Tensor]:
        """Latent values of known cells (0 elsewhere), and which are known. Shape: two of [n, d]."""
        numbers = rows.z if self.kind == "copula" else rows.x
        known_levels = (rows.levels >= 0)[:, self.slot_column]
        indicators = (rows.levels[:, self.slot_column] == self.slot_level).double() - self.frequencies
        values = torch.cat([numbers.double() * rows.known, indicators * known_levels], dim=1)
        return values, torch.cat([rows.known, known_levels], dim=1)

    def shrinkages(self, rows: RowBatch) -> list[float]:
        """What is worth trying for f."""
        if self.factors is not None:
            return [1.0]
        a = shrinkage(self.latent(rows)[1])
        tried = [f for f, largest in SHRINKAGES.items() if a <= largest or self.kind == "values"]
        return tried[:1] if a < SMALLEST_SHRINKAGE else tried

    @torch.no_grad()
    def fit(self, rows: RowBatch, f: float, tolerance: float = TOLERANCE, *, warm: bool = False) -> None:
        """Fit to as many rows as can be afforded, on a CPU, with this shrinkage.

        ``warm`` goes on from an earlier fit, to rows of which a little more is known.
        """
        self.shrinking.fill_(f)
        if self.factors is None:
            rows = rows.part(spread_rows(len(rows), most_rows(self.d)))
        seen = (rows.levels >= 0).double()[:, self.slot_column]
        there = (rows.levels[:, self.slot_column] == self.slot_level).double()
        self.frequencies.copy_(there.sum(dim=0) / seen.sum(dim=0).clamp_min(1))
        values, known = self.latent(rows)
        if self.factors is not None:
            self.factors.fit(values, known, self.middle, warm=warm)
            return
        spread = torch.diag((values.square().sum(dim=0) / known.sum(dim=0).clamp_min(1)).clamp_min(1e-4))
        start = (self.middle, self.covariance) if warm else (torch.zeros_like(self.middle), spread)
        patterns, shrink = MissingPatterns(known), f * shrinkage(known)
        m, S = settle(values, patterns, *start, shrink, rounds=ROUNDS, tolerance=tolerance)
        self.middle.copy_(m)
        self.covariance.copy_(S)

    def fresh(self, rows: RowBatch) -> LinearExpert:
        """An expert of the same columns and shrinkage, fitted roughly to other rows."""
        other = LinearExpert(self.kind, self.p, self.levels)
        other.fit(rows, float(self.shrinking), ROUGH_TOLERANCE)
        return other

    def with_parameters(self, middle: Tensor, covariance: Tensor) -> LinearExpert:
        """An expert of the same columns with other parameters. Shape: [d], [d, d]."""
        other = LinearExpert(self.kind, self.p, self.levels).to(self.middle.device)
        other.frequencies, other.middle, other.covariance = self.frequencies, middle, covariance
        return other

    def with_factors(self, middle: Tensor, loadings: Tensor, specific: Tensor) -> LinearExpert:
        """The same of low rank. Shape: [d], [d, r], [d]."""
        other = self.with_parameters(middle, self.covariance)
        assert other.factors is not None
        other.factors.loadings, other.factors.specific = loadings, specific
        return other

    @property
    def full_covariance(self) -> Tensor:
        """S, of low rank too. Shape: [d, d]."""
        return self.covariance if self.factors is None else self.factors.covariance

    @torch.no_grad()
    def given(self, rows: RowBatch) -> Given:
        """The Gaussian of each row given what is known of it."""
        values, known = self.latent(rows)
        if self.factors is not None:
            return Given(known, *self.factors.expect(values, known, self.middle))
        if values.is_cuda:  # where large batches cost less than sorting rows by what they miss
            return self._condition_each(values, known)
        patterns = MissingPatterns(known)
        centred, covariances = patterns.expect(
            values, self.middle, invert(self.covariance), reproducible=True
        )
        rest = values.new_zeros(*values.shape, self.d)
        for group, covariance in zip(patterns.groups, covariances, strict=True):
            columns = group.columns[group.pattern]
            places = group.rows[:, None, None], columns[:, :, None], columns[:, None, :]
            rest[places] = covariance[group.pattern]
        return Given(known, torch.where(known, values, self.middle + centred), rest)

    def _condition_each(self, values: Tensor, known: Tensor) -> Given:
        """The same of every row on its own, on a GPU. Shape: [n, d] twice."""
        if has_kernels():
            from ...nn import kernels

            return Given(known, *kernels.condition(values, known, self.middle, self.covariance, JITTER))
        n = len(values)
        given = Given(torch.zeros_like(known), self.middle.repeat(n, 1), self.covariance.repeat(n, 1, 1))
        given.learn(values, known)
        return given

    @torch.no_grad()
    def learn(self, given: Given, rows: RowBatch) -> Given:
        """What is given once these rows, of which more is known, are."""
        if self.factors is not None:
            return self.given(rows)
        values, known = self.latent(rows)
        given.learn(values, known)
        return given

    @torch.no_grad()
    def condition(self, rows: RowBatch) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Mean and standard deviation of numbers (scores or values), probabilities of categories.

        Shape: [n, p], [n, p], q of [n, L].
        """
        return self.read(self.given(rows), rows.levels < 0)

    @torch.no_grad()
    def read(self, given: Given, wanted: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The same of what is given; categories where they are wanted. Shape: wanted [n, q]."""
        expected, rest = given.expected, given.rest
        if self.kind == "values" and self.factors is None:
            levels = [
                self._discriminate(expected, rest, k, wanted[:, k].nonzero()[:, 0])
                for k in range(len(self.levels))
            ]
        else:
            levels = [self.probabilities(expected, k) for k in range(len(self.levels))]
        variance = rest if self.factors is not None else rest.diagonal(dim1=1, dim2=2)
        std = variance[:, : self.p].clamp_min(SMALLEST_STD**2).sqrt()
        return expected[:, : self.p].float(), std.float(), levels

    def probabilities(self, expected: Tensor, k: int) -> Tensor:
        """Expected indicators of a category as probabilities. Shape: expected [n, d] -> [n, L]."""
        own = self.slots[k]
        shares = (expected[:, self.p :][:, own] + self.frequencies[own]).clamp_min(SMALLEST_PROBABILITY)
        return (shares / shares.sum(dim=1, keepdim=True)).float()

    def _discriminate(self, expected: Tensor, rest: Tensor, k: int, rows: Tensor) -> Tensor:
        """Probabilities of categories by linear discriminant analysis, in rows where they are wanted.

        With e_l the indicators of category l, Bayes' rule for the densities of the Gaussian gives
        p(l | rest) ~ share of l * N(e_l; E[i | rest], Cov[i | rest]) / N(e_l; E[i], Cov[i]).
        The indicator of the last category, which the others imply, is left out.

        Shape: expected [n, d], rest [n, d, d], rows [r] -> [n, L].
        """
        slots, L = self.slots[k], self.levels[k]
        logits = self.frequencies[slots].clamp_min(SMALLEST_PROBABILITY).log().repeat(len(expected), 1)
        if L > 1 and len(rows):
            own = slice(self.p + slots.start, self.p + slots.stop - 1)
            eye = torch.eye(L, dtype=expected.dtype, device=expected.device)
            levels = eye[:, :-1] - self.frequencies[slots][:-1]
            jitter = INDICATOR_JITTER * eye[1:, 1:]
            alone, given = levels - self.middle[own], levels - expected[rows, None, own]
            inverse = invert_each(self.covariance[None, own, own] + jitter)[0]
            before = (multiply(alone, inverse) * alone).sum(dim=1)
            after = (multiply(given, invert_each(rest[rows, own, own] + jitter)) * given).sum(dim=2)
            logits[rows] += (before - after) / 2
        probabilities = logits.softmax(dim=1).clamp_min(SMALLEST_PROBABILITY)
        return (probabilities / probabilities.sum(dim=1, keepdim=True)).float()

    @torch.no_grad()
    def find_lines(self, rows: RowBatch, support: Support) -> tuple[Tensor, Tensor]:
        """Standard deviations of classes, in columns of which the Gaussian knows cells more finely than that.

        Known cells are predicted from the others of their rows. Those of which the Gaussian is sure to within
        a class must be where it says; 0 where they are not, or hardly any are. How far they miss it, in its
        own standard deviations, is the scale of those: shrinkage makes them too large on exact lines.

        Shape: -> widths, scales [p].
        """
        is_bin = support.valid & (support.variances > 0)
        # A bin is as wide as half of them are: those of tails are much wider.
        variances = torch.where(is_bin, support.variances, torch.nan).nanmedian(dim=1).values
        widths = variances.sqrt().nan_to_num(0.0)
        scales = torch.ones_like(widths)
        rows = rows.part(spread_rows(len(rows), LINE_ROWS))
        for j in (widths > 0).nonzero()[:, 0].tolist():
            some = rows.part(rows.known[:, j])
            others = some.known.clone()
            others[:, j] = False
            mean, std, _ = self.condition(RowBatch(some.x, some.z, others, some.levels))
            sure = std[:, j] < widths[j]
            misses = ((some.x[:, j] - mean[:, j]) / std[:, j])[sure]
            # These rows are among those of the fit, which has taken a degree of freedom for each column.
            scale = (misses.square().mean() / (1 - (self.d - 1) / max(self.d, len(some)))).sqrt()
            scales[j] = scale.clamp_min(SMALLEST_SCALE)
            if len(misses) < FEWEST_SURE or scale > MOST_MISS:
                widths[j], scales[j] = 0.0, 1.0
        return widths, scales

    def predict(self, given: Given, cells: Cells, support: Support) -> tuple[Predictive, Normal]:
        """Distributions of cells over their classes, and the normal ones behind them."""
        means, stds, levels = self.read(given, cells.levels)
        mean, std, columns = cells.pick(means), cells.pick(stds), cells.columns
        cuts = support.scores if self.kind == "copula" else support.edges
        bins = support.normal_probabilities(mean, std, cuts[columns])
        bins = (1 - FLOOR) * bins + FLOOR * support.frequencies[columns]
        expectation = support.mean(bins, columns) if self.kind == "copula" else mean
        return Predictive(expectation, bins, levels), (mean, std)


class Variants(nn.Module):
    """Bayesian bootstrap of a copula: replicates that are as likely as the fit, and mixtures of them.

    Shape: middles [VARIANTS, d]; covariances [VARIANTS, d, d], or of many columns loadings [VARIANTS, d, r]
    and specifics [VARIANTS, d].
    """

    middles: Tensor
    covariances: Tensor
    loadings: Tensor
    specifics: Tensor
    fitted: Tensor
    seed: Tensor

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        d = n_columns
        self.has_factors = d > MOST_COLUMNS
        start = {"middles": torch.zeros(d)}
        if self.has_factors:
            start |= {"loadings": torch.zeros(d, n_factors(d)), "specifics": torch.ones(d)}
        else:
            start["covariances"] = torch.eye(d)
        for name, one in start.items():
            self.register_buffer(name, torch.stack([one.double()] * VARIANTS))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of copulas."""
        if self.has_factors:
            require(self.specifics > 0, "specific variances must be positive")
        else:
            require_covariance(self.covariances, "covariances")

    @torch.no_grad()
    def fit(self, copula: LinearExpert, rows: RowBatch, seed: int) -> None:
        """Refit a copula to the rows that it was fitted to, with random weights, on a CPU.

        Of long tables some rows are taken: deviations are as much larger as the root of their share, by which
        they are then made smaller.
        """
        n, d = len(rows), copula.d
        most = min(MOST_ROWS, max(ROWS_A_COLUMN * d, int(MOST_WORK / d**3)))
        rows = rows.part(spread_rows(n, MOST_FACTOR_ROWS if self.has_factors else most))
        prepare = _prepare_factors if self.has_factors else _prepare_covariance
        refit = prepare(copula, rows, (len(rows) / n) ** 0.5)
        for k in range(VARIANTS):
            weights = torch.empty(len(rows), dtype=torch.float64)
            weights.exponential_(generator=torch_generator(derive_seed(seed, "weights", k)))
            for name, parameter in refit(weights.clamp_min(1e-9)).items():
                getattr(self, name)[k] = parameter
        self.fitted.fill_(True)
        self.seed.fill_(derive_seed(seed, "mixtures") & ((1 << 63) - 1))

    @torch.no_grad()
    def of_draws(self, copula: LinearExpert, draws: range) -> list[LinearExpert]:
        """The copula of each draw: a replicate, or a mixture of them where there are no more."""
        mix = self._mix_factors if self.has_factors else self._mix_covariances
        return mix(copula, draws)

    def _mixing_weights(self, draw: int) -> Tensor:
        """Independent normal weights of the replicates' deviations: mixtures vary as replicates do."""
        generator = torch_generator(derive_seed(int(self.seed), "mixture", draw))
        weights: Tensor = torch.randn(VARIANTS, dtype=torch.float64, generator=generator) / VARIANTS**0.5
        return weights

    def _mix_covariances(self, copula: LinearExpert, draws: range) -> list[LinearExpert]:
        """Deviations of covariances are added up as logarithms."""
        pairs = [(self.middles[draw], self.covariances[draw]) for draw in draws if draw < VARIANTS]
        if draws.stop > VARIANTS:
            middle, root = copula.middle.cpu(), _root(copula.covariance.cpu())
            steps = self.middles.cpu() - middle
            values, vectors = torch.linalg.eigh(_whiten(root, self.covariances.cpu()))
            logarithms = (vectors * values.clamp_min(1e-12).log()[:, None, :]) @ vectors.transpose(1, 2)
            for draw in draws[len(pairs) :]:
                weights = self._mixing_weights(draw)
                spread = torch.linalg.matrix_exp(torch.einsum("k,kij->ij", weights, logarithms))
                mixture = middle + weights @ steps, root @ spread @ root.T
                pairs.append((mixture[0].to(self.middles.device), mixture[1].to(self.middles.device)))
        return [copula.with_parameters(*pair) for pair in pairs]

    def _mix_factors(self, copula: LinearExpert, draws: range) -> list[LinearExpert]:
        assert copula.factors is not None
        middle, loadings, specific = copula.middle, copula.factors.loadings, copula.factors.specific
        ones, found = torch.eye(VARIANTS, dtype=torch.float64), []
        for draw in draws:
            weights = (ones[draw] if draw < VARIANTS else self._mixing_weights(draw)).to(middle.device)
            found.append(
                copula.with_factors(
                    middle + weights @ (self.middles - middle),
                    loadings + torch.einsum("k,kdr->dr", weights, self.loadings - loadings),
                    (specific.log() + weights @ (self.specifics.log() - specific.log())).exp(),
                )
            )
        return found


#: The parameters of a replicate from weights of the rows.
Refit = Callable[[Tensor], dict[str, Tensor]]


def _prepare_covariance(copula: LinearExpert, rows: RowBatch, scale: float) -> Refit:
    """What refits a copula of full rank, with deviations from the fit scaled."""
    values, known = copula.latent(rows)
    middle, root = copula.middle, _root(copula.covariance)
    patterns, shrink = MissingPatterns(known), float(copula.shrinking) * shrinkage(known)
    rounds = min(VARIANT_ROUNDS, max(FEWEST_ROUNDS, int(VARIANT_WORK / (len(rows) * copula.d**3))))

    def few_rounds(m: Tensor, S: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return settle(
            values, patterns, m, S, shrink, rounds=rounds, tolerance=ROUGH_TOLERANCE, weights=weights
        )

    m, S = few_rounds(middle, copula.covariance)
    own, eye = _root(S), torch.eye(copula.d, dtype=S.dtype)

    def refit(weights: Tensor) -> dict[str, Tensor]:
        m_k, S_k = few_rounds(m, S, weights)
        # In units of these rows' own copula, which is N(0, 1) there.
        step = torch.linalg.solve_triangular(own, (m_k - m)[:, None], upper=False)[:, 0]
        spread = (1 - scale) * eye + scale * _whiten(own, S_k)
        return {"middles": middle + scale * (root @ step), "covariances": root @ spread @ root.T}

    return refit


def _prepare_factors(copula: LinearExpert, rows: RowBatch, scale: float) -> Refit:
    """The same of low rank."""
    values, known = copula.latent(rows)
    fitted = copula.factors
    assert fitted is not None

    def few_rounds(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        factors, w = copy.deepcopy(fitted), weights[:, None] * known.double()
        # Means of known cells show at once how weights move the middle.
        middle = copula.middle + (w * (values - copula.middle)).sum(dim=0) / w.sum(dim=0).clamp_min(1)
        for _ in range(FACTOR_ROUNDS):
            factors.em_round(values, known, middle, weights)
        return middle, factors.loadings, factors.specific.log()

    own = few_rounds(torch.ones(len(rows), dtype=torch.float64))
    start = copula.middle, fitted.loadings, fitted.specific.log()

    def refit(weights: Tensor) -> dict[str, Tensor]:
        steps = zip(start, few_rounds(weights), own, strict=True)
        middle, loadings, logarithms = (a + scale * (b - c) for a, b, c in steps)
        return {"middles": middle, "loadings": loadings, "specifics": logarithms.exp()}

    return refit


def _root(S: Tensor) -> Tensor:
    root: Tensor = torch.linalg.cholesky(S + JITTER * torch.eye(len(S), dtype=S.dtype))
    return root


def _whiten(root: Tensor, S: Tensor) -> Tensor:
    """Covariances in units where that with this root is the identity. Shape: [d, d], [..., d, d]."""
    half = torch.linalg.solve_triangular(root, S, upper=False)
    white: Tensor = torch.linalg.solve_triangular(root, half.transpose(-1, -2), upper=False)
    return (white + white.transpose(-1, -2)) / 2

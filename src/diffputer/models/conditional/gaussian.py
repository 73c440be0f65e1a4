"""The linear experts: a Gaussian copula of normal scores, and a Gaussian of the values.

Both take numbers and centred indicators of categories to be jointly Gaussian, N(m, S), found by EM over rows
with missing cells. The copula knows each column's own distribution; the Gaussian of the values knows exact
lines and extrapolates them. S is shrunk towards independence where rows are few,

    M-step  m and S from the expected first and second moments, then (1 - a) S + a diag(S)

with a = f d / (d + pairs), pairs the rows that show a pair of columns, and f chosen on held-out cells. Of
many columns S has low rank, L L' + diag(psi): a row costs the square of the factors, not the cube of columns.

A copula has bootstrapped variants (Bayesian bootstrap, Rubin 1981: rows get exponential weights), so that
draws carry the uncertainty of the fit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...nn.layers import has_kernels
from ...nn.loading import require, require_between, require_covariance
from ...runtime.seeding import derive_seed, torch_generator
from ..base import Cells, Normal, Predictive, RowBatch
from .factors import Factors, n_factors
from .gaussian_em import JITTER, Holes, condition_in_turn, invert, invert_each, multiply, settle
from .support import Support

#: How often expectations are taken at most, and the change of a parameter below which they are not.
ROUNDS, TOLERANCE = 100, 1e-4
#: The change where fits are compared, or vary by much more.
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
#: Rows that are conditioned together; a GPU wants many.
BLOCK = {"cuda": 16_384, "cpu": 4_096}
#: Rows on which lines are looked for, cells that show one, and how far they may miss it, in its own standard
#: deviations.
LINE_ROWS, FEWEST_SURE, MOST_MISS = 2_000, 10, 1.5
#: Standard deviations on a line are reduced to this share at least.
SMALLEST_SCALE = 1e-2
#: Bootstrapped variants of the copula; draws beyond mix them.
VARIANTS = 20
#: Rounds of EM for each, from the fitted parameters on, and multiplications that all may take.
VARIANT_ROUNDS, FEWEST_ROUNDS, VARIANT_WORK = 50, 8, 2e9
#: Rounds of EM for each variant of low rank, and rows that it is found from at most.
FACTOR_ROUNDS, MOST_FACTOR_ROWS = 4, 2_000
#: Rows that variants are found from at most; of many columns fewer, but some a column.
MOST_ROWS, MOST_WORK, ROWS_A_COLUMN = 10_000, 1e7, 10


def most_rows(n_columns: int) -> int:
    """Rows from which the covariance is found at most: a row takes the cube of its missing columns.

    Examples
    --------
    >>> most_rows(10), most_rows(20), most_rows(64)
    (20000, 12500, 2560)
    """
    return min(20_000, max(40 * n_columns, int(1e8 / n_columns**3)))


def shrinkage(known: Tensor) -> float:
    """How far S is shrunk with f = 1: rows that show two columns against columns. Shape: known [n, d]."""
    n, d = known.shape
    pairs = float(known.double().mean(dim=0).square().mean()) * n
    return d / (d + pairs)


class Given:
    """Gaussians of n rows given what is known of them, which can learn more cells.

    A cell that becomes known changes a row's Gaussian by a matrix of rank one, so that drawing cell by cell
    takes the square of the columns where conditioning anew takes the cube.

    Shape: known, expected [n, d]; rest [n, d, d] are covariances, or [n, d] variances alone.
    """

    def __init__(self, known: Tensor, expected: Tensor, rest: Tensor) -> None:
        self.known, self.expected, self.rest = known, expected, rest

    def clone(self) -> Given:
        """A copy that learns for itself."""
        return Given(self.known, self.expected.clone(), self.rest.clone())

    def first(self, n: int) -> Given:
        """The first rows; they share memory."""
        return Given(self.known[:n], self.expected[:n], self.rest[:n])

    @property
    def variance(self) -> Tensor:
        """Variances of all cells. Shape: [n, d]."""
        return self.rest.diagonal(dim1=1, dim2=2) if self.rest.ndim == 3 else self.rest

    def learn(self, values: Tensor, known: Tensor) -> None:
        """Learn what is known by now, one cell of each row at a time. Shape: two of [n, d]."""
        new = known & ~self.known
        self.known = known
        while len(rows := new.any(dim=1).nonzero()[:, 0]):
            column = new[rows].to(torch.uint8).argmax(dim=1)
            new[rows, column] = False
            rest, expected = self.rest[rows], self.expected[rows]
            every = torch.arange(len(rows), device=rows.device)
            shared = rest[every, column]
            gain = shared / (shared[every, column] + JITTER)[:, None]
            miss = values[rows, column] - expected[every, column]
            self.expected[rows] = expected + gain * miss[:, None]
            self.rest[rows] = rest - gain[:, :, None] * shared[:, None, :]
        self.expected = torch.where(known, values, self.expected)


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
        slots = [(k, level) for k, n in enumerate(levels) for level in range(n)]
        pairs = torch.tensor(slots, dtype=torch.int64).reshape(-1, 2)
        self.register_buffer("slot_column", pairs[:, 0], persistent=False)
        self.register_buffer("slot_level", pairs[:, 1], persistent=False)
        self.register_buffer("shrinking", torch.ones((), dtype=torch.float64))
        self.register_buffer("middle", torch.zeros(d, dtype=torch.float64))
        self.factors = Factors(d) if d > MOST_COLUMNS else None
        full = 0 if self.factors is not None else d
        self.register_buffer("covariance", torch.eye(full, dtype=torch.float64))
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
            most = min(len(rows), most_rows(self.d))
            rows = rows.part(torch.linspace(0, len(rows) - 1, most, dtype=torch.float64).long())
        seen = (rows.levels >= 0).double()[:, self.slot_column]
        there = (rows.levels[:, self.slot_column] == self.slot_level).double()
        self.frequencies.copy_(there.sum(dim=0) / seen.sum(dim=0).clamp_min(1))
        values, known = self.latent(rows)
        if self.factors is not None:
            self.factors.fit(values, known, self.middle, warm=warm)
            return
        spread = torch.diag((values.square().sum(dim=0) / known.sum(dim=0).clamp_min(1)).clamp_min(1e-4))
        start = (self.middle, self.covariance) if warm else (torch.zeros_like(self.middle), spread)
        m, S = settle(values, Holes(known), *start, f * shrinkage(known), rounds=ROUNDS, tolerance=tolerance)
        self.middle.copy_(m)
        self.covariance.copy_(S)

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

    @torch.no_grad()
    def given(self, rows: RowBatch) -> Given:
        """The Gaussian of each row given what is known of it."""
        parts = [self._given(rows.part(part)) for part in _blocks(len(rows), rows.x.device)]
        known, expected, rest = (torch.cat(one) for one in zip(*parts, strict=True))
        return Given(known, expected, rest)

    def _given(self, rows: RowBatch) -> tuple[Tensor, Tensor, Tensor]:
        values, known = self.latent(rows)
        if self.factors is not None:
            return known, *self.factors.expect(values, known, self.middle)
        if values.is_cuda:  # where large batches cost less than sorting rows by what they miss
            return known, *self._condition_each(values, known)
        holes = Holes(known)
        centred, covariances = holes.expect(values, self.middle, invert(self.covariance), reproducible=True)
        rest = values.new_zeros(*values.shape, self.d)
        for group, of_patterns in zip(holes.groups, covariances, strict=True):
            columns = group.columns[group.pattern]
            rest[group.rows[:, None, None], columns[:, :, None], columns[:, None, :]] = of_patterns[
                group.pattern
            ]
        return known, torch.where(known, values, self.middle + centred), rest

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
        expected, variance = given.expected, given.variance
        if self.kind == "values" and self.factors is None:
            levels = [
                self._discriminate(expected, given.rest, k, wanted[:, k].nonzero()[:, 0])
                for k in range(len(self.levels))
            ]
        else:
            levels = [self._probabilities(expected, k) for k in range(len(self.levels))]
        std = variance[:, : self.p].clamp_min(SMALLEST_STD**2).sqrt()
        return expected[:, : self.p].float(), std.float(), levels

    def _condition_each(self, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Expectation and covariance of every row on a GPU. Shape: [n, d], [n, d, d]."""
        if has_kernels():
            from ...nn import kernels

            return kernels.condition(values, known, self.middle, self.covariance, JITTER)
        return condition_in_turn(values, known, self.middle, self.covariance)

    def _probabilities(self, expected: Tensor, k: int) -> Tensor:
        """Expected indicators of a category as probabilities. Shape: expected [n, d] -> [n, L]."""
        start = sum(self.levels[:k])
        slots = slice(start, start + self.levels[k])
        shares = (expected[:, self.p :][:, slots] + self.frequencies[slots]).clamp_min(SMALLEST_PROBABILITY)
        return (shares / shares.sum(dim=1, keepdim=True)).float()

    def _indicators(self, k: int) -> slice:
        """Where the indicators of a category are, but for that of its last level, which they imply."""
        start = self.p + sum(self.levels[:k])
        return slice(start, start + self.levels[k] - 1)

    def _discriminate(self, expected: Tensor, rest: Tensor, k: int, rows: Tensor) -> Tensor:
        """Probabilities of categories by linear discriminant analysis, in rows where they are wanted.

        With e_l the indicators of category l, Bayes' rule for the densities of the Gaussian gives
        p(l | rest) ~ share of l * N(e_l; E[i | rest], Cov[i | rest]) / N(e_l; E[i], Cov[i]).

        Shape: expected [n, d], rest [n, d, d], rows [r] -> [n, L].
        """
        own, L = self._indicators(k), self.levels[k]
        start = own.start - self.p
        shares = self.frequencies[start : start + L].clamp_min(SMALLEST_PROBABILITY)
        logits = shares.log().repeat(len(expected), 1)
        if L > 1 and len(rows):
            eye = torch.eye(L, dtype=expected.dtype, device=expected.device)
            levels = eye[:, :-1] - self.frequencies[start : start + L - 1]
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
        widths = (
            torch.where(is_bin, support.variances, torch.nan).nanmedian(dim=1).values.sqrt().nan_to_num(0.0)
        )
        scales = torch.ones_like(widths)
        rows = rows.part(
            torch.linspace(0, len(rows) - 1, min(len(rows), LINE_ROWS), dtype=torch.float64).long()
        )
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


def _blocks(n: int, device: torch.device) -> Iterator[slice]:
    size = BLOCK.get(device.type, BLOCK["cpu"])
    return (slice(start, start + size) for start in range(0, max(n, 1), size))


class Variants(nn.Module):
    """Bootstrapped copulas, each as likely as the fitted one; of full rank only.

    Shape: middles [VARIANTS, d], covariances [VARIANTS, d, d].
    """

    middles: Tensor
    covariances: Tensor
    fitted: Tensor
    seed: Tensor

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        eye = torch.eye(n_columns, dtype=torch.float64)
        self.register_buffer("middles", torch.zeros(VARIANTS, n_columns, dtype=torch.float64))
        self.register_buffer("covariances", eye.repeat(VARIANTS, 1, 1))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of copulas."""
        require_covariance(self.covariances, "covariances")

    @torch.no_grad()
    def fit(self, copula: LinearExpert, rows: RowBatch, seed: int) -> None:
        """Find the variants of a copula that was fitted to these rows, on a CPU.

        Of long tables some rows are taken: deviations are as much larger as the root of their share, by which
        they are then made smaller.
        """
        n, d = len(rows), copula.d
        most = min(n, MOST_ROWS, max(ROWS_A_COLUMN * d, int(MOST_WORK / d**3)))
        rows = rows.part(torch.linspace(0, n - 1, most, dtype=torch.float64).long())
        values, known = copula.latent(rows)
        middle, covariance = copula.middle, copula.covariance
        holes, shrink = Holes(known), float(copula.shrinking) * shrinkage(known)
        rounds = min(VARIANT_ROUNDS, max(FEWEST_ROUNDS, int(VARIANT_WORK / (len(rows) * d**3))))

        def refit(m: Tensor, S: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
            return settle(
                values, holes, m, S, shrink, rounds=rounds, tolerance=ROUGH_TOLERANCE, weights=weights
            )

        m, S = refit(middle, covariance, None)
        root, own, scale = _root(covariance), _root(S), (len(rows) / n) ** 0.5
        eye = torch.eye(d, dtype=S.dtype)
        for k in range(VARIANTS):
            generator = torch_generator(derive_seed(seed, "weights", k))
            weights = (
                torch.empty(len(rows), dtype=values.dtype).exponential_(generator=generator).clamp_min(1e-9)
            )
            m_k, S_k = refit(m, S, weights)
            # In units of these rows' own copula, which is N(0, 1) there.
            half = torch.linalg.solve_triangular(own, S_k, upper=False)
            spread = torch.linalg.solve_triangular(own, half.T, upper=False)
            step = torch.linalg.solve_triangular(own, (m_k - m)[:, None], upper=False)[:, 0]
            spread = (1 - scale) * eye + scale * (spread + spread.T) / 2
            self.middles[k] = middle + scale * (root @ step)
            self.covariances[k] = root @ spread @ root.T
        self.fitted.fill_(True)
        self.seed.fill_(derive_seed(seed, "mixtures") & ((1 << 63) - 1))

    def of_draws(self, copula: LinearExpert, draws: range) -> list[LinearExpert]:
        """The variant of each draw."""
        pairs = [(self.middles[draw], self.covariances[draw]) for draw in draws if draw < VARIANTS]
        if beyond := [draw for draw in draws if draw >= VARIANTS]:
            pairs += self._mixtures(copula, beyond)
        return [copula.with_parameters(*pair) for pair in pairs]

    @torch.no_grad()
    def _mixtures(self, copula: LinearExpert, draws: list[int]) -> list[tuple[Tensor, Tensor]]:
        """Variants of draws that have none of their own.

        Deviations of the variants from the fit, of covariances in logarithms, are added up with independent
        normal weights: mixtures vary as the variants do.
        """
        device = copula.middle.device
        middle, root = copula.middle.cpu(), _root(copula.covariance.cpu())
        steps = self.middles.cpu() - middle
        half = torch.linalg.solve_triangular(root, self.covariances.cpu(), upper=False)
        white = torch.linalg.solve_triangular(root, half.transpose(1, 2), upper=False)
        values, vectors = torch.linalg.eigh((white + white.transpose(1, 2)) / 2)
        logarithms = (vectors * values.clamp_min(1e-12).log()[:, None, :]) @ vectors.transpose(1, 2)
        pairs = []
        for draw in draws:
            generator = torch_generator(derive_seed(int(self.seed), "mixture", draw))
            weights = torch.randn(VARIANTS, dtype=middle.dtype, generator=generator) / VARIANTS**0.5
            spread = torch.linalg.matrix_exp(torch.einsum("k,kij->ij", weights, logarithms))
            pair = middle + weights @ steps, root @ spread @ root.T
            pairs.append((pair[0].to(device), pair[1].to(device)))
        return pairs


class FactorVariants(nn.Module):
    """Bootstrapped copulas of low rank.

    Shape: middles [VARIANTS, d], loadings [VARIANTS, d, r], specifics [VARIANTS, d].
    """

    middles: Tensor
    loadings: Tensor
    specifics: Tensor
    fitted: Tensor
    seed: Tensor

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        r = n_factors(n_columns)
        self.register_buffer("middles", torch.zeros(VARIANTS, n_columns, dtype=torch.float64))
        self.register_buffer("loadings", torch.zeros(VARIANTS, n_columns, r, dtype=torch.float64))
        self.register_buffer("specifics", torch.ones(VARIANTS, n_columns, dtype=torch.float64))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))

    def check_values(self) -> None:
        """Raise ValueError unless variances are positive."""
        require(self.specifics > 0, "specific variances must be positive")

    @torch.no_grad()
    def fit(self, copula: LinearExpert, rows: RowBatch, seed: int) -> None:
        """Find the variants by a few rounds of weighted EM from the fit on, as :meth:`Variants.fit` does."""
        n = len(rows)
        most = min(n, MOST_FACTOR_ROWS)
        rows = rows.part(torch.linspace(0, n - 1, most, dtype=torch.float64).long())
        values, known = copula.latent(rows)
        k, scale = known.double(), (most / n) ** 0.5
        assert copula.factors is not None

        def refit(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            factors = copy.deepcopy(copula.factors)
            assert factors is not None
            # Means of known cells show at once how weights move the middle.
            shift = (weights[:, None] * k * (values - copula.middle)).sum(dim=0)
            middle = copula.middle + shift / (weights[:, None] * k).sum(dim=0).clamp_min(1)
            for _ in range(FACTOR_ROUNDS):
                factors.em_round(values, known, middle, weights)
            return middle, factors.loadings, factors.specific.log()

        own = refit(torch.ones(most, dtype=torch.float64))
        fitted = copula.middle, copula.factors.loadings, copula.factors.specific.log()
        for number in range(VARIANTS):
            generator = torch_generator(derive_seed(seed, "weights", number))
            weights = torch.empty(most, dtype=torch.float64).exponential_(generator=generator)
            steps = [a + scale * (b - c) for a, b, c in zip(fitted, refit(weights), own, strict=True)]
            self.middles[number], self.loadings[number] = steps[0], steps[1]
            self.specifics[number] = steps[2].exp()
        self.fitted.fill_(True)
        self.seed.fill_(derive_seed(seed, "mixtures") & ((1 << 63) - 1))

    def of_draws(self, copula: LinearExpert, draws: range) -> list[LinearExpert]:
        """The variant of each draw; beyond VARIANTS, mixtures of their deviations from the fit."""
        assert copula.factors is not None
        found = []
        for draw in draws:
            weights = torch.zeros(VARIANTS, dtype=torch.float64)
            if draw < VARIANTS:
                weights[draw] = 1.0
            else:
                generator = torch_generator(derive_seed(int(self.seed), "mixture", draw))
                weights = torch.randn(VARIANTS, dtype=torch.float64, generator=generator) / VARIANTS**0.5
            weights = weights.to(copula.middle.device)
            middle, loadings, specific = copula.middle, copula.factors.loadings, copula.factors.specific
            found.append(
                copula.with_factors(
                    middle + weights @ (self.middles - middle),
                    loadings + torch.einsum("k,kdr->dr", weights, self.loadings - loadings),
                    (specific.log() + weights @ (self.specifics.log() - specific.log())).exp(),
                )
            )
        return found


def _root(S: Tensor) -> Tensor:
    root: Tensor = torch.linalg.cholesky(S + JITTER * torch.eye(len(S), dtype=S.dtype))
    return root

"""A mixture of Gaussian copulas: rows in K clusters, each with means and covariances of its own.

    p(z) = sum_k pi_k N(z; m_k, S_k)

of normal scores and centred indicators z, found by EM over rows with missing cells. Every component is shrunk
towards the copula of the whole table,

    M-step  S_k = (N_k S'_k + d S) / (N_k + d)

where S'_k are its expected second moments, N_k the rows that it owns, S the covariance of the table and d the
columns. Curves, clusters and several modes take few parameters, so that some hundred rows are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...nn.loading import require, require_between, require_covariance
from ..base import Cells, Predictive, RowBatch
from .gaussian import FLOOR, SMALLEST_STD, LinearExpert
from .gaussian_em import (
    JITTER,
    MissingPatterns,
    invert_with_determinant,
    multiply,
    one_cell_at_a_time,
    spread_rows,
)
from .support import Support

#: Components to start with; their number is doubled while held-out cells become more probable.
FEWEST_COMPONENTS = 2
#: Powers of the likelihood of components that are tried: clusters are never quite Gaussian, and many known
#: cells would make a row too sure of its own.
POWERS = (1.0, 0.7, 0.4, 0.2)
#: Latent columns at most; beyond, a component has too many parameters.
MOST_COLUMNS = 128
#: Numbers in the covariances of a row at most, which draws keep.
MOST_NUMBERS = 1 << 16
#: Variances that are tried for noise of indicators, which are not Gaussian and add up to one: without any,
#: categories that a component hardly knows decide to which one a row belongs.
NOISES = (0.01, 0.1)
#: Rows that a component needs, and rows of the fit at most.
ROWS_A_COMPONENT, MOST_ROWS = 20, 20_000
#: Multiplications of a round of EM at most.
MOST_WORK = 2e8
#: Rounds of EM at most, the gain in mean log-likelihood that ends it, and rounds when it goes on.
ROUNDS, TOLERANCE, WARM_ROUNDS = 40, 1e-3, 5
#: Components of a row that take part in its distributions.
MOST_ACTIVE = 6


@dataclass
class Moments:
    """What every component expects of rows given their known cells.

    Shape: centred [K, n, d], E[z | known] - m; log_density [n, K] of the known cells; covariances, of each
    group of missing patterns [K, u, k, k].
    """

    centred: Tensor
    log_density: Tensor
    covariances: list[Tensor]


@dataclass
class Posterior:
    """Components given what is known of n rows, which can learn more cells.

    A row has a slot for each column that it misses, U at most: a cell that becomes known changes its
    covariances by a matrix of rank one.

    Shape: known [n, d]; columns [n, U], those of slots, d for none; slots [n, d]; expected [K, n, U];
    covariance [K, n, U, U]; log_density [n, K].
    """

    known: Tensor
    columns: Tensor
    slots: Tensor
    expected: Tensor
    covariance: Tensor
    """Of what learns; else variances alone, [K, n, U]."""
    log_density: Tensor

    @property
    def variance(self) -> Tensor:
        """Variances of slots. Shape: [K, n, U]."""
        return self.covariance.diagonal(dim1=2, dim2=3) if self.covariance.ndim == 4 else self.covariance

    def clone(self) -> Posterior:
        """A copy that learns for itself."""
        return Posterior(
            self.known, self.columns, self.slots, self.expected.clone(), self.covariance.clone(),
            self.log_density.clone(),
        )  # fmt: skip

    def first(self, n: int) -> Posterior:
        """The first rows; they share memory."""
        return Posterior(
            self.known[:n], self.columns[:n], self.slots[:n], self.expected[:, :n], self.covariance[:, :n],
            self.log_density[:n],
        )  # fmt: skip

    def learn(self, values: Tensor, known: Tensor) -> None:
        """Learn what is known by now, one cell of each row at a time. Shape: two of [n, d]."""
        for rows, column in one_cell_at_a_time(known & ~self.known):
            slot, every = self.slots[rows, column], torch.arange(len(rows), device=rows.device)
            shared = self.covariance[:, rows, slot]
            variance = shared[:, every, slot] + JITTER
            miss = values[rows, column] - self.expected[:, rows, slot]
            gain = shared / variance[:, :, None]
            self.log_density[rows] -= ((miss.square() / variance + variance.log()) / 2).T
            self.expected[:, rows] += gain * miss[:, :, None]
            for one, left, right in zip(self.covariance, gain[..., None], shared[:, :, None], strict=True):
                if len(rows) == len(known):
                    one.addcmul_(left, right, value=-1)
                else:
                    one[rows] = one[rows].addcmul_(left, right, value=-1)
        self.known = known


class MixtureExpert(nn.Module):
    """Rows as a mixture of Gaussians of normal scores and indicators.

    Parameters
    ----------
    n_columns
        d, the latent columns of the copula of the same table.
    most
        Components at most.

    Attributes
    ----------
    log_weights, middles, covariances
        log pi [K], m [K, d], S [K, d, d]; components without weight are not in use.
    power
        Of the likelihood in the weights of components, given known cells.
    noise
        Added to variances of indicators.
    """

    may_be_infinite = ("log_weights",)
    log_weights: Tensor
    middles: Tensor
    covariances: Tensor
    power: Tensor
    noise: Tensor

    def __init__(self, n_columns: int, most: int) -> None:
        super().__init__()
        most = max(FEWEST_COMPONENTS, min(most, MOST_NUMBERS // n_columns**2))
        self.d, self.most = n_columns, most
        self.register_buffer("log_weights", torch.full((most,), -torch.inf, dtype=torch.float64))
        self.log_weights[0] = 0.0
        self.register_buffer("middles", torch.zeros(most, n_columns, dtype=torch.float64))
        self.register_buffer("covariances", torch.eye(n_columns, dtype=torch.float64).repeat(most, 1, 1))
        self.register_buffer("power", torch.ones((), dtype=torch.float64))
        self.register_buffer("noise", torch.zeros((), dtype=torch.float64))

    @property
    def n_components(self) -> int:
        """Components in use; they come first."""
        return int(self.log_weights.isfinite().sum())

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of a mixture."""
        used = self.log_weights.isfinite()
        require(used[0] & (used[1:] <= used[:-1]).all(), "components in use must come first")
        require_between(-torch.inf, 0.1, log_weights=self.log_weights)
        require_between(0, 1, power=self.power, noise=self.noise)
        require_covariance(self.covariances, "covariances")

    @torch.no_grad()
    def fit(
        self,
        rows: RowBatch,
        copula: LinearExpert,
        n_components: int,
        seed: int,
        *,
        warm: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fit by EM on a CPU, beside the copula of the same rows; ``warm`` goes on from an earlier fit.

        A row takes the cube of what it misses, about a third of the columns, so that of many columns fewer
        rows are used.
        """
        work = n_components * max(self.d**2, (0.35 * self.d) ** 3)
        rows = rows.part(spread_rows(len(rows), max(10 * self.d, min(MOST_ROWS, int(MOST_WORK / work)))))
        values, known = copula.latent(rows)
        patterns = MissingPatterns(known, n_components)
        if not warm:
            self._start(values, patterns, copula, n_components, seed)
        before = -torch.inf
        for _ in range(WARM_ROUNDS if warm else ROUNDS):
            after = self._em_round(values, patterns, copula)
            if after - before < TOLERANCE or is_over():
                break
            before = after

    def _start(
        self, values: Tensor, patterns: MissingPatterns, copula: LinearExpert, K: int, seed: int
    ) -> None:
        """Start from clusters of rows whose missing cells have their expectation in the whole table."""
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        self.log_weights.fill_(-torch.inf)[0] = 0.0
        self.middles[0], self.covariances[0] = copula.middle, copula.full_covariance
        whole = self._condition(values, patterns, reproducible=False)
        n_clusters = min(K, len(torch.unique(whole.centred[0], dim=0)))
        with threadpool_limits(1):
            clusters = KMeans(n_clusters, n_init=1, random_state=seed & 0x7FFFFFFF)
            clusters.fit(whole.centred[0].numpy())
        own = nn.functional.one_hot(torch.from_numpy(clusters.labels_).long(), K).double()
        share = 0.95 * own + 0.05 / K
        self.middles[:K] = copula.middle
        alike = Moments(
            whole.centred.expand(K, -1, -1), whole.log_density,
            [one.expand(K, -1, -1, -1) for one in whole.covariances],
        )  # fmt: skip
        self._m_step(patterns, alike, share, copula)

    def _em_round(self, values: Tensor, patterns: MissingPatterns, copula: LinearExpert) -> float:
        """One E-step and one M-step; returns the mean log-likelihood before it."""
        moments = self._condition(values, patterns, reproducible=False)
        logits = moments.log_density + self.log_weights[: self.n_components]
        self._m_step(patterns, moments, logits.softmax(dim=1), copula)
        return float(logits.logsumexp(dim=1).mean())

    def _m_step(
        self, patterns: MissingPatterns, moments: Moments, share: Tensor, copula: LinearExpert
    ) -> None:
        """Weights, means and covariances of rows that belong to components. Shape: share [n, K]."""
        (_, K), d = share.shape, self.d
        N = share.sum(dim=0)
        # One row more has the mean of the whole table.
        step = (share.T[:, :, None] * moments.centred).sum(dim=1) + copula.middle - self.middles[:K]
        step = step / (N + 1)[:, None]
        centred = moments.centred - step[:, None, :]
        second = ((share.T[:, :, None] * centred).transpose(1, 2) @ centred).contiguous()
        for group, covariance in zip(patterns.groups, moments.covariances, strict=True):
            u, k = group.columns.shape
            owned = torch.zeros(u, K, dtype=share.dtype).index_add_(0, group.pattern, share[group.rows])
            places = group.columns[:, :, None] * d + group.columns[:, None, :]
            spread = (owned.T[:, :, None, None] * covariance).reshape(K, u * k * k)
            second.view(K, d * d).index_add_(1, places.flatten(), spread)
        S = (second + d * copula.full_covariance) / (N + d)[:, None, None]
        S.diagonal(dim1=1, dim2=2)[:, copula.p :] += float(self.noise)
        self.log_weights.fill_(-torch.inf)[:K] = ((N + 1) / (N.sum() + K)).log()
        self.middles[:K] += step
        self.covariances[:K] = (S + S.transpose(1, 2)) / 2

    def _condition(self, values: Tensor, patterns: MissingPatterns, *, reproducible: bool) -> Moments:
        """Condition every component on the known cells of every row.

        With P = S^-1 and r = E[z - m | known], r'Pr is the quadratic form of the known cells O, and their
        covariance has the determinant det S det P_UU, with U the missing ones.

        Shape: values [n, d].
        """
        K = self.n_components
        eye = torch.eye(self.d, dtype=values.dtype, device=values.device)
        P, determinant = invert_with_determinant(self.covariances[:K] + JITTER * eye)
        centred = (values - self.middles[:K, None, :]) * patterns.known
        b = multiply(centred, P) if reproducible else centred @ P
        log_density = determinant[:, None].repeat(1, len(values)) / -2
        covariances = []
        for group in patterns.groups:
            columns, rows = group.columns[group.pattern], group.rows[:, None]
            block = P[:, group.columns[:, :, None], group.columns[:, None, :]]
            if reproducible:
                inverse, determinant = invert_with_determinant(block.flatten(0, 1))
            else:
                root = torch.linalg.cholesky(block.flatten(0, 1))
                inverse = torch.cholesky_inverse(root)
                determinant = 2 * root.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            inverse = inverse.view_as(block)
            solved = (inverse[:, group.pattern] * b[:, rows, columns][..., None, :]).sum(dim=-1)
            centred[:, rows, columns] = -solved
            log_density[:, group.rows] -= determinant.view(K, -1)[:, group.pattern] / 2
            covariances.append(inverse)
        product = multiply(centred, P) if reproducible else centred @ P
        log_density -= (centred * product).sum(dim=-1) / 2
        return Moments(centred, log_density.T, covariances)

    @torch.no_grad()
    def given(self, rows: RowBatch, copula: LinearExpert, *, learns: bool = False) -> Posterior:
        """Every component given what is known of rows; only what learns needs covariances."""
        values, known = copula.latent(rows)
        patterns = MissingPatterns(known, self.n_components)
        moments = self._condition(values, patterns, reproducible=True)
        n, d, K = len(values), self.d, len(moments.centred)
        U = max((group.columns.shape[1] for group in patterns.groups), default=0)
        columns = torch.full((n, U), d, device=values.device)
        slots = torch.zeros_like(known, dtype=torch.int64)
        expected, covariance = values.new_zeros(K, n, U), values.new_zeros(K, n, U, U if learns else 1)
        for group, of_patterns in zip(patterns.groups, moments.covariances, strict=True):
            own, rows_, k = group.columns[group.pattern], group.rows, group.columns.shape[1]
            columns[rows_, :k] = own
            slots[rows_[:, None], own] = torch.arange(k, device=values.device)
            expected[:, rows_, :k] = (moments.centred + self.middles[:K, None, :])[:, rows_[:, None], own]
            if learns:
                covariance[:, rows_, :k, :k] = of_patterns[:, group.pattern]
            else:
                covariance[:, rows_, :k, 0] = of_patterns.diagonal(dim1=2, dim2=3)[:, group.pattern]
        covariance = covariance if learns else covariance[..., 0]
        return Posterior(known, columns, slots, expected, covariance, moments.log_density)

    @torch.no_grad()
    def learn(self, given: Posterior, rows: RowBatch, copula: LinearExpert) -> Posterior:
        """What is given once these rows, of which more is known, are."""
        given.learn(*copula.latent(rows))
        return given

    @torch.no_grad()
    def predict(
        self,
        given: Posterior,
        cells: Cells,
        support: Support,
        copula: LinearExpert,
        power: Tensor | float | None = None,
    ) -> Predictive:
        """Distributions of cells: normal distributions of scores, mixed by the weights of components."""
        power = self.power if power is None else power
        share = (power * given.log_density + self.log_weights[: given.log_density.shape[1]]).softmax(dim=1)
        expected = share.new_zeros(len(share), self.d + 1)
        # One component after the other: a sum over all has other bits in other batches.
        mixed = torch.zeros_like(given.expected[0])
        for weight, one in zip(share.T, given.expected, strict=True):
            mixed += weight[:, None] * one
        expected.scatter_(1, given.columns, mixed)
        levels = [copula.probabilities(expected[:, : self.d], k) for k in range(len(copula.levels))]
        weight, active = share.topk(min(MOST_ACTIVE, share.shape[1]), dim=1)
        weight = (weight / weight.sum(dim=1, keepdim=True)).float()[cells.rows]
        columns, cuts = cells.columns, support.scores[cells.columns]
        slot = given.slots[cells.rows, columns]
        bins = FLOOR * support.frequencies[columns]
        for t in range(active.shape[1]):
            place = active[cells.rows, t], cells.rows, slot
            variance = given.variance[place].clamp_min(SMALLEST_STD**2)
            own = support.normal_probabilities(given.expected[place].float(), variance.sqrt().float(), cuts)
            bins = bins + (1 - FLOOR) * weight[:, t, None] * own
        return Predictive(support.mean(bins, columns), bins, levels)

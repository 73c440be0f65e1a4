"""A mixture of Gaussian copulas: normal scores and indicators in K clusters, each with a covariance of its own.

    p(z) = sum_k pi_k N(z; m_k, S_k)

found by EM over rows with missing cells. Every component is shrunk towards the copula of the whole table,

    M-step  S_k = (N_k S_k' + d S) / (N_k + d)

where S_k' are its expected second moments, N_k the rows it owns, S the covariance of the table and d the
columns. Curves, clusters and several modes come from few parameters, so that some hundred rows are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...nn.loading import require_between, require_covariance
from ..base import Cells, Predictive, RowBatch
from .gaussian import FLOOR, ROUGH_TOLERANCE, SMALLEST_STD, LinearExpert
from .gaussian_em import JITTER, MissingPatterns, invert_with_determinant, multiply, spread_rows
from .support import Support

#: Components that are tried, one after the other while held-out cells become more probable.
COMPONENTS = (2, 4, 8, 16, 32)
#: Latent columns at most; beyond, a component has too many parameters.
MOST_COLUMNS = 128
#: Rows that a component needs, and rows of the fit at most.
ROWS_A_COMPONENT, MOST_ROWS = 20, 20_000
#: Multiplications of a round of EM at most.
MOST_WORK = 2e8
#: Rounds of EM at most, the gain in mean log-likelihood that ends it, and rounds when it goes on.
ROUNDS, TOLERANCE, WARM_ROUNDS = 40, 1e-3, 5
#: Components of a row that take part in its distribution.
MOST_ACTIVE = 6


@dataclass
class Posterior:
    """What is expected of rows given their known cells, for every component.

    Shape: expected, variance [K, n, d]; log_density [n, K] of the known cells; covariances: of each group of
    missing patterns [K, u, k, k].
    """

    expected: Tensor
    variance: Tensor
    log_density: Tensor
    covariances: list[Tensor]


class MixtureExpert(nn.Module):
    """Rows as a mixture of Gaussians of normal scores and indicators.

    Attributes
    ----------
    table : LinearExpert
        The copula of the whole table.
    log_weights, middles, covariances
        log pi [K], m [K, d], S [K, d, d]; a component that is not used has no weight.
    """

    may_be_infinite = ("log_weights",)
    log_weights: Tensor
    middles: Tensor
    covariances: Tensor

    def __init__(self, n_numeric: int, levels: list[int]) -> None:
        super().__init__()
        self.table = LinearExpert("copula", n_numeric, levels)
        d, most = self.table.d, COMPONENTS[-1]
        self.register_buffer("log_weights", torch.full((most,), -torch.inf, dtype=torch.float64))
        self.log_weights[0] = 0.0
        self.register_buffer("middles", torch.zeros(most, d, dtype=torch.float64))
        self.register_buffer("covariances", torch.eye(d, dtype=torch.float64).repeat(most, 1, 1))

    @property
    def n_components(self) -> int:
        """Components in use; they come first."""
        return int(self.log_weights.isfinite().sum())

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of a mixture."""
        require_between(-torch.inf, 0.1, log_weights=self.log_weights)
        require_covariance(self.covariances, "covariances")

    def rows_of(self, n: int, n_components: int) -> Tensor:
        """Rows of the fit: a row takes the cube of what it misses, about a third of the columns."""
        d = self.table.d
        work = n_components * max(d**2, (0.35 * d) ** 3)
        return spread_rows(n, max(10 * d, min(MOST_ROWS, int(MOST_WORK / work))))

    @torch.no_grad()
    def fit(
        self, rows: RowBatch, n_components: int, shrinking: float, seed: int, *, warm: bool = False
    ) -> None:
        """Fit by EM on a CPU; ``warm`` goes on from an earlier fit."""
        self.table.fit(rows, shrinking, ROUGH_TOLERANCE, warm=warm)
        rows = rows.part(self.rows_of(len(rows), n_components))
        values, known = self.table.latent(rows)
        patterns = MissingPatterns(known)
        if not warm:
            self._start(values, patterns, n_components, seed)
        before = -torch.inf
        for _ in range(WARM_ROUNDS if warm else ROUNDS):
            after = self._em_round(values, patterns)
            if after - before < TOLERANCE:
                break
            before = after

    def _start(self, values: Tensor, patterns: MissingPatterns, K: int, seed: int) -> None:
        """Start from clusters of rows whose missing cells have their expectation in the whole table."""
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        self.log_weights.fill_(-torch.inf)[0] = 0.0
        self.middles[0], self.covariances[0] = self.table.middle, self.table.full_covariance
        whole = self._posterior(values, patterns, reproducible=False)
        centred = whole.expected[0] - self.table.middle
        with threadpool_limits(1):
            clusters = KMeans(K, n_init=1, random_state=seed & 0x7FFFFFFF).fit(centred.numpy())
        own = nn.functional.one_hot(torch.from_numpy(clusters.labels_).long(), K).double()
        share = 0.95 * own + 0.05 / K
        alike = Posterior(
            whole.expected.expand(K, -1, -1), whole.variance, whole.log_density,
            [one.expand(K, -1, -1, -1) for one in whole.covariances],
        )  # fmt: skip
        self._m_step(patterns, alike, share)

    def _em_round(self, values: Tensor, patterns: MissingPatterns) -> float:
        """One E-step and one M-step; returns the mean log-likelihood before it."""
        posterior = self._posterior(values, patterns, reproducible=False)
        logits = posterior.log_density + self.log_weights[: self.n_components]
        self._m_step(patterns, posterior, logits.softmax(dim=1))
        return float(logits.logsumexp(dim=1).mean())

    def _m_step(self, patterns: MissingPatterns, posterior: Posterior, share: Tensor) -> None:
        """Weights, means and covariances of rows that belong to components. Shape: share [n, K]."""
        (_, K), d = share.shape, self.table.d
        N = share.sum(dim=0)
        weighted = share.T[:, :, None] * posterior.expected
        # One row of the whole table holds the mean of a component.
        middles = (weighted.sum(dim=1) + self.table.middle) / (N + 1)[:, None]
        centred = posterior.expected - middles[:, None, :]
        second = ((share.T[:, :, None] * centred).transpose(1, 2) @ centred).contiguous()
        for group, covariance in zip(patterns.groups, posterior.covariances, strict=True):
            u, k = group.columns.shape
            owned = torch.zeros(u, K, dtype=share.dtype).index_add_(0, group.pattern, share[group.rows])
            places = group.columns[:, :, None] * d + group.columns[:, None, :]
            moments = (owned.T[:, :, None, None] * covariance).reshape(K, u * k * k)
            second.view(K, d * d).index_add_(1, places.flatten(), moments)
        S = (second + d * self.table.full_covariance) / (N + d)[:, None, None]
        self.log_weights.fill_(-torch.inf)[:K] = ((N + 1) / (N.sum() + K)).log()
        self.middles[:K], self.covariances[:K] = middles, (S + S.transpose(1, 2)) / 2

    def _posterior(self, values: Tensor, patterns: MissingPatterns, *, reproducible: bool) -> Posterior:
        """Condition every component on the known cells of every row.

        With P = S^-1 and r = E[x - m | known], the quadratic form of the known cells is r'Pr, and
        det S_OO = det S det P_UU for observed O and missing U.

        Shape: values [n, d].
        """
        K = self.n_components
        middles, S = self.middles[:K], self.covariances[:K]
        eye = torch.eye(self.table.d, dtype=S.dtype, device=S.device)
        P, determinant = invert_with_determinant(S + JITTER * eye)
        centred = (values - middles[:, None, :]) * patterns.known
        b = multiply(centred, P) if reproducible else centred @ P
        variance = torch.zeros_like(centred)
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
            variance[:, rows, columns] = inverse.diagonal(dim1=-2, dim2=-1)[:, group.pattern]
            log_density[:, group.rows] -= determinant.view(K, -1)[:, group.pattern] / 2
            covariances.append(inverse)
        product = multiply(centred, P) if reproducible else centred @ P
        log_density -= (centred * product).sum(dim=-1) / 2
        return Posterior(centred + middles[:, None, :], variance, log_density.T, covariances)

    @torch.no_grad()
    def predict(self, rows: RowBatch, cells: Cells, support: Support) -> Predictive:
        """Distributions of cells: a mixture of normal distributions of scores."""
        values, known = self.table.latent(rows)
        posterior = self._posterior(values, MissingPatterns(known), reproducible=True)
        share = (posterior.log_density + self.log_weights[: self.n_components]).softmax(dim=1)
        expected = (share.T[:, :, None] * posterior.expected).sum(dim=0)
        levels = [self.table.probabilities(expected, k) for k in range(len(self.table.levels))]
        weight, active = share.topk(min(MOST_ACTIVE, share.shape[1]), dim=1)
        weight = (weight / weight.sum(dim=1, keepdim=True)).float()[cells.rows]
        columns, cuts = cells.columns, support.scores[cells.columns]
        bins = FLOOR * support.frequencies[columns]
        for t in range(active.shape[1]):
            place = active[cells.rows, t], cells.rows, columns
            mean = posterior.expected[place].float()
            std = posterior.variance[place].clamp_min(SMALLEST_STD**2).sqrt().float()
            own = support.normal_probabilities(mean, std, cuts)
            bins = bins + (1 - FLOOR) * weight[:, t, None] * own
        return Predictive(support.mean(bins, columns), bins, levels)

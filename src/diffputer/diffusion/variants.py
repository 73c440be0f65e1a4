"""Other models that the same table might have led to: copulas of reweighted rows, and what they change.

Draws of one fitted model vary the missing cells, not the model. A proper draw varies both: the fitted copula
(m, S) is replaced by one from the distribution of its estimate, found by the Bayesian bootstrap (Rubin 1981):
rows get exponential weights and EM goes on from the fitted parameters. That is right for any pattern of
holes, each of which tells more of some parameters than of others, and for indicators, which are not Gaussian.

The copula's own draws are then those of the variant. Draws of a network are moved by what the variant expects
differently, so that all rows of a draw share one mistake that the fit may have made:

    z -> z + (s / s_copula) (E_variant[z | known] - E[z | known]),   log p(level) -> + log(p_variant / p)

with s / s_copula at most one: as uncertain as a linear model is that leaves as little open as the network.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..runtime.seeding import derive_seed, torch_generator
from .conditional import Rows
from .gaussian import GaussianCopula, shrinkage
from .gaussian_em import JITTER, Holes, settle
from .loading import require_covariance
from .splitting import evenly

#: How many there are. Draws beyond mix them, so that no two share one and their mean goes on towards the fit.
COUNT = 20
#: How often expectations are taken for each, from the fitted parameters on, and the change below which they
#: are not: where much is missing they get there slowly, and too few would vary too little.
ROUNDS, FEWEST_ROUNDS, TOLERANCE = 50, 8, 1e-4
#: Rows that they are found from at most; of many columns fewer, but some a column.
MOST_ROWS, MOST_WORK, ROWS_A_COLUMN = 10_000, 1e7, 10
#: Multiplications that all rounds of one may take, if they are not the fewest.
ALL_WORK = 2e9
#: No variant changes the logarithm of a probability by more.
MOST_TILT = 1.0


class Variants(nn.Module):
    """Parameters of copulas, each as likely as the fitted one.

    Shape: middles [COUNT, d], covariances [COUNT, d, d].
    """

    middles: Tensor
    covariances: Tensor
    fitted: Tensor
    seed: Tensor

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self.register_buffer("middles", torch.zeros(COUNT, n_columns, dtype=torch.float64))
        self.register_buffer("covariances", torch.eye(n_columns, dtype=torch.float64).repeat(COUNT, 1, 1))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))

    def check_values(self) -> None:
        """Raise ValueError unless these can be parameters of copulas."""
        require_covariance(self.covariances, "covariances")

    @torch.no_grad()
    def fit(self, copula: GaussianCopula, rows: Rows, n_rows: int, seed: int) -> None:
        """Find the variants of a copula that was fitted to these rows, of a table of so many.

        With fewer rows than the table has, deviations are as much larger as the root of their ratio, by which
        they are then made smaller.
        """
        values, known = (part.cpu() for part in copula.latent(rows))
        d = values.shape[1]
        most = min(MOST_ROWS, max(ROWS_A_COLUMN * d, int(MOST_WORK / d**3)))
        middle, covariance = copula.middle.cpu(), copula.covariance.cpu()
        if len(values) > most:
            some = evenly(len(values), most, values.device)
            values, known = values[some], known[some]
        holes, shrink = Holes(known), float(copula.shrinking) * shrinkage(known)
        m, S = _settle(values, holes, middle, covariance, shrink)
        root, own = _root(covariance), _root(S)
        scale = (len(values) / n_rows) ** 0.5
        eye = torch.eye(d, dtype=S.dtype)
        for k in range(COUNT):
            generator = torch_generator(derive_seed(seed, "weights", k))
            weights = (
                torch.empty(len(values), dtype=values.dtype).exponential_(generator=generator).clamp_min(1e-9)
            )
            m_k, S_k = _settle(values, holes, m, S, shrink, weights)
            # In units of these rows' own copula, which is N(0, 1) there.
            half = torch.linalg.solve_triangular(own, S_k, upper=False)
            spread = torch.linalg.solve_triangular(own, half.T, upper=False)
            step = torch.linalg.solve_triangular(own, (m_k - m)[:, None], upper=False)[:, 0]
            spread = (1 - scale) * eye + scale * (spread + spread.T) / 2
            self.middles[k] = middle + scale * (root @ step)
            self.covariances[k] = root @ spread @ root.T
        self.fitted.fill_(True)
        self.seed.fill_(derive_seed(seed, "mixtures") & ((1 << 63) - 1))

    def changes(self, copula: GaussianCopula, draws: range) -> list[Change]:
        """Give what the variant of each draw changes."""
        pairs = [(self.middles[draw], self.covariances[draw]) for draw in draws if draw < COUNT]
        if beyond := [draw for draw in draws if draw >= COUNT]:
            pairs += self._mixtures(copula, beyond)
        return [Change(copula, copula.with_parameters(*pair)) for pair in pairs]

    @torch.no_grad()
    def _mixtures(self, copula: GaussianCopula, draws: list[int]) -> list[tuple[Tensor, Tensor]]:
        """Give what stands for the variants of draws that have none of their own.

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
            weights = torch.randn(COUNT, dtype=middle.dtype, generator=generator) / COUNT**0.5
            spread = torch.linalg.matrix_exp(torch.einsum("k,kij->ij", weights, logarithms))
            pair = middle + weights @ steps, root @ spread @ root.T
            pairs.append((pair[0].to(device), pair[1].to(device)))
        return pairs


def _settle(
    values: Tensor, holes: Holes, m: Tensor, S: Tensor, shrink: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    work = len(values) * len(m) ** 3
    rounds = min(ROUNDS, max(FEWEST_ROUNDS, int(ALL_WORK / work)))
    return settle(values, holes, m, S, shrink, rounds=rounds, tolerance=TOLERANCE, weights=weights)


def _root(S: Tensor) -> Tensor:
    root: Tensor = torch.linalg.cholesky(S + JITTER * torch.eye(len(S), dtype=S.dtype))
    return root


class Change:
    """A variant of a copula beside the copula itself."""

    def __init__(self, copula: GaussianCopula, variant: GaussianCopula) -> None:
        self._copula, self.variant = copula, variant

    @torch.no_grad()
    def tilt(self, said: list[Tensor], rows: Rows) -> list[Tensor]:
        """Give what is said of the levels of blank rows, changed. Shape: q of [n, L_k]."""
        if not said:
            return said
        (before, _), (after, _) = (c.expect(*c.latent(rows)) for c in (self._copula, self.variant))
        tilted = []
        for k, probabilities in enumerate(said):
            was, is_ = self._copula.probabilities(before, k), self.variant.probabilities(after, k)
            tilt = (is_.log() - was.log()).clamp(-MOST_TILT, MOST_TILT).float().exp()
            changed = probabilities * tilt
            tilted.append(changed / changed.sum(dim=1, keepdim=True))
        return tilted

    @torch.no_grad()
    def shift(self, rows: Rows, levels: Tensor, spread: Tensor) -> Tensor:
        """Give what is added to drawn scores, of known deviation, once the levels are drawn.

        Shape: rows of n, levels [n, q], spread [n, p] -> [n, p].
        """
        rows = rows.part(slice(None))
        rows.levels = levels
        (before, variance), (after, _) = (c.expect(*c.latent(rows)) for c in (self._copula, self.variant))
        p = self._copula.p
        open_ = variance[:, :p].clamp_min(1e-8).sqrt()
        return ((spread.double() / open_).clamp_max(1.0) * (after - before)[:, :p]).float()

"""Weights of held-out cells: what is chance in few of them is told by all cells of the table."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.diffusion.gaussian import GaussianCopula
from diffputer.diffusion.marginals import Marginals
from diffputer.diffusion.splitting import Columns, Table, Validation
from diffputer.diffusion.weighing import weigh_cells

COVARIANCE = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])
KEPT_OF_FAR = 0.3


def unlucky(n: int, seed: int = 0) -> tuple[GaussianCopula, Validation]:
    """A Gaussian table, its copula, and held-out cells few of which are far from what is expected."""
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(3), COVARIANCE, size=n).astype(np.float32)
    precision = np.linalg.inv(COVARIANCE)
    residual = (x @ precision) / np.sqrt(np.diag(precision))
    lucky = (np.abs(residual) < 1) | (rng.random(x.shape) < KEPT_OF_FAR)
    held = np.zeros(x.shape, dtype=bool)
    rows = rng.permutation(n)[: n // 5]
    held[rows, rng.integers(3, size=len(rows))] = True
    held &= lucky
    missing = np.zeros_like(held)
    marginals = Marginals.fit(x, held, np.arange(3))
    table = Table(x, ~held, missing, Columns(np.zeros(3, dtype=np.int64)), torch.device("cpu"))
    copula = GaussianCopula(3, [])
    copula.covariance.copy_(torch.from_numpy(COVARIANCE))
    return copula, Validation(table, marginals, held)


def weigh(copula: GaussianCopula | None, validation: Validation, most: int = 10_000) -> torch.Tensor:
    return weigh_cells(copula, validation, validation.rows, validation.z, validation.held, most)


def test_unlucky_cells_tell_what_all_cells_do() -> None:
    copula, validation = unlucky(3_000)
    held = validation.held
    weight = weigh(copula, validation)
    assert (weight[~held] == 0).all()
    r = copula.maps(validation.rows).of(validation.z)
    plain, weighed = (float((w * r.square()).sum() / w.sum()) for w in (held.float(), weight))
    assert plain < 0.8
    assert weighed == pytest.approx(1.0, abs=0.06)
    outside = [float((w * (r.abs() > 1.645)).sum() / w.sum()) for w in (held.float(), weight)]
    assert outside[0] < 0.06
    assert outside[1] == pytest.approx(0.1, abs=0.015)
    of_columns = (weight * r.square()).sum(dim=0) / weight.sum(dim=0)
    assert of_columns.tolist() == pytest.approx([1.0] * 3, abs=0.12)


def test_what_correlates_with_the_copula_is_mended_too() -> None:
    # A network that errs besides: it was to have 1 + 0.3 ** 2.
    copula, validation = unlucky(3_000)
    r = copula.maps(validation.rows).of(validation.z)
    r = r + 0.3 * torch.from_numpy(np.random.default_rng(1).normal(size=r.shape)).float()
    weight = weigh(copula, validation)
    assert float((weight * r.square()).sum() / weight.sum()) == pytest.approx(1.09, abs=0.08)


@pytest.mark.parametrize("reason", ["no copula", "few rows"])
def test_where_nothing_is_known_besides_all_cells_count_alike(reason: str) -> None:
    copula, validation = unlucky(3_000 if reason == "no copula" else 55)
    weight = weigh(None if reason == "no copula" else copula, validation)
    torch.testing.assert_close(weight, validation.held.float())

"""The mixture of Gaussian copulas against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from diffputer.models.base import Cells, Columns, RowBatch
from diffputer.models.conditional.gaussian import LinearExpert
from diffputer.models.conditional.masking import describe
from diffputer.models.conditional.mixture import MixtureExpert
from diffputer.models.conditional.support import Support
from diffputer.nn.loading import check_values

WEIGHTS = np.array([0.3, 0.7])
MIDDLES = np.array([[-1.0, 1.0, 0.5], [0.5, -0.4, -0.2]])
COVARIANCES = np.array(
    [
        [[0.4, 0.2, 0.0], [0.2, 0.5, 0.1], [0.0, 0.1, 0.6]],
        [[0.5, -0.3, 0.1], [-0.3, 0.4, 0.0], [0.1, 0.0, 0.3]],
    ]
)


def two_clusters(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rows of the mixture above."""
    own = rng.choice(2, n, p=WEIGHTS)
    roots = np.linalg.cholesky(COVARIANCES)
    return MIDDLES[own] + np.einsum("nij,nj->ni", roots[own], rng.normal(size=(n, 3)))


def exact() -> MixtureExpert:
    """An expert with the parameters of the mixture above."""
    expert = MixtureExpert(3, 4)
    expert.log_weights[:2] = torch.from_numpy(np.log(WEIGHTS))
    expert.middles[:2], expert.covariances[:2] = torch.from_numpy(MIDDLES), torch.from_numpy(COVARIANCES)
    return expert


def batch(z: np.ndarray, known: np.ndarray) -> RowBatch:
    """Rows whose normal scores are given."""
    values = torch.from_numpy(np.where(known, z, 0.0)).float()
    return RowBatch(values, values, torch.from_numpy(known.copy()), torch.zeros(len(z), 0, dtype=torch.int64))


def expected(z: np.ndarray, known: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of components given known cells, and their means of a column, by Bayes' rule."""
    logits = np.log(WEIGHTS) + np.stack(
        [stats.multivariate_normal(m[known], S[np.ix_(known, known)]).logpdf(z[:, known]).reshape(-1)
         for m, S in zip(MIDDLES, COVARIANCES, strict=True)], axis=1,
    )  # fmt: skip
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    means = [
        m[target] + (z[:, known] - m[known]) @ np.linalg.solve(S[np.ix_(known, known)], S[known, target])
        for m, S in zip(MIDDLES, COVARIANCES, strict=True)
    ]
    return share / share.sum(axis=1, keepdims=True), np.stack(means, axis=1)


@pytest.mark.parametrize("seen", [[0], [0, 2]], ids=str)
@pytest.mark.parametrize("learns", [False, True], ids=["at once", "cell by cell"])
def test_components_are_conditioned_exactly(seen: list[int], learns: bool) -> None:
    z = two_clusters(np.random.default_rng(0), 50)
    known = np.zeros(3, dtype=bool)
    known[seen] = True
    copula, expert = LinearExpert("copula", 3, []), exact()
    rows = batch(z, np.broadcast_to(known, z.shape))
    if learns:
        given = expert.given(batch(z, np.zeros(z.shape, dtype=bool)), copula, learns=True)
        for j in seen:
            so_far = np.broadcast_to(known & (np.arange(3) <= j), z.shape)
            given = expert.learn(given, batch(z, so_far), copula)
    else:
        given = expert.given(rows, copula)
    share = (given.log_density + expert.log_weights[:2]).softmax(dim=1).numpy()
    right, means = expected(z.astype(np.float32).astype(np.float64), known, 1)
    assert np.allclose(share, right, atol=1e-4)
    assert np.allclose(given.expected[:, torch.arange(50), given.slots[:, 1]].T.numpy(), means, atol=1e-4)


def test_em_finds_the_clusters_of_rows_with_missing_cells() -> None:
    rng = np.random.default_rng(1)
    z, known = two_clusters(rng, 4_000), rng.random((4_000, 3)) > 0.3
    copula, expert = LinearExpert("copula", 3, []), MixtureExpert(3, 4)
    rows = batch(z, known)
    copula.fit(rows, 1e-3)
    expert.fit(rows, copula, 2, seed=0)
    check_values(expert)
    order = expert.middles[:2, 0].argsort().numpy()
    assert np.allclose(expert.log_weights[:2].exp().numpy()[order], WEIGHTS, atol=0.06)
    assert np.allclose(expert.middles[:2].numpy()[order], MIDDLES, atol=0.15)
    assert np.allclose(expert.covariances[:2].numpy()[order], COVARIANCES, atol=0.12)


def test_two_modes_are_predicted_where_a_line_would_know_none() -> None:
    """x is a square root of y up to noise: both roots are likely, zero is not."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=1_500)
    table = np.column_stack([x, x**2 + 0.05 * rng.normal(size=1_500)]).astype(np.float32)
    columns, missing = Columns(np.zeros(2, dtype=np.int64)), np.zeros(table.shape, dtype=bool)
    support = Support.fit(table, missing, columns.numeric, 64)
    rows = describe(torch.from_numpy(table), torch.from_numpy(~missing), columns, support)
    copula, expert = LinearExpert("copula", 2, []), MixtureExpert(2, 16)
    copula.fit(rows, 1e-3)
    expert.fit(rows, copula, 16, seed=0)
    asked = torch.tensor([[0.0, 2.0]])
    row = describe(asked, torch.tensor([[False, True]]), columns, support)
    cells = Cells(torch.tensor([0]), torch.tensor([0]), torch.zeros(1, 0, dtype=torch.bool))
    predictive = expert.predict(expert.given(row, copula), cells, support, copula)
    assert predictive.bins is not None
    bins, values = predictive.bins[0], support.means[0]
    near = [float(bins[(values - root).abs() < 0.5].sum()) for root in (-(2**0.5), 0.0, 2**0.5)]
    assert min(near[0], near[2]) > 0.25 > 5 * near[1]


def test_categories_and_numbers_belong_to_the_same_clusters() -> None:
    rng = np.random.default_rng(3)
    level = rng.integers(0, 3, 900)
    table = np.column_stack([np.array([-2.0, 0.0, 2.0])[level] + 0.3 * rng.normal(size=900), level])
    table = table.astype(np.float32)
    columns, missing = Columns(np.array([0, 3])), np.zeros(table.shape, dtype=bool)
    support = Support.fit(table, missing, columns.numeric, 64)
    rows = describe(torch.from_numpy(table), torch.from_numpy(~missing), columns, support)
    copula, expert = LinearExpert("copula", 1, [3]), MixtureExpert(4, 4)
    copula.fit(rows, 1e-3)
    expert.fit(rows, copula, 4, seed=0)
    known = np.column_stack([np.ones(900, dtype=bool), np.zeros(900, dtype=bool)])
    some = describe(torch.from_numpy(table), torch.from_numpy(known), columns, support)
    cells = Cells.of(~some.all_known, 1)
    levels = expert.predict(expert.given(some, copula), cells, support, copula).levels[0]
    assert float((levels.argmax(dim=1).numpy() == level).mean()) > 0.97

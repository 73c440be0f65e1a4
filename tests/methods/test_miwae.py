"""MIWAE against closed forms: those of a linear Gaussian decoder, and of a factor model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from diffputer.errors import SettingError
from diffputer.methods.autoencoder import Generator, Observation
from diffputer.methods.table import make_method

#: x = W z + b + noise of deviation SIGMA.
W = np.array([[1.0, 0.2], [-0.7, 0.5], [0.4, 0.9], [0.3, -0.6]])
B = np.array([0.5, -1.0, 0.0, 0.3])
SIGMA = 0.6
COVARIANCE = W @ W.T + SIGMA**2 * np.eye(4)
QUICK = {"hidden": 32, "train_samples": 5, "samples": 100, "learning_rate": 3e-3, "patience": 5}


def linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer


def before_softplus(value: float) -> float:
    return float(np.log(np.expm1(value)))


@pytest.fixture
def exact() -> Generator:
    """A linear decoder; the proposal is the prior, whatever is seen."""
    decoder = linear(
        np.vstack([W, np.zeros_like(W)]), np.concatenate([B, np.full(4, before_softplus(SIGMA - 1e-3))])
    )
    encoder = linear(np.zeros((4, 4)), np.array([0.0, 0.0, before_softplus(1.0), before_softplus(1.0)]))
    return Generator(encoder, decoder, Observation(np.zeros(4, dtype=np.int64), "gaussian"))


def some_rows(n: int) -> tuple[np.ndarray, Tensor, Tensor]:
    """Give rows with holes (NaN), and what a generator is given: zeros for holes, 1 for what counts."""
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal(B, COVARIANCE, size=n)
    x[rng.random(x.shape) < 0.4] = np.nan
    x[0] = [np.nan, 1.0, -1.0, 0.5]
    counted = torch.from_numpy((~np.isnan(x)).astype(np.float32))
    return x, torch.from_numpy(np.nan_to_num(x).astype(np.float32)), counted


def by_hand(row: np.ndarray) -> tuple[float, np.ndarray]:
    """Give the log-likelihood of what a row shows, and the conditional mean of all of it."""
    o = ~np.isnan(row)
    if not o.any():
        return 0.0, B
    within = COVARIANCE[np.ix_(o, o)]
    likelihood = stats.multivariate_normal(B[o], within).logpdf(row[o])
    # Of W z + b, not of x itself: what is observed is not merely repeated.
    mean = B + W @ W[o].T @ np.linalg.solve(within, (row - B)[o])
    return float(likelihood), mean


def test_the_bound_is_below_the_likelihood_and_rises_to_it(exact: Generator) -> None:
    x, seen, counted = some_rows(20)
    truth = np.array([by_hand(row)[0] for row in x])
    random = torch.Generator().manual_seed(0)
    means = []
    for K, repeats in ((1, 2000), (10, 500), (100, 100), (10_000, 10)):
        noise = torch.randn(20 * repeats, K, 2, generator=random)
        many = [rows.repeat(repeats, 1) for rows in (seen, seen, counted)]
        with torch.no_grad():
            means.append(exact.bound(*many, noise).view(repeats, 20).mean(0).numpy())
    gaps = [float((truth - mean).mean()) for mean in means]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3]
    assert gaps[2] > 0
    assert gaps[0] > 0.5
    assert abs(gaps[3]) < 0.01
    assert np.abs(truth - means[3]).max() < 0.1  # a row of which the prior rarely thinks


def test_importance_sampling_gives_the_conditional_mean(exact: Generator) -> None:
    x, seen, counted = some_rows(20)
    truth = np.array([by_hand(row)[1] for row in x])
    repeats = []
    for seed in range(30):
        keys = torch.arange(20) + 1000 * seed
        repeats.append(exact.expect(seen, counted, keys, samples=2000).numpy())
    error = np.std(repeats, axis=0, ddof=1) / np.sqrt(len(repeats))
    assert np.all(np.abs(np.mean(repeats, axis=0) - truth) < 4 * error + 2e-3)
    assert error.max() < 0.02


def test_resampling_draws_the_missing_cells_together(exact: Generator) -> None:
    # The first row misses its first cell, the second its first two: exact conditional moments.
    seen = torch.tensor([[0.0, 1.0, -1.0, 0.5], [0.0, 0.0, -1.0, 0.5]])
    counted = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    noise = torch.Generator().manual_seed(0)
    chosen = exact.resample(seen, counted, torch.arange(2), 20_000, 10_000, noise)
    random = np.random.default_rng(0)
    drawn = np.stack([exact.observation.draw(parameters, random) for parameters in chosen])
    for row, missing in ((0, [0]), (1, [0, 1])):
        shown = np.flatnonzero(counted[row].numpy())
        gain = COVARIANCE[np.ix_(missing, shown)] @ np.linalg.inv(COVARIANCE[np.ix_(shown, shown)])
        mean = B[missing] + gain @ (seen[row].numpy() - B)[shown]
        left = COVARIANCE[np.ix_(missing, missing)] - gain @ COVARIANCE[np.ix_(shown, missing)]
        cells = drawn[:, row, missing]
        assert cells.mean(axis=0) == pytest.approx(mean, abs=0.05)
        assert np.cov(cells.T) == pytest.approx(left.squeeze(), abs=0.05)


def test_draws_are_students_t_and_levels_by_their_probabilities() -> None:
    observation = Observation(np.array([0, 3]), "student", smallest_scale=0.0, smallest_degrees=0.0)
    raw = [0.5, before_softplus(1.5), before_softplus(4.0)]
    parameters = torch.tensor([*raw, 0.1, 0.7, -0.4]).expand(20_000, -1)
    drawn = observation.draw(parameters, np.random.default_rng(0))
    assert stats.kstest(drawn[:, 0], stats.t(4.0, loc=0.5, scale=1.5).cdf).pvalue > 0.01
    levels = np.bincount(drawn[:, 1:].argmax(axis=1)) / len(drawn)
    assert levels == pytest.approx(observation.expectation(parameters[0]).numpy()[1:], abs=0.015)


def test_rows_that_are_computed_together_do_not_matter(exact: Generator) -> None:
    _, seen, counted = some_rows(20)
    keys = torch.arange(20) * 7919
    together = exact.expect(seen, counted, keys, samples=64)
    for chunk in (1, 64, 3 * 64, 1000):
        assert exact.expect(seen, counted, keys, 64, chunk) == pytest.approx(together, abs=1e-6)
    few = torch.tensor([11, 3])
    assert exact.expect(seen[few], counted[few], keys[few], 64) == pytest.approx(together[few], abs=1e-6)


def test_densities_are_students_t_and_those_of_levels() -> None:
    observation = Observation(np.array([0, 3]), "student", smallest_scale=0.0, smallest_degrees=0.0)
    raw = [0.5, before_softplus(1.5), before_softplus(4.0)]
    parameters = torch.tensor([*raw, 0.1, 0.7, -0.4])
    levels = torch.eye(3)
    y = torch.cat([torch.tensor([[-2.0], [0.3], [9.0]]), levels], dim=1)
    number, level = observation.log_density(parameters.expand(3, -1), y).numpy().T
    assert number == pytest.approx(stats.t(4.0, loc=0.5, scale=1.5).logpdf([-2.0, 0.3, 9.0]), rel=1e-5)
    assert np.exp(level).sum() == pytest.approx(1.0)
    assert observation.expectation(parameters).numpy() == pytest.approx([0.5, *np.exp(level)])
    with pytest.raises(SettingError, match="'cauchy'"):
        make_method("miwae", observation="cauchy").fit(pd.DataFrame({"a": [1.0, 2.0, None]}), [], 0)


def factor_table() -> tuple[pd.DataFrame, np.ndarray]:
    """Give rows of a factor model with holes, and their exact conditional means."""
    rng = np.random.default_rng(1)
    loadings = rng.normal(size=(8, 2))
    covariance = loadings @ loadings.T + 0.3**2 * np.eye(8)
    x = rng.multivariate_normal(np.zeros(8), covariance, size=500)
    x[rng.random(x.shape) < 0.3] = np.nan
    means = x.copy()
    for row in means:
        m, o = np.isnan(row), ~np.isnan(row)
        row[m] = covariance[np.ix_(m, o)] @ np.linalg.solve(covariance[np.ix_(o, o)], row[o])
    return pd.DataFrame(x, columns=list("abcdefgh")), means


@pytest.mark.parametrize(("name", "more"), [("miwae", {}), ("em-miwae", {"rounds": 2})])
def test_it_learns_a_factor_model(name: str, more: dict[str, int]) -> None:
    frame, means = factor_table()
    gone = frame.isna().to_numpy()

    def distance(completed: pd.DataFrame) -> float:
        return float(np.sqrt(np.mean((completed.to_numpy() - means)[gone] ** 2)))

    found = distance(make_method(name, **QUICK, **more, max_epochs=40).fit_transform(frame, [], 0))
    by_mean = distance(make_method("mean").fit_transform(frame, [], 0))
    assert found < 0.4 * by_mean  # measured: 0.18 of both


def test_one_round_of_em_is_miwae_and_more_go_on_from_there() -> None:
    frame, _ = factor_table()
    frame = frame.head(150).assign(kind=lambda table: np.where(table["a"] > 0, "p", "q"))
    frame.loc[frame.index[::5], "kind"] = None
    alone = make_method("miwae", **QUICK, max_epochs=20).fit_transform(frame, ["kind"], 3)
    once = make_method("em-miwae", **QUICK, max_epochs=20, rounds=1).fit_transform(frame, ["kind"], 3)
    pd.testing.assert_frame_equal(once, alone)
    more = make_method("em-miwae", **QUICK, max_epochs=20, rounds=3).fit_transform(frame, ["kind"], 3)
    assert not more.equals(alone)


@pytest.mark.parametrize("frame", [
    pd.DataFrame({"a": [1.0, None, 2.0]}),
    pd.DataFrame({"a": ["x", None, "y"], "b": ["u", "u", None]}),
    pd.DataFrame({"a": [1.0, 1.0, None], "b": [None, None, 3.0]}),
])  # fmt: skip
def test_tables_that_say_nearly_nothing_are_completed(frame: pd.DataFrame) -> None:
    levels = [name for name in frame if frame[name].dtype != float]
    completed = make_method("em-miwae", **QUICK, max_epochs=5).fit_transform(frame, levels, 0)
    assert completed.notna().all(axis=None)

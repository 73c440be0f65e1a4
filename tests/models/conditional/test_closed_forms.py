"""The conditional engine on tables whose conditional distributions are known in closed form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

from diffputer.em import EMResult, draw, fit_em, impute
from diffputer.models.base import CellDistribution
from diffputer.models.conditional.engine import ConditionalEngine
from diffputer.models.conditional.gaussian_em import invert_each
from diffputer.runtime.progress import Progress
from diffputer.settings import ConditionalSettings

#: Learns a table of three columns in seconds.
SMALL = ConditionalSettings(
    mlp_members=1, mlp_width=64, mlp_depth=2, attention_members=0, dropout=0.0, batch_size=128,
    max_steps=2_000, patience=2_000, learning_rate=1e-3, weight_average=0.99,
)  # fmt: skip
COVARIANCE = np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.8], [0.5, 0.8, 1.0]])


def rms(a: np.ndarray) -> float:
    return float(np.sqrt(np.mean(a**2)))


def pattern(n: int, *columns: int, width: int = 3) -> np.ndarray:
    """Rows that all miss the same columns."""
    missing = np.zeros((n, width), dtype=bool)
    missing[:, list(columns)] = True
    return missing


def exact(x: np.ndarray, holes: tuple[int, ...], covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Conditional mean and covariance of some columns of N(0, covariance) given the others."""
    seen = [j for j in range(len(covariance)) if j not in holes]
    gain = covariance[np.ix_(holes, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    return x[:, seen] @ gain.T, covariance[np.ix_(holes, holes)] - gain @ covariance[np.ix_(seen, holes)]


@dataclass
class Fit:
    """A fitted engine and the complete table it never saw."""

    x: np.ndarray
    fitted: EMResult

    def impute(self, x: np.ndarray, missing: np.ndarray, estimate: str = "mean") -> np.ndarray:
        return impute(np.where(missing, np.float32(0), x), missing, self.fitted, seed=0, estimate=estimate)

    def draw(self, x: np.ndarray, missing: np.ndarray, n_draws: int) -> np.ndarray:
        blocks = draw(np.where(missing, np.float32(0), x), missing, self.fitted, n_draws, seed=0)
        return np.concatenate([drawn for _, drawn in blocks], axis=1)

    def describe(
        self, x: np.ndarray, missing: np.ndarray, ends: tuple[float, float] = (0.05, 0.95)
    ) -> CellDistribution:
        engine = self.fitted.engine
        assert isinstance(engine, ConditionalEngine)
        return engine.describe_cells(np.where(missing, np.float32(0), x), missing, ends, Progress())


def fit(x: np.ndarray, missing: np.ndarray, n_levels: list[int]) -> Fit:
    x = x.astype(np.float32)
    engine = ConditionalEngine(np.array(n_levels), SMALL)
    holes = np.where(missing, np.float32(0), x)
    return Fit(x, fit_em(engine, holes, missing, np.arange(x.shape[1]), seed=0))


def networks_alone(model: Fit) -> Fit:
    """Leave out the linear experts: they are exact on Gaussian data and would hide faults of networks."""
    engine = model.fitted.engine.use("cpu", torch.float32)
    assert isinstance(engine, ConditionalEngine)
    pool = engine.model.pool
    for weights in (pool.weights, pool.mean_weights, pool.kernel_weights):
        weights.zero_()
        weights[0] = 1.0
    pool.temperature.fill_(1.0)
    pool.inner.zero_()
    engine.model.widths.zero_()
    return Fit(model.x, dataclasses.replace(model.fitted, engine=engine))


each_way = pytest.mark.parametrize("alone", [False, True], ids=["as fitted", "networks alone"])


def gaussian(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 3)) @ np.linalg.cholesky(COVARIANCE).T).astype(np.float32)


@each_way
class TestGaussian:
    """Three correlated columns, 20,000 rows, 30 % missing; new rows are asked for."""

    new = gaussian(2_000, seed=1)

    @pytest.fixture(scope="class")
    def fitted(self) -> Fit:
        missing = np.random.default_rng(2).random((20_000, 3)) < 0.3
        return fit(gaussian(20_000, seed=0), missing, [0, 0, 0])

    @pytest.fixture
    def model(self, fitted: Fit, alone: bool) -> Fit:
        return networks_alone(fitted) if alone else fitted

    @pytest.mark.parametrize("holes", [(0,), (1,), (2,), (0, 1), (1, 2)], ids=str)
    def test_the_mean_is_the_exact_conditional_mean(self, model: Fit, holes: tuple[int, ...]) -> None:
        # Tolerance: 0.12 standard deviations of the column (root mean square over new rows).
        mean, _ = exact(self.new, holes, COVARIANCE)
        found = model.impute(self.new, pattern(2_000, *holes))[:, list(holes)]
        assert rms(found - mean) < 0.12

    @pytest.mark.parametrize("holes", [(0,), (1,), (0, 1), (1, 2)], ids=str)
    def test_the_deviation_is_the_exact_conditional_deviation(
        self, model: Fit, holes: tuple[int, ...]
    ) -> None:
        # Tolerance: 15 %, in the mean over rows and typically in each (root mean square).
        _, covariance = exact(self.new, holes, COVARIANCE)
        deviation = np.sqrt(np.diag(covariance))
        found = model.describe(self.new, pattern(2_000, *holes)).deviation[:, list(holes)]
        assert found.mean(axis=0) == pytest.approx(deviation, rel=0.15)
        assert rms(found / deviation - 1) < 0.15

    def test_nine_of_ten_truths_lie_between_the_outer_quantiles(self, model: Fit) -> None:
        # Tolerance: 85 % to 95 % for each pattern.
        for holes in ((0,), (1,), (2,), (0, 1), (1, 2)):
            cells = model.describe(self.new, pattern(2_000, *holes))
            for j in holes:
                inside = (cells.lower[:, j] <= self.new[:, j]) & (self.new[:, j] <= cells.upper[:, j])
                assert 0.85 < inside.mean() < 0.95, (holes, j)

    @pytest.mark.parametrize("ends", [(0.25, 0.75), (0.01, 0.99), (0.001, 0.999)])
    def test_other_quantiles_are_those_of_the_normal_distribution(
        self, model: Fit, alone: bool, ends: tuple[float, float]
    ) -> None:
        # Tolerance: 20 % of their distance from the mean, on average over rows; and they are in order.
        # Networks know no more of the outermost class than its frequency.
        mean, covariance = exact(self.new, (1,), COVARIANCE)
        cells = model.describe(self.new, pattern(2_000, 1), ends)
        inner = model.describe(self.new, pattern(2_000, 1), (0.4, 0.6))
        for found, level in ((cells.lower, ends[0]), (cells.upper, ends[1])):
            shift = (found[:, 1] - mean[:, 0]).mean() / np.sqrt(covariance[0, 0])
            assert shift == pytest.approx(stats.norm.ppf(level), rel=0.3 if alone else 0.2)
        assert (cells.lower[:, 1] <= inner.lower[:, 1]).all()
        assert (inner.lower[:, 1] <= inner.upper[:, 1]).all()
        assert (inner.upper[:, 1] <= cells.upper[:, 1]).all()

    def test_draws_have_the_exact_mean_and_spread_and_go_together(self, model: Fit, alone: bool) -> None:
        # Two missing cells of a row. Tolerances: mean 0.06, spread 10 %, correlation of what the known cell
        # leaves open 0.05, of a network alone 0.1 (exact: 0.73; cells drawn each on its own would have none).
        mean, covariance = exact(self.new, (1, 2), COVARIANCE)
        left = model.draw(self.new, pattern(2_000, 1, 2), 10)[:, :, 1:] - mean
        left = left.reshape(-1, 2)
        deviation = np.sqrt(np.diag(covariance))
        assert np.abs(left.mean(axis=0)).max() < 0.06
        assert left.std(axis=0) == pytest.approx(deviation, rel=0.1)
        correlation = covariance[0, 1] / deviation.prod()
        assert np.corrcoef(left.T)[0, 1] == pytest.approx(correlation, abs=0.1 if alone else 0.05)

    def test_draws_of_a_row_are_as_wide_as_its_deviation_says(self, model: Fit) -> None:
        # Tolerance: 15 %, over draws of the same row.
        missing = pattern(300, 0)
        deviation = model.describe(self.new[:300], missing).deviation[:, 0].mean()
        spread = model.draw(self.new[:300], missing, 40)[:, :, 0].std(axis=0).mean()
        assert spread == pytest.approx(deviation, rel=0.15)

    def test_rows_with_everything_missing_get_the_centre_and_are_drawn_from_the_whole(
        self, model: Fit
    ) -> None:
        # Columns are standardised: the mean is 0 (tolerance 0.1). Draws: Kolmogorov distance to the normal
        # distribution below 0.08, correlations within 0.1 (exact: 0.5, 0.5 and 0.8).
        n = 1_500
        blank, missing = np.zeros((n, 3), dtype=np.float32), np.ones((n, 3), dtype=bool)
        assert np.abs(model.impute(blank, missing)).max() < 0.1
        drawn = model.draw(blank, missing, 2).reshape(-1, 3)
        for j in range(3):
            assert stats.kstest(drawn[:, j], "norm").statistic < 0.08
        assert np.corrcoef(drawn.T) == pytest.approx(COVARIANCE, abs=0.1)


def test_columns_complete_in_training_can_be_imputed() -> None:
    # Only the first column has holes; then the second is missing. Exact error: 0.59; column means: 1.
    missing = np.zeros((4_000, 3), dtype=bool)
    missing[:, 0] = np.random.default_rng(2).random(4_000) < 0.3
    model = fit(gaussian(4_000, seed=0), missing, [0, 0, 0])
    new = gaussian(2_000, seed=1)
    mean, _ = exact(new, (1,), COVARIANCE)
    found = model.impute(new, pattern(2_000, 1))[:, 1:2]
    assert rms(found - new[:, 1:2]) < 1.1 * rms(mean - new[:, 1:2]) < 0.7


def levels_of_number(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A number, a category whose levels it makes likely, and a noisy copy of the category (8 in 10).

    Gives the table and the probabilities of the first category given the number.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    chances = np.exp(np.stack([1.5 * x, 0 * x, -1.5 * x], axis=1))
    chances /= chances.sum(axis=1, keepdims=True)
    a = (chances.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    b = np.where(rng.random(n) < 0.8, a, (a + rng.integers(1, 3, n)) % 3)
    return np.stack([x, a, b], axis=1).astype(np.float32), chances


@each_way
class TestCategories:
    """A number and two dependent categories, 20,000 rows, 25 % missing; new rows are asked for."""

    new, chances = levels_of_number(1_500, seed=1)

    @pytest.fixture(scope="class")
    def fitted(self) -> Fit:
        x, _ = levels_of_number(20_000, seed=0)
        return fit(x, np.random.default_rng(2).random(x.shape) < 0.25, [0, 3, 3])

    @pytest.fixture
    def model(self, fitted: Fit, alone: bool) -> Fit:
        return networks_alone(fitted) if alone else fitted

    def test_probabilities_are_the_true_ones(self, model: Fit) -> None:
        # Tolerance: 0.04 in the mean over rows, for the level that is filled in.
        cells = model.describe(self.new, pattern(1_500, 1, 2))
        level = cells.level[:, 1].astype(int)
        truth = self.chances[np.arange(1_500), level]
        assert np.abs(cells.probability[:, 1] - truth).mean() < 0.04
        assert np.isnan(cells.deviation[:, 1:]).all()
        assert np.isnan(cells.probability[:, 0]).all()
        # The level is the most probable one, but where two are nearly as probable.
        assert (self.chances.max(axis=1) - truth).max() < 0.1
        assert np.array_equal(model.impute(self.new, pattern(1_500, 1, 2))[:, 1], level)

    def test_draws_have_the_true_frequencies(self, model: Fit) -> None:
        # Tolerance: 0.06 for every level, for small, middling and large numbers.
        drawn = model.draw(self.new, pattern(1_500, 1, 2), 8)[:, :, 1]
        third = np.digitize(self.new[:, 0], [-0.5, 0.5])
        for k in range(3):
            found = [(drawn[:, third == k] == level).mean() for level in range(3)]
            assert found == pytest.approx(self.chances[third == k].mean(axis=0), abs=0.06)

    def test_two_missing_categories_are_drawn_jointly(self, model: Fit) -> None:
        # They agree in 80 % (tolerance 6 %); drawn each on its own they would in 49 %.
        drawn = model.draw(self.new, pattern(1_500, 1, 2), 4)
        assert (drawn[:, :, 1] == drawn[:, :, 2]).mean() == pytest.approx(0.8, abs=0.06)

    def test_a_number_follows_a_category_drawn_in_the_same_row(self, model: Fit) -> None:
        # All is missing: the mean number of each drawn level is that of the table (tolerance 0.2).
        n = 1_500
        drawn = model.draw(np.zeros((n, 3), dtype=np.float32), np.ones((n, 3), dtype=bool), 2).reshape(-1, 3)
        for level in range(3):
            of_level = model.x[:, 1] == level
            mean = model.x[of_level, 0].mean()
            assert drawn[drawn[:, 1] == level, 0].mean() == pytest.approx(mean, abs=0.2)
            share = of_level.mean()
            assert (drawn[:, 1] == level).mean() == pytest.approx(share, abs=0.06)


def test_the_median_of_a_skewed_column_is_below_its_mean() -> None:
    # Log-normal given the other column: mean exp(m + s^2 / 2), median exp(m). Tolerances: 15 % on average.
    rng = np.random.default_rng(0)
    u = rng.normal(size=4_000)
    log_mean, s = 0.5 * u, 0.8
    y = np.exp(log_mean + s * rng.normal(size=4_000))
    centre, scale = y.mean(), y.std()
    x = np.stack([u, (y - centre) / scale], axis=1)
    model = fit(x, np.stack([np.zeros(4_000, bool), rng.random(4_000) < 0.3], axis=1), [0, 0])
    missing = pattern(4_000, 1, width=2)
    mean, median = (model.impute(model.x, missing, e)[:, 1] * scale + centre for e in ("mean", "median"))
    assert (median < mean).mean() > 0.95
    assert mean.mean() == pytest.approx(np.exp(log_mean + s**2 / 2).mean(), rel=0.15)
    assert median.mean() == pytest.approx(np.exp(log_mean).mean(), rel=0.15)
    # The median has the smaller absolute error, the mean the smaller squared one.
    assert np.abs(median - y).mean() < np.abs(mean - y).mean()
    assert rms(mean - y) < rms(median - y)


def test_the_deviation_of_a_heavy_tail_is_that_of_its_draws() -> None:
    # Half of a log-normal column's variance lies in its largest hundredth.
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(size=(4_000, 2)))
    x /= x.std(axis=0)
    missing = rng.random(x.shape) < 0.2
    settings = dataclasses.replace(SMALL, max_steps=200)
    engine = ConditionalEngine(np.zeros(2, dtype=np.int64), settings)
    fitted = fit_em(engine, np.where(missing, 0, x).astype(np.float32), missing, np.arange(2), seed=0)
    found = Fit(x, fitted).describe(x[:20].astype(np.float32), pattern(20, 0, 1, width=2)).deviation
    assert found.mean(axis=0) == pytest.approx(np.ones(2), rel=0.08)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_rows_have_the_same_bits_in_any_batch(threads: int) -> None:
    # Wide enough that LAPACK's inverses and torch's silu differed between batches.
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(1500, 24)) @ rng.normal(size=(24, 24))).astype(np.float32)
    missing = rng.random(x.shape) < 0.3
    x[missing] = 0.0
    settings = dataclasses.replace(SMALL, max_steps=3, mlp_width=96)
    engine = ConditionalEngine(np.zeros(24, dtype=np.int64), settings)
    fitted = fit_em(engine, x[:200], missing[:200], np.arange(24), seed=0).engine

    def evaluate(start: int, stop: int, estimate: str) -> np.ndarray:
        some = slice(start, stop)
        return fitted.impute(x[some], missing[some], np.zeros((2, 24)), 0, estimate, Progress())

    before = torch.get_num_threads()
    try:
        for estimate in ("mean", "median"):
            torch.set_num_threads(threads)
            whole = evaluate(0, len(x), estimate)
            for size in (65, 333):
                parts = [evaluate(start, start + size, estimate) for start in range(0, len(x), size)]
                np.testing.assert_array_equal(np.concatenate(parts), whole)
    finally:
        torch.set_num_threads(before)


def test_inverses_of_positive_definite_matrices() -> None:
    rng = torch.Generator().manual_seed(0)
    roots = torch.randn(50, 20, 30, dtype=torch.float64, generator=rng)
    matrices = roots @ roots.transpose(1, 2)
    inverses = invert_each(matrices)
    torch.testing.assert_close(inverses, torch.linalg.inv(matrices), rtol=1e-9, atol=1e-12)
    # Alone as in the batch, to the bit.
    assert all(torch.equal(invert_each(matrices[k : k + 1])[0], inverses[k]) for k in range(50))

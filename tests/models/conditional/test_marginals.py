"""Values and normal scores: monotone, inverse to each other, and exact where values repeat."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from diffputer.models.conditional.marginals import KNOTS, Marginals, choose_ranks
from diffputer.models.conditional.support import Support

#: A score comes out of a probability in single precision, which moves it by this share of a gap.
PRECISION = 1e-3

#: Columns are standardised; closer together than 1e-12 values are the same.
floats = st.floats(-1e6, 1e6, width=32).map(lambda value: value if abs(value) > 1e-12 else 0.0)
few_values = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0, 1e5])
columns = hnp.arrays(np.float32, st.integers(1, 60), elements=st.one_of(floats, few_values))


def fit(*values: np.ndarray) -> Marginals:
    x = np.stack(values, axis=1).astype(np.float32)
    return Marginals.fit(x, np.zeros(x.shape, dtype=bool), np.arange(x.shape[1]))


def values_at(marginals: Marginals, z: torch.Tensor) -> torch.Tensor:
    """Values with scores z, as the support of columns reads them. Shape: [n, p] -> [n, p]."""
    n, p = z.shape
    support = Support(p)
    support.marginals = marginals
    columns = torch.arange(p).repeat(n)
    return support._values_at(columns, torch.special.ndtr(z).flatten(), observed=False).view(n, p)


def column(values: np.ndarray | list[float]) -> torch.Tensor:
    return torch.tensor(np.asarray(values, dtype=np.float32))[:, None]


def gaps_around(values: np.ndarray) -> np.ndarray:
    """The larger distance of each value to the next smaller and the next larger one."""
    distinct, place = np.unique(values, return_inverse=True)
    gaps = np.concatenate([[0.0], np.diff(distinct.astype(np.float64)), [0.0]])
    return np.maximum(gaps[place], gaps[place + 1])


@given(columns)
def test_a_score_leads_back_to_the_value_it_came_from(values: np.ndarray) -> None:
    marginals = fit(values)
    z = marginals.scores(column(values))
    assert torch.isfinite(z).all()
    back = values_at(marginals, z)[:, 0].numpy()
    allowed = PRECISION * gaps_around(values) + 1e-6 * np.abs(values).max() + 1e-20
    assert (np.abs(back.astype(np.float64) - values) <= allowed).all()


@given(columns, st.floats(0.05, 0.95))
def test_every_score_inside_the_interval_of_a_repeated_value_leads_to_exactly_it(
    values: np.ndarray, share: float
) -> None:
    marginals = fit(values)
    repeated, counts = np.unique(values, return_counts=True)
    x = column(repeated[counts > 1])
    below, upto = marginals.distribution(x)
    assert (upto > below).all()
    z = torch.special.ndtri(below + share * (upto - below))
    assert torch.equal(values_at(marginals, z), x)


@given(columns, columns)
def test_scores_rise_with_values_and_their_interval_has_two_ends(
    values: np.ndarray, others: np.ndarray
) -> None:
    marginals = fit(values)
    x = column(np.sort(others))
    below, upto = marginals.distribution(x)
    assert (below <= upto).all()
    assert (below > 0).all()
    assert (upto < 1).all()
    assert (below[:, 0].diff() >= -1e-6).all()
    assert (upto[:, 0].diff() >= -1e-6).all()
    assert (marginals.scores(x)[:, 0].diff() >= -1e-4).all()


@given(columns, st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=20))
def test_values_at_any_score_lie_inside_the_observed_range_and_rise(
    values: np.ndarray, scores: list[float]
) -> None:
    found = values_at(fit(values), column(np.sort(scores)))[:, 0]
    rounding = 1e-6 * float(np.abs(values).max())
    assert float(found.min()) >= float(values.min()) - rounding
    assert float(found.max()) <= float(values.max()) + rounding
    assert (found.diff() >= -rounding).all()


@given(columns, st.floats(0.125, 1e6, width=32))
def test_values_outside_the_range_are_cut(values: np.ndarray, beyond: float) -> None:
    marginals = fit(values)
    low, high = values.min(), values.max()
    outside = column([low - beyond, high + beyond])
    ends = values_at(marginals, marginals.scores(outside))[:, 0].numpy()
    gap = gaps_around(values)
    allowed = PRECISION * gap.max() + 1e-6 * np.abs(values).max() + 1e-20
    assert np.abs(ends - [low, high]).max() <= allowed
    inside = marginals.scores(column([low, high]))
    scores = marginals.scores(outside)
    assert scores[0] <= inside[0]
    assert scores[1] >= inside[1]


@pytest.mark.parametrize("n", [200, KNOTS, KNOTS + 1, 20_000])
@pytest.mark.parametrize("sort", ["uniform", "lognorm", "t"])
def test_scores_of_continuous_data_are_standard_normal(sort: str, n: int) -> None:
    # Kolmogorov distance to the normal distribution: 1/n is what ranks allow, plus what knots cost; of new
    # data of the same distribution, what two samples of this size allow (a chance of 1e-4).
    law = {"uniform": stats.uniform(), "lognorm": stats.lognorm(2.0), "t": stats.t(1.5)}[sort]
    x, new = law.rvs(n, random_state=0), law.rvs(5_000, random_state=1)
    marginals = fit(x)
    z = marginals.scores(column(x))[:, 0].numpy()
    assert stats.kstest(z, "norm").statistic < 1 / n + 1 / KNOTS
    assert abs(z.mean()) < 1e-2
    assert z.std() == pytest.approx(1, abs=0.03)
    of_new = marginals.scores(column(new))[:, 0].numpy()
    assert stats.kstest(of_new, "norm").statistic < 2.2 * np.sqrt(1 / n + 1 / 5_000)


def test_dequantised_scores_of_repeated_values_are_standard_normal() -> None:
    # Counts from 0 to 9: a score drawn evenly from the interval of each. Kolmogorov distance below 0.02.
    rng = np.random.default_rng(0)
    x = rng.binomial(9, 0.3, 8_000).astype(np.float32)
    below, upto = (part[:, 0].numpy() for part in fit(x).distribution(column(x)))
    z = stats.norm.ppf(below + (upto - below) * rng.random(len(x)))
    assert stats.kstest(z, "norm").statistic < 0.02
    share = upto[x == 2][0] - below[x == 2][0]
    assert share == pytest.approx((x == 2).mean(), abs=1e-3)


@pytest.mark.parametrize("n", [KNOTS + 1, 50_000, 500_000])
def test_more_rows_than_knots_keep_the_tails(n: int) -> None:
    # Heavy tails (Student, 1.5 degrees of freedom). The twenty outermost values on either side come back, but
    # for what single precision allows near one (some n * 6e-8 of a gap); quantiles to one percent.
    x = np.sort(stats.t(1.5).rvs(n, random_state=0).astype(np.float32))
    marginals = fit(x)
    outer = np.r_[:20, n - 20 : n]
    back = values_at(marginals, marginals.scores(column(x[outer])))[:, 0].numpy()
    assert (np.abs(back - x[outer]) <= (PRECISION + n * 2e-7) * gaps_around(x)[outer]).all()
    levels = np.array([0.001, 0.01, 0.5, 0.99, 0.999])
    found = values_at(marginals, column(stats.norm.ppf(levels)))[:, 0].numpy()
    assert found == pytest.approx(np.quantile(x, levels, method="hazen"), rel=0.01, abs=0.01)


@given(st.integers(1, 10**9))
def test_knots_are_few_ascending_and_hold_both_ends(n: int) -> None:
    ranks = choose_ranks(n)
    assert len(ranks) <= KNOTS
    assert (ranks[0], ranks[-1]) == (0, n - 1)
    assert (np.diff(ranks) > 0).all()


def test_a_constant_column_stays_constant() -> None:
    for n in (1, 5, KNOTS, 3_000):
        marginals = fit(np.full(n, 0.7))
        assert torch.isfinite(marginals.scores(column([0.7, -9.0, 9.0]))).all()
        assert (values_at(marginals, column([-8.0, 0.0, 8.0])) == np.float32(0.7)).all()


def test_a_column_without_values_is_zero() -> None:
    marginals = Marginals.fit(np.ones((5, 2), dtype=np.float32), np.array([[True, False]] * 5), np.arange(2))
    z = torch.tensor([[-2.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    assert (values_at(marginals, z)[:, 0] == 0).all()
    assert (marginals.scores(z)[:, 0] == 0).all()


def test_missing_cells_do_not_count_and_columns_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32) * np.array([1, 10, 100], dtype=np.float32)
    missing = rng.random(x.shape) < 0.3
    together = Marginals.fit(np.where(missing, np.float32(1e9), x), missing, np.arange(3))
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    for j in range(3):
        alone = fit(x[~missing[:, j], j])
        assert torch.equal(values_at(together, z)[:, j], values_at(alone, z[:, j : j + 1])[:, 0])
        here = torch.from_numpy(x)
        assert torch.equal(together.scores(here)[:, j], alone.scores(here[:, j : j + 1])[:, 0])


def test_no_columns_at_all() -> None:
    marginals = Marginals.fit(np.empty((4, 0), dtype=np.float32), np.empty((4, 0), dtype=bool), np.arange(0))
    assert marginals.scores(torch.empty(4, 0)).shape == (4, 0)
    assert values_at(marginals, torch.empty(4, 0)).shape == (4, 0)

"""Classes of numeric columns: atoms, quantile bins, what is drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diffputer.models.base import Predictive
from diffputer.models.conditional.support import Support, find_classes


def fit(values: np.ndarray, most: int = 16) -> Support:
    x = np.asarray(values, dtype=np.float32)[:, None]
    return Support.fit(x, np.zeros_like(x, dtype=bool), np.array([0]), most)


def uniform(n: int, seed: int) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed))


def predictive(support: Support, bins: torch.Tensor, **more: torch.Tensor) -> Predictive:
    """Of cells of the first column."""
    return Predictive(support.mean(bins, first(bins)), bins, [], **more)


def first(bins: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(bins), dtype=torch.int64)


@given(
    arrays(np.float32, st.integers(1, 300), elements=st.integers(-40, 40).map(lambda k: np.float32(k) / 8)),
    st.sampled_from([8, 16, 64]),
)
def test_classes_share_out_the_observed_values(values: np.ndarray, most: int) -> None:
    support = fit(values, most)
    n = int(support.n_classes[0])
    x = torch.from_numpy(values)[:, None]
    own = support.classes_of(x)[:, 0]
    assert 1 <= n <= most
    assert 0 <= int(own.min()) <= int(own.max()) < n
    shares = torch.bincount(own, minlength=n) / len(values)
    torch.testing.assert_close(shares, support.frequencies[0, :n], atol=1e-5, rtol=0)
    for k in range(n):
        inside = torch.from_numpy(values)[own == k].double()
        assert float(support.means[0, k]) == pytest.approx(float(inside.mean()), abs=1e-5)
        assert float(support.variances[0, k]) == pytest.approx(float(inside.var(unbiased=False)), abs=1e-4)


def test_a_frequent_value_is_an_atom() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(4000) < 0.7, 0.0, rng.exponential(size=4000))
    support = fit(values)
    zero = int(support.classes_of(torch.zeros(1, 1)))
    assert float(support.variances[0, zero]) == 0
    assert float(support.frequencies[0, zero]) == pytest.approx(0.7, abs=0.03)


def test_few_distinct_values_are_all_atoms() -> None:
    classes = find_classes(np.repeat([1.0, 2.0, 5.0, 9.0], 20).astype(np.float32))
    assert classes.means.tolist() == [1, 2, 5, 9]
    assert not classes.variances.any()


def test_only_observed_values_are_drawn_and_never_in_a_gap() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-5, 0.3, 600), rng.normal(5, 0.3, 600)]).astype(np.float32)
    support = fit(values)
    bins = support.frequencies.expand(5000, -1)
    drawn = support.draw(predictive(support, bins), first(bins), uniform(5000, 0), uniform(5000, 1)).numpy()
    # The knots of the distribution function are observed values.
    assert np.isin(drawn, values).all()
    assert abs(drawn.mean() - values.mean()) < 0.3
    assert abs(drawn.std() - values.std()) < 0.1


def test_quantiles_of_the_columns_own_distribution_are_its_own() -> None:
    values = np.random.default_rng(0).gamma(2.0, size=5000).astype(np.float32)
    support = fit(values, 64)
    bins = support.frequencies
    own = predictive(support, bins)
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert float(support.quantile(own, first(bins), level)) == pytest.approx(
            np.quantile(values, level), abs=0.03
        )
    assert float(own.mean) == pytest.approx(values.mean(), abs=1e-3)
    assert float(support.std(bins, first(bins))) == pytest.approx(values.std(), rel=1e-3)


def test_inside_a_class_a_sharp_density_decides() -> None:
    values = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    support = fit(values, 8)
    x = torch.tensor([0.3, -1.2, 2.0])
    bins = torch.nn.functional.one_hot(support.classes_of(x[:, None])[:, 0], 8).float()
    sharp = Predictive(x, bins, [], inner=torch.full_like(x, 0.02))
    even = Predictive(x, bins, [], inner=torch.zeros_like(x))
    columns = first(bins)
    assert float((support.quantile(sharp, columns, 0.5) - x).abs().max()) < 0.03
    plain = support.quantile(Predictive(x, bins, []), columns, 0.5)
    torch.testing.assert_close(support.quantile(even, columns, 0.5), plain)
    drawn = support.draw(sharp, columns, uniform(3, 0), uniform(3, 1))
    assert float((drawn - x).abs().max()) < 0.1
    assert np.isin(drawn.numpy(), values).all()

"""Mechanisms of missingness: the rate is met, the dependence is the declared one, odd tables do not crash."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from diffputer.errors import InputError
from diffputer.tables.missingness import (
    MECHANISMS,
    copy_patterns,
    mar,
    mcar,
    mnar_logistic,
    mnar_quantile_censoring,
    mnar_self_masking,
)


def table(n, p, holes=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) * 10.0 ** rng.integers(-3, 4, size=p)
    x[rng.uniform(size=x.shape) < holes] = np.nan
    return x


def within(share, rate, cells):
    """Within five standard errors of a share among so many independent cells."""
    return abs(share - rate) <= 5 * np.sqrt(rate * (1 - rate) / cells) + 1e-12


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("n", "p"), [(4000, 2), (1500, 8), (800, 31)])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.45])
def test_the_rate_is_met(name, n, p, rate):
    x = table(n, p, holes=0.2)  # with real holes: the rate counts observed cells, none is hidden twice
    mask = MECHANISMS[name](x, rate, 3)
    observed = ~np.isnan(x)
    assert mask.shape == x.shape
    assert mask.dtype == bool
    assert not mask[~observed].any()
    spread = p if name == "copy" else 1  # cells of one pattern go together
    assert within(mask[observed].mean(), rate, observed.sum() / spread)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_seed_fixes_the_mask(name):
    x = table(200, 5, holes=0.1)
    mechanism = MECHANISMS[name]
    first = mechanism(x, 0.3, 1)
    np.testing.assert_array_equal(first, mechanism(x, 0.3, np.random.default_rng(1)))
    assert (first != mechanism(x, 0.3, 2)).any()


@pytest.mark.parametrize("name", MECHANISMS)
def test_odd_columns_do_not_crash_and_nothing_is_mutated(name):
    x = table(300, 6, holes=0.1)
    x[:, 0] = 7.0  # constant
    x[:, 1] = np.nan  # empty
    x[:5, 2] = [np.inf, -np.inf, 1e308, -1e308, 0.0]
    before = x.copy()
    mask = MECHANISMS[name](x, 0.3, 0)
    np.testing.assert_array_equal(x, before)
    assert not mask[:, 1].any()
    assert 0.1 < mask[~np.isnan(x)].mean() < 0.5
    assert not MECHANISMS[name](x, 0.0, 0).any()
    assert MECHANISMS[name](x, 1e-9, 0).sum() == 0


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), "a", [0.3]])
def test_impossible_rates_are_refused(name, rate):
    with pytest.raises(InputError, match=r"at least 0 and below 1"):
        MECHANISMS[name](table(20, 4, holes=0.3), rate, 0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_tables_enter_by_value_and_by_level_code(name):
    rng = np.random.default_rng(0)
    numbers = [None if u < 0.1 else float(u) for u in rng.uniform(size=200)]
    levels = [None if u < 0.1 else "abc"[int(3 * u)] for u in rng.uniform(size=200)]
    flags = [None if u < 0.1 else bool(u < 0.5) for u in rng.uniform(size=200)]
    codes = [np.nan if level is None else float("abc".index(level)) for level in levels]
    data = {"x": numbers, "level": levels, "flag": flags}
    array = np.array([[np.nan if v is None else float(v) for v in c] for c in (numbers, codes, flags)]).T
    expected = MECHANISMS[name](array, 0.3, 5)
    frame = pd.DataFrame(data)
    for x in (
        frame,
        frame.astype({"level": "category"}),
        pl.DataFrame(data),
        pa.table(data),
        frame.to_numpy(),
    ):
        np.testing.assert_array_equal(MECHANISMS[name](x, 0.3, 5), expected)


def test_dates_and_mixed_objects_enter_by_rank_or_spelling():
    days = pd.Series(pd.date_range("2020-01-01", periods=50)[::-1])
    mixed = pd.Series([1, "a", 2.5, None, (1,)] * 10, dtype=object)
    mask = mnar_quantile_censoring(pd.DataFrame({"day": days, "mixed": mixed}), 0.2, 0)
    assert mask[:10, 0].all()
    assert not mask[10:, 0].any()
    assert not mask[3::5, 1].any()


def test_only_two_dimensional_tables():
    with pytest.raises(InputError, match="1-D"):
        mcar(np.zeros(3), 0.3, 0)


def test_mcar_does_not_depend_on_the_data():
    x = table(5000, 3)
    mask = mcar(x, 0.3, 0)
    assert np.abs(np.corrcoef(np.hstack([x, mask]).T)[:3, 3:]).max() < 0.06


def test_mar_spares_its_columns_and_depends_on_them():
    x = np.random.default_rng(0).normal(size=(5000, 10))
    mask = mar(x, 0.3, 0)
    complete = ~mask.any(axis=0)
    assert complete.sum() == 3
    for j in np.flatnonzero(~complete):
        assert within(mask[:, j].mean(), 0.3 / 0.7, len(x))  # each column, not only the table
        correlation = [np.corrcoef(x[:, i], mask[:, j])[0, 1] for i in np.flatnonzero(complete)]
        # logits of unit variance: the explained part of the mask has about a fifth of its variance
        assert 0.1 < np.sum(np.square(correlation)) < 0.3
        assert abs(np.corrcoef(x[:, j], mask[:, j])[0, 1]) < 0.07  # not on the hidden value itself


def test_mar_draws_other_columns_with_another_seed():
    x = table(200, 10)
    assert len({tuple(~mar(x, 0.3, seed).any(axis=0)) for seed in range(20)}) > 10


@pytest.mark.parametrize(("p", "kept"), [(2, 1), (3, 1), (8, 2), (10, 3)])
def test_mar_nominal_rate_is_the_papers(p, kept):
    x = table(4000, p)
    mask = mar(x, 0.3, 0, nominal=True)
    assert (~mask.any(axis=0)).sum() == kept
    assert within(mask.mean(), 0.3 / 0.7 * (p - kept) / p, x.size)


def test_mar_refuses_rates_out_of_reach():
    with pytest.raises(InputError, match="hold 50% of the cells"):
        mar(table(50, 2), 0.5, 0)
    with pytest.raises(InputError, match="at least two columns"):
        mar(table(50, 1), 0.1, 0)
    with pytest.raises(InputError, match="between 0 and 1"):
        mar(table(50, 3), 0.1, 0, complete_fraction=1.0)


def test_mnar_hides_inputs_too_and_depends_on_them():
    x = np.random.default_rng(0).normal(size=(5000, 10))
    mask = mnar_logistic(x, 0.3, 0)
    correlation = np.corrcoef(np.hstack([x, mask]).T)[:10, 10:]  # value i with mask j
    driven = np.abs(correlation).max(axis=0) > 0.1
    assert driven.sum() == 7
    for share in mask.mean(axis=0):
        assert within(share, 0.3, len(x))


def test_self_masking_depends_on_the_own_value_with_either_sign():
    x = np.random.default_rng(0).normal(size=(3000, 12))
    mask = mnar_self_masking(x, 0.3, 0)
    own = np.array([np.corrcoef(x[:, j], mask[:, j])[0, 1] for j in range(12)])
    assert (np.abs(own) > 0.25).all()
    assert (own > 0).any()
    assert (own < 0).any()
    assert all(within(share, 0.3, 3000) for share in mask.mean(axis=0))


def test_censoring_hides_the_tails():
    x = np.random.default_rng(0).normal(size=(1000, 3))
    upper = mnar_quantile_censoring(x, 0.25, 0)
    lower = mnar_quantile_censoring(x, 0.25, 0, tail="lower")
    both = mnar_quantile_censoring(x, 0.25, 0, tail="both")
    for j in range(3):
        assert x[upper[:, j], j].min() > x[~upper[:, j], j].max()
        assert x[lower[:, j], j].max() < x[~lower[:, j], j].min()
        kept = x[~both[:, j], j]
        hidden = x[both[:, j], j]
        assert ((hidden < kept.min()) | (hidden > kept.max())).all()
        assert abs((hidden > 0).mean() - 0.5) < 0.01
        assert upper[:, j].sum() == lower[:, j].sum() == both[:, j].sum() == 250


def test_censoring_within_a_wider_region():
    x = np.random.default_rng(0).normal(size=(5000, 2))
    mask = mnar_quantile_censoring(x, 0.2, 0, region=0.5)
    assert within(mask.mean(), 0.2, x.size)
    assert not mask[x < np.median(x, axis=0)].any()
    assert within(mask[x > np.median(x, axis=0)].mean(), 0.4, x.size / 2)
    with pytest.raises(InputError, match="between rate and 1, but region='a'"):
        mnar_quantile_censoring(np.ones((3, 2)), 0.3, 0, region="a")
    with pytest.raises(InputError, match="between rate and 1"):
        mnar_quantile_censoring(x, 0.2, 0, region=0.1)
    with pytest.raises(InputError, match="'upper', 'lower' or 'both'"):
        mnar_quantile_censoring(x, 0.2, 0, tail="top")


def test_censoring_breaks_ties_at_random():
    x = np.repeat([0.0, 1.0], [500, 500])[:, None]
    mask = mnar_quantile_censoring(x, 0.3, 0)[:, 0]
    assert mask.sum() == 300
    assert not mask[:500].any()
    assert 100 < mask[500:750].sum() < 200


def test_copied_patterns_keep_their_frequencies():
    rng = np.random.default_rng(0)
    patterns = np.array([[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]], dtype=bool)
    frequency = [0.5, 0.3, 0.2]
    missing = patterns[rng.choice(3, size=4000, p=frequency)]
    mask = copy_patterns(np.zeros((4000, 4)), None, 1, patterns=missing)
    for pattern, expected in zip(patterns, frequency, strict=True):
        assert abs((mask == pattern).all(axis=1).mean() - expected) < 0.05
    assert {tuple(row) for row in mask} <= {tuple(row) for row in patterns}
    thinned = copy_patterns(np.zeros((4000, 4)), 0.05, 1, patterns=missing)
    assert {tuple(row) for row in thinned} <= {tuple(row) for row in patterns}
    combined = copy_patterns(np.zeros((4000, 4)), 0.5, 1, patterns=missing)
    assert (combined[:, 0] == combined[:, 1]).all()
    assert within(combined.mean(), 0.5, 4000)


def test_copying_refuses_what_it_cannot_do():
    x = np.zeros((100, 4))
    with pytest.raises(InputError, match="the table has none"):
        copy_patterns(x, 0.1, 0)
    x[:50, 0] = np.nan
    with pytest.raises(InputError, match=r"at most 14\.3%"):  # 50 of 350 observed cells
        copy_patterns(x, 0.2, 0)
    with pytest.raises(InputError, match="one column for each of the 4"):
        copy_patterns(x, 0.1, 0, patterns=np.zeros((3, 2), dtype=bool))

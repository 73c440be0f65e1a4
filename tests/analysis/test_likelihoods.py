"""Likelihoods of nested models are compared as Meng and Rubin (1992) say, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import diffputer
from diffputer.analysis.wald import compare_restrictions
from diffputer.errors import InputError


def meng_rubin(
    full: list[np.ndarray],
    null: list[np.ndarray],
    likelihood: Callable[[int, np.ndarray], float],
    likelihood0: Callable[[int, np.ndarray], float],
) -> tuple[float, float, float]:
    """D3, its denominator degrees of freedom and r, formula by formula."""
    m, k = len(full), len(full[0]) - len(null[0])
    own = sum(2 * (likelihood(i, full[i]) - likelihood0(i, null[i])) for i in range(m)) / m
    mean, mean0 = np.mean(full, axis=0), np.mean(null, axis=0)
    common = sum(2 * (likelihood(i, mean) - likelihood0(i, mean0)) for i in range(m)) / m
    r = (m + 1) / (k * (m - 1)) * (own - common)
    t = k * (m - 1)
    df = 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2 if t > 4 else t * (1 + 1 / k) * (1 + 1 / r) ** 2 / 2
    return common / (k * (1 + r)), df, r


@pytest.mark.parametrize("m", [2, 3, 5, 20, 100])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_d3_is_that_of_meng_and_rubin(m: int, k: int) -> None:
    # Counts of events in k + 1 places, each with a rate of its own, or all with one rate.
    counts = np.random.default_rng([m, k]).poisson(np.arange(30, 31 + k), size=(m, k + 1)) + np.arange(k + 1)

    def own_rates(i: int, rates: np.ndarray) -> float:
        return float(counts[i] @ np.log(rates) - rates.sum())

    def one_rate(i: int, rate: np.ndarray) -> float:
        return own_rates(i, np.repeat(rate, k + 1))

    full, null = [row.astype(float) for row in counts], [row.mean(keepdims=True) for row in counts]
    found = diffputer.pool_likelihood(
        [(rates, lambda theta, i=i: own_rates(i, theta)) for i, rates in enumerate(full)],
        [(rate, lambda theta, i=i: one_rate(i, theta)) for i, rate in enumerate(null)],
    )
    d3, df, r = meng_rubin(full, null, own_rates, one_rate)
    assert r > 0
    assert (found.statistic, found.df_denom, found.riv) == pytest.approx((d3, df, r))
    assert (found.df_num, found.p_value) == (k, pytest.approx(stats.f.sf(d3, k, df)))


def test_d3_is_d1_where_the_likelihood_is_quadratic() -> None:
    # With a known covariance that all draws share, likelihood ratios are Wald statistics.
    q = np.random.default_rng(3).normal(1.0, 0.3, size=(5, 3))
    precision = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.2], [0.5, 0.2, 4.0]])

    def likelihood(own: np.ndarray) -> Any:
        return lambda theta: -0.5 * (theta - own) @ precision @ (theta - own)

    full = [(own, likelihood(own)) for own in q]
    null = [([], lambda _, own=own: likelihood(own)(np.zeros(3))) for own in q]
    d3 = diffputer.pool_likelihood(full, null)
    d1 = compare_restrictions(range(3), q, np.stack([np.linalg.inv(precision)] * 5))
    assert d3.statistic == pytest.approx(d1.statistic)
    assert d3.riv == pytest.approx(d1.riv)
    assert d3.df_denom == pytest.approx(d1.df_denom)


def test_d3_by_hand() -> None:
    # No published example is at hand. Two draws count 20 and 30 events in 10 years; is the rate 1 a year?
    # The log-likelihood is s log(rate) - 10 rate. Twice its gain over the rate 1 is 2 (20 log 2 - 10) =
    # 7.7259 and 2 (30 log 3 - 20) = 25.9167 at the draws' own rates 2 and 3, mean 16.8213; at their mean 2.5
    # it is 2 (20 log 2.5 - 15) = 6.6516 and 2 (30 log 2.5 - 15) = 24.9774, mean 15.8145. So riv = 3 (16.8213
    # - 15.8145) = 3.0204, D3 = 15.8145 / 4.0204 = 3.9336, and the degrees of freedom are (1 + 1 / 3.0204)^2.
    def likelihood(s: int) -> Any:
        return lambda rate: s * math.log(rate[0]) - 10 * rate[0]

    full = [([s / 10], likelihood(s)) for s in (20, 30)]
    null = [([], lambda _: -10.0)] * 2
    found = diffputer.pool_likelihood(full, null)
    assert found.riv == pytest.approx(3.0204, abs=4e-4)
    assert found.statistic == pytest.approx(3.9336, abs=4e-4)
    assert found.df_denom == pytest.approx(1.7718, abs=4e-4)


def test_d3_matches_parameters_by_name() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.normal(size=(40, 3)), columns=["y", "a", "b"]) for _ in range(4)]
    null = [smf.ols("y ~ 1", t).fit() for t in tables]
    same = diffputer.pool_likelihood([smf.ols("y ~ a + b", t).fit() for t in tables], null)
    orders = ["y ~ b + a", *["y ~ a + b"] * 3]
    other = diffputer.pool_likelihood(
        [smf.ols(f, t).fit() for f, t in zip(orders, tables, strict=True)], null
    )
    assert other.statistic == pytest.approx(same.statistic)
    assert other.riv == pytest.approx(same.riv)
    strange = [smf.ols(f, t).fit() for f, t in zip(["y ~ a", *["y ~ b"] * 3], tables, strict=True)]
    with pytest.raises(
        InputError, match="draw 2 has 'Intercept', 'b' and an earlier one has 'Intercept', 'a'"
    ):
        diffputer.pool_likelihood(strange, null)


def test_d3_counts_the_parameters_of_all_equations() -> None:
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    y, full, null = rng.integers(0, 3, 90), [], []
    for _ in range(3):
        x = sm.add_constant(pd.DataFrame({"x": rng.normal(size=90)}))
        full.append(sm.MNLogit(y, x).fit(disp=False))
        null.append(sm.MNLogit(y, x[["const"]]).fit(disp=False))
    assert diffputer.pool_likelihood(full, null).df_num == 2  # a slope in each of two equations


def test_d3_of_logistic_regressions_is_near_d1() -> None:
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = rng.random(400) < 1 / (1 + np.exp(-x @ [0.3, 0.2]))
    full, null = [], []
    for _ in range(5):
        noisy = sm.add_constant(np.where(rng.random(x.shape) < 0.1, rng.normal(size=x.shape), x))
        full.append(sm.Logit(y, noisy).fit(disp=False))
        null.append(sm.Logit(y, noisy[:, :1]).fit(disp=False))
    d1, d3 = diffputer.pool(full).wald(["x1", "x2"]), diffputer.pool_likelihood(full, null)
    assert d3.df_num == 2
    assert d3.statistic == pytest.approx(d1.statistic, rel=0.15)
    assert d3.riv == pytest.approx(d1.riv, abs=0.1)


@pytest.mark.parametrize(
    ("full", "null", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0], "draw 1 of the full model is a float"),
        ([(1.0, lambda t: 0.0)] * 3, [([], lambda t: 0.0)] * 2, "one fit for each draw"),
        ([(1.0, lambda t: 0.0)], [([], lambda t: 0.0)], "at least 2"),
        ([(1.0, lambda t: np.nan)] * 2, [([], lambda t: 0.0)] * 2, "finite"),
        ([(1.0, lambda t: 0.0), ([1.0, 2.0], lambda t: 0.0)], [([], lambda t: 0.0)] * 2, "same parameters"),
    ],
)
def test_d3_mistakes_are_explained(full: Any, null: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        diffputer.pool_likelihood(full, null)


# Models of statsmodels whose likelihood is not simply loglike(params)


def grouped_draws(m: int = 4, n_groups: int = 12, size: int = 8) -> list[pd.DataFrame]:
    """Tables with a random intercept for each group, in which some of b is drawn anew."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(n_groups), size)
    table = pd.DataFrame(rng.normal(size=(len(group), 2)), columns=["a", "b"])
    table["g"] = group
    table["y"] = 0.5 * table["a"] + 0.3 * table["b"] + rng.normal(size=n_groups)[group]
    table["y"] += rng.normal(size=len(group))
    draws = []
    for _ in range(m):
        draw = table.copy()
        draw.loc[::4, "b"] = 0.5 * draw.loc[::4, "b"] + rng.normal(size=len(group) // 4)
        draws.append(draw)
    return draws


def random_intercept(table: pd.DataFrame, names: list[str]) -> Callable[[np.ndarray], float]:
    """The normal likelihood of a random intercept, at its largest over the residual variance s.

    Outcomes of a group have the covariance s (I + p 1 1'), with p the last parameter.
    """
    groups = [np.flatnonzero(table["g"] == g) for g in table["g"].unique()]
    x = np.column_stack([np.ones(len(table)), *(table[name] for name in names)])
    y = table["y"].to_numpy()

    def likelihood(theta: np.ndarray) -> float:
        rest, square, determinants = y - x @ theta[:-1], 0.0, 0.0
        for rows in groups:
            v = np.eye(len(rows)) + theta[-1]
            square += rest[rows] @ np.linalg.solve(v, rest[rows])
            determinants += np.linalg.slogdet(v)[1]
        n = len(y)
        return -n / 2 * math.log(2 * math.pi * square / n) - n / 2 - determinants / 2

    return likelihood


@pytest.mark.parametrize("m", [3, 7])
def test_d3_of_mixed_models_is_that_of_their_likelihood(m: int) -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    tables = grouped_draws(m)
    full = [smf.mixedlm("y ~ a + b", t, groups=t["g"]).fit(reml=False) for t in tables]
    null = [smf.mixedlm("y ~ a", t, groups=t["g"]).fit(reml=False) for t in tables]
    found = diffputer.pool_likelihood(full, null)
    large = [random_intercept(t, ["a", "b"]) for t in tables]
    small = [random_intercept(t, ["a"]) for t in tables]
    for one, fit in zip(large, full, strict=True):
        assert one(fit.params.to_numpy()) == pytest.approx(fit.llf)  # this is what statsmodels maximised
    statistic, df, r = meng_rubin(
        [fit.params.to_numpy() for fit in full],
        [fit.params.to_numpy() for fit in null],
        lambda i, theta: large[i](theta),
        lambda i, theta: small[i](theta),
    )
    assert found.statistic == pytest.approx(statistic)
    assert found.df_denom == pytest.approx(df)
    assert found.riv == pytest.approx(r)
    assert found.p_value == pytest.approx(stats.f.sf(statistic, 1, df))
    d1 = diffputer.pool(full).wald(["b"], small_sample=False)
    assert found.statistic == pytest.approx(d1.statistic, rel=0.2)


def test_restricted_likelihoods_of_other_fixed_effects_are_refused() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    tables = grouped_draws(3)
    full = [smf.mixedlm("y ~ a + b", t, groups=t["g"]).fit() for t in tables]
    null = [smf.mixedlm("y ~ a", t, groups=t["g"]).fit() for t in tables]
    with pytest.raises(InputError, match=r"same fixed effects, however: .*draw 1.* reml=False"):
        diffputer.pool_likelihood(full, null)
    unrestricted = [smf.mixedlm("y ~ a", t, groups=t["g"]).fit(reml=False) for t in tables]
    with pytest.raises(InputError, match=r"restricted .* however: .*draw 1.* reml=False"):
        diffputer.pool_likelihood(full, unrestricted)


def test_restricted_likelihoods_may_compare_random_effects() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    tables = grouped_draws(3, n_groups=25, size=12)
    rng = np.random.default_rng(1)
    slopes = rng.normal(size=25)
    for t in tables:
        t["y"] += slopes[t["g"]] * t["a"] + 0.1 * rng.normal(size=len(t))
    full = [smf.mixedlm("y ~ a", t, groups=t["g"], re_formula="~a").fit() for t in tables]
    null = [smf.mixedlm("y ~ a", t, groups=t["g"]).fit() for t in tables]
    found = diffputer.pool_likelihood(full, null)
    ratio = np.mean([2 * (one.llf - other.llf) for one, other in zip(full, null, strict=True)])
    assert found.df_num == 2
    assert found.statistic == pytest.approx(ratio / 2, rel=0.1)  # draws that hardly differ


def test_d3_of_a_gaussian_glm_is_that_of_least_squares() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    tables = grouped_draws(4)
    by_glm, by_ols = (
        diffputer.pool_likelihood(
            [fit("y ~ a + b", t).fit() for t in tables], [fit("y ~ a", t).fit() for t in tables]
        )
        for fit in (smf.glm, smf.ols)
    )
    assert by_glm.statistic == pytest.approx(by_ols.statistic)
    assert by_glm.riv == pytest.approx(by_ols.riv)


class Fit:
    """A result whose model has another likelihood than it says."""

    def __init__(self, llf: Any, loglike: Any) -> None:
        self.params, self.llf = np.array([1.0]), llf
        self.model = type("Model", (), {"loglike": staticmethod(loglike)})


def broken(_: Any) -> float:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (
            Fit(-10.0, lambda t: -12.5),
            r"its own .*however: .*1 of the full model, a Fit, .*-12.5, .*-10",
        ),
        (Fit(-10.0, broken), "draw 1 of the full model, a Fit, .*NotImplementedError"),
        (Fit(None, lambda t: -10.0), "draw 1 of the full model, a Fit"),
        (Fit(np.nan, lambda t: -10.0), "draw 1 of the full model, a Fit, .*nan"),
        (Fit(np.nan, lambda t: np.nan), "finite"),
    ],
)
def test_likelihoods_that_are_not_those_of_the_fit_are_refused(fit: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        diffputer.pool_likelihood([fit] * 2, [([], lambda _: -11.0)] * 2)
    if words != "finite":
        assert "wald" in str(caught.value)  # what to do instead
        assert "pool_statistics" in str(caught.value)


@pytest.mark.parametrize("kind", ["rlm", "quantreg", "gee"])
def test_models_without_a_likelihood_are_refused(kind: str) -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    tables = grouped_draws(2)

    def fits(formula: str) -> list[Any]:
        more = {"groups": "g"} if kind == "gee" else {}
        return [getattr(smf, kind)(formula, data=t, **more).fit() for t in tables]

    with pytest.raises(InputError, match="draw 1 of the full model"):
        diffputer.pool_likelihood(fits("y ~ a + b"), fits("y ~ a"))


def test_one_fit_instead_of_a_list_is_explained() -> None:
    with pytest.raises(InputError, match="one for each draw"):
        diffputer.pool_likelihood(Fit(-1.0, lambda t: -1.0), [([], lambda _: 0.0)] * 2)

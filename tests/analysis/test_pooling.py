"""Pooling gives the answers of hand calculation and of simulation; formulas are in test_pooling_formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

import diffputer
from diffputer.analysis.pooling import apply_rubin, barnard_rubin
from diffputer.analysis.wald import compare_restrictions
from diffputer.errors import InputError, SettingError


def test_a_small_example_by_hand() -> None:
    # q = 1, 2, 3 with u = 1: b = 1, t = 1 + 4/3, r = 4/3, lambda = 4/7, df = 2 (7/4)^2 = 6.125.
    pooled = diffputer.pool([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)])
    row = pooled.table.iloc[0]
    assert row["estimate"] == 2.0
    assert row["std_error"] == pytest.approx(math.sqrt(7 / 3))
    assert row["riv"] == pytest.approx(4 / 3)
    assert row["lambda_"] == pytest.approx(4 / 7)
    assert row["df"] == pytest.approx(6.125)
    assert row["fmi"] == pytest.approx((4 / 3 + 2 / 9.125) / (7 / 3))
    assert pooled.m == 3
    assert math.isinf(pooled.df_complete)


def test_degrees_of_freedom_lie_between_those_of_the_draws_and_of_the_sample() -> None:
    shares = np.array([0.01, 0.2, 0.6, 0.95])
    small = barnard_rubin(shares, 10, 30.0)
    assert (small < barnard_rubin(shares, 10)).all()
    assert (small < 30).all()
    np.testing.assert_allclose(barnard_rubin(shares, 10, 1e12), barnard_rubin(shares, 10), rtol=1e-5)


def test_draws_that_agree_give_the_complete_data_analysis() -> None:
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    x = sm.add_constant(pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"]))
    fit = sm.OLS(x["a"] + rng.normal(size=40), x).fit()
    table = diffputer.pool([fit, fit, fit]).table
    assert list(table.index) == ["const", "a", "b"]
    np.testing.assert_allclose(table["estimate"], fit.params, rtol=1e-13)
    np.testing.assert_allclose(table["std_error"], fit.bse, rtol=1e-12)
    np.testing.assert_allclose(table["p_value"], fit.pvalues, rtol=1e-9)
    np.testing.assert_allclose(table[["ci_low", "ci_high"]], fit.conf_int(), rtol=1e-9)
    assert (table["df"] == 37).all()
    assert (table[["fmi", "riv", "lambda_"]] == 0).all().all()
    wald = diffputer.pool([fit] * 3).wald(["a", "b"])
    expected = fit.f_test(np.eye(3)[1:])
    assert wald.statistic == pytest.approx(float(np.squeeze(expected.fvalue)))
    assert wald.p_value == pytest.approx(float(expected.pvalue))


@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(0.1, 9)), min_size=2, max_size=8),
    st.floats(0.01, 100),
    st.floats(2, 500),
)
def test_units_do_not_matter(draws: list[tuple[float, float]], unit: float, df: float) -> None:
    spread = max(q for q, _ in draws) - min(q for q, _ in draws)
    assume(spread == 0 or spread > 1e-3)  # else rounding decides whether draws agree
    plain = diffputer.pool(draws, df_complete=df).table
    scaled = diffputer.pool([(unit * q, unit**2 * u) for q, u in draws], df_complete=df).table
    for name in ("estimate", "std_error", "ci_low", "ci_high"):
        np.testing.assert_allclose(scaled[name], unit * plain[name], rtol=1e-6, atol=1e-9 * unit)
    for name in ("df", "p_value", "riv", "lambda_", "relative_efficiency"):
        np.testing.assert_allclose(scaled[name], plain[name], rtol=1e-4, atol=1e-9)
    assert plain["fmi"].between(0, 1).all()
    assert (plain["df"] <= df).all()


def test_covariances_are_pooled_as_matrices() -> None:
    rng = np.random.default_rng(1)
    q = rng.normal(size=(4, 3))
    roots = rng.normal(size=(4, 3, 3))
    u = roots @ roots.transpose(0, 2, 1)
    pooled = diffputer.pool([(values, matrix) for values, matrix in zip(q, u, strict=True)])
    between = np.cov(q, rowvar=False)
    np.testing.assert_allclose(pooled.within, u.mean(0))
    np.testing.assert_allclose(pooled.between, between)
    np.testing.assert_allclose(pooled.total, u.mean(0) + 1.25 * between)
    np.testing.assert_allclose(pooled.table["std_error"] ** 2, np.diag(pooled.total))


class Linear:
    """What a linear model of scikit-learn looks like once it knows its covariance."""

    def __init__(self, covariance: Any = None) -> None:
        self.coef_, self.intercept_ = np.array([1.0, 2.0]), 0.5
        self.feature_names_in_ = np.array(["x", "z"], dtype=object)
        if covariance is not None:
            self.covariance_ = covariance


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ((1.0, 0.5), (0,)),
        (([1.0, 2.0], [0.5, 0.5]), (0, 1)),
        ((np.array([1.0, 2.0]), np.eye(2)), (0, 1)),
        (({"x": 1.0, "z": 2.0}, {"z": 0.5, "x": 0.5}), ("x", "z")),
        ((pd.Series({"x": 1.0, "z": 2.0}), pd.DataFrame(np.eye(2), ["x", "z"], ["x", "z"])), ("x", "z")),
        ((pd.Series({"x": 1.0, "z": 2.0}), np.eye(2), 12), ("x", "z")),
        (Linear(np.eye(3)), ("intercept", "x", "z")),
        (Linear(np.eye(2)), ("x", "z")),
        ((Linear(), np.eye(3)), ("intercept", "x", "z")),
    ],
)
def test_what_is_read(result: Any, names: tuple[Any, ...]) -> None:
    assert tuple(diffputer.pool([result, result]).table.index) == names


def test_names_may_come_in_another_order() -> None:
    pooled = diffputer.pool(
        [({"x": 1.0, "z": 2.0}, {"x": 0.1, "z": 0.2}), ({"z": 2.0, "x": 1.0}, {"x": 0.1, "z": 0.2})]
    )
    assert pooled.table["estimate"].tolist() == [1.0, 2.0]
    np.testing.assert_allclose(np.diag(pooled.within), [0.1, 0.2])


def test_results_of_scikit_learn_that_know_their_covariance() -> None:
    from sklearn.linear_model import BayesianRidge

    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    fits = [BayesianRidge().fit(x, x @ [1.0, 2.0] + rng.normal(size=50)) for _ in range(3)]
    table = diffputer.pool(fits).table
    np.testing.assert_allclose(table["estimate"], np.mean([fit.coef_ for fit in fits], axis=0))


def test_results_of_statsmodels_with_several_equations() -> None:
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    x = sm.add_constant(pd.DataFrame({"x": rng.normal(size=90)}))
    fit = sm.MNLogit(rng.integers(0, 3, 90), x).fit(disp=False)
    table = diffputer.pool([fit, fit]).table
    np.testing.assert_allclose(table["estimate"], np.ravel(fit.params, order="F"))
    np.testing.assert_allclose(table["std_error"], np.ravel(fit.bse, order="F"))


BAD: list[tuple[list[Any], str]] = [
    ([(1.0, 1.0)], "at least 2 draws"),
    ([], "at least 2 draws"),
    ([({"a": 1.0}, {"a": 1.0}), ({"b": 1.0}, {"b": 1.0})], "draw 2 has 'b'"),
    ([([1.0, 2.0], np.eye(2)), ([1.0], np.eye(1))], "draw 2"),
    ([(1.0, 1.0), (1.0, np.nan)], "draw 2 has nan"),
    ([(1.0, 1.0), (np.inf, 1.0)], "draw 2 has inf"),
    ([(1.0, 1.0), (1.0, 0.0)], "above zero"),
    ([(1.0, 1.0), (1.0, -2.0)], "is -2"),
    ([([1.0, 2.0], np.ones((2, 3)))] * 2, "square"),
    ([([1.0, 2.0], np.eye(3))] * 2, "square"),
    ([(1.0, 1.0), "nonsense"], "draw 2 is a str"),
    ([("a", 1.0), (1.0, 1.0)], "must be numbers"),
    ([Linear(), Linear()], "no covariance_"),
    ([([[1.0, 2.0]], np.eye(2))] * 2, "vector"),
    ([({"a": 1.0}, {"b": 1.0})] * 2, "same names"),
    ([(1.0, 1.0, 0)] * 2, "Degrees of freedom"),
    ([([1.0, 2.0], [[1.0, 0.5], [0.1, 1.0]])] * 2, "symmetric, however: that of 0 and 1 in draw 1"),
    ([([1.0, 2.0], [[1.0, 5.0], [5.0, 1.0]])] * 2, "variance below zero, however: that of draw 1"),
    ([(pd.Series([1.0, 2.0], index=["a", "a"]), np.eye(2))] * 2, "draw 1 has 'a' more than once"),
]


@pytest.mark.parametrize(("results", "words"), BAD)
def test_mistakes_are_explained(results: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        diffputer.pool(results)


@pytest.mark.parametrize(
    "settings",
    [
        {"conf_level": 95},
        {"conf_level": 0.0},
        {"conf_level": True},
        {"conf_level": "0.9"},
        {"df_complete": 0},
        {"df_complete": "x"},
        {"df_complete": math.nan},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="however"):
        diffputer.pool([(1.0, 1.0)] * 2, **settings)


def test_settings_may_be_numbers_of_numpy() -> None:
    pooled = diffputer.pool([(1.0, 1.0)] * 2, conf_level=np.float32(0.9), df_complete=np.int64(20))
    assert pooled.conf_level == pytest.approx(0.9)
    assert pooled.df_complete == 20


def test_a_singular_covariance_is_no_mistake() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    double = np.column_stack([x, x.sum(axis=1)])  # one of three follows from the others
    results = [(rng.normal(size=3), double.T @ double) for _ in range(3)]
    assert len(diffputer.pool(results).table) == 3


def test_it_can_be_read() -> None:
    pooled = diffputer.pool([({"x": 1.0}, {"x": 1.0}), ({"x": 2.0}, {"x": 1.0})], df_complete=20)
    assert "2 draws" in repr(pooled)
    assert "fmi" in repr(pooled)
    assert "<table" in pooled._repr_html_()
    assert "D1" in repr(pooled.wald())
    assert pooled.draws_needed == math.ceil(100 * pooled.table["fmi"].max())


# Tests of several coefficients


def some_draws(m: int = 6, k: int = 3, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(m, k, k + 4))
    return rng.normal(1.0, 0.3, size=(m, k)), roots @ roots.transpose(0, 2, 1) / 20


def test_small_samples_have_fewer_degrees_of_freedom() -> None:
    q, u = some_draws()
    k, com = q.shape[1], 50.0
    large, small = compare_restrictions(range(k), q, u), compare_restrictions(range(k), q, u, df_complete=com)
    assert small.df_denom < large.df_denom
    assert small.statistic == large.statistic
    pooled = diffputer.pool(list(zip(q, u, strict=True)), df_complete=com)
    assert pooled.wald() == small
    assert pooled.wald(small_sample=False) == large
    endless = compare_restrictions(range(k), q, u, df_complete=1e9)
    assert endless.df_denom == pytest.approx(large.df_denom, rel=1e-4)


@pytest.mark.parametrize(
    ("estimates", "riv", "statistic", "df"),
    [
        # b is 1 everywhere, so its trace is 2: riv = 4/3 * 2/2, D1 = (4 + 1) / (2 * 7/3), and with
        # k (m - 1) = 4 the degrees of freedom are 4 * 3/2 * (7/4)^2 / 2.
        ([(1, 0), (2, 1), (3, 2)], 4 / 3, 15 / 14, 147 / 16),
        # b has 5/3 in its diagonal: riv = 5/4 * 5/3, D1 = 5 / (2 * 37/12); k (m - 1) = 6 is above 4:
        # 4 + 2 * (1 + 2/3 * 12/25)^2.
        ([(0.5, -0.5), (1.5, 0.5), (2.5, 1.5), (3.5, 2.5)], 25 / 12, 30 / 37, 4 + 2 * (33 / 25) ** 2),
    ],
)
def test_d1_by_hand(estimates: list[Any], riv: float, statistic: float, df: float) -> None:
    # No published example is at hand: fractions by hand, for two coefficients with the unit covariance. The
    # tail of F with two degrees of freedom in the numerator is (1 + 2 x / df)^(-df / 2).
    found = diffputer.pool([(np.array(q, dtype=float), np.eye(2)) for q in estimates]).wald([0, 1])
    assert found.riv == pytest.approx(riv)
    assert found.statistic == pytest.approx(statistic)
    assert found.df_denom == pytest.approx(df)
    assert found.p_value == pytest.approx((1 + 2 * statistic / df) ** (-df / 2))


@pytest.mark.parametrize(
    ("riv", "k", "m", "df_complete", "df"),
    [(0.5, 2, 5, 30, 11.1), (1, 2, 5, 30, 7.0), (2, 3, 5, 40, 7.6), (1, 3, 20, 50, 33.4)],
)
def test_reiters_degrees_of_freedom_in_numbers(
    riv: float, k: int, m: int, df_complete: float, df: float
) -> None:
    # Draws whose between covariance is riv times the within covariance in every direction.
    rng = np.random.default_rng(0)
    q = rng.normal(size=(m, k))
    q = q - q.mean(axis=0)
    q = np.linalg.svd(q, full_matrices=False)[0] * np.sqrt(riv * (m - 1) / (1 + 1 / m))
    found = compare_restrictions(range(k), q + 1.0, np.stack([np.eye(k)] * m), df_complete=df_complete)
    assert found.riv == pytest.approx(riv)
    assert found.df_denom == pytest.approx(df, abs=0.06)


@pytest.mark.parametrize("df_complete", [25.0, None])
def test_d1_of_one_coefficient_is_the_squared_t(df_complete: float | None) -> None:
    q, u = some_draws(m=4)  # few draws: the rule of Li et al. is then that of one coefficient
    pooled = diffputer.pool(list(zip(q, u, strict=True)), df_complete=df_complete)
    for name in pooled.table.index:
        wald, row = pooled.wald([name]), pooled.table.loc[name]
        assert wald.statistic == pytest.approx(row["statistic"] ** 2)
        assert wald.df_denom == pytest.approx(row["df"])
        assert wald.p_value == pytest.approx(row["p_value"])
        assert wald.riv == pytest.approx(row["riv"])


def test_restrictions_by_name_by_value_and_by_matrix() -> None:
    q, u = some_draws()
    results = [({"const": a, "x": b, "z": c}, cov) for (a, b, c), cov in zip(q, u, strict=True)]
    pooled = diffputer.pool(results)
    by_name = pooled.wald(["x", "z"])
    assert pooled.wald() == by_name
    assert pooled.wald(np.eye(3)[1:]) == by_name
    assert pooled.wald({"x": 0.0, "z": 0.0}) == by_name
    assert pooled.wald([[0, 1, 0], [0, 0, 1]]) == by_name
    assert pooled.wald([(0, 1, 0), np.array([0, 0, 1])]) == by_name
    assert pooled.wald({"x": q[:, 1].mean()}).statistic == pytest.approx(0, abs=1e-25)
    equal = pooled.wald(np.array([[0, 1, -1]]))
    contrast = diffputer.pool(
        [(v[1] - v[2], c[1, 1] + c[2, 2] - 2 * c[1, 2]) for v, c in zip(q, u, strict=True)]
    )
    assert equal.statistic == pytest.approx(contrast.table["statistic"].iloc[0] ** 2)


@pytest.mark.parametrize(
    ("restrictions", "words"),
    [
        (["nonsense"], "'nonsense' is none"),
        ([], "needs restrictions"),
        (np.ones((2, 3)), "follow from each other"),
        (np.ones((1, 2)), "one column for each"),
        ([[0, 1]], "one column for each"),
        ([[0, 1, 0], [1, 0]], "rows of 3 numbers"),
        ([[0, "x", 0]], "rows of 3 numbers"),
        (["x", "x"], "follow from each other"),
    ],
)
def test_impossible_restrictions_are_explained(restrictions: Any, words: str) -> None:
    q, u = some_draws()
    results = [({"const": a, "x": b, "z": c}, cov) for (a, b, c), cov in zip(q, u, strict=True)]
    with pytest.raises(InputError, match=words):
        diffputer.pool(results).wald(restrictions)


def test_d2_of_statistics_that_agree_is_theirs() -> None:
    assert diffputer.pool_statistics([6.0] * 4, 2).p_value == pytest.approx(stats.chi2.sf(6.0, 2))


def test_d2_below_zero_speaks_for_the_hypothesis() -> None:
    found = diffputer.pool_statistics([0.0, 9.0, 0.0], 1)
    assert found.statistic < 0
    assert found.p_value == 1


@pytest.mark.parametrize("statistics", [[1.0], [1.0, -1.0], [1.0, np.nan]])
def test_d2_refuses_what_is_no_statistic(statistics: list[float]) -> None:
    with pytest.raises(InputError, match="however"):
        diffputer.pool_statistics(statistics, 1)
    with pytest.raises(SettingError, match="at least 1"):
        diffputer.pool_statistics([1.0, 2.0], 0)


# Simulation: draws from the exact posterior of a normal sample with holes


def posterior_draws(observed: np.ndarray, n_missing: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Complete a normal sample m times: first the parameters, then the holes, [m, n]."""
    n = len(observed)
    variance = observed.var(ddof=1) * (n - 1) / rng.chisquare(n - 1, size=m)
    mean = rng.normal(observed.mean(), np.sqrt(variance / n))
    holes = rng.normal(mean[:, None], np.sqrt(variance)[:, None], size=(m, n_missing))
    return np.hstack([np.tile(observed, (m, 1)), holes])


def test_intervals_hold_what_they_promise() -> None:
    rng = np.random.default_rng(0)
    n, n_missing, m, repetitions = 30, 12, 10, 600
    covered = covered_naively = 0
    fmi = []
    for _ in range(repetitions):
        sample = rng.normal(5.0, 2.0, size=n - n_missing)
        draws = posterior_draws(sample, n_missing, m, rng)
        q, u = draws.mean(1)[:, None], draws.var(1, ddof=1)[:, None, None] / n
        found = apply_rubin(q, u, n - 1.0)
        reach = stats.t.ppf(0.975, found.df[0]) * found.std_error[0]
        covered += abs(found.estimate[0] - 5.0) <= reach
        narrow = stats.t.ppf(0.975, n - 1) * math.sqrt(u[0, 0, 0])
        covered_naively += abs(q[0, 0] - 5.0) <= narrow
        fmi.append(found.lambda_[0])
    error = math.sqrt(0.95 * 0.05 / repetitions)
    assert abs(covered / repetitions - 0.95) < 4 * error
    assert covered_naively / repetitions < 0.95 - 4 * error  # one draw taken for data would not do
    assert np.mean(fmi) == pytest.approx(n_missing / n, abs=0.06)  # what is missing is 40 % of the rows


def test_d1_rejects_as_often_as_it_promises() -> None:
    rng = np.random.default_rng(1)
    n, n_missing, m, k, repetitions = 60, 20, 8, 2, 500
    rejected = 0
    for _ in range(repetitions):
        columns = [posterior_draws(rng.normal(size=n - n_missing), n_missing, m, rng) for _ in range(k)]
        q = np.stack([draws.mean(1) for draws in columns], axis=1)
        u = np.zeros((m, k, k))
        for j, draws in enumerate(columns):
            u[:, j, j] = draws.var(1, ddof=1) / n
        rejected += compare_restrictions(range(k), q, u, df_complete=n - 1.0).p_value < 0.05
    assert abs(rejected / repetitions - 0.05) < 4 * math.sqrt(0.05 * 0.95 / repetitions)

"""Pooling gives the answers of published examples and of the formulas that R's mice documents.

Formulas are written down here once more, from their definitions: Rubin (1987, chapter 3) and Barnard and
Rubin (1999) for ``pool.scalar``; Li, Raghunathan and Rubin (1991) and Reiter (2007) for ``D1``; Li, Meng,
Raghunathan and Rubin (1991) for ``D2``. That of Meng and Rubin (1992) for ``D3`` is in test_likelihoods.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import diffputer
from diffputer.analysis.wald import compare_restrictions

# Published examples

# SAS/STAT 13.1 User's Guide, the MIANALYZE procedure, example 62.10 "Using a TEST statement": five
# imputations of the fitness data, EDF=28. Of the table "Variance Information" the inputs are the variances
# between and within imputations; total, degrees of freedom, relative increase in variance, fraction of
# missing information and relative efficiency are the outputs, to the digits printed.
SAS = {
    "TestPrm1": ((45.529229, 76.543614), (131.178689, 9.1917, 0.713777, 0.461277, 0.915537)),
    "TestPrm2": ((0.014715, 0.114324), (0.131983, 20.598, 0.154459, 0.141444, 0.972490)),
}


@pytest.mark.parametrize("name", SAS)
def test_a_published_example_of_rubins_rules(name: str) -> None:
    (between, within), (total, df, riv, fmi, efficiency) = SAS[name]
    # The guide prints variances, not the five estimates: any five with that variance will do.
    shape = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / math.sqrt(2.5)
    results = [(x * math.sqrt(between), within) for x in shape]
    small = diffputer.pool(results, df_complete=28).table.iloc[0]
    few = 1e-4  # what the digits that are printed of 0.014715 can tell
    assert small["std_error"] ** 2 == pytest.approx(total, rel=few)
    assert small["df"] == pytest.approx(df, rel=few)
    assert small["riv"] == pytest.approx(riv, rel=few)
    # The guide's fraction of missing information has the degrees of freedom of a large sample.
    large = diffputer.pool(results).table.iloc[0]
    assert large["fmi"] == pytest.approx(fmi, rel=few)
    assert large["relative_efficiency"] == pytest.approx(efficiency, rel=few)


def test_a_published_example_of_barnard_and_rubins_degrees_of_freedom() -> None:
    # The same guide, example "Reading Means and Standard Errors", SAS/STAT 9.3: means and standard errors of
    # Oxygen in five imputations of 31 rows (EDF=30), printed to four and five decimals, are the inputs; its
    # outputs are the mean 47.180993 and 26.298 degrees of freedom.
    means = [47.0120, 47.2407, 47.4995, 47.1485, 47.0042]
    errors = [0.95984, 0.93540, 1.00766, 0.95439, 0.96528]
    results = [(q, s**2) for q, s in zip(means, errors, strict=True)]
    row = diffputer.pool(results, df_complete=30).table.iloc[0]
    assert row["estimate"] == pytest.approx(47.180993, abs=5e-5)
    assert row["df"] == pytest.approx(26.298, abs=1.5e-3)


def test_a_published_example_of_d2() -> None:
    # The example in the documentation of Allison's SAS macro COMBCHI (version 2.1, 2007), as it prints it.
    found = diffputer.pool_statistics([5.8, 7.2, 6.1, 8.5], 3)
    assert found.statistic == pytest.approx(2.0540138, abs=5e-8)
    assert found.df_denom == pytest.approx(342.22381, abs=5e-6)
    assert found.p_value == pytest.approx(0.1060954, abs=5e-8)


# Formulas, on random inputs


@pytest.mark.parametrize("m", [2, 3, 5, 20, 100])
@pytest.mark.parametrize("dfcom", [math.inf, 4.0, 37.0, 5000.0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_one_number_is_pooled_as_pool_scalar_does(m: int, dfcom: float, spread: float) -> None:
    rng = np.random.default_rng([m, int(min(dfcom, 1e6)), int(10 * spread)])
    q, u = rng.normal(2.0, spread, size=m), rng.uniform(0.5, 1.5, size=m)
    qbar, ubar = q.sum() / m, u.sum() / m
    b = ((q - qbar) ** 2).sum() / (m - 1)
    t = ubar + (1 + 1 / m) * b
    r = (1 + 1 / m) * b / ubar
    share = (1 + 1 / m) * b / t
    df = (m - 1) / share**2
    if math.isfinite(dfcom):
        observed = (dfcom + 1) / (dfcom + 3) * dfcom * (1 - share)
        df = df * observed / (df + observed)
    fmi = (r + 2 / (df + 3)) / (r + 1)
    pooled = diffputer.pool(
        list(zip(q, u, strict=True)), df_complete=None if math.isinf(dfcom) else dfcom, conf_level=0.9
    )
    half = stats.t.ppf(0.95, df) * math.sqrt(t)
    expected = {
        "estimate": qbar,
        "std_error": math.sqrt(t),
        "df": df,
        "statistic": qbar / math.sqrt(t),
        "p_value": 2 * stats.t.sf(abs(qbar) / math.sqrt(t), df),
        "ci_low": qbar - half,
        "ci_high": qbar + half,
        "fmi": fmi,
        "riv": r,
        "lambda_": share,
        "relative_efficiency": 1 / (1 + fmi / m),
    }
    assert pooled.table.iloc[0].to_dict() == pytest.approx(expected, rel=1e-9)
    assert pooled.within.iloc[0, 0] == pytest.approx(ubar)
    assert pooled.between.iloc[0, 0] == pytest.approx(b)
    assert pooled.total.iloc[0, 0] == pytest.approx(t)


def random_draws(m: int, k: int, spread: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Estimates [m, k] and covariances [m, k, k]."""
    rng = np.random.default_rng([m, k])
    roots = rng.normal(size=(m, k, k + 4))
    return rng.normal(0.5, spread, size=(m, k)), roots @ roots.transpose(0, 2, 1) / 20


def li_raghunathan_rubin(q: np.ndarray, u: np.ndarray) -> tuple[float, float, float]:
    """D1 of all coefficients being 0, its denominator degrees of freedom in large samples, and r."""
    m, k = q.shape
    mean = q.mean(axis=0)
    within = sum(u) / m
    between = sum(np.outer(one - mean, one - mean) for one in q) / (m - 1)
    r = (1 + 1 / m) * np.trace(between @ np.linalg.inv(within)) / k
    d1 = mean @ np.linalg.inv((1 + r) * within) @ mean / k
    t = k * (m - 1)
    df = 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2 if t > 4 else t * (1 + 1 / k) * (1 + 1 / r) ** 2 / 2
    return float(d1), float(df), float(r)


def reiter(r: float, k: int, m: int, dfcom: float) -> float:
    """Denominator degrees of freedom of D1 in small samples, for k (m - 1) > 4."""
    t = k * (m - 1)
    a = r * t / (t - 2)
    star = (dfcom + 1) / (dfcom + 3) * dfcom
    two, four = star - 2 * (1 + a), star - 4 * (1 + a)
    terms = [
        a**2 * two / ((1 + a) ** 2 * four),
        8 * a**2 * two / ((1 + a) * four**2),
        4 * a**2 / ((1 + a) * four),
        4 * a**2 / (four * two),
        16 * a**2 * two / four**3,
        8 * a**2 / four**2,
    ]
    return 4 + 1 / (1 / four + sum(terms) / (t - 4))


@pytest.mark.parametrize("m", [2, 3, 5, 20, 100])  # k (m - 1) is below, at and above 4
@pytest.mark.parametrize("k", [1, 2, 4])
def test_d1_is_that_of_li_raghunathan_and_rubin(m: int, k: int) -> None:
    q, u = random_draws(m, k)
    d1, df, r = li_raghunathan_rubin(q, u)
    for found in (
        compare_restrictions(range(k), q, u),
        diffputer.pool(list(zip(q, u, strict=True))).wald(),
        diffputer.pool(list(zip(q, u, strict=True)), df_complete=50).wald(small_sample=False),
    ):
        assert found.statistic == pytest.approx(d1)
        assert found.riv == pytest.approx(r)
        assert found.df_denom == pytest.approx(df)
        assert found.df_num == k
        assert found.p_value == pytest.approx(stats.f.sf(d1, k, df))


@pytest.mark.parametrize(("m", "k"), [(4, 2), (6, 2), (20, 2), (3, 4), (5, 4), (100, 4)])
@pytest.mark.parametrize("dfcom", [40.0, 200.0, 1e5])
def test_d1_in_small_samples_is_that_of_reiter(m: int, k: int, dfcom: float) -> None:
    q, u = random_draws(m, k)
    d1, large, r = li_raghunathan_rubin(q, u)
    df = reiter(r, k, m, dfcom)
    found = compare_restrictions(range(k), q, u, df_complete=dfcom)
    assert found.statistic == pytest.approx(d1)
    assert found.df_denom == pytest.approx(df)
    assert found.df_denom < large
    assert found.p_value == pytest.approx(stats.f.sf(d1, k, df))


@pytest.mark.parametrize("m", [3, 5, 10, 50])
def test_d1_of_one_coefficient_in_a_small_sample_has_barnard_and_rubins_degrees_of_freedom(m: int) -> None:
    # Here D1 departs from mice, which has Reiter's: the test of one coefficient is that of the table.
    q, u = random_draws(m, 1)
    pooled = diffputer.pool(list(zip(q, u, strict=True)), df_complete=30)
    found, row = pooled.wald(), pooled.table.iloc[0]
    assert found.statistic == pytest.approx(row["statistic"] ** 2)
    assert found.df_denom == pytest.approx(row["df"])
    assert found.p_value == pytest.approx(row["p_value"])


def test_d1_of_a_matrix_is_that_of_the_combinations() -> None:
    q, u = random_draws(7, 4)
    matrix, values = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 1.0, 1.0, -2.0]]), np.array([0.2, -0.1])
    d1, df, r = li_raghunathan_rubin(q @ matrix.T - values, matrix @ u @ matrix.T)
    found = diffputer.pool(list(zip(q, u, strict=True))).wald(matrix, values)
    assert (found.statistic, found.df_denom, found.riv) == pytest.approx((d1, df, r))


@pytest.mark.parametrize("m", [2, 3, 5, 20, 100])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_d2_is_that_of_li_meng_raghunathan_and_rubin(m: int, k: int) -> None:
    d = np.random.default_rng([m, k]).noncentral_chisquare(k, 12.0, size=m)
    roots = np.sqrt(d)
    r = (1 + 1 / m) * ((roots - roots.sum() / m) ** 2).sum() / (m - 1)
    d2 = (d.sum() / m / k - (m + 1) / (m - 1) * r) / (1 + r)
    df = k ** (-3 / m) * (m - 1) * (1 + 1 / r) ** 2
    expected: Any = (d2, df, r, stats.f.sf(d2, k, df))
    for found in (diffputer.pool_statistics(d, k), diffputer.pool_statistics(d / k, k, kind="F")):
        assert (found.statistic, found.df_denom, found.riv, found.p_value) == pytest.approx(expected)

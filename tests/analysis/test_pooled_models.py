"""Results of statsmodels and scikit-learn are pooled for what they are, and tested for what matters."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import diffputer
from diffputer.errors import InputError


def some_table(n: int = 160) -> pd.DataFrame:
    """Numbers a, b and y, a count, three ordered levels, and groups with an effect of their own."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    table["g"] = np.arange(n) // 8
    table["y"] = table["a"] + rng.normal(size=n // 8)[table["g"]] + rng.normal(size=n)
    table["level"] = np.digitize(table["a"] + rng.logistic(size=n), [-1, 1])
    table["count"] = rng.negative_binomial(2, 0.4, size=n)
    return table


def ordered(table: pd.DataFrame, names: list[str]) -> Any:
    model = pytest.importorskip("statsmodels.miscmodels.ordinal_model").OrderedModel
    levels = pd.Series(pd.Categorical.from_codes(table["level"], names, ordered=True))
    return model(levels, table[["a", "b"]]).fit(disp=0, method="bfgs")


def fits() -> dict[str, tuple[Callable[[Any, Any, pd.DataFrame], Any], list[Hashable]]]:
    """For each kind of model: how it is fitted, and what a test of everything should be of."""
    both: list[Hashable] = ["a", "b"]
    return {
        "least squares": (lambda sm, smf, t: smf.ols("y ~ a + b", t).fit(), both),
        "several equations": (
            lambda sm, smf, t: sm.MNLogit(t["level"], sm.add_constant(t[["a", "b"]])).fit(disp=0),
            [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")],
        ),
        "several equations of arrays": (
            lambda sm, smf, t: sm.MNLogit(
                t["level"].to_numpy(), sm.add_constant(t[["a", "b"]].to_numpy())
            ).fit(disp=0),
            [1, 2, 4, 5],
        ),
        "thresholds": (lambda sm, smf, t: ordered(t, ["low", "mid", "high"]), both),
        "thresholds of arrays": (
            lambda sm, smf, t: (
                pytest.importorskip("statsmodels.miscmodels.ordinal_model")
                .OrderedModel(t["level"].to_numpy(), t[["a", "b"]].to_numpy())
                .fit(disp=0, method="bfgs")
            ),
            ["x1", "x2"],
        ),
        "a random intercept": (lambda sm, smf, t: smf.mixedlm("y ~ a + b", t, groups=t["g"]).fit(), both),
        "a random intercept of arrays": (
            lambda sm, smf, t: sm.MixedLM(
                t["y"].to_numpy(), sm.add_constant(t[["a", "b"]].to_numpy()), groups=t["g"].to_numpy()
            ).fit(),
            [1, 2],
        ),
        "a dispersion": (lambda sm, smf, t: smf.negativebinomial("count ~ a + b", t).fit(disp=0), both),
    }


@pytest.mark.parametrize("kind", fits())
def test_a_test_of_everything_is_of_the_coefficients_of_regressors(kind: str) -> None:
    sm, smf = pytest.importorskip("statsmodels.api"), pytest.importorskip("statsmodels.formula.api")
    fit, names = fits()[kind]
    rng = np.random.default_rng(1)
    results = []
    for _ in range(3):
        table = some_table()
        table["b"] += 0.3 * rng.normal(size=len(table))
        results.append(fit(sm, smf, table))
    pooled = diffputer.pool(results)
    assert len(pooled.table) > len(names)  # there is more than coefficients of regressors
    assert pooled.wald() == pooled.wald(names)
    everything = pooled.wald(list(pooled.table.index))  # an explicit choice has its way
    assert everything.df_num == len(pooled.table)


def test_coefficients_with_names_like_variances_are_tested() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    table = some_table().rename(columns={"b": "b Var"})
    pooled = diffputer.pool([smf.ols("y ~ a + Q('b Var')", table).fit()] * 2)
    assert pooled.wald().df_num == 2
    pairs = [({"const": 1.0, "Group Var": 2.0, "a": 0.5}, {"const": 1.0, "Group Var": 1.0, "a": 1.0})] * 2
    assert diffputer.pool(pairs).wald().df_num == 2


def test_what_is_left_out_does_not_depend_on_the_order_of_draws() -> None:
    estimates, reordered = {"a": 1.0, "const": 2.0}, {"const": 2.0, "a": 1.0}
    pooled = diffputer.pool([(each, dict.fromkeys(each, 1.0)) for each in (estimates, reordered)])
    assert pooled.wald() == pooled.wald(["a"])


def test_only_intercepts_leave_nothing_to_test() -> None:
    with pytest.raises(InputError, match="needs restrictions"):
        diffputer.pool([({"const": 1.0}, {"const": 1.0})] * 2).wald()


# Names and rows of matrices


def numbered(k: int = 2) -> diffputer.Pooled:
    rng = np.random.default_rng(0)
    return diffputer.pool([(rng.normal(1.0, 0.3, size=k), np.eye(k) * 0.1) for _ in range(5)])


@pytest.mark.parametrize("names", [[0, 1], [1], [1, 0], [0, 2]])
def test_an_array_of_names_is_a_list_of_names(names: list[int]) -> None:
    pooled = numbered(3)
    assert pooled.wald(np.array(names)) == pooled.wald(names)
    assert pooled.wald(tuple(names)) == pooled.wald(names)
    assert pooled.wald(pd.Index(names)) == pooled.wald(names)
    assert pooled.wald(pd.Series(names)) == pooled.wald(names)
    assert pooled.wald(names).df_num == len(names)


def test_names_of_several_equations_may_be_an_array_or_one_name() -> None:
    keys = [("1", "a"), ("2", "a")]
    pooled = diffputer.pool([(dict.fromkeys(keys, value), np.eye(2)) for value in (1.0, 2.0)])
    assert pooled.wald(np.array(keys)) == pooled.wald(keys)
    assert pooled.wald(("1", "a")) == pooled.wald([("1", "a")])


def test_one_name_needs_no_list() -> None:
    assert numbered().wald(1) == numbered().wald([1])


def test_a_table_is_a_matrix_whose_columns_may_be_names() -> None:
    pooled, row = numbered(3), [[0.0, 1.0, -1.0]]
    assert pooled.wald(pd.DataFrame(row)) == pooled.wald(row)
    assert pooled.wald(pd.DataFrame(row)[[2, 0, 1]]) == pooled.wald(row)
    assert pooled.wald(pd.DataFrame(row, columns=["p", "q", "r"])) == pooled.wald(row)


@pytest.mark.parametrize(
    ("values", "words"),
    [("q", "must be numbers, however: they are 'q'"), ([1.0, 2.0, 3.0], "2 restrictions, however: 3 were")],
)
def test_values_of_a_hypothesis_are_checked(values: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        numbered(3).wald([0, 1], values)


@pytest.mark.parametrize(
    ("restrictions", "words"),
    [
        (np.array([0, 1, -1]), r"-1 is none.*\[\[0, 1, -1\]\]"),
        ([0, 1, -1], r"-1 is none.*\[\[0, 1, -1\]\]"),
        (np.array([False, True, True]), "False, True, True are none"),
        ([0, np.array([1, 2, 3])], "are none|is none"),
        (7, "7 is none"),
        (np.ones((1, 1, 3)), "one column for each"),
    ],
)
def test_what_is_neither_names_nor_a_matrix_is_explained(restrictions: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        numbered(3).wald(restrictions)


# What cannot be pooled


def test_a_covariance_of_features_is_not_that_of_estimates() -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    table = some_table()
    fit = LinearDiscriminantAnalysis(store_covariance=True).fit(table[["a", "b"]], table["y"] > 0)
    with pytest.raises(InputError, match=r"however: .*draw 1, a LinearDiscriminantAnalysis, .*features"):
        diffputer.pool([fit, fit])
    assert len(diffputer.pool([(fit, np.eye(2))] * 2).table) == 2  # the user knows


@pytest.mark.parametrize("result", [[1.0, 2.0], [1.0, 2.0, 3.0], [[1.0, 2.0], [0.1, 0.2]]])
def test_a_list_may_be_estimates_alone(result: Any) -> None:
    with pytest.raises(InputError, match=r"draw 1 is a list.*tuple \(estimates, covariance\)"):
        diffputer.pool([result] * 2)


class NoCovariance:
    params = pd.Series({"a": 1.0})

    def cov_params(self) -> Any:
        raise ValueError("need covariance of parameters")


def test_a_covariance_that_cannot_be_had_is_explained() -> None:
    with pytest.raises(InputError, match=r"however: draw 1, a NoCovariance, .*need covariance of"):
        diffputer.pool([NoCovariance()] * 2)


def test_one_result_instead_of_a_list_is_explained() -> None:
    with pytest.raises(InputError, match="one for each draw, however: a NoCovariance"):
        diffputer.pool(NoCovariance())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statistics", "words"),
    [
        ([1, "a"], "draw 2 is 'a'"),
        ([1.0, None], "draw 2 is nan"),
        ([1.0, [2.0, 3.0]], "draw 2 is"),
        ([1.0, 1j], "draw 2 is 1j"),
        (3.0, "one for each draw"),
    ],
)
def test_statistics_that_are_no_numbers_are_explained(statistics: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        diffputer.pool_statistics(statistics, 2)


def test_statistics_may_be_arrays_of_one_number() -> None:  # as statsmodels gives them
    assert diffputer.pool_statistics([np.array([[4.0]]), np.array([9.0])], 2) == diffputer.pool_statistics(
        [4.0, 9.0], 2
    )


def test_a_mixed_model_without_a_covariance_is_pointed_to_its_fixed_effects() -> None:
    names = ["x", "Group Var"]
    covariance = pd.DataFrame([[1.0, np.nan], [np.nan, np.nan]], names, names)
    params = pd.Series([2.0, 0.0], names)
    result = SimpleNamespace(params=params, fe_params=params[:1], cov_params=lambda: covariance)
    with pytest.raises(InputError, match=r"return the fixed effects, \(result\.fe_params"):
        diffputer.pool([result] * 3)
    del result.fe_params
    with pytest.raises(InputError, match=r"must be finite.*fitted to that table\.$"):
        diffputer.pool([result] * 3)

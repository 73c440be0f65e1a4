"""Own code against closed forms: EM, copula, SoftImpute; MissForest's stopping; HyperImpute's check."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diffputer.errors import DataWarning, InputError, SettingError
from diffputer.methods.coding import Indicators
from diffputer.methods.gaussian import Gaussian
from diffputer.methods.hyperimpute import check_answer, find_python
from diffputer.methods.lowrank import shrink, solve
from diffputer.methods.patterns import Patterns
from diffputer.methods.table import make_method

SIGMA = np.array([[1.0, 0.7, -0.3], [0.7, 2.0, 0.4], [-0.3, 0.4, 0.5]])
MU = np.array([1.0, -2.0, 0.5])


def gaussian_table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.multivariate_normal(MU, SIGMA, size=n)
    return truth, np.where(rng.random(truth.shape) < 0.3, np.nan, truth)


def by_hand(row: np.ndarray, mu: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    m, o = np.isnan(row), ~np.isnan(row)
    filled = row.copy()
    filled[m] = mu[m] + sigma[np.ix_(m, o)] @ np.linalg.solve(sigma[np.ix_(o, o)], (row - mu)[o])
    return filled


def test_conditional_means_and_variances_are_the_closed_form() -> None:
    _, holes = gaussian_table(60, 0)
    completed, variance = Gaussian(MU, SIGMA).complete(holes)
    assert completed == pytest.approx(np.array([by_hand(row, MU, SIGMA) for row in holes]))
    assert (variance[~np.isnan(holes)] == 0).all()
    alone = np.isnan(holes).sum(axis=1) == 3
    assert variance[alone] == pytest.approx(np.broadcast_to(np.diag(SIGMA), (alone.sum(), 3)))


def test_em_finds_the_gaussian() -> None:
    _, holes = gaussian_table(20_000, 1)
    found = Gaussian.fit(holes, ridge=1e-8, max_iter=200, tolerance=1e-6)
    assert found.mean == pytest.approx(MU, abs=0.05)
    assert found.covariance == pytest.approx(SIGMA, abs=0.05)


def test_em_of_a_monotone_pattern_is_the_factored_likelihood() -> None:
    # x complete, y missing at random given x: regression on complete cases, then the moments of all x.
    rng = np.random.default_rng(2)
    x = rng.normal(size=400)
    y = 0.5 + 2.0 * x + rng.normal(size=400)
    y[x > 0.3] = np.nan
    seen = ~np.isnan(y)
    slope = np.cov(x[seen], y[seen], bias=True)[0, 1] / x[seen].var()
    mean_y = y[seen].mean() + slope * (x.mean() - x[seen].mean())
    residual = y[seen].var() - slope**2 * x[seen].var()
    found = Gaussian.fit(np.column_stack([x, y]), ridge=0.0, max_iter=2000, tolerance=1e-10)
    assert found.mean == pytest.approx([x.mean(), mean_y], abs=1e-5)
    assert found.covariance[1, 1] == pytest.approx(residual + slope**2 * x.var(), abs=1e-4)


def test_em_imputes_a_gaussian_as_well_as_anybody_can() -> None:
    _, holes = gaussian_table(4000, 3)
    frame = pd.DataFrame(holes, columns=list("abc"))
    completed = make_method("em-gaussian").fit_transform(frame, [], 0).to_numpy()
    best = np.array([by_hand(row, MU, SIGMA) for row in holes])
    gone = np.isnan(holes)
    assert np.sqrt(np.mean((completed - best)[gone] ** 2)) < 0.05


def test_em_sees_what_tells_nearly_collinear_columns_apart() -> None:
    # b is a plus a hundredth of c, so that c = 100 (b - a): known, but only to who keeps small variances.
    rng = np.random.default_rng(10)
    a, c = rng.normal(size=(2, 2000))
    frame = pd.DataFrame({"a": a, "b": a + 0.01 * c, "c": c, "same": 1.0, "twin": a})
    holes = frame.copy()
    gone = rng.random(2000) < 0.3
    holes.loc[gone, "c"] = np.nan
    holes.loc[~gone & (rng.random(2000) < 0.3), ["same", "twin"]] = np.nan
    completed = make_method("em-gaussian").fit_transform(holes, [], 0)
    assert np.sqrt(np.mean((completed["c"] - c)[gone] ** 2)) < 0.03
    assert completed["same"].to_numpy() == pytest.approx(np.ones(2000))
    assert completed["twin"].to_numpy() == pytest.approx(a, abs=0.02)


def test_em_that_has_not_come_to_rest_says_so() -> None:
    _, holes = gaussian_table(200, 11)
    with pytest.warns(DataWarning, match=r"after 2 rounds .* still changed by .*max_iter"):
        Gaussian.fit(holes, ridge=1e-8, max_iter=2, tolerance=1e-8)


def test_covariance_without_an_inverse_gets_one() -> None:
    twins = Gaussian(np.zeros(3), np.ones((3, 3)))
    completed, _ = twins.complete(np.array([[2.0, np.nan, 2.0]]))
    assert completed == pytest.approx(np.full((1, 3), 2.0), abs=1e-3)


def test_copula_takes_the_mean_in_the_columns_units() -> None:
    # x = exp(z): the conditional mean of a lognormal is exp(m + s^2 / 2), not exp(m).
    rng = np.random.default_rng(4)
    z = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=8000)
    x = np.exp(z)
    x[:2000, 1] = np.nan
    frame = pd.DataFrame(x, columns=["a", "b"])
    filled = make_method("gaussian-copula").fit_transform(frame, [], 0)["b"].to_numpy()[:2000]
    expected = np.exp(0.8 * z[:2000, 0] + 0.36 / 2)
    middle = np.abs(z[:2000, 0]) < 1.5
    assert filled[middle] == pytest.approx(expected[middle], rel=0.15)
    assert abs(np.mean(filled / expected)[()] - 1) < 0.1


def test_shrinking_is_that_of_the_singular_values() -> None:
    y = np.random.default_rng(5).normal(size=(30, 6))
    u, d, vt = np.linalg.svd(y, full_matrices=False)
    shrunk, w = shrink(y, 3.0)
    assert shrunk == pytest.approx((u * np.maximum(d - 3.0, 0)) @ vt)
    assert y @ w == pytest.approx(shrunk)


def test_softimpute_recovers_a_matrix_of_low_rank() -> None:
    rng = np.random.default_rng(6)
    truth = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 8))
    gone = rng.random(truth.shape) < 0.2
    frame = pd.DataFrame(np.where(gone, np.nan, truth))
    frame.columns = frame.columns.map(str)
    method = make_method("softimpute", max_iter=2000, tolerance=1e-6).fit(frame, [], 0)
    error = np.sqrt(np.mean((method.transform(frame).to_numpy() - truth)[gone] ** 2)) / truth.std()
    assert error < 0.03
    new = rng.normal(size=(50, 8))  # of full rank: the rank that was learnt is applied to other rows
    new[:, 0] = np.nan
    assert np.isfinite(method.transform(pd.DataFrame(new, columns=frame.columns)).to_numpy()).all()


def test_softimputes_rows_are_the_fixed_point() -> None:
    rng = np.random.default_rng(7)
    y = rng.normal(size=(100, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(100, 5))
    y[rng.random(y.shape) < 0.3] = np.nan
    *_, (z, w) = solve(y, np.array([8.0, 4.0]), max_iter=5000, tolerance=1e-9)
    gone = np.isnan(y)
    known = np.where(gone, 0.0, y)
    solved = known.copy()
    for block in Patterns(gone).blocks(np.eye(5) - w):
        solved[block.rows] += block.solve(known[block.rows] @ w)
    assert solved[gone] == pytest.approx(z[gone], abs=1e-5)
    # Optimal: the residual of the observed cells lies in the subdifferential, its norm is the weight.
    assert np.linalg.norm(np.where(gone, 0.0, y - z), 2) == pytest.approx(4.0, rel=1e-3)


def test_levels_come_back_from_indicators_with_and_without_the_first() -> None:
    """A level is dropped for chained regressions: siblings are missing together and imply each other."""
    full, dropped = Indicators(np.array([3, 0])), Indicators(np.array([3, 0]), drop=True)
    x = np.array([[0.0, 1.0], [2.0, 0.0], [np.nan, 3.0]])
    assert full.expand(x)[:, :3].sum(axis=1).tolist()[:2] == [1.0, 1.0]
    assert dropped.expand(x).shape == (3, 3)
    for both in (full, dropped):
        assert np.array_equal(both.collapse(np.nan_to_num(both.expand(x)))[:2], x[:2])


def test_missforest_ends_with_the_round_before_the_change_grew() -> None:
    rng = np.random.default_rng(8)
    z = rng.normal(size=120)
    frame = pd.DataFrame({"a": z, "b": z + 0.1 * rng.normal(size=120), "c": np.where(z > 0, "u", "v")})
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    method = make_method("missforest", n_trees=10)
    first = method.fit_transform(frame, ["c"], 0)
    assert 1 <= method._rounds < 10  # type: ignore[attr-defined]
    cut = make_method("missforest", n_trees=10, max_iter=method._rounds)  # type: ignore[attr-defined]
    pd.testing.assert_frame_equal(cut.fit_transform(frame, ["c"], 0), first)


def test_missforest_has_the_leaves_and_the_tried_columns_of_rs() -> None:
    # R's missForest: nodesize 1 of numbers, 5 of factors; mtry is floor(sqrt(columns)). There a factor is one
    # column, here one for each level.
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({name: rng.normal(size=80) for name in "abcde"})
    frame["level"] = rng.choice(list("uvwxyz"), size=80)
    method = make_method("missforest", n_trees=2, max_iter=1).fit(frame, ["level"], 0)
    forests = method._forests  # type: ignore[attr-defined]
    assert [forests[j].min_samples_leaf for j in range(6)] == [1] * 5 + [5]
    assert {forest.max_features for forest in forests.values()} == {3}


def test_what_a_broken_hyperimpute_gives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([[1.0, 2.0], [2.0, 2.0], [np.nan, 1.0], [np.nan, 3.0]])
    counts = np.array([0, 0])

    def check(*rows: tuple[float, float]) -> None:
        check_answer(x, np.array(rows), counts, ["age", "pay"])

    check((1, 2), (2, 2), (0.5, 1), (0.6, 3))
    with pytest.raises(InputError, match=r"same value .* 'age'"):
        check((1, 2), (2, 2), (1, 1), (1, 3))
    with pytest.raises(InputError, match="observed cells"):
        check((1, 2), (2, 2.5), (0.5, 1), (0.6, 3))
    monkeypatch.setenv("DIFFPUTER_HYPERIMPUTE", "/nowhere/python")
    with pytest.raises(SettingError, match="/nowhere/python"):
        find_python()


def test_a_hyperimpute_that_is_broken_in_one_column_is_refused_by_its_name() -> None:
    rng = np.random.default_rng(12)
    truth = np.column_stack([rng.normal(size=(40, 3)), np.ones(40)])
    x = truth.copy()
    x[:12, [0, 3]], x[20:22, 1], x[30:, 2] = np.nan, np.nan, np.nan
    names, counts = ["age", "pay", "rent", "same"], np.zeros(4, dtype=np.int64)
    few = truth.copy()
    few[20:22, 1] = 0.5  # two holes may well get one value
    check_answer(x, few, counts, names)
    many = truth.copy()
    many[30:, 2] = 0.5
    with pytest.raises(InputError, match="it did in 'rent', as"):
        check_answer(x, many, counts, names)


def test_missforest_fitted_on_a_complete_table_imputes_new_rows() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=300)
    frame = pd.DataFrame({"a": a, "b": 2 * a + 0.1 * rng.normal(size=300)})
    method = make_method("missforest", n_trees=10).fit(frame, [], 0)
    holes = frame.assign(b=np.nan)
    assert np.corrcoef(method.transform(holes)["b"], frame["b"])[0, 1] > 0.9


def test_boosted_trees_bear_a_level_that_occurs_once() -> None:
    # Above 10,000 rows they stop early on a part that is split by level.
    rng = np.random.default_rng(0)
    a = rng.normal(size=11_000)
    levels = np.where(a > 0, "high", "low").astype(object)
    levels[0] = "once"
    levels[1:50] = None
    frame = pd.DataFrame({"a": a, "level": levels})
    method = make_method("gbt-per-column", n_trees=3).fit(frame, ["level"], 0)
    assert method.transform(frame)["level"].notna().all()


@pytest.mark.parametrize("name", ["em-gaussian", "gaussian-copula"])
def test_draws_of_a_gaussian_have_its_conditional_moments(name: str) -> None:
    # Two cells given the third: exact means, variances and covariance (tolerance 0.05; 400 rows, 200 draws).
    covariance = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.multivariate_normal(np.zeros(3), covariance, size=5_000), columns=list("abc"))
    method = make_method(name).fit(table, [], 0)
    new = pd.DataFrame({"a": np.full(400, 0.5), "b": np.nan, "c": np.nan})
    draws = method.sample(new, 200, seed=1)
    assert len(draws) == 200
    assert all((draw["a"] == 0.5).all() for draw in draws)
    drawn = np.concatenate([draw[["b", "c"]].to_numpy() for draw in draws])
    gain = covariance[1:, 0]
    assert drawn.mean(axis=0) == pytest.approx(0.5 * gain, abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(covariance[1:, 1:] - np.outer(gain, gain), abs=0.05)
    again = method.sample(new, 2, seed=1)
    pd.testing.assert_frame_equal(again[1], draws[1])
    with pytest.raises(SettingError, match="best values only"):
        make_method("mean").fit(table, [], 0).sample(new, 2, seed=0)


def test_boosted_trees_do_not_diverge_where_levels_hardly_occur() -> None:
    rng = np.random.default_rng(3)
    n, frequencies = 4_000, np.exp(-np.arange(11.0))

    def draw() -> np.ndarray:
        return rng.choice(11, size=n, p=frequencies / frequencies.sum())

    first = draw()
    second = np.where(rng.random(n) < 0.85, first, draw())
    third = np.where(rng.random(n) < 0.85, second, draw())
    third[third == 10], third[0] = 0, 10  # a level that occurs once: no early stop
    truth = pd.DataFrame({"first": first, "second": second, "third": third}).astype(str)
    truth["x"] = rng.normal(size=n)
    holes = rng.random(n) < 0.3
    holes[0] = False
    table = truth.assign(third=truth["third"].mask(holes))
    completed = make_method("gbt-per-column").fit_transform(table, ["first", "second", "third"], 0)
    right = (completed["third"] == truth["third"])[holes].mean()
    assert right > 0.85  # 0.68 without a penalty


def test_mice_does_not_leave_what_was_observed_unless_told() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=200)
    table = pd.DataFrame({"a": a, "b": 3 * a + 0.1 * rng.normal(size=200), "same": 1.0})
    table.loc[::7, "b"] = np.nan
    new = pd.DataFrame({"a": [50.0, -50.0], "b": [np.nan, np.nan], "same": [1.0, np.nan]})
    bounded = make_method("mice").fit(table, [], seed=0).transform(new)
    assert bounded["b"].tolist() == pytest.approx([table["b"].max(), table["b"].min()])
    free = make_method("mice", bounded=False).fit(table, [], seed=0).transform(new)
    assert free["b"].abs().min() > 100

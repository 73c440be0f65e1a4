"""Scores have known answers: closed forms, other implementations, counts by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from diffputer.analysis.associations import association_error, association_matrix
from diffputer.analysis.distances import (
    energy_distance,
    energy_distance_of_points,
    sliced_wasserstein,
    sliced_wasserstein_of_points,
)
from diffputer.analysis.iscore import energy_i_score
from diffputer.analysis.propensities import propensity
from diffputer.analysis.scores import (
    coverage,
    covered,
    crps,
    end_rank,
    energy_score,
    level_score,
    probability_transform,
    rank_histogram,
)
from diffputer.errors import InputError, SettingError


def test_the_energy_score_of_one_column_is_the_crps():
    rng = np.random.default_rng(0)
    truth, draws = rng.normal(size=50), rng.normal(size=(7, 50))
    for fair in (True, False):
        assert energy_score(truth[:, None], draws[:, :, None], fair=fair) == pytest.approx(
            crps(truth, draws, fair=fair)
        )


def test_the_energy_score_sees_whether_cells_are_drawn_together():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20, 4000, 1))
    together, apart = np.concatenate([z, z], axis=2), rng.normal(size=(20, 4000, 2))
    assert energy_score(together[0], together[1:]) < energy_score(together[0], apart[1:]) - 0.02


def test_levels_have_half_the_brier_score():
    draws = np.array([[0, 1, 2], [0, 1, 1], [0, 0, 1], [0, 2, 1]])
    shares = np.stack([np.bincount(column, minlength=3) / 4 for column in draws.T])
    truth = np.array([0, 1, 0])
    brier = ((shares - np.eye(3)[truth]) ** 2).sum(axis=1).mean()
    assert level_score(truth, draws, fair=False) == pytest.approx(brier / 2)


@pytest.mark.parametrize(
    ("score", "truth", "draws"),
    [
        (crps, np.zeros(3), np.zeros((2, 4))),
        (crps, np.zeros(1), np.zeros((2, 4))),  # would be taken for four cells of one truth
        (crps, np.zeros(2), np.zeros(2)),
        (crps, np.zeros((3, 2)), np.zeros((2, 3, 2))),
        (energy_score, np.zeros((3, 2)), np.zeros((2, 4, 2))),
        (energy_score, np.zeros(3), np.zeros((2, 3))),
        (level_score, np.zeros(3, dtype=int), np.zeros((2, 4), dtype=int)),
        (covered, np.zeros(3), np.zeros((19, 4))),
        (coverage, np.zeros(3), np.zeros((19, 4))),
        (probability_transform, np.zeros(3), np.zeros((2, 4))),
        (rank_histogram, np.zeros(3), np.zeros((9, 4))),
    ],
)
def test_draws_must_be_of_the_cells_of_the_truth(score, truth, draws):
    with pytest.raises(InputError, match=r"however: the shapes are \["):
        score(truth, draws)


@pytest.mark.parametrize("score", [crps, level_score])
def test_a_fair_score_needs_two_draws(score):
    with pytest.raises(SettingError, match="two draws"):
        score(np.array([0]), np.array([[1]]))
    assert score(np.array([0]), np.array([[1]]), fair=False) == 1.0


@pytest.mark.parametrize("spikes", [False, True])
def test_the_probability_transform_of_exact_draws_is_uniform(spikes):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(8, 20_000))  # 7 draws: no round number
    values = np.maximum(values, 0) if spikes else values
    u = probability_transform(values[0], values[1:])
    assert stats.kstest(u, "uniform").pvalue > 0.001
    assert stats.kstest(probability_transform(values[0], 0.5 * values[1:] + 1), "uniform").pvalue < 1e-6


def test_levels_of_intervals():
    assert end_rank(9, 0.8) == 1
    with pytest.raises(SettingError, match="no two"):
        end_rank(10, 0.8)
    with pytest.raises(SettingError, match="100%"):
        end_rank(19, 1.0)
    assert covered(np.array([0.5, 5.0]), np.arange(1.0, 10.0)[:, None].repeat(2, 1), 0.8).tolist() == [
        False,
        True,
    ]


def test_the_energy_distance_of_one_column_is_scipys_squared():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=300), rng.exponential(size=200)
    expected = stats.energy_distance(x, y) ** 2
    assert energy_distance_of_points(x[:, None], y[:, None]) == pytest.approx(expected)


def test_distances_do_not_depend_on_units_or_containers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": rng.choice(["a", "b", "d"], 200)})
    other = pd.DataFrame({"x": rng.normal(size=150) + 1, "c": rng.choice(["b", "d", "e"], 150)})
    expected = energy_distance(frame, other)
    assert expected > 0.1
    scaled = [one.assign(x=1e200 * one["x"] - 3) for one in (frame, other)]
    assert energy_distance(*scaled) == pytest.approx(expected)
    for convert in (pl.from_pandas, pa.Table.from_pandas):
        assert energy_distance(convert(frame), convert(other)) == pytest.approx(expected)
        assert sliced_wasserstein(convert(frame), convert(other)) == pytest.approx(
            sliced_wasserstein(frame, other)
        )


def test_large_tables_are_sampled_reproducibly():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(900, 2)), rng.normal(size=(900, 2)) + 0.5
    sampled = energy_distance(x, y, max_rows=300)
    assert sampled == energy_distance(x, y, max_rows=300)
    assert sampled == pytest.approx(energy_distance(x, y), rel=0.4)


def test_sliced_wasserstein_of_a_shift_and_of_one_column():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    shifted = sliced_wasserstein_of_points(x, x + np.array([3.0, 0, 0, 4.0]), n_directions=20_000)
    assert shifted == pytest.approx(5 / np.sqrt(4), rel=0.02)  # E (theta . c)^2 = |c|^2 / d
    a, b = rng.normal(size=31), rng.exponential(size=17)  # sizes without a common divisor
    got = sliced_wasserstein_of_points(a[:, None], b[:, None], order=1, n_directions=3)
    assert got == pytest.approx(stats.wasserstein_distance(a, b))


def test_distances_want_complete_rows():
    frame = pd.DataFrame({"x": [1.0, None, 2.0]})
    with pytest.raises(InputError, match="'x' has 1 missing"):
        energy_distance(frame, frame)
    with pytest.raises(InputError, match="same columns"):
        energy_distance(frame.dropna(), np.ones((3, 2)))


def test_associations_are_those_of_scipy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    y = x**3 + rng.normal(size=300)
    c = np.where(x + rng.normal(size=300) > 0, "high", "low")
    d = rng.choice(["a", "b", "c"], 300)
    frame = pd.DataFrame({"x": x, "y": y, "c": c, "d": d})
    got = association_matrix(frame)
    assert got.loc["x", "y"] == pytest.approx(stats.pearsonr(x, y).statistic)
    ranks = association_matrix(frame, method="spearman")
    assert ranks.loc["x", "y"] == pytest.approx(stats.spearmanr(x, y).statistic)
    counts = pd.crosstab(c, d).to_numpy()
    assert got.loc["c", "d"] == pytest.approx(stats.contingency.association(counts))
    between = sum((c == g).sum() * (x[c == g].mean() - x.mean()) ** 2 for g in set(c))
    assert got.loc["c", "x"] ** 2 == pytest.approx(between / ((x - x.mean()) ** 2).sum())
    assert np.allclose(got, got.T)


def test_association_errors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    truth = pd.DataFrame(
        {"x": x, "y": x, "c": np.where(x > 0, "p", "n"), "k": 1.0, "id": [f"i{k}" for k in range(500)]}
    )
    same = association_error(truth, truth)
    assert (same.correlation, same.association) == (0.0, 0.0)
    broken = association_error(truth, truth.assign(y=rng.permutation(x)))
    assert broken.correlation == pytest.approx(1.0, abs=0.15)
    assert broken.association < broken.correlation
    assert "id" not in broken.differences.columns
    assert np.isnan(broken.differences.loc["k", "x"])


def linear(n=1500, seed=0, mar=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = 0.8 * x + 0.6 * rng.normal(size=n)
    hidden = rng.random(n) < (1 / (1 + np.exp(-2 * x)) if mar else 0.5)
    return pd.DataFrame({"x": x, "y": np.where(hidden, np.nan, y)}), pd.DataFrame({"x": x, "y": y})


def test_a_classifier_cannot_tell_good_draws():
    for mar in (False, True):
        holes, truth = linear(mar=mar)
        right = propensity(holes, truth).iloc[0]
        wrong = propensity(holes, holes.fillna({"y": holes["y"].mean()})).iloc[0]
        assert abs(right["gain"]) < 4 * right["deviation"]
        assert wrong["gain"] > 0.1
        assert (right["auc_others"] > 0.7) == mar
    assert right["n_observed"] + right["n_imputed"] == 1500


def test_few_cells_have_no_propensity():
    frame = pd.DataFrame({"x": [1.0, None] * 10, "t": [f"t{k}" for k in range(19)] + [None]})
    got = propensity(frame, frame.fillna({"x": 2.0}))
    assert got["column"].tolist() == ["x"]
    assert got["auc"].isna().all()


def exact(table, m):
    """Draws of the right conditional distribution of `linear`."""
    rng = np.random.default_rng(len(table))
    drawn = [0.8 * table["x"] + 0.6 * rng.normal(size=len(table)) for _ in range(m)]
    return [table.assign(y=table["y"].fillna(y)) for y in drawn]


def hot_deck(table, m):
    rng = np.random.default_rng(0)
    known = table["y"].dropna().to_numpy()
    return [
        table.assign(y=table["y"].fillna(pd.Series(rng.choice(known, len(table)), table.index)))
        for _ in range(m)
    ]


def regression(table, m):
    return [table.assign(y=table["y"].fillna(0.8 * table["x"]))] * m


def test_the_energy_i_score_ranks_imputers_without_the_truth():
    holes, _ = linear(mar=True)
    scores = [energy_i_score(holes, draw).score for draw in (exact, regression, hot_deck)]
    assert scores == sorted(scores)
    deviation = holes["y"].std(ddof=0)
    # Draws and truth alike: E|X - X'| (1 - (N - 1) / 2 N) = sigma (1 + 1 / N) / sqrt(pi).
    assert scores[0] == pytest.approx(0.6 * (1 + 1 / 20) / np.sqrt(np.pi) / deviation, rel=0.05)


def test_the_energy_i_score_of_categories_and_its_bookkeeping():
    n = 200
    rng = np.random.default_rng(0)
    c = rng.choice(["a", "b"], n)
    holes = pd.DataFrame(
        {
            "c": np.where(np.arange(n) < 50, None, c),
            "d": np.where(np.arange(n) >= 100, None, c),
            "id": [f"i{k}" for k in range(n - 1)] + [None],
        }
    )
    seen = []

    def copy(table, m):
        seen.append(table.columns.tolist())
        full = table.copy()
        for column in set(table.columns) - {"id"}:
            full[column] = full[column].fillna("a")
        return [full] * m

    got = energy_i_score(holes, copy, n_draws=3)
    assert got.skipped == ("id",)
    assert got.columns["weight"].tolist() == [0.75 * 0.25, 0.5 * 0.5]
    share = (c[50:] == "b").mean(), (c[:100] == "b").mean()
    assert got.columns["score"].tolist() == pytest.approx(list(share))
    assert got.score == pytest.approx(np.average(share, weights=got.columns["weight"]))
    # No column is complete where c is observed: the one that has most there.
    assert seen[1:] == [["c", "d"], ["d", "c"]]
    assert energy_i_score(holes, copy, n_draws=1, max_columns=1).skipped == ("c", "id")
    with pytest.raises(InputError, match="gives 3 tables"):
        energy_i_score(holes, lambda table, m: copy(table, 1), n_draws=3)


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_the_energy_i_score_of_other_containers(convert):
    holes, _ = linear(n=300)

    def draw(table, m):
        frame = pd.DataFrame(table.to_pandas())
        return [convert(one) for one in hot_deck(frame, m)]

    assert energy_i_score(convert(holes), draw, max_rows=200).score == pytest.approx(
        energy_i_score(holes, hot_deck, max_rows=200).score
    )


@pytest.mark.parametrize("n_draws", [1, 5, 19, 20, 100])
def test_coverage_is_the_level_whatever_the_number_of_draws(n_draws):
    rng = np.random.default_rng(0)
    found = coverage(rng.normal(size=20_000), rng.normal(size=(n_draws, 20_000)))
    assert found == pytest.approx(0.9, abs=0.01)


def test_scores_take_lists():
    truth, draws = [0.0, 1.0], [[0.5, 0.5], [1.0, 3.0]]
    arrays = np.array(truth), np.array(draws)
    for score in (crps, coverage, probability_transform):
        assert np.array_equal(score(truth, draws), score(*arrays))
    assert level_score([0, 1], [[0, 1], [1, 1]]) == level_score(np.array([0, 1]), np.array([[0, 1], [1, 1]]))


@pytest.mark.parametrize(
    ("truth", "draws", "words"),
    [
        ([0.0, np.nan], [[1.0, 1.0]] * 3, "1 of the truth is missing"),
        ([0.0, 1.0], [[1.0, np.inf], [np.nan, 1.0], [0.0, 0.0]], "2 of the draws are missing"),
        ([], np.empty((3, 0)), "there is none"),
        ([1.0], np.empty((0, 1)), "there is none"),
        (["a"], [["a"]] * 3, "must be numbers"),
    ],
)
def test_scores_refuse_what_is_no_number_in_a_sentence(truth, draws, words):
    for score in (crps, coverage, probability_transform):
        with pytest.raises(InputError, match=words):
            score(truth, draws)

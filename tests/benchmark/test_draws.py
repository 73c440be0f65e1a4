"""Scores of draws have known answers: exact samplers, closed forms, counts by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from diffputer.benchmark import metrics
from diffputer.benchmark.metrics import (
    coverage,
    crps,
    end_rank,
    energy_distance,
    rank_histogram,
    two_sample_auc,
)
from diffputer.benchmark.parts import Part
from diffputer.errors import SettingError


@pytest.mark.parametrize("n_draws", [19, 39, 59])
def test_exact_draws_cover_what_they_say(n_draws):
    rng = np.random.default_rng(0)
    truth, draws = rng.standard_normal(40_000), rng.standard_normal((n_draws, 40_000))
    assert coverage(truth, draws) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 40_000))
    assert coverage(truth, 0.5 * draws) < 0.75
    assert coverage(truth, 2.0 * draws) > 0.98


@pytest.mark.parametrize("n_draws", [0, 1, 10, 18, 20, 40])
def test_other_numbers_of_draws_are_refused(n_draws):
    with pytest.raises(SettingError, match="19, 39, 59"):
        end_rank(n_draws)


def test_crps_is_that_of_the_distribution_whatever_the_number_of_draws():
    # Of a standard normal at y: y (2 Phi(y) - 1) + 2 phi(y) - 1 / sqrt(pi).
    truth = np.full(200_000, 0.7)
    expected = 0.7 * (2 * stats.norm.cdf(0.7) - 1) + 2 * stats.norm.pdf(0.7) - 1 / np.sqrt(np.pi)
    for n_draws in (2, 19):
        draws = np.random.default_rng(n_draws).standard_normal((n_draws, len(truth)))
        assert crps(truth, draws) == pytest.approx(expected, abs=0.006)


def test_crps_by_hand():
    draws = np.array([[0.0, 5.0], [2.0, 5.0], [1.0, 5.0]])
    # |X - 3|: 3, 1, 2; |X - X'| over pairs: 2, 1, 1.
    assert crps(np.array([3.0, 5.0]), draws) == pytest.approx(((2 - 0.5 * 4 / 3) + 0) / 2)


def test_ranks_are_level_for_exact_draws_with_and_without_ties():
    rng = np.random.default_rng(1)
    truth, draws = rng.standard_normal(20_000), rng.standard_normal((19, 20_000))
    for known, drawn in ((truth, draws), (np.maximum(truth, 0), np.maximum(draws, 0))):
        counts = rank_histogram(known, drawn)
        assert sum(counts) == 20_000
        assert stats.chisquare(counts).pvalue > 0.001
    narrow = rank_histogram(truth, 0.5 * draws)
    assert min(narrow[0], narrow[-1]) > 2 * max(narrow[3:7])
    assert rank_histogram(truth, draws) == rank_histogram(truth, draws)
    with pytest.raises(SettingError, match="bins"):
        rank_histogram(truth, draws, bins=7)


def test_spikes_do_not_make_an_exact_sampler_seem_too_wide() -> None:
    # Two thirds of the values are zero, in the truth and in its draws alike.
    rng = np.random.default_rng(3)
    values = np.maximum(rng.normal(size=(20, 40_000)) - 0.43, 0)
    assert coverage(values[0], values[1:]) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 40_000))


def test_energy_distance_is_that_of_the_distributions():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((5_000, 1))
    # Against a constant at 0: 2 E|Y| - E|Y - Y'| with E|Y| = sqrt(2 / pi), E|Y - Y'| = 2 / sqrt(pi).
    constant = energy_distance(truth, [np.zeros(truth.shape)])
    assert constant == pytest.approx(2 * np.sqrt(2 / np.pi) - 2 / np.sqrt(np.pi), abs=0.03)
    assert energy_distance(truth, [truth]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n", [5, 50])
def test_energy_distance_of_exact_draws_is_zero_on_average_however_few_the_rows(n):
    # Two columns with correlation 0.8; the second is drawn anew given the first.
    rng = np.random.default_rng(n)
    found = []
    for _ in range(20_000 // n):
        first = rng.standard_normal(n)
        truth, draw = (np.column_stack([first, 0.8 * first + 0.6 * rng.standard_normal(n)]) for _ in range(2))
        found.append(energy_distance(truth, [draw]))
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(len(found))
    assert np.mean(found) < 0.02


def test_energy_distance_sees_that_columns_vary_together():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(1_000)
    truth = np.column_stack([x, x])
    shuffled = np.column_stack([x, rng.permutation(x)])
    assert energy_distance(truth, [shuffled]) > 0.05
    assert energy_distance(truth, [rng.permutation(truth)]) == pytest.approx(0, abs=0.01)


def pair_with_draws(n, rng, make):
    """Two columns with correlation 0.8, the second of two thirds of the rows imputed, and three draws."""
    first = rng.standard_normal(n)
    truth = np.column_stack([first, 0.8 * first + 0.6 * rng.standard_normal(n)])
    gone = rng.random(n) < 2 / 3
    draws = [np.column_stack([first, np.where(gone, make(first), truth[:, 1])])[gone] for _ in range(3)]
    return truth[gone], draws


def test_auc_of_exact_draws_is_one_half_and_that_of_means_is_not():
    rng = np.random.default_rng(0)
    makers = {
        "exact": lambda x: 0.8 * x + 0.6 * rng.standard_normal(len(x)),
        "conditional mean": lambda x: 0.8 * x,
        "column mean": lambda x: 0 * x,
        "marginal": lambda x: rng.standard_normal(len(x)),
    }
    found = {name: two_sample_auc(*pair_with_draws(600, rng, make)) for name, make in makers.items()}
    assert found["exact"] == pytest.approx(0.5, abs=0.03)
    assert found["marginal"] > 0.6
    assert min(found["conditional mean"], found["column mean"]) > 0.9


def test_auc_of_exact_draws_is_one_half_however_few_the_rows(monkeypatch):
    # Were twins in different folds, their observed cells would give rows away, under the other label: below.
    monkeypatch.setattr(metrics, "AUC_TREES", 10)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(60):
        seen = rng.standard_normal(12)
        truth, draw = (np.column_stack([seen, rng.standard_normal(12)]) for _ in range(2))
        found.append(two_sample_auc(truth, [draw]))
    assert abs(np.mean(found) - 0.5) < 4 * np.std(found) / np.sqrt(len(found))


def test_auc_of_a_part_counts_categories_and_rounds_whole_numbers():
    rng = np.random.default_rng(2)
    n = 300
    truth = pd.DataFrame({"x": rng.normal(size=n), "whole": rng.integers(0, 9, n).astype(float)})
    truth["level"] = np.where(truth["x"] > 0, "high", "low")
    scored = np.zeros((n, 3), dtype=bool)
    scored[:200, 1:] = True
    part = Part("in_sample", truth, truth.mask(scored), scored, np.ones(2), ("level",))
    near = truth.assign(whole=truth["whole"] + rng.uniform(-0.4, 0.4, n))
    assert part.score_auc([near]) == 0.5
    foreign = truth.assign(level=np.where(scored[:, 2], "high", truth["level"]))
    assert part.score_auc([foreign]) > 0.6
    other_rows = truth.assign(x=np.where(scored[:, 1], truth["x"], 99.0))
    assert part.score_auc([other_rows]) == 0.5  # rows without a hidden cell do not count
    assert part.first(4).score_auc([truth[:4]]) is None

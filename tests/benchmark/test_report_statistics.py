"""The tests give the numbers of published worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from diffputer.benchmark.report.statistics import (
    compare_pairs,
    correct_holm,
    find_cliques,
    find_critical_difference,
    rank_rows,
    run_friedman,
)
from diffputer.errors import InputError

#: Demsar (2006), table 6: ranks by AUC of C4.5, +m, +cf, +m+cf on 14 data sets.
DEMSAR = np.array(
    [
        [4, 3, 2, 1], [1, 2, 3, 4], [4, 1, 2, 3], [4, 1, 3, 2], [4, 2, 3, 1], [1, 2.5, 4, 2.5], [3, 2, 4, 1],
        [2.5, 2.5, 4, 1], [4, 3, 2, 1], [2.5, 2.5, 2.5, 2.5], [4, 2.5, 1, 2.5], [3, 2, 4, 1], [4, 1, 2, 3],
        [3, 1, 4, 2],
    ]
)  # fmt: skip


def test_friedman_and_nemenyi_give_the_numbers_of_demsar():
    test = run_friedman(DEMSAR)
    assert test.n == 14
    assert [round(rank, 3) for rank in test.ranks] == [3.143, 2.0, 2.893, 1.964]
    assert round(test.chi2, 2) == 9.28
    assert round(test.f, 2) == 3.69
    assert test.p == pytest.approx(0.019, abs=1e-3)  # critical value of F(3, 39) at 0.05: 2.85
    assert round(test.critical_difference, 2) == 1.25


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_values_are_those_of_the_printed_table(k, q):
    assert find_critical_difference(k, 6) == pytest.approx(q * np.sqrt(k * (k + 1) / 36), abs=2e-3)


def test_methods_that_are_always_in_order_and_methods_that_are_equal():
    ordered = run_friedman(np.tile([1.0, 2.0, 3.0], (5, 1)))
    assert ordered.ranks == (1.0, 2.0, 3.0)
    assert (ordered.p, ordered.how) == (pytest.approx(6 / 6**5), "exact")
    equal = run_friedman(np.ones((5, 3)))
    assert equal.chi2 == 0.0
    assert equal.p == 1.0


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (3, 0.25), (4, 0.125)])
def test_two_methods_on_few_data_sets_cannot_be_told_apart_however_well_ranks_agree(n, p):
    test = run_friedman(np.tile([1.0, 2.0], (n, 1)))
    assert (test.f, test.p, test.how) == (np.inf, p, "exact")


def test_friedmans_p_is_exact_where_it_can_be_and_never_smaller_than_there_can_be():
    # Printed tables (Hollander and Wolfe): for 3 methods on 4 data sets chi2 >= 6.5 has p = 0.042.
    table = run_friedman(np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 3, 2]]))
    assert (round(table.chi2, 2), round(table.p, 3)) == (6.5, 0.042)
    tied = run_friedman(np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0]]))
    assert tied.p == pytest.approx(1 / 3)  # the one that is worst may be any of the three
    many = run_friedman(np.tile(np.arange(6.0), (3, 1)))
    assert (many.p, many.how) == (1 / 720**2, "smallest")
    assert run_friedman(DEMSAR).how == "F"


def test_too_few_to_rank_is_refused():
    with pytest.raises(InputError, match="two methods on two data sets"):
        run_friedman(np.ones((1, 3)))


def test_ties_share_ranks():
    assert rank_rows(np.array([[0.2, 0.1, 0.2], [3.0, 2.0, 1.0]])).tolist() == [[2.5, 1.0, 2.5], [3, 2, 1]]


def test_holm_gives_the_numbers_of_his_rule():
    assert correct_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_holm([0.6, 0.7]) == [1.0, 1.0]
    assert correct_holm([]) == []


def test_pairs_are_counted_and_tested():
    # All 8 differences have one sign: of 2^8 patterns of signs, two are as far out.
    better = np.arange(1.0, 9.0)
    pairs = compare_pairs(np.column_stack([np.zeros(8), better, better]))
    first, _, last = pairs
    assert (first.wins, first.ties, first.losses) == (8, 0, 0)
    assert first.p == pytest.approx(2 / 2**8)
    assert first.p_holm == pytest.approx(3 * 2 / 2**8)
    assert first.median_difference == -4.5
    assert (last.ties, last.p, last.p_holm) == (8, 1.0, 1.0)


def test_wilcoxon_with_ties_among_the_differences_does_not_warn():
    (pair,) = compare_pairs(np.column_stack([np.zeros(12), [1.0, 1.0, -1.0, 2.0, 2.0, 3.0] * 2]))
    assert 0.0 < pair.p < 0.05


def test_cliques_are_the_longest_runs():
    assert find_cliques([1.0, 2.0, 3.0], 0.5) == []
    assert find_cliques([1.0, 1.2, 1.4, 3.0, 3.1], 0.5) == [(0, 2), (3, 4)]
    assert find_cliques([1.0, 1.4, 1.8], 5.0) == [(0, 2)]

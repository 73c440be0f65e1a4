"""Rows that compare and rows that do not; entries and their names; leaderboards on common tasks."""

from __future__ import annotations

import pytest

from diffputer.benchmark.report.document import make_boards
from diffputer.benchmark.report.entries import list_entries
from diffputer.benchmark.report.leaderboard import Leaderboard, make_leaderboard
from diffputer.benchmark.report.measures import MEASURES, find_measure
from diffputer.benchmark.report.records import admit_rows
from diffputer.errors import InputError, SettingError

from .report_rows import Row, fail, make_grid, make_row


def make_board(rows: list[Row], metric: str = "mae", setting: str = "out_of_sample", **more) -> Leaderboard:
    results = admit_rows(rows)
    return make_leaderboard(results.final, list_entries(results.final), MEASURES[metric], setting, **more)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol_version": "0"}, "protocol version 0, however: the newest here is 1"),
        ({"data_fingerprint": "other"}, "california has the fingerprint other"),
        ({"rows": "7"}, "scored on 7 rows of california"),
        ({"rate": "many"}, "no readable rate"),
        ({"rate": "1.5"}, "no readable rate"),
        ({"mask_seed": "0.5"}, "no readable mask_seed"),
        ({"setting": "both"}, "'both' is neither"),
        ({"dataset": ""}, "has no dataset"),
        ({"mae": "-3"}, "an error must not be negative, however: mae is -3"),
        ({"crps": "-0.1"}, "crps is -0.1"),
        ({"accuracy": "70"}, "between 0 and 1, however: accuracy is 70"),
    ],
)
def test_rows_that_do_not_compare_are_refused_and_named(changes, words):
    good = [make_row(mask=mask) for mask in range(3)]
    results = admit_rows([*good, make_row("mice", mask=3) | changes])
    assert len(results.final) == 3
    (refusal,) = results.refused
    assert words in refusal.reason
    assert len(refusal.rows) == 1
    assert "mice" in refusal.rows[0]


def test_rows_of_another_version_of_one_dataset_do_not_hurt_the_others():
    rows = [make_row(dataset="letter"), make_row(), make_row("mice"), make_row("em", data_fingerprint="old")]
    results = admit_rows(rows)
    assert {(r.method, r.dataset) for r in results.final} == {
        ("knn", "letter"), ("knn", "california"), ("mice", "california"),
    }  # fmt: skip


def test_the_last_of_repeated_rows_counts_and_is_named():
    again = make_row(mae="0.4")
    results = admit_rows([make_row(), fail(make_row("mice")), again])
    assert [r.values.get("mae") for r in results.final] == [0.4, None]
    assert len(results.repeated) == 1
    assert results.repeated[0].startswith("california/mcar/0.3/0 out_of_sample knn")
    assert make_board([make_row(), fail(again)]).scores.popitem()[1].failures == {0: "MemoryError: no room"}


def test_rows_may_be_numbers_and_lack_columns():
    row = {"dataset": "toy", "mechanism": "MCAR", "rate": 0.3, "mask_seed": 0, "setting": "in_sample"}
    (record,) = admit_rows([row | {"method": "knn", "mae": 0.25, "em_round": None}]).final
    assert record.values == {"mae": 0.25}
    assert record.mechanism == "mcar"


def test_a_score_that_is_no_number_is_a_failure():
    (record,) = admit_rows([make_row(mae="nan")]).final
    assert "mae is nan" in record.error
    assert "mae" not in record.values


def test_rows_of_em_rounds_are_a_curve_and_no_result():
    results = admit_rows([make_row(em_round="1", rows="20"), make_row(em_round="2", rows="20"), make_row()])
    assert [r.em_round for r in results.curve] == [1, 2]
    assert len(results.final) == 1
    assert not results.refused


def test_entries_are_named_by_method_then_label_then_what_differs():
    rows = [
        make_row("mean", label="two cores"),
        make_row("knn", label="few", settings={"k": 5}),
        make_row("knn", label="many", settings={"k": 50}),
        make_row("mice", label="same", settings={"steps": 1, "seed": 0}),
        make_row("mice", label="same", settings={"steps": 2, "seed": 0}),
        make_row("em", settings={}, settings_hash="aaaaaaaa"),
        make_row("em", settings={}, settings_hash="bbbbbbbb"),
    ]
    names = [entry.name for entry in list_entries(admit_rows(rows).final).values()]
    assert names == [
        "mean", "knn: few", "knn: many", "mice, steps=1", "mice, steps=2",
        "em [aaaaaa]", "em [bbbbbb]",
    ]  # fmt: skip


def test_entries_whose_settings_follow_from_devices_are_named_by_them():
    rows = [
        make_row("ours", label="usual", settings={"width": 512, "depth": 4}, device="NVIDIA H200"),
        make_row("ours", label="usual", settings={"width": 64, "depth": 2}, device="A", threads="1"),
        make_row("ours", label="quick", settings={"width": 8, "depth": 1}, device="B", threads="2"),
    ]
    names = [entry.name for entry in list_entries(admit_rows(rows).final).values()]
    assert names == ["ours: usual on NVIDIA H200", "ours: usual on a CPU", "ours: quick"]
    names = [entry.name for entry in list_entries(admit_rows(rows[:2]).final).values()]
    assert names == ["ours on NVIDIA H200", "ours on a CPU"]


def test_entries_know_their_name_in_the_paper():
    rows = [make_row(name) for name in ("diffputer-conditional", "mean", "gbt-per-column", "unheard-of")]
    published = [entry.published for entry in list_entries(admit_rows(rows).final).values()]
    assert published == ["diffputer", "mean_mode", None, None]


def test_means_and_deviations_are_over_masks():
    board = make_board([make_row(mask=m, mae=v) for m, v in enumerate(("0.1", "0.2", "0.6"))])
    score = board.score(board.entries[0], "california")
    assert score.mean == pytest.approx(0.3)
    assert score.deviation == pytest.approx(0.26457513)
    assert make_board([make_row()]).scores.popitem()[1].deviation is None


def test_a_leaderboard_of_several_rates_is_refused():
    with pytest.raises(InputError, match=r"one rate.*mcar 0\.3, mcar 0\.5"):
        make_board([make_row(), make_row(rate="0.5")])
    results = admit_rows([make_row(), make_row(rate="0.5"), make_row(mechanism="mar")])
    boards = make_boards(results, list_entries(results.final), ["mae"])
    assert [(b.mechanism, b.rate) for b in boards] == [("mar", 0.3), ("mcar", 0.3), ("mcar", 0.5)]


def test_ranks_are_on_common_tasks_and_say_who_is_left_out():
    datasets = ["california", "letter", "adult"]
    rows = make_grid({"a": [0.1, 0.3, 0.3], "b": [0.2, 0.2, 0.4]}, datasets, masks=2)
    rows += [make_row("c", "letter", mae="0.01")]
    board = make_board(rows)
    assert [e.name for e in board.ranked] == ["a", "b"]
    assert [e.name for e in board.left_out] == ["c"]
    assert len(board.tasks) == 6
    assert board.mean_ranks == pytest.approx({board.ranked[0].key: 4 / 3, board.ranked[1].key: 5 / 3})
    assert board.average(board.ranked[0]) == pytest.approx(0.7 / 3 + 0.0005)
    assert board.average(board.left_out[0]) is None
    assert board.left_out[0].key not in board.places("letter")  # the best by far, but on other masks


def test_an_entry_that_must_be_ranked_is_and_others_are_left_out_for_it():
    datasets = ["california", "letter", "adult"]
    rows = make_grid({"a": [0.1, 0.3, 0.3], "b": [0.2, 0.2, 0.4]}, datasets, masks=2)
    rows += make_grid({"c": [0.2]}, ["letter"], settings={"k": 1})
    rows += make_grid({"c": [0.1, 0.1]}, ["letter", "adult"], settings={"k": 2})
    board = make_board(rows, rank=["c"])
    assert [e.name for e in board.ranked] == [
        "c, k=2",
        "a",
        "b",
    ]  # of a method's entries that with most tasks
    assert board.tasks == (("adult", 0), ("letter", 0))
    board = make_board(rows, rank=["C, k=1", "nowhere"])
    assert board.tasks == (("letter", 0),)
    assert len(board.ranked) == 4


def test_places_are_by_the_masks_that_all_ranked_have_and_nobody_is_best_alone():
    rows = [make_row("a", mask=0, mae="0.3"), make_row("a", mask=1, mae="0.1"), make_row("b", mae="0.25")]
    board = make_board(rows)
    a, b = sorted(board.entries, key=lambda e: e.name)
    assert board.score(a, "california").mean < board.score(b, "california").mean
    assert board.places("california") == {b.key: 1, a.key: 2}
    assert board.average_places == {b.key: 1, a.key: 2}
    alone = make_board([make_row("a"), make_row("b", mask=1)])
    assert alone.places("california") == {}
    assert alone.average_places == {}


def test_an_entry_with_all_common_tasks_is_ranked_whatever_came_before():
    rows = make_grid({"a": [0.1, 0.2, 0.3], "b": [0.2, 0.2, 0.4]}, ["california", "letter", "adult"])
    rows += make_grid({"odd": [0.1] * 5}, ["bean", "magic", "gesture", "news", "default"])
    rows += make_grid({"c": [0.3, 0.3, 0.3]}, ["california", "letter", "adult"])
    assert {e.name for e in make_board(rows).ranked} >= {"a", "b", "c"}


def test_high_accuracy_and_coverage_near_90_percent_come_first():
    rows = [make_row("a", accuracy="0.6", coverage="0.99"), make_row("b", accuracy="0.7", coverage="0.88")]
    assert [e.name for e in make_board(rows, "accuracy").entries] == ["b", "a"]
    assert [e.name for e in make_board(rows, "coverage").entries] == ["b", "a"]


def test_an_energy_distance_below_zero_is_no_better_than_one_as_far_above():
    rows = [make_row("a", energy="-0.03"), make_row("b", energy="0.02"), make_row("c", energy="0.04")]
    board = make_board(rows, "energy")
    assert [e.name for e in board.entries] == ["b", "a", "c"]
    assert board.measure.heading == "Energy distance (× 100)"
    assert board.measure.direction == "0 is best"


def test_scores_of_draws_of_other_rows_are_refused():
    rows = [make_row("a", crps="0.1", rows_drawn="50"), make_row("b", crps="0.2", rows_drawn="50")]
    board = make_board([*rows, make_row("c", crps="0.01", rows_drawn="7")], "crps")
    assert [e.name for e in board.entries] == ["a", "b"]
    assert "drew 7 rows" in board.refused[0][1]
    assert " c " in board.refused[0][0]


def test_failures_keep_their_reason_and_cannot_is_no_failure():
    cannot = "InSampleOnlyError: The method 'x' completes only the table that it is fitted on"
    board = make_board([make_row(), fail(make_row("mice")), fail(make_row("hyperimpute"), cannot)])
    scores = {entry.name: board.score(entry, "california") for entry in board.entries}
    assert scores["mice"].failures == {0: "MemoryError: no room"}
    assert not scores["mice"].cannot
    assert scores["hyperimpute"].cannot
    assert not scores["hyperimpute"].failures


def test_ratios_leave_doubtful_and_missing_numbers_out():
    numbers = {"california": (0.4, False), "letter": (0.1, True)}
    rows = make_grid({"diffputer-paper": [0.2, 0.2, 0.2]}, ["california", "letter", "toy"])
    board = make_board(rows, lookup=lambda dataset, *_: numbers.get(dataset))
    (entry,) = board.entries
    assert board.average_ratio(entry) == (pytest.approx(0.5), 1)
    assert board.score(entry, "california").differs
    assert not board.score(entry, "letter").differs
    assert board.score(entry, "toy").ratio is None


def test_published_numbers_are_of_their_own_rate_and_method():
    published = make_board([make_row("diffputer-paper", mae="0.3347")])
    assert published.score(published.entries[0], "california").ratio == pytest.approx(1.0)
    other = make_board([make_row("diffputer-paper", rate="0.5"), make_row("gbt-per-column", rate="0.5")])
    assert all(score.published is None for score in other.scores.values())


def test_the_ablation_of_generators_has_the_papers_numbers_beside_ours():
    measured = {"miwae": [0.5, 0.6], "em-miwae": [0.5, 0.6], "diffputer-paper": [0.3, 0.3]}
    board = make_board(make_grid(measured, ["adult", "news"], setting="in_sample"), setting="in_sample")
    by_name = {entry.name: entry for entry in board.entries}
    score = board.score(by_name["em-miwae"], "adult")
    assert (score.published, score.doubtful) == (0.5661, True)
    assert score.ratio == pytest.approx(0.5 / 0.5661)
    assert board.score(by_name["miwae"], "news").published == 0.6349
    assert board.score(by_name["diffputer-paper"], "news").published == 0.2855


def test_unknown_metrics_are_refused():
    with pytest.raises(SettingError, match="mae, rmse"):
        find_measure("mse")


def test_a_method_without_draws_has_not_failed_at_them():
    rows = [make_row("a", crps="0.1"), make_row("a", "letter", crps="0.1"), make_row("b", crps="")]
    rows.append(fail(make_row("b", "letter")))
    assert [e.name for e in make_board(rows, "crps").entries] == ["a"]
    assert [e.name for e in make_board(rows).entries] == ["a", "b"]
    rows[2] = fail(make_row("b"))
    assert [e.name for e in make_board(rows, "crps").entries] == ["a", "b"]

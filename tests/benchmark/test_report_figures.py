"""Figures are drawn of any rows whatever, and leave out only what the rows do not have."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from diffputer.benchmark.report.document import make_report
from diffputer.benchmark.report.drawing import save_svg, style_entries, wrap
from diffputer.benchmark.report.entries import Entry
from diffputer.benchmark.report.gallery import save_pictures
from diffputer.benchmark.report.pareto import find_front
from diffputer.benchmark.report.records import admit_rows

from .report_rows import Row, fail, make_grid, make_row

THREE = ["california", "letter", "adult"]


def draw(rows: list[Row], measures=("mae",)) -> dict[str, Figure]:
    report = make_report(admit_rows(rows), measures=measures, pictures=True)
    for picture in report.pictures:
        save_svg(picture.figure, buffer := io.BytesIO())
        ElementTree.fromstring(buffer.getvalue())
    return {picture.name: picture.figure for picture in report.pictures}


def find_words(figure: Figure) -> str:
    """Title and note of a figure, in one line."""
    return " ".join(" ".join(text.get_text().split()) for text in figure.texts)


BOARD = "mae-out_of_sample-mcar-0.3"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([make_row()], {"bars", "seconds", "seconds-by-dataset"}),
        (make_grid({"knn": [0.3, 0.4, 0.5]}, THREE), {"bars", "seconds", "seconds-by-dataset"}),
        (make_grid({"knn": [0.3], "mice": [0.4]}, ["toy"]), {"bars", "seconds", "seconds-by-dataset"}),
        ([fail(make_row()), fail(make_row("mice"))], {"bars"}),
        (make_grid({"knn": [0.3, 0.4], "mice": [0.4, 0.5]}, THREE[:2], fit_seconds=""), {"bars", "ranks"}),
        (make_grid({"knn": [0.0], "mice": [0.0]}, ["toy"], fit_seconds="0", transform_seconds="0"), {"bars"}),
        (make_grid({"a$b": [0.3, 0.4], "x_{": [0.3, 0.4]}, ["$", "<&>"], masks=2), None),
    ],
)
def test_figures_are_drawn_of_any_rows(rows, expected):
    names = draw(rows)
    if expected is not None:
        assert set(names) == {f"{name}-{BOARD}" for name in expected}


def test_seconds_and_coverage_are_drawn():
    rows = [
        make_row(method, fit_seconds=seconds, coverage="0.8", rows_drawn="9")
        for method, seconds in (("mean", "0.01"), ("mice", "5"), ("knn", "9000"))
    ]
    figures = draw(rows, ("seconds", "coverage"))
    assert figures["bars-seconds-out_of_sample-mcar-0.3"].axes[0].get_xscale() == "log"
    assert "bars-coverage-out_of_sample-mcar-0.3" in figures


def test_bars_are_bold_as_cells_of_tables_are():
    """An entry that lacks a common task is not best, however good it is on others."""
    rows = make_grid({"knn": [0.3, 0.4], "mice": [0.4, 0.3]}, THREE[:2], masks=2)
    rows += [make_row("median", "california", 0, mae="0.1")]
    figure = draw(rows)[f"bars-{BOARD}"]
    bold = [[t.get_text() for t in axes.texts if t.get_fontweight() == "bold"] for axes in figure.axes]
    assert bold == [["30.05"], ["30.05"]]
    assert "bold: best of the ranked entries" in find_words(figure)
    alone = draw([make_row()])[f"bars-{BOARD}"]
    assert not [t for t in alone.axes[0].texts if t.get_fontweight() == "bold"]
    assert "bold" not in find_words(alone)


def test_curves_need_points_that_differ_in_one_thing_only():
    rows = [make_row("diffputer-paper", settings={"n_draws": n, "lr": 1}, mae=str(1 / n)) for n in (1, 5)]
    rows += [make_row("diffputer-paper", settings={"n_draws": 9, "lr": 2})]
    figure = draw(rows)[f"draws-{BOARD}"]
    (line,) = figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [1.0, 5.0]


def test_lines_do_not_join_points_whose_labels_tell_of_more_than_the_setting():
    rows = [
        make_row("diffputer-paper", settings={"sampling_steps": steps}, label=label)
        for steps, label in ((5, "M = 5"), (10, "without the rank channel"), (20, "base"))
    ]
    rows[0]["fit_seconds"] = "2.1"
    figure = draw(rows)[f"steps-{BOARD}"]
    (line,) = figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [5.0, 20.0]
    low, high = figure.axes[1].get_ylim()
    assert (low, high) == (0.0, pytest.approx(1.08 * 3.1))


def test_points_of_a_curve_are_of_the_same_masks():
    rows = [
        make_row("diffputer-paper", mask=mask, settings={"sampling_steps": steps}, mae=str(0.1 * (mask + 1)))
        for steps, masks in ((5, (0, 1)), (50, (0,)))
        for mask in masks
    ]
    figure = draw(rows)[f"steps-{BOARD}"]
    assert figure.axes[0].get_lines()[0].get_ydata().tolist() == pytest.approx([10.0, 10.0])
    assert figure.axes[1].get_ylabel() == "Fit and complete (s)"


def test_em_rounds_and_shares_of_missing_cells():
    rows = [make_row("diffputer-paper", em_round=str(k), rows="20", mae=str(0.5 / k)) for k in (1, 2, 3)]
    rows += [make_row("diffputer-paper", rate=rate) for rate in ("0.1", "0.3", "0.5")]
    figures = draw(rows)
    rounds = figures[f"em-rounds-{BOARD}"]
    assert rounds.axes[0].get_lines()[0].get_ydata().tolist() == pytest.approx([50.0, 25.0, 50 / 3])
    shares = figures["rates-mae-out_of_sample-mcar"]
    names = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in (rounds, shares)]
    assert "DiffPuter, published" not in names[0]  # it is of whole tables
    assert names[1][-1] == "DiffPuter, published"


def test_shares_of_missing_cells_name_what_failed_and_whiskers_end_at_zero():
    rows = [
        make_row("knn", rate=rate, mask=mask, mae=mae)
        for rate in ("0.3", "0.5")
        for mask, mae in ((0, "0.01"), (1, "0.9"))
    ]
    rows += [make_row("mice", rate=rate) for rate in ("0.3", "0.5")]
    rows += [fail(make_row("mice", dataset, rate="0.9")) for dataset in ("adult", "california")]
    rows += [fail(make_row("mean", rate="0.9"), "InSampleOnlyError: no")]
    figure = draw(rows)["rates-mae-out_of_sample-mcar"]
    assert "Failed, on some mask at least: mice at 90 % (california, adult)." in find_words(figure)
    (bars,) = [part for part in figure.axes[0].collections if len(part.get_segments()) == 2]
    assert all(low == pytest.approx(0) and high > 100 for (_, low), (_, high) in bars.get_segments())


def test_a_line_over_a_setting_is_not_named_after_one_of_its_values():
    rows = [
        make_row("diffputer-paper", settings={"n_draws": n, "lr": lr}, label=f"N = {n}", mae=str(lr / n))
        for n in (1, 5)
        for lr in (1, 2)
    ]
    for some, names in ((rows[::2], ["diffputer-paper"]), (rows, ["lr=1", "lr=2"])):
        legend = draw(some)[f"draws-{BOARD}"].legends[0]
        words = [text.get_text().removeprefix("diffputer-paper, ") for text in legend.get_texts()]
        assert words == names


def test_the_front_has_what_nothing_beats():
    assert find_front([(1.0, 9.0), (1.0, 8.0), (2.0, 8.0), (3.0, 1.0)]) == [1, 3]
    assert find_front([]) == []


def test_fronts_do_not_join_seconds_of_different_devices():
    rows = [
        make_row(method, mae=error, fit_seconds=seconds, device=device)
        for method, error, seconds, device in (
            ("mean", "0.8", "1", "CPU"), ("knn", "0.5", "9", "CPU"), ("em", "0.6", "2", "GPU"),
            ("mice", "0.4", "20", "GPU"), ("median", "0.3", "5", "TPU"),
        )
    ]  # fmt: skip
    figures = draw(rows)
    for name in ("seconds", "seconds-by-dataset"):
        figure = figures[f"{name}-{BOARD}"]
        (axes,) = figure.axes
        fronts = [line for line in axes.get_lines() if len(line.get_xdata()) > 1]
        assert sorted([round(x) for x in line.get_xdata()] for line in fronts) == [[2, 10], [3, 21]]
        legend = axes.get_legend() or figure.legends[0]
        words = [text.get_text() for text in legend.get_texts() if "front" in text.get_text()]
        assert words == ["Pareto front ①", "Pareto front ②"]


def test_a_panel_has_the_devices_of_its_own_data_set():
    rows = [
        make_row(method, dataset, mae=error, fit_seconds=seconds, device="A", threads=threads)
        for method, dataset, error, seconds, threads in (
            ("mean", "letter", "0.8", "1", "1"), ("forest", "letter", "0.5", "9", "1"),
            ("mean", "news", "0.8", "1", "1"), ("forest", "news", "0.5", "9", "10"),
        )
    ]  # fmt: skip
    figure = draw(rows)[f"seconds-by-dataset-{BOARD}"]
    fronts = {
        axes.get_title(loc="left"): [line for line in axes.get_lines() if len(line.get_xdata()) > 1]
        for axes in figure.axes
    }
    assert {name: len(lines) for name, lines in fronts.items()} == {"letter": 1, "news": 0}


def test_both_figures_of_seconds_have_those_of_an_idle_machine_and_name_who_had_none():
    rows = [
        make_row("knn", mask=0, fit_seconds="1", transform_seconds="1", alone="True"),
        make_row("knn", mask=1, fit_seconds="99", transform_seconds="1", alone="False"),
        make_row("mice", mask=0, fit_seconds="6", transform_seconds="1", alone="False"),
        make_row("mice", mask=1, fit_seconds="8", transform_seconds="1", alone="False"),
    ]
    figures = draw(rows)
    for name in ("seconds", "seconds-by-dataset"):
        figure = figures[f"{name}-{BOARD}"]
        points = [line.get_xdata().tolist() for line in figure.axes[0].get_lines()]
        assert sorted(x for xs in points if len(xs) == 1 for x in xs if x < 50) == pytest.approx([2, 8])
        assert "so that seconds are too many: mice." in find_words(figure)
        assert "MAE (× 100), out of sample, MCAR 30 %, against seconds" in find_words(figure)


def test_an_entry_looks_the_same_in_all_figures_of_a_report():
    rows = [make_row("em", "adult", device="GPU", accuracy="0.5", mae="", rmse="")]
    rows += [make_row(m, "adult", accuracy=a, mae=a) for m, a in (("mean", "0.4"), ("knn", "0.6"))]
    rows += [make_row("mice", "adult", mae="0.1", device="TPU")]
    figures = draw(rows, ("mae", "accuracy"))
    looks = {}
    for measure in ("mae", "accuracy"):
        figure = figures[f"seconds-by-dataset-{measure}-out_of_sample-mcar-0.3"]
        for line in figure.legends[0].legend_handles:
            if line.get_label().startswith(("mean", "knn")):
                looks.setdefault(line.get_label(), []).append((line.get_marker(), line.get_color()))
    assert set(looks) == {"mean ②", "knn ②"}
    assert all(first == second for first, second in looks.values())


def test_styles_differ_in_black_and_white():
    styles = style_entries([Entry(("method", str(i)), str(i)) for i in range(30)]).values()
    seen = {
        (s["marker"], "colour" if s["markerfacecolor"] == s["color"] else s["markerfacecolor"])
        for s in styles
    }
    assert len(seen) == 30


def test_figures_are_saved_twice_and_the_same_each_time(tmp_path):
    rows = make_grid({"knn": [0.3, 0.4], "mice": [0.4, 0.5]}, THREE[:2])
    contents = []
    for folder in ("a", "b"):
        pictures = make_report(admit_rows(rows), measures=("mae",), pictures=True).pictures
        save_pictures(pictures, tmp_path / folder)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert contents[0] == contents[1]
    assert f"ranks-{BOARD}.png" in contents[0]
    assert f"ranks-{BOARD}.svg" in contents[0]


def test_long_names_are_broken_and_cut():
    assert wrap("a " * 60, 10, 2).count("\n") == 1
    assert wrap("") == ""

"""The picture: every column gets a panel that says the right thing, whatever the column holds."""

from __future__ import annotations

import datetime as dt
import io
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.integrate
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from diffputer.analysis import plots
from diffputer.analysis.plots import plot_column, plot_distributions
from diffputer.errors import DataWarning, InputError
from diffputer.tables.frames import read_table
from diffputer.tables.kinds import describe


def odd_table(n=120):
    """Every kind of column, and those that break histograms."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "money $_{": rng.lognormal(20, 3, n),
            "tiny": rng.normal(size=n) * 1e-300,
            "spike": np.where(rng.random(n) < 0.95, 0.0, 1e9),
            "children": rng.poisson(1.4, n),
            "wide integer": rng.integers(-(2**40), 2**40, n),
            "constant": 5.0,
            "constant date": pd.Timestamp("2020-02-02"),
            "single": np.r_[1.0, np.full(n - 1, np.nan)],
            "nothing": np.full(n, np.nan),
            "flag": rng.random(n) < 0.3,
            "town": rng.choice(["Ulm", "a $b_{ town\nwith a very long name indeed"], n),
            "many": rng.choice([f"level {i}" for i in range(25)], n),
            "id": [f"id{i}" for i in range(n)],
            "day": pd.Timestamp("1980-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), unit="D"),
            "zoned": pd.Timestamp("2024-01-01", tz="Europe/Rome")
            + pd.to_timedelta(rng.integers(0, 99, n), unit="min"),
            "wait": pd.to_timedelta(rng.exponential(3000, n), unit="s"),
            "clock": [dt.time(int(hour), 30) for hour in rng.integers(6, 22, n)],
        }
    )


def described(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return describe(read_table(frame))


def draw(figure):
    sink = io.BytesIO()
    figure.savefig(sink, dpi=40)
    return sink.getvalue()


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("with_truth", [False, True])
def test_nothing_breaks_a_panel(share, with_truth):
    full = odd_table()
    holes = full.mask(np.random.default_rng(1).random(full.shape) < share)
    mask = holes.isna().to_numpy()
    figure = plot_distributions(holes, full, truth=full if with_truth else None)
    assert draw(figure).startswith(b"\x89PNG")
    assert len(figure.axes) == full.shape[1]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["observed", "imputed", "hidden truth"][: 2 + with_truth]
    heads = {axes.get_title("left").strip(): axes.get_title("right") for axes in figure.axes}
    assert heads["nothing"] == "100% missing"
    assert heads["number"] == (f"{mask[:, 0].mean():.0%} missing" if share else "complete")
    words = {axes.get_title("left").strip(): [text.get_text() for text in axes.texts] for axes in figure.axes}
    assert words["nothing"] == ["nothing observed, nothing filled"]
    assert words["id"] == ["passed through"]


@pytest.mark.parametrize(
    "convert", [pa.Table.from_pandas, lambda frame: frame.to_numpy()], ids=["arrow", "numpy"]
)
def test_containers(convert):
    rng = np.random.default_rng(0)
    full = pd.DataFrame({"x": rng.normal(size=50), "y": rng.normal(size=50)})
    holes = full.mask(rng.random(full.shape) < 0.3)
    figure = plot_distributions(convert(holes), convert(full))
    assert draw(figure)


def test_curves_are_densities_where_the_values_are():
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(0, 1, 500), np.full(500, np.nan)]
    full = pd.DataFrame({"x": np.where(np.isnan(x), rng.normal(3, 0.2, 1000), x)})
    holes = pd.DataFrame({"x": x})
    panel = plot_distributions(holes, full).axes[0]
    where, height = panel.lines[0].get_data()
    assert where[np.argmax(height)] == pytest.approx(3.0, abs=0.15)
    assert scipy.integrate.trapezoid(height, where) == pytest.approx(1.0, abs=0.05)
    assert len(panel.collections) == 1  # the grey area of what was observed


def test_levels_are_shares_with_the_truth_marked():
    holes = pd.DataFrame({"c": ["a", "a", "a", "b", None, None]})
    full, truth = holes.fillna("b"), holes.fillna("a")
    panel = plot_distributions(holes, full, truth=truth, schema=described(holes)).axes[0]
    assert [bar.get_width() for bar in panel.patches] == [0.75, 0.25, 0.0, 1.0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "b"]
    marks = [segment[0][0] for segment in panel.collections[0].get_segments()]
    assert marks == [1.0, 0.0]


def test_few_integers_are_steps_and_steep_numbers_logarithms():
    rng = np.random.default_rng(0)
    full = pd.DataFrame({"n": rng.integers(0, 5, 200), "m": rng.lognormal(5, 3, 200)})
    holes = full.mask(rng.random(full.shape) < 0.3)
    steps, steep = plot_distributions(holes, full).axes
    assert steps.patches[0].get_data().edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5]
    assert steep.get_xlim()[1] < 10
    assert steep.xaxis.get_major_formatter()(3) == "1,000"


def test_wide_tables_show_the_columns_with_most_holes():
    rng = np.random.default_rng(0)
    full = pd.DataFrame(rng.normal(size=(40, 30)), columns=[f"c{i}" for i in range(30)])
    mask = np.arange(40)[:, None] < np.arange(30)  # c29 has most
    figure = plot_distributions(full.mask(mask), full, max_panels=5)
    assert [axes.get_title("left") for axes in figure.axes] == ["c25", "c26", "c27", "c28", "c29"]
    assert "5 of 30 columns" in figure.get_supxlabel()


def test_shapes_must_agree():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    for wrong in ({"completed": frame.head(1)}, {"completed": frame, "truth": frame.head(1)}):
        with pytest.raises(InputError, match="rows and columns of the incomplete one"):
            plot_distributions(frame, **wrong)


def test_names_do_not_run_into_their_notes():
    frame = pd.DataFrame(
        {"a_name_of_eighteen": [1.0, 2.0, None], "x": [1.0, None, 2.0], "y": [1.0, 2.0, 3.0]}
    )
    figure = plot_distributions(frame, frame.fillna(1.5))
    figure.draw_without_rendering()
    for panel in figure.axes:
        title, note = panel._left_title, panel._right_title
        above = title.get_text().endswith("\n")
        assert above or title.get_window_extent().x1 < note.get_window_extent().x0


def test_values_of_several_completed_tables_are_put_together():
    holes = pd.DataFrame({"c": ["a", "a", "a", "b", None, None], "x": [1.0, 2.0, 3.0, 4.0, None, None]})
    draws = [holes.fillna({"c": "a", "x": 1.0}), holes.fillna({"c": "b", "x": 4.0})]
    levels, numbers = plot_distributions(holes, draws).axes
    assert [bar.get_width() for bar in levels.patches] == [0.75, 0.25, 0.5, 0.5]
    where, height = numbers.patches[-1].get_data()[1], numbers.patches[-1].get_data()[0]
    assert height[[0, -1]] == pytest.approx([0.5, 0.5])
    assert where[0] == 0.5
    assert (
        "2 cells filled 2 times"
        in plot_distributions(holes[["x"]], [d[["x"]] for d in draws]).get_supxlabel()
    )


def test_it_is_called_like_its_siblings():
    from inspect import signature

    from diffputer.analysis import plot_density, plot_pair, plot_strips, plot_uncertainty

    for sibling in (plot_density, plot_strips, plot_pair, plot_uncertainty, plot_distributions):
        names = list(signature(sibling).parameters)
        assert names[:2] == ["table", "completed"]
        assert signature(sibling).parameters["schema"].default is None


def test_one_column_on_given_axes():
    frame = pd.DataFrame({"x": [1.5, 2.0, 4.0]})
    cells = read_table(frame).cells[0]
    axes = Figure().add_subplot()
    assert plot_column(axes, described(frame)["x"], cells, cells, cells) is axes
    assert len(axes.lines) == 2


def test_it_can_be_read_in_black_and_white():
    grey = [
        float(np.dot(to_rgb(style["color"]), (0.299, 0.587, 0.114)))
        for style in (plots.OBSERVED, plots.IMPUTED, plots.TRUTH)
    ]
    assert grey[0] - grey[1] > 0.3
    assert grey[1] - grey[2] > 0.3


def test_no_pyplot():
    code = "import sys, diffputer.analysis.plots; print('matplotlib.pyplot' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"

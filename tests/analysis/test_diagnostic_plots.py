"""Pictures of missing and filled cells: they show the right thing, and nothing in a table breaks them."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import diffputer.analysis as analysis
from diffputer.analysis import (
    over_impute,
    plot_co_missingness,
    plot_density,
    plot_missing_matrix,
    plot_missing_rates,
    plot_over_imputation,
    plot_pair,
    plot_patterns,
    plot_propensity,
    plot_strips,
    plot_trace,
    plot_transform,
    plot_uncertainty,
    propensity,
)
from diffputer.errors import InputError, SettingError

from .test_plots import odd_table


def test_a_title_does_not_run_into_its_note():
    beside = set()
    for width in (2.0, 3.0, 4.0, 6.0):
        for name in ("x", "a rather long name"):
            holes = pd.DataFrame({name: [1.0, 2.0, None] * 100})
            axes = Figure(figsize=(width, 2.5)).add_subplot()
            plot_density(holes, holes.fillna(1.5), name, ax=axes)
            axes.figure.tight_layout()
            axes.figure.draw_without_rendering()
            title, note = axes._left_title, axes._right_title
            assert note.get_text() == "100 of 300 missing"
            above = title.get_text().endswith("\n")
            assert above or title.get_window_extent().x1 < note.get_window_extent().x0
            beside.add(not above)
    assert beside == {True, False}


def test_no_word_is_cut_off():
    holes = hostile()[["town", "day", "wait"]].rename(columns={"day": "a_rather_long_name_of_a_day"})
    draws = hot_deck(holes, 3)
    checked = over_impute(holes, hot_deck, max_folds=1)
    for axes in (
        plot_missing_matrix(holes),
        plot_missing_rates(holes),
        plot_co_missingness(holes),
        plot_co_missingness(holes, values="share"),
        plot_patterns(holes),
        plot_uncertainty(holes, draws),
        plot_density(holes, draws, "town"),
        plot_strips(holes, draws, "town"),
        plot_pair(holes, draws, "town", "wait"),
        plot_propensity(propensity(holes, draws)),
        plot_over_imputation(checked, "town"),
        plot_over_imputation(checked, "wait"),
        plot_transform(checked),
        plot_trace([SimpleNamespace(round=1, change=0.1, held_out_error=0.5, baseline_error=0.9)]),
    ):
        axes.figure.draw_without_rendering()
        page = axes.figure.bbox
        texts = [axes.xaxis.label, axes.yaxis.label, axes._left_title, axes._right_title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            places = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            texts += [text for place, text in places if low <= place <= high]
        for text in texts:
            if text.get_text() and text.get_visible():
                box = text.get_window_extent()
                assert min(box.x0 - page.x0, page.x1 - box.x1) > -2, text.get_text()
                assert min(box.y0 - page.y0, page.y1 - box.y1) > -2, text.get_text()


def test_a_constant_that_is_filled_with_itself_has_bars_of_the_same_height():
    holes = pd.DataFrame({"k": [7.0, 7.0, 7.0, None]})
    axes = render(plot_density(holes, [holes.fillna(7.0)] * 3, "k"))
    assert [bar.get_height() for bar in axes.patches] == [1.0, 1.0]


def test_a_constant_has_a_legend_and_hatched_bars_as_a_category_has():
    holes = pd.DataFrame({"k": [7.0, 7.0, None] * 5, "c": ["a", "a", None] * 5})
    for column, value in (("k", 7.0), ("c", "a")):
        axes = plot_density(holes, holes.fillna({column: value}), column)
        assert [bar.get_hatch() for bar in axes.patches] == [None, "////"]
        drawn = [text.get_text() for text in axes.get_legend().get_texts()]
        assert drawn == ["observed", "filled"]


def test_one_row_is_one_row_and_has_no_halves():
    axes = plot_missing_matrix(pd.DataFrame({"a": [1.0], "b": [None]}))
    texts = [text.get_text() for text in axes.get_figure().findobj(Text)]
    assert any("1 row," in text for text in texts)
    assert all(float(tick).is_integer() for tick in axes.get_yticks())


def test_columns_that_were_left_alone_have_a_sentence():
    table = pd.DataFrame({"x": np.arange(40.0), "k": [7.0, None] * 20, "empty": [np.nan] * 40})
    table["text"] = [f"word {k}" for k in range(40)]
    checked = over_impute(table, lambda t, m: [t.fillna({"x": 20.0})] * m, max_folds=1)
    words = {
        name: render(plot_over_imputation(checked, name)).texts[0].get_text()
        for name in ("k", "empty", "text")
    }
    assert words == {
        "k": "one value only:\nnothing was hidden",
        "empty": "no value:\nnothing was hidden",
        "text": "free text or identifiers:\nnothing was hidden",
    }
    with pytest.raises(InputError, match="'k' was left alone, as it has one value only"):
        checked["k"]
    with pytest.raises(InputError, match="nope"):
        plot_over_imputation(checked, "nope")


MISSING = [
    plot_missing_matrix,
    lambda table: plot_missing_matrix(table, sort=True),
    plot_missing_rates,
    plot_co_missingness,
    lambda table: plot_co_missingness(table, values="share"),
    plot_patterns,
]


def render(axes, *, whole=False):
    """Draw it: some mistakes show only then. The layout, which takes longest, only on request."""
    if not whole:
        axes.figure.set_layout_engine("none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axes.figure.savefig(io.BytesIO(), dpi=30)
    return axes


def hot_deck(table, m):
    rng = np.random.default_rng(0)
    out = []
    for _ in range(m):
        full = table.copy()
        for k in range(table.shape[1]):
            column = table.iloc[:, k]
            holes = column.isna().to_numpy()
            known = column[~holes]
            if holes.any() and len(known):
                filled = column.copy()
                filled[holes] = known.iloc[rng.integers(len(known), size=holes.sum())].array
                full.isetitem(k, filled)
        out.append(full)
    return out


def hostile(n=90):
    """Every kind of column, and names that are no names."""
    rng = np.random.default_rng(0)
    frame = odd_table(n)
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    names = list(frame.columns)
    names[0], names[4] = (
        "<script>alert(1)</script> and a name that is far too long for any picture",
        "_under$^",
    )
    names[5], names[10] = "Größe_µm 日本語 🎉", "tab\tand\nnewline"
    return frame.set_axis(names, axis=1)


TABLES = {
    "hostile": hostile(),
    "complete": pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
    "empty": pd.DataFrame({"a": [np.nan] * 3, "b": [None] * 3}),
    "no rows": pd.DataFrame({"a": pd.Series(dtype=float)}),
    "one row": pd.DataFrame({"a": [1.0], "b": [None]}),
    "duplicates": pd.DataFrame([[1.0, None], [None, 2.0]] * 9, columns=["x", "x"]),
    "long": np.where(np.random.default_rng(0).random((3000, 2)) < 0.1, np.nan, 1.0),
    "wide": np.where(np.random.default_rng(0).random((20, 150)) < 0.1, np.nan, 1.0),
    "polars": pl.from_pandas(hostile()[["town", "day"]]),
    "arrow": pa.table({"$x$": pa.array([1, None]), "y": pa.array(["a", None])}),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("draw", MISSING)
def test_no_table_breaks_pictures_of_what_is_missing(name, draw):
    render(draw(TABLES[name]))


def test_the_matrix_shows_each_missing_cell_even_when_rows_are_averaged():
    frame = pd.DataFrame({"a": [1.0] * 5000, "b": [1.0] * 5000})
    frame.loc[2500, "b"] = None
    image = np.asarray(plot_missing_matrix(frame).images[0].get_array())
    assert image.shape == (500, 2)
    assert image[:, 0].max() == 0
    assert (image[:, 1] > 0.2).sum() == 1


def test_sorted_rows_start_with_most_holes():
    image = plot_missing_matrix(np.array([[1, np.nan], [1, 1], [np.nan, np.nan]]), sort=True).images[0]
    assert np.asarray(image.get_array()).tolist() == [[1, 1], [0, 1], [0, 0]]


def test_squares_of_columns_missing_together():
    together = np.array([[np.nan, np.nan, 1], [1, 1, np.nan], [1, 1, np.nan], [1, 1, 1.0]])
    axes = plot_co_missingness(together)
    assert [text.get_text() for text in axes.texts] == ["1.00", "−0.58", "−0.58", "1", "0.5", "0.1"]
    faces = [patch.get_facecolor()[0] for patch in axes.patches[:3]]
    assert faces[0] < 0.9  # filled
    assert faces[1:] == [1.0, 1.0]  # hollow
    shares = plot_co_missingness(together, values="share")
    assert [text.get_text() for text in shares.texts[:3]] == ["1.00", "0.00", "0.00"]
    pairs, scale = axes.patches[:3], axes.patches[3:]
    assert [one.get_width() ** 2 / scale[0].get_width() ** 2 for one in scale] == pytest.approx([1, 0.5, 0.1])
    assert pairs[0].get_width() == pytest.approx(scale[0].get_width())  # 1.00 is as large as the 1 beside it
    assert all(one.get_x() > 2.5 for one in scale)  # not among the pairs
    with pytest.raises(SettingError, match="'share'"):
        plot_co_missingness(together, values="nonsense")


@pytest.mark.parametrize("name", hostile().columns)
def test_no_column_breaks_pictures_of_what_was_filled(name):
    holes = hostile()
    draws = hot_deck(holes, 3)
    render(plot_density(holes, draws, name), whole=True)
    render(plot_strips(holes, draws, name))
    render(plot_pair(holes, draws, name, "town"))


def test_pictures_over_all_columns_of_a_hostile_table():
    holes = hostile().drop(columns=["tiny", "spike", "constant date", "single", "tab\tand\nnewline", "zoned"])
    draws = hot_deck(holes, 3)
    render(plot_uncertainty(holes, draws))
    render(plot_propensity(propensity(holes, draws)))
    checked = over_impute(holes, hot_deck, max_folds=1)
    for one in checked.columns:
        render(plot_over_imputation(checked, one.column.name))
    render(plot_transform(checked))


def test_a_picture_shows_what_was_filled_not_what_was_observed():
    holes = pd.DataFrame(
        {"x": [*np.linspace(0, 1, 50), *[None] * 50], "c": ["a", "b"] * 25 + [None] * 50}
    ).convert_dtypes()
    low, high = (holes.assign(x=holes["x"].fillna(v), c=holes["c"].fillna("b")) for v in (0.25, 0.75))
    curves = plot_density(holes, [low, high], "x").lines
    peaks = [line.get_xdata()[np.argmax(line.get_ydata())] for line in curves]
    assert peaks == pytest.approx([0.25, 0.75], abs=0.02)
    bars = [bar.get_height() for bar in plot_density(holes, [low, high], "c").patches]
    assert bars == [0.5, 0.5, 1.0, 0.0]  # b, a
    strips = [
        np.asarray(points.get_offsets())[:, 1] for points in plot_strips(holes, [low, high], "x").collections
    ]
    assert [len(points) for points in strips] == [50, 50, 50]
    assert strips[1] == pytest.approx(0.25)
    assert strips[2] == pytest.approx(0.75)
    pair = plot_pair(holes, low, "x", "c")
    assert [text.get_text() for text in pair.get_legend().get_texts()] == ["both observed", "both filled"]
    with pytest.raises(InputError, match="'nonsense'"):
        plot_density(holes, low, "nonsense")


def test_the_over_imputation_marks_what_is_outside():
    frame = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0)})

    def draw(table, m):  # knows small values, not large ones
        near = table["x"].where(table["x"].notna(), table["y"]).fillna(0.0)
        guess = np.minimum(near, 50.0)
        return [table.fillna({"x": guess + k / m - 0.5, "y": guess + k / m - 0.5}) for k in range(m)]

    axes = plot_over_imputation(over_impute(frame, draw), "x")
    inside, outside, _ = axes.lines
    assert inside.get_xdata().max() <= 51
    assert outside.get_markerfacecolor() == "white"
    assert (np.asarray(outside.get_xdata()) > 50).mean() > 0.8


def test_rounds_of_em():
    def trace(errors):
        return [
            SimpleNamespace(round=k + 1, change=0.1, held_out_error=e, baseline_error=0.9)
            for k, e in enumerate(errors)
        ]

    assert render(plot_trace(trace([0.5, 0.4, 0.4]))).get_title("right") == "converged"
    render(plot_trace(trace([0.5])))
    render(plot_trace(trace([np.nan, np.nan])))
    assert render(plot_trace([])).texts[0].get_text() == "nothing was fitted"


def test_the_transform_is_counted():
    bars = plot_transform(np.array([0.05, 0.95, 0.97, np.nan]), bins=10).patches[-10:]
    assert [round(float(bar.get_height()), 2) for bar in bars] == [0.33, *[0] * 8, 0.67]
    assert render(plot_transform([])).texts[0].get_text() == "no numbers were drawn"
    with pytest.raises(InputError, match="between 0 and 1"):
        plot_transform([1.5])


def test_uncertainty_needs_draws():
    holes = pd.DataFrame({"x": [1.0, 2.0, None]})
    assert "two draws" in plot_uncertainty(holes, holes.fillna(1.0)).texts[0].get_text()
    assert "nothing" in plot_uncertainty(holes.dropna(), [holes.dropna()] * 2).texts[0].get_text()


def test_given_axes_are_used():
    holes = hostile()
    draws = hot_deck(holes, 2)
    figure = Figure()
    for k, draw in enumerate(
        [
            plot_missing_matrix,
            plot_missing_rates,
            plot_co_missingness,
            plot_patterns,
            lambda t, ax: plot_density(t, draws, "town", ax=ax),
            lambda t, ax: plot_strips(t, draws, "town", ax=ax),
            lambda t, ax: plot_pair(t, draws, "town", "day", ax=ax),
            lambda t, ax: plot_uncertainty(t, draws, ax=ax),
            lambda t, ax: plot_transform([0.5], ax=ax),
        ]
    ):
        axes = figure.add_subplot(3, 3, k + 1)
        assert draw(holes, ax=axes) is axes
    render(axes, whole=True)


def test_names_are_loaded_when_asked_for_and_without_pyplot():
    code = (
        "import sys, diffputer.analysis as a;"
        "before = [m for m in ('numpy', 'matplotlib') if m in sys.modules];"
        "a.profile; middle = 'matplotlib' in sys.modules; [getattr(a, n) for n in a.__all__];"
        "print(before, middle, 'matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[] False False False\n"
    assert set(analysis.__all__) == set(dir(analysis))
    assert all(callable(getattr(analysis, name)) for name in analysis.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = analysis.nonsense

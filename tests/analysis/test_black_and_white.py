"""Every picture can be read in black and white: marks that differ in hue differ in something else too."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch

import diffputer.analysis as analysis
from diffputer.analysis import over_impute, propensity

LIGHTER = 0.15  # lightness, of 1, by which two greys can be told apart


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=120),
            "n": rng.poisson(2, 120).astype(float),
            "c": rng.choice(["a", "b", "d"], 120),
            "k": 5.0,
        }
    )
    holes = rng.random(frame.shape) < 0.3
    holes[:, 1] |= holes[:, 0]  # missing together, and
    holes[:, 2] &= ~holes[:, 0]  # missing apart
    return frame.mask(holes)


def draw(frame: pd.DataFrame, m: int) -> list[pd.DataFrame]:
    rng = np.random.default_rng(1)
    out = []
    for _ in range(m):
        full = frame.copy()
        for name in frame:
            holes = frame[name].isna().to_numpy()
            full.loc[holes, name] = rng.choice(frame[name].dropna().to_numpy(), holes.sum())
        out.append(full)
    return out


HOLES = table()
DRAWS = draw(HOLES, 3)
CHECKED = over_impute(HOLES, draw, max_folds=2)
ROUNDS = [
    SimpleNamespace(round=k, change=0.4 / k, held_out_error=0.6 / k, baseline_error=0.8) for k in (1, 2, 3)
]
#: Every public picture, some of them of several kinds of column.
PICTURES: dict[str, Any] = {
    "plot_missing_matrix": [lambda f: f(HOLES)],
    "plot_missing_rates": [lambda f: f(HOLES)],
    "plot_co_missingness": [lambda f: f(HOLES)],
    "plot_patterns": [lambda f: f(HOLES)],
    "plot_density": [lambda f, name=name: f(HOLES, DRAWS, name) for name in "xnck"],
    "plot_strips": [lambda f, name=name: f(HOLES, DRAWS, name) for name in "xc"],
    "plot_pair": [lambda f: f(HOLES, DRAWS, "x", "c"), lambda f: f(HOLES, DRAWS, "x", "n")],
    "plot_distributions": [lambda f: f(HOLES, DRAWS, truth=DRAWS[0])],
    "plot_uncertainty": [lambda f: f(HOLES, DRAWS)],
    "plot_trace": [lambda f: f(ROUNDS)],
    "plot_propensity": [lambda f: f(propensity(HOLES, DRAWS))],
    "plot_over_imputation": [lambda f: f(CHECKED, "x"), lambda f: f(CHECKED, "c")],
    "plot_transform": [lambda f: f(CHECKED)],
}


def grey(colour: Any) -> float:
    """How light it is on white paper, between 0 and 1."""
    *rgb, alpha = to_rgba(colour)
    return float(1 - alpha + alpha * np.dot(rgb, (0.299, 0.587, 0.114)))


def hue(colour: Any) -> tuple[float, ...]:
    return tuple(to_rgba(colour)) if to_rgba(colour)[3] else (1.0, 1.0, 1.0, 0.0)


def marks(axes: Axes) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    """Give sort, form (what is left without colour) and colours of each mark of a picture."""
    found = []
    for line in axes.lines:
        if line.get_marker() not in (None, "None", ""):
            form = (line.get_marker(), line.get_linestyle())
            found.append(("mark", form, (line.get_markerfacecolor(), line.get_markeredgecolor())))
        elif line.get_linestyle() != "None":
            pattern = str(line._unscaled_dash_pattern)
            found.append(("line", (pattern,), (line.get_color(),)))
    for patch in axes.patches:
        colours = (patch.get_facecolor(), patch.get_edgecolor() if patch.get_linewidth() else "none")
        if isinstance(patch, Patch) and not patch.get_fill():
            found.append(("line", (str(patch.get_linestyle()),), colours[1:]))
        else:
            found.append(("area", (patch.get_hatch(),), colours))
    for one in axes.collections:
        if isinstance(one, PathCollection):
            faces = one.get_facecolor()
            face = faces[0] if len(faces) else "none"
            edges = one.get_edgecolor()
            edge = edges[0] if len(edges) else "none"
            shape = one.get_paths()[0].vertices.round(3).tobytes()
            found.append(("point", (shape,), (face, edge)))
        elif isinstance(one, LineCollection):
            style = str(one.get_linestyle()[0])
            found.append(("line", (style,), (one.get_color()[0],)))
        elif isinstance(one, PolyCollection):
            found.append(("area", (one.get_hatch(),), (one.get_facecolor()[0],)))
    return found


def told_apart(one: Any, other: Any) -> bool:
    (_, form, colours), (_, other_form, other_colours) = one, other
    return form != other_form or any(
        abs(grey(a) - grey(b)) > LIGHTER for a, b in zip(colours, other_colours, strict=False)
    )


def confused(axes: Axes) -> list[tuple[Any, Any]]:
    """Give pairs of marks of one sort that differ in nothing but hue."""
    return [
        (one, other)
        for one, other in combinations(marks(axes), 2)
        if one[0] == other[0]
        and [hue(a) for a in one[2]] != [hue(b) for b in other[2]]
        and not told_apart(one, other)
    ]


def test_every_public_picture_is_looked_at() -> None:
    assert set(PICTURES) == {name for name in analysis.__all__ if name.startswith("plot_")}


@pytest.mark.parametrize("name", PICTURES)
def test_marks_differ_by_more_than_hue(name: str) -> None:
    seen = 0
    for make in PICTURES[name]:
        picture = make(getattr(analysis, name))
        for axes in [picture] if isinstance(picture, Axes) else picture.axes:
            assert confused(axes) == []
            seen += len(marks(axes)) + len(axes.images)
            for image in axes.images:  # of shades of one grey
                shades = image.cmap(np.linspace(0, 1, 9))
                assert (np.diff([grey(shade) for shade in shades]) < -0.05).all()
    assert seen > 1


def test_marks_that_differ_in_hue_alone_would_be_found() -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    axes.plot([0, 1], color="#d9480f")
    axes.plot([1, 0], color="#2b6cb0")
    assert len(confused(axes)) == 1
    axes.lines[1].set_linestyle("--")
    assert confused(axes) == []

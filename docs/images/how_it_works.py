"""Draw the two pictures of docs/how-it-works.md: python docs/images/how_it_works.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from diffputer import DiffPuter
from diffputer.demo import load_sample
from diffputer.models.base import Cells

HERE = Path(__file__).parent
COLOURS = {
    "network": "#4477aa",
    "copula": "#ccaa33",
    "Gaussian": "#228833",
    "mixture": "#ee6677",
    "pool": "#aa3377",
    "ink": "#333333",
}
COLUMN = "median_income"


def draw_data_flow() -> None:
    """Boxes and arrows: rows, experts, pool, calibration, estimates and sampler."""
    figure, axes = plt.subplots(figsize=(10, 3.4))
    axes.set(xlim=(0, 10), ylim=(-0.65, 3.4))
    axes.axis("off")

    def box(x: float, y: float, width: float, height: float, text: str, colour: str = "#eef2f7") -> None:
        shape = FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0.02,rounding_size=0.08",
            fc=colour,
            ec=COLOURS["ink"],
            lw=0.8,
        )
        axes.add_patch(shape)
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5)

    def arrow(start: tuple[float, float], end: tuple[float, float], bend: float = 0.0) -> None:
        axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=11,
                lw=1,
                color=COLOURS["ink"],
                connectionstyle=f"arc3,rad={bend}",
            )
        )

    box(0.1, 1.3, 1.25, 0.8, "rows with\nmissing cells")
    experts = [
        "network\n(attention or MLP)",
        "Gaussian copula",
        "Gaussian of the values",
        "mixture of\nGaussian copulas",
        "boosted trees (CPU)",
    ]
    for k, name in enumerate(experts):
        y = 2.72 - 0.69 * k
        box(1.95, y, 2.0, 0.54, name, "#dfe9f5")
        arrow((1.4, 1.7), (1.9, y + 0.27))
        arrow((4.0, y + 0.27), (4.5, 1.7))
    box(4.55, 1.3, 1.3, 0.8, "pool:\nweights per\ncolumn", "#f3e1ec")
    arrow((5.9, 1.7), (6.25, 1.7))
    box(6.3, 1.3, 1.3, 0.8, "calibration:\ntemperature,\nkernels", "#f3e1ec")
    box(8.2, 2.3, 1.7, 0.75, "mean, median,\nmode, intervals")
    box(8.2, 0.35, 1.7, 0.75, "sampler: unmask\ncell by cell")
    arrow((7.65, 1.8), (8.15, 2.6))
    arrow((7.65, 1.6), (8.15, 0.8))
    axes.plot([8.95, 8.95, 0.75], [0.3, -0.3, -0.3], lw=1, color=COLOURS["ink"])
    arrow((0.75, -0.31), (0.75, 1.25))
    axes.text(
        4.9, -0.55, "drawn cells are known in the next step", ha="center", fontsize=8.5, color=COLOURS["ink"]
    )
    figure.savefig(HERE / "data_flow.png", dpi=160, bbox_inches="tight", facecolor="white")


def draw_cell() -> None:
    """The distributions of one hidden cell: of experts, and pooled."""
    truth = load_sample()
    frame = truth.copy()
    hidden = np.random.default_rng(0).random(frame.shape) < 0.2
    frame = frame.mask(hidden)
    imputer = DiffPuter(random_state=0, progress=False, device="cpu").fit(frame)
    model = imputer._result.engine.model
    encoded = imputer._encoder.encode(imputer._read(frame, reset=False))
    numeric = [c.name for c in imputer.schema_ if c.kind.is_numeric]
    column = numeric.index(COLUMN)
    values = truth[COLUMN]
    rows = np.flatnonzero(frame[COLUMN].isna() & values.notna() & values.between(5.0, 6.0))
    row = rows[0]
    x, missing = (torch.from_numpy(a[row : row + 1]) for a in (encoded.x, encoded.missing))
    batch = model.describe(torch.where(missing, 0.0, x), ~missing)
    cells = Cells.of(~batch.all_known, batch.x.shape[1])
    with torch.no_grad():
        experts, _ = model.experts(batch, cells, torch.float32, model.given(batch))
        pooled = model.predict(batch, cells, torch.float32)
    place = int((cells.columns == column).nonzero()[0, 0])
    known = frame[COLUMN].dropna()
    borders = model.support.borders[column].numpy() * known.std(ddof=0) + known.mean()
    n = int(model.support.n_classes[column])
    edges = borders[: n + 1]
    widths = np.maximum(np.diff(edges), 1e-9)

    figure, panels = plt.subplots(1, 2, figsize=(10, 3.3), sharey=True)
    for name, expert in zip(("network", "copula", "Gaussian", "mixture"), experts, strict=False):
        density = expert.bins[place, :n].numpy() / widths
        panels[0].stairs(density, edges, color=COLOURS[name], lw=1.6, label=name)
    panels[0].legend(frameon=False)
    panels[0].set_title("experts", loc="left")
    panels[0].set_ylabel("density")
    panels[1].stairs(
        pooled.bins[place, :n].numpy() / widths, edges, color=COLOURS["pool"], fill=True, alpha=0.3
    )
    low, median, high = (
        float(model.support.quantile(pooled, cells.columns, q)[place]) * known.std(ddof=0) + known.mean()
        for q in (0.05, 0.5, 0.95)
    )
    mean = float(pooled.mean[place]) * known.std(ddof=0) + known.mean()
    panels[1].axvspan(low, high, color=COLOURS["pool"], alpha=0.08, label="90 % interval")
    panels[1].axvline(mean, color=COLOURS["ink"], lw=1.4, label="mean")
    panels[1].axvline(median, color=COLOURS["ink"], lw=1.4, ls="--", label="median")
    panels[1].plot(values.iloc[row], 0.02, marker="^", color="black", ms=9, ls="", label="true value")
    panels[1].legend(frameon=False)
    panels[1].set_title("pooled and calibrated", loc="left")
    for panel in panels:
        panel.set(xlim=(0, 10), xlabel=COLUMN)
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(HERE / "cell_distribution.png", dpi=160, facecolor="white")


if __name__ == "__main__":
    draw_data_flow()
    draw_cell()

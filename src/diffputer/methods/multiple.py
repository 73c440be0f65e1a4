"""miceforest: chained equations with LightGBM and predictive mean matching, several times over."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from ..errors import require
from .coding import Counts, Floats, Indicators
from .contract import Facts, InSampleMethod, Setting

MICEFOREST = Facts(
    name="miceforest",
    what="Chained LightGBM with mean matching, five times; their mean (levels: the most frequent).",
    source="Wilson's package miceforest.",
    cannot="Complete another table: impute_new_data of version 6.0.5 gives back its random start (measured).",
    settings={
        "datasets": Setting(5, "own choice: one table is a draw, whose squared error is twice as large"),
        "iterations": Setting(5, "the package's examples have 2 to 5"),
        "candidates": Setting(5, "the package's default: rows that a number is drawn from; levels: 0"),
    },
    packages=("miceforest", "lightgbm"),
)


class MiceForest(InSampleMethod):
    """The package, on standardised numbers and categories."""

    reason = "impute_new_data of miceforest 6.0.5 gives back its random start."

    def _fit_complete(self, x: Floats, n_levels: Counts, seed: int) -> Floats:
        miceforest = require("miceforest", extra="rivals")
        frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
        for j in np.flatnonzero(n_levels):
            codes = np.where(np.isnan(x[:, j]), -1, x[:, j]).astype(np.int64)
            frame.isetitem(j, pd.Categorical.from_codes(codes, categories=range(n_levels[j])))
        # Of levels 0 takes the most probable one, as accuracy rewards; its matching of them fails where the
        # trees are certain (it divides by one minus the probability).
        candidates = {
            name: 0 if levels else int(self.settings["candidates"])
            for name, levels in zip(frame.columns, n_levels, strict=True)
        }
        with warnings.catch_warnings():
            # It asks to pool rare levels; every method is given the table as it is.
            warnings.filterwarnings("ignore", message=".*rare categories")
            kernel = miceforest.ImputationKernel(
                frame,
                num_datasets=int(self.settings["datasets"]),
                mean_match_candidates=candidates,
                save_all_iterations_data=False,
                random_state=seed,
            )
            kernel.mice(int(self.settings["iterations"]))
        indicators = Indicators(n_levels)
        total = np.zeros((len(x), len(indicators.owners)))
        for number in range(int(self.settings["datasets"])):
            total += indicators.expand(kernel.complete_data(number).to_numpy(dtype=np.float64))
        return indicators.collapse(total / self.settings["datasets"])

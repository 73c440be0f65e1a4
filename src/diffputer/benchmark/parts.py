"""The two tables of a task: complete, with holes, and the cells to score."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .datasets import Dataset
from .metrics import (
    AUC_DRAWS,
    AUC_FOLDS,
    Booleans,
    Floats,
    Scores,
    energy_distance,
    observed_deviation,
    score_draws,
    score_table,
    two_sample_auc,
)
from .results import Row
from .task import Task

SETTINGS_OF_ROWS = ("in_sample", "out_of_sample")


@dataclass(frozen=True, eq=False)
class Part:
    """One of the two tables of a task: complete, with holes, and the cells to score."""

    setting: str
    truth: pd.DataFrame
    holes: pd.DataFrame
    scored: Booleans
    deviation: Floats
    categorical: tuple[str, ...]

    def first(self, n: int) -> Part:
        """Give its first n rows (the split has shuffled them)."""
        return dataclasses.replace(self, truth=self.truth[:n], holes=self.holes[:n], scored=self.scored[:n])

    @property
    def has_numbers(self) -> bool:
        """Whether a number is to be scored."""
        return bool(self.scored[:, : len(self.deviation)].any())

    def score(self, completed: pd.DataFrame) -> Scores:
        """Score the table with its holes filled."""
        return score_table(self.truth, completed, self.scored, self.deviation, self.categorical)

    def score_draws(self, draws: Iterable[pd.DataFrame]) -> Row:
        """Score the table with its holes filled several times over; fields of a row."""
        p = len(self.deviation)
        scored, (_, column) = self.scored[:, :p], np.nonzero(self.scored[:, :p])
        unit = self.deviation[column]
        truth = self.truth.iloc[:, :p].to_numpy(dtype=np.float64)[scored] / unit
        drawn = [draw.iloc[:, :p].to_numpy(dtype=np.float64)[scored] / unit for draw in draws]
        scores = score_draws(truth, np.stack(drawn))
        return {"coverage": scores.coverage, "crps": scores.crps, "pit": json.dumps(scores.pit)}

    def score_energy(self, completed: Iterable[pd.DataFrame]) -> float | None:
        """Score the rows with hidden numbers as a whole, completed once or several times over."""
        p = len(self.deviation)
        rows = self.scored[:, :p].any(axis=1)
        if rows.sum() < 2:
            return None
        truth, *tables = (
            table.iloc[:, :p].to_numpy(dtype=np.float64)[rows] / self.deviation
            for table in (self.truth, *completed)
        )
        return energy_distance(truth, tables)

    def score_auc(self, draws: Sequence[pd.DataFrame]) -> float | None:
        """Tell rows with hidden cells, as drawn, from the same rows as they are; categories count, too.

        Numbers of a column whose true values are all whole are rounded: one that is not would give it away.
        """
        rows = self.scored.any(axis=1)
        if rows.sum() < AUC_FOLDS:
            return None
        tables = [table[rows] for table in (self.truth, *draws[:AUC_DRAWS])]
        p = len(self.deviation)
        numbers = [table.iloc[:, :p].to_numpy(dtype=np.float64) for table in tables]
        whole = (self.truth.iloc[:, :p].to_numpy(dtype=np.float64) % 1 == 0).all(axis=0)
        coded = [np.where(whole, np.round(x), x) / self.deviation for x in numbers]
        for name in self.categorical:
            codes, _ = pd.factorize(pd.concat([table[name].astype(object) for table in tables]))
            parts = codes.astype(np.float64).reshape(len(tables), -1, 1)
            coded = [np.hstack([x, part]) for x, part in zip(coded, parts, strict=True)]
        return two_sample_auc(coded[0], coded[1:])


def make_parts(task: Task, dataset: Dataset) -> tuple[Part, Part]:
    """Hide the cells of a task: the training table and the test table."""
    masks = task.masks(dataset)
    p = len(dataset.numeric)
    deviation = observed_deviation(dataset.train.iloc[:, :p].to_numpy(dtype=np.float64), masks[0][:, :p])
    parts = []
    tables = (dataset.train, dataset.test)
    rows = (dataset.train_rows, dataset.test_rows)
    for setting, truth, mask, row in zip(SETTINGS_OF_ROWS, tables, masks, rows, strict=True):
        scored = mask & ~np.isin(row, dataset.not_scored)[:, None]
        parts.append(Part(setting, truth, truth.mask(mask), scored, deviation, dataset.categorical))
    return parts[0], parts[1]


def score_fields(scores: Scores) -> Row:
    columns = {
        name: {key: value if key == "n" else round(value, 6) for key, value in values.items()}
        for name, values in scores.columns.items()
    }
    return {
        "mae": scores.mae,
        "rmse": scores.rmse,
        "accuracy": scores.accuracy,
        "columns": json.dumps(columns, separators=(",", ":")),
    }

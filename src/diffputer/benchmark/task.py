"""A task: which cells of which data set are hidden, and how."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import SettingError
from ..runtime.seeding import derive_seed
from ..settings import check_choice, check_number
from ..tables.missingness import MECHANISMS, Mask
from .datasets import Dataset

#: Mechanisms that need nothing but a complete table and a rate.
TASK_MECHANISMS = tuple(name for name in MECHANISMS if name != "copy")
#: MAR hides at rate / (1 - 0.3) whatever the rounding of the number of complete columns, as the authors do.
_OPTIONS: dict[str, dict[str, bool]] = {"mar": {"nominal": True}}


@dataclass(frozen=True)
class Task:
    """Cells to hide in the training and the test table of a data set.

    Examples
    --------
    >>> Task("california").id
    'california/mcar/0.3/0'
    """

    dataset: str
    mechanism: str = "mcar"
    rate: float = 0.3
    mask_seed: int = 0

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, TASK_MECHANISMS)
        check_number("rate", self.rate, 0.0, 1.0, closed=False, whole=False)
        check_number("mask_seed", self.mask_seed, 0, 1 << 63, closed=True, whole=True)

    @property
    def id(self) -> str:
        """A name that stays the same."""
        return f"{self.dataset}/{self.mechanism}/{self.rate:g}/{self.mask_seed}"

    def masks(self, dataset: Dataset) -> tuple[Mask, Mask]:
        """Draw what is hidden in the training and in the test table, each from a stream of its own.

        The columns that drive MAR and MNAR are drawn for each of the two tables anew, as the authors do:
        the test table hides columns that were complete in training.

        Parameters
        ----------
        dataset : Dataset
            The one of this task.

        Returns
        -------
        tuple of two ndarrays of bool
            True where a cell is hidden; columns as in ``dataset.frame``.
        """
        if dataset.name != self.dataset:
            raise SettingError(
                f"A task's masks must be drawn on its own data set {self.dataset!r}, however: "
                f"this is {dataset.name!r}."
            )
        x = code_table(dataset)
        return self._draw(x[dataset.train_rows], "train"), self._draw(x[dataset.test_rows], "test")

    def _draw(self, x: NDArray[np.float64], part: str) -> Mask:
        seed = derive_seed(self.mask_seed, part, self.dataset) & ((1 << 63) - 1)
        options = _OPTIONS.get(self.mechanism, {})
        return MECHANISMS[self.mechanism](x, self.rate, np.random.default_rng(seed), **options)


def code_table(dataset: Dataset) -> NDArray[np.float64]:
    """Write the table as numbers: categories by the position of their level in the whole table.

    Levels are in the order of their numbers where all are numbers, else of their text.

    Shape: [rows of dataset.frame, columns].
    """
    columns = [dataset.frame[name].to_numpy(dtype=np.float64) for name in dataset.numeric]
    columns += [_level_codes(dataset.frame[name]) for name in dataset.categorical]
    return np.column_stack(columns)


def _level_codes(column: pd.Series) -> NDArray[np.float64]:
    levels = sorted(map(str, column.dropna().unique()))
    with contextlib.suppress(ValueError):
        levels.sort(key=float)
    position = {level: float(code) for code, level in enumerate(levels)}
    return np.array(
        [position.get(value, np.nan) for value in column.to_numpy(dtype=object)], dtype=np.float64
    )

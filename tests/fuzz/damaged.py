"""Damaged model files: each is refused with a ``ModelFileError``, or leaves observed cells alone."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from diffputer import DiffPuter
from diffputer.errors import InputError, ModelFileError

from .checks import Outcome, check_observed, new_imputer, only_data_warnings
from .tables import Case, make_table


@dataclass(frozen=True)
class Damaged:
    """The seed of a mutation of a saved model."""

    seed: int
    container: str = "model file"
    kinds: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """One line, for a failure."""
        return f"seed {self.seed} of damaged model files"


make_model = Damaged


@cache
def _saved() -> tuple[Case, bytes]:
    """A table with missing values, and its model as a file."""
    for seed in range(1000):
        case = make_table(seed)
        if (
            case.refusable
            or case.container != "pandas"
            or case.n_rows < 20
            or not case.frame.isna().any(axis=None)
            or len(case.names) < 4
        ):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.diffputer"
            new_imputer(case).fit(case.frame).save(path)
            return case, path.read_bytes()
    raise AssertionError("no table can be fitted")


def check_model(case: Damaged) -> Outcome:
    """Load one damaged file; raise at anything but a refusal or a model that obeys the rules."""
    from .model_files import WAYS, mutations

    whole, data = _saved()
    with tempfile.TemporaryDirectory() as folder, only_data_warnings():
        path = Path(folder) / "model.diffputer"
        path.write_bytes(data)
        rng = np.random.default_rng([case.seed, 31])
        *_, (_, damaged) = mutations(path, rng, 1 + case.seed % WAYS)
        path.write_bytes(damaged)
        try:
            imputer = DiffPuter.load(path, device="cpu")
        except ModelFileError:
            return Outcome("ModelFileError")
        # A digest is no signature: another model may load, perhaps with other columns.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                completed = imputer.transform(whole.frame)
            except InputError:
                return Outcome("InputError")
        check_observed(whole.frame, completed)
    return Outcome()

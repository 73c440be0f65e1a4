"""HyperImpute, in an environment of its own: with today's pandas it silently gives back column means.

``python -P -m diffputer.methods.hyperimpute FOLDER`` makes the environment; ``DIFFPUTER_HYPERIMPUTE`` names
its Python to the benchmark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError, SettingError
from ..runtime.isolation import worker_environment
from .coding import Counts, Floats
from .contract import Facts, InSampleMethod, Setting

#: Environment variable with the path of the Python in the environment.
PYTHON_VARIABLE = "DIFFPUTER_HYPERIMPUTE"
#: Versions that work together. Newer ones of pandas do nothing where it writes imputed cells, newer ones of
#: scikit-learn have no LogisticRegression(multi_class=...).
REQUIREMENTS = (
    "torch==2.13.0", "numpy==2.0.2", "pandas==2.3.3", "scipy==1.15.3", "scikit-learn==1.6.1",
    "loguru==0.6.0", "optuna==5.0.0", "geomloss==0.3.1", "lightgbm==4.6.0", "catboost==1.2.10",
    "xgboost-cpu==3.2.0", "redis==8.1.0", "cloudpickle==3.1.2", "pydantic==2.14.3", "joblib==1.6.0",
    "tqdm==4.70.1",
)  # fmt: skip
PACKAGE = "hyperimpute==0.1.17"
#: Holes from which on one value for all of them is no coincidence.
MANY_HOLES = 10
WORKER = Path(__file__).with_name("hyperimpute_worker.py")

HYPERIMPUTE = Facts(
    name="hyperimpute",
    what="Chained equations; for each column the best of forests, boosted trees and linear models.",
    source="Jarrett, Cebere, Liu, Curth and van der Schaar 2022; their package, run by another Python.",
    cannot="Complete another table: its transform fits anew. Refit XGBoost to fewer classes: we mend that.",
    settings={
        "optimizer": Setting("simple", "the package's default"),
        "n_inner_iter": Setting(40, "the package's default"),
    },
    published="hyperimpute",
)


class HyperImpute(InSampleMethod):
    """The package, on standardised numbers and positions of levels, which it is told are classes."""

    reason = "its own transform fits anew."

    def _fit_complete(self, x: Floats, n_levels: Counts, seed: int) -> Floats:
        python = find_python()
        with tempfile.TemporaryDirectory() as folder:
            given, answer, versions = (
                Path(folder) / name for name in ("given.npz", "answer.npy", "versions")
            )
            np.savez(given, x=x, n_levels=n_levels)
            options = json.dumps({**self.settings, "random_state": seed})
            # -P: the folder of the worker is not searched, where this file would hide the package.
            command = [str(python), "-P", str(WORKER), str(given), str(answer), str(versions), options]
            done = subprocess.run(command, capture_output=True, text=True, env=worker_environment())
            if versions.is_file():
                self.versions = json.loads(versions.read_text(encoding="utf-8"))
            if done.returncode:
                raise InputError(f"HyperImpute failed: {done.stderr.strip()[-800:]}")
            completed: Floats = np.load(answer)
        check_answer(x, completed, n_levels, self._names)
        return completed


def check_answer(x: Floats, completed: Floats, n_levels: Counts, names: Sequence[Hashable]) -> None:
    """Refuse what its broken versions give: another shape, changed cells, one value for a whole column.

    One value is refused for many holes, or for the holes of every column. Shape: x, completed [n, c];
    n_levels, names [c].
    """
    known = ~np.isnan(x)
    if completed.shape != x.shape or not np.allclose(completed[known], x[known]):
        raise InputError("HyperImpute must leave observed cells alone, however: it gave back other ones.")
    counts = (~known).sum(axis=0)
    numbers = [j for j in range(len(names)) if n_levels[j] == 0 and counts[j] > 1]
    varied = [j for j in numbers if np.ptp(x[known[:, j], j]) > 0]
    same = [j for j in varied if np.ptp(completed[~known[:, j], j]) == 0]
    if wrong := [names[j] for j in same if counts[j] >= MANY_HOLES or len(same) == len(varied)]:
        raise InputError(
            "HyperImpute must not give the same value to every hole of a column whose values differ, "
            f"however: it did in {', '.join(map(repr, wrong))}, as it does with pandas 3. Make its "
            "environment with: python -P -m diffputer.methods.hyperimpute FOLDER"
        )


def find_python() -> Path:
    """Give the Python of the environment, or say how to make it."""
    given = os.environ.get(PYTHON_VARIABLE)
    if not given or not Path(given).is_file():
        raise SettingError(
            f"HyperImpute needs an environment of its own, whose Python {PYTHON_VARIABLE} names, however: "
            f"{'there is no ' + given if given else 'it names none'}. Make one with: "
            "python -P -m diffputer.methods.hyperimpute FOLDER"
        )
    return Path(given)


def make_environment(folder: str | os.PathLike[str]) -> Path:
    """Make the environment (some 2 GB, a minute or two) and give its Python."""
    target = Path(folder)
    venv.create(target, with_pip=True)
    python = target / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *REQUIREMENTS], check=True)
    # Its own requirements ask for tensorflow and for versions that exclude each other.
    subprocess.run([*pip, "--no-deps", PACKAGE], check=True)
    return python


if __name__ == "__main__":
    sys.stdout.write(f"export {PYTHON_VARIABLE}={make_environment(sys.argv[1])}\n")

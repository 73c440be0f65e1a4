"""Runs inside HyperImpute's environment, where diffputer is not: arrays in, arrays out.

Usage: python hyperimpute_worker.py GIVEN.npz ANSWER.npy VERSIONS OPTIONS.json-text
"""

import contextlib
import functools
import json
import platform
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

#: Name in a row of results -> package.
PACKAGES = {
    "hyperimpute": "hyperimpute",
    "numpy": "numpy",
    "pandas": "pandas",
    "sklearn": "scikit-learn",
    "torch": "torch",
}


def find_versions() -> dict[str, str]:
    """Give the versions of this environment: the rows of results are made with these."""
    found = {"python": platform.python_version()}
    for name, package in PACKAGES.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(package)
    return found


def let_refit() -> None:
    """Let XGBoost's classifier forget the classes of its last fit.

    HyperImpute hands the model of one column to similar ones; after a column of three classes XGBoost
    refuses one of two ("value 0 for Parameter num_class"), and the whole table fails.
    """
    from xgboost import XGBClassifier

    fit = XGBClassifier.fit

    @functools.wraps(fit)
    def fit_anew(self: XGBClassifier, *given: Any, **options: Any) -> XGBClassifier:
        self.objective = "binary:logistic"
        return fit(self, *given, **options)

    XGBClassifier.fit = fit_anew


def main() -> None:
    """Complete x (holes are NaN); columns with n_levels > 0 are classes."""
    Path(sys.argv[3]).write_text(json.dumps(find_versions()), encoding="utf-8")
    let_refit()
    from hyperimpute.plugins.imputers import Imputers

    # Its dependencies warn by the thousand; what goes wrong is an exception, or is found in the answer
    # (check_answer), and this process has no user to warn.
    warnings.filterwarnings("ignore")
    given = np.load(sys.argv[1])
    x, n_levels = given["x"], given["n_levels"]
    plugin = Imputers().get("hyperimpute", **json.loads(sys.argv[4]))
    # By itself it takes columns of fewer than five values for classes and all others for numbers.
    classes = {str(j) for j in np.flatnonzero(n_levels)}
    plugin.model._is_categorical = lambda table, column: str(column) in classes
    completed = plugin.fit_transform(pd.DataFrame(x))
    np.save(sys.argv[2], np.asarray(completed, dtype=np.float64))


if __name__ == "__main__":
    main()

"""Runs inside HyperImpute's environment, where diffputer is not: arrays in, arrays out.

Usage: python hyperimpute_worker.py GIVEN.npz ANSWER.npy OPTIONS.json-text
"""

import json
import sys
import warnings

import numpy as np
import pandas as pd


def main() -> None:
    """Complete x (holes are NaN); columns with n_levels > 0 are classes."""
    from hyperimpute.plugins.imputers import Imputers

    # Its dependencies warn by the thousand; what goes wrong is an exception, or is found in the answer
    # (check_answer), and this process has no user to warn.
    warnings.filterwarnings("ignore")
    given = np.load(sys.argv[1])
    x, n_levels = given["x"], given["n_levels"]
    plugin = Imputers().get("hyperimpute", **json.loads(sys.argv[3]))
    # By itself it takes columns of fewer than five values for classes and all others for numbers.
    classes = {str(j) for j in np.flatnonzero(n_levels)}
    plugin.model._is_categorical = lambda table, column: str(column) in classes
    completed = plugin.fit_transform(pd.DataFrame(x))
    np.save(sys.argv[2], np.asarray(completed, dtype=np.float64))


if __name__ == "__main__":
    main()

"""Fill in a table of any kind with any method: numbers rounded, inside their range, dates as dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.verdicts import warn_of_weak, weak_columns
from ..errors import warn_about_data
from ..methods.contract import Method
from ..methods.ours import Ours
from ..methods.table import make_method
from ..runtime.seeding import resolve_seed
from ..tables.frames import read_table
from ..tables.schema import Schema, Status
from .preparation import code, name_columns, read_quietly


def fill_with(
    table: Any,
    method: str | Method,
    *,
    random_state: Any = 0,
    categorical_features: Sequence[Any] | NDArray[Any] | None = None,
    schema: Schema | Mapping[Any, str] | None = None,
    **settings: Any,
) -> Any:
    """Fill in the missing values of a table with one of the methods that are compared.

    What comes back keeps the promises of DiffPuter: the same kind of table, observed cells as they are,
    whole numbers whole, everything inside the observed range; free text is passed through.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array
        With holes.
    method : str or Method
        A name in `diffputer.methods.table.METHODS`, or a method of your own.
    random_state : int, generator or None
        Same seed, same answer.
    categorical_features, schema
        As in DiffPuter.
    **settings
        Of the method, where it is a name.

    Returns
    -------
    the same kind of table
        Completed.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"age": [20, 30, None, 52], "town": ["Ulm", None, "Ulm", "Bonn"]})
    >>> fill_with(df, "mean")
        age  town
    0  20.0   Ulm
    1  30.0   Ulm
    2  34.0   Ulm
    3  52.0  Bonn
    """
    seed = resolve_seed(random_state)
    made = method if isinstance(method, Method) else make_method(method, **settings)
    if isinstance(made, Ours):
        from ..imputer import DiffPuter

        wishes: dict[str, Any] = {
            "categorical_features": categorical_features,
            "schema": schema,
            "random_state": seed,
        }
        return DiffPuter(**made.settings, **wishes).fit_transform(table)
    read = read_table(table)
    encoder, said = read_quietly(read, categorical_features, schema)
    for words in said:
        warn_about_data(words)
    names = name_columns(read.names)
    kept = [j for j, column in enumerate(encoder.schema) if column.status == Status.MODELLED]
    x = np.zeros((read.n_rows, 0))
    if kept:
        coded = code(encoder, read, [names[j] for j in kept])
        wanted = np.isnan(coded.x)
        x = coded.x.copy()
        if wanted.any():
            x[wanted] = coded.read(made.fit_transform(coded.show(), coded.categorical, seed), wanted)
    warn_of_weak(weak_columns(encoder.schema), can_skip=False)
    return encoder.fill(read, x)

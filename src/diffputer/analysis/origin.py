"""Where imputations come from: what a report can say of the model that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Origin:
    """The model behind imputations, in plain values.

    Attributes
    ----------
    method : str
        What made them, in a few words.
    parameters : mapping
        What was asked for: the parameters that are not left at their defaults.
    settings : mapping
        Every constant in use.
    seed : int or None
        To repeat the fit.
    software : mapping
        Names and versions.
    trace : sequence of EMRound
        The rounds of EM.
    held_out : pandas.DataFrame or None
        By column: kind, n, error, baseline, ratio.
    command : str
        The command line, where there was one.
    """

    method: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    trace: Sequence[Any] = ()
    held_out: pd.DataFrame | None = None
    command: str = ""

"""DiffPuter's engines behind the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pandas as pd

from ..errors import InputError
from ..imputer import DiffPuter
from .contract import Facts, Method, Setting

_CONDITIONAL = {
    "what": "An ensemble that predicts any cells of a row from any others.",
    "source": "This project.",
    "cannot": "Be trained in seconds.",
    "packages": ("torch",),
}


def _settings(engine: str, quality: str) -> dict[str, Setting]:
    origin = "docs/settings.md has what it stands for"
    return {
        "engine": Setting(engine, origin),
        "quality": Setting(quality, origin),
        "device": Setting("auto", "a GPU if there is one"),
    }


DIFFPUTER_FAST = Facts("diffputer-fast", settings=_settings("conditional", "fast"), **_CONDITIONAL)  # type: ignore[arg-type]
DIFFPUTER_BALANCED = Facts(
    "diffputer-balanced",
    settings=_settings("conditional", "balanced"),
    **_CONDITIONAL,  # type: ignore[arg-type]
)
DIFFPUTER_BEST = Facts("diffputer-best", settings=_settings("conditional", "best"), **_CONDITIONAL)  # type: ignore[arg-type]
DIFFPUTER_PAPER = Facts(
    name="diffputer-paper",
    what="Expectation-maximisation with a diffusion model.",
    source="Zhang, Fang, Wu and Yu 2025; this project's code.",
    cannot="Be quick without a GPU.",
    settings=_settings("paper", "auto"),
    packages=("torch",),
    published="diffputer",
)


class Ours(Method):
    """DiffPuter; its settings are those of the facts, and any other parameter of DiffPuter."""

    draws = True

    def __init__(self, facts: Facts, **given: Any) -> None:
        own = {name: value for name, value in given.items() if name in facts.settings}
        super().__init__(facts, **own)
        self.settings |= given

    def fit(self, table: pd.DataFrame, categorical: Sequence[str], seed: int) -> Self:
        """Learn from an incomplete table; numbers are taken as continuous."""
        chosen = set(categorical)
        schema = {name: "categorical" if name in chosen else "continuous" for name in table.columns}
        self._imputer = DiffPuter(**{"progress": False, **self.settings}, schema=schema, random_state=seed)
        self._imputer.fit(table)
        return self

    def transform(self, table: pd.DataFrame) -> pd.DataFrame:
        """Give a table with the same columns complete."""
        completed: pd.DataFrame = self._fitted().transform(table)
        return completed

    def sample(self, table: pd.DataFrame, n_draws: int, seed: int) -> list[pd.DataFrame]:
        """Give a table completed so many times, missing cells of a row drawn together."""
        # Draws are numbered, and each number is a draw of its own: seeds share none of as many.
        return list(self._fitted().sample(table, n_draws=n_draws, first_draw=seed * n_draws))

    def _fitted(self) -> DiffPuter:
        if not hasattr(self, "_imputer"):
            raise InputError(f"The method {self.facts.name!r} must be fitted before it can complete a table.")
        return self._imputer

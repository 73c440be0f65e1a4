"""What an imputer must do to be compared: fit a table, complete tables, leave observed cells alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd

from ..errors import InputError, SettingError
from .coding import Coding, Counts, Floats

_ARRAY_RULE = "A method must give back an array as large as the one it is given"


@dataclass(frozen=True)
class Setting:
    """A constant of a method and who chose it."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Facts:
    """What one should know of a method before comparing with it.

    Attributes
    ----------
    name
        Its name in results and on the command line.
    what
        What it does, in a sentence.
    source
        From whom the method is, and whose code runs.
    cannot
        What it cannot do.
    settings
        Name -> default and its origin.
    packages
        Installed packages whose versions a result should state.
    published
        Its name among the paper's numbers, where it is among them.
    revision
        Raised when the same settings come to mean something else: the benchmark then runs it again. Of
        DiffPuter itself it does not count, which goes by its own settings.
    """

    name: str
    what: str
    source: str
    cannot: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    published: str | None = None
    revision: int = 0


class Method(ABC):
    """An imputer of pandas tables whose numbers are floats and whose categories are text or categories.

    Parameters
    ----------
    facts
        Its description, with the defaults of its settings.
    **given
        Settings to change.
    """

    #: Whether it can complete a table without having been fitted on it.
    out_of_sample = True
    #: Whether it can draw what is missing, as :meth:`sample` does.
    draws = False
    #: Name -> version of what did the work, where that was another Python; known once it has run.
    versions: Mapping[str, str] = {}
    #: Of the user's own file that defines it: with another content it makes other runs.
    fingerprint: str = ""

    def __init__(self, facts: Facts, **given: Any) -> None:
        if foreign := sorted(set(given) - set(facts.settings)):
            known = ", ".join(facts.settings) or "none"
            raise SettingError(
                f"Settings of the method {facts.name!r} must be its own, however: {', '.join(foreign)} "
                f"{'is' if len(foreign) == 1 else 'are'} not; it has: {known}."
            )
        self.facts = facts
        self.settings = {name: setting.value for name, setting in facts.settings.items()} | given

    @abstractmethod
    def fit(self, table: pd.DataFrame, categorical: Sequence[str], seed: int) -> Self:
        """Learn from an incomplete table; the same seed learns the same.

        Parameters
        ----------
        table : DataFrame
            Holes are NaN or None.
        categorical : sequence of str
            Which columns are categories; all others are numbers.
        seed : int
            Of everything random.
        """

    @abstractmethod
    def transform(self, table: pd.DataFrame) -> pd.DataFrame:
        """Give a table with the same columns complete: same order, dtypes and index, nothing refitted."""

    def fit_transform(self, table: pd.DataFrame, categorical: Sequence[str], seed: int) -> pd.DataFrame:
        """Give the table that is learnt from complete."""
        return self.fit(table, categorical, seed).transform(table)

    def sample(self, table: pd.DataFrame, n_draws: int, seed: int) -> list[pd.DataFrame]:
        """Give a table completed so many times, missing cells of a row drawn together; if it can."""
        raise SettingError(
            f"A method must be able to draw to be asked for draws, however: {self.facts.name!r} gives best "
            "values only."
        )


def check_completed(completed: Any, table: pd.DataFrame) -> None:
    """Refuse what a method gives back unless it is a table with the rows and columns that it was given.

    Raises
    ------
    InputError
        With the rows and columns that it should have.
    """
    wanted = "A method must give back the table that it is given"
    if not isinstance(completed, pd.DataFrame):
        raise InputError(
            f"{wanted}, as a pandas.DataFrame, however: it gave an object of type {type(completed).__name__}."
        )
    _check_shape(completed.shape, table.shape, wanted)
    if foreign := [name for name in completed.columns if name not in table.columns]:
        raise InputError(f"{wanted}, with its columns, however: it gave {', '.join(map(repr, foreign[:5]))}.")
    if list(completed.columns) != list(table.columns):
        raise InputError(f"{wanted}, with its columns in their order, however: it gave them in another.")


def _check_shape(given: tuple[int, ...], due: tuple[int, ...], wanted: str) -> None:
    if given != due:
        sizes, own = (" x ".join(map(str, shape)) for shape in (due, given))
        raise InputError(f"{wanted}, {sizes}, however: it gave {own or 'a single number'}.")


class CodedMethod(Method):
    """A method that works on an array: standardised numbers, positions of levels, NaN for holes.

    A subclass says how to learn from such an array and how to complete one; reading tables, checks and
    writing back are done here, the observed cells last.
    """

    def fit(self, table: pd.DataFrame, categorical: Sequence[str], seed: int) -> Self:
        """Learn from an incomplete table."""
        self._coding = Coding.fit(table, categorical)
        self._fit(self._coding.code(table), self._coding.n_levels, seed)
        return self

    def transform(self, table: pd.DataFrame) -> pd.DataFrame:
        """Give a table with the same columns complete."""
        x = self._code(table)
        return self._write(table, x, self._complete(x) if np.isnan(x).any() else x)

    def _code(self, table: pd.DataFrame) -> Floats:
        if not hasattr(self, "_coding"):
            raise InputError(f"The method {self.facts.name!r} must be fitted before it can complete a table.")
        return self._coding.code(table)

    def _write(self, table: pd.DataFrame, x: Floats, completed: Floats) -> pd.DataFrame:
        _check_shape(np.shape(completed), x.shape, _ARRAY_RULE)
        return self._coding.write(table, completed)

    @abstractmethod
    def _fit(self, x: Floats, n_levels: Counts, seed: int) -> None:
        """Learn. Shape: x [n, c]; n_levels [c], 0 for numbers."""

    @abstractmethod
    def _complete(self, x: Floats) -> Floats:
        """Give x without holes; what is observed may come back as anything. Shape: [n, c] -> [n, c]."""


class DrawingMethod(CodedMethod):
    """One that can also draw what is missing."""

    draws = True

    def sample(self, table: pd.DataFrame, n_draws: int, seed: int) -> list[pd.DataFrame]:
        """Give a table completed so many times, missing cells of a row drawn together."""
        x = self._code(table)
        random = np.random.default_rng(seed)
        draws = self._draw(x, n_draws, random) if np.isnan(x).any() else [x] * n_draws
        return [self._write(table, x, drawn) for drawn in draws]

    @abstractmethod
    def _draw(self, x: Floats, n_draws: int, random: np.random.Generator) -> Iterable[Floats]:
        """Give x so many times, holes drawn. Shape: [n, c] -> n_draws of [n, c]."""


class InSampleOnlyError(SettingError):
    """A method was asked for a table that it was not fitted on, which it cannot do."""


class InSampleMethod(Method):
    """A method that completes only the table that it learns from, by :meth:`fit_transform`."""

    out_of_sample = False
    #: Why it cannot complete another table.
    reason = ""

    def fit(self, table: pd.DataFrame, categorical: Sequence[str], seed: int) -> Self:
        """Refuse: there is nothing to keep."""
        raise self._refusal()

    def transform(self, table: pd.DataFrame) -> pd.DataFrame:
        """Refuse: it would have to be fitted again."""
        raise self._refusal()

    def _refusal(self) -> InSampleOnlyError:
        return InSampleOnlyError(
            f"The method {self.facts.name!r} completes only the table that it is fitted on: {self.reason} "
            "Use fit_transform."
        )

    def fit_transform(self, table: pd.DataFrame, categorical: Sequence[str], seed: int) -> pd.DataFrame:
        """Give the table that is learnt from complete."""
        coding = Coding.fit(table, categorical)
        self._names = coding.names
        x = coding.code(table)
        completed = self._fit_complete(x, coding.n_levels, seed) if np.isnan(x).any() else x
        _check_shape(np.shape(completed), x.shape, _ARRAY_RULE)
        return coding.write(table, completed)

    @abstractmethod
    def _fit_complete(self, x: Floats, n_levels: Counts, seed: int) -> Floats:
        """Give x without holes. Shape: x [n, c]; n_levels [c], 0 for numbers -> [n, c]."""

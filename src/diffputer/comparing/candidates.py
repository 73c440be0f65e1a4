"""Which methods take part, in what order, and which would not fit the table."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import SettingError
from ..methods.contract import Facts, Method
from ..methods.hyperimpute import find_python
from ..methods.ours import Ours
from ..methods.rmice import CART, PMM, find_versions
from ..methods.table import METHODS
from .preparation import Coded

#: What is tried unless methods are named: quick ones first, so that the time budget buys many of them. Left
#: out are variants of others (median, knn), what needs another language (R's mice) and what takes far longer
#: than a person waits (autoencoders, the paper's engine, diffputer-best).
DEFAULT_METHODS = (
    "mean", "em-gaussian", "mice", "knn-5", "gaussian-copula", "softimpute", "gbt-per-column",
    "diffputer-balanced", "diffputer-fast", "missforest", "iterative-hgb", "miceforest", "hyperimpute",
)  # fmt: skip
#: A method is not tried if it is expected to take so many times what it would be allowed; guesses are rough.
FAR_TOO_LONG = 3.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method that takes part: one of the table of methods, or one of the user's."""

    facts: Facts
    own: Method | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the results."""
        return self.facts.name

    @property
    def is_ours(self) -> bool:
        """Whether it is DiffPuter, which can be told to end in time."""
        return self.own is None and METHODS[self.name][1] is Ours

    def absence(self) -> str:
        """Say why it cannot run on this machine, if it cannot."""
        if self.own is not None:
            return ""
        if self.name == "hyperimpute":
            try:
                find_python()
            except SettingError:
                return "it is not installed (python -P -m diffputer.methods.hyperimpute FOLDER does that)"
        if self.name in (PMM.name, CART.name):
            try:
                find_versions()
            except SettingError:
                return "R or its package mice is not installed"
        if self.name == "miceforest" and importlib.util.find_spec("miceforest") is None:
            return "it is not installed (pip install 'diffputer[rivals]')"
        return ""


def choose_candidates(methods: Sequence[str | Method] | None, device: str = "auto") -> list[Candidate]:
    """Give the methods that take part, in the order in which they are tried.

    Examples
    --------
    >>> [candidate.name for candidate in choose_candidates(["mice", "mean"])]
    ['mice', 'mean']
    """
    if isinstance(methods, str):
        methods = [methods]
    given = DEFAULT_METHODS if methods is None else methods
    candidates = []
    for one in given:
        if isinstance(one, Method):
            candidates.append(Candidate(one.facts, one))
        elif one in METHODS:
            facts = METHODS[one][0]
            candidates.append(
                Candidate(facts, settings={"device": device} if "device" in facts.settings else {})
            )
        else:
            raise SettingError(
                f"A method must be one of {', '.join(METHODS)} or a Method of your own, however: {one!r} is "
                "not."
            )
    names = [candidate.name for candidate in candidates]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SettingError(f"Methods must have different names, however: {twice!r} is there twice. Drop one.")
    if len(names) < 2:
        raise SettingError(
            f"A comparison needs two methods at least, however: {', '.join(names) or 'none'} is given. "
            f"Add one, such as {'mice' if 'mean' in names else 'mean'}."
        )
    return candidates


def guess_seconds(candidate: Candidate, coded: Coded) -> float:
    """Guess roughly how long a method would take on one core; 0 where it ends in time by itself or soon.

    Examples
    --------
    >>> coded = Coded(("a", "b"), np.zeros((100, 2)), np.array([0, 3]))
    >>> [guess_seconds(candidate, coded) < 2 for candidate in choose_candidates(["mice", "missforest"])]
    [True, True]
    """
    if candidate.own is not None:
        return 0.0
    n, c = (float(size) for size in coded.x.shape)
    n_levels = coded.n_levels
    width = float(np.where(n_levels > 0, n_levels - 1, 1).sum())  # with levels as 0/1 columns
    if candidate.name == "mice":
        return 10 * width * (1e-3 + 5e-10 * n * width**2)
    if candidate.name in ("missforest", "miceforest", "iterative-hgb"):
        columns = width if candidate.name == "iterative-hgb" else c
        return 6 * columns * (0.07 + 1.6e-4 * n)
    if candidate.name == "gbt-per-column":
        models = float(np.where(n_levels > 2, n_levels, 1).sum())
        return models * (0.05 + 1.5e-5 * n)
    return 0.0

"""Fits the linear parts of an ensemble, which know nothing of its networks.

All of it is done by the CPU (a GPU would not add up in the same order every time), and so can be done while
a GPU trains the networks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.devices import Deadline
from ..runtime.seeding import derive_seed
from .conditional import Rows
from .ensemble import Ensemble
from .gaussian import GaussianCopula, most_rows
from .linear import LinearValues
from .marginals import Marginals
from .shares import SHARES, add, best_shares
from .splitting import Columns, Validation, blank_rows
from .turns import Turn, ask_copula, choose_shrinking, take_turns
from .variants import Variants

CPU = torch.device("cpu")
#: Encoded columns up to which everything is done whatever the time: it takes a few seconds at most.
CHEAP_COLUMNS = 20

State = dict[str, Tensor]


@dataclass
class LinearFit:
    """Values of an ensemble's linear parts, by their names there."""

    judged: State
    """Of fits that have not seen the held-out cells, which judge them."""
    final: State
    """Of fits to all cells, and of the copula's variants."""


class LinearParts:
    """Copies of an ensemble's linear parts, to be fitted to a table.

    Shape: x, unseen, missing [n, c].
    """

    def __init__(
        self,
        model: Ensemble,
        x: NDArray[np.float32],
        unseen: NDArray[np.bool_],
        missing: NDArray[np.bool_],
        validation: Validation,
        columns: Columns,
    ) -> None:
        self._copula: GaussianCopula | None = copy.deepcopy(model.copula)
        self._line: LinearValues | None = copy.deepcopy(model.line)
        self._variants: Variants | None = copy.deepcopy(model.variants)
        self._marginals: Marginals = copy.deepcopy(model.marginals).to(CPU)
        for part in (self._copula, self._line, self._variants):
            if part is not None:
                part.to(CPU)
        self._x, self._unseen, self._missing, self._columns = x, unseen, missing, columns
        self._validation, self._n_shares = validation.on(CPU), len(model.line_shares)

    def fit(self, seed: int, deadline: Deadline) -> LinearFit:
        """Fit them twice: without the held-out cells, and with all that is known.

        Once time is over, what is judged is final where columns are many, and there are no variants of it.
        """
        if self._columns.numeric.size + sum(self._columns.levels) <= CHEAP_COLUMNS:
            deadline = Deadline()
        turns = take_turns(
            self._x, self._missing, self._columns, self._marginals, CPU, derive_seed(seed, "turns"),
            self._validation.n_cells,
        )  # fmt: skip
        shares = self._judge(lambda part: self._some_rows(part, self._unseen), turns, deadline)
        judged = self._state() | {"line_shares": shares}
        if deadline.remaining <= 0:
            return LinearFit(judged, self._state())
        for part in (self._copula, self._line):
            if part is not None:
                part.fit(self._some_rows(part, self._missing))
        if self._copula is not None and self._variants is not None and deadline.remaining > 0:
            rows = self._some_rows(self._copula, self._missing)
            self._variants.fit(self._copula, rows, len(self._x), derive_seed(seed, "variants"))
        return LinearFit(judged, self._state())

    def _some_rows(self, part: GaussianCopula, missing: NDArray[np.bool_]) -> Rows:
        """Describe as many rows as a part can afford to be fitted to."""
        n_rows = min(len(missing), most_rows(len(part.covariance)))
        some = np.linspace(0, len(missing) - 1, n_rows).astype(np.int64)
        x, known = torch.from_numpy(self._x[some]), torch.from_numpy(~missing[some])
        numeric, categorical = map(torch.from_numpy, (self._columns.numeric, self._columns.categorical))
        return blank_rows(x, known, self._marginals, numeric, categorical)

    def _judge(
        self, describe: Callable[[GaussianCopula], Rows], turns: Sequence[Turn], deadline: Deadline
    ) -> Tensor:
        """Fit copula and Gaussian to the rows that each can afford; give the Gaussian's shares by column.

        Held-out cells say how far to shrink the copula. How far to shrink the Gaussian, and how much it
        counts beside the copula, is said by all cells in turns, if there are some.

        Shape: [p + q].
        """
        nothing = torch.zeros(self._n_shares)
        marginals, validation = self._marginals, self._validation
        if (copula := self._copula) is not None:
            copula.fit_best(
                describe(copula),
                lambda: copula.predict(validation.rows, marginals),
                validation.first_good,
                deadline,
            )
        if (line := self._line) is None:
            return nothing
        rows, validations = describe(line), [turn.validation for turn in turns] or [validation]
        if turns:
            of_line = choose_shrinking(line, turns)
            line.fit(rows)
        else:
            line.fit_best(
                rows,
                lambda: validation.loss_of(*line.answer(validation.rows)),
                lambda losses: losses.index(min(losses)),
                deadline,
            )
            of_line = [line.answer(validation.rows)]
        if copula is None:
            return nothing
        if turns:
            of_copula = list(ask_copula(copula, marginals, turns))
            copula.fit(describe(copula))
        else:
            of_copula = [copula.predict(validation.rows, marginals)]
        mixes = [
            [add(first, *second, torch.full_like(nothing, t)) for t in SHARES]
            for first, second in zip(of_copula, of_line, strict=True)
        ]
        return best_shares(mixes, validations)

    def _state(self) -> State:
        parts = {"copula": self._copula, "line": self._line, "variants": self._variants}
        return {
            f"{name}.{key}": value.clone()
            for name, part in parts.items()
            if part is not None
            for key, value in part.state_dict().items()
        }

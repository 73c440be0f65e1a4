"""All observed cells of a small table in turns: each is predicted from a fit that has not seen it.

Of a small table a few hundred cells are held out, too few to tell two parts from each other. Linear parts are
fitted in no time: every fifth of the cells can be hidden once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .conditional import Rows
from .gaussian import GaussianCopula
from .linear import Answer, LinearValues
from .marginals import Marginals
from .prediction import Prediction
from .splitting import Columns, Table, Validation, blank_rows

#: Parts into which observed cells are divided.
TURNS = 5
#: EM rounds of such a fit, and its tolerance: what is compared need not be settled to the last digit.
ROUGHLY = (10, 1e-2)
#: Held-out cells that tell enough by themselves, and rows times the cube of latent columns up to which fits
#: in turns take seconds.
ENOUGH_CELLS, MOST_WORK = 1_000, 1e7


@dataclass
class Turn:
    """Rows without some of their cells, and those cells."""

    rows: Rows
    validation: Validation


def take_turns(
    x: NDArray[np.float32],
    missing: NDArray[np.bool_],
    columns: Columns,
    marginals: Marginals,
    device: torch.device,
    seed: int,
    n_held_out: int,
) -> list[Turn]:
    """Hide each fifth of the observed cells once; nothing, if held-out cells are enough or it took too long.

    Shape: x, missing [n, c].
    """
    d = len(columns.numeric) + sum(columns.levels)
    if n_held_out >= ENOUGH_CELLS or len(x) * d**3 > MOST_WORK:
        return []
    number = (
        np.random.default_rng(seed & ((1 << 63) - 1)).permutation(missing.size).reshape(missing.shape) % TURNS
    )
    turns = []
    for turn in range(TURNS):
        hidden = (number == turn) & ~missing
        if not hidden.any():
            continue
        table = Table(x, ~(missing | hidden), missing, columns, device)
        rows = blank_rows(table.x, table.known, marginals, table.numeric, table.categorical)
        turns.append(Turn(rows, Validation(table, marginals, hidden)))
    return turns


def choose_shrinking(line: LinearValues, turns: Sequence[Turn]) -> list[Answer]:
    """Choose how far the Gaussian of the values is shrunk: what errs least on the cells of all turns.

    Gives what it then says of the rows of each turn.
    """
    answers: dict[float, list[Answer]] = {}
    losses: dict[float, float] = {}
    for f in line.tried(turns[0].rows):
        line.shrinking.fill_(f)
        answers[f] = [_ask(line, turn) for turn in turns]
        losses[f] = sum(
            turn.validation.loss_of(*answer) for turn, answer in zip(turns, answers[f], strict=True)
        )
    best = min(losses, key=lambda f: losses[f])
    line.shrinking.fill_(best)
    return answers[best]


def _ask(line: LinearValues, turn: Turn) -> Answer:
    line.fit(turn.rows, *ROUGHLY)
    return line.answer(turn.validation.rows)


def ask_copula(copula: GaussianCopula, marginals: Marginals, turns: Sequence[Turn]) -> Iterator[Prediction]:
    """Fit the copula in each turn and give what it says of its rows."""
    for turn in turns:
        copula.fit(turn.rows, *ROUGHLY)
        yield copula.predict(turn.validation.rows, marginals)

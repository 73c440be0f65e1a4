"""All observed cells are hidden in turns, once each, and say what a few held-out ones cannot."""

from __future__ import annotations

import numpy as np
import torch

from diffputer.diffusion.gaussian import GaussianCopula
from diffputer.diffusion.linear import LinearValues
from diffputer.diffusion.marginals import Marginals
from diffputer.diffusion.splitting import Columns
from diffputer.diffusion.turns import ENOUGH_CELLS, Turn, ask_copula, choose_shrinking, take_turns

CPU = torch.device("cpu")


def turns_of(x: np.ndarray, missing: np.ndarray, n_levels: list[int], n_held_out: int = 100) -> list[Turn]:
    columns = Columns(np.array(n_levels, dtype=np.int64))
    x, numeric = x.astype(np.float32), columns.numeric
    marginals = Marginals.fit(x[:, numeric], missing[:, numeric])
    return take_turns(x, missing, columns, marginals, CPU, 0, n_held_out)


def test_every_observed_cell_is_hidden_once_and_no_other() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(90, 3)), rng.integers(2, size=90)])
    missing = rng.random(x.shape) < 0.3
    turns = turns_of(x, missing, [0, 0, 0, 2])
    hidden = sum(turn.validation.n_cells for turn in turns)
    assert hidden == (~missing).sum()
    shown = sum(turn.rows.known.int() for turn in turns)
    assert torch.equal(shown, torch.from_numpy((len(turns) - 1) * (~missing[:, :3]).astype(np.int32)))
    levels = sum((turn.rows.levels >= 0).int() for turn in turns)
    assert torch.equal(levels[:, 0], torch.from_numpy((len(turns) - 1) * (~missing[:, 3]).astype(np.int32)))


def test_large_and_wide_tables_take_no_turns() -> None:
    x, missing = np.zeros((50, 4)), np.zeros((50, 4), dtype=bool)
    assert turns_of(x, missing, [0] * 4)
    assert not turns_of(x, missing, [0] * 4, n_held_out=ENOUGH_CELLS)
    assert not turns_of(np.zeros((400, 40)), np.zeros((400, 40), dtype=bool), [0] * 40)


def test_all_cells_choose_how_far_to_shrink() -> None:
    rng = np.random.default_rng(1)
    base = rng.normal(size=(150, 2))
    tied = np.concatenate([base, base @ rng.normal(size=(2, 4))], axis=1)
    for x, shrunk in ((tied, False), (rng.normal(size=(40, 6)), True)):
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        line = LinearValues(6, [])
        choose_shrinking(line, turns_of(x, rng.random(x.shape) < 0.1, [0] * 6))
        assert (line.shrinking == 1.0) == shrunk


def test_both_parts_are_asked_about_cells_that_they_have_not_seen() -> None:
    # Rows are unlike each other: who has not seen a cell can say nothing about it.
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 4))
    missing = np.zeros_like(x, dtype=bool)
    turns, columns = turns_of(x, missing, [0] * 4), [0] * 4
    marginals = Marginals.fit(x.astype(np.float32), missing)
    of_lines = choose_shrinking(LinearValues(4, []), turns)
    of_copulas = ask_copula(GaussianCopula(4, []), marginals, turns)
    for turn, of_copula, (of_line, levels) in zip(turns, of_copulas, of_lines, strict=True):
        assert levels is None
        truth, held = turn.validation.x, turn.validation.held
        for means in (of_copula.mean, of_line):
            assert means.shape == truth.shape == (len(held), len(columns))
            assert ((means - truth)[held] ** 2).mean() > 0.5

"""Unmasking: draws of a known joint distribution are distributed as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diffputer.models.base import Cells, Predictive, RowBatch
from diffputer.models.conditional.sampler import unmask
from diffputer.models.conditional.support import Support

JOINT = torch.tensor([[[0.3, 0.0], [0.05, 0.15]], [[0.0, 0.1], [0.2, 0.2]]])  # of three binary columns


def exact(rows: RowBatch, cells: Cells) -> Predictive:
    """The conditionals of JOINT."""
    probabilities = []
    for j in range(3):
        given = torch.zeros(len(rows), 2)
        for place in np.ndindex(2, 2, 2):
            given[:, place[j]] += JOINT[place] * _agree(rows.levels, place, j)
        probabilities.append(given / given.sum(dim=1, keepdim=True))
    return Predictive(torch.zeros(0), torch.zeros(0, 2), probabilities)


def _agree(levels: torch.Tensor, place: tuple[int, ...], j: int) -> torch.Tensor:
    """Whether the known cells of rows, but for column j, are those of a place."""
    agree = torch.ones(len(levels), dtype=torch.bool)
    for i, value in enumerate(place):
        if i != j:
            agree = agree & ((levels[:, i] < 0) | (levels[:, i] == value))
    return agree.float()


def blank(n: int) -> RowBatch:
    none = torch.zeros(n, 0)
    return RowBatch(none, none, none.bool(), torch.full((n, 3), -1))


def draw(rows: RowBatch, steps: int) -> torch.Tensor:
    return unmask(rows, torch.arange(len(rows)), Support(0, 2), exact, steps)[1]


def test_draws_are_distributed_as_the_joint_distribution() -> None:
    levels = draw(blank(20_000), steps=20)
    found = torch.zeros(2, 2, 2)
    for place in np.ndindex(2, 2, 2):
        found[place] = (levels == torch.tensor(place)).all(dim=1).float().mean()
    assert float((found - JOINT).abs().max()) < 0.012
    assert float(found[JOINT == 0].max()) == 0  # what cannot be together is never drawn together


def test_in_one_block_dependence_is_lost_and_margins_stay() -> None:
    levels = draw(blank(20_000), steps=1)
    assert float(((levels[:, 0] == 0) & (levels[:, 1] == 0) & (levels[:, 2] == 1)).float().mean()) > 0.02
    assert float((levels[:, 0] == 0).float().mean()) == pytest.approx(float(JOINT[0].sum()), abs=0.02)


def test_known_cells_stay() -> None:
    rows = blank(500)
    rows.levels[:, 1] = 1
    assert (draw(rows, 20)[:, 1] == 1).all()

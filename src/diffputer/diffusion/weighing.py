"""How much each held-out cell counts when widths are chosen.

Some hundred held-out cells are by chance nearer to what is expected of them than others are, or farther, and
widths that are chosen on them would be too small or too large. The copula can be asked about the cells that
it was fitted to, one hidden at a time: it has a coefficient for each other column, and as many rows tell it
as know the cell. What held-out cells have too much or too little of, compared with those, is chance, and
networks and copula err on the same cells by the same chance. So held-out cells are given weights with which
the copula errs on them as it does on all cells (calibration of a sample to known totals: Deville and Särndal
1992), and whatever is chosen on them has less of that chance in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..runtime.seeding import keyed_uniform, mix64
from .conditional import Rows
from .gaussian import GaussianCopula
from .marginals import Marginals
from .splitting import Table, Validation, blank_rows, evenly

#: Held-out cells from which on chance is small enough.
ENOUGH_CELLS = 5_000
#: Known cells that are asked for each held-out one.
TIMES_AS_MANY = 10
#: Rows that know a column, for each coefficient, from which on the copula has learnt little by heart, and can
#: be asked about what it was fitted to.
ROWS_OF_COEFFICIENT = 20
#: Squared residuals are cut off here, so that a few far out do not decide.
LARGEST_SQUARE = 9.0
#: Distance from the middle, as a probability, from which on a cell is outside a 90 % interval.
FAR_OUT = 0.9
#: Smallest and largest weight.
WEIGHTS = (0.0, 4.0)


@dataclass
class HiddenCells:
    """Known cells of a table, one a row, hidden in it.

    Shape: x [m, p]; column (of the hidden cell) [m]; n_known [p].
    """

    rows: Rows
    x: Tensor
    column: Tensor
    n_known: Tensor

    @classmethod
    def of(cls, table: Table, n_known: Tensor, marginals: Marginals, most: int) -> HiddenCells:
        """Hide at most so many cells, evenly spread."""
        # Found column by column: a list of all known cells would take more memory than the table.
        ends = n_known.cumsum(dim=0)
        some = evenly(int(ends[-1]), most, table.device)
        column = torch.searchsorted(ends, some, right=True)
        place = some - (ends - n_known)[column]
        of_column = [
            table.known[:, j].nonzero()[:, 0][place[column == k]]
            for k, j in enumerate(table.numeric.tolist())
        ]
        row = torch.cat(of_column)
        x, shown = table.x[row], table.known[row]
        shown[torch.arange(len(row), device=table.device), table.numeric[column]] = False
        rows = blank_rows(x, shown, marginals, table.numeric, table.categorical)
        return cls(rows, x[:, table.numeric], column, n_known)

    def residuals(self, copula: GaussianCopula, marginals: Marginals) -> Tensor:
        """Give the copula's residuals of the hidden cells, as if it had not been fitted to them.

        Shape: [m].
        """
        below, upto = marginals.distribution(self.x)
        # A value that occurs often has an interval of scores, in which it is anywhere.
        uniform = keyed_uniform(mix64(torch.arange(len(self.x), device=self.x.device)), 0, self.x.shape[1])
        z = torch.special.ndtri(below + (upto - below) * uniform)
        r = copula.maps(self.rows).of(z).gather(1, self.column[:, None])[:, 0].double()
        # Squares of n rows to which d coefficients are fitted are smaller by d / n, of others larger by it.
        d, n = len(copula.middle), self.n_known[self.column].double()
        return r * ((n + d) / (n - d)).sqrt()


def count_known(table: Table) -> Tensor:
    """Count the known cells of numeric columns. Shape: [p]."""
    # One by one: a sum of all columns would make a number of eight bytes of each cell first.
    counts = [table.known[:, j].sum() for j in table.numeric.tolist()]
    return torch.stack(counts) if counts else torch.zeros(0, dtype=torch.int64, device=table.device)


def knows_well(copula: GaussianCopula, n_known: Tensor) -> bool:
    """Whether there are numbers, each known in many rows for each coefficient. Shape: n_known [p]."""
    return len(n_known) > 0 and bool((n_known >= ROWS_OF_COEFFICIENT * len(copula.middle)).all())


@torch.no_grad()
def weigh_cells(
    copula: GaussianCopula | None, validation: Validation, rows: Rows, z: Tensor, held: Tensor, most: int
) -> Tensor:
    """Weigh held-out cells so that the copula errs on them as it does on all cells, of which ``most`` tell.

    Squared residuals of each column should be right, and over all columns distances from the middle and the
    number of cells outside 90 % intervals. The weights 1 - f λ, where f is what a cell has more of than
    cells of its column have on average, make it so. Few rows tell nothing beyond held-out cells: ones.

    Shape: rows n of them, z, held [n, p] -> [n, p], 0 for cells that are not held out.
    """
    weight = held.float()
    n, p = int(held.sum()), held.shape[1]
    if copula is None or not 0 < n < ENOUGH_CELLS:
        return weight
    table = validation.table
    n_known = count_known(table)
    if not knows_well(copula, n_known):
        return weight
    hidden = HiddenCells.of(table, n_known, validation.marginals, min(TIMES_AS_MANY * n, most))
    all_cells = _describe(hidden.residuals(copula, validation.marginals))
    # As a product: sums by index are in any order on a GPU, and their last digits with them.
    belongs = F.one_hot(hidden.column, p).T.double()
    usual = belongs @ all_cells / belongs.sum(dim=1, keepdim=True).clamp_min(1)
    column = held.nonzero()[:, 1]
    more = _describe(copula.maps(rows).of(z)[held]) - usual[column]
    squares = more.new_zeros(n, p).scatter(1, column[:, None], more[:, :1])
    f = torch.cat([squares, more[:, 1:]], dim=1)
    # What is usual is known from so many cells only: the surer, the fuller the correction.
    gram = f.T @ f * (1 + n / len(all_cells)) + 1e-6 * n * torch.eye(f.shape[1], device=f.device)
    weight[held] = (1 - f @ torch.linalg.solve(gram, f.sum(dim=0))).clamp(*WEIGHTS).float()
    return weight


def _describe(r: Tensor) -> Tensor:
    """Give squared residuals, distances from the middle, and whether they are far. Shape: [m] -> [m, 3]."""
    distance = 2 * torch.special.ndtr(r.double().abs()) - 1
    square, far = r.double().square().clamp_max(LARGEST_SQUARE), (distance > FAR_OUT).double()
    return torch.stack([square, distance, far], dim=1)

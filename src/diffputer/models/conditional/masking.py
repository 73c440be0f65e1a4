"""Training on masked cells: random masks of observed rows, the loss of masked cells, held-out cells.

Most rows copy the pattern of another row's missing cells, so that training asks what imputation will ask. The
others mask every cell at a random rate, so that columns which were never missing can be imputed too.
With cross-entropy over the support this is the evidence bound of absorbing-state (masked) diffusion.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...nn.layers import DroppedSilu
from ...runtime.seeding import derive_seed
from ..base import Cells, Columns, Predictive, RowBatch
from .network import Network, Outputs
from .support import Support

#: Weight of the cross-entropy of numeric columns beside the squared error.
CROSS_ENTROPY = 0.3
#: A category whose entropy is smaller counts as if it had this one.
SMALLEST_ENTROPY = 0.05
#: Share of the rows that have their missing cells imputed, from the second EM round on.
IMPUTED_SHARE = 0.5
#: Rows with held-out cells on which the held-out loss is computed.
VALIDATION_ROWS = 8192


class Table:
    """A table on the device, as rows and as classes.

    Shape: x [n, c] and known [n, c] as given; classes [n, p].
    """

    def __init__(
        self, x: NDArray[np.float32], known: NDArray[np.bool_], columns: Columns, support: Support
    ) -> None:
        device = support.means.device
        values = torch.from_numpy(np.where(known, x, np.float32(0)))
        shown = torch.from_numpy(known)
        self.batch = describe(values.to(device), shown.to(device), columns, support)
        self.classes = support.classes_of(self.batch.x)
        sizes = torch.tensor(columns.levels, dtype=torch.int64)
        of_level = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        self.membership = torch.eye(len(sizes))[of_level].to(device)
        self.offsets = (sizes.cumsum(0) - sizes).to(device)
        entropies = [_entropy(x[known[:, j], j], int(columns.n_levels[j])) for j in columns.categorical]
        self.entropies = torch.tensor(entropies, dtype=torch.float32, device=device)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.batch.x.device

    def __len__(self) -> int:
        return len(self.batch)

    def rows(self, numbers: Tensor, known: Tensor) -> RowBatch:
        """Rows of which only some cells are shown. Shape: numbers [m], known [m, c]."""
        return mask(self.batch.part(numbers), known)


def mask(rows: RowBatch, known: Tensor) -> RowBatch:
    """Rows of which only these cells are known. Shape: known [n, p + q]."""
    p = rows.x.shape[1]
    shown = known[:, :p]
    return RowBatch(rows.x * shown, rows.z * shown, shown, torch.where(known[:, p:], rows.levels, -1))


def describe(x: Tensor, known: Tensor, columns: Columns, support: Support) -> RowBatch:
    """Rows as experts see them. Shape: x, known [n, c], columns in the order of the table."""
    numeric, categorical = (
        torch.from_numpy(one).to(x.device) for one in (columns.numeric, columns.categorical)
    )
    shown = known[:, numeric]
    values = x[:, numeric] * shown
    z = support.marginals.scores(values) * shown
    return RowBatch(values, z, shown, torch.where(known[:, categorical], x[:, categorical].long(), -1))


def _entropy(levels: NDArray[np.float32], n_levels: int) -> float:
    counts = np.bincount(levels.astype(np.int64), minlength=n_levels)
    shares = counts[counts > 0] / max(1, counts.sum())
    return max(SMALLEST_ENTROPY, float(-(shares * np.log(shares)).sum()))


def level_losses(logits: Tensor, levels: Tensor, table: Table) -> Tensor:
    """Cross-entropy of every category, in units of the entropy of its column.

    Shape: logits [..., S], levels [..., q] -> [..., q].
    """
    sums = logits.exp() @ table.membership
    return (sums.log() - logits.gather(-1, levels + table.offsets)) / table.entropies


@dataclass(frozen=True)
class Fold:
    """Rows that experts are fitted to, and rows with cells that they are then asked about."""

    fit: RowBatch
    rows: RowBatch
    cells: Cells

    def to(self, device: torch.device | str) -> Fold:
        """The same on another device."""
        return Fold(self.fit.to(device), self.rows.to(device), self.cells.to(device))


class Validation:
    """Held-out cells, to be predicted from what is known besides.

    Of small tables the observed cells are divided into several folds: each is predicted by experts that have
    not seen it, networks by the member that is trained without it.

    Shape: held [folds, n, c]; rows, cells, x, classes [m] and levels [n, q] are of all folds, one after the
    other.
    """

    def __init__(self, table: Table, truth: Table, held: NDArray[np.bool_], columns: Columns) -> None:
        order = np.concatenate([columns.numeric, columns.categorical])
        p, known = table.batch.x.shape[1], table.batch.all_known
        self.folds: list[Fold] = []
        of_folds: list[Tensor] = []
        for one in held:
            rows = np.arange(len(one)) if len(held) > 1 else np.flatnonzero(one.any(axis=1))
            places = np.linspace(0, len(rows) - 1, min(len(rows), VALIDATION_ROWS)).round().astype(np.int64)
            rows = rows[places] if len(held) == 1 else rows
            hidden = torch.from_numpy(one[:, order]).to(table.device)
            fit = mask(table.batch, known & ~hidden)
            chosen = torch.from_numpy(rows).to(table.device)
            held_rows, held_columns = hidden[chosen, :p].nonzero(as_tuple=True)
            self.folds.append(Fold(fit, fit.part(chosen), Cells(held_rows, held_columns, hidden[chosen, p:])))
            of_folds.append(chosen)
        starts = np.cumsum([0, *(len(fold.rows) for fold in self.folds)]).tolist()
        self.rows = RowBatch(*map(torch.cat, zip(*(vars(f.rows).values() for f in self.folds), strict=True)))
        self.cells = Cells(
            torch.cat([f.cells.rows + start for f, start in zip(self.folds, starts, strict=False)]),
            torch.cat([f.cells.columns for f in self.folds]),
            torch.cat([f.cells.levels for f in self.folds]),
        )
        chosen = torch.cat(of_folds)
        self.x, self.classes = (self.cells.pick(one[chosen]) for one in (truth.batch.x, truth.classes))
        self.levels = truth.batch.levels[chosen].clamp_min(0)
        self._entropies = table.entropies

    def to(self, device: torch.device | str) -> Validation:
        """The same on another device."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, [f.to(device) for f in value] if name == "folds" else value.to(device))
        return other

    def loss(self, predictive: Predictive) -> float:
        """Squared error and cross-entropy per held-out cell, as in training."""
        total = (predictive.mean - self.x).square().sum()
        if predictive.bins is not None:
            right = predictive.bins.gather(1, self.classes[:, None])[:, 0].clamp_min(1e-6)
            total = total - CROSS_ENTROPY * right.log().sum()
        for k, probabilities in enumerate(predictive.levels):
            right = probabilities.gather(1, self.levels[:, k : k + 1])[:, 0].clamp_min(1e-6)
            total = total - (right.log() * self.cells.levels[:, k]).sum() / self._entropies[k]
        return float(total) / max(1, len(self.cells) + int(self.cells.levels.sum()))


class MaskedCells:
    """The loss of a network on masked cells of random rows."""

    def __init__(
        self,
        network: Network,
        table: Table,
        patterns: Tensor,
        validation: Validation | None,
        *,
        copied: float,
        batch_size: int,
        dtype: torch.dtype,
    ) -> None:
        self._network, self._table, self._patterns = network, table, patterns
        self._validation, self._copied = validation, copied
        self._batch, self._dtype = network.members * batch_size, dtype
        self._generator = torch.Generator(device=table.device)
        folds = [] if validation is None else [fold.fit.all_known for fold in validation.folds]
        self._known = torch.stack(folds or [table.batch.all_known])
        own = torch.arange(network.members, device=table.device) if len(folds) > 1 else 0
        self._fold = own if isinstance(own, int) else own.repeat_interleave(batch_size)
        self._imputed: Table | None = None
        for module in network.modules():
            if isinstance(module, DroppedSilu):
                module.generator = self._generator

    def use_imputed(self, table: Table) -> None:
        """Let half of the rows have their missing cells imputed from now on (EM rounds after the first)."""
        self._imputed = table

    def begin(self, seed: int) -> list[torch.Generator]:
        """Start the random stream afresh."""
        self._generator.manual_seed(derive_seed(seed, "masks") & ((1 << 63) - 1))
        return [self._generator]

    def before_step(self, step: int) -> None:
        """Nothing: all is on the device."""

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, device=self._table.device)

    def _pick(self, n: int) -> Tensor:
        return torch.randint(n, (self._batch,), generator=self._generator, device=self._table.device)

    def _mask(self, known: Tensor) -> Tensor:
        """Choose which cells of rows are masked. Shape: known [n, c] -> [n, c]."""
        n, c = known.shape
        uniform = self._uniform(n, c) < self._uniform(n, 1)
        copied = self._patterns[self._pick(len(self._patterns))]
        masked = torch.where(self._uniform(n, 1) < self._copied, copied, uniform)
        # A pattern that masks nothing teaches nothing.
        return torch.where((known & masked).any(dim=1, keepdim=True), masked, uniform)

    def loss(self, counter: Tensor) -> Tensor:
        """The loss of a batch: squared error and cross-entropy of masked cells that were observed."""
        table, picked = self._table, self._pick(len(self._table))
        known = self._known[self._fold, picked]
        masked = self._mask(known)
        rows, shown = table.batch.part(picked), known & ~masked
        p = rows.x.shape[1]
        if self._imputed is not None:
            with_imputed = self._uniform(len(picked), 1) < IMPUTED_SHARE
            imputed = self._imputed.batch.part(picked)
            x, z, levels = (
                torch.where(there, first, second)
                for there, first, second in (
                    (known[:, :p], rows.x, imputed.x),
                    (known[:, :p], rows.z, imputed.z),
                    (known[:, p:], rows.levels, imputed.levels),
                )
            )
            rows, shown = RowBatch(x, z, rows.known, levels), (known | with_imputed) & ~masked
        outputs: Outputs = self._network(mask(rows, shown), self._dtype)
        wanted = known & masked
        loss = torch.zeros((), device=table.device)
        if p:
            bins = outputs.bins.flatten(0, 1)
            surprise = bins.logsumexp(dim=-1) - bins.gather(-1, table.classes[picked][..., None])[..., 0]
            squares = (outputs.mean.flatten(0, 1) - rows.x) ** 2
            loss = loss + ((squares + CROSS_ENTROPY * surprise) * wanted[:, :p]).sum()
        if len(table.offsets):
            surprise = level_losses(outputs.levels.flatten(0, 1), rows.levels.clamp_min(0), table)
            loss = loss + (surprise * wanted[:, p:]).sum()
        return loss * (self._network.members / wanted.sum().clamp_min(1))

    def held_out_loss(self, averaged: nn.Module) -> float | None:
        """The loss of what the members predict together on held-out cells."""
        if self._validation is None or not isinstance(averaged, Network):
            return None
        v = self._validation
        return v.loss(averaged.predict(v.rows, v.cells, self._dtype, in_turn=len(v.folds) > 1))

    def state(self, step: int) -> dict[str, Tensor]:
        """Where the random stream is, of dropout too."""
        return {"generator": self._generator.get_state()}

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state."""
        self._generator.set_state(state["generator"])

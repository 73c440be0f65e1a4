"""The fitted engine: arrays in, imputed values, distributions of cells and draws out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import SettingError
from ...held_out import HeldOut
from ...runtime.devices import total_memory
from ...runtime.progress import Progress
from ...runtime.seeding import distinct_keys, draw_keys, row_keys
from ...settings import ConditionalSettings
from ..base import CellDistribution, Cells, Columns, Predictive, RowBatch
from .gaussian import LinearExpert
from .model import ConditionalModel

if TYPE_CHECKING:
    from .fitting import FittingSession

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

#: Rows evaluated together. A matrix product gives a row the same bits whatever stands around it if it is
#: not tiny (CPU) or always of the same size (CUDA), so that short blocks are filled up.
BLOCK = {"cuda": 16_384, "cpu": 2_048}
SMALLEST_BLOCK = {"cuda": 16_384, "cpu": 64}
#: GPUs with less memory impute smaller blocks.
SMALL_GPU = 20 << 30
#: Columns up to which attention between them is affordable, and categories if each column had as many as the
#: largest.
MOST_ATTENDED, MOST_LEVELS = 128, 8_192
#: Memory that a training step takes for each hidden unit (of a column), block and row: Gesture, 32 columns,
#: peaks at 6.3 GB on the H200.
UNIT_BYTES = 42
#: Batches are not halved below this size.
SMALLEST_GPU_BATCH = 64


class ConditionalEngine:
    """Imputes and draws with a :class:`ConditionalModel`; :meth:`begin` starts to fit it."""

    name = "conditional"
    held_out_cells = (100, 20_000)
    holds_out_always = True
    shrinks = True

    def __init__(
        self,
        n_levels: NDArray[np.int64],
        settings: ConditionalSettings,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.columns = Columns(n_levels)
        self.device, self.dtype = torch.device(device), dtype
        if self.device.type == "mps":
            raise SettingError(
                "Masked diffusion computes partly in double precision, which device='mps' does not have. "
                "Use device='cpu'."
            )
        self._memory = total_memory(self.device)
        self.n_levels = n_levels
        self.resize(_with_size(settings, self.columns, self._memory))

    def resize(self, settings: ConditionalSettings) -> None:
        """Take other settings, and a new model of their size."""
        self.settings = settings
        self.model = ConditionalModel(self.columns, settings)
        self.model.to(self.device).requires_grad_(False).eval()

    def use(self, device: torch.device | str, dtype: torch.dtype) -> ConditionalEngine:
        """The same engine on another device, or in another precision."""
        other = ConditionalEngine(self.n_levels, self.settings, device, dtype)
        other.model.load_state_dict(self.model.state_dict())
        return other

    @property
    def lines(self) -> Mask:
        """Columns that are lines of others: what follows a line may leave the observed range. Shape: [c]."""
        found = np.zeros(len(self.n_levels), dtype=bool)
        found[self.columns.numeric] = (self.model.widths > 0).cpu().numpy()
        return found

    @property
    def varies(self) -> bool:
        """Whether draws can carry the uncertainty of the fit."""
        return self.model.varies

    def begin(self, x: Floats, m: Mask, missing: Mask, held: HeldOut, seed: int) -> FittingSession:
        """Start to fit a table: m are all cells that must not be seen, missing those not observed."""
        from .fitting import FittingSession

        return FittingSession(self, x, m, missing, held, seed)

    def _blocks(self, n: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Slices of n rows, and the rows of their block: it is padded with its last row."""
        most, least = BLOCK.get(self.device.type, 2_048), SMALLEST_BLOCK.get(self.device.type, 64)
        if self._memory is not None and self._memory < SMALL_GPU:
            most = least = most // 4
        for start in range(0, n, most):
            part = slice(start, min(start + most, n))
            size = part.stop - part.start
            # Whole vectors only: the rows of a short one would be computed by other instructions.
            whole = -(-size // least) * least
            yield part, np.minimum(np.arange(whole), size - 1) + start

    def _describe(self, x: Floats, missing: Mask) -> RowBatch:
        values = torch.from_numpy(x).to(self.device)
        return self.model.describe(values, torch.from_numpy(~missing).to(self.device))

    def _predictions(
        self, x: Floats, missing: Mask, progress: Progress
    ) -> Iterator[tuple[slice, Cells, Predictive]]:
        progress.begin("imputing", len(x))
        for part, pick in self._blocks(len(x)):
            rows = self._describe(x[pick], missing[pick])
            cells = Cells.of(~rows.all_known, rows.x.shape[1])
            yield part, cells, self.model.predict(rows, cells, self.dtype)
            progress.advance(part.stop - part.start)

    def impute(
        self, x: Floats, missing: Mask, bounds: Floats, seed: int, estimate: str, progress: Progress
    ) -> Floats:
        """Complete rows by mean or median and the most probable category, in one evaluation."""
        completed = x.copy()
        rows = np.flatnonzero(missing.any(axis=1))
        for part, cells, predictive in self._predictions(x[rows], missing[rows], progress):
            middle = self._table_of(cells, self._middle(predictive, cells, estimate))
            expected = self._join(middle, [one.argmax(dim=-1) for one in predictive.levels])
            size = part.stop - part.start
            completed[rows[part]] = np.where(missing[rows[part]], expected[:size], x[rows[part]])
        return completed

    def _middle(self, predictive: Predictive, cells: Cells, estimate: str) -> Tensor:
        if estimate != "median" or predictive.bins is None:
            return predictive.mean
        return self.model.support.quantile(predictive, cells.columns, 0.5)

    def _table_of(self, cells: Cells, values: Tensor) -> Tensor:
        """Values of cells at their places, 0 elsewhere. Shape: [m] -> [n, p]."""
        return cells.place(values, torch.Size((len(cells.levels), len(self.columns.numeric))))

    def describe_cells(
        self, x: Floats, missing: Mask, ends: tuple[float, float], progress: Progress, estimate: str = "mean"
    ) -> CellDistribution:
        """Estimate, standard deviation and two quantiles of numbers, category and probability.

        Cells that are not missing are not looked at: NaN.
        Shape: x, missing [n, c].
        """
        numeric, categorical = self.columns.numeric, self.columns.categorical
        result = CellDistribution(*(np.full(x.shape, np.nan, dtype=np.float32) for _ in range(6)))
        rows = np.flatnonzero(missing.any(axis=1))
        support = self.model.support
        for part, cells, predictive in self._predictions(x[rows], missing[rows], progress):
            size, at = part.stop - part.start, rows[part]
            if numeric.size:
                low, high = (support.quantile(predictive, cells.columns, end) for end in ends)
                inside = (cells.rows < size).cpu().numpy()
                row, column = (one.cpu().numpy()[inside] for one in (cells.rows, cells.columns))
                for target, values in (
                    (result.lower, low), (result.upper, high),
                    (result.deviation, support.std_of(predictive, cells.columns)),
                    (result.estimate, self._middle(predictive, cells, estimate)),
                ):  # fmt: skip
                    target[at[row], numeric[column]] = values.float().cpu().numpy()[inside]
            for j, probabilities in zip(categorical, predictive.levels, strict=True):
                probability, level = (found.cpu().numpy() for found in probabilities[:size].max(dim=-1))
                result.probability[at, j], result.level[at, j] = probability, level
        return result

    def _join(self, numbers: Tensor, levels: list[Tensor]) -> Floats:
        """Put numeric and categorical columns side by side. Shape: [n, p], q of [n] -> [n, c]."""
        joined = np.empty((len(numbers), len(self.n_levels)), dtype=np.float32)
        joined[:, self.columns.numeric] = numbers.float().cpu().numpy()
        for j, level in zip(self.columns.categorical, levels, strict=True):
            joined[:, j] = level.cpu().numpy()
        return joined

    def draw(
        self, x: Floats, missing: Mask, n_draws: int, seed: int, progress: Progress,
        *, first: int = 0, vary: bool = False,
    ) -> Iterator[tuple[slice, Floats]]:  # fmt: skip
        """Draw incomplete rows; each draw is of one member, so that their disagreement is part of it."""
        keys = distinct_keys(row_keys(x, missing, seed))
        numbers = range(first, first + n_draws)
        model = self.model
        owners = model.members_of(numbers)
        members = {owner: model.networks[owner[0]].member(owner[1]) for owner in set(owners)}  # type: ignore[operator]
        variants: list[LinearExpert | None] = [None] * n_draws
        if vary and model.varies and model.copula is not None and model.variants is not None:
            variants = list(model.variants.of_draws(model.copula, numbers))
        progress.begin("drawing", len(x) * n_draws)
        for part, pick in self._blocks(len(x)):
            by_missing = np.argsort(-missing[pick].sum(axis=1), kind="stable")
            at = np.argsort(by_missing)
            pick = pick[by_missing]
            rows = self._describe(x[pick], missing[pick])
            own = draw_keys(torch.from_numpy(keys[pick]).to(self.device), list(numbers))
            size = part.stop - part.start
            given = model.given(rows, learns=True)
            draws = np.empty((n_draws, size, x.shape[1]), dtype=np.float32)
            for j, (owner, variant) in enumerate(zip(owners, variants, strict=True)):
                steps = self.settings.sampling_steps
                drawn, levels = model.draw(rows, given, own[:, j], members[owner], self.dtype, steps, variant)
                draws[j] = self._join(drawn, list(levels.unbind(1)))[at[:size]]
                progress.advance(size)
            yield part, draws


def _with_size(settings: ConditionalSettings, columns: Columns, memory: int | None) -> ConditionalSettings:
    """Adapt settings to a table and to the memory of a GPU (in bytes; None elsewhere).

    MLPs replace attention where columns or categories are so many that it would take too long, and a batch is
    halved until it fits.
    """
    s, c = settings, len(columns.n_levels)
    if c > MOST_ATTENDED or c * max(columns.levels, default=0) > MOST_LEVELS:
        members = max(s.mlp_members, s.attention_members)
        s = dataclasses.replace(s, attention_members=0, mlp_members=members)
    units = s.attention_members * s.attention_depth * s.attention_width * c
    units += s.mlp_members * s.mlp_depth * s.mlp_width
    batch = s.batch_size
    while memory is not None and batch > SMALLEST_GPU_BATCH and batch * units * UNIT_BYTES > memory / 2:
        batch //= 2
    return dataclasses.replace(s, batch_size=batch)

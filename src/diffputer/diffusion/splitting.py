"""Random splits of rows into condition and target: the objective of the conditional engine's M-step.

Which cells of a row are hidden decides what is learnt. Most rows copy the pattern of another row's holes,
so that training asks what imputing will ask; the rest hide each cell at a rate that is itself random, so
that columns which were never missing can be imputed too, and rows of which little or nothing is known.
The loss is taken at cells that were really observed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..runtime.seeding import derive_seed
from ..settings import ConditionalSettings
from .backbones import DroppedSilu
from .conditional import ConditionalNetwork, Outputs, Rows, add_noise, describe
from .marginals import Marginals
from .prediction import Prediction, ask, average
from .residuals import QUANTILES, Residuals
from .schedule import scalings
from .training import AVERAGE_EVERY

#: Rows with held-out cells on which the held-out loss is computed.
VALIDATION_ROWS = 8192
#: Share of the rows that have their holes filled, from the second EM round on.
FILLED_SHARE = 0.5
#: A category whose entropy is smaller counts as if it had this one.
SMALLEST_ENTROPY = 0.05


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are numbers and which categories.

    Shape: n_levels [c], 0 for numbers.
    """

    n_levels: NDArray[np.int64]

    @property
    def numeric(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.n_levels == 0)

    @property
    def categorical(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.n_levels > 0)

    @property
    def levels(self) -> list[int]:
        return [int(n) for n in self.n_levels[self.categorical]]


class Table:
    """A table on the device: values, what is known, the patterns of its holes."""

    def __init__(
        self,
        x: NDArray[np.float32],
        known: NDArray[np.bool_],
        holes: NDArray[np.bool_],
        columns: Columns,
        device: torch.device,
    ) -> None:
        self.columns, self.device = columns, device
        self.x = torch.from_numpy(x).to(device)
        self.known = torch.from_numpy(known).to(device)
        self.holes = torch.from_numpy(holes).to(device)
        self.numeric = torch.from_numpy(columns.numeric).to(device)
        self.categorical = torch.from_numpy(columns.categorical).to(device)
        self.entropies = torch.tensor(
            [
                max(SMALLEST_ENTROPY, _entropy(x[known[:, j], j], int(columns.n_levels[j])))
                for j in columns.categorical
            ],
            dtype=torch.float32,
            device=device,
        )
        # Which category each level (of all, side by side) belongs to, and where those of a category begin.
        sizes = torch.tensor(columns.levels, dtype=torch.int64)
        of_level = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        self.membership = torch.eye(len(sizes))[of_level].to(device)
        self.offsets = (sizes.cumsum(0) - sizes).to(device)


def _entropy(levels: NDArray[np.float32], n_levels: int) -> float:
    counts = np.bincount(levels.astype(np.int64), minlength=n_levels)
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(-(shares * np.log(shares)).sum())


class RowSplitting:
    """The loss of a network on random splits of random rows."""

    def __init__(
        self,
        network: ConditionalNetwork,
        marginals: Marginals,
        table: Table,
        validation: Validation | None,
        settings: ConditionalSettings,
        batch_size: int,
        dtype: torch.dtype,
    ) -> None:
        self._network, self._marginals, self._table = network, marginals, table
        self._settings, self._dtype = settings, dtype
        self._generator = torch.Generator(device=table.device)
        for module in network.modules():
            if isinstance(module, DroppedSilu):
                module.generator = self._generator
        self._batch = network.members * batch_size
        few = max(1, round(settings.noised_share * batch_size))
        # The first rows of each member's part are noised as well.
        places = torch.arange(self._batch, device=table.device)
        self._some = self._by_member(places)[:, :few].reshape(-1)
        self._is_blank = (torch.arange(batch_size + few, device=table.device) < batch_size).float()[:, None]
        self._reference = copy.deepcopy(network).requires_grad_(False).eval()
        self._averaged: list[Tensor] = []
        self._filled = torch.zeros(0, device=table.device)
        self._validation = validation

    def use_filled(self, filled: NDArray[np.float32]) -> None:
        """Let half of the rows have their holes filled from now on (EM rounds after the first).

        Shape: filled [n, c], a draw of the table.
        """
        self._filled = torch.from_numpy(filled).to(self._table.device)

    def begin(self, seed: int) -> list[torch.Generator]:
        """Start all random streams afresh."""
        self._generator.manual_seed(derive_seed(seed, "splits") & ((1 << 63) - 1))
        return [self._generator]

    def follow(self, averaged: nn.Module) -> None:
        """Measure what is noised from the answers of averaged weights."""
        self._averaged = list(averaged.parameters())

    def before_step(self, step: int) -> None:
        """Take the averaged weights as they are now."""
        if step % AVERAGE_EVERY == 0 and self._averaged:
            torch._foreach_copy_(list(self._reference.parameters()), self._averaged)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, device=self._table.device)

    def _pick_rows(self) -> Tensor:
        n = len(self._table.x)
        return torch.randint(n, (self._batch,), generator=self._generator, device=self._table.device)

    def _hide(self, known: Tensor) -> Tensor:
        """Choose which cells of rows are hidden.

        Shape: known [n, c] -> [n, c].
        """
        n, c = known.shape
        uniform = self._uniform(n, c) < self._uniform(n, 1)
        copied = self._table.holes[self._pick_rows()]
        hidden = torch.where(self._uniform(n, 1) < self._settings.copied_patterns, copied, uniform)
        # A pattern that hides nothing teaches nothing.
        return torch.where((known & hidden).any(dim=1, keepdim=True), hidden, uniform)

    def loss(self, counter: Tensor) -> Tensor:
        """Give the loss of a batch of splits: blank rows, and some of them noised as well.

        What is noised is measured by the quantiles that the averaged weights give, as in a draw: those of
        the present weights swing from step to step.
        """
        table = self._table
        rows = self._pick_rows()
        x, observed = table.x[rows], table.known[rows]
        there = observed
        if len(self._filled):
            with_filled = self._uniform(len(rows), 1) < FILLED_SHARE
            x, there = torch.where(with_filled, self._filled[rows], x), observed | with_filled
        hidden = self._hide(observed)
        # What is shown, what is asked for, and what is noised: filled cells are noised like the others,
        # as in a draw, but never asked for.
        known, known_levels = _parts(there & ~hidden, table)
        wanted, wanted_levels = _parts(observed & hidden, table)
        noised, noised_levels = _parts(there & hidden, table)
        values, levels = x[:, table.numeric], x[:, table.categorical].long()
        below, upto = self._marginals.distribution(values)
        z_known = torch.special.ndtri((below + upto) / 2)
        z = torch.special.ndtri(below + (upto - below) * self._uniform(*values.shape))
        blank = describe(values, z_known, known, torch.where(known_levels, levels, -1))

        some, few = self._some, blank.part(self._some)
        with torch.no_grad():
            answer: Outputs = self._reference(few, self._dtype)
            residuals = Residuals(answer.quantiles.flatten(0, 1), self._network.normal_quantiles)
            r = residuals.of(z[some])
        normal = torch.randn(len(r), 1 + r.shape[1], generator=self._generator, device=r.device)
        s = self._settings
        sigma = torch.exp(s.noise_log_mean + s.noise_log_deviation * normal[:, :1])
        r_t = r + sigma * normal[:, 1:]
        # On the way from noise to data categories become known one after the other, in any order.
        revealed = noised_levels[some] & (self._uniform(len(r), levels.shape[1]) < self._uniform(len(r), 1))
        shown_levels = torch.where(revealed, levels[some], few.levels)
        noisy = add_noise(few, residuals, noised[some], r_t, sigma, shown_levels)
        c_skip, c_out, _, _ = scalings(sigma, 1.0)

        both = zip(vars(blank).items(), vars(noisy).values(), strict=True)
        outputs: Outputs = self._network(
            Rows(**{name: self._join(first, second).flatten(0, 1) for (name, first), second in both}),
            self._dtype,
        )
        target = self._join(z, (r - c_skip * r_t) / c_out)
        # Of blank rows E[z | c] is learnt too, which no answer uses: it was there before the quantiles were.
        numbers = (outputs.denoised - target) ** 2 + self._is_blank * (
            (outputs.mean - self._join(values, r)) ** 2
            + pinball(outputs.quantiles, target, self._network.quantile_levels)
        )
        p, q = wanted.shape[1], wanted_levels.shape[1]
        total = (numbers * self._join(_share(wanted, p + q), _share(wanted[some], p + q))).sum()
        if q:
            losses = level_loss(outputs.logits, self._join(levels, levels[some]), table)
            wanted_later = wanted_levels[some] & ~revealed
            shares = self._join(_share(wanted_levels, p + q), _share(wanted_later, p + q))
            total = total + (losses * shares).sum()
        return total

    def _by_member(self, cells: Tensor) -> Tensor:
        E = self._network.members
        return cells.reshape(E, len(cells) // E, *cells.shape[1:])

    def _join(self, blank: Tensor, noised: Tensor) -> Tensor:
        """Put blank and noised rows one below the other, for each member. Shape: [E, n, ...]."""
        return torch.cat([self._by_member(blank), self._by_member(noised)], dim=1)

    def held_out_loss(self, averaged: nn.Module) -> float | None:
        """Give the loss on held-out cells."""
        if self._validation is None or not isinstance(averaged, ConditionalNetwork):
            return None
        return self._validation.loss(average(ask(averaged, self._validation.rows, self._dtype)))

    def state(self, step: int) -> dict[str, Tensor]:
        """Give where the random stream is, of dropout too, and the averaged weights in use."""
        state = {"generator": self._generator.get_state()}
        if step % AVERAGE_EVERY:  # else the step begins by taking them
            state |= {f"reference{k}": p for k, p in enumerate(self._reference.parameters())}
        return state

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state."""
        self._generator.set_state(state["generator"])
        for k, parameter in enumerate(self._reference.parameters()):
            if f"reference{k}" in state:
                parameter.copy_(state[f"reference{k}"])


def _parts(cells: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    return cells[:, table.numeric], cells[:, table.categorical]


def _share(wanted: Tensor, n_columns: int) -> Tensor:
    """Give the weight of each cell in the mean over those that are asked for, columns weighted alike.

    Shape: wanted [n, k] -> [n, k].
    """
    return wanted * (wanted.shape[1] / n_columns / wanted.sum().clamp_min(1))


def pinball(quantiles: Tensor, z: Tensor, levels: Tensor) -> Tensor:
    """Give twice the mean quantile loss, which approximates the CRPS.

    Shape: quantiles [..., Q], z [...], levels [Q] -> [...].
    """
    over = quantiles - z[..., None]
    slope = ((over > 0).to(over.dtype) - levels).detach()
    return 2 * (over * slope).mean(dim=-1)


def level_loss(logits: list[Tensor], levels: Tensor, table: Table) -> Tensor:
    """Give the cross-entropy of every category, in units of the entropy of its marginal distribution.

    All categories at once: logits are bounded, so that exponentials can be summed as they are.

    Shape: logits q of [E, n, L_k], levels [E, n, q] -> [E, n, q].
    """
    flat = torch.cat(logits, dim=-1)
    sums = flat.exp() @ table.membership
    return (sums.log() - flat.gather(-1, levels + table.offsets)) / table.entropies


def blank_rows(x: Tensor, known: Tensor, marginals: Marginals, numeric: Tensor, categorical: Tensor) -> Rows:
    """Describe rows of which nothing is noised.

    Shape: x, known [n, c].
    """
    values, levels = x[:, numeric], x[:, categorical].long()
    return describe(
        values, marginals.scores(values), known[:, numeric], torch.where(known[:, categorical], levels, -1)
    )


def evenly(n: int, most: int, device: torch.device) -> Tensor:
    """Give at most so many numbers below n, evenly spread: tables are often sorted.

    Examples
    --------
    >>> evenly(10, 4, torch.device("cpu")).tolist()
    [0, 3, 6, 9]
    """
    return torch.linspace(0, max(0, n - 1), min(n, most), dtype=torch.float64, device=device).round().long()


class Validation:
    """Rows with held-out cells, to be predicted from what is known besides."""

    def __init__(self, table: Table, marginals: Marginals, held_out: NDArray[np.bool_]) -> None:
        held_rows = np.flatnonzero(held_out.any(axis=1))
        chosen = held_rows[evenly(len(held_rows), VALIDATION_ROWS, torch.device("cpu")).numpy()]
        picked = torch.from_numpy(chosen).to(table.device)
        held = torch.from_numpy(held_out[chosen]).to(table.device)
        self.table, self.marginals = table, marginals
        x, known = table.x[picked], table.known[picked]
        self.rows = blank_rows(x, known, marginals, table.numeric, table.categorical)
        self.x, self.z = x[:, table.numeric], marginals.scores(x[:, table.numeric])
        self.levels = x[:, table.categorical].long()
        self.held, self.held_levels = held[:, table.numeric], held[:, table.categorical]
        self._entropies = table.entropies
        self.n_cells = int(held.sum())

    def on(self, device: torch.device) -> Validation:
        """Give the same on another device."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor | Rows):
                setattr(other, name, value.to(device))
        return other

    def loss(self, prediction: Prediction) -> float:
        """Give squared error plus quantile loss of numbers, cross-entropy of categories, per cell."""
        levels = torch.tensor(QUANTILES, device=self.x.device)
        numbers, categories = self.losses(prediction)
        total = numbers.sum() + categories.sum()
        total += (pinball(prediction.quantiles, self.z, levels) * self.held).sum()
        return float(total) / self.n_cells

    def worse_by(self, prediction: Prediction, other: Prediction) -> tuple[float, float]:
        """Give how much more a prediction loses per cell than another, and the standard error of that."""
        difference = self._by_row(prediction) - self._by_row(other)
        n_rows = len(difference)
        error = float(difference.double().std()) * n_rows**0.5 / self.n_cells if n_rows > 1 else 0.0
        return float(difference.double().sum()) / self.n_cells, error

    def first_good(self, predictions: list[Prediction]) -> int:
        """Say which is the first that held-out cells do not tell from the best: by a standard error."""
        losses = [self.loss(prediction) for prediction in predictions]
        best = predictions[losses.index(min(losses))]
        worse = (self.worse_by(prediction, best) for prediction in predictions)
        return next(k for k, (by, error) in enumerate(worse) if by <= error)

    def _by_row(self, prediction: Prediction) -> Tensor:
        """Give the loss of each row. Shape: [n]."""
        levels = torch.tensor(QUANTILES, device=self.x.device)
        numbers = (prediction.mean - self.x) ** 2 + pinball(prediction.quantiles, self.z, levels)
        total = (numbers * self.held).sum(dim=1)
        for k, probabilities in enumerate(prediction.probabilities):
            right = probabilities.gather(1, self.levels[:, k : k + 1])[:, 0].clamp_min(1e-6)
            total = total - right.log() * self.held_levels[:, k] / self._entropies[k]
        return total

    def losses(self, prediction: Prediction) -> tuple[Tensor, Tensor]:
        """Give what means and probabilities lose in each column: squared errors, cross-entropy.

        Shape: [p], [q].
        """
        return self._losses(prediction.mean, prediction.probabilities)

    def loss_of(self, means: Tensor, of_levels: list[Tensor] | None) -> float:
        """Give what means, and probabilities if there are some, lose in all columns together.

        Shape: [n, p], q of [n, L_k].
        """
        numbers, categories = self._losses(means, of_levels or [])
        return float(numbers.sum() + categories.sum())

    def _losses(self, means: Tensor, of_levels: list[Tensor]) -> tuple[Tensor, Tensor]:
        numbers = ((means - self.x) ** 2 * self.held).sum(dim=0)
        return numbers, self.surprises(of_levels) / self._entropies[: len(of_levels)]

    def surprises(self, of_levels: list[Tensor]) -> Tensor:
        """Give the cross-entropy of each category. Shape: q of [n, L_k] -> [q]."""
        surprises = torch.zeros(len(of_levels), device=self.x.device)
        for k, probabilities in enumerate(of_levels):
            right = probabilities.gather(1, self.levels[:, k : k + 1])[:, 0].clamp_min(1e-6)
            surprises[k] = -(right.log() * self.held_levels[:, k]).sum()
        return surprises

    def trust(self, prediction: Prediction) -> float:
        """Give the factor in [0, 1] by which held-out cells bear out the deviations from column means."""
        guess, truth = prediction.mean[self.held].double(), self.x[self.held].double()
        power = float((guess**2).sum())
        return min(1.0, max(0.0, float((guess * truth).sum()) / power)) if power > 0 else 1.0

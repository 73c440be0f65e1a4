"""MIWAE, and MIWAE inside expectation-maximisation; the equations are in ``autoencoder``.

Numbers have Student's t given z, as in the authors' paper: a cell far out does not move a column's location,
and tables have heavy tails. Categories have the probabilities of their levels, over 0/1 columns; the answer
is the most probable level.

Inside EM, of which the DiffPuter paper says no more than that it is around MIWAE: the first round maximises
the bound over observed cells; then, E: the table is completed by its expectation (levels: by their
probabilities), M: the generator goes on learning from the completed table, all cells of which count in w.
The proposal q sees observed cells only, in every round, so that a row of another table needs the last
generator and nothing else.

Some observed cells are held out of all that; how well they are expected tells when a training ends, which of
its weights are kept, and after which round EM ends.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.devices import few_threads, resolve_device
from ..runtime.seeding import derive_seed, row_keys, torch_generator
from .autoencoder import Generator, Observation, make_network
from .coding import Counts, Floats, Indicators
from .contract import DrawingMethod, Facts, Setting

logger = logging.getLogger(__name__)

_EXAMPLE = "the authors' published example"
_SETTINGS = {
    "observation": Setting("student", "their paper: robust to heavy tails; or gaussian"),
    "hidden": Setting(128, "their paper: units of a hidden layer"),
    "layers": Setting(2, f"{_EXAMPLE}: hidden layers of each network, ReLU"),
    "latent": Setting(10, "their paper: dimensions of z"),
    "train_samples": Setting(20, "their paper: K"),
    "samples": Setting(10_000, "their paper: L; 1,000 are 0.6 % worse and ten times as fast to complete"),
    "learning_rate": Setting(1e-3, "their paper: Adam"),
    "batch_size": Setting(64, _EXAMPLE),
    "max_epochs": Setting(2000, f"{_EXAMPLE}: 2,002"),
    "smallest_scale": Setting(1e-3, f"{_EXAMPLE}: of a number given z, in deviations"),
    "smallest_degrees": Setting(3.0, f"{_EXAMPLE}: of freedom"),
    "held_out": Setting(0.1, "own choice: share of the observed cells of some rows that tell when to stop"),
    "held_out_rows": Setting(2000, "own choice: so many rows at most"),
    "patience": Setting(20, "own choice: looks at held-out cells without a better one that end training"),
    "device": Setting("auto", "a GPU if there is one"),
}
MIWAE = Facts(
    name="miwae",
    what="A variational autoencoder with an importance-weighted bound over observed cells.",
    source="Mattei and Frellsen 2019; own code from the equations.",
    cannot="Tell columns apart that ten latent dimensions do not; be sure of columns with few values.",
    settings=_SETTINGS,
    packages=("torch",),
    published="miwae",
)
EM_MIWAE = Facts(
    name="em-miwae",
    what="MIWAE inside expectation-maximisation: it goes on learning from the table that it has completed.",
    source="Zhang, Fang, Wu and Yu 2025 (an ablation) of Mattei and Frellsen 2019; own code.",
    cannot="Know how uncertain a completed cell was: it is learnt from as if it had been observed. Where "
    "held-out cells find no round better than the first, its answer is miwae's.",
    settings=_SETTINGS
    | {"rounds": Setting(5, "Zhang et al.: four or five suffice; ends with one that brings nothing")},
    packages=("torch",),
    published="em_miwae",
)
#: Samples of z with which held-out cells are looked at.
LOOK_SAMPLES = 50
#: Steps between two looks at least; an epoch if it has more.
LOOK_STEPS = 100


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the networks see them, zeros for what is not observed, and the keys of their noise.

    Shape: seen [n, width], counted [n, c], keys [n].
    """

    seen: Tensor
    counted: Tensor
    keys: Tensor


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Observed cells that are hidden while learning, of some rows.

    Shape: rows [m], truth [m, width], tested [m, width]: the weights of squared errors, 0 for other cells.
    """

    rows: Tensor
    truth: Tensor
    tested: Tensor
    n_cells: int


class Miwae(DrawingMethod):
    """MIWAE, or MIWAE inside EM where there is a number of rounds."""

    def _fit(self, x: Floats, n_levels: Counts, seed: int) -> None:
        self._device = resolve_device(self.settings["device"])
        self._key_seed = derive_seed(seed, "miwae", "rows")
        # Numbers first: parameters of a kind then lie side by side.
        self._order = np.argsort(n_levels > 0, kind="stable")
        self._indicators = Indicators(n_levels[self._order])
        kinds = {name: self.settings[name] for name in ("smallest_scale", "smallest_degrees")}
        observation = Observation(n_levels[self._order], self.settings["observation"], **kinds)
        drawn = torch_generator(derive_seed(seed, "miwae", "weights"))
        d, shape = int(self.settings["latent"]), (int(self.settings["hidden"]), int(self.settings["layers"]))
        encoder = make_network(observation.width, 2 * d, *shape, drawn).to(self._device)
        decoder = make_network(d, observation.n_parameters, *shape, drawn).to(self._device)
        self._generator = Generator(encoder, decoder, observation)
        weights = sum(parameter.numel() for parameter in self._generator.parameters())
        rows = int(self.settings["batch_size"]) * int(self.settings["train_samples"])
        with few_threads(3 * weights * rows, self._device):
            self._learn(x, seed)

    def _learn(self, x: Floats, seed: int) -> None:
        hidden = self._hold_out(x, derive_seed(seed, "miwae", "held out") & ((1 << 63) - 1))
        rows = self._rows(np.where(hidden, np.nan, x))
        chosen = np.flatnonzero(hidden.any(axis=1))
        truth, of_cell = self._rows(x[chosen]).seen, self._indicators.owners
        # Squared differences of indicators add up to 2 where levels differ: half of it counts.
        weight = np.where(self._indicators.n_levels > 0, 0.5, 1.0) * hidden[chosen][:, self._order]
        tested = torch.from_numpy(weight[:, of_cell].astype(np.float32)).to(self._device)
        held_out = HeldOut(torch.from_numpy(chosen).to(self._device), truth, tested, int(hidden.sum()))
        noise = torch_generator(derive_seed(seed, "miwae", "noise"), self._device)
        y, counted, best = rows.seen, rows.counted, math.inf
        for number in range(int(self.settings.get("rounds", 1))):
            if number:  # E-step: as the cells are expected; M-step, below: all of them count
                shown = rows.counted[:, of_cell] > 0
                y, counted = torch.where(shown, rows.seen, self._expect(rows)), torch.ones_like(rows.counted)
            error = self._train(rows, y, counted, held_out, noise)
            logger.debug("EM round %d: error of held-out cells %.4f", number + 1, error)
            if not error < best:
                break
            best = error

    def _hold_out(self, x: Floats, seed: int) -> NDArray[np.bool_]:
        """Choose observed cells of some rows, one at least. Shape: [n, c] -> [n, c]."""
        random = np.random.default_rng(seed)
        showing = np.flatnonzero(~np.isnan(x).all(axis=1))
        few = random.permutation(showing)[: int(self.settings["held_out_rows"])]
        row, column = np.nonzero(~np.isnan(x[few]))
        count = math.ceil(self.settings["held_out"] * len(row))
        cells = random.choice(len(row), count, replace=False)
        hidden = np.zeros(x.shape, dtype=bool)
        hidden[few[row[cells]], column[cells]] = True
        return hidden

    def _train(
        self, rows: Rows, y: Tensor, counted: Tensor, held_out: HeldOut, noise: torch.Generator
    ) -> float:
        """Learn until held-out cells are expected no better; keep the best weights, and give their error.

        Weights go on from where they are; those are the first that are looked at.
        """
        own = self._generator
        optimizer = torch.optim.Adam(own.parameters(), lr=self.settings["learning_rate"], fused=True)
        size = int(self.settings["batch_size"])
        K, d = int(self.settings["train_samples"]), int(self.settings["latent"])
        steps_of_epoch = math.ceil(len(y) / size)
        last = int(self.settings["max_epochs"]) * steps_of_epoch
        between = max(LOOK_STEPS, steps_of_epoch)
        best, kept, waited = self._look(rows, held_out), _copy(own), 0
        for step in range(last):
            if step % steps_of_epoch == 0:
                order = torch.randperm(len(y), generator=noise, device=y.device)
            batch = order[(step % steps_of_epoch) * size :][:size]
            sampled = torch.randn(len(batch), K, d, generator=noise, device=y.device)
            loss = -own.bound(rows.seen[batch], y[batch], counted[batch], sampled).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % between == 0 or step + 1 == last:
                error = self._look(rows, held_out)
                waited += 1
                if error < best:
                    best, kept, waited = error, _copy(own), 0
                if waited >= self.settings["patience"]:
                    break
        with torch.no_grad():
            for parameter, value in zip(own.parameters(), kept, strict=True):
                parameter.copy_(value)
        return best

    def _look(self, rows: Rows, held_out: HeldOut) -> float:
        """Give the mean squared error of held-out cells; of categories half that of their indicators."""
        those = held_out.rows
        seen, counted, keys = rows.seen[those], rows.counted[those], rows.keys[those]
        expected = self._generator.expect(seen, counted, keys, LOOK_SAMPLES)
        return float(((expected - held_out.truth).square() * held_out.tested).sum()) / held_out.n_cells

    def _rows(self, x: Floats) -> Rows:
        x = x[:, self._order]
        missing = np.isnan(x)
        keys = row_keys(x.astype(np.float32), missing, self._key_seed)
        seen = np.nan_to_num(self._indicators.expand(x), nan=0.0).astype(np.float32)
        arrays = (seen, (~missing).astype(np.float32), keys)
        return Rows(*(torch.from_numpy(array).to(self._device) for array in arrays))

    def _complete(self, x: Floats) -> Floats:
        return self._arrange(self._expect(self._rows(x)).cpu().numpy().astype(np.float64))

    def _draw(self, x: Floats, n_draws: int, random: np.random.Generator) -> Iterator[Floats]:
        rows = self._rows(x)
        noise = torch_generator(int(random.integers(1 << 63)), self._device)
        samples = int(self.settings["samples"])
        for parameters in self._generator.resample(
            rows.seen, rows.counted, rows.keys, samples, n_draws, noise
        ):
            yield self._arrange(self._generator.observation.draw(parameters, random))

    def _arrange(self, y: Floats) -> Floats:
        """Give cells as the table has them: columns in its order, positions of levels."""
        completed = np.empty((len(y), len(self._order)))
        completed[:, self._order] = self._indicators.collapse(y)
        return completed

    def _expect(self, rows: Rows) -> Tensor:
        return self._generator.expect(rows.seen, rows.counted, rows.keys, int(self.settings["samples"]))


def _copy(generator: Generator) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in generator.parameters()]

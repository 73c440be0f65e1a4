"""MIWAE: a variational autoencoder of incomplete rows; and the same inside expectation-maximisation.

Mattei and Frellsen 2019. A row has a latent z ~ N(0, I); given z its cells are independent, with parameters
that a network (the decoder) computes from z: numbers have Student's t, categories the probabilities of their
levels. A second network (the encoder) sees the observed cells O, zeros elsewhere, and proposes q(z | x_O), a
Gaussian. Both maximise, over the observed cells alone, a bound of the log-likelihood that grows with K:

    L_K = E log 1/K sum_k w_k,   w_k = p(x_O | z_k) p(z_k) / q(z_k | x_O),   z_1 ... z_K ~ q(z | x_O)

What is missing is expected by self-normalised importance sampling: E[x_M | x_O] = sum_k w_k E[x_M | z_k] / sum_k w_k.

Inside EM, as the DiffPuter paper tries it (table "Effects of combining EM with other deep generative models",
which says no more than that): the first round is the above; then, E: the table is completed by its expectation,
M: the generator goes on learning from the completed table, all cells of which count in w. The proposal sees
observed cells only, in every round, so that a row of another table needs the last generator and nothing else.
"""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError
from ..runtime.devices import few_threads, resolve_device
from ..runtime.seeding import derive_seed, draw_keys, keyed_normal, row_keys, torch_generator
from .coding import Counts, Floats, Indicators
from .contract import CodedMethod, Facts, Setting

logger = logging.getLogger(__name__)

_EXAMPLE = "the authors' published example"
_SETTINGS = {
    "observation": Setting("student", "their paper: robust to heavy tails; or gaussian"),
    "hidden": Setting(128, "their paper: units of a hidden layer"),
    "layers": Setting(2, f"{_EXAMPLE}: hidden layers of each network, ReLU"),
    "latent": Setting(10, "their paper: dimensions of z"),
    "train_samples": Setting(20, "their paper: K"),
    "samples": Setting(1000, "own choice; their paper: 10,000"),
    "learning_rate": Setting(1e-3, "their paper: Adam"),
    "batch_size": Setting(64, _EXAMPLE),
    "max_epochs": Setting(2000, f"{_EXAMPLE}: 2,002"),
    "smallest_scale": Setting(1e-3, f"{_EXAMPLE}: of a number given z, in deviations"),
    "smallest_degrees": Setting(3.0, f"{_EXAMPLE}: of freedom"),
    "held_out": Setting(0.1, "own choice: share of the observed cells of some rows that tell when to stop"),
    "held_out_rows": Setting(2000, "own choice: so many rows at most"),
    "patience": Setting(10, "own choice: looks at held-out cells without a better one that end training"),
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
    cannot="Know how uncertain a completed cell was: it is learnt from as if it had been observed.",
    settings=_SETTINGS
    | {"rounds": Setting(5, "Zhang et al.: four or five suffice; ends with one that brings nothing")},
    packages=("torch",),
    published="em_miwae",
)
#: Samples of z with which held-out cells are looked at.
LOOK_SAMPLES = 50
#: Steps between two looks at least; an epoch if it has more.
LOOK_STEPS = 100
#: Samples of z, over all rows of a chunk, that are decoded at once.
CHUNK_SAMPLES = 50_000


class Observation:
    """How cells are distributed given the parameters that a decoder gives; numbers come first, then categories.

    Parameters
    ----------
    n_levels
        Of each column, [c]; 0 for numbers, all of which come first.
    kind
        Of numbers: "student" or "gaussian".
    smallest_scale, smallest_degrees
        Below which scales and degrees of freedom cannot fall.
    """

    def __init__(
        self,
        n_levels: Counts,
        kind: str = "student",
        smallest_scale: float = 1e-3,
        smallest_degrees: float = 3.0,
    ) -> None:
        if kind not in ("student", "gaussian"):
            raise SettingError(f"observation must be 'student' or 'gaussian', however: observation={kind!r}.")
        self.n_numbers = int((n_levels == 0).sum())
        self.sizes = [int(n) for n in n_levels[self.n_numbers :]]
        self.kind, self.smallest_scale, self.smallest_degrees = kind, smallest_scale, smallest_degrees
        self.per_number = 3 if kind == "student" else 2
        self.width = self.n_numbers + sum(self.sizes)
        self.n_parameters = self.per_number * self.n_numbers + sum(self.sizes)

    def log_density(self, parameters: Tensor, y: Tensor) -> Tensor:
        """Give the log-density of every cell; probabilities in place of a level give its expectation.

        Shape: parameters [..., n_parameters], y [..., width] -> [..., c].
        """
        *raw, logits = self._split(parameters)
        scale = F.softplus(raw[1]) + self.smallest_scale
        t = (y[..., : self.n_numbers] - raw[0]) / scale
        if self.kind == "student":
            degrees = F.softplus(raw[2]) + self.smallest_degrees
            half = (degrees + 1) / 2
            constant = torch.lgamma(half) - torch.lgamma(degrees / 2) - 0.5 * torch.log(math.pi * degrees)
            cells = [constant - half * torch.log1p(t.square() / degrees) - torch.log(scale)]
        else:
            cells = [-0.5 * t.square() - torch.log(scale) - 0.5 * math.log(2 * math.pi)]
        hot = y[..., self.n_numbers :]
        for part, shown in zip(logits.split(self.sizes, -1), hot.split(self.sizes, -1), strict=True):
            cells.append((torch.log_softmax(part, -1) * shown).sum(-1, keepdim=True))
        return torch.cat(cells, -1)

    def expectation(self, parameters: Tensor) -> Tensor:
        """Give the mean of every number and the probability of every level.

        Shape: parameters [..., n_parameters] -> [..., width].
        """
        location, *_, logits = self._split(parameters)
        return torch.cat([location, *(torch.softmax(part, -1) for part in logits.split(self.sizes, -1))], -1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, ...]:
        return parameters.split([self.n_numbers] * self.per_number + [sum(self.sizes)], -1)


@dataclass(eq=False)
class Generator:
    """Two networks and the distribution of cells: all that is learnt.

    Attributes
    ----------
    encoder
        Observed cells, zeros elsewhere [n, width] -> mean and scale before softplus of z [n, 2 d].
    decoder
        z [..., d] -> parameters [..., n_parameters].
    """

    encoder: nn.Module
    decoder: nn.Module
    observation: Observation

    def weigh(self, seen: Tensor, y: Tensor, counted: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logarithms of the weights w of samples of z, and the samples' parameters.

        Shape: seen and y [n, width], counted (1 for the cells in w, else 0) [n, c], noise [n, K, d]
        -> [n, K], [n, K, n_parameters].
        """
        mean, raw = self.encoder(seen)[:, None, :].chunk(2, -1)
        scale = F.softplus(raw) + 1e-6
        z = mean + scale * noise
        parameters = self.decoder(z)
        cells = self.observation.log_density(parameters, y[:, None, :])
        # log p(z) - log q(z): the constants of the two Gaussians cancel.
        ratio = 0.5 * (noise.square() - z.square()) + torch.log(scale)
        return (cells * counted[:, None, :]).sum(-1) + ratio.sum(-1), parameters

    def bound(self, seen: Tensor, y: Tensor, counted: Tensor, noise: Tensor) -> Tensor:
        """Give the bound L_K of the log-likelihood of every row, one draw of its expectation. Shape: -> [n]."""
        log_w, _ = self.weigh(seen, y, counted, noise)
        return torch.logsumexp(log_w, 1) - math.log(noise.shape[1])

    @torch.no_grad()
    def expect(
        self, seen: Tensor, counted: Tensor, keys: Tensor, samples: int, chunk_samples: int = CHUNK_SAMPLES
    ) -> Tensor:
        """Give the expectation of every cell given those counted, by self-normalised importance sampling.

        A row has noise of its own, by its key: what rows are computed together does not matter.

        Shape: seen [n, width], counted [n, c], keys [n] -> [n, width].
        """
        d = self.encoder(seen[:1]).shape[1] // 2
        draws = torch.arange(samples, device=keys.device)
        parts = [seen.new_empty(0, seen.shape[1])]
        rows = max(1, chunk_samples // samples)
        for some, cells, theirs in zip(seen.split(rows), counted.split(rows), keys.split(rows), strict=True):
            noise = keyed_normal(draw_keys(theirs, draws), 0, d)
            log_w, parameters = self.weigh(some, some, cells, noise)
            share = torch.softmax(log_w, 1)[:, None, :]
            parts.append((share @ self.observation.expectation(parameters))[:, 0])
        return torch.cat(parts)

    def parameters(self) -> list[nn.Parameter]:
        """Give what is learnt."""
        return [*self.encoder.parameters(), *self.decoder.parameters()]


def make_network(n_in: int, n_out: int, hidden: int, layers: int, generator: torch.Generator) -> nn.Module:
    """Make a perceptron with ReLU, its weights drawn uniform in 1/sqrt(fan-in), torch's own rule."""
    widths = [n_in, *[hidden] * layers, n_out]
    modules: list[nn.Module] = []
    for here, there in itertools.pairwise(widths):
        linear = nn.utils.skip_init(nn.Linear, here, there)
        bound = 1 / math.sqrt(max(1, here))
        with torch.no_grad():
            for parameter in (linear.weight, linear.bias):
                parameter.copy_(torch.rand(parameter.shape, generator=generator) * (2 * bound) - bound)
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


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

    Shape: rows [m], truth [m, width], tested [m, width]: the weight of a cell's error, 0 for the others.
    """

    rows: Tensor
    truth: Tensor
    tested: Tensor


class Miwae(CodedMethod):
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
        networks = [
            make_network(n_in, n_out, *shape, drawn).to(self._device)
            for n_in, n_out in ((observation.width, 2 * d), (d, observation.n_parameters))
        ]
        self._generator = Generator(*networks, observation)
        weights = sum(parameter.numel() for parameter in self._generator.parameters())
        with few_threads(
            3 * weights * int(self.settings["batch_size"] * self.settings["train_samples"]), self._device
        ):
            self._learn(x, seed)

    def _learn(self, x: Floats, seed: int) -> None:
        hidden = self._hold_out(
            x, np.random.default_rng(derive_seed(seed, "miwae", "held out") & ((1 << 63) - 1))
        )
        rows = self._rows(np.where(hidden, np.nan, x))
        chosen = np.flatnonzero(hidden.any(axis=1))
        truth, of_cell = self._rows(x[chosen]).seen, self._indicators.owners
        # Squared differences of indicators add up to 2 where levels differ: half of it counts.
        weight = np.where(self._indicators.n_levels > 0, 0.5, 1.0) * hidden[chosen][:, self._order]
        tested = torch.from_numpy(weight[:, of_cell].astype(np.float32)).to(self._device)
        held_out = HeldOut(torch.from_numpy(chosen).to(self._device), truth, tested)
        noise = torch_generator(derive_seed(seed, "miwae", "noise"), self._device)
        y, counted, best = rows.seen, rows.counted, math.inf
        for number in range(int(self.settings.get("rounds", 1))):
            if number:  # E-step: as the cells are expected; M-step, below: all of them count
                expected = self._generator.expect(
                    rows.seen, rows.counted, rows.keys, int(self.settings["samples"])
                )
                shown = rows.counted[:, of_cell]
                y, counted = torch.where(shown > 0, rows.seen, expected), torch.ones_like(rows.counted)
            error = self._train(rows, y, counted, held_out, noise)
            logger.debug("EM round %d: error of held-out cells %.4f", number + 1, error)
            if not error < best:
                break
            best = error

    def _hold_out(self, x: Floats, random: np.random.Generator) -> NDArray[np.bool_]:
        """Choose observed cells of some rows, one at least. Shape: [n, c] -> [n, c]."""
        few = random.permutation(len(x))[: int(self.settings["held_out_rows"])]
        row, column = np.nonzero(~np.isnan(x[few]))
        count = math.ceil(self.settings["held_out"] * len(row))
        cells = random.choice(len(row), count, replace=False)
        hidden = np.zeros(x.shape, dtype=bool)
        hidden[few[row[cells]], column[cells]] = True
        return hidden

    def _train(
        self, rows: Rows, y: Tensor, counted: Tensor, held_out: HeldOut, noise: torch.Generator
    ) -> float:
        """Learn until held-out cells are expected no better; keep the weights that did best, give their error.

        Weights go on from where they are; those are the first that are looked at.
        """
        own = self._generator
        optimizer = torch.optim.Adam(own.parameters(), lr=self.settings["learning_rate"])
        size = min(int(self.settings["batch_size"]), len(y))
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
        """Give the mean squared error of held-out cells."""
        those = held_out.rows
        seen, counted, keys = rows.seen[those], rows.counted[those], rows.keys[those]
        expected = self._generator.expect(seen, counted, keys, LOOK_SAMPLES)
        return float(((expected - held_out.truth).square() * held_out.tested).sum() / held_out.tested.sum())

    def _rows(self, x: Floats) -> Rows:
        x = x[:, self._order]
        missing = np.isnan(x)
        keys = row_keys(x.astype(np.float32), missing, self._key_seed)
        seen = np.nan_to_num(self._indicators.expand(x), nan=0.0).astype(np.float32)
        arrays = (seen, (~missing).astype(np.float32), keys)
        return Rows(*(torch.from_numpy(array).to(self._device) for array in arrays))

    def _complete(self, x: Floats) -> Floats:
        rows = self._rows(x)
        expected = self._generator.expect(rows.seen, rows.counted, rows.keys, int(self.settings["samples"]))
        completed = np.empty(x.shape)
        completed[:, self._order] = self._indicators.collapse(expected.cpu().numpy().astype(np.float64))
        return completed


def _copy(generator: Generator) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in generator.parameters()]

"""A generator of rows with a latent variable: the equations of MIWAE (Mattei and Frellsen 2019).

A row has a latent z ~ N(0, I); given z its cells are independent, with parameters that a network, the
decoder, computes from z. Another, the encoder, sees the observed cells O, zeros elsewhere, and proposes z by
a Gaussian q(z | x_O). Of the log-likelihood of x_O there is a bound, which rises to it with K:

    L_K = E log 1/K sum_k w_k,   w_k = p(x_O | z_k) p(z_k) / q(z_k | x_O),   z_1 ... z_K ~ q(z | x_O)

What is missing is expected by self-normalised importance sampling:

    E[x_M | x_O] = sum_k w_k E[x_M | z_k] / sum_k w_k

and drawn by resampling: one of the z_k, as often as its weight says, then x_M from p(x_M | z_k).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError
from ..runtime.seeding import draw_keys, keyed_normal
from .coding import Counts, Floats

#: Samples of z, over all rows of a chunk, that are decoded at once.
CHUNK_SAMPLES = 50_000


class Observation:
    """How cells are distributed, given the parameters from a decoder: numbers first, then categories.

    Parameters
    ----------
    n_levels
        Of each column, [c]; 0 for numbers, all of which come first.
    kind
        Of numbers: "student" or "gaussian".
    smallest_scale, smallest_degrees
        Below which scales and degrees of freedom cannot fall.

    Examples
    --------
    >>> import numpy as np
    >>> observation = Observation(np.array([0, 2]))  # a number: location, scale, degrees; two levels
    >>> observation.n_parameters, observation.width
    (5, 3)
    >>> observation.expectation(torch.tensor([1.5, 0.0, 0.0, 2.0, 2.0]))
    tensor([1.5000, 0.5000, 0.5000])
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

    def draw(self, parameters: Tensor, random: np.random.Generator) -> Floats:
        """Draw every cell; of a category its logits with Gumbel's noise, the largest of which is the draw.

        Shape: parameters [n, n_parameters] -> [n, width].
        """
        location, raw_scale, *rest, logits = (part.cpu().double() for part in self._split(parameters))
        scale = (F.softplus(raw_scale) + self.smallest_scale).numpy()
        if self.kind == "student":
            noise = random.standard_t((F.softplus(rest[0]) + self.smallest_degrees).numpy())
        else:
            noise = random.standard_normal(scale.shape)
        levels = logits.numpy() + random.gumbel(size=tuple(logits.shape))
        return np.concatenate([location.numpy() + scale * noise, levels], axis=1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, ...]:
        sizes = [self.n_numbers] * self.per_number + [sum(self.sizes)]
        return tuple(parameters.split(sizes, -1))


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
        """Give the bound of the log-likelihood of every row: one draw of what L_K expects. Shape: -> [n]."""
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
        parts = [seen.new_empty(0, seen.shape[1])]
        for share, parameters in self._propose(seen, counted, keys, samples, chunk_samples):
            parts.append((share[:, None, :] @ self.observation.expectation(parameters))[:, 0])
        return torch.cat(parts)

    @torch.no_grad()
    def resample(
        self, seen: Tensor, counted: Tensor, keys: Tensor, samples: int, n_draws: int, random: torch.Generator
    ) -> Tensor:
        """Draw parameters of every row by the weights of so many samples of z.

        Shape: seen [n, width], counted [n, c], keys [n] -> [n_draws, n, n_parameters].
        """
        parts = [seen.new_empty(0, n_draws, self.observation.n_parameters)]
        for share, parameters in self._propose(seen, counted, keys, samples, CHUNK_SAMPLES):
            chosen = torch.multinomial(share, n_draws, replacement=True, generator=random)
            parts.append(torch.take_along_dim(parameters, chosen[:, :, None], dim=1))
        return torch.cat(parts).transpose(0, 1)

    def _propose(
        self, seen: Tensor, counted: Tensor, keys: Tensor, samples: int, chunk_samples: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the weights of samples of z, their sum one, and their parameters; some rows at a time.

        Shape: -> [some, samples], [some, samples, n_parameters].
        """
        d = self.encoder(seen[:1]).shape[1] // 2
        numbers = torch.arange(samples, device=keys.device)
        rows = max(1, chunk_samples // samples)
        for some, cells, theirs in zip(seen.split(rows), counted.split(rows), keys.split(rows), strict=True):
            noise = keyed_normal(draw_keys(theirs, numbers), 0, d)
            log_w, parameters = self.weigh(some, some, cells, noise)
            yield torch.softmax(log_w, 1), parameters

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

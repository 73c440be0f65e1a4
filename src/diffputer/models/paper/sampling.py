"""The E-step (paper, Algorithm 2): draw the missing cells of each row given its observed ones.

One reverse step from t_i to t_{i-1} reads, with churned level t_hat >= t_i (Karras et al. 2022, Alg. 2):

    d       = (x_hat - D(x_hat; t_hat)) / t_hat
    x_euler = x_hat + (t_{i-1} - t_hat) d
    x_next  = x_hat + (t_{i-1} - t_hat) (d + d') / 2,   d' = (x_euler - D(x_euler; t_{i-1})) / t_{i-1}

after which observed cells are replaced by x + t_{i-1} eps (paper, Eq. impute-combine), and, R - 1 times,
everything is re-noised to t_i and the step repeated (RePaint). The replacement noise, the re-noising and
the churn are independent Gaussians that add up, so one draw of eps a pass has the same law:

    x_hat = x + t_hat eps                          in observed cells
    x_hat = y + sqrt(t_hat^2 - level(y)^2) eps     in missing cells, y the last x_next at its noise level

The expectation averages N draws in pairs whose noise differs in sign alone. Each draw has the law it had
before; where the samples depend on the noise almost linearly, the errors of a pair cancel.

NOTE[paper]: the paper averages independent draws; the effect is in docs/dev/deviations.md.

NOTE[paper]: Algorithm 2 prints the merge with m and 1 - m exchanged; Eq. impute-combine is meant. It has
no re-noising (R = 1); the published tables were made with R = 20.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...nn.trainer import capture
from ...runtime.devices import MEMORY_SHARE, free_memory
from ...runtime.progress import Progress
from ...runtime.seeding import draw_keys, keyed_normal
from ...settings import PaperSettings
from .denoiser import Denoiser, DenoisingMLP, noise_levels, scalings

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Keys = NDArray[np.int64]

#: Rows times draws evaluated together: enough to fill a GPU, small enough for a CPU's cache.
BLOCK = {"cuda": 32_768, "cpu": 2_048}
#: The fewest rows times draws evaluated together: a matrix product gives the same bits for a row whatever
#: stands around it as long as the product is not tiny (measured from 16 rows on, CPU, with 1 and with 2
#: threads; other numbers of threads give other bits).
#: On CUDA kernels are chosen by size, so that every block has the full one.
SMALLEST_BLOCK = {"cuda": BLOCK["cuda"], "cpu": 64}


@dataclass(frozen=True)
class Schedule:
    """Every pass of the reverse process: where it starts, how far it is churned, where it ends.

    Shape: each [passes]; the last pass ends at zero and takes no second evaluation.
    """

    level: Tensor
    churned: Tensor
    end: Tensor

    @classmethod
    def from_settings(cls, settings: PaperSettings) -> Schedule:
        M, R = settings.sampling_steps, settings.resampling_rounds
        t = noise_levels(M, settings.sigma_min, settings.sigma_max, settings.schedule_exponent).tolist()
        gamma = min(settings.churn / M, math.sqrt(2) - 1)
        passes = [
            (t[i] if r == 0 else t[i + 1], t[i] * (1 + gamma), t[i + 1])
            for i in range(M)
            for r in range(R if i < M - 1 else 1)
        ]
        return cls(*torch.tensor(passes, dtype=torch.float64).float().T.contiguous())

    def __len__(self) -> int:
        return len(self.level)


class Sampler:
    """Draws from p(x_mis | x_obs) with one denoiser, of whose weights it has a copy in its own precision.

    Inside, x is scaled to standard deviation sigma_data; what goes in and comes out is standardised.
    """

    @torch.no_grad()
    def __init__(
        self, denoiser: Denoiser, settings: PaperSettings, dtype: torch.dtype = torch.float32
    ) -> None:
        self.settings, self._dtype = settings, dtype
        self._device = next(denoiser.parameters()).device
        self._width = denoiser.network.fc_in.in_features
        # Matrix units want widths that are multiples of eight: the copy has zero columns added.
        self._padding = -self._width % 8 if self._device.type == "cuda" else 0
        self._network = DenoisingMLP(self._width + self._padding, settings.hidden_width)
        self._network.to(self._device, dtype).requires_grad_(False)
        pairs = zip(self._network.parameters(), denoiser.network.parameters(), strict=True)
        for mine, theirs in pairs:
            mine.zero_()[tuple(slice(size) for size in theirs.shape)].copy_(theirs)
        self._schedule = s = Schedule.from_settings(settings)
        sigma = torch.stack([s.churned, s.end.clamp_min(settings.sigma_min)], dim=1)
        spread = (s.churned**2 - s.level**2).clamp_min(0).sqrt()
        # One row a pass: spread, t_hat, t_next, then c_skip, c_out, c_in of both evaluations.
        factors = scalings(sigma.double(), settings.sigma_data)[:3]
        columns = [spread, s.churned, s.end, *(c[:, e].float() for e in (0, 1) for c in factors)]
        self._coefficients = torch.stack(columns, dim=1).to(self._device)
        # Many passes share a noise level: embed each level once.
        self._levels, self._level_index = torch.unique(sigma.to(self._device), return_inverse=True)
        self._embeddings = denoiser.network.embedding(self._levels.log() / 4).to(dtype)
        self._graph: torch.cuda.CUDAGraph | None = None

    def _denoise(self, x: Tensor, coefficients: Tensor, evaluation: int, embedding: Tensor) -> Tensor:
        c_skip, c_out, c_in = coefficients[3 + 3 * evaluation : 6 + 3 * evaluation]
        padded = F.pad((c_in * x).to(self._dtype), (0, self._padding))
        inner = self._network.from_embedding(padded, embedding)[:, : self._width]
        denoised: Tensor = c_skip * x + c_out * inner.float()
        return denoised

    def _pass(self, state: _Block, last: bool) -> None:
        """One pass of the reverse process on the block's y, in place."""
        # index_select, as indexing with a single number would wait for the device to tell it.
        c = self._coefficients.index_select(0, state.counter)[0]
        spread, t_hat, t_next = c[0], c[1], c[2]
        embeddings = self._embeddings.index_select(0, self._level_index.index_select(0, state.counter)[0])
        eps = state.sign * keyed_normal(state.keys, state.counter + 1, self._width)
        x_hat = torch.where(state.missing, state.y + spread * eps, state.x + t_hat * eps)
        d = (x_hat - self._denoise(x_hat, c, 0, embeddings[0])) / t_hat
        x_next = x_hat + (t_next - t_hat) * d
        if not last:
            d_next = (x_next - self._denoise(x_next, c, 1, embeddings[1])) / t_next
            x_next = x_hat + (t_next - t_hat) * 0.5 * (d + d_next)
        state.y.copy_(x_next)
        state.counter += 1

    @torch.no_grad()
    def _run(self, state: _Block, progress: Progress) -> None:
        if self._device.type == "cuda" and len(self._schedule) > 3 and self._graph is None:
            self._graph = capture(lambda: self._pass(state, last=False), self._device)
        state.counter.zero_()
        state.y.copy_(state.sign * keyed_normal(state.keys, 0, self._width) * self.settings.sigma_max)
        for i in range(len(self._schedule)):
            last = i == len(self._schedule) - 1
            if self._graph is not None and not last:
                self._graph.replay()
            else:
                self._pass(state, last)
            progress.advance(1)

    def blocks(self, n_rows: int, n_draws: int) -> tuple[int, int]:
        """How many rows and how many draws of each are evaluated together."""
        limit = BLOCK.get(self._device.type, BLOCK["cpu"])
        # Four activations of the widest layer and about forty columns' worth of sampler state a row.
        row_bytes = 4 * 2 * self.settings.hidden_width * 4 + 40 * self._width * 4
        limit = max(1, min(limit, int(MEMORY_SHARE * free_memory(self._device)) // row_bytes))
        smallest = min(limit, SMALLEST_BLOCK.get(self._device.type, SMALLEST_BLOCK["cpu"]))
        draws = min(n_draws, limit)
        return max(1, min(n_rows, limit // draws), -(-smallest // draws)), draws

    def draw(
        self,
        x: Floats,
        missing: Mask,
        keys: Keys,
        n_draws: int,
        progress: Progress | None = None,
        *,
        task: str = "drawing",
        first: int = 0,
        antithetic: bool = False,
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with all their draws, from number first on, on the device.

        Draws are independent, or, if antithetic, come in pairs of opposite noise.

        Shape: x, missing [n, d], keys [n] -> (rows, draws [rows, n_draws, d]).
        """
        progress = progress or Progress()
        n, d = x.shape
        rows, draws = self.blocks(n, n_draws)
        progress.begin(task, -(-n // rows) * -(-n_draws // draws) * len(self._schedule))
        state = _Block.empty(rows * draws, d, self._device)
        self._graph = None  # a graph belongs to its block's memory
        for start in range(0, n, rows):
            part = slice(start, min(start + rows, n))
            size = part.stop - part.start
            # Short blocks are filled up with their last row: every block has the same shape.
            pick = np.minimum(np.arange(rows), size - 1)
            block_x = torch.from_numpy(x[part][pick]).to(self._device) * self.settings.sigma_data
            block_missing = torch.from_numpy(missing[part][pick]).to(self._device)
            block_keys = torch.from_numpy(keys[part][pick]).to(self._device)
            result = torch.empty(size, n_draws, d, device=self._device)
            for done in range(0, n_draws, draws):
                numbers = first + torch.arange(done, done + draws, device=self._device)
                state.x.copy_(block_x.repeat_interleave(draws, dim=0))
                state.missing.copy_(block_missing.repeat_interleave(draws, dim=0))
                state.keys.copy_(draw_keys(block_keys, numbers // 2 if antithetic else numbers).reshape(-1))
                if antithetic:
                    state.sign.copy_((1 - 2 * (numbers % 2)).repeat(rows)[:, None])
                self._run(state, progress)
                drawn = state.y.view(rows, draws, d)[:size, : n_draws - done]
                result[:, done : done + drawn.shape[1]] = drawn / self.settings.sigma_data
            yield part, result

    def mean(
        self,
        x: Floats,
        missing: Mask,
        keys: Keys,
        n_draws: int | None = None,
        progress: Progress | None = None,
        *,
        task: str = "imputing",
        bounds: Floats | None = None,
        median: bool = False,
    ) -> Floats:
        """E[x_mis | x_obs] as the mean (or the median) of N draws, observed cells as they were.

        Each draw is kept inside the bounds. Complete rows cost nothing.

        Shape: x, missing [n, d], keys [n], bounds [2, d] -> [n, d].
        """
        completed = x.copy()
        rows = np.flatnonzero(missing.any(axis=1))
        x, missing = x[rows], missing[rows]
        n_draws = n_draws or self.settings.n_draws
        blocks = self.draw(x, missing, keys[rows], n_draws, progress, task=task, antithetic=True)
        for part, draws in blocks:
            if bounds is not None:
                draws = draws.clamp(*torch.from_numpy(bounds).to(self._device))
            middle = torch.quantile(draws, 0.5, dim=1) if median else draws.mean(dim=1)
            completed[rows[part]] = np.where(missing[part], middle.cpu().numpy(), x[part])
        return completed


@dataclass
class _Block:
    """The state of one block of rows times draws; static memory, so that a graph can be replayed on it."""

    x: Tensor
    y: Tensor
    missing: Tensor
    keys: Tensor
    sign: Tensor
    counter: Tensor

    @classmethod
    def empty(cls, size: int, width: int, device: torch.device) -> _Block:
        x, keys = torch.zeros(size, width), torch.zeros(size, dtype=torch.int64)
        parts = x, x.clone(), x.bool(), keys, torch.ones(size, 1), keys[:1].clone()
        return cls(*(part.to(device) for part in parts))

"""The M-step (paper, Algorithm 1): fit the denoiser to the currently completed table.

The table stays on the device, and so does everything random; on CUDA one training step is captured as a
graph and replayed, so that no step waits for Python. Knows nothing of columns or data frames.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ..runtime.devices import Deadline
from ..runtime.progress import Progress
from ..runtime.seeding import derive_seed, keyed_normal, mix64, torch_generator
from ..settings import PaperSettings
from .denoiser import Denoiser, stratified_noise

#: Steps between two looks at the held-out loss (and at the clock).
CHECK_EVERY = 50
#: Steps between two updates of the averaged weights.
AVERAGE_EVERY = 10
#: Rows (with repetitions at several noise levels) on which the held-out loss is computed.
VALIDATION_ROWS = 8192


@dataclass(frozen=True)
class MStep:
    """How one M-step went."""

    steps: int
    loss: float
    held_out_loss: float
    seconds: float


class Trainer:
    """Fits one denoiser again and again, once an EM round."""

    def __init__(
        self, denoiser: Denoiser, n_rows: int, settings: PaperSettings, dtype: torch.dtype = torch.float32
    ) -> None:
        self.denoiser = denoiser
        self.settings = settings
        self._dtype = dtype
        parameter = next(denoiser.parameters())
        self._device = device = parameter.device
        self._width = denoiser.network.fc_in.in_features
        self._batch = max(1, min(settings.batch_size, 8 * n_rows))
        self._steps_per_epoch = -(-n_rows // self._batch)
        self.max_steps = min(settings.max_steps, settings.max_epochs * self._steps_per_epoch)
        self._x = torch.zeros(n_rows, self._width, device=device)
        self._order = torch.arange(n_rows, device=device)
        self._keys = torch.zeros(self._batch, dtype=torch.int64, device=device)
        self._counter = torch.zeros((), dtype=torch.int64, device=device)
        self._positions = torch.arange(self._batch, dtype=torch.int64, device=device)
        self._loss = torch.zeros((), device=device)
        on_cuda = device.type == "cuda"
        self._optimizer = torch.optim.Adam(
            denoiser.parameters(), lr=settings.learning_rate, fused=on_cuda or None, capturable=on_cuda
        )
        # The E-step uses the averaged weights (NOTE[paper]: the paper uses the last, the authors' code
        # those of the lowest training loss; see docs/dev/deviations.md).
        self.averaged = copy.deepcopy(denoiser).requires_grad_(False)
        self._graph = self._capture() if on_cuda else None

    def _step(self) -> None:
        n = len(self._x)
        x_0 = self._x[self._order[(self._counter * self._batch + self._positions) % n]]
        noise = keyed_normal(self._keys, self._counter, self._width + 1)
        s = self.settings
        sigma = torch.exp(s.noise_log_mean + s.noise_log_deviation * noise[:, -1])
        with torch.autocast(
            self._device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16, cache_enabled=False
        ):
            errors = self.denoiser.errors(x_0, noise[:, :-1], sigma)
        loss = errors.mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._loss.lerp_(loss.detach(), torch.where(self._counter < 20, 0.5, 0.02))
        self._counter += 1

    def _capture(self) -> torch.cuda.CUDAGraph:
        before = [p.detach().clone() for p in self.denoiser.parameters()]
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        with torch.no_grad():
            for parameter, value in zip(self.denoiser.parameters(), before, strict=True):
                parameter.copy_(value)
        return graph

    def _reset(self, seed: int, fresh: bool) -> torch.Generator:
        if fresh:
            self.denoiser.network.reset(torch_generator(derive_seed(seed, "weights")))
        for state in self._optimizer.state.values():
            for value in state.values():
                value.zero_()
        if self._graph is None:
            self._optimizer.state.clear()
        self._counter.zero_()
        self._loss.zero_()
        self._keys.copy_(mix64(self._positions + derive_seed(seed, "noise")))
        return torch_generator(derive_seed(seed, "order"), self._device)

    @torch.no_grad()
    def _average(self, updates: int) -> None:
        decay = self.settings.weight_average**AVERAGE_EVERY
        weight = max(1.0 - decay, 1.0 / (updates + 1))
        for mean, value in zip(self.averaged.parameters(), self.denoiser.parameters(), strict=True):
            mean.lerp_(value, weight)

    def fit(
        self,
        x: Tensor,
        *,
        seed: int,
        held_out: Tensor | None = None,
        fresh: bool = True,
        deadline: Deadline | None = None,
        progress: Progress | None = None,
    ) -> MStep:
        """Train until the held-out loss stops improving, a limit is reached or time is up.

        Afterwards ``averaged`` holds the best weights. Without held-out rows the training loss takes
        their place, as in the authors' code.

        Shape: x [n, d], held_out [v, d], both scaled to standard deviation sigma_data.
        """
        s, deadline, progress = self.settings, deadline or Deadline(), progress or Progress()
        started = time.perf_counter()
        self._x.copy_(x)
        order_generator = self._reset(seed, fresh)
        steps_per_epoch, max_steps = self._steps_per_epoch, self.max_steps
        score = _HeldOutLoss(held_out, s, seed) if held_out is not None and len(held_out) else None
        best, best_step, best_weights = float("inf"), 0, [p.clone() for p in self.averaged.parameters()]
        step = updates = seen = 0
        while step < max_steps:
            until = min(step + CHECK_EVERY, max_steps)
            while step < until:
                if step % steps_per_epoch == 0:
                    torch.randperm(
                        len(self._x), generator=order_generator, device=self._device, out=self._order
                    )
                if self._graph is not None:
                    self._graph.replay()
                else:
                    self._step()
                step += 1
                # A step takes long on a CPU; a graph's replay returns at once and tells nothing.
                late = self._graph is None and deadline.remaining <= 0
                until = step if late else until
                if step % AVERAGE_EVERY == 0 or step == until:
                    self._average(updates)
                    updates += 1
            loss = float(self._loss)
            value = loss if score is None else score(self.averaged, self._dtype)
            progress.advance(step - seen, loss=loss)
            seen = step
            if value < best or best_step == 0:
                best, best_step = value, step
                with torch.no_grad():
                    for kept, parameter in zip(best_weights, self.averaged.parameters(), strict=True):
                        kept.copy_(parameter)
            elif step - best_step >= s.patience:
                break
            if deadline.remaining <= 0:
                break
        with torch.no_grad():
            for parameter, kept in zip(self.averaged.parameters(), best_weights, strict=True):
                parameter.copy_(kept)
        held_out_loss = best if score is not None else float("nan")
        return MStep(best_step, loss, held_out_loss, time.perf_counter() - started)


class _HeldOutLoss:
    """The loss on held-out rows, with noise that stays the same from look to look."""

    def __init__(self, x: Tensor, settings: PaperSettings, seed: int) -> None:
        x = x[:VALIDATION_ROWS]
        repeats = max(1, min(32, VALIDATION_ROWS // len(x)))
        self._x = x.repeat(repeats, 1)
        keys = mix64(torch.arange(len(self._x), device=x.device) + derive_seed(seed, "held-out"))
        self._eps = keyed_normal(keys, 0, x.shape[1])
        sigma = stratified_noise(len(self._x), settings.noise_log_mean, settings.noise_log_deviation)
        shuffled = torch.randperm(len(sigma), generator=torch_generator(derive_seed(seed, "held-out levels")))
        self._sigma = sigma[shuffled].to(x.device)

    @torch.no_grad()
    def __call__(self, denoiser: Denoiser, dtype: torch.dtype) -> float:
        with torch.autocast(self._x.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            errors = denoiser.errors(self._x, self._eps, self._sigma)
        return float(errors.mean())

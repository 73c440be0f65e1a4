"""Score matching on the completed table (paper, Algorithm 1): the objective of the paper's M-step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...nn.trainer import Trainer, TrainingPlan
from ...runtime.seeding import derive_seed, keyed_normal, mix64, torch_generator
from ...settings import PaperSettings
from .denoiser import Denoiser, stratified_noise

#: Rows (with repetitions at several noise levels) on which the held-out loss is computed.
VALIDATION_ROWS = 8192


class ScoreMatching:
    """The denoising loss on rows in random order; the table is replaced before every M-step."""

    def __init__(self, denoiser: Denoiser, n_rows: int, settings: PaperSettings, dtype: torch.dtype) -> None:
        self._denoiser, self._settings, self._dtype = denoiser, settings, dtype
        self._device = device = next(denoiser.parameters()).device
        self._width = denoiser.network.fc_in.in_features
        self._batch = max(1, min(settings.batch_size, 8 * n_rows))
        self.steps_per_epoch = -(-n_rows // self._batch)
        self._x = torch.zeros(n_rows, self._width, device=device)
        self._order = torch.arange(n_rows, device=device)
        self._keys = torch.zeros(self._batch, dtype=torch.int64, device=device)
        self._positions = torch.arange(self._batch, dtype=torch.int64, device=device)
        self._held_out = self._x[:0]

    def use_table(self, x: Tensor, held_out: Tensor | None = None) -> None:
        """Take the completed table: rows to train on, and rows on which to choose when to stop.

        Shape: x [n, d], held_out [v, d], both scaled to standard deviation sigma_data.
        """
        self._x.copy_(x)
        self._held_out = x[:0] if held_out is None else held_out[:VALIDATION_ROWS]

    def begin(self, seed: int) -> list[torch.Generator]:
        """Start all random streams afresh; noise is keyed to steps, so that none is needed in a step."""
        self._keys.copy_(mix64(self._positions + derive_seed(seed, "noise")))
        self._shuffler = torch_generator(derive_seed(seed, "order"), self._device)
        v = self._held_out
        if len(v):  # held-out rows have noise that stays the same from look to look
            self._x_0 = v.repeat(max(1, min(32, VALIDATION_ROWS // len(v))), 1)
            n, s = len(self._x_0), self._settings
            keys = mix64(torch.arange(n, device=self._device) + derive_seed(seed, "held-out"))
            self._eps = keyed_normal(keys, 0, self._width)
            shuffled = torch.randperm(n, generator=torch_generator(derive_seed(seed, "held-out levels")))
            sigma = stratified_noise(n, s.noise_log_mean, s.noise_log_deviation)[shuffled]
            self._sigma = sigma.to(self._device)
        return []

    def before_step(self, step: int) -> None:
        """Shuffle the rows when all have been seen."""
        if step % self.steps_per_epoch == 0:
            torch.randperm(len(self._x), generator=self._shuffler, device=self._device, out=self._order)

    def _errors(self, denoiser: Denoiser, x_0: Tensor, eps: Tensor, sigma: Tensor) -> Tensor:
        """The mean error of rows, with matrix products in the precision of the engine."""
        coarse = self._dtype == torch.bfloat16
        with torch.autocast(self._device.type, torch.bfloat16, enabled=coarse, cache_enabled=False):
            return denoiser.errors(x_0, eps, sigma).mean()

    def loss(self, counter: Tensor) -> Tensor:
        """The mean error of a batch."""
        x_0 = self._x[self._order[(counter * self._batch + self._positions) % len(self._x)]]
        noise = keyed_normal(self._keys, counter, self._width + 1)
        s = self._settings
        sigma = torch.exp(s.noise_log_mean + s.noise_log_deviation * noise[:, -1])
        return self._errors(self._denoiser, x_0, noise[:, :-1], sigma)

    @torch.no_grad()
    def held_out_loss(self, averaged: nn.Module) -> float | None:
        """The mean error of the held-out rows."""
        if not len(self._held_out) or not isinstance(averaged, Denoiser):
            return None
        return float(self._errors(averaged, self._x_0, self._eps, self._sigma))

    def state(self, step: int) -> dict[str, Tensor]:
        """The order of the rows and the state of the random stream."""
        return {"shuffler": self._shuffler.get_state(), "order": self._order}

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state."""
        self._shuffler.set_state(state["shuffler"])
        self._order.copy_(state["order"])


def make_trainer(denoiser: Denoiser, n_rows: int, settings: PaperSettings, dtype: torch.dtype) -> Trainer:
    """The trainer of the paper's M-step; ``trainer.objective`` takes the table."""
    objective = ScoreMatching(denoiser, n_rows, settings, dtype)
    plan = TrainingPlan(
        learning_rate=settings.learning_rate,
        max_steps=min(settings.max_steps, settings.max_epochs * objective.steps_per_epoch),
        patience=settings.patience,
        weight_average=settings.weight_average,
    )
    return Trainer(denoiser, denoiser.network, objective, plan)

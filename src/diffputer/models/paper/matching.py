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
        self._held_out: Tensor | None = None

    def use_table(self, x: Tensor, held_out: Tensor | None = None) -> None:
        """Take the completed table: rows to train on and rows to stop on.

        Shape: x [n, d], held_out [v, d], both scaled to standard deviation sigma_data.
        """
        self._x.copy_(x)
        self._held_out = held_out if held_out is not None and len(held_out) else None

    def begin(self, seed: int) -> list[torch.Generator]:
        """Start all random streams afresh; noise is keyed to steps, so that none is needed in a step."""
        self._keys.copy_(mix64(self._positions + derive_seed(seed, "noise")))
        self._shuffler = torch_generator(derive_seed(seed, "order"), self._device)
        self._validation = None
        if self._held_out is not None:
            self._validation = _Validation(self._held_out, self._settings, seed)
        return []

    def before_step(self, step: int) -> None:
        """Shuffle the rows when all have been seen."""
        if step % self.steps_per_epoch == 0:
            torch.randperm(len(self._x), generator=self._shuffler, device=self._device, out=self._order)

    def loss(self, counter: Tensor) -> Tensor:
        """Give the mean error of a batch."""
        x_0 = self._x[self._order[(counter * self._batch + self._positions) % len(self._x)]]
        noise = keyed_normal(self._keys, counter, self._width + 1)
        s = self._settings
        sigma = torch.exp(s.noise_log_mean + s.noise_log_deviation * noise[:, -1])
        with torch.autocast(
            self._device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16, cache_enabled=False
        ):
            errors = self._denoiser.errors(x_0, noise[:, :-1], sigma)
        return errors.mean()

    def held_out_loss(self, averaged: nn.Module) -> float | None:
        """Give the loss on the held-out rows."""
        if self._validation is None or not isinstance(averaged, Denoiser):
            return None
        return self._validation.loss(averaged, self._dtype)

    def state(self, step: int) -> dict[str, Tensor]:
        """Give the order of the rows and where the random stream is."""
        return {"shuffler": self._shuffler.get_state(), "order": self._order}

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state."""
        self._shuffler.set_state(state["shuffler"])
        self._order.copy_(state["order"])


class _Validation:
    """Held-out rows with noise that stays the same from look to look."""

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
    def loss(self, denoiser: Denoiser, dtype: torch.dtype) -> float:
        with torch.autocast(self._x.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            errors = denoiser.errors(self._x, self._eps, self._sigma)
        return float(errors.mean())


def make_trainer(denoiser: Denoiser, n_rows: int, settings: PaperSettings, dtype: torch.dtype) -> Trainer:
    """Make the trainer of the paper's M-step; ``trainer.objective`` takes the table."""
    objective = ScoreMatching(denoiser, n_rows, settings, dtype)
    plan = TrainingPlan(
        learning_rate=settings.learning_rate,
        max_steps=min(settings.max_steps, settings.max_epochs * objective.steps_per_epoch),
        patience=settings.patience,
        weight_average=settings.weight_average,
    )
    return Trainer(denoiser, denoiser.network, objective, plan)

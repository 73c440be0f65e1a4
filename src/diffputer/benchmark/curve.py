"""The curve over EM rounds: what the weights of each round would impute."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from ..em import EMResult, impute, observed_range
from ..em_state import Checkpoint, EMState
from ..imputer import DiffPuter
from ..models import make_engine
from ..runtime.devices import resolve_device, resolve_precision
from ..settings import ConditionalSettings, PaperSettings, Settings
from ..tables.encoding import Encoded
from ..tables.frames import read_table
from .parts import Part, score_fields
from .results import Row


@dataclass
class RoundScores:
    """Scores the weights that each EM round ends with; EM takes it for a checkpoint that is always new."""

    parts: tuple[Part, ...]
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def open(self, imputer: DiffPuter, encoded: Encoded, settings: Settings) -> None:
        """Keep what an E-step needs: as the final one, but with em_draws draws."""
        self._imputer = imputer
        self._device = resolve_device(imputer.device)
        self._settings = settings
        if isinstance(settings, PaperSettings):
            self._settings = dataclasses.replace(settings, n_draws=settings.em_draws)
        self._bounds = observed_range(encoded.x, encoded.missing)

    def load(self) -> EMState | None:
        """Give nothing: every fit starts from the beginning."""
        return None

    def save(self, state: EMState) -> None:
        """Impute and score with the weights of the round that has just ended."""
        if state.under_way is not None:  # none has
            return
        started = time.perf_counter()
        settings, encoder = self._settings, self._imputer._encoder
        dtype = resolve_precision(self._imputer.precision, self._device)
        weights = {k.removeprefix("model."): v for k, v in state.weights.items() if k.startswith("model.")}
        if isinstance(settings, ConditionalSettings):  # small tables have a member for every fold
            names = [name for name in ("mlp_members", "attention_members") if getattr(settings, name)]
            first = [
                next(iter(v for key, v in weights.items() if key.startswith(f"networks.{k}.body")))
                for k in range(len(names))
            ]
            settings = dataclasses.replace(
                settings, **{name: len(v) for name, v in zip(names, first, strict=True)}
            )
        engine = make_engine(encoder.n_levels, settings, self._device, dtype)
        engine.model.load_state_dict(weights)
        fitted = EMResult(engine, self._bounds, state.trace, len(state.trace))
        for part in self.parts:
            begun = time.perf_counter()
            table = read_table(part.holes)
            encoded = encoder.encode(table)
            x = impute(encoded.x, encoded.missing, fitted, seed=self._imputer.seed_)
            self.rows.append(
                {
                    "setting": part.setting,
                    "em_round": len(state.trace),
                    "rows": len(part.truth),
                    "draws": count_draws(settings),
                    "m_seconds": sum(line.m_seconds for line in state.trace),
                    "e_seconds": sum(line.e_seconds for line in state.trace),
                    "transform_seconds": time.perf_counter() - begun,
                    **score_fields(part.score(encoder.fill(table, x))),
                }
            )
        self.seconds += time.perf_counter() - started


class WatchedDiffPuter(DiffPuter):
    """DiffPuter that tells RoundScores of every round."""

    watcher: RoundScores

    def _open_checkpoint(self, encoded: Encoded, settings: Settings) -> Checkpoint:
        self.watcher.open(self, encoded, settings)
        return self.watcher


def count_draws(settings: Settings | None) -> int | None:
    """Give the draws that an imputed value averages; the conditional engine takes none."""
    return settings.n_draws if isinstance(settings, PaperSettings) else None

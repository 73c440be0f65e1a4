"""The parameters of DiffPuter, flat as scikit-learn wants them; None leaves a setting to the quality."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from .errors import SettingError
from .runtime.devices import resolve_device
from .settings import (
    DEFAULT_ENGINE,
    EMPTY,
    ESTIMATES,
    MODEL_UNCERTAINTIES,
    PRECISIONS,
    RETIRED,
    SETTING_NAMES,
    Settings,
    check_choice,
    check_number,
    resolve_settings,
)
from .tables.constraints import Derived
from .tables.schema import Schema

P = ParamSpec("P")


def naming_the_unknown(init: Callable[P, None]) -> Callable[P, None]:
    """Let an initialiser say in a sentence which argument it does not know: a TypeError, as in Python."""
    known = tuple(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked(*arguments: P.args, **given: P.kwargs) -> None:
        if len(arguments) > 1:
            raise TypeError(
                f"Parameters of DiffPuter are given by name, however: {arguments[1]!r} has none. Write "
                f"NAME={arguments[1]!r}."
            )
        if unknown := [name for name in given if name not in known]:
            close = " or ".join(difflib.get_close_matches(unknown[0], known))
            raise TypeError(
                f"A parameter must be one that DiffPuter has, however: {unknown[0]!r} is none. "
                + (f"Did you mean {close}?" if close else "help(DiffPuter) lists them.")
            )
        init(*arguments, **given)

    return checked


class Parameters(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Stores what it is given; :class:`diffputer.DiffPuter` says what each means."""

    @naming_the_unknown
    def __init__(
        self,
        *,
        engine: str = DEFAULT_ENGINE,
        quality: str = "auto",
        estimate: str = "mean",
        categorical_features: Sequence[Any] | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        schema: Schema | Mapping[Any, str] | None = None,
        derived: Derived | None = None,
        inequalities: Sequence[str] | None = None,
        max_levels: int = 200,
        skip: Sequence[Any] | None = None,
        empty: str = "zero",
        fill_all: bool = False,
        random_state: Any = None,
        device: str = "auto",
        precision: str = "auto",
        model_uncertainty: str = "linear",
        bootstrap_models: int = 10,
        time_budget: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        em_rounds: int | None = None,
        em_patience: int | None = None,
        held_out: float | None = None,
        network_per_round: str | None = None,
        codes: str | None = None,
        hidden_width: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        max_steps: int | None = None,
        patience: int | None = None,
        weight_average: float | None = None,
        noise_log_mean: float | None = None,
        noise_log_deviation: float | None = None,
        sigma_data: float | None = None,
        n_draws: int | None = None,
        em_draws: int | None = None,
        sampling_steps: int | None = None,
        resampling_rounds: int | None = None,
        sigma_max: float | None = None,
        sigma_min: float | None = None,
        schedule_exponent: float | None = None,
        churn: float | None = None,
        mlp_members: int | None = None,
        mlp_width: int | None = None,
        mlp_depth: int | None = None,
        attention_members: int | None = None,
        attention_width: int | None = None,
        attention_depth: int | None = None,
        dropout: float | None = None,
        member_training: str | None = None,
        mixture_components: int | None = None,
        boosted_trees: int | None = None,
        tree_depth: int | None = None,
        copied_patterns: float | None = None,
        weight_decay: float | None = None,
        rate_decay_from: float | None = None,
        noised_share: float | None = None,
        planned_steps: int | None = None,
        classes: int | None = None,
    ) -> None:
        self.engine = engine
        self.quality = quality
        self.estimate = estimate
        self.categorical_features = categorical_features
        self.bounds = bounds
        self.schema = schema
        self.derived = derived
        self.inequalities = inequalities
        self.max_levels = max_levels
        self.skip = skip
        self.empty = empty
        self.fill_all = fill_all
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.model_uncertainty = model_uncertainty
        self.bootstrap_models = bootstrap_models
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.progress = progress
        self.em_rounds = em_rounds
        self.em_patience = em_patience
        self.held_out = held_out
        self.network_per_round = network_per_round
        self.codes = codes
        self.hidden_width = hidden_width
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.max_steps = max_steps
        self.patience = patience
        self.weight_average = weight_average
        self.noise_log_mean = noise_log_mean
        self.noise_log_deviation = noise_log_deviation
        self.sigma_data = sigma_data
        self.n_draws = n_draws
        self.em_draws = em_draws
        self.sampling_steps = sampling_steps
        self.resampling_rounds = resampling_rounds
        self.sigma_max = sigma_max
        self.sigma_min = sigma_min
        self.schedule_exponent = schedule_exponent
        self.churn = churn
        self.mlp_members = mlp_members
        self.mlp_width = mlp_width
        self.mlp_depth = mlp_depth
        self.attention_members = attention_members
        self.attention_width = attention_width
        self.attention_depth = attention_depth
        self.dropout = dropout
        self.member_training = member_training
        self.mixture_components = mixture_components
        self.boosted_trees = boosted_trees
        self.tree_depth = tree_depth
        self.copied_patterns = copied_patterns
        self.weight_decay = weight_decay
        self.rate_decay_from = rate_decay_from
        self.noised_share = noised_share
        self.planned_steps = planned_steps
        self.classes = classes

    def _check_parameters(self) -> tuple[torch.device, Settings]:
        """Refuse what cannot be, and give the device and the settings that the parameters mean."""
        check_choice("estimate", self.estimate, ESTIMATES)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("empty", self.empty, EMPTY)
        if not isinstance(self.fill_all, bool | np.bool_):
            raise SettingError(f"`fill_all` must be True or False; got {self.fill_all!r}.")
        check_choice("model_uncertainty", self.model_uncertainty, MODEL_UNCERTAINTIES)
        check_number("bootstrap_models", self.bootstrap_models, 2, 10_000, closed=True, whole=True)
        check_number("max_levels", self.max_levels, 2, 1 << 31, closed=True, whole=True)
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, 0.0, 1e9, closed=False, whole=False)
        if self.checkpoint is not None and self.random_state is None:
            raise SettingError(
                "A checkpoint belongs to one seed, however: random_state=None. Set random_state."
            )
        device = resolve_device(self.device)
        given = {name: getattr(self, name) for name in {*SETTING_NAMES, *RETIRED}}
        return device, resolve_settings(self.engine, self.quality, given, on_gpu=device.type == "cuda")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

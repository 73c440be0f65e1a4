"""Models of resampled rows: the bootstrap, which asks what else a table of this sort might have led to."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import numpy as np
import torch

from .em import EMResult, Engine, fit_em
from .errors import SettingError
from .runtime.devices import Deadline
from .runtime.progress import Progress
from .runtime.seeding import derive_seed
from .settings import MODEL_UNCERTAINTIES, check_choice
from .tables.encoding import Encoded, TableEncoder

logger = logging.getLogger("diffputer")


def choose_models(result: EMResult, model_uncertainty: str) -> tuple[EMResult, bool]:
    """Give what draws are made of: the fitted engine or the resampled ones, and whether it varies."""
    check_choice("model_uncertainty", model_uncertainty, MODEL_UNCERTAINTIES)
    if model_uncertainty == "linear" and not getattr(result.engine, "varies", False):
        logger.info(
            "Draws do not vary the model, just as with model_uncertainty='none': it has no linear part, or "
            "time_budget was over before variants of it were found. Fit with more time, or "
            "with model_uncertainty='bootstrap' to vary all of it."
        )
    if model_uncertainty != "bootstrap":
        return dataclasses.replace(result, resampled=()), model_uncertainty == "linear"
    if not result.resampled:
        raise SettingError(
            "Draws of model_uncertainty='bootstrap' need the models of resampled rows, however: this imputer "
            "was fitted without. Fit it again."
        )
    return result, False


def fit_resampled(
    make: Callable[[], Engine],
    encoded: Encoded,
    encoder: TableEncoder,
    n_models: int,
    *,
    seed: int,
    deadline: Deadline,
    progress: Progress,
) -> tuple[Engine, ...]:
    """Fit as many engines, each to as many rows as the table has, drawn with replacement.

    Time that is left is shared evenly. Cells that are held out are held out of all copies of a row.
    """
    engines = []
    n = len(encoded.x)
    for k in range(n_models):
        own = derive_seed(seed, "bootstrap", k)
        rows = np.sort(np.random.default_rng(own & ((1 << 63) - 1)).integers(n, size=n))
        result = fit_em(
            make(),
            encoded.x[rows],
            encoded.missing[rows],
            encoder.blocks,
            seed=own,
            deadline=deadline.share(1 / (n_models - k)),
            progress=progress,
            copies=rows,
        )
        engines.append(result.engine.use("cpu", torch.float32))
    return tuple(engines)

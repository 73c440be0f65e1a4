"""Every constant that changes a result, by name, resolved once from the estimator's flat parameters.

The defaults of :class:`PaperSettings` are the paper's values, or the authors' where the paper is silent
or where its tables were made with another value (docs/dev/deviations.md lists which, and what each is
worth). ``quality="fast"`` replaces the expensive ones, so that a laptop finishes in minutes. Those of
:class:`ConditionalSettings` were chosen on held-out cells (docs/dev/log.md).
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import Any

from .errors import SettingError, warn_about_data

ENGINES = ("conditional", "paper")
DEFAULT_ENGINE = ENGINES[0]
#: Which qualities an engine knows; "auto" is the first that suits the device.
QUALITIES = {
    "conditional": ("auto", "fast", "balanced", "best"),
    "paper": ("auto", "fast", "paper"),
}
ESTIMATES = ("mean", "median")
#: What numbers without any observed value get: zero, as in scikit-learn, or nothing.
EMPTY = ("zero", "keep")
PRECISIONS = ("auto", "float32", "bfloat16")
#: How draws tell that the model itself is uncertain.
MODEL_UNCERTAINTIES = ("linear", "none", "bootstrap")


@dataclass(frozen=True)
class PaperSettings:
    """The constants of the paper's engine; letters in brackets are the paper's symbols."""

    # EM
    em_rounds: int = 5
    """[K] Rounds of M-step and E-step at most; "4 to 5 suffice" (paper), 10 (authors' code)."""
    em_patience: int = 2
    """Rounds without a better score on held-out cells before EM stops."""
    held_out: float = 0.05
    """Share of rows, and of observed cells, kept back to tell when to stop; 0 runs all to the end."""
    network_per_round: str = "fresh"
    """"fresh": a new network every M-step (authors' code); "warm": go on from the last round's."""
    codes: str = "binary"
    """Categories "onehot" (paper), as "binary" digits (authors' code), or "mixed": digits above 16 levels."""
    # NOTE[paper]: standardised indicators of rare levels made EM diverge (docs/dev/deviations.md).

    # M-step
    hidden_width: int = 1024
    """Width of the first and last hidden layer; the middle ones are twice as wide (paper)."""
    learning_rate: float = 1e-4
    """Adam's step size (paper)."""
    batch_size: int = 4096
    """Rows a training step (authors' code)."""
    max_epochs: int = 10_000
    """Passes over the table in one M-step at most (authors' code)."""
    max_steps: int = 6_000
    """Training steps in one M-step at most, whatever the size of the table."""
    patience: int = 600
    """Training steps without a better held-out loss before the M-step stops."""
    weight_average: float = 0.999
    """Decay a step of the averaged weights that the E-step uses; 0 uses the last weights (paper)."""
    noise_log_mean: float = -1.2
    """Mean of ln sigma in training (authors' code)."""
    noise_log_deviation: float = 1.2
    """Standard deviation of ln sigma in training (authors' code)."""
    sigma_data: float = 0.5
    """Standard deviation to which the standardised data is scaled (authors' code)."""

    # E-step
    n_draws: int = 20
    """[N] Draws averaged into the imputed value (authors' code; the paper says 10)."""
    em_draws: int = 2
    """Draws averaged in the E-steps inside EM, whose result only the next M-step sees (paper: N)."""
    # NOTE[paper]: one pair of opposite noise, a fifth of the E-step's time (docs/dev/deviations.md).
    sampling_steps: int = 50
    """[M] Steps of the reverse process (paper)."""
    resampling_rounds: int = 20
    """[R] Times each reverse step is repeated from re-noised values (authors' code); 1 is Algorithm 2."""
    sigma_max: float = 80.0
    """[T] Noise level at which the reverse process starts (paper)."""
    sigma_min: float = 0.002
    """Last noise level before zero (authors' code)."""
    schedule_exponent: float = 7.0
    """[rho] Spacing of the noise levels: evenly in sigma^(1/rho) (authors' code)."""
    churn: float = 1.0
    """Noise added before each reverse step: sigma grows by min(churn / M, sqrt 2 - 1) (authors' code)."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def evaluations(self) -> int:
        """Network evaluations a draw: two a pass (Heun), one in the last."""
        return 2 * (self.sampling_steps - 1) * self.resampling_rounds + 1


#: What ``quality="fast"`` changes. The multiplications of the network, counted for 10 encoded columns, are
#: then a 470th in an E-step inside EM, a 1,550th in the last one and an 870th in all E-steps of five rounds.
#: docs/dev/log.md has the measurements that chose the values.
FAST = {
    "codes": "mixed",
    "network_per_round": "warm",
    "hidden_width": 128,
    "learning_rate": 2e-3,
    "batch_size": 512,
    "max_steps": 1_500,
    "patience": 300,
    "weight_average": 0.99,
    "n_draws": 6,
    "sampling_steps": 12,
    "resampling_rounds": 12,
    "sigma_max": 3.0,
    "sigma_min": 0.02,
}


@dataclass(frozen=True)
class ConditionalSettings:
    """The constants of the conditional engine: masked diffusion."""

    # EM
    em_rounds: int = 1
    """Rounds at most; the first trains on observed cells only."""
    em_patience: int = 1
    """Rounds without a better score on held-out cells before EM stops."""
    held_out: float = 0.05
    """Share of the observed cells kept back to choose when to stop, weights and temperatures."""

    # Networks
    mlp_members: int = 0
    """Residual MLPs in the ensemble; 0 leaves them out."""
    mlp_width: int = 512
    """Their width."""
    mlp_depth: int = 4
    """Their residual blocks."""
    attention_members: int = 4
    """Networks with attention between columns in the ensemble; 0 leaves them out."""
    attention_width: int = 128
    """Width of a column in them, a multiple of 32."""
    attention_depth: int = 6
    """Their blocks of attention and MLP."""
    dropout: float = 0.1
    """Share of hidden units that a training step leaves out."""

    # Mixture and trees
    mixture_components: int = 32
    """Components of the mixture of Gaussian copulas at most, a power of two; 0 leaves it out."""
    boosted_trees: int = 0
    """Rounds of boosting for each column at most; 0 leaves trees out."""

    # Training
    copied_patterns: float = 0.75
    """Share of the rows that mask what another row misses; the others mask cells at a random rate."""
    learning_rate: float = 3e-3
    """Step size of AdamW and of Muon."""
    rate_decay_from: float = 0.3
    """Share of the training steps after which the learning rate falls evenly to zero."""
    weight_decay: float = 0.0
    """Decay of the weights, in units of the step size."""
    batch_size: int = 1024
    """Rows a training step, for each member."""
    planned_steps: int = 2_700
    """Training steps; doubled, and doubled again, while the held-out loss still falls."""
    max_steps: int = 8_100
    """Training steps at most."""
    max_epochs: int = 1_000
    """Passes over the table at most, but 2,000 steps are always allowed."""
    patience: int = 1_000
    """Steps without a better held-out loss before it stops, at most: half of those that led to the best loss,
    and 200, are enough."""
    weight_average: float = 0.999
    """Decay a step of the averaged weights."""

    # Support and draws
    classes: int = 64
    """Classes of a numeric column at most: atoms and quantile bins."""
    sampling_steps: int = 20
    """Steps of a draw at most: missing cells are unmasked one by one, and in blocks where there are more."""

    def __post_init__(self) -> None:
        _check(self)
        if self.mlp_members + self.attention_members == 0:
            raise SettingError(
                "An ensemble needs a member; got mlp_members=0 and attention_members=0. Set one of them to 1 "
                "or more."
            )
        if self.attention_width % 32:
            raise SettingError(
                f"`attention_width` must be a multiple of 32; got {self.attention_width}. Choose 32 or 64."
            )


#: What the qualities of the conditional engine change, on a GPU and on a CPU.
CONDITIONAL: dict[tuple[str, bool], dict[str, Any]] = {
    ("fast", True): {
        "mixture_components": 16, "attention_members": 1, "attention_depth": 4, "planned_steps": 1_500,
        "max_steps": 1_500,
    },
    ("balanced", True): {},
    ("best", True): {
        "mlp_members": 8, "attention_members": 8, "planned_steps": 6_000, "max_steps": 18_000,
        "patience": 1_500,
    },
    ("fast", False): {
        "mixture_components": 16, "boosted_trees": 200, "attention_members": 0, "mlp_members": 1,
        "mlp_width": 96, "mlp_depth": 2, "batch_size": 128, "planned_steps": 1_500, "max_steps": 1_500,
        "max_epochs": 160, "patience": 400, "weight_average": 0.995,
    },
    ("balanced", False): {
        "boosted_trees": 300, "attention_members": 0, "mlp_members": 1, "mlp_width": 128, "mlp_depth": 3,
        "batch_size": 256, "planned_steps": 5_000, "max_steps": 5_000, "max_epochs": 160, "patience": 1_000,
        "weight_average": 0.998,
    },
    ("best", False): {
        "boosted_trees": 300, "attention_width": 64, "attention_depth": 3, "mlp_members": 3, "mlp_width": 192,
        "mlp_depth": 3, "batch_size": 256, "planned_steps": 12_000, "max_steps": 12_000, "patience": 2_500,
        "attention_members": 1,
    },
}  # fmt: skip

Settings = PaperSettings | ConditionalSettings

_CHOICES = {
    "network_per_round": ("fresh", "warm"),
    "codes": ("onehot", "binary", "mixed"),
}
#: Smallest and largest allowed value; an open end excludes the number itself.
_RANGES: dict[str, tuple[float, float, bool]] = {
    "em_rounds": (1, 10_000, True),
    "em_patience": (1, 10_000, True),
    "held_out": (0.0, 0.5, True),
    "hidden_width": (8, 65_536, True),
    "learning_rate": (0.0, 1.0, False),
    "batch_size": (1, 1 << 24, True),
    "max_epochs": (1, 1 << 31, True),
    "planned_steps": (1, 1 << 31, True),
    "max_steps": (1, 1 << 31, True),
    "patience": (1, 1 << 31, True),
    "weight_average": (0.0, 0.99999, True),
    "noise_log_mean": (-20.0, 20.0, True),
    "noise_log_deviation": (0.0, 20.0, False),
    "sigma_data": (0.0, 1e6, False),
    "n_draws": (1, 1 << 31, True),
    "em_draws": (1, 1 << 31, True),
    "sampling_steps": (2, 100_000, True),
    "resampling_rounds": (1, 100_000, True),
    "sigma_max": (0.0, 1e6, False),
    "sigma_min": (0.0, 1e6, False),
    "schedule_exponent": (0.0, 1e3, False),
    "churn": (0.0, 1e6, True),
    "mlp_members": (0, 1_000, True),
    "mlp_width": (8, 65_536, True),
    "mlp_depth": (1, 1_000, True),
    "attention_members": (0, 1_000, True),
    "attention_width": (32, 65_536, True),
    "attention_depth": (1, 1_000, True),
    "dropout": (0.0, 0.95, True),
    "mixture_components": (0, 1_024, True),
    "boosted_trees": (0, 100_000, True),
    "copied_patterns": (0.0, 1.0, True),
    "weight_decay": (0.0, 1e3, True),
    "rate_decay_from": (0.0, 1.0, True),
    "classes": (8, 1_024, True),
}


def check_number(name: str, value: Any, low: float, high: float, *, closed: bool, whole: bool) -> None:
    """Refuse a setting that is not a number in its range, in one sentence."""
    sort = "a whole number" if whole else "a number"
    is_real = isinstance(value, numbers.Real)
    if isinstance(value, bool) or not is_real or (whole and math.isfinite(value) and value != int(value)):
        raise SettingError(f"{name} must be {sort}, however: {name}={value!r}. Give one, or leave it out.")
    inside = low <= value <= high if closed else low < value < high
    if not inside:
        left, right = ("[", "]") if closed else ("(", ")")
        raise SettingError(
            f"{name} must lie in {left}{low:g}, {high:g}{right}, however: {name}={value!r}. Choose one "
            "inside, or leave it out."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is none of the choices, and list them."""
    if value not in choices:
        raise SettingError(
            f"{name} must be one of {', '.join(map(repr, choices))}, however: {name}={value!r}. Choose one."
        )


def _check(settings: Settings) -> None:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in _CHOICES:
            check_choice(field.name, value, _CHOICES[field.name])
        else:
            low, high, closed = _RANGES[field.name]
            whole = field.type == "int"
            check_number(field.name, value, low, high, closed=closed, whole=whole)
            object.__setattr__(settings, field.name, int(value) if whole else float(value))
    if isinstance(settings, PaperSettings) and settings.sigma_min >= settings.sigma_max:
        raise SettingError(
            f"sigma_min must be below sigma_max, however: sigma_min={settings.sigma_min}, "
            f"sigma_max={settings.sigma_max}. Lower the one, or raise the other."
        )


_NAMES = {
    "paper": tuple(field.name for field in dataclasses.fields(PaperSettings)),
    "conditional": tuple(field.name for field in dataclasses.fields(ConditionalSettings)),
}
#: Every setting of every engine, once.
SETTING_NAMES = tuple(dict.fromkeys(name for names in _NAMES.values() for name in names))
#: Settings that the conditional engine had in version 0.1; they are accepted with a warning.
RETIRED = (
    "member_training", "tree_depth", "noised_share", "noise_log_mean", "noise_log_deviation", "sigma_max",
    "sigma_min", "schedule_exponent",
)  # fmt: skip


def resolve_settings(engine: str, quality: str, given: dict[str, Any], *, on_gpu: bool) -> Settings:
    """Resolve a quality and the parameters that were given (not None) into settings.

    ``"auto"`` is ``"balanced"`` for the conditional engine, whose networks are smaller on a CPU; for the
    paper's engine it is the paper's settings on a GPU and the fast ones on a CPU, where the paper's would
    take hours.

    Examples
    --------
    >>> resolve_settings("paper", "paper", {"n_draws": 3, "churn": None}, on_gpu=False).n_draws
    3
    >>> resolve_settings("conditional", "auto", {}, on_gpu=False).mlp_width
    128
    """
    check_choice("engine", engine, ENGINES)
    if quality not in QUALITIES[engine]:
        raise SettingError(
            f"quality must be one of {', '.join(map(repr, QUALITIES[engine]))} with engine={engine!r}, "
            f"however: quality={quality!r}. Choose one."
        )
    own = {name: value for name, value in given.items() if value is not None}
    retired = [name for name in own if name in RETIRED and name not in _NAMES[engine]]
    if engine == "conditional" and retired:
        for name in retired:
            del own[name]
        names = ", ".join(f"`{name}`" for name in retired)
        warn_about_data(
            f"{names} {'has' if len(retired) == 1 else 'have'} no effect with engine='conditional' since "
            "version 0.2, and will be refused later. Leave out what has none.",
            FutureWarning,
        )
    if foreign := sorted(set(own) - set(_NAMES[engine])):
        other = next(name for name in ENGINES if foreign[0] in _NAMES[name])
        raise SettingError(
            f"Settings must be those of the engine, however: {', '.join(foreign)} "
            f"{'is' if len(foreign) == 1 else 'are'} not of engine={engine!r} but of engine={other!r}. "
            "Leave out what is not, or choose the other engine."
        )
    if engine == "paper":
        fast = quality == "fast" or (quality == "auto" and not on_gpu)
        return PaperSettings(**{**(FAST if fast else {}), **own})
    chosen = {**CONDITIONAL["balanced" if quality == "auto" else quality, on_gpu], **own}
    planned = own.get("planned_steps")
    settings = ConditionalSettings(**chosen)
    if planned is None or settings.planned_steps <= settings.max_steps:
        return settings
    if "max_steps" in own:
        raise SettingError(
            f"planned_steps must not be above max_steps, however: planned_steps={planned}, "
            f"max_steps={own['max_steps']}. Lower the one, or raise the other."
        )
    return dataclasses.replace(settings, max_steps=settings.planned_steps)

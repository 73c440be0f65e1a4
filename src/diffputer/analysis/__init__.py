"""Numbers and pictures about missing and filled cells: pure functions of tables and arrays.

Names are loaded when they are first asked for: ``from diffputer.analysis import profile`` needs no pictures.
docs/diagnostics.md shows what they are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .associations import association_error as association_error
    from .associations import association_matrix as association_matrix
    from .check_plots import plot_over_imputation as plot_over_imputation
    from .check_plots import plot_propensity as plot_propensity
    from .check_plots import plot_trace as plot_trace
    from .check_plots import plot_transform as plot_transform
    from .check_plots import plot_uncertainty as plot_uncertainty
    from .diagnostics import convergence as convergence
    from .diagnostics import drift as drift
    from .diagnostics import never_filled as never_filled
    from .diagnostics import not_predicted as not_predicted
    from .distances import energy_distance as energy_distance
    from .distances import sliced_wasserstein as sliced_wasserstein
    from .imputation_plots import plot_density as plot_density
    from .imputation_plots import plot_pair as plot_pair
    from .imputation_plots import plot_strips as plot_strips
    from .iscore import energy_i_score as energy_i_score
    from .mcar_test import little_test as little_test
    from .missing_plots import plot_co_missingness as plot_co_missingness
    from .missing_plots import plot_missing_matrix as plot_missing_matrix
    from .missing_plots import plot_missing_rates as plot_missing_rates
    from .missing_plots import plot_patterns as plot_patterns
    from .overimputation import over_impute as over_impute
    from .plots import plot_distributions as plot_distributions
    from .profiles import profile as profile
    from .propensities import propensity as propensity
    from .report import make_report as make_report
    from .scores import coverage as coverage
    from .scores import crps as crps
    from .scores import energy_score as energy_score
    from .scores import level_score as level_score
    from .scores import probability_transform as probability_transform
    from .scores import rank_histogram as rank_histogram

#: Where each name lives.
_PUBLIC = {
    "associations": ("association_error", "association_matrix"),
    "check_plots": (
        "plot_over_imputation",
        "plot_propensity",
        "plot_trace",
        "plot_transform",
        "plot_uncertainty",
    ),
    "diagnostics": ("convergence", "drift", "never_filled", "not_predicted"),
    "distances": ("energy_distance", "sliced_wasserstein"),
    "imputation_plots": ("plot_density", "plot_pair", "plot_strips"),
    "iscore": ("energy_i_score",),
    "mcar_test": ("little_test",),
    "missing_plots": ("plot_co_missingness", "plot_missing_matrix", "plot_missing_rates", "plot_patterns"),
    "overimputation": ("over_impute",),
    "plots": ("plot_distributions",),
    "profiles": ("profile",),
    "propensities": ("propensity",),
    "report": ("make_report",),
    "scores": (
        "coverage",
        "crps",
        "energy_score",
        "level_score",
        "probability_transform",
        "rank_histogram",
    ),
}
_MODULE = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name in _MODULE:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

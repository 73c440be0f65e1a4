"""diffputer: fill in the missing values of a table.

>>> from diffputer import DiffPuter
"""

TYPE_CHECKING = False  # not imported: with ``python -m`` that would search the current folder

__version__ = "0.2.0"

if TYPE_CHECKING:
    from typing import Any

    from .analysis.likelihoods import pool_likelihood as pool_likelihood
    from .analysis.pooling import Pooled as Pooled
    from .analysis.pooling import pool as pool
    from .analysis.wald import pool_statistics as pool_statistics
    from .comparing.applying import fill_with as fill_with
    from .comparing.comparison import Comparison as Comparison
    from .comparing.running import compare as compare
    from .errors import DataWarning as DataWarning
    from .errors import DiffputerError as DiffputerError
    from .errors import InputError as InputError
    from .errors import ModelFileError as ModelFileError
    from .errors import SettingError as SettingError
    from .imputations import Imputations as Imputations
    from .imputer import DiffPuter as DiffPuter
    from .tables.constraints import Constraints as Constraints
    from .tables.schema import Schema as Schema

#: Where each public name lives; loaded when it is first asked for, so that importing stays instant.
_PUBLIC = {
    "Comparison": "comparing.comparison",
    "Constraints": "tables.constraints",
    "DataWarning": "errors",
    "DiffPuter": "imputer",
    "DiffputerError": "errors",
    "Imputations": "imputations",
    "InputError": "errors",
    "ModelFileError": "errors",
    "Pooled": "analysis.pooling",
    "Schema": "tables.schema",
    "SettingError": "errors",
    "compare": "comparing.running",
    "fill_with": "comparing.applying",
    "pool": "analysis.pooling",
    "pool_likelihood": "analysis.likelihoods",
    "pool_statistics": "analysis.wald",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> "Any":
    if name in _PUBLIC:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

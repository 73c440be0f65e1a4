"""The few exceptions of the library: each message states the rule, then the fact, then the remedy."""

from __future__ import annotations

import importlib
from types import ModuleType


class DiffputerError(Exception):
    """Base of every error that diffputer raises on purpose."""


class InputError(DiffputerError, ValueError):
    """A table, a column or a file that cannot be imputed as it is."""


class InputTypeError(InputError, TypeError):
    """A cell that is neither text nor number nor date; scikit-learn expects a TypeError here."""


class SettingError(DiffputerError, ValueError):
    """A setting outside its range, or one that this machine cannot honour."""


class ModelFileError(DiffputerError, ValueError):
    """A model or checkpoint file that cannot be read: truncated, foreign or from a newer version."""


class DataWarning(UserWarning):
    """Something in the table that the user should know, though the work goes on."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say how to install it.

    Examples
    --------
    >>> require("math", extra="plots").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs the package {module!r}, which is not installed: pip install 'diffputer[{extra}]'."
        ) from error

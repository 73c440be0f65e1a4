"""The few exceptions of the library, and its warning: messages state the rule, the fact, the remedy."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, ModuleType

#: Users do not call these by a line of their own: scikit-learn's fit_transform and Pipeline call fit.
_NOT_THE_CALLER = ("diffputer", "sklearn", "joblib")


class DiffputerError(Exception):
    """Base of every error that diffputer raises on purpose."""


class InputError(DiffputerError, ValueError):
    """A table, a column or a file that cannot be imputed as it is."""


class InputTypeError(InputError, TypeError):
    """A table, its column names or a cell of a type that cannot be read: a TypeError, as in scikit-learn."""


class SettingError(DiffputerError, ValueError):
    """A setting outside its range, or one that this machine cannot honour."""


class MemoryLimitError(SettingError, MemoryError):
    """Work that needs more memory than there is."""


class ModelFileError(DiffputerError, ValueError):
    """A model or checkpoint file that cannot be read: truncated, foreign or from a newer version."""


@contextmanager
def damage_as_error(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever building objects from a file raises into :class:`ModelFileError`, with the reason.

    Memory that runs out is no damage and stays what it is.
    """
    try:
        yield
    except (ModelFileError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"{reason} is missing"
        shown = reason if len(reason) < 300 else reason[:299] + "…"
        raise ModelFileError(f"{what} is damaged: {shown.rstrip('.')}. {remedy}") from error


def damaged_checkpoint() -> AbstractContextManager[None]:
    """The same where a fit goes on from a checkpoint."""
    return damage_as_error("The checkpoint", "Remove it to start afresh, or name another path.")


class DataWarning(UserWarning):
    """Something in the table that the user should know, though the work goes on."""


def warn_about_data(message: str, category: type[Warning] = DataWarning) -> None:
    """Warn, pointing at the line outside the package that led to it.

    Parameters
    ----------
    message
        What the user should know.
    category
        The kind of warning: ``FutureWarning`` of names that will be removed.
    """
    # Python 3.12 has skip_file_prefixes for this, 3.11 has not.
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_CALLER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


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

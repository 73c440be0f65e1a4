"""What is written on a command line as text, read; and what the library says, in the command line's words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import typer

from .errors import InputError, SettingError
from .settings import SETTING_NAMES
from .tables.csvtext import DEFAULT_MARKERS

#: What --set may name: all that changes a result and has no option of its own.
KNOWN_SETTINGS = (*SETTING_NAMES, "max_levels", "precision", "bootstrap_models", "empty")

#: Parameters of the library whose option has another name.
_OPTIONS_OF = {
    "random_state": "--seed",
    "categorical_features": "--categorical",
    "schema": "--kind",
    "inequalities": "--inequality",
}
#: Remedies that are for programs.
_REMEDIES = {
    "say so when the table is read": "name it with --missing",
    "convert them, for example with pandas.to_numeric(errors='coerce')": "write all of them as numbers",
    "in the schema": "by --kind",
    "name them in skip": "name them with --skip",
    "set fill_all=True": "use --fill-all",
    "leave an end open": "leave an end empty",
    "it with dt.tz_localize": "it",
}
#: Of the options --missing, --keep and --only-missing.
MISSING_HELP = "A word for a missing cell, in all columns or one. Repeatable."
KEEP_HELP = (
    f"A word that is an answer, such as NA for Namibia. {', '.join(filter(None, DEFAULT_MARKERS))} are "
    "missing among numbers and dates, and some of them answers among words: a warning says what was decided. "
    "Repeatable."
)
ONLY_MISSING_HELP = (
    "Exactly this word, and empty cells, are missing: in the whole table, or in one column, which changes no "
    "other. Repeatable."
)


def summary_option(panel: str | None = None) -> Any:
    """The option ``--summary``, the same for every command; `cli_results.running` writes the file."""
    return typer.Option(
        "--summary",
        metavar="FILE.json",
        help="Counts, scores, warnings, seconds, paths and exit status, also of a failure.",
        rich_help_panel=panel,
    )


def words_here(context: typer.Context) -> dict[str, str]:
    """What the library's messages call things that have another name on the command line.

    A parameter is called by its option, or by --set where it has none. One that is an ordinary word, such as
    ``device``, is meant only where a value follows.
    """
    own = [option for option in context.command.params if option.opts[0].startswith("--")]
    options = {str(option.name): option.opts[0] for option in own}
    if "--set" in options.values():
        options = {**{name: f"--set {name}" for name in KNOWN_SETTINGS}, **options}
    options |= {name: here for name, here in _OPTIONS_OF.items() if here in options.values()}
    words = dict(_REMEDIES)
    for name, here in options.items():
        sign = "" if "_" in name else "="
        words[name + sign] = here + sign
    return words


def pair(text: str, option: str, form: str, *, first: bool) -> tuple[str, str]:
    """Split NAME=VALUE at its first or last equals sign."""
    name, sign, value = text.partition("=") if first else text.rpartition("=")
    if not (name and sign and value):
        raise SettingError(
            f"{option} must be given as {form}, however: {text!r} has no '=' between two texts."
        )
    return name.strip(), value.strip()


def command_of(context: typer.Context) -> str:
    """Write the command that was given, as a shell would read it."""
    words = ["diffputer", *context.command_path.split()[1:]]
    for option in context.command.params:
        given = context.params.get(str(option.name))
        if getattr(context.get_parameter_source(str(option.name)), "name", "") != "COMMANDLINE":
            continue
        for value in given if isinstance(given, list | tuple) else [given]:
            name = [] if option.param_type_name == "argument" else [option.opts[0]]
            words += [*name, *([] if value is True else [str(value)])]
    return shlex.join(words)


def _value(text: str) -> Any:
    """A number if it is one; nothing is None."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text or None


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    given = dict(pair(text, "--set", "NAME=VALUE", first=True) for text in texts)
    if unknown := [name for name in given if name not in KNOWN_SETTINGS]:
        near = get_close_matches(unknown[0], KNOWN_SETTINGS)
        remedy = f"Did you mean {' or '.join(near)}?" if near else "The help of DiffPuter lists them."
        raise SettingError(f"--set must name a setting of DiffPuter; got {unknown[0]!r}. {remedy}")
    return {name: _value(text) for name, text in given.items()}


def check_bounds(texts: Sequence[str]) -> None:
    """Refuse, before a table is read, what can be no COL:LOW:HIGH of any table."""
    for text in texts:
        if text.count(":") < 2 or text.startswith(":"):
            raise InputError(
                f"--bounds must be given as COL:LOW:HIGH, however: {text!r}. An end may be left empty, as in "
                "age:0:."
            )


def read_bounds(texts: Sequence[str], names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Read COL:LOW:HIGH; names and times of day may hold colons themselves.

    >>> read_bounds(["age:0:", "a:b:08:00:17:30"], ["age", "a:b"])
    {'age': (0, None), 'a:b': ('08:00', '17:30')}
    """
    bounds = {}
    for text in texts:
        name = max((name for name in names if text.startswith(f"{name}:")), key=len, default=None)
        ends = [] if name is None else text[len(name) + 1 :].split(":")
        if name is None or len(ends) % 2:
            raise InputError(
                f"--bounds must be given as COL:LOW:HIGH, with a column of the table, however: {text!r}. "
                f"The table has: {', '.join(map(repr, names[:30]))}."
            )
        half = len(ends) // 2
        bounds[name] = (_value(":".join(ends[:half])), _value(":".join(ends[half:])))
    return bounds

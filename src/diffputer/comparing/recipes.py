"""How to use a method that was found best: code and commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..tables.paths import file_kind

if TYPE_CHECKING:
    from .comparison import Comparison, Outcome

_READERS = {
    "csv": "pd.read_csv({0!r})",
    "tsv": 'pd.read_csv({0!r}, sep="\\t")',
    "parquet": "pd.read_parquet({0!r})",
    "arrow": "pd.read_feather({0!r})",
}


@dataclass(frozen=True)
class Source:
    """Where a table came from, and what was said of it; None or "-" if it is no file.

    Attributes
    ----------
    path
        The file.
    reading
        Options of `diffputer.tables.files.read_table_file`.
    wishes
        What the user said of columns: ``categorical_features`` and ``schema``.
    """

    path: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    wishes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether commands can name it."""
        return self.path not in (None, "-")

    def write_reading(self) -> str:
        """Give the lines of Python that read it into ``df``."""
        if not self.is_file:
            return "df = ...  # your table\n"
        if self.reading:
            given = "".join(f", {name}={value!r}" for name, value in self.reading.items())
            return (
                "from diffputer.tables.files import read_table_file\n\n"
                f"df = read_table_file({self.path!r}{given}).frame\n"
            )
        try:
            kind, _ = file_kind(str(self.path))
        except InputError:  # its format was told by an option
            kind = "csv"
        return f"import pandas as pd\n\ndf = {_READERS[kind].format(str(self.path))}\n"

    def write_wishes(self) -> str:
        """Give what was said of columns as arguments of Python, where code can say it."""
        given = {
            name: value for name, value in self.wishes.items() if isinstance(value, list | dict) and value
        }
        return "".join(f", {name}={value!r}" for name, value in given.items())

    def write_options(self) -> list[str]:
        """Give all of it as options of the command line.

        Examples
        --------
        >>> Source("a.csv", {"missing": ["?"], "decimal": ","}, {"schema": {"x": "text"}}).write_options()
        ['--missing', '?', '--decimal', ',', '--kind', 'x=text']
        """
        options: list[str] = []
        for name, value in self.reading.items():
            for one in value if isinstance(value, list | tuple) else [value]:
                options += [f"--{name.replace('_', '-')}", str(one)]
        for column in self.wishes.get("categorical_features") or []:
            options += ["--categorical", str(column)]
        schema = self.wishes.get("schema")
        for column, kind in schema.items() if isinstance(schema, dict) else ():
            options += ["--kind", f"{column}={kind}"]
        return options


def write_recipes(comparison: Comparison, source: Source) -> list[str]:
    """Give paragraphs and code for the best method, as HTML."""
    best = comparison.best
    outcome = next(one for one in comparison.outcomes if one.facts.name == best)
    parts = [f"<p>In Python, with {escape(best)}:</p>", _code(write_python(outcome, source, comparison.seed))]
    if (command := write_command(outcome, source, comparison.seed)) is not None:
        parts += ["<p>On the command line:</p>", _code(command)]
    parts.append(
        "<p class=key>Filled numbers stay inside the observed range, whole numbers whole, dates dates; "
        "free text is passed through.</p>"
    )
    return parts


def write_python(outcome: Outcome, source: Source, seed: int) -> str:
    """Give the lines of Python that fill in the table with a method."""
    read, said = source.write_reading(), source.write_wishes()
    if outcome.own is None and "engine" in outcome.facts.settings:
        engine, quality = (outcome.facts.settings[name].value for name in ("engine", "quality"))
        chosen = f'quality="{quality}"' if engine == "conditional" else f'engine="{engine}"'
        use = f"full = DiffPuter({chosen}, random_state={seed}{said}).fit_transform(df)\n"
        return f"from diffputer import DiffPuter\n{read}{use}"
    method = f'"{outcome.facts.name}"'
    if outcome.own is not None:
        method = f"{type(outcome.own).__name__}(...)"
    return f"import diffputer\n{read}full = diffputer.fill_with(df, {method}, random_state={seed}{said})\n"


def write_command(outcome: Outcome, source: Source, seed: int) -> str | None:
    """Give the command that fills in the file with a method; None where there is none."""
    settings = outcome.facts.settings
    if not source.is_file or outcome.own is not None or "engine" not in settings:
        return None
    engine, quality = settings["engine"].value, settings["quality"].value
    chosen = ["--quality", quality] if engine == "conditional" else ["--engine", engine]
    words = ["diffputer", "impute", str(source.path), *source.write_options(), *chosen, "--seed", str(seed)]
    return shlex.join(words)


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"

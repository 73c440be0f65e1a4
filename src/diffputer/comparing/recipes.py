"""How to use a method that was found best: code and commands to copy."""

from __future__ import annotations

import shlex
from html import escape
from typing import TYPE_CHECKING

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


def write_recipes(comparison: Comparison, source: str | None) -> list[str]:
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


def write_python(outcome: Outcome, source: str | None, seed: int) -> str:
    """Give the lines of Python that fill in the table with a method."""
    read = f"df = {_reader(source)}"
    if outcome.own is not None:
        kind = type(outcome.own).__name__
        return (
            "import pandas as pd\nimport diffputer\n\n"
            f"{read}\nfull = diffputer.fill_with(df, {kind}(...))  # the method of your own\n"
        )
    settings = outcome.facts.settings
    if "engine" in settings:
        engine, quality = settings["engine"].value, settings["quality"].value
        chosen = f'quality="{quality}"' if engine == "conditional" else f'engine="{engine}"'
        return (
            "import pandas as pd\nfrom diffputer import DiffPuter\n\n"
            f"{read}\nfull = DiffPuter({chosen}, random_state={seed}).fit_transform(df)\n"
        )
    return (
        "import pandas as pd\nimport diffputer\n\n"
        f'{read}\nfull = diffputer.fill_with(df, "{outcome.facts.name}", random_state={seed})\n'
    )


def write_command(outcome: Outcome, source: str | None, seed: int) -> str | None:
    """Give the command that fills in the file with a method; None where there is none."""
    if source in (None, "-") or outcome.own is not None:
        return None
    file = shlex.quote(str(source))
    settings = outcome.facts.settings
    if "engine" not in settings:
        return None
    engine, quality = settings["engine"].value, settings["quality"].value
    chosen = f"--quality {quality}" if engine == "conditional" else f"--engine {engine}"
    return f"diffputer impute {file} {chosen} --seed {seed}"


def _reader(source: str | None) -> str:
    if source in (None, "-"):
        return "..."
    try:
        kind, _ = file_kind(str(source))
    except InputError:  # its format was told by an option
        kind = "csv"
    return _READERS[kind].format(str(source))


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"

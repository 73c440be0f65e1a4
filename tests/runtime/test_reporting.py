"""What a command says: names of the library become those of the command line, and nothing else does."""

from __future__ import annotations

import pytest

from diffputer.runtime.reporting import Reporter

NAMES = {"levels": "--levels", "max_levels": "--set max_levels"}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("Merge levels, or raise max_levels.", "Merge --levels, or raise --set max_levels."),
        ("max_levels=1, (levels)", "--set max_levels=1, (--levels)"),
        ("sublevels levels_of max_levels2", "sublevels levels_of max_levels2"),
        (
            "see levels.csv, out/levels and ./max_levels.csv",
            "see levels.csv, out/levels and ./max_levels.csv",
        ),
        (
            "column 'levels' and 'the max_levels' has levels",
            "column 'levels' and 'the max_levels' has --levels",
        ),
        ("it's levels, isn't it", "it's --levels, isn't it"),
        ("column \"isn't levels\" or 'a\\' levels'", "column \"isn't levels\" or 'a\\' levels'"),
        ("nothing to replace", "nothing to replace"),
    ],
)
def test_names_are_replaced_as_words(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    Reporter(names=NAMES).say(words, "warning")
    assert capsys.readouterr().err == f"warning: {line}\n"


def test_what_the_command_itself_says_stays(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter(names=NAMES)
    reporter.say("wrote levels")
    reporter.say("unknown: levels", "note")
    Reporter().say("levels", "warning")
    assert capsys.readouterr().err == "wrote levels\nnote: unknown: levels\nwarning: levels\n"

"""Versions of dependencies: the command line answers with those installed, and lowest ones are declared."""

from __future__ import annotations

import subprocess

import pytest

import diffputer

from .cli_tools import PROGRAM
from .lowest import lowest


def answer(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env=None, stdin=subprocess.DEVNULL, check=False
    )


class TestCommandLineOfTheInstalledTyper:
    """With some pairs of typer and click every command printed the version and ended with code 0."""

    def test_the_version(self) -> None:
        shown = answer("--version")
        assert (shown.returncode, shown.stdout.split()) == (0, ["diffputer", diffputer.__version__])

    @pytest.mark.parametrize("command", ["impute", "compare"])
    def test_help_lists_the_options(self, command: str) -> None:
        shown = answer(command, "--help")
        assert shown.returncode == 0
        assert {"--missing", "--delimiter", "--seed"} <= set(shown.stdout.replace("│", " ").split())

    def test_a_file_that_is_not_there_is_a_mistake(self) -> None:
        ended = answer("impute", "missing.csv")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "missing.csv" in ended.stderr
        assert "Traceback" not in ended.stderr

    @pytest.mark.parametrize("words", [["impute"], ["impute", "a.csv", "--draws", "none"], ["nonsense"]])
    def test_mistakes_in_words_end_with_code_two(self, words: list[str]) -> None:
        ended = answer(*words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Traceback" not in ended.stderr


def test_every_dependency_has_a_lowest_version() -> None:
    pins = dict(pin.split("==") for pin in lowest("2.4.1"))
    assert pins["torch"] == "2.4.1"
    assert {"numpy", "pandas", "typer", "polars", "pytest"} <= set(pins)
    assert lowest() != lowest("2.4.1")  # by default the torch of constraints.txt

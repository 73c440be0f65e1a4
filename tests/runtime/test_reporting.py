"""What a command says: names of the library become those of the command line, and nothing else does."""

from __future__ import annotations

import signal
import threading

import pytest

from diffputer.runtime.reporting import Reporter

NAMES = {"levels": "--levels", "max_levels": "--set max_levels", "speed=": "--speed="}
NAMES["convert them by f(x='y')"] = "write them"


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
        ("a speed of speed=3, not topspeed=3", "a speed of --speed=3, not topspeed=3"),
        ("convert them by f(x='y') first", "write them first"),
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


def test_a_request_to_end_is_answered_like_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    reporter = Reporter(written=["a.csv"])
    with pytest.raises(SystemExit) as end, reporter.reporting():
        signal.raise_signal(signal.SIGTERM)
    assert end.value.code == 143
    assert capsys.readouterr().err == "interrupted: a.csv was written\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_request_does_not_disturb_the_cleaning_up() -> None:
    cleaned = []

    def stopped_twice() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(True)

    with pytest.raises(SystemExit), Reporter().reporting():
        stopped_twice()
    assert cleaned


def test_a_request_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Reporter().reporting():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_command_in_another_thread_runs_without_signals() -> None:
    ran = []

    def command() -> None:
        with Reporter().reporting():
            ran.append(True)

    thread = threading.Thread(target=command)
    thread.start()
    thread.join()
    assert ran

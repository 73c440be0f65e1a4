"""Progress without a terminal: lines for commands, silence for the library unless it is asked."""

from __future__ import annotations

import re
import time

import pytest

from diffputer import DiffPuter
from diffputer.runtime import progress as module
from diffputer.runtime.progress import show_progress
from tests.cli_tools import plain_frame, run

LINE = re.compile(r"^.+, (\d+ %, )?\d+:\d\d elapsed(, about \d+:\d\d left)?$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(module, "FIRST_LINE", 0.0)
    monkeypatch.setattr(module, "NEXT_LINE", 0.01)


def test_lines_tell_the_task_the_share_and_the_time(capsys):
    with show_progress(True) as progress:
        progress.begin("reading a\x1bb.csv", 4)
        progress.advance(1)
        for _ in range(500):
            time.sleep(0.01)
            if "25 %" in (seen := capsys.readouterr().err):
                break
        progress.end()
    assert re.search(r"^reading a\\x1bb.csv, 25 %, 0:0\d elapsed, about 0:\d\d left$", seen, re.MULTILINE)


def test_a_task_that_ends_soon_has_no_line(capsys, monkeypatch):
    monkeypatch.setattr(module, "FIRST_LINE", 600.0)
    with show_progress(True) as progress:
        progress.begin("short", 4)
        progress.advance(4)
    assert capsys.readouterr().err == ""


def test_the_library_is_silent_unless_progress_is_asked_for(capsys):
    DiffPuter(max_steps=3, held_out=0).fit_transform(plain_frame())
    assert capsys.readouterr().err == ""
    DiffPuter(max_steps=300, held_out=0, progress=True).fit_transform(plain_frame(400))
    assert LINE.search(capsys.readouterr().err)


def test_commands_write_lines_while_reading_fitting_and_writing(tmp_path):
    path = tmp_path / "survey.csv"
    plain_frame(20_000).to_csv(path, index=False)
    said = run("impute", path, "--set", "max_steps=20", tiny=False).stderr
    for stage in ("reading survey.csv", "writing survey.imputed.csv"):
        assert any(line.startswith(stage) and LINE.match(line) for line in said.splitlines()), said
    assert not LINE.search(run("impute", path, "--quiet", "--set", "max_steps=20", tiny=False).stderr)


def test_a_saved_model_is_silent_wherever_it_was_fitted(tmp_path, capsys):
    path = tmp_path / "survey.csv"
    plain_frame().to_csv(path, index=False)
    run("impute", path, "--save-model", tmp_path / "m.diffputer")
    assert DiffPuter.load(tmp_path / "m.diffputer").progress is None


def test_work_goes_on_where_no_thread_can_be_started(capsys, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.threading.Thread, "start", fail)
    with show_progress(True) as progress:
        progress.begin("reading", 4)
        progress.advance(4)
        progress.end()
    assert capsys.readouterr().err == ""

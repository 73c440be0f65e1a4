"""Mistakes on the command line: a sentence and a code, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diffputer import DiffPuter
from diffputer.cli import app

from .cli_tools import PROGRAM, TINY_OPTIONS, make_runner, run

MISTAKES = {
    "no such file": (["nowhere.csv"], "there is no"),
    "a folder": (["."], "is a folder"),
    "unknown suffix": (["table.xls"], "must end in one of"),
    "unknown format": (["plain.csv", "--format", "xls"], "A format must be one of"),
    "no folder for the output": (["plain.csv", "-o", "no/out.csv"], "folder must exist"),
    "no folder for the model": (["plain.csv", "--save-model", "no/m"], "folder must exist"),
    "model on standard output": (["plain.csv", "--save-model", "-"], "--save-model needs a file of its own"),
    "model over the input": (["plain.csv", "--save-model", "./plain.csv"], "needs a file of its own"),
    "output over the input": (["plain.csv", "-o", "./plain.csv"], "--output must not be the input"),
    "report that is no page": (["plain.csv", "--report", "r.pdf"], "must end in .html"),
    "report over the model in use": (["plain.csv", "--model", "m", "--report", "m"], "--report needs a file"),
    "checkpoint over the model": (
        ["plain.csv", "--save-model", "m", "--checkpoint", "m"],
        "--checkpoint needs",
    ),
    "both models": (["plain.csv", "--model", "m", "--save-model", "n"], "leave out --save-model"),
    "a fit with a model": (
        ["plain.csv", "--model", "m", "--seed", "1", "--kind", "x=text"],
        "--seed, --kind",
    ),
    "no such model": (["plain.csv", "--model", "m"], "'m' is not there"),
    "not a model": (["plain.csv", "--model", "plain.csv"], "cannot be read as a diffputer model"),
    "unknown setting": (["plain.csv", "--set", "mlp_dept=3"], "got 'mlp_dept'. Did you mean --set mlp_depth"),
    "setting like no other": (["plain.csv", "--set", "foo=1"], "lists them"),
    "comparison in a formula": (["plain.csv", "--derived", "y=x.real"], "has an attribute"),
    "half a setting": (["plain.csv", "--set", "max_steps"], "NAME=VALUE"),
    "not a number": (["plain.csv", "--set", "max_steps=many"], "--set max_steps must be a whole number"),
    "setting of the other engine": (["plain.csv", "--set", "n_draws=3"], "--set n_draws is not of --engine="),
    "unknown estimate": (["plain.csv", "--estimate", "mode"], "however: --estimate='mode'"),
    "unknown engine": (["plain.csv", "--engine", "steam"], "engine must be one of"),
    "unknown quality": (["plain.csv", "--quality", "ultra"], "must be one of 'auto', 'fast'"),
    "no time": (["plain.csv", "--time-budget", "0"], "--time-budget must lie in"),
    "no levels": (["plain.csv", "--set", "max_levels=0"], "--set max_levels must lie in"),
    "words for bounds": (["plain.csv", "--bounds", "x:low:"], "Correct them, or leave an end empty"),
    "bounds of a category": (["plain.csv", "--bounds", "c:0:1"], "Leave out its bounds"),
    "two kinds": (
        ["plain.csv", "--categorical", "x", "--kind", "x=integer"],
        "'x' is in --categorical and is integer by --kind",
    ),
    "no such device": (["plain.csv", "--device", "abacus"], "device must be"),
    "no such column": (["plain.csv", "--categorical", "z"], "'z' is not there"),
    "bounds without a column": (["plain.csv", "--bounds", "z:0:1"], "The table has: 'x', 'y', 'c'"),
    "half of the bounds": (["plain.csv", "--bounds", "x:0"], "COL:LOW:HIGH"),
    "bad bounds of a broken file": (["broken.parquet", "--bounds", "x:0"], "COL:LOW:HIGH"),
    "unknown uncertainty of a broken file": (
        ["broken.parquet", "--model-uncertainty", "foo"],
        "--model-uncertainty must be one of",
    ),
    "an equation for an inequality": (
        ["broken.parquet", "--inequality", "x=y"],
        "An inequality compares columns by <= or >=, such as 'start <= end'",
    ),
    "bounds the wrong way round": (["plain.csv", "--bounds", "x:1:0"], "must not exceed"),
    "unknown kind": (["plain.csv", "--kind", "x=number"], "A kind must be one of"),
    "kind without a column": (["plain.csv", "--kind", "text"], "COL=KIND"),
    "odd decimal mark": (["plain.csv", "--decimal", "x"], "decimal mark"),
    "odd delimiter": (["plain.csv", "--delimiter", ";;"], "delimiter must be one character"),
    "odd encoding": (["plain.csv", "--encoding", "utf-9"], "encoding"),
    "ragged rows": (["ragged.csv"], "ragged.csv"),
    "empty file": (["empty.csv"], "is empty"),
    "no cells": (["holes.csv"], "must have observed cells"),
    "broken parquet": (["broken.parquet"], "Parquet"),
    "bounds of a complete table": (["full.csv", "--bounds", "a:1:0"], "must not exceed"),
    "kind in a complete table": (["full.csv", "--kind", "a=number"], "A kind must be one of"),
    "no such column in a complete table": (["full.csv", "--categorical", "z"], "'z' is not there"),
    "seed of a complete table": (["full.csv", "--seed", "-1"], "--seed"),
    "copies without end": (["full.csv", "--draws", "1000000000000"], "copies of the table must fit"),
    "no draws": (["plain.csv", "--draws", "0"], "--draws"),
    "unknown option": (["plain.csv", "--speed", "9"], "--speed"),
}
#: Those that typer finds itself.
IN_A_BOX = ("no draws", "unknown option", "seed of a complete table")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_give_a_sentence_and_leave_nothing(mistake, plain, tmp_path, monkeypatch):
    args, fragment = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "table.xls": "x",
        "empty.csv": "",
        "holes.csv": "a,b\n,\n,\n",
        "ragged.csv": "a,b\n1\n",
        "full.csv": "a,b\n1,2\n3,5\n",
    }.items():
        Path(name).write_text(content)
    Path("broken.parquet").write_bytes(b"PAR1 and no more")
    before = sorted(os.listdir())
    monkeypatch.setattr("diffputer.imputer.fit_em", lambda *_, **__: pytest.fail("found only after the fit"))
    result = run("impute", *args, code=2, tiny="--set" not in args)
    assert fragment in " ".join(result.stderr.split())
    assert result.stdout == ""
    if mistake not in IN_A_BOX:
        assert result.stderr.splitlines()[-1].startswith("error: ")
    assert sorted(os.listdir()) == before


def test_surprises_give_a_line_and_a_hint(plain, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the sky fell")

    monkeypatch.setattr("diffputer.imputer.fit_em", fail)
    words = run("impute", plain, code=1).stderr
    assert (
        words.splitlines()[-1]
        == "error: unexpected RuntimeError: the sky fell (--debug shows where it happened)"
    )
    result = make_runner().invoke(app, ["impute", str(plain), "--debug"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: unexpected RuntimeError: the sky fell\n")


def test_what_was_written_is_told(plain, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(DiffPuter, "save", fail)
    words = run("impute", plain, "--save-model", tmp_path / "m", code=130).stderr
    assert words.splitlines()[-1].endswith("plain.imputed.csv was written")


@pytest.mark.parametrize(
    ("request_to_end", "exit_code", "times"),
    [(signal.SIGINT, 130, 1), (signal.SIGINT, 130, 3), (signal.SIGTERM, 143, 1), (signal.SIGTERM, 143, 3)],
)
def test_being_stopped_leaves_nothing_behind_however_often(plain, tmp_path, request_to_end, exit_code, times):
    # A shell may have started the tests with SIGINT ignored, which children inherit.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", code + "from diffputer.cli import main; main()", "impute", str(plain)]
    for setting in ("max_steps=100000000", "max_epochs=1000000000", "patience=100000000"):
        command += ["--set", setting]
    before = sorted(os.listdir(tmp_path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "cells missing" in process.stderr.readline()  # the fit comes next
            for _ in range(times):
                process.send_signal(request_to_end)
                time.sleep(0.1)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == exit_code
    assert (out, err.splitlines()[-1]) == ("", "interrupted: nothing was written")
    assert "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == before


def test_a_request_to_end_removes_a_half_written_file(plain, tmp_path):
    slow = "import os, time; os.fsync = lambda _: print('writing', flush=True) or time.sleep(60); "
    code = slow + "from diffputer.cli import main; main()"
    command = [sys.executable, "-c", code, "impute", str(plain), "--quiet", *TINY_OPTIONS]
    before = sorted(os.listdir(tmp_path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "writing\n"
            assert sorted(os.listdir(tmp_path)) != before
            process.send_signal(signal.SIGTERM)
            err = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 143
    assert err.splitlines()[-1] == "interrupted: nothing was written"
    assert sorted(os.listdir(tmp_path)) == before


def test_a_reader_that_left_is_no_error(plain):
    command = [*PROGRAM, "impute", str(plain), "-o", "-", "--quiet", *TINY_OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        words = process.stderr.read()
    assert process.returncode == 1
    assert all(line.startswith("warning: ") for line in words.splitlines())


def test_words_among_numbers_ask_for_missing(tmp_path):
    path = tmp_path / "numbers.csv"
    marks = {0: "-", 1: "k.A.", 2: ""}
    path.write_text("a;b\n" + "".join(f"{i};{marks.get(i % 15, i % 30)}\n" for i in range(60)))
    assert "name it with --missing" in run("impute", path).stderr
    assert "as text" not in run("impute", path, "--missing", "-", "--missing", "k.A.").stderr

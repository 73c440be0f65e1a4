"""A fit that is killed in the middle of an M-step goes on, and ends as if it had not been killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from diffputer import DiffPuter, ModelFileError
from diffputer.benchmark.curve import RoundScores
from diffputer.em_state import EMState
from diffputer.modelfiles import CHECKPOINT
from diffputer.nn import journal as journals
from diffputer.nn.journal import Journal, Snapshot, UnderWay
from diffputer.persistence import FileCheckpoint, read_file

from .cli_tools import run
from .conftest import TINY, TINY_ENSEMBLE, TINY_PAPER, ugly_frame

ALWAYS: dict[str, Any] = {"random_state": 0, "max_steps": 40}
QUICK: dict[str, Any] = {**TINY, **ALWAYS, "boosted_trees": 16, "dropout": 0.2}
ENSEMBLE: dict[str, Any] = {**TINY_ENSEMBLE, **ALWAYS, "boosted_trees": 16, "dropout": 0.2}
PAPER: dict[str, Any] = {**TINY_PAPER, **ALWAYS, "max_steps": 150}


@pytest.fixture(autouse=True)
def _saves_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(journals, "SAVING_SHARE", float("inf"))
    monkeypatch.setattr("diffputer.models.conditional.fitting.CHECK_EVERY", 10)


@contextmanager
def killed_when(condition: Callable[[int, EMState], bool]) -> Iterator[None]:
    """Kill fits right after a state was saved; the condition gets its number, from one on, and the state."""
    save, saved = FileCheckpoint.save, 0

    def save_and_die(self: FileCheckpoint, state: EMState) -> None:
        nonlocal saved
        save(self, state)
        saved += 1
        if condition(saved, state):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileCheckpoint, "save", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            yield


def steps_of(state: EMState) -> list[int]:
    """How many steps each network had taken in the M-step that is under way."""
    parts = state.under_way.parts if state.under_way else {}
    return [part.facts["course"]["step"] for name, part in parts.items() if name != "trees"]


def assert_same_fit(one: DiffPuter, other: DiffPuter, frame: pd.DataFrame) -> None:
    """Compare two fits bit for bit; how long they took may differ."""
    assert one._result is not None
    assert other._result is not None
    mine, theirs = (fit.engine.model.state_dict() for fit in (one._result, other._result))
    assert list(mine) == list(theirs)
    for name, value in mine.items():
        assert value.numpy().tobytes() == theirs[name].numpy().tobytes(), name
    lines = [
        [dataclasses.replace(line, m_seconds=0.0, e_seconds=0.0) for line in fit.trace_]
        for fit in (one, other)
    ]
    assert repr(lines[0]) == repr(lines[1])
    pd.testing.assert_frame_equal(one.transform(frame), other.transform(frame))


def middle(saved: int, state: EMState) -> bool:
    """Say that networks are half-way through the first M-step."""
    return bool(steps_of(state)) and min(steps_of(state)) >= 20


def middle_of_second(saved: int, state: EMState) -> bool:
    return len(state.trace) == 1 and middle(saved, state)


CASES = {
    "mlp": (QUICK, middle),
    "mlp and attention": (ENSEMBLE, middle),
    "no trees, no held-out cells": ({**QUICK, "boosted_trees": 0, "held_out": 0.0}, middle),
    "bfloat16": ({**QUICK, "precision": "bfloat16"}, middle),
    "second round": ({**ENSEMBLE, "em_rounds": 2, "em_patience": 5}, middle_of_second),
    "paper, second round": (PAPER, middle_of_second),
    "training over": (ENSEMBLE, lambda saved, state: steps_of(state) == [40, 40]),
}


@pytest.mark.parametrize(("settings", "condition"), CASES.values(), ids=CASES)
def test_a_fit_killed_in_an_m_step_ends_as_if_it_had_not_been_killed(
    tmp_path: Path, settings: dict[str, Any], condition: Callable[[int, EMState], bool]
) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    whole = DiffPuter(**settings).fit(frame)
    with killed_when(condition):
        DiffPuter(checkpoint=path, **settings).fit(frame)
    resumed = DiffPuter(checkpoint=path, **settings).fit(frame)
    assert_same_fit(resumed, whole, frame)
    _, facts = read_file(path, CHECKPOINT)
    assert facts["under_way"] is None  # of a round that has ended, the end is kept


def test_steps_and_looks_that_are_not_in_step_with_averaging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Looks every seven steps, a plan that is doubled, and a learning rate that falls.
    monkeypatch.setattr("diffputer.models.conditional.fitting.CHECK_EVERY", 7)
    monkeypatch.setattr("diffputer.models.conditional.fitting.FALLS_FAST", float("inf"))
    settings = {**ENSEMBLE, "planned_steps": 30, "rate_decay_from": 0.5, "max_steps": 60}
    frame, path = ugly_frame(), tmp_path / "state"
    whole = DiffPuter(**settings).fit(frame)
    with killed_when(lambda saved, state: bool(steps_of(state)) and max(steps_of(state)) > 40):
        DiffPuter(checkpoint=path, **settings).fit(frame)
    _, facts = read_file(path, CHECKPOINT)
    course = facts["under_way"]["parts"]["network0"]["course"]
    assert course["step"] % 10
    assert course["planned"] == 60
    assert_same_fit(DiffPuter(checkpoint=path, **settings).fit(frame), whole, frame)


def test_a_fit_may_be_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    whole = DiffPuter(**ENSEMBLE).fit(frame)
    with killed_when(lambda saved, state: saved == 2):
        DiffPuter(checkpoint=path, **ENSEMBLE).fit(frame)
    seen: list[list[int]] = []

    def is_second(saved: int, state: EMState) -> bool:
        seen.append(steps_of(state))
        return saved == 2

    with killed_when(is_second):
        DiffPuter(checkpoint=path, **ENSEMBLE).fit(frame)
    assert seen == [[30], [40]]
    with killed_when(lambda saved, state: len(steps_of(state)) > 1):  # the first network is trained by now
        DiffPuter(checkpoint=path, **ENSEMBLE).fit(frame)
    assert_same_fit(DiffPuter(checkpoint=path, **ENSEMBLE).fit(frame), whole, frame)


def test_a_fit_killed_before_anything_was_saved_starts_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    whole = DiffPuter(**QUICK).fit(frame)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FileCheckpoint, "save", die)
        with pytest.raises(KeyboardInterrupt):
            DiffPuter(checkpoint=path, **QUICK).fit(frame)
    assert not path.exists()
    assert_same_fit(DiffPuter(checkpoint=path, **QUICK).fit(frame), whole, frame)


KILLED = """
import os, signal
import torch
torch.set_num_threads(1)
from diffputer import DiffPuter
from diffputer.nn import journal
from diffputer.models.conditional import fitting
from diffputer.persistence import FileCheckpoint
from tests.conftest import ugly_frame
from tests.test_resuming import QUICK, middle

journal.SAVE_EVERY, journal.SAVING_SHARE, fitting.CHECK_EVERY = 0.0, float("inf"), 10
save = FileCheckpoint.save

def save_and_die(self, state):
    save(self, state)
    if middle(0, state):
        os.kill(os.getpid(), signal.SIGKILL)

FileCheckpoint.save = save_and_die
DiffPuter(checkpoint="state", **QUICK).fit(ugly_frame())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_process_that_is_killed_outright(tmp_path: Path) -> None:
    here = Path(__file__).parent.parent
    paths = os.pathsep.join([str(here / "src"), str(here), os.environ.get("PYTHONPATH", "")])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    frame = ugly_frame()
    resumed = DiffPuter(checkpoint=tmp_path / "state", **QUICK).fit(frame)
    assert_same_fit(resumed, DiffPuter(**QUICK).fit(frame), frame)


def test_what_is_kept_is_a_few_times_as_large_as_the_model(tmp_path: Path) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    settings = {**ENSEMBLE, "mlp_width": 64, "boosted_trees": 0}
    with killed_when(middle):
        DiffPuter(checkpoint=path, **settings).fit(frame)
    size = path.stat().st_size
    DiffPuter(checkpoint=path, **settings).fit(frame).save(tmp_path / "model")
    assert size < 6 * (tmp_path / "model").stat().st_size


def test_a_state_of_another_fit_or_half_a_file_is_refused(tmp_path: Path) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    with killed_when(middle):
        DiffPuter(checkpoint=path, **QUICK).fit(frame)
    with pytest.raises(ModelFileError, match="belongs to one table, seed and settings"):
        DiffPuter(checkpoint=path, **{**QUICK, "max_steps": 41}).fit(frame)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="truncated"):
        DiffPuter(checkpoint=path, **QUICK).fit(frame)


def test_networks_of_another_sort_of_device_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    whole = DiffPuter(**QUICK).fit(frame)
    with killed_when(middle):
        DiffPuter(checkpoint=path, **QUICK).fit(frame)
    load = FileCheckpoint.load

    def load_foreign(self: FileCheckpoint) -> EMState | None:
        state = load(self)
        assert state is not None
        assert state.under_way is not None
        state.under_way.parts["network0"].facts["device"] = "cuda"
        state.under_way.parts["network0"].tensors["objective.generator"] = torch.zeros(16, dtype=torch.uint8)
        return state

    monkeypatch.setattr(FileCheckpoint, "load", load_foreign)
    assert_same_fit(DiffPuter(checkpoint=path, **QUICK).fit(frame), whole, frame)


def test_the_time_before_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    with killed_when(middle):
        DiffPuter(checkpoint=path, **QUICK).fit(frame)
    load = FileCheckpoint.load

    def load_old(self: FileCheckpoint) -> EMState | None:
        state = load(self)
        assert state is not None
        assert state.under_way is not None
        return dataclasses.replace(state, under_way=UnderWay(state.under_way.parts, 1e6))

    monkeypatch.setattr(FileCheckpoint, "load", load_old)
    assert DiffPuter(checkpoint=path, **QUICK).fit(frame).trace_[0].m_seconds > 1e6


def test_the_command_line_says_so_and_goes_on(plain: Path, tmp_path: Path) -> None:
    run("impute", plain)
    expected = plain.with_name("plain.imputed.csv").read_bytes()
    plain.with_name("plain.imputed.csv").unlink()
    command = ("impute", plain, "--checkpoint", tmp_path / "state")
    with pytest.MonkeyPatch.context() as patch:
        save = FileCheckpoint.save

        def save_and_die(self: FileCheckpoint, state: EMState) -> None:
            save(self, state)
            if middle(0, state):
                raise KeyboardInterrupt

        patch.setattr(FileCheckpoint, "save", save_and_die)
        words = run(*command, code=130).stderr
    assert words.splitlines()[-1].startswith(
        "interrupted: nothing was written; the same command goes on from"
    )
    run(*command)
    assert plain.with_name("plain.imputed.csv").read_bytes() == expected


def test_the_benchmark_scores_finished_rounds_only() -> None:
    watcher = RoundScores(())
    watcher.save(EMState([], pd.DataFrame().to_numpy(), {}, {}, under_way=UnderWay()))
    assert watcher.rows == []


class TestJournal:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        monkeypatch.setattr(journals, "SAVE_EVERY", 30.0)
        monkeypatch.setattr(journals, "SAVING_SHARE", 0.1)
        now = [0.0]
        monkeypatch.setattr("diffputer.nn.journal.time.monotonic", lambda: now[0])
        return now

    def test_a_part_is_saved_every_so_often_beside_the_others(self, clock: list[float]) -> None:
        saved: list[UnderWay] = []
        journal = Journal(UnderWay({"a": Snapshot({})}, seconds=5.0), saved.append)
        snapshots = [Snapshot({}, {"number": k}) for k in range(2)]
        assert journal.kept("a") == Snapshot({})
        assert journal.kept("b") is None
        clock[0] = 29.0
        assert not journal.wants()
        clock[0] = 31.0
        assert journal.wants()
        journal.put("b", snapshots[0])
        assert saved == [UnderWay({"a": Snapshot({}), "b": snapshots[0]}, 36.0)]
        assert not journal.wants()
        assert journal.wants(ended=True)
        journal.put("a", snapshots[1])  # its training has ended: kept, and saved with the next
        assert len(saved) == 1
        clock[0] = 62.0
        assert journal.wants()
        journal.put("b", snapshots[1])
        assert saved[1].parts == {"a": snapshots[1], "b": snapshots[1]}

    def test_slow_saving_is_done_less_often(self, clock: list[float]) -> None:
        def save(_: UnderWay) -> None:
            clock[0] += 10.0

        journal = Journal(save=save)
        clock[0] = 30.0
        journal.put("a", Snapshot({}))
        clock[0] = 139.0
        assert not journal.wants()
        clock[0] = 140.0
        assert journal.wants()

    def test_without_a_place_nothing_is_asked_for(self, clock: list[float]) -> None:
        journal = Journal()
        clock[0] = 1e9
        assert not journal.wants(ended=True)

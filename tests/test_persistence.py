from __future__ import annotations

import errno
import json
import math
import os
import struct
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter, InputError, ModelFileError
from diffputer.em_state import EMState
from diffputer.persistence import FileCheckpoint

from .conftest import TINY, TINY_ENSEMBLE, TINY_PAPER


@pytest.fixture
def model(ugly: pd.DataFrame, tmp_path: Path, tiny: dict[str, Any]) -> Path:
    DiffPuter(random_state=0, **tiny).fit(ugly).save(tmp_path / "model.diffputer")
    return tmp_path / "model.diffputer"


@pytest.mark.parametrize("held_out", [0.0, 0.1])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_without_time_is_kept(ugly: pd.DataFrame, tmp_path: Path, held_out: float) -> None:
    settings = {**TINY_ENSEMBLE, "held_out": held_out, "time_budget": 1e-3}
    DiffPuter(random_state=0, **settings).fit(ugly).save(tmp_path / "model.diffputer")
    for filled in DiffPuter.load(tmp_path / "model.diffputer").sample(ugly, n_draws=3):
        assert not filled["size"].isna().any()


def test_a_loaded_model_gives_the_same_imputations(
    ugly: pd.DataFrame, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    fitted = DiffPuter(random_state=0, bounds={"size": (0, 30)}, **tiny).fit(ugly)
    fitted.save(tmp_path / "m")
    loaded = DiffPuter.load(tmp_path / "m", device="cpu")
    pd.testing.assert_frame_equal(loaded.transform(ugly), fitted.transform(ugly))
    pd.testing.assert_frame_equal(loaded.sample(ugly, 2)[1], fitted.sample(ugly, 2)[1])
    assert loaded.schema_ == fitted.schema_
    assert loaded.settings_ == fitted.settings_
    assert loaded.trace_ == fitted.trace_
    assert loaded.feature_names_in_.tolist() == list(ugly.columns)
    with pytest.raises(ValueError, match="town"):
        loaded.transform(ugly.drop(columns="town"))
    assert not list(tmp_path.glob("*tmp*"))


def test_a_loaded_model_can_be_fitted_again_whatever_its_columns_are_called(
    ugly: pd.DataFrame, tmp_path: Path
) -> None:
    # scikit-learn refuses text beside labels of other types.
    size, count, day, wait = 7, ("a", 1), ("a", pd.Timestamp("2024-01-01")), -1
    names = [size, count, ("flag", True), 2, 3, day, wait]
    frame = ugly.set_axis(pd.Index(names, tupleize_cols=False), axis="columns")
    bounds = {
        size: (0, None),
        day: (datetime(2024, 1, 1), "2025-01-01"),
        wait: (np.timedelta64(0, "ns"), timedelta(days=1)),
    }
    found = DiffPuter(random_state=0, **TINY_PAPER).fit(frame).schema_
    for number, parameters in enumerate([
        {"bounds": bounds, "schema": {count: "categorical"}},
        {"bounds": bounds, "categorical_features": [count, ("flag", True)]},
        {"schema": found.replace(size, lower=-math.inf).replace(count, kind="categorical")},
        {"categorical_features": np.array([name == count for name in frame.columns])},
        {"categorical_features": frame.columns[[1]], "random_state": np.int64(3)},
        {"categorical_features": (1,)},
        {"skip": [count, day]},
    ]):  # fmt: skip
        fitted = DiffPuter(**{"random_state": 0, **TINY_PAPER, **parameters}).fit(frame)
        fitted.save(tmp_path / f"{number}")
        loaded = DiffPuter.load(tmp_path / f"{number}", device="cpu")
        assert (loaded.bounds, loaded.schema) == (fitted.bounds, fitted.schema)
        assert loaded.skip == fitted.skip
        if fitted.categorical_features is not None:
            assert list(loaded.categorical_features) == list(fitted.categorical_features)
        again = DiffPuter.load(tmp_path / f"{number}", device="cpu").fit(frame)
        assert again.schema_ == fitted.schema_
        pd.testing.assert_frame_equal(again.transform(frame), fitted.transform(frame))


def test_parameters_that_cannot_be_written_are_left_out(
    ugly: pd.DataFrame, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    random_state = np.random.RandomState(0)
    fitted = DiffPuter(random_state=random_state, bounds={"size": (Fraction(1, 2), 90)}, **tiny).fit(ugly)
    fitted.save(tmp_path / "m")
    loaded = DiffPuter.load(tmp_path / "m", device="cpu")
    assert loaded.random_state is loaded.bounds is None
    pd.testing.assert_frame_equal(loaded.transform(ugly), fitted.transform(ugly))


def test_arrays_and_tables_without_anything_to_model(tmp_path: Path, tiny: dict[str, Any]) -> None:
    x = np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, 5.0]] * 6)
    fitted = DiffPuter(random_state=0, **tiny).fit(x)
    fitted.save(tmp_path / "m")
    assert np.array_equal(DiffPuter.load(tmp_path / "m", device="cpu").transform(x), fitted.transform(x))
    constant = pd.DataFrame({"a": [1.0, None, 1.0]})
    DiffPuter(**tiny).fit(constant).save(tmp_path / "c")
    assert DiffPuter.load(tmp_path / "c").transform(constant)["a"].tolist() == [1.0, 1.0, 1.0]


def test_a_truncated_file(model: Path) -> None:
    data = model.read_bytes()
    for size in (0, 4, 100, len(data) // 2, len(data) - 1):
        model.write_bytes(data[:size])
        with pytest.raises(ModelFileError, match=r"truncated or another sort of file.*fit again"):
            DiffPuter.load(model)


def test_a_flipped_bit_in_the_weights(model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-100] ^= 1
    model.write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match=r"damaged: its content is not what was written\..*fit again"):
        DiffPuter.load(model)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x80\x04\x95pickle?")
    with pytest.raises(ModelFileError, match="another sort of file"):
        DiffPuter.load(path)
    with pytest.raises(ModelFileError, match="not there"):
        DiffPuter.load(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="not there"):
        DiffPuter.load(tmp_path)


def _edit(path: Path, **changes: str) -> None:
    """Change the metadata of a safetensors file (length, JSON header, data)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"].update(changes)
    new = json.dumps(header).encode()
    new += b" " * (-len(new) % 8)
    path.write_bytes(struct.pack("<Q", len(new)) + new + data[8 + length :])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": "99"}, "version '99'.*Upgrade diffputer"),
        ({"format": "cake recipe"}, "format is 'cake recipe'"),
        ({"facts": "{"}, "damaged"),
        ({"facts": "{}"}, "damaged"),
        ({"facts": '{"encoder": {"schema": 3}}'}, "damaged"),
    ],
)
def test_newer_other_and_damaged_descriptions(model: Path, changes: dict[str, str], sentence: str) -> None:
    _edit(model, **changes)
    with pytest.raises(ModelFileError, match=sentence):
        DiffPuter.load(model)


def test_a_place_that_cannot_be_written(ugly: pd.DataFrame, tmp_path: Path, tiny: dict[str, Any]) -> None:
    fitted = DiffPuter(random_state=0, **tiny).fit(ugly)
    with pytest.raises(InputError, match="does not exist"):
        fitted.save(tmp_path / "no" / "folder")
    with pytest.raises(InputError, match="is a folder"):
        fitted.save(tmp_path)
    fitted.save(os.devnull)  # no file is made beside it


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_training(
    ugly: pd.DataFrame, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("diffputer.imputer.fit_em", lambda *_, **__: pytest.fail("found only after the fit"))
    monkeypatch.setattr("tempfile.TemporaryFile", full)  # as in /proc, also for those who may write anywhere
    with pytest.raises(InputError, match=r"none can be made \(No space left on device\). Name another path"):
        DiffPuter(random_state=0, checkpoint=tmp_path / "checkpoint", **tiny).fit(ugly)


#: Whatever a fit carries from one round to the next.
RESUMED = {
    "paper, fresh": {**TINY_PAPER, "network_per_round": "fresh"},
    "paper, warm": {**TINY_PAPER, "network_per_round": "warm"},
    "conditional": TINY,
    "conditional, ensemble": {**TINY_ENSEMBLE, "dropout": 0.2},
}


class TestCheckpoints:
    # Fits that are killed inside a round are in test_resuming.py.
    @pytest.mark.parametrize(
        ("name", "after"),
        [
            *((name, after) for name in RESUMED if name.startswith("paper") for after in (1, 2, 3)),
            ("conditional", 1),
            ("conditional, ensemble", 2),
            ("conditional, ensemble", 3),
        ],
    )
    def test_a_killed_fit_goes_on_and_ends_as_if_it_had_not_been_killed(
        self,
        ugly: pd.DataFrame,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        after: int,
    ) -> None:
        settings = {"random_state": 0, **RESUMED[name], "em_rounds": 3, "em_patience": 5}
        whole = DiffPuter(**settings).fit(ugly)
        save = FileCheckpoint.save

        def killed(self: FileCheckpoint, state: EMState) -> None:
            save(self, state)
            if len(state.trace) == after:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(FileCheckpoint, "save", killed)
            with pytest.raises(KeyboardInterrupt):
                DiffPuter(checkpoint=tmp_path / "state", **settings).fit(ugly)
        resumed = DiffPuter(checkpoint=tmp_path / "state", **settings).fit(ugly)
        assert [line.round for line in resumed.trace_] == [1, 2, 3]
        assert [line.held_out_loss for line in resumed.trace_] == [
            line.held_out_loss for line in whole.trace_
        ]
        pd.testing.assert_frame_equal(resumed.transform(ugly), whole.transform(ugly))
        pd.testing.assert_frame_equal(resumed.sample(ugly, 1)[0], whole.sample(ugly, 1)[0])

    def test_a_checkpoint_of_another_table_is_refused(
        self, ugly: pd.DataFrame, tmp_path: Path, tiny: dict[str, Any]
    ) -> None:
        path = tmp_path / "checkpoint"
        DiffPuter(random_state=0, checkpoint=path, **tiny).fit(ugly)
        with pytest.raises(ModelFileError, match="belongs to one table, seed and settings"):
            DiffPuter(random_state=0, checkpoint=path, **tiny).fit(ugly.iloc[5:])
        with pytest.raises(ModelFileError, match="belongs to one table, seed and settings"):
            DiffPuter(random_state=1, checkpoint=path, **tiny).fit(ugly)
        with pytest.raises(ModelFileError, match="belongs to one table, seed and settings"):
            DiffPuter(random_state=0, checkpoint=path, **{**tiny, "max_steps": 31}).fit(ugly)
        other = TINY if tiny.get("engine") == "paper" else TINY_PAPER
        with pytest.raises(ModelFileError, match="belongs to one table, seed and settings"):
            DiffPuter(random_state=0, checkpoint=path, **other).fit(ugly)
        path.write_bytes(b"rubbish")
        with pytest.raises(ModelFileError, match=r"truncated.*Remove it to start afresh"):
            DiffPuter(random_state=0, checkpoint=path, **tiny).fit(ugly)

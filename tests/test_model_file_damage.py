"""Damaged and hostile model files: refused with a sentence, or read as what was written; never a surprise."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer import DiffPuter, ModelFileError

from .conftest import TINY, TINY_ENSEMBLE, TINY_PAPER, ugly_frame
from .fuzz.model_files import RELABELLED, _tensors, change, mutations, pack, paths, relabel, reshape, unpack

MODELS: dict[str, dict[str, Any]] = {
    "conditional": {**TINY, "boosted_trees": 8, "bounds": {"size": (0, None)}},
    "bootstrap": {**TINY_ENSEMBLE, "held_out": 0, "model_uncertainty": "bootstrap", "bootstrap_models": 2},
    "paper": TINY_PAPER,
}


@pytest.fixture(scope="module", params=MODELS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    DiffPuter(random_state=0, **{**MODELS[request.param], "max_steps": 3}).fit(ugly_frame()).save(path)
    return path


def load_bytes(data: bytes, path: Path) -> DiffPuter | None:
    """The imputer, None where the file is refused; other errors are not caught."""
    path.write_bytes(data)
    try:
        return DiffPuter.load(path, device="cpu")
    except ModelFileError:
        return None


def test_damaged_files_are_refused_or_answer_as_before(saved: Path, tmp_path: Path) -> None:
    frame = ugly_frame()
    expected = DiffPuter.load(saved, device="cpu").transform(frame)
    survivors = []
    for what, data in mutations(saved, np.random.default_rng(25), 220):
        imputer = load_bytes(data, tmp_path / "damaged")
        if imputer is None:
            continue
        survivors.append(what)
        if "swapped" not in what and "became" not in what:  # another model, whose digest is right
            pd.testing.assert_frame_equal(imputer.transform(frame), expected)
    assert len(survivors) < 40, survivors


def test_tensors_of_another_type_or_shape_are_refused(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    for name in _tensors(unpack(data)[0]):

        class Choice:
            @staticmethod
            def choice(_: list[str], name: str = name) -> str:
                return name

        for way in (relabel, reshape):
            what, changed = way(data, Choice())  # type: ignore[arg-type]
            assert load_bytes(changed, tmp_path / "m") is None, what


def test_the_digest_covers_types_and_shapes(saved: Path, tmp_path: Path) -> None:
    """Of a file whose tensors are relabelled while its digest stays."""
    data = saved.read_bytes()
    for name, one in _tensor_headers(data).items():
        for changed in ({"dtype": RELABELLED[one["dtype"]]}, {"shape": [1, *one["shape"]]}):
            header, _, body = unpack(data)
            header[name] |= changed
            head = json.dumps(header).encode()
            damaged = struct.pack("<Q", len(head)) + head + body
            assert load_bytes(damaged, tmp_path / "m") is None, (name, changed)


def _tensor_headers(data: bytes) -> dict[str, dict[str, Any]]:
    header = unpack(data)[0]
    return {name: header[name] for name in _tensors(header)}


def test_a_larger_network_than_the_tensors_are_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    """The file is written by ``save``, so that its digest is right."""
    imputer = DiffPuter(random_state=0, **{**TINY, "max_steps": 3, "held_out": 0}).fit(ugly_frame())
    imputer.save(tmp_path / "model")
    engine = imputer._result.engine  # type: ignore[union-attr]
    engine.settings = dataclasses.replace(engine.settings, mlp_width=3_000, mlp_depth=20)  # 0.7 GB
    imputer.save(tmp_path / "large")
    code = (
        "import resource, sys\n"
        "from diffputer import DiffPuter, ModelFileError\n"
        "DiffPuter.load(sys.argv[1])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    DiffPuter.load(sys.argv[2])\n"
        "except ModelFileError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model"), str(tmp_path / "large")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000  # KiB


def test_every_fact_of_another_type_is_refused(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    facts = unpack(data)[1]
    for path in paths(facts):
        value = facts
        for key in path:
            value = value[key]
        for strange in ({"surprise": [1]}, [[]]):
            assert load_bytes(change(data, path, strange), tmp_path / "m") is None, (path, strange)
        if isinstance(value, int | float) and "bounds" not in path:  # which a user may write as text
            assert load_bytes(change(data, path, str(value)), tmp_path / "m") is None, path


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("continuous", "fill", "x"), ("datetime", "fill", 0), ("boolean", "timezone", "UTC"),
        ("boolean", "upper", -1), ("categorical", "lower", "x"), ("categorical", "resolution", 1),
    ],
)  # fmt: skip
def test_a_column_has_no_fact_that_its_kind_has_no_use_for(
    saved: Path, tmp_path: Path, kind: str, name: str, value: Any
) -> None:
    data = saved.read_bytes()
    columns = unpack(data)[1]["encoder"]["schema"]["columns"]
    place = next(k for k, one in enumerate(columns) if one["kind"] == kind and one["status"] == "modelled")
    path = ("encoder", "schema", "columns", place, name)
    assert load_bytes(change(data, path, value), tmp_path / "m") is None


def floats_of(data: bytes, name: str) -> tuple[dict[str, Any], Any, bytearray, np.ndarray[Any, Any]]:
    header, facts, body = unpack(data)
    start, end = header[name]["data_offsets"]
    kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
    changed = bytearray(body)
    view = np.frombuffer(memoryview(changed)[start:end], dtype=kinds[header[name]["dtype"]])
    return header, facts, changed, view


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bounds", np.nan),
        ("model.pool.weights", 0.0),
        ("model.pool.mean_weights", 2.0),
        ("model.pool.temperature", -1.0),
        ("model.trees.column", 99),
        ("model.trees.left", 1_000_000),
        ("model.trees.feature", -1),
        ("model.trees.threshold", np.nan),
        ("model.support.marginals.probabilities", 1.0),
        ("model.support.heights", -1.0),
        ("model.widths", -1.0),
        ("model.line_scales", np.nan),
        ("model.copula.covariance", -1.0),
        ("model.copula.frequencies", 3.0),
        ("model.networks.0.exit.bias", np.nan),
    ],
)
def test_values_that_no_fit_gives_are_refused(tmp_path: Path, name: str, value: float) -> None:
    path = tmp_path / "m"
    DiffPuter(random_state=0, **{**MODELS["conditional"], "max_steps": 3}).fit(ugly_frame()).save(path)
    header, facts, body, numbers = floats_of(path.read_bytes(), name)
    numbers[:] = value
    del numbers
    assert load_bytes(pack(header, facts, bytes(body)), path) is None


def test_a_long_format_is_shown_in_short(saved: Path, tmp_path: Path) -> None:
    header, _, body = unpack(saved.read_bytes())
    header["__metadata__"]["format"] = "[" * 100_000
    text = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(text)) + text + body)
    with pytest.raises(ModelFileError) as caught:
        DiffPuter.load(tmp_path / "m")
    assert len(str(caught.value)) < 400


def test_sizes_that_a_file_does_not_have_take_no_memory(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    settings = unpack(data)[1]["result"]["settings"]
    large = {
        "mlp_width": 20_000, "mlp_depth": 1_000, "mlp_members": 1_000, "attention_width": 32_000,
        "attention_depth": 1_000, "attention_members": 1_000, "boosted_trees": 100_000,
        "hidden_width": 65_536, "classes": 1_024,
    }  # fmt: skip
    names = []
    for name in settings.keys() & large.keys():
        changed = change(data, ("result", "settings", name), large[name])
        (tmp_path / name).write_bytes(changed)
        names.append(str(tmp_path / name))
    code = (
        "import resource, sys\n"
        "from diffputer import DiffPuter, ModelFileError\n"
        "DiffPuter.load(sys.argv[1])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[2:]:\n"
        "    try:\n"
        "        DiffPuter.load(path)\n"
        "    except ModelFileError:\n"
        "        continue\n"
        "    print(path)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 100_000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved), *names], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"
    loaded = {Path(line).name for line in done.stdout.splitlines()[:-1]}
    # Sizes of networks that there are none of, and the most trees of a fit, say nothing of tensors.
    assert loaded <= {"boosted_trees", "mlp_width", "mlp_depth", "attention_width", "attention_depth"}


def test_the_same_model_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    code = "import sys; from diffputer import DiffPuter; DiffPuter.load(sys.argv[1]).save(sys.argv[2])"
    again = tmp_path / "again"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", code, str(saved), str(again)], check=True, env=environment)
    DiffPuter.load(saved).save(tmp_path / "third")
    assert again.read_bytes() == saved.read_bytes() == (tmp_path / "third").read_bytes()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    frame, path = ugly_frame(), tmp_path / "state"
    settings = {**TINY, "max_steps": 3, "checkpoint": str(path)}
    DiffPuter(random_state=0, **settings).fit(frame)
    data = path.read_bytes()
    for number, (what, changed) in enumerate(mutations(path, np.random.default_rng(1), 44)):
        path.write_bytes(changed)
        try:
            DiffPuter(random_state=0, **settings).fit(frame)
        except ModelFileError:
            continue
        assert "swapped" in what or "became" in what or "flipped" in what, (number, what)
    path.write_bytes(data)
    DiffPuter(random_state=0, **settings).fit(frame)

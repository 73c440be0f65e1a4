"""Models and checkpoints on disk: one safetensors file with versioned JSON inside, never pickle.

A file is written under another name, flushed and renamed, so that a crash leaves the old file or the new
one. Reading runs no code from the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from .diffusion.journal import Snapshot, UnderWay
from .em import EMResult
from .em_state import EMState
from .engines import make_engine
from .errors import InputError, ModelFileError, warn_about_data
from .held_out import ColumnErrors
from .settings import ConditionalSettings, PaperSettings, Settings
from .tables.encoding import TableEncoder
from .tables.paths import refusal_of, write_bytes
from .tables.schema import Schema, from_plain, to_plain
from .trace import EMRound

MODEL, CHECKPOINT = "diffputer model", "diffputer checkpoint"
#: Raised whenever older readers could not understand newer files.
VERSION = 14
#: Versions before this one are not read.
OLDEST_VERSION = 14
#: What to do about a file that cannot be read.
_REMEDIES = {
    MODEL: "Name the file that was saved, copy it again, or fit again.",
    CHECKPOINT: "Remove it to start afresh, or name another path.",
}
_ERRORS = ("best_errors", "best_ratio_errors")
_COLUMN_PARAMETERS = ("bounds", "schema", "categorical_features", "derived", "inequalities")


def check_target(path: str | os.PathLike[str], kind: str) -> None:
    """Refuse a path that cannot become a file, before the work starts."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        problem = "is a folder" if target.is_dir() else "lies in a folder that does not exist"
        raise InputError(
            f"A {kind} is written to a file, however: {str(path)!r} {problem}. Name another path."
        )
    folder = Path(os.path.realpath(target)).parent  # through a link
    if (target.is_file() or not target.exists()) and (reason := refusal_of(folder)):
        raise InputError(
            f"A {kind} is written to a file, however: in {str(folder)!r} none can be made ({reason}). "
            "Name another path."
        )


def write_file(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Any) -> None:
    """Write tensors and JSON facts into one file, atomically."""
    check_target(path, kind)
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(facts)
    metadata = {"format": kind, "version": str(VERSION), "facts": text, "digest": _digest(plain, text)}
    try:
        write_bytes(str(path), safetensors_bytes(plain, metadata))
    except OSError as error:
        raise InputError(
            f"A {kind} could not be written to {str(path)!r}: {error.strerror}. Name another path."
        ) from error


def read_file(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], Any]:
    """Read a file that :func:`write_file` wrote, or say what is wrong with it."""
    name, remedy = str(path), _REMEDIES[kind]
    if not os.path.isfile(path):
        raise ModelFileError(
            f"A {kind} must be a file, however: {name!r} is not there (or is a folder). Check the path."
        )
    try:
        with safe_open(name, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{name!r} cannot be read as a {kind}: it is truncated or another sort of file ({error}). "
            f"{remedy}"
        ) from error
    if metadata.get("format") != kind:
        raise ModelFileError(f"{name!r} is not a {kind}: its format is {metadata.get('format')!r}. {remedy}")
    version = metadata.get("version", "")
    if not version.isdecimal() or int(version) > VERSION:
        raise ModelFileError(
            f"{name!r} has version {version!r}; this diffputer reads up to {VERSION}. Upgrade diffputer."
        )
    if int(version) < OLDEST_VERSION:
        raise ModelFileError(
            f"{name!r} has version {version}, which this diffputer reads no more (from {OLDEST_VERSION} on). "
            "Fit again, or use the diffputer that wrote it."
        )
    try:
        if metadata["digest"] != _digest(tensors, metadata["facts"]):
            raise ModelFileError(f"{name!r} is damaged: its content is not what was written. {remedy}")
        return tensors, json.loads(metadata["facts"])
    except (KeyError, json.JSONDecodeError) as error:
        raise ModelFileError(f"{name!r} is damaged: its description cannot be read. {remedy}") from error


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    """Give a fingerprint of all that a file holds, to find what was changed since."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        # As bytes: numpy has no bfloat16, in which networks are trained on a GPU.
        digest.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_model(
    path: str | os.PathLike[str],
    *,
    encoder: TableEncoder,
    result: EMResult | None,
    seed: int,
    parameters: Mapping[str, Any],
    named: bool,
) -> None:
    """Write a fitted imputer."""
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {
        "encoder": encoder.to_dict(),
        "seed": seed,
        "named": named,
        **_parameter_facts(parameters),
        "result": None,
    }
    if result is not None:
        tensors = {f"model.{key}": value for key, value in result.engine.model.state_dict().items()}
        for number, engine in enumerate(result.resampled):
            own = engine.model.state_dict()
            tensors |= {f"resampled{number}.{key}": value for key, value in own.items()}
        tensors["bounds"] = torch.from_numpy(result.bounds.copy())
        facts["result"] = {
            "engine": result.engine.name,
            "settings": dataclasses.asdict(result.engine.settings),
            "trace": [dataclasses.asdict(line) for line in result.trace],
            "best_round": result.best_round,
            "resampled": [dataclasses.asdict(engine.settings) for engine in result.resampled],
            "held_out": result.held_out
            and {name: one.tolist() for name, one in vars(result.held_out).items() if one is not None},
        }
    write_file(path, MODEL, tensors, facts)


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fitted imputer: encoder, result, seed, parameters, named."""
    tensors, facts = read_file(path, MODEL)
    try:
        encoder = TableEncoder.from_dict(facts["encoder"])
        result = None
        if facts["result"] is not None:
            sort = PaperSettings if facts["result"]["engine"] == "paper" else ConditionalSettings
            engines = []
            for number, given in enumerate((facts["result"]["settings"], *facts["result"]["resampled"])):
                engine = make_engine(encoder.n_levels, sort(**given), "cpu", torch.float32)
                name = f"resampled{number - 1}." if number else "model."
                engine.model.load_state_dict(_part(tensors, name))
                engines.append(engine)
            result = EMResult(
                engine=engines[0],
                bounds=tensors["bounds"].numpy(),
                trace=[EMRound(**line) for line in facts["result"]["trace"]],
                best_round=int(facts["result"]["best_round"]),
                held_out=_column_errors(facts["result"].get("held_out")),
                resampled=tuple(engines[1:]),
            )
        return {
            "encoder": encoder,
            "result": result,
            "seed": int(facts["seed"]),
            "parameters": {
                **facts["parameters"],
                **{k: _from_plain(v) for k, v in facts["column_parameters"].items()},
            },
            "named": bool(facts["named"]),
        }
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {error}. {_REMEDIES[MODEL]}") from error


def _column_errors(plain: Mapping[str, Any] | None) -> ColumnErrors | None:
    """Read the scores of held-out cells; there are none where nothing was held out."""
    return None if plain is None else ColumnErrors(**{name: np.array(value) for name, value in plain.items()})


def _parameter_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give the parameters of an imputer as JSON, those that are about columns apart.

    Left out are objects such as a RandomState, which have done their work at fit.
    """
    if code := [name for name, rule in (parameters.get("derived") or {}).items() if callable(rule)]:
        raise InputError(
            f"A saved imputer holds no code, however: derived[{code[0]!r}] is a function. Write it as a "
            "formula, or pickle the imputer."
        )
    facts: dict[str, Any] = {"parameters": {}, "column_parameters": {}}
    for name, value in parameters.items():
        if name in _COLUMN_PARAMETERS:
            with contextlib.suppress(InputError):
                facts["column_parameters"][name] = _to_plain(value)
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        if plain is None or isinstance(plain, str | bool | int | float):
            facts["parameters"][name] = plain
    return facts


def _to_plain(value: Any) -> Any:
    """Write what a user said about columns as JSON; labels may be of any type, unlike the keys of JSON."""
    if isinstance(value, Schema):
        return {"schema": value.to_dict()}
    if isinstance(value, Mapping):
        return {"mapping": [[_to_plain(key), _to_plain(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_to_plain(item) for item in value]}
    if isinstance(value, list | np.ndarray | pd.Index | pd.Series):
        return {"list": [_to_plain(item) for item in value]}
    if isinstance(value, np.datetime64 | np.timedelta64):  # whose nanoseconds Python's types lack
        value = pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
    return to_plain(value, "of a parameter")


def _from_plain(plain: Any) -> Any:
    """Read what :func:`_to_plain` has written; arrays have become lists."""
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "schema":
        return Schema.from_dict(content)
    if kind == "mapping":
        return {_from_plain(key): _from_plain(item) for key, item in content}
    if kind in ("tuple", "list"):
        items = [_from_plain(item) for item in content]
        return tuple(items) if kind == "tuple" else items
    return from_plain(plain)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _under_way(tensors: Mapping[str, Tensor], plain: Mapping[str, Any] | None) -> UnderWay | None:
    """Read how far an M-step had come; there is none in the file of a round that has just ended."""
    if plain is None:
        return None
    parts = {
        name: Snapshot(_part(tensors, f"under_way.{name}."), facts) for name, facts in plain["parts"].items()
    }
    return UnderWay(parts, float(plain["seconds"]))


class FileCheckpoint:
    """EM's state after its last round and in the next, in one file; of use only to the same fit."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        x: NDArray[np.float32],
        missing: NDArray[np.bool_],
        settings: Settings,
        seed: int,
    ) -> None:
        check_target(path, CHECKPOINT)
        self._path, self._rounds = path, settings.em_rounds
        self._has_warned = False
        # More rounds may be asked for of a fit that has finished; everything else must be the same.
        same = dataclasses.replace(settings, em_rounds=1)
        digest = hashlib.sha256(json.dumps([dataclasses.asdict(same), seed, x.shape]).encode())
        digest.update(np.ascontiguousarray(np.where(missing, np.float32(0), x)).tobytes())
        digest.update(np.packbits(missing).tobytes())
        self._fingerprint = digest.hexdigest()

    def load(self) -> EMState | None:
        """Give the saved state, None where there is no file yet."""
        if not os.path.exists(self._path):
            return None
        tensors, facts = read_file(self._path, CHECKPOINT)
        if not isinstance(facts, dict) or facts.get("fingerprint") != self._fingerprint:
            raise ModelFileError(
                f"A checkpoint belongs to one table, seed and settings, however: {str(self._path)!r} was "
                "made with others. Remove it to start afresh, or name another path."
            )
        try:
            state = EMState(
                trace=[EMRound(**line) for line in facts["trace"]],
                completed=tensors["completed"].numpy(),
                weights=_part(tensors, "weights."),
                best_weights=_part(tensors, "best_weights."),
                best_round=int(facts["best_round"]),
                **{name: tensors[name].numpy() for name in _ERRORS if name in tensors},
                under_way=_under_way(tensors, facts.get("under_way")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{str(self._path)!r} is damaged: {error}.") from error
        if len(state.trace) > self._rounds:
            raise ModelFileError(
                f"A checkpoint must not be ahead of the fit, however: {str(self._path)!r} holds "
                f"{len(state.trace)} rounds and em_rounds={self._rounds}. Remove it, or ask for as many."
            )
        return state

    def save(self, state: EMState) -> None:
        """Replace the saved state."""
        tensors = {"completed": torch.from_numpy(state.completed)}
        tensors |= {f"weights.{k}": v for k, v in state.weights.items()}
        # safetensors refuses tensors that share memory.
        tensors |= {f"best_weights.{k}": v.clone() for k, v in state.best_weights.items()}
        errors = {name: getattr(state, name) for name in _ERRORS}
        tensors |= {name: torch.from_numpy(one) for name, one in errors.items() if one is not None}
        facts = {
            "fingerprint": self._fingerprint,
            "best_round": state.best_round,
            "trace": [dataclasses.asdict(line) for line in state.trace],
            "under_way": None,
        }
        if state.under_way is not None:
            for name, part in state.under_way.parts.items():
                tensors |= {f"under_way.{name}.{k}": v for k, v in part.tensors.items()}
            facts["under_way"] = {
                "seconds": state.under_way.seconds,
                "parts": {name: part.facts for name, part in state.under_way.parts.items()},
            }
        try:
            write_file(self._path, CHECKPOINT, tensors, facts)
        except (InputError, OSError) as error:
            if not self._has_warned:
                self._has_warned = True
                warn_about_data(
                    f"The checkpoint {str(self._path)!r} could not be written, and the fit goes on without "
                    f"it ({error}). Later ones are tried again."
                )

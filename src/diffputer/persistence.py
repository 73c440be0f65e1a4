"""Fitted imputers and checkpoints as tensors and JSON facts; modelfiles.py has the file around them.

What is read is built anew and described again: a file whose description is not exactly that of what it was
read as is refused. So whatever was left out, added or of another type is found, once for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from .em import EMResult
from .em_state import EMState
from .errors import InputError, ModelFileError, damage_as_error, warn_about_data
from .held_out import ColumnErrors
from .modelfiles import (
    CHECKPOINT,
    MODEL,
    REMEDIES,
    RawTensor,
    check_target,
    read_container,
    to_text,
    write_container,
)
from .models import declared_tensors, fewest_tensors, make_engine
from .nn.journal import Snapshot, UnderWay
from .nn.loading import check_declared, check_values, describe_tensors, load_exactly
from .runtime.memory import enough_memory
from .settings import ConditionalSettings, PaperSettings, Settings
from .tables.encoding import TableEncoder
from .tables.schema import Schema, from_plain, to_plain
from .trace import EMRound, FitFacts

_DTYPES = {
    "F64": torch.float64, "I64": torch.int64, "F32": torch.float32, "I32": torch.int32,
    "BF16": torch.bfloat16, "F16": torch.float16, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_ERRORS = ("best_errors", "best_ratio_errors")
_OF_THE_MACHINE = ("device", "progress", "checkpoint")
_COLUMN_PARAMETERS = ("bounds", "schema", "categorical_features", "derived", "inequalities", "skip")


def write_file(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Any) -> None:
    """Write tensors and JSON facts into one file, atomically."""
    names = {dtype: name for name, dtype in _DTYPES.items()}
    raw = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        # As bytes: numpy has no bfloat16, in which networks are trained on a GPU.
        data = plain.reshape(-1).view(torch.uint8).numpy().data
        raw[name] = RawTensor(names[plain.dtype], tuple(plain.shape), data)
    write_container(path, kind, raw, facts)


def read_file(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], Any]:
    """Read a file that :func:`write_file` wrote, or say what is wrong with it."""
    raw, facts = read_container(path, kind)
    with damage_as_error(repr(str(path)), REMEDIES[kind]):
        return {name: _tensor(one) for name, one in raw.items()}, facts


def _tensor(raw: RawTensor) -> Tensor:
    dtype = _DTYPES[raw.dtype]
    if not len(raw.data):
        return torch.empty(raw.shape, dtype=dtype)
    return torch.frombuffer(raw.data, dtype=dtype).reshape(raw.shape)


def write_model(
    path: str | os.PathLike[str],
    *,
    encoder: TableEncoder,
    result: EMResult | None,
    seed: int,
    parameters: Mapping[str, Any],
    named: bool,
    fit: FitFacts,
) -> None:
    """Write a fitted imputer."""
    tensors: dict[str, Tensor] = {}
    if result is not None:
        tensors = {f"model.{key}": value for key, value in result.engine.model.state_dict().items()}
        for number, engine in enumerate(result.resampled):
            own = engine.model.state_dict()
            tensors |= {f"resampled{number}.{key}": value for key, value in own.items()}
        tensors["bounds"] = torch.from_numpy(result.bounds.copy())
    write_file(path, MODEL, tensors, _model_facts(encoder, result, seed, parameters, named, fit))


def _model_facts(
    encoder: TableEncoder,
    result: EMResult | None,
    seed: int,
    parameters: Mapping[str, Any],
    named: bool,
    fit: FitFacts,
) -> dict[str, Any]:
    """All of a fitted imputer that is not a tensor, as JSON."""
    facts: dict[str, Any] = {
        "encoder": encoder.to_dict(),
        "seed": seed,
        "named": named,
        "fit": dataclasses.asdict(fit),
        **_parameter_facts(parameters),
        "result": None,
    }
    if result is not None:
        facts["result"] = {
            "engine": result.engine.name,
            "settings": dataclasses.asdict(result.engine.settings),
            "trace": _trace_facts(result.trace),
            "best_round": result.best_round,
            "resampled": [dataclasses.asdict(engine.settings) for engine in result.resampled],
            "held_out": result.held_out
            and {name: _without_nan(one) for name, one in vars(result.held_out).items()},
        }
    return facts


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fitted imputer: encoder, result, seed, parameters, named, fit."""
    needs = f"The model {str(path)!r}", "Free memory."
    with enough_memory(*needs):
        tensors, facts = read_file(path, MODEL)
    with damage_as_error(repr(str(path)), REMEDIES[MODEL]), enough_memory(*needs):
        encoder = TableEncoder.from_dict(facts["encoder"])
        encoder.check()
        if (facts["result"] is None) != (encoder.width == 0):
            raise ValueError("columns that are modelled must have a model")
        if not facts["named"] and encoder.schema.names != tuple(range(len(encoder.schema.names))):
            raise ValueError("columns of an array are named by their position")
        model: dict[str, Any] = {
            "encoder": encoder,
            "result": None if facts["result"] is None else _read_result(facts["result"], tensors, encoder),
            "seed": facts["seed"],
            "parameters": {
                **{k: from_plain(v) for k, v in facts["parameters"].items()},
                **{k: _from_plain(v) for k, v in facts["column_parameters"].items()},
            },
            "named": facts["named"],
            "fit": FitFacts(**facts["fit"]),
        }
        model["fit"].check()
        if type(model["seed"]) is not int or type(model["named"]) is not bool:
            raise TypeError("a seed must be a whole number, and named true or false")
        if to_text(_model_facts(**model)) != to_text(facts):
            raise ValueError("its description is not one that a fit gives")
        if facts["result"] is None and tensors:
            raise ValueError("there is nothing that its tensors belong to")
    return model


def _read_result(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], encoder: TableEncoder) -> EMResult:
    sorts = {"paper": PaperSettings, "conditional": ConditionalSettings}
    given = (facts["settings"], *facts["resampled"])
    all_settings: list[Settings] = [sorts[facts["engine"]](**one) for one in given]
    # Before anything is made: the tensors that are there bound what is.
    if sum(map(fewest_tensors, all_settings)) > len(tensors):
        raise ValueError("its settings declare more tensors than it has")
    names = ["model.", *(f"resampled{number}." for number in range(len(all_settings) - 1))]
    parts = [_part(tensors, name) for name in names]
    if 1 + sum(map(len, parts)) != len(tensors):
        raise ValueError("it has tensors that belong to nothing")
    for settings, part in zip(all_settings, parts, strict=True):
        check_declared(describe_tensors(part), declared_tensors(encoder.n_levels, settings, part))
    bounds = _read_bounds(tensors["bounds"], encoder.width)
    engines = []
    for settings, part in zip(all_settings, parts, strict=True):
        engine = make_engine(encoder.n_levels, settings, "cpu", torch.float32)
        load_exactly(engine.model, part)
        check_values(engine.model)
        engines.append(engine)
    result = EMResult(
        engine=engines[0],
        bounds=bounds,
        trace=_read_trace(facts["trace"]),
        best_round=facts["best_round"],
        held_out=_read_errors(facts["held_out"], encoder),
        resampled=tuple(engines[1:]),
    )
    if type(result.best_round) is not int or not 1 <= result.best_round <= len(result.trace):
        raise ValueError("the best round must be one of the trace")
    return result


def _read_bounds(bounds: Tensor, width: int) -> NDArray[np.float32]:
    """Check the range of imputations, whose ends may be open. Shape: [2, d]."""
    check_declared(describe_tensors({"bounds": bounds}), {"bounds": (torch.float32, (2, width))})
    if not bool((bounds[0] <= bounds[1]).all()):
        raise ValueError("a lower bound must not exceed the upper one")
    found: NDArray[np.float32] = bounds.numpy()
    return found


def _trace_facts(trace: Sequence[EMRound]) -> list[dict[str, Any]]:
    """Write a trace as JSON, which has no NaN: null where nothing was held out."""
    return [{name: _without_nan(value) for name, value in dataclasses.asdict(line).items()} for line in trace]


def _read_trace(plain: Sequence[Mapping[str, Any]]) -> list[EMRound]:
    fields = {field.name: field.type for field in dataclasses.fields(EMRound)}
    trace = []
    for number, line in enumerate(plain, start=1):
        values: dict[str, Any] = {name: math.nan if value is None else value for name, value in line.items()}
        for name, value in values.items():
            if type(value).__name__ != fields[name]:
                raise TypeError(f"{name} of a round must be of type {fields[name]}, and is {value!r}")
        trace.append(EMRound(**values))
        if trace[-1].round != number:
            raise ValueError("the rounds of a trace must be in order")
    return trace


def _without_nan(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_without_nan(one) for one in value.tolist()]
    return None if isinstance(value, float) and math.isnan(value) else value


def _read_errors(plain: Mapping[str, Any] | None, encoder: TableEncoder) -> ColumnErrors | None:
    """Read the scores of held-out cells; there are none where nothing was held out."""
    if plain is None:
        return None
    whole = ("columns", "n")
    arrays: dict[str, Any] = {
        name: None if value is None else np.array(value, dtype=np.int64 if name in whole else np.float64)
        for name, value in plain.items()
    }
    errors = ColumnErrors(**arrays)
    columns = np.unique(encoder.blocks)
    if not np.array_equal(errors.columns, columns) or (errors.n < 0).any():
        raise ValueError("scores of held-out cells must be of the columns that are modelled")
    if any(one is not None and one.shape != columns.shape for one in vars(errors).values()):
        raise ValueError("scores of held-out cells must be one for each column")
    return errors


def _parameter_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give the parameters of an imputer as JSON, those that are about columns apart.

    Left out are objects such as a RandomState, which have done their work at fit, and what belongs to a
    machine rather than to a model.
    """
    if code := [name for name, rule in (parameters.get("derived") or {}).items() if callable(rule)]:
        raise InputError(
            f"A saved imputer holds no code, however: derived[{code[0]!r}] is a function. Write it as a "
            "formula, or pickle the imputer."
        )
    facts: dict[str, Any] = {"parameters": {}, "column_parameters": {}}
    for name, value in parameters.items():
        if name in _OF_THE_MACHINE:
            continue
        if name in _COLUMN_PARAMETERS:
            with contextlib.suppress(InputError):
                facts["column_parameters"][name] = _to_plain(value)
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        if plain is None or type(plain) in (str, bool, int, float):
            facts["parameters"][name] = to_plain(plain, name)
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
        name: Snapshot(_part(tensors, f"under_way.{name}."), _from_json(facts))
        for name, facts in plain["parts"].items()
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
        with damage_as_error(repr(str(self._path)), REMEDIES[CHECKPOINT]):
            state = EMState(
                trace=_read_trace(facts["trace"]),
                completed=_matrix(tensors["completed"], torch.float32, 2),
                weights=_part(tensors, "weights."),
                best_weights=_part(tensors, "best_weights."),
                best_round=facts["best_round"],
                **{name: _matrix(tensors[name], torch.float64, 1) for name in _ERRORS if name in tensors},
                under_way=_under_way(tensors, facts["under_way"]),
            )
            if type(state.best_round) is not int or not 0 <= state.best_round <= len(state.trace):
                raise ValueError("the best round must be one of the trace")
            if to_text(self._facts(state)) != to_text(facts):
                raise ValueError("its description is not one that a fit gives")
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
        if state.under_way is not None:
            for name, part in state.under_way.parts.items():
                tensors |= {f"under_way.{name}.{k}": v for k, v in part.tensors.items()}
        try:
            write_file(self._path, CHECKPOINT, tensors, self._facts(state))
        except (InputError, OSError) as error:
            if not self._has_warned:
                self._has_warned = True
                warn_about_data(
                    f"The checkpoint {str(self._path)!r} could not be written, and the fit goes on without "
                    f"it ({error}). Later ones are tried again."
                )

    def _facts(self, state: EMState) -> dict[str, Any]:
        """All of a state that is not a tensor, as JSON."""
        under_way = state.under_way and {
            "seconds": state.under_way.seconds,
            "parts": {name: _to_json(part.facts) for name, part in state.under_way.parts.items()},
        }
        return {
            "fingerprint": self._fingerprint,
            "best_round": state.best_round,
            "trace": _trace_facts(state.trace),
            "under_way": under_way,
        }


def _matrix(tensor: Tensor, dtype: torch.dtype, n_dimensions: int) -> NDArray[Any]:
    if tensor.dtype != dtype or tensor.ndim != n_dimensions:
        raise ValueError(f"an array must be of {dtype} and have {n_dimensions} dimensions")
    found: NDArray[Any] = tensor.numpy()
    return found


def _to_json(facts: Any) -> Any:
    """Write what a snapshot has beside tensors as JSON, which has neither NaN nor infinity."""
    if isinstance(facts, dict):
        return {name: _to_json(value) for name, value in facts.items()}
    if isinstance(facts, list):
        return [_to_json(value) for value in facts]
    return to_plain(facts, "of a snapshot") if isinstance(facts, float) else facts


def _from_json(plain: Any) -> Any:
    if isinstance(plain, dict):
        if plain.keys() == {"float"}:
            return from_plain(plain)
        return {name: _from_json(value) for name, value in plain.items()}
    return [_from_json(value) for value in plain] if isinstance(plain, list) else plain

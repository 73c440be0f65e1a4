"""The container of models and checkpoints: a safetensors file with a versioned JSON description, no pickle.

A file is written under another name, flushed and renamed, so that a crash leaves the old file or the new
one. The same content always gives the same bytes. Reading runs no code from the file, needs no torch, and
takes a small multiple of the file's size in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from .errors import InputError, ModelFileError, damage_as_error
from .tables.paths import refusal_of, write_bytes

MODEL, CHECKPOINT = "diffputer model", "diffputer checkpoint"
#: Raised whenever older readers could not understand newer files.
VERSION = 18
#: Versions before this one are not read.
OLDEST_VERSION = 18
#: Bytes of the longest header, description included; safetensors has the same limit.
LONGEST_HEADER = 100_000_000
#: What to do about a file that cannot be read.
REMEDIES = {
    MODEL: "Name the file that was saved, copy it again, or fit again.",
    CHECKPOINT: "Remove it to start afresh, or name another path.",
}
#: Bytes of a number, by the name that safetensors has for its type.
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class RawTensor:
    """A tensor as a file has it: the name of its type, its shape and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Any


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


def write_container(
    path: str | os.PathLike[str], kind: str, tensors: Mapping[str, RawTensor], facts: Any
) -> None:
    """Write tensors and JSON facts into one file, atomically."""
    check_target(path, kind)
    text = to_text(facts)
    metadata = {"format": kind, "version": str(VERSION), "facts": text}
    header: dict[str, Any] = {"__metadata__": {**metadata, "digest": _digest(metadata, tensors)}}
    # The widest first, so that all are aligned; safetensors itself would write the metadata in any order.
    names, end = sorted(tensors, key=lambda name: (-SIZES[tensors[name].dtype], name)), 0
    for name in names:
        tensor, start = tensors[name], end
        end = start + memoryview(tensor.data).nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    head = to_text(header).encode()
    head += b" " * (-len(head) % 8)
    if len(head) > LONGEST_HEADER:
        raise InputError(
            f"The description of a {kind} must be shorter than {LONGEST_HEADER:,} bytes; it has "
            f"{len(head):,}. Model fewer categories, or fewer columns."
        )
    parts = [struct.pack("<Q", len(head)), head, *(tensors[name].data for name in names)]
    try:
        write_bytes(str(path), b"".join(parts))
    except OSError as error:
        raise InputError(
            f"A {kind} could not be written to {str(path)!r}: {error.strerror}. Name another path."
        ) from error


def read_container(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, RawTensor], Any]:
    """Read a file that :func:`write_container` wrote, or say what is wrong with it."""
    name, remedy = str(path), REMEDIES[kind]
    if not os.path.isfile(path):
        raise ModelFileError(
            f"A {kind} must be a file, however: {name!r} is not there (or is a folder). Check the path."
        )
    try:
        data = _read_whole(path)
        found: Any = deserialize(data)  # type: ignore[no-untyped-call]
        metadata = _parse(data[8 : 8 + struct.unpack("<Q", data[:8])[0]].decode()).get("__metadata__", {})
        del data
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{name!r} cannot be read as a {kind}: it is truncated or another sort of file ({error}). "
            f"{remedy}"
        ) from error
    if metadata.get("format") != kind:
        found = str(metadata.get("format"))[:40]
        raise ModelFileError(f"{name!r} is not a {kind}: its format is {found!r}. {remedy}")
    _check_version(name, metadata.get("version", ""))
    with damage_as_error(repr(name), remedy):
        tensors = {
            key: RawTensor(one["dtype"], tuple(one["shape"]), one["data"] or bytearray())
            for key, one in found
        }
        digest = metadata.pop("digest")
        if set(metadata) != {"format", "version", "facts"} or digest != _digest(metadata, tensors):
            raise ModelFileError(f"{name!r} is damaged: its content is not what was written. {remedy}")
        return tensors, _parse(metadata["facts"])


def to_text(facts: Any) -> str:
    """Give the one JSON text of facts: keys sorted, every number finite."""
    return json.dumps(facts, sort_keys=True, allow_nan=False)


def _read_whole(path: str | os.PathLike[str]) -> bytes:
    """Read a file that begins as a safetensors file does; of others only the beginning is read."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(size - 8, LONGEST_HEADER):
            raise ValueError("it has no header")
        header = stream.read(length)
        if not header.startswith(b"{"):
            raise ValueError("its header is no JSON")
        return b"".join([start, header, stream.read()])


def _check_version(name: str, version: str) -> None:
    # Of digits that are no number of Python's, as of a thousand of them, nothing is made.
    known = version.isascii() and version.isdecimal() and len(version) < 10
    if not known or int(version) > VERSION:
        raise ModelFileError(
            f"{name!r} has version {version[:20]!r}; this diffputer reads up to {VERSION}. Upgrade diffputer."
        )
    if int(version) < OLDEST_VERSION:
        raise ModelFileError(
            f"{name!r} has version {version}, which this diffputer reads no more (from {OLDEST_VERSION} on). "
            "Fit again, or use the diffputer that wrote it."
        )


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, RawTensor]) -> str:
    """Give a fingerprint of all that a file holds, to find what was changed since."""
    names = sorted(tensors)
    labels = [[name, tensors[name].dtype, list(tensors[name].shape)] for name in names]
    digest = hashlib.sha256(to_text([dict(metadata), labels]).encode())
    for name in names:
        digest.update(tensors[name].data)
    return digest.hexdigest()


def _parse(text: str) -> Any:
    """Read JSON: no constants beside JSON's, no key twice."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_distinct)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """All that a model file says of itself, as JSON values, without building the model."""
    _, facts = read_container(path, MODEL)
    with damage_as_error(repr(str(path)), REMEDIES[MODEL]):
        result = facts["result"] or {}
        columns = [dict(column) for column in facts["encoder"]["schema"]["columns"]]
        scores: Any = result.get("held_out")
        for place, position in enumerate(scores["columns"] if scores else ()):
            columns[position]["held_out"] = {name: scores[name][place] for name in ("n", "error", "baseline")}
        return {
            "file": str(path),
            "bytes": os.path.getsize(path),
            "format_version": VERSION,
            "fit": facts["fit"],
            "seed": facts["seed"],
            "engine": result.get("engine"),
            "settings": result.get("settings"),
            "columns": columns,
        }

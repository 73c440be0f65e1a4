"""Damaged model files: bytes flipped, cut or swapped, tensors relabelled, every fact of another type.

The digest finds what happened by accident. It is no signature: most changes here come with a new one.
"""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

#: What takes the place of any fact.
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 10**9, 10**400, 1e300, -0.5, "", "x", "1", [], [None], [[[]]], {}, {"float": "nan"},
    {"tuple": [[]]}, {"timestamp": "yesterday"},
)  # fmt: skip
#: How many sorts of damage there are; `mutations` goes round them.
WAYS = 11
#: Types of the same size, and of others.
RELABELLED = {"F32": "I32", "I32": "F32", "F64": "I64", "I64": "F64", "U8": "I8", "BOOL": "U8", "BF16": "F16"}


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Header, facts and the bytes of tensors of a file."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["facts"]), data[8 + length :]


def pack(header: dict[str, Any], facts: Any, body: bytes) -> bytes:
    """A file with a digest that is right; facts may be text that is no JSON."""
    text = facts if isinstance(facts, str) else json.dumps(facts, sort_keys=True)
    metadata = {**header["__metadata__"], "facts": text}
    metadata.pop("digest", None)
    tensors = {name: one for name, one in header.items() if name != "__metadata__"}
    labels = [[name, tensors[name]["dtype"], tensors[name]["shape"]] for name in sorted(tensors)]
    digest = hashlib.sha256(json.dumps([metadata, labels], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(body[slice(*tensors[name]["data_offsets"])])
    head = json.dumps({**header, "__metadata__": {**metadata, "digest": digest.hexdigest()}}).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + body


def mutations(path: Path, rng: np.random.Generator, n: int) -> Iterator[tuple[str, bytes]]:
    """Give n damaged copies of a model file, each with a description."""
    data = path.read_bytes()
    ways: list[Callable[[bytes, np.random.Generator], tuple[str, bytes]]] = [
        flip, cut, relabel, reshape, swap, change_fact, change_fact, change_fact, drop_fact, add_fact, spoil,
    ]  # fmt: skip
    for number in range(n):
        yield ways[number % WAYS](data, rng)


def flip(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """One bit, the digest as it was."""
    place, bit = int(rng.integers(len(data))), int(rng.integers(8))
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return f"bit {bit} of byte {place} flipped", bytes(changed)


def cut(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """The first bytes only."""
    size = int(rng.integers(len(data)))
    return f"cut after {size} bytes", data[:size]


def _tensors(header: dict[str, Any]) -> list[str]:
    return sorted(name for name in header if name != "__metadata__")


def relabel(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Another type of the same size for a tensor."""
    header, facts, body = unpack(data)
    name = str(rng.choice(_tensors(header)))
    header[name]["dtype"] = RELABELLED[header[name]["dtype"]]
    return f"{name} relabelled {header[name]['dtype']}", pack(header, facts, body)


def reshape(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Another shape for a tensor with as many numbers."""
    header, facts, body = unpack(data)
    name = str(rng.choice(_tensors(header)))
    header[name]["shape"] = [*header[name]["shape"], 1]
    return f"{name} reshaped {header[name]['shape']}", pack(header, facts, body)


def swap(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """The names of two tensors exchanged."""
    header, facts, body = unpack(data)
    one, other = (str(name) for name in rng.choice(_tensors(header), 2, replace=False))
    header[one], header[other] = header[other], header[one]
    return f"{one} and {other} swapped", pack(header, facts, body)


def paths(facts: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested facts; of long lists the first and the last."""
    if above:
        yield above
    if isinstance(facts, dict):
        for key in facts:
            yield from paths(facts[key], (*above, key))
    elif isinstance(facts, list):
        for place in sorted({0, len(facts) - 1} if facts else ()):
            yield from paths(facts[place], (*above, place))


def change(data: bytes, path: tuple[Any, ...], value: Any) -> bytes:
    """The file with another value at a place among its facts."""
    header, facts, body = unpack(data)
    *above, last = path
    place = facts
    for key in above:
        place = place[key]
    place[last] = value
    return pack(header, facts, body)


def _any_path(data: bytes, rng: np.random.Generator) -> tuple[Any, ...]:
    places = list(paths(unpack(data)[1]))
    return places[int(rng.integers(len(places)))]


def change_fact(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Something strange in the place of a fact."""
    path, value = _any_path(data, rng), STRANGE[int(rng.integers(len(STRANGE)))]
    return f"{path} became {str(value)[:20]!r}", change(data, path, copy.deepcopy(value))


def drop_fact(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A fact left out."""
    header, facts, body = unpack(data)
    *above, last = path = _any_path(data, rng)
    place = facts
    for key in above:
        place = place[key]
    del place[last]
    return f"{path} dropped", pack(header, facts, body)


def add_fact(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A fact that nobody knows, beside another."""
    path = (*_any_path(data, rng)[:-1], "surprise")
    if any(isinstance(key, int) for key in path[-2:-1]):
        path = ("surprise",)
    try:
        return f"{path} added", change(data, path, 1)
    except TypeError:  # beside an entry of a list
        return "('surprise',) added", change(data, ("surprise",), 1)


def spoil(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Facts that are no JSON, or more of it than anybody can read."""
    header, _, body = unpack(data)
    texts = ["{", "null", "[]", "[" * 100_000, '{"seed": ' + "9" * 10_000 + "}", "NaN", '{"a": 1, "a": 2}']
    text = texts[int(rng.integers(len(texts)))]
    return f"facts are {text[:20]!r}", pack(header, text, body)

"""What the user said about the columns of a table, checked against their names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diffputer.errors import InputError
from diffputer.tables.schema import Column, Kind, Schema, parse_kind, unknown_names


def read_wishes(
    names: tuple[Hashable, ...],
    categorical_features: Sequence[Any] | npt.NDArray[Any] | None,
    schema: Schema | Mapping[Any, str] | None,
) -> dict[Hashable, Column]:
    """What the user asked for, as one partly filled column for each name."""
    wishes: dict[Hashable, Column] = {}
    if isinstance(schema, Schema):
        wishes = {column.name: column for column in schema}
    elif schema is not None:
        if not isinstance(schema, Mapping):
            raise InputError(
                "schema must be a Schema or a dict of column -> kind, however: it is a "
                f"{type(schema).__name__}."
            )
        wishes = {name: Column(name, parse_kind(kind, name)) for name, kind in schema.items()}
    if unknown := [name for name in wishes if name not in names]:
        raise unknown_names(unknown, names)
    for name in chosen_names(names, categorical_features, "categorical_features"):
        if name in wishes and wishes[name].kind != Kind.CATEGORICAL:
            raise InputError(
                f"A column can have one kind only; column {name!r} is in categorical_features and is "
                f"{wishes[name].kind} in the schema. Remove it from one of them."
            )
        wishes.setdefault(name, Column(name, Kind.CATEGORICAL))
    return wishes


def chosen_names(
    names: tuple[Hashable, ...], chosen: Sequence[Any] | npt.NDArray[Any] | None, parameter: str
) -> list[Hashable]:
    """Names, positions or a mask, as names."""
    if chosen is None:
        return []
    if not isinstance(chosen, str) and not isinstance(chosen, Iterable):
        raise InputError(
            f"{parameter} must be a list of names or positions, or a mask, however: it is {chosen!r}."
        )
    items = [chosen] if isinstance(chosen, str) else list(chosen)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != len(names):
            raise InputError(
                f"A mask must have one entry for each column; {parameter} has {len(items)} entries "
                f"and the table {len(names)} columns. Name the columns instead."
            )
        return [name for name, wanted in zip(names, items, strict=True) if wanted]
    known = set(names)
    found: list[Hashable] = []
    unknown = []
    for item in items:
        if item in known:
            found.append(item)
        elif isinstance(item, int | np.integer) and -len(names) <= item < len(names):
            found.append(names[int(item)])
        else:
            unknown.append(item)
    if unknown:
        raise unknown_names(unknown, names)
    return found


def bounded_columns(
    names: tuple[Hashable, ...],
    bounds: Mapping[Any, tuple[Any, Any]] | None,
    schema: Schema | Mapping[Any, str] | None,
) -> list[int]:
    """Positions of the columns whose bounds the user has stated, by ``bounds`` or by a whole schema."""
    stated = names if isinstance(schema, Schema) else tuple(bounds or ())
    return [position for position, name in enumerate(names) if name in stated]

"""The levels of boolean and categorical columns: which there are, and which cells hold another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from diffputer.tables.cells import Booleans, Cells, Family
from diffputer.tables.schema import Column, Kind, Status

Indices = npt.NDArray[np.int64]


def levels_of(column: Column) -> tuple[Any, ...]:
    """The values that may be filled into a boolean or categorical column; none for a numeric one."""
    if column.status == Status.CONSTANT:
        return () if column.kind.is_numeric else (column.fill,)
    if column.kind == Kind.BOOLEAN:
        return column.levels or (False, True)
    return column.levels if column.kind == Kind.CATEGORICAL else ()


def level_indices(column: Column, codes: Indices, found: list[Any]) -> Indices:
    """The position of each cell's level in the schema, −1 where missing or unknown, [n_rows]."""
    place = {level: index for index, level in enumerate(levels_of(column))}
    # The extra last entry stands for holes, whose code is −1.
    translation = np.array([*(place.get(level, -1) for level in found), -1], dtype=np.int64)
    return translation[codes]


def unseen_beside_constant(column: Column, cells: Cells) -> str:
    """A few words on levels of a column that had a single one at fit; nothing if there are none."""
    if column.status != Status.CONSTANT or column.kind.is_numeric or cells.storage.family == Family.OTHER:
        return ""
    codes, found = cells.labels()
    unseen = (level_indices(column, codes, found) < 0) & (codes >= 0)
    return name_unseen(column, codes, found, unseen) if unseen.any() else ""


def name_unseen(column: Column, codes: Indices, found: list[Any], unseen: Booleans) -> str:
    """Name a column and up to three of its unknown levels."""
    distinct = np.unique(codes[unseen])
    shown = ", ".join(repr(found[code]) for code in distinct[:3])
    return f"{column.name!r} has {shown}" + (f" and {len(distinct) - 3} more" if len(distinct) > 3 else "")

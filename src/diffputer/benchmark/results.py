"""Result rows on disk: one flat CSV line each, appended whole, whoever else is writing."""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InputError, warn_about_data
from ..tables.paths import write_bytes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Row = dict[str, Any]

#: The columns of a result, in order.
FIELDS = (
    "task", "dataset", "mechanism", "rate", "mask_seed", "setting", "method", "label", "seed",
    "settings_hash", "em_round", "mae", "rmse", "accuracy", "mae_median", "rmse_median",
    "coverage", "crps", "pit", "draws_scored", "rows_drawn", "energy", "auc",
    "fit_seconds", "transform_seconds", "draw_seconds", "m_seconds", "e_seconds", "em_rounds", "best_round",
    "rows", "draws", "device", "threads", "peak_memory_gb", "alone", "git_hash", "data_fingerprint",
    "protocol_version", "error", "versions", "settings", "columns",
)  # fmt: skip


def append_rows(
    path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]], fields: Sequence[str] = FIELDS
) -> None:
    """Append results to a CSV file in one write, so that several processes may do so at the same time.

    Parameters
    ----------
    path : path
        Of the file; it is made, with its header, if it is not there.
    rows : sequence of dict
        With the columns ``fields``.
    fields : sequence of str
        The columns of the file, in order.
    """
    for row in rows:
        if set(row) != set(fields):
            different = sorted(set(row) ^ set(fields))
            raise InputError(f"A result must have the columns of FIELDS, however: {different} differ.")
    target = Path(path)
    if not target.exists():
        _create(target, fields)
    check_columns(target, fields)
    text = "".join(_format_line([row[name] for name in fields]) for row in rows)
    _append(target, text.encode())


def check_columns(path: str | os.PathLike[str], fields: Sequence[str] = FIELDS) -> None:
    """Refuse a file of results that this version cannot append to."""
    if read_header(path) != list(fields):
        raise InputError(
            f"Results must go to a file with the columns of this version, however: {path} has other ones. "
            "Write to a new file"
            + (
                ", or add the columns that are new with diffputer.benchmark.results.add_columns(path)."
                if fields is FIELDS
                else "."
            )
        )


def read_header(path: str | os.PathLike[str]) -> list[str]:
    """Give the columns of a CSV file; none if it is empty."""
    with open(path, newline="\n", encoding="utf-8", errors="replace") as file:
        return _split_line(next(file, ""))


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Read the results in a file, as text; none if it is not there.

    A line with too few or too many cells, as a process leaves that is killed while it writes, is left out
    with a warning.
    """
    if not Path(path).exists():
        return []
    rows = []
    with open(path, newline="\n", encoding="utf-8", errors="replace") as file:
        header = _split_line(next(file, ""))
        for number, line in enumerate(file, start=2):
            cells = _split_line(line)
            if len(cells) == len(header):
                rows.append(dict(zip(header, cells, strict=True)))
            elif line.strip():
                warn_about_data(
                    f"A line of results must have the {len(header)} cells of the header, however: "
                    f"line {number} of {path} has {len(cells) or 'an open quote'}. It is left out; delete "
                    "it, and run what it was of again."
                )
    return rows


def _split_line(line: str) -> list[str]:
    """Give the cells of a line; none if it ends within quotes. Each line is for itself, as it was written."""
    try:
        return next(csv.reader([line.rstrip("\r\n")], strict=True), [])
    except csv.Error:
        return []


def add_columns(path: str | os.PathLike[str]) -> None:
    """Give a file of an earlier version the columns it lacks, empty; nobody else may be writing.

    Parameters
    ----------
    path : path
        Of a CSV file whose columns are among `FIELDS`.
    """
    target = Path(path)
    header = read_header(target)
    if not header or not set(header) <= set(FIELDS):
        foreign = sorted(set(header) - set(FIELDS))
        raise InputError(f"A file of results must have columns of FIELDS only, however: it has {foreign}.")
    replace_rows(target, read_rows(target))


def replace_rows(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a file of results anew, whole or not at all; nobody else may be writing."""
    target = Path(path)
    lines = [_format_line(list(FIELDS))]
    lines += [_format_line([row.get(name) for name in FIELDS]) for row in rows]
    write_bytes(target, "".join(lines).encode())


def _create(target: Path, fields: Sequence[str]) -> None:
    """Make a file with a header; it appears whole or not at all, and never replaces one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.write_bytes(_format_line(list(fields)).encode())
        os.link(temporary, target)
    except FileExistsError:
        pass  # another process was faster
    finally:
        temporary.unlink(missing_ok=True)


def _append(target: Path, content: bytes) -> None:
    """Append lines in one write; a line that broke off before them is ended first, and stays its own.

    One process at a time, where files can be locked: of a line that another has half written one cannot tell
    whether it broke off.
    """
    handle = os.open(target, os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0))
    try:
        if fcntl is not None:
            with suppress(OSError):  # some network drives have no locks
                fcntl.flock(handle, fcntl.LOCK_EX)  # until it is closed
        length = os.lseek(handle, 0, os.SEEK_END)
        if length:
            os.lseek(handle, length - 1, os.SEEK_SET)
            if os.read(handle, 1) != b"\n":
                content = b"\n" + content
        written = os.write(handle, content)
        if 0 < written < len(content) and os.lseek(handle, 0, os.SEEK_END) == length + written:
            os.ftruncate(handle, length)  # unless others wrote meanwhile: their rows are worth more
    finally:
        os.close(handle)
    if written != len(content):
        raise OSError(
            f"Only {written} of {len(content)} bytes could be written to {target}: is the disk full?"
        )


def _format_line(values: list[Any]) -> str:
    """Write a row as one line; line breaks within a cell become blanks."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["" if v is None else v for v in values])
    return " ".join(line.getvalue().splitlines()) + "\n"

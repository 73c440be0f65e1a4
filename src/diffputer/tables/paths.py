"""Paths and bytes: which format a path means, reading it whole, and writing it all or nothing."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import secrets
import stat
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args

from diffputer.errors import InputError

try:
    import fcntl as _fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    _fcntl = None  # type: ignore[assignment]
fcntl: Any = _fcntl

Kind = Literal["csv", "tsv", "parquet", "arrow"]
PathLike: TypeAlias = str | os.PathLike[str]

_SUFFIXES: dict[str, Kind] = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
#: Gibibytes that a compressed file may take in memory; a file of 5 MB can hold 4 GiB.
MAX_GIB = 1.0
_GZIP = b"\x1f\x8b"  # how gzipped data begins
#: Permissions of the table that the command at work has read.
_source_mode: int | None = None
_umask_lock = threading.Lock()


def file_kind(path: PathLike, format: Kind | None = None) -> tuple[Kind, bool]:
    """Format of a file by its suffix (``-``: CSV) or as told, and whether it is gzipped.

    Examples
    --------
    >>> file_kind("a.TSV.gz"), file_kind("-"), file_kind("data", "arrow")
    (('tsv', True), ('csv', False), ('arrow', False))
    """
    if format is not None and format not in get_args(Kind):
        raise InputError(
            f"A format must be one of {', '.join(get_args(Kind))}, but it is {format!r}. Choose one."
        )
    if str(path) == "-":
        return format or "csv", False
    name = Path(path).name.lower()
    gzipped = name.endswith(".gz")
    suffix = Path(name.removesuffix(".gz")).suffix
    kind = format or _SUFFIXES.get(suffix)
    if kind is None or (gzipped and kind not in ("csv", "tsv")):
        raise InputError(
            f"A table file must end in one of {', '.join(_SUFFIXES)} (text also with .gz), but {str(path)!r} "
            "does not. Rename it or say what it is with --format; save a spreadsheet as CSV first."
        )
    return kind, gzipped


def read_bytes(path: PathLike, max_gib: float = MAX_GIB) -> bytes:
    """The whole file, or standard input for ``-``, decompressed if it was gzipped, to at most ``max_gib``."""
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("Standard input must be open, but it is closed. Name a file, or use a pipe.")
        data = sys.stdin.buffer.read()
    else:
        rule = "The input must be a file that can be read, but"
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise InputError(f"{rule} there is no {str(path)!r}. Check the path.") from error
        except IsADirectoryError as error:
            raise InputError(f"{rule} {str(path)!r} is a folder. Name one file in it.") from error
        except OSError as error:
            raise InputError(
                f"{rule} {str(path)!r} cannot be opened ({error.strerror}). Check who may read it."
            ) from error
    if not data.startswith(_GZIP) and not Path(path).name.lower().endswith(".gz"):
        return data
    text = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read(1 << 20):  # all at once would take the memory of the limit
                text.write(part)
                check_size(text.tell(), 0, max_gib, repr(str(path)))
        return text.getvalue()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"A gzipped file must be whole, but {str(path)!r} is not ({error}). Fetch or make it again."
        ) from error


def check_size(n_bytes: int, n_stored: int, max_gib: float, name: str) -> None:
    """Refuse a file whose content is larger than allowed, unless it is as large on the disk.

    Parameters
    ----------
    n_bytes, n_stored : int
        Bytes of the content so far, and of the file.
    max_gib : float
        Gibibytes of content that are allowed.
    name : str
        What to call the file.
    """
    if n_bytes > max(max_gib * 2**30, n_stored):
        raise InputError(
            f"A compressed file must decompress to at most {max_gib:g} GiB; {name} holds "
            f"{n_bytes / 2**30:,.2f} GiB or more. If it is what you expect, allow more with --max-gib."
        )


@contextmanager
def permissions_of(source: PathLike) -> Iterator[None]:
    """Let no file that is written in this block be read by more people than the table it comes from.

    Holds for all threads, as the checkpoints of a fit are written by several.
    """
    global _source_mode
    before = _source_mode
    with suppress(OSError, ValueError, AttributeError):  # standard input may be a file, or closed
        found = os.stat(sys.stdin.fileno() if str(source) == "-" else source).st_mode
        _source_mode = stat.S_IMODE(found) & 0o777 if stat.S_ISREG(found) else None
    try:
        yield
    finally:
        _source_mode = before


def write_bytes(path: PathLike, data: bytes, *, is_table: bool = False) -> None:
    """Write the file, or to standard output for ``-``: all of it, or nothing and the old file stays.

    The data go to a new file in the same folder, which only its owner can read and which takes the place of
    the old one at the end. A device or a pipe is written to directly. The file has the permissions of the one
    that it replaces. A new one has those of any new file, but no more than the table that a command has read;
    a completed table (``is_table``) has exactly those.
    """
    try:
        if str(path) == "-":
            if sys.stdout is None:
                raise OSError(errno.EBADF, "standard output is closed")
            rest = memoryview(data)
            while rest:  # with PYTHONUNBUFFERED it is a stream that may take only a part at a time
                rest = rest[sys.stdout.buffer.write(rest) :]
            sys.stdout.buffer.flush()
            return
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as stream:
                stream.write(data)
        else:
            _replace_file(Path(os.path.realpath(path)), data, is_table)  # through a link, not in its place
    except BrokenPipeError:  # whoever reads it has seen enough
        raise
    except OSError as error:
        raise InputError(
            f"The output {str(path)!r} could not be written ({error.strerror}). Make room, or "
            "name another file."
        ) from error


def _replace_file(path: Path, data: bytes, is_table: bool) -> None:
    _remove_leftovers(path)
    temporary, stream = _open_temporary(path)
    try:
        with stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(temporary, _mode_for(path, is_table))
            if fcntl is not None:  # still locked; elsewhere an open file cannot be renamed
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)
    except BaseException:  # also Ctrl-C
        temporary.unlink(missing_ok=True)
        raise


def _open_temporary(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside another one, for its owner only and in use until it is closed."""
    while True:
        temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
        stream = open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
        if fcntl is not None:
            with suppress(OSError):  # of a file system without locks
                fcntl.flock(stream.fileno(), fcntl.LOCK_EX)  # ends with the process, however that ends
        if temporary.exists():
            return temporary, stream
        stream.close()  # another process took it for a leftover before it was locked


def _mode_for(path: Path, is_table: bool) -> int:
    """Permissions of a file that is written."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    if is_table and _source_mode is not None:
        return _source_mode | 0o600  # the next run may replace it, although the input is protected
    with _umask_lock:  # which can be read only by changing it
        mask = os.umask(0o077)
        os.umask(mask)
    return 0o666 & ~mask & (0o777 if _source_mode is None else _source_mode | 0o600)


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files that killed processes have left when they wrote the same file."""
    pattern = re.compile(rf"\.{re.escape(path.name[:100])}\.[0-9a-f]{{12}}\.tmp")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in [entry for entry in entries if pattern.fullmatch(entry.name)]:
            with suppress(OSError):  # in use: it is locked, or Windows refuses
                if fcntl is None:
                    os.unlink(entry.path)
                    continue
                with open(entry.path, "rb") as stream:
                    fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def check_writable(path: PathLike, *, format: Kind | None = None) -> None:
    """Say now, before the work, if a table cannot be written there.

    Examples
    --------
    >>> check_writable("-")
    >>> check_writable("no/folder/out.csv")
    Traceback (most recent call last):
    ...
    diffputer.errors.InputError: The output's folder must exist, but 'no/folder' does not: create it first.
    """
    file_kind(path, format)
    if str(path) == "-":
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(f"The output must be a file, but {str(path)!r} is a folder. Name a file in it.")
    if target.exists() and not os.access(target, os.W_OK):
        raise InputError(
            f"The output must be writable, but {str(path)!r} may not be written to. Name another file."
        )
    if target.exists() and not target.is_file():
        return  # a device or a pipe
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"The output's folder must exist, but {str(folder)!r} does not: create it first.")
    if reason := refusal_of(folder):
        raise InputError(
            f"The output's folder must be writable, but {str(folder)!r} is not ({reason}). Name another one."
        )


def refusal_of(folder: PathLike) -> str:
    """Why no file can be made in a folder; nothing if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)

"""Fetches the paper's data sets from their public homes, prepares them, and keeps them in a folder."""

from __future__ import annotations

import gzip
import hashlib
import http
import http.client
import json
import logging
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DiffputerError, InputError, warn_about_data
from ..tables.paths import write_bytes
from .builtin import BUILTIN
from .datasets import DATA_VARIABLE, VARIANTS, cache_folder, known_facts, read_gzip, split_name
from .prepare import prepare

_log = logging.getLogger(__name__)
ATTEMPTS = 5
#: Answers that will be the same next time.
_FINAL = range(400, 500)
_NOT_FINAL = (408, 425, 429)


class DownloadError(DiffputerError):
    """A file that could not be fetched, or came back as something else."""


def fetch_datasets(
    names: Sequence[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    raw_folder: str | os.PathLike[str] | None = None,
    force: bool = False,
    accept_changed: bool = False,
    facts: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = _log.info,
) -> list[Path]:
    """Fetch and prepare data sets that are not there yet.

    A table must be the one that this project's results were made with: by the SHA-256 of the downloaded file
    where that is recorded, and of the prepared table always. One that is known to come out otherwise (News)
    is kept with a warning: its rows of results carry its own fingerprint.

    Parameters
    ----------
    names : sequence of str
        Of data sets; a variant is fetched as the table that it is made of, one that is built in not at all.
    folder : path, optional
        Where they go; default: the environment variable ``DIFFPUTER_DATA``, else the cache folder.
    raw_folder : path, optional
        A folder with the files as they are at their public homes, under their names there; nothing is
        downloaded then.
    force : bool
        Fetch also what is there.
    accept_changed : bool
        Keep tables that are not the recorded ones, with a warning; ``datasets.json`` there records them.
    facts : mapping, optional
        What is known of the data sets; default: what the package knows.
    report : callable
        Is told what happens, line by line.

    Returns
    -------
    list of Path
        The prepared files.
    """
    directory = Path(folder or os.environ.get(DATA_VARIABLE) or cache_folder())
    known = known_facts() if facts is None else facts
    bases = list(dict.fromkeys(VARIANTS.get(whole, whole) for whole, _ in map(split_name, names)))
    if unknown := [name for name in bases if name not in known and name not in BUILTIN]:
        variants = [name for name, base in VARIANTS.items() if base in known]
        raise InputError(
            f"Only data sets that the package knows can be fetched, however: {', '.join(unknown)} "
            f"{'is' if len(unknown) == 1 else 'are'} not; it knows: {', '.join([*known, *variants])}; and "
            f"{', '.join(BUILTIN)}, which are built in."
        )
    for name in (name for name in bases if name in BUILTIN):
        report(f"{name}: built in, needs no fetching")
    bases = [name for name in bases if name not in BUILTIN]
    paths = []
    raw: dict[str, bytes] = {}
    for name in bases:
        path = directory / f"{name}.csv.gz"
        paths.append(path)
        if path.is_file() and not force:
            report(f"{name}: {path} is there")
            _check_present(name, path, known[name])
            continue
        url = known[name]["raw"]
        if url not in raw:  # gesture and gesture_full come from one archive
            raw = {url: _get_raw(known[name], raw_folder, report, accept_changed)}
        content = prepare(name, raw[url], known[name])
        _keep(name, content, known[name], path, accept_changed)
        report(f"{name}: {path} written")
    return paths


def _get_raw(
    fact: Mapping[str, Any], raw_folder: Any, report: Callable[[str], None], accept_changed: bool
) -> bytes:
    url, sha256 = fact["raw"], None if accept_changed else fact.get("raw_sha256")
    if raw_folder is not None:
        path = Path(raw_folder) / urllib.request.url2pathname(url.rsplit("/", 1)[-1])
        if not path.is_file():
            raise InputError(f"The file must be in the folder, however: {path} is not. It is at {url}.")
        _check_raw(path, sha256, str(path))
        return path.read_bytes()
    report(f"fetching {url}")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "raw"
        download(url, target, sha256=sha256)
        return target.read_bytes()


def _keep(name: str, content: bytes, fact: Mapping[str, Any], path: Path, accept_changed: bool) -> None:
    """Write a prepared table, then its description, so that a description never lacks its table."""
    fingerprint, rows = _measure(content)
    if fingerprint != fact["sha256_csv"]:
        words = _describe_difference(name, content, fact, fact["raw"])
        if not accept_changed and "differs" not in fact:
            raise DownloadError(
                "The table must be the one that the results of this project were made with, however: "
                f"{words} It has changed at its home; nothing was kept. To use it as it is now: diffputer "
                f"bench data {name} --accept-changed."
            )
        warn_about_data(words)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, gzip.compress(content, mtime=0))
    described = path.parent / "datasets.json"
    facts = _read_description(described)
    if described.is_file() or fingerprint != fact["sha256_csv"]:
        facts[name] = {**fact, "file": path.name, "sha256_csv": fingerprint, "rows": rows}
        write_bytes(described, json.dumps(facts, indent=1).encode())


def _check_present(name: str, path: Path, fact: Mapping[str, Any]) -> None:
    """Refuse a table that is not the recorded one; warn if it is, but recorded in its folder only."""
    content = read_gzip(path)
    fingerprint, _ = _measure(content)
    if fingerprint == fact["sha256_csv"]:
        return
    own = _read_description(path.parent / "datasets.json").get(name, {})
    words = _describe_difference(name, content, fact, str(path))
    if fingerprint != own.get("sha256_csv"):
        raise InputError(
            f"A table that is there must be the one that was recorded, however: {words} Fetch it again: "
            f"diffputer bench data {name} --force."
        )
    warn_about_data(words)


def _read_description(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _measure(content: bytes) -> tuple[str, int]:
    """Give fingerprint and rows of a table."""
    return hashlib.sha256(content).hexdigest(), content.count(b"\n") - 1


def _describe_difference(name: str, content: bytes, fact: Mapping[str, Any], origin: str) -> str:
    fingerprint, rows = _measure(content)
    reason = f" That is known: {fact['differs']}." if "differs" in fact else ""
    return (
        f"The table of {name!r} from {origin} differs from the recorded one: SHA-256 {fingerprint[:12]}..., "
        f"not {fact['sha256_csv'][:12]}...; {rows:,} rows, recorded {fact['rows']:,}.{reason} Scores "
        "may differ; result rows carry the fingerprint of their table."
    )


def _check_raw(path: Path, sha256: str | None, origin: str) -> None:
    """Refuse a file as it is at its public home, or should be, whose content is not the recorded one."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        raise DownloadError(
            f"The file at {origin} must have the SHA-256 {sha256}, however: it has {found}. It has changed, "
            "or something on the way has changed it; nothing was kept. If it has changed at its home, and is "
            "wanted so: diffputer bench data NAME --accept-changed."
        )


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    attempts: int = ATTEMPTS,
    wait: float = 1.0,
    timeout: float = 60.0,
) -> None:
    """Fetch a file, going on where a broken connection left off; it appears whole or not at all.

    Parameters
    ----------
    url : str
        What to fetch.
    target : Path
        Where it goes.
    sha256 : str, optional
        What its content must have.
    attempts : int
        How often to try; the pause between two doubles each time.
    wait : float
        Seconds of the first pause.
    timeout : float
        Seconds without an answer after which an attempt has failed.
    """
    part = _Part(target.with_name(target.name + ".part"))
    part.path.unlink(missing_ok=True)
    for attempt in range(1, attempts + 1):
        try:
            part.fetch_rest(url, timeout)
            break
        except (OSError, http.client.HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and (
                error.code in _FINAL and error.code not in _NOT_FINAL
            )
            if final or attempt == attempts:
                raise DownloadError(
                    f"{url} must be fetched, however: {error} (attempt {attempt} of {attempts}). Try again "
                    "later, or fetch it by hand and use: diffputer bench data --raw FOLDER."
                ) from error
            _log.info("%s: %s; again in %.1f seconds", url, error, wait)
            time.sleep(wait)
            wait *= 2
    try:
        _check_raw(part.path, sha256, url)
    except DownloadError:
        part.path.unlink()
        raise
    os.replace(part.path, target)


@dataclass
class _Part:
    """What has come of a file so far, and which version of the file it is of."""

    path: Path
    version: str | None = None

    def fetch_rest(self, url: str, timeout: float) -> None:
        """Append what is missing, or begin again if that is not to be had."""
        start = self.path.stat().st_size if self.path.exists() else 0
        headers = {"User-Agent": "diffputer"}
        if start and self.version:  # without a version the two ends might be of two files
            headers |= {"Range": f"bytes={start}-", "If-Range": self.version}
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            named = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            self.version = None if not named or named.startswith("W/") else str(named)
            expected = answer.headers.get("Content-Length")
            got = 0
            with self.path.open("ab" if answer.status == http.HTTPStatus.PARTIAL_CONTENT else "wb") as file:
                while block := answer.read(1 << 16):
                    got += file.write(block)
        if expected is not None and got != int(expected):
            raise ConnectionError(f"only {got:,} of {int(expected):,} bytes came")

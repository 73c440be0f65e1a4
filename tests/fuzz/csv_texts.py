"""Ugly CSV texts from seeds, and what the command line must make of them.

The cells are made first and then written in some style, so that it is known which text each observed cell
must have in the output.
"""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diffputer.cli import app

from ..cli_tools import make_runner
from .checks import Outcome

#: Words that may be read as missing, so that their cells may change.
MARKERS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_SHORT = ("max_steps=3", "held_out=0", "mlp_members=1", "mlp_width=16", "mlp_depth=1", "attention_members=0")
_ODD = (
    "a,b",
    "a;b",
    'say "hi"',
    "two\nlines",
    "tab\there",
    " padded ",
    "ünï",
    "日本",
    "=1+1",
    "\x1b[31m",
    "-",
    "?",
)

Rows = list[list[str]]


@dataclass(frozen=True)
class Text:
    """A file, the cells that it holds, and why it may be refused (empty if it must not be)."""

    seed: int
    name: str
    data: bytes
    rows: Rows
    delimiter: str
    encoding: str
    options: tuple[str, ...]
    refusable: tuple[str, ...]

    @property
    def description(self) -> str:
        """One line on the text, for a failure."""
        return (
            f"seed {self.seed}: {self.name}, {len(self.rows) - 1} rows x {len(self.rows[0])}, "
            f"{self.delimiter!r}, {self.encoding}, {self.options}, {self.refusable}; {self.data[:120]!r}"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is odd about it, for the summary."""
        return (self.encoding, f"delimiter {self.delimiter!r}", *self.refusable)

    @property
    def container(self) -> str:
        """The sort of file, for the summary."""
        return self.name.partition(".")[2]


def make_text(seed: int) -> Text:
    """Make the text of a seed."""
    rng = np.random.default_rng([seed, 29])
    n, width = int(rng.choice([1, 2, 5, 12, 30, 60])), int(rng.integers(1, 7))
    name = str(rng.choice(["t.csv", "t.csv", "t.tsv", "t.csv.gz"]))
    delimiter = "\t" if name == "t.tsv" else str(rng.choice([",", ",", ";", "|", "\t"]))
    columns = [_column(rng, n) for _ in range(width)]
    rows = [_names(rng, width), *([column[i] for column in columns] for i in range(n))]
    encoding = str(rng.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"]))
    options: list[str] = []
    if encoding in ("latin-1", "cp1252"):
        rows = [[cell.encode(encoding, "replace").decode(encoding) for cell in row] for row in rows]
        options += ["--encoding", encoding]
    if width == 1 or rng.random() < 0.2:
        options += ["--delimiter", delimiter]
    refusable = []
    if all(cell in MARKERS for row in rows[1:] for cell in row):
        refusable.append("nothing observed")
    text = _write(rng, rows, delimiter)
    if rng.random() < 0.2:
        text, reason = _spoil(rng, text, rows, delimiter)
        refusable.append(reason)
    data = text.encode(encoding, "replace")  # what spoils it may have no code
    if rng.random() < 0.02:
        data, reason = data[: len(data) // 2] + b"\xff\xfe\x81" + data[len(data) // 2 :], "wrong bytes"
        refusable.append(reason)
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
        if rng.random() < 0.1:
            data = data[: len(data) // 2]
            refusable.append("cut off")
    return Text(seed, name, data, rows, delimiter, encoding, tuple(options), tuple(refusable))


def _names(rng: np.random.Generator, width: int) -> list[str]:
    names = [f"c{i}" for i in range(width)]
    if rng.random() < 0.3:
        odd = ["größe", "a b", 'the "one"', "x;y", "x,y", "1", "", ".id", "NA", "two\nlines"]
        names[0] = str(rng.choice(odd if width > 1 else odd[:3]))
    return names


def _column(rng: np.random.Generator, n: int) -> list[str]:
    numbers = rng.normal(50, 30, size=n)
    days = rng.integers(1, 29, size=(n, 2))
    kind = int(rng.integers(12))
    cells = {
        0: [f"{x:.2f}" for x in numbers],
        1: [f"{x:.2f}".replace(".", ",") for x in numbers],
        2: [str(int(x)) for x in numbers],
        3: [f"{x * 1e5:,.0f}" for x in numbers],
        4: [("yes", "no")[int(x) % 2] for x in numbers],
        5: [f"2021-{d % 12 + 1:02d}-{e:02d}" for d, e in days],
        6: [f"{e:02d}.{d % 12 + 1:02d}.2021" for d, e in days],
        7: [f"{d % 12 + 1}/{e}/2021 {e % 24}:05" for d, e in days],
        8: [str(rng.choice(["red", "green", "blue"])) for _ in range(n)],
        9: [str(rng.choice(_ODD)) for _ in range(n)],
        10: [f"{x:e}" for x in numbers],
        11: [f"id {i:05d}" + "x" * int(rng.random() < 0.02) * 200_000 for i in range(n)],
    }[kind]
    rate = float(rng.choice([0.0, 0.1, 0.3, 0.8, 1.0], p=[0.2, 0.3, 0.3, 0.15, 0.05]))
    marker = str(rng.choice(["", "", "NA", "null"]))
    return [marker if rng.random() < rate else cell for cell in cells]


def _write(rng: np.random.Generator, rows: Rows, delimiter: str) -> str:
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if rng.random() < 0.2 else csv.QUOTE_MINIMAL
    csv.writer(
        text, delimiter=delimiter, lineterminator=str(rng.choice(["\n", "\r\n"])), quoting=quoting
    ).writerows(rows)
    written = text.getvalue()
    return written.rstrip("\r\n") if rng.random() < 0.1 and rows[-1][-1] else written


def _spoil(rng: np.random.Generator, text: str, rows: Rows, delimiter: str) -> tuple[str, str]:
    """Damage a text; give it and the reason for which it may be refused."""
    header, _, _ = text.partition("\n")
    damages = {
        "ragged": text + delimiter.join(["1"] * (len(rows[0]) + 2)) + "\n",
        "empty": "",
        "line ends only": "\n\r\n\n",
        "header only": header + "\n",
        "NUL": text[: len(text) // 2] + "\0" + text[len(text) // 2 :],
        "open quote": text + '"never closed',
        "repeated names": delimiter.join(["a", "a"]) + "\n1" + delimiter + "\n",
        "words above": "a title that is no header\n\n" + text,
        "no table": "\x89PNG\r\n\x1a\n" + text[:20],
    }
    reason = str(rng.choice(list(damages)))
    return damages[reason], reason


def check_text(case: Text) -> Outcome:
    """Run the command on one text; raise at the first thing that must not be."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, target = Path(folder) / case.name, Path(folder) / f"out.{case.container}"
        source.write_bytes(case.data)
        settings = [word for setting in _SHORT for word in ("--set", setting)]
        words = ["impute", str(source), "-o", str(target), *case.options, *settings, "--device", "cpu"]
        result = make_runner().invoke(app, words)
        said = result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "Traceback" not in said, said
        assert source.read_bytes() == case.data, "the input was changed"
        if result.exit_code != 0:
            assert result.exit_code == 2, f"code {result.exit_code}: {said}"
            assert case.refusable, f"refused for no known reason: {said}"
            assert len(said.split()) > 4, f"no sentence: {said!r}"
            assert not target.exists(), "refused, and written"
            return Outcome("exit code 2")
        if not case.refusable or case.refusable == ("nothing observed",):
            check_written(case, target.read_bytes())
        return Outcome(n_missing=sum(cell in MARKERS for row in case.rows[1:] for cell in row))


def check_written(case: Text, data: bytes) -> None:
    """Every observed cell has the text that it had, in the style of the input."""
    raw = gzip.decompress(data) if case.name.endswith(".gz") else data
    text = io.StringIO(raw.decode(case.encoding), newline="")
    limit = csv.field_size_limit(1 << 24)
    try:
        found = [row for row in csv.reader(text, delimiter=case.delimiter) if row]
    finally:
        csv.field_size_limit(limit)
    assert [len(row) for row in found] == [len(row) for row in case.rows], "the shape differs"
    for i, (before, after) in enumerate(zip(case.rows, found, strict=True)):
        for old, new in zip(before, after, strict=True):
            assert old == new or (i and old in MARKERS), f"row {i}: {new!r:.80} was {old!r:.80}"

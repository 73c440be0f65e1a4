"""Ugly tables from seeds: every kind of column, container, label, index and missing rate.

Columns are made as lists of Python values with None where missing, and then stored as the container can:
one kind has several dtypes. The same seed gives the same table with the same versions of the libraries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

CONTAINERS = ("pandas", "polars", "pyarrow", "numpy")
Values = list[Any]
Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A table and what is known of it.

    Attributes
    ----------
    frame
        The table.
    names, kinds, dtypes
        Of its columns: label, kind of the generator, and how it is stored.
    settings
        Parameters of ``DiffPuter`` under which it is fitted.
    refusable
        Why ``fit`` may refuse the table; empty if it must not.
    """

    seed: int
    container: str
    frame: Any
    names: tuple[Hashable, ...]
    kinds: tuple[str, ...]
    dtypes: tuple[str, ...]
    n_rows: int
    settings: dict[str, Any]
    refusable: tuple[str, ...]

    @property
    def description(self) -> str:
        """One line on the table, for a failure."""
        columns = ", ".join(f"{name!r:.30}: {kind} as {dtype}" for name, kind, dtype in self.columns)
        return f"seed {self.seed}: {self.container}, {self.n_rows} rows, {self.settings}; {columns}"

    @property
    def columns(self) -> list[tuple[Hashable, str, str]]:
        """Label, kind and dtype of each column."""
        return list(zip(self.names, self.kinds, self.dtypes, strict=True))


# How values of a family are stored: a name, and a function from values with None to a column.
Storage = tuple[str, Callable[[Values], Any]]


def _as(dtype: Any) -> Callable[[Values], Any]:
    """Store in a pandas dtype."""
    return lambda values: pd.Series(values, dtype=dtype)


def _objects(values: Values) -> pd.Series:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return pd.Series(column, dtype=object)


def _nan_objects(values: Values) -> pd.Series:
    return _objects([np.nan if value is None else value for value in values])


def _numpy_objects(values: Values) -> pd.Series:
    return _objects([None if value is None else np.asarray(value)[()] for value in values])


def _through(dtype: Any, how: Callable[..., Any], unit: str) -> Callable[[Values], Any]:
    def store(values: Values) -> Any:
        return pd.Series(how(pd.Series(values, dtype=object))).astype(dtype.format(unit))

    return store


def _zoned(values: Values) -> pd.Series:
    zone = next((value.tzinfo for value in values if value is not None), dt.UTC)
    return pd.Series(pd.to_datetime(pd.Series(values, dtype=object), utc=True)).dt.tz_convert(zone)


def _category(ordered: bool, unused: int) -> Callable[[Values], Any]:
    def store(values: Values) -> Any:
        levels = list(dict.fromkeys(value for value in values if value is not None))
        levels = levels[::-1] + [f"unused {i}" for i in range(unused)]
        return pd.Series(pd.Categorical(values, categories=levels, ordered=ordered))

    return store


def _arrow_dtype(kind: pa.DataType) -> Callable[[Values], Any]:
    return lambda values: pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, type=kind)))


def _pandas(*storages: tuple[str, Any]) -> list[Storage]:
    return [(name, how if callable(how) else _as(how)) for name, how in storages]


def _arrow(*kinds: pa.DataType) -> list[Storage]:
    return [(str(kind), lambda values, kind=kind: _chunked(pa.array(values, type=kind))) for kind in kinds]


def _chunked(array: pa.Array) -> pa.ChunkedArray:
    cut = len(array) // 3
    return pa.chunked_array([array[:cut], array[cut:]], type=array.type) if cut else pa.chunked_array([array])


def _polars(*names: str, **options: Any) -> list[Storage]:
    def store(name: str) -> Callable[[Values], Any]:
        def make(values: Values) -> Any:
            import polars as pl

            if name == "Enum":
                levels = sorted({value for value in values if value is not None} | {"unused"})
                return pl.Series(values, dtype=pl.Enum(levels))
            dtype = getattr(pl, name)
            return pl.Series(values, dtype=dtype(**options) if options else dtype)

        return make

    return [(f"{name}{options or ''}", store(name)) for name in names]


def _polars_zoned(values: Values) -> Any:
    import polars as pl

    plain = [value and value.astimezone(dt.UTC).replace(tzinfo=None) for value in values]
    utc = pl.Series(plain, dtype=pl.Datetime).dt.replace_time_zone("UTC")
    return utc.dt.convert_time_zone("Asia/Kolkata")


def _polars_list(values: Values) -> Any:
    import polars as pl

    return pl.Series(values, dtype=pl.List(pl.Int64))


#: Family of values -> container -> ways to store them.
STORAGES: dict[str, dict[str, list[Storage]]] = {
    "float": {
        "pandas": _pandas(
            ("float64", "float64"),
            ("Float64", "Float64"),
            ("float32", "float32"),
            ("double[pyarrow]", _arrow_dtype(pa.float64())),
            ("object", _objects),
            ("object with NaN", _nan_objects),
            ("object of numpy", _numpy_objects),
            ("Sparse", lambda values: pd.Series(values, dtype="float64").astype("Sparse[float64]")),
        ),
        "pyarrow": _arrow(pa.float64(), pa.float32()),
        "polars": _polars("Float64", "Float32"),
    },
    "integer": {
        "pandas": _pandas(
            ("float64", "float64"),
            ("Int64", "Int64"),
            ("int64[pyarrow]", _arrow_dtype(pa.int64())),
            ("object", _objects),
            ("object of numpy", _numpy_objects),
        ),
        "pyarrow": _arrow(pa.int64(), pa.float64(), pa.decimal128(30, 0)),
        "polars": _polars("Int64", "Float64"),
    },
    "small integer": {
        "pandas": _pandas(
            ("Int8", "Int8"),
            ("UInt8", "UInt8"),
            ("float32", "float32"),
            ("uint8[pyarrow]", _arrow_dtype(pa.uint8())),
            ("object", _objects),
        ),
        "pyarrow": _arrow(pa.int8(), pa.uint8(), pa.int32(), pa.float32()),
        "polars": _polars("Int8", "UInt16", "Float32"),
    },
    "boolean": {
        "pandas": _pandas(
            ("boolean", "boolean"),
            ("object", _objects),
            ("object of numpy", _numpy_objects),
            ("bool[pyarrow]", _arrow_dtype(pa.bool_())),
        ),
        "pyarrow": _arrow(pa.bool_()),
        "polars": _polars("Boolean"),
    },
    "text": {
        "pandas": _pandas(
            ("object", _objects),
            ("object with NaN", _nan_objects),
            ("string", "string"),
            ("str", "str" if pd.__version__ >= "3" else "string"),
            ("string[pyarrow]", _arrow_dtype(pa.string())),
            ("category", _category(False, 0)),
            ("category with unused", _category(False, 2)),
            ("ordered category", _category(True, 1)),
        ),
        "pyarrow": _arrow(pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
        "polars": _polars("String", "Categorical", "Enum"),
    },
    "any category": {"pandas": _pandas(("category", _category(False, 0)), ("ordered", _category(True, 0)))},
    "datetime": {
        "pandas": _pandas(
            ("datetime64[ns]", _through("datetime64[{}]", pd.to_datetime, "ns")),
            ("datetime64[us]", _through("datetime64[{}]", pd.to_datetime, "us")),
            ("datetime64[s]", _through("datetime64[{}]", pd.to_datetime, "s")),
            ("timestamp[pyarrow]", _arrow_dtype(pa.timestamp("us"))),
            ("object", _objects),
        ),
        "pyarrow": _arrow(pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s")),
        "polars": _polars("Datetime") + _polars("Datetime", time_unit="ns"),
    },
    "zoned": {
        "pandas": _pandas(("with zone", _zoned), ("object", _objects)),
        "pyarrow": _arrow(pa.timestamp("us", tz="Europe/Berlin"), pa.timestamp("ms", tz="UTC")),
        "polars": [("Datetime with zone", _polars_zoned)],
    },
    "date": {
        "pandas": _pandas(("object", _objects), ("date32[pyarrow]", _arrow_dtype(pa.date32()))),
        "pyarrow": _arrow(pa.date32(), pa.date64()),
        "polars": _polars("Date"),
    },
    "duration": {
        "pandas": _pandas(
            ("timedelta64[ns]", _through("timedelta64[{}]", pd.to_timedelta, "ns")),
            ("timedelta64[s]", _through("timedelta64[{}]", pd.to_timedelta, "s")),
            ("duration[pyarrow]", _arrow_dtype(pa.duration("us"))),
            ("object", _objects),
        ),
        "pyarrow": _arrow(pa.duration("us"), pa.duration("s")),
        "polars": _polars("Duration"),
    },
    "time": {
        "pandas": _pandas(("object", _objects), ("time64[pyarrow]", _arrow_dtype(pa.time64("us")))),
        "pyarrow": _arrow(pa.time64("us"), pa.time32("s")),
        "polars": _polars("Time"),
    },
    "decimal": {
        "pandas": _pandas(("object", _objects), ("decimal[pyarrow]", _arrow_dtype(pa.decimal128(12, 3)))),
        "pyarrow": _arrow(pa.decimal128(12, 3), pa.decimal256(40, 3)),
        "polars": _polars("Decimal", precision=12, scale=3),
    },
    "object": {"pandas": _pandas(("object", _objects))},
    "period": {"pandas": _pandas(("period[M]", "period[M]"), ("object", _objects))},
    "interval": {
        "pandas": _pandas(("interval", lambda v: pd.Series(pd.array(v, dtype="interval[float64]"))))
    },
    "bytes": {
        "pandas": _pandas(("object", _objects)),
        "pyarrow": _arrow(pa.binary()),
        "polars": _polars("Binary"),
    },
    "list": {
        "pandas": _pandas(("object", _objects)),
        "pyarrow": _arrow(pa.list_(pa.int64())),
        "polars": [("List", _polars_list)],
    },
    "nothing": {
        "pandas": _pandas(
            ("object", _objects),
            ("float64", "float64"),
            ("Int64", "Int64"),
            ("boolean", "boolean"),
            ("string", "string"),
            ("category", _category(False, 0)),
            ("category with unused", _category(True, 2)),
            ("datetime64[ns]", "datetime64[ns]"),
            ("timedelta64[ns]", "timedelta64[ns]"),
            ("null[pyarrow]", _arrow_dtype(pa.null())),
        ),
        "pyarrow": _arrow(pa.null(), pa.float64(), pa.int8(), pa.string(), pa.bool_(), pa.date32()),
        "polars": _polars("Null", "Float64", "Int8", "String", "Boolean", "Date"),
    },
}

_EPOCH = dt.datetime(2019, 5, 17)
_ODD_WORDS = (
    "naïve",
    "日本語",
    "👩‍👩‍👧",
    "e\u0301",
    "é",
    "a\tb",
    "line\nbreak",
    "\x1b]0;title\x07",
    "null\x00byte",
    "'quoted\"",
    " padded ",
    "\u202eright to left",
    "=1+1",
    "x" * 300,
    "\ufeffbom",
)
_URLS = ("https://example.org/{}", "mailto:{}@example.org", "C:\\tables\\{}.csv")


def _pick(rng: Random, n: int, levels: list[Any]) -> Values:
    weights = rng.dirichlet(np.ones(len(levels)))
    return [levels[i] for i in rng.choice(len(levels), size=n, p=weights)]


def _whole(numbers: np.ndarray) -> Values:
    return [int(number) for number in np.rint(numbers)]


def _moments(rng: Random, n: int, step: str) -> list[dt.datetime]:
    seconds = {"day": 86400, "minute": 60, "second": 1}[step]
    wide = {"day": 900, "minute": 50_000, "second": 10_000_000}[step]
    offsets = rng.integers(0, wide, size=n)
    start = _EPOCH.replace(hour=0) if step == "day" else _EPOCH
    moments = [start + dt.timedelta(seconds=int(offset) * seconds) for offset in offsets]
    if step == "second" and rng.random() < 0.5:
        moments = [
            m + dt.timedelta(microseconds=int(u))
            for m, u in zip(moments, rng.integers(0, 10**6, n), strict=True)
        ]
    return moments


def _zones(rng: Random, n: int) -> Values:
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(str(rng.choice(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])))
    step = str(rng.choice(["day", "minute"]))
    return [moment.replace(tzinfo=zone) for moment in _moments(rng, n, step)]


def _words(rng: Random, n: int, count: int = 4) -> Values:
    return _pick(rng, n, [f"word {i}" for i in range(count)])


def _free(rng: Random, n: int) -> Values:
    syllables = ["ka", "lo", "mi", "ter", "von", "as", "ri"]
    return [" ".join(rng.choice(syllables, size=rng.integers(3, 12))) + f" {i}" for i in range(n)]


def _mixed(rng: Random, n: int) -> Values:
    values = _pick(rng, n, [1, "one", 2.5, dt.date(2020, 1, 1)])
    return values if n < 2 else ["one", 1, *values[2:]]


def _some_infinite(rng: Random, n: int) -> Values:
    values = rng.normal(size=n).tolist()
    values[0] = float("inf")
    return values


def _round(rng: Random, n: int) -> Values:
    return np.round(rng.normal(20, 5, n), int(rng.integers(0, 3))).tolist()


def _any_levels(rng: Random, n: int) -> Values:
    sorts: list[list[Any]] = [
        [1, 2, 30],
        [0.5, 1.5, -2.0],
        [True, False],
        [dt.date(2020, 1, 1), dt.date(2021, 6, 30)],
        [pd.Timestamp("2020-01-01 03:04"), pd.Timestamp("2022-02-02")],
        [pd.Timedelta("1h"), pd.Timedelta("2 days")],
        ["a", 1, 2.5],
    ]
    return _pick(rng, n, sorts[rng.integers(len(sorts))])


def _near_limits(rng: Random, n: int) -> Values:
    return [2**63 - 1 - int(k) for k in rng.integers(0, 1000, size=n)]


#: Settings under which a fit takes a fraction of a second.
SHORT: dict[str, Any] = {
    "max_steps": 3,
    "held_out": 0.0,
    "mlp_members": 1,
    "mlp_width": 16,
    "mlp_depth": 1,
    "attention_members": 0,
    "batch_size": 64,
    "sampling_steps": 3,
}
PAPER: dict[str, Any] = {
    "engine": "paper",
    "max_steps": 3,
    "em_rounds": 1,
    "hidden_width": 16,
    "sampling_steps": 3,
    "resampling_rounds": 1,
    "n_draws": 2,
    "em_draws": 2,
}

Maker = Callable[[Random, int], Values]

#: Kind of column -> family of its values, and how they are made.
KINDS: dict[str, tuple[str, Maker]] = {
    "float": ("float", lambda rng, n: (3 * rng.normal(size=n) + 10).tolist()),
    "heavy tails": ("float", lambda rng, n: rng.standard_t(1.0, size=n).tolist()),
    "huge numbers": ("float", lambda rng, n: (rng.normal(size=n) * 10.0 ** rng.integers(8, 30)).tolist()),
    "tiny numbers": ("float", lambda rng, n: (rng.normal(size=n) * 10.0 ** -rng.integers(5, 30)).tolist()),
    "far from zero": ("float", lambda rng, n: (1e9 + rng.random(n)).tolist()),
    "many zeros": ("float", lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.gamma(1, 5, n)).tolist()),
    "signed zeros": (
        "float",
        lambda rng, n: np.where(rng.random(n) < 0.5, -0.0, rng.normal(size=n)).tolist(),
    ),
    "rounded": ("float", _round),
    "infinite": ("float", _some_infinite),
    "integer": ("integer", lambda rng, n: _whole(rng.normal(100, 40, n))),
    "large integer": ("integer", lambda rng, n: _whole(rng.normal(0, 1e14, n))),
    "integer near 2^63": ("near limits", _near_limits),
    "codes": ("small integer", lambda rng, n: rng.integers(1, 6, size=n).tolist()),
    "zero or one": ("small integer", lambda rng, n: rng.integers(0, 2, size=n).tolist()),
    "row number": ("integer", lambda rng, n: list(range(1, n + 1))),
    "boolean": ("boolean", lambda rng, n: (rng.random(n) < rng.random()).tolist()),
    "constant number": ("float", lambda rng, n: [float(rng.integers(0, 3))] * n),
    "constant text": ("text", lambda rng, n: ["always"] * n),
    "empty": ("nothing", lambda rng, n: [None] * n),
    "words": ("text", _words),
    "many words": ("text", lambda rng, n: _words(rng, n, 250)),
    "odd words": (
        "text",
        lambda rng, n: _pick(rng, n, list(rng.choice(_ODD_WORDS, 5, replace=False).tolist())),
    ),
    "empty strings": ("text", lambda rng, n: _pick(rng, n, ["", " ", "full"])),
    "missing markers": ("text", lambda rng, n: _pick(rng, n, ["NA", "None", "?", "-", "yes", "no"])),
    "numbers as text": ("text", lambda rng, n: [str(k) for k in rng.integers(0, 9, size=n)]),
    "free text": ("text", _free),
    "addresses": ("text", lambda rng, n: [_URLS[i % 3].format(i) for i in rng.integers(0, 10**6, size=n)]),
    "identifiers": ("text", lambda rng, n: [f"ID-{i:06d}" for i in rng.permutation(n)]),
    "category of any type": ("any category", _any_levels),
    "days": ("datetime", lambda rng, n: _moments(rng, n, "day")),
    "moments": ("datetime", lambda rng, n: _moments(rng, n, "second")),
    "moments with zone": ("zoned", _zones),
    "date objects": ("date", lambda rng, n: [moment.date() for moment in _moments(rng, n, "day")]),
    "durations": (
        "duration",
        lambda rng, n: [dt.timedelta(seconds=int(s)) for s in rng.integers(0, 10**5, n)],
    ),
    "time of day": (
        "time",
        lambda rng, n: [m.time().replace(microsecond=0) for m in _moments(rng, n, "minute")],
    ),
    "decimals": ("decimal", lambda rng, n: [Decimal(int(k)).scaleb(-2) for k in rng.integers(-999, 9999, n)]),
    "periods": ("period", lambda rng, n: [pd.Period(m, "M") for m in _moments(rng, n, "day")]),
    "intervals": (
        "interval",
        lambda rng, n: [pd.Interval(k, k + 1.0) for k in rng.integers(0, 5, n).tolist()],
    ),
    "bytes": ("bytes", lambda rng, n: [bytes([k]) for k in rng.integers(0, 255, n)]),
    "lists": ("list", lambda rng, n: [[int(k), 1] for k in rng.integers(0, 5, n)]),
    "mixed types": ("object", _mixed),
    "complex": ("object", lambda rng, n: [complex(1, k) for k in rng.normal(size=n)]),
    "copy": ("another", lambda rng, n: []),
    "line": ("another", lambda rng, n: []),
}
_unsigned = {"pandas": _pandas(("Int64", "Int64"), ("object", _objects)), "pyarrow": _arrow(pa.int64())}
STORAGES["near limits"] = {**_unsigned, "polars": _polars("Int64")}

#: Kinds that ``fit`` may refuse.
REFUSED = ("infinite", "mixed types", "complex")
_RARE = {"infinite", "mixed types", "complex", "lists", "bytes", "intervals", "periods"}
_PANDAS_ONLY = ("any category", "period", "interval")
_ROWS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
_RATES = (0.0, 0.0, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.95, 1.0)


def make_table(seed: int) -> Case:
    """Make the table of a seed."""
    rng = np.random.default_rng([seed, 13])
    container = str(rng.choice(CONTAINERS, p=[0.5, 0.2, 0.2, 0.1]))
    n_rows = int(rng.choice(_ROWS)) if rng.random() > 0.02 else int(rng.integers(500, 3000))
    n_columns = int(rng.integers(1, 9)) if rng.random() > 0.02 else int(rng.integers(20, 41))
    drafts = [_Draft(kind, *_make(rng, kind, n_rows)) for kind in _choose_kinds(rng, container, n_columns)]
    drafts = [_related(rng, draft, drafts, n_rows) for draft in drafts]
    missing = _mask(rng, n_rows, n_columns)
    labels: list[Hashable] = list(range(n_columns))
    if container == "numpy":
        frame, drafts, dtype = _array(rng, drafts, missing)
        dtypes = [dtype] * n_columns
    else:
        labels = _labels(rng, container, n_columns)
        stored = [_store(rng, draft, gone, container) for draft, gone in zip(drafts, missing.T, strict=True)]
        dtypes = [dtype for dtype, _ in stored]
        frame = _assemble(rng, container, labels, [column for _, column in stored])
    return Case(
        seed=seed,
        container=container,
        frame=frame,
        names=tuple(labels),
        kinds=tuple(draft.kind for draft in drafts),
        dtypes=tuple(dtypes),
        n_rows=n_rows,
        settings=_settings(rng),
        refusable=tuple(_reasons(drafts, missing, labels)),
    )


@dataclass(frozen=True)
class _Draft:
    """A column before its dtype is chosen; ``source`` is the kind of what it copies, else its own."""

    kind: str
    family: str
    values: Values
    source: str = ""


def _choose_kinds(rng: Random, container: str, n: int) -> list[str]:
    known = [kind for kind, (family, _) in KINDS.items() if container in STORAGES.get(family, CONTAINERS)]
    if container == "numpy":
        known = [kind for kind, (family, _) in KINDS.items() if family not in _PANDAS_ONLY]
    weights = np.array([0.15 if kind in _RARE else 1.0 for kind in known])
    return [str(kind) for kind in rng.choice(known, size=n, p=weights / weights.sum())]


def _make(rng: Random, kind: str, n: int) -> tuple[str, Values]:
    family, make = KINDS[kind]
    return family, make(rng, n)


def _related(rng: Random, draft: _Draft, drafts: list[_Draft], n: int) -> _Draft:
    """Fill in a column that copies another one, or is a line of other ones."""
    if draft.family != "another":
        return draft
    others = [other for other in drafts if other.family != "another"]
    if draft.kind == "copy" and others:
        other = others[rng.integers(len(others))]
        return _Draft("copy", other.family, other.values, other.kind)
    numbers = [np.array(other.values) for other in others if other.family == "float"]
    line = rng.normal(size=n) * 0 if numbers else rng.normal(size=n)
    for values in numbers:
        line = line + rng.normal() * np.where(np.isfinite(values), values, 0.0)
    return _Draft(draft.kind, "float", line.tolist())


def _mask(rng: Random, n: int, width: int) -> np.ndarray:
    """Where cells are missing: at random, in rows, in blocks, or one column after the other."""
    rates = rng.choice(_RATES, size=width)
    if rng.random() < 0.3:
        rates[:] = rates[0]
    missing = rng.random((n, width)) < rates
    how = rng.random()
    if how < 0.1:  # whole rows
        missing[rng.random(n) < 0.2] = True
    elif how < 0.2:  # a block
        missing[: n // 2, : (width + 1) // 2] = True
    elif how < 0.3:  # the later columns of a row that left
        missing = np.maximum.accumulate(missing, axis=1)
    elif how < 0.35:
        missing[:] = False
    return missing


def _store(rng: Random, draft: _Draft, gone: np.ndarray, container: str) -> tuple[str, Any]:
    values = [None if hole else value for value, hole in zip(draft.values, gone, strict=True)]
    ways = STORAGES[draft.family][container]
    name, store = ways[rng.integers(len(ways))]
    return name, store(values)


def _labels(rng: Random, container: str, n: int) -> list[Hashable]:
    odd = [*_ODD_WORDS, "", ".imp", ".id", "0", "nan", "None", "[bold]", "a" * 1000, "class", "{}", "%s"]
    how = rng.random()
    labels: list[Hashable] = [f"column {i}" for i in range(n)]
    if how < 0.3:
        labels[: len(odd)] = rng.permutation(odd)[:n].tolist()
    elif how < 0.6 and container == "pandas":
        sorts: list[list[Hashable]] = [
            list(range(n)),
            [n - i for i in range(n)],
            [("a", i) for i in range(n)],
            [i / 2 for i in range(n)],
            [i if i % 2 else f"c{i}" for i in range(n)],
            [pd.Timestamp("2024-01-01") + pd.Timedelta(days=i) for i in range(n)],
            [i > 0 if i < 2 else f"b{i}" for i in range(n)],
        ]
        labels = sorts[rng.integers(len(sorts))]
    if n > 1 and rng.random() < 0.01 and container != "polars":
        labels[-1] = labels[0]
    return labels


def _assemble(rng: Random, container: str, labels: list[Hashable], columns: list[Any]) -> Any:
    if container == "pyarrow":
        return pa.table(columns, names=[str(label) for label in labels])
    if container == "polars":
        import polars as pl

        return pl.DataFrame([column.alias(label) for column, label in zip(columns, labels, strict=True)])
    frame = pd.concat(columns, axis=1)
    if all(isinstance(label, tuple) for label in labels) and rng.random() < 0.5:
        frame.columns = pd.MultiIndex.from_tuples(labels, names=["upper", "lower"])
    else:
        frame.columns = pd.Index(labels, tupleize_cols=False)
    frame.index = _index(rng, len(frame))
    frame.attrs["source"] = "fuzz"
    return frame


def _index(rng: Random, n: int) -> pd.Index:
    sorts = [
        pd.RangeIndex(n),
        pd.RangeIndex(n),
        pd.Index(rng.permutation(n) * 10 - 5, name="row"),
        pd.Index(np.arange(n) % 3),
        pd.Index([f"r{i}" for i in range(n)], name="name"),
        pd.date_range("2024-01-01", periods=n, freq="h"),
        pd.MultiIndex.from_arrays([np.arange(n) % 2, np.arange(n)], names=["a", None]),
        pd.Index([None, *range(1, n)], dtype=object),
    ]
    return sorts[rng.integers(len(sorts))]


def _array(rng: Random, drafts: list[_Draft], missing: np.ndarray) -> tuple[np.ndarray, list[_Draft], str]:
    """An array of one dtype: columns that it cannot hold are replaced by numbers."""
    n, width = missing.shape
    dtype = str(rng.choice(["object", "float64", "float32", "int64", "bool", "datetime64[s]", "U5"]))
    if dtype == "object":
        array = np.empty((n, width), dtype=object)
        for j, draft in enumerate(drafts):
            array[:, j] = _objects(draft.values).to_numpy()
        array[missing] = rng.choice([None, np.nan])
        return array, drafts, dtype
    numbers = rng.normal(10, 20, size=(n, width))
    if dtype.startswith("float"):
        numbers = np.where(missing, np.nan, np.where(rng.random(width) < 0.3, np.rint(numbers), numbers))
    array = (
        numbers.astype(dtype) if dtype != "datetime64[s]" else (numbers * 1e6).astype("int64").astype(dtype)
    )
    if dtype == "datetime64[s]":
        array[missing] = np.datetime64("NaT")
    if rng.random() < 0.3:
        array = np.asfortranarray(array)
    return array, [_Draft("number", "float", []) for _ in drafts], dtype


def _reasons(drafts: list[_Draft], missing: np.ndarray, labels: list[Hashable]) -> list[str]:
    """Why ``fit`` may refuse the table."""
    observed = (~missing).sum(axis=0)
    reasons = [
        draft.source or draft.kind
        for draft, known in zip(drafts, observed.tolist(), strict=True)
        if known and (draft.source or draft.kind) in REFUSED
    ]
    if all(draft.family == "nothing" or not known for draft, known in zip(drafts, observed, strict=True)):
        reasons.append("nothing observed")
    if len({isinstance(label, str) for label in labels}) > 1:
        reasons.append("labels that are text and labels that are not")
    if len(set(labels)) < len(labels):
        reasons.append("repeated labels")
    return reasons


def _settings(rng: Random) -> dict[str, Any]:
    """Mostly the shortest fit; sometimes held-out cells, trees, attention or the paper's engine."""
    how = rng.random()
    if how < 0.06:
        return {**PAPER, "held_out": 0.0 if rng.random() < 0.5 else 0.1}
    settings = {**SHORT, "estimate": "median" if rng.random() < 0.25 else "mean"}
    if how < 0.12:
        settings["held_out"] = 0.1
    if how < 0.08:
        settings["boosted_trees"] = 2
    if how > 0.95:
        settings |= {"attention_members": 1, "attention_width": 32, "attention_depth": 1}
    return settings

"""The report: everything is there, nothing of the table is read as HTML, and the file needs nothing else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diffputer.analysis import make_report, profiles
from diffputer.analysis.origin import Origin
from diffputer.errors import InputError
from diffputer.held_out import ColumnErrors
from diffputer.tables.frames import read_table
from diffputer.tables.kinds import describe
from diffputer.trace import EMRound

from ..conftest import ugly_frame

EVIL = '</script><script>alert("x")</script>'


class Page(HTMLParser):
    """What a browser would make of a page: tags, attributes, text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def fill(frame: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Complete a frame with values that were observed in the same column, drawn at random."""
    rng = np.random.default_rng(seed)
    full = frame.copy()
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        known, holes = column.dropna(), column.isna().to_numpy()
        if len(known) and holes.any():
            values = column.array.copy()
            values[holes] = known.array[rng.integers(len(known), size=holes.sum())]
            full.isetitem(place, pd.Series(values, index=frame.index, name=column.name))
    return full


def draws_of(frame: pd.DataFrame, n: int = 4) -> list[pd.DataFrame]:
    return [fill(frame, seed) for seed in range(n)]


def table(n: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n), "c": rng.choice(["a", "b"], n)})
    return frame.mask(rng.random(frame.shape) < 0.2)


def test_every_part_is_there() -> None:
    frame = table()
    held = ColumnErrors(np.arange(3), np.full(3, 60), np.array([0.2, 0.8, 0.1]), np.array([0.8, 0.8, 0.5]))
    schema = describe(read_table(frame))
    origin = Origin(
        method="a test",
        parameters={"quality": "best"},
        settings={"max_steps": 30},
        seed=7,
        software={"diffputer": "0.0"},
        trace=[EMRound(k, 10, 1.0, 1.0, 0.4 / k, 0.8, 0.1, 1.0, 1.0) for k in (1, 2)],
        held_out=held.to_frame(schema),
        command="diffputer impute my.csv",
    )
    page = make_report(frame, draws_of(frame), origin=origin, title="My table")
    parsed = Page(page)
    sections = [one["id"] for one in parsed.named("section")]
    assert sections == ["summary", "warnings", "missing", "columns", "sure", "reproduce", "glossary"]
    for words in ("My table", "seed 7", "random_state=7", "quality='best'", "diffputer impute my.csv"):
        assert words in parsed.text
    assert f"{int(frame.isna().sum().sum()):,}" in parsed.text
    assert "Columns that could not be predicted" in parsed.text
    columns = data_of(page)["columns"]
    assert [column["name"] for column in columns] == ["x", "y", "c"]
    assert [column["held"] for column in columns] == [
        [0.2, 0.8, 60, "better"],
        [0.8, 0.8, 60, "no better"],
        [0.1, 0.5, 60, "better"],
    ]
    assert [[words[1] for words in column["warnings"]] for column in columns] == [
        [],
        ["Columns that could not be predicted"],
        [],
    ]
    assert len(data_of(page)["trace"]) == 2


def test_only_columns_with_holes_that_failed_are_called_unpredicted() -> None:
    frame = table().assign(full=0.5)
    frame["full"] += np.arange(len(frame))
    held = pd.DataFrame(
        {
            "kind": "continuous",
            "n": [60, 5, 40, 60],
            "error": [0.9, 0.9, 0.0, 0.9],
            "baseline": [0.8, 0.8, 0.0, 0.8],
        },
        index=["x", "y", "c", "full"],
    )
    held["ratio"] = held["error"] / held["baseline"]  # of c both are never wrong, and y has few cells
    page = make_report(frame, draws_of(frame), origin=Origin(held_out=held))
    found = [[line[:2] for line in column["warnings"]] for column in data_of(page)["columns"]]
    serious, weak = "Columns that could not be predicted", "Columns imputed from little evidence"
    assert found == [[["serious", serious]], [["look", weak]], [], []]


@pytest.mark.parametrize(
    "name",
    [
        "<script>",
        EVIL,
        "a'b\"c",
        "$title ${data}",
        "new\nline",
        "\u2028\x00\x1b",
        "Größe 日本",
        "",
        "n" * 900,
    ],
    ids=range(9),
)
def test_names_and_values_are_only_ever_text(name: str) -> None:
    frame = pd.DataFrame({name: [name, None, "b", "b"] * 10, "x": [1.0, 2.0, None, 4.0] * 10})
    page = make_report(frame, draws_of(frame), title=name + "\ud800")
    page.encode()
    parsed = Page(page)
    scripts = [one.get("type") for one in parsed.named("script")]
    assert scripts == ["application/json", None]
    assert not [tag for tag, attributes in parsed.tags if any(key.startswith("on") for key in attributes)]
    column = data_of(page)["columns"][0]
    if name == EVIL:
        assert column["name"] == EVIL
        assert EVIL in column["chart"]["levels"]
        assert EVIL in parsed.text
        assert EVIL not in page


def test_one_cell_was_missing_and_one_row_was_complete() -> None:
    for frame, words in (
        (pd.DataFrame({"x": [1.0, 2.0, None], "y": [1.0, 2.0, 3.0]}), "1 column was missing; 2 rows"),
        (pd.DataFrame({"x": [1.0, None, None], "y": [1.0, 2.0, 3.0]}), "(33.3 %) was complete."),
    ):
        assert words in Page(make_report(frame, [frame.fillna(1.5)] * 2)).text


def test_the_page_loads_nothing_and_allows_one_script() -> None:
    import base64
    import hashlib

    frame = table()
    page = make_report(frame, fill(frame))
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page.split('id="data"')[0])
    assert not re.search(r"https?:|fetch\(|XMLHttp|import\(", page)
    parsed = Page(page)
    assert not parsed.named("link")
    assert not parsed.named("img")
    assert not [one for one in parsed.named("script") if "src" in one]
    policy = next(one["content"] for one in parsed.named("meta") if one.get("http-equiv"))
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_a_hundred_columns_stay_far_below_five_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "TREE_TARGETS", 3)  # trees take most of the time and little of the room
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            f"a long name of column {k}": rng.normal(size=400)
            if k % 2
            else rng.choice(list("abcdefghijklmnop"), 400)
            for k in range(100)
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    page = make_report(frame, draws_of(frame, 10))
    assert len(page.encode()) < 1_500_000


def test_what_was_filled_is_told_of_every_kind() -> None:
    frame = ugly_frame(90)
    page = make_report(frame, draws_of(frame, 5))
    columns = {column["name"]: column for column in data_of(page)["columns"]}
    for name in ("size", "count", "day", "wait"):
        chart = columns[name]["chart"]
        assert chart["type"] == "numbers"
        assert sum(chart["filled"]) == pytest.approx(1, abs=0.05)
        assert len(chart["edges"]) == len(chart["observed"]) + 1
        assert all(0 <= place <= 1 for place, _ in chart["ticks"])
        assert all(low <= middle <= high for _, low, middle, high, *_ in chart["cells"])
    assert {row[0]: row[1] for row in columns["day"]["stats"]}["smallest"].startswith("2024-01")
    assert columns["grade"]["chart"]["levels"] == ["low", "high"]
    hours = pd.DataFrame(
        {"at": pd.date_range("2024-05-01 08:00", periods=30, freq="30min"), "year": range(1995, 2025)}
    )
    at, year = data_of(make_report(hours, hours))["columns"]
    assert ["smallest", "2024-05-01 08:00", ""] in at["stats"]
    assert at["chart"]["unit"] == "2024-May-01"
    assert ["largest", "2024", ""] in year["stats"]
    assert sum(columns["town"]["chart"]["observed"]) == pytest.approx(1, abs=0.01)
    assert 0 < columns["flag"]["sure"]["agreement"] <= 1


def test_draws_that_agree_are_sure_and_those_that_do_not_are_not() -> None:
    frame = table()
    sure = data_of(make_report(frame, [fill(frame)] * 3))["columns"]
    unsure = data_of(make_report(frame, draws_of(frame, 20)))["columns"]
    assert [sure[0]["sure"]["spread"], sure[2]["sure"]["agreement"]] == [0, 1]
    assert unsure[0]["sure"]["spread"] == pytest.approx(1, abs=0.2)  # draws of a column without a model
    assert unsure[2]["sure"]["agreement"] < 0.8
    assert data_of(make_report(frame, fill(frame)))["columns"][0]["sure"] is None


def test_warnings_of_filled_values() -> None:
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "moved": rng.normal(size=n),
            "piled": rng.normal(size=n),
            "lost": rng.choice(["often", "seldom"], n, p=[0.8, 0.2]),
            "empty": np.full(n, np.nan),
            "one": "same",
            "remark": [f"remark {k}" for k in range(n)],
            "fine": rng.normal(size=n),
        }
    )
    holes = rng.random(frame.shape) < 0.3
    frame = frame.mask(holes)
    full = fill(frame).assign(empty=0.0)
    full.loc[holes[:, 0], "moved"] += 1
    full.loc[holes[:, 1], "piled"] = frame["piled"].max()
    full.loc[holes[:, 2], "lost"] = "often"
    full["remark"] = frame["remark"]
    found = {
        column["name"]: {title for _, title, _ in column["warnings"]}
        for column in data_of(make_report(frame, full))["columns"]
    }
    assert "Filled values that differ from observed ones" in found["moved"]
    assert "Filled values pile up at the ends of the range" in found["piled"]
    assert "Levels that were never filled in" in found["lost"]
    assert found["empty"] == {"Columns without any value"}
    assert found["one"] == {"Columns of one value"}
    assert found["remark"] == {"Cells that are left missing"}
    assert found["fine"] == set()


def test_levels_that_the_model_has_never_seen_are_named() -> None:
    frame = pd.DataFrame({"c": ["a", "b", None] * 20, "x": np.arange(60.0)})
    schema = describe(read_table(frame))
    new = frame.replace("b", "z")
    page = make_report(new, fill(new), schema=schema)
    assert ["look", "Levels that the model has never seen", "z"] in data_of(page)["columns"][0]["warnings"]


def test_why_cells_may_be_missing_is_said_with_care() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 3)), columns=["age", "income", "rent"])
    by_chance = frame.mask(rng.random(frame.shape) < 0.2)
    by_age = frame.copy()
    by_age.loc[frame["age"] > 0.3, "income"] = np.nan
    for holes, words in ((by_chance, "Nothing speaks against"), (by_age, "is implausible")):
        text = Page(make_report(holes, fill(holes))).text
        assert words in text
        assert "MNAR" in text
    assert Page(make_report(frame, frame)).text.count("Nothing is missing.") == 1
    together = frame.copy()
    together.loc[rng.random(600) < 0.3, ["income", "rent"]] = np.nan  # a page of the form was lost, by chance
    text = Page(make_report(together, fill(together))).text
    assert "Missing nearly always together: income and rent" in text
    assert "Nothing speaks against missing completely at random" in text


def test_a_test_of_some_columns_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "TREE_TARGETS", 1)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 12)), columns=[f"v{k}" for k in range(12)])
    frame = frame.mask(rng.random(frame.shape) < 0.02)
    text = Page(make_report(frame, fill(frame))).text
    assert "Little's test is silent" in text
    monkeypatch.setattr(profiles, "TEST_WORK", 1)
    assert (
        "Little's test (of 10 of 12 columns of numbers) is silent"
        in Page(make_report(frame, fill(frame))).text
    )


def test_a_test_that_cannot_tell_is_not_called_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "CROWDED", 1.0)  # all columns are tested, however many patterns there are
    monkeypatch.setattr(profiles, "TREE_TARGETS", 1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 20))
    x[:, 1:][rng.random((100, 19)) < 1 / (1 + np.exp(1.4 - x[:, [0]]))] = np.nan
    frame = pd.DataFrame(x, columns=[f"v{k}" for k in range(20)])
    text = Page(make_report(frame, fill(frame))).text
    assert "is silent" not in text
    assert "evidence against missing" not in text
    assert "cannot tell, as" in text


def test_a_column_of_one_value_has_not_drifted() -> None:
    frame = pd.DataFrame({"k": [7.0, 7.0, None] * 20, "x": np.arange(60.0)})
    assert "Filled values that differ from" not in Page(make_report(frame, frame.fillna(7.0))).text
    text = Page(make_report(frame, frame.fillna(8.0))).text
    assert "though only one value was observed" in text


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"x": [1.0]}),
        pd.DataFrame({"x": [np.nan], "y": [1.0]}),
        pd.DataFrame({"c": ["a", None, "b"]}),
        pd.DataFrame({"b": pd.array([True, None, False], dtype="boolean")}),
        pd.DataFrame({"x": [np.nan, np.nan], "y": [None, None]}),
        pd.DataFrame({"x": [3.0, 3.0, None]}),
        pd.DataFrame({"x": [1e300, -1e300, None]}),
        pd.DataFrame({"x": [1e-300, 2e-300, None, 5e10] * 5}),
        pd.DataFrame([[1.0, 2.0], [np.nan, 3.0]], columns=["x", "x"]),
        pd.DataFrame({("a", 1): [1.0, None], 7: ["u", "v"]}),
        pd.DataFrame({"t": pd.to_datetime(["2024-01-01 10:00:00", None, "2024-01-01 10:00:03"])}),
        pd.DataFrame({"t": pd.to_datetime(["2024-01-01", "2024-01-01", None]).tz_localize("Europe/Berlin")}),
    ],
    ids=range(12),
)
def test_odd_tables_have_reports(frame: pd.DataFrame) -> None:
    for completed in (fill(frame), draws_of(frame, 3)):
        page = make_report(frame, completed)
        assert len(data_of(page)["columns"]) == frame.shape[1]


def test_long_tables_are_looked_at_in_part() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=30_000), "c": rng.choice(["a", "b"], 30_000)})
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    page = make_report(frame, draws_of(frame, 2))
    assert "20,000 rows, chosen by chance" in Page(page).text
    assert [column["missing"] for column in data_of(page)["columns"]] == frame.isna().sum().tolist()
    rows = np.arange(0, 30_000, 10)
    part = make_report(frame, fill(frame.iloc[rows]), rows=rows)
    assert "3,000 rows, chosen by chance" in Page(part).text
    with pytest.raises(InputError, match="rows and columns"):
        make_report(frame, fill(frame.iloc[rows]))


def test_other_containers_have_the_same_report() -> None:
    pl = pytest.importorskip("polars")
    import pyarrow as pa

    frame, full = table(), fill(table())
    columns = data_of(make_report(frame, full))["columns"]
    assert data_of(make_report(pl.from_pandas(frame), pl.from_pandas(full)))["columns"] == columns
    arrow = [pa.Table.from_pandas(one, preserve_index=False) for one in (frame, full)]
    assert data_of(make_report(*arrow))["columns"] == columns
    numbers = data_of(make_report(frame[["x", "y"]].to_numpy(), full[["x", "y"]].to_numpy()))["columns"]
    assert [column["chart"] for column in numbers] == [column["chart"] for column in columns[:2]]


def test_standard_deviations_are_those_of_pandas() -> None:
    frame = table(12)
    column = data_of(make_report(frame, draws_of(frame)))["columns"][0]
    (line,) = [one for one in column["stats"] if one[0] == "standard deviation"]
    assert line[1] == f"{frame['x'].std():.4g}"


def test_a_few_values_at_the_end_of_the_range_are_no_pile() -> None:
    rng = np.random.default_rng(0)
    stage = rng.integers(1, 5, 300).astype(float)
    frame = pd.DataFrame({"stage": stage, "x": stage})
    title = "Filled values pile up at the ends of the range"
    for n, piles in ((6, False), (120, True)):
        holed = frame.copy()
        holed.loc[: n - 1, "stage"] = np.nan
        full = holed.fillna({"stage": 4.0})
        full.loc[: n // 2 - 1, "stage"] = 2.0  # half of them at the end, where a quarter is usual
        (column, _) = data_of(make_report(holed, full))["columns"]
        assert (title in [name for _, name, _ in column["warnings"]]) == piles

"""The report as a reader meets it: opened, sorted, filtered and walked through by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diffputer.analysis import make_report, profiles

from ..browser import BROWSER, DRIVER, Browser
from .test_report import EVIL, draws_of

pytestmark = pytest.mark.skipif(
    not (DRIVER and BROWSER), reason="needs chromium and chromedriver: the report was not opened"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    n = 150
    frame = pd.DataFrame(
        {
            "beta": rng.normal(size=n),
            "alpha": rng.integers(0, 90, n).astype(float),
            EVIL: rng.choice(["<img src=x onerror=alert(1)>", "b & c"], n),
            "a_column_with_a_name_that_goes_on_and_on_and_on_without_any_space": rng.normal(size=n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "complete": rng.normal(size=n),
            "empty": np.full(n, np.nan),
            "remark": [f"remark {k}" if k % 3 else None for k in range(n)],
        }
    )
    holes = rng.random(frame.shape) < np.linspace(0.1, 0.3, frame.shape[1])
    holes[:, 5] = False
    frame = frame.mask(holes)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(make_report(frame, draws_of(frame, 6), title=EVIL), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Browser]:
    browser.complaints()
    browser.open(report)
    yield browser
    assert browser.complaints() == []


NAMES = (
    "return [...document.querySelectorAll('#all tbody tr:not([hidden])')].map(r => r.cells[0].textContent)"
)


def test_the_view_opens_at_a_column_with_missing_values_and_shows_what_was_written(
    browser: Browser, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=40) for name in ("full", "gaps")})
    frame["town"] = rng.choice(["Bonn", "Rome"], 40)
    frame.insert(1, "skipped", rng.normal(size=40))
    frame.loc[::4, ["skipped", "gaps", "town"]] = np.nan
    best = frame.fillna({"gaps": frame["gaps"].mean(), "town": "Rome"})
    draws = [one.assign(skipped=frame["skipped"]) for one in draws_of(frame, 3)]
    (tmp_path / "page.html").write_text(make_report(frame, draws, written=best))
    browser.open(tmp_path / "page.html")
    assert browser.run("return document.querySelector('#shown h3').textContent") == "gaps"
    heads = "return [...document.querySelectorAll('#shown thead th')].map(one => one.textContent)"
    assert len(browser.run(heads)) == 4
    assert browser.run("return document.querySelectorAll('#shown path.dl, #shown path.fl').length") == 2
    browser.run("location.hash = '#c3'")
    bars = "return document.querySelectorAll('#shown rect.o, #shown rect.f, #shown rect.d').length"
    assert browser.until(bars, 9) >= 6
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []


def test_nothing_of_the_table_runs_and_every_chart_is_drawn(page: Browser) -> None:
    assert page.run("return document.scripts.length") == 2
    assert page.run("return document.querySelector('h1').textContent") == EVIL
    assert page.run("return document.querySelectorAll('img').length") == 0
    for place in ("matrix", "together"):
        assert (
            page.run(f"return document.querySelector('#{place} svg').getAttribute('aria-label').length") > 5
        )
    page.run("document.getElementById('every').click()")
    assert page.run("return document.querySelectorAll('#shown article').length") == 8
    drawn = page.run(
        "return [...document.querySelectorAll('#shown article')].map(a => a.querySelectorAll('svg').length)"
    )
    assert drawn == [2, 2, 2, 2, 2, 1, 0, 0]
    assert page.run("return document.querySelectorAll('#shown img').length") == 0
    text = page.run("return document.getElementById('shown').textContent")
    assert "NaN" not in text
    assert "undefined" not in text
    assert page.run("return document.querySelector('svg [d*=NaN], svg [x=NaN], svg [width=NaN]')") is None


def test_titles_sort(page: Browser) -> None:
    page.run("document.querySelector('#all th:nth-child(1) button').focus()")
    page.press("Enter")
    sort = "return document.querySelector('#all th').getAttribute('aria-sort')"
    assert page.until(sort, "ascending") == "ascending"
    plain = [name for name in page.run(NAMES) if name.isalpha()]
    assert plain == ["alpha", "beta", "complete", "day", "empty", "remark"]
    page.run("document.querySelector('#all th:nth-child(3) button').click()")
    shares = page.run(
        "return [...document.querySelectorAll('#all tbody tr')].map(r => +r.cells[2].dataset.order)"
    )
    assert shares == sorted(shares, reverse=True)
    page.press("Enter")  # the focus is still on the first title
    assert page.until(sort, "ascending") == "ascending"
    assert page.run("return document.querySelectorAll('#all [aria-sort]').length") == 1


def test_filters_and_their_keys(page: Browser) -> None:
    page.press("/")
    assert page.until("return document.activeElement.id", "find") == "find"
    page.press("a", "l", "p")
    assert page.until(NAMES, ["alpha"]) == ["alpha"]
    assert page.run("return document.getElementById('found').textContent") == "1 of 8 columns"
    page.press("Escape")
    found = "return document.getElementById('found').textContent"
    assert page.until(found, "8 of 8 columns") == "8 of 8 columns"
    change = """
        const chooser = document.getElementById(arguments[0]);
        chooser.value = arguments[1];
        chooser.dispatchEvent(new Event('input'))"""
    page.run(change, "kind", "datetime")
    assert page.run(NAMES) == ["day"]
    page.run(change, "kind", "")
    page.run(change, "which", "warned")
    assert {"empty", "remark"} <= set(page.run(NAMES))
    assert "complete" not in page.run(NAMES)
    page.run(change, "which", "holes")
    assert len(page.run(NAMES)) == 7
    assert "complete" not in page.run(NAMES)


def test_enter_in_the_search_field_opens_the_first_that_was_found(page: Browser) -> None:
    title = "return document.querySelector('#shown h3').textContent"
    focus = "return document.activeElement.id"
    page.press("/")
    assert page.until(focus, "find") == "find"
    page.press(*"da")
    assert page.until(NAMES, ["day"]) == ["day"]
    page.press("Enter")
    assert page.until(title, "day") == "day"
    assert page.until(focus, "column") == "column"  # so that arrows go on
    top = "return Math.round(document.getElementById('column').getBoundingClientRect().top) < innerHeight"
    assert page.until(top, True) is True
    page.press("Right")
    assert page.until(title, "complete") == "complete"
    page.press("/")
    assert page.until(focus, "find") == "find"
    page.press("Enter")  # the words are still there, and the arrow had gone on
    assert page.until(title, "day") == "day"
    page.press("/")
    page.until(focus, "find")
    page.press(*"zzz", "Enter")  # finds nothing, opens nothing
    assert (
        page.until("return document.getElementById('found').textContent", "0 of 8 columns")
        == "0 of 8 columns"
    )
    assert page.run(title) == "day"
    assert page.run(focus) == "find"


def test_the_first_that_was_found_is_the_first_in_the_table_as_it_is_sorted(page: Browser) -> None:
    title = "return document.querySelector('#shown h3').textContent"
    page.run("document.querySelector('#all th:nth-child(1) button').click()")
    page.run("document.getElementById('find').focus()")
    page.press(*"alp")
    page.until(NAMES, ["alpha"])
    page.press("Escape")
    page.until("return document.getElementById('found').textContent", "8 of 8 columns")
    first = page.run(NAMES)[0]
    page.press("Enter")
    assert page.until(title, first) == first


def test_single_cells_say_that_their_lines_are_ranges(page: Browser) -> None:
    page.run("location.hash = 'c0'")
    words = "return document.getElementById('shown').textContent.includes(arguments[0])"
    for text in ("median and range of the 6 draws", "71 % of the missing values lie in these ranges"):
        for _ in range(100):
            if page.run(words, text):
                break
        assert page.run(words, text) is True


def test_a_column_opens_by_keyboard_and_arrows_go_on(page: Browser) -> None:
    title = "return document.querySelector('#shown h3').textContent"
    page.run("document.querySelector('#all a[href=\"#c1\"]').focus()")
    page.press("Enter")
    assert page.until(title, "alpha") == "alpha"
    assert page.until("return document.activeElement.id", "column") == "column"
    page.press("Right")
    assert page.until(title, EVIL) == EVIL
    page.press("Left", "Left")
    assert page.until(title, "beta") == "beta"
    page.press("Left")  # there is none before
    assert page.until(title, "beta") == "beta"
    assert page.run("return document.getElementById('before').disabled") is True
    assert page.run("return location.hash") == "#c0"
    page.run("document.querySelector('#all tbody tr:nth-child(5)').click()")
    assert page.until(title, "day") == "day"
    assert page.run("return document.getElementById('choose').value") == "4"


def test_every_control_can_be_reached_and_has_a_name(page: Browser) -> None:
    nameless = """
        return [...document.querySelectorAll('button, select, input, a, svg[role=img], [role=region]')]
            .filter(e => !e.textContent.trim() && !e.getAttribute('aria-label'))
            .filter(e => !(e.labels && e.labels.length))
            .map(e => e.outerHTML)"""
    assert page.run(nameless) == []
    page.run("document.body.tabIndex = -1; document.body.focus()")
    page.press("Tab")
    words = "Skip to the content"
    assert page.until("return document.activeElement.textContent", words) == words
    levels = page.run("return [...document.querySelectorAll('h1, h2, h3, h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_names_do_not_overprint_on_a_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "TREE_TARGETS", 1)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 20)), columns=[f"a_measured_column_{k}" for k in range(20)])
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    path = tmp_path / "wide.html"
    path.write_text(make_report(frame, draws_of(frame, 2)), encoding="utf-8")
    rows = """
        return [...document.querySelectorAll('#together text[text-anchor=end]')]
            .map(e => [e.textContent, e.getBoundingClientRect()]).map(([t, r]) => [t, r.left, r.top])"""
    with Browser() as phone:
        phone.become_a_phone(360)
        phone.open(path)
        found = phone.run(rows)
        assert len({words for words, *_ in found}) == len(found) == 20  # told apart by how they end
        assert all(left >= 0 for _, left, _ in found)
        assert all(after[2] - before[2] >= 14 for before, after in pairwise(found))
        assert phone.run("return document.documentElement.scrollWidth") <= 360


def test_a_phone_needs_no_sideways_scrolling(report: Path) -> None:
    with Browser() as phone:
        phone.become_a_phone()
        phone.open(report)
        for place in range(8):
            phone.run(f"location.hash = 'c{place}'")
            assert phone.run("return document.documentElement.scrollWidth") <= 375

"""Data sets: variants and cuts by name, preparation from raw files, downloads from a bad server."""

import csv
import gzip
import hashlib
import io
import json
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from diffputer.benchmark import datasets, fetch
from diffputer.benchmark.builtin import BUILTIN
from diffputer.benchmark.datasets import (
    PAPER_DATASETS,
    cache_folder,
    file_of,
    known_facts,
    load_dataset,
    split_name,
)
from diffputer.benchmark.fetch import DownloadError, download, fetch_datasets
from diffputer.benchmark.prepare import find_member, prepare, read_sheet
from diffputer.benchmark.task import Task
from diffputer.errors import DataWarning, InputError


def zipped(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return content.getvalue()


def rows_of(content):
    assert content.endswith(b"\n")
    assert b"\r" not in content
    return list(csv.reader(io.StringIO(content.decode())))


# --- data sets by name


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_tables_need_no_folder_and_are_complete(name, monkeypatch):
    monkeypatch.setenv("DIFFPUTER_DATA", "/nowhere")
    dataset = load_dataset(name)
    assert not dataset.frame.isna().any().any()
    assert len(dataset.numeric) >= 9
    assert len(dataset.categorical) == 1
    assert load_dataset(name).fingerprint == dataset.fingerprint
    assert file_of(name) is None


def test_a_cut_is_part_of_the_tasks_name_and_takes_the_first_rows():
    whole, cut = load_dataset("wine"), load_dataset("wine@30")
    assert (cut.train == whole.train[:30]).all().all()
    assert (cut.test == whole.test[:30]).all().all()
    assert cut.fingerprint == whole.fingerprint
    task = Task("wine@30", "mar")
    assert task.id == "wine@30/mar/0.3/0"
    assert [mask.shape for mask in task.masks(cut)] == [(30, 14), (30, 14)]
    assert Task("california").id == "california/mcar/0.3/0"


@pytest.mark.parametrize("name", ["wine@", "wine@x", "wine@-3", "wine@1", "wine@007", "wine@1.5"])
def test_other_cuts_are_refused(name):
    with pytest.raises(InputError, match="whole number of rows"):
        split_name(name)


@pytest.fixture
def small_folder(tmp_path, monkeypatch):
    """Files of California, Bean and News with a few invented rows, described as they are."""
    facts = {}
    rng = np.random.default_rng(0)
    for name in ("california", "bean", "news"):
        known = known_facts()[name]
        header = [*known["numeric"], known["target"], *known["categorical"], *known.get("auxiliary", ())]
        rows = [[f"{value:.3f}" for value in rng.random(len(header))] for _ in range(40)]
        if name == "california":
            rows[3][4] = rows[7][4] = ""
        if name == "news":
            for k, row in enumerate(rows):
                place = header.index("data_channel_is_lifestyle")
                row[place : place + 6] = ["1" if k % 7 == j else "0" for j in range(6)]
        text = "\n".join([",".join(header), *(",".join(row) for row in rows)]) + "\n"
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        facts[name] = {key: known[key] for key in ("numeric", "categorical")}
    (tmp_path / "datasets.json").write_text(json.dumps(facts))
    return tmp_path


def test_quirks_of_the_authors_are_chosen_by_name(small_folder):
    clean, theirs = (load_dataset(name, small_folder) for name in ("california", "california_authors"))
    assert len(np.intersect1d(clean.train_rows, clean.test_rows)) == 0
    assert len(np.intersect1d(theirs.train_rows, theirs.test_rows)) == 2  # as many as rows were dropped
    assert len(theirs.train_rows) + len(theirs.test_rows) == 40
    assert len(load_dataset("bean_authors", small_folder).frame) == 39
    channel = load_dataset("news_clean", small_folder).frame["data_channel"]
    assert channel.tolist() == [str(k % 7) for k in range(40)]


def test_cache_folder_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DIFFPUTER_DATA", raising=False)
    assert cache_folder() == tmp_path / "diffputer" / "data"
    assert file_of("letter") == tmp_path / "diffputer" / "data" / "letter.csv.gz"


# --- preparation


def test_the_package_knows_the_papers_data_sets():
    facts = known_facts()
    assert set(facts) == {*PAPER_DATASETS, "gesture_full"}
    for fact in facts.values():
        assert fact["raw"].startswith("https://")
        assert len(fact["sha256_csv"]) == 64


def test_letter_has_the_label_last():
    line = "T," + ",".join(map(str, range(16)))
    content = prepare(
        "letter",
        zipped(letter__recog="", **{"letter-recognition_dot_data": f"{line}\r\n"}),
        known_facts()["letter"],
    )
    header, row = rows_of(content)
    assert (header[0], header[-1]) == ("x_box", "letter")
    assert row == [*map(str, range(16)), "T"]


def test_adult_is_stripped_and_keeps_its_question_marks():
    line = "39, State-gov, 77516, Bachelors, 13, Single, ?, Not-in-family, White, Male, 2174, 0, 40, ?, <=50K"
    header, row = rows_of(prepare("adult", zipped(adult_dot_data=f"{line}\n\n"), known_facts()["adult"]))
    assert len(header) == len(row) == 15
    assert row[1:3] == ["State-gov", "77516"]
    assert row.count("?") == 2


def test_default_loses_its_number():
    head = "ID," + ",".join(f"X{i}" for i in range(1, 24)) + ",Y"
    raw = f"{head}\r\n1,{','.join(map(str, range(24)))}\r\n".encode()
    header, row = rows_of(prepare("default", raw, known_facts()["default"]))
    assert (header[0], header[-1]) == ("limit_bal", "default_payment_next_month")
    assert row == [*map(str, range(24))]
    with pytest.raises(InputError, match="Has it changed there"):
        prepare("default", raw.replace(b"X7", b"PAY"), known_facts()["default"])


def test_gesture_reads_a_recording_twice_as_the_authors_do():
    recordings = {
        f"{name}_va3_dot_csv": '"1","Phase"\n' + ",".join([f"0.0{k}0"] * 32 + ["D"]) + "\n"
        for k, name in enumerate(("a1", "a2", "a3", "b1", "b3", "c1", "c3"))
    }
    nested = zipped(gesture_dot_zip=zipped(**recordings))
    theirs = rows_of(prepare("gesture", nested, known_facts()["gesture"]))
    full = rows_of(prepare("gesture_full", nested, known_facts()["gesture_full"]))
    assert [row[-1] for row in theirs[1:]] == ["a1", "a2", "a3", "b1", "b1", "c1", "c3"]
    assert [row[-1] for row in full[1:]] == ["a1", "a2", "a3", "b1", "b3", "c1", "c3"]
    assert theirs[1][0] == "0.000"  # text as it is
    assert theirs[0][-2:] == ["phase", "recording"]


def test_magic_and_shoppers_keep_their_text():
    magic = rows_of(
        prepare(
            "magic",
            zipped(magic04_dot_data="28.7967,16.0021,2,0,0,27.7,22.0110,-8,40,81,g\n"),
            known_facts()["magic"],
        )
    )
    assert magic[1][6] == "22.0110"
    facts = known_facts()["shoppers"]
    line = ",".join([*["0.50"] * 10, "Feb", *"1234", "Returning_Visitor", "FALSE", "TRUE"])
    content = prepare(
        "shoppers", zipped(online_shoppers_intention_dot_csv=f"Administrative\n{line}\n"), facts
    )
    assert rows_of(content) == [[*facts["numeric"], *facts["categorical"], "revenue"], line.split(",")]


def test_news_becomes_numbers_channel_and_weekday():
    facts = known_facts()["news"]
    names = ["url", *facts["numeric"], *facts["auxiliary"], "shares"]
    row = dict.fromkeys(names, "0.0") | {"url": "http://x", "timedelta": "731.0", "lda_00": "0.500331204081"}
    row |= {"weekday_is_thursday": "1.0", "shares": "593"}
    head = ", ".join(name.replace("lda", "LDA") for name in names)
    raw = zipped(OnlineNewsPopularity__OnlineNewsPopularity_dot_csv=f"{head}\n{', '.join(row.values())}\n")
    header, made = rows_of(prepare("news", raw, facts))
    found = dict(zip(header, made, strict=True))
    assert len(header) == 62
    assert (found["timedelta"], found["lda_00"], found["shares"]) == ("731", "0.500331204081", "593")
    assert (found["data_channel"], found["weekday"]) == ("0", "3")
    assert "url" not in found


def workbook(rows):
    """The least that a spreadsheet program writes: shared words, and a sheet."""
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    words, lines = [], []
    for i, row in enumerate(rows):
        cells = []
        for j, value in enumerate(row):
            reference = f"{chr(ord('A') + j)}{i + 1}"
            if isinstance(value, str):
                words.append(value)
                cells.append(f'<c r="{reference}" t="s"><v>{len(words) - 1}</v></c>')
            elif value is not None:
                cells.append(f'<c r="{reference}"><v>{value}</v></c>')
        lines.append(f'<row r="{i + 1}">{"".join(cells)}</row>')
    shared = "".join(f"<si><t>{word}</t></si>" for word in words)
    table = "".join(lines)
    return zipped(
        xl__sharedStrings_dot_xml=f"<sst {space}>{shared}</sst>",
        xl__worksheets__sheet1_dot_xml=f"<worksheet {space}><sheetData>{table}</sheetData></worksheet>",
    )


def test_bean_is_read_from_its_spreadsheet():
    book = workbook([[*"ABCDEFGHIJKLMNOP", "Class"], [28395, 610.2909999999998, *[0.5] * 13, 1, "SEKER"]])
    raw = zipped(DryBeanDataset__Dry_Bean_Dataset_dot_xlsx=book)
    header, row = rows_of(prepare("bean", raw, known_facts()["bean"]))
    assert (header[1], header[-1]) == ("perimeter", "class")
    assert row == ["28395", "610.2909999999998", *["0.5"] * 13, "1", "SEKER"]
    assert read_sheet(workbook([["a", None, 2.5]])) == [["a", "", "2.5"]]


def test_archives_without_the_file_are_refused_in_words():
    with pytest.raises(KeyError, match="no file"):
        find_member(zipped(a="x"), "b")
    with pytest.raises(InputError, match=r"no file magic04\.data"):
        prepare("magic", zipped(a="x"), known_facts()["magic"])
    with pytest.raises(InputError, match="zip"):
        prepare("magic", b"<html>not found</html>", known_facts()["magic"])
    with pytest.raises(InputError, match="cells"):
        prepare("magic", zipped(magic04_dot_data="1,2\n"), known_facts()["magic"])


# --- downloads

CONTENT = bytes(range(256)) * 500
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Gives each request the next of some behaviours, the last one for ever; notes what was asked."""

    def __init__(self, behaviours, content):
        self.behaviours, self.content, self.asked = list(behaviours), content, []

    def answer(self, handler):
        behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
        self.asked.append(handler.headers.get("Range"))
        if isinstance(behaviour, int):
            handler.send_error(behaviour)
            return
        start = 0
        if behaviour != "no ranges" and (wanted := handler.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        body = self.content[start:]
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", '"one"')
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if behaviour == "cut" else body)


@contextmanager
def serving(*behaviours, content=CONTENT):
    server = Server(behaviours, content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.answer(self)

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_port}/file"
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.mark.parametrize(
    ("behaviours", "resumed"),
    [(["whole"], []), ([500, 503, "whole"], []), (["cut", "cut", "whole"], [2]), (["cut", "no ranges"], [1])],
    ids=["good", "errors first", "cut short", "cut short without ranges"],
)
def test_downloads_go_on_after_failures(behaviours, resumed, tmp_path):
    with serving(*behaviours) as server:
        download(server.url, tmp_path / "x", sha256=SHA, wait=0.001)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]
    assert [bool(asked) for asked in server.asked].count(True) == sum(resumed)


def test_downloads_that_cannot_succeed_say_why(tmp_path):
    with serving("whole") as server, pytest.raises(DownloadError, match=f"SHA-256 {'0' * 64}.*{SHA}"):
        download(server.url, tmp_path / "x", sha256="0" * 64, wait=0.001)
    with serving(404) as server, pytest.raises(DownloadError, match=r"404.*attempt 1 of 5.*--raw"):
        download(server.url, tmp_path / "x", wait=0.001)
    with serving(500) as server, pytest.raises(DownloadError, match="attempt 3 of 3"):
        download(server.url, tmp_path / "x", attempts=3, wait=0.001)
    with serving("cut", "no ranges", content=b"") as server:
        download(server.url, tmp_path / "empty", wait=0.001)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def magic_facts(url, sha="0" * 64):
    return {"magic": known_facts()["magic"] | {"raw": url, "sha256_csv": sha}}


MAGIC = zipped(magic04_dot_data="".join(f"{i},16,2,0,0,27,22,-8,40,81,g\n" for i in range(20)))


def test_a_fetched_table_that_differs_is_refused_unless_it_is_wanted(tmp_path):
    folder = tmp_path / "new"
    with serving("whole", content=MAGIC) as server:
        facts = magic_facts(server.url)
        with pytest.raises(
            DownloadError, match=r"'magic' .*20 rows, recorded 19,020.*magic --accept-changed"
        ):
            fetch_datasets(["magic"], folder, facts=facts)
        assert not folder.exists()
    with serving("whole", content=MAGIC) as server:
        facts = magic_facts(server.url)
        with pytest.warns(DataWarning, match=r"'magic' .*differs.* SHA-256 .*20 rows, recorded 19,020"):
            (path,) = fetch_datasets(["magic"], folder, facts=facts, accept_changed=True)
        dataset = load_dataset("magic", folder)
        assert len(dataset.frame) == 20
        said = []
        with pytest.warns(DataWarning, match=f"{path} differs"):
            fetch_datasets(["magic@10"], folder, facts=facts, report=said.append)
        assert said == [f"magic: {path} is there"]
        assert len(server.asked) == 1
        same = magic_facts(server.url, dataset.fingerprint)
        fetch_datasets(["magic"], folder, facts=same, force=True)
    assert load_dataset("magic", folder).fingerprint == dataset.fingerprint
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"1\n"))
    with pytest.raises(InputError, match="magic --force"):
        fetch_datasets(["magic"], folder, facts=facts)


def test_a_table_that_is_known_to_differ_is_kept_with_the_reason(tmp_path):
    assert [name for name, fact in known_facts().items() if "differs" in fact] == ["news"]
    (tmp_path / "magic.zip").write_bytes(MAGIC)
    facts = magic_facts("https://nowhere.invalid/magic.zip")
    facts["magic"]["differs"] = "two copies"
    with pytest.warns(DataWarning, match="That is known: two copies"):
        fetch_datasets(["magic"], tmp_path, raw_folder=tmp_path, facts=facts)
    assert len(load_dataset("magic", tmp_path).frame) == 20


def test_files_from_a_folder_must_be_the_recorded_ones_too(tmp_path):
    (tmp_path / "magic.zip").write_bytes(MAGIC)
    facts = magic_facts("https://nowhere.invalid/magic.zip")
    facts["magic"]["raw_sha256"] = "0" * 64
    with pytest.raises(DownloadError, match=r"magic\.zip must have the SHA-256 0000"):
        fetch_datasets(["magic"], tmp_path, raw_folder=tmp_path, facts=facts)
    assert not (tmp_path / "magic.csv.gz").exists()
    with pytest.warns(DataWarning, match="differs"):
        fetch_datasets(["magic"], tmp_path, raw_folder=tmp_path, facts=facts, accept_changed=True)


def test_raw_files_may_come_from_a_folder(tmp_path):
    facts = magic_facts("https://nowhere.invalid/magic+gamma+telescope.zip")
    with pytest.raises(InputError, match=r"magic\+gamma\+telescope\.zip is not"):
        fetch_datasets(["magic"], tmp_path, raw_folder=tmp_path, facts=facts)
    (tmp_path / "magic+gamma+telescope.zip").write_bytes(MAGIC)
    with pytest.warns(DataWarning, match="differs"):
        fetch_datasets(["magic"], tmp_path, raw_folder=tmp_path, facts=facts, accept_changed=True)
    assert len(load_dataset("magic", tmp_path).frame) == 20
    with pytest.raises(InputError, match="iris is not"):
        fetch_datasets(["iris"], tmp_path)


def test_a_fetch_that_is_cut_off_leaves_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    (tmp_path / "magic.csv.gz").write_bytes(b"old")
    with serving(404) as server, pytest.raises(DownloadError):
        fetch_datasets(["magic"], tmp_path, facts=magic_facts(server.url), force=True)
    assert (tmp_path / "magic.csv.gz").read_bytes() == b"old"

"""Table files: observed cells come back as they were, output is whole or absent, mistakes give a sentence."""

import csv
import gzip
import io
import os
import re
import sys
import warnings
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffputer.errors import DataWarning, InputError
from diffputer.tables.files import completed_text, read_table_file, write_long, write_table_file
from diffputer.tables.paths import check_writable, write_bytes
from diffputer.tables.textcolumns import describe_column

PEOPLE = """id,height,children,smoker,born,note
007,1.50,2,no,2001-02-03,"likes ""tea"", and
coffee"
008,NA,,yes,,N/A
009,1.8,0,,1999-12-31,x
"""
FILLS = {"height": 1.6789, "children": 1, "smoker": True, "born": pd.Timestamp(2000, 1, 1, 13)}
COMPLETED = """id,height,children,smoker,born,note
007,1.50,2,no,2001-02-03,"likes ""tea"", and
coffee"
008,1.68,1,yes,2000-01-02,N/A
009,1.8,0,yes,1999-12-31,x
"""  # the last column stays as it is: "N/A" keeps its text


def put(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complete(path, target, **options):
    table = read_table_file(path, **options)
    write_table_file(target, table, table.frame.fillna(FILLS))
    return table


def test_long_cells_come_back(tmp_path):
    path = put(tmp_path, "long.csv", f"note,n\n{'x' * 200_000},1\ny,\nz,3\n")
    table = read_table_file(path)
    write_table_file(path, table, table.frame.fillna({"n": 2}))
    assert path.read_text() == f"note,n\n{'x' * 200_000},1\ny,2\nz,3\n"


def test_text_is_typed_and_observed_cells_come_back(tmp_path):
    path = put(tmp_path, "people.csv", PEOPLE)
    table = complete(path, path)  # in its own place
    kinds = {name: str(dtype) for name, dtype in table.frame.dtypes.items()}
    assert kinds["height"] == "float64"
    assert kinds["children"] == "Int64"
    assert kinds["smoker"] == "boolean"
    assert kinds["born"].startswith("datetime64")
    assert kinds["id"] == kinds["note"] == "string"
    assert table.frame["id"].tolist() == ["007", "008", "009"]
    assert path.read_text() == COMPLETED
    assert os.listdir(tmp_path) == ["people.csv"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a.csv", lambda text: text.replace("\n", "\r\n").encode()),
        ("a.csv", lambda text: text.encode("utf-8-sig")),
        ("a.csv", lambda text: text.encode("utf-16")),
        ("a.txt", lambda text: text.encode()),
        ("A.CSV", lambda text: text.removesuffix("\n").encode()),
        ("a.csv.gz", lambda text: gzip.compress(text.encode(), mtime=0)),
        ("a.tsv", lambda text: text.replace(",", "\t").encode()),
        ("a.tsv.gz", lambda text: gzip.compress(text.replace(",", "\t").encode(), mtime=0)),
    ],
)
def test_the_file_keeps_its_style(tmp_path, name, change):
    path = put(tmp_path, name, change(PEOPLE))
    target = tmp_path / f"out-{name}"
    complete(path, target)
    assert target.read_bytes() == change(COMPLETED)


def test_latin_1(tmp_path):
    path = put(tmp_path, "a.csv", "Größe,x\n1,é\nNA,é\n3,è\n".encode("latin-1"))
    with pytest.raises(InputError, match="--encoding latin-1"):
        read_table_file(path)
    table = read_table_file(path, encoding="latin-1")
    write_table_file(path, table, table.frame.fillna(2))
    assert path.read_bytes() == "Größe,x\n1,é\n2,é\n3,è\n".encode("latin-1")


def test_semicolons_and_decimal_commas(tmp_path):
    path = put(tmp_path, "a.csv", "x;day\n1,25;31.12.1999\n;1.1.2000\n2,5;\n")
    table = read_table_file(path)
    assert table.frame["x"].tolist()[::2] == [1.25, 2.5]
    write_table_file(
        tmp_path / "b.csv", table, table.frame.fillna({"x": 0.5, "day": pd.Timestamp(2000, 2, 3)})
    )
    assert (tmp_path / "b.csv").read_text() == "x;day\n1,25;31.12.1999\n0,50;1.1.2000\n2,5;3.2.2000\n"
    assert read_table_file(path, decimal=".").columns[0].kind == "text"
    with pytest.raises(InputError, match=r"'\.' or ','"):
        read_table_file(path, decimal=":")


def test_markers_of_missing_cells(tmp_path):
    path = put(tmp_path, "a.csv", "x,y\n1,-\n ?,a\n2, null \n3,None\n-999,b\n")
    with pytest.warns(DataWarning, match=r"Column 'x' is read as text.*--missing '\?', .*--missing 'x=\?'"):
        table = read_table_file(path)
    assert table.frame["y"].isna().tolist() == [False, False, True, False, False]  # None may be an answer
    table = read_table_file(path, missing=["?", "-999", "-", "None"])
    assert table.frame["x"].dropna().tolist() == [1, 2, 3]
    assert table.frame["y"].dropna().tolist() == ["a", "b"]
    write_table_file(path, table, table.frame.assign(x=table.frame["x"].fillna(7)))
    assert path.read_text() == "x,y\n1,-\n7,a\n2, null \n3,None\n7,b\n"  # what stays missing keeps its text


def test_a_first_line_of_numbers_is_suspicious(tmp_path):
    with pytest.warns(DataWarning, match="must hold the column names"):
        read_table_file(put(tmp_path, "a.csv", "1.5,2\n3,4\n5,6\n"))


def test_a_column_without_any_value(tmp_path):
    path = put(tmp_path, "a.csv", "x,y\n1,\n2,NA\n")
    table = read_table_file(path)
    write_table_file(path, table, table.frame)
    assert path.read_text() == "x,y\n1,\n2,NA\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", None, "there is no"),
        (".", None, "must end in one of"),
        ("a.xlsx", "", r"\.csv, \.txt, \.tsv, \.parquet, \.pq, \.arrow, \.feather, \.ipc"),
        ("a.parquet.gz", "", "must end in one of"),
        ("a.xlsx", "", "save a spreadsheet as CSV first"),
        ("a", "", "--format"),
        ("a.csv", "", "is empty"),
        ("a.csv", "x,y\n", "only the header"),
        ("a.csv", "x,y\n1,2\n3\n", "line 3"),
        ("a.csv", "Turnover by month\nx,y\n1,2\n", "line 2.*remove lines above the column names"),
        ("a.csv", "x,x\n1,2\n", "both named 'x'"),
        ("a.csv.gz", "x\n1\n", "gzipped file must be whole"),
        ("a.csv.gz", gzip.compress(b"x\n1\n", mtime=0)[:-9], r"must be whole.*Fetch or make it again"),
        ("a.parquet", "x\n1\n", "must be a whole Parquet file"),
        ("a.arrow", "x\n1\n", "must be a whole Arrow file"),
        ("a.feather", b"ARROW1 not really", "must be a whole Arrow file"),
    ],
)
def test_bad_input_gives_a_sentence(tmp_path, name, content, message):
    path = tmp_path / name if content is None else put(tmp_path, name, content)
    with pytest.raises(InputError, match=message):
        read_table_file(path)


def test_a_folder_is_no_input(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_table_file(tmp_path / "a.csv")
    with pytest.raises(InputError, match="one of csv, tsv, parquet, arrow"):
        read_table_file(tmp_path / "a.csv", format="xlsx")


def arrow_table():
    fields = [
        pa.field("x", pa.float32(), metadata={"unit": "m"}),
        pa.field("n", pa.int16()),
        pa.field("level", pa.dictionary(pa.int32(), pa.string())),
        pa.field("day", pa.date32()),
        pa.field("ok", pa.bool_()),
    ]
    columns = {
        "x": [1.5, None],
        "n": [None, 7],
        "level": ["a", "b"],
        "day": [None, 10957],
        "ok": [True, None],
    }
    return pa.table(columns, schema=pa.schema(fields, metadata={"source": "here"}))


@pytest.mark.parametrize("name", ["a.parquet", "a.pq", "a.arrow", "a.feather", "a.ipc"])
def test_arrow_tables_keep_schema_and_metadata(tmp_path, name):
    source = arrow_table()
    path = tmp_path / name
    if name.endswith(("parquet", "pq")):
        pq.write_table(source, path)
    else:
        pyarrow.feather.write_feather(source, path)
    table = read_table_file(path)
    assert table.text is None
    assert table.frame.equals(source)
    filled = table.frame.set_column(0, "x", pa.chunked_array([[1.5, 2.5]], pa.float32()))
    write_table_file(path, table, filled.replace_schema_metadata(None))
    back = read_table_file(path).frame
    assert back["x"].to_pylist() == [1.5, 2.5]
    assert back.schema.metadata[b"source"] == b"here"
    assert back.schema.field("x").metadata[b"unit"] == b"m"
    assert back.schema.equals(source.schema)


def test_arrow_streams_are_read(tmp_path):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow_table().schema) as writer:
        writer.write_table(arrow_table())
    assert read_table_file(put(tmp_path, "a.arrow", sink.getvalue())).frame.equals(arrow_table())


def test_parquet_to_text(tmp_path):
    pq.write_table(arrow_table(), tmp_path / "a.parquet")
    table = read_table_file(tmp_path / "a.parquet")
    write_table_file(tmp_path / "a.csv", table, table.frame)
    assert (tmp_path / "a.csv").read_text() == "x,n,level,day,ok\n1.5,,a,,true\n,7,b,2000-01-01,\n"
    nan = pa.table({"x": pa.array([1.5, float("nan")])})
    assert completed_text(table, nan)["x"].tolist() == ["1.5", ""]
    with pytest.raises(InputError, match="column 'x' holds list"):
        completed_text(table, pa.table({"x": [[1], [2]]}))


def test_text_to_parquet_and_tsv(tmp_path):
    path = put(tmp_path, "a.csv", PEOPLE)
    complete(path, tmp_path / "a.parquet")
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.field("children").type == pa.int64()
    assert schema.field("smoker").type == pa.bool_()
    complete(path, tmp_path / "a.tsv")
    assert (tmp_path / "a.tsv").read_text().startswith("id\theight\tchildren")
    complete(tmp_path / "a.tsv", tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == COMPLETED


@pytest.mark.parametrize(
    "broken",
    [pa.table({"x": [1]}), pa.table({"x": [1], "y": [2]}), pa.table({"y": [1, 2], "x": [1, 2]})],
)
def test_empty_or_foreign_arrow_tables(tmp_path, broken):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2], "y": [3, None]}), path)
    table = read_table_file(path)
    with pytest.raises(InputError, match="must have the columns and rows of the file"):
        write_table_file(path, table, broken)
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), path)
    with pytest.raises(InputError, match="0 rows"):
        read_table_file(path)
    pyarrow.feather.write_feather(pa.Table.from_arrays([[1], [2]], names=["x", "x"]), tmp_path / "b.arrow")
    with pytest.raises(InputError, match="'x' more than once"):
        read_table_file(tmp_path / "b.arrow")


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_standard_streams(tmp_path, monkeypatch, capfdbinary):
    stdin(monkeypatch, PEOPLE.encode())
    complete("-", "-")
    assert capfdbinary.readouterr().out == COMPLETED.encode()

    stdin(monkeypatch, PEOPLE.replace(",", "\t").encode())
    complete("-", "-", format="tsv")
    assert capfdbinary.readouterr().out == COMPLETED.replace(",", "\t").encode()

    stdin(monkeypatch, gzip.compress(PEOPLE.encode()))
    table = read_table_file("-")
    write_table_file("-", table, table.frame, format="parquet")
    data = capfdbinary.readouterr().out
    assert pq.read_table(io.BytesIO(data)).num_rows == 3

    stdin(monkeypatch, data)
    table = read_table_file("-", format="parquet")
    write_table_file("-", table, table.frame)
    assert capfdbinary.readouterr().out.startswith(b"id,height,children")

    stdin(monkeypatch, b"")
    with pytest.raises(InputError, match="standard input is empty"):
        read_table_file("-")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    path = put(tmp_path, "a.csv", PEOPLE)

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(InputError if isinstance(error, OSError) else error):
        complete(path, path)
    with pytest.raises(InputError if isinstance(error, OSError) else error):
        complete(path, tmp_path / "new.parquet")
    assert path.read_text() == PEOPLE
    assert os.listdir(tmp_path) == ["a.csv"]


def test_permissions_links_and_devices(tmp_path):
    path = put(tmp_path, "a.csv", "old")
    path.chmod(0o640)
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    write_bytes(link, b"new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    write_bytes("/dev/null", b"gone")
    assert not os.path.isfile("/dev/null")


def test_check_writable(tmp_path):
    check_writable("-")
    check_writable(tmp_path / "a.csv")
    check_writable(put(tmp_path, "b.csv", "x"))
    check_writable("/dev/null", format="csv")
    assert os.listdir(tmp_path) == ["b.csv"]
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path / "folder.csv")
    with pytest.raises(InputError, match="does not: create it first"):
        check_writable(tmp_path / "none" / "a.csv")
    with pytest.raises(InputError, match="must end in one of"):
        check_writable(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match="must be writable"):
        check_writable("/proc/a.csv")


@pytest.mark.parametrize("name", ["long.csv", "long.parquet"])
@pytest.mark.parametrize("source", ["a.csv", "a.parquet"])
def test_long_format(tmp_path, source, name):
    path = tmp_path / source
    if source == "a.csv":
        path.write_text('x,"b"\n1.50,"u"\nNA,"v"\n')
        table = read_table_file(path)
        draws = [table.frame.fillna({"x": fill}) for fill in (2.0, 3.0)]
    else:
        pd.DataFrame({"x": [1.5, None], "b": ["u", "v"]}).to_parquet(path)
        table = read_table_file(path)
        draws = [table.frame.set_column(0, "x", pa.array([1.5, fill])) for fill in (2.0, 3.0)]
    write_long(tmp_path / name, table, draws)
    long = read_table_file(tmp_path / name)
    frame = long.frame if name == "long.csv" else long.frame.to_pandas()
    assert list(frame.columns) == [".imp", ".id", "x", "b"]
    assert frame[".imp"].tolist() == [1, 1, 2, 2]
    assert frame[".id"].tolist() == [1, 2, 1, 2]
    assert frame["x"].tolist() == [1.5, 2.0, 1.5, 3.0]
    if source == "a.csv" and name == "long.csv":
        assert (tmp_path / name).read_text().splitlines()[1:3] == ['1,1,1.50,"u"', '1,2,2.00,"v"']


def test_long_format_of_dictionaries_that_differ(tmp_path):
    pyarrow.feather.write_feather(
        pa.table({"x": pa.array(["a", None]).dictionary_encode()}), tmp_path / "a.arrow"
    )
    table = read_table_file(tmp_path / "a.arrow")
    draws = [pa.table({"x": pa.array(cells).dictionary_encode()}) for cells in (["a", "a"], ["a", "b"])]
    write_long(tmp_path / "long.arrow", table, draws)
    assert read_table_file(tmp_path / "long.arrow").frame["x"].to_pylist() == ["a", "a", "a", "b"]


def test_long_format_needs_its_names(tmp_path):
    table = read_table_file(put(tmp_path, "a.csv", ".id,x\n1,2\n"))
    with pytest.raises(InputError, match=r"column '\.id'"):
        write_long(tmp_path / "b.csv", table, [table.frame])


characters = st.one_of(st.sampled_from(list(',;\t"\n\r .-?0123456789NA')), st.characters(codec="utf-8"))
texts = st.text(characters.filter(lambda c: c not in "\0\ufeff"), max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=5),
    st.sampled_from(["a.csv", "a.tsv", "a.csv.gz"]),
)
@pytest.mark.filterwarnings("ignore::diffputer.errors.DataWarning")
def test_any_text_comes_back(tmp_path, rows, name):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"], dtype=object)
    delimiter = "\t" if ".tsv" in name else ","
    data = frame.to_csv(index=False, sep=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).encode()
    path = put(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    table = read_table_file(path)
    assert table.text.to_numpy().tolist() == frame.to_numpy().tolist()
    write_table_file(path, table, table.frame)
    assert read_table_file(path).text.equals(table.text)


@pytest.mark.parametrize(("found", "mark"), [("parquet", b"PAR1"), ("arrow", b"ARROW1")])
def test_binary_tables_that_come_as_text_are_recognised(tmp_path: Path, found: str, mark: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(mark + bytes(range(256)))
    with pytest.raises(InputError, match=f"--format {found}"):
        read_table_file(path)


def test_decimal_commas_between_quotes(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('a,b\n"0,5",1\n"1,125",2\n')
    table = read_table_file(path)
    assert [column.kind for column in table.columns] == ["number", "integer"]
    assert table.frame["a"].tolist() == [0.5, 1.125]


def test_commas_that_may_part_thousands_are_asked_about(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('a,b\n"1,250",1\n"17,125",2\n')
    with pytest.warns(DataWarning, match="Column 'a' is read as text.*--decimal ,"):
        assert read_table_file(path).columns[0].kind == "text"
    assert read_table_file(path, decimal=",").frame["a"].tolist() == [1.25, 17.125]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        # Another column has the other mark for decimals.
        ("share;sales;weight\n0,21;209;1.306\n0,5;1.306;0.250\n;1.702;\n", ["number", "text", "number"]),
        ("share;sales\n0.21;1,306\n0.5;1,702\n", ["number", "text"]),
        ("share\tsales\n0,21\t1.306\n0,5\t1.702\n", ["number", "text"]),
        # Numbers without marks are all below a thousand.
        ("key;sales\n1;209\n2;1.306\n3;1.702\n4;12.345\n", ["integer", "text"]),
        ("key,sales\n1,209\n2,1.306\n3,1.702\n4,12.345\n", ["integer", "text"]),
    ],
)
def test_marks_that_may_part_thousands_are_asked_about(tmp_path, text, kinds):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.warns(DataWarning, match="Column 'sales' is read as text.*Say --thousands"):
        table = read_table_file(path)
    assert [column.kind for column in table.columns] == kinds


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["15,214.26", "999.10"], ","),
        (["0,50", "1.234,50"], "."),
        (["1 234", "17"], " "),
        (["1'234.5", "17.25"], "'"),
    ],
)
def test_numbers_with_two_marks_are_asked_about(tmp_path, cells, mark):
    path = put(tmp_path, "a.csv", "\t".join("ab") + "\n" + "".join(f"{cell}\t1\n" for cell in cells))
    with pytest.warns(DataWarning, match=f"Column 'a' is read as text.*--thousands {re.escape(repr(mark))}"):
        assert read_table_file(path).columns[0].kind == "text"
    assert read_table_file(path, thousands=mark).columns[0].kind in ("integer", "number")


@pytest.mark.parametrize("cells", [["1,2,3", "4,5"], ["192.168.1.1"], ["12 34", "56 78"], ["007"]])
def test_what_no_mark_makes_numbers_is_not_asked_about(tmp_path, cells):
    path = put(tmp_path, "a.csv", "a\tb\n" + "".join(f"{cell}\t1\n" for cell in cells))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table_file(path).columns[0].kind == "text"


@pytest.mark.parametrize(
    ("text", "options", "values", "filled"),
    [
        ("1.234,50;-12.345.678,25;999,00", {"thousands": "."}, [1234.5, -12345678.25, 999.0], "7.654,32"),
        ("1.234,5;-0,5", {"thousands": "."}, [1234.5, -0.5], "7.654,3"),
        ("1,234;22,345;999", {"thousands": ","}, [1234, 22345, 999], "7,654"),
        ("1 234,5;12 345,5;9,5", {"thousands": " ", "decimal": ","}, [1234.5, 12345.5, 9.5], "7 654,3"),
    ],
)
def test_thousands_are_read_and_written_as_they_are_parted(tmp_path, text, options, values, filled):
    path = tmp_path / "table.csv"
    lines = ["a;b", *(f"{cell};x" for cell in text.split(";")), ";y"]
    path.write_text("\n".join(lines))
    table = read_table_file(path, **options)
    assert table.frame["a"].dropna().tolist() == values
    whole = table.columns[0].kind == "integer"
    write_table_file(path, table, table.frame.fillna({"a": 7654 if whole else 7654.321}))
    assert path.read_text().splitlines() == [*lines[:-1], f"{filled};y"]


def test_a_small_negative_number_keeps_its_sign_where_thousands_are_parted():
    column = describe_column(["1.234,5", "2,5"], (",",), ".")
    assert [column.spell(value) for value in (-0.5, -1234.5, 0.5)] == ["-0,5", "-1.234,5", "0,5"]


@pytest.mark.parametrize("options", [{"thousands": "x"}, {"thousands": ",", "decimal": ","}])
def test_marks_of_thousands_that_cannot_be(tmp_path, options):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="Thousands must be parted by one of"):
        read_table_file(path, **options)


@pytest.mark.parametrize(
    "cells",
    [
        ["1.306", "209"],
        ["1.306", "1.75", "209"],
        ["1.306", "2.125", "0.125", "3"],
        ["1.306", "2.125", "4.125", "2500"],
        ["1.306", "2.125", "4.125"],
    ],
)
def test_dots_are_decimal_marks_otherwise(tmp_path, cells):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a;b", *(f"{cell};1" for cell in cells)]))
    assert read_table_file(path).frame["a"].tolist() == [float(cell) for cell in cells]


def test_dates_whose_day_and_month_could_be_exchanged_are_told(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("day,b\n03/04/2020,1\n05/06/2020,2\n")
    with pytest.warns(DataWarning, match="Column 'day' is read as text: day and month.*2020-12-31"):
        assert read_table_file(path).columns[0].kind == "text"


def with_index(path, index):
    frame = pd.DataFrame({"x": [1.5, None, 2.5], "c": ["a", "b", None]}, index=index)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(frame), path)
    return frame


INDICES = {
    "text": pd.Index(["p", "q", "r"]),
    "named": pd.Index([10, 20, 30], name="id"),
    "two levels": pd.MultiIndex.from_tuples([("p", 1), ("p", 2), ("q", 1)], names=["who", None]),
    "range": pd.RangeIndex(3),
}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_the_index_of_pandas_is_carried_through(tmp_path, index, suffix):
    path = tmp_path / f"a{suffix}"
    frame = with_index(path, index)
    table = read_table_file(path)
    assert table.frame.column_names == ["x", "c"]
    completed = table.frame.set_column(0, "x", pa.array([1.5, 2.0, 2.5]))
    write_table_file(path, table, completed)
    back = pd.read_parquet(path) if suffix == ".parquet" else pa.feather.read_feather(path)
    pd.testing.assert_frame_equal(back, frame.fillna({"x": 2.0}))
    write_table_file(tmp_path / "a.csv", table, completed)
    n_levels = 0 if isinstance(index, pd.RangeIndex) else index.nlevels
    assert (tmp_path / "a.csv").read_text().splitlines()[0].count(",") == 1 + n_levels
    write_long(tmp_path / "long.parquet", table, [completed, completed])
    assert read_table_file(tmp_path / "long.parquet").frame.shape == (6, 4 + n_levels)


@pytest.mark.parametrize("facts", [b"", b"[]", b"{}", b'{"index_columns": ["gone", 3, null, {}]}'])
def test_odd_words_on_an_index_are_ignored(tmp_path, facts):
    pq.write_table(pa.table({"x": [1.0]}).replace_schema_metadata({b"pandas": facts}), tmp_path / "a.parquet")
    assert read_table_file(tmp_path / "a.parquet").frame.column_names == ["x"]


def test_a_table_that_is_all_index_is_a_table(tmp_path):
    pd.DataFrame(index=pd.Index([1.0, 2.0], name="x")).to_parquet(tmp_path / "a.parquet")
    assert read_table_file(tmp_path / "a.parquet").frame.column_names == ["x"]

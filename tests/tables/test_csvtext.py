"""Delimited text: the style is found, odd files give a sentence, and what is written is read back."""

import csv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffputer.errors import InputError
from diffputer.tables.csvtext import CsvStyle, parse_csv, render_csv


def parse(text, **options):
    return parse_csv(text.encode(), **options)


@pytest.mark.parametrize(
    ("text", "delimiter", "width"),
    [
        ("a,b\n1,2\n", ",", 2),
        ("a;b\n1,5;2,5\n", ";", 2),
        ("a\tb\n1,5\t2;5\n", "\t", 2),
        ("a|b|c\n1|2|3\n", "|", 3),
        ("a\n1\n2\n", ",", 1),
        ('"a;b",c\n"1;2",3\n', ",", 2),
        ('"a";"b,c"\n"1";"2,3"\n', ";", 2),
        ("a;b,c;d\n1;2;3\n4;5,6;7\n", ";", 3),
    ],
)
def test_delimiters(text, delimiter, width):
    header, columns, style = parse(text)
    assert (style.delimiter, len(header), len(columns)) == (delimiter, width, width)


def test_a_bare_delimiter_in_the_only_column_is_asked_about():
    text = "comment\nhello, world\nso be it\n"
    with pytest.raises(InputError, match=r"line 2 of the input has 2.*--delimiter"):
        parse(text)
    assert parse(text, delimiter="|")[1] == [["hello, world", "so be it"]]


def test_quoted_newlines_quotes_and_blank_lines():
    header, columns, _ = parse('\n"a ""x""",b\n"1\n2",","\n\n3,\n\n')
    assert header == ['a "x"', "b"]
    assert columns == [["1\n2", "3"], [",", ""]]


@pytest.mark.parametrize("limit", [None, 3, 10**9])
def test_cells_may_be_long_and_the_limit_of_others_stays(limit):
    first, second = "x" * 200_000, "y,\n" * 200_000
    text = f'a,b\n1,{first}\n2,"{second}"\n'
    before = csv.field_size_limit() if limit is None else csv.field_size_limit(limit)
    kept = csv.field_size_limit()
    try:
        for _, columns, style in ThreadPoolExecutor(4).map(parse, [text] * 8):
            assert columns == [["1", "2"], [first, second]]
            assert render_csv(["a", "b"], columns, style) == text.encode()
        assert parse("long,b\n1,2\n")[0] == ["long", "b"]
        with pytest.raises(InputError, match="Quotes must come in pairs"):
            parse(text + '"')
        assert csv.field_size_limit() == kept
    finally:
        csv.field_size_limit(before)


def test_in_a_single_column_an_empty_line_is_a_missing_cell():
    _, columns, style = parse("a\n1\n\n3\n")
    assert columns == [["1", "", "3"]]
    assert render_csv(["a"], columns, style) == b'a\n1\n""\n3\n'


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n2,y\n",
        "a,b\r\n1,x\r\n2,y\r\n",
        "a,b\r1,x\r2,y\r",
        "a,b\n1,x\n2,y",
        '"a","b"\n"1","x"\n"2","y"\n',
        '"a","b"\n1,"x"\n2,"y"\n',
        '\ufeff"a";b\n1;" x"\n2;"y;"\n'.replace('"a"', "a"),
        "a,b\n,\n1, 2 \n",
    ],
)
def test_the_style_is_kept(text):
    data = text.encode()
    header, columns, style = parse_csv(data)
    assert render_csv(header, columns, style) == data


def test_the_style_is_found_in_a_sample_that_ends_within_a_cell():
    rows = "".join(f'"{"long text " * 500}",{i}\n' for i in range(50))
    data = ('"a","b"\n' + rows).encode()
    header, columns, style = parse_csv(data)
    assert style.quoted_columns == (True, False)
    assert render_csv(header, columns, style) == data


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(encoding):
    data = "ä,b\n1,ß\n".encode(encoding)
    header, columns, style = parse_csv(data)
    assert (header, columns) == (["ä", "b"], [["1"], ["ß"]])
    assert render_csv(header, columns, style) == data
    assert parse_csv(data, encoding=encoding)[0] == ["ä", "b"]


def test_encodings():
    data = "ä,b\n1,ß\n".encode("latin-1")
    with pytest.raises(InputError, match=r"line 1 of the input is not in utf-8.*--encoding latin-1"):
        parse_csv(data)
    with pytest.raises(InputError, match=r"the encoding that is told, but line 1 .* is not in ascii"):
        parse_csv(data, encoding="ascii")
    header, columns, style = parse_csv(data, encoding="latin-1")
    assert columns[1] == ["ß"]
    assert render_csv(header, columns, style) == data
    with pytest.raises(InputError, match="'no-such' is not"):
        parse_csv(data, encoding="no-such")
    with pytest.raises(InputError, match="'€' has none"):
        render_csv(header, [["1"], ["€"]], style)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\r\n", "is empty"),
        ("a,b\n", "only the header"),
        ("a,b\n\n\n", "only the header"),
        ('a,b\n1,2\n"x\ny",2\n1,2,3\n', "line 5 of the input has 3 and the header has 2"),
        ("a,b\n1,2\n1\n", "line 3 of the input has 1"),
        ("a,b,a\n1,2,3\n", "columns 1 and 3 of the input are both named 'a'"),
        ('a,b\n1,2\n"x,2\n3,4\n', "Quotes must come in pairs.*after line 2"),
        ('a,b\n1,"x"y\n', "Quotes must come in pairs"),
        ("a,b\n1,\0\n", "NUL"),
    ],
)
def test_bad_files_give_a_sentence(text, message):
    with pytest.raises(InputError, match=message):
        parse(text)


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_bad_delimiters(delimiter):
    with pytest.raises(InputError, match="one character"):
        parse("a,b\n1,2\n", delimiter=delimiter)


characters = st.one_of(
    st.sampled_from(list(",;\t|\"\n\r .'a0")),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"),
)
cells = st.text(characters, max_size=6)


@st.composite
def tables(draw):
    header = draw(st.lists(st.text(characters, min_size=1, max_size=4), min_size=1, max_size=4, unique=True))
    n = draw(st.integers(1, 4))
    return header, [draw(st.lists(cells, min_size=n, max_size=n)) for _ in header]


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_is_written_is_read_back(table, delimiter, line_end, quoted):
    header, columns = table
    style = CsvStyle(
        delimiter, line_end=line_end, quoted_header=quoted, quoted_columns=(quoted,) * len(header)
    )
    data = render_csv(header, columns, style)
    assert parse_csv(data, delimiter=delimiter)[:2] == (header, columns)


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_first_line_that_tells_the_delimiter_is_heeded_and_written_back(first, end):
    data = f"{first}{end}a,x;b{end}1,5;2{end}3;4{end}".encode("utf-16")
    header, columns, style = parse_csv(data)
    assert (header, columns) == (["a,x", "b"], [["1,5", "3"], ["2", "4"]])
    assert style.delimiter == ";"
    assert render_csv(header, columns, style) == data
    other = render_csv(header, columns, replace(style, delimiter="|")).decode("utf-16")
    assert other.splitlines()[:2] == [first.replace(";", "|"), "a,x|b"]


def test_a_first_line_yields_to_a_stated_delimiter():
    header, _, style = parse_csv(b"sep=;\na,b;c\n1,2\n", delimiter=",")
    assert header == ["a", "b;c"]
    assert style.announcement == ("sep=", "\n")


def test_lines_are_counted_from_the_first_line_of_the_file():
    with pytest.raises(InputError, match="line 4 of"):
        parse_csv(b"sep=;\na;b\n1;2\n3\n")
    with pytest.raises(InputError, match="is empty"):
        parse_csv(b"sep=;\r\n")


def test_empty_lines_above_the_names_do_not_quote_them():
    header, columns, style = parse_csv(b"\n\na,b\n1,2\n")
    assert render_csv(header, columns, style) == b"a,b\n1,2\n"

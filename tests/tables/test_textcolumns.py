"""What a column of text stands for, and how a filled cell is spelt."""

import pandas as pd
import pytest

from diffputer.tables.textcolumns import describe_column, stray_marker


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["0", "-1", "+20"], "integer"),
        (["9223372036854775807"], "integer"),
        (["9223372036854775808"], "number"),  # too large for int64
        (["9" * 5000], "number"),
        (["1", "2.5"], "number"),
        (["1e-3", ".5", "5."], "number"),
        (["1", "inf"], "number"),  # for the imputer to complain about by name
        (["007", "123"], "text"),
        (["+4952319", "+15550100"], "text"),  # telephone numbers
        (["+4952319", "15550100"], "integer"),
        (["+" + "9" * 30], "text"),
        (["+1.5", "+2"], "number"),
        (["00.5"], "text"),
        (["1_000", "2"], "text"),
        (["1,5"], "text"),
        (["٣", "٤"], "text"),
        (["TRUE", "false"], "boolean"),
        (["yes", "No"], "boolean"),
        (["yes", "true"], "text"),
        (["0", "1"], "integer"),
        (["2020-02-29", "1999-12-31"], "date"),
        (["2020-02-30"], "text"),
        (["2020-2-9"], "text"),
        (["2020-02-29", "2020-02-29 12:00:00"], "text"),  # one format for all
        (["2020-02-29T12:00:00Z"], "date"),
        (["2020-02-29T12:00:00+01:00", "2020-02-29T12:00:00Z"], "text"),
        (["31.12.1999", "1.2.2000"], "date"),
        (["12/31/1999"], "date"),
        (["31/12/1999"], "date"),
        (["01/02/1999"], "text"),  # January or February
        (["12/31/1999", "31/12/1999"], "text"),
        ([], "text"),
    ],
)
def test_kinds(cells, kind):
    assert describe_column(cells).kind == kind


def test_decimal_comma():
    column = describe_column(["1,50", "-2"], (".", ","))
    assert column.kind == "number"
    assert list(column.values(["1,50", "-2"], [False, False])) == [1.5, -2.0]
    assert column.spell(3.14159) == "3,14"
    assert describe_column(["1,5", "2.5"], (".", ",")).kind == "text"
    assert describe_column(["1.5"], (",",)).kind == "text"


@pytest.mark.parametrize(
    ("cells", "value", "text"),
    [
        (["1", "20"], 7, "7"),
        (["1", "20"], 7.5, "7.5"),  # asked not to round
        (["1.5", "2.25"], 3.0, "3.00"),
        (["1.5"], -0.01, "0.0"),
        (["1e3"], 12345.678, "12346"),
        (["0.5", "1e-05"], 0.123456789, "0.12346"),
        (["1.6e-19"], 2.5e-19, "2.5e-19"),
        (["0." + "1" * 30], 1 / 3, "0.333333333333333"),
        (["True", "False"], False, "False"),
        (["TRUE"], False, "FALSE"),
        (["No"], True, "Yes"),
        (["yes", "yes", "Yes", "NO"], True, "yes"),
        (["2020-01-31"], "2021-03-04 13:00", "2021-03-05"),  # rounded, not cut
        (["2020-01-31 10:11"], "2021-03-04 13:00:40", "2021-03-04 13:01"),
        (["2020-01-31T10:11:12Z"], "2021-03-04 13:00:40.9", "2021-03-04T13:00:41Z"),
        (["2020-01-31T10:11:12.123+01:00"], "2021-03-04 13:00:40.9", "2021-03-04T13:00:40.900+01:00"),
        (["31.12.1999"], "2021-03-04", "04.03.2021"),
        (["31.12.1999", "1.2.2000"], "2021-03-04", "4.3.2021"),
        (["12/31/1999 9:05"], "2021-03-04 08:07", "3/4/2021 8:07"),
        (["a", "b"], "b", "b"),
    ],
)
def test_spelling(cells, value, text):
    column = describe_column(cells)
    assert column.spell(pd.Timestamp(value) if column.kind == "date" else value) == text


def test_values_are_typed_with_holes():
    def values(*cells):
        column = describe_column([cell for cell in cells if cell != "NA"])
        array = column.values(cells, [cell == "NA" for cell in cells])
        assert list(pd.isna(array)) == [cell == "NA" for cell in cells]
        return array

    assert str(values(" 1", "NA").dtype) == "Int64"
    assert str(values("1.5 ", "NA").dtype) == "float64"
    assert list(values("No", "NA", "yes").dropna()) == [False, True]
    assert values("12/31/1999", "NA")[0] == pd.Timestamp(1999, 12, 31)
    assert values("2020-02-29T12:00:00Z", "NA")[0] == pd.Timestamp(2020, 2, 29, 12)
    assert values(" x", "NA")[0] == " x"


def test_stray_markers():
    assert stray_marker(["1", "2,5", "-"], (".", ",")) == "-"
    assert stray_marker(["1", "2", "3"]) is None
    assert stray_marker(["1", "2", "3", "?", "!"]) is None
    assert stray_marker(["a", "a", "1"]) is None
    assert stray_marker(["1", "2", "007"]) is None

"""Words such as NA and None in text files: missing cells or answers, decided column by column and said."""

from __future__ import annotations

import pytest

from diffputer import DiffPuter
from diffputer.errors import DataWarning, InputError, SettingError
from diffputer.tables.files import read_table_file, write_table_file

from ..cli_tools import run

COUNTRIES = "code,region,gdp\nDE,Europe,4.1\nNA,Africa,\nUS,America,25.0\nFR,Europe,2.8\nZA,Africa,0.4\n"
SURVEY = "sex,exercise,pulse\nF,None,92\nM,Some,104\nF,Freq,\n,None,64\nM,Some,83\nF,Freq,80\n"
AIR = "ozone,wind,month\n41,7.4,May\nNA,8.0,May\n12,NA,NA\n18,11.5,June\n"
R_QUOTED = '"code","name","n"\n"DE","Germany",1\n"NA","Namibia",NA\n"FR",NA,3\n"US","NA",4\n'


def read(folder, text, **options):
    path = folder / "a.csv"
    path.write_text(text)
    return read_table_file(path, **options)


def missing(table):
    return {name: table.frame[name].isna().tolist() for name in table.frame if table.frame[name].isna().any()}


def decisions(table):
    return {(one.column, one.word, one.count): one.taken_for_missing for one in table.marker_words}


def test_namibia_is_an_answer_and_said_to_be_one(tmp_path):
    with pytest.warns(DataWarning, match=r"Kept as an answer: 'NA' in 'code' \(1;.*--missing NA"):
        table = read(tmp_path, COUNTRIES)
    assert missing(table) == {"gdp": [False, True, False, False, False]}
    assert decisions(table) == {("code", "NA", 1): False}


def test_none_is_a_level_of_a_survey(tmp_path):
    table = read(tmp_path, SURVEY)
    assert "exercise" not in missing(table)
    assert decisions(table) == {("exercise", "None", 2): False}


def test_a_marker_among_numbers_is_one_in_every_column(tmp_path):
    with pytest.warns(DataWarning, match=r"Taken for missing: 'NA' in 'ozone' \(1;.*'wind'.*--keep NA"):
        table = read(tmp_path, AIR)
    assert {name: sum(cells) for name, cells in missing(table).items()} == {"ozone": 1, "wind": 1, "month": 1}
    assert decisions(table) == {(name, "NA", 1): True for name in ("ozone", "wind", "month")}


def test_two_letter_codes_have_the_benefit_of_the_doubt_in_such_a_file(tmp_path):
    table = read(tmp_path, COUNTRIES.replace("Africa,\n", "Africa,NA\n"))
    assert decisions(table) == {("code", "NA", 1): False, ("gdp", "NA", 1): True}


def test_quotes_tell_an_answer_from_a_missing_cell_and_are_kept(tmp_path):
    table = read(tmp_path, R_QUOTED)
    assert missing(table) == {"name": [False, False, True, False], "n": [False, True, False, False]}
    write_table_file(tmp_path / "b.csv", table, table.frame)
    assert (tmp_path / "b.csv").read_text() == R_QUOTED
    write_table_file(tmp_path / "b.csv", table, table.frame.fillna({"name": "NA", "n": 2}))
    assert (tmp_path / "b.csv").read_text() == R_QUOTED.replace(",NA,3", ',"NA",3').replace(",NA\n", ",2\n")


def test_quotes_of_one_word_tell_too(tmp_path):
    table = read(tmp_path, 'code,n\nDE,1\n"NA",2\nFR,\nUS,4\nNA,5\n')
    assert table.frame["code"].isna().tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("column", "n_missing"),
    {
        "other words, empty cells mark what is missing": (["red", "NA", "blue", "", "red"], 1),
        "other words, nothing else marks what is missing": (["red", "NA", "blue", "red"], 1),
        "spellings of programs": (["red", "nan", "blue", "NULL", ""], 3),
        "postal codes": (["01067", "NA", "20095", "50667", ""], 2),
        "yes and no": (["yes", "N/A", "no", ""], 2),
        "dates": (["2020-01-31", "None", "2021-05-06", ""], 2),
        "nothing else": (["None", "None"], 2),
    }.values(),
)
def test_what_a_word_stands_among_decides(tmp_path, column, n_missing):
    table = read(tmp_path, "a,b\n" + "".join(f"{cell},1\n" for cell in column))
    assert table.frame["a"].isna().sum() == n_missing


def test_what_is_stated_comes_first_and_is_not_warned_of(tmp_path, recwarn):
    assert "code" in missing(read(tmp_path, COUNTRIES, missing=["NA"]))
    both = read(tmp_path, AIR.replace("ozone", "x=y"), missing=["NA"], keep=["month=NA"])
    assert set(missing(both)) == {"x=y", "wind"}
    assert set(missing(read(tmp_path, SURVEY, only_missing=["Some"]))) == {"sex", "exercise", "pulse"}
    assert missing(read(tmp_path, "a,b\nx,1\nnan,2\ny,3\n", only_missing=[""])) == {}
    assert not [one for one in recwarn if "Words that often" in str(one.message)]
    with pytest.raises(InputError, match="country"):
        read(tmp_path, COUNTRIES, keep=["country=NA"])
    with pytest.raises(SettingError, match="both"):
        read(tmp_path, COUNTRIES, keep=["NA"], missing=["NA"])


def test_many_columns_are_named_in_short(tmp_path):
    names = [f"x{i}" for i in range(30)]
    text = ",".join(names) + "\n" + ",".join(["1"] * 30) + "\n" + ",".join(["NA"] * 30) + "\n"
    with pytest.warns(DataWarning, match=r"'x5' \(1; among numbers\) and 24 more columns \(24\)") as caught:
        read(tmp_path, text)
    assert len(caught) == 1


def test_the_command_line_keeps_answers_and_says_so(tmp_path):
    path, model = tmp_path / "c.csv", tmp_path / "c.diffputer"
    rows = [f"{('DE', 'NA', 'FR', 'US')[i % 4]},{('None', 'Some')[i % 2]},{i % 7 or ''}" for i in range(40)]
    path.write_text("code,exercise,x\n" + "\n".join(rows) + "\n")
    result = run("impute", path, "--save-model", model)
    assert "Kept as an answer: 'NA' in 'code' (10; among two-letter codes)" in result.stderr
    assert "'None' in 'exercise' (20;" in result.stderr
    after = (tmp_path / "c.imputed.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in after[1:]] == [line.rpartition(",")[0] for line in rows]
    # In a short file nothing tells what a word is but the model.
    (tmp_path / "new.csv").write_text("code,exercise,x\nNA,Some,3\n,Some,NA\n")
    run("impute", tmp_path / "new.csv", "--model", model)
    code, exercise, x = (tmp_path / "new.imputed.csv").read_text().splitlines()[1].split(",")
    assert (code, exercise, x) == ("NA", "Some", "3")
    result = run("impute", path, "--only-missing", "NA", "--keep", "exercise=None")
    assert "Words that often" not in result.stderr
    assert "NA," not in (tmp_path / "c.imputed.csv").read_text()


def test_comparing_reads_files_the_same_way(tmp_path):
    path = tmp_path / "c.csv"
    rows = [f"{('DE', 'NA', 'FR', 'US')[i % 4]},{i % 5 or ''},{i * i % 11 or ''}" for i in range(60)]
    path.write_text("code,x,y\n" + "\n".join(rows) + "\n")
    page = tmp_path / "c.html"
    output = ["--report", page, "-o", tmp_path / "d.csv"]
    result = run("compare", path, "--methods", "mean,median", "--repeats", 1, *output)
    assert "Kept as an answer: 'NA' in 'code' (15;" in result.stderr
    assert result.stderr.count("'NA'") == 1  # imputing with the best method does not warn again
    assert "code=NA" in page.read_text()
    result = run("compare", path, "--methods", "mean,median", "--repeats", 1, "--missing", "code=NA")
    assert "Words that often" not in result.stderr


def test_only_missing_in_a_column_leaves_the_others_alone(tmp_path, recwarn):
    text = "age,code,n\n31,x,1\n-9,-9,NA\nNA,y,3\n44,,4\n52,-9,5\n"
    table = read(tmp_path, text, only_missing=["age=-9"])
    assert missing(table) == {
        "age": [False, True, False, False, False],
        "code": [False, False, False, True, False],
        "n": [False, True, False, False, False],
    }
    assert missing(read(tmp_path, text, only_missing=["-9"], keep=["code=-9"])) == {
        "age": [False, True, False, False, False],
        "code": [False, False, False, True, False],
    }
    only_empty = read(tmp_path, text, only_missing=["n="])
    assert set(missing(only_empty)) == {"age", "code"}
    assert only_empty.frame["n"].tolist()[1] == "NA"


@pytest.mark.parametrize("option", ["missing", "keep", "only_missing"])
def test_a_mistyped_column_is_refused(tmp_path, option):
    with pytest.raises(InputError, match=rf"--{option.replace('_', '-')} .*'gpd=NA'.*mean 'gdp'.*'region'"):
        read(tmp_path, COUNTRIES, **{option: ["gpd=NA"]})


def test_words_may_hold_equals_signs(tmp_path, recwarn):
    text = "a,b\nx,1\nn=a,2\n=n,3\ny,4\nz,5\n"
    for word in ("n=a", "a=n=a"):
        assert missing(read(tmp_path, text, missing=[word])) == {"a": [False, True, False, False, False]}
    assert missing(read(tmp_path, text, missing=["=n"])) == {"a": [False, False, True, False, False]}
    assert missing(read(tmp_path, text, missing=["a=absent=n"])) == {}


@pytest.fixture(scope="module")
def model_of_words(tmp_path_factory):
    """A model of a file whose words for missing cells were stated."""
    folder = tmp_path_factory.mktemp("words")
    path, model = folder / "f.csv", folder / "f.m"
    rows = [
        f"{'ab-c'[i % 4]},{i % 7 if i % 9 else -999},{('x', 'y', 'N/A')[i % 3]},{i * i % 13 or ''}"
        for i in range(60)
    ]
    path.write_text("word,n,code3,y\n" + "\n".join(rows) + "\n")
    stated = ["--missing", "-", "--missing=-999", "--missing", "code3=N/A"]
    run("impute", path, *stated, "--save-model", model)
    return model


NEW = "word,n,code3,y\na,3,x,1\n-,-999,N/A,\nb,2,y,4\n"


def test_a_model_keeps_the_words_that_were_stated(tmp_path, model_of_words):
    path = tmp_path / "g.csv"
    path.write_text(NEW)
    result = run("impute", path, "--model", model_of_words)
    assert "Words that often" not in result.stderr
    after = (tmp_path / "g.imputed.csv").read_text().splitlines()[2].split(",")
    assert after[0] in ("a", "b", "c")
    assert after[1] in map(str, range(7))
    assert after[2] in ("x", "y")
    schema = DiffPuter.load(model_of_words).schema_
    assert missing(read_table_file(path, schema=schema)) == {
        name: [False, True, False] for name in ("word", "n", "code3", "y")
    }


def test_options_of_a_new_run_override_the_words_of_a_model(tmp_path, model_of_words, recwarn):
    path = tmp_path / "g.csv"
    path.write_text(NEW)
    schema = DiffPuter.load(model_of_words).schema_
    assert set(missing(read_table_file(path, schema=schema, keep=["-999"]))) == {"word", "code3", "y"}
    assert set(missing(read_table_file(path, schema=schema, only_missing=["word=b"]))) == {
        "word", "n", "code3", "y"
    }  # fmt: skip
    assert missing(read_table_file(path, schema=schema, only_missing=["-"])) == {
        "word": [False, True, False], "y": [False, True, False]
    }  # fmt: skip
    run("impute", path, "--model", model_of_words, "--keep", "-")
    assert (tmp_path / "g.imputed.csv").read_text().splitlines()[2].startswith("-,")

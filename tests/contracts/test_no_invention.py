"""Nothing is invented: text that is no category, empty columns and skipped ones stay missing."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from diffputer import DataWarning, DiffPuter, InputError
from diffputer.analysis.verdicts import weak_columns
from diffputer.comparing.applying import fill_with
from diffputer.trace import EMRound

from ..cli_tools import run

QUICK: dict[str, Any] = {"random_state": 0, "max_steps": 3, "held_out": 0}
COMMENTS = [
    "Nest never observed with full clutch.",
    "Not enough blood for isotopes.",
    "No blood sample obtained for sexing.",
    "Adult not sampled at this nest.",
]


def penguins(n: int = 200) -> pd.DataFrame:
    """Like the penguins: comments and addresses that repeat, cabins, long names of species, a diagnosis."""
    rng = np.random.default_rng(0)
    mass = rng.normal(4200, 800, n).round()
    species = np.where(
        mass > 4200, "Gentoo penguin (Pygoscelis papua)", "Adelie Penguin (Pygoscelis adeliae)"
    )
    frame = pd.DataFrame(
        {
            "mass": mass,
            "flipper": (mass / 20 + rng.normal(0, 3, n)).round(1),
            "species": pd.Series(species).where(rng.random(n) > 0.1),
            "comments": pd.Series(rng.choice(COMMENTS, n)).where(rng.random(n) < 0.24),
            "url": pd.Series(rng.choice([f"https://poll.org/{i}" for i in range(9)], n)).where(
                rng.random(n) < 0.9
            ),
            "cabin": pd.Series(rng.choice([f"C{i}" for i in range(200)], n)).where(rng.random(n) < 0.7),
            "diagnosis": pd.Series(rng.choice(["AD", "MCI"], n)).where(rng.random(n) < 0.15),
        }
    )
    frame.loc[::9, "mass"] = np.nan
    return frame


def test_text_that_is_no_category_stays_missing_and_is_named() -> None:
    frame = penguins()
    with pytest.warns(DataWarning, match="passed through.*'comments' .*'url' .*'cabin' "):
        imputer = DiffPuter(**QUICK).fit(frame)
    full = imputer.transform(frame)
    left = full.isna().sum()
    text = ["comments", "url", "cabin"]
    assert left[text].tolist() == frame[text].isna().sum().tolist()
    assert left.drop(text).sum() == 0  # names of species are long, but a category; so is a diagnosis


def test_fill_all_and_named_columns_are_imputed() -> None:
    frame = penguins()
    assert DiffPuter(**QUICK, fill_all=True).fit_transform(frame).notna().all().all()
    with pytest.warns(DataWarning, match="'cabin'"):
        full = DiffPuter(**QUICK, categorical_features=["comments", "url"]).fit_transform(frame)
    assert full[["comments", "url"]].notna().all().all()
    assert full["cabin"].isna().any()


def test_levels_of_a_survey_are_categories() -> None:
    levels = ["Neither agree nor disagree", "I do agree with this", "I do not agree with this"]
    frame = pd.DataFrame({"q": [*levels * 30, None, None], "x": np.arange(92.0)})
    assert DiffPuter(**QUICK).fit_transform(frame).notna().all().all()


@pytest.mark.parametrize("skip", [["mass"], [0]])
def test_a_skipped_column_keeps_its_missing_values_and_informs_others(skip: list[Any], tmp_path) -> None:
    frame = penguins()[["mass", "flipper"]]
    frame.loc[3::9, "flipper"] = np.nan
    imputer = DiffPuter(random_state=0, max_steps=60, skip=skip).fit(frame)
    full = imputer.transform(frame)
    pd.testing.assert_series_equal(full["mass"], frame["mass"])
    assert full["flipper"].notna().all()
    there = frame["flipper"].isna() & frame["mass"].notna()
    assert np.corrcoef(full["flipper"][there], frame["mass"][there])[0, 1] > 0.9
    assert imputer.sample(frame, 2)[1]["mass"].isna().sum() == frame["mass"].isna().sum()
    assert imputer.uncertainty(frame).std["mass"].isna().all()
    scores = imputer.held_out_scores_
    assert scores is not None
    assert "mass" not in [one.column for one in weak_columns(imputer.schema_, scores)]
    assert imputer.trace_[-1].held_out_error == pytest.approx(scores.loc["flipper", "error"], abs=1e-5)
    imputer.save(tmp_path / "m.diffputer")
    assert DiffPuter.load(tmp_path / "m.diffputer").transform(frame).equals(full)


def test_skipped_columns_must_exist_and_be_free_of_formulas() -> None:
    frame = penguins()[["mass", "flipper"]]
    with pytest.raises(InputError, match="'weight' is not there"):
        DiffPuter(**QUICK, skip=["weight"]).fit(frame)
    with pytest.raises(InputError, match="'mass'"):
        DiffPuter(**QUICK, skip=["mass"], inequalities=["flipper <= mass"]).fit(frame)


def test_little_evidence_is_warned_of_once_with_reasons() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=400)
    frame = pd.DataFrame(
        {
            "x": x,
            "good": np.where(rng.random(400) < 0.2, np.nan, x + 0.1 * rng.normal(size=400)),
            "few": np.where(np.arange(400) % 9, np.nan, 2 * x),
            "noise": np.where(rng.random(400) < 0.2, np.nan, rng.normal(size=400)),
        }
    )
    with pytest.warns(DataWarning, match="little evidence") as caught:
        imputer = DiffPuter(random_state=0, max_steps=100).fit(frame)
    assert len([one for one in caught if "little evidence" in str(one.message)]) == 1
    weak = {one.column: one.reasons for one in weak_columns(imputer.schema_, imputer.held_out_scores_)}
    assert set(weak) == {"few", "noise"}
    assert weak["few"][:2] == ("45 known values", "89% missing")
    assert imputer.transform(frame).notna().all().all()


def test_columns_without_skill_are_named_also_where_the_whole_table_has_none() -> None:
    useless = []
    for seed in range(6):  # by luck a few held-out cells of noise may seem to be imputed well
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame({"x": rng.normal(size=200), "town": rng.choice(["Ulm", "Jena", "Bonn"], 200)})
        frame = frame.mask(rng.random(frame.shape) < 0.2)
        with pytest.warns(DataWarning) as caught:
            imputer = DiffPuter(random_state=0, max_steps=1).fit(frame)
        said = " ".join(str(one.message) for one in caught)
        useless.append("no better than column means" in said)
        weak = weak_columns(imputer.schema_, imputer.held_out_scores_)
        assert all(f"{one.column!r} ({one.reasons[0]}" in said for one in weak)
        assert weak or not useless[-1]
    assert any(useless)


def test_held_out_cells_that_are_all_right_are_not_called_useless() -> None:
    line = EMRound(1, 10, 0.1, 0.1, 0.0, 0.0, 0.0, 1.0, 1.0)
    assert not line.useless
    assert dataclasses.replace(line, held_out_error=0.2, baseline_error=0.2).useless
    assert dataclasses.replace(line, held_out_error=0.2).useless


def test_a_method_that_a_comparison_applies_names_little_evidence_too() -> None:
    frame = penguins()[["mass", "flipper", "diagnosis"]]
    with pytest.warns(DataWarning, match="little evidence: 'diagnosis' .* before you use them.$"):
        assert fill_with(frame, "mean").notna().all().all()


def test_a_column_without_a_value() -> None:
    frame = pd.DataFrame(
        {
            "x": [1.0, 2.0, None, 4.0],
            "number": [np.nan] * 4,
            "text": pd.array([None] * 4, dtype="string"),
            "category": pd.Categorical([None] * 4, categories=["z", "a"]),
            "date": pd.to_datetime([None] * 4),
        }
    )
    with pytest.warns(DataWarning, match="by zero: 'number'. Left missing: 'text'.*'category'.*'date'"):
        full = DiffPuter(**QUICK).fit_transform(frame)
    assert (full["number"] == 0).all()
    assert full[["text", "category", "date"]].isna().all().all()
    with pytest.warns(DataWarning, match="Left missing: 'number'"):
        assert DiffPuter(**QUICK, empty="keep").fit_transform(frame)["number"].isna().all()
    with pytest.raises(ValueError, match="empty"):
        DiffPuter(empty="mean").fit(frame)


def test_the_command_line_leaves_empty_columns_text_and_skipped_columns(tmp_path) -> None:
    path, page = tmp_path / "p.csv", tmp_path / "p.html"
    frame = penguins(120).assign(nothing=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame.to_csv(path, index=False)
    result = run("impute", path, "--skip", "diagnosis", "--report", page, "--draws", 2)
    after = pd.read_csv(tmp_path / "p.imputed.csv").query("`.imp` == 1").reset_index(drop=True)
    for name in ("comments", "url", "cabin", "diagnosis", "nothing"):
        assert after[name].isna().sum() == frame[name].isna().sum()
    assert after[["mass", "species"]].notna().all().all()
    assert "--fill-all" in result.stderr
    assert "Left missing: 'nothing'" in result.stderr
    result = run("impute", path, "--fill-all", "--set", "empty=zero", "--report", page)
    title = "Columns imputed from little evidence"
    assert f"warning: {title}: " in result.stderr
    assert "--skip" in result.stderr
    assert title in page.read_text()
    assert pd.read_csv(tmp_path / "p.imputed.csv")["comments"].notna().all()


@pytest.mark.parametrize(("kind", "zero"), [("integer", "0"), ("continuous", "0"), ("boolean", "")])
def test_an_empty_column_of_a_stated_kind_gets_zeros_if_asked(tmp_path, kind: str, zero: str) -> None:
    path, model = tmp_path / "p.csv", tmp_path / "p.m"
    path.write_text("x,nothing,y\n" + "".join(f"{i % 7 or ''},,{i % 5}\n" for i in range(90)))
    stated = ["--kind", f"nothing={kind}"]
    run("impute", path, *stated, "--set", "empty=zero", "--save-model", model)
    for command in ([], ["--model", model]):
        if command:
            run("impute", path, *command)
        cells = [line.split(",")[1] for line in (tmp_path / "p.imputed.csv").read_text().splitlines()[1:]]
        assert set(cells) == {zero}
    run("impute", path, *stated)  # without being asked they stay missing
    assert ",," in (tmp_path / "p.imputed.csv").read_text()
    run("compare", path, *stated, "--methods", "mean,median", "--repeats", 1)


@pytest.mark.filterwarnings("ignore:Columns without any observed value")
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_so_does_one_whose_type_says_nothing(library: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, None, 4.0], "nothing": [None] * 4}, dtype=object)
    frame["x"] = frame["x"].astype(float)
    table: Any = frame
    if library == "polars":
        table = pytest.importorskip("polars").DataFrame({"x": [1.0, 2.0, None, 4.0], "nothing": [None] * 4})
    elif library == "pyarrow":
        table = pa.table({"x": [1.0, 2.0, None, 4.0], "nothing": pa.nulls(4)})
    for kind in ("integer", "continuous"):
        full = DiffPuter(**QUICK, schema={"nothing": kind}).fit_transform(table)
        assert [value.as_py() if hasattr(value, "as_py") else value for value in full["nothing"]] == [0] * 4

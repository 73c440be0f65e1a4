"""The command line: data to standard output, words to standard error, a sentence and a code for mistakes."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import diffputer
from diffputer import DiffPuter
from diffputer.cli_options import KNOWN_SETTINGS
from diffputer.settings import RETIRED

from .cli_tools import PROGRAM, TINY, TINY_OPTIONS, plain_frame, run


def ugly_csv(n=80, seed=0):
    """Semicolons, decimal commas, "?", a byte order mark, quoted newlines, dates, booleans, text ids."""
    rng = np.random.default_rng(seed)
    rows = [["id", "größe", "kinder", "raucher", "geboren", "stadt", "notiz"]]
    for i in range(n):
        row = [
            f"{i:05d}",
            f"{rng.normal(1.7, 0.1):.2f}".replace(".", ","),
            str(rng.integers(0, 5)),
            ("Yes", "No")[rng.integers(2)],
            f"{rng.integers(1950, 2005)}-{rng.integers(1, 13):02d}-{rng.integers(1, 28):02d}",
            ("Köln", "Rom; Italia", 'Bad "Ems"')[rng.integers(3)],
            f"line {i}\nand another",
        ]
        rows.append(
            [
                c if j in (0, 6) or rng.random() > 0.2 else ("?", "", "NA")[rng.integers(3)]
                for j, c in enumerate(row)
            ]
        )
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="\r\n").writerows(rows)
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def cells(data, delimiter=";"):
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter))


@pytest.fixture
def ugly(tmp_path):
    path = tmp_path / "ugly.csv"
    path.write_bytes(ugly_csv())
    return path


# --- help -----------------------------------------------------------------------------------------------


def test_help_is_light_and_teaches():
    code = (
        "import sys; from diffputer.cli import app; app(['impute', '--help'], standalone_mode=False); "
        "sys.stderr.write(str([m for m in ('torch', 'pandas', 'numpy', 'sklearn') if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]"
    for words in (
        "diffputer impute survey.csv",
        "Input",
        "Output",
        "Model",
        "[default: auto]",
        "--time-budget",
    ):
        assert words in result.stdout


def test_version_and_commands():
    assert run("--version").stdout == f"diffputer {diffputer.__version__}\n"
    assert "demo" in run("--help").stdout


def test_every_setting_can_be_set():
    own = {
        "engine",
        "quality",
        "estimate",
        "categorical_features",
        "bounds",
        "schema",
        "derived",
        "inequalities",
        "random_state",
        "device",
    }
    own |= {"skip", "fill_all", "time_budget", "checkpoint", "progress", "model_uncertainty"}
    assert set(DiffPuter().get_params()) == own | set(KNOWN_SETTINGS) | set(RETIRED)


# --- tables in, tables out --------------------------------------------------------------------------------


def test_ugly_csv_keeps_every_observed_cell(ugly):
    result = run("impute", ugly, "--missing", "?")
    assert result.stdout == ""
    before, after = ugly.read_bytes(), (ugly.parent / "ugly.imputed.csv").read_bytes()
    assert before == ugly_csv()
    assert after.startswith(b"\xef\xbb\xbfid;gr")
    assert after.count(b"\r\n") == before.count(b"\r\n")
    filled = 0
    for old, new in zip(cells(before), cells(after), strict=True):
        for a, b in zip(old, new, strict=True):
            if a in ("?", "", "NA"):
                filled += 1
                assert b not in ("?", "", "NA")
            else:
                assert a == b
    assert f"{filled} cells filled, none left" in result.stderr
    assert "warning: Some columns are passed through" in result.stderr
    assert "--categorical" in result.stderr  # not categorical_features, which nobody has heard of here
    assert ".py" not in result.stderr
    assert "error on held-out cells" in result.stderr
    assert "wrote " in result.stderr


def test_formulas_and_inequalities_between_columns(tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 50, (2, 60)).astype(float)
    frame = pd.DataFrame(
        {"a": a, "b": b, "net price": a + b, "low": np.minimum(a, b), "high": np.maximum(a, b)}
    )
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    frame.to_csv(tmp_path / "sums.csv", index=False)
    run(
        *("impute", tmp_path / "sums.csv", "--draws", 2),
        *("--derived", "net price=a + b", "--inequality", "low <= high"),
    )
    done = pd.read_csv(tmp_path / "sums.imputed.csv")
    np.testing.assert_allclose(done["net price"], done["a"] + done["b"])
    assert (done["low"] <= done["high"]).all()
    words = run("impute", tmp_path / "sums.csv", "--derived", "net price=a + zzz", code=2).stderr
    assert "'zzz' is not there" in words


def test_summary_says_what_was_observed_and_filled(plain):
    words = run("impute", plain, "--seed", 7).stderr
    frame = pd.read_csv(plain)
    line = next(line for line in words.splitlines() if line.startswith("x "))
    assert line.split()[:3] == ["x", "continuous", str(frame["x"].isna().sum())]
    assert f"{frame['x'].mean():.4g}" in line
    assert f"({frame['c'].value_counts(normalize=True).max():.0%})" in words
    assert "60 rows x 3 columns" in words
    assert "seed 7" in words


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.tsv.gz", "t.feather"])
def test_formats_by_suffix(tmp_path, name):
    path, frame = tmp_path / name, plain_frame()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if name.endswith("parquet"):
        pq.write_table(table, path)
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress(frame.to_csv(index=False, sep="\t").encode()))
    else:
        pyarrow.feather.write_feather(table, path)
    run("impute", path)
    target = tmp_path / name.replace("t.", "t.imputed.")
    if name.endswith("parquet"):
        result = pq.read_table(target).to_pandas()
    elif name.endswith("gz"):
        result = pd.read_csv(target, sep="\t")
    else:
        result = pyarrow.feather.read_feather(target)
    assert result.notna().all().all()
    pd.testing.assert_frame_equal(result.where(frame.notna()), frame, check_dtype=False)


def test_pipe(plain):
    command = [*PROGRAM, "impute", "-", *TINY_OPTIONS]
    result = subprocess.run(command, input=plain.read_bytes(), capture_output=True, check=True)
    old, new = cells(plain.read_bytes(), ","), cells(result.stdout, ",")
    assert [len(row) for row in new] == [len(row) for row in old]
    assert all(a in ("", b) and b for x, y in zip(old, new, strict=True) for a, b in zip(x, y, strict=True))
    assert b"wrote standard output" in result.stderr


def test_binary_streams_need_a_format(tmp_path):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(plain_frame()), sink)
    result = run("impute", "-", "--format", "parquet", input=sink.getvalue())
    assert pq.read_table(io.BytesIO(result.stdout_bytes)).num_rows == 60
    result = run("impute", "-", code=2, input=sink.getvalue())
    assert "is parquet: say --format parquet" in result.stderr


def test_format_is_for_what_has_no_suffix(plain, tmp_path):
    odd = tmp_path / "table.dat"
    odd.write_bytes(plain.read_bytes())
    run("impute", odd, "--format", "csv", "-o", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 60
    run("impute", odd, "--format", "csv")
    assert (tmp_path / "table.imputed.dat").read_bytes().startswith(b"x,y,c")
    misleading = tmp_path / "text.parquet"
    misleading.write_bytes(plain.read_bytes())
    run("impute", misleading, "--format", "csv", "-o", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").exists()


def test_draws_are_written_long(plain, tmp_path):
    run("impute", plain, "--draws", 3, "-o", tmp_path / "draws.csv")
    draws, frame = pd.read_csv(tmp_path / "draws.csv"), pd.read_csv(plain)
    assert list(draws.columns) == [".imp", ".id", "x", "y", "c"]
    assert draws[".imp"].value_counts().to_dict() == {1: 60, 2: 60, 3: 60}
    assert draws.notna().all().all()
    for _, one in draws.groupby(".imp"):
        one = one[["x", "y", "c"]].reset_index(drop=True)
        pd.testing.assert_frame_equal(one.where(frame.notna()), frame)
    filled = draws["x"].to_numpy().reshape(3, 60)[:, frame["x"].isna()]
    assert (filled.std(axis=0) > 0).any()


def test_nothing_missing_is_copied(tmp_path):
    path = tmp_path / "full.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    result = run("impute", path)
    assert (tmp_path / "full.imputed.csv").read_text() == path.read_text()
    assert "nothing is missing" in result.stderr
    run("impute", path, "--draws", 2, "-o", tmp_path / "d.csv")
    assert (tmp_path / "d.csv").read_text() == ".imp,.id,a,b\n1,1,1,x\n1,2,2,y\n2,1,1,x\n2,2,2,y\n"


def test_same_seed_same_bytes(plain, tmp_path):
    run("impute", plain, "-o", tmp_path / "a.csv")
    run("impute", plain, "-o", tmp_path / "b.csv", "--quiet")
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()


def test_wishes_about_columns(tmp_path):
    path = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a:b": rng.integers(1, 4, 50), "n": rng.integers(0, 9, 50), "k": rng.normal(size=50)}
    )
    frame = frame.astype(object).mask(rng.random((50, 3)) < 0.3)
    frame.to_csv(path, index=False)
    options = ["--categorical", "a:b", "--kind", "n=text", "--bounds", "k:0:0.5"]
    words = run("impute", path, *options).stderr
    result = pd.read_csv(tmp_path / "t.imputed.csv")
    assert set(result["a:b"]) == {1, 2, 3}
    assert result["n"].isna().equals(frame["n"].isna())
    assert f"{frame['n'].isna().sum()} left missing (n)" in words
    assert result["k"][frame["k"].isna()].between(0, 0.5).all()


def test_time_budget_ends_a_fit_that_would_not_end(plain):
    endless = ["max_steps=100000000", "patience=100000000", "em_rounds=10000", "em_patience=10000"]
    for engine, own in (
        ("conditional", ["mlp_width=16"]),
        ("paper", ["hidden_width=16", "max_epochs=1000000000"]),
    ):
        options = [part for setting in endless + own for part in ("--set", setting)]
        run("impute", plain, "--engine", engine, "--time-budget", 2, *options, tiny=False)
        assert pd.read_csv(plain.with_name("plain.imputed.csv")).notna().all().all()


def test_engine_and_estimate_can_be_chosen(plain, tmp_path):
    paper = ["max_steps=20", "em_rounds=1", "hidden_width=16", "sampling_steps=3", "resampling_rounds=1"]
    paper = [part for setting in [*paper, "n_draws=2"] for part in ("--set", setting)]
    run("impute", plain, "--engine", "paper", *paper, "-o", tmp_path / "paper.csv", tiny=False)
    for estimate in ("mean", "median"):
        run("impute", plain, "--estimate", estimate, "-o", tmp_path / f"{estimate}.csv")
    tables = [pd.read_csv(tmp_path / f"{name}.csv") for name in ("paper", "mean", "median")]
    holes = pd.read_csv(plain)["x"].isna()
    assert all(table.notna().all().all() for table in tables)
    for i, one in enumerate(tables):
        assert all((one["x"][holes] != other["x"][holes]).any() for other in tables[:i])


def test_a_model_can_be_asked_for_the_other_estimate(plain, tmp_path):
    run("impute", plain, "--save-model", tmp_path / "m", "--estimate", "median", "-o", tmp_path / "a.csv")
    run("impute", plain, "--model", tmp_path / "m", "-o", tmp_path / "b.csv", tiny=False)
    options = ["--estimate", "mean", "-o", tmp_path / "c.csv"]
    run("impute", plain, "--model", tmp_path / "m", *options, tiny=False)
    a, b, c = ((tmp_path / f"{name}.csv").read_text() for name in "abc")
    assert a == b != c


def test_checkpoint_is_kept_and_used(plain, tmp_path):
    once = run("impute", plain, "--checkpoint", tmp_path / "state")
    first = plain.with_name("plain.imputed.csv").read_bytes()
    assert (tmp_path / "state").stat().st_size > 0
    again = run("impute", plain, "--checkpoint", tmp_path / "state")
    assert plain.with_name("plain.imputed.csv").read_bytes() == first
    assert "cells filled" in once.stderr
    assert "cells filled" in again.stderr


def test_quiet_says_nothing(plain):
    plain_frame(400).to_csv(plain, index=False)  # enough to be sure of every column
    result = run("impute", plain, "--quiet")
    assert (result.stdout, result.stderr) == ("", "")


# --- models -----------------------------------------------------------------------------------------------


def test_a_model_matches_columns_by_name(plain, tmp_path):
    model, other = tmp_path / "m.diffputer", tmp_path / "other.csv"
    run("impute", plain, "--save-model", model)
    expected = pd.read_csv(plain.with_name("plain.imputed.csv"))
    frame = pd.read_csv(plain).assign(extra=range(60))[["c", "extra", "y", "x"]]
    frame.to_csv(other, index=False)
    words = run("impute", other, "--model", model).stderr
    assert "note: columns that the model does not know are left as they are: extra" in words
    result = pd.read_csv(tmp_path / "other.imputed.csv")
    assert list(result.columns) == ["c", "extra", "y", "x"]
    pd.testing.assert_frame_equal(result[["x", "y", "c"]], expected)

    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "other.parquet")
    run("impute", tmp_path / "other.parquet", "--model", model, "--draws", 2)
    draws = pq.read_table(tmp_path / "other.imputed.parquet").to_pandas()
    assert list(draws.columns) == [".imp", ".id", "c", "extra", "y", "x"]
    assert draws.notna().all().all()

    frame.drop(columns=["x", "c"]).to_csv(other, index=False)
    words = run("impute", other, "--model", model, code=2).stderr
    assert "it lacks 'x', 'c'" in words


def test_levels_that_were_text_stay_text(tmp_path):
    fit, new = tmp_path / "fit.csv", tmp_path / "new.csv"
    fit.write_text("code,x\n" + "1,1.5\n2b,2.5\n1,\n,2.25\n" * 10)
    new.write_text("x,code\n1.5,1\n,1\n2.5,\n")
    run("impute", fit, "--save-model", tmp_path / "m")
    run("impute", new, "--model", tmp_path / "m")
    assert set(pd.read_csv(tmp_path / "new.imputed.csv", dtype=str)["code"]) <= {"1", "2b"}


def test_a_model_of_an_array_has_no_names(plain, tmp_path):
    frame = plain_frame()[["x", "y"]]
    settings = {name: float(value) for name, value in (setting.split("=") for setting in TINY)}
    DiffPuter(random_state=0, **settings).fit(frame.to_numpy()).save(tmp_path / "m")
    assert "without names" in run("impute", plain, "--model", tmp_path / "m", code=2).stderr


# --- the demonstration -----------------------------------------------------------------------------------


def test_demo_is_wired(tmp_path, monkeypatch):
    calls = []

    def fake(*args, **kwargs):
        calls.append((args, kwargs))
        return SimpleNamespace(files=())

    monkeypatch.setattr("diffputer.demo.run_demo", fake)
    run("demo", "--output", tmp_path, "--seed", 3, "-q")
    run("demo")
    assert calls == [((str(tmp_path), 3), {"progress": False}), (("demo_output", 0), {"progress": True})]


def test_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "diffputer", "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("diffputer ")

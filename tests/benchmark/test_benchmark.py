"""The benchmark's core: split, masks, scores, rows, the file of results, and the command."""

import csv
import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from diffputer.benchmark import runner
from diffputer.benchmark.__main__ import main
from diffputer.benchmark.datasets import load_dataset, split_rows
from diffputer.benchmark.metrics import accuracy, mae, observed_deviation, rmse, score_table
from diffputer.benchmark.parts import make_parts
from diffputer.benchmark.provenance import find_git_hash
from diffputer.benchmark.published import find_published
from diffputer.benchmark.results import FIELDS, add_columns, append_rows, read_rows
from diffputer.benchmark.runner import is_done, run_task
from diffputer.benchmark.task import Task, code_table
from diffputer.errors import DataWarning, InputError, SettingError
from diffputer.methods.hyperimpute import HyperImpute

TINY = {
    "max_steps": 20,
    "em_rounds": 2,
    "mlp_width": 16,
    "mlp_depth": 1,
    "batch_size": 64,
    "device": "cpu",
    "quality": "fast",
}
TINY_PAPER = {
    "engine": "paper",
    "max_steps": 20,
    "em_rounds": 2,
    "hidden_width": 16,
    "sampling_steps": 3,
    "resampling_rounds": 1,
    "n_draws": 2,
    "em_draws": 2,
    "device": "cpu",
    "quality": "fast",
}
N_ROWS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    a = rng.normal(size=N_ROWS)
    frame = pd.DataFrame(
        {
            "a": a,
            "target": "t",
            "c": rng.choice(["NA", "None", "?"], N_ROWS),
            "whole": np.round(10 * a + rng.normal(size=N_ROWS)).astype(int),
            "d": rng.choice([2, 10], N_ROWS),
        }
    )
    frame.loc[[3, 50], "a"] = np.nan
    (path / "toy.csv.gz").write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    facts = {"toy": {"numeric": ["a", "whole"], "categorical": ["c", "d"], "target": "target"}}
    (path / "datasets.json").write_text(json.dumps(facts))
    return path


@pytest.fixture(scope="module")
def toy(folder):
    return load_dataset("toy", folder)


def test_split_is_the_protocols_and_leaves_the_global_generator_alone():
    state = np.random.get_state()
    try:
        np.random.seed(1234)
        expected = np.arange(101)
        np.random.shuffle(expected)
    finally:
        np.random.set_state(state)
    before = np.random.get_state()[1].copy()
    train, test = split_rows(101)
    assert (np.concatenate([train, test]) == expected).all()
    assert len(train) == int(0.7 * 101)
    assert (np.random.get_state()[1] == before).all()


def test_dataset_has_its_columns_and_complete_rows(toy, folder, monkeypatch):
    assert list(toy.frame) == ["a", "whole", "c", "d"]
    assert len(toy.frame) == N_ROWS - 2
    assert not toy.frame.isna().any().any()
    assert toy.frame["whole"].dtype == np.float64
    assert set(toy.frame["c"]) == {"NA", "None", "?"}
    assert set(toy.frame["d"]) == {"2", "10"}
    assert len(toy.fingerprint) == 64
    monkeypatch.setenv("DIFFPUTER_DATA", str(folder))
    assert load_dataset("toy").fingerprint == toy.fingerprint


def test_unknown_data_are_named(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("DIFFPUTER_DATA", raising=False)
    with pytest.raises(InputError, match="DIFFPUTER_DATA"):
        load_dataset("toy")
    with pytest.raises(InputError, match=r"datasets\.json"):
        load_dataset("toy", tmp_path)
    with pytest.raises(InputError, match=r"'iris' is not; there are: .*toy"):
        load_dataset("iris", folder)
    with pytest.raises(InputError, match="is none"):
        load_dataset("toy", tmp_path / "nowhere")
    with pytest.raises(InputError, match="diffputer bench data letter"):
        load_dataset("letter", tmp_path)
    (tmp_path / "toy.csv.gz").write_bytes((folder / "toy.csv.gz").read_bytes())
    facts = json.loads((folder / "datasets.json").read_text())
    facts["toy"]["sha256_csv"] = "0" * 64
    (tmp_path / "datasets.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="SHA-256"):
        load_dataset("toy", tmp_path)


def test_masks_repeat_and_differ_by_seed_and_table(toy):
    train, test = Task("toy").masks(toy)
    again, _ = Task("toy").masks(toy)
    other, _ = Task("toy", mask_seed=1).masks(toy)
    assert train.shape == (82, 4)
    assert test.shape == (36, 4)
    assert (train == again).all()
    assert (train != other).any()
    assert (train[:36] != test).any()
    assert 0.2 < train.mean() < 0.4


def test_mar_draws_columns_for_train_and_test_independently(toy):
    complete = []
    for seed in range(8):
        masks = Task("toy", "mar", mask_seed=seed).masks(toy)
        complete.append([tuple(np.flatnonzero(~mask.any(axis=0))) for mask in masks])
    assert all(len(train) == len(test) == 1 for train, test in complete)
    assert any(train != test for train, test in complete)


def test_categories_enter_masks_by_code(toy):
    x = code_table(toy)
    assert (x[:, 3] == (toy.frame["d"] == "10")).all()  # by number, not by text
    assert set(x[:, 2]) == {0, 1, 2}


def test_task_refuses_what_it_cannot_do(toy):
    with pytest.raises(SettingError, match="mechanism"):
        Task("toy", "nonsense")
    with pytest.raises(SettingError, match="rate"):
        Task("toy", rate=1.5)
    with pytest.raises(SettingError, match="own data set"):
        Task("other").masks(toy)


def test_scores_have_known_answers():
    truth = np.array([[1.0, 10.0], [3.0, 20.0], [5.0, 0.0]])
    imputed = np.array([[1.0, 10.0], [3.0, 26.0], [7.0, 0.0]])
    hidden = np.array([[False, False], [False, True], [True, False]])
    deviation = observed_deviation(truth, hidden)
    assert deviation.tolist() == [1.0, 5.0]  # of {1, 3} and {10, 0}
    assert mae(truth, imputed, hidden, deviation) == pytest.approx((2 / 1 + 6 / 5) / 2)
    assert rmse(truth, imputed, hidden, deviation) == pytest.approx(np.sqrt((4 + 36 / 25) / 2))
    levels = np.array([["x", "u"], ["y", "v"]], dtype=object)
    guessed = np.array([["x", "u"], ["x", "v"]], dtype=object)
    assert accuracy(levels, guessed, np.array([[True, False], [True, True]])) == pytest.approx(2 / 3)


def test_table_is_scored_by_column():
    truth = pd.DataFrame({"n": [0.0, 2.0], "c": ["x", "y"]})
    completed = pd.DataFrame({"n": [1.0, 2.0], "c": ["x", "x"]})
    hidden = np.array([[True, True], [False, True]])
    scores = score_table(truth, completed, hidden, np.array([2.0]), ("c",))
    assert (scores.mae, scores.rmse, scores.accuracy) == (0.5, 0.5, 0.5)
    assert scores.columns == {"n": {"mae": 0.5, "rmse": 0.5, "n": 1}, "c": {"accuracy": 0.5, "n": 2}}
    nothing = score_table(truth, completed, np.zeros((2, 2), dtype=bool), np.array([2.0]), ("c",))
    assert (nothing.mae, nothing.accuracy, nothing.columns) == (None, None, {})
    with pytest.raises(InputError, match="imputed"):
        score_table(truth, completed.mask(hidden), hidden, np.array([2.0]), ("c",))


@pytest.fixture(scope="module", params=[TINY, TINY_PAPER], ids=["conditional", "paper"])
def tiny(request):
    return request.param


@pytest.fixture(scope="module")
def results(toy, tiny):
    return run_task(
        Task("toy"),
        toy,
        tiny,
        seed=5,
        curve=True,
        curve_rows=20,
        draws_scored=19,
        draw_rows=15,
        alone=True,
        label="try",
    )


def test_draws_of_other_methods_are_scored_too(toy):
    rows = run_task(Task("toy"), toy, method="em-gaussian", draws_scored=19, draw_rows=15)
    for row in rows:
        assert row["error"] is None
        assert (row["draws_scored"], row["rows_drawn"]) == (19, 15)
        assert row["crps"] > 0
        assert 0 <= row["coverage"] <= 1
        assert 0 <= row["auc"] <= 1
    (plain, _) = run_task(Task("toy"), toy, method="mean", draws_scored=19)
    assert plain["crps"] is None
    assert plain["auc"] is None
    text = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    facts = {"fingerprint": toy.fingerprint, "method": "em-gaussian"}
    assert is_done(text, Task("toy"), {}, 0, draws_scored=19, **facts)
    assert not is_done(text, Task("toy"), {}, 0, draws_scored=39, **facts)


def test_rows_have_every_field(results, toy, tiny):
    assert all(tuple(row) == FIELDS for row in results)
    final = [row for row in results if row["em_round"] is None]
    assert [row["setting"] for row in final] == ["in_sample", "out_of_sample"]
    paper = "engine" in tiny
    median = {"mae_median", "rmse_median"}
    optional = {"em_round", "error", "git_hash"} | (median if paper else {"draws"})
    for row in final:
        assert all(row[name] is not None for name in FIELDS if name not in optional)
        assert row["error"] is None
        assert (row["draws_scored"], row["rows_drawn"]) == (19, 15)
        assert 0 <= row["coverage"] <= 1
        assert 0 < row["crps"] < 10
        assert len(json.loads(row["pit"])) == 10
        assert (row["mae_median"] is None) == paper
        assert row["mae_median"] != row["mae"]
        assert 0 < row["mae"] <= row["rmse"]
        assert 0 <= row["accuracy"] <= 1
        assert json.loads(row["columns"]).keys() == set(toy.frame)
        assert json.loads(row["settings"])["n_draws" if paper else "mlp_width"] == (2 if paper else 16)
        assert row["draws"] == (2 if paper else None)
        assert (row["task"], row["seed"]) == ("toy/mcar/0.3/0", 5)
        assert row["method"] == ("diffputer-paper" if paper else "diffputer-conditional")
        assert (row["alone"], row["label"], row["protocol_version"]) == (True, "try", 1)
    assert [row["rows"] for row in final] == [82, 36]


def test_curve_has_a_row_for_each_round_and_changes_nothing(results, toy, tiny):
    curve = [(row["setting"], row["em_round"]) for row in results if row["em_round"]]
    assert curve == [(s, k) for k in (1, 2) for s in ("in_sample", "out_of_sample")]
    plain = run_task(Task("toy"), toy, tiny, seed=5)
    assert [row["mae"] for row in plain] == [row["mae"] for row in results[-2:]]
    # The last round is the best one or not; with as many draws the curve holds the final scores.
    best = plain[1]["best_round"]
    whole = run_task(Task("toy"), toy, tiny, seed=5, curve=True)
    at_best = [row["mae"] for row in whole if row["em_round"] == best]
    # After the last round the conditional engine's copula is fitted once more, with the held-out cells.
    tolerance = 1e-9 if plain[0]["method"] == "diffputer-paper" else 0.1
    assert at_best == pytest.approx([row["mae"] for row in plain], abs=tolerance)


def test_rows_that_are_not_scored_do_not_count(toy):
    task = Task("toy")
    _, test = make_parts(task, replace(toy, not_scored=toy.test_rows[:1]))
    _, mask = task.masks(toy)
    assert not test.scored[0].any()
    assert (test.scored[1:] == mask[1:]).all()
    assert (test.holes.isna().to_numpy() == mask).all()


def test_failure_is_a_row_with_the_reason(toy, tmp_path):
    rows = run_task(Task("toy"), toy, {**TINY, "max_steps": -1})
    assert [row["setting"] for row in rows] == ["in_sample", "out_of_sample"]
    assert all("SettingError: max_steps must lie" in row["error"] for row in rows)
    assert all(row["mae"] is None for row in rows)
    append_rows(tmp_path / "r.csv", rows)
    assert read_rows(tmp_path / "r.csv")[0]["mae"] == ""


def test_processes_append_to_one_file(tmp_path):
    path = tmp_path / "new" / "results.csv"
    code = (
        "import sys; from diffputer.benchmark.results import append_rows, FIELDS\n"
        "row = dict.fromkeys(FIELDS, sys.argv[2] * 999)\n"
        "for i in range(50): append_rows(sys.argv[1], [row | {'seed': i}])"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    with open(path, newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == list(FIELDS)
    assert len(lines) == 101
    assert all(len(line) == len(FIELDS) for line in lines)
    assert {line[0][0] for line in lines[1:]} == {"a", "b"}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("torn", "fact"), [("torn/mcar/0.3/0,torn", "2"), ('torn,"{""x"": 1, ', "an open quote")]
)
def test_a_line_that_broke_off_stays_its_own_and_is_left_out(torn, fact, tmp_path):
    path = tmp_path / "results.csv"
    row = dict.fromkeys(FIELDS, "x")
    append_rows(path, [row | {"columns": "two\nlines"}])
    with path.open("a") as file:
        file.write(torn)
    append_rows(path, [row | {"task": "next"}])
    with pytest.warns(
        DataWarning, match=rf"line 3 of .*results\.csv has {fact}\. .*run what it was of again"
    ):
        rows = read_rows(path)
    assert [(row["task"], row["columns"]) for row in rows] == [("x", "two lines"), ("next", "x")]
    with path.open("a") as file:
        file.write(",".join("y" * (len(FIELDS) + 1)) + "\n")
    with pytest.warns(DataWarning) as said:
        assert len(read_rows(path)) == 2
    assert f"line 5 of {path} has {len(FIELDS) + 1}" in str(said[1].message)


def test_a_write_that_the_disk_cuts_short_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "results.csv"
    append_rows(path, [dict.fromkeys(FIELDS, "x")])
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:10]))
    with pytest.raises(OSError, match="Only 10 of"):
        append_rows(path, [dict.fromkeys(FIELDS, "y")])
    assert path.read_bytes() == before


def test_results_have_the_permissions_that_the_user_gives_new_files(tmp_path):
    path, before = tmp_path / "results.csv", os.umask(0o077)
    try:
        append_rows(path, [dict.fromkeys(FIELDS, "x")])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    add_columns(path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_file_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="other ones"):
        append_rows(path, [dict.fromkeys(FIELDS)])
    with pytest.raises(InputError, match="'extra'"):
        append_rows(path, [dict.fromkeys([*FIELDS, "extra"])])
    assert path.read_text() == "a,b\n1,2\n"


def test_file_of_an_earlier_version_gets_the_new_columns_empty(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text('task,mae,settings\na/mcar/0.3/0,0.25,"{""x"": 1}"\n')
    add_columns(path)
    append_rows(path, [dict.fromkeys(FIELDS, 1)])
    old, new = read_rows(path)
    assert (old["mae"], old["settings"], old["crps"]) == ("0.25", '{"x": 1}', "")
    assert new["crps"] == "1"
    path.write_text("task,other\n1,2\n")
    with pytest.raises(InputError, match="other"):
        add_columns(path)
    assert path.read_text() == "task,other\n1,2\n"


def test_only_what_was_asked_for_is_scored(toy):
    row = run_task(Task("toy"), toy, {**TINY, "estimate": "median"}, seed=5)[-1]
    assert row["mae"] > 0
    names = ("mae_median", "rmse_median", "coverage", "crps", "pit", "draws_scored", "rows_drawn", "auc")
    assert all(row[name] is None for name in names)
    median = run_task(Task("toy"), toy, TINY, seed=5)[-1]["mae_median"]
    assert median == row["mae"]
    with pytest.raises(SettingError, match="19, 39, 59"):
        run_task(Task("toy"), toy, TINY, draws_scored=20)


def test_what_is_done_is_found_by_task_settings_seed_and_data(results, toy, tiny, tmp_path, monkeypatch):
    done = partial(is_done, fingerprint=toy.fingerprint)
    path = tmp_path / "results.csv"
    append_rows(path, results)
    rows, task = read_rows(path), Task("toy")
    assert done(rows, task, tiny, 5, curve=True)
    assert done(rows, task, tiny, 5, draws_scored=19)
    assert not done(rows, task, tiny, 5, draws_scored=39)
    assert not done(rows, task, tiny, 6)
    assert not done(rows, task, {**tiny, "max_steps": 3}, 5)
    assert not done(rows, task, TINY if "engine" in tiny else TINY_PAPER, 5)
    assert not done(rows, task, {**tiny, "estimate": "median"}, 5)
    assert not done(rows, Task("toy", "mar"), tiny, 5)
    without_curve = [row for row in rows if not row["em_round"]]
    assert done(without_curve, task, tiny, 5)
    assert not done(without_curve, task, tiny, 5, curve=True)
    assert not done(without_curve[:1], task, tiny, 5)
    assert not done(rows, task, tiny, 5, fingerprint="0" * 64)
    monkeypatch.setattr(runner, "PROTOCOL_VERSION", 2)
    assert not done(rows, task, tiny, 5)


def test_without_hidden_numbers_no_draws_are_awaited(toy):
    levels = replace(toy, frame=toy.frame[list(toy.categorical)], numeric=())
    rows = run_task(Task("toy"), levels, TINY, draws_scored=19)
    assert [(row["error"], row["draws_scored"]) for row in rows] == [(None, None)] * 2
    kept = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    assert is_done(kept, Task("toy"), TINY, 0, fingerprint=toy.fingerprint, draws_scored=19)


def test_command_runs_skips_and_fails_in_words(folder, tmp_path, capsys):
    path = tmp_path / "results.csv"
    arguments = ["--data", str(folder), "--datasets", "toy", "--out", str(path), "--seeds", "0"]
    for name, value in TINY.items():
        arguments += ["--set", f"{name}={value}"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.count("MAE") == 2
    assert "toy/mcar/0.3/0  diffputer-conditional  out_of_sample" in out
    assert main(arguments) == 0
    assert "already in" in capsys.readouterr().out
    assert len(read_rows(path)) == 2
    assert main([*arguments, "--force"]) == 0
    assert len(read_rows(path)) == 4
    assert main([*arguments, "--draws-scored", "19", "--draw-rows", "10"]) == 0
    assert capsys.readouterr().out.count("coverage") == 2
    with pytest.raises(SystemExit):
        main([*arguments, "--draws-scored", "10"])
    assert "19, 39, 59" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--set", "n_drawz=3"])
    assert "n_drawz" in capsys.readouterr().err


def test_command_runs_other_methods(folder, tmp_path, capsys):
    path = tmp_path / "results.csv"
    arguments = ["--data", str(folder), "--datasets", "toy", "--out", str(path)]
    chosen = [
        *arguments,
        "--methods",
        "mean,knn,diffputer-fast",
        "--set",
        "knn:neighbours=3",
        "--device",
        "cpu",
    ]
    for name, value in TINY.items():
        chosen += ["--set", f"{name}={value}"] if name not in ("device", "quality") else []
    assert main(chosen) == 0
    rows = read_rows(path)
    assert [row["method"] for row in rows] == [*["mean"] * 2, *["knn"] * 2, *["diffputer-conditional"] * 2]
    assert json.loads(rows[2]["settings"])["neighbours"] == 3
    assert all(0 < float(row["mae"]) <= float(row["rmse"]) for row in rows)
    assert {row["error"] for row in rows} == {""}
    capsys.readouterr()
    assert main(chosen) == 0
    assert capsys.readouterr().out.count("already in") == 3
    for mistake, words in (
        (["--methods", "nonsense"], "nonsense"),
        (["--methods", "knn", "--set", "knn:k=3"], "neighbours"),
        (["--methods", "knn", "--set", "mean:k=3"], "before the colon"),
        (["--methods", "knn", "--set", "max_steps=3"], "knn:neighbours=5"),
    ):
        with pytest.raises(SystemExit):
            main([*arguments, *mistake])
        assert words in capsys.readouterr().err


def test_method_that_cannot_is_a_row_with_the_reason(toy, monkeypatch):
    monkeypatch.delenv("DIFFPUTER_HYPERIMPUTE", raising=False)
    rows = run_task(Task("toy"), toy, method="hyperimpute")
    assert all(tuple(row) == FIELDS for row in rows)
    assert all("DIFFPUTER_HYPERIMPUTE" in row["error"] for row in rows)
    monkeypatch.setattr(HyperImpute, "_fit_complete", lambda self, x, n_levels, seed: np.nan_to_num(x))
    inside, outside = run_task(Task("toy"), toy, method="hyperimpute")
    assert inside["mae"] > 0
    assert inside["error"] is None
    assert outside["error"].startswith("InSampleOnlyError")


def test_rows_of_another_python_have_its_versions(toy, tmp_path, monkeypatch):
    package = tmp_path / "hyperimpute" / "plugins"
    package.mkdir(parents=True)
    # Refitted to fewer classes, XGBoost's classifier fails by the objective that it keeps.
    (tmp_path / "xgboost.py").write_text(
        "class XGBClassifier:\n"
        "    objective = 'binary:logistic'\n"
        "    def fit(self, classes):\n"
        "        assert self.objective == 'binary:logistic'\n"
        "        self.objective = 'multi:softprob'\n"
        "        return self\n"
    )
    (package / "imputers.py").write_text(
        "from types import SimpleNamespace\n"
        "from xgboost import XGBClassifier\n"
        "XGBClassifier().fit(3).fit(2)\n"
        "class Imputers:\n"
        "    def get(self, name, **options):\n"
        "        fill = lambda table: table.interpolate(limit_direction='both').round()\n"
        "        return SimpleNamespace(model=SimpleNamespace(), fit_transform=fill)\n"
    )
    (tmp_path / "hyperimpute-9.8.7.dist-info").mkdir()
    described = tmp_path / "hyperimpute-9.8.7.dist-info" / "METADATA"
    described.write_text("Metadata-Version: 2.1\nName: hyperimpute\nVersion: 9.8.7\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("DIFFPUTER_HYPERIMPUTE", sys.executable)
    rows = run_task(Task("toy"), toy, method="hyperimpute")
    for row in rows:
        versions = json.loads(row["versions"])
        assert versions["hyperimpute"] == "9.8.7"
        assert versions["pandas"] == pd.__version__
        assert {"diffputer", "torch", "numpy", "sklearn", "python"} <= set(versions)


def test_published_numbers_are_at_hand():
    assert find_published("letter", "mcar", "out_of_sample", "rmse") == (0.4774, False)
    assert find_published("adult", "mcar", "in_sample", "accuracy") == (0.7012, False)
    assert find_published("news", "mar", "in_sample", "rmse") == (0.6553, True)
    assert find_published("california", "mcar", "in_sample", "rmse") is None
    assert find_published("shoppers", "mcar", "in_sample", "accuracy", "knn") == (0.5393, False)


def test_git_hash_may_be_given(monkeypatch):
    monkeypatch.setenv("DIFFPUTER_GIT_HASH", "abc")
    assert find_git_hash() == "abc"


def test_only_changes_of_the_package_make_its_commit_dirty(tmp_path, monkeypatch):
    package = tmp_path / "src" / "diffputer"
    (package / "benchmark").mkdir(parents=True)
    (package / "model.py").write_text("1\n")
    (tmp_path / "rows.csv").write_text("task\n")
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "Start"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.delenv("DIFFPUTER_GIT_HASH", raising=False)
    monkeypatch.setattr(
        "diffputer.benchmark.provenance.__file__", str(package / "benchmark" / "provenance.py")
    )
    clean = find_git_hash()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "rows.csv").write_text("task\nwine\n")
    assert find_git_hash() == clean
    (package / "model.py").write_text("2\n")
    assert find_git_hash() == f"{clean}-dirty"

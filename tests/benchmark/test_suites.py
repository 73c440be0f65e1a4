"""Suites and what becomes of them: every name exists, runs resume, whatever a method does is a row."""

import dataclasses
import re
import signal
import subprocess
import sys
import time

import pytest

from diffputer.benchmark import campaign, scheduler
from diffputer.benchmark.builtin import BUILTIN
from diffputer.benchmark.campaign import estimate_left, find_lack, plan_jobs, results_path, run_plan
from diffputer.benchmark.datasets import PAPER_DATASETS, VARIANTS, file_of, load_dataset, split_name
from diffputer.benchmark.display import describe_row, show_runs
from diffputer.benchmark.processes import FORKS, resident_gigabytes
from diffputer.benchmark.results import FIELDS, append_rows, read_rows
from diffputer.benchmark.runner import describe_settings, run_task
from diffputer.benchmark.scheduler import WorkerError, describe_plainly, run_jobs
from diffputer.benchmark.suites import Entry, Job, Limits, list_suites, load_suite
from diffputer.benchmark.task import TASK_MECHANISMS, Task
from diffputer.cli import app
from diffputer.errors import InputError, SettingError
from diffputer.methods.table import METHODS
from tests.cli_tools import PROGRAM, make_runner

#: A method of one short file, as users write theirs; it does what its setting says instead of imputing.
FAKE = """
import os, pathlib, signal, subprocess, sys, time
import joblib
import numpy as np
from diffputer.methods.contract import Facts, Setting
from diffputer.methods.simple import ColumnValue

FACTS = Facts("fake", what="Misbehaves.", source="Tests.", cannot="Be trusted.",
              settings={"does": Setting("mean", "tests"), "folder": Setting("", "tests")})

class Fake(ColumnValue):
    def _fit(self, x, n_levels, seed):
        match self.settings["does"]:
            case "exit": os._exit(7)
            case "exit unless free" if not (pathlib.Path(self.settings["folder"]) / "free").exists():
                os._exit(7)
            case "leave": sys.exit(2)
            case "interrupt": raise KeyboardInterrupt
            case "crash":
                print("last words", flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
            case "raise":
                print("words before")
                raise MemoryError("no more")
            case "count": raise ValueError(f"{joblib.effective_n_jobs()} threads")
            case "hoard":
                kept = np.ones(200_000_000)
                time.sleep(600)
            case "hang":
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                pids = pathlib.Path(self.settings["folder"]) / "pids"
                pids.write_text(f"{os.getpid()} {child.pid}")
                time.sleep(600)
        super()._fit(x, n_levels, seed)

METHOD = (FACTS, Fake)
"""


@pytest.fixture
def fake(tmp_path):
    (tmp_path / "fake.py").write_text(FAKE)

    def make(does, dataset="wine@40", seed=0, **settings):
        given = {"does": does, "folder": str(tmp_path), **settings}
        return Job(Task(dataset, mask_seed=seed), Entry("fake", does, given, str(tmp_path / "fake.py")))

    return make


def write_suite(folder, methods, more=""):
    path = folder / "own.toml"
    path.write_text(f'datasets = ["wine", "diabetes"]\nrows = 40\nmethods = [{methods}]\n{more}')
    return str(path)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- suites


@pytest.mark.parametrize("name", list_suites())
def test_every_name_in_a_suite_exists(name, tmp_path):
    suite = load_suite(name)
    assert suite.about.endswith(".")
    assert set(suite.mechanisms) <= set(TASK_MECHANISMS)
    for dataset in suite.datasets:
        file_of(dataset, tmp_path)
    jobs = suite.jobs(device="cpu")
    first = [describe_plainly(job, 1) for job in jobs if job.task == jobs[0].task]
    assert len({(row["method"], row["settings_hash"]) for row in first}) == len(first) == len(suite.methods)
    masks = sum(len(suite.seeds_of.get(mechanism, suite.seeds)) for mechanism in suite.mechanisms)
    assert len(jobs) == len(suite.datasets) * masks * len(suite.rates) * len(suite.methods)
    assert suite.limits.seconds
    assert suite.limits.gigabytes


def test_the_suites_that_are_asked_for_are_there():
    wanted = {"mini", "small", "paper-mcar", "paper-mar", "paper-mnar"}
    ablations = {"em-rounds", "draws", "sampling-steps", "missing-ratio", "training-time", "generators"}
    assert set(list_suites()) >= wanted | {f"ablation-{name}" for name in ablations}
    mini, small = load_suite("mini"), load_suite("small")
    assert {entry.method for entry in mini.methods} == set(METHODS)
    assert set(mini.mechanisms) == set(TASK_MECHANISMS)
    assert all(file_of(name) is None for name in mini.datasets)
    assert {split_name(name) for name in small.datasets} == {(name, 2000) for name in PAPER_DATASETS}
    assert {entry.method for entry in small.methods} == set(METHODS)
    masks = {mechanism: len({job.task for job in small.jobs(mechanisms=[mechanism], datasets=["bean"])})
             for mechanism in small.mechanisms}  # fmt: skip
    assert masks == {"mcar": 3, "mar": 1, "mnar": 1}
    for mechanism in ("mcar", "mar", "mnar"):
        paper = load_suite(f"paper-{mechanism}")
        assert set(paper.datasets) == set(PAPER_DATASETS)
        assert (len(paper.seeds), paper.rates, paper.mechanisms) == (10, (0.3,), (mechanism,))


def test_a_star_stands_for_all_other_methods(tmp_path):
    suite = load_suite(write_suite(tmp_path, '{method = "knn", neighbours = 3}, "*"'))
    assert [entry.method for entry in suite.methods] == ["knn", *(name for name in METHODS if name != "knn")]
    assert suite.methods[0].settings == {"neighbours": 3}
    assert suite.datasets == ("wine@40", "diabetes@40")
    assert suite.name == "own"


@pytest.mark.parametrize(
    ("methods", "more", "words"),
    [
        ('"nonsense"', "", "'nonsense' is not"),
        ('{method = "knn", k = 3}', "", "it has: neighbours"),
        ('{method = "diffputer-fast", n_drawz = 3}', "", "n_drawz"),
        ('{label = "x"}', "", "a name or a table"),
        ('{method = "own", file = "nowhere.py"}', "", r"nowhere\.py is not"),
        ('"mean"', "metods = 3", "has metods"),
        ('"mean"', "limits = { hours = 3 }", "has hours"),
        ('"mean"', "limits = { seconds = -3 }", "seconds"),
        ('"mean"', 'mechanisms = ["mmar"]', "mmar"),
        ('"mean"', "rates = [30]", "rate"),
        ('"mean"', "draws = 10", "19, 39, 59"),
        ('"mean"', "seeds = [0", "valid TOML"),
        ('"mean"', "seeds = 3", "list"),
        ('"mean"', "seeds = { mar = [0] }", "exactly the mechanisms"),
        ('"mean"', "seeds = { mcar = [] }", "list"),
        ("", "", "list of methods"),
    ],
)
def test_mistakes_in_a_suite_are_found_before_anything_runs(methods, more, words, tmp_path):
    with pytest.raises((InputError, SettingError), match=words):
        load_suite(write_suite(tmp_path, methods, more))


def test_files_that_define_no_method_are_refused(tmp_path):
    (tmp_path / "fake.py").write_text("METHOD = 3")
    with pytest.raises(InputError, match="METHOD = "):
        load_suite(write_suite(tmp_path, '{method = "fake", file = "fake.py"}'))
    (tmp_path / "other.py").write_text(FAKE)
    with pytest.raises(SettingError, match="it defines 'fake'"):
        load_suite(write_suite(tmp_path, '{method = "other", file = "other.py"}'))
    with pytest.raises(InputError, match=r"one of .*mini.*'maxi' is none"):
        load_suite("maxi")
    assert "fake" not in METHODS


def test_a_file_that_cannot_import_what_it_needs_is_skipped_and_the_others_run(tmp_path):
    (tmp_path / "imp.py").write_text("import foo_bar\n")
    suite = write_suite(tmp_path, '"mean", {method = "imp", file = "imp.py", strength = 3}')
    options = ("run", suite, "--datasets", "wine", "--out", tmp_path / "out")
    said = invoke(*options, "--dry-run", code=1)
    assert said.stdout == "skipped\twine@40/mcar/0.3/0  imp\nto run\twine@40/mcar/0.3/0  mean\n"
    assert "warning: imp is skipped. Its file must find what it imports" in said.stderr
    assert f"{tmp_path / 'imp.py'}: No module named 'foo_bar'. Install that, or put it" in said.stderr
    assert "2 runs, 0 done, 1 skipped, 1 to run" in said.stderr
    assert "1 run took" in (ended := invoke(*options, "--threads", 1, code=1).stderr)
    assert "none failed, 1 skipped" in ended
    assert "1 done, 1 skipped, 0 to run" in invoke(*options, code=1).stderr
    (tmp_path / "bad.py").write_text("METHOD = 1 / 0\n")
    said = invoke("run", write_suite(tmp_path, '{method = "bad", file = "bad.py"}'), code=2).stderr
    assert f"however: {tmp_path / 'bad.py'} fails with ZeroDivisionError: division by zero" in said


def test_a_file_may_import_modules_beside_it_when_it_is_loaded_and_when_it_runs(tmp_path):
    (tmp_path / "beside_when_loaded.py").write_text("NAME = 'neighbourly'\n")
    (tmp_path / "beside_when_run.py").write_text("VALUE = 0.0\n")
    (tmp_path / "neighbourly.py").write_text(
        "import numpy as np\nfrom beside_when_loaded import NAME\n"
        "from diffputer.methods.contract import *\nclass Own(CodedMethod):\n"
        "    def _fit(self, x, n_levels, seed): pass\n"
        "    def _complete(self, x):\n"
        "        from beside_when_run import VALUE\n"
        "        return np.full(x.shape, VALUE)\n"
        "METHOD = (Facts(NAME, what='', source='', cannot=''), Own)\n"
    )
    suite = write_suite(tmp_path, '{method = "neighbourly", file = "neighbourly.py"}')
    said = invoke("run", suite, "--datasets", "wine", "--out", tmp_path / "out", "--threads", 1).stderr
    assert "1 run took" in said
    assert all(row["mae"] for row in read_rows(tmp_path / "out" / "neighbourly.csv"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("table[:3]", "14, however: it gave 3 x 14."),
        ("table.iloc[:, 1:]", "14, however: it gave 40 x 13."),
        ("table.to_numpy()", "however: it gave an object of type ndarray."),
        ("table.rename(columns={'ash': 'dust'})", "however: it gave 'dust'."),
        ("table.iloc[:, ::-1]", "in their order, however: it gave them in another."),
    ],
)
def test_a_method_that_gives_something_else_is_told_the_contract(given, words, tmp_path):
    rows = run_task(Task("wine@40"), load_dataset("wine@40"), method=make_own(tmp_path, given))
    assert rows[0]["error"].startswith("InputError: A method must give back the table that it is given, ")
    assert rows[0]["error"].endswith(words)


@pytest.mark.parametrize("base", ["CodedMethod", "InSampleMethod"])
def test_an_array_of_another_shape_is_told_the_contract(base, tmp_path):
    rows = run_task(Task("wine@40"), load_dataset("wine@40"), method=make_own(tmp_path, "x[:3]", base))
    assert rows[0]["error"] == (
        "InputError: A method must give back an array as large as the one it is given, 40 x 14, however: it "
        "gave 3 x 14."
    )


@pytest.mark.parametrize("base", ["CodedMethod", "InSampleMethod"])
@pytest.mark.parametrize("level", [3, -1])
def test_a_level_that_does_not_exist_is_told_with_its_column(base, level, tmp_path):
    given = f"__import__('numpy').full(x.shape, {level}.0)"
    rows = run_task(Task("wine@40"), load_dataset("wine@40"), method=make_own(tmp_path, given, base))
    assert rows[0]["error"] == (
        "InputError: Completed categories must be positions of levels, for 'grower' 0 to 2, however: "
        f"{level} is among them."
    )


def make_own(folder, given, base="Method"):
    """Give a method of a file that gives back something else than it should."""
    functions = {
        "Method": f"""
    def fit(self, table, categorical, seed): return self
    def transform(self, table): return {given}""",
        "CodedMethod": f"""
    def _fit(self, x, n_levels, seed): pass
    def _complete(self, x): return {given}""",
        "InSampleMethod": f"""
    def _fit_complete(self, x, n_levels, seed): return {given}""",
    }
    (folder / "own.py").write_text(
        f"from diffputer.methods.contract import *\nclass Own({base}):{functions[base]}\n"
        "METHOD = (Facts('own', what='', source='', cannot=''), Own)\n"
    )
    return Entry("own", file=str(folder / "own.py")).make()


def test_filters_choose_among_what_the_suite_has(tmp_path):
    suite = load_suite(write_suite(tmp_path, '"mean", "knn"', "seeds = [0, 1, 2]"))
    jobs = suite.jobs(methods=["knn"], datasets=["wine"], seeds=[0, 2])
    assert [job.words for job in jobs] == ["wine@40/mcar/0.3/0  knn", "wine@40/mcar/0.3/2  knn"]
    assert suite.jobs(datasets=["wine@40"], methods=["knn"], seeds=[0, 2]) == jobs
    assert suite.jobs(mechanisms=["mcar"]) == suite.jobs()
    for chosen in ({"methods": ["mice"]}, {"datasets": ["iris"]}, {"seeds": [7]}, {"mechanisms": ["mar"]}):
        with pytest.raises(SettingError, match="must be in suite own"):
            suite.jobs(**chosen)
    table = 'mechanisms = ["mcar", "mar"]\nseeds = { mcar = [0, 1], mar = [1] }'
    own = load_suite(write_suite(tmp_path, '"mean"', table)).jobs(datasets=["wine"])
    assert [(job.task.mechanism, job.task.mask_seed) for job in own] == [("mcar", 0), ("mcar", 1), ("mar", 1)]
    (ours,) = load_suite("paper-mcar").jobs(
        methods=["diffputer-fast"], datasets=["news"], seeds=[3], device="cpu"
    )
    assert ours.make()["device"] == "cpu"


def test_methods_that_can_choose_a_device_are_told_and_it_makes_no_other_run(tmp_path):
    jobs = load_suite("ablation-generators").jobs(
        methods=["miwae"], datasets=["news"], seeds=[0], device="cpu"
    )
    (job,) = jobs
    assert job.make().settings["device"] == "cpu"
    assert "device" not in describe_settings(job.make())
    own = FAKE.replace('"folder"', '"device": Setting("auto", "of the test"), "folder"')
    assert own != FAKE
    (tmp_path / "fake.py").write_text(own)
    (job,) = load_suite(write_suite(tmp_path, '{method = "fake", file = "fake.py"}')).jobs(
        datasets=["wine"], device="cpu"
    )
    assert job.make().settings["device"] == "cpu"


# --- plans


def keep(job, out, **fields):
    rows = [describe_plainly(job, 1) | {"setting": s} | fields for s in ("in_sample", "out_of_sample")]
    append_rows(results_path(out, job), rows)


def test_plan_skips_what_is_done_and_retries_failures_when_asked(fake, tmp_path):
    jobs = [fake(does, seed=seed) for seed in (0, 1) for does in ("mean", "exit")]
    keep(jobs[0], tmp_path, mae=0.5)
    keep(jobs[1], tmp_path, error="Crash: of old.")
    plan = plan_jobs(jobs, tmp_path)
    assert (plan.done, plan.failed, plan.todo) == (jobs[:1], jobs[1:2], jobs[2:])
    plan = plan_jobs(jobs, tmp_path, retry_failed=True)
    assert (plan.done, plan.failed, plan.todo) == (jobs[:1], [], jobs[1:])
    campaign._forget_failures(plan.todo, tmp_path)
    assert [row["error"] for row in read_rows(tmp_path / "fake.csv")] == ["", ""]
    keep(jobs[2], tmp_path, error="InSampleOnlyError: cannot.")
    assert plan_jobs(jobs, tmp_path).done == [jobs[0], jobs[2]]


def test_plan_finds_rows_in_whatever_file_of_the_folder_they_are(fake, tmp_path):
    jobs = [fake(does, seed=seed) for seed in (0, 1) for does in ("mean", "exit")]
    keep(jobs[0], tmp_path, mae=0.5)
    keep(jobs[1], tmp_path, error="Crash: of old.")
    (tmp_path / "fake.csv").rename(tmp_path / "other-machine.csv")
    (tmp_path / "table.csv").write_text("a;b\n1\n")  # the user's own, and no results
    plan = plan_jobs(jobs, tmp_path)
    assert (plan.done, plan.failed, plan.todo) == (jobs[:1], jobs[1:2], jobs[2:])
    plan = plan_jobs(jobs[:2], tmp_path, retry_failed=True)
    assert (plan.done, plan.todo) == (jobs[:1], jobs[1:2])
    assert run_plan(plan, tmp_path) == 1
    assert [row["error"] for row in read_rows(tmp_path / "other-machine.csv")] == ["", ""]
    assert {row["error"].split(":")[0] for row in read_rows(tmp_path / "fake.csv")} == {"Crash"}
    assert (tmp_path / "table.csv").read_text() == "a;b\n1\n"


def test_settings_cuts_and_draws_make_other_runs(fake, tmp_path):
    keep(fake("mean"), tmp_path, mae=0.5)
    others = [fake("mean", folder="x"), fake("mean", dataset="wine@41"), fake("mean", dataset="wine")]
    assert plan_jobs([fake("mean"), *others], tmp_path).todo == others
    task, entry = Task("wine"), Entry("diffputer-fast")
    keep(Job(task, entry, "cpu"), tmp_path, mae=0.5)
    assert plan_jobs([Job(task, entry, "cpu", draws=19)], tmp_path).todo
    assert plan_jobs([Job(task, entry, "cpu")], tmp_path).done


def test_an_own_file_with_another_content_makes_other_runs(fake, tmp_path):
    job, builtin = fake("mean"), Job(Task("wine@40"), Entry("mean"))
    known = describe_settings(builtin.make())
    for one in (job, builtin):
        keep(one, tmp_path, mae=0.5)
    keep(fake("raise"), tmp_path, error="MemoryError: no more")
    assert plan_jobs([job, builtin], tmp_path).done == [job, builtin]
    (tmp_path / "fake.py").write_text(FAKE + "# mended")
    plan = plan_jobs([job, builtin, fake("raise")], tmp_path)
    assert (plan.todo, plan.done, plan.failed) == ([job, fake("raise")], [builtin], [])
    assert describe_settings(builtin.make()) == known == "{}"
    (tmp_path / "fake.py").write_text(FAKE)
    assert plan_jobs([job], tmp_path).done == [job]


def test_a_method_whose_settings_mean_something_else_makes_other_runs(tmp_path, monkeypatch):
    facts, make = METHODS["median"]
    job = Job(Task("wine@40"), Entry("median"))
    keep(job, tmp_path, mae=0.5)
    assert describe_settings(job.make()) == "{}"
    for revision, due in ((1, "todo"), (0, "done")):
        monkeypatch.setitem(METHODS, "median", (dataclasses.replace(facts, revision=revision), make))
        assert getattr(plan_jobs([job], tmp_path), due) == [job]


def test_other_data_and_another_protocol_make_other_runs(fake, tmp_path):
    jobs = [fake("mean"), fake("mean", seed=1), fake("exit")]
    keep(jobs[0], tmp_path, mae=0.5, data_fingerprint="0" * 64)
    keep(jobs[1], tmp_path, mae=0.5, protocol_version=0)
    keep(jobs[2], tmp_path, error="Crash: of other data.", data_fingerprint="0" * 64)
    assert plan_jobs(jobs, tmp_path).todo == jobs
    campaign._forget_failures(jobs, tmp_path)
    assert len(read_rows(tmp_path / "fake.csv")) == 6
    for job in jobs:
        keep(job, tmp_path, mae=0.5)
    assert plan_jobs(jobs, tmp_path).done == jobs


@pytest.mark.skipif(not FORKS, reason="elsewhere the process itself ends")
def test_a_method_that_leaves_is_a_row_with_the_name_of_how(fake):
    ended = list(run_jobs([fake("leave"), fake("interrupt")]))
    assert [rows[0]["error"] for _, rows, _ in ended] == [
        "SystemExit: the method ended its process with code 2 instead of returning.",
        "KeyboardInterrupt:",
    ]
    assert all(len(row["data_fingerprint"]) == 64 for _, rows, _ in ended for row in rows)


def test_what_is_not_installed_is_skipped_and_data_must_be_there(tmp_path, monkeypatch):
    monkeypatch.delenv("DIFFPUTER_HYPERIMPUTE", raising=False)
    jobs = [Job(Task("wine"), Entry(name)) for name in ("mean", "hyperimpute")]
    plan = plan_jobs(jobs, tmp_path)
    assert plan.todo == jobs[:1]
    assert "DIFFPUTER_HYPERIMPUTE" in plan.lacks["hyperimpute"]
    assert plan.skipped == jobs[1:]
    assert not plan.lacks_own
    monkeypatch.setattr(campaign, "find_spec", lambda name: None)
    assert "pip install" in find_lack("miceforest")
    assert find_lack("mean") is None
    jobs = [Job(Task(name), Entry("mean")) for name in ("letter@50", "bean_authors", "wine")]
    plan = plan_jobs(jobs, tmp_path, data=tmp_path)
    assert plan.missing == ["letter@50", "bean_authors"]
    with pytest.raises(InputError, match=r"letter@50, bean_authors are not.*bench data letter bean;"):
        run_plan(plan, tmp_path, data=tmp_path)


def test_results_of_another_version_are_refused_before_anything_runs(fake, tmp_path):
    (tmp_path / "fake.csv").write_text("task,method,settings_hash,seed\n")
    with pytest.raises(InputError, match="add_columns"):
        run_plan(plan_jobs([fake("mean")], tmp_path), tmp_path)


def test_time_left_is_estimated_by_method():
    jobs = [Job(Task("wine"), Entry(name)) for name in ("mean", "mean", "knn", "mice")]
    assert estimate_left({}, jobs, 1) is None
    assert estimate_left({"mean": [1.0, 3.0], "knn": [8.0]}, jobs, 1) == 2 + 2 + 8 + 4
    assert estimate_left({"mean": [2.0]}, jobs, 4) == 2


# --- runs


def test_whatever_a_method_does_is_a_row_and_the_others_go_on(fake, tmp_path):
    does = ["mean", "exit", "crash", "raise", "hoard", "mean"]
    jobs = [fake(name, seed=seed) for seed, name in enumerate(does)]
    jobs.insert(1, Job(Task("letter", mask_seed=9), Entry("mean")))  # whose file is not there
    running = run_jobs(jobs, threads=1, limits=Limits(600, 1.5), data=str(tmp_path))
    ended = {job.task.mask_seed: rows for job, rows, _ in running}
    assert "letter.csv.gz is not there" in ended.pop(9)[0]["error"]
    errors = {seed: {row["error"] for row in rows} for seed, rows in ended.items()}
    assert errors[0] == errors[5] == {None}
    (left,), (crashed,), (raised,), (hoarded,) = (errors[seed] for seed in (1, 2, 3, 4))
    assert left == (
        "Crash: the process did not finish, it ended with code 7: the method ended it instead of returning."
    )
    assert "SIGSEGV" in crashed
    assert "last words" in crashed
    assert raised == "MemoryError: no more"
    assert re.fullmatch(r"MemoryLimit: it used \d\.\d\d GB, more than 1\.5 GB\.", hoarded)
    for seed, rows in ended.items():
        assert [row["setting"] for row in rows] == ["in_sample", "out_of_sample"]
        for row in rows:
            assert set(row) == set(FIELDS)
            assert (row["task"], row["method"], row["label"]) == (
                f"wine@40/mcar/0.3/{seed}",
                "fake",
                does[seed],
            )
            assert len(row["data_fingerprint"]) == 64
            assert row["device"]
            assert row["threads"] == 1
            assert '"torch"' in row["versions"]
            assert (row["mae"] is None) == (seed not in (0, 5))
    assert all(row["energy"] > 0 for row in ended[0])
    assert "FAILED Crash" in describe_row(ended[1][0])
    assert "energy" in describe_row(ended[0][0])


def test_methods_have_the_threads_that_were_asked_for(fake):
    for threads in (1, 2):
        ((_, rows, _),) = run_jobs([fake("count")], threads=threads)
        assert f"{threads} threads" in rows[0]["error"]


def test_workers_that_cannot_start_are_no_fault_of_a_method(fake, monkeypatch):
    code = "import sys; sys.exit('no torch here')"
    start = scheduler.start_session
    monkeypatch.setattr(scheduler, "start_session", lambda command, **o: start([command[0], "-c", code], **o))
    with pytest.raises(WorkerError, match="no torch here"):
        list(run_jobs([fake("mean")]))


def test_a_run_that_takes_too_long_is_killed_with_its_children(fake, tmp_path):
    ((_, rows, _),) = run_jobs([fake("hang")], limits=Limits(seconds=3))
    assert {row["error"] for row in rows} == {"TimeLimit: it took longer than 3 seconds."}
    for pid in (tmp_path / "pids").read_text().split():
        assert not is_alive(pid)


def test_memory_of_a_session_is_that_of_its_processes():
    code = "import time; x = b'x' * 200_000_000; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stdout.readline()
        used = resident_gigabytes(process.pid)
        process.kill()
    assert 0.2 < used < 0.4


# --- the command


def invoke(*arguments, code=0):
    result = make_runner().invoke(app, ["bench", *map(str, arguments)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def test_command_runs_resumes_and_retries(fake, tmp_path):
    exits = f'{{method = "fake", file = "fake.py", does = "exit unless free", folder = "{tmp_path}"}}'
    suite = write_suite(tmp_path, f'"mean", {exits}', 'mechanisms = ["mcar", "mar"]')
    options = ("run", suite, "--datasets", "wine", "--out", tmp_path / "out", "--threads", 1)
    planned = invoke(*options, "--dry-run")
    assert planned.stdout.splitlines() == [
        "to run\twine@40/mcar/0.3/0  mean",
        "to run\twine@40/mcar/0.3/0  fake",
        "to run\twine@40/mar/0.3/0  mean",
        "to run\twine@40/mar/0.3/0  fake",
    ]
    assert not (tmp_path / "out").exists()
    one = invoke(*options, "--methods", "mean", "--mechanisms", "mar", "--dry-run").stderr
    assert "1 run, 0 done, 1 to run" in one
    said = invoke(*options, "--workers", 2, code=1).stderr
    assert "4 runs, 0 done, 4 to run" in said
    assert said.count("MAE") == 4
    assert "2 failed, column error tells why" in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fake.csv", "mean.csv"]
    kept = [read_rows(tmp_path / "out" / name) for name in ("fake.csv", "mean.csv")]
    assert [len(rows) for rows in kept] == [4, 4]
    said = invoke(*options, code=1).stderr
    assert "2 done, 2 failed before (--retry-failed runs them again), 0 to run" in said
    assert [read_rows(tmp_path / "out" / name) for name in ("fake.csv", "mean.csv")] == kept
    (tmp_path / "free").touch()
    assert invoke(*options, "--retry-failed", "--quiet").stderr == ""
    assert [row["error"] for row in read_rows(tmp_path / "out" / "fake.csv")] == [""] * 4


def test_command_runs_an_edited_file_again(fake, tmp_path):
    suite = write_suite(tmp_path, '{method = "fake", file = "fake.py", does = "raise"}')
    options = ("run", suite, "--datasets", "wine", "--out", tmp_path / "out", "--threads", 1)
    invoke(*options, code=1)
    assert "1 failed before" in invoke(*options, code=1).stderr
    (tmp_path / "fake.py").write_text(FAKE.replace('raise MemoryError("no more")', "pass"))
    assert "none failed" in invoke(*options).stderr
    rows = read_rows(tmp_path / "out" / "fake.csv")
    assert [bool(row["error"]) for row in rows] == [True, True, False, False]
    assert len({row["settings_hash"] for row in rows}) == 2


def test_debug_shows_where_a_method_failed_and_rows_do_not(fake, tmp_path):
    suite = write_suite(tmp_path, '{method = "fake", file = "fake.py", does = "raise"}')
    command = [*PROGRAM, "bench", "run", suite, "--datasets", "wine", "--threads", "1", "--out"]
    shown, plain = (
        subprocess.run([*command, str(tmp_path / out), *options], capture_output=True, text=True)
        for out, options in (("shown", ["--debug"]), ("plain", []))
    )
    assert shown.returncode == plain.returncode == 1
    assert shown.stderr.count("Traceback (most recent call last)") == 1
    assert "wine@40/mcar/0.3/0  fake wrote:" in shown.stderr
    assert 'raise MemoryError("no more")' in shown.stderr
    assert "words before" in shown.stderr
    assert "Traceback" not in plain.stderr
    for out in ("shown", "plain"):
        errors = {row["error"] for row in read_rows(tmp_path / out / "fake.csv")}
        assert errors == {"MemoryError: no more"}


def test_command_says_what_is_wrong(tmp_path):
    suite = write_suite(tmp_path, '"mean"')
    assert "one of" in invoke("run", "maxi", code=2).stderr
    assert "0,1,2" in invoke("run", suite, "--seeds", "x", code=2).stderr
    assert "must be in suite" in invoke("run", suite, "--methods", "mice", code=2).stderr
    unknown = invoke("data", "iris", "--data", tmp_path, code=2).stderr
    assert "Only data sets" in unknown
    assert all(f" {name}" in unknown for name in (*PAPER_DATASETS, *VARIANTS, *BUILTIN))
    assert invoke("data", "wine@50", "--data", tmp_path).stderr == "wine: built in, needs no fetching\n"
    absent = ("run", "paper-mcar", "--datasets", "letter", "--methods", "mean", "--data", tmp_path)
    absent += ("--out", tmp_path / "out")
    assert "bench data letter" in invoke(*absent, code=2).stderr
    planned = invoke(*absent, "--dry-run")
    assert "not there yet: letter" in planned.stderr
    assert planned.stdout.count("to run") == 10


def test_command_lists_suites_data_and_methods(tmp_path):
    shown = " ".join(invoke("list", "--data", tmp_path).stdout.split())
    for name in (
        *list_suites(),
        *PAPER_DATASETS,
        *METHODS,
        "california_sample",
        "gesture_full",
        "news_clean",
    ):
        assert name in shown
    assert "9 of 9 missing" in shown
    assert str(tmp_path) in shown.replace(" ", "")


def test_bar_shows_what_is_left(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    jobs = [Job(Task("wine"), Entry("mean")), Job(Task("wine"), Entry("knn"))]
    with show_runs(jobs, 1, True) as shown:
        shown.begun(jobs[0])
        shown.ended(jobs[0], [{"error": "Crash: bad."}], 3.0)
        shown.begun(jobs[1])
    words = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().err)
    assert "1/2" in words
    assert "about 3 s left, 1 failed, knn on wine" in words
    with show_runs(jobs, 1) as shown:  # not a terminal
        shown.ended(jobs[0], [], 3.0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("request_to_end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(fake, tmp_path, request_to_end, code):
    entries = f'"mean", {{method = "fake", file = "fake.py", does = "hang", folder = "{tmp_path}"}}'
    suite = write_suite(tmp_path, entries)
    command = [*PROGRAM, "bench", "run", suite, "--datasets", "wine", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(request_to_end)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert "the same command goes on from there" in said
    assert len(read_rows(tmp_path / "out" / "mean.csv")) == 2
    assert not (tmp_path / "out" / "fake.csv").exists()
    for pid in (tmp_path / "pids").read_text().split():
        assert not is_alive(pid)

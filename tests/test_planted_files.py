"""Files beside a user's table are data: none is imported, whatever its name is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import diffputer
from tests.cli_tools import plain_frame

#: Modules that commands and their workers import, of the standard library, of dependencies and optional ones.
PLANTED = (
    "threadpoolctl", "numpy", "json", "torch", "pandas", "pickle", "multiprocessing", "argparse", "typer",
    "typing", "joblib", "cupy", "runpy", "__future__", "sitecustomize", "usercustomize", "pip",
)  # fmt: skip
BIN = Path(sys.executable).parent
#: Folder of the package under test; another version may be installed.
ROOT = str(Path(diffputer.__file__).parents[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table and with a module for each name, which leaves a mark when it is run."""
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + '\\n')\nraise ImportError({name!r})\n"
        )
    return tmp_path


def start(folder: Path, *command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    ran = folder / "ran"
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", [[str(BIN / "diffputer")], [sys.executable, "-m", "diffputer"]])
def test_comparing_runs_no_module_beside_the_table(folder: Path, program: list[str]) -> None:
    if not Path(program[0]).exists():
        pytest.skip("the script is not installed")
    start(folder, *program, "compare", "survey.csv", "--methods", "mean,knn-5", "--time-budget", "60")


def test_an_empty_entry_of_the_import_path_is_not_the_current_folder(tmp_path: Path) -> None:
    # As in PYTHONPATH=$PYTHONPATH:/x; what Python imports before the program is out of reach.
    for name in ("numpy", "typer", "threadpoolctl"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", ROOT])}
    environment.pop("PYTHONSAFEPATH", None)
    command = [sys.executable, "-m", "diffputer", "impute", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_runs_no_module_of_the_current_folder(folder: Path) -> None:
    (folder / "suite.toml").write_text('datasets = ["wine"]\nrows = 40\nmethods = ["mean"]\n')
    program = [sys.executable, "-P", "-c", "from diffputer.cli import main; main()"]
    start(folder, *program, "bench", "run", "suite.toml", "--out", "out", "--threads", "1")
    assert list((folder / "out").glob("*.csv"))


def test_simulating_coverage_runs_no_module_of_the_current_folder(folder: Path) -> None:
    program = [sys.executable, "-P", "-c", "from diffputer.cli import main; main()"]
    options = "--designs linear --mechanisms mar --rates 0.5 --methods complete --repetitions 2 --workers 2"
    start(folder, *program, "bench", "coverage", *options.split())


OWN = """
import diffputer, pandas as pd
from own_method import Own
if __name__ == "__main__":
    found = diffputer.compare(pd.read_csv("survey.csv"), methods=[Own(), "mean"], time_budget=60, repeats=1)
    assert found.has_compared, found.table.to_string()
"""


def test_a_method_in_a_module_beside_a_script_is_found_by_the_worker(tmp_path: Path) -> None:
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    (tmp_path / "threadpoolctl.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a')\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "script.py").write_text(OWN)
    (tmp_path / "own" / "own_method.py").write_text(
        "from diffputer.methods.contract import Facts\n"
        "from diffputer.methods.simple import ColumnValue\n"
        "class Own(ColumnValue):\n"
        "    def __init__(self):\n"
        "        super().__init__(Facts('own', what='', source='', cannot='', settings={}))\n"
    )
    start(tmp_path, sys.executable, "own/script.py")


def test_workers_are_of_the_package_that_starts_them(tmp_path: Path) -> None:
    """Another diffputer that is found first by Python must not answer for this one."""
    plain_frame().to_csv(tmp_path / "survey.csv", index=False)
    other = tmp_path / "other"
    (other / "diffputer").mkdir(parents=True)
    (other / "diffputer" / "__init__.py").write_text("raise ImportError('another one')\n")
    code = f"import sys; sys.path.insert(0, {ROOT!r}); from diffputer.cli import main; main()"
    environment = os.environ | {"PYTHONPATH": str(other), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, "compare", "survey.csv", "--methods", "mean,median", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

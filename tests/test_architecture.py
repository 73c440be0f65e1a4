"""The layers stay layers: imports go down only, importing stays instant."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "diffputer"
#: Bottom up; modules of one line are blind to each other.
LAYERS = [
    {"errors"},
    {"settings"},
    {"runtime"},
    {"tables", "nn"},
    {"held_out", "trace", "modelfiles"},
    {"models"},
    {"em_state"},
    {"em"},
    {"analysis"},
    {"imputations", "parameters", "uncertainties"},
    {"persistence", "reports", "resampling", "sampling"},
    {"imputer"},
    {"methods"},
    {"demo", "cli_options"},
    {"cli_results"},
    {"benchmark"},
    {"comparing"},
    {"compare_command"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Names of the package's own parts that a file imports, at any depth of nesting."""
    parts: set[str] = set()
    package = ("diffputer", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            names = [module] if module != "diffputer" else [f"diffputer.{a.name}" for a in node.names]
        else:
            continue
        parts |= {name.split(".")[1] for name in names if name.startswith("diffputer.")}
    return parts


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    for other in imported(path) - {part, "__version__"}:
        assert LEVEL[other] < LEVEL[part], f"{part} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_warnings_point_at_the_caller(path: Path) -> None:
    if path.name != "errors.py":
        assert "warnings.warn(" not in path.read_text(), "use errors.warn_about_data"


def test_importing_is_silent_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, diffputer; "
        "print([m for m in ('torch', 'pandas', 'numpy', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    assert result.stderr == ""


def test_the_estimator_does_not_need_matplotlib_or_the_benchmark() -> None:
    code = (
        "import sys; from diffputer import DiffPuter; "
        "heavy = ('matplotlib', 'diffputer.benchmark', 'diffputer.cli', 'polars'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_public_names() -> None:
    import diffputer

    assert all(hasattr(diffputer, name) for name in diffputer.__all__)
    assert set(diffputer.__all__) <= set(dir(diffputer))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = diffputer.nonsense


def test_a_first_fit_does_not_load_the_compiler_of_torch() -> None:
    # It takes longer to load than small tables take to be filled in.
    code = (
        "import sys, numpy as np, diffputer\n"
        "x = np.random.default_rng(0).normal(size=(60, 3))\n"
        "x[x > 1] = np.nan\n"
        "for engine in ('conditional', 'paper'):\n"
        "    diffputer.DiffPuter(engine=engine, time_budget=1, progress=False).fit_transform(x)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

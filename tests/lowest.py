"""The lowest versions that pyproject.toml declares, for pip: ``python tests/lowest.py [TORCH]``.

Every ``>=`` becomes ``==``, of the dependencies and of the extra ``dev``. torch is the one of constraints.txt
unless a version is asked for: builds of older ones for CPUs are not on every index.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lowest(torch: str = "") -> list[str]:
    """Requirements with exact versions, one for each package that must be there to run the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pins = dict(re.fullmatch(r"([\w-]+)>=([\w.]+)(?:,.*)?", requirement).groups() for requirement in declared)
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins["torch"] = torch or re.search(r"^torch==(.+)$", constraints, re.MULTILINE)[1]
    return [f"{name}=={version}" for name, version in pins.items() if name not in ("ruff", "mypy")]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest(*sys.argv[1:])) + "\n")

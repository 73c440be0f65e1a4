"""Where a result comes from: machine, memory, versions and commit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
import sklearn
import torch

from .. import __version__

#: Environment variable with the commit, for copies of the source without their history.
GIT_HASH_VARIABLE = "DIFFPUTER_GIT_HASH"


def hash_settings(settings: str) -> str:
    """Give a short name to a description of settings."""
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def describe_versions(packages: Sequence[str] = ()) -> str:
    """Give the versions that a result was made with, as JSON; also of these packages where installed."""
    found = {
        "diffputer": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
        "python": platform.python_version(),
    }
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return json.dumps(found)


def name_device(device: torch.device) -> str:
    """Give the name of the GPU or the model of the CPU."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def measure_peak_memory(device: torch.device) -> float | None:
    """Give the most memory used so far in GB: of the GPU since the task began, or of this process.

    Of the processes that it started, if one of them used more and has ended.
    """
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e9, 3)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return round(max(resource.getrusage(who).ru_maxrss for who in whose) * unit / 1e9, 3)


def find_git_hash() -> str | None:
    """Give the commit of this source ("-dirty" if changed since), or None outside its repository."""
    if given := os.environ.get(GIT_HASH_VARIABLE):
        return given
    package = Path(__file__).resolve().parents[1]
    try:
        top = _git(package, "rev-parse", "--show-toplevel")
        if Path(top) / "src" / "diffputer" != package:
            return None
        # Rows of results are tracked too, and each run adds to them: what counts is the package.
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return _git(package, "rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()

"""What the tests of the command line share."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from diffputer.cli import app

#: Enough to beat column means on the plain table, so that nothing is warned of.
TINY = [
    "max_steps=60",
    "learning_rate=3e-3",
    "mlp_width=16",
    "mlp_depth=1",
    "batch_size=64",
    "sampling_steps=3",
]
TINY_OPTIONS = [part for setting in TINY for part in ("--set", setting)]
PROGRAM = [sys.executable, "-c", "from diffputer.cli import main; main()"]


def make_runner() -> CliRunner:
    """Runner that keeps standard error apart: click 8.1 mixes it into standard output by default."""
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(mix_stderr=False) if mixes else CliRunner()


def run(*args, code=0, input=None, tiny=True):
    extra = TINY_OPTIONS if tiny and args[0] == "impute" and "--model" not in args else []
    result = make_runner().invoke(app, [*map(str, args), *extra], input=input)
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


def plain_frame(n=60):
    rng = np.random.default_rng(1)
    x = rng.normal(size=n).round(3)
    frame = pd.DataFrame(
        {"x": x, "y": (2 * x + rng.normal(size=n)).round(2), "c": np.where(x > 0, "hi", "lo")}
    )
    return frame.mask(rng.random(frame.shape) < 0.25)

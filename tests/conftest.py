"""What all tests share: one thread each (several workers run at once), and small settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import settings

# No test asserts a time.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

#: Settings of the default engine under which a fit takes a fraction of a second; for tests of behaviour,
#: not of accuracy.
TINY: dict[str, Any] = {
    "max_steps": 30,
    "em_rounds": 1,
    "mlp_width": 16,
    "mlp_depth": 1,
    "batch_size": 64,
    "boosted_trees": 5,
    "classes": 16,
    "sampling_steps": 4,
    "device": "cpu",
    "progress": False,
}
#: The same with both backbones and two members of each.
TINY_ENSEMBLE: dict[str, Any] = {
    **TINY,
    "mlp_members": 2,
    "attention_members": 2,
    "attention_width": 32,
    "attention_depth": 1,
}
#: The same of the paper's engine.
TINY_PAPER: dict[str, Any] = {
    "engine": "paper",
    "max_steps": 30,
    "em_rounds": 2,
    "hidden_width": 16,
    "sampling_steps": 4,
    "resampling_rounds": 2,
    "n_draws": 2,
    "em_draws": 2,
    "device": "cpu",
    "progress": False,
}
#: What a promise of the imputer is checked with.
ENGINES = [
    pytest.param(TINY, id="conditional"),
    pytest.param(TINY_ENSEMBLE, id="ensemble"),
    pytest.param(TINY_PAPER, id="paper"),
]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(params=ENGINES, scope="module")
def tiny(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Small settings of every engine, one after the other."""
    return dict(request.param)


def ugly_frame(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """A frame with holes and every kind of column that is modelled."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "size": 10 + 3 * z + rng.normal(size=n),
            "count": pd.array(np.maximum(0, np.round(5 + 2 * z)).astype(int), dtype="Int64"),
            "flag": pd.array(z > 0, dtype="boolean"),
            "town": np.where(z > 0.5, "Ulm", np.where(z < -0.5, "Köln", "Jena")),
            "grade": pd.Categorical(
                np.where(z > 0, "high", "low"), categories=["low", "mid", "high"], ordered=True
            ),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.round(20 + 5 * z), unit="D"),
            "wait": pd.to_timedelta(np.round(60 + 10 * z), unit="s"),
        },
        index=pd.Index(np.arange(n) % 7, name="week"),
    )
    return frame.mask(rng.random(frame.shape) < 0.25)


@pytest.fixture
def ugly() -> pd.DataFrame:
    return ugly_frame()


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Two numbers and a category, with holes, as a CSV file."""
    from .cli_tools import plain_frame

    path = tmp_path / "plain.csv"
    path.write_bytes(plain_frame().to_csv(index=False).encode())
    return path

"""What all tests share: one thread each (several workers run at once), and small settings."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

#: Settings under which a fit takes a fraction of a second; for tests of behaviour, not of accuracy.
TINY = {
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


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def tiny() -> dict[str, object]:
    return dict(TINY)


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

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from diffputer.diffusion.residuals import LARGEST_RESIDUAL, QUANTILES, SMALLEST_SPREAD, Residuals

NORMAL = torch.special.ndtri(torch.tensor(QUANTILES))


@given(middle=st.floats(-3, 3), deviation=st.floats(SMALLEST_SPREAD * 1.01, 2.0), z=st.floats(-4, 4))
def test_a_normal_cell_is_measured_in_its_deviations(middle: float, deviation: float, z: float) -> None:
    left = Residuals(middle + deviation * NORMAL, NORMAL)
    assert float(left.middle) == pytest.approx(middle)
    assert float(left.spread) == pytest.approx(deviation, rel=1e-3)
    exact = np.clip((z - middle) / deviation, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
    assert float(left.of(torch.tensor(z))) == pytest.approx(exact, abs=2e-2)


def test_residuals_of_a_skewed_cell_are_standard_normal() -> None:
    # The distribution has two scales: left of its median 0.2, right of it 1.5. Kolmogorov-Smirnov, 20,000.
    rng = np.random.default_rng(0)
    g = rng.normal(size=20_000)
    z = torch.from_numpy(np.where(g < 0, 0.2 * g, 1.5 * g)).float()
    left = Residuals(torch.where(NORMAL < 0, 0.2 * NORMAL, 1.5 * NORMAL).expand(len(z), -1), NORMAL)
    assert stats.kstest(left.of(z).numpy(), "norm").pvalue > 0.01


@given(st.lists(st.floats(-5, 5), min_size=15, max_size=15), st.floats(-4.9, 4.9))
def test_whatever_the_quantiles_the_maps_are_inverse_and_rise(quantiles: list[float], r: float) -> None:
    left = Residuals(torch.tensor(quantiles, dtype=torch.float64), NORMAL.double())
    at = torch.tensor(r, dtype=torch.float64)
    assert float(left.of(left.scores(at))) == pytest.approx(r, abs=1e-6)
    assert float(left.scores(at + 0.05)) > float(left.scores(at))


def test_no_cell_is_surer_than_the_smallest_spread() -> None:
    left = Residuals(torch.zeros(15), NORMAL)
    assert float(left.spread) == pytest.approx(SMALLEST_SPREAD, rel=1e-4)
    assert float(left.of(torch.tensor(1.0))) == LARGEST_RESIDUAL

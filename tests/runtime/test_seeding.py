from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from diffputer.runtime.seeding import (
    derive_seed,
    distinct_keys,
    draw_keys,
    keyed_normal,
    keyed_uniform,
    mix64,
    resolve_seed,
    row_keys,
)


def test_mix64_gives_the_published_splitmix64_sequence() -> None:
    # First outputs of SplitMix64 from the state 1234567, the generator's usual test vector.
    gamma, state, outputs = 0x9E3779B97F4A7C15, 1234567, []
    for _ in range(3):
        state = (state + gamma) % 2**64
        signed = state - 2**64 if state >= 2**63 else state
        outputs.append(int(mix64(torch.tensor(signed))) % 2**64)
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_noise_is_standard_normal_and_independent_across_rows_columns_and_steps() -> None:
    keys = torch.arange(40_000) * 977 + 5
    a, b = keyed_normal(keys, 0, 5).numpy(), keyed_normal(keys, 1, 5).numpy()
    assert stats.kstest(a.ravel(), "norm").pvalue > 1e-4
    stacked = np.hstack([a, b])
    correlation = np.corrcoef(stacked.T) - np.eye(10)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(keys))
    assert np.abs(np.corrcoef(a[:-1, 0], a[1:, 0])[0, 1]) < 5 / np.sqrt(len(keys))


def test_chances_are_uniform_and_independent_of_each_other_and_of_the_noise() -> None:
    keys = torch.arange(40_000) * 977 + 5
    parts = [keyed_uniform(keys, 0, 4), keyed_uniform(keys, 1, 4), keyed_normal(keys, 0, 4)]
    for part in parts[:2]:
        assert stats.kstest(part.numpy().ravel(), "uniform").pvalue > 1e-4
        assert (part >= 0).all()
        assert (part < 1).all()
    correlation = np.corrcoef(np.hstack([part.numpy() for part in parts]).T) - np.eye(12)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(keys))
    order = torch.randperm(len(keys), generator=torch.Generator().manual_seed(1))
    assert torch.equal(keyed_uniform(keys[order], 1, 4), parts[1][order])


def test_noise_belongs_to_the_key_not_to_its_place() -> None:
    keys = torch.randint(-(2**62), 2**62, (50,), generator=torch.Generator().manual_seed(0))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(keyed_normal(keys, 3, 4)[order], keyed_normal(keys[order], 3, 4))
    assert torch.equal(keyed_normal(keys[10:13], 3, 4), keyed_normal(keys, 3, 4)[10:13])
    assert torch.equal(keyed_normal(keys, torch.tensor([3]), 4), keyed_normal(keys, 3, 4))


def test_row_keys_depend_on_observed_values_and_pattern_alone() -> None:
    x = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0], [-0.0, 2.0], [0.0, 2.0]], dtype=np.float32)
    m = np.array([[False, True], [False, True], [False, False], [False, False], [False, False]])
    keys = row_keys(x, m, 0)
    assert keys[0] == keys[1]  # the value under a hole does not count
    assert keys[0] != keys[2]
    assert keys[3] == keys[4]  # negative zero is zero
    assert (row_keys(x, m, 1) != keys).all()


def test_equal_rows_get_keys_of_their_own_for_draws() -> None:
    keys = np.array([5, 9, 5, 5], dtype=np.int64)
    distinct = distinct_keys(keys)
    assert len(set(distinct.tolist())) == 4
    assert distinct[0] == 5
    assert distinct[1] == 9


def test_draw_keys_are_the_same_for_any_set_of_draws() -> None:
    keys = torch.tensor([1, 2, 3])
    assert torch.equal(draw_keys(keys, [0, 1, 2, 3])[:, 2:], draw_keys(keys, [2, 3]))


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0), None, np.int64(3)])
def test_every_sort_of_random_state_becomes_an_integer(state: object) -> None:
    assert isinstance(resolve_seed(state), int)


def test_streams_differ_by_name_and_number() -> None:
    seeds = {derive_seed(0, name, k) for name in ("a", "b") for k in range(100)}
    assert len(seeds) == 200

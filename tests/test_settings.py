from __future__ import annotations

import dataclasses
import inspect

import pytest
import torch

from diffputer import DiffPuter, SettingError
from diffputer.runtime.devices import Deadline, check_memory, free_memory, resolve_device, resolve_precision
from diffputer.settings import FAST, SETTING_NAMES, PaperSettings, resolve_settings


def test_the_papers_constants_are_the_defaults() -> None:
    s = PaperSettings()
    assert (s.sigma_max, s.sampling_steps, s.n_draws, s.hidden_width, s.learning_rate) == (
        80,
        50,
        20,
        1024,
        1e-4,
    )
    assert (s.resampling_rounds, s.batch_size, s.sigma_min, s.schedule_exponent, s.churn) == (
        20,
        4096,
        0.002,
        7,
        1,
    )
    assert (s.noise_log_mean, s.noise_log_deviation, s.sigma_data) == (-1.2, 1.2, 0.5)


def test_every_setting_is_a_parameter_of_the_estimator() -> None:
    parameters = inspect.signature(DiffPuter).parameters
    assert set(SETTING_NAMES) <= set(parameters)
    assert all(parameters[name].default is None for name in SETTING_NAMES)
    assert set(FAST) <= set(SETTING_NAMES)


@pytest.mark.parametrize(("on_gpu", "width"), [(True, 1024), (False, FAST["hidden_width"])])
def test_auto_is_the_papers_on_a_gpu_and_fast_on_a_cpu(on_gpu: bool, width: int) -> None:
    assert resolve_settings("auto", {}, on_gpu=on_gpu).hidden_width == width


def test_what_is_given_wins() -> None:
    settings = resolve_settings("fast", {"n_draws": 99, "churn": None}, on_gpu=False)
    assert settings.n_draws == 99
    assert settings.churn == 1.0


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PaperSettings().n_draws = 3  # type: ignore[misc]


def test_precision_follows_the_device() -> None:
    assert resolve_precision("auto", torch.device("cpu")) == torch.float32
    assert resolve_precision("auto", torch.device("cuda")) == torch.bfloat16
    assert resolve_precision("bfloat16", torch.device("cpu")) == torch.bfloat16
    assert resolve_precision("float32", torch.device("cuda")) == torch.float32


def test_memory_is_known_and_checked() -> None:
    assert free_memory(resolve_device("cpu")) > 1 << 20
    with pytest.raises(SettingError, match=r"Tea must fit into memory.* GiB are needed.* Drink less"):
        check_memory(1 << 60, "Tea", "Drink less.")


def test_a_deadline_counts_down_and_shares() -> None:
    assert Deadline().remaining == float("inf")
    assert Deadline().share(0.5).at is None
    deadline = Deadline.after(100.0)
    assert 99 < deadline.remaining <= 100
    assert deadline.share(0.5).remaining < 51

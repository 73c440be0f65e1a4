from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diffputer import DiffPuter, SettingError
from diffputer.runtime.devices import (
    Deadline,
    few_threads,
    free_memory,
    resolve_device,
    resolve_precision,
)
from diffputer.settings import (
    CONDITIONAL,
    ENGINES,
    FAST,
    QUALITIES,
    RETIRED,
    SETTING_NAMES,
    ConditionalSettings,
    PaperSettings,
    resolve_settings,
)


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
    for sort in (PaperSettings, ConditionalSettings):
        assert {field.name for field in dataclasses.fields(sort)} <= set(SETTING_NAMES)
    assert set(FAST) <= {field.name for field in dataclasses.fields(PaperSettings)}
    for changes in CONDITIONAL.values():
        assert set(changes) <= {field.name for field in dataclasses.fields(ConditionalSettings)}


def test_help_says_which_engine_each_setting_belongs_to() -> None:
    text = (DiffPuter.__doc__ or "").split("Other Parameters")[1].split("Attributes")[0]
    both, rest = text.split("Of both engines")
    conditional, rest = rest.split("Of the conditional engine.")
    paper, retired = rest.split("Of the paper's engine.")
    told = [
        {name for name in SETTING_NAMES if re.search(rf"\b{name}\b", part)}
        for part in (both, conditional, paper)
    ]
    sorts = (ConditionalSettings, PaperSettings)
    own = [{field.name for field in dataclasses.fields(s)} for s in sorts]
    assert told == [own[0] & own[1], own[0] - own[1], own[1] - own[0]]
    assert all(name in paper + retired for name in RETIRED)


def test_the_conditional_engine_is_the_default() -> None:
    assert inspect.signature(DiffPuter).parameters["engine"].default == ENGINES[0] == "conditional"


@pytest.mark.parametrize(("on_gpu", "width"), [(True, 1024), (False, FAST["hidden_width"])])
def test_auto_is_the_papers_on_a_gpu_and_fast_on_a_cpu(on_gpu: bool, width: int) -> None:
    settings = resolve_settings("paper", "auto", {}, on_gpu=on_gpu)
    assert isinstance(settings, PaperSettings)
    assert settings.hidden_width == width


@pytest.mark.parametrize("on_gpu", [True, False])
def test_auto_is_balanced_for_the_conditional_engine(on_gpu: bool) -> None:
    auto, balanced = (resolve_settings("conditional", q, {}, on_gpu=on_gpu) for q in ("auto", "balanced"))
    assert isinstance(auto, ConditionalSettings)
    assert auto == balanced


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_quality_gives_settings_and_the_better_train_longer(engine: str, on_gpu: bool) -> None:
    found = [resolve_settings(engine, quality, {}, on_gpu=on_gpu) for quality in QUALITIES[engine][1:]]
    steps = [settings.max_steps for settings in found]
    assert steps == sorted(steps)
    assert len(set(found)) == len(found)


def test_what_is_given_wins() -> None:
    settings = resolve_settings("paper", "fast", {"n_draws": 99, "churn": None}, on_gpu=False)
    assert isinstance(settings, PaperSettings)
    assert settings.n_draws == 99
    assert settings.churn == 1.0
    settings = resolve_settings("conditional", "fast", {"mlp_width": 99, "dropout": None}, on_gpu=False)
    assert isinstance(settings, ConditionalSettings)
    assert settings.mlp_width == 99


@given(engine=st.sampled_from(ENGINES), data=st.data())
def test_settings_of_the_other_engine_are_refused_by_name(engine: str, data: st.DataObject) -> None:
    own, other = (PaperSettings, ConditionalSettings)[:: 1 if engine == "paper" else -1]
    mine, theirs = ({field.name for field in dataclasses.fields(sort)} for sort in (own, other))
    name = data.draw(st.sampled_from(sorted(theirs - mine - set(RETIRED))))
    value = getattr(other(), name)
    with pytest.raises(SettingError, match=f"{name} is not of engine='{engine}' but of engine="):
        resolve_settings(engine, "auto", {name: value}, on_gpu=False)
    resolve_settings(engine, "auto", {name: None}, on_gpu=False)


def test_planned_steps_raise_the_most_or_are_refused_above_it() -> None:
    longer = resolve_settings("conditional", "fast", {"planned_steps": 9_000}, on_gpu=False)
    assert longer.max_steps == 9_000
    fewer = resolve_settings("conditional", "fast", {"max_steps": 30}, on_gpu=False)
    assert fewer.max_steps == 30
    with pytest.raises(SettingError, match="planned_steps=90, max_steps=30"):
        resolve_settings("conditional", "fast", {"planned_steps": 90, "max_steps": 30}, on_gpu=False)


def test_settings_cannot_be_changed() -> None:
    for settings in (PaperSettings(), ConditionalSettings()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            settings.max_steps = 3  # type: ignore[misc]


def test_precision_follows_the_device() -> None:
    assert resolve_precision("auto", torch.device("cpu")) == torch.float32
    assert resolve_precision("auto", torch.device("cuda")) == torch.bfloat16
    assert resolve_precision("bfloat16", torch.device("cpu")) == torch.bfloat16
    assert resolve_precision("float32", torch.device("cuda")) == torch.float32


def test_memory_is_known() -> None:
    assert free_memory(resolve_device("cpu")) > 1 << 20


def test_a_deadline_counts_down_and_shares() -> None:
    assert Deadline().remaining == float("inf")
    assert Deadline().share(0.5).at is None
    deadline = Deadline.after(100.0)
    assert 99 < deadline.remaining <= 100
    assert deadline.share(0.5).remaining < 51
    assert Deadline().passed == 0
    assert 0 <= deadline.passed < 0.01
    assert Deadline.after(0.0).passed >= 0


def test_small_steps_run_on_one_thread_and_give_the_others_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with few_threads(1000, torch.device("cpu")):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with few_threads(10**12, torch.device("cpu")):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_settings_of_version_0_1_are_accepted_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="`noised_share`, `sigma_max` have no effect"):
        found = resolve_settings("conditional", "fast", {"noised_share": 0.4, "sigma_max": 8.0}, on_gpu=False)
    assert found == resolve_settings("conditional", "fast", {}, on_gpu=False)

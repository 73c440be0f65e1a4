"""The methods whose intervals are compared: from an incomplete table to intervals of every estimand."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from ...errors import SettingError, require
from ...runtime.seeding import derive_seed
from .chained import draw_chained
from .designs import Design
from .estimates import Interval, analyse_draws, analyse_one

#: Rounds of chained equations before a draw, twice scikit-learn's default: half of a column may be missing.
MICE_ROUNDS = 20
#: Of miceforest, whose examples have 2 to 5.
FOREST_ROUNDS = 5
#: DiffPuter's ways to let the uncertainty of the model itself into its draws.
UNCERTAINTIES = ("none", "linear", "bootstrap")


@dataclass(frozen=True)
class Sample:
    """What a method is given: one repetition of a cell of the simulation."""

    design: Design
    complete: pd.DataFrame
    incomplete: pd.DataFrame
    n_draws: int
    seed: int


@dataclass(frozen=True)
class Answer:
    """What a method made of it: intervals, or why there are none, and how long it took."""

    intervals: Mapping[str, Interval]
    fit_seconds: float
    draw_seconds: float
    error: str = ""


@dataclass(frozen=True)
class Entry:
    """A method of the simulation.

    Attributes
    ----------
    name, title
        In rows and on the command line; and in tables.
    words
        What it does, in a sentence.
    run
        Gives draws, or a single table, or intervals.
    settings
        What was chosen.
    packages
        Whose versions a row should state.
    """

    name: str
    title: str
    words: str
    run: Callable[[Sample], Mapping[str, Interval]] | None
    settings: Mapping[str, Any]
    packages: tuple[str, ...] = ()
    uncertainty: str | None = None

    @property
    def ours(self) -> bool:
        """Whether it is DiffPuter."""
        return self.run is None

    @property
    def described(self) -> str:
        """Its settings as JSON."""
        return json.dumps(self.settings, sort_keys=True)


def _run_complete(sample: Sample) -> Mapping[str, Interval]:
    return analyse_one(sample.design, sample.complete)


def _run_cases(sample: Sample) -> Mapping[str, Interval]:
    return analyse_one(sample.design, sample.incomplete.dropna())


def _run_mean(sample: Sample) -> Mapping[str, Interval]:
    return analyse_one(sample.design, sample.incomplete.fillna(sample.incomplete.mean()))


def _run_mice(sample: Sample) -> Mapping[str, Interval]:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
    from sklearn.impute import IterativeImputer
    from sklearn.linear_model import BayesianRidge

    names = list(sample.incomplete.columns)
    tables = []
    for number in range(sample.n_draws):
        imputer = IterativeImputer(
            BayesianRidge(),
            sample_posterior=True,
            max_iter=MICE_ROUNDS,
            skip_complete=True,
            random_state=derive_seed(sample.seed, "mice", number) % (1 << 31),
        )
        tables.append(pd.DataFrame(imputer.fit_transform(sample.incomplete), columns=names))
    return analyse_draws(sample.design, tables)


def _run_norm(sample: Sample) -> Mapping[str, Interval]:
    x, names = sample.incomplete.to_numpy(dtype=np.float64), list(sample.incomplete.columns)
    rng = np.random.default_rng(abs(derive_seed(sample.seed, "mice-norm")))
    tables = [pd.DataFrame(draw_chained(x, MICE_ROUNDS, rng), columns=names) for _ in range(sample.n_draws)]
    return analyse_draws(sample.design, tables)


def _run_forest(sample: Sample) -> Mapping[str, Interval]:
    miceforest = require("miceforest", extra="rivals")
    kernel = miceforest.ImputationKernel(
        sample.incomplete.reset_index(drop=True),
        num_datasets=sample.n_draws,
        save_all_iterations_data=False,
        random_state=derive_seed(sample.seed, "miceforest") % (1 << 31),
    )
    kernel.mice(FOREST_ROUNDS, num_threads=1)
    tables = [kernel.complete_data(number) for number in range(sample.n_draws)]
    return analyse_draws(sample.design, tables)


RIVALS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("complete", "complete data", "Before anything is hidden: checks the simulation.",
              _run_complete, {}),
        Entry("cases", "complete cases", "Rows without holes only.", _run_cases, {}),
        Entry("mean", "column mean", "One table, holes at the mean of their column, taken for observed.",
              _run_mean, {}),
        Entry("mice", "MICE (scikit-learn)",
              "IterativeImputer with BayesianRidge and sample_posterior, once a draw.", _run_mice,
              {"max_iter": MICE_ROUNDS, "sample_posterior": True}, ("scikit-learn",)),
        Entry("mice-norm", "chained regressions (own code)",
              "Chained linear regressions whose coefficients are drawn, R's norm; own code.", _run_norm,
              {"max_iter": MICE_ROUNDS}),
        Entry("miceforest", "miceforest", "Chained LightGBM with mean matching, its defaults.", _run_forest,
              {"iterations": FOREST_ROUNDS}, ("miceforest", "lightgbm")),
    )
}  # fmt: skip


def our_entries(parameters: Mapping[str, Any]) -> dict[str, Entry]:
    """Give DiffPuter's entries: as it is by default, and with each sort of model uncertainty."""
    quality = str(parameters.get("quality", "auto"))
    said = "" if quality == "auto" else f", {quality}"
    entries = {
        "diffputer": Entry("diffputer", f"DiffPuter{said}", "As it is by default.", None, dict(parameters))
    }
    for way in UNCERTAINTIES:
        name = f"diffputer-{way}"
        entries[name] = Entry(
            name, f"DiffPuter, {way}{said}", f"Draws with model_uncertainty={way!r}.", None,
            {**parameters, "model_uncertainty": way}, uncertainty=way,
        )  # fmt: skip
    return entries


def default_methods() -> tuple[str, ...]:
    """Names of the methods that are run unless told otherwise; bootstrap, a fit a draw, is not among them."""
    return (*RIVALS, "diffputer-none", "diffputer-linear")


def find_entries(names: Sequence[str], parameters: Mapping[str, Any]) -> tuple[list[Entry], dict[str, str]]:
    """Find methods by name.

    Parameters
    ----------
    names : sequence of str
        Of methods.
    parameters : mapping
        Of DiffPuter.

    Returns
    -------
    entries, lacking
        Those that can run here, and name -> why not of the others.
    """
    known = {**RIVALS, **our_entries(parameters)}
    if foreign := [name for name in names if name not in known]:
        raise SettingError(
            f"A method must be one of {', '.join(known)}, however: {', '.join(foreign)} "
            f"{'is' if len(foreign) == 1 else 'are'} not."
        )
    entries, lacking = [], {}
    for name in dict.fromkeys(names):
        entry = known[name]
        missing = [p for p in entry.packages if p != "scikit-learn" and not find_spec(p)]
        if missing:
            lacking[name] = f"It needs {' and '.join(missing)}: pip install 'diffputer[rivals]'."
        else:
            entries.append(entry)
    return entries, lacking


def run_entries(entries: Sequence[Entry], sample: Sample) -> dict[str, Answer]:
    """Run methods on one sample; what fails is an answer with the reason.

    One fit of DiffPuter serves all its entries but bootstrap, whose fit is another; each is charged the
    whole fit.
    """
    answers = {entry.name: _answer(entry, sample) for entry in entries if not entry.ours}
    groups: dict[bool, list[Entry]] = {}
    for entry in entries:
        if entry.ours:
            groups.setdefault(_way_of(entry) == "bootstrap", []).append(entry)
    for group in groups.values():
        answers.update(_answer_ours(group, sample))
    return {entry.name: answers[entry.name] for entry in entries}


def _way_of(entry: Entry) -> str:
    """How an entry of DiffPuter treats the model's uncertainty."""
    from ...imputer import DiffPuter

    if entry.uncertainty is not None:
        return entry.uncertainty
    return str(entry.settings.get("model_uncertainty", DiffPuter().model_uncertainty))


def _answer(entry: Entry, sample: Sample) -> Answer:
    assert entry.run is not None
    started = time.perf_counter()
    try:
        with _silent():
            intervals, error = entry.run(sample), ""
    except Exception as problem:  # noqa: BLE001 - whatever fails is an answer
        intervals, error = {}, _reason(problem)
    return Answer(intervals, time.perf_counter() - started, 0.0, error)


def _answer_ours(entries: Sequence[Entry], sample: Sample) -> dict[str, Answer]:
    """Fit once, draw for every entry."""
    from ...imputer import DiffPuter

    parameters = {"device": "cpu", "progress": False, **entries[0].settings}
    # What a way needs is learnt by the fit: the one that needs most is asked for.
    parameters["model_uncertainty"] = max(map(_way_of, entries), key=UNCERTAINTIES.index)
    started = time.perf_counter()
    try:
        with _silent():
            seed = derive_seed(sample.seed, "diffputer") % (1 << 31)
            imputer = DiffPuter(random_state=seed, **parameters).fit(sample.incomplete)
    except Exception as problem:  # noqa: BLE001 - whatever fails is an answer
        seconds = time.perf_counter() - started
        return {entry.name: Answer({}, seconds, 0.0, _reason(problem)) for entry in entries}
    fitted = time.perf_counter() - started
    answers = {}
    for entry in entries:
        started = time.perf_counter()
        try:
            with _silent():
                imputer.set_params(model_uncertainty=_way_of(entry))
                draws = imputer.sample(sample.incomplete, n_draws=sample.n_draws)
                intervals, error = analyse_draws(sample.design, list(draws)), ""
        except Exception as problem:  # noqa: BLE001 - whatever fails is an answer
            intervals, error = {}, _reason(problem)
        answers[entry.name] = Answer(intervals, fitted, time.perf_counter() - started, error)
    return answers


@contextmanager
def _silent() -> Iterator[None]:
    """Say nothing of tables that are made up; a short fit warns of itself."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"

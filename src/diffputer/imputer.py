"""DiffPuter, the scikit-learn estimator: checks what comes in and wires the layers; no mathematics."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, validate_data

from . import __version__, persistence
from .analysis.verdicts import overall_error, warn_of_weak, weak_columns
from .em import EMResult, fit_em, impute
from .em_state import Checkpoint
from .errors import InputError, InputTypeError, SettingError, damage_as_error
from .imputations import Imputations
from .modelfiles import MODEL, REMEDIES
from .models import make_engine
from .models.conditional.engine import ConditionalEngine
from .parameters import Parameters
from .reports import origin_of, write_report
from .resampling import choose_models, fit_resampled
from .runtime.devices import Deadline, resolve_device, resolve_precision
from .runtime.memory import enough_memory
from .runtime.progress import Progress, show_progress
from .runtime.seeding import resolve_seed
from .runtime.stages import record_scores, stage
from .sampling import draw_tables
from .settings import ESTIMATES, PaperSettings, Settings, check_choice, check_number
from .tables.constraints import Constraints
from .tables.decoding import as_fitted, check_storage, warn_of_coarse
from .tables.encoding import Codes, Encoded, TableEncoder
from .tables.frames import Table, detach, read_table
from .tables.markers import StatedWords
from .tables.schema import Status
from .tables.shifts import find_shifts, warn_about_shifts
from .tables.textcolumns import TextColumn
from .tables.wishes import bounded_columns, read_wishes
from .trace import FitFacts, warn_if_useless
from .uncertainties import Uncertainty

Method = TypeVar("Method", bound=Callable[..., Any])


def _explaining_memory(method: Method) -> Method:
    """Let a method that runs out of memory say what it needed."""

    @wraps(method)
    def inner(self: DiffPuter, X: Any, *args: Any, **options: Any) -> Any:
        shape = getattr(X, "shape", None) or (len(X),) if hasattr(X, "__len__") else ()
        size = " x ".join(f"{n:,}" for n in shape[:2])
        remedy = "Take fewer rows at a time, a smaller batch_size or fewer draws, or free memory."
        with enough_memory(f"`{method.__name__}` of a table of {size} cells", remedy):
            return method(self, X, *args, **options)

    return cast(Method, inner)


class DiffPuter(Parameters):
    """Fill in missing values by expectation-maximisation with a diffusion model.

    A table goes in (pandas, polars, pyarrow or numpy) and the same table comes out complete: same
    container, dtypes, order and index, observed cells untouched.

    Parameters
    ----------
    engine : {"conditional", "paper"}
        Which model: "conditional" learns to predict any cells of a row from any others and imputes in one
        evaluation; "paper" is the algorithm of Zhang, Fang, Wu and Yu (ICLR 2025).
    quality : {"auto", "fast", "balanced", "best"} or, of engine="paper", {"auto", "fast", "paper"}
        Where the parameters below that are None come from: how much time may be spent on accuracy.
    estimate : {"mean", "median"}
        What is filled in for numbers: the mean has the smallest squared, the median the smallest absolute
        error. Categories get their most probable level.
    categorical_features : sequence of names, positions or booleans, optional
        Columns of numbers that are categories. Text, categories and booleans need not be named.
    bounds : dict of column -> (low, high), optional
        Filled values stay inside; None leaves an end open. Default: the range that was observed.
    schema : Schema or dict of column -> kind, optional
        Override what a column is taken for: "continuous", "integer", "boolean", "categorical",
        "datetime", "duration", "time" or "text" (passed through as it is).
    derived : dict of column -> formula or function, optional
        Missing cells of these columns are computed, ``{"total": "a + b"}``; missing inputs of observed ones
        are solved for: see :class:`diffputer.Constraints`.
    inequalities : sequence of str, optional
        ``["start <= end"]``: filled cells keep to it.
    max_levels : int
        Levels of a category that are modelled; rarer ones are kept but never filled in.
    skip : sequence of names, positions or booleans, optional
        Columns that keep their missing values. Their observed values inform the imputation of others.
    empty : {"zero", "keep"}
        What numbers without any observed value get: 0 with a warning, as by scikit-learn's
        ``keep_empty_features=True``, or nothing. Booleans, categories, text, dates and durations without
        any observed value stay missing.
    fill_all : bool
        Also impute text that is no category: comments, addresses, identifiers. By default it stays missing.
    random_state : int, RandomState or None
        Same seed, same table: same fit (without time_budget). Rows are filled whatever their order or number.
    device : str
        "auto" (a GPU with CUDA if there is one), "cpu", "cuda", "cuda:1"; "mps" with engine="paper" only.
    precision : {"auto", "float32", "bfloat16"}
        Of the network's matrix products; "auto" is bfloat16 on CUDA, float32 elsewhere.
    model_uncertainty : {"linear", "none", "bootstrap"}
        What draws vary besides the missing cells: "linear" the model, as far as it is linear (next to no
        cost; engine="conditional" only); "bootstrap" the model, refitted to resampled rows; "none" nothing.
    bootstrap_models : int
        Of "bootstrap": how many fits, each as long as the first, take turns in drawing.
    time_budget : float, optional
        Seconds that fitting, refits included, and imputing may take. The fit ends with what it has by then.
    checkpoint : path, optional
        A file that keeps the fit's state, twice a minute; the same fit, if killed, goes on from there.
    progress : bool, optional
        Show progress: bars on a terminal or in a notebook, else lines. None: only on a terminal.

    Other Parameters
    ----------------
    em_rounds, em_patience, held_out, learning_rate, batch_size, max_epochs, max_steps, patience, \
weight_average, sampling_steps
        Of both engines: see :class:`diffputer.settings.ConditionalSettings` and
        :class:`diffputer.settings.PaperSettings` for each of these and its default.
    mlp_members, mlp_width, mlp_depth, attention_members, attention_width, attention_depth, dropout, \
mixture_components, boosted_trees, copied_patterns, weight_decay, rate_decay_from, planned_steps, classes
        Of the conditional engine.
    network_per_round, codes, hidden_width, sigma_data, n_draws, em_draws, resampling_rounds, churn, \
noise_log_mean, noise_log_deviation, sigma_max, sigma_min, schedule_exponent
        Of the paper's engine.
    member_training, tree_depth, noised_share
        Of version 0.1: without effect, with a warning.

    Attributes
    ----------
    schema_ : Schema
        What each column was taken for; print it.
    settings_ : ConditionalSettings, PaperSettings or None
        The constants that were used; None if no column had to be modelled.
    trace_ : list of EMRound
        Loss, change and held-out error of every EM round.
    held_out_scores_ : pandas.DataFrame or None
        Of each column: kind, n (cells held out), error (of expected values, whatever ``estimate`` is),
        baseline (the column mean's or top level's), ratio, ratio_error. None if no cells were held out.
    fit_facts_ : FitFacts
        Version, date, seconds, device, and of the table rows, columns, missing cells and a fingerprint.
    seed_ : int
        The seed in use; pass it as ``random_state`` to repeat the fit.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import pandas as pd
    >>> from diffputer import DiffPuter
    >>> df = pd.DataFrame({"x": [1.0, 2.0, None, 4.0] * 10, "y": ["a", "b", "b", None] * 10})
    >>> int(DiffPuter(random_state=0, max_steps=50).fit_transform(df).isna().sum().sum())
    0
    """

    @_explaining_memory
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to an incomplete (or complete) table and return itself; y is ignored.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array of shape (n_rows, n_columns)
            The table.
        """
        started = time.perf_counter()
        device, settings = self._check_parameters()
        deadline = Deadline.after(self.time_budget)
        table = self._read(X, reset=True)
        if table.missing.all():
            raise InputError(
                f"A table must have observed cells, however: all {table.missing.size:,} cells are missing. "
                "Check how the table was read (missing markers, delimiter)."
            )
        self._encoder = TableEncoder.fit(
            table,
            categorical_features=self.categorical_features,
            bounds=self.bounds,
            schema=self.schema,
            max_levels=self.max_levels,
            skip=self.skip,
            empty=self.empty,
            fill_all=bool(self.fill_all),
            codes=cast(Codes, settings.codes) if isinstance(settings, PaperSettings) else "levels",
        )
        self._read_constraints().check(table, self._encoder.schema)
        self._refuse_skipped_in_constraints(table)
        self.seed_ = resolve_seed(self.random_state)
        self._fingerprint = hashlib.sha256(repr(self._encoder.schema).encode()).hexdigest()
        self._names = table.names if table.container != "numpy" else None
        result = self._fit_encoded(table, device, settings, deadline) if self._encoder.width else None
        if result is not None:
            # Decoding alone bounds columns with stated bounds, which may be wider than what was seen.
            stated = np.isin(self._encoder.blocks, bounded_columns(table.names, self.bounds, self.schema))
            result.bounds[:, stated & self._encoder.numeric] = [[-np.inf], [np.inf]]
            beyond = self._encoder.blocks[result.engine.lines & ~stated]
            self._encoder = dataclasses.replace(
                self._encoder, schema=self._encoder.schema.reaching_beyond(beyond.tolist())
            )
            if self._holes(table).any():  # the same numbers as those of `overall_error` below
                warn_if_useless(result.best, result.falls_back, self.time_budget, self.max_steps)
        self._take_over(result)
        warn_of_weak(weak_columns(self.schema_, self.held_out_scores_))
        if self.held_out_scores_ is not None:
            n_imputed = {
                column.name: 0 if column.skip else int(missing.sum())
                for column, missing in zip(self.schema_, table.missing.T, strict=True)
            }
            if (overall := overall_error(self.held_out_scores_, n_imputed)) is not None:
                error, baseline, n = overall
                record_scores(n, error, baseline)
        self.fit_facts_ = FitFacts(
            version=__version__,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - started,
            device=str(device),
            rows=table.n_rows,
            columns=table.n_columns,
            missing=int(table.missing.sum()),
            fingerprint=self._fingerprint,
        )
        return self

    def _take_over(self, result: EMResult | None) -> None:
        self._result = result
        self.schema_ = self._encoder.schema
        self._constraints = self._read_constraints()
        self.settings_ = None if result is None else result.engine.settings
        self.trace_, errors = ([], None) if result is None else (result.trace, result.held_out)
        self.held_out_scores_ = None if errors is None else errors.to_frame(self.schema_)

    def _fit_encoded(
        self, table: Table, device: torch.device, settings: Settings, deadline: Deadline
    ) -> EMResult:
        with stage("encode", rows=table.n_rows, columns=table.n_columns):
            encoded = self._encoder.encode(table)
            digest = hashlib.sha256(repr(self._encoder.schema).encode())
            for start in range(0, table.n_rows, 1 << 14):  # without a copy of the table
                rows = slice(start, start + (1 << 14))
                digest.update(encoded.x[rows].tobytes())
                digest.update(encoded.missing[rows].tobytes())
            self._fingerprint = digest.hexdigest()
        dtype = resolve_precision(self.precision, device)
        make = partial(make_engine, self._encoder.n_levels, settings, device, dtype)
        n_models = self.bootstrap_models if self.model_uncertainty == "bootstrap" else 0
        with stage("train", rows=table.n_rows), self._working() as progress:
            result = fit_em(
                make(),
                encoded.x,
                encoded.missing,
                self._encoder.blocks,
                seed=self.seed_,
                deadline=deadline.share(1 / (1 + n_models)),
                progress=progress,
                checkpoint=self._open_checkpoint(encoded, settings),
                skipped=np.array([column.skip for column in self._encoder.schema])[self._encoder.blocks],
            )
            refits = fit_resampled(
                make, encoded, self._encoder, n_models, seed=self.seed_, deadline=deadline, progress=progress
            )
        # A fitted imputer is the same thing on every machine, and does not hold on to the table.
        return dataclasses.replace(result, resampled=refits).use("cpu", torch.float32)

    def _open_checkpoint(self, encoded: Encoded, settings: Settings) -> Checkpoint | None:
        """Give EM what is told of every round; the benchmark puts its own here."""
        if self.checkpoint is None:
            return None
        return persistence.FileCheckpoint(self.checkpoint, encoded.x, encoded.missing, settings, self.seed_)

    @_explaining_memory
    def transform(self, X: Any) -> Any:
        """Fill in the missing values of a table with the same columns; nothing is fitted again.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array of shape (n_rows, n_columns)
            New rows, or those of the fit.

        Returns
        -------
        the same kind of table as ``X``
            With nothing missing but in columns that are passed through.
        """
        check_is_fitted(self)
        table = self._read_new(X)
        encoded = self._encoder.encode(table)
        if self._result is None or not self._holes(table).any():
            return self._fill(table, encoded.x)
        check_choice("estimate", self.estimate, ESTIMATES)
        result = self._on_device(self._result)
        with stage("impute", rows=table.n_rows), self._working() as progress:
            x = impute(
                encoded.x,
                encoded.missing,
                result,
                seed=self.seed_,
                estimate=self.estimate,
                overwrite=True,
                progress=progress,
            )
        return self._fill(table, x)

    def _fill(self, table: Table, x: NDArray[np.float32]) -> Any:
        with stage("decode", rows=table.n_rows):
            filled = self._encoder.decode(table, x)
            completed = table.with_filled(self._constraints.on(table, self.schema_)(filled))
        # scikit-learn's set_output does not know pyarrow: it gets what it can turn into pandas.
        if hasattr(completed, "to_pandas") and _get_output_config("transform", self)["dense"] == "pandas":
            return completed.to_pandas()
        return completed

    @_explaining_memory
    def sample(self, X: Any, n_draws: int = 5, *, first_draw: int = 0) -> Imputations:
        """Draw completed tables from the conditional distribution of the missing cells.

        With model_uncertainty="linear", draws are those of "none" where there is no linear part to vary
        (engine="paper", held_out=0, more than 64 columns with levels counted): printed draws say so.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array of shape (n_rows, n_columns)
            New rows, or those of the fit.
        n_draws : int
            How many completed tables.
        first_draw : int
            The number of the first: ``sample(X, 20) + sample(X, 63, first_draw=20)`` is ``sample(X, 83)``.

        Returns
        -------
        Imputations
            A sequence of completed tables; only the filled cells are kept n_draws times.
        """
        check_is_fitted(self)
        check_number("n_draws", n_draws, 1, 1 << 31, closed=True, whole=True)
        check_number("first_draw", first_draw, 0, 1_000_000, closed=True, whole=True)
        table = self._read_new(detach(X))
        models = None
        if self._result is not None and self._holes(table).any():
            models = choose_models(self._on_device(self._result), self.model_uncertainty)
        numbers, seed = range(first_draw, first_draw + n_draws), self.seed_
        rules, origin = self._constraints, origin_of(self)
        with stage("sample", rows=table.n_rows, draws=n_draws), self._working() as progress:
            return draw_tables(table, self._encoder, rules, models, numbers, seed, origin, progress)

    def report(self, X: Any, path: str | os.PathLike[str], n_draws: int = 5, max_rows: int = 20_000) -> None:
        """Write one HTML file on what is missing in a table, what would be filled in, and how sure that is.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array of shape (n_rows, n_columns)
            New rows, or those of the fit.
        path : path
            An existing file is replaced.
        n_draws : int
            How often the rows are drawn for the pictures, each as costly as twenty times ``transform``.
        max_rows : int
            Of longer tables, as many rows are drawn; what is missing is told of all.
        """
        check_is_fitted(self)
        write_report(self, X, path, n_draws, max_rows)

    @_explaining_memory
    def uncertainty(self, X: Any, level: float = 0.9) -> Uncertainty:
        """Say how sure the filled values are, without drawing.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame, pyarrow.Table or array of shape (n_rows, n_columns)
            New rows, or those of the fit.
        level : float
            Probability with which a missing number lies between ``lower`` and ``upper``.

        Returns
        -------
        Uncertainty
            Standard deviations and interval ends of numbers, probabilities of levels, and which estimates
            (what ``transform`` returns) lie outside of their interval.
        """
        check_is_fitted(self)
        check_number("level", level, 0.0, 1.0, closed=False, whole=False)
        table = self._read_new(X)
        encoded = self._encoder.encode(table)
        if self._result is None:
            return Uncertainty.of_cells(table, self._encoder, encoded.x, None)
        engine = self._on_device(self._result).engine
        if not isinstance(engine, ConditionalEngine):
            raise SettingError(
                "Uncertainty without drawing needs engine='conditional', however: this imputer has "
                f"engine={engine.name!r}. Use sample, and look at the spread of its draws."
            )
        ends, constrain = ((1 - level) / 2, (1 + level) / 2), self._constraints.on(table, self.schema_)
        with stage("uncertainty", rows=table.n_rows), self._working() as progress:
            cells = engine.describe_cells(encoded.x, encoded.missing, ends, progress, self.estimate)
        cells.estimate = np.clip(cells.estimate, *self._result.bounds)  # as `transform` does
        return Uncertainty.of_cells(table, self._encoder, encoded.x, cells, constrain)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted imputer to one file (safetensors and JSON, no pickle).

        An existing file at the path is replaced.
        """
        check_is_fitted(self)
        persistence.write_model(
            path,
            encoder=self._encoder,
            result=self._result,
            seed=self.seed_,
            parameters=self.get_params(),
            named=self._names is not None,
            fit=self.fit_facts_,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto") -> DiffPuter:
        """Give back the imputer that :meth:`save` wrote, on this or another machine.

        Parameters
        ----------
        device : str
            Where it shall compute from now on.
        """
        model = persistence.read_model(path)
        with damage_as_error(repr(str(path)), REMEDIES[MODEL]):
            imputer = cls(**model["parameters"])
            imputer._encoder, imputer.seed_ = model["encoder"], model["seed"]
            imputer.fit_facts_ = model["fit"]
            imputer._take_over(model["result"])
            imputer._check_loaded()
        imputer.device = device
        imputer._names = imputer.schema_.names if model["named"] else None
        imputer.n_features_in_ = len(imputer.schema_.names)
        if model["named"] and all(isinstance(name, str) for name in imputer.schema_.names):
            imputer.feature_names_in_ = np.asarray(imputer.schema_.names, dtype=object)
        return imputer

    def _keep_spellings(self, spelt: Mapping[str, TextColumn], stated: StatedWords) -> None:
        """Keep how the columns were spelt in the text file that was fitted, and what was stated of words."""
        schema = self._encoder.schema.with_spellings(spelt, stated)
        self._encoder = dataclasses.replace(self._encoder, schema=schema)
        self.schema_ = schema

    def _check_loaded(self) -> None:
        """Refuse parameters that no fit can have had."""
        found = type(self)(**self.get_params(deep=False))
        found.random_state = self.seed_  # an object that made the seed is not kept
        resolve_seed(self.random_state)
        found._check_parameters()
        names = self.schema_.names
        read_wishes(names, self.categorical_features, self.schema)
        read_wishes(names, list(self.bounds or {}), None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_encoder")

    def _read_new(self, X: Any) -> Table:
        """Read rows to be imputed, and warn where they are unlike those of the fit."""
        table = self._read(X, reset=False)
        if table.n_columns == len(self.schema_):
            for position, column in enumerate(self.schema_):
                if column.status in (Status.MODELLED, Status.CONSTANT):
                    check_storage(column, table.cells[position], bool(table.missing[:, position].all()))
            warn_about_shifts(find_shifts(self.schema_, table))
        return table

    def _read(self, X: Any, *, reset: bool) -> Table:
        if issparse(X):
            raise InputTypeError("A table must be dense, however: this is a sparse matrix. Use X.toarray().")
        table = read_table(X)
        if reset and table.n_rows == 0:
            raise InputError("A table must have rows, however: this one has 0 sample(s). Check the input.")
        # Names, order and number of columns, as every scikit-learn estimator checks them.
        remedy = "Hand over the columns of the fit, imputer.schema_.names, in this order."
        try:
            validate_data(self, table.native, reset=reset, skip_check_array=True)
        except TypeError as error:
            raise InputTypeError(str(error)) from None
        except ValueError as error:
            raise InputError(f"{str(error).strip()}\n{remedy}") from None
        # Labels may not be text, at which scikit-learn does not look.
        if not reset and self._names not in (None, table.names) and table.container != "numpy":
            raise InputError(f"Columns must be {self._names}, however: {table.names}. {remedy}")
        if not reset:
            table = as_fitted(table, self.schema_)
            warn_of_coarse(table, self.schema_)
        return table

    def _read_constraints(self) -> Constraints:
        schema = self._encoder.schema
        columns = (schema.columns[j] for j in bounded_columns(schema.names, self.bounds, self.schema))
        bounds = {c.name: (c.lower, c.upper) for c in columns if c.kind.is_numeric}
        return Constraints(self.derived, self.inequalities, bounds)

    def _refuse_skipped_in_constraints(self, table: Table) -> None:
        """A column cannot keep its missing values and be computed from others."""
        schema = self._encoder.schema
        if not (self.derived or self.inequalities) or not any(column.skip for column in schema):
            return
        tied = self._read_constraints().on(table, schema).positions.values()
        if both := [schema.columns[position].name for position in tied if schema.columns[position].skip]:
            raise InputError(
                f"A skipped column must not be in a formula or an inequality; {both[0]!r} is. Leave it out "
                "of one of them."
            )

    def _holes(self, table: Table) -> NDArray[np.bool_]:
        """Missing cells in columns that are modelled. Shape: [n, columns that are modelled]."""
        return table.missing[:, np.unique(self._encoder.blocks)]

    @contextmanager
    def _working(self) -> Iterator[Progress]:
        with show_progress(self.progress) as progress:
            yield progress

    def _on_device(self, result: EMResult) -> EMResult:
        """Give the fitted result where it shall compute, and in the precision it shall have."""
        device = resolve_device(self.device)
        return result.use(device, resolve_precision(self.precision, device))

"""R's mice: chained equations by predictive mean matching or by trees, run by ``Rscript``.

Van Buuren and Groothuis-Oudshoorn 2011. Tables go to R and imputations come back as CSV files with 17 digits,
numbers standardised, categories as factors with all their values.

A new row is imputed by models of the training rows alone: mice gets both, with ``ignore`` for the new ones,
and estimates the models again at every call. (One trace of the new rows is left: the few pseudo-observations
with which mice steadies its logistic models lie at means and deviations of all rows.)

By default mice leaves out predictors, and leaves missing values in columns, without an error: where a column
is constant, where two correlate by 0.999 or more (``remove.constant``, ``remove.collinear``), where a
predictor correlates with the imputed column by 0.99 or more (``maxcor``), or where a variance or the smallest
eigenvalue of the correlations is below 1e-4 (``eps``). All that is switched off here, but for predictors that
are constant or exactly collinear in the rows learnt from: indicators of rare values are, and with eps = 0 the
regression then fails ("exactly singular"). Columns with a single observed value do not go to R.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, SettingError
from .coding import Counts, Floats, Indicators
from .contract import DrawingMethod, Facts, Setting

_SETTINGS = {
    "m": Setting(20, "own choice: imputations whose mean, or most frequent category, is the estimate"),
    "maxit": Setting(5, "mice's default: iterations"),
    "eps": Setting(1e-10, "own choice: mice's 1e-4 drops predictors that matter; 0 fails on rare values"),
    "maxcor": Setting(2.0, "own choice: at mice's 0.99 it drops the predictors that know most"),
}
_SOURCE = "van Buuren and Groothuis-Oudshoorn 2011; their R package mice, run by Rscript."
_CANNOT = "Keep its models: every call estimates them again. Impute a category of more than 50 values"
PMM = Facts(
    name="r-mice-pmm",
    what="R's mice: predictive mean matching; logistic and multinomial regression of categories.",
    source=_SOURCE,
    cannot=f"{_CANNOT}. See relations that are not linear. Multinomial regression of many values is slow.",
    settings=_SETTINGS
    | {
        "donors": Setting(5, "mice's default"),
        "categories": Setting("polyreg", "mice's default, with logreg for two values; or cart, or pmm"),
    },
)
CART = Facts(
    name="r-mice-cart",
    what="R's mice with one regression or classification tree a column; values are drawn from its leaves.",
    source=_SOURCE,
    cannot="Keep its models: every call estimates them again. Follow a smooth relation but in steps.",
    settings=_SETTINGS
    | {
        "minbucket": Setting(5, "mice's default: rows of a leaf"),
        "cp": Setting(1e-4, "mice's default: complexity parameter"),
    },
)
#: How categories of more than two values can be imputed beside numbers by predictive mean matching.
CATEGORIES = ("polyreg", "cart", "pmm")
#: Cross-validation, competing splits and surrogates of a tree change no imputation.
_QUICK = ("xval=0", "maxcompete=0", "maxsurrogate=0")
#: By default mice refuses a multinomial regression with more than 1,500 weights.
_ANY_SIZE = ("nnet.MaxNWts=1e9",)
_REMEDY = "Install R, and in R its package mice (Debian and Ubuntu: the package r-cran-mice)."
_VERSIONS = """
for (name in c("mice", "rpart", "nnet"))
  cat(name, if (nzchar(system.file(package = name))) format(packageVersion(name)), "\n")
cat("R", format(getRversion()), "\n")
"""
#: Arguments: the folder; m, maxit, the seed and how many rows to learn from; the methods of numbers, of
#: categories with two values and of those with more; then name=value of what else mice takes.
_SCRIPT = r"""
suppressPackageStartupMessages(library(mice))
given <- commandArgs(trailingOnly = TRUE)
size <- as.integer(given[2:5])
counts <- scan(file.path(given[1], "levels.csv"), quiet = TRUE)
rows <- read.csv(file.path(given[1], "rows.csv"), colClasses = "numeric")
for (j in which(counts > 0)) {
  codes <- seq_len(counts[j]) - 1
  rows[[j]] <- factor(rows[[j]], codes, paste0("L", codes))
}
how <- given[6:8][ifelse(counts == 0, 1, ifelse(counts == 2, 2, 3))]
more <- strsplit(given[-(1:8)], "=")
more <- setNames(lapply(more, function(pair) as.numeric(pair[2])), vapply(more, `[`, "", 1))
fixed <- list(data = rows, m = size[1], maxit = size[2], seed = size[3], method = how,
              ignore = seq_len(nrow(rows)) > size[4], printFlag = FALSE,
              remove.constant = FALSE, remove.collinear = FALSE)
done <- do.call(mice, c(fixed, more))
# Missing cells of the last rows, column by column; one imputation a column of the file.
first <- if (size[4] < nrow(rows)) size[4] else 0
cells <- lapply(seq_along(rows), function(j) {
  new <- which(is.na(rows[[j]])) > first
  values <- done$imp[[j]][new, , drop = FALSE]
  vapply(values, function(v)
    if (counts[j]) match(as.character(v), levels(rows[[j]])) - 1 else as.numeric(v), numeric(sum(new)))
})
cells <- do.call(rbind, lapply(cells, matrix, ncol = size[1]))
text <- matrix(sprintf("%.17g", cells), ncol = size[1])
write.table(text, file.path(given[1], "imputed.csv"), sep = ",", quote = FALSE, row.names = FALSE,
            col.names = FALSE)
"""


class RMice(DrawingMethod):
    """The package, on standardised numbers and on factors."""

    def _fit(self, x: Floats, n_levels: Counts, seed: int) -> None:
        self.versions = find_versions()
        self._arguments = self._make_arguments()
        self._x, self._n_levels, self._seed = x, n_levels, seed
        self._last: tuple[Any, Floats] | None = None
        lowest, highest = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
        #: Columns with two observed values at least, and the value of the others.
        self._varied, self._only = np.flatnonzero(lowest < highest), lowest

    def _make_arguments(self) -> list[str]:
        """Arguments of the script: the methods of columns, and other arguments of mice."""
        if self.facts.name == CART.name:
            return ["cart", "cart", "cart", *self._name("eps", "maxcor", "minbucket", "cp"), *_QUICK]
        if (chosen := self.settings["categories"]) not in CATEGORIES:
            raise SettingError(f"`categories` must be one of {', '.join(CATEGORIES)}; got {chosen!r}.")
        more = [*self._name("eps", "maxcor", "donors"), *(_QUICK if chosen == "cart" else _ANY_SIZE)]
        return ["pmm", "logreg" if chosen == "polyreg" else chosen, chosen, *more]

    def _name(self, *names: str) -> list[str]:
        return [f"{name}={self.settings[name]}" for name in names]

    def _complete(self, x: Floats) -> Floats:
        imputed = self._impute(x, int(self.settings["m"]), np.random.default_rng(self._seed))
        indicators = Indicators(self._n_levels)
        return indicators.collapse(np.mean([indicators.expand(one) for one in imputed], axis=0))

    def _draw(self, x: Floats, n_draws: int, random: np.random.Generator) -> Iterator[Floats]:
        yield from self._impute(x, n_draws, random)

    def _impute(self, x: Floats, count: int, random: np.random.Generator) -> list[Floats]:
        """Several imputations of x; the same table and seed give the first of the same imputations."""
        m, seed = max(count, int(self.settings["m"])), int(random.integers(1, 1 << 31))
        key = (x.shape, x.tobytes(), m, seed)
        if self._last is None or self._last[0] != key:
            self._last = key, self._run(x[:, self._varied], m, seed)
        column, row = np.nonzero(np.isnan(x[:, self._varied]).T)
        start = np.where(np.isnan(x), self._only, x)
        found = []
        for values in self._last[1].T[:count]:
            completed = start.copy()
            completed[row, self._varied[column]] = values
            found.append(completed)
        return found

    def _run(self, x: Floats, m: int, seed: int) -> Floats:
        """Imputations of the missing cells, column by column. Shape: [n, p] -> [cells, m]."""
        if not np.isnan(x).any():
            return np.empty((0, m))
        if x.shape[1] < 2:
            raise InputError(
                f"R's mice needs two columns whose values differ; the table has {x.shape[1]}. "
                "Take another method."
            )
        fitted = self._x[:, self._varied]
        # The training table itself is imputed as mice does it, without a copy of it to ignore.
        rows = x if np.array_equal(x, fitted, equal_nan=True) else np.concatenate([fitted, x])
        sizes = [m, self.settings["maxit"], seed, len(fitted)]
        with tempfile.TemporaryDirectory(prefix="diffputer-mice-") as folder:
            head = ",".join(f"x{j + 1}" for j in range(x.shape[1]))
            text = np.where(np.isnan(rows), "NA", np.char.mod("%.17g", rows))
            np.savetxt(Path(folder, "rows.csv"), text, fmt="%s", delimiter=",", header=head, comments="")
            np.savetxt(Path(folder, "levels.csv"), self._n_levels[self._varied], fmt="%d")
            Path(folder, "impute.R").write_text(_SCRIPT, encoding="utf-8")
            done = run_r([str(Path(folder, "impute.R")), folder, *map(str, sizes), *self._arguments])
            if done.returncode:
                raise InputError(f"R's mice failed: {' '.join(done.stderr.split())[-800:]}")
            return np.loadtxt(Path(folder, "imputed.csv"), delimiter=",", ndmin=2)


def run_r(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run Rscript with one thread and without the user's start-up files."""
    command = shutil.which("Rscript")
    if command is None:
        raise SettingError(f"R's mice is run by Rscript, which must be on the PATH; it is not. {_REMEDY}")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads}
    return subprocess.run(
        [command, "--vanilla", *arguments], capture_output=True, text=True, errors="replace", env=environment
    )


def find_versions() -> dict[str, str]:
    """Versions of R and of the packages that are used; raises SettingError without them."""
    return dict(_find_versions(shutil.which("Rscript")))


@cache
def _find_versions(command: str | None) -> tuple[tuple[str, str], ...]:
    """Ask R once for each place where it is."""
    lines = run_r(["-e", _VERSIONS]).stdout.splitlines()
    found = tuple((words[0], words[1]) for line in lines if len(words := line.split()) == 2)
    if "mice" not in dict(found):
        raise SettingError(f"R must have its package mice; {command} does not find it. {_REMEDY}")
    return found

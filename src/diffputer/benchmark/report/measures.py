"""What a result is judged by: names, units and which end is good."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SettingError


@dataclass(frozen=True)
class Measure:
    """A number of a result and how to show it.

    Attributes
    ----------
    name
        The column of a row, or "seconds" for fitting and completing together.
    title
        For people.
    unit
        Of the numbers shown.
    scale
        What is shown is the number times this.
    decimals
        Digits after the point.
    target
        None where small is good, infinity where large is good, else the number that is best.
    """

    name: str
    title: str
    unit: str = ""
    scale: float = 1.0
    decimals: int = 2
    target: float | None = None

    def loss(self, value: float) -> float:
        """Give a number that is smaller, the better the value.

        Examples
        --------
        >>> MEASURES["mae"].loss(0.3), MEASURES["accuracy"].loss(0.7)
        (0.3, -0.7)
        >>> round(MEASURES["coverage"].loss(0.85), 10), MEASURES["energy"].loss(-0.02)
        (0.05, 0.02)
        """
        if self.target is None:
            return value
        return -value if self.target == float("inf") else abs(value - self.target)

    def show(self, value: float) -> str:
        """Write a value, times the scale.

        Examples
        --------
        >>> MEASURES["mae"].show(0.33468), MEASURES["seconds"].show(1927.4), MEASURES["seconds"].show(0.0123)
        ('33.47', '1,927', '0.01')
        """
        number = value * self.scale
        decimals = self.decimals if abs(number) < 100 or self.scale != 1.0 else 0
        return f"{number:,.{decimals}f}"

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def direction(self) -> str:
        """Which values are good, in words."""
        if self.target is None:
            return "lower is better"
        if self.target == float("inf"):
            return "higher is better"
        return f"{self.target * self.scale:g} is best"


_LARGE = float("inf")
_ALL = (
    Measure("mae", "MAE", "× 100", 100.0),
    Measure("rmse", "RMSE", "× 100", 100.0),
    Measure("accuracy", "Accuracy", "%", 100.0, target=_LARGE),
    Measure("mae_median", "MAE of the median", "× 100", 100.0),
    Measure("rmse_median", "RMSE of the median", "× 100", 100.0),
    # An unbiased estimate is below 0 by chance at times: what counts is how far from 0 it is.
    Measure("energy", "Energy distance", "× 100", 100.0, target=0.0),
    Measure("auc", "AUC, imputed against true rows", decimals=3, target=0.5),
    Measure("crps", "CRPS", "× 100", 100.0),
    Measure("coverage", "Coverage of 90 % intervals", "%", 100.0, target=0.9),
    Measure("seconds", "Fit and complete", "s"),
    Measure("fit_seconds", "Fit", "s"),
    Measure("transform_seconds", "Complete", "s"),
    Measure("draw_seconds", "Draw", "s"),
    Measure("peak_memory_gb", "Peak memory", "GB"),
)
#: Name -> measure.
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _ALL}
#: What the paper reports of every method.
PAPERS_MEASURES = ("mae", "rmse", "accuracy")
#: Of draws, energy distances at times of a table filled in once: comparable only of the same rows.
OF_DRAWS = frozenset({"coverage", "crps", "energy", "auc"})
#: Errors below 0 cannot be; energy distances can, by chance.
NOT_NEGATIVE = frozenset({"mae", "rmse", "mae_median", "rmse_median", "crps"})
SHARES = frozenset({"accuracy", "coverage", "auc"})
#: Comparable only on the same machine.
OF_TIME = frozenset({"seconds", "fit_seconds", "transform_seconds", "draw_seconds"})

#: The paper's order: numbers only, then mixed.
_DATASETS = ("california", "letter", "gesture", "magic", "bean", "adult", "default", "shoppers", "news")


def find_measure(name: str) -> Measure:
    """Give a measure by its name, or say which there are."""
    if name not in MEASURES:
        raise SettingError(f"A metric must be one of {', '.join(MEASURES)}, however: {name!r} is not.")
    return MEASURES[name]


def order_datasets(names: set[str]) -> list[str]:
    """Put data sets in the paper's order, others after them.

    Examples
    --------
    >>> order_datasets({"zoo", "adult", "letter"})
    ['letter', 'adult', 'zoo']
    """
    return sorted(names, key=lambda n: (_DATASETS.index(n) if n in _DATASETS else len(_DATASETS), n))

"""What EM says of each of its rounds."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .errors import warn_about_data


@dataclass(frozen=True)
class FitFacts:
    """When, where and on what an imputer was fitted."""

    version: str
    """Of diffputer."""
    date: str
    """Of the end of the fit, in UTC."""
    seconds: float
    device: str
    rows: int
    columns: int
    missing: int
    """Missing cells of the table."""
    fingerprint: str
    """SHA-256 of the encoded table and its schema: equal tables have the same."""

    def check(self) -> None:
        """Raise TypeError or ValueError for what no fit gives, as in a damaged file."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value).__name__ != field.type:
                raise TypeError(f"{field.name} of a fit must be of type {field.type}, and is {value!r}")
        if min(self.seconds, self.rows, self.columns, self.missing) < 0:
            raise ValueError("counts of a fit must not be negative")


@dataclass(frozen=True)
class EMRound:
    """One line of the trace; errors and changes are in standard deviations of the columns."""

    round: int
    steps: int
    """Training steps after which the held-out loss was lowest: those of the weights that are used."""
    loss: float
    held_out_loss: float
    held_out_error: float
    """Mean absolute error of held-out cells in columns that have missing values; a wrong category is one."""
    baseline_error: float
    """The same for column means (and the most frequent levels)."""
    change: float
    """Root mean squared change of the imputed cells since the last round."""
    m_seconds: float
    e_seconds: float

    @property
    def useless(self) -> bool:
        """Whether column means would have done as well on the held-out cells, which were not all right."""
        return self.held_out_error > 0 and self.held_out_error >= self.baseline_error


def warn_if_useless(
    best: EMRound, falls_back: bool, time_budget: float | None, max_steps: int | None
) -> None:
    """Warn where held-out cells say that column means would have done as well, and name the fit's limits."""
    if best.useless:
        errors = best.held_out_error, best.baseline_error
        digits = 2 if f"{errors[0]:.2f}" != f"{errors[1]:.2f}" else 4
        given = {"time_budget": time_budget, "max_steps": max_steps}
        limits = [name for name, limit in given.items() if limit is not None]
        other = (
            f"the fit was too short: try a larger {' or '.join(limits)}"
            if limits
            else "too few of their cells are observed in the same rows to tell"
        )
        instead = "; transform fills in column means instead, sample draws from the model all the same"
        warn_about_data(
            "Imputed values are no better than column means on held-out cells (error "
            f"{errors[0]:.{digits}f} against {errors[1]:.{digits}f}, in standard deviations; a wrong "
            "category counts as one)"
            f"{instead if falls_back else ''}. Columns may tell nothing about each other, or {other}."
        )

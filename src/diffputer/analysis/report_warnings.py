"""What deserves a look before imputed values are used, in plain words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..tables.markers import MarkerWord
from ..tables.schema import Status
from .diagnostics import Convergence
from .origin import Origin
from .verdicts import USELESS, WEAK_TITLE, WEAK_WORDS, Verdict, judge_line, weak_columns
from .views import View
from .wording import count, share_text, short

UNLIKELY = 0.01  # probability of a level nowhere being filled in that is reported
PILED = 0.05  # share of filled values at an end of the range beyond that of observed ones
MOSTLY = 0.5  # share of missing cells from which a column is called mostly missing

SERIOUS, LOOK, NOTE = "serious", "look", "note"


@dataclass(frozen=True)
class Concern:
    """One sort of trouble and the columns that have it.

    Attributes
    ----------
    severity : str
        "serious", "look" or "note".
    title, words : str
        What it is; what it means and what to do.
    columns : dict of position -> str
        Whom it concerns, each with a few words.
    """

    severity: str
    title: str
    words: str
    columns: dict[int, str] = field(default_factory=dict)


def find_warnings(
    view: View,
    charts: dict[int, dict[str, Any]],
    drifts: pd.DataFrame,
    unfilled: pd.DataFrame,
    left: Sequence[int],
    n_draws: int,
    origin: Origin,
    converged: Convergence,
    marker_words: Sequence[MarkerWord] = (),
) -> list[Concern]:
    """Collect all warnings, the serious ones first; sorts without columns are left out.

    Parameters
    ----------
    view
        The incomplete table.
    charts
        By position, what `chart_of` gives.
    drifts, unfilled
        What `drift` and `never_filled` give.
    left
        Of each column, the cells that are still missing.
    n_draws, origin, converged
        Completed tables; which model they come from; what its trace says.
    marker_words
        Words of the text file that mark missing values, or might.
    """
    places = {name: place for place, name in enumerate(view.table.names)}
    judged = _about_the_model(view, origin, converged, places)
    found = [
        *judged,
        *_about_columns(view, left),
        *_about_filled(charts, drifts, unfilled, places),
        *_about_levels(view),
        *_about_words(marker_words, places),
    ]
    scores = origin.held_out
    if scores is not None:  # what is serious is not listed again
        serious = {place for one in judged if one.severity == SERIOUS for place in one.columns}
        scores = scores[[places.get(name) not in serious for name in scores.index]]
    weak = {places[one.column]: ", ".join(one.reasons) for one in weak_columns(view.schema, scores)}
    gaps = {place for place in weak if view.missing[:, place].any()}  # here, if not in the table of the fit
    if weak := {place: words for place, words in weak.items() if place in gaps and not left[place]}:
        found.append(Concern(LOOK, WEAK_TITLE, WEAK_WORDS, weak))
    if n_draws == 1 and view.missing.any():
        words = "One completed table cannot show how far filled values might be off. Ask for several draws."
        found.append(Concern(NOTE, "Only one completed table", words))
    order = (SERIOUS, LOOK, NOTE)
    return sorted(found, key=lambda one: order.index(one.severity))


def _about_the_model(
    view: View, origin: Origin, converged: Convergence, places: dict[Hashable, int]
) -> list[Concern]:
    found = []
    weak = {one.column for one in weak_columns(view.schema, origin.held_out)}
    failed: dict[int, str] = {}
    unknown: dict[int, str] = {}
    for line in () if origin.held_out is None else origin.held_out.itertuples():
        place = places.get(line.Index)
        if place is None or not view.missing[:, place].any() or not line.ratio >= USELESS:
            continue  # both never wrong, 0 / 0, among them
        numbers = f"error {line.error:.2f}, column's own {line.baseline:.2f}"
        if judge_line(line) == Verdict.NO_BETTER:
            failed[place] = numbers
        elif line.Index not in weak:  # those are listed as such
            unknown[place] = f"{numbers}, {count(int(line.n), 'cell')}"
    if failed:
        words = (
            "Cells that were hidden from the fit were filled in no better than by the column's mean or "
            "most frequent level. The other columns may tell nothing about these, or there was too "
            "little data or time to learn it. Single filled values carry no information; whether draws "
            "spread as they should, over-imputation tells."
        )
        found.append(Concern(SERIOUS, "Columns that could not be predicted", words, failed))
    if unknown:
        words = (
            "No better than the column's mean or most frequent level so far, but too few cells were hidden "
            "from the fit to tell. Over-imputation hides more."
        )
        found.append(Concern(NOTE, "Not known yet: were these predicted?", words, unknown))
    if converged.converged is False:
        found.append(Concern(LOOK, "The fit had not settled", converged.verdict))
    return found


def _about_columns(view: View, left: Sequence[int]) -> list[Concern]:
    n = max(view.table.n_rows, 1)
    counts = view.missing.sum(axis=0).tolist()
    empty: dict[int, str] = {}
    elsewhere: dict[int, str] = {}
    mostly: dict[int, str] = {}
    constant: dict[int, str] = {}
    remain: dict[int, str] = {}
    for place, column in enumerate(view.schema):
        if not counts[place]:
            continue
        if counts[place] == view.table.n_rows and column.status == Status.EMPTY:
            empty[place] = "left missing" if left[place] else "filled with a placeholder"
            continue
        if counts[place] == view.table.n_rows and not left[place]:
            elsewhere[place] = count(counts[place], "cell")
            continue
        if left[place]:
            text = column.status in (Status.PASSED_THROUGH, Status.IDENTIFIER)
            remain[place] = f"{left[place]:,} cells" + (", free text or identifiers" if text else "")
        elif column.status == Status.CONSTANT:
            constant[place] = f"always {short(column.fill, 30)}"
        if left[place] == counts[place]:
            continue
        if counts[place] / n > MOSTLY and column.status != Status.CONSTANT:
            mostly[place] = f"{share_text(counts[place] / n)} missing"
    sorts = [
        (SERIOUS, "Columns without any value", "Nothing was observed, so nothing can be learnt. Leave "
         "them out of analyses.", empty),
        (LOOK, "Columns without any value in this table", "They had values in the table that the model was "
         "fitted to. All that stands here now is imputed from the other columns.", elsewhere),
        (LOOK, "Mostly missing", "More was filled in than observed. Results that lean on these columns lean "
         "on the model; report them with several draws, and without these columns.", mostly),
        (NOTE, "Cells that are left missing", "These columns were not imputed: free text, identifiers, "
         "skipped columns, or columns that the model does not know.", remain),
        (NOTE, "Columns of one value", "Every observed cell is the same, and so is every filled "
        "one.", constant),
    ]  # fmt: skip
    return [Concern(*one) for one in sorts if one[3]]


def _about_filled(
    charts: dict[int, dict[str, Any]],
    drifts: pd.DataFrame,
    unfilled: pd.DataFrame,
    places: dict[Hashable, int],
) -> list[Concern]:
    moved, lost, piled = {}, {}, {}
    for line in drifts[drifts["marked"].astype(bool)].itertuples():
        if line.difference == line.difference:  # not NaN: numbers
            words = f"mean {_signed(line.difference)} standard deviations, spread × {line.spread:.2f}"
            if line.spread != line.spread:  # NaN: one value was observed
                words = f"mean {_signed(line.difference)}, though only one value was observed"
        else:
            words = f"{share_text(line.distance)} of the filled cells would need another level"
        moved[places[line.column]] = words
    for name, lines in unfilled[unfilled["probability"] < UNLIKELY].groupby(
        "column", sort=False, dropna=False
    ):
        shown = ", ".join(short(level, 24) for level in lines["level"].head(4))
        more = f" and {len(lines) - 4:,} more" if len(lines) > 4 else ""
        lost[places[name]] = shown + more
    for place, found in charts.items():
        if found["piled"] > PILED:
            piled[place] = f"{share_text(found['piled'])} of the filled values more than among observed ones"
    sorts = [
        (LOOK, "Filled values that differ from observed ones", "This is expected where rows with holes "
        "differ "
         "in other columns too, and suspicious where they do not. Look at the column: do the filled values "
         "make sense for the rows they stand in?", moved),
        (LOOK, "Filled values pile up at the ends of the range", "Filled values are kept inside the observed "
         "range. Many at its very end mean that the model wanted to go beyond: state wider bounds if "
         "larger or "
         "smaller values are possible.", piled),
        (LOOK, "Levels that were never filled in", "These levels occur, yet no hole got one, in any draw: "
        "less "
         "than one chance in a hundred if holes were like observed cells. Best guesses often leave out rare "
         "levels; draws should not.", lost),
    ]  # fmt: skip
    return [Concern(*one) for one in sorts if one[3]]


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _about_levels(view: View) -> list[Concern]:
    rare: dict[int, str] = {}
    strange: dict[int, str] = {}
    for place, column in view.usable():
        if not column.levels or column.kind.is_numeric:
            continue
        codes, levels = view.table.cells[place].labels()
        seen = {int(code) for code in set(codes.tolist()) if code >= 0}
        known = set(column.levels)
        unknown = [levels[code] for code in sorted(seen) if levels[code] not in known]
        if unknown and column.other_levels:
            rare[place] = f"{len(unknown):,} levels"
        elif unknown:
            strange[place] = ", ".join(short(level, 24) for level in unknown[:4]) + (
                f" and {len(unknown) - 4:,} more" if len(unknown) > 4 else ""
            )
    sorts = [
        (LOOK, "Levels that the model has never seen", "They occur in this table and did not in the fit. "
        "They "
         "are kept, tell the model nothing about their rows, and are never filled in.", strange),
        (NOTE, "Rare levels that are not modelled", "Only the most frequent levels are modelled "
        "(max_levels). "
         "The others are kept and never filled in.", rare),
    ]  # fmt: skip
    return [Concern(*one) for one in sorts if one[3]]


def _about_words(words: Sequence[MarkerWord], places: dict[Hashable, int]) -> list[Concern]:
    """Words of the file that were taken for missing values, and those that were kept, with their counts."""
    sorts = (
        (True, "Words taken for missing values", "The file has these words where a value is missing, and "
         "they count as missing here. Where one is an answer, use --keep WORD or --keep COLUMN=WORD."),
        (False, "Words kept as answers", "These words mark missing values in other files. Here they are "
         "observed values. Where one marks a missing value, use --missing WORD or --missing COLUMN=WORD."),
    )  # fmt: skip
    found = []
    for taken, title, explanation in sorts:
        columns: dict[int, list[str]] = {}
        for one in words:
            if one.taken_for_missing == taken and one.column in places:
                cells = f"{one.word!r} in {count(one.count, 'cell')} ({one.reason})"
                columns.setdefault(places[one.column], []).append(cells)
        if columns:
            listed = {place: ", ".join(cells) for place, cells in columns.items()}
            found.append(Concern(NOTE, title, explanation, listed))
    return found

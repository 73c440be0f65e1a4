"""Sentences of a report: what was done, why cells may be missing, what words mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..tables.schema import Column, Status
from .profiles import MissingnessProfile
from .report_facts import Facts
from .verdicts import overall_error
from .wording import count, short

_USED = (Status.MODELLED, Status.CONSTANT)
SAME = 0.95  # correlation of holes from which columns are said to be missing together

GLOSSARY = {
    "Baseline": "What one would fill in without a model: the mean of a column of numbers, the most frequent "
    "level of a category.",
    "Draw": "One completed table whose filled values are drawn at random from what the model holds possible. "
    "Differences between draws show how unsure filled values are.",
    "Held-out error": "Some observed cells were hidden from the fit and filled in by what is expected. The "
    "mean absolute error of that, in standard deviations of the column; for categories, the share of wrong "
    "levels. It tells about cells that are missing completely at random, and is slightly too good, as the "
    "same cells told when to stop the fit.",
    "Not known yet (?)": "So few cells of the column were held out, or a few of them weigh so much, that "
    "chance may explain its error beside that of the baseline: neither that it was predicted nor that it "
    "was not.",
    "Spread of draws": "Standard deviation between the draws of a cell, on average, in standard "
    "deviations of the column: near 0, the other columns settle the value; near 1, they tell nothing. For "
    "categories: how many draws agree with the most frequent one.",
    "Range of draws": "From the smallest to the largest draw of one cell. If draws are right, the range of m "
    "draws holds the missing value with probability (m − 1) / (m + 1): 67 % for 5 draws, 90 % for 19.",
    "Drift": "How filled values differ from observed ones: difference of means in standard deviations; for "
    "categories, the share of cells that would need another level (total variation). A column is marked "
    "where chance would do so in less than one of a hundred.",
    "AUC": "How well values of other columns tell, on rows not seen before, where a column is missing: 0.5 "
    "is chance, 1 is certainty. That columns are missing together does not count.",
    "MCAR": "Missing completely at random: holes have nothing to do with any value. Complete rows are "
    "then like all rows.",
    "MAR": "Missing at random: holes depend on values that were observed. Imputation that uses those "
    "columns is valid; leaving incomplete rows out may not be.",
    "MNAR": "Missing not at random: holes depend on the very values that are missing. No test on the data "
    "can tell this from MAR; knowledge of how the data came about can.",
}


def percent(part: float, whole: float) -> str:
    """Write a share with as many digits as it needs.

    Examples
    --------
    >>> percent(1, 3), percent(1, 3000), percent(0, 5), percent(2999, 3000)
    ('33.3 %', '< 0.1 %', '0 %', '> 99.9 %')
    """
    share = part / whole if whole else 0.0
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    if share < 0.001 or share > 0.999:
        return "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.1f} %"


def overall_errors(facts: Facts) -> tuple[float, float, int] | None:
    """Held-out error of the columns that are imputed, that of column means, and the number of cells.

    None where nothing was held out; 0 cells where their number is not known.
    """
    scores = facts.origin.held_out
    if scores is not None:
        return overall_error(scores, {one.column.name: one.n_missing - one.n_left for one in facts.columns})
    lines = [line for line in facts.origin.trace if not math.isnan(line.held_out_error)]
    best = min(lines, key=lambda line: line.held_out_error, default=None)
    return None if best is None else (best.held_out_error, best.baseline_error, 0)


def methods_text(facts: Facts) -> str:
    """Write what was done as a methods section would."""
    p, origin = facts.profile, facts.origin
    holes = int((p.columns["n_missing"] > 0).sum())
    words = [
        f"The table has {count(p.n_rows, 'row')} and {count(p.n_columns, 'column')}. "
        f"{count(p.n_missing, 'cell')} ({percent(p.n_missing, p.n_rows * p.n_columns)}) in "
        f"{count(holes, 'column')} {'was' if p.n_missing == 1 else 'were'} missing; "
        f"{count(p.n_complete_rows, 'row')} ({percent(p.n_complete_rows, p.n_rows)}) "
        f"{'was' if p.n_complete_rows == 1 else 'were'} complete."
    ]
    if not p.n_missing:
        return words[0]
    by = f" by {origin.method}" if origin.method else ""
    if origin.method.startswith("DiffPuter"):
        left_out = [one.column for one in facts.columns if one.column.status not in _USED]
        if left_out:
            listed = [f"{short(one.name, 22) or '(no name)'} ({_why(one)})" for one in left_out]
            words.append(f"The model does not use {_list(listed)}.")
    version = origin.software.get("diffputer", "")
    made = ", ".join(
        part
        for part in (version and f"diffputer {version}", "" if origin.seed is None else f"seed {origin.seed}")
        if part
    )
    made = f" ({made})" if made else ""
    if facts.written:
        which = f": {origin.estimate}" if origin.estimate else ""
        words.append(
            f"Missing values were imputed once{by}{made}, each with a single best estimate{which}. Best "
            "estimates vary less than the true values; statistics such as standard errors and correlations "
            f"need multiple imputations. {count(facts.n_draws, 'random draw')} of the same model, shown here "
            "for comparison, are not part of the result."
        )
    elif facts.n_draws > 1:
        words.append(
            f"Missing values were imputed {facts.n_draws} times{by}{made}: the result is "
            f"{facts.n_draws} multiple imputations."
        )
    else:
        words.append(f"Missing values were imputed once{by}{made}.")
    if origin.method.startswith("DiffPuter") and (n_rows := _rows_of_another_fit(facts)):
        words.append(f"The model was fitted to another table, of {count(n_rows, 'row')}.")
    if (scores := overall_errors(facts)) is not None:
        of = " of expected values" if origin.parameters.get("estimate") == "median" else ""
        cells = "observed cells"
        if scores[2]:
            cells = f"{scores[2]:,} observed cells of the columns with missing values"
        words.append(
            f"On {cells} that were hidden from the fit, the mean absolute error{of} was "
            f"{scores[0]:.2f} standard deviations (a wrong category counts as one), against "
            f"{scores[1]:.2f} for column means and most frequent categories."
        )
    if facts.n_left:
        names = [one.column.name for one in facts.columns if one.n_left]
        stay = "stays" if facts.n_left == 1 else "stay"
        words.append(f"{count(facts.n_left, 'cell')} {stay} missing, in {_list(names)}.")
    return " ".join(words)


def _rows_of_another_fit(facts: Facts) -> int:
    """Rows of the table that the model was fitted to, or 0 if it was one like this."""
    same = all(
        (one.column.n_missing, one.column.n_observed) == (one.n_missing, one.n_rows - one.n_missing)
        for one in facts.columns
    )
    return 0 if same else max(one.column.n_missing + one.column.n_observed for one in facts.columns)


def _why(column: Column) -> str:
    return str(column.kind) if column.status == Status.PASSED_THROUGH else str(column.status)


def reasons(facts: Facts) -> list[str]:
    """Say, carefully, what the holes say about why there are holes."""
    profile = facts.profile
    if not profile.n_missing:
        return ["Nothing is missing."]
    asked = profile.predictors
    telling = asked[asked["depends"].astype(bool)] if len(asked) else asked
    little = profile.little
    p_value = math.nan if little is None or not little.tells else little.p_value
    words = []
    if len(telling) or p_value < 0.05:
        parts = []
        if len(telling):
            parts.append(
                f"values of other columns tell where {_list(telling['column'].tolist())} "
                f"{'is' if len(telling) == 1 else 'are'} missing"
            )
        if p_value < 0.05:
            parts.append(f"Little's test{_of_a_part(profile)} speaks against it")
        words.append(
            f"Missing completely at random (MCAR) is implausible: {' and '.join(parts)}. Rows with holes "
            "differ from complete ones, so leaving them out may distort results. Imputation can make up "
            "for this as far as the columns that tell are in the table."
        )
    else:
        # What was not asked, or of a part only, is not said to be silent.
        silent = [
            *(["values of other columns do not tell where holes are"] if len(asked) else []),
            *([f"Little's test{_of_a_part(profile)} is silent"] if p_value >= 0.05 else []),
        ]
        if little is not None and not little.tells and not math.isnan(little.p_value):
            silent.append(f"Little's test{_of_a_part(profile)} cannot tell, {little.why_not}")
        words.append(
            f"Nothing speaks against missing completely at random (MCAR): "
            f"{' and '.join(silent) or 'there was nothing to test'}. That is no proof: weak or unusual "
            "dependence goes unnoticed."
        )
    words.append(
        "Whether cells are missing because of their own values (MNAR), such as high incomes that are not "
        "told, cannot be seen in any table. Ask how the data were collected, and see how results change if "
        "filled values are shifted."
    )
    if groups := _missing_together(profile):
        shown = "; ".join(_list(group) for group in groups[:4])
        more = f"; and {len(groups) - 4:,} more groups" if len(groups) > 4 else ""
        words.append(
            f"Missing nearly always together: {shown}{more}. They may come from one source, form or sensor; "
            "within such a group, columns cannot help to fill each other."
        )
    if facts.along:
        names = _list([facts.columns[place].column.name for place in facts.along])
        words.append(
            f"Missing in some parts of the table rather than in others, row by row: {names}. Rows may come "
            "from several sources, times or versions of a form, some of which lack these."
        )
    return words


def _of_a_part(profile: MissingnessProfile) -> str:
    part = "" if profile.little is None else profile.little.part
    return f" (of {part})" if part else ""


def _missing_together(profile: MissingnessProfile) -> list[list[Any]]:
    values = np.nan_to_num(profile.correlation.to_numpy())
    names, left, groups = list(profile.correlation.index), set(range(len(values))), []
    for k in range(len(values)):
        group = [j for j in sorted(left) if values[k, j] > SAME]
        if k in left and len(group) > 1:
            groups.append([names[j] for j in group])
            left -= set(group)
    return groups


def _list(names: list[Any], most: int = 6) -> str:
    shown = [short(name, 40) or "(no name)" for name in names[:most]]
    if len(names) > most:
        return ", ".join(shown) + f" and {len(names) - most:,} more"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + f" and {shown[-1]}"

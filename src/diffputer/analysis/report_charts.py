"""The numbers of a report as cells of its tables, and as what its charts are drawn from."""

from __future__ import annotations

import math
from typing import Any

from .report_columns import NAME
from .report_facts import ColumnFacts, Facts
from .report_html import bar
from .verdicts import Verdict, judge_line
from .wording import count, share_text, short


def ratio_of(one: ColumnFacts) -> float | None:
    return (
        None
        if one.held is None or not one.held.n or not math.isfinite(one.held.ratio)
        else float(one.held.ratio)
    )


def held_cell(one: ColumnFacts) -> str:
    ratio = ratio_of(one)
    if ratio is None:
        return ""
    words = f'{one.held.error:.2f} <small class="own">of {one.held.baseline:.2f}</small>'
    verdict = judge_line(one.held)
    if verdict == Verdict.UNKNOWN:
        words += f' <small title="{count(int(one.held.n), "cell")}: not known yet">?</small>'
    return bar(ratio, words, {Verdict.BETTER: "good", Verdict.NO_BETTER: "bad"}.get(verdict, ""))


def spread_cell(one: ColumnFacts) -> tuple[str, float | None]:
    sure = None if one.described is None else one.described["sure"]
    if sure is None:
        return "", None
    if "spread" in sure:
        return f"{sure['spread']:.2f} <small>sd</small>", sure["spread"]
    return f"{share_text(sure['agreement'])} <small>agree</small>", 1 - sure["agreement"]


def drift_cell(one: ColumnFacts) -> tuple[str, float | None]:
    if one.drift is None:
        return "", None
    if one.drift.difference == one.drift.difference:
        return f"{one.drift.difference:+.2f} <small>sd</small>".replace("-", "−"), abs(one.drift.difference)
    return f"{share_text(one.drift.distance)} <small>moved</small>", float(one.drift.distance)


def group_names(facts: Facts) -> list[str]:
    """What the page sets side by side: observed values, written ones and, where those are others, draws."""
    if facts.written:
        return ["observed", f"imputed ({facts.written})", "random draws, for comparison"]
    return ["observed", f"imputed ({facts.n_draws:,} draws)" if facts.n_draws > 1 else "imputed"]


def chart_data(facts: Facts) -> dict[str, Any]:
    """Give what the charts are drawn from."""
    columns = []
    for one in facts.columns:
        described = one.described or {"stats": [], "sure": None, "chart": None}
        held = (
            None
            if ratio_of(one) is None
            else [float(one.held.error), float(one.held.baseline), int(one.held.n), str(judge_line(one.held))]
        )
        told = None if one.told is None else [_number(one.told.auc), [short(n, 60) for n in one.told.told_by]]
        columns.append(
            {
                "name": short(one.column.name, NAME) or "(no name)",
                "kind": str(one.column.kind),
                "status": str(one.column.status),
                "rows": one.n_rows,
                "missing": one.n_missing,
                "left": one.n_left,
                "held": held,
                "told": told,
                "drift": None
                if one.drift is None
                else drift_cell(one)[0].replace("<small>", "").replace("</small>", ""),
                "warnings": [list(line) for line in one.warnings],
                **{name: described[name] for name in ("stats", "sure", "chart")},
            }
        )
    trace = [
        [int(line.round), _number(line.held_out_error), _number(line.baseline_error), _number(line.change)]
        for line in facts.origin.trace
    ]
    return {
        "columns": columns,
        "matrix": facts.matrix,
        "together": facts.together,
        "trace": trace,
        "draws": facts.n_draws,
        "groups": group_names(facts),
        "best": facts.convergence.best_round,
    }


def _number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None

"""What a comparison comes to, in sentences: which method to use, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..analysis.wording import short
from .runs import show_seconds
from .scoring import Scores

#: A column with so many levels makes a table wide for methods that give each level a column of its own.
MANY_LEVELS = 50


def find_ties(scores: Scores) -> tuple[str, ...]:
    """Give the methods that chance alone may have put behind the best one, nearest first."""
    best, *others = scores.order
    return tuple(scores.methods[k] for k in others if scores.may_be_better(k, best))


def write_verdict(
    scores: Scores,
    seconds: Mapping[str, float],
    *,
    repetitions: int = 1,
    short_of_time: Sequence[str] = (),
    lost: Mapping[str, str] | None = None,
    many_levels: str = "",
) -> tuple[str, ...]:
    """Say which method to use and how sure that is.

    Parameters
    ----------
    scores : Scores
        Of at least one method.
    seconds : mapping
        What each took.
    repetitions : int
        How often other cells were hidden.
    short_of_time : sequence of str
        Methods that were given less time than they would take by themselves.
    lost : mapping, optional
        Methods that were to be compared and are not, with the reason.
    many_levels : str
        Columns with very many levels, if a method was too slow for these.

    Returns
    -------
    tuple of str
        Sentences; the first says what to do.
    """
    names, lost = scores.methods, lost or {}
    if len(names) == 1:
        return _tell_of_one(names[0], lost, many_levels)
    best = scores.order[0]
    name = names[best]
    ties = find_ties(scores)
    said = _decide(scores, ties, seconds)
    sure = f"{show_probability(scores.probability_best[best])} sure that it is best among these"
    said.append(f"{name} is {_tell_columns(scores, best)}; {sure}, {_tell_repetitions(repetitions)}.")
    if ties:
        gap, low, high = scores.relative(best, names.index(ties[0]))
        said.append(f"Its error is {_percent(gap, low, high)} below that of {ties[0]}.")
    if "mean" in names and name != "mean" and (ties or names[scores.order[1]] != "mean"):
        mean = names.index("mean")
        gap, low, high = scores.relative(best, mean)
        if low > 0:
            said.append(
                "Against filling in means and most frequent levels the error falls by "
                f"{_percent(gap, low, high)}."
            )
        else:
            said.append(
                "No method is better than filling in means and most frequent levels by more than chance: the "
                "columns tell little of each other."
            )
    elif name == "mean":
        said.append(
            "None does better than means and most frequent levels: columns may tell little of each other."
        )
    if short_of_time:
        were = "was" if len(short_of_time) == 1 else "were"
        said.append(f"{join(short_of_time)} {were} cut short; with a larger time budget the error may fall.")
    if missed := [one for one, why in lost.items() if "not installed" not in why]:
        said.append(f"Not compared: {join(missed)}.")
    if many_levels:
        said.append(f"{many_levels} Or allow more time.")
    return tuple(said)


def _tell_of_one(name: str, lost: Mapping[str, str], many_levels: str) -> tuple[str, ...]:
    """Say why there is no comparison, and what would make one."""
    reasons = "; ".join(f"{one}: {short(why.rstrip('.'), 300)}" for one, why in lost.items())
    were_slow = any(words in reasons for words in ("stopped after", "it would take", "time budget"))
    remedy = "Allow more time." if were_slow else "Name other methods."
    return (
        f"There is nothing to compare with: only {name} finished.",
        f"The others did not ({reasons}).",
        f"{many_levels} Or allow more time." if many_levels else remedy,
    )


def blame_levels(levels: Mapping[str, int], slow: Sequence[str]) -> str:
    """Say that columns with very many levels are the likely reason why methods were slow, if there are any.

    Parameters
    ----------
    levels : mapping
        Column -> how many levels it has.
    slow : sequence of str
        Methods that took too long, of those for which each level is more work.

    Examples
    --------
    >>> blame_levels({"town": 700, "sex": 2}, ["mice"])[:68]
    'Columns with very many levels are the likely reason: town (700). To '
    >>> blame_levels({"sex": 2}, ["mice"])
    ''
    """
    many = {name: n for name, n in levels.items() if n >= MANY_LEVELS}
    if not many or not slow:
        return ""
    most = sorted(many, key=lambda name: -many[name])
    named = join([f"{name} ({many[name]:,})" for name in most], most=3)
    return (
        f"Columns with very many levels are the likely reason: {named}. To {join(slow)} each level is a 0/1 "
        "column, or a model, of its own. If such a column holds numbers, dates or text, say so (schema; on "
        "the command line --kind); if a word in it marks a missing value, say that when the table is read "
        "(--missing)."
    )


def _tell_columns(scores: Scores, k: int) -> str:
    """Say on how many columns a method is in front."""
    n = int(scores.counted.sum())
    alone, level = (int(counts[k]) for counts in scores.wins())
    if n == 1:
        return f"{'best' if alone else 'level with others'} on the only column that counts"
    columns = f"best on {alone} of {n} columns"
    return f"{columns} alone, level with others on {level}" if level else columns


def _decide(scores: Scores, ties: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    best, second = scores.order[:2]
    name = scores.methods[best]
    if not ties:
        gap, low, high = scores.relative(best, second)
        return [
            f"Use {name}: its mean error is {_percent(gap, low, high)} below that of the next, "
            f"{scores.methods[second]}."
        ]
    together = [name, *ties]
    told = f"Too close to call: {join(together)} cannot be told apart on this table."
    quickest = min(together, key=lambda one: seconds.get(one, np.inf))
    took, other = seconds.get(quickest, 0.0), seconds.get(name, 0.0)
    if quickest == name or show_seconds(took) == show_seconds(other):
        return [told, f"Use {name}, whose error is the smallest."]
    return [
        told,
        f"{name} has the smallest error, {quickest} is the quickest ({show_seconds(took)} against "
        f"{show_seconds(other)}): either will do.",
    ]


def _tell_repetitions(repetitions: int) -> str:
    if repetitions > 1:
        return f"by {repetitions} repetitions"
    return "by one repetition, which cannot tell how much fits of a method differ"


def show_probability(probability: float) -> str:
    """Give a probability in per cent, never as certainty.

    Examples
    --------
    >>> show_probability(0.931), show_probability(1.0), show_probability(0.0)
    ('93 %', 'more than 99 %', 'less than 1 %')
    """
    if probability > 0.99:
        return "more than 99 %"
    return "less than 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def _percent(gap: float, low: float, high: float) -> str:
    """Give a share with its interval.

    >>> _percent(0.043, 0.011, 0.072), _percent(0.004, -0.011, 0.02)
    ('4 % (1 to 7 %)', '0.4 % (-1.1 to 2.0 %)')
    """
    digits = 0 if min(abs(gap), high - low) >= 0.01 and round(100 * abs(low)) != 0 else 1
    shown = [f"{round(100 * share, digits) + 0.0:.{digits}f}" for share in (gap, low, high)]  # never -0
    return f"{shown[0]} % ({shown[1]} to {shown[2]} %)"


def join(names: Sequence[str], most: int = 30) -> str:
    """Join names as people do; of many the first.

    Examples
    --------
    >>> join(["a"]), join(["a", "b", "c"]), join(["a", "b", "c", "d"], most=2)
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most:,} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""Where imputations come from: what a report can say of the model that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pandas as pd

from ..tables.schema import from_plain, to_plain

_PLAIN = (str, bool, int, float, type(None))


@dataclass(frozen=True)
class Origin:
    """The model behind imputations, in plain values.

    Attributes
    ----------
    method : str
        What made them, in a few words.
    parameters : mapping
        What was asked for: the parameters that are not left at their defaults.
    settings : mapping
        Every constant in use.
    seed : int or None
        To repeat the fit.
    software : mapping
        Names and versions.
    trace : sequence of EMRound
        The rounds of EM.
    held_out : pandas.DataFrame or None
        By column: kind, n, error, baseline, ratio, ratio_error.
    command : str
        The command line, where there was one.
    estimate : str
        What ``transform`` imputes, in a few words.
    parts : sequence of Origin
        Of draws that several fits have made: each of them. What they share stands above.
    """

    method: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    trace: Sequence[Any] = ()
    held_out: pd.DataFrame | None = None
    command: str = ""
    estimate: str = ""
    parts: Sequence[Origin] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for JSON; parameters that JSON lacks are kept as the text that shows them."""
        scores = self.held_out
        return {
            "method": self.method,
            "parameters": {
                name: value if type(value) in _PLAIN else {"shown": repr(value)}
                for name, value in self.parameters.items()
            },
            "settings": dict(self.settings),
            "seed": self.seed,
            "software": dict(self.software),
            "trace": [{**vars(line)} for line in self.trace],
            "held_out": scores
            if scores is None
            else {
                "index": [to_plain(name, name) for name in scores.index],
                **{name: [to_plain(value, name) for value in scores[name]] for name in scores},
            },
            "command": self.command,
            "estimate": self.estimate,
            "parts": [part.to_dict() for part in self.parts],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Origin:
        """Rebuild what :meth:`to_dict` gave."""
        values = dict(plain)
        scores = values["held_out"]
        if scores is not None:
            labels = [from_plain(name) for name in scores["index"]]
            names = pd.Index(labels, name="column", tupleize_cols=False)
            scores = pd.DataFrame(
                {k: [from_plain(one) for one in v] for k, v in scores.items() if k != "index"}, index=names
            )
        values["parameters"] = {
            name: _Shown(value["shown"]) if isinstance(value, dict) else value
            for name, value in values["parameters"].items()
        }
        values["trace"] = tuple(SimpleNamespace(**line) for line in values["trace"])
        values["parts"] = tuple(cls.from_dict(part) for part in values["parts"])
        return cls(**values | {"held_out": scores})


class _Shown(str):
    """Text that shows a value; it is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def join_origins(one: Origin | None, other: Origin | None) -> Origin | None:
    """Give the origin of draws of two models: what they share, and each of them as a part.

    Scores of held-out cells are over the cells of all fits. Nothing is known of the whole if nothing is known
    of one of them.

    Examples
    --------
    >>> joined = join_origins(Origin("DiffPuter", seed=1), Origin("DiffPuter", seed=2))
    >>> joined.method, joined.seed, [part.seed for part in joined.parts]
    ('2 fits of DiffPuter', None, [1, 2])
    """
    if one is None or other is None:
        return None
    parts: list[Origin] = []
    known: set[str] = set()
    for part in (*(one.parts or (one,)), *(other.parts or (other,))):
        text = json.dumps(part.to_dict(), sort_keys=True)
        if text not in known:
            known.add(text)
            parts.append(part)
    if len(parts) == 1:
        return parts[0]
    methods = list(dict.fromkeys(part.method for part in parts))
    seeds = {part.seed for part in parts}
    return Origin(
        method=f"{len(parts)} fits of {' and '.join(filter(None, methods)) or 'unknown models'}",
        parameters=_shared([part.parameters for part in parts]),
        settings=_shared([part.settings for part in parts]),
        seed=seeds.pop() if len(seeds) == 1 else None,
        software=_shared([part.software for part in parts]),
        held_out=_join_scores([part.held_out for part in parts]),
        parts=tuple(parts),
    )


def _shared(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = mappings
    return {
        name: value
        for name, value in first.items()
        if all(name in other and repr(other[name]) == repr(value) for other in others)
    }


def _join_scores(frames: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
    """Give the errors over the held-out cells of several fits; None if one has none."""
    known = [frame for frame in frames if frame is not None]
    if len(known) < len(frames) or any(not frame.index.equals(known[0].index) for frame in known):
        return None
    joined = known[0].copy()
    joined["n"] = sum(frame["n"] for frame in known)
    for name in ("error", "baseline"):
        # A column of which a fit held out nothing has no error there.
        joined[name] = sum((frame[name] * frame["n"]).fillna(0.0) for frame in known) / joined["n"]
    joined["ratio"] = joined["error"] / joined["baseline"]
    if all("ratio_error" in frame for frame in known):
        parts = [(frame["ratio_error"] * frame["baseline"] * frame["n"])[frame["n"] > 0] for frame in known]
        squared = sum((part**2).reindex(joined.index, fill_value=0.0) for part in parts)
        joined["ratio_error"] = squared**0.5 / (joined["baseline"] * joined["n"])
    else:
        joined = joined.drop(columns="ratio_error", errors="ignore")
    return joined

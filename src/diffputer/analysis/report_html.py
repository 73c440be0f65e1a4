"""Pieces of a page: names, links, bars and tables, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .wording import short


def to_json(value: Any) -> str:
    """Write JSON that may stand in a page, whatever text it holds.

    Examples
    --------
    >>> print(to_json({"</script>": "a & b"}))
    {"\\u003c/script\\u003e":"a \\u0026 b"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def content_policy(script: str) -> str:
    """Content security policy of a page that may run one script and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def name_of(name: Any, length: int = 60) -> str:
    """Write a name; long ones may break after an underscore."""
    return escape(short(name, length) or "(no name)").replace("_", "_<wbr>")


def link_to(place: int, name: Any, length: int = 60) -> str:
    """Write a name that opens its column."""
    full = short(name, 300)
    title = f' title="{escape(full)}"' if len(full) > length else ""
    return f'<a href="#c{place}"{title}>{name_of(name, length)}</a>'


@dataclass(frozen=True)
class Cell:
    """A cell of a table: HTML, what it is sorted by, and its class."""

    html: str
    order: float | None = None
    kind: str = ""


def sortable(
    caption: str, heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[Cell]], key: str = "", **more: str
) -> str:
    """Write a table that can be sorted; heads are titles and classes."""
    top = "".join(
        f'<th scope="col" class="{kind}"><button type="button" class="sort">{title}</button></th>'
        for title, kind in heads
    )
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    body = []
    for row in rows:
        cells = []
        for place, (cell, (_, kind)) in enumerate(zip(row, heads, strict=True)):
            name = "th" if place == 0 else "td"
            order = "" if cell.order is None or math.isnan(cell.order) else f' data-order="{cell.order:.6g}"'
            scope = ' scope="row"' if place == 0 else ""
            cells.append(f'<{name}{scope} class="{kind} {cell.kind}"{order}>{cell.html}</{name}>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    mark = f' id="{key}"' if key else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"{attributes}>'
        f"<table{mark}><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def bar(share: float, words: str, kind: str = "") -> str:
    """Write words above a bar that is as long as a share."""
    width = max(0.0, min(1.0, share)) * 100
    return f'<span class="bar {kind}" style="--v:{width:.1f}%">{words}</span>'

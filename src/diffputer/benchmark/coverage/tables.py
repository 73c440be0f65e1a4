"""The summary as tables: coverage, and the width of intervals beside MICE's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..report.layout import Cell, Picture, Report, Section, Table
from ..report.markdown import write_markdown
from .designs import DESIGNS
from .imputers import RIVALS, our_entries
from .summary import Line

#: Whose widths others are divided by.
REFERENCE = "mice"
#: Coverage that nobody would object to; other mean coverages are not bold.
BAND = (0.93, 0.97)
#: A page has the tables between these lines.
BEGIN, END = "<!-- coverage: begin -->", "<!-- coverage: end -->"
_KINDS = ((False, "regression coefficients"), (True, "column means"))
_NOTE = (
    "Share of 95 % intervals that hold the truth, in per cent: mean over the estimands (in brackets the "
    "lowest of them), then the width of the intervals divided by those of scikit-learn's MICE, where it was "
    "run. Bold: between 93 and 97."
)


@dataclass(frozen=True)
class Group:
    """Lines of one method in one cell, of the coefficients or of the means."""

    lines: tuple[Line, ...]

    @property
    def coverage(self) -> float | None:
        """Mean over the estimands."""
        found = [line.coverage for line in self.lines if line.coverage is not None]
        return sum(found) / len(found) if found else None

    @property
    def lowest(self) -> float | None:
        """Of the estimand that is covered worst."""
        return min((line.coverage for line in self.lines if line.coverage is not None), default=None)

    @property
    def monte_carlo(self) -> tuple[float, float] | None:
        """Ends of Wilson's 95 % interval of the mean, as if all estimands were held or missed together."""
        p, n = self.coverage, min((line.repetitions for line in self.lines), default=0)
        if p is None or not n:
            return None
        z = 1.96
        middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        reach = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        return max(middle - reach, 0.0), min(middle + reach, 1.0)

    def relative_width(self, other: Group) -> float | None:
        """Geometric mean over the estimands of the widths divided by those of another method."""
        theirs = {line.estimand: line.width for line in other.lines}
        ratios = [
            line.width / width
            for line in self.lines
            if line.width is not None and (width := theirs.get(line.estimand))
        ]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def select(lines: Sequence[Line], **wanted: object) -> Group:
    """Give the lines whose attributes have these values."""
    return Group(tuple(line for line in lines if all(getattr(line, k) == v for k, v in wanted.items())))


def name_methods(lines: Sequence[Line]) -> dict[tuple[str, str], str]:
    """Give (method, settings) -> a title of its own, rivals first."""
    places = {name: place for place, name in enumerate((*RIVALS, *our_entries({})))}
    titles = {(line.method, line.settings_hash): line.title for line in lines}
    keys = sorted(titles, key=lambda key: (places.get(key[0], len(places)), key[1]))
    every = list(titles.values())
    return {key: titles[key] if every.count(titles[key]) == 1 else f"{titles[key]} [{key[1][:4]}]"
            for key in keys}  # fmt: skip


def make_report(lines: Sequence[Line], pictures: Sequence[Picture] = ()) -> Report:
    """Put a summary into tables.

    Parameters
    ----------
    lines : sequence of Line
        Of `diffputer.benchmark.coverage.summary.summarise`.
    pictures : sequence of Picture
        To be shown at the end.

    Returns
    -------
    Report
    """
    sizes = list(dict.fromkeys((line.design, line.rows, line.draws) for line in lines))
    sections = []
    for design, rows, draws in sizes:
        mine = select(lines, design=design, rows=rows, draws=draws).lines
        counts = sorted({line.repetitions for line in mine})
        times = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        words = DESIGNS[design].words if design in DESIGNS else ""
        sections.append(
            Section(
                f"{design.capitalize()} truth, {rows:,} rows, {draws} draws, {times} repetitions",
                level=3,
                words=(f"{words[:1].upper()}{words[1:]}. {_NOTE}",),
                tables=tuple(_tabulate(mine, of_mean, title) for of_mean, title in _KINDS),
            )
        )
    sections.append(Section("Methods", level=3, tables=(_tabulate_methods(lines),)))
    if pictures:
        sections.append(Section("Picture", level=3, pictures=tuple(pictures)))
    return Report("Coverage of pooled 95 % intervals", tuple(sections))


def name_cell(mechanism: str, rate: float) -> str:
    """Name a mechanism with its rate.

    Examples
    --------
    >>> name_cell("mcar", 0.2)
    'MCAR 20 %'
    """
    return f"{mechanism.upper()} {100 * rate:g} %"


def _tabulate(lines: Sequence[Line], of_mean: bool, title: str) -> Table:
    mine = [line for line in lines if line.of_mean == of_mean]
    cells = list(dict.fromkeys((line.mechanism, line.rate) for line in mine))
    rows = []
    for (method, settings), name in name_methods(mine).items():
        row = [Cell(name)]
        for mechanism, rate in cells:
            place = select(mine, mechanism=mechanism, rate=rate).lines
            group = select(place, method=method, settings_hash=settings)
            row.append(_write(group, select(place, method=REFERENCE)))
        rows.append(tuple(row))
    columns = ("method", *(name_cell(*cell) for cell in cells))
    return Table(title[:1].upper() + title[1:], columns, tuple(rows), n_measured=len(cells))


def _write(group: Group, reference: Group) -> Cell:
    coverage, lowest = group.coverage, group.lowest
    if coverage is None or lowest is None:
        return Cell("failed" if group.lines else "")
    text = f"{100 * coverage:.1f} ({100 * lowest:.0f})"
    ratio = group.relative_width(reference)
    if ratio is not None:
        text += f" ×{ratio:.2f}"
    return Cell(text, place=1 if BAND[0] <= coverage <= BAND[1] else None)


def _tabulate_methods(lines: Sequence[Line]) -> Table:
    rows = []
    for (method, settings), name in name_methods(lines).items():
        mine = select(lines, method=method, settings_hash=settings).lines
        cells = {line.cell: line for line in mine}.values()
        seconds = [line.seconds for line in cells if line.seconds is not None]
        rows.append(
            (
                Cell(name),
                Cell(", ".join(dict.fromkeys(line.settings for line in mine)).replace("{}", "")),
                Cell(f"{sum(line.repetitions for line in cells):,}"),
                Cell(f"{sum(line.failures for line in cells):,}"),
                Cell(f"{sum(seconds) / len(seconds):.2f}" if seconds else ""),
            )
        )
    columns = ("method", "settings", "repetitions", "failures", "seconds each")
    return Table("", columns, tuple(rows), words=frozenset({"settings"}))


def write_part(report: Report) -> str:
    """Write the sections of a report as Markdown, without its title, for a page that has one."""
    return write_markdown(report).split("\n", 2)[2].strip() + "\n"


def put_into_page(page: str, part: str) -> str:
    """Replace what a page has between the two marks.

    Examples
    --------
    >>> put_into_page(f"a\\n{BEGIN}\\nold\\n{END}\\nb\\n", "new\\n") == f"a\\n{BEGIN}\\nnew\\n{END}\\nb\\n"
    True
    """
    before, _, rest = page.partition(BEGIN + "\n")
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{part}{END}{after}"

"""What a report is made of, before it is terminal, Markdown, LaTeX or HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text
        The number or word.
    spread
        What stands after the plus-minus sign.
    published
        The paper's number; ``doubtful`` where it should not be relied upon.
    ratio
        Measured divided by published; ``differs`` where it is far from 1.
    place
        1 is set bold, 2 underlined.
    notes
        Numbers of the footnotes.
    order
        What the cell is sorted by, if it can be.
    """

    text: str = ""
    spread: str = ""
    published: str = ""
    doubtful: bool = False
    ratio: str = ""
    differs: bool = False
    place: int | None = None
    notes: tuple[int, ...] = ()
    order: float | None = None


@dataclass(frozen=True)
class Table:
    """A table; columns after the first are numbers, unless they are among ``words``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    footnotes: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    #: How many columns hold measurements; where there are any, the table may be split where space is short.
    n_measured: int = 0


@dataclass(frozen=True)
class Picture:
    """A figure with a name for its file and a sentence for those who cannot see it."""

    name: str
    title: str
    figure: Any


@dataclass(frozen=True)
class Section:
    """A heading with words, tables and pictures under it, in this order."""

    title: str
    level: int = 2
    words: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = field(default=())


@dataclass(frozen=True)
class Report:
    """All of it."""

    title: str
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures of all sections."""
        return tuple(picture for section in self.sections for picture in section.pictures)

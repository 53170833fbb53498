"""What a report says, apart from how it looks: one Document, laid out by one renderer a format.

Texts are plain, with code between backticks where it helps. Renderers decide on layout only:
what stands out says so by its tone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from launchscope.model import Metric
from launchscope.wording import NOT_MEASURED, SPREAD, shows_spread, with_unit

_CODE = re.compile(r"`([^`]+)`")

Tone = Literal["plain", "strong", "dim", "good", "calm", "caution", "bad"]


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Items:
    """A list, numbered where the order matters."""

    texts: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True)
class Entry:
    """A finding: its code, where it is, what it says and what to do about it."""

    code: str
    tone: Tone
    where: str
    title: str
    advice: str


@dataclass(frozen=True)
class Entries:
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Cell:
    """`spread`: the text has a ±, which the report explains once."""

    text: str
    tone: Tone = "plain"
    spread: bool = False


MISSING = Cell("–", "dim")
UNKNOWN = Cell(NOT_MEASURED, "dim")


@dataclass(frozen=True)
class Column:
    """`key` columns are repeated where a table is too wide for the page and is split.

    `fit` says what a narrow page may do to the texts: figures stay whole.
    """

    heading: str
    align: Literal["left", "right"] = "right"
    key: bool = False
    fit: Literal["whole", "wrap", "cut", "cut_start"] = "whole"
    code: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as there are columns; `rows_left` were left out at the end."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rows_left: int = 0

    @property
    def has_heading(self) -> bool:
        return any(column.heading for column in self.columns)


@dataclass(frozen=True)
class Bar:
    """`share_pct` None: not measured, and nothing is drawn."""

    label: str
    figure: str
    share_pct: float | None

    @property
    def share(self) -> str:
        return "" if self.share_pct is None else f"{self.share_pct:.0f} %"


@dataclass(frozen=True)
class Bars:
    """Shares as bars: `stacked` ones are the parts of one whole."""

    headings: tuple[str, str]  # of labels and figures
    bars: tuple[Bar, ...]
    stacked: bool = False


@dataclass(frozen=True)
class Series:
    """A named curve: x above 0, ascending, and y above 0."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Plot:
    """Curves over logarithmic axes, with two points at least; `mark` is an x with its label."""

    title: str
    series: tuple[Series, ...]
    mark: tuple[float, str] | None = None


@dataclass(frozen=True)
class Commands:
    """What to type next."""

    lines: tuple[str, ...]


Block = Paragraph | Items | Entries | Table | Bars | Plot | Commands


@dataclass(frozen=True)
class Section:
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """`badge` and `tone` are the answer in a word; `title` is what it is about."""

    badge: str
    tone: Tone
    title: str
    headline: str
    basis: str
    context: tuple[str, ...]
    sections: tuple[Section, ...]


def sections(*made: Section | None) -> tuple[Section, ...]:
    """Those that hold something; the first table with a ± is followed by what it means."""
    found = [section for section in made if section is not None]
    for place, section in enumerate(found):
        for at, block in enumerate(section.blocks, 1):
            if isinstance(block, Table) and any(cell.spread for row in block.rows for cell in row):
                blocks = (*section.blocks[:at], Paragraph(SPREAD, "dim"), *section.blocks[at:])
                found[place] = Section(section.heading, blocks)
                return tuple(found)
    return tuple(found)


def items(heading: str, texts: Iterable[str], *, numbered: bool = False) -> Section | None:
    """A section of one list; None without texts."""
    listed = tuple(texts)
    return Section(heading, (Items(listed, numbered),)) if listed else None


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and values, without headings."""
    columns = (Column("", "left", fit="wrap"), Column(""))
    return Table(columns, tuple((Cell(name), Cell(value)) for name, value in rows))


def spans(text: str) -> list[tuple[str, bool]]:
    """The pieces of a sentence, and whether each is code: what is between backticks."""
    return [(part, i % 2 == 1) for i, part in enumerate(_CODE.split(text)) if part]


def measured(metric: Metric | None, *, spread: bool = True) -> Cell:
    """A metric with its unit."""
    unknown = metric is None or metric.value is None
    text = with_unit(metric, spread=spread)
    return Cell(text, "dim" if unknown else "plain", spread and shows_spread(metric))

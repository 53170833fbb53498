"""The content of a report for people: one Document, which one renderer per format lays out.

Texts are plain, with code between backticks. Renderers decide on the layout only: a tone says
what a text means, not which color it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from launchscope.model import Metric
from launchscope.wording import SPREAD, count, pct, sentence, shows_spread, with_unit

if TYPE_CHECKING:
    import pandas as pd

    Rows = Sequence[Any] | pd.DataFrame

_CODE = re.compile(r"`([^`]+)`")

Tone = Literal["plain", "strong", "dim", "good", "calm", "caution", "bad"]


class Paragraph(Struct, frozen=True):
    text: str
    tone: Tone = "plain"


class Items(Struct, frozen=True):
    """A list, numbered where the order matters."""

    texts: tuple[str, ...]
    numbered: bool = False


class Entry(Struct, frozen=True):
    """A finding: its code, where it is, what it says and what to do about it."""

    code: str
    tone: Tone
    where: str
    title: str
    advice: str


class Entries(Struct, frozen=True):
    entries: tuple[Entry, ...]


class Cell(Struct, frozen=True):
    """`spread`: the text has a ±, which the report explains once. `full`: the whole text, where
    `text` is shortened. `value`: what a table is sorted by; None where it keeps its order."""

    text: str
    tone: Tone = "plain"
    spread: bool = False
    full: str = ""
    value: float | str | None = None


MISSING, EMPTY = Cell("–", "dim"), Cell("")


def as_cell(value: object) -> Cell:
    return value if isinstance(value, Cell) else Cell(str(value))


class Column(Struct, frozen=True):
    """Figures of one kind. `sources` are fields of the rows, or columns of a frame, whose values
    `text` writes; a cell is `missing` where all of them are None, or `text` returns None.

    `key` columns are repeated in each part of a table that is split to fit the page. `fit` is what
    a narrow page may do to the texts. Figures stay `whole`.
    """

    heading: str
    sources: str | tuple[str, ...]
    text: Callable[..., Cell | str | None] = as_cell
    align: Literal["left", "right"] = "right"
    key: bool = False
    fit: Literal["whole", "wrap", "cut", "cut_start"] = "whole"
    code: bool = False
    missing: Cell = MISSING

    def cells(self, rows: Rows) -> list[Cell]:
        sources = (self.sources,) if isinstance(self.sources, str) else self.sources
        values = zip(*(_values(rows, source) for source in sources))
        return [self._cell(row) for row in values]

    def _cell(self, values: tuple[object, ...]) -> Cell:
        known = any(value is not None for value in values)
        made = self.text(*values) if known else None
        return self.missing if made is None else as_cell(made)


def sortable(text: Callable[[Any], Cell | str]) -> Callable[[Any], Cell]:
    """Cells by which a page sorts: by the number, or by the text of a name."""

    def cell(value: Any) -> Cell:
        made = as_cell(text(value))
        return replace(made, value=made.text if isinstance(value, str) else value)

    return cell


words = partial(Column, align="left")
code = partial(Column, align="left", code=True)


def _values(rows: Rows, source: str) -> list[Any]:
    if isinstance(rows, Sequence):
        return [row[source] if isinstance(row, dict) else getattr(row, source) for row in rows]
    column = rows[source].astype(object)
    return column.where(column.notna(), None).tolist()


class Table(Struct, frozen=True):
    """Rows of as many cells as there are columns; `rows_left` were left out at the end."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rows_left: int = 0

    @classmethod
    def of(cls, rows: Rows, *columns: Column, top: int | None = None) -> Table:
        """The first `top` rows of a frame or of values of the model, without columns whose cells
        are all empty."""
        cells = [column.cells(rows[:top]) for column in columns]
        kept = [i for i, column in enumerate(cells) if any(cell.text for cell in column)]
        shown = tuple(zip(*(cells[i] for i in kept)))
        return cls(tuple(columns[i] for i in kept), shown, len(rows) - len(shown))


class Bar(Struct, frozen=True):
    """`share_pct` None: not measured, and nothing is drawn."""

    label: str
    figure: str
    share_pct: float | None

    @property
    def share(self) -> str:
        return "" if self.share_pct is None else pct(self.share_pct)


class Bars(Struct, frozen=True):
    """The parts of a time as bars."""

    bars: tuple[Bar, ...]

    def table(self, drawn: Callable[[float], str] | None = None) -> Table:
        """The bars as rows, for formats that draw a share with text or not at all."""
        rows = [
            {"bar": bar, "share": bar.share, "drawn": drawn(bar.share_pct or 0.0) if drawn else ""}
            for bar in self.bars
        ]
        return Table.of(
            rows,
            words("", "bar", lambda bar: bar.label),
            words("", "drawn", lambda text: Cell(text, "calm")),
            Column("time", "bar", lambda bar: bar.figure),
            Column("share", "share"),
        )


class Commands(Struct, frozen=True):
    """What to type next."""

    lines: tuple[str, ...]


class Diff(Struct, frozen=True):
    """The lines of a unified diff, each with its sign, behind three lines with the file's name."""

    lines: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """What people see: one line with the name. In CI the others would be commands."""
        return tuple(line.expandtabs(4) for line in (self.lines[0], *self.lines[3:]))

    @staticmethod
    def tone(line: str) -> Tone:
        """The tone of a line: added, removed, or a position."""
        if line.startswith("diff "):
            return "dim"
        return {"+": "good", "-": "bad", "@": "calm"}.get(line[:1], "plain")  # type: ignore[return-value]


Block = Paragraph | Items | Entries | Table | Bars | Commands | Diff


class Section(Struct, frozen=True):
    """`is_detail`: a screen has no room for it, and of another one for the `most` first rows,
    entries or items (None: for all). `is_answer`: a page shows it with the answer, before any
    figure."""

    heading: str
    blocks: tuple[Block, ...]
    is_detail: bool = False
    is_answer: bool = False
    most: int | None = None


class Document(Struct, frozen=True):
    """`badge` and `tone` give the answer in a word; `title` names what was measured."""

    badge: str
    tone: Tone
    title: str
    headline: str
    basis: str = ""
    context: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()


def sections(*made: Section) -> tuple[Section, ...]:
    """Without what is empty, and with the meaning of ± after the first table that has one."""
    found: list[Section] = []
    for section in made:
        blocks = tuple(block for block in section.blocks if not _is_empty(block))
        found += [replace(section, blocks=blocks)] if blocks else []
    for index, section in enumerate(found):
        for at, block in enumerate(section.blocks, 1):
            if isinstance(block, Table) and any(cell.spread for row in block.rows for cell in row):
                blocks = (*section.blocks[:at], Paragraph(SPREAD, "dim"), *section.blocks[at:])
                found[index] = replace(section, blocks=blocks)
                return tuple(found)
    return tuple(found)


def shortened(report: Document, more: str) -> Document:
    """What fits a screen; where that is not all, `more` says how to see the rest."""
    shown = []
    for section in report.sections:
        blocks = tuple(_beginning(block, section) for block in section.blocks)
        if not (section.is_detail or all(map(_is_empty, blocks))):
            shown.append(replace(section, blocks=blocks))
    if shown != list(report.sections):
        last = shown.pop() if shown and shown[-1].heading == "Next" else Section("Next", ())
        shown.append(replace(last, blocks=(*last.blocks, Paragraph(more, "dim"))))
    return replace(report, sections=tuple(shown))


def _beginning(block: Block, section: Section) -> Block:
    """Of what is to be done, all of an entry; of others, the doubts without advice."""
    most = section.most
    match block:
        case Entries(entries) if section.is_answer:
            return Entries(entries[:most])
        case Entries(entries):
            doubts = [entry for entry in entries if entry.tone in ("bad", "caution")]
            return Entries(tuple(replace(entry, advice="") for entry in doubts[:most]))
        case Items(texts):
            return replace(block, texts=texts[:most])
        case Table(rows=rows):
            return replace(block, rows=rows[:most])
    return block


def _is_empty(block: Block) -> bool:
    match block:
        case Items(()) | Entries(()) | Table(rows=()) | Bars(bars=()):
            return True
        case _:
            return False


def items(heading: str, texts: Iterable[str]) -> Section:
    """A section of one list."""
    return Section(heading, (Items(tuple(texts)),))


def notes(clauses: Iterable[str]) -> Section:
    """The section of remarks, each written as a sentence."""
    return items("Notes", map(sentence, clauses))


def spans(text: str) -> list[tuple[str, bool]]:
    """The parts of a sentence, and whether each is code (between backticks)."""
    return [(part, i % 2 == 1) for i, part in enumerate(_CODE.split(text)) if part]


def measured(metric: Metric | None) -> Cell:
    """A metric with its unit; a count that differs between the steps, with its mean."""
    unknown = metric is None or metric.value is None
    text = with_unit(metric)
    if metric is not None and metric.unit == "1" and len(set(metric.samples)) > 1:
        text += f" (mean {count(fmean(metric.samples))})"
    return Cell(text, "dim" if unknown else "plain", shows_spread(metric))

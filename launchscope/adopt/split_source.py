"""A file in which statements of the step were taken apart, before they are moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launchscope.adopt.names import NOTHING, Names
from launchscope.adopt.observation import Observation, SeenLine
from launchscope.adopt.region import Marks
from launchscope.adopt.source import Source


@dataclass(frozen=True)
class SplitSource:
    """`lines`: each line of the source as one of the file; `fetched`: names to which the step gives
    nothing back."""

    source: Source
    marks: Marks
    seen: Observation
    fetched: Names
    lines: Sequence[int]


@dataclass(frozen=True)
class NewLines:
    """A new text by lines, each with the line of the source that it comes from. Of lines that are
    `split`, the first one runs the step, and the second one the host."""

    source: Source
    texts: list[tuple[int, str]]
    fetched: Names = NOTHING
    split: frozenset[int] = frozenset()

    def located(self, marks: Marks, seen: Observation) -> SplitSource:
        old = self.source
        source = Source(old.file, "".join(text for _, text in self.texts), old.encoding)
        lines = [line for line, _ in self.texts]
        now: dict[int, list[int]] = {}
        for number, (line, text) in enumerate(self.texts, 1):
            if text == old.lines[line - 1] or line in self.split:
                now.setdefault(line, []).append(number)
        at = {(s.lineno, s.col_offset): s for s in source.block_of}
        found = {at[now[s.lineno][0], s.col_offset]: calls for s, calls in marks.items()}
        records = [_moved(r, n) for r in seen.lines for n in now.get(r.line, ())]
        host, step = {now[line][1] for line in self.split}, {now[line][0] for line in self.split}
        records = [
            replace(r, operations=0, tensors=()) if r.line in host
            else replace(r, host_reads=0, values=(), causes=()) if r.line in step
            else r
            for r in records
        ]  # fmt: skip
        return SplitSource(source, found, replace(seen, lines=tuple(records)), self.fetched, lines)


def _moved(record: SeenLine, line: int) -> SeenLine:
    causes = (replace(c, line=line) if c.columns else c for c in record.causes)
    return replace(record, line=line, causes=tuple(causes))

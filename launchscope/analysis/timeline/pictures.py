"""One traced step as intervals to draw: the typical eager iteration, and the typical replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.analysis.timeline.intervals import Cover, Nesting
from launchscope.analysis.timeline.lines import Lines
from launchscope.analysis.timeline.modules import OWN_RANGES
from launchscope.analysis.timeline.timeline import CAUSES, Gaps, Timeline, idle_gaps
from launchscope.analysis.timeline.work import Work
from launchscope.model import (
    IdleCause,
    IdleTime,
    Label,
    LabelKind,
    Lane,
    LaneKind,
    OverheadRow,
    Source,
    StepTimeline,
    Timelines,
)
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, Table, ints, median_of, unique, where

# Few drawings are wider. Steps with more intervals than this have those that are narrower than a
# pixel merged, and wider ones as far as needed.
_PIXELS = 4_000
_MOST_INTERVALS = 12_000
_MOST_LANES = 12  # of threads, and of streams
_NO_LAUNCH = np.zeros(0, np.int64)
What = Literal["iteration", "step", "span"]
# What launched, and the number of that of each launch, -1 for none.
Sources = tuple[tuple[Source, ...], Ints]
Numbered = tuple[list[OverheadRow], Ints]


def timelines(
    work: Work, timeline: Timeline, sources: Sources, replayed: Work | None = None
) -> Timelines:
    """The used iteration whose time on the GPU is nearest to the median, and such a step of
    `replayed`. A trace by itself is drawn without operators."""
    labels = _Labels()
    gaps = next(idle_gaps(work))
    row = _typical(work.iterations.used, timeline.traced_iteration, work.activity_iteration)
    drawing = _Drawing(work, row, work.iteration, work.activity_iteration, gaps, labels, sources)
    what: What = "span" if work.iterations.whole else "iteration"
    eager = drawing.step(what, int(work.iterations.begin[row]), operators=not work.alone)
    if replayed is None or not len(used := replayed.iterations.used):
        return Timelines(tuple(labels.found), eager)
    begins, last = replayed.iterations.step_begin, replayed.last_end(replayed.activity_step)
    row = _typical(used, (last - begins)[used] / 1e6, replayed.activity_step)
    # The pass synchronizes before each replay: no wait of the person's script.
    _, gaps = idle_gaps(replace(replayed, waited=np.zeros_like(replayed.waited)))
    sources = (), np.full(len(replayed.launches), -1)
    drawing = _Drawing(replayed, row, replayed.step, replayed.activity_step, gaps, labels, sources)
    replay = drawing.step("step", int(begins[row]))
    return Timelines(tuple(labels.found), eager, replay)


def _typical(used: Ints, times: Floats, activities: Ints) -> int:
    """The row with device work whose time is nearest to the median of such rows."""
    has_work = np.isin(used, activities)
    rows, times = used[has_work], times[has_work]
    return int(rows[np.argmin(np.abs(times - median_of(times)))])


def launch_sources(lines: Lines, by_line: Numbered, by_module: Numbered) -> Sources:
    """The line, the module and, of a backward, the line of the forward of each launch."""
    number = {row.where: i for i, row in enumerate(by_line[0])}
    own = np.array([*(number.get(record.where, -1) for record in lines.ops), -1])[lines.of_launch]
    own = np.where(own >= 0, own, by_line[1])
    columns = np.stack([own, by_module[1], by_line[1]])
    kinds, kind = np.unique(columns, axis=1, return_inverse=True)
    names, modules = ([*(row.name for row in rows), ""] for rows, _ in (by_line, by_module))
    sources = tuple(
        Source(names[line], modules[module], names[forward] if forward != line else "")
        for line, module, forward in kinds.T.tolist()
    )
    unknown = int(np.sum(kinds.max(axis=0) < 0))  # 0 or 1, which sorts first
    return sources[unknown:], kind - unknown


class _Labels:
    """Numbers the labels in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.found: dict[Label, int] = {}

    def number(self, names: list[str], kind: LabelKind | IdleCause) -> Ints:
        found, number = self.found, dict[str, int]()
        for name in dict.fromkeys(names):
            number[name] = found.setdefault(Label(name, kind), len(found))
        return np.array([number[name] for name in names], np.int64)


class _Columns(Struct, frozen=True):
    """A lane's intervals by start, while it is made; times of the trace."""

    kind: LaneKind
    number: int | None
    start: Ints
    end: Ints
    label: Ints
    launch: Ints = _NO_LAUNCH  # rows of the launches, of calls and of what they launched
    count: Ints | None = None

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())

    def merged(self, origin: int, width: int) -> _Columns:
        """Neighbors that begin in the same `width` ns and are shorter than it as one interval, as
        long as they together and with the label of the longest. Idle ones keep their causes apart.
        """
        short = self.end - self.start < width
        key = (self.start - origin) // width
        if self.kind == "idle":
            key = key * (int(self.label.max()) + 1) + self.label
        order = np.lexsort((self.start, key))
        start, end, label = self.start[order], self.end[order], self.label[order]
        short, key = short[order], key[order]
        opens = np.append(True, ~(short[1:] & short[:-1] & (np.diff(key) == 0)))
        if opens.all():
            return self
        first, group = np.flatnonzero(opens), np.cumsum(opens) - 1
        longest = np.lexsort((start - end, group))[first]
        until = start[first] + np.add.reduceat(end - start, first)
        by_start = np.argsort(start[first], kind="stable")
        return replace(
            self,
            start=start[first][by_start],
            end=np.minimum(np.maximum.reduceat(end, first), until)[by_start],
            label=label[longest][by_start],
            launch=self.launch[order][longest][by_start] if len(self.launch) else self.launch,
            count=np.diff(np.append(first, len(start)))[by_start],
        )

    def lane(self, origin: int, place: Ints, source: Ints) -> Lane:
        """With the place and the source of each launch, which end with those of an unknown one."""
        launch = self.launch if self.kind == "gpu" else _NO_LAUNCH
        return Lane(
            self.kind,
            self.number,
            tuple((self.start - origin).tolist()),
            tuple((self.end - self.start).tolist()),
            tuple(self.label.tolist()),
            () if self.count is None else tuple(self.count.tolist()),
            tuple(place[launch].tolist()),
            tuple(source[launch].tolist()),
        )


class _Drawing(Struct, frozen=True):
    """One iteration or step, by its row: `launches`, `activities` and `gaps` tell whose each is."""

    work: Work
    row: int
    launches: Ints
    activities: Ints
    gaps: Gaps
    labels: _Labels
    sources: Sources

    def step(self, what: What, begin: int, *, operators: bool = True) -> StepTimeline:
        """`begin` is on the host."""
        table, mine = self.work.activities, self.activities == self.row
        start, end = ints(table, c.START)[mine], ints(table, c.END)[mine]
        spans, idle = Cover.of(start, end), self._idle()
        busy = int((spans.ends - spans.starts).sum())
        gpu_begin = int(end.max()) - busy - idle.total
        times = [(cause, int(self.gaps.parts[cause][self._own_gaps].sum())) for cause in CAUSES]
        threads, host_left_out = _most_active(list(self._threads(operators)))
        streams, streams_left_out = _most_active([[lane] for lane in self._streams(mine)])
        lanes = [lane for lane in (*threads, *streams, idle) if len(lane.start)]
        origin = min(begin, gpu_begin, *(int(lane.start[0]) for lane in lanes))
        until = max(int(lane.end.max()) for lane in lanes)
        lanes += self._others(origin, until)
        calls = np.concatenate([_NO_LAUNCH, *(x.launch for x in lanes if x.kind == "launch")])
        place = np.full(len(self.launches) + 1, -1)
        place[calls] = np.arange(len(calls))
        sources, source = self.sources
        lanes, width = _bounded(lanes, origin, until)
        return StepTimeline(
            what,
            len(self.work.iterations.used),
            until - origin,
            gpu_begin - origin,
            busy,
            tuple(IdleTime(cause, ns) for cause, ns in times if ns),
            tuple(lane.lane(origin, place, np.append(source, -1)) for lane in lanes),
            width,
            host_left_out + streams_left_out,
            sources,
        )

    @property
    def _own_gaps(self) -> Bools:
        own: Bools = self.gaps.group == self.row
        return own

    def _idle(self) -> _Columns:
        """The parts of each gap, one after the other."""
        start, end, cause, _ = self.gaps.by_cause(np.flatnonzero(self._own_gaps))
        labels = np.concatenate([self.labels.number([""], cause) for cause in CAUSES])
        return _Columns("idle", None, start, end, labels[cause])

    def _others(self, origin: int, until: int) -> list[_Columns]:
        """When the GPU worked for other iterations meanwhile."""
        table, others = self.work.activities, self.activities != self.row
        spans = Cover.of(ints(table, c.START)[others], ints(table, c.END)[others])
        inside = (spans.ends > origin) & (spans.starts < until)
        start, end = spans.starts[inside].clip(origin), spans.ends[inside].clip(max=until)
        label = self.labels.number([""] * len(start), "other")
        return [_Columns("other", None, start, end, label)] if len(start) else []

    def _streams(self, mine: Bools) -> Iterator[_Columns]:
        table, stream = self.work.activities, ints(self.work.activities, c.STREAM)
        copy, reset = (table[c.KIND] == kind for kind in (c.MEMCPY, c.MEMSET))
        label = self._labels(
            table, {"memcpy": mine & copy, "memset": mine & reset, "kernel": mine & ~copy & ~reset}
        )
        for number in unique(stream[mine]).tolist():
            yield _of(table, "gpu", number, mine & (stream == number), label)

    def _threads(self, operators: bool) -> Iterator[list[_Columns]]:
        """The lanes of each thread that launched or waited."""
        work, iterations, launches = self.work, self.work.iterations, self.work.launches
        tid, mine = ints(launches, c.TID), self.launches == self.row
        graph = launches[c.KIND] == c.GRAPH
        label = self._labels(launches, {"graph": mine & graph, "launch": mine & ~graph})
        waits = self._inside(work.syncs)
        ranges, ops = map(iterations.of_process, (work.trace.ranges, work.trace.ops))
        shown = self._inside(ranges)
        shown &= ~where(ranges[c.NAME], lambda name: name.startswith(OWN_RANGES))
        ran = self._inside(ops)
        for number in unique(np.append(tid[mine], ints(work.syncs, c.TID)[waits])).tolist():
            lanes = [self._host("range", ranges, shown, number)]
            if operators:
                lanes.append(self._host("operator", ops, ran, number))
            lanes.append(_of(launches, "launch", number, mine & (tid == number), label))
            lanes.append(self._host("sync", work.syncs, waits, number))
            yield [lane for lane in lanes if len(lane.start)]

    def _inside(self, table: Table) -> Bools:
        """Whether each row begins in this iteration or step, on the host."""
        whose = self.work.iterations
        time = ints(table, c.START)
        rows = whose.of(time) if self.launches is self.work.iteration else whose.step_of(time)
        inside: Bools = rows == self.row
        return inside

    def _labels(self, table: Table, chosen: dict[LabelKind, Bools]) -> Ints:
        """The labels of the names of these rows, by kind."""
        label = np.zeros(len(table), np.int64)
        for kind, rows in chosen.items():
            label[rows] = self.labels.number([str(name) for name in table[c.NAME][rows]], kind)
        return label

    def _host(self, kind: LaneKind, table: Table, chosen: Bools, number: int) -> _Columns:
        """A lane of the chosen rows of a thread that lie in no other one."""
        rows = np.flatnonzero(chosen & (ints(table, c.TID) == number))
        nesting = Nesting.of(*(ints(table, column)[rows] for column in (c.START, c.END, c.TID)))
        outer = np.zeros(len(table), bool)
        outer[rows[nesting.level == 1]] = True
        label = self._labels(table, {"sync" if kind == "sync" else "host": outer})
        made = _of(table, kind, number, outer, label)
        if kind == "sync":
            return made
        # The profiler may have been stopped inside the last step's optimizer.
        return replace(made, end=made.end.clip(max=self.work.iterations.end[self.row]))


def _of(table: Table, kind: LaneKind, number: int, rows: Bools, label: Ints) -> _Columns:
    start = ints(table, c.START)[rows]
    order = np.argsort(start, kind="stable")
    end = np.maximum(ints(table, c.END)[rows], start)
    launch = ints(table, c.LAUNCH) if kind == "gpu" else np.arange(len(table))
    columns = (column[rows][order] for column in (label, launch))
    return _Columns(kind, number, start[order], end[order], *columns)


def _most_active(groups: list[list[_Columns]]) -> tuple[list[_Columns], int]:
    """The lanes of the groups with the most time in them, in their order, and how many lanes are
    left out."""
    rank = sorted(range(len(groups)), key=lambda i: -sum(lane.total for lane in groups[i]))
    kept, left_out = sorted(rank[:_MOST_LANES]), rank[_MOST_LANES:]
    return [lane for i in kept for lane in groups[i]], sum(len(groups[i]) for i in left_out)


def _bounded(lanes: list[_Columns], origin: int, until: int) -> tuple[list[_Columns], int | None]:
    """The lanes with at most so many intervals, and below which width some are merged."""
    made, width = lanes, 0
    while sum(len(lane.start) for lane in made) > _MOST_INTERVALS:
        width = width * 2 or max((until - origin) // _PIXELS, 1)
        made = [lane.merged(origin, width) for lane in lanes]
    return made, width or None

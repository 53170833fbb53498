"""What host and GPU did in one traced step, as intervals to draw."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

IdleCause = Literal[
    "data", "sync", "setup", "paused", "framework", "launch_call", "dispatch", "unattributed"
]
LaneKind = Literal["range", "operator", "launch", "sync", "gpu", "idle", "other"]
LabelKind = Literal["host", "launch", "graph", "sync", "kernel", "memcpy", "memset", "other"]


class Label(Struct, frozen=True):
    """What an interval is. In a lane of idle time the kind is the cause, and the name is empty."""

    name: str
    kind: LabelKind | IdleCause


class Source(Struct, frozen=True):
    """What launched, empty where not known. `forward`: the line whose backward `line` runs."""

    line: str
    module: str
    forward: str = ""


class Lane(Struct, frozen=True):
    """Intervals by start, as columns of equal length. `other`: the GPU works for other iterations.
    `label`: index into the labels; `count`: how many intervals each stands for, empty for one each.
    Of a stream, -1 unknown: `launch`, the place among the calls of all lanes; `source`, an index.
    """

    kind: LaneKind
    number: int | None  # of the thread or the stream
    start_ns: tuple[int, ...]  # since the timeline begins
    duration_ns: tuple[int, ...]
    label: tuple[int, ...]
    count: tuple[int, ...] = ()
    launch: tuple[int, ...] = ()
    source: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        columns = (self.duration_ns, self.label, self.count or self.start_ns)
        if any(len(column) != len(self.start_ns) for column in columns):
            raise ValueError("a lane of a timeline has columns of different lengths")


class IdleTime(Struct, frozen=True):
    """How long the GPU was idle for one cause."""

    cause: IdleCause
    ns: int


class StepTimeline(Struct, frozen=True):
    """An iteration (from the GPU's end of the step before), a step, or all of a trace; the most
    typical of `steps`.
    `busy_ns` and `idle` are of the GPU and sum to the time from `gpu_begin_ns` to its last work.
    Inside a gap the parts are sorted by cause: when each of them happened is not known.
    """

    what: Literal["iteration", "step", "span"]
    steps: int
    duration_ns: int
    gpu_begin_ns: int
    busy_ns: int
    idle: tuple[IdleTime, ...]
    lanes: tuple[Lane, ...]
    merged_below_ns: int | None = None  # shorter intervals are merged with their neighbors
    lanes_left_out: int = 0  # of the least active threads and streams
    sources: tuple[Source, ...] = ()


class Timelines(Struct, frozen=True):
    """The eager step and its replay as traced: a profiler stretches the host's times."""

    labels: tuple[Label, ...]
    eager: StepTimeline
    replay: StepTimeline | None = None

    def __post_init__(self) -> None:
        steps = filter(None, (self.eager, self.replay))
        known = {label for step in steps for lane in step.lanes for label in lane.label}
        if not known.issubset(range(len(self.labels))):
            raise ValueError("an interval of a timeline has a label that is not there")

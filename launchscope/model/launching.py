"""How the work of the traced steps was launched: distributions, the queue, and who launched it."""

from __future__ import annotations

from typing import Literal

from launchscope.frozen import dataclass
from launchscope.model.recording import SourceLine


@dataclass(frozen=True)
class Extreme:
    """One value of a histogram: the kernel or call that it is of, and the line behind it."""

    name: str
    us: float
    where: SourceLine | None = None


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values are from `edges_us[i]` up to, but without, `edges_us[i + 1]`; the first
    bin holds those below it, too. `outliers` are above the double of the third quartile, and above
    it by more than three times the interquartile range; `largest` are the first five of them."""

    edges_us: tuple[float, ...]
    counts: tuple[int, ...]
    median_us: float
    p95_us: float
    outliers: int = 0
    largest: tuple[Extreme, ...] = ()


@dataclass(frozen=True)
class Histograms:
    """Durations in the used steps of a trace, as they were traced. A histogram is None where
    there is nothing to count. The delays are of launches of kernels and of graphs."""

    launch_delay: Histogram | None  # from the begin of the launch call to its first kernel's
    queue_delay: Histogram | None  # from the return of the call on; 0 if the kernel began before
    launch_call: Histogram | None
    kernel: Histogram | None
    short_kernels: float | None  # per step, shorter than the call that launched nothing but them
    short_kernels_pct: float | None  # of the kernels with a launch call of their own


@dataclass(frozen=True)
class QueueDepth:
    """How many activities were launched and not finished, over one step: from its begin on the host
    to the end of its last activity. `depth[i]` is the time-weighted mean over the i-th of equally
    long parts of `ms`."""

    ms: float
    depth: tuple[float, ...]
    maximum: int
    mean: float  # weighted by time


@dataclass(frozen=True)
class StreamRow:
    """What one stream of the GPU ran per step. `launches` are of kernels, without graphs."""

    stream: int
    launches: float
    activities: float  # kernels, copies and sets
    busy_ms: float


@dataclass(frozen=True)
class OverheadRow:
    """What one line, module or operator launched. `launches` are of kernels, per step, without
    graphs; `idle_ms` is its part of `launch_overhead_ms`: a gap belongs to the launch that ended
    it. Both sum over all rows to the metric (the counts to their mean).

    `known` rows have a name. Of the others there is one each: what is left out where there are too
    many, launches between steps (not in any step's count), and those behind which no line, module
    or operator is known.
    """

    name: str
    launches: float
    idle_ms: float | None  # None: not measured
    where: SourceLine | None = None
    stack: tuple[str, ...] = ()  # of a module: those around it and itself, the outermost first
    part: Literal["known", "others", "between_steps", "unknown"] = "known"

"""What a replay of a step would take, from its eager trace alone, with bounds.

    replay = busy + 0.26 us x kernels + 0.44 us x (copies and sets) + 3.2 us + optimizer + stalls

- `busy` is the union of the eager step's device activity. A replay adds gaps between nodes, a
  little to each short kernel, and a start of its own. It may run streams side by side that an
  eager step short of launches runs in turn: the busiest stream is the lower bound, or the work that
  was queued long before it began, which a replay begins no sooner.
- `optimizer`: with the `capturable=True` that a capture needs, foreach optimizers of the Adam
  family run two more kernels per tensor and eight per group of parameters, of about 1 us each.
- `stalls`: idle time in which the step's next work was queued already, or that work of unknown
  origin ended. Waits for other streams, collectives and what the trace lacks stay in a replay.

The three costs were fitted on 60 steps of `python -m tests.benchmarks.zoo` whose replay ran the
same work (NVIDIA H200, CUDA 13.0, PyTorch 2.11; least absolute relative error). With each step
left out of the fit in turn the error is 0.7 % in the median and 5.3 % at the 90th percentile. The
model has no cold caches and clocks; the bounds allow for them, and for half a microsecond a node.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from launchscope.analysis.steps.iterations import OPTIMIZER_RANGE
from launchscope.analysis.timeline.intervals import union_ns_by_group
from launchscope.analysis.timeline.timeline import STALL_NS
from launchscope.analysis.timeline.work import Work
from launchscope.model import CAPTURE_FLAGS, InspectResult
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, distinct, ints, median_of, where

KERNEL_MS = 0.26e-3
COPY_MS = 0.44e-3
START_MS = 3.2e-3
ADDED_PER_TENSOR, ADDED_PER_GROUP = 2, 8
ADDED_MS = 1.06e-3  # an added kernel and its gap
# Bounds. Of all kernels together: clocks and caches. Of each node: the largest cost seen
# on an H200 in any trial. Of an added kernel: 1.6 us in the largest optimizer tried.
_SPREAD = 0.03
_MOST_NODE_MS = 0.5e-3
_MOST_ADDED_MS = 1.8e-3

_REFUSING = "|".join(flags.optimizer for flags in CAPTURE_FLAGS if flags.required)
_STEP = re.compile(rf"{OPTIMIZER_RANGE}(?:{_REFUSING})\.step")
_FUSED = "Fused"  # kernels of such implementations, which a capture leaves as they are


class Optimizer(Struct, frozen=True):
    """Parameters, and groups of them, that a capture makes capturable and that were not."""

    tensors: int = 0
    groups: int = 0

    @classmethod
    def of(cls, seen: InspectResult | None) -> Optimizer:
        return cls(seen.uncapturable_tensors, seen.uncapturable_groups) if seen else cls()

    @property
    def added_kernels(self) -> int:
        return ADDED_PER_TENSOR * self.tensors + ADDED_PER_GROUP * self.groups


_NO_OPTIMIZER = Optimizer()


class StepWork(Struct, frozen=True):
    """Device work of one eager step, or medians over several."""

    busy_ms: float
    least_ms: float  # of the busiest stream, or of work that was queued long before
    kernels: float
    copies: float  # and sets
    stalled_ms: float = 0.0  # idle time that a replay keeps


class Prediction(Struct, frozen=True):
    """GPU time of one replay in ms, and the bounds within which it is expected."""

    ms: float
    low_ms: float
    high_ms: float


def predict(work: StepWork, optimizer: Optimizer = _NO_OPTIMIZER) -> Prediction:
    """The model in the module's docstring. The bounds are not a confidence interval: they span
    the errors seen, and the overlap of streams that is possible."""
    nodes = work.kernels + work.copies
    added = optimizer.added_kernels
    gaps = KERNEL_MS * work.kernels + COPY_MS * work.copies + START_MS
    most_gaps = max(_MOST_NODE_MS * nodes, KERNEL_MS * work.kernels + COPY_MS * work.copies)
    stays, busy = work.stalled_ms, work.busy_ms
    ms = stays + busy + gaps + ADDED_MS * added
    return Prediction(
        ms=ms,
        low_ms=min(ms, stays + work.least_ms * (1 - _SPREAD) + KERNEL_MS * added),
        high_ms=stays + busy * (1 + _SPREAD) + most_gaps + 2 * START_MS + _MOST_ADDED_MS * added,
    )


def step_work(work: Work) -> StepWork | None:
    """The work of the used steps, medians; None when they ran nothing on the device."""
    count, used = len(work.iterations), work.iterations.used
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    step = work.activity_step
    streams, stream = distinct(ints(work.activities, c.STREAM))
    width = max(len(streams), 1)
    group = np.where(step >= 0, step * width + stream, -1)
    longest = union_ns_by_group(start, end, group, count * width).reshape(count, width)
    launch = ints(work.activities, c.LAUNCH)
    launched = np.append(ints(work.launches, c.END), np.iinfo(np.int64).max)[launch]
    queued = start - STALL_NS[0] > launched
    queued_ms = work.busy_ms(np.where(queued, step, -1))
    busy, least = work.busy_ms(step), np.maximum(longest[used].max(axis=1) / 1e6, queued_ms)
    kernel = work.activities[c.KIND] == c.KERNEL
    kernels, others = (work.iterations.summed(step, chosen) for chosen in (kernel, ~kernel))
    return StepWork(*map(median_of, (busy, least, kernels, others))) if busy.any() else None


def made_capturable(work: Work) -> Optimizer:
    """Parameters and groups of the used steps' optimizers, medians, from a trace alone.

    Parameters are the gradients of one backward, of other optimizers too. An optimizer with at
    least as many launches as a capturable one would add runs tensor by tensor or is capturable,
    and is not counted. Each optimizer counts as one group.
    """
    windows, ranges = work.iterations, work.optimizer_ranges
    if not len(ranges):
        return _NO_OPTIMIZER
    begin, end = ints(ranges, c.START), ints(ranges, c.END)
    tensors = _parameters(work, begin, end, int(ints(ranges, c.TID)[0]))
    named = where(ranges[c.NAME], _STEP.fullmatch)
    start = ints(work.launches, c.START)
    launches = np.searchsorted(start, end) - np.searchsorted(start, begin)
    short = launches < ADDED_PER_TENSOR * tensors
    changes = named & short & ~_fused(work, begin, end)
    step = np.where(changes, windows.step_of(begin), -1)
    per_step = windows.summed(step, tensors), windows.summed(step)
    return Optimizer(*(int(median_of(each)) for each in per_step))


def _parameters(work: Work, begin: Ints, end: Ints, tid: int) -> Ints:
    """The gradients of one backward that each optimizer step got since the step before it."""
    given = ints(work.iterations.of_process(work.trace.gradients), c.START)
    forward = ints(work.launches, c.START)[ints(work.launches, c.TID) == tid]
    first = np.searchsorted(given, np.append(0, end[:-1]))
    last = np.searchsorted(given, begin)
    # The engine has a thread of its own: while a backward runs, the script's launches nothing.
    backward = np.searchsorted(forward, given)
    opens = np.append(0, np.cumsum(np.diff(backward, prepend=-1) != 0))
    others = opens[last] - opens[np.minimum(first + 1, last)]
    return np.asarray(np.maximum(last - first, 0) // (1 + others), np.int64)


def _fused(work: Work, begin: Ints, end: Ints) -> Bools:
    """Whether each optimizer step launched a kernel of a fused implementation."""
    fused = where(work.activities[c.NAME], lambda name: _FUSED in name)
    launch = ints(work.activities, c.LAUNCH)
    mine = launch[fused & (launch >= 0)]
    start = np.sort(ints(work.launches, c.START)[mine])
    return np.searchsorted(start, end) > np.searchsorted(start, begin)

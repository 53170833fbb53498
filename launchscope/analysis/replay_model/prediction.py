"""What a replay of a step would take, from its eager trace alone, with bounds.

    replay = busy - overlap + 0.26 us x kernels + 0.44 us x (copies and sets) + 3.2 us + optimizer

- `busy` is the union of the device activity that the eager step launched. Between
  two nodes of a graph lies a gap, short kernels last a little longer in a replay than launched
  alone, and each replay has a start of its own.
- `overlap`: an eager step that is short of launches runs its streams one after another, a
  replay runs them side by side. What that saves is simulated (`overlap`); nothing for a step of
  one stream, or where the trace does not tell enough. The busiest stream is the lower bound, the
  union, without any overlap, the upper one.
- `optimizer`: a capture needs `capturable=True` of the Adam family, which eager's trace does
  not have. The foreach implementation then runs two kernels more per tensor, and eight for
  each group of parameters, of about 1 us. A trace without its run tells of both (`capturable`).

The three costs were fitted on 60 steps of `python -m tests.benchmarks.zoo` whose replay ran the
same work (NVIDIA H200, CUDA 13.0, PyTorch 2.11; least absolute relative error). With each step
left out of the fit in turn the error is 0.7 % in the median and 5.3 % at the 90th percentile.
Earlier constants, fitted on eight sample workloads alone, came to 1.2 % and 11.0 % on these 60:
too low for small kernels. `overlap` came later. On a run of 69 steps after that, nine of them new
and of several streams, the error is 0.7 % in the median and 5.8 % at the 90th percentile; of those
nine 3.2 % in the median and 17 % at most (37 and 149 % with one stream after another). Cold caches
and clocks are not modelled; the bounds allow for them, and for half a microsecond a node.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from launchscope.analysis.replay_model.overlap import side_by_side_ns
from launchscope.analysis.timeline.intervals import union_ns_by_group
from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import ints

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


@dataclass(frozen=True)
class Optimizer:
    """Parameters that a capture makes capturable and eager's trace does not have so."""

    tensors: int = 0
    groups: int = 0

    @property
    def added_kernels(self) -> int:
        return ADDED_PER_TENSOR * self.tensors + ADDED_PER_GROUP * self.groups


@dataclass(frozen=True)
class StepWork:
    """Device work of one eager step, or medians over several.

    `longest_stream_ms` is the busy time of the stream with the most of it; `overlap_ms` is what
    a replay is expected to save by running streams side by side, gaps between nodes included.
    """

    busy_ms: float
    longest_stream_ms: float
    kernels: float
    copies: float  # and sets
    overlap_ms: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """GPU time of one replay in ms, and the bounds within which it is to be expected."""

    ms: float
    low_ms: float
    high_ms: float


def predict(work: StepWork, optimizer: Optimizer = Optimizer()) -> Prediction:
    """The model of the module's docstring. Bounds are no confidence interval: they span the
    errors seen, and the overlap of streams that a replay may find."""
    nodes = work.kernels + work.copies
    added = optimizer.added_kernels
    gaps = KERNEL_MS * work.kernels + COPY_MS * work.copies + START_MS
    most_gaps = max(_MOST_NODE_MS * nodes, KERNEL_MS * work.kernels + COPY_MS * work.copies)
    ms = work.busy_ms + gaps - work.overlap_ms + ADDED_MS * added
    return Prediction(
        ms=ms,
        low_ms=min(ms, work.longest_stream_ms * (1 - _SPREAD) + KERNEL_MS * added),
        high_ms=work.busy_ms * (1 + _SPREAD) + most_gaps + 2 * START_MS + _MOST_ADDED_MS * added,
    )


def step_work(work: Work) -> StepWork | None:
    """The work of the used steps, medians; None when they ran nothing on the device."""
    each = step_works(work)
    if not each or not any(step.busy_ms for step in each):
        return None
    return StepWork(
        *(
            float(np.median([getattr(step, field.name) for step in each]))
            for field in fields(StepWork)
        )
    )


def step_works(work: Work) -> tuple[StepWork, ...]:
    """The work of each used step, in their order."""
    count, used = len(work.iterations), work.iterations.used
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    step = work.activity_step
    busy = union_ns_by_group(start, end, step, count)[used] / 1e6
    streams, stream = np.unique(ints(work.activities, c.STREAM), return_inverse=True)
    width = max(len(streams), 1)
    apart = np.where(step >= 0, step * width + stream, -1)
    longest = union_ns_by_group(start, end, apart, count * width).reshape(count, width)
    kernel = (work.activities[c.KIND] == c.KERNEL).to_numpy(bool)
    kernels = np.bincount(step[(step >= 0) & kernel], minlength=count)[used]
    copies = np.bincount(step[(step >= 0) & ~kernel], minlength=count)[used]
    beside = side_by_side_ns(work, np.where(kernel, KERNEL_MS, COPY_MS) * 1e6) / 1e6
    apart_ms = busy + KERNEL_MS * kernels + COPY_MS * copies
    # Eager's own order can be replayed too: overlap never costs more than it.
    saved = np.nan_to_num(np.maximum(apart_ms - beside, 0.0))
    return tuple(
        StepWork(float(b), float(most) / 1e6, float(k), float(o), float(less))
        for b, most, k, o, less in zip(busy, longest[used].max(axis=1), kernels, copies, saved)
    )

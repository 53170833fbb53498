"""What a capture would make capturable, from a trace alone.

A run knows its optimizers, a trace only their names: torch marks each step with a range. How many
parameters there are follows from the engine, which hands each its gradient with one operator,
once a backward; where another forward came in between, that was another backward. Parameters that
get a gradient and are not the optimizer's are counted too: in a generator's turn those of the
discriminator.
"""

from __future__ import annotations

import re

import numpy as np

from launchscope.analysis.replay_model.prediction import ADDED_PER_TENSOR, Optimizer
from launchscope.analysis.timeline.work import OPTIMIZER_RANGE, Work
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, ints

# Those of torch.optim that refuse a capture unless every group has capturable=True.
ASK_FOR_CAPTURABLE = (
    "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "RMSprop", "Rprop",
)  # fmt: skip
_STEP = re.compile(rf"{OPTIMIZER_RANGE}(?:{'|'.join(ASK_FOR_CAPTURABLE)})\.step")
_FUSED = "Fused"  # kernels of such implementations, which a capture leaves as they are


def made_capturable(work: Work) -> Optimizer:
    """Parameters and groups of the used steps' optimizers, in the median.

    An optimizer with at least as many launches as a capturable one adds runs tensor by tensor or
    is capturable already; nothing is added to it. Groups count one for each optimizer.
    """
    windows, ranges = work.iterations, work.optimizer_ranges
    if not len(ranges):
        return Optimizer()
    begin, end = ints(ranges, c.START), ints(ranges, c.END)
    tensors = _parameters(work, begin, end, int(ints(ranges, c.TID)[0]))
    named = ranges[c.NAME].astype(str).str.fullmatch(_STEP).to_numpy(bool)
    short = _launches(work, begin, end) < ADDED_PER_TENSOR * tensors
    changes = named & short & ~_fused(work, begin, end)
    step = windows.step_of(begin)
    held = changes & (step >= 0)
    count = len(windows)
    per_step = np.bincount(step[held], weights=tensors[held], minlength=count)[windows.used]
    groups = np.bincount(step[held], minlength=count)[windows.used]
    return Optimizer(int(np.median(per_step)), int(np.median(groups)))


def _parameters(work: Work, begin: Ints, end: Ints, tid: int) -> Ints:
    """Of each optimizer step, the gradients of one backward since the step before it."""
    gradients = work.trace.gradients
    if work.iterations.pid is not None:
        gradients = gradients[gradients[c.PID] == work.iterations.pid]
    given = ints(gradients, c.START)
    forward = ints(work.launches, c.START)[ints(work.launches, c.TID) == tid]
    first = np.searchsorted(given, np.append(0, end[:-1]))
    last = np.searchsorted(given, begin)
    # The engine has a thread of its own: while a backward runs, the script's launches nothing.
    backward = np.searchsorted(forward, given)
    opens = np.append(0, np.cumsum(np.diff(backward, prepend=-1) != 0))
    others = opens[last] - opens[np.minimum(first + 1, last)]
    return np.asarray(np.maximum(last - first, 0) // (1 + others), np.int64)


def _launches(work: Work, begin: Ints, end: Ints) -> Ints:
    """Of each optimizer step, the launch calls in it."""
    start = ints(work.launches, c.START)
    return np.asarray(np.searchsorted(start, end) - np.searchsorted(start, begin), np.int64)


def _fused(work: Work, begin: Ints, end: Ints) -> Bools:
    """Of each optimizer step, whether it launched a kernel of a fused implementation."""
    names = work.activities[c.NAME].cat
    fused = np.asarray(names.categories.astype(str).str.contains(_FUSED, regex=False), np.bool_)
    launch = ints(work.activities, c.LAUNCH)
    mine = launch[fused[names.codes.to_numpy()] & (launch >= 0)]
    start = np.sort(ints(work.launches, c.START)[mine])
    return np.searchsorted(start, end) > np.searchsorted(start, begin)

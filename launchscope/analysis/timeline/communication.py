"""The device time of collectives, and how much of it no compute of the same rank hides."""

from __future__ import annotations

import re

import numpy as np

from launchscope.analysis.timeline.intervals import Cover
from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Table, ints, where

# Kernels that wait for other GPUs: NCCL, RCCL, MSCCL and oneCCL; PyTorch's symmetric memory; the
# all-reduces of vLLM, SGLang, TensorRT-LLM and FlashInfer; NVSHMEM, DeepEP and user buffers.
_COLLECTIVE = re.compile(
    r"(?i)^(?!triton_).*(?:nccl|rccl|mscclkernel|mscclpp|oneccl|multimem_|symmetric_memory|symm_mem"
    r"|(?:one|two)_?shot_?all_?reduce|cross_device_reduce|all_?reduce_?(?:fusion|kernel|prototype)"
    r"|lamport|nvshmem|deep_ep::|userbuffers_)"
)


def is_collective(activities: Table) -> Bools:
    """Whether each activity (NAME, KIND) is a kernel that communicates with other GPUs."""
    is_kernel: Bools = activities[c.KIND] == c.KERNEL
    return is_kernel & where(activities[c.NAME], _COLLECTIVE.search)


def communication_ms(work: Work) -> tuple[Floats, Floats]:
    """Milliseconds of collectives per used iteration (their union), and the exposed part of it:
    during which no other kernel runs on the device."""
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    mine = is_collective(work.activities)
    if not mine.any():
        nothing = np.zeros(len(work.iterations.used))
        return nothing, nothing
    others = (work.activities[c.KIND] == c.KERNEL) & ~mine
    spans = Cover.of(start[mine], end[mine])
    # A span belongs to the iteration of the collective that begins it.
    first = np.searchsorted(start[mine], spans.starts)
    iteration = work.activity_iteration[mine][first]
    total = spans.ends - spans.starts
    exposed = total - Cover.of(start[others], end[others]).inside(spans.starts, spans.ends)
    known, count = iteration >= 0, len(work.iterations)
    summed = (np.bincount(iteration[known], part[known], count) for part in (total, exposed))
    both = [each[work.iterations.used] / 1e6 for each in summed]
    return both[0], both[1]

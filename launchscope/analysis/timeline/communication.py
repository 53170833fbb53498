"""The device time of collectives, and how much of it no compute of the same rank hides."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from launchscope.analysis.timeline.intervals import Cover
from launchscope.analysis.timeline.work import Work
from launchscope.model import Reason
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Table, ints, median_of, where

# Kernels that wait for other GPUs: NCCL, RCCL, MSCCL and oneCCL; PyTorch's symmetric memory; the
# all-reduces of vLLM, SGLang, TensorRT-LLM and FlashInfer; NVSHMEM, DeepEP and user buffers. For
# names in lower case: without regard to case, each of the long names would take 50 us.
_COLLECTIVE = re.compile(
    r"nccl|rccl|mscclkernel|mscclpp|oneccl|multimem_|symmetric_memory|symm_mem"
    r"|(?:one|two)_?shot_?all_?reduce|cross_device_reduce|all_?reduce_?(?:fusion|kernel|prototype)"
    r"|lamport|nvshmem|deep_ep::|userbuffers_"
)


def is_collective(activities: Table) -> Bools:
    """Whether each activity (NAME, KIND) is a kernel that communicates with other GPUs."""
    is_kernel: Bools = activities[c.KIND] == c.KERNEL
    return is_kernel & where(activities[c.NAME], _communicates)


@lru_cache(10_000)
def _communicates(name: str) -> bool:
    name = name.lower()
    return not name.startswith("triton_") and _COLLECTIVE.search(name) is not None


# A rank whose GPU spends more of its iteration in collectives alone waits for another rank.
_MAX_EXPOSED_PCT = 50.0


def waits_for_ranks(work: Work, iteration_ms: Floats) -> Reason | None:
    """Set where the GPU runs nothing but collectives for most of the used iterations, which take
    `iteration_ms`: they wait for another rank, whose steps a replay would change, too."""
    _, exposed = communication_ms(work)
    share_pct = 100 * float(median_of(exposed / np.maximum(iteration_ms, 1e-9)))
    if share_pct <= _MAX_EXPOSED_PCT:
        return None
    return Reason("waits_for_ranks", {"share_pct": min(share_pct, 100.0)})


def communication_ms(work: Work) -> tuple[Floats, Floats]:
    """Milliseconds of collectives per used iteration, and for how much of it no other kernel ran.
    Where several run at once, the time is of the iteration of the one that began first."""
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    mine = is_collective(work.activities)
    others = (work.activities[c.KIND] == c.KERNEL) & ~mine
    spans = Cover.of(start[mine], end[mine])
    first = np.flatnonzero(mine)[np.searchsorted(start[mine], spans.starts)]
    iteration = work.activity_iteration[first]
    hidden = Cover.of(start[others], end[others]).inside(spans.starts, spans.ends)
    length, summed = spans.ends - spans.starts, work.iterations.summed
    return summed(iteration, length) / 1e6, summed(iteration, length - hidden) / 1e6

"""What each stream of the GPU ran in the used steps."""

from __future__ import annotations

import numpy as np

from launchscope.analysis.timeline.intervals import union_ns_by_group
from launchscope.analysis.timeline.work import Work
from launchscope.model import StreamRow
from launchscope.parser import columns as c
from launchscope.parser.trace import distinct, ints, where


def stream_rows(work: Work) -> tuple[StreamRow, ...]:
    """A row per stream, by number."""
    used = work.iterations.used
    ran = np.flatnonzero(np.isin(work.activity_step, used))
    start, end, launch, stream = (
        ints(work.activities, column)[ran] for column in (c.START, c.END, c.LAUNCH, c.STREAM)
    )
    streams, group = distinct(stream)
    is_kernel = where(work.activities[c.KIND], c.KERNEL.__eq__)[ran]
    launched = is_kernel & np.append(work.launches_kernel, False)[launch]
    count = len(streams)
    rows = zip(
        streams.tolist(),
        (np.bincount(group[launched], minlength=count) / len(used)).tolist(),
        (np.bincount(group, minlength=count) / len(used)).tolist(),
        (union_ns_by_group(start, end, group, count) / len(used) / 1e6).tolist(),
    )
    return tuple(StreamRow(*row) for row in rows)

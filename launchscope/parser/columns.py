"""The names of the columns that frames of parser and analysis have, in one place.

Use as `from launchscope.parser import columns as c`. Times are integer nanoseconds on the
trace's own clock; `end_ns` is exclusive.
"""

from __future__ import annotations

NAME = "name"
START = "start_ns"
DUR = "dur_ns"
END = "end_ns"
PID = "pid"  # operating system process of the host side; -1 unknown
TID = "tid"
CORRELATION = "correlation"  # joins a host call to its device work, within one process; -1 none
KIND = "kind"  # of an activity: kernel, memcpy, memset
DEVICE = "device"
STREAM = "stream"
COPY = "copy"  # "Pageable -> Device" and the like; "" for what is no copy
# Of a kernel: how much of the device's room for blocks its own take, in millionths; -1 unknown,
# as of all that is no kernel.
SHARE = "share_ppm"

KERNEL = "kernel"
MEMCPY = "memcpy"
MEMSET = "memset"

# Of launches (and `launch` of activities: the row of their launch, -1 for an orphan).
LAUNCH = "launch"
GRAPH = "graph"  # a kind beside the three above
KERNELS = "kernels"  # reached by the call
ACTIVITIES = "activities"  # likewise, copies and sets included
FIRST = "first_start_ns"  # on the device
LAST = "last_end_ns"
ACTIVE = "active_ns"  # sum of the durations of its activities
BLOCKING = "blocking"  # a copy from or to pageable memory, or by a call that waits for it
COUNTED = "counted"  # of synchronisations: not part of the one that follows

# Stream numbers under which CUPTI shows the legacy default stream.
LEGACY_STREAMS = (0, 7)

CALL_COLUMNS = (NAME, START, DUR, END, PID, TID, CORRELATION)
RANGE_COLUMNS = (NAME, START, DUR, END, PID, TID)
OP_COLUMNS = RANGE_COLUMNS
OP_MARKS = (START, PID)
ACTIVITY_COLUMNS = (NAME, START, DUR, END, PID, KIND, DEVICE, STREAM, CORRELATION, COPY, SHARE)
TEXT = frozenset({NAME, KIND, COPY})

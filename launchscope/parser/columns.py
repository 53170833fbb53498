"""The names of the columns that the tables of parser and analysis have, imported as `c`. Times are
integer nanoseconds on the trace's own clock; `end_ns` is exclusive."""

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
COPY = "copy"  # "Pageable -> Device" and the like; "" for what is not a copy

# Of an operator: the number of the autograd node that it makes or runs, -1 none.
SEQUENCE = "sequence"
# 0 for an operator that makes the node, otherwise it runs it; -1 without one.
FORWARD_THREAD = "forward_thread"

KERNEL = "kernel"
MEMCPY = "memcpy"
MEMSET = "memset"

LAUNCH = "launch"  # of an activity: the row of its launch, -1 for an orphan; of a synchronization
EARLIER = "earlier"  # of an activity: launched before the recording began
# Of launches:
GRAPH = "graph"  # a kind beside the three above
KERNELS = "kernels"  # that the call reaches
FIRST = "first_start_ns"  # on the device
LAST = "last_end_ns"
BLOCKING = "blocking"  # a copy from or to pageable memory, or by a call that waits for it
COUNTED = "counted"  # of synchronizations: not part of the next one

# Stream numbers under which CUPTI shows the legacy default stream.
LEGACY_STREAMS = (0, 7)

CALL_COLUMNS = (NAME, START, DUR, END, PID, TID, CORRELATION)
RANGE_COLUMNS = (NAME, START, DUR, END, PID, TID)
OP_COLUMNS = (*RANGE_COLUMNS, SEQUENCE, FORWARD_THREAD)
OP_MARKS = (START, DUR, PID, TID)
ACTIVITY_COLUMNS = (NAME, START, DUR, END, PID, KIND, DEVICE, STREAM, CORRELATION, COPY)
TEXT = frozenset({NAME, KIND, COPY})

"""The clock of the process, where a script that replaces the functions of `time` does not reach."""

from __future__ import annotations

import time


class _Clock:
    """In a class, because libraries that freeze the time replace what modules have imported."""

    perf_counter = staticmethod(time.perf_counter)
    perf_counter_ns = staticmethod(time.perf_counter_ns)


clock = _Clock()

"""Finds out when no thread can go on, because the stop has ended what others wait for.

A thread or a task that StopRun ended no longer serves its queue: whoever waits for it waits
forever.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

_CHECK_EVERY_S = 0.5
_CHECKS = 16  # in a row; a logger has this long to send its last lines to another process
_BUSY_S = 0.03  # of processor time between two checks: some thread works
# The standard library's ways to wait for another thread or task. A thread that waits for a
# process, a file or the network is elsewhere, and may still go on.
_WAITING = tuple(
    os.path.join(os.path.dirname(os.__file__), name)
    for name in ("threading.py", "queue.py", "selectors.py", "asyncio/", "concurrent/futures/")
)


def leave_when_all_wait(leave: Callable[[], None]) -> None:
    """Calls `leave` from a thread of its own once all others do nothing but wait."""
    threading.Thread(target=_watch, args=(leave,), name="launchscope", daemon=True).start()


def _watch(leave: Callable[[], None]) -> None:
    still, used = 0, time.process_time()
    while still < _CHECKS:
        time.sleep(_CHECK_EVERY_S)
        before, used = used, time.process_time()
        still = still + 1 if used - before < _BUSY_S and _all_wait() else 0
    leave()


def _all_wait() -> bool:
    """Whether every thread that keeps the process alive waits for another one.

    Daemon threads may be anywhere: the process uses no processor time, so they do not work.
    """
    frames = sys._current_frames()
    held = (frames.get(thread.ident or 0) for thread in threading.enumerate() if not thread.daemon)
    return all(f is None or f.f_code.co_filename.startswith(_WAITING) for f in held)

"""What ends launchscope ends the script: as by Ctrl-C, so that its `finally` blocks run."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from launchscope.runner.child.enter.target import StopRun

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with(parent: int) -> None:
    """From now on Linux ends this process with launchscope, the process `parent`, however that
    ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1 != parent:  # it was killed before
        os._exit(1)


def stop_on_termination() -> None:
    """The first SIGTERM or SIGHUP raises StopRun, unless they are ignored (nohup); the script may
    handle them in another way."""
    own = os.getpid()
    ending = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        if os.getpid() != own:  # a worker, which is to end as under `python`
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not ending:  # `timeout` sends two
            ending = True
            raise StopRun

    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, stop)

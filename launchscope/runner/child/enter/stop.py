"""Ends the script from inside, even if it swallows the exception that should end it, at the same
step on all ranks. Whatever ends launchscope also ends the script."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from launchscope.runner.child.enter.target import StopRun
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_SWALLOWED_STOPS = 3
# Ranks that take the same steps are measured at the same one, nearly at the same time.
_SOON_S, _POLL_S = 3.0, 0.005
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def stop_script(torch: Torch, still_to_stop: Callable[[], bool]) -> None:
    """Raise StopRun, now and, as an `except:` may swallow it, at the next calls of models while
    `still_to_stop` is true. A `finally:` may call models, but not train them. If that does not help
    either, the process ends at once.
    """
    stops = itertools.count(1)

    def stopping(original: Function, may_end_with: bool) -> Function:
        @functools.wraps(original)
        def stop_again(*args: Any, **kwargs: Any) -> Value:
            if not still_to_stop() or (may_end_with and _is_ending()):
                return original(*args, **kwargs)
            if next(stops) >= _SWALLOWED_STOPS:
                leave_at_once()
            raise StopRun

        return stop_again

    show_error = threading.excepthook

    def thread_error(error: threading.ExceptHookArgs) -> None:
        if not issubclass(error.exc_type, StopRun):  # which deserves no traceback
            show_error(error)

    threading.excepthook = thread_error
    for owner, name, may_end_with in (
        (torch.nn.Module, "__call__", True),
        (torch.autograd, "backward", False),
    ):
        setattr(owner, name, stopping(getattr(owner, name), may_end_with))
    raise StopRun


def _is_ending() -> bool:
    """Whether this runs while StopRun ends the script: in a `finally:` or a context manager."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, StopRun):
        error = error.__context__
    return error is not None


def stop_together(
    torch: Torch, stop_file: str, stop: Callable[[], None], may_stop: Callable[[], bool]
) -> None:
    """Calls `stop` once the file is there: now, or at a later call of a model where another rank
    needs more steps, which it can only make together with this one."""
    give_up = time.monotonic() + _SOON_S
    while not os.path.exists(stop_file) and time.monotonic() < give_up:
        time.sleep(_POLL_S)
    if os.path.exists(stop_file):
        stop()
        return
    original: Any = torch.nn.Module.__call__

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Value:
        if may_stop() and os.path.exists(stop_file):
            torch.nn.Module.__call__ = original
            stop()
        return original(*args, **kwargs)

    torch.nn.Module.__call__ = call


def leave_at_once() -> NoReturn:
    """End the process without running destructors: after a failed capture they may abort."""
    flush_output()
    os._exit(0)


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be None, closed or a class of the script
            stream.flush()


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

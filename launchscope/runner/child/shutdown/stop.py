"""Ends the script from inside, even if it swallows the exception that should end it."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from launchscope.runner.child.clock import clock
from launchscope.runner.child.shutdown.flush import leave_at_once
from launchscope.runner.child.target import StopRun, is_stop
from launchscope.runner.child.torch_types import Function, Torch, Value

_get_ident = threading.get_ident  # not what a script puts there
_SWALLOWED_STOPS = 3
_GRACE_S = 5.0  # in which other threads may end by themselves once the main thread is over


def stop_script(torch: Torch, still_to_stop: Callable[[], bool]) -> None:
    """Raise StopRun, now and, as an `except:` may swallow it, at the next calls of models
    while `still_to_stop` is true. A `finally:` may call models, but not train them. A thread that
    goes on for long without the main thread, which would have ended it, is stopped as well.

    If that does not help either, the process ends at once. A script that waits for what was ended
    is ended by the parent.
    """
    stops = Counter[int]()  # by thread
    left_alone = _LeftAlone()

    def stopping(original: Function, may_end_with: bool) -> Function:
        @functools.wraps(original)
        def stop_again(*args: Any, **kwargs: Any) -> Value:
            stop = still_to_stop() or left_alone()
            if not stop or (may_end_with and _is_ending()):
                return original(*args, **kwargs)
            stops[_get_ident()] += 1
            if stops[_get_ident()] >= _SWALLOWED_STOPS:
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


class _LeftAlone:
    """Says whether the main thread has been over for long, so that Python waits for the others."""

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self) -> bool:
        if threading.main_thread().is_alive():
            return False
        if self._since is None:
            self._since = clock.perf_counter()
        return clock.perf_counter() - self._since >= _GRACE_S


def _is_ending() -> bool:
    """Whether this runs while StopRun ends the script: in a `finally:` or a context manager."""
    error = sys.exc_info()[1]
    while error is not None and not is_stop(error):
        error = error.__context__
    return error is not None

"""Ends the script from inside, even if it swallows the exception that should end it."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from launchscope.runner.child.enter.flush import leave_at_once
from launchscope.runner.child.enter.target import StopRun, is_stop
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_SWALLOWED_STOPS = 3


def stop_script(torch: Torch, still_to_stop: Callable[[], bool]) -> None:
    """Raise StopRun, now and, as an `except:` may swallow it, at the next calls of models while
    `still_to_stop` is true, and in threads that outlive the main one. A `finally:` may call models,
    but not train them. If that does not help either, the process ends at once.
    """
    stops = Counter[int]()  # by thread

    def stopping(original: Function, may_end_with: bool) -> Function:
        @functools.wraps(original)
        def stop_again(*args: Any, **kwargs: Any) -> Value:
            if not (still_to_stop() or _is_left_alone()) or (may_end_with and _is_ending()):
                return original(*args, **kwargs)
            stops[threading.get_ident()] += 1
            if stops[threading.get_ident()] >= _SWALLOWED_STOPS:
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


def _is_left_alone() -> bool:
    """Whether this is a thread that Python waits for, although the main thread is over."""
    main = threading.main_thread()
    return not main.is_alive() and main.ident != threading.get_ident()


def _is_ending() -> bool:
    """Whether this runs while StopRun ends the script: in a `finally:` or a context manager."""
    error = sys.exc_info()[1]
    while error is not None and not is_stop(error):
        error = error.__context__
    return error is not None

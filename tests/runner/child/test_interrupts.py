"""Errors of signal handlers, trace functions and other threads are told from those of our code."""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launchscope.runner.child.interrupts import own_errors_ignored, raise_if_interrupt
from launchscope.runner.child.source_lines import is_machinery

_OURS = compile(
    """
def calls(action, *args):
    try:
        action(*args)
    except Exception as error:
        caught(error)
        return error
def works():
    for _ in range(100_000_000):
        pass
""",
    is_machinery.__code__.co_filename,
    "exec",
)


class LateError(Exception):
    """The script's own."""


@pytest.fixture
def ours() -> dict[str, Any]:
    """`calls` is a place of ours that catches errors of ours; `works` is code of ours."""
    names: dict[str, Any] = {"caught": raise_if_interrupt}
    exec(_OURS, names)
    return names


def _takes_both(signum: int, frame: object) -> None:
    raise TimeoutError("late")


def _takes_any(*given: object) -> None:
    _takes_both(*given)  # type: ignore[arg-type]


def _forgets(signum: int, frame: object) -> None:
    del signum, frame
    raise TimeoutError("late")


class _Owner:
    def method(self, signum: int, frame: object) -> None:
        raise TimeoutError("late")

    __call__ = method


HANDLERS: dict[str, Callable[..., Any]] = {
    "function": _takes_both,
    "any arguments": _takes_any,
    "forgets its arguments": _forgets,
    "method": _Owner().method,
    "object": _Owner(),
    "partial": functools.partial(_Owner.method, _Owner()),
    "lambda": lambda signum, frame: [][0],
}


@pytest.fixture
def handled() -> Iterator[Callable[[Any], object]]:
    before = signal.getsignal(signal.SIGALRM)
    yield functools.partial(signal.signal, signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", HANDLERS)
def test_the_error_of_a_signal_handler_is_raised_again(
    ours: dict[str, Any], handled: Callable[[Any], object], name: str
) -> None:
    handled(HANDLERS[name])
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises((TimeoutError, IndexError)):
        ours["calls"](ours["works"])


def test_the_error_of_a_handler_that_is_no_longer_one_is_raised_again(
    ours: dict[str, Any], handled: Callable[[Any], object]
) -> None:
    def once(signum: int, frame: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise TimeoutError

    handled(once)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises(TimeoutError):
        ours["calls"](ours["works"])


def test_the_error_of_a_trace_function_is_raised_again(ours: dict[str, Any]) -> None:
    def trace(frame: Any, event: str, argument: object) -> None:
        if frame.f_code is ours["works"].__code__:
            raise LateError("a debugger ends the script")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(LateError):
            ours["calls"](ours["works"])
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("kind", [LateError, TimeoutError])
def test_an_error_that_another_thread_raises_is_raised_again(
    ours: dict[str, Any], kind: type[Exception]
) -> None:
    thread, raises = (
        ctypes.c_ulong(threading.get_ident()),
        ctypes.pythonapi.PyThreadState_SetAsyncExc,
    )
    threading.Timer(0.01, lambda: raises(thread, ctypes.py_object(kind))).start()
    with pytest.raises(kind):
        ours["calls"](ours["works"])


def _of_a_replaced_function(*args: object) -> None:
    raise LateError("no files here")


@pytest.mark.parametrize(
    ("action", "args"),
    [
        (int, ("x",)),
        (next, (iter(()),)),
        (_of_a_replaced_function, ()),
        (_of_a_replaced_function, (14, "frame")),
        (functools.partial(threading.Thread(target=int).join, 1), ()),
        (None, ()),
    ],
)
def test_an_error_of_what_our_code_calls_stays_with_us(
    ours: dict[str, Any], action: Callable[..., object], args: tuple[object, ...]
) -> None:
    assert isinstance(ours["calls"](action, *args), Exception)


def test_errors_of_ours_are_ignored_by_their_kind(handled: Callable[[Any], object]) -> None:
    with own_errors_ignored():
        int("x")
    with own_errors_ignored(ValueError, OSError):
        int("x")
    with pytest.raises(ValueError, match="invalid literal"), own_errors_ignored(OSError):
        int("x")
    handled(_takes_both)
    with pytest.raises(TimeoutError), own_errors_ignored(OSError):
        signal.raise_signal(signal.SIGALRM)

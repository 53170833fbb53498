"""Recognizes errors that reach code of ours from outside: those of the script's signal handlers and
trace functions, and those that one thread of the script raises in another.

Whoever catches errors of ours hands each to `raise_if_interrupt` first: those are the script's.
"""

from __future__ import annotations

import contextlib
import inspect
import opcode
import sys
from collections.abc import Iterator
from traceback import walk_tb
from types import FrameType

from launchscope.runner.child.code_owner import is_ours
from launchscope.runner.child.source_lines import is_machinery

_RAISE = opcode.opmap["RAISE_VARARGS"]
_KNOWN = sys.stdlib_module_names | {"builtins", "launchscope", "torch"}
_WITHOUT_ARGUMENTS = (MemoryError, StopIteration)  # as Python itself raises them


def is_interrupt(error: BaseException) -> bool:
    """Whether the error does not come from what our code does."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    of_ours = isinstance(error, Exception)
    return not of_ours or any(map(_was_interrupting, frames)) or _is_asynchronous(error)


def raise_if_interrupt(error: BaseException) -> None:
    """Raise the error again if it is an interrupt."""
    try:
        if is_interrupt(error):
            raise error
    finally:
        del error  # else it would hold this frame, and this frame would hold it


@contextlib.contextmanager
def own_errors_ignored(*kinds: type[Exception]) -> Iterator[None]:
    """Inside, an error of ours ends the block and nothing else: any, or one of these kinds."""
    try:
        yield
    except Exception as error:
        if kinds and not isinstance(error, kinds):
            raise
        raise_if_interrupt(error)


def _was_interrupting(frame: FrameType) -> bool:
    """Whether Python itself made the call: it hands over the frame that it interrupts."""
    code, caller = frame.f_code, frame.f_back
    if is_ours(code.co_filename) or caller is None:
        return False
    count = code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)
    # An argument that is gone may have been it: `del signum, frame`.
    given = [frame.f_locals.get(name, caller) for name in code.co_varnames[:count]]
    given += [part for value in given if type(value) is tuple for part in value]
    return any(value is caller for value in given)


def _is_asynchronous(error: BaseException) -> bool:
    """Whether it was raised between two instructions, and as a class.

    What others raise has a `raise` or the arguments that a function in C has given it.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not is_machinery(last.tb_frame.f_code.co_filename):
        return False
    if last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE:
        return False
    kind = type(error)
    module = getattr(kind, "__module__", None)
    if type(module) is str and module.partition(".")[0] not in _KNOWN:
        return True
    return not BaseException.__dict__["args"].__get__(error) and kind not in _WITHOUT_ARGUMENTS

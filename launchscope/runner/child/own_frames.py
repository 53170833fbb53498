"""Keeps frames of ours out of what Python says of the script: the lines that its warnings and logs
name, and the tracebacks that it prints itself."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from launchscope.runner.child.code_owner import is_ours
from launchscope.runner.child.target import append_others
from launchscope.runner.child.torch_types import Torch

_F = TypeVar("_F", bound=Callable[..., Any])
# Where a caller is searched for (`stacklevel`), warnings and logging pass over frames of the import
# system, which they know by these two words in the name of the file.
_PASSED_OVER = ":importlib._bootstrap"
_OF_TORCH = (UserWarning, DeprecationWarning, FutureWarning)  # what its code in C++ warns with
_tracer_warning: type[Warning] | None = None  # torch's, once it is there
_thread = threading.local()
_BEYOND = 1_000_000  # more callers than any stack has


def passed_over(function: _F) -> _F:
    """Make a wrapper whose frames do not count for the `stacklevel` of a warning or a log line."""
    function.__code__ = _renamed(function.__code__)
    return function


def file_of(code: CodeType) -> str:
    """The file that the code is in."""
    return code.co_filename.removesuffix(_PASSED_OVER)


@functools.cache
def _renamed(code: CodeType) -> CodeType:
    return code.replace(co_filename=code.co_filename + _PASSED_OVER)


def leave_out_own_frames() -> None:
    """From now on no traceback or stack that the script prints through `traceback` has frames of
    ours, and no warning names one."""
    # Only this sees every frame on its way into a summary without being a frame more there.
    summary: Any = traceback.StackSummary
    summary.append = _append_others
    module: Any = warnings
    original = module._showwarnmsg

    def show(shown: warnings.WarningMessage) -> None:
        if not (_shown_elsewhere(shown, sys._getframe(1)) or _shown_before(shown)):
            original(shown)

    module._showwarnmsg = show


def leave_out_of_tracing(torch: Torch) -> None:
    """From now on the same holds for warnings of torch.jit.trace. torch ignores those of its own
    lines, and `-W error` would raise them at ours before they are shown."""
    global _tracer_warning
    _tracer_warning = torch.jit.TracerWarning
    warnings.filterwarnings("always", category=torch.jit.TracerWarning, module="launchscope")


def _append_others(summary: traceback.StackSummary, frame: traceback.FrameSummary) -> None:
    # A thread fills one summary after the other.
    below_ours = bool(summary) and getattr(_thread, "below_ours", False)
    _thread.below_ours = append_others(summary, frame, below_ours, _place)


def _place(frame: traceback.FrameSummary) -> tuple[str, str]:
    return frame.filename, frame.name


@contextlib.contextmanager
def own_frames_in_tracebacks() -> Iterator[None]:
    """Inside, they are there, for errors of our own."""
    summary: Any = traceback.StackSummary
    hidden = vars(summary).get("append")
    if hidden is not None:
        del summary.append
    try:
        yield
    finally:
        if hidden is not None:
            summary.append = hidden


def _shown_elsewhere(shown: warnings.WarningMessage, frame: FrameType | None) -> bool:
    """Whether a warning of torch names a line of ours, because that runs a function in C for the
    script. It is then shown, or not, as one of the line that calls the function."""
    if not is_ours(shown.filename) or type(shown.message) not in (*_OF_TORCH, _tracer_warning):
        return False
    if _is_below_script(shown, frame):
        warnings.warn(shown.message, shown.category, _BEYOND, shown.source)
        return True
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame.f_globals.pop("__warningregistry__", None)  # else it would not come here again
        frame = frame.f_back
    if frame is None:
        return False
    names, known = frame.f_globals, getattr(warnings, "onceregistry", {})
    known.pop((str(shown.message), shown.category), None)
    warnings.warn_explicit(
        shown.message,
        shown.category,
        frame.f_code.co_filename,
        -1 if frame.f_lineno is None else frame.f_lineno,  # as Python says it
        names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
        source=shown.source,
    )
    return True


def _is_below_script(shown: warnings.WarningMessage, frame: FrameType | None) -> bool:
    """Whether the line is one of those that run the script: under Python there is none."""
    found = None
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            found = None
        elif found is None:
            found = frame if (frame.f_code.co_filename, frame.f_lineno) == _line(shown) else None
        frame = frame.f_back
    return found is not None


def _line(shown: warnings.WarningMessage) -> tuple[str, int]:
    return shown.filename, shown.lineno


def _shown_before(shown: warnings.WarningMessage) -> bool:
    """Whether a forward has warned of the same at another line of torch, which runs forwards there
    while there are hooks, ours too."""
    module: Any = sys.modules.get("torch.nn.modules.module")
    if module is None or shown.filename != module.__file__ or type(shown.message) not in _OF_TORCH:
        return False
    # The second is a frame further away from the forward, and there are fewer without hooks.
    calls = [vars(module.Module)[name] for name in ("_call_impl", "_wrapped_call_impl")]
    if any(type(call) is not FunctionType for call in calls):  # of the script
        return False
    lines = {
        line
        for call in calls
        for first in [call.__code__.co_firstlineno]
        for line in range(first, 1 + max(at or first for *_, at in call.__code__.co_lines()))
    }
    known = vars(module).get("__warningregistry__", {})  # none of a warning that is shown always
    text, kind, here = str(shown.message), shown.category, shown.lineno
    return here in lines and any((text, kind, at) in known for at in lines if at != here)

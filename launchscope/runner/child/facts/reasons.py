"""What an error of a pass means, as a Reason."""

from __future__ import annotations

import os
import traceback

from launchscope.model import Reason, ReasonCode
from launchscope.runner.child.facts.source_lines import is_ours
from launchscope.runner.protocol.events import LaunchscopeFailed

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
# The beginning of a CUDA error that has no class of its own: every CUDA error below torch 2.8, and
# errors of cuBLAS and cuSPARSE in all versions. Such an error has no code either, and torch cannot
# ask CUDA for its last error. With another beginning it counts as an ordinary error.
_CUDA_TEXT = "CUDA error"
_LONGEST = 400
_DEBUGGING = ("For debugging", "Compile with", "CUDA kernel errors", "Search for")


class ReasonError(RuntimeError):
    """An error of our own that says why."""

    def __init__(self, code: ReasonCode, **details: str | int | float):
        super().__init__(f"launchscope: {code}")
        self.reason = Reason(code, details)


def reason_of(error: BaseException) -> Reason:
    """The reason behind any error, with the first lines of its text."""
    if isinstance(error, ReasonError):
        return error.reason
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(_DEBUGGING)]
    text = " ".join(kept[:2])[:_LONGEST]
    return Reason(_code_of(error), {"kind": type(error).__name__, "error": text or "no message"})


def own_failure(error: BaseException) -> LaunchscopeFailed:
    """An error of launchscope's own, with the line of launchscope that it comes from."""
    where = "unknown"
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_ours(frame.f_code.co_filename):
            where = f"{os.path.basename(frame.f_code.co_filename)}:{line}"
    try:
        details = "".join(traceback.format_exception(error))
    except Exception:  # what the script has put in the place of functions of the library
        details = where
    reason = Reason("launchscope_failed", {"kind": type(error).__name__, "where": where})
    return LaunchscopeFailed(reason, details)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the GPU has no memory left."""
    return _code_of(error) == "out_of_memory"


def _code_of(error: BaseException) -> ReasonCode:
    """By the classes of PyTorch and their codes, where there are any."""
    kind = type(error).__name__
    of_accelerator = kind == "AcceleratorError"
    starved = of_accelerator and getattr(error, "error_code", None) == _OUT_OF_MEMORY
    if kind == "OutOfMemoryError" or starved:
        return "out_of_memory"
    of_cuda = type(error) is RuntimeError and str(error).startswith(_CUDA_TEXT)
    return "cuda_error" if of_accelerator or of_cuda else "error"

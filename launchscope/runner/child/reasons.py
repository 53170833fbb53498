"""What an error of a pass means, as a Reason."""

from __future__ import annotations

from launchscope.model import Reason, ReasonCode

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
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


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the GPU has no memory left."""
    return _code_of(error) == "out_of_memory"


def _code_of(error: BaseException) -> ReasonCode:
    """By the classes of PyTorch; before 2.8 it raised errors of CUDA as RuntimeError."""
    kind = type(error).__name__
    if kind == "OutOfMemoryError" or getattr(error, "error_code", None) == _OUT_OF_MEMORY:
        return "out_of_memory"
    of_cuda = type(error) is RuntimeError and str(error).startswith("CUDA error")
    return "cuda_error" if kind == "AcceleratorError" or of_cuda else "error"

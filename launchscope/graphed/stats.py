"""What became of the calls of a step: counts, reasons, warnings, and the lines that they name."""

from __future__ import annotations

import dis
import functools
import os
import site
import sysconfig
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch


class GraphedWarning(UserWarning):
    """A step, or some of its calls, run eagerly; the text says why and where."""


class GraphedError(RuntimeError):
    """CUDA is unusable after a failed capture, or a replay was not what eager computes."""


@dataclass(frozen=True)
class EagerReason:
    """Why calls ran eagerly. `code` is for programs, `message` and `where` are for people."""

    code: str
    message: str
    where: str | None = None  # file:line
    calls: int = 0

    def __str__(self) -> str:
        return f"{self.message} [{self.where}]" if self.where else self.message


WARMUP = EagerReason("warmup", "the first calls of each kind run eagerly")
UNSTABLE = EagerReason("unstable", "an argument is different in every call")


class RefusedError(Exception):
    """This call cannot be captured."""

    def __init__(self, code: str, message: str, where: str | None = None):
        super().__init__(message)
        self.reason = EagerReason(code, message, where)


@dataclass(frozen=True)
class Stats:
    """What became of the calls so far; every call is in exactly one of the first three."""

    eager: int
    captured: int
    replayed: int
    checked: int  # replayed calls that were also computed eagerly and compared
    graphs: int  # held now
    reasons: tuple[EagerReason, ...]  # of the eager calls
    unchecked: EagerReason | None = None  # why replays are not checked

    def __str__(self) -> str:
        text = f"{self.eager} eager, {self.captured} captured, {self.replayed} replayed"
        text += f" ({self.checked} checked)" if self.checked else ""
        told = [reason for reason in self.reasons if reason.code != "warmup"]
        if told:
            most = max(told, key=lambda reason: reason.calls)
            text += f"; {most} ({most.calls} call{'' if most.calls == 1 else 's'})"
        return text if self.unchecked is None else f"{text}; not checked: {self.unchecked}"


class Counts:
    """The counters behind `Stats`; a warning for the first reason of each code."""

    def __init__(self, name: str, where: str | None):
        self.eager = self.captured = self.replayed = self.checked = 0
        self._name, self._where = name, where
        self._reasons: Counter[EagerReason] = Counter()
        self._warned: set[str] = set()

    def add_eager(self, reason: EagerReason) -> None:
        self.eager += 1
        self._reasons[reason] += 1
        if reason.code not in ("warmup", "disabled"):
            self.warn(reason)

    def warn(self, reason: EagerReason) -> None:
        if reason.code in self._warned:
            return
        self._warned.add(reason.code)
        told = replace(reason, where=reason.where or self._where)
        warnings.warn(f"{self._name} runs eagerly: {told}", GraphedWarning, stacklevel=2)

    def stats(self, graphs: int, unchecked: EagerReason | None) -> Stats:
        reasons = tuple(replace(reason, calls=n) for reason, n in self._reasons.items())
        counts = self.eager, self.captured, self.replayed, self.checked, graphs
        return Stats(*counts, reasons, unchecked)


def _inside(*files: str) -> tuple[str, ...]:
    """How the paths begin that lie beside these files."""
    return tuple(os.path.join(os.path.dirname(os.path.realpath(file)), "") for file in files)


_OURS, _PYTHON = _inside(torch.__file__, __file__), _inside(os.__file__)
_SITES = sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()
_INSTALLED = _inside(*(os.path.join(folder, "x") for folder in _SITES))


@functools.cache
def _is_torch(file: str) -> bool:
    return os.path.realpath(file).startswith(_OURS)


def in_torch(frame: types.FrameType | None) -> bool:
    """Whether torch runs it, also by way of Python's own library."""
    while frame is not None and not _is_torch(frame.f_code.co_filename):
        if not is_library(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return frame is not None


@functools.cache
def is_library(file: str) -> bool:
    """Code of torch, of Python, or ours: what it does is not the step's doing."""
    if not os.path.isabs(file):  # generated
        return file.startswith("<frozen")
    path = os.path.realpath(file)
    return _is_torch(file) or (path.startswith(_PYTHON) and not path.startswith(_INSTALLED))


@functools.cache
def is_installed(file: str) -> bool:
    return os.path.realpath(file).startswith(_INSTALLED)


def line_of(frame: types.FrameType | None) -> str | None:
    """The innermost line that is neither torch's nor Python's own."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def raising_line(error: BaseException) -> str | None:
    files = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    return next((f"{file}:{n}" for file, n in reversed(files) if not is_library(file)), None)


def line_of_name(codes: Iterable[types.CodeType], name: str) -> str | None:
    """The first line that stores to `name`, or else the first that uses it; a local variable of the
    same name is something else."""
    used = None
    for code in codes:
        lines, line = dict(dis.findlinestarts(code)), code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = lines.get(instruction.offset) or line
            if instruction.argval == name and "FAST" not in instruction.opname:
                if instruction.opname.startswith(("STORE", "DELETE")):
                    return f"{code.co_filename}:{line}"
                used = used or f"{code.co_filename}:{line}"
    return used

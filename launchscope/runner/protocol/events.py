"""The events of a child, in the order in which it writes them to its event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from launchscope.model import Reason, SourceLine

# The name of the warm-up in events; it is no pass, but people wait for it as for one.
WARMUP = "warmup"

RemarkCode = Literal[
    "uneven", "no_backward", "no_forward", "no_beginning", "captured", "forward_alone",
    "unfollowed", "unusable", "ddp", "graphed_callables",
]  # fmt: skip


class Event:
    """What a child reports; the log names each by its class."""


@dataclass(frozen=True)
class DeviceKnown(Event):
    """The warm-up is over: the steps either use CUDA or they do not."""

    on_gpu: bool


@dataclass(frozen=True)
class PassStarted(Event):
    name: str
    steps: int
    limit_s: float | None = None  # for the whole pass


@dataclass(frozen=True)
class PassProgress(Event):
    name: str
    done: int
    steps: int


@dataclass(frozen=True)
class PassEnded(Event):
    name: str
    seconds: float


@dataclass(frozen=True)
class PassSkipped(Event):
    """The pass has nothing to do in this script. A result that says so may be on disk."""

    name: str
    reason: Reason


@dataclass(frozen=True)
class PassFailed(Event):
    name: str
    reason: Reason


@dataclass(frozen=True)
class EnoughMeasured(Event):
    """No pass is left for which the script would be run again."""


@dataclass(frozen=True)
class MeasuringEnded(Event):
    """The last pass of this process is over; the script may go on."""


@dataclass(frozen=True)
class FilesLoaded(Event):
    """The modules so far. `files` lie below the tree of the plan; `installed` are packages that
    the tree has too, but that were loaded from elsewhere."""

    files: tuple[str, ...]
    installed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScriptEnded(Event):
    """The script ended before the last pass did."""

    steps: int = 0
    searching: bool = False  # no repeating step had been found
    forwards: int = 0
    optimizer_steps: int = 0
    processes: int = 0  # that the script started
    waiting: bool = False  # for an optimizer to step, with only forwards measured


@dataclass(frozen=True)
class ScriptFailed(Event):
    """An exception of the type `error` left the script; `exits`: it was a SystemExit. During
    `in_pass`, or after what that pass captured, launchscope may have caused it."""

    error: str
    exits: bool
    out_of_memory: bool = False
    in_pass: str | None = None
    where: SourceLine | None = None  # in the script
    rehearsed: bool = False  # the script named a GPU, and the CPU stood for it
    # Where the script is one rank of several: when, and the end of its traceback.
    unix_s: float | None = None
    traceback: str = ""


@dataclass(frozen=True)
class WriteRefused(Event):
    path: str  # that the script wanted to write to, and may not in this run


@dataclass(frozen=True)
class LaunchscopeFailed(Event):
    """An error of launchscope's own ended the measurement. The script has not seen it."""

    reason: Reason
    details: str  # its traceback


@dataclass(frozen=True)
class Remark(Event):
    code: RemarkCode
    where: SourceLine | None = None


@dataclass(frozen=True)
class Note(Event):
    text: str
    passing: bool = False  # only for who waits, not for the report


@dataclass(frozen=True)
class ChildEnded(Event):
    """The last event of a process that ended in order. `named_cuda`: the script names a GPU."""

    named_cuda: bool = False


EVENT_TYPES = {kind.__name__: kind for kind in Event.__subclasses__()}

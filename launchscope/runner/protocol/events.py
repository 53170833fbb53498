"""The events of a child, in the order in which it writes them to its event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from launchscope.model import Reason

# The name of the warm-up in events; it is no pass, but people wait for it as for one.
WARMUP = "warmup"


@dataclass(frozen=True)
class RehearsalStarted:
    """torch was imported on a machine without a GPU."""


@dataclass(frozen=True)
class DeviceKnown:
    """The warm-up is over: the steps either use CUDA or they do not."""

    on_gpu: bool


@dataclass(frozen=True)
class Deferred:
    """Passes that need a process of their own."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class PassStarted:
    """`limit_s` bounds the time of the whole pass; None: no bound."""

    name: str
    steps: int
    limit_s: float | None = None


@dataclass(frozen=True)
class PassProgress:
    """`done` of `steps` steps are over."""

    name: str
    done: int
    steps: int


@dataclass(frozen=True)
class PassEnded:
    """The result, if there is one, is on disk."""

    name: str
    seconds: float


@dataclass(frozen=True)
class PassSkipped:
    """The pass has nothing to do in this script. A result that says so may be on disk."""

    name: str
    reason: Reason


@dataclass(frozen=True)
class PassFailed:
    """The pass raised an error. A result that says so may be on disk."""

    name: str
    reason: Reason


@dataclass(frozen=True)
class EnoughMeasured:
    """No pass is left for which the script would be run again."""


@dataclass(frozen=True)
class MeasuringEnded:
    """The last pass of this process is over; the script may go on."""


@dataclass(frozen=True)
class ScriptEnded:
    """The script ended before the last pass did."""

    steps: int = 0
    searching: bool = False  # no repeating step had been found
    forwards: int = 0
    optimizer_steps: int = 0
    processes: int = 0  # that the script started
    missed_steps: int = 0  # training steps that do not match the step that was found
    other_thread_forwards: int = 0


@dataclass(frozen=True)
class ScriptFailed:
    """An exception left the script; `exits`: it was a SystemExit."""

    error: str
    exits: bool


@dataclass(frozen=True)
class Note:
    """A sentence for the report."""

    text: str


@dataclass(frozen=True)
class ChildEnded:
    """The last event of a process that ended in order."""


Event = (
    RehearsalStarted
    | DeviceKnown
    | Deferred
    | PassStarted
    | PassProgress
    | PassEnded
    | PassSkipped
    | PassFailed
    | EnoughMeasured
    | MeasuringEnded
    | ScriptEnded
    | ScriptFailed
    | Note
    | ChildEnded
)
EVENT_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}

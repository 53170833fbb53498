"""What a run of the script is asked to do for a comparison, and what it records.

A run is divided into iterations of the loop, or calls of the function, around the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# Called where an iteration begins, by the copies of the script that are compared.
ITERATION = "__launchscope_iteration__"
RECORD_FILE, RESULT, PATCHED_RESULT = "record.jsonl", "run", "patched"
COMPARED = 24  # iterations that are compared, if all lines around the step run in them
MOST_COMPARED = 240  # otherwise
WINDOW, WINDOWS = (
    6,
    12,
)  # iterations of one timed window, and windows behind the first 24 iterations

# "record": deterministic, every value noted. "check": each graphed call is computed eagerly, too.
RunMode = Literal["record", "check", "time"]
# What is noted: batches of data loaders, values that the host reads, arguments of libraries,
# tensors that training changes, the locals around the step; and what can be reached at the end.
Kind = Literal["batch", "read", "given", "state", "local", "end"]


@dataclass(frozen=True)
class RunTask:
    """`root`: the person's folder, in which nothing may be written; `scratch`: the folder of all
    runs, in which everything may. `file`: the copy of the file that the patch changes; its lines
    that run are noted. `until`: lines of it that have to run before the end, within
    MOST_COMPARED iterations. `inner`: names that are not compared, because the step keeps them to
    itself in the patched version."""

    root: str
    scratch: str
    mode: RunMode = "record"
    iterations: int = COMPARED
    file: str = ""
    until: tuple[int, ...] = ()
    inner: tuple[str, ...] = ()
    eager: bool = True  # graphed functions run as plain ones


@dataclass(frozen=True)
class Noted:
    """One value. Equal values have the same text and digest. Numbers and tensors have a sketch,
    too, whose distance from another one is about that of the values."""

    kind: Kind
    name: str
    text: str
    digest: int = 0
    sketch: tuple[float, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """What was noted in one iteration. Before the first one there is the state, and behind the last
    one what can be reached at the end of the run."""

    noted: tuple[Noted, ...]


@dataclass(frozen=True)
class Replays:
    """Calls of graphed functions that were replayed; and of those that ran eagerly behind the
    warm-up, how many, why, and the line."""

    replayed: int = 0
    reasons: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True)
class RunResult:
    """The whole run. `lines`: those of the file that ran. `window_ms`: per iteration.
    `optimizer_steps`: of all optimizers."""

    iterations: int
    optimizer_steps: int = 0
    forwards: int = 0  # of outermost modules, in a run without marks
    lines: tuple[int, ...] = ()
    seeds_itself: bool = False
    partial_momentum: bool = False
    window_ms: tuple[float, ...] = ()
    graphs: bool = False  # CUDA graphs can be made in this process
    replays: Replays = field(default_factory=Replays)


@dataclass(frozen=True)
class PatchedCalls:
    """What became of the graphed calls of a whole run, and the time from one to the next."""

    eager: int
    captured: int
    replayed: int
    call_ms: float | None = None

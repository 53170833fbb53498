"""What a run of the script is asked to do for a comparison, and what it records.

A run is divided into iterations of the loop, or calls of the function, around the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# Called where an iteration begins, by the copies of the script that are compared.
ITERATION = "__launchscope_iteration__"
RECORD_FILE, RESULT = "record.jsonl", "run"
COMPARED = 24  # iterations that are compared, if all lines around the step run in them
MOST_COMPARED = 240  # otherwise
WINDOW, WINDOWS = 6, 12  # timed windows of so many iterations, behind those COMPARED

# "first": as it is, to see that it works. "record": deterministic, every value noted. "check": each
# graphed call is computed eagerly, too. "time": as it is, with its windows.
# "observe": what each line around the step does, for the rewrite.
RunMode = Literal["first", "record", "check", "time", "observe"]
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

    mode: RunMode
    iterations: int = COMPARED
    until: tuple[int, ...] = ()
    inner: tuple[str, ...] = ()
    eager: bool = True  # graphed functions run as plain ones
    root: str = ""
    scratch: str = ""
    file: str = ""
    trains: bool = True  # the step that is observed


@dataclass(frozen=True)
class Noted:
    """One value. Equal values have the same text and digest. Numbers and tensors have a sketch,
    too, whose distance from another one is about that of the values."""

    kind: Kind
    name: str
    text: str
    digest: int = 0
    sketch: tuple[float, ...] = field(default=(), compare=False)


# What was noted in one. Before the first one there is the state, and behind the last one what can
# be reached at the end of the run.
Iteration: TypeAlias = tuple[Noted, ...]


@dataclass(frozen=True)
class RunResult:
    """The whole run. `compared`: iterations until the last of the wanted lines ran that do run, at
    least as many as were asked for. `lines`: those of the file that ran. `window_ms`: per
    iteration. `eager`: the calls of graphed functions that were not replayed behind the warm-up:
    how many, why, where."""

    iterations: int
    compared: int = 0
    optimizer_steps: int = 0
    forwards: int = 0  # of outermost modules, in the first run
    lines: tuple[int, ...] = ()
    seeds_itself: bool = False
    window_ms: tuple[float, ...] = ()
    graphs: bool = False  # CUDA graphs can be made in this process
    replayed: int = 0
    eager: tuple[tuple[int, str, str], ...] = ()

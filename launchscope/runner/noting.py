"""Wrappers around what a script may do beside its steps, which the report has to tell of."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from launchscope.runner.target import is_ours
from launchscope.runner.userlines import is_torch


class Notes(Protocol):
    """Where it is noted."""

    active: bool  # False once launchscope has nothing more to hear
    user_profiler: bool
    graph_replays: int
    processes: int  # that the script started, DataLoader workers apart


def noting_profiler(notes: Notes, original: Any) -> Any:
    """Around a profiler's `__init__`: the script's own profiler leaves no room for ours."""

    def init(profiler: Any, *args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(1).f_code.co_filename
        if notes.active and not is_ours(caller) and not is_torch(caller):
            notes.user_profiler = True
        original(profiler, *args, **kwargs)

    return init


def noting_replay(notes: Notes, original: Any) -> Any:
    """Around `CUDAGraph.replay`: counts replays that are not ours."""

    def replay(graph: Any) -> None:
        if not is_ours(sys._getframe(1).f_code.co_filename):
            notes.graph_replays += 1
        original(graph)

    return replay


def noting_process(notes: Notes, original: Any) -> Any:
    """Around `Process.start`: counts processes, those of a DataLoader apart."""

    def start(process: Any) -> None:
        target = getattr(process, "_target", None)
        if not getattr(target, "__module__", "").startswith("torch.utils.data"):
            notes.processes += 1
        original(process)

    return start

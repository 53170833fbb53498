"""Wrappers around what a script may do beside its steps, which the report has to tell of."""

from __future__ import annotations

import multiprocessing.process
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol

from launchscope.model import SourceLine
from launchscope.runner.child.source_lines import is_torch, user_line
from launchscope.runner.child.target import is_ours

_TRAINERS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|lightning|fabric")
_OF_TORCH = os.path.join("torch", "_inductor", "")  # its compile workers
_FIRST_WORDS = 4  # `env NAME=1 python train.py`


class PatchState(Protocol):
    """Where it is noted."""

    active: bool  # False once launchscope has nothing more to hear
    user_profiler: bool
    graph_replays: int
    processes: int  # that the script started, DataLoader workers apart
    wants_lines: bool  # to find one takes microseconds
    scheduler_where: SourceLine | None  # the line that steps a scheduler of learning rates


def patch_profiler(notes: PatchState, original: Any) -> Any:
    """Around a profiler's `__init__`: the script's own profiler leaves no room for ours."""

    def init(profiler: Any, *args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(1).f_code.co_filename
        if notes.active and not is_ours(caller) and not is_torch(caller):
            notes.user_profiler = True
        original(profiler, *args, **kwargs)

    return init


def patch_replay(notes: PatchState, original: Any) -> Any:
    """Around `CUDAGraph.replay`: counts replays that are not ours."""

    def replay(graph: Any) -> None:
        if not is_ours(sys._getframe(1).f_code.co_filename):
            notes.graph_replays += 1
        original(graph)

    return replay


def patch_process(notes: PatchState, original: Any) -> Any:
    """Around `Process.start`: counts processes, those of a DataLoader apart."""

    def start(process: Any) -> None:
        target = getattr(process, "_target", None)
        if not getattr(target, "__module__", "").startswith("torch.utils.data"):
            notes.processes += 1
        original(process)

    return start


def patch_command(notes: PatchState, original: Any) -> Any:
    """Around `subprocess.Popen.__init__`: counts Pythons and launchers of such, torch's own apart.

    Other programs (git, nvidia-smi, a compiler) make no steps.
    """

    def init(popen: Any, args: Any, *more: Any, **named: Any) -> None:
        if notes.active and _trains(args):
            notes.processes += 1
        original(popen, args, *more, **named)

    return init


def _trains(command: Any) -> bool:
    if isinstance(command, str | bytes | os.PathLike):
        command = os.fsdecode(command).split()
    words = [os.fsdecode(word) for word in command if isinstance(word, str | bytes | os.PathLike)]
    if any(_OF_TORCH in word for word in words):
        return False
    return any(_TRAINERS.fullmatch(os.path.basename(word)) for word in words[:_FIRST_WORDS])


def patch_scheduler(notes: PatchState, original: Any) -> Any:
    """Around `LRScheduler.step`: where it is called. To make a scheduler steps it too."""

    def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if notes.active and notes.wants_lines:
            notes.scheduler_where = user_line(sys._getframe(1))
        return original(scheduler, *args, **kwargs)

    return step


def patches(torch: Any) -> tuple[tuple[Any, str, Callable[[PatchState, Any], Any]], ...]:
    """What is wrapped: where it is, its name, and the wrapper."""
    return (
        (torch.profiler.profile, "__init__", patch_profiler),
        (torch.autograd.profiler.profile, "__init__", patch_profiler),
        (torch.cuda.CUDAGraph, "replay", patch_replay),
        (multiprocessing.process.BaseProcess, "start", patch_process),
        (subprocess.Popen, "__init__", patch_command),
        (torch.optim.lr_scheduler.LRScheduler, "step", patch_scheduler),
    )

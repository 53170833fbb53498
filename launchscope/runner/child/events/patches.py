"""Wraps around what a script may do outside of its steps and a report has to mention."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from launchscope.runner.child.events.events import Events
from launchscope.runner.child.facts.code_owner import is_ours, is_torch
from launchscope.runner.child.facts.source_lines import user_line
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_TRAINERS = re.compile(r"(.*/)?(python[\d.]*|torchrun|accelerate|deepspeed|lightning|fabric)")


def patches(torch: Torch) -> tuple[tuple[Value, str, Callable[..., None]], ...]:
    """What is wrapped: where it is, its name, and what notes each call."""
    # The modules that torch has imported: a script may have files of these names.
    import multiprocessing.process
    import subprocess

    return (
        (torch.profiler.profile, "__init__", _note_profiler),
        (torch.autograd.profiler.profile, "__init__", _note_profiler),
        (torch.cuda.CUDAGraph, "replay", _note_replay),
        (multiprocessing.process.BaseProcess, "start", _note_process),
        (subprocess.Popen, "__init__", _note_command),
        (torch.optim.lr_scheduler.LRScheduler, "step", _note_scheduler),
    )


def noting(events: Events, note: Callable[..., None], original: Function) -> Function:
    """Around a function of which `note` gets the caller's frame and the arguments first."""

    def called(*args: Any, **kwargs: Any) -> Value:
        if events.active:
            events.guarded(note, events, sys._getframe(1), *args, **kwargs)
        return original(*args, **kwargs)

    return called


def _note_profiler(
    events: Events, caller: FrameType, profile: Value, enabled: Value = True, **kwargs: Any
) -> None:
    """A profiler is made: while the script's own profiler runs, ours cannot. One of autograd may be
    made for nothing: `enabled=False`."""
    file = caller.f_code.co_filename
    if enabled is not False and not is_ours(file) and not is_torch(file):
        events.user_profiler = True


def _note_replay(events: Events, caller: FrameType, *args: Any) -> None:
    """Counts replays that are not ours."""
    events.graph_replays += not is_ours(caller.f_code.co_filename)


def _note_process(events: Events, caller: FrameType, process: Value) -> None:
    """Counts processes other than those of a DataLoader."""
    events.processes += not runs_function_of("torch.utils.data", process)


def runs_function_of(module: str, thread: Value) -> bool:
    """Whether a thread or a process was given a function of the module or one below it."""
    owner = getattr(getattr(thread, "_target", None), "__module__", None)
    return f"{owner}.".startswith(f"{module}.")


def _note_command(
    events: Events, caller: FrameType, popen: Value, args: Value = (), *more: Any, **kwargs: Any
) -> None:
    """Counts Pythons and their launchers, except those of torch: its compile workers. Other
    programs (git, nvidia-smi, a compiler) make no steps."""
    words = args.split() if isinstance(args, str) else list(args) if isinstance(args, list) else []
    named = any(_TRAINERS.fullmatch(str(word)) for word in words[:1])
    events.processes += named and not is_torch(caller.f_code.co_filename)


def _note_scheduler(events: Events, caller: FrameType, *args: Any, **kwargs: Any) -> None:
    """Where a learning rate is scheduled; the constructor of a scheduler calls its step, too."""
    if events.wants_lines:
        events.scheduler_where = user_line(caller)

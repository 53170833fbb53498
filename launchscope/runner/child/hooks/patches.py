"""Wrappers around what a script may do beside its steps and a report has to mention."""

from __future__ import annotations

import multiprocessing.process
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.source_lines import is_torch, user_line
from launchscope.runner.child.target import is_ours
from launchscope.runner.child.torch_types import Function, Graph, Owner, Torch, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks

_TRAINERS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|lightning|fabric")
_OF_TORCH = os.path.join("torch", "_inductor", "")  # its compile workers
_FIRST_WORDS = 4  # `env NAME=1 python train.py`


def patches(torch: Torch) -> tuple[tuple[Owner, str, Callable[[Hooks, Function], Function]], ...]:
    """What is wrapped: where it is, its name, and the wrapper."""
    return (
        (torch.profiler.profile, "__init__", _wrap_profiler),
        (torch.autograd.profiler.profile, "__init__", _wrap_profiler),
        (torch.cuda.CUDAGraph, "replay", _wrap_replay),
        (multiprocessing.process.BaseProcess, "start", _wrap_process),
        (subprocess.Popen, "__init__", _wrap_command),
        (torch.optim.lr_scheduler.LRScheduler, "step", _wrap_scheduler),
    )


def _wrap_profiler(hooks: Hooks, original: Function) -> Function:
    """Around a profiler's `__init__`: the script's own profiler leaves no room for ours."""

    def init(profiler: Value, *args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(1).f_code.co_filename
        if hooks.active and not is_ours(caller) and not is_torch(caller):
            hooks.user_profiler = True
        original(profiler, *args, **kwargs)

    return init


def _wrap_replay(hooks: Hooks, original: Function) -> Function:
    """Around `CUDAGraph.replay`: counts replays that are not ours."""

    def replay(graph: Graph) -> None:
        if not is_ours(sys._getframe(1).f_code.co_filename):
            hooks.graph_replays += 1
        original(graph)

    return replay


def _wrap_process(hooks: Hooks, original: Function) -> Function:
    """Around `Process.start`: counts processes other than those of a DataLoader."""

    def start(process: Value) -> None:
        target = getattr(process, "_target", None)
        if not getattr(target, "__module__", "").startswith("torch.utils.data"):
            hooks.processes += 1
        original(process)

    return start


def _wrap_command(hooks: Hooks, original: Function) -> Function:
    """Around `subprocess.Popen.__init__`: counts Pythons and their launchers, except torch's own.

    Other programs (git, nvidia-smi, a compiler) make no steps.
    """

    def init(popen: Value, args: Value, *more: Any, **named: Any) -> None:
        if hooks.active and _may_train(args):
            hooks.processes += 1
        original(popen, args, *more, **named)

    return init


def _may_train(command: Value) -> bool:
    if isinstance(command, str | bytes | os.PathLike):
        command = os.fsdecode(command).split()
    words = [os.fsdecode(word) for word in command if isinstance(word, str | bytes | os.PathLike)]
    if any(_OF_TORCH in word for word in words):
        return False
    return any(_TRAINERS.fullmatch(os.path.basename(word)) for word in words[:_FIRST_WORDS])


def _wrap_scheduler(hooks: Hooks, original: Function) -> Function:
    """Around `LRScheduler.step`: where it is called, be it by the constructor."""

    def step(scheduler: Value, *args: Any, **kwargs: Any) -> Value:
        if hooks.active and hooks.wants_lines:
            hooks.scheduler_where = user_line(sys._getframe(1))
        return original(scheduler, *args, **kwargs)

    return step

"""Wrappers around what a script may do outside of its steps and a report has to mention."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.plain_values import own_attributes, values_of
from launchscope.runner.child.source_lines import is_torch, user_line
from launchscope.runner.child.target import is_ours
from launchscope.runner.child.torch_types import Function, Torch, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks

_TRAINERS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|lightning|fabric")
_OF_TORCH = os.path.join("torch", "_inductor", "")  # its compile workers
_WORDS = (str, bytes, type(Path()))
_C_FUNCTIONS = (BuiltinFunctionType, MethodDescriptorType)
_FIRST_WORDS = 4  # `env NAME=1 python train.py`


def patches(torch: Torch) -> tuple[tuple[Value, str, Callable[[Hooks, Function], Function]], ...]:
    """What is wrapped: where it is, its name, and the wrapper."""
    # The modules that torch has imported: a script may have files of these names.
    import multiprocessing.process
    import subprocess

    return (
        (torch.profiler.profile, "__init__", _wrap_profiler),
        (torch.autograd.profiler.profile, "__init__", _wrap_profiler),
        (torch.cuda.CUDAGraph, "replay", _wrap_replay),
        (multiprocessing.process.BaseProcess, "start", _wrap_process),
        (subprocess.Popen, "__init__", _wrap_command),
        (torch.optim.lr_scheduler.LRScheduler, "step", _wrap_scheduler),
    )


def is_replaced(owner: Value, name: str) -> bool:
    """Whether the script has put something of its own in the place of a function of torch."""
    found = vars(owner).get(name)
    if type(found) is not FunctionType:
        return type(found) not in (*_C_FUNCTIONS, type(None))  # None: inherited
    file = found.__code__.co_filename
    return not (is_torch(file) or is_ours(file))


def put_in_place(owner: Value, name: str, ours: Function) -> Callable[[], None]:
    """Replace an attribute of a class or module; the result takes that back.

    It takes nothing back if somebody else has put something there meanwhile.
    """
    own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, ours)

    def take_back() -> None:
        if vars(owner).get(name) is ours:
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

    return take_back


def _wrap_profiler(hooks: Hooks, original: Function) -> Function:
    """Around a profiler's `__init__`: while the script's own profiler runs, ours cannot."""

    def init(profiler: Value, *args: Any, **kwargs: Any) -> None:
        try:
            caller = sys._getframe(1).f_code.co_filename
            if hooks.active and not is_ours(caller) and not is_torch(caller):
                hooks.user_profiler = True
        except Exception as error:
            hooks.broke(error)
        original(profiler, *args, **kwargs)

    return init


def _wrap_replay(hooks: Hooks, original: Function) -> Function:
    """Around `CUDAGraph.replay`: counts replays that are not ours."""

    def replay(graph: Value) -> None:
        try:
            if not is_ours(sys._getframe(1).f_code.co_filename):
                hooks.graph_replays += 1
        except Exception as error:
            hooks.broke(error)
        original(graph)

    return replay


def _wrap_process(hooks: Hooks, original: Function) -> Function:
    """Around `Process.start`: counts processes other than those of a DataLoader."""

    def start(process: Value) -> None:
        try:
            if not runs_function_of("torch.utils.data", process):
                hooks.processes += 1
        except Exception as error:
            hooks.broke(error)
        original(process)

    return start


def runs_function_of(module: str, thread: Value) -> bool:
    """Whether a thread or a process was given a function of the module or one below it."""
    target = own_attributes(thread).get("_target")
    owner = target.__module__ if type(target) is FunctionType else None
    return type(owner) is str and f"{owner}.".startswith(f"{module}.")


def _wrap_command(hooks: Hooks, original: Function) -> Function:
    """Around `subprocess.Popen.__init__`: counts Pythons and their launchers, except torch's own.

    Other programs (git, nvidia-smi, a compiler) make no steps.
    """

    def init(popen: Value, args: Value, *more: Any, **named: Any) -> None:
        try:
            if hooks.active and _may_train(args):
                hooks.processes += 1
        except Exception as error:
            hooks.broke(error)
        original(popen, args, *more, **named)

    return init


def _may_train(command: Value) -> bool:
    """What is not a plain list of plain words stays unread: an iterator can be read only once."""
    if type(command) in _WORDS:
        command = os.fsdecode(command).split()
    words = [os.fsdecode(word) for word in values_of(command) if type(word) in _WORDS]
    if any(_OF_TORCH in word for word in words):
        return False
    return any(_TRAINERS.fullmatch(os.path.basename(word)) for word in words[:_FIRST_WORDS])


def _wrap_scheduler(hooks: Hooks, original: Function) -> Function:
    """Around `LRScheduler.step`: where it is called; the constructor calls it too."""

    def step(scheduler: Value, *args: Any, **kwargs: Any) -> Value:
        try:
            if hooks.active and hooks.wants_lines:
                hooks.scheduler_where = user_line(sys._getframe(1))
        except Exception as error:
            hooks.broke(error)
        return original(scheduler, *args, **kwargs)

    return step

"""Wrappers around what a script may do outside of its steps and a report has to mention."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.code_owner import is_ours, is_torch
from launchscope.runner.child.plain_values import values_of
from launchscope.runner.child.source_lines import user_line
from launchscope.runner.child.torch_types import Function, Torch, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks

_TRAINERS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|lightning|fabric")
_OF_TORCH = os.path.join("torch", "_inductor", "")  # its compile workers
_WORDS = (str, bytes, type(Path()))
_C_FUNCTIONS = (BuiltinFunctionType, MethodDescriptorType)
_FIRST_WORDS = 4  # `env NAME=1 python train.py`


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


def known_to_torchscript(torch: Torch, original: Function, ours: Function) -> None:
    """TorchScript compiles calls of some functions in Python, which it knows by their identity."""
    builtins = torch.jit._builtins
    for function, operator in builtins._builtin_ops:
        if function is original:
            if builtins._builtin_table is not None:
                builtins._register_builtin(ours, operator)
            else:  # torch makes its table of them when a script asks for it
                builtins._builtin_ops.append((ours, operator))
            return


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


def noting(hooks: Hooks, note: Callable[..., None], original: Function) -> Function:
    """Around a function of which `note` gets the caller's frame and the arguments first, whether or
    not they suit the function."""

    def called(*args: Any, **kwargs: Any) -> Value:
        try:
            note(hooks, sys._getframe(1), *args, **kwargs)
        except Exception as error:
            hooks.broke(error)
        return original(*args, **kwargs)

    return called


def _note_profiler(hooks: Hooks, caller: FrameType, *args: Any, **kwargs: Any) -> None:
    """A profiler is made: while the script's own profiler runs, ours cannot. One of autograd may be
    made for nothing: `enabled=False`."""
    file = caller.f_code.co_filename
    enabled = args[1] if len(args) > 1 else kwargs.get("enabled")
    if hooks.active and enabled is not False and not is_ours(file) and not is_torch(file):
        hooks.user_profiler = True


def _note_replay(hooks: Hooks, caller: FrameType, *args: Any, **kwargs: Any) -> None:
    """Counts replays that are not ours."""
    if not is_ours(caller.f_code.co_filename):
        hooks.graph_replays += 1


def _note_process(
    hooks: Hooks, caller: FrameType, process: Value, *args: Any, **kwargs: Any
) -> None:
    """Counts processes other than those of a DataLoader."""
    if not runs_function_of("torch.utils.data", process):
        hooks.processes += 1


def runs_function_of(module: str, thread: Value) -> bool:
    """Whether a thread or a process was given a function of the module or one below it."""
    target = getattr(thread, "_target", None)
    owner = target.__module__ if type(target) is FunctionType else None
    return type(owner) is str and f"{owner}.".startswith(f"{module}.")


def _note_command(hooks: Hooks, caller: FrameType, popen: Value, *args: Any, **kwargs: Any) -> None:
    """Counts Pythons and their launchers, except torch's own.

    Other programs (git, nvidia-smi, a compiler) make no steps.
    """
    if hooks.active and _may_train(args[0] if args else kwargs.get("args")):
        hooks.processes += 1


def _may_train(command: Value) -> bool:
    """What is not a plain list of plain words stays unread: an iterator can be read only once."""
    if type(command) in _WORDS:
        command = os.fsdecode(command).split()
    words = [os.fsdecode(word) for word in values_of(command) if type(word) in _WORDS]
    if any(_OF_TORCH in word for word in words):
        return False
    return any(_TRAINERS.fullmatch(os.path.basename(word)) for word in words[:_FIRST_WORDS])


def _note_scheduler(hooks: Hooks, caller: FrameType, *args: Any, **kwargs: Any) -> None:
    """Where a learning rate is scheduled; the constructor of a scheduler calls its step, too."""
    if hooks.active and hooks.wants_lines:
        hooks.scheduler_where = user_line(caller)

"""The entry inside the person's process: runs the target, and attaches to torch.

Imports the standard library only. The script imports torch; an import hook attaches launchscope
at that moment.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from launchscope import markers
from launchscope.runner.child.attach import attach
from launchscope.runner.child.interrupts import raise_if_interrupt
from launchscope.runner.child.nvtx_ranges import find_nvtx
from launchscope.runner.child.own_frames import leave_out_own_frames
from launchscope.runner.child.passes import all_passes
from launchscope.runner.child.plain_values import class_name
from launchscope.runner.child.reasons import is_out_of_memory
from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.source_tree import import_from
from launchscope.runner.child.target import exit_code_of, is_stop, load_target
from launchscope.runner.protocol.events import ChildEnded, ScriptFailed
from launchscope.runner.protocol.folder import PLAN_FILE, ChildFolder, Plan
from launchscope.runner.protocol.plain import from_plain
from launchscope.runner.protocol.signals import raise_on_interrupt

if TYPE_CHECKING:
    from launchscope.runner.child.step_controller import StepController

_POLL_S, _RELEASED_WITHIN_S = 0.002, 30.0


class _TorchFinder:
    """A meta path finder that calls `action(torch)` once torch has been imported."""

    def __init__(self, action: Callable[[ModuleType], None]):
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:  # libraries look for torch long before they import it
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
            execute(module)
            self._action(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _plan(path: Path) -> Plan | None:
    """The plan, once it is there; None where the launchscope that started us was killed."""
    give_up = time.monotonic() + _RELEASED_WITHIN_S
    while not path.exists():
        if time.monotonic() > give_up:
            return None
        time.sleep(_POLL_S)
    return from_plain(Plan, json.loads(path.read_text(encoding="utf-8")))


def main(folder_path: str, nvtx_folder: str, startup: frozenset[str]) -> int:
    """Carry out the plan in the folder; the result is the process exit code."""
    folder = ChildFolder(folder_path, raise_if_interrupt)
    plan = _plan(Path(folder_path) / PLAN_FILE)
    if plan is None:
        return 1
    raise_on_interrupt(plan.interrupt_signal)
    # Import what is needed later: the script's own files may have the names of libraries.
    all_passes()
    find_nvtx(nvtx_folder)
    leave_out_own_frames()
    os.environ["LAUNCHSCOPE"] = "1"
    if plan.tree is not None and plan.tree.instead is not None:
        import_from(plan.tree.root, plan.tree.instead)
    controllers: list[StepController] = []  # one, once torch is there

    def torch_arrived(torch: ModuleType) -> None:
        controllers.append(attach(torch, folder, plan))
        markers.observe(controllers[0])

    if "torch" in sys.modules:  # a .pth file or sitecustomize has imported it
        torch_arrived(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _TorchFinder(torch_arrived))
    own = os.getpid()

    def ended() -> None:
        if os.getpid() == own:
            if any(controller.finished for controller in controllers):
                # The parent waits no longer than it must, and CUDA may end the process.
                flush_files(close_archives=False)
            folder.emit(ChildEnded())

    # The last exit handler: what Python takes apart after it may hang or fail.
    atexit.register(ended)
    code = 0
    ends: BaseException | None = None
    try:
        load_target(plan.target.kind, plan.target.name, plan.target.args, startup)()
    except BaseException as error:
        # What follows handles no error, which `sys.exc_info()` would say.
        ends = None if is_stop(error) else error
    if ends is not None:
        if os.getpid() != own:  # the script forked, and this is the other process
            return exit_code_of(ends)
        if not any(controller.absorbs(ends) for controller in controllers):
            exits = isinstance(ends, SystemExit)
            raised = not (exits or isinstance(ends, KeyboardInterrupt))
            suspects = [c.suspect for c in controllers if raised]
            kind, starved = class_name(ends), is_out_of_memory(ends)
            folder.emit(ScriptFailed(kind, exits, starved, next(iter(suspects), None)))
            code = exit_code_of(ends)
        ends = None
    if os.getpid() != own:
        return code
    with contextlib.suppress(BaseException):
        # As Python does at its end: threads of the script may train, or still be saving.
        threading._shutdown()  # type: ignore[attr-defined]
    for controller in controllers:
        controller.unwound = True
        if not controller.finished:
            controller.script_ended()
    markers.observe(None)
    return code

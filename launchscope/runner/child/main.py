"""The entry inside the person's process: waits for torch, runs the target, keeps the results.

Imports the standard library only. torch is never imported from here before the script
imports it; an import hook installs ours at that moment.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from launchscope import markers
from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.target import StopRun, exit_code_of, load_target
from launchscope.runner.protocol.events import ChildEnded, ScriptFailed
from launchscope.runner.protocol.folder import PLAN_FILE, ChildFolder
from launchscope.runner.protocol.plain import from_plain
from launchscope.runner.protocol.plan import Plan
from launchscope.runner.protocol.signals import end_with, raise_on_interrupt

if TYPE_CHECKING:
    from launchscope.runner.child.step_controller import StepController


class _AfterImport:
    """A meta path finder that calls `action(module)` once `name` has been imported."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]):
        self._name = name
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:  # libraries ask whether torch is there long before they import it
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        loader, action = spec.loader, self._action
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
            execute(module)
            action(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _without_stop_run(
    shown: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], object]:
    """A thread of the script that StopRun ended did nothing that deserves a traceback."""

    def hook(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, StopRun):
            shown(args)

    return hook


def main(folder_path: str) -> int:
    """Carry out the plan in the folder; the result is the process exit code."""
    folder = ChildFolder(folder_path)
    content = (Path(folder_path) / PLAN_FILE).read_text(encoding="utf-8")
    plan = from_plain(Plan, json.loads(content))
    if plan.parent_pid is not None:
        end_with(plan.parent_pid)
    raise_on_interrupt(plan.interrupt_signal)
    os.environ["LAUNCHSCOPE"] = "1"
    controllers: list[StepController] = []  # one, once torch is there

    def torch_arrived(torch: ModuleType) -> None:
        from launchscope.runner.child.attach import attach

        controllers.append(attach(torch, folder, plan))
        markers.observe(controllers[0])

    if "torch" in sys.modules:  # a .pth file or sitecustomize has imported it
        torch_arrived(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _AfterImport("torch", torch_arrived))
    own = os.getpid()
    threading.excepthook = _without_stop_run(threading.excepthook)
    code = 0
    try:
        load_target(plan.target.kind, plan.target.name, plan.target.args)()
    except StopRun:
        pass
    except BaseException as error:
        if os.getpid() != own:  # the script forked, and this is the other process
            return exit_code_of(error)
        if not any(controller.absorbs(error) for controller in controllers):
            folder.emit(ScriptFailed(type(error).__name__, isinstance(error, SystemExit)))
            code = exit_code_of(error)
    if os.getpid() != own:
        return code
    with contextlib.suppress(BaseException):
        # As Python does at its end: threads of the script may train, or still be saving.
        threading._shutdown()  # type: ignore[attr-defined]
    for controller in controllers:
        if not controller.finished:
            controller.script_ended()
    markers.observe(None)
    if any(controller.stopped for controller in controllers):
        # The script was ended early, and everything it can still do is over once its exit
        # handlers ran. Taking the interpreter and CUDA apart in order would cost a second.
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
        flush_files()
        folder.emit(ChildEnded())
        os._exit(code)
    folder.emit(ChildEnded())
    return code

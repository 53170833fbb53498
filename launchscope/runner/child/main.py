"""The entry inside the user's process: waits for torch, runs the target, keeps the results.

Imports the standard library only. torch is never imported from here before the script
imports it; a loader hook puts the listeners in at that moment.
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
from typing import Any

from launchscope import markers
from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.target import StopRun, exit_code_of, load_target
from launchscope.runner.protocol.folder import SPEC_FILE, ChildFolder
from launchscope.runner.protocol.signals import end_with, stop_when_asked


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


def _quiet_about_our_stop(shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A thread of the script's that StopRun ended did nothing worth a traceback."""

    def hook(args: Any) -> None:
        if not issubclass(args.exc_type, StopRun):
            shown(args)

    return hook


def main(folder_path: str) -> int:
    """Run the target named in the folder's spec; the result is the process exit code."""
    folder = ChildFolder(folder_path)
    spec = json.loads((Path(folder_path) / SPEC_FILE).read_text(encoding="utf-8"))
    if spec["parent"] is not None:
        end_with(spec["parent"])
    stop_when_asked(spec["asked_by"])
    os.environ["LAUNCHSCOPE"] = "1"
    running: list[Any] = []

    def torch_arrived(torch: ModuleType) -> None:
        from launchscope.runner.child.attach import attach

        conductor = attach(torch, folder, spec)
        running.append(conductor)
        markers.listen(conductor)

    if "torch" in sys.modules:  # a .pth file or sitecustomize has imported it
        torch_arrived(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _AfterImport("torch", torch_arrived))
    own = os.getpid()
    threading.excepthook = _quiet_about_our_stop(threading.excepthook)
    folder.tell("child_started", pid=own)
    code = 0
    try:
        load_target(spec["target"]["kind"], spec["target"]["name"], spec["target"]["args"])()
    except StopRun:
        pass
    except BaseException as error:
        if os.getpid() != own:  # the script forked, and this is the other process
            return exit_code_of(error)
        if not any(conductor.absorbs(error) for conductor in running):
            folder.tell(
                "script_failed",
                error=type(error).__name__,
                text=str(error)[:500],
                exits=isinstance(error, SystemExit),
            )
            code = exit_code_of(error)
    if os.getpid() != own:
        return code
    with contextlib.suppress(BaseException):
        # As Python does at its end: threads of the script's may train, or still be saving.
        threading._shutdown()  # type: ignore[attr-defined]
    stopped = False
    for conductor in running:
        if not conductor.finished:
            conductor.script_ended()
        stopped = stopped or conductor.stopped
    markers.listen(None)
    if stopped:
        # The script was ended early, and all of it that can be heard of is over once its exit
        # handlers ran. Taking the interpreter and CUDA apart in order would cost a second.
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
        flush_files()
        folder.tell("child_ended", code=code)
        os._exit(code)
    folder.tell("child_ended", code=code)
    return code

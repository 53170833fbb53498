"""The entry inside the user's process: waits for torch, runs the target, keeps the results.

Imports the standard library only. torch is never imported from here before the script
imports it; a loader hook puts the listeners in at that moment.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from launchscope import markers
from launchscope.runner.folder import SPEC_FILE, ResultFolder
from launchscope.runner.target import StopRun, exit_code_of, load_target


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
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return None
        loader, action = spec.loader, self._action
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            action(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def main(folder_path: str) -> int:
    """Run the target named in the folder's spec; the result is the process exit code."""
    folder = ResultFolder(folder_path)
    spec = json.loads((Path(folder_path) / SPEC_FILE).read_text(encoding="utf-8"))
    os.environ["LAUNCHSCOPE"] = "1"
    running: list[Any] = []

    def torch_arrived(torch: ModuleType) -> None:
        from launchscope.runner.attach import attach

        conductor = attach(torch, folder, spec)
        running.append(conductor)
        markers.listen(conductor)

    sys.meta_path.insert(0, _AfterImport("torch", torch_arrived))
    folder.tell("child_started", pid=os.getpid())
    code = 0
    try:
        load_target(spec["target"]["kind"], spec["target"]["name"], spec["target"]["args"])()
    except StopRun:
        pass
    except BaseException as error:
        if not any(conductor.absorbs(error) for conductor in running):
            folder.tell(
                "script_failed",
                error=type(error).__name__,
                text=str(error)[:500],
                exits=isinstance(error, SystemExit),
            )
            code = exit_code_of(error)
    for conductor in running:
        if not conductor.finished:
            conductor.script_ended()
    markers.listen(None)
    folder.tell("child_ended", code=code)
    return code

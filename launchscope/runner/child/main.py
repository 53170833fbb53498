"""The entry inside the person's process: runs the target, and attaches to torch.

Imports the standard library only. The script imports torch; an import hook attaches launchscope
at that moment.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from types import ModuleType

from launchscope import markers
from launchscope.runner.child.enter.attach import (
    Controller,
    Entry,
    SideStreams,
    is_pytorch,
    seed_python,
    seed_torch,
)
from launchscope.runner.child.enter.machine import environment_of, has_no_gpu
from launchscope.runner.child.enter.stop import end_with, flush_output, stop_on_termination
from launchscope.runner.child.enter.target import StopRun, exit_code_of, load_target
from launchscope.runner.child.facts.imports import ImportWatch, import_from
from launchscope.runner.child.facts.reasons import is_out_of_memory
from launchscope.runner.child.facts.source_lines import note_torch, raising_frame, user_line
from launchscope.runner.child.facts.torch_modes import see_modes_after_inference
from launchscope.runner.child.facts.torch_types import Torch
from launchscope.runner.child.passes import all_passes
from launchscope.runner.child.passes.step_controller import StepController
from launchscope.runner.child.rehearsal.findings import RehearsalFindings
from launchscope.runner.child.rehearsal.rehearsal import install_rehearsal
from launchscope.runner.protocol.events import ChildEnded, ScriptFailed
from launchscope.runner.protocol.folder import PLAN_FILE, ChildFolder, Plan
from launchscope.runner.protocol.plain import from_plain

_MOST_SHOWN = 6000  # characters of a traceback


def main(folder_path: str, startup: frozenset[str]) -> int:
    """Carry out the plan in the folder; the result is the process exit code."""
    content = (Path(folder_path) / PLAN_FILE).read_text(encoding="utf-8")
    plan = from_plain(Plan, json.loads(content))
    if plan.parent is not None:
        end_with(plan.parent)
    stop_on_termination()
    # Import what is needed later: the script's own files may have the names of libraries.
    all_passes()
    os.environ["LAUNCHSCOPE"] = "1"
    if plan.tree is not None and plan.tree.instead is not None:
        import_from(plan.tree.root, plan.tree.instead)
    return _Run(ChildFolder(folder_path), plan).carry_out(startup)


class _Run:
    """The script in this process, from its first line to its exit handlers."""

    def __init__(self, folder: ChildFolder, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        # A fork of the script reports nothing.
        os.register_at_fork(after_in_child=lambda: setattr(folder, "error", OSError()))
        self._rehearsal = RehearsalFindings()
        self._entry = self._entry_point()
        self._controller: Controller | None = None  # once torch is there

    def _entry_point(self) -> Entry | None:
        point = self._plan.entry_point
        if point is None:
            return None
        function = getattr(importlib.import_module(point.module), point.function)
        entry: Entry = function(self._folder, self._plan.stop_file, point.options)
        return entry

    def carry_out(self, startup: frozenset[str]) -> int:
        """Run the target; the result is the exit code of Python."""
        self._wait_for_torch()
        if self._plan.strategy is not None:
            seed_python()
        # The last exit handler: what Python takes apart after it may hang or fail.
        atexit.register(self._ended)
        failure = self._run_target(startup)
        code = 0 if failure is None else self._failed(failure)
        with contextlib.suppress(BaseException):
            # As Python does at its end: threads of the script may train, or still be saving.
            threading._shutdown()  # type: ignore[attr-defined]
        if self._controller is not None:
            self._controller.unwound = True
            if not self._controller.finished:
                self._controller.script_ended()
        markers.observe(None)
        return code

    def _wait_for_torch(self) -> None:
        if is_pytorch(sys.modules.get("torch")):  # a .pth file or sitecustomize has imported it
            self._torch_arrived(sys.modules["torch"])
        else:
            ImportWatch("torch", self._torch_arrived, is_pytorch)

    def _torch_arrived(self, torch: ModuleType) -> None:
        note_torch(torch)
        plan = self._plan
        if self._entry is not None:
            self._controller = self._entry.attach(torch, self._rehearsal)
        elif plan.measures:
            controller = _attach(torch, self._folder, plan, self._rehearsal)
            self._controller = controller
            markers.observe(controller)
        elif plan.rehearses and has_no_gpu(torch):
            install_rehearsal(torch, self._rehearsal)

    def _run_target(self, startup: frozenset[str]) -> BaseException | None:
        """What the script raised, unless it is our own stop."""
        target = self._plan.target
        sources = {} if self._entry is None else self._entry.sources
        try:
            load_target(target.kind, target.name, target.args, startup, sources)()
        except StopRun:
            return None
        except BaseException as error:
            return error
        return None

    def _failed(self, error: BaseException) -> int:
        """Report what the script raised; the result is the exit code."""
        controller = self._controller
        if controller is not None and controller.absorbs(error):
            return 0
        exits = isinstance(error, SystemExit)
        raised = not (exits or isinstance(error, KeyboardInterrupt))
        self._folder.emit(
            ScriptFailed(
                type(error).__name__,
                exits,
                is_out_of_memory(error),
                controller.suspect if controller is not None and raised else None,
                user_line(raising_frame(error)),
                self._rehearsal.named_cuda,
                time.time(),
                # Rank 0 reports the tracebacks of all ranks.
                _text_of(error) if self._plan.stop_file is not None and not exits else "",
            )
        )
        return exit_code_of(error)

    def _ended(self) -> None:
        if self._controller is not None and self._controller.finished:
            flush_output()  # CUDA may end the process before Python does
        self._folder.emit(ChildEnded(self._rehearsal.named_cuda))


def _attach(
    torch: Torch, folder: ChildFolder, plan: Plan, findings: RehearsalFindings
) -> StepController:
    """Called once, right after the script's own `import torch`."""
    if plan.strategy is not None:
        seed_torch(torch)
    controller = StepController(torch, folder, plan)
    controller.install()
    see_modes_after_inference(torch)
    if has_no_gpu(torch):
        controller.rehearsal = findings
        findings.on_capture = controller.on_capture
        install_rehearsal(torch, findings)
        folder.write("environment", environment_of(torch, on_gpu=False))
        return controller
    if plan.side_stream:
        streams = SideStreams(torch)
        streams.install()
        controller.hooks.before_first_forward = streams.use_device_of

    def cuda_initialized() -> None:
        with contextlib.suppress(Exception):  # a capture would meet them again
            import launchscope.graphed  # noqa: F401 - before the first step
        folder.write("environment", environment_of(torch, on_gpu=True))

    torch.cuda._lazy_call(cuda_initialized)
    return controller


def _text_of(error: BaseException) -> str:
    with contextlib.suppress(Exception):  # the script's own __str__
        return "".join(traceback.format_exception(error))[-_MOST_SHOWN:]
    return ""

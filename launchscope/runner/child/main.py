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
from launchscope.model import SourceLine
from launchscope.runner.child.attach import Controller, Entry, attach, is_pytorch, rehearse
from launchscope.runner.child.code_owner import note_torch
from launchscope.runner.child.import_watch import ImportWatch
from launchscope.runner.child.machine import has_no_gpu
from launchscope.runner.child.nvtx_ranges import find_nvtx
from launchscope.runner.child.ops.rehearsal import RehearsalFindings
from launchscope.runner.child.passes import all_passes
from launchscope.runner.child.reasons import is_out_of_memory
from launchscope.runner.child.seeds import seed_python
from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.source_lines import is_persons, short_path
from launchscope.runner.child.source_tree import import_from
from launchscope.runner.child.target import exit_code_of, is_stop, load_target
from launchscope.runner.protocol.events import ChildEnded, ScriptFailed
from launchscope.runner.protocol.folder import PLAN_FILE, ChildFolder, Plan
from launchscope.runner.protocol.plain import from_plain
from launchscope.runner.protocol.signals import EndSignals, raise_on_interrupt

_POLL_S, _RELEASED_WITHIN_S = 0.002, 30.0
_MOST_SHOWN = 6000  # characters of a traceback


def _line_of(error: BaseException) -> SourceLine | None:
    """The innermost line of the person's own code that the error came through."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [(frame.f_code.co_filename, line) for frame, line in frames]
    own = [SourceLine(short_path(file), line) for file, line in lines if is_persons(file)]
    return own[-1] if own else None


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
    folder = ChildFolder(folder_path)
    plan = _plan(Path(folder_path) / PLAN_FILE)
    if plan is None:
        return 1
    raise_on_interrupt(plan.interrupt_signal)
    # Import what is needed later: the script's own files may have the names of libraries.
    all_passes()
    find_nvtx(nvtx_folder)
    os.environ["LAUNCHSCOPE"] = "1"
    if plan.tree is not None and plan.tree.instead is not None:
        import_from(plan.tree.root, plan.tree.instead)
    entry: Entry | None = None
    if (point := plan.entry_point) is not None:
        function = getattr(importlib.import_module(point.module), point.function)
        entry = function(folder, plan.stop_file, point.options)
    controllers: list[Controller] = []  # one, once torch is there
    rehearsal = RehearsalFindings()

    def torch_arrived(torch: ModuleType) -> None:
        note_torch(torch)
        if entry is not None:
            controllers.append(entry.attach(torch, rehearsal))
            return
        if not plan.measures:
            if plan.rehearses and has_no_gpu(torch):
                rehearse(torch, folder, rehearsal)
            return
        controller = attach(torch, folder, plan, rehearsal)
        controllers.append(controller)
        markers.observe(controller)

    if is_pytorch(sys.modules.get("torch")):  # a .pth file or sitecustomize has imported it
        torch_arrived(sys.modules["torch"])
    else:
        ImportWatch("torch", is_pytorch, torch_arrived).begin()
    if plan.strategy is not None:
        seed_python()
    own = os.getpid()

    def ended() -> None:
        if os.getpid() != own:
            return
        with EndSignals("SIGINT"):  # nothing is left that it could end
            if any(controller.finished for controller in controllers):
                flush_files()  # CUDA may end the process before Python closes them
            folder.emit(ChildEnded(rehearsal.named_cuda))

    # The last exit handler: what Python takes apart after it may hang or fail.
    atexit.register(ended)
    code = 0
    ends: BaseException | None = None
    try:
        target = plan.target
        sources = {} if entry is None else entry.sources
        load_target(target.kind, target.name, target.args, startup, sources)()
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
            kind, starved = type(ends).__name__, is_out_of_memory(ends)
            shown, now = "", time.time()
            if plan.stop_file is not None and not exits:  # rank 0 reports it
                with contextlib.suppress(Exception):  # the script's own __str__
                    shown = "".join(traceback.format_exception(ends))[-_MOST_SHOWN:]
            suspect = next(iter(suspects), None)
            where, rehearsed = _line_of(ends), rehearsal.named_cuda
            failed = ScriptFailed(kind, exits, starved, suspect, where, rehearsed, now, shown)
            folder.emit(failed)
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

"""What the runner's child calls in place of its passes, in a run for `adopt`."""

from __future__ import annotations

from typing import Any

from launchscope.adopt.record import RunTask
from launchscope.runner.child.enter.attach import Controller, Entry, seed_python
from launchscope.runner.child.enter.machine import has_no_gpu
from launchscope.runner.child.facts.torch_types import Torch
from launchscope.runner.child.rehearsal.rehearsal import RehearsalFindings, install_rehearsal
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plain import from_plain


def record(folder: ChildFolder, stop_file: str | None, options: dict[str, Any]) -> Entry:
    """A run that is compared with another one. `options`: a RunTask."""
    seed_python()

    def attach(torch: Torch, findings: RehearsalFindings) -> Controller:
        # It imports `logging`, which flushes streams at the end: not before torch does.
        from launchscope.adopt.child.recorder import Recorder

        if has_no_gpu(torch):
            install_rehearsal(torch, findings)
        task = from_plain(RunTask, options)
        recorder = Recorder(torch, folder, task)
        recorder.install()
        return recorder

    return Entry(attach)

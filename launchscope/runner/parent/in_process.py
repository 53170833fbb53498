"""Records steps of the caller's own process, with the same passes as a script.

A capture is only tried if the inspection found no blocker: a failed one can break later CUDA
calls, and not every failure can be repaired.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

from launchscope.model import Schedule, Target
from launchscope.runner.child.enter.machine import environment_of
from launchscope.runner.child.facts.source_lines import note_torch
from launchscope.runner.child.facts.torch_types import Torch
from launchscope.runner.child.passes.step_controller import StepController
from launchscope.runner.parent.child_report import ChildReport, cannot_write
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import ChildFolder, Plan
from launchscope.runner.protocol.passes import PASSES


class MarkedStep:
    """The step is what runs inside `with`. An error that a pass caused goes no further."""

    def __init__(self, controller: StepController):
        self._controller = controller

    def __enter__(self) -> None:
        self._controller.marker_begin()

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._controller.marker_end()
        return isinstance(error, Exception) and self._controller.absorbs(error)


def record_steps(name: str, schedule: Schedule, directory: Path) -> Generator[MarkedStep]:
    """Yields what marks the next step while one is needed, and writes recording.json to `directory`
    at the end, and where it is closed before. Raises MeasureError if there is no room for it."""
    import torch

    note_torch(torch)
    folder = ChildFolder(directory / "run-1")
    folder.path.mkdir(parents=True)
    on_gpu = torch.cuda.is_available()
    target = Target("callable", name)
    plan = Plan(
        target=target,
        passes=tuple(PASSES),
        schedule=schedule,
        side_stream=on_gpu,
        own_process=False,
    )
    folder.write("environment", environment_of(torch, on_gpu=on_gpu))
    controller = StepController(torch, folder, plan)
    controller.hooks.install()
    try:
        with _side_stream(torch) if on_gpu else contextlib.nullcontext():
            while not controller.finished:
                yield MarkedStep(controller)
    finally:
        if not controller.finished:
            controller.script_ended()
        collected, report = Collected(directory, runs=1), ChildReport(folder.path)
        for event in RunFolder(folder.path).events():
            report.on_event(event)
        collected.take(report)
        try:
            collected.write_recording(target, schedule, None)
        except OSError as error:
            folder.error = folder.error or error
    if folder.error is not None:
        raise cannot_write(directory, folder.error) from folder.error


@contextlib.contextmanager
def _side_stream(torch: Torch) -> Iterator[None]:
    """A capture needs a stream other than the default one; work before and after is ordered."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)

"""Records a callable in the caller's own process, with the same passes as a script.

A capture is only tried if the inspection found no blocker: a failed one can break later CUDA
calls, and not every failure can be repaired.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.child.enter.machine import environment_of
from launchscope.runner.child.facts.source_lines import note_torch
from launchscope.runner.child.facts.torch_types import Args, Torch, Value
from launchscope.runner.child.passes.step_controller import StepController
from launchscope.runner.parent.child_report import ChildReport, cannot_write
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import ChildFolder, Plan
from launchscope.runner.protocol.passes import PASSES


def record_callable(
    step: Callable[..., Value], inputs: Iterator[Args], schedule: Schedule, directory: Path
) -> None:
    """Call `step(*next(inputs))` as often as needed, and write recording.json to `directory`.
    Raises MeasureError if the callable raises, or if there is no room for the results."""
    import torch

    note_torch(torch)
    folder = ChildFolder(directory / "run-1")
    folder.path.mkdir(parents=True)
    on_gpu = torch.cuda.is_available()
    target = Target("callable", getattr(step, "__qualname__", type(step).__name__))
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
            _call_until_done(controller, step, inputs)
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


def _call_until_done(
    controller: StepController, step: Callable[..., Value], inputs: Iterator[Args]
) -> None:
    while not controller.finished:
        try:
            given = next(inputs)
            controller.marker_begin()
            step(*given)
            controller.marker_end()
        except Exception as error:
            if controller.absorbs(error):
                return
            raise MeasureError(
                f"the step raised {type(error).__name__}: {error}",
                hint="call it once without launchscope; it has to run on its example inputs",
            ) from error


@contextlib.contextmanager
def _side_stream(torch: Torch) -> Iterator[None]:
    """A capture needs a stream other than the default one; work before and after is ordered."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)

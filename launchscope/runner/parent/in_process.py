"""Records a callable in the caller's own process, with the same passes as a script.

Nothing here ends the process. A capture that fails still leaves CUDA in a state in which
later calls may fail, which is why it is only tried when the inspection found no blocker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.child.attach import environment_of
from launchscope.runner.child.ops.rehearsal import foreach_as_on_cuda
from launchscope.runner.child.passes import all_passes
from launchscope.runner.child.step_controller import StepController
from launchscope.runner.parent.child_report import ChildReport, unwritable
from launchscope.runner.parent.collect import Collected
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plan import Plan

# More calls than any schedule takes: the loop below ends by itself well before.
_CALL_LIMIT = 100_000


def record_callable(
    step: Callable[..., Any], inputs: tuple[Any, ...], schedule: Schedule, directory: Path
) -> None:
    """Call `step(*inputs)` as often as the passes need; writes recording.json to `directory`.

    Raises MeasureError if the callable itself raises, the cause being attached, and where there
    is no room for the results.
    """
    import torch

    folder = ChildFolder(directory / "run-1")
    folder.path.mkdir(parents=True)
    on_gpu = torch.cuda.is_available()
    plan = Plan(
        passes=tuple(kind.name for kind in all_passes()),
        schedule=schedule,
        stop_after=False,
        side_stream=on_gpu,
        own_process=False,
    )
    name = getattr(step, "__qualname__", type(step).__name__)
    folder.write("environment", environment_of(torch, on_gpu=on_gpu))
    conductor = StepController(torch, folder, plan, {})
    conductor.hooks.install()
    try:
        with _side_stream(torch) if on_gpu else _counted_as_on_cuda():
            _call_until_done(conductor, step, inputs)
    finally:
        if not conductor.finished:
            conductor.script_ended()
        collected = Collected(directory)
        collected.runs = 1
        report = ChildReport(folder=folder.path)
        for line in folder.told():
            report.hear(line)
        collected.rehearsal = not on_gpu
        collected.take(report)
        try:
            collected.write_recording(Target("callable", name), schedule, None)
        except OSError as error:
            folder.lost = folder.lost or error
    if folder.lost is not None:
        raise unwritable(directory, folder.lost) from folder.lost


def _call_until_done(
    conductor: StepController, step: Callable[..., Any], inputs: tuple[Any, ...]
) -> None:
    for _ in range(_CALL_LIMIT):
        try:
            conductor.marker_begin()
            step(*inputs)
            conductor.marker_end()
        except Exception as error:
            if conductor.absorbs(error):
                return
            raise MeasureError(
                f"the step raised {type(error).__name__}: {error}",
                hint="call it once without launchscope; it has to run on its example inputs",
            ) from error
        if conductor.finished:
            return


@contextlib.contextmanager
def _counted_as_on_cuda() -> Any:
    """Optimizers and clipping take CUDA's path, as in a rehearsal, and their own one afterwards."""
    restore = foreach_as_on_cuda()
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def _side_stream(torch: Any) -> Any:
    """A capture needs a stream other than the default one; work before and after is ordered."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)

"""Watches a script to its end: windows of timed and traced steps, and counted steps in between."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from launchscope import markers
from launchscope.model import Schedule, Target
from launchscope.runner.child.enter.attach import Entry
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.passes import Context, Pass, timing, trace
from launchscope.runner.child.passes.step_controller import StepController
from launchscope.runner.protocol.folder import ChildFolder, Plan

_SOON_S, _MOST_COST = 1.0, 0.005  # until the first window; of the time: counting takes as much


class WatchPass(Pass[tuple[int, float, float]]):
    """Counts steps for `every_s`. A window, which is the other two passes, follows if the cost of
    all windows stays low: what the run takes beyond the time of so many counted steps."""

    name, boundaries_only, direct = "watch", True, True
    seen = 0  # steps, since it began last
    _opened, _counted, _counted_s, _windows = 0.0, 0, 0.0, 0

    def __init__(self, controller: StepController, every_s: float):
        self._runner, self._every_s = controller.runner, every_s

    def start(self, context: Context) -> None:
        if not context.on_gpu:
            raise ReasonError("no_gpu_work")
        self.context, self.seen, self._begun = context, 0, perf_counter()
        self._opened = self._opened or self._begun
        self._due = self._begun + (self._every_s if self._windows else _SOON_S)

    def begin(self) -> None: ...

    def end(self) -> bool:
        self.seen += 1
        return perf_counter() >= self._due

    def finish(self, complete: bool) -> tuple[int, float, float]:
        now, steps = perf_counter(), self._runner.steps_done - self.context.boundary.warmup_steps
        self._counted += self.seen
        self._counted_s += now - self._begun
        cost_s = max(now - self._opened - steps * self._counted_s / max(self._counted, 1), 0.0)
        opens = cost_s * (1 + 1 / max(self._windows, 1)) <= _MOST_COST * (now - self._opened)
        self._windows += opens
        traced = trace.PASS()
        traced.calibrates = False  # which takes as long as the rest of a window
        self._runner.queue = [timing.PASS(), traced, self] if opens else [self]
        return steps, now - self._opened - cost_s, cost_s


def watch(folder: ChildFolder, stop_file: str | None, options: dict[str, Any]) -> Entry:
    """A run that is watched. `options`: the Schedule, and `every_s`."""
    schedule = Schedule(**options["schedule"])
    plan = Plan(Target("script", ""), (), schedule, side_stream=False, own_process=False)

    def attach(torch: Any, findings: object) -> StepController:
        controller = StepController(torch, folder, plan)
        controller.runner.queue = [WatchPass(controller, options["every_s"])]
        controller.install()
        markers.observe(controller)
        return controller

    return Entry(attach)

"""Observes the script: first it has the step found, then it gives every step to the passes."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from time import perf_counter

from launchscope.model import Schedule, StepBoundary, TensorShape
from launchscope.runner.child.capture.nvtx_ranges import NvtxRanges
from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.enter.machine import environment_of, other_device
from launchscope.runner.child.enter.stop import leave_at_once, stop_script, stop_together
from launchscope.runner.child.events.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.events.events import MARKS, NO_OBSERVER, StepObserver
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.modules import input_shapes, main_input
from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    ZERO_GRAD,
    Pattern,
)
from launchscope.runner.child.facts.imports import loaded_files
from launchscope.runner.child.facts.reasons import own_failure
from launchscope.runner.child.facts.source_lines import names_attribute
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Module, Torch
from launchscope.runner.child.passes import Context, in_time
from launchscope.runner.child.passes.pass_runner import PassRunner
from launchscope.runner.child.rehearsal.findings import RehearsalFindings
from launchscope.runner.child.steps.detector import StepDetector
from launchscope.runner.child.steps.search import StepFollower
from launchscope.runner.child.steps.step_summary import CAPTURE
from launchscope.runner.protocol import events
from launchscope.runner.protocol.folder import ChildFolder, Plan

# The share of half the time limit that the plain steps of one pass may take: slower passes have to
# fit in as well.
_PASS_SHARE = 0.25
_NO_INPUTS: tuple[Args, Kwargs] = (), {}


class StepController(StepObserver):
    """Routes what the script does to the search and, once the step is known, to the passes. One
    per process. It ends the script by StopRun or, after a pass broke, by leaving the process."""

    def __init__(self, torch: Torch, folder: ChildFolder, plan: Plan):
        self.torch = torch
        self.folder = folder
        self.plan = plan
        self.hooks = Hooks(torch, NO_OBSERVER)
        self.hooks.broke = self._broke
        self.rehearsal = RehearsalFindings()
        self.finished = False
        self.unwound = False  # nothing of the script runs but its exit handlers and finalizers
        self._strategy = Strategy(torch, self.hooks, plan.strategy) if plan.strategy else None
        self._nvtx = NvtxRanges()
        self._follower: StepFollower | None = None  # None also where the script marks its steps
        self.runner = PassRunner(plan.passes, self._finish, self._leave, self._follow_for)
        self._kinds: dict[TensorShape | None, int] = {}
        self._current_kind = 0
        self._opening = _NO_INPUTS  # of the forward that opens a step
        self._in_marker = False
        self._graphs: bool | None = None  # whether the script names CUDA graphs
        self._began = perf_counter()
        self._nvtx.push(f"pass:{events.WARMUP}")
        self.folder.emit(events.PassStarted(events.WARMUP, plan.schedule.warmup))
        self._search = StepDetector(
            self.hooks,
            plan.schedule,
            self._start_measuring,
            plan.patience_s,
            plan.may_train and self._strategy is None,
            self._note,
        )
        self._detector: StepDetector | None = self._search  # None once the step is known
        self.hooks.observer = self._search

    def install(self) -> None:
        self.hooks.install()
        if self._strategy is not None:
            self._strategy.install()

    def _note(self, text: str, *, passing: bool = False) -> None:
        self.folder.emit(events.Note(text, passing))

    # -------------------------------------------------------------- events of the script

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        self.hooks.forwards += 1
        follower, trains = self._follower, self.torch._C.is_grad_enabled()
        training = getattr(module, "training", True)
        if follower is None or not follower.opens(FORWARD, key, trains, training):
            return
        if self._kinds:
            self._current_kind = self._kinds.get(main_input(self.torch, args, kwargs), 0)
        self._opening = args, kwargs
        self._begin_step()
        self._opening = _NO_INPUTS

    def forward_end(self) -> None:
        if self._follower is not None and self._follower.closes(FORWARD):
            self._end_step()

    def backward_begin(self) -> None:
        follower = self._follower
        if follower is None:
            return
        if follower.opens(BACKWARD, BACKWARD):
            self._begin_step()
        if follower.before_backward():
            self.runner.part_ended("forward")

    def backward_end(self) -> None:
        if self._follower is not None:
            self._follower.closes(BACKWARD)
            if self._follower.after_backward():
                self.runner.part_ended("backward")

    def zero_grad_begin(self) -> None:
        if self._follower is not None and self._follower.opens(ZERO_GRAD, ZERO_GRAD):
            self._begin_step()

    def optimizer_begin(self, key: str) -> None:
        if self._follower is not None and self._follower.opens(OPTIMIZER, key):
            self._begin_step()

    def optimizer_end(self, key: str) -> None:
        follower = self._follower
        if follower is None:
            return
        if follower.closes(OPTIMIZER):
            self._end_step()
        if follower.opens_after(key):
            self._begin_step()

    def compiled(self) -> None:
        if self._strategy is None and not self.finished:
            self._note(
                f"the script called torch.compile after step {self.runner.steps_done}, when the "
                "measurement had begun, so nothing compiled was measured; compile before the "
                "first step, or raise --warmup"
            )

    def marker_begin(self) -> None:
        self.hooks.guarded(self._marker_begin)

    def _marker_begin(self) -> None:
        unused = self.plan.schedule.step_from in ("forward", "optimizer")
        if unused or not self.hooks.takes_over(MARKS):
            return
        self._in_marker = True
        if self._detector is not None:
            self._detector.marker_begin()
        elif self._follower is None:  # else a step without marks was found before
            self._begin_step()

    def on_capture(self, begins: bool) -> None:
        """In a rehearsal: a block that the script captures begins or ends. It is the step."""
        if not begins:
            self.marker_end()
        elif not (self.finished or self._in_marker or self._search.history.mark == CAPTURE):
            self.hooks.guarded(self._capture_begins)

    def _capture_begins(self) -> None:
        if self.hooks.takes_over(MARKS):
            self.runner.cut_short()
            self._in_marker, self.hooks.searching = True, False
            self._detector, self._follower = self._search, None
            self._search.marker_begin()
            self._search.history.mark = CAPTURE
            self._start_measuring(None)
            self._begin_step()

    def marker_end(self) -> None:
        if self._in_marker and not self.hooks.ignores_thread():
            self._in_marker = False
            self.hooks.guarded(self._marker_end)

    def _marker_end(self) -> None:
        if self._detector is not None:
            self._detector.marker_end()
        elif self._follower is None:
            self._end_step()

    def _begin_step(self) -> None:
        if self._follower is not None and self._follower.closes_before():
            self._end_step()
        if self._follower is not None:
            self._follower.begin()
        self.runner.begin_step()

    def _end_step(self) -> None:
        if self._follower is not None:
            self._follower.end()
        self.runner.end_step()

    # ----------------------------------------------------------------------- measurement

    def _start_measuring(self, pattern: Pattern | None) -> None:
        """The step is known; `pattern` is None if the script marks its steps. From here on only
        single modules carry hooks, and every step belongs to a pass."""
        detector = self._detector
        assert detector is not None
        self._detector, self.hooks.observer = None, self
        keys = frozenset() if pattern is None else pattern.keys
        if pattern is not None:
            pattern = pattern.visible_through(self.hooks.visible(keys))
            assert pattern is not None  # the detector has asked
            self._follower = StepFollower(pattern)
        zero_grad = pattern is not None and pattern.first.kind == ZERO_GRAD
        self.hooks.watch_modules(keys, zero_grad=zero_grad)
        self._measure(detector, pattern)

    def _measure(self, detector: StepDetector, pattern: Pattern | None) -> None:
        plan, folder, summary = self.plan, self.folder, detector.summary(pattern)
        for code in summary.remarks():
            folder.emit(events.Remark(code))
        boundary = summary.boundary()
        self._kinds = {kind.input: index for index, kind in enumerate(boundary.kinds)}
        if not plan.own_process:
            boundary = replace(boundary, boundary="callable", names=("call",))
        folder.write("step", boundary)
        step_s = detector.usual_step_s
        context = self._context(boundary, pattern, self._schedule(step_s), step_s)
        # Again: a process group is made after CUDA is initialized.
        folder.write("environment", environment_of(self.torch, on_gpu=context.on_gpu))
        self._nvtx.pop()
        self._report_files()  # once more at the end, which not every script reaches
        folder.emit(events.DeviceKnown(context.on_gpu))
        folder.emit(events.PassEnded(events.WARMUP, perf_counter() - self._began))
        self.runner.start(context, boundary.warmup_steps)

    def _context(
        self, boundary: StepBoundary, pattern: Pattern | None, schedule: Schedule, step_s: float
    ) -> Context:
        on_gpu = bool(self.torch.cuda.is_initialized())
        return Context(
            torch=self.torch,
            folder=self.folder,
            schedule=schedule,
            hooks=self.hooks,
            nvtx=self._nvtx,
            boundary=boundary,
            pattern=pattern,
            on_gpu=on_gpu,
            side_stream=self.plan.side_stream,
            device=other_device(self.torch, self.hooks.modules) if on_gpu else None,
            optimizers=self.hooks.optimizers,
            modules=self.hooks.modules,
            step_s=step_s,
            own_process=self.plan.own_process,
            step_kind=lambda: self._current_kind,
            step_inputs=lambda: input_shapes(self.torch, *self._opening),
            rehearsal=self.rehearsal,
            strategy=self._strategy,
            earlier=self.plan.earlier,
        )

    def _schedule(self, step_s: float) -> Schedule:
        """The schedule, with as many steps as there is time for."""
        schedule = self.plan.schedule
        if self.rehearsal.capturing:
            return replace(schedule, inspect=1)
        fitting = in_time(schedule, int(self.plan.patience_s * _PASS_SHARE / max(step_s, 1e-9)))
        if fitting != schedule:
            self._note(f"a step takes {step_s:.2g} s, so passes take fewer steps than planned")
        return fitting

    def _follow_for(self, boundaries_only: bool) -> None:
        """Before a pass: follow its steps as closely as it needs, and no closer."""
        follower, runner = self._follower, self.runner
        self.hooks.observe_everything()
        # Kinds of steps are known by their inputs.
        if not boundaries_only or self._kinds or follower is None:
            return
        if StepBoundaryHooks.enough_for(follower.pattern):
            boundary = StepBoundaryHooks(
                self.torch,
                self.hooks.thread,
                follower.pattern,
                runner.begin_step,
                runner.end_step,
                runner.pass_over,
                self._step_failed,
            )
            self.hooks.observe_boundaries(boundary)

    def _step_failed(self, error: Exception) -> None:
        """The begin or the end of a step failed: the pass is over, or all of them."""
        if not self.runner.direct_pass_failed(error):
            self._broke(error)

    # --------------------------------------------------------------------------- ending

    def _report_files(self) -> None:
        if self.plan.tree is not None:
            self.folder.emit(loaded_files(self.plan.tree))

    def _finish(self) -> None:
        """Everything is measured: remove the hooks and end the script."""
        if self.finished or self._may_capture():
            return
        self.finished = True
        self._follower = self._detector = None
        self.hooks.remove()
        self._report_files()
        self.folder.emit(events.MeasuringEnded())
        if not self.plan.own_process:
            return
        stop = partial(stop_script, self.torch, self._may_stop)
        if self.plan.stop_file is None:
            stop()
        else:
            stop_together(self.torch, self.plan.stop_file, stop, self._may_stop)

    def _may_capture(self) -> bool:
        """In a rehearsal, whose result is on disk: whether the script may still capture a block."""
        waits = self.rehearsal.named_cuda and perf_counter() - self._began < self.plan.patience_s
        if not waits or self.unwound or self._search.history.mark == CAPTURE:
            return False
        if self._graphs is None:
            self._graphs = names_attribute(sys._getframe(1), "CUDAGraph")
            self.folder.emit(events.EnoughMeasured())
        return self._graphs

    def _leave(self) -> None:
        """Nothing more can be measured in this process: end it at once, if it is ours."""
        if not self.plan.own_process:
            self._finish()
            return
        if not self.finished:
            self._report_files()
            self.folder.emit(events.MeasuringEnded())
        leave_at_once()

    def _may_stop(self) -> bool:
        return not self.unwound and self.hooks.on_script_thread()

    def _broke(self, error: Exception) -> None:
        """An error of our own ends the measurement; the script does not see it."""
        self.folder.emit(own_failure(error))
        self.runner.cut_short()
        self._finish()

    @property
    def suspect(self) -> str | None:
        """The pass that may have caused an error that the script raises now."""
        return self.runner.suspect

    def absorbs(self, error: BaseException) -> bool:
        """True if an error that left the script is a pass's doing; its result is then on disk."""
        blamed = self.runner.takes_blame(error)
        if blamed:
            self._leave()
        return blamed

    def script_ended(self) -> None:
        """The script is over, by itself or by an error: keep what there is."""
        detector, runner, hooks = self._detector, self.runner, self.hooks
        self._follower = None
        runner.cut_short()
        self._report_files()
        if detector is not None and detector.obstacle is not None:
            self.folder.emit(events.Remark(detector.obstacle))
        self.folder.emit(
            events.ScriptEnded(
                steps=detector.history.steps if detector else runner.steps_done,
                searching=detector is not None,
                forwards=0 if detector is None else detector.history.forwards,
                optimizer_steps=0 if detector is None else detector.optimizer_steps,
                waiting=detector is not None and detector.waits,
                processes=hooks.processes,
            )
        )
        hooks.remove()

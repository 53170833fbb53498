"""Observes the script: first it finds the step, then it hands every step to the passes.

The script is only ever stopped by StopRun or, after a failed capture, by leaving the
process at once.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from launchscope.model import TensorShape
from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.context import Context
from launchscope.runner.child.hooks.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.input_shapes import input_shapes, main_input
from launchscope.runner.child.hooks.modules import in_training
from launchscope.runner.child.nvtx_ranges import NvtxRanges
from launchscope.runner.child.ops.rehearsal import RehearsalFindings
from launchscope.runner.child.pass_runner import PassRunner
from launchscope.runner.child.passes.strategy import StrategyPass, failed_strategy
from launchscope.runner.child.reasons import reason_of
from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.shutdown.stop import Stopping
from launchscope.runner.child.step_pattern import BACKWARD, FORWARD, OPTIMIZER, Pattern
from launchscope.runner.child.steps.detector import OPENING, StepDetector
from launchscope.runner.child.steps.search import StepFollower
from launchscope.runner.child.target import StopRun
from launchscope.runner.child.torch_types import Args, Kwargs, Module, Optimizer, Torch
from launchscope.runner.protocol.events import (
    WARMUP,
    DeviceKnown,
    MeasuringEnded,
    Note,
    PassEnded,
    PassFailed,
    PassStarted,
    ScriptEnded,
)
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plan import Plan


class StepController:
    """The observer of hooks and marks; one per process."""

    def __init__(self, torch: Torch, folder: ChildFolder, plan: Plan):
        self.torch = torch
        self.folder = folder
        self.plan = plan
        self.hooks = Hooks(torch, self)
        self.rehearsal = RehearsalFindings()
        self.finished = False
        self.stopped = False  # finished by ending the script early
        self._nvtx = NvtxRanges()
        self._detector: StepDetector | None = StepDetector(torch, plan.schedule, self.hooks)
        self._follower: StepFollower | None = None
        self._runner: PassRunner | None = None
        self._kinds: dict[TensorShape | None, int] = {}
        self._current_kind = 0
        self._in_marker = False
        self._opening: tuple[Args, Kwargs] | None = None  # inputs of the forward that opens a step
        self._strategy = (
            None if plan.strategy is None else Strategy(torch, self.hooks, plan.strategy)
        )
        self._detected = False  # the step was found, not marked
        self._noted_late_marks = False
        self._warm_up()

    def install(self) -> None:
        """Put the hooks in."""
        self.hooks.install()
        if self._strategy is not None:
            self._strategy.install()

    def _warm_up(self) -> None:
        self._began = time.perf_counter()
        self._nvtx.push(f"pass:{WARMUP}")
        self.folder.emit(PassStarted(WARMUP, self.plan.schedule.warmup))

    def _note(self, text: str) -> None:
        self.folder.emit(Note(text))

    # -------------------------------------------------------------- events of the script

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        self.hooks.forwards += 1
        trains = self.torch.is_grad_enabled()
        if self._detector is not None:
            if not self._in_marker:  # a step without a closing event ends before this one
                self._consider(OPENING)
            if self._detector is not None:
                if self._strategy is not None:
                    self._strategy.record_call(key, module, args, kwargs)
                self._detector.forward(key, module, args, kwargs, trains)
                return
        follower = self._follower
        if follower is None or not follower.opens(FORWARD, key, trains, in_training(module)):
            return
        if follower.closes_before():
            self._end_step()
        if self._kinds:
            self._current_kind = self._kinds.get(main_input(self.torch, args, kwargs), 0)
        self._opening = args, kwargs
        self._begin_step()
        self._opening = None

    def forward_end(self, key: str, module: Module) -> None:
        if self._detector is not None:
            self._consider(FORWARD)
        elif self._follower is not None and self._follower.closes(FORWARD):
            self._end_step()

    def backward_begin(self) -> None:
        self._consider(BACKWARD)
        follower = self._follower
        if follower is None:
            return
        if follower.opens(BACKWARD, BACKWARD):
            if follower.closes_before():
                self._end_step()
            self._begin_step()
        if self._runner is not None and follower.before_backward():
            self._runner.part_ended("forward")

    def backward_end(self) -> None:
        if self._detector is not None:
            self._detector.backward()
        elif self._follower is not None:
            self._follower.closes(BACKWARD)
            if self._runner is not None and self._follower.after_backward():
                self._runner.part_ended("backward")

    def optimizer_begin(self, key: str, optimizer: Optimizer) -> None:
        if self._detector is not None:
            self._detector.optimizer_opens(key)
        elif self._follower is not None and self._follower.opens(OPTIMIZER, key):
            self._begin_step()

    def optimizer_end(self, key: str, optimizer: Optimizer) -> None:
        if self._detector is not None:
            self._detector.optimizer(key)
            self._consider(OPTIMIZER)
        elif self._follower is not None and self._follower.closes(OPTIMIZER):
            self._end_step()

    def fetch_begin(self) -> None:
        if self._detector is not None:
            self._detector.fetch()
        elif self._follower is not None and self._follower.closes_before():
            self._end_step()

    def compiled(self) -> None:
        runner = self._runner
        if runner is not None and self._strategy is None and not self.finished:
            self._note(
                f"the script called torch.compile after {runner.steps_done} steps, when the "
                "measurement had begun, so nothing compiled was measured; compile before the "
                "first step, or raise --warmup"
            )

    def marker_begin(self) -> None:
        if self.hooks.ignores_thread() or self.plan.schedule.step_from in ("forward", "optimizer"):
            if self.finished and self.plan.schedule.step_from == "auto":
                self._note_late_marks()
            return
        self._in_marker = True
        if self._detector is not None:
            self._detector.marker_opens()
        elif self._follower is None:
            self._begin_step()
        elif not self._start_again():
            self._note_late_marks()

    def marker_end(self) -> None:
        if not self._in_marker or self.hooks.ignores_thread():
            return
        self._in_marker = False
        if self._detector is not None:
            if self._detector.marker():
                self._start_measuring(None)
        elif self._follower is None:
            self._end_step()

    def _start_again(self) -> bool:
        """Marks begin after a step was found: they win unless something was measured."""
        runner = self._runner
        if self._strategy is not None or runner is None or not runner.abandon():
            return False
        self.hooks.stop_watching_modules()
        self._follower = self._runner = None
        self._kinds, self._current_kind = {}, 0
        self._note(
            f"the script marks its steps after the first {runner.steps_done}: only the marked "
            "steps were measured"
        )
        self._detector = StepDetector(self.torch, self.plan.schedule, self.hooks)
        self._detector.marker_opens()
        self._warm_up()
        return True

    def _note_late_marks(self) -> None:
        if self._noted_late_marks or not self._detected or not self.hooks.on_script_thread():
            return
        if self._runner is not None:
            self._noted_late_marks = True
            self._note(
                f"the script marks its steps only after {self._runner.steps_done} others, which "
                "were measured already, so the marks were not used; to wait for them, use "
                "--step-from marker"
            )

    def _consider(self, event: str) -> None:
        detector = self._detector
        if detector is None or self._in_marker:
            return
        pattern = detector.found(event)
        if pattern is not None:
            self._start_measuring(pattern)

    # ----------------------------------------------------------------------- measurement

    def _start_measuring(self, pattern: Pattern | None) -> None:
        """From here on only single modules carry hooks, and every step belongs to a pass."""
        detector, self._detector = self._detector, None
        assert detector is not None
        self._detected = pattern is not None
        strategy = self._strategy
        if strategy is not None and not self._apply(strategy, pattern):
            return
        try:
            visible = self.hooks.watch_modules(frozenset() if pattern is None else pattern.keys)
        except Exception as error:
            self._cannot_follow(error)
            return
        if pattern is not None:
            if strategy is not None and strategy.compiled:
                pattern = pattern.visible_through(strategy.compiled)
            elif not self.hooks.compiling:
                pattern = pattern.visible_through(visible)
            if pattern is None:
                self._note(
                    "the script makes the modules of the step anew each time, so launchscope "
                    "cannot see where the step begins; mark it with `with launchscope.step():`"
                )
                self._finish()
                return
            self._follower = StepFollower(pattern)
        for text in detector.remarks(pattern):
            self._note(text)
        kinds = detector.kinds(pattern)
        self._kinds = {kind.input: index for index, kind in enumerate(kinds)}
        boundary = detector.boundary(pattern, kinds)
        if not self.plan.own_process:
            boundary = replace(boundary, boundary="callable", names=("call",))
        self.folder.write("step", boundary)
        on_gpu = bool(self.torch.cuda.is_initialized())
        context = Context(
            torch=self.torch,
            folder=self.folder,
            schedule=self.plan.schedule,
            hooks=self.hooks,
            nvtx=self._nvtx,
            boundary=boundary,
            on_gpu=on_gpu,
            side_stream=self.plan.side_stream,
            optimizers=list(self.hooks.optimizers.values()),
            modules=self.hooks.modules(),
            own_process=self.plan.own_process,
            step_kind=lambda: self._current_kind,
            step_inputs=self._step_inputs,
            rehearsal=self.rehearsal,
            strategy=strategy,
            earlier=self.plan.earlier,
        )
        self._nvtx.pop()
        self.folder.emit(DeviceKnown(on_gpu))
        self.folder.emit(PassEnded(WARMUP, time.perf_counter() - self._began))
        self._runner = PassRunner(
            context,
            self.plan.passes,
            self.plan.allow_captures,
            detector.seconds_per_step,
            boundary.warmup_steps,
            self._finish,
            self._poisoned,
            self._follow_for,
        )
        self._runner.next_pass()

    def _follow_for(self, boundaries_only: bool) -> None:
        """Before a pass: follow its steps as closely as it needs, and no closer."""
        try:
            self._follow(boundaries_only)
        except Exception as error:
            self._cannot_follow(error)

    def _cannot_follow(self, error: Exception) -> None:
        """Hooks that could not be put in are no error of the script, which must not see it."""
        self._note(
            f"hooks on the modules of the step failed ({type(error).__name__}: {error}), so "
            "nothing more was measured"
        )
        self._finish()

    def _follow(self, boundaries_only: bool) -> None:
        self.hooks.observe_everything()
        follower, runner = self._follower, self._runner
        # Steps of several kinds or sizes are told apart by their inputs.
        by_inputs = bool(self._kinds) or self.plan.schedule.sizes > 0
        if not boundaries_only or by_inputs or follower is None or runner is None:
            return
        if StepBoundaryHooks.enough_for(follower.pattern):
            thread, pattern = self.hooks.thread, follower.pattern
            self.hooks.observe_boundaries(
                StepBoundaryHooks(self.torch, thread, pattern, runner.begin_step, runner.end_step)
            )

    def _apply(self, strategy: Strategy, pattern: Pattern | None) -> bool:
        """Adopt graphs in this way; False if that failed, and then this process is done."""
        trains = pattern is None or pattern.backwards > 0
        try:
            strategy.apply(None if pattern is None else pattern.keys, trains)
        except Exception as error:
            self.folder.emit(DeviceKnown(bool(self.torch.cuda.is_initialized())))
            self.folder.write(f"pass-{StrategyPass.name}", failed_strategy(strategy, error))
            self.folder.emit(PassFailed(StrategyPass.name, reason_of(error)))
            self._poisoned()
            return False
        return True

    def _step_inputs(self) -> tuple[TensorShape, ...]:
        return () if self._opening is None else input_shapes(self.torch, *self._opening)

    def _begin_step(self) -> None:
        if self._follower is not None:
            self._follower.begin()
        if self._runner is not None:
            self._runner.begin_step()

    def _end_step(self) -> None:
        if self._follower is not None:
            self._follower.end()
        if self._runner is not None:
            self._runner.end_step()

    # --------------------------------------------------------------------------- ending

    def _finish(self) -> None:
        """Everything is measured: take the hooks back and, if so planned, end the script."""
        if self.finished:
            return
        self.finished = True
        self._follower = self._detector = None
        self.hooks.remove()
        self.folder.emit(MeasuringEnded())
        if self.plan.stop_after:
            self.stopped = True
            Stopping(self.torch, self.hooks, self._leave_at_once)
            raise StopRun

    def _poisoned(self) -> None:
        if self.plan.own_process:
            self._leave_at_once()
        self._finish()

    def _leave_at_once(self) -> None:
        """End the process without running destructors: after a failed capture they may abort."""
        if not self.finished:
            self.folder.emit(MeasuringEnded())
        flush_files()
        os._exit(0)

    def absorbs(self, error: BaseException) -> bool:
        """True if an error that left the script is a pass's doing; its result is then on disk."""
        if self._runner is None or not self._runner.takes_blame(error):
            return False
        self._poisoned()
        return True

    def script_ended(self) -> None:
        """The script is over, by itself or by an error: keep what there is."""
        detector, runner, hooks = self._detector, self._runner, self.hooks
        missed = sum(
            one.missed for one in (self._follower, hooks.boundary_hooks) if one is not None
        )
        self._follower = None
        if runner is not None:
            runner.cut_short()
        steps = runner.steps_done if runner is not None else 0
        if detector is not None:
            steps = max(detector.seen, detector.marked)
        self.folder.emit(
            ScriptEnded(
                steps=steps,
                searching=detector is not None,
                forwards=0 if detector is None else detector.forwards,
                optimizer_steps=0 if detector is None else detector.optimizer_steps,
                processes=hooks.processes,
                missed_steps=missed,
                other_thread_forwards=hooks.threads.unobserved,
            )
        )
        hooks.remove()

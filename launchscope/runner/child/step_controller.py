"""Listens to the hooks: first the step is recognised, then every step goes to the passes.

The script is only ever stopped by StopRun or, after a failed capture, by leaving the
process at once.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.context import Context
from launchscope.runner.child.hooks.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.input_shapes import in_training, shapes_text
from launchscope.runner.child.nvtx_ranges import NvtxRanges
from launchscope.runner.child.pass_runner import PassRunner, describe
from launchscope.runner.child.passes.strategy import LIVE_ADOPTION, not_adopted
from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.shutdown.stop import Stopping
from launchscope.runner.child.step_pattern import BACKWARD, FORWARD, OPTIMIZER, Pattern
from launchscope.runner.child.steps.detector import OPENING, StepDetector, shape_signature
from launchscope.runner.child.steps.notes import MARKED_LATE, MARKED_TOO_LATE
from launchscope.runner.child.steps.search import StepFollower
from launchscope.runner.child.target import StopRun
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plan import Plan


class StepController:
    """The listener of the hooks and marks; one per process."""

    def __init__(self, torch: Any, folder: ChildFolder, plan: Plan, earlier: dict[str, Any]):
        self.torch = torch
        self.folder = folder
        self.plan = plan
        self.hooks = Hooks(torch, self)
        self.live: dict[str, Any] = {}
        self.finished = False
        self.stopped = False  # finished by ending the script early
        self._earlier = earlier
        self._nvtx = NvtxRanges()
        self._recogniser: StepDetector | None = StepDetector(torch, plan.schedule, self.hooks)
        self._follower: StepFollower | None = None
        self._runner: PassRunner | None = None
        self._kinds: dict[str, int] = {}
        self._current_kind = 0
        self._in_marker = False
        self._opening: Any = None  # the arguments of the forward that opens a step
        self._adoption = None if plan.adopt is None else Strategy(torch, self.hooks, plan.adopt)
        self._detected = False  # the step was found, not marked
        self._told_of_marks = False
        self._warm_up()

    def install(self) -> None:
        """Put the hooks in."""
        self.hooks.install()
        if self._adoption is not None:
            self._adoption.install()

    def _warm_up(self) -> None:
        self._began = time.perf_counter()
        self._nvtx.push("pass:warmup")
        self.folder.tell("pass_start", name="warmup", total=self.plan.schedule.warmup)

    # -------------------------------------------------------------- events of the script

    def forward_begin(self, key: str, module: Any, args: Any, kwargs: Any) -> None:
        self.hooks.forwards += 1
        trains = self.torch.is_grad_enabled()
        if self._recogniser is not None:
            if not self._in_marker:  # a step without a closing event ends before this one
                self._consider(OPENING)
            if self._recogniser is not None:
                if self._adoption is not None:
                    self._adoption.saw(key, module, args, kwargs)
                self._recogniser.forward(key, module, args, kwargs, trains)
                return
        follower = self._follower
        if follower is None or not follower.opens(FORWARD, key, trains, in_training(module)):
            return
        if follower.closes_before():
            self._end_step()
        if self._kinds:
            signature = shape_signature(self.torch, args, kwargs)
            self._current_kind = self._kinds.get(signature, 0)
        self._opening = args, kwargs
        self._begin_step()
        self._opening = None

    def forward_end(self, key: str, module: Any) -> None:
        if self._recogniser is not None:
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
        if self._recogniser is not None:
            self._recogniser.backward()
        elif self._follower is not None:
            self._follower.closes(BACKWARD)
            if self._runner is not None and self._follower.after_backward():
                self._runner.part_ended("backward")

    def optimizer_begin(self, key: str, optimizer: Any) -> None:
        if self._recogniser is not None:
            self._recogniser.optimizer_opens(key)
        elif self._follower is not None and self._follower.opens(OPTIMIZER, key):
            self._begin_step()

    def optimizer_end(self, key: str, optimizer: Any) -> None:
        if self._recogniser is not None:
            self._recogniser.optimizer(key)
            self._consider(OPTIMIZER)
        elif self._follower is not None and self._follower.closes(OPTIMIZER):
            self._end_step()

    def fetch_begin(self) -> None:
        if self._recogniser is not None:
            self._recogniser.fetch()
        elif self._follower is not None and self._follower.closes_before():
            self._end_step()

    def compiled(self, mode: str | None) -> None:
        self.live["graphs_by_compile"] = mode in ("reduce-overhead", "max-autotune")
        runner = self._runner
        if runner is not None and self._adoption is None and not self.finished:
            self.folder.tell(
                "note",
                text=f"the script called torch.compile after {runner.steps_done} steps, when the "
                "measuring had begun: nothing compiled is in the figures; compile before the "
                "first step, or raise --warmup",
            )

    def marker_begin(self) -> None:
        if self.hooks.deaf() or self.plan.schedule.step_from in ("forward", "optimizer"):
            if self.finished and self.plan.schedule.step_from == "auto":
                self._marked_too_late()
            return
        self._in_marker = True
        if self._recogniser is not None:
            self._recogniser.marker_opens()
        elif self._follower is None:
            self._begin_step()
        elif not self._start_again():
            self._marked_too_late()

    def marker_end(self) -> None:
        if not self._in_marker or self.hooks.deaf():
            return
        self._in_marker = False
        if self._recogniser is not None:
            if self._recogniser.marker():
                self._start_measuring(None)
        elif self._follower is None:
            self._end_step()

    def _start_again(self) -> bool:
        """Marks begin after a step was found: they win, unless something was measured."""
        runner = self._runner
        if self._adoption is not None or runner is None or not runner.abandon():
            return False
        self.hooks.forget_modules()
        self._follower = self._runner = None
        self._kinds, self._current_kind = {}, 0
        self.folder.tell("note", text=MARKED_LATE.format(runner.steps_done))
        self._recogniser = StepDetector(self.torch, self.plan.schedule, self.hooks)
        self._recogniser.marker_opens()
        self._warm_up()
        return True

    def _marked_too_late(self) -> None:
        if self._told_of_marks or not self._detected or not self.hooks.on_script_thread():
            return
        if self._runner is not None:
            self._told_of_marks = True
            self.folder.tell("note", text=MARKED_TOO_LATE.format(self._runner.steps_done))

    def _consider(self, event: str) -> None:
        recogniser = self._recogniser
        if recogniser is None or self._in_marker:
            return
        pattern = recogniser.found(event)
        if pattern is not None:
            self._start_measuring(pattern)

    # -------------------------------------------------------------------- the measuring

    def _start_measuring(self, pattern: Pattern | None) -> None:
        """From here on only single modules carry hooks, and every step belongs to a pass."""
        recogniser, self._recogniser = self._recogniser, None
        assert recogniser is not None
        self._detected = pattern is not None
        adoption = self._adoption
        if adoption is not None and not self._adopt(adoption, pattern):
            return
        try:
            visible = self.hooks.narrow(frozenset() if pattern is None else pattern.keys)
        except Exception as error:
            self._cannot_follow(error)
            return
        if pattern is not None:
            if adoption is not None and adoption.compiled:
                pattern = pattern.visible_through(adoption.compiled)
            elif not self.hooks.compiling:
                pattern = pattern.visible_through(visible)
            if pattern is None:
                text = (
                    "the modules of the step are made anew each time, so its beginning is not "
                    "seen; mark it with `with launchscope.step():`"
                )
                self.folder.tell("note", text=text)
                self._finish()
                return
            self._follower = StepFollower(pattern)
        for text in recogniser.remarks(pattern):
            self.folder.tell("note", text=text)
        kinds = recogniser.kinds(pattern)
        self._kinds = {kind.signature: index for index, kind in enumerate(kinds)}
        boundary = recogniser.boundary(pattern, kinds)
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
            step_signature=(lambda: self._current_kind) if kinds else None,
            step_inputs=self._step_inputs,
            earlier=self._earlier,
            live=self.live,
        )
        self._nvtx.pop()
        self.folder.tell("mode", on_gpu=on_gpu)
        self.folder.tell(
            "pass_end",
            name="warmup",
            seconds=time.perf_counter() - self._began,
            steps=boundary.warmup_steps,
        )
        self._runner = PassRunner(
            context,
            self.plan.passes,
            self.plan.allow_captures,
            recogniser.seconds_per_step,
            boundary.warmup_steps,
            self._finish,
            self._poisoned,
            self._follow_for,
        )
        self._runner.next_pass()

    def _follow_for(self, ends_only: bool) -> None:
        """Before a pass: follow its steps as closely as it needs, and no closer."""
        try:
            self._follow(ends_only)
        except Exception as error:
            self._cannot_follow(error)

    def _cannot_follow(self, error: Exception) -> None:
        """Hooks that could not be put in are our trouble: the script must not see the error."""
        text = f"the modules of the step could not be watched ({describe(error)}): nothing more "
        self.folder.tell("note", text=text + "is measured")
        self._finish()

    def _follow(self, ends_only: bool) -> None:
        self.hooks.follow_all()
        follower, runner = self._follower, self._runner
        # The inputs of each step are wanted where steps of several kinds or sizes are told apart.
        by_inputs = bool(self._kinds) or self.plan.schedule.sizes > 0
        if not ends_only or by_inputs or follower is None or runner is None:
            return
        if StepBoundaryHooks.enough_for(follower.pattern):
            thread, pattern = self.hooks.thread, follower.pattern
            self.hooks.follow_ends(
                StepBoundaryHooks(self.torch, thread, pattern, runner.begin_step, runner.end_step)
            )

    def _adopt(self, adoption: Strategy, pattern: Pattern | None) -> bool:
        """Puts the way to adopt in; False if it failed, and then this process is done."""
        on_gpu = bool(self.torch.cuda.is_initialized())
        trains = pattern is None or pattern.backwards > 0
        keys = None if pattern is None else pattern.keys
        try:
            adoption.apply(keys, trains)
        except Exception as error:
            self.folder.tell("mode", on_gpu=on_gpu)
            self.folder.write("pass-adoption", not_adopted(adoption, error))
            self.folder.tell("pass_end", name="adoption", failed=str(error)[:200])
            self._poisoned()
            return False
        self.live[LIVE_ADOPTION] = adoption
        return True

    def _step_inputs(self) -> str:
        return "" if self._opening is None else shapes_text(self.torch, *self._opening)

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
        self._follower = self._recogniser = None
        self.hooks.remove()
        self.folder.tell("done")
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
            self.folder.tell("done")
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
        recogniser, runner = self._recogniser, self._runner
        missed = sum(one.missed for one in (self._follower, self.hooks.ends) if one is not None)
        self._follower = None
        if runner is not None:
            runner.cut_short()
        steps = runner.steps_done if runner is not None else 0
        if recogniser is not None:
            steps = max(recogniser.seen, recogniser.marked)
        self.folder.tell(
            "script_ended",
            steps=steps,
            searching=recogniser is not None,
            forwards=0 if recogniser is None else recogniser.forwards,
            optimizer_steps=0 if recogniser is None else recogniser.optimizer_steps,
            processes=self.hooks.processes,
            missed=missed,
            elsewhere=self.hooks.others.unheard,
        )
        self.hooks.remove()

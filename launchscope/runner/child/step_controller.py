"""Observes the script: first it has the step found, then it gives every step to the passes.

The script is only ever stopped by StopRun or, after a failed capture, by leaving the
process at once.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import partial

from launchscope.model import Schedule, TensorShape
from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.clock import clock
from launchscope.runner.child.hooks.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.hooks.events import MARKS, NO_OBSERVER, StepObserver
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.modules import (
    ObjectKeys,
    cache_class,
    in_training,
    input_shapes,
    main_input,
)
from launchscope.runner.child.machine import environment_of, other_device
from launchscope.runner.child.nvtx_ranges import NvtxRanges
from launchscope.runner.child.ops.rehearsal import RehearsalFindings
from launchscope.runner.child.pass_runner import PassRunner
from launchscope.runner.child.passes import Context, all_passes
from launchscope.runner.child.passes.strategy import StrategyPass
from launchscope.runner.child.reasons import own_failure, reason_of
from launchscope.runner.child.shutdown.flush import leave_at_once
from launchscope.runner.child.shutdown.stop import stop_script
from launchscope.runner.child.shutdown.together import stop_together
from launchscope.runner.child.source_lines import note_script
from launchscope.runner.child.source_tree import loaded_files
from launchscope.runner.child.step_pattern import BACKWARD, FORWARD, OPTIMIZER, ZERO_GRAD, Pattern
from launchscope.runner.child.steps.detector import StepDetector
from launchscope.runner.child.steps.search import StepFollower
from launchscope.runner.child.steps.step_parts import StepParts, parts_of_step
from launchscope.runner.child.torch_types import Args, Kwargs, Module, Torch
from launchscope.runner.protocol import events
from launchscope.runner.protocol.folder import ChildFolder, Plan
from launchscope.wording import listed, plural

# A step that was found is over after this many training steps in a row outside of it; then the
# script is searched again, so often.
_OVER_AFTER, _SEARCHES = 3, 2
_OVER_AFTER_OF_KINDS, _INSPECTED_OF_KINDS = 30, 12  # where it makes steps of several kinds
_SILENT_S = 1.0  # a thread whose forwards were measured has given way
# Of half the time limit, for the plain steps of one pass: the slower passes have to fit in, too.
_PASS_SHARE = 0.25
_BOTH = "so what was measured may be of both"
_NO_INPUTS: tuple[Args, Kwargs] = (), {}
_UNFOLLOWED = (
    "the script creates new modules in every step, so launchscope cannot see where the step "
    "begins; mark it with `with launchscope.step():`"
)


def _nothing() -> None: ...


class StepController(StepObserver):
    """Follows the steps once they are known; observes the marks all the time. One per process."""

    def __init__(self, torch: Torch, folder: ChildFolder, plan: Plan):
        self.torch = torch
        self.folder = folder
        self.plan = plan
        self.hooks = Hooks(torch, NO_OBSERVER)
        self.hooks.broke = self._broke
        self.rehearsal = RehearsalFindings()
        self.finished = False
        self.unwound = False  # nothing of the script runs but its exit handlers and finalizers
        self._nvtx = NvtxRanges()
        self._follower: StepFollower | None = None
        self._runner: PassRunner | None = None
        self._kinds: dict[TensorShape | None, int] = {}
        self._current_kind = 0
        self._in_marker = False
        self._opening = _NO_INPUTS  # of the forward that opens a step
        self._strategy = Strategy(torch, self.hooks, plan.strategy) if plan.strategy else None
        self._detected = False  # the step was found, not marked
        self._wait_s = self._wait_until = 0.0  # for training, where only forwards were found
        self._searches_left = _SEARCHES
        self._given_up: Counter[str] = Counter()  # steps before the last search, by what they are
        self._most_steps = 0  # training steps before one of the searches
        self._missed_at, self._missed_in_row = -1, 0  # the steps done before those that were missed
        self._missed_optimizer_steps = 0
        self._steps_elsewhere = 0  # of optimizers, in other threads, while forwards are followed
        self._gives_way = False  # to one of those threads, before the next forward
        self._gives_way_since = 0.0
        self._others_in_row = 0  # steps of optimizers that the period does not have
        self._over_after = _OVER_AFTER
        self._has_period = False
        self._optimizers: frozenset[str] = frozenset()  # of every step
        self._parts: StepParts | None = None  # of the step, once it is known
        self._layers = ObjectKeys()
        self._stepped: set[str] = set()  # optimizers, in this step
        self._noted_changes: set[str] = set()
        self._saw_unfollowed = False  # forwards of modules that cannot be followed
        self._noted_late_marks = False
        note_script(sys._getframe())
        self._detector: StepDetector | None = self._warm_up()  # None once the step is known

    def install(self) -> None:
        self.hooks.install()
        if self._strategy is not None:
            self._strategy.install()

    def _warm_up(self) -> StepDetector:
        self._began = clock.perf_counter()
        self._nvtx.push(f"pass:{events.WARMUP}")
        self.folder.emit(events.PassStarted(events.WARMUP, self.plan.schedule.warmup))
        record_call = None if self._strategy is None else self._strategy.record_call
        detector = StepDetector(
            self.torch,
            self.plan.schedule,
            self.plan.patience_s,
            self.hooks,
            self._start_measuring,
            record_call,
        )
        self.hooks.observer = detector
        return detector

    def _note(self, text: str, *, passing: bool = False) -> None:
        self.folder.emit(events.Note(text, passing))

    # -------------------------------------------------------------- events of the script

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        self.hooks.forwards += 1
        follower, trains = self._follower, self.torch._C.is_grad_enabled()
        if self._gives_way and follower is not None and not follower.inside:
            self._gives_way = False
            if self._search_again():
                return
        if follower is None or not follower.opens(FORWARD, key, trains, in_training(module)):
            return
        if follower.closes_before():
            self._end_step()
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
            if follower.closes_before():
                self._end_step()
            self._begin_step()
        if self._runner is not None and follower.before_backward():
            self._runner.part_ended("forward")

    def backward_end(self) -> None:
        if self._follower is not None:
            missed = not self._follower.inside and self._follower.pattern.closing != "optimizer"
            self._follower.closes(BACKWARD)
            if missed:
                self._missed_step()
            elif self._runner is not None and self._follower.after_backward():
                self._runner.part_ended("backward")

    def zero_grad_begin(self) -> None:
        follower = self._follower
        if follower is not None and follower.opens(ZERO_GRAD, ZERO_GRAD):
            if follower.closes_before():
                self._end_step()
            self._begin_step()

    def optimizer_begin(self, key: str) -> None:
        if self._follower is not None and self._follower.opens(OPTIMIZER, key):
            self._begin_step()

    def optimizer_end(self, key: str) -> None:
        follower = self._follower
        if follower is None:
            return
        missed = not follower.inside
        self._stepped.add(key)
        if self._has_period and not missed:
            self._notice_other_optimizer(key, follower.pattern)
        if follower.closes(OPTIMIZER):
            self._end_step()
        if self._follower is not None and self._follower.opens_after(key):
            self._begin_step()
        elif missed:
            self._missed_optimizer_step()

    def fetch_begin(self) -> None:
        if self._follower is not None and self._follower.closes_before():
            self._end_step()

    def compiled(self) -> None:
        runner = self._runner
        if runner is None or self._strategy is not None or self.finished:
            return
        self._note(
            f"the script called torch.compile after step {runner.steps_done}, when the "
            "measurement had begun, so nothing compiled was measured; compile before the "
            "first step, or raise --warmup"
        )

    def marker_begin(self) -> None:
        try:
            unused = self.plan.schedule.step_from in ("forward", "optimizer")
            if unused or not self.hooks.takes_over(MARKS):
                if self.finished and self.plan.schedule.step_from == "auto":
                    self._note_late_marks()
                return
            self._in_marker = True
            if self._detector is not None:
                self._detector.marker_begin()
            elif self._follower is None:
                self._begin_step()
            elif not self._start_again():
                self._note_late_marks()
        except Exception as error:
            self._broke(error)

    def marker_end(self) -> None:
        try:
            if not self._in_marker or self.hooks.ignores_thread():
                return
            self._in_marker = False
            if self._detector is not None:
                self._detector.marker_end()
            elif self._follower is None:
                self._end_step()
        except Exception as error:
            self._broke(error)

    def _start_again(self) -> bool:
        """Marks begin after a step was found: they win unless something was measured."""
        runner = self._runner
        if self._strategy is not None or runner is None or not runner.abandon():
            return False
        self.hooks.watch_modules(frozenset())
        self._follower = self._runner = None
        self._kinds, self._current_kind = {}, 0
        self._note(
            f"the script begins to mark its steps after step {runner.steps_done}: only the marked "
            "steps were measured"
        )
        self._detector = self._warm_up()
        self._detector.marker_begin()
        return True

    def _notice_other_optimizer(self, key: str, pattern: Pattern) -> None:
        """The script may go on with an optimizer that is none of the step's."""
        self._others_in_row = 0 if key in pattern.keys else self._others_in_row + 1
        if self._others_in_row == self._over_after and not self._search_again():
            self._note_change(f"went on with another optimizer ({key.partition('@')[0]})", _BOTH)

    def _notice_change(self, so: str = _BOTH) -> bool:
        """Between steps: whether the step has other parts than before. `so` says what follows."""
        follower = self._follower
        if follower is None:
            return False
        keys = follower.pattern.keys
        modules = [module for key in keys if (module := self.hooks.modules.get(key)) is not None]
        known = [self.hooks.optimizers.get(key) for key in self._stepped]
        stepping = [optimizer for optimizer in known if optimizer is not None]
        now = parts_of_step(modules, stepping, self._stepped, self._layers)
        before, self._parts = self._parts, now
        change = None if before is None else before.changes_to(now, self._optimizers)
        if change is not None:
            self._note_change(change, so)
        return change is not None

    def _changed_in_inspection(self) -> bool:
        runner, so = self._runner, "so only the steps after that were inspected"
        if runner is not None and runner.has_results:
            so += ", and what was measured before is of the step as it was"
        return self._notice_change(so)

    def _note_change(self, change: str, so: str) -> None:
        if change not in self._noted_changes:
            self._noted_changes.add(change)
            self._note(f"during the measurement the script {change}, {so}")

    def _missed_optimizer_step(self) -> None:
        self._missed_optimizer_steps += 1
        self._missed_step()

    def _missed_step(self) -> None:
        """The script has trained outside of the steps that are followed."""
        runner, follower = self._runner, self._follower
        if runner is None or follower is None:
            return
        # Forwards alone may go on between training steps: a policy that acts, then learns.
        acts = follower.pattern.closing == "forward"
        if not acts and runner.steps_done != self._missed_at:
            self._missed_at, self._missed_in_row = runner.steps_done, 0
        self._missed_in_row += 1
        if self._missed_in_row >= self._over_after:
            self._search_again()

    def trained_elsewhere(self) -> None:
        """Another thread trains: forwards alone give way to that, too. This is that thread, which
        must not touch the modes of a pass, so the followed one ends it, unless there is none."""
        runner, follower = self._runner, self._follower
        if runner is None or follower is None or follower.pattern.closing != "forward":
            return
        self._steps_elsewhere += 1
        automatic = self._strategy is None and self.plan.schedule.step_from == "auto"
        if self._steps_elsewhere < _OVER_AFTER or not (automatic and self._searches_left):
            return
        boundary = self.hooks.boundary_hooks
        if boundary is None:
            if not self._gives_way:
                self._gives_way, self._gives_way_since = True, clock.perf_counter()
            elif runner.is_waiting and clock.perf_counter() - self._gives_way_since >= _SILENT_S:
                self._search_again()
        else:
            boundary.begin = partial(self._give_way, boundary, runner)

    def _give_way(self, boundary: StepBoundaryHooks, runner: PassRunner) -> None:
        """In the place of the beginning of a step."""
        if self._search_again():
            boundary.begin = boundary.end = _nothing
        else:
            boundary.begin = runner.begin_step
            runner.begin_step()

    def _search_again(self) -> bool:
        """The step that was found does not come anymore. Forwards alone give way to training even
        if they were measured; a step of training only as long as no pass is over: otherwise this
        is False."""
        runner, follower = self._runner, self._follower
        if runner is None or follower is None or not self._searches_left:
            return False
        alone = follower.pattern.closing == "forward"
        if self._strategy is not None or self.plan.schedule.step_from != "auto":
            return False
        if not runner.abandon(measured=alone):
            return False
        self._searches_left -= 1
        self._given_up["inference step" if alone else "training step"] += runner.steps_done
        self._most_steps = max(self._most_steps, 0 if alone else runner.steps_done)
        self._follower = self._runner = None
        self._kinds, self._current_kind = {}, 0
        self._missed_at, self._missed_in_row, self._others_in_row = -1, 0, 0
        self._wait_s, self._steps_elsewhere, self._gives_way = 0.0, 0, False
        self.folder.forget_results()
        self.folder.emit(events.SearchedAgain())
        self.hooks.optimizers = ObjectKeys()
        # The search has to be there before other threads may be chosen: it hears of the choice.
        self._detector = self._warm_up()
        self.hooks.watch_all_modules()
        return True

    def _waits(self) -> bool:
        """Whether forwards alone have to wait, because the training step may still come."""
        runner = self._runner
        if not self._wait_s or runner is None:
            return False
        limit = f"{self._wait_s:.0f} s"
        if clock.perf_counter() < self._wait_until:
            if not runner.is_waiting:
                self._note(
                    "the forward was measured, but the script may still begin to train: "
                    f"launchscope waits for the training step until {limit} are over",
                    passing=True,
                )
            return True
        self._note(
            f"{self._training_seen} within {limit}, so the verdict is about the forward alone; "
            "--wait-for optimizer waits for as long as the script runs"
        )
        self._wait_s = 0.0
        return False

    @property
    def _training_seen(self) -> str:
        if not self._missed_optimizer_steps:
            return "no optimizer stepped"
        return f"the script made only {plural(self._missed_optimizer_steps, 'optimizer step')}"

    def _note_late_marks(self) -> None:
        if self._runner is None or not self._detected or not self.hooks.on_script_thread():
            return
        if not self._noted_late_marks:
            self._noted_late_marks = True
            self._note(
                f"the script begins to mark its steps after step {self._runner.steps_done}, when "
                "other steps were measured already, so the marks were not used; to wait for them, "
                "use --step-from marker"
            )

    # ----------------------------------------------------------------------- measurement

    def _start_measuring(self, pattern: Pattern | None) -> None:
        """The step is known; `pattern` is None if the script marks its steps."""
        detector = self._detector
        assert detector is not None
        self._measure(detector, pattern)

    def _measure(self, detector: StepDetector, pattern: Pattern | None) -> None:
        """From here on only single modules carry hooks, and every step belongs to a pass."""
        self._detector, self.hooks.observer = None, self
        self._detected = pattern is not None
        strategy = self._strategy
        if strategy is not None and not self._apply(strategy, pattern):
            return
        try:
            keys = frozenset() if pattern is None else pattern.keys
            visible = self.hooks.watch_modules(keys)
        except Exception as error:
            self._cannot_follow(error)
            return
        if pattern is not None:
            compiled = None if strategy is None else strategy.compiled
            pattern = pattern.visible_through(compiled or visible)
            if pattern is None:
                self._cannot_see(detector, keys)
                return
            self._follower = StepFollower(pattern)
        if pattern is None or pattern.first.kind != ZERO_GRAD:
            self.hooks.ignore_zero_grad()
        alone = pattern is not None and pattern.closing == "forward"
        automatic = self.plan.schedule.step_from == "auto" and strategy is None
        if alone and automatic and self.plan.may_train:
            self._wait_s = min(self.plan.patience_s, detector.may_train_after_s)
            self._wait_until = detector.began + self._wait_s
        if self._given_up:
            before = listed([plural(steps, what) for what, steps in self._given_up.items()])
            self._note(f"the script ran {before} before the training that is measured here")
        for text in detector.remarks(pattern):
            self._note(text)
        boundary = detector.boundary(pattern)
        self._has_period = boundary.boundary == "period"
        tokens = () if pattern is None else pattern.tokens
        self._stepped = {token.key for token in tokens if token.kind == OPTIMIZER}
        # Without a period each step may have its own.
        self._optimizers = frozenset(self._stepped) if self._has_period else frozenset()
        mixed = bool(detector.training_kinds(pattern))
        self._over_after = _OVER_AFTER_OF_KINDS if mixed else _OVER_AFTER
        known = () if mixed else boundary.kinds
        self._kinds = {kind.input: index for index, kind in enumerate(known)}
        if not self.plan.own_process:
            boundary = replace(boundary, boundary="callable", names=("call",))
        self.folder.write("step", boundary)
        on_gpu = bool(self.torch.cuda.is_initialized())
        # Again: a process group is made after CUDA is initialized.
        self.folder.write("environment", environment_of(self.torch, on_gpu=on_gpu))
        context = Context(
            torch=self.torch,
            folder=self.folder,
            schedule=self._in_time(detector.usual_step_s, detector.kinds_alike(pattern)),
            hooks=self.hooks,
            nvtx=self._nvtx,
            boundary=boundary,
            on_gpu=on_gpu,
            side_stream=self.plan.side_stream,
            device=other_device(self.torch, self.hooks.modules) if on_gpu else None,
            optimizers=self.hooks.optimizers,
            modules=self.hooks.modules,
            step_s=detector.usual_step_s,
            own_process=self.plan.own_process,
            step_kind=lambda: self._current_kind,
            step_inputs=lambda: input_shapes(self.torch, *self._opening),
            step_cache=lambda: cache_class(*self._opening),
            step_changed=self._changed_in_inspection,
            rehearsal=self.rehearsal,
            strategy=strategy,
            earlier=self.plan.earlier,
        )
        self._nvtx.pop()
        self._report_files()  # once more at the end, which not every script reaches
        self.folder.emit(events.DeviceKnown(on_gpu, self._device_uuid() if on_gpu else None))
        self.folder.emit(events.PassEnded(events.WARMUP, clock.perf_counter() - self._began))
        self._parts = None
        self._noted_changes.clear()
        self._runner = PassRunner(
            context,
            self.plan.passes,
            detector.seconds_per_step,
            boundary.warmup_steps,
            self._done,
            self._poisoned,
            self._follow_for,
            self._waits,
        )
        self._runner.next_pass()

    def _in_time(self, step_s: float, kinds: int) -> Schedule:
        """The schedule, with fewer steps for passes that would take too much of the time limit.
        Where the steps are of several `kinds`, enough are inspected to see each."""
        schedule = self.plan.schedule
        if kinds > 1 and schedule.inspect:
            schedule = replace(schedule, inspect=max(schedule.inspect, _INSPECTED_OF_KINDS))
        most = int(self.plan.patience_s * _PASS_SHARE / max(step_s, 1e-9))
        fewer = {
            kind.name: max(kind.fewest_steps, most)
            for kind in all_passes()
            if kind.fewest_steps is not None and kind.steps(schedule) > max(kind.fewest_steps, most)
        }
        if not fewer:
            return schedule
        self._note(f"a step takes {step_s:.2g} s, so passes take fewer steps than planned")
        return replace(schedule, **fewer)  # type: ignore[arg-type]

    def _follow_for(self, boundaries_only: bool) -> None:
        """Before a pass: follow its steps as closely as it needs, and no closer."""
        self._notice_change()
        follower, runner = self._follower, self._runner
        # Kinds and sizes of steps are known by their inputs.
        by_inputs = bool(self._kinds) or self.plan.schedule.sizes > 0
        try:
            self.hooks.observe_everything()
            if not boundaries_only or by_inputs or follower is None or runner is None:
                return
            if StepBoundaryHooks.enough_for(follower.pattern):
                thread, begin, end = self.hooks.thread, runner.begin_step, runner.end_step
                self.hooks.observe_boundaries(
                    StepBoundaryHooks(
                        self.torch,
                        thread,
                        follower.pattern,
                        begin,
                        end,
                        self._missed_optimizer_step,
                        self.hooks.trained_elsewhere,
                        runner.pass_over,
                        self._step_failed,
                    )
                )
        except Exception as error:
            self._cannot_follow(error)

    def _step_failed(self, error: Exception) -> None:
        """The begin or the end of a step failed: the pass is over, or all of them."""
        if self._runner is None or not self._runner.pass_failed(error):
            self._broke(error)

    def _cannot_see(self, detector: StepDetector, keys: frozenset[str]) -> None:
        """Go on searching: these modules are made for each call and cannot be followed."""
        if self.plan.schedule.step_from != "auto":
            self._note(_UNFOLLOWED)
            self._finish()
            return
        self._saw_unfollowed = True
        detector.start_over(keys)
        self._detector = self.hooks.observer = detector
        self.hooks.watch_all_modules()

    def _cannot_follow(self, error: Exception) -> None:
        """The script must not see that its modules could not be hooked."""
        self._note(
            f"hooks on the modules of the step failed ({type(error).__name__}: {error}), so "
            "nothing more was measured"
        )
        self._finish()

    def _apply(self, strategy: Strategy, pattern: Pattern | None) -> bool:
        """Apply the strategy; False if that failed, which ends this process."""
        trains = pattern is None or pattern.backwards > 0
        try:
            strategy.apply(None if pattern is None else pattern.keys, trains)
        except Exception as error:
            self.folder.emit(events.DeviceKnown(bool(self.torch.cuda.is_initialized())))
            self.folder.write(f"pass-{StrategyPass.name}", strategy.failed(error))
            self.folder.emit(events.PassFailed(StrategyPass.name, reason_of(error)))
            self._poisoned()
            return False
        return True

    def _begin_step(self) -> None:
        self._stepped.clear()
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

    def _device_uuid(self) -> str | None:
        if self.plan.tree is None:  # nobody asks for its clock
            return None
        cuda = self.torch.cuda
        uuid = getattr(cuda.get_device_properties(cuda.current_device()), "uuid", None)
        return None if uuid is None else str(uuid)

    def _report_files(self) -> None:
        if self.plan.tree is not None:
            self.folder.emit(loaded_files(self.plan.tree))

    def _done(self) -> None:
        self._notice_change()
        self._finish()

    def _finish(self) -> None:
        """Everything is measured: remove the hooks and end the script."""
        if self.finished:
            return
        self.finished = True
        self._follower = self._detector = None
        self.hooks.remove()
        self._report_files()
        self.folder.emit(events.MeasuringEnded())
        if self.stops and self.plan.stop_file is not None:
            stop_together(self.torch, self.plan.stop_file, self._stop, self._may_stop)
        elif self.stops:
            self._stop()

    @property
    def stops(self) -> bool:
        """Whether the script ends once everything is measured that this process can measure."""
        return self.plan.own_process

    def _may_stop(self) -> bool:
        return not self.unwound and self.hooks.on_script_thread()

    def _stop(self) -> None:
        stop_script(self.torch, self._may_stop)

    def _broke(self, error: Exception) -> None:
        """The script goes on without us, after an error of our own."""
        self.folder.emit(own_failure(error))
        if self._runner is not None:
            self._runner.cut_short()
        self._finish()

    def _poisoned(self) -> None:
        if not self.plan.own_process:
            self._finish()
            return
        if not self.finished:
            self._report_files()
            self.folder.emit(events.MeasuringEnded())
        leave_at_once()

    @property
    def suspect(self) -> str | None:
        """The pass that may have caused an error that the script raises now."""
        return None if self._runner is None else self._runner.suspect

    def absorbs(self, error: BaseException) -> bool:
        """True if an error that left the script is a pass's doing; its result is then on disk."""
        if self._runner is None or not self._runner.takes_blame(error):
            return False
        self._poisoned()
        return True

    def script_ended(self) -> None:
        """The script is over, by itself or by an error: keep what there is."""
        detector, runner, hooks = self._detector, self._runner, self.hooks
        followers = (self._follower, hooks.boundary_hooks)
        missed = sum(follower.missed for follower in followers if follower is not None)
        self._follower = None
        if runner is not None:
            runner.cut_short()
        self._report_files()
        steps = runner.steps_done if runner is not None else 0
        optimizer_steps = 0
        if detector is not None:
            steps = max(detector.seen, detector.marked, self._most_steps)
            optimizer_steps = detector.optimizer_steps + self._missed_optimizer_steps
            if self._saw_unfollowed:
                self._note(_UNFOLLOWED)
        waiting = runner is not None and runner.is_waiting
        if waiting:
            self._note(f"{self._training_seen}, so the verdict is about the forward alone")
        self.folder.emit(
            events.ScriptEnded(
                steps=steps,
                searching=detector is not None,
                forwards=0 if detector is None else detector.forwards,
                optimizer_steps=optimizer_steps,
                waiting=waiting,
                processes=hooks.processes,
                missed_steps=missed,
                other_thread_forwards=hooks.other_forwards,
            )
        )
        hooks.remove()

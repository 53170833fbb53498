"""The warm-up: finds out what a step of this script is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter

from launchscope.model import Schedule
from launchscope.runner.child.events.events import StepObserver
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.modules import ObjectKeys, is_weighted, main_input
from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    NO_LEAD,
    OPTIMIZER,
    ZERO_GRAD,
    Lead,
    Pattern,
    Token,
)
from launchscope.runner.child.facts.plain_values import objects_below
from launchscope.runner.child.facts.source_lines import names_attribute
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Module
from launchscope.runner.child.steps.step_summary import History, StepSummary
from launchscope.runner.protocol.events import RemarkCode

# Forwards alone wait so long where no optimizer exists, but the code of the script has a backward.
_MAY_TRAIN_S = 60.0
# Where training steps have no common period (a recurrent cell is called once per token), a step
# is everything between two optimizer steps: after this many times the steps of the warm-up, by
# each of the optimizers.
_UNEVEN_AFTER = 3
_FEWEST = 3  # steps, where finding the step takes long
_OPENING = "opening"


class StepDetector(StepObserver):
    """Collects what the script does until its step was seen `warmup` times.

    Then `found` is called with the step, or with None if the script marks its steps. Fewer steps
    are enough `patience_s` after the first event. While forwards alone wait for a training step,
    which the script `may_train`, `waits` is true, and `note` says so once.
    """

    def __init__(
        self,
        hooks: Hooks,
        schedule: Schedule,
        found: Callable[[Pattern | None], None],
        patience_s: float,
        may_train: bool = True,
        note: Callable[..., None] = lambda text, passing=False: None,
    ):
        self._torch = hooks.torch
        self._hooks = hooks
        self._schedule = schedule
        self._found = found
        self._patience_s = patience_s
        self._note = note
        self._may_train = may_train
        self._optimizer_exists = False
        self.waits = False
        self._limit_s: float | None = None  # of the wait; None: not known
        self.obstacle: RemarkCode | None = None  # why a step that is there may not have been found
        # What came before the backward and the optimizer step that are under way.
        self._before_backward = self._before_optimizer = NO_LEAD
        # Numbers the nodes that a backward goes through, so it grows as they are made.
        self._nodes: Callable[[], int] = self._torch._C._autograd._get_sequence_nr
        self._nodes_before, self._zeroed = 0, False  # since the last training event
        self._forget()

    def _forget(self) -> None:
        """What was seen so far says nothing of the step."""
        self.history = History()
        self._first_event: float | None = None
        self._step_ends: list[float] = []  # of steps that were seen as such at once
        self._hooks.optimizers = ObjectKeys()
        self._forget_lead()

    # --------------------------------------------------------------------------- events

    def thread_changed(self) -> None:
        self._forget()

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        lead = self._lead()
        if self._ends_with(_OPENING):  # a step without a closing event ends before this one
            self._hooks.observer.forward_begin(key, module, args, kwargs)
            return
        token = Token(FORWARD, key, self._torch._C.is_grad_enabled())
        self._add_call(token)
        self.history.saw_forward = True
        if module is None or is_weighted(module):
            self.history.inputs[main_input(self._torch, args, kwargs)] += 1
            token = token._replace(weighted=True)
        self.history.search.add(token, lead)

    def forward_end(self) -> None:
        if self._torch._C.is_grad_enabled():
            self._forget_lead()
        self._ends_with(FORWARD)

    def backward_begin(self) -> None:
        self._before_backward = self._lead()
        self._add_call(Token(BACKWARD, BACKWARD))
        if self._ends_with(BACKWARD):
            self._hooks.observer.backward_begin()

    def backward_end(self) -> None:
        self.history.search.add(Token(BACKWARD, BACKWARD), self._before_backward)
        self._forget_lead()

    def zero_grad_begin(self) -> None:
        self._zeroed = self._zeroed or not self._lead().computed
        self._add_call(Token(ZERO_GRAD, ZERO_GRAD))

    def optimizer_begin(self, key: str) -> None:
        self._before_optimizer = self._lead()
        self._add_call(Token(OPTIMIZER, key))

    def optimizer_end(self, key: str) -> None:
        self.history.search.add(Token(OPTIMIZER, key), self._before_optimizer)
        self._forget_lead()
        if self._ends_with(OPTIMIZER):
            self._hooks.observer.optimizer_end(key)  # at which the next step may begin

    def marker_begin(self) -> None:
        if not self.history.marked:
            self.history.marked, self.history.steps = True, 0
        self._note_event()
        self.history.calls.mark()

    def marker_end(self) -> None:
        self._count(self.history.steps + 1)
        if self._is_enough(self.history.steps):
            self._hooks.searching = False
            self._found(None)

    def _lead(self) -> Lead:
        """What the script did since the last training event."""
        return Lead(self._zeroed, self._nodes() > self._nodes_before)

    def _forget_lead(self) -> None:
        self._nodes_before, self._zeroed = self._nodes(), False

    def _add_call(self, token: Token) -> None:
        self._note_event()
        self.history.calls.add(token)

    def _note_event(self) -> None:
        if self._first_event is None:
            self._first_event = perf_counter()

    # ------------------------------------------------------------------------- how often

    @property
    def _waited_s(self) -> float:
        return 0.0 if self._first_event is None else perf_counter() - self._first_event

    @property
    def usual_step_s(self) -> float:
        """The median: without what only the first steps do, and what we do after the last one."""
        lengths = sorted(end - before for before, end in pairwise(self._step_ends))
        return (
            lengths[len(lengths) // 2] if lengths else self._waited_s / max(1, self.history.steps)
        )

    def _count(self, steps: int) -> None:
        if steps != self.history.steps:
            self._step_ends.append(perf_counter())
        self.history.steps = steps

    @property
    def _is_late(self) -> bool:
        return self._waited_s >= self._patience_s

    @property
    def _warmup(self) -> int:
        """How many steps to see before they are measured."""
        warmup = max(1, self._schedule.warmup)
        return min(warmup, _FEWEST) if self._is_late else warmup

    def _is_enough(self, steps: int) -> bool:
        return steps >= self._warmup + self._schedule.skip_steps

    # -------------------------------------------------------------------------- the step

    def _ends_with(self, event: str) -> bool:
        """Whether the warm-up ends with this event, which may end a step.

        `event` is FORWARD or OPTIMIZER for one that just ended, _OPENING for a forward and
        BACKWARD for a backward that is about to begin.
        """
        marks = self.history.marked or self._schedule.step_from == "marker"
        pattern = None if marks else self._pattern(event)
        if pattern is None:
            return False
        self._count(self.history.search.steps_seen(pattern))
        if not self._is_enough(self.history.steps) or self._must_wait(pattern):
            return False
        if pattern.visible_through(self._hooks.visible(pattern.keys)) is None:
            self.obstacle = "unfollowed"  # these modules are made for each call
            return False
        self._hooks.searching = False
        self._found(pattern)
        return True

    def _must_wait(self, pattern: Pattern) -> bool:
        """Whether an optimizer, which has not stepped yet, may still end the steps."""
        if pattern.closing == "optimizer" or self._schedule.step_from != "auto":
            return False
        if self._limit_s is None:
            self._optimizer_exists = bool(objects_below(self._torch.optim.Optimizer))
            longest = self._patience_s if self._has_optimizer() else _MAY_TRAIN_S
            trains = self._has_optimizer() or names_attribute(sys._getframe(1), "backward")
            self._limit_s = min(self._patience_s, longest) if self._may_train and trains else 0.0
        if pattern.closing == "next":
            if optimizer := self._has_optimizer():
                self.history.steps = 0
            return optimizer
        waited, self.waits = self.waits, self._waited_s < self._limit_s
        limit = f"{self._limit_s:.0f} s"
        if self.waits and not waited:
            self._note(
                "the forward repeats, but the script may still begin to train: "
                f"launchscope waits for the training step until {limit} are over",
                passing=True,
            )
        elif waited and not self.waits:
            self._note(
                f"no optimizer stepped within {limit}, so the verdict is about the forward alone; "
                "--wait-for optimizer waits for as long as the script runs"
            )
        return self.waits

    def _pattern(self, event: str) -> Pattern | None:
        search, wanted = self.history.search, self._schedule.step_from
        if wanted == "forward":
            return search.single_forward_pattern() if event == FORWARD else None
        if wanted == "optimizer":
            return search.single_optimizer_pattern() if event == OPTIMIZER else None
        if self._schedule.wait_for == "optimizer" and not search.optimizer_steps:
            return None
        return self._training_pattern(event) if search.trains else self._forward_pattern(event)

    def _training_pattern(self, event: str) -> Pattern | None:
        search = self.history.search
        if event == OPTIMIZER:
            pattern = search.training_pattern(self._has_optimizer())
            often = _UNEVEN_AFTER * self._warmup * len(search.required)
            self.history.uneven = pattern is None and search.optimizer_steps >= often
            if self.history.uneven:
                return search.single_optimizer_pattern()
            return pattern if pattern is not None and pattern.closing == "optimizer" else None
        opens = event == _OPENING or (event == BACKWARD and not self.history.saw_forward)
        if not opens or search.required:  # an optimizer ends the steps
            return None
        pattern = search.training_pattern(self._has_optimizer())
        return pattern if pattern is not None and pattern.closing == "next" else None

    def _forward_pattern(self, event: str) -> Pattern | None:
        pattern = self.history.search.forward_pattern() if event == FORWARD else None
        # Without parameters a module is known by its class alone, which cannot be followed.
        return pattern if pattern and any(token.weighted for token in pattern.tokens) else None

    def _has_optimizer(self) -> bool:
        """Whether an optimizer should end the steps."""
        exists = any(True for _ in self._hooks.optimizers) or self._optimizer_exists
        return exists and not self._hooks.steps_in_backward

    # -------------------------------------------------------------------------- answers

    @property
    def optimizer_steps(self) -> int:
        return self.history.search.optimizer_steps

    def summary(self, pattern: Pattern | None) -> StepSummary:
        return StepSummary(self.history, self._hooks, self._schedule, pattern)

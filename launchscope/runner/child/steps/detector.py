"""The warm-up: finds out what a step of this script is."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence

from launchscope.model import Schedule, SourceLine, StepBoundary, StepKind, TensorShape
from launchscope.runner.child.clock import clock
from launchscope.runner.child.hooks.epochs import is_last_batch
from launchscope.runner.child.hooks.events import StepObserver
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.modules import in_training, is_weighted, main_input
from launchscope.runner.child.plain_values import objects_below
from launchscope.runner.child.source_lines import calls_by_name, user_line
from launchscope.runner.child.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PREVIOUS_END,
    ZERO_GRAD,
    Lead,
    Pattern,
    Token,
)
from launchscope.runner.child.steps.search import StepSearch, TrainingKind
from launchscope.runner.child.steps.step_calls import StepCalls, digests
from launchscope.runner.child.torch_types import Args, Kwargs, Module, Torch
from launchscope.wording import listed, plural

# In a script with an optimizer, forwards alone are measured only after this many: the script may
# evaluate before it trains.
_FORWARDS_BEFORE_TRAINING = 2_000
# So long, without an optimizer but with a call of backward() in the code of the script.
_MAY_TRAIN_S = 60.0
_MOST_KINDS = 4
_FEW_FORWARDS = 20
# Where training steps have no common period (a recurrent cell is called once per token), a step
# is everything between two optimizer steps: after this many times the steps of the warm-up, or
# after this long. One optimizer has no longer period than that of its own steps, as a rule, and
# where so many of all steps were the only one of an optimizer that is gone, there is no period.
_UNEVEN_AFTER, _UNEVEN_AFTER_S = 12, 30.0
_UNEVEN_AFTER_OF_ONE = 2
_THROWN_AWAY_SHARE = 0.25
_FEWEST = 3  # steps, where finding the step takes long
_MARKER = Token("marker", "")
_LINES_KEPT = 600
_OPENING = "opening"
_NO_BACKWARD = (
    "the forwards run with gradients enabled, but no backward() was seen: put inference under "
    "torch.inference_mode(), and mark a step that trains through torch.autograd.grad with "
    "`with launchscope.step():`"
)
_NO_BEGINNING = (
    "no call of a torch.nn.Module or of zero_grad() marks where the step begins, so it begins "
    "where the step before ends, and what runs between steps is part of it; to measure less, mark "
    "the step with `with launchscope.step():`"
)
_FORWARD_ALONE = (
    "the step is the forward alone, as you asked: the backward and the optimizer are not part of "
    "it, and you cannot train through a graph of it"
)


class StepDetector(StepObserver):
    """Collects what the script does until its step was seen `warmup` times.

    Then `found` is called with the step, or with None if the script marks its steps. Fewer steps
    are enough `patience_s` after the first event. Each outermost forward until then is passed to
    `record_call`.
    """

    def __init__(
        self,
        torch: Torch,
        schedule: Schedule,
        patience_s: float,
        hooks: Hooks,
        found: Callable[[Pattern | None], None],
        record_call: Callable[[str, Module, Args, Kwargs], None] | None,
    ):
        self._torch = torch
        self._schedule = schedule
        self._patience_s = patience_s
        self._hooks = hooks
        self._found = found
        self._record_call = record_call
        self._search = StepSearch()
        self._calls = StepCalls()
        # The lines at which an event began, the latest last; `weighted` of the tokens is False.
        self._lines: defaultdict[Token, deque[SourceLine | None]] = defaultdict(
            lambda: deque(maxlen=_LINES_KEPT)
        )
        self._inputs: Counter[TensorShape | None] = Counter()
        self._ignored: frozenset[str] = frozenset()
        self._optimizer_exists = False
        self._uneven = False
        self._saw_forward = self._fetches = False
        self._first_event: float | None = None
        # Numbers the nodes that a backward goes through, so it grows as they are made.
        self._nodes: Callable[[], int] = torch._C._autograd._get_sequence_nr
        self._nodes_before, self._zeroed = 0, False  # since the last training event
        # What came before the backward and the optimizer step that are under way; None if there
        # is none, or if it began before this search.
        self._before_backward: Lead | None = None
        self._before_optimizer: Lead | None = None
        self._in_marker = False  # or after one that the script left by an error
        self.marked = 0
        self.seen = 0  # steps of the pattern found last
        # How many steps were seen when the pattern was found, and at the latest one; and when.
        self._first_seen: tuple[int, float] | None = None
        self._last_seen = 0, 0.0

    # --------------------------------------------------------------------------- events

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        lead = self._lead()
        if self._ends_with(_OPENING):  # a step without a closing event ends before this one
            self._hooks.observer.forward_begin(key, module, args, kwargs)
            return
        if key in self._ignored:
            return
        if self._record_call is not None:
            self._record_call(key, module, args, kwargs)
        self._saw_forward = True
        trains = self._torch._C.is_grad_enabled()
        token = Token(FORWARD, key, trains, training=in_training(module))
        self._begins(token, user_line(sys._getframe(1)))
        self._calls.add(token, sys._getframe(1))
        if module is None or is_weighted(module):
            self._inputs[main_input(self._torch, args, kwargs)] += 1
            token = token._replace(weighted=True)
        self._search.add(token, lead)

    def forward_end(self) -> None:
        if self._torch._C.is_grad_enabled():
            self._forget_lead()
        self._ends_with(FORWARD)

    def backward_begin(self) -> None:
        self._before_backward = self._lead()
        self._calls.add(Token(BACKWARD, BACKWARD), sys._getframe(1))
        if self._ends_with(BACKWARD):
            self._hooks.observer.backward_begin()

    def backward_end(self) -> None:
        token, lead = Token(BACKWARD, BACKWARD), self._before_backward
        if lead is None:
            return
        self._before_backward = None
        self._begins(token, self._hooks.backward_where)
        self._search.add(token, lead)
        self._forget_lead()

    def zero_grad_begin(self) -> None:
        self._zeroed = self._zeroed or not self._lead().computed
        self._begins(Token(ZERO_GRAD, ZERO_GRAD), user_line(sys._getframe(1)))
        self._calls.add(Token(ZERO_GRAD, ZERO_GRAD), sys._getframe(1))

    def optimizer_begin(self, key: str) -> None:
        self._before_optimizer = self._lead()
        self._begins(Token(OPTIMIZER, key), user_line(sys._getframe(1)))
        self._calls.add(Token(OPTIMIZER, key), sys._getframe(1))

    def optimizer_end(self, key: str) -> None:
        lead = self._before_optimizer
        if lead is None:
            return
        self._before_optimizer = None
        self._search.add(Token(OPTIMIZER, key), lead)
        self._forget_lead()
        if self._ends_with(OPTIMIZER):
            self._hooks.observer.optimizer_end(key)  # at which the next step may begin

    def _lead(self) -> Lead:
        """What the script did since the last training event."""
        return Lead(self._zeroed, self._nodes() > self._nodes_before)

    def _forget_lead(self) -> None:
        self._nodes_before, self._zeroed = self._nodes(), False

    def fetch_begin(self) -> None:
        self._fetches = True
        self._search.fetch()

    def marker_begin(self) -> None:
        self._in_marker = True
        self._calls.mark()
        self._begins(_MARKER, user_line(sys._getframe(1)))

    def marker_end(self) -> None:
        self._in_marker = False
        self.marked += 1
        self._note_seen(self.marked)
        if self.marked >= self._warmup + self._schedule.skip_steps and self._hooks.settle_thread():
            self._found(None)

    def _begins(self, token: Token, line: SourceLine | None) -> None:
        if self._first_event is None:
            self._first_event = clock.perf_counter()
        self._lines[token].append(line)

    # -------------------------------------------------------------------------- answers

    @property
    def forwards(self) -> int:
        return sum(self._inputs.values())

    @property
    def began(self) -> float:
        """When the first event was, in seconds of the clock; now if there was none."""
        return clock.perf_counter() if self._first_event is None else self._first_event

    @property
    def seconds_per_step(self) -> float:
        return self._waited_s / max(1, self.seen, self.marked)

    @property
    def usual_step_s(self) -> float:
        """Without what only the first steps do, if a step was found before the last one, and
        without what we do after that."""
        seen, at = self._first_seen or (0, 0.0)
        last, ended = self._last_seen
        return (ended - at) / (last - seen) if last > seen > 0 else self.seconds_per_step

    def _note_seen(self, steps: int) -> None:
        now = steps, clock.perf_counter()
        if self._first_seen is None or steps < self._first_seen[0]:
            self._first_seen = now
        if steps != self._last_seen[0]:
            self._last_seen = now

    @property
    def _waited_s(self) -> float:
        return clock.perf_counter() - self.began

    @property
    def _is_late(self) -> bool:
        return self._waited_s >= self._patience_s

    @property
    def _warmup(self) -> int:
        """How many steps to see before they are measured."""
        warmup = max(1, self._schedule.warmup)
        return min(warmup, _FEWEST) if self._is_late else warmup

    def _ends_with(self, event: str) -> bool:
        """Whether the warm-up ends with this event, which may end a step.

        `event` is FORWARD or OPTIMIZER for one that just ended, _OPENING for a forward and
        BACKWARD for a backward that is about to begin.
        """
        if self.marked or self._in_marker or self._schedule.step_from == "marker":
            return False
        pattern = self._pattern(event)
        if pattern is None:
            return False
        self.seen = self._search.steps_seen(pattern)
        self._note_seen(self.seen)
        if self.seen < self._warmup + self._schedule.skip_steps:
            return False
        unclosed = pattern.closing != "optimizer" and self._schedule.step_from == "auto"
        if unclosed and not self._has_optimizer() and self._find_optimizer():
            self.seen = 0
            return False
        if not self._hooks.settle_thread():
            return False
        self._found(pattern)
        return True

    def _pattern(self, event: str) -> Pattern | None:
        search, wanted = self._search, self._schedule.step_from
        if wanted == "forward":
            return search.single_forward_pattern() if event == FORWARD else None
        if wanted == "optimizer":
            return search.single_optimizer_pattern() if event == OPTIMIZER else None
        if self._schedule.wait_for == "optimizer" and not search.optimizer_steps:
            return None
        if search.trains:
            if event == FORWARD or (event == BACKWARD and self._saw_forward):
                return None
            if event != OPTIMIZER and search.required:
                return None  # it ends the steps
            pattern = search.training_pattern(self._has_optimizer())
            if pattern is None and event == OPTIMIZER:
                self._uneven = self._has_no_period()
                return search.single_optimizer_pattern() if self._uneven else None
            last = search.optimizer_steps >= self._warmup + self._schedule.skip_steps
            alone = pattern is not None and pattern.optimizers == 1
            if last and alone and search.training_kinds():
                self._uneven = True  # it repeats by chance
                return search.single_optimizer_pattern()
            closing = "optimizer" if event == OPTIMIZER else "next"
            return pattern if pattern is not None and pattern.closing == closing else None
        if event != FORWARD:
            return None
        few = self.forwards < _FORWARDS_BEFORE_TRAINING and not self._is_late
        if few and self._has_optimizer():
            return None
        pattern = search.forward_pattern()
        # Without parameters a module is known by its class alone, which cannot be followed.
        return pattern if pattern and any(token.weighted for token in pattern.tokens) else None

    def _has_no_period(self) -> bool:
        """Whether enough training was seen to know that its steps have no common period."""
        steps, alone = self.optimizer_steps, len(self._search.required) == 1
        if steps >= (_UNEVEN_AFTER_OF_ONE if alone else _UNEVEN_AFTER) * self._warmup:
            return True
        if steps >= _UNEVEN_AFTER_OF_ONE * self._warmup and not alone:
            known = self._hooks.optimizers
            gone = sum(known.get(key) is None for key in self._search.required)
            if gone >= _THROWN_AWAY_SHARE * steps:
                return True
        return steps >= self._warmup and self._waited_s >= min(_UNEVEN_AFTER_S, self._patience_s)

    @property
    def may_train_after_s(self) -> float:
        """How long after forwards alone the script may still begin to train: 0 if nothing says that
        it does."""
        if self._has_optimizer():
            return math.inf
        return _MAY_TRAIN_S if calls_by_name(sys._getframe(1), "backward") else 0.0

    def start_over(self, ignored: frozenset[str]) -> None:
        """Search again, without the forwards of `ignored`, which cannot be followed."""
        self._ignored |= ignored
        self._search = StepSearch()

    def thread_changed(self) -> None:
        self._search, self._calls = StepSearch(), StepCalls()
        self._lines.clear()
        self._inputs.clear()
        self._uneven = self._saw_forward = self._fetches = False
        self._in_marker, self.seen = False, 0
        self._before_backward = self._before_optimizer = None
        self._first_seen, self._last_seen = None, (0, 0.0)
        self._forget_lead()

    def _has_optimizer(self) -> bool:
        """Whether an optimizer should end the steps."""
        exists = any(True for _ in self._hooks.optimizers) or self._optimizer_exists
        return exists and not self._hooks.steps_in_backward

    def _find_optimizer(self) -> bool:
        """Search all objects for an optimizer that should end the steps but has not stepped yet."""
        self._optimizer_exists = bool(objects_below(self._torch.optim.Optimizer))
        return self._has_optimizer()

    @property
    def optimizer_steps(self) -> int:
        return self._search.optimizer_steps

    def remarks(self, pattern: Pattern | None) -> list[str]:
        """What a reader has to know about the step."""
        found = []
        kinds = self.training_kinds(pattern)
        if kinds:
            total = plural(sum(kind.steps for kind in kinds), "step")
            named = listed([f"{kind.steps} of {name}" for name, kind in _named(kinds)])
            about = "the verdict is about the first kind, and the others stay eager"
            if (alike := self.kinds_alike(pattern)) > 1:
                about = f"the verdict is about {alike} of these kinds together: they begin alike"
            found.append(
                f"the script takes several kinds of steps: of {total} before the "
                f"measurement, {named}; {about}"
            )
        elif self._uneven:
            found.append(
                "the training steps do not repeat one sequence of events, so a step is everything "
                "between two optimizer steps"
            )
        if pattern is not None and (others := self._search.forwards_between(pattern)):
            made = plural(others, "forward")
            found.append(
                f"between the steps before the measurement the script made {made} without "
                "gradients; the verdict is not about these"
            )
        if pattern is not None and pattern.first.kind == PREVIOUS_END:
            found.append(_NO_BEGINNING)
        if pattern is not None and pattern.first.kind == BACKWARD:
            measured = pattern.closing == "next" and not self._fetches
            goal = "capture" if measured else "measure and capture"
            found.append(
                "launchscope sees the step only from its backward on, because the forward calls no "
                f"torch.nn.Module that has parameters; to {goal} all of it, mark the step with "
                "launchscope.step()"
            )
        if pattern is not None and pattern.closing == "forward" and pattern.first.trains:
            found.append(_FORWARD_ALONE if self._search.trains else _NO_BACKWARD)
        return found

    def training_kinds(self, pattern: Pattern | None) -> list[TrainingKind]:
        """The kinds of steps of a training script, the one that is measured first."""
        by_optimizer = self._uneven or self._schedule.step_from == "optimizer"
        return self._search.training_kinds() if by_optimizer and pattern is not None else []

    def kinds_alike(self, pattern: Pattern | None) -> int:
        """How many of these kinds the step that is followed may be."""
        kinds = self.training_kinds(pattern)
        if pattern is None or pattern.first.kind in (PREVIOUS_END, ZERO_GRAD):
            return len(kinds)
        first = pattern.first.kind, pattern.first.key
        return sum(kind.events[0] == first for kind in kinds)

    def _kinds(self, pattern: Pattern) -> tuple[StepKind, ...]:
        """The kinds of step of a script, most frequent first; empty if there is one."""
        if mixed := self.training_kinds(pattern):
            total = sum(kind.steps for kind in mixed)
            return tuple(
                StepKind(name, None, 100.0 * kind.steps / total) for name, kind in _named(mixed)
            )
        if pattern.closing != "forward" or pattern.forwards != 1:
            return ()
        total, last = self.forwards, self._hooks.epochs.last_batch
        known = [shape for shape in self._inputs if shape is not None]
        rare = [
            shape
            for shape in known
            if last is not None and any(is_last_batch(last, [other], [shape]) for other in known)
        ]
        seen = [(shape, n) for shape, n in self._inputs.most_common() if shape not in rare]
        # A shape that was seen once may be a prefill; several such shapes were trials at the start.
        once = total < _FEW_FORWARDS and sum(n == 1 for _, n in seen) == 1
        usual = [(shape, n) for shape, n in seen if n >= 2 or once]
        if not 2 <= len(usual) <= _MOST_KINDS:
            return ()
        shapes = [shape for shape, _ in usual]
        return tuple(
            StepKind(_kind_name(shape, shapes), shape, 100.0 * n / total) for shape, n in usual
        )

    def boundary(self, pattern: Pattern | None) -> StepBoundary:
        """The step as it is reported; `pattern` is None for the script's own marks."""
        compiled = self._hooks.compiling
        calls = self._calls.of_step(pattern)
        sources = digests(calls)
        if pattern is None:
            source, names = self._line_of(_MARKER), ("launchscope.step",)
            return StepBoundary(
                "marker", ("marker",), names, "region", source, compiled, self.marked,
                calls=calls, sources=sources,
            )  # fmt: skip
        forced = "optimizer" if self._uneven else self._schedule.step_from
        period = tuple(token.kind for token in pattern.tokens)
        return StepBoundary(
            boundary=forced if forced == "optimizer" or forced == "forward" else "period",
            period=period,
            names=tuple(token.key.partition("@")[0] for token in pattern.tokens),
            scope="forward" if pattern.closing == "forward" else "full_step",
            source=self._line_of(*_opening_event(pattern)),
            compiled=compiled,
            warmup_steps=self.seen,
            kinds=self._kinds(pattern),
            closure="forward" in self._hooks.inside_optimizers and set(period) == {"optimizer"},
            calls=calls,
            sources=sources,
        )

    def _line_of(self, token: Token, back: int = 1) -> SourceLine | None:
        """The line of an event that was seen `back` times since the last step began."""
        lines = self._lines[token]
        return lines[-min(back, len(lines))] if lines else None


def _named(kinds: Sequence[TrainingKind]) -> list[tuple[str, TrainingKind]]:
    """Each kind with a name that no other has."""
    names = [
        " > ".join(
            what if key == what else f"{what} {key.partition('@')[0]}" for what, key in kind.events
        )
        for kind in kinds
    ]
    return [
        (name if names.count(name) == 1 else f"{name} ({names[:at].count(name) + 1})", kind)
        for at, (name, kind) in enumerate(zip(names, kinds))
    ]


def _opening_event(pattern: Pattern) -> tuple[Token, int]:
    """The event at whose line a step begins, and how often it is in one step."""
    first = pattern.first._replace(weighted=False)
    if first.kind == PREVIOUS_END:
        return pattern.tokens[-1], 1
    # Each of several optimizers has its zero_grad.
    return first, pattern.optimizers if first.kind == ZERO_GRAD else pattern.openings


def _kind_name(shape: TensorShape | None, all_shapes: list[TensorShape | None]) -> str:
    """ "decode" for the only kind that reads one position, and then "prefill" for the others."""
    ones = [one for one in all_shapes if one is not None and one.dims[1:2] == (1,)]
    if len(ones) == 1:
        return "decode" if shape == ones[0] else "prefill"
    return "no inputs" if shape is None else f"inputs {shape.dims}"

"""What is reported of the step that the search has found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from launchscope.model import Schedule, StepBoundary, StepKind, TensorShape
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.step_pattern import BACKWARD, PREVIOUS_END, Pattern
from launchscope.runner.child.steps.search import StepSearch
from launchscope.runner.child.steps.step_calls import StepCalls
from launchscope.runner.protocol.events import RemarkCode

_FEW_FORWARDS, _MOST_KINDS = 20, 4
CAPTURE = "torch.cuda.graph"  # marks a step that a rehearsal sees once


@dataclass
class History:
    """What the search has seen of the script."""

    search: StepSearch = field(default_factory=StepSearch)
    calls: StepCalls = field(default_factory=StepCalls)
    inputs: Counter[TensorShape | None] = field(default_factory=Counter)  # of forwards of models
    saw_forward: bool = False
    uneven: bool = False  # training steps have no common period
    marked: bool = False  # the script marks its steps
    mark: str = "launchscope.step"  # what does so
    steps: int = 0  # of the pattern found last, or marked

    @property
    def forwards(self) -> int:
        return self.inputs.total()


class StepSummary:
    """The step of a script by its history; `pattern` is None for the script's own marks."""

    def __init__(self, history: History, hooks: Hooks, schedule: Schedule, pattern: Pattern | None):
        self._history = history
        self._hooks = hooks
        self._by_optimizer = history.uneven or schedule.step_from == "optimizer"
        self._by_forward = not history.uneven and schedule.step_from == "forward"
        self._pattern = pattern

    def remarks(self) -> list[RemarkCode]:
        """What a reader has to know about the step."""
        history, pattern = self._history, self._pattern
        found: list[RemarkCode] = ["uneven"] if history.uneven else []
        if pattern is None:
            return ["captured"] if history.mark == CAPTURE else found
        if pattern.first.kind == PREVIOUS_END:
            found.append("no_beginning")
        if pattern.first.kind == BACKWARD:
            found.append("no_forward")
        if pattern.closing == "forward" and pattern.first.trains:
            found.append("forward_alone" if history.search.trains else "no_backward")
        return found

    # ------------------------------------------------------------------------- boundary

    def boundary(self) -> StepBoundary:
        history, pattern = self._history, self._pattern
        compiled, (line, calls) = self._hooks.compiling, history.calls.of_step(pattern)
        if pattern is None:
            return StepBoundary(
                "marker", ("marker",), (history.mark,), "region", line,
                compiled, history.steps, calls=calls,
            )  # fmt: skip
        period = tuple(token.kind for token in pattern.tokens)
        inside = self._hooks.inside_optimizers
        forward: Literal["forward", "period"] = "forward" if self._by_forward else "period"
        return StepBoundary(
            boundary="optimizer" if self._by_optimizer else forward,
            period=period,
            names=tuple(token.key.partition("@")[0] for token in pattern.tokens),
            scope="forward" if pattern.closing == "forward" else "full_step",
            source=line,
            compiled=compiled,
            warmup_steps=history.steps,
            kinds=self._kinds(pattern),
            closure="forward" in inside and set(period) == {"optimizer"},
            calls=calls,
        )

    def _kinds(self, pattern: Pattern) -> tuple[StepKind, ...]:
        """The kinds of forwards alone, most frequent first; empty if there is one."""
        usual = self._usual_inputs() if pattern.closing == "forward" else []
        if pattern.forwards != 1 or not 2 <= len(usual) <= _MOST_KINDS:
            return ()
        shapes = [shape for shape, _ in usual]
        return tuple(
            StepKind(_kind_name(shape, shapes), shape, 100.0 * n / self._history.forwards)
            for shape, n in usual
        )

    def _usual_inputs(self) -> list[tuple[TensorShape | None, int]]:
        """The inputs of forwards, most frequent first, without those of trial calls."""
        history, seen = self._history, self._history.inputs.most_common()
        # A shape that was seen once may be a prefill; several such shapes were trials at the start.
        once = history.forwards < _FEW_FORWARDS and sum(n == 1 for _, n in seen) == 1
        return [(shape, n) for shape, n in seen if n >= 2 or once]


def _kind_name(shape: TensorShape | None, all_shapes: list[TensorShape | None]) -> str:
    """ "decode" for the only kind that reads one position, and then "prefill" for the others."""
    ones = [one for one in all_shapes if one is not None and one.dims[1:2] == (1,)]
    if len(ones) == 1:
        return "decode" if shape == ones[0] else "prefill"
    return "no inputs" if shape is None else f"inputs {shape.dims}"

"""What is reported of the step that the search has found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from launchscope.model import Schedule, StepBoundary, StepKind, TensorShape
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.step_pattern import BACKWARD, PREVIOUS_END, Pattern
from launchscope.runner.child.steps.search import StepSearch
from launchscope.runner.child.steps.step_calls import StepCalls, digests

_FEW_FORWARDS, _MOST_KINDS = 20, 4
_UNEVEN = (
    "the training steps do not repeat one sequence of events, so a step is everything between two "
    "optimizer steps, and the verdict is about those that begin and end as most of them do"
)
_NO_BACKWARD = (
    "the forwards run with gradients enabled, but no backward() was seen: put inference under "
    "torch.inference_mode(), and mark a step that trains through torch.autograd.grad with "
    "`with launchscope.step():`"
)
_NO_FORWARD = (
    "launchscope sees the step only from its backward on, because the forward calls no "
    "torch.nn.Module that has parameters; to capture all of it, mark the step with "
    "launchscope.step()"
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


@dataclass
class History:
    """What the search has seen of the script."""

    search: StepSearch = field(default_factory=StepSearch)
    calls: StepCalls = field(default_factory=StepCalls)
    inputs: Counter[TensorShape | None] = field(default_factory=Counter)  # of forwards of models
    saw_forward: bool = False
    uneven: bool = False  # training steps have no common period
    marked: bool = False  # the script marks its steps
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

    def remarks(self) -> list[str]:
        """What a reader has to know about the step."""
        history, pattern = self._history, self._pattern
        found = [_UNEVEN] if history.uneven else []
        if pattern is None:
            return found
        if pattern.first.kind == PREVIOUS_END:
            found.append(_NO_BEGINNING)
        if pattern.first.kind == BACKWARD:
            found.append(_NO_FORWARD)
        if pattern.closing == "forward" and pattern.first.trains:
            found.append(_FORWARD_ALONE if history.search.trains else _NO_BACKWARD)
        return found

    # ------------------------------------------------------------------------- boundary

    def boundary(self) -> StepBoundary:
        history, pattern = self._history, self._pattern
        compiled, (line, calls) = self._hooks.compiling, history.calls.of_step(pattern)
        sources = digests(calls)
        if pattern is None:
            return StepBoundary(
                "marker", ("marker",), ("launchscope.step",), "region", line,
                compiled, history.steps, calls=calls, sources=sources,
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
            sources=sources,
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

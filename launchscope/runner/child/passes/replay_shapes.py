"""Captures the steps of each input shape that comes back, and measures every replay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from launchscope.model import (
    Reason,
    ReplayResult,
    Schedule,
    ShapeBursts,
    ShapesResult,
    StepPart,
    TensorShape,
)
from launchscope.runner.child.passes import Context, Pass, Skip
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.replay import CapturePass, ReplayPass, ops_change, uncapturable

# How many steps are only counted, how many shapes are captured at most, in how many steps, and how
# many steps of each are timed.
_COUNTED, _MOST_SHAPES, _MOST_STEPS, _TIMED = 12, 4, 400, 10
Inputs = tuple[TensorShape, ...]


class OneShape(CapturePass):
    """The replay of the steps for which `is_usual` is true."""

    def __init__(self, is_usual: Callable[[], bool]):
        self._is_usual_shape = is_usual

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return _TIMED

    def start(self, context: Context) -> None:
        super().start(replace(context, schedule=replace(context.schedule, replay=_TIMED)))
        self._is_usual_step = self._is_usual_shape

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        if self._live is not None:
            self._live.release()
        return result


class OneSize(OneShape):
    """The replay of one large step, timed beside steps of any size: what every step would cost if
    its inputs were padded to that size. Where no shape comes back, none can warm another one up."""

    def start(self, context: Context) -> None:
        super().start(context)
        self._is_usual_step = self._may_serve

    def _may_serve(self) -> bool:
        return not self._is_warm or self._bursts is not None or self._is_usual_shape()


class ReplayShapesPass(Pass[ShapesResult]):
    """One shape after the other, the most frequent one first: a graph has one shape only. Where
    none comes back, one that is as large as any so far."""

    name = "replay_shapes"
    label = "replaying each shape"
    result_type = ShapesResult
    order = 45
    captures = True
    part_of = ReplayPass

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return _COUNTED + 2 * _MOST_SHAPES * _TIMED if schedule.replay else 0

    def skip(self, context: Context) -> Skip | None:
        inspect, skip = context.result(InspectPass), uncapturable(context)
        if skip is not None:
            return skip
        if inspect is None or len(set(inspect.signatures)) < 2:
            return Skip("skipped", Reason("no_such_part"))
        by_shape = len(set(inspect.openings)) == len(set(zip(inspect.openings, inspect.signatures)))
        if inspect.blockers or not all(inspect.openings) or not by_shape:
            # None can be captured, or the shape does not say which ops a step runs.
            return ops_change(inspect)
        return None

    def make_one(self, is_usual: Callable[[], bool], *, pads: bool) -> Pass[ReplayResult]:
        return OneSize(is_usual) if pads else OneShape(is_usual)

    def start(self, context: Context) -> None:
        super().start(context)
        self._seen: Counter[Inputs] = Counter()
        self._tried: list[Inputs] = []
        self._inputs: Inputs = ()
        self._one: Pass[ReplayResult] | None = None
        self._measured: list[ShapeBursts] = []
        self._largest = 0  # elements, of what to pad to
        self._padded: ShapeBursts | None = None

    def begin(self) -> None:
        self._inputs = self.context.step_inputs()
        if self._one is not None:
            self._one.begin()

    def part_ended(self, part: StepPart) -> None:
        if self._one is not None:
            self._one.part_ended(part)

    def end(self) -> bool:
        self._seen[self._inputs] += 1
        if self._one is not None:
            if self._one.end():
                self._close(complete=True)
            elif self._seen.total() < _MOST_STEPS:
                return False
        elif self._seen.total() < _COUNTED:
            return False
        return self._seen.total() >= _MOST_STEPS or not self._next()

    def _next(self) -> bool:
        """Begin with the next shape; False if none is left that came back."""
        left = (shape for shape, count in self._seen.most_common() if count > 1)
        target = next((shape for shape in left if shape not in self._tried), None)
        if target is not None and len(self._tried) < _MOST_SHAPES and not self._largest:
            self._tried.append(target)
            self._one = self.make_one(lambda: self._inputs == target, pads=False)
        elif not self._tried and all(self._seen):
            self._largest = max(map(_elements, self._seen))
            self._one = self.make_one(self._is_large, pads=True)
        else:
            return False
        self._one.start(self.context)
        return True

    def _is_large(self) -> bool:
        if _elements(self._inputs) < self._largest:
            return False
        self._tried = [self._inputs]
        return True

    def _close(self, *, complete: bool) -> None:
        one, self._one = self._one, None
        result = None if one is None else one.finish(complete)
        if result is not None and result.status == "measured":
            bursts = result.eager_bursts, result.replay_bursts
            found = ShapeBursts(self._tried[-1], 0, *bursts)
            if self._largest:
                self._padded = found
            else:
                self._measured.append(found)

    def failed_inside_step(self, error: BaseException) -> ShapesResult | None:
        result = None if self._one is None else self._one.failed_inside_step(error)
        return None if result is None else self._result(result.reason)

    def failed(self, error: BaseException) -> ShapesResult:
        result = None if self._one is None else self._one.failed(error)
        return self._result(None if result is None else result.reason)

    def finish(self, complete: bool) -> ShapesResult:
        self._close(complete=complete)
        return self._result(None)

    def _result(self, reason: Reason | None) -> ShapesResult:
        shapes = [replace(shape, steps=self._seen[shape.inputs]) for shape in self._measured]
        counts = self._seen.total(), len(self._seen)
        return ShapesResult(tuple(shapes), *counts, reason, self._padded)


def _elements(inputs: Inputs) -> int:
    return sum(math.prod(shape.dims) for shape in inputs)


PASS = ReplayShapesPass

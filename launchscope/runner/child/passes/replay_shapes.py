"""Captures the steps of each input shape that comes back, and measures every replay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

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
from launchscope.runner.child.passes.capture_pass import ops_change, uncapturable, without_stubs
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.replay import BurstsPass
from launchscope.runner.protocol.passes import MOST_SHAPES, SHAPE_TIMED, SHAPES_COUNTED

# How many steps are only counted, how many shapes are captured at most, in how many steps, and how
# many steps of each are timed.
_COUNTED, _MOST_SHAPES, _MOST_STEPS, _TIMED = SHAPES_COUNTED, MOST_SHAPES, 400, SHAPE_TIMED
# Where every step differs: the shares of the steps that are no larger than the sizes to pad to, how
# much less a size may cover, and how many steps it is waited for. Sizes grow if so many steps are
# larger than the one before, all by the same amount.
_COVERED, _TOLERANCE, _LONGEST_WAIT, _GROWING = (1.0, 0.75, 0.5, 0.25), 0.2, 60, 0.6
Inputs = tuple[TensorShape, ...]


class OneShape(BurstsPass):
    """The replay of a step that `fits`, timed beside those that are `usual`."""

    def __init__(self, usual: Callable[[], bool], fits: Callable[[], bool] = lambda: True):
        self._usual, self.captures_now = usual, fits  # type: ignore[method-assign]

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return _TIMED

    def start(self, context: Context) -> None:
        super().start(context)
        self._is_usual_step = self._usual

    @property
    def is_timed(self) -> bool:
        """Whether the current step is timed beside the replay."""
        return self._bursts is not None and self._is_usual

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        self.release()
        return result


class ReplayShapesPass(Pass[ShapesResult]):
    """One shape after the other, the most frequent one first: a graph has one shape only. Where
    none comes back, one step as large as any so far, and steps of smaller sizes to pad to. Results
    of blocking operations then come from the step before, which only fits sizes that grow."""

    name = "replay_shapes"
    captures = True

    def skip(self, context: Context) -> Skip | None:
        inspect, skip = context.result(InspectPass), uncapturable(context)
        if skip is not None:
            return skip
        if inspect is None or len(set(inspect.signatures)) < 2:
            return Skip("skipped", Reason("no_such_part"))
        by_shape = len(set(inspect.openings)) == len(set(zip(inspect.openings, inspect.signatures)))
        if not (by_shape and all(inspect.openings)):
            return ops_change(inspect)  # the shape does not say which ops a step runs
        return without_stubs(context, inspect)

    def make_one(self, usual: Callable[[], bool], fits: Callable[[], bool]) -> OneShape:
        return OneShape(usual, fits)

    def start(self, context: Context) -> None:
        super().start(context)
        inspect = context.result(InspectPass)
        self._blocked = inspect is not None and bool(inspect.blockers)
        self._steps: list[Inputs] = []
        self._inputs: Inputs = ()  # of the current step
        self._tried: list[Inputs] = []
        self._one: OneShape | None = None  # captures and measures the last of these
        self._measured: list[ShapeBursts] = []
        self._stubbed = 0
        self._pads = self._growing = False  # sizes are measured in place of shapes; they grow
        self._tensors = 0  # of the usual step: only those are padded
        self._began = 0  # the steps before the current size
        self._eager_sizes: list[int] = []  # of the steps that are timed beside it

    def begin(self) -> None:
        self._inputs = self.context.step_inputs()
        if self._one is not None:
            self._one.begin()

    def part_ended(self, part: StepPart) -> None:
        if self._one is not None:
            self._one.part_ended(part)

    def end(self) -> bool:
        self._steps.append(self._inputs)
        count = len(self._steps)
        if self._one is not None:
            if self._one.is_timed:
                self._eager_sizes.append(self._size_of(self._inputs))
            if self._one.end():
                self._close(complete=True)
            elif count < _MOST_STEPS:
                waits = bool(self._measured) and len(self._measured) == len(self._tried)
                return waits and count - self._began > _LONGEST_WAIT
        elif count < _COUNTED:
            return False
        return count >= _MOST_STEPS or not self._next()

    def _next(self) -> bool:
        """Begin with the next shape or size; False if none is left."""
        left = (s for s, count in Counter(self._steps).most_common() if count > 1)
        target = next((shape for shape in left if shape not in self._tried), None)
        if target is not None and len(self._tried) < _MOST_SHAPES and not self._pads:
            self._tried.append(target)
            self._one = self.make_one(lambda: self._inputs == target, lambda: True)
        elif (self._pads or not self._tried) and all(self._steps) and self._next_size():
            self._eager_sizes = []
            self._one = self.make_one(lambda: self._size_of(self._inputs) > 0, self._fits)
        else:
            return False
        self._one.start(self.context)
        return True

    def _next_size(self) -> bool:
        """Wait for a step of the next size to pad to; False if none is left."""
        if not self._pads:
            self._tensors = Counter(map(len, self._steps)).most_common(1)[0][0]
            self._pads, self._growing = True, _grow(self._sizes())
        sizes = 1 if self._growing else len(_COVERED)
        refused = self._blocked and not self._growing
        failed = len(self._measured) < len(self._tried)
        if refused or failed or len(self._tried) == sizes:
            return False
        self._began = len(self._steps)
        return True

    def _fits(self) -> bool:
        """Whether this step has the size that is captured next. Larger ones will stay eager."""
        size, sizes = self._size_of(self._inputs), self._sizes()
        if size in map(_elements, self._tried):
            return False
        if self._growing:
            ended = any(after < before for before, after in pairwise(sizes))
            waited = len(self._steps) - self._began > _LONGEST_WAIT
            fits = size >= max(sizes) if ended else waited
        else:
            most = _COVERED[len(self._tried)]
            least = most - (_TOLERANCE if self._tried else _TOLERANCE / 2)
            fits = least <= sum(seen <= size for seen in sizes) / len(sizes) <= most
        if fits:
            self._tried.append(self._inputs)
        return fits

    def _sizes(self) -> list[int]:
        return [size for size in map(self._size_of, self._steps) if size]

    def _size_of(self, inputs: Inputs) -> int:
        """0 for a step of another structure."""
        return _elements(inputs) if len(inputs) == self._tensors else 0

    def _close(self, *, complete: bool) -> None:
        one, self._one = self._one, None
        result = None if one is None else one.finish(complete)
        if result is None or result.status not in ("measured", "what_if"):
            return
        eager, replayed = result.eager_bursts, result.replay_bursts
        sizes = self._sizes_of(eager) if self._pads else ()
        self._measured.append(ShapeBursts(self._tried[-1], 0, eager, replayed, sizes))
        if result.status == "what_if" and result.reason is not None:
            self._stubbed = max(self._stubbed, int(result.reason.details["count"]))

    def _sizes_of(self, eager: Sequence[Sequence[float]]) -> tuple[int, ...]:
        """Of the steps in these bursts; the first of each does not count."""
        length = len(eager[0]) + 1 if eager else 1
        counted = [size for index, size in enumerate(self._eager_sizes) if index % length]
        return tuple(counted[: sum(map(len, eager))])

    def failed_inside_step(self, error: BaseException) -> ShapesResult | None:
        result = None if self._one is None else self._one.failed_inside_step(error)
        return None if result is None else self._result(result.reason)

    def failed(self, error: BaseException) -> ShapesResult:
        result = None if self._one is None else self._one.failed(error)
        return self._result(None if result is None else result.reason)

    def finish(self, complete: bool) -> ShapesResult:
        self._close(complete=complete)
        nothing = self._blocked and not (complete or self._measured)
        return self._result(Reason("script_ended") if nothing else None)

    def _result(self, reason: Reason | None) -> ShapesResult:
        counts = Counter(self._steps)
        measured = tuple(self._measured)
        return ShapesResult(
            () if self._pads else tuple(replace(m, steps=counts[m.inputs]) for m in measured),
            len(self._steps),
            reason,
            measured if self._pads else (),
            tuple(self._sizes()) if self._pads and measured else (),
            self._growing,
            self._stubbed,
        )


def _grow(sizes: Sequence[int]) -> bool:
    added = Counter(after - before for before, after in pairwise(sizes))
    most, count = added.most_common(1)[0] if added else (0, 0)
    return most > 0 and count >= _GROWING * added.total()


def _elements(inputs: Inputs) -> int:
    return sum(math.prod(shape.dims) for shape in inputs)


PASS = ReplayShapesPass

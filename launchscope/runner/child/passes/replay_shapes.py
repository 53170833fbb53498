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
from launchscope.runner.child.capture.sized_stubs import SizedStubs
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.passes import Context, Pass, Skip
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.replay import (
    CapturePass,
    ops_change,
    stubs_of,
    uncapturable,
    without_stubs,
)
from launchscope.runner.protocol.passes import MOST_SHAPES, SHAPE_TIMED, SHAPES_COUNTED

# How many steps are only counted, how many shapes are captured at most, in how many steps, and how
# many steps of each are timed.
_COUNTED, _MOST_SHAPES, _MOST_STEPS, _TIMED = SHAPES_COUNTED, MOST_SHAPES, 400, SHAPE_TIMED
# Where every step differs: the shares of the steps that are no larger than the sizes to pad to, how
# much less a size may cover, and how many steps it is waited for. Sizes grow if so many steps are
# larger than the one before, all by the same amount.
_COVERED, _TOLERANCE, _LONGEST_WAIT, _GROWING = (1.0, 0.75, 0.5, 0.25), 0.2, 60, 0.6
Inputs = tuple[TensorShape, ...]


class OneShape(CapturePass):
    """The replay of the steps for which `is_usual` is true."""

    stubs: type[Stubs] = Stubs

    def __init__(self, is_usual: Callable[[], bool]):
        self._is_usual_shape = is_usual

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return _TIMED

    def start(self, context: Context) -> None:
        super().start(replace(context, schedule=replace(context.schedule, replay=_TIMED)))
        self._is_usual_step = self._is_usual_shape

    def make_stubs(self) -> Stubs | None:
        return stubs_of(self.context, self.stubs)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        self.release()
        return result


class OneSize(OneShape):
    """The replay of one step of a fitting size, timed beside steps of any size: what it would cost
    to pad to that size. Where no shape comes back, none can warm another one up, and the results of
    blocking operations come from steps of other sizes."""

    stubs = SizedStubs
    refused: Reason | None = None  # why no step can be captured beside its blocking operations

    def __init__(
        self, fits: Callable[[], bool], size: Callable[[], int], inputs: Callable[[], Inputs]
    ):
        super().__init__(lambda: size() > 0)
        self._fits, self._size, self._inputs = fits, size, inputs
        self._sizes: list[int] = []  # of the steps that are timed

    def captures_now(self) -> bool:
        stubs = self._stubs
        if not isinstance(stubs, SizedStubs):
            return self._fits()
        if self.refused is not None or not stubs.knows_enough or not self._fits():
            return False
        try:
            stubs.foresee(self._inputs())
        except ReasonError as error:
            self.refused = error.reason
        return self.refused is None

    def end(self) -> bool:
        if self._bursts is not None and self._is_usual:
            self._sizes.append(self._size())
        warms = self._is_usual and self._bursts is None and self._capture is None
        done = super().end()
        if isinstance(self._stubs, SizedStubs) and warms:
            self._stubs.keep(self._inputs())
        return done or self.refused is not None

    def eager_sizes(self, eager: Sequence[Sequence[float]]) -> tuple[int, ...]:
        """Of the steps in these bursts; the first of each does not count."""
        length = len(eager[0]) + 1 if eager else 1
        counted = [size for index, size in enumerate(self._sizes) if index % length]
        return tuple(counted[: sum(map(len, eager))])


class ReplayShapesPass(Pass[ShapesResult]):
    """One shape after the other, the most frequent one first: a graph has one shape only. Where
    none comes back, one step as large as any so far, and steps of smaller sizes to pad to."""

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

    def make_one(self, target: Inputs) -> Pass[ReplayResult]:
        return OneShape(lambda: self._inputs == target)

    def make_size(self) -> OneSize:
        return OneSize(self._fits, lambda: self._size_of(self._inputs), lambda: self._inputs)

    def start(self, context: Context) -> None:
        super().start(context)
        self._steps: list[Inputs] = []
        self._inputs: Inputs = ()  # of the current step
        self._tried: list[Inputs] = []
        self._one: Pass[ReplayResult] | None = None  # captures and measures the last of these
        self._measured: list[ShapeBursts] = []
        self._padded: list[ShapeBursts] = []
        self._tensors = 0  # of the usual step: only those are padded
        self._pads = self._growing = False
        self._began = 0  # the steps before the current size
        self._refused: Reason | None = None
        self._stubbed = 0
        self._blocked = stubs_of(context, Stubs) is not None

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
            if self._one.end():
                self._close(complete=True)
            elif count < _MOST_STEPS:
                between = bool(self._padded) and len(self._padded) == len(self._tried)
                return between and count - self._began > _LONGEST_WAIT
        elif count < _COUNTED:
            return False
        return count >= _MOST_STEPS or not self._next()

    def _next(self) -> bool:
        """Begin with the next shape; False if none is left that came back."""
        left = (s for s, count in Counter(self._steps).most_common() if count > 1)
        target = next((shape for shape in left if shape not in self._tried), None)
        if target is not None and len(self._tried) < _MOST_SHAPES and not self._pads:
            self._tried.append(target)
            self._one = self.make_one(target)
        elif (self._pads or not self._tried) and all(self._steps):
            if not self._next_size():
                return False
            self._one = self.make_size()
        else:
            return False
        self._one.start(self.context)
        return True

    def _next_size(self) -> bool:
        """Wait for a step of the next size to pad to; False if none is left."""
        sizes = 1 if self._growing else len(_COVERED)
        if len(self._padded) < len(self._tried) or len(self._tried) == sizes:
            return False
        if not self._pads:
            self._tensors = Counter(map(len, self._steps)).most_common(1)[0][0]
            self._pads, self._growing = True, _grow(self._sizes())
        self._began = len(self._steps)
        return True

    def _fits(self) -> bool:
        """Whether this step has the size that is captured next. Larger ones will stay eager."""
        size, sizes = self._size_of(self._inputs), self._sizes()
        if size == 0 or size in map(_elements, self._tried):
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
        if isinstance(one, OneSize):
            self._refused = one.refused
        if result is None or result.status not in ("measured", "what_if"):
            return
        bursts = result.eager_bursts, result.replay_bursts
        found = ShapeBursts(self._tried[-1], 0, *bursts, left_out_ms=result.left_out_ms)
        if result.status == "what_if" and result.reason is not None:
            self._stubbed = max(self._stubbed, int(result.reason.details["count"]))
        if isinstance(one, OneSize):
            self._padded.append(replace(found, eager_sizes=one.eager_sizes(bursts[0])))
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
        reason = self._refused
        if self._blocked and not (complete or self._measured or self._padded):
            reason = Reason("script_ended")
        return self._result(reason)

    def _result(self, reason: Reason | None) -> ShapesResult:
        counts = Counter(self._steps)
        return ShapesResult(
            tuple(replace(shape, steps=counts[shape.inputs]) for shape in self._measured),
            len(self._steps),
            len(counts),
            reason,
            tuple(self._padded),
            tuple(self._sizes()) if self._padded else (),
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

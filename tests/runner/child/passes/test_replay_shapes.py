"""Which shapes get a graph of their own, and what of them is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import InspectResult, Reason, ReplayResult, ShapesResult, TensorShape
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.replay_shapes import OneSize, ReplayShapesPass
from tests.runner.steps import context_of

SHORT, MIDDLE, LONG = ((TensorShape((8, size), "float32"),) for size in (16, 32, 64))
STEPS_OF_ONE = 5


class Measured:
    """Takes the place of the captures of one shape: it needs so many steps of it."""

    def __init__(self, is_usual: Callable[[], bool], *, pads: bool):
        self.is_usual, self.seen = is_usual, 0

    def start(self, context: Context) -> None: ...

    def begin(self) -> None:
        self.seen += self.is_usual()

    def part_ended(self, part: Any) -> None: ...

    def end(self) -> bool:
        return self.seen >= STEPS_OF_ONE

    def finish(self, complete: bool) -> ReplayResult | None:
        bursts = ((2.0,),), ((1.0,),)
        return ReplayResult("measured", None, None, "full_step", (), *bursts) if complete else None

    def failed_inside_step(self, error: BaseException) -> ReplayResult:
        return ReplayResult("failed", Reason("error", {"kind": "E", "error": str(error)}))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_of(tmp_path, torch.nn.Linear(1, 1))


def ran(context: Context, steps: Iterable[Any], error_in: int | None = None) -> ShapesResult | None:
    """The pass over steps with these inputs, the script ending after them."""
    now: list[Any] = []
    context.step_inputs = lambda: now[-1]
    entry = ReplayShapesPass()
    entry.make_one = Measured  # type: ignore[assignment, method-assign]
    entry.start(context)
    for index, inputs in enumerate(steps):
        now.append(inputs)
        entry.begin()
        if index == error_in:
            return entry.failed_inside_step(RuntimeError("no capture"))
        if entry.end():
            return entry.finish(complete=True)
    return entry.finish(complete=False)


def test_each_shape_that_comes_back_is_measured_and_weighted(context: Context) -> None:
    result = ran(context, [SHORT, LONG, SHORT, SHORT] * 40)
    assert result is not None
    found = {shape.inputs: shape.steps / result.steps for shape in result.shapes}
    assert list(found) == [SHORT, LONG]
    assert found[SHORT] == pytest.approx(0.75, abs=0.05)
    assert (result.distinct, result.reason) == (2, None)
    assert result.steps < 60  # no longer than it needs


def test_of_batches_that_all_differ_one_as_large_as_any_before_it_is_captured(
    context: Context,
) -> None:
    sizes = [*range(100, 112), *range(20), 111, *range(40, 60), *range(112, 117)]
    result = ran(context, [(TensorShape((1, size), "float32"),) for size in sizes])
    assert result is not None
    assert (result.shapes, result.distinct) == ((), len(set(sizes)) - 1)
    assert result.padded is not None
    assert [shape.dims for shape in result.padded.inputs] == [(1, 115)]


def test_steps_of_all_sizes_are_timed_beside_the_large_one(context: Context) -> None:
    fits = False
    one = OneSize(lambda: fits)
    one.start(context)
    assert one._is_usual_step()  # any step warms up
    one._is_warm = True
    assert not one._is_usual_step()
    fits = True
    assert one._is_usual_step()
    fits, one._bursts = False, object()  # type: ignore[assignment]
    assert one._is_usual_step()


def test_a_shape_that_does_not_come_again_is_not_waited_for_forever(context: Context) -> None:
    result = ran(context, [SHORT, MIDDLE] * 6 + [SHORT] * 3 + [LONG] * 2000)
    assert result is not None
    assert [shape.inputs for shape in result.shapes] == [SHORT]
    assert result.steps == 400


def test_what_was_measured_before_a_capture_failed_is_kept(context: Context) -> None:
    result = ran(context, [SHORT, LONG] * 40, error_in=25)
    assert result is not None
    assert [shape.inputs for shape in result.shapes] == [SHORT]
    assert result.reason == Reason("error", {"kind": "E", "error": "no capture"})


def inspected(signatures: str, openings: Iterable[Any]) -> InspectResult:
    shapes = tuple(openings)
    none = ((),) * len(shapes)
    return InspectResult(len(shapes), tuple(signatures), none, (5,) * 3, (), openings=shapes)


@pytest.mark.parametrize(
    ("signatures", "openings", "tried"),
    [
        ("aba", (SHORT, LONG, SHORT), True),
        ("aaa", (SHORT, SHORT, SHORT), False),
        ("abc", (SHORT, LONG, SHORT), False),  # the shape does not say what a step runs
        ("aba", ((), (), ()), False),  # the step does not begin with a forward
    ],
)
def test_only_steps_whose_ops_follow_from_their_shape_are_captured(
    context: Context, signatures: str, openings: Any, tried: bool
) -> None:
    context.results["inspect"] = inspected(signatures, openings)
    skip = ReplayShapesPass().skip(context)
    assert (skip is None) is tried
    assert skip is None or isinstance(skip, Skip)

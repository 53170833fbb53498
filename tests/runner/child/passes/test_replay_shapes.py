"""Which shapes get a graph of their own, and what of them is kept."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import (
    BlockerRecord,
    InspectResult,
    Reason,
    ReplayResult,
    ShapesResult,
    TensorShape,
)
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes.replay_shapes import ReplayShapesPass
from tests.runner.steps import context_of

SHORT, MIDDLE, LONG = ((TensorShape((8, size), "float32"),) for size in (16, 32, 64))
STEPS_OF_ONE = 5
BURSTS = ((2.0,) * (STEPS_OF_ONE - 1),), ((1.0,),)
MEASURED = ReplayResult("measured", None, None, "full_step", (), *BURSTS)


class Measured:
    """Takes the place of the captures of one shape, beside so many usual steps."""

    def __init__(self, usual: Callable[[], bool], fits: Callable[[], bool]):
        self.usual, self.fits = usual, fits
        self.captured, self.seen = False, 0

    @property
    def is_timed(self) -> bool:
        return self.captured and self.usual()

    def start(self, context: Context) -> None: ...

    def begin(self) -> None:
        self.captured = self.captured or (self.usual() and self.fits())

    def end(self) -> bool:
        self.seen += self.is_timed
        return self.seen >= STEPS_OF_ONE

    def finish(self, complete: bool) -> ReplayResult | None:
        return MEASURED if complete and self.seen else None

    def failed_inside_step(self, error: BaseException) -> ReplayResult:
        return ReplayResult("failed", Reason("error", {"kind": "E", "error": str(error)}))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_of(tmp_path, torch.nn.Linear(1, 1))


def ran(context: Context, steps: Iterable[Any], error_in: int | None = None) -> ShapesResult:
    """The pass over steps with these inputs, the script ending after them."""
    now: list[Any] = []
    context.step_inputs = lambda: now[-1]
    entry: Any = ReplayShapesPass()
    entry.make_one = Measured
    entry.start(context)
    done = False
    for index, inputs in enumerate(steps):
        now.append(inputs)
        entry.begin()
        if index == error_in:
            failed: ShapesResult = entry.failed_inside_step(RuntimeError("no capture"))
            return failed
        done = entry.end()
        if done:
            break
    result: ShapesResult = entry.finish(complete=done)
    return result


def of_sizes(sizes: Iterable[int]) -> list[Any]:
    return [(TensorShape((1, size), "float32"),) for size in sizes]


def test_each_shape_that_comes_back_is_measured_and_weighted(context: Context) -> None:
    result = ran(context, [SHORT, LONG, SHORT, SHORT] * 40)
    found = {shape.inputs: shape.steps / result.steps for shape in result.shapes}
    assert list(found) == [SHORT, LONG]
    assert found[SHORT] == pytest.approx(0.75, abs=0.05)
    assert result.reason is None
    assert result.steps < 60  # no longer than it needs


def test_batches_that_all_differ_are_captured_at_a_few_sizes(context: Context) -> None:
    sizes = random.Random(0).sample(range(1, 400), 399)
    result = ran(context, of_sizes(sizes))
    assert result.shapes == ()
    captured = [shape.inputs[0].dims[1] for shape in result.padded]
    assert captured == sorted(captured, reverse=True)
    shares = [sum(size <= at for size in sizes) / len(sizes) for at in captured]
    assert shares == pytest.approx([0.95, 0.65, 0.4, 0.15], abs=0.2)
    assert result.sizes == tuple(sizes[: result.steps])
    assert result.steps < 100  # no longer than it needs
    for shape in result.padded:  # the first step of a burst does not count
        assert len(shape.eager_sizes) == len(shape.eager_bursts[0]) == STEPS_OF_ONE - 1
        at = sizes.index(shape.inputs[0].dims[1])
        assert shape.eager_sizes == tuple(sizes[at + 1 : at + STEPS_OF_ONE])


def test_a_growing_cache_is_captured_once_at_its_longest_also_beside_a_blocker(
    context: Context,
) -> None:
    blocker = BlockerRecord("aten._local_scalar_dense", "sync", None, 1)
    context.results["inspect"] = InspectResult(3, tuple("abc"), ((),) * 3, (5,) * 3, (blocker,))
    prompt, decoding = of_sizes([8])[0], [step * 2 for step in of_sizes(range(9, 30))]
    result = ran(context, [prompt, *decoding] * 3)
    assert result.growing
    assert [shape.inputs[0].dims for shape in result.padded] == [(1, 29)]
    assert 8 not in result.sizes  # a prompt is no step that could be padded
    assert result.steps > len(result.sizes)
    assert ran(context, of_sizes(random.Random(0).sample(range(1, 400), 399))).padded == ()


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
    context.results["inspect"] = InspectResult(
        3, tuple(signatures), ((),) * 3, (5,) * 3, (), openings=openings
    )
    assert (ReplayShapesPass().skip(context) is None) is tried

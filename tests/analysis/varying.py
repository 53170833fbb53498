"""The recording of the sample with varying lengths, with the sizes of its steps put in.

It was made before sizes were recorded. The lengths follow from the script's seed; those of the
inspected steps are in the recording, and a test compares them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from launchscope.model import Recording, SizesResult, TensorShape
from launchscope.parser import read_recording
from tests.shapes import tensors

RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"
BATCH, LONGEST, STEPS, WARMUP = 4, 96, 300, 10


def lengths() -> list[int]:
    """The padded length of every batch, as sample_workloads/variable_lengths.py draws them."""
    generator = random.Random(0)
    drawn = [generator.randint(4, LONGEST) for _ in range(STEPS * BATCH)]
    return [max(drawn[i : i + BATCH]) for i in range(0, len(drawn), BATCH)]


def recorded() -> Recording:
    recording = read_recording(RECORDINGS / "variable_lengths")
    timing, trace = recording.timing, recording.trace
    assert timing is not None
    assert trace is not None
    inputs = [tensors(f"({BATCH}, {length}) int64") for length in lengths()]
    timed = len(timing.gpu_end_ms)
    ends, begins = timing.gpu_end_ms, timing.gpu_begin_ms
    return replace(
        recording,
        sizes=SizesResult(
            tuple(inputs[WARMUP : WARMUP + timed]),
            spans(begins, ends),
            (None, *(later - end for end, later in pairwise(ends))),
            tuple(float(length) / 8 for length in lengths()[WARMUP : WARMUP + timed]),
        ),
        trace=replace(trace, inputs=tuple(inputs[WARMUP + timed : WARMUP + timed + trace.steps])),
    )


def generating() -> Recording:
    """The same of the sample that generates: 31 decodes after each prefill of 48 tokens."""
    recording = read_recording(RECORDINGS / "generate")
    timing, trace = recording.timing, recording.trace
    assert timing is not None
    assert trace is not None
    timed = len(timing.gpu_end_ms)
    inputs = [_generated(step) for step in range(WARMUP, WARMUP + timed + trace.steps)]
    ends = timing.gpu_end_ms
    return replace(
        recording,
        sizes=SizesResult(
            tuple(inputs[:timed]),
            spans(timing.gpu_begin_ms, ends),
            (None, *(later - end for end, later in pairwise(ends))),
        ),
        trace=replace(trace, inputs=tuple(inputs[timed:])),
    )


def spans(begins: tuple[float | None, ...], ends: tuple[float, ...]) -> tuple[float | None, ...]:
    return tuple(None if a is None else b - a for a, b in zip(begins, ends))


def _generated(step: int) -> tuple[TensorShape, ...]:
    place = step % 32
    cache = tensors(f"(1, 8, {47 + place}, 32) float32") * 12
    return tensors("(1, 48) int64") if place == 0 else tensors("(1, 1) int64") + cache

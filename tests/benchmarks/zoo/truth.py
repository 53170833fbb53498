"""The truth about a step: eager and graph replay of the same work, timed in turn.

Shares no code with launchscope: its own capture, its own bursts.

On a shared host eager steps take up to twice as long in one second as in the next, and a step
near the threshold is worth a graph then and not worth one now. A verdict can only be held against
the machine that it was made on, so the truth is taken right before it and right behind it; where
these two visits do not tell the same, the machine has changed in between, and both the verdict and
the truth are made again. What the verdict says has no part in that.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from tests.benchmarks import bench
from tests.benchmarks.zoo.workload import Step

__all__ = ["LONGEST_S", "THRESHOLD_PCT", "Truth", "bursts", "held_still"]

THRESHOLD_PCT = 15.0
LONGEST_S = 20.0  # no further try after that
_SAME_PCT = 2.0  # points of the share removed, between two visits that tell the same
_FAR_PCT = 10.0  # points from the threshold, where the machine's moods do not reach the answer
_PAIRS = 7
_WARMUP = 4
_BURST_MS = 25.0  # about this long is a burst, within the numbers of steps below
_FEWEST, _MOST = 4, 60

Pairs = list[tuple[float, float]]  # ms per step: bursts of eager, and of the replay beside them


@dataclass(frozen=True)
class Truth:
    """Medians of the bursts in ms per step, and the share of the eager time that a replay
    takes away, with the 95 % interval of its median over neighbouring bursts."""

    eager_ms: float
    replay_ms: float
    removed_pct: float
    removed_low_pct: float
    removed_high_pct: float

    @classmethod
    def of(cls, pairs: Pairs) -> Truth:
        """From the milliseconds per step of bursts of eager and replay in turn."""
        eager, replay = (median(side) for side in zip(*pairs, strict=True))
        removed = bench.interval([100 * (1 - r / e) for e, r in pairs])
        return cls(eager, replay, 100 * (1 - replay / eager), removed.low, removed.high)


def held_still(before: Pairs, behind: Pairs) -> bool:
    """Whether the visits on both sides of a verdict tell the same.

    That is the same share removed, or the same answer by far: both visits well above the
    threshold, or both well below it.
    """
    shares = [Truth.of(visit).removed_pct for visit in (before, behind)]
    low, high = min(shares), max(shares)
    far = low >= THRESHOLD_PCT + _FAR_PCT or high <= THRESHOLD_PCT - _FAR_PCT
    return far or high - low <= _SAME_PCT


def bursts(step: Step) -> Pairs:
    """Warm up and capture on a stream of its own, then bursts: eager, replay, eager, ..."""
    call = step.same_work or step.run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARMUP):
            call(*step.inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        with torch.cuda.graph(graph, stream=stream):
            call(*step.inputs)
        pairs = _bursts(lambda: call(*step.inputs), graph.replay)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    return pairs


def _bursts(eager: Callable[[], object], replay: Callable[[], object]) -> Pairs:
    """Milliseconds per step of each pair of bursts; the order changes from pair to pair."""
    count = _count(_burst(eager, _FEWEST)), _count(_burst(replay, _FEWEST))
    pairs = []
    for number in range(_PAIRS):
        if number % 2:
            second = _burst(replay, count[1])
            pairs.append((_burst(eager, count[0]), second))
        else:
            first = _burst(eager, count[0])
            pairs.append((first, _burst(replay, count[1])))
    return pairs


def _count(step_ms: float) -> int:
    return max(_FEWEST, min(_MOST, round(_BURST_MS / max(step_ms, 1e-3))))


def _burst(call: Callable[[], object], count: int) -> float:
    """From the end of a first call, which is not timed, to the end of `count` more."""
    torch.cuda.synchronize()
    call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count

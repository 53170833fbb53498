"""The truth about a step: eager and graph replay of the same work, timed in turn.

Shares no code with launchscope: its own capture, its own bursts.

On a shared host eager steps take up to twice as long in one second as in the next, and a step
near the threshold is worth a graph then and not worth one now. What is asked for is the step on
a quiet machine, which others can only make slower. So the bursts are taken at several moments,
until the two fastest of them tell the same (where the answer hangs on it, within 1 %); those two
are the truth, and all are on record.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from tests.benchmarks import bench
from tests.benchmarks.zoo.workload import Step

__all__ = ["MOST_VISITS", "THRESHOLD_PCT", "Truth", "bursts", "eager_ms", "quiet", "settled"]

THRESHOLD_PCT = 15.0
MOST_VISITS = 8
_APART, _APART_NEAR = 0.05, 0.01  # of the two fastest visits, at most
_NEAR_PCT = 10.0  # so far from the threshold a percent of the eager time decides nothing
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


def eager_ms(visit: Pairs) -> float:
    return median(eager for eager, _ in visit)


def settled(visits: Sequence[Pairs]) -> bool:
    """Whether the two fastest visits took the same."""
    fastest = sorted(map(eager_ms, visits))[:2]
    if len(fastest) < 2:
        return False
    near = abs(Truth.of(quiet(visits)).removed_pct - THRESHOLD_PCT) <= _NEAR_PCT
    return fastest[1] <= fastest[0] * (1 + (_APART_NEAR if near else _APART))


def quiet(visits: Sequence[Pairs]) -> Pairs:
    """The bursts of the two visits in which eager was fastest."""
    return [pair for visit in sorted(visits, key=eager_ms)[:2] for pair in visit]


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

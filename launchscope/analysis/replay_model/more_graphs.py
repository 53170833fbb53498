"""Traces in which some steps replay a CUDA graph and others run eagerly, as in a serving engine
with graphs for some batch sizes: which steps do what, and what more graphs would give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from launchscope.analysis.replay_model.gain import TracedSteps
from launchscope.analysis.replay_model.prediction import predict, step_work, step_works
from launchscope.analysis.replay_model.simulation import (
    END,
    LAUNCH,
    REPLAY_NODE_US,
    REPLAY_US,
    Loop,
    fit,
    simulate,
)
from launchscope.analysis.timing import StepTimes
from launchscope.model import Metric, StepGroup
from launchscope.parser.trace import Bools, Floats, median_of

# So many iterations are simulated at least, so that the beginning of the loop weighs little.
_LEAST_ITERATIONS = 100


def step_groups(traced: TracedSteps, names: tuple[str, ...]) -> tuple[StepGroup, ...]:
    """The used steps by name and by whether they launch a graph, the most frequent group first;
    nothing unless both kinds occur. `names` are those of all steps: ones that do not repeat, as
    `ProfilerStep#3`, group nothing."""
    is_eager = eager_steps(traced)
    if is_eager.all() or not is_eager.any():
        return ()
    used, counts = traced.work.iterations.used, traced.accounts.counts
    repeats = 2 * len(set(names)) <= len(names)
    keys = [
        (names[row] if repeats else None, eager)
        for row, eager in zip(used.tolist(), is_eager.tolist())
    ]
    groups = []
    for name, eager in dict.fromkeys(keys):
        rows = np.array([key == (name, eager) for key in keys])
        part = replace(traced.work.iterations, used=used[rows])
        work = step_work(replace(traced.work, iterations=part))
        groups.append(
            StepGroup(
                name=name,
                steps=int(rows.sum()),
                launches=median_of(counts["launches_per_step"][rows]),
                graph_launches=median_of(counts["graph_launches_per_step"][rows]),
                busy_ms=median_of(traced.timeline.step_busy[rows]),
                predicted_replay_ms=predict(work).ms if eager and work is not None else None,
            )
        )
    return tuple(sorted(groups, key=lambda group: -group.steps))


def eager_steps(traced: TracedSteps) -> Bools:
    """Which of the used steps launch no graph."""
    found: Bools = np.asarray(traced.accounts.counts["graph_launches_per_step"]) == 0
    return found


def more_graphs_pct(
    traced: TracedSteps, times: StepTimes, recording_us: tuple[float, float, float]
) -> Metric | None:
    """What the mean iteration loses if a graph replaces each step that has none: by a simulation of
    the traced loop. `recording_us` is what recording added to an operator or call on the host:
    typically, at least and at most; the bounds are those of the last two. None without a loop."""
    model = fit(traced.work, times, traced.accounts.profiler_us)
    if model is None or model.loop.iterations != len(traced.work.iterations.used):
        return None
    is_eager = eager_steps(traced)
    replay_ms = np.array([predict(work).ms for work in step_works(traced.work)])
    operations = median_of(np.asarray(traced.accounts.operations)[is_eager])
    host_us = REPLAY_US + REPLAY_NODE_US * operations
    count = max(_LEAST_ITERATIONS, model.loop.iterations)

    def mean(loop: Loop) -> float:
        return float(simulate(loop, count, model.costs).iteration.mean())

    def removed(scale: float) -> float:
        loop = model.loop.scaled(scale, scale)
        before = mean(loop)
        after = mean(_replayed(loop, is_eager, replay_ms, host_us))
        return 100.0 * (1.0 - after / before) if before > 0 else 0.0

    typical, least, most = recording_us
    windows = traced.work.iterations
    host_ms = median_of((windows.end - windows.step_begin)[windows.used][is_eager]) / 1e6
    recorded = traced.work.recorded(windows.step_begin, windows.end)[windows.used][is_eager]
    events = median_of(recorded) / 1e3

    def scaled(cost_us: float) -> float:
        own, usual = host_ms - cost_us * events, host_ms - typical * events
        return max(own, 0.3 * host_ms) / max(usual, 0.3 * host_ms)

    shares = [removed(scaled(cost)) for cost in (typical, most, least)]
    return Metric(shares[0], "%", low=min(shares), high=max(shares))


def _replayed(loop: Loop, rows: Bools, replay_ms: Floats, host_us: float) -> Loop:
    """The loop with one graph launch in place of what the chosen iterations launch in the step."""
    ends = loop.kind == END
    iteration = np.cumsum(ends) - ends
    inside = loop.in_step & ~ends & rows[iteration]
    launches = np.flatnonzero(inside & (loop.kind == LAUNCH))
    _, first = np.unique(iteration[launches], return_index=True)
    first = launches[first]
    gap = np.where(rows[iteration] & loop.in_step, 0.0, loop.gap_ns)
    work, keep = loop.work_ns.copy(), ~inside
    gap[first], work[first], keep[first] = host_us * 1e3, replay_ms[iteration[first]] * 1e6, True
    return replace(loop, gap_ns=gap, work_ns=work, waits=loop.waits & ~inside).chosen(keep)

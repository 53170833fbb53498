"""Traces in which some steps replay a CUDA graph and others run eagerly, as in a serving engine
with graphs for some batch sizes: which steps do what, and what more graphs would give."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from launchscope.analysis.replay_model.gain import TracedSteps
from launchscope.analysis.replay_model.prediction import predict, step_work, step_works
from launchscope.analysis.timeline.timeline import exposed
from launchscope.analysis.timing import StepTimes
from launchscope.model import Metric, StepGroup
from launchscope.parser.trace import Bools, median_of


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


def more_graphs_pct(traced: TracedSteps, times: StepTimes, worst_share: float) -> Metric | None:
    """What the mean iteration loses if a graph replaces each step that has none: what a predicted
    replay takes off these steps. The bounds take nothing, or `worst_share`, of the exposed time for
    what recording added to it. None without a time for each step."""
    timeline, works = traced.timeline, step_works(traced.work)
    if len(times.step) != len(works) or not times.iteration.sum():
        return None
    eager = eager_steps(traced)
    replay = np.array([predict(work).ms for work in works])
    shares = [100 * (times.step - replay)[eager].sum() / times.iteration.sum()]
    idle, step_idle = timeline.iteration_idle, timeline.step_idle
    added = replay - timeline.step_busy
    for kept in (1.0 - worst_share, 1.0):
        saved = kept * exposed(step_idle) - added
        iteration = timeline.traced_iteration - (1.0 - kept) * exposed(idle)
        shares.append(100 * saved[eager].sum() / max(iteration.sum(), 1e-9))
    return Metric(shares[0], "%", low=min(shares), high=max(shares))

"""Recording in, Profile out: joins what each part of the analysis found. No verdict yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from launchscope.analysis.blockers import blockers
from launchscope.analysis.measured import (
    Measured,
    Value,
    from_timing,
    from_trace,
    middle,
)
from launchscope.analysis.metrics import counted, exactly, registry
from launchscope.analysis.replay_model.fit import Projector, against_time
from launchscope.analysis.replay_model.gain import from_replay, project_from_bursts, timed_again
from launchscope.analysis.replay_model.prediction import Optimizer, predict, step_work
from launchscope.analysis.replay_model.replay import compare_work, correctness, replay_times
from launchscope.analysis.replay_model.scopes import scope_replays, with_largest_scope
from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.accounting import account
from launchscope.analysis.timeline.kernels import kernel_table, op_table
from launchscope.analysis.timeline.timeline import build_timeline
from launchscope.analysis.timeline.work import Work, gather
from launchscope.analysis.timing import step_times
from launchscope.errors import InputError
from launchscope.model import (
    Facts,
    InspectResult,
    Profile,
    Recording,
    Replay,
    ReplayResult,
    Shapes,
    ShapeSignature,
    joined_facts,
)
from launchscope.parser import read_trace
from launchscope.parser.trace import Trace

__all__ = ["build_profile"]


def build_profile(
    recording: Recording, *, threshold_pct: float = 15.0, expected_steps: int | None = None
) -> Profile:
    """The Profile of a recording, with every metric key present and None where not measured.

    Trace files are read from `recording.directory`. One that cannot be read costs what it
    would have told, with a note, unless it is all there is (mode "trace"): then InputError.
    """
    recording = with_largest_scope(recording)
    notes = list(recording.notes)
    kind = _kind(recording)
    shapes = _shapes(recording.inspect)
    looks = [look for look in (recording.timing, recording.timing_second) if look is not None]
    times = step_times(looks, kind, alike=shapes.stable is not False)
    trace = _trace(recording, recording.trace.file if recording.trace else None, notes)
    work = _work(recording, trace, kind, notes)
    replay_trace = recording.replay_trace
    replayed = _trace(recording, replay_trace.file if replay_trace else None, notes)

    parts = [_inspected(recording.inspect)]
    if times is not None:
        parts.append(from_timing(times))
    whole = recording.step is None or recording.replay is None or (
        recording.replay.scope == recording.step.scope
    )  # fmt: skip
    bursts = replay_times(recording.replay)
    replay = _replay(recording, work, replayed)
    parts.append(from_replay(recording.replay, bursts, times, whole))
    project_scope: Callable[[ReplayResult], float | None] = lambda result: None  # noqa: E731
    if work is not None:
        timeline = build_timeline(work)
        accounts = account(work, _profiler_us(recording))
        predicted = (
            predict(traced, _made_capturable(recording)) if (traced := step_work(work)) else None
        )
        parts.append(from_trace(work, timeline, accounts, predicted))
        parts.append(against_time(work, timeline, accounts, times))
        if times is not None and parts[-1].facts.busy_exceeds_interval_pct is None:
            known = None if replay.work.same is False else bursts  # else of other work
            source = recording.inspect.source if recording.inspect else None
            projected = Projector(work, predicted, accounts, times, source)
            parts.append(projected(recording.replay, known, whole))
            project_scope = projected.removable_pct
    told = any("removable_pct" in p.metrics for p in parts) or replay.work.same is False
    stretched = any(p.facts.busy_exceeds_interval_pct is not None for p in parts)
    # A trace that contradicts the timings counts for less than a second look at them.
    confirmed = not stretched or timed_again(times, recording.replay, bursts)
    if times is not None and bursts is not None and confirmed and not told:
        parts.append(project_from_bursts(times, recording.replay, bursts, whole, stretched))
    iteration = middle(times.iteration) if times is not None else None
    scopes = scope_replays(recording, iteration, project_scope)
    metrics: dict[str, Any] = {}
    for part in parts:
        metrics |= part.metrics
        notes += part.notes
    facts = joined_facts([_facts(recording), *(part.facts for part in parts)])
    if recording.mode != "gpu":  # nobody put the steps on a stream of their own
        facts = replace(facts, legacy_stream_kernels=None, legacy_kernels_names=None)
    notes += [f"the {failed.name} pass gave no result: {failed.reason}"
              for failed in recording.failures]  # fmt: skip
    return Profile(
        target=recording.target,
        environment=recording.environment,
        mode=recording.mode,
        step=recording.step,
        metrics=registry(metrics),
        shapes=shapes,
        blockers=blockers(recording.inspect),
        replay=replace(replay, scopes=scopes),
        kernels=kernel_table(work, recording.inspect.ops if recording.inspect else ())
        if work is not None
        else (),
        ops=op_table(recording.inspect.ops) if recording.inspect else (),
        notes=tuple(dict.fromkeys(notes)),
        facts=facts,
        threshold_pct=threshold_pct,
        expected_steps=expected_steps,
    )


# ---------------------------------------------------------------------- trace files


def _trace(recording: Recording, file: str | None, notes: list[str]) -> Trace | None:
    if file is None:
        return None
    try:
        trace = read_trace(Path(recording.directory) / file)
    except InputError as error:
        if recording.mode == "trace":
            raise
        notes.append(f"a trace could not be read: {error}")
        return None
    if trace.damage.any:
        notes.append(f"{file} is damaged: {trace.damage.text}")
    return trace


def _work(
    recording: Recording, trace: Trace | None, kind: int | None, notes: list[str]
) -> Work | None:
    """The traced steps of this kind; None when the trace holds none with device work."""
    if trace is None or recording.trace is None:
        return None
    result = recording.trace
    iterations = find_iterations(trace, result.drop_first, result.kind, kind)
    if iterations is None or not len(iterations.used):
        notes.append("the trace holds no whole step that could be used")
        return None
    work = gather(trace, iterations)
    if not np.isin(work.activity_iteration, iterations.used).any():
        notes.append("the traced steps launched no work on a GPU")
        return None
    return work


def _kind(recording: Recording) -> int | None:
    """The kind of step that is reported: the replayed one, else the most frequent one."""
    kinds = recording.step.kinds if recording.step else ()
    if len(kinds) < 2:
        return None
    if recording.replay is not None and recording.replay.replay_bursts:
        return recording.replay.kind
    return max(range(len(kinds)), key=lambda index: kinds[index].share_pct)


def _profiler_us(recording: Recording) -> float:
    calibration = recording.trace.calibration if recording.trace else None
    return calibration.profiler_us_per_launch if calibration else 0.0


# ---------------------------------------------------------------- joining the parts


def _made_capturable(recording: Recording) -> Optimizer:
    inspected = recording.inspect
    if inspected is None:
        return Optimizer()
    return Optimizer(inspected.uncapturable_tensors, inspected.uncapturable_groups)


def _replay(recording: Recording, work: Work | None, replayed: Trace | None) -> Replay:
    result = recording.replay
    correct = correctness(recording.verify, recording.failures)
    if result is None:
        failed = [failure for failure in recording.failures if failure.name == "replay"]
        if failed:
            return Replay("failed", failed[0].reason, failed[0].where, correct=correct)
        return Replay("skipped", "the replay pass was not run", correct=correct)
    step_scope = recording.step.scope if recording.step else result.scope
    partial = result.scope == "forward_backward" and step_scope == "full_step"
    changes = result.changes
    same = compare_work(work, replayed, changes, without_optimizer=partial)
    return Replay(result.status, result.reason, result.where, result.scope, changes, same, correct)


# ------------------------------------------------------------------ facts and shapes


def _inspected(inspected: InspectResult | None) -> Measured:
    if inspected is None:
        return Measured()
    ops = counted("device_ops_per_step", inspected.device_ops, exact=not inspected.partial)
    signatures = len(set(inspected.signatures)) or None
    metrics: dict[str, Value] = {
        "device_ops_per_step": ops,
        "shape_signatures": exactly("shape_signatures", signatures),
    }
    return Measured(metrics, notes=inspected.notes)


def _shapes(inspected: InspectResult | None) -> Shapes:
    if inspected is None or not inspected.signatures:
        return Shapes(None)
    seen = Counter(inspected.signatures)
    inputs = dict(zip(reversed(inspected.signatures), reversed(inspected.inputs)))
    forwards = dict(zip(inspected.signatures, inspected.forwards))
    return Shapes(
        len(seen) == 1,
        tuple(
            ShapeSignature(count, inputs.get(key, ""), forwards.get(key))
            for key, count in seen.most_common()
        ),
    )


def _facts(recording: Recording) -> Facts:
    """What the recording says by itself, without the trace's rows."""
    inspected, trace = recording.inspect, recording.trace
    facts = Facts(has_pass_failures=bool(recording.failures))
    if trace is not None:
        legacy = -(-trace.legacy_kernels // max(trace.steps, 1))
        facts = replace(facts, side_stream=trace.side_stream, legacy_stream_kernels=legacy)
    if inspected is not None:
        facts = replace(
            facts,
            scheduler_live=inspected.scheduler_live,
            scheduler_where=inspected.scheduler_where,
            optimizer_classes=inspected.optimizer_classes,
            amp_left_out=inspected.partial or None,
        )
    return facts

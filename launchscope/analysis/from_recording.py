"""Recording in, Profile out: reads its traces and joins what each part of the analysis finds."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import repeat
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from launchscope.analysis.launching import with_traced
from launchscope.analysis.profile_builder import ProfileBuilder
from launchscope.analysis.replay_model.gain import (
    Projection,
    TracedSteps,
    measured_loop,
    project_by_subtraction,
    project_from_windows,
    scope_replays,
)
from launchscope.analysis.replay_model.prediction import Optimizer
from launchscope.analysis.replay_model.replay import (
    MeasuredReplay,
    compare_work,
    correctness,
    measured_replay,
    replayed_work,
    with_largest_scope,
)
from launchscope.analysis.replay_model.shapes import padded_replays, project_shapes, shape_replays
from launchscope.analysis.steps.between import blocker_of, of_records
from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.communication import waits_for_ranks
from launchscope.analysis.timeline.lines import op_table
from launchscope.analysis.timeline.work import OnWork, Work, gather
from launchscope.analysis.timing import StepTimes, step_times
from launchscope.errors import InputError
from launchscope.model import (
    Blocker,
    InspectResult,
    Profile,
    Reason,
    Recording,
    Replay,
    ReplayResult,
    ReplayTraceResult,
    Shapes,
    ShapeSignature,
    ShapesResult,
    TraceResult,
)
from launchscope.parser import read_trace
from launchscope.parser.trace import Trace
from launchscope.reason_text import reason_text

_MOST_STEPS_PCT = 50.0  # graphs for fewer say little of what graphs for all steps would give


def build_profile(
    recording: Recording,
    *,
    threshold_pct: float = 15.0,
    expected_steps: int | None = None,
    on_work: OnWork | None = None,
) -> Profile:
    """The Profile of a recording, without a verdict; every metric key present, None if unmeasured.
    `on_work` gets the work of the eager trace, if there is one, as in `profile_of_trace`.

    A note says which of the traces in `recording.directory` cannot be read.
    """
    recording = with_largest_scope(recording)
    builder = ProfileBuilder()
    builder.notes += recording.notes
    kind = _reported_kind(recording)
    shapes = _shapes(recording.inspect)
    times = step_times(recording.timing, kind)
    traced = _traced_steps(builder, recording, kind)
    replays = _read(builder, recording, recording.replay_trace)
    replayed = replayed_work(replays) if replays is not None else None
    compared = _replay(recording, traced.work if traced else None, replayed)
    result, inspected = recording.replay, recording.inspect
    whole_step = recording.step is None or result is None or result.scope == recording.step.scope
    replay = measured_replay(result, whole_step=whole_step)
    # A replay of other work says nothing about this step: the prediction counts instead.
    counted = replay if compared.work.same is not False else None
    loop = measured_loop(recording) if counted is not None and times.steps else None
    if loop is not None:
        times = times.in_windows(loop.eager_ms, loop.eager_step_ms)

    _add_recorded(builder, recording)
    _add_timing(builder, times)
    if result is not None:
        _add_replay(builder, result, replay, times)
    if traced is not None:
        if replay is None:  # else all ranks replayed together
            waits = waits_for_ranks(traced.work, traced.timeline.traced_iteration)
            builder.know(gain_unknown=waits)
            traced = traced if waits is None else replace(traced, predicted=None)
        if on_work is not None:
            on_work(traced.work)
        builder.add_trace(traced, times, timed_untraced=True)
        if (devices := traced.work.devices) > 1:
            builder.notes.append(
                f"the trace holds {devices} devices; figures are of the busiest one"
            )
    excess = builder.facts.busy_exceeds_interval_pct
    if counted is None and excess is not None:
        builder.know(gain_unknown=Reason("trace_contradicts", {"excess_pct": excess}))
    if builder.facts.gain_unknown is None:
        projection = _project(recording, times, counted, traced)
        if projection is not None:
            builder.add_projection(projection)
    tried = recording.replay_shapes or ShapesResult((), 0)
    shape_graphs = () if replay is not None else shape_replays(tried)
    padded, padding_pct = padded_replays(tried)
    compared = _with_shapes(compared, tried)
    one_size = len(tried.padded) == 1 and not tried.growing
    few = one_size or sum(shape.share_pct for shape in shape_graphs or padded) < _MOST_STEPS_PCT
    for graphs in (shape_graphs, padded):
        projection = project_shapes(times, graphs)
        if projection is None:
            continue
        # One size may be too large where several would pay, and few steps say little of the others.
        if not few or projection.removable_pct >= threshold_pct:
            builder.add_projection(projection)
            # Of the mean step: those of the other shapes stay eager.
            kept = 1 - (projection.step_pct or 0.0) / 100
            builder.set("replay_ms", (times.step_ms or 0.0) * kept)
            builder.set("speedup", 1 / kept if kept else None)
    if tried.reason is not None and tried.reason != compared.reason:
        ended = reason_text(tried.reason)
        builder.notes.append(f"the capture of one of the shapes failed: {ended}")
    scopes = scope_replays(recording, times.iteration_ms)
    builder.notes += [
        f"the {failed.name} pass gave no result: {reason_text(failed.reason)}"
        for failed in recording.failures
    ]
    ops = inspected.ops if inspected else ()
    profile = Profile(
        target=recording.target,
        environment=recording.environment,
        mode=recording.mode,
        counting=recording.counting,
        step=recording.step,
        shapes=shapes,
        blockers=_blockers(inspected, recording.replay),
        replay=replace(
            compared, scopes=scopes, shapes=shape_graphs, padded=padded, padding_pct=padding_pct
        ),
        ops=op_table(ops),
        threshold_pct=threshold_pct,
        expected_steps=expected_steps,
        **builder.parts,
    )
    return profile if traced is None else with_traced(profile, traced, ops, replayed)


def _read(
    builder: ProfileBuilder, recording: Recording, result: TraceResult | ReplayTraceResult | None
) -> Trace | None:
    """The trace of a pass; None without one that can be read."""
    if result is None:
        return None
    try:
        trace = read_trace(Path(recording.directory) / result.file)
    except InputError as error:
        builder.notes.append(f"a trace cannot be read: {error}")
        return None
    if trace.damage.any:
        builder.notes.append(f"{result.file} is damaged: {trace.damage.text}")
    return trace


def _traced_steps(
    builder: ProfileBuilder, recording: Recording, kind: int | None
) -> TracedSteps | None:
    """The traced steps of this kind; None when the trace holds none with device work."""
    result = recording.trace
    trace = _read(builder, recording, result)
    if trace is None or result is None:
        return None
    iterations = find_iterations(trace, result.drop_first, result.kind, kind)
    if iterations is None or not len(iterations.used):
        builder.notes.append("the trace holds no whole step that can be used")
        return None
    work = gather(trace, iterations)
    if not np.isin(work.activity_iteration, iterations.used).any():
        builder.notes.append("the traced steps launched no work on a GPU")
        return None
    calibration = result.calibration
    profiler_us = calibration.profiler_us_per_launch if calibration else 0.0
    return TracedSteps.of(work, Optimizer.of(recording.inspect), profiler_us)


def _reported_kind(recording: Recording) -> int | None:
    """The kind of step to report: the replayed one, else the most frequent one; None for all."""
    kinds = recording.step.kinds if recording.step else ()
    shapes = recording.replay_shapes
    if len(kinds) < 2 or (shapes and (shapes.shapes or shapes.padded)):  # those weigh all of them
        return None
    if recording.replay is not None and recording.replay.replay_bursts:
        return recording.replay.kind
    return max(range(len(kinds)), key=lambda index: kinds[index].share_pct)


def _add_recorded(builder: ProfileBuilder, recording: Recording) -> None:
    """What the recording says by itself, without the rows of a trace."""
    inspected, trace = recording.inspect, recording.trace
    builder.know(
        has_pass_failures=bool(recording.failures),
        needs_legacy_stream=recording.needs_legacy_stream or None,
    )
    if trace is not None:
        legacy = -(-trace.legacy_kernels // max(trace.steps, 1))
        builder.know(side_stream=trace.side_stream, legacy_stream_kernels=legacy)
    if inspected is not None:
        builder.know(
            scheduler_live=inspected.scheduler_live,
            scheduler_where=inspected.scheduler_where,
            optimizer_classes=inspected.optimizer_classes,
            lacks_capturable=inspected.uncapturable_groups > 0,
            skipped_graphs=inspected.skipped_graphs,
            amp_left_out=inspected.partial or None,
            unused_gpu=inspected.unused_gpu,
            blocker_ranges=_blocker_ranges(inspected),
        )
        builder.count("device_ops_per_step", inspected.device_ops, exact=not inspected.partial)
        if inspected.graph_breaks is not None:
            builder.set("graph_breaks", inspected.graph_breaks, exact=True)
        if inspected.signatures:
            builder.set("shape_signatures", len(set(inspected.signatures)), exact=True)
        if inspected.copies:
            builder.count("memcpys_per_step", inspected.copies)
        builder.add_between(of_records(inspected.between, on_gpu=recording.mode != "rehearsal"))
        builder.notes += inspected.notes


def _add_timing(builder: ProfileBuilder, times: StepTimes) -> None:
    builder.add_times(times)
    builder.know(
        timing_steps=times.steps or None,
        iteration_check_pct=times.wall_check_pct,
        loader_ms=times.loading_ms or None,
        loader_workers=times.loader_workers or None,
    )


def _add_replay(
    builder: ProfileBuilder,
    result: ReplayResult,
    replay: MeasuredReplay | None,
    times: StepTimes,
) -> None:
    """What the replay pass measured. `speedup` is against the step of the timing pass; without
    one, and for a part of the step, against the eager bursts between the replays."""
    builder.set("capture_ms", result.capture_ms)
    builder.set("instantiate_ms", result.instantiate_ms)
    builder.set("graph_nodes", result.graph_nodes, exact=result.graph_nodes is not None)
    builder.set("graph_memory_mib", result.graph_memory_mib)
    builder.sample("host_replay_us", result.host_replay_us)
    if replay is None:
        return
    builder.sample("replay_ms", replay.replay_ms)
    eager = times.step_ms if replay.whole_step else None
    eager = replay.eager if eager is None else eager
    if eager is not None and replay.ms > 0:
        builder.set("speedup", eager / replay.ms)


def _project(
    recording: Recording,
    times: StepTimes,
    replay: MeasuredReplay | None,
    traced: TracedSteps | None,
) -> Projection | None:
    """The iteration with the measured replay, in the script's own loop where that ran, or else with
    the replay that the trace predicts."""
    between = 0.0 if traced is None else traced.timeline.busy_between_ms
    loop = measured_loop(recording)
    if replay is not None and loop is not None:
        return project_from_windows(loop, recording.inspect, times, replay, between)
    timed = replay or (traced.predicted if traced is not None else None)
    if timed is None:
        return None
    waits_between = traced is not None and traced.accounts.syncs_between.any()
    return project_by_subtraction(times, timed, between, overlaps=not waits_between)


def _replay(recording: Recording, eager: Work | None, replayed: Work | None) -> Replay:
    """What the replay, replay_trace and verify passes say of the replay, without its times."""
    result = recording.replay
    correct = correctness(recording.verify, recording.failures, recording.inspect)
    if result is None:
        for failure in recording.failures:
            if failure.name == "replay":
                return Replay("failed", failure.reason, failure.where, correct=correct)
        return Replay("skipped", Reason("not_run"), correct=correct)
    step_scope = recording.step.scope if recording.step else result.scope
    partial = result.scope == "forward_backward" and step_scope == "full_step"
    # Other flags have other kernels.
    reference = None if result.changes else eager
    work = compare_work(reference, replayed, without_optimizer=partial)
    return Replay(
        result.status, result.reason, result.where, result.scope, result.changes, work, correct
    )


def _with_shapes(replay: Replay, tried: ShapesResult) -> Replay:
    """What the replays of several shapes say where blocking operations prevent one of all steps."""
    if replay.status != "blocked":
        return replay
    if not (tried.shapes or tried.padded):
        return replace(replay, reason=tried.reason or replay.reason)
    if not tried.stubbed:
        return replace(replay, status="measured", reason=Reason("blockers_skipped"))
    return replace(
        replay, status="what_if", reason=Reason("blockers_stubbed", {"count": tried.stubbed})
    )


def _shapes(inspected: InspectResult | None) -> Shapes:
    if inspected is None or not inspected.signatures:
        return Shapes(None)
    seen = Counter(inspected.signatures)
    inputs = dict(zip(reversed(inspected.signatures), reversed(inspected.inputs)))
    forwards = dict(zip(inspected.signatures, inspected.forwards))
    signatures = (
        ShapeSignature(count, inputs.get(key, ()), forwards.get(key))
        for key, count in seen.most_common()
    )
    return Shapes(len(seen) == 1, tuple(signatures))


def _blocker_ranges(inspected: InspectResult) -> dict[str, tuple[int, int]] | None:
    """The fewest and the most of a step by op, where the steps differ."""
    steps = range(max(inspected.steps, 1))
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0 for _ in steps])
    most: Counter[str] = Counter()
    for record in inspected.blockers:
        most[record.op] += record.count
        for step, count in zip(steps, record.by_step or repeat(record.count)):
            counts[record.op][step] += count
    ranges = {op: (min(of_steps), most[op]) for op, of_steps in counts.items()}
    return {op: found for op, found in ranges.items() if found[0] != found[1]} or None


def _blockers(inspected: InspectResult | None, replay: ReplayResult | None) -> tuple[Blocker, ...]:
    """The blockers in the order in which they occur; a line that blocks in several parts of a step
    is one. What ended the capture comes last."""
    counts: Counter[Blocker] = Counter()
    for record in inspected.blockers if inspected is not None else ():
        counts[blocker_of(record)] += record.count
    if replay is not None and replay.refused is not None:
        counts[blocker_of(replay.refused)] += replay.refused.count
    return tuple(replace(blocker, count=count) for blocker, count in counts.items())

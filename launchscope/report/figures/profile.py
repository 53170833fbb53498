"""The figures of a Profile, and the numbers that a reader looks for first."""

from __future__ import annotations

from collections.abc import Iterator

from launchscope.model import Profile, Timelines
from launchscope.report.documents.profile import is_total, iteration_parts, stretched_trace
from launchscope.report.figures import Figure, Parts, ranks, stack_figure
from launchscope.report.figures.timeline import Drawn, timeline


def _replayed(profile: Profile) -> str:
    """What the replay holds: `step`, or `forward and backward` where the rest of it stays eager."""
    scope, step = profile.replay.scope, profile.step
    is_part = step is not None and scope in ("forward", "forward_backward") and scope != step.scope
    return str(scope).replace("_", " and ") if is_part else "step"


def of_profile(profile: Profile) -> Iterator[Figure]:
    if profile.timelines is not None:
        yield _timeline(profile.timelines, profile)
    yield from _stack(profile)
    if profile.ranks is not None:
        yield from ranks.of_ranks(profile.ranks)


def _timeline(found: Timelines, profile: Profile) -> Figure:
    steps = {"Eager": found.eager} | ({"Replayed": found.replay} if found.replay else {})
    drawn = []
    for name, step in steps.items():
        of_step = step.what == "step"
        title = f"{name} {_replayed(profile) if of_step else step.what}"
        timed = profile.value("replay_ms" if of_step else "iteration_ms")
        # A trace alone holds no times without a profiler.
        drawn.append(Drawn(step, title, timed if profile.mode == "gpu" else None))
    return timeline("Timeline", found.labels, drawn)


def _stack(profile: Profile) -> Iterator[Figure]:
    """The iteration's parts, eager and with the replay, as bars of one scale."""
    iteration, replayed = profile.value("iteration_ms"), profile.value("replayed_iteration_ms")
    if not iteration or profile.value("iteration_busy_ms") is None:
        return
    parts = list(iteration_parts(profile, split=True))
    if stretched_trace(profile):
        parts = [("unattributed", "parts not known", iteration)]
    bars: list[tuple[str, Parts, float]] = [("eager", parts, iteration)]
    if replayed:
        is_predicted = profile.iteration_source == "predicted"
        replay = profile.value("predicted_replay_ms" if is_predicted else "replay_ms")
        inside = min(replay or 0.0, replayed)
        part = "step" if is_predicted else _replayed(profile)
        rest = [
            ("replay", f"{part} replayed", inside),
            ("rest", "rest of the iteration", replayed - inside),
        ]
        bars.append(("replayed", rest, replayed))
    whole = "the whole span" if is_total(profile) else "an iteration"
    yield stack_figure(f"Where {whole} goes", bars)

"""Steps on a timeline: host lanes, streams, and idle time by its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from launchscope.model import Label, LaneKind, StepTimeline
from launchscope.report.documents.labels import CAUSES
from launchscope.report.figures import Figure
from launchscope.report.kernel_names import short_name
from launchscope.wording import installed, ms, plural

LANES: dict[LaneKind, str] = {
    "range": "ranges",
    "operator": "operators",
    "launch": "launch calls",
    "sync": "waits",
    "gpu": "stream",
    "idle": "GPU",
    "other": "GPU",
}
_HOST_LANES: tuple[LaneKind, ...] = ("range", "operator", "launch", "sync")
_NOTE = (
    "What shares a pixel is stacked, each by its share of the time. The profiler stretches the "
    "host's time. Inside a gap, causes are sorted by kind: their order in time is not known."
)


class Drawn(Struct, frozen=True):
    """A step with its title, and the ms that it takes without a profiler."""

    step: StepTimeline
    title: str
    timed: float | None = None


def timeline(heading: str, labels: Sequence[Label], drawn: Sequence[Drawn]) -> Figure:
    """The steps at one scale."""
    threads = dict.fromkeys(
        lane.number for one in drawn for lane in one.step.lanes if lane.kind in _HOST_LANES
    )
    names = {number: f"thread {at}" for at, number in enumerate(threads, 1)}
    steps = [_step(one, names) for one in drawn]
    data = {"labels": list(map(_label, labels)), "causes": CAUSES, "steps": steps}
    text = " ".join(f"{step['title']}: {step['summary']}." for step in steps)
    return Figure("timeline", heading, data, text, _note([one.step for one in drawn]))


def _label(label: Label) -> list[str]:
    return [label.name, label.kind, short_name(label.name) if label.kind == "kernel" else ""]


def _note(steps: Sequence[StepTimeline]) -> str:
    note = f"Both at the same scale. {_NOTE}" if len(steps) > 1 else _NOTE
    if merged := max(step.merged_below_ns or 0 for step in steps):
        note += f" Neighbors shorter than {ms(merged / 1e6)} are drawn as one."
    if left := sum(step.lanes_left_out for step in steps):
        note += (
            f" {plural(left, 'lane')} with little activity {'is' if left == 1 else 'are'} left out."
        )
    return note


def _step(drawn: Drawn, threads: Mapping[int | None, str]) -> dict[str, Any]:
    step = drawn.step
    window = step.busy_ns + sum(part.ns for part in step.idle)
    shares = [f"GPU busy {ms(step.busy_ns / 1e6)} of {ms(window / 1e6)}"]
    largest = sorted(step.idle, key=lambda part: -part.ns)[:3]
    shares += [f"{CAUSES[part.cause]} {ms(part.ns / 1e6)}" for part in largest]
    measured = f", {ms(drawn.timed)} timed without it" if drawn.timed else ""
    return {
        "title": drawn.title,
        "length": f"{ms(window / 1e6)} with the profiler{measured}",
        "summary": ", ".join(shares),
        "duration": step.duration_ns,
        "gpu": step.gpu_begin_ns,
        "sources": [[installed(s.line), s.module, installed(s.forward)] for s in step.sources],
        "lanes": [
            {
                "kind": lane.kind,
                "name": LANES[lane.kind],
                "of": f" {lane.number}" if lane.kind == "gpu" else threads.get(lane.number, ""),
                "start": lane.start_ns,
                "duration": lane.duration_ns,
                "label": lane.label,
                "count": lane.count,
                "launch": lane.launch,
                "source": lane.source,
            }
            for lane in step.lanes
        ],
    }

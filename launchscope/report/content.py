"""What a report for people says, apart from how it looks: plain rows and sentences.

Terminal, Markdown and later formats lay out the same Content, so that they agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from launchscope.model import Finding, Metric, Profile, step_summary
from launchscope.rules.profile_queries import gain
from launchscope.wording import (
    NOT_MEASURED,
    decimals,
    figures,
    fixed,
    ms,
    pct,
    place,
    plural,
    times,
    with_unit,
)

_BADGES = {
    "adopt": "ADOPT",
    "adopt_after_fixes": "ADOPT AFTER FIXES",
    "adopt_bucketed": "ADOPT, ONE GRAPH PER SHAPE",
    "already_graphed": "ALREADY GRAPHED",
    "stay_eager": "STAY EAGER",
    "unsafe": "UNSAFE",
    "inconclusive": "INCONCLUSIVE",
}
_BASES = {
    "measured": "replay measured in place",
    "what_if": "replay measured with its blockers stubbed",
    "predicted": "replay predicted from the trace",
    "structural": "structure only, nothing timed",
}
_PARTS = (
    ("GPU busy", "iteration_busy_ms"),
    ("launch overhead", "launch_overhead_ms"),
    ("synchronisation", "sync_wait_ms"),
    ("data loading", "data_wait_ms"),
    ("between queued kernels", "dispatch_gap_ms"),
    ("not attributed", "unattributed_ms"),
)
_SCOPES = {"forward_backward": "forward and backward", "forward": "forward"}
# Smaller parts of the iteration are not listed.
_SMALLEST_PART = 0.005
_ORDER = {"error": 0, "warning": 1, "advice": 2, "info": 3}


@dataclass(frozen=True)
class Row:
    """A line of the table eager against replay."""

    label: str
    eager: str
    replay: str = ""
    change: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the iteration: its duration, and its share in per cent of the iteration."""

    label: str
    duration: str
    share_pct: float

    @property
    def measured(self) -> bool:
        return self.duration != NOT_MEASURED


@dataclass(frozen=True)
class KernelLine:
    name: str
    count: str
    total: str
    share: str
    where: str


@dataclass(frozen=True)
class Content:
    title: str
    badge: str
    headline: str
    basis: str
    context: tuple[str, ...]
    why: tuple[Finding, ...]
    rows: tuple[Row, ...]
    replay_heading: str
    iteration: str
    parts: tuple[Part, ...]
    costs: tuple[tuple[str, str], ...]
    changes: tuple[Finding, ...]
    instructions: tuple[str, ...]
    kernel_heading: str
    kernels: tuple[KernelLine, ...]
    kernels_left: int
    notes: tuple[str, ...]
    next: tuple[str, ...]


def content_of(profile: Profile, *, top: int = 8, next_commands: tuple[str, ...] = ()) -> Content:
    """Everything a report shows of a Profile. `top` bounds the kernels."""
    verdict = profile.verdict
    because = verdict.because if verdict is not None else ()
    rank = {code: i for i, code in enumerate(because)}
    ordered = sorted(
        profile.findings,
        key=lambda f: (_ORDER[f.severity], rank.get(f.code, len(rank))),
    )
    return Content(
        title=" ".join((profile.target.name, *profile.target.args)),
        badge=_BADGES[verdict.recommendation] if verdict is not None else "NO VERDICT",
        headline=verdict.headline if verdict is not None else "The rules were not applied.",
        basis=_basis(profile),
        context=_context(profile),
        why=tuple(f for f in ordered if f.severity == "info"),
        rows=_rows(profile),
        replay_heading={"what_if": "replay (what if)", "predicted": "replay (predicted)"}.get(
            verdict.basis if verdict is not None else "", "replay"
        ),
        iteration=with_unit(profile.metrics.get("iteration_ms")),
        parts=_parts(profile),
        costs=_costs(profile),
        changes=tuple(f for f in ordered if f.severity != "info"),
        instructions=verdict.instructions if verdict is not None else (),
        kernel_heading="Top kernels, in all" if _is_total(profile) else "Top kernels of a step",
        kernels=_kernels(profile, top),
        kernels_left=max(0, len(profile.kernels) - top),
        notes=profile.notes,
        next=next_commands,
    )


def _basis(profile: Profile) -> str:
    verdict = profile.verdict
    if verdict is None:
        return ""
    parts = [_BASES[verdict.basis]]
    if verdict.basis == "structural" and profile.mode != "rehearsal":
        parts = ["no replay measured, none predicted"]
    if profile.replay.status == "measured":
        correct = profile.replay.correct
        if correct.status == "verified":
            floor = correct.max_update_diff
            batches = plural(correct.steps, "batch")
            difference = "" if floor is None else f", largest difference {floor:.0e}"
            if floor == 0:
                difference = ", to the last bit"
            parts.append(f"result equal to eager's over {batches}{difference}")
        elif correct.status == "different":
            parts.append("result differs from eager's")
        else:
            parts.append("result not checked")
    parts.append(f"confidence {verdict.confidence}")
    return " · ".join(parts)


def _context(profile: Profile) -> tuple[str, ...]:
    environment = profile.environment
    machine = [environment.device or "no CUDA device"]
    named = (("PyTorch", environment.torch), ("CUDA", environment.cuda))
    machine += [f"{name} {version}" for name, version in named if version]
    if environment.driver:
        machine.append(f"driver {environment.driver}")
    if environment.world_size > 1:
        machine.append(f"{environment.world_size} ranks")
    lines = [" · ".join(machine)]
    step = profile.step
    if step is not None:
        said = step_summary(step)
        if step.source:
            said += f" · from {place(step.source)}"
        timed = profile.metrics.get("iteration_ms")
        if timed is not None and timed.samples:
            count = len(timed.samples)
            said += f" · {count} iteration{'' if count == 1 else 's'}"
        lines.append(said)
    return tuple(lines)


def _is_total(profile: Profile) -> bool:
    """Whether figures are totals over a trace in which no step was found, or asked for."""
    return profile.step is not None and profile.step.boundary == "none"


def _is_part(profile: Profile) -> bool:
    """Whether what was replayed is a part of the step: a row of its own holds its times."""
    replay, step = profile.replay, profile.step
    measured = replay.status in ("measured", "what_if")
    return measured and step is not None and replay.scope not in (None, step.scope)


def _rows(profile: Profile) -> tuple[Row, ...]:
    metrics = profile.metrics
    if profile.mode == "rehearsal":
        ops = metrics.get("device_ops_per_step")
        shapes = metrics.get("shape_signatures")
        return (
            Row("device operations per step", with_unit(ops)),
            Row("op-stream signatures", with_unit(shapes)),
        )
    verdict = profile.verdict
    predicted = verdict is not None and verdict.basis == "predicted"
    part = _is_part(profile)
    replayed = profile.value("replay_ms") is not None and not predicted and not part
    replay = metrics.get("replay_ms" if replayed else "predicted_replay_ms")
    projected = metrics.get("projected_iteration_ms")
    rows = [
        Row(
            "step",
            with_unit(metrics.get("step_ms")),
            "" if part else with_unit(replay),
            ""
            if part
            else _ratio(verdict.speedup if verdict is not None else profile.value("speedup")),
        ),
        Row(
            "iteration",
            with_unit(metrics.get("iteration_ms")),
            with_unit(projected),
            _ratio(profile.value("iteration_speedup")),
        ),
    ]
    rows[1:1] = [
        Row(
            f"  {_SCOPES.get(scope.scope, scope.scope)} alone",
            ms(scope.eager_ms),
            ms(scope.replay_ms),
            times(scope.eager_ms / scope.replay_ms),
        )
        for scope in profile.replay.scopes
        if scope.eager_ms and scope.replay_ms
    ]
    if profile.value("step_p95_ms") is not None:
        rows.insert(1, Row("step, 95th percentile", with_unit(metrics.get("step_p95_ms"))))
    host = metrics.get("host_ms")
    rows += [
        Row(
            "host time of the step",
            with_unit(host),
            _host_replay(profile) if replayed else "",
        ),
        Row("GPU busy in the step", with_unit(metrics.get("gpu_busy_ms"))),
        Row(
            "launches per step",
            with_unit(metrics.get("launches_per_step")),
            "1" if replayed else "",
        ),
        Row("time in launch calls", with_unit(metrics.get("launch_share_pct"))),
        Row("exposed launch overhead", with_unit(metrics.get("launch_overhead_pct"))),
        Row("synchronisations per step", with_unit(metrics.get("syncs_per_step"))),
    ]
    if profile.mode == "trace" or predicted:
        rows += _bounds(profile)
    if profile.mode == "trace":
        rows += [
            Row(
                "queue delay, median",
                with_unit(metrics.get("queue_delay_us"), spread=False),
            ),
            Row("launch to kernel (TKLQT)", with_unit(metrics.get("tklqt_ms"), spread=False)),
            Row("device share (HDBI)", with_unit(metrics.get("hdbi"))),
        ]
    if not _is_total(profile):
        return tuple(rows)
    return tuple(_of_span(row) for row in rows if not row.label.startswith("step"))


def _bounds(profile: Profile) -> list[Row]:
    """What is predicted lies between bounds, and a prediction without them says little."""
    rows = []
    replay = profile.metrics.get("predicted_replay_ms")
    if replay is not None and replay.low is not None and replay.high is not None:
        shown = _range(ms(replay.low), ms(replay.high))
        rows.append(Row("replay, bounds", "", shown))
    found = gain(profile)  # the verdict's bounds, the error of the simulation in them
    if found is not None:
        shown = _range(pct(found.low_pct), pct(found.high_pct))
        rows.append(Row("removed, bounds", "", shown))
    return rows


def _range(low: str, high: str) -> str:
    """`76 to 89 %`: the unit once where both have it."""
    (one, _, unit), (_, _, other) = low.partition(" "), high.partition(" ")
    return f"{one if unit == other else low} to {high}"


_TOTALS = {
    "iteration": "whole span",
    "host time of the step": "host time",
    "GPU busy in the step": "GPU busy",
    "launches per step": "launches",
    "synchronisations per step": "synchronisations",
}


def _of_span(row: Row) -> Row:
    return replace(row, label=_TOTALS.get(row.label, row.label))


def _host_replay(profile: Profile) -> str:
    """In ms, to stand beside eager's."""
    value = profile.value("host_replay_us")
    return "" if value is None else ms(value / 1000.0)


def _ratio(value: float | None) -> str:
    return "" if value is None else times(value)


def _parts(profile: Profile) -> tuple[Part, ...]:
    """Where the iteration goes; empty unless busy time and iteration are known."""
    iteration = profile.value("iteration_ms")
    if not iteration or profile.value("iteration_busy_ms") is None:
        return ()
    parts = []
    for label, key in _PARTS:
        value = profile.value(key)
        if value is None:
            parts.append(Part(label, NOT_MEASURED, 0.0))
        elif abs(value) >= _SMALLEST_PART * iteration or key == "iteration_busy_ms":
            duration = f"{fixed(value, max(0, decimals(iteration, 3)))} ms"
            parts.append(Part(label, duration, 100.0 * value / iteration))
    return tuple(parts)


def _costs(profile: Profile) -> tuple[tuple[str, str], ...]:
    metrics = profile.metrics
    known = (
        ("capture", "capture_ms"),
        ("instantiation", "instantiate_ms"),
        ("pays back after", "break_even_steps"),
        ("GPU memory held by the graph", "graph_memory_mib"),
        ("graph nodes", "graph_nodes"),
    )
    return tuple(
        (label, _cost(metrics[key]))
        for label, key in known
        if key in metrics and metrics[key].value is not None
    )


def _cost(metric: Metric) -> str:
    if metric.unit == "steps" and metric.value is not None:
        steps = max(1, -int(-float(metric.value) // 1))
        return f"{steps:,} step{'' if steps == 1 else 's'}"
    return with_unit(metric, spread=False)


def _kernels(profile: Profile, top: int) -> tuple[KernelLine, ...]:
    total = sum(kernel.total_us for kernel in profile.kernels)
    ordered = sorted(profile.kernels, key=lambda kernel: -kernel.total_us)
    return tuple(
        KernelLine(
            name=short_kernel(kernel.name),
            count=f"{kernel.count:,.0f}"
            if float(kernel.count).is_integer()
            else figures(kernel.count),
            total=f"{figures(kernel.total_us)} us",
            share=pct(100.0 * kernel.total_us / total) if total else "",
            where=place(kernel.where) if kernel.where else "",
        )
        for kernel in ordered[:top]
    )


def short_kernel(name: str) -> str:
    """A kernel's name without what all of PyTorch's begin with."""
    for noise in ("void ", "at::native::", "(anonymous namespace)::", "at::cuda::detail::"):
        name = name.replace(noise, "")
    return name

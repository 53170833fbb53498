"""The section on shapes that vary: how often each size was seen, and the buckets to pad to."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope import wording
from launchscope.model import Bucket, BucketPlan, Comparison

_BARS = 12  # a histogram of more sizes is told in ranges


@dataclass(frozen=True)
class Bar:
    label: str
    steps: int
    share_pct: float


@dataclass(frozen=True)
class BucketSection:
    title: str
    headline: str
    histogram: tuple[Bar, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def bucket_sections(comparison: Comparison) -> tuple[BucketSection, ...]:
    return tuple(_section(plan, comparison.headline) for plan in comparison.buckets)


def _section(plan: BucketPlan, told: str) -> BucketSection:
    named = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in plan.parameters.items())
    memory = any(bucket.memory_mib is not None for bucket in plan.buckets)
    rows = tuple(
        (
            f"{bucket.low} to {bucket.high}" if bucket.low != bucket.high else str(bucket.high),
            str(bucket.high),
            str(bucket.steps),
            wording.pct(100 * bucket.steps / plan.observed_steps),
            wording.figures(bucket.replay_ms),
            *([_memory(bucket)] if memory else []),
        )
        for bucket in plan.buckets
    )
    headings = ("sizes", "padded to", "steps", "share", "replay, ms")
    return BucketSection(
        "Shapes that vary" + (f", {named}" if named else ""),
        "" if plan.headline == told else plan.headline,
        _histogram(plan),
        (*headings, "memory") if memory else headings,
        rows,
        _facts(plan),
        (*plan.phases, *plan.notes),
    )


def _memory(bucket: Bucket) -> str:
    return wording.NOT_MEASURED if bucket.memory_mib is None else wording.mib(bucket.memory_mib)


def _facts(plan: BucketPlan) -> tuple[tuple[str, str], ...]:
    known = (
        ("iteration, eager", plan.eager_ms, wording.ms),
        ("iteration with the plan, predicted", plan.planned_ms, wording.ms),
        ("with a graph for every size, predicted", plan.exact_ms, wording.ms),
        ("removed by the plan, predicted", plan.removable_pct, wording.pct),
        ("steps that run a graph", plan.covered_pct, wording.pct),
        ("padding in those", plan.padding_pct, wording.pct),
    )
    facts = [(label, text(value)) for label, value, text in known if value is not None]
    if plan.buckets and plan.kind == "padded":
        memory = plan.memory_mib
        shown = wording.NOT_MEASURED if memory is None else f"{wording.figures(memory)} MiB"
        if plan.memory_limit_mib is not None and memory is not None:
            shown += f" of {plan.memory_limit_mib:,.0f} MiB"
        facts.append(("memory of the graphs, predicted", shown))
    return tuple(facts)


def _histogram(plan: BucketPlan) -> tuple[Bar, ...]:
    total = max(1, plan.observed_steps)
    sized = [count for count in plan.sizes if count.size is not None]
    if len(sized) == len(plan.sizes) and len(sized) > _BARS:
        low = min(count.size or 0 for count in sized)
        high = max(count.size or 0 for count in sized)
        width = -(-(high - low + 1) // _BARS)
        bars = []
        for start in range(low, high + 1, width):
            end = min(start + width - 1, high)
            steps = sum(c.steps for c in sized if c.size is not None and start <= c.size <= end)
            label = f"{start} to {end}" if start != end else str(start)
            bars.append(Bar(label, steps, 100 * steps / total))
        return tuple(bars)
    ordered = sorted(plan.sizes, key=lambda count: (count.size is None, count.size, -count.steps))
    shown = ordered[:_BARS]
    bars = [
        Bar(c.inputs if c.size is None else str(c.size), c.steps, 100 * c.steps / total)
        for c in shown
    ]
    rest = sum(count.steps for count in ordered[_BARS:])
    if rest:
        bars.append(Bar(f"{len(ordered) - _BARS} more", rest, 100 * rest / total))
    return tuple(bars)

"""The section on varying shapes: how often each size was seen, and the buckets to pad to."""

from __future__ import annotations

from launchscope.model import Bucket, BucketPlan, SizeCount
from launchscope.report.document import (
    Bar,
    Bars,
    Block,
    Column,
    Items,
    Paragraph,
    Section,
    Table,
    facts,
)
from launchscope.report.documents.labels import titled
from launchscope.wording import NOT_MEASURED, figures, mib, ms, pct, shapes

_MOST_BARS = 12  # more sizes are shown as ranges


def bucket_section(plan: BucketPlan, *, has_headline: bool) -> Section:
    """Sizes, buckets and what they give, below the plan's headline if it `has_headline`."""
    blocks: list[Block] = [Paragraph(plan.headline)] if has_headline else []
    if bars := _histogram(plan):
        blocks.append(Bars(("size", "steps"), bars))
    if plan.buckets:
        blocks.append(_buckets(plan))
    if known := _facts(plan):
        blocks.append(facts(known))
    if notes := (*plan.phases, *plan.notes):
        blocks.append(Items(notes))
    return Section(titled("Varying input shapes", plan.parameters), tuple(blocks))


def _buckets(plan: BucketPlan) -> Table:
    known = any(bucket.memory_mib is not None for bucket in plan.buckets)

    def memory(bucket: Bucket) -> str | None:
        if bucket.memory_mib is None:
            return None if known else ""
        return f"{figures(bucket.memory_mib)} MiB"

    return Table.of(
        plan.buckets,
        (Column("sizes"), lambda bucket: _span(bucket.low, bucket.high)),
        (Column("padded to"), lambda bucket: str(bucket.high)),
        (Column("steps"), lambda bucket: str(bucket.steps)),
        (Column("share"), lambda bucket: pct(100 * bucket.steps / plan.observed_steps)),
        (Column("replay"), lambda bucket: ms(bucket.replay_ms)),
        (Column("memory"), memory),
    )


def _span(low: int, high: int) -> str:
    return f"{low} to {high}" if low != high else str(high)


def _facts(plan: BucketPlan) -> list[tuple[str, str]]:
    known = (
        ("iteration, eager", plan.eager_ms, ms),
        ("iteration with the plan, predicted", plan.planned_ms, ms),
        ("iteration with a graph for every size, predicted", plan.exact_ms, ms),
        ("removed by the plan, predicted", plan.removable_pct, pct),
        ("steps that replay a graph", plan.covered_pct, pct),
        ("padding in those steps", plan.padding_pct, pct),
    )
    found = [(label, text(value)) for label, value, text in known if value is not None]
    if plan.buckets and plan.kind == "padded":
        memory = NOT_MEASURED if plan.memory_mib is None else mib(plan.memory_mib)
        limit = "" if plan.memory_limit_mib is None else f" of {mib(plan.memory_limit_mib)}"
        found.append(("memory of the graphs, predicted", f"{memory}{limit}"))
    return found


def _histogram(plan: BucketPlan) -> tuple[Bar, ...]:
    """A bar for each size or, of many sizes, for each range of them."""
    total = max(1, plan.observed_steps)

    def bar(label: str, counted: list[SizeCount]) -> Bar:
        steps = sum(count.steps for count in counted)
        return Bar(label, str(steps), 100 * steps / total)

    sized = [(count.size, count) for count in plan.sizes if count.size is not None]
    if len(sized) == len(plan.sizes) > _MOST_BARS:
        low, high = min(size for size, _ in sized), max(size for size, _ in sized)
        width = -(-(high - low + 1) // _MOST_BARS)
        starts = range(low, high + 1, width)
        return tuple(
            bar(
                _span(start, min(start + width - 1, high)),
                [count for size, count in sized if start <= size < start + width],
            )
            for start in starts
        )
    ordered = sorted(plan.sizes, key=lambda count: (count.size is None, count.size, -count.steps))
    bars = [
        bar(shapes(count.inputs) if count.size is None else str(count.size), [count])
        for count in ordered[:_MOST_BARS]
    ]
    if left := ordered[_MOST_BARS:]:
        bars.append(bar(f"{len(left)} more", left))
    return tuple(bars)

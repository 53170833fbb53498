"""What a bucket plan comes to: its recommendation and the sentence that says it."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import BucketPlan
from launchscope.wording import ms, pct, plural


def advised(plan: BucketPlan, threshold_pct: float) -> BucketPlan:
    """The plan with its recommendation: buckets where they remove the threshold's share or more."""
    if plan.kind == "unplanned":
        shapes = len(plan.sizes)
        return replace(
            plan,
            headline=f"No bucket plan: {plural(shapes, 'different shape')} in "
            f"{plural(plan.observed_steps, 'step')}, and more than one dimension varies.",
        )
    if plan.removable_pct is None or plan.eager_ms is None or plan.planned_ms is None:
        return replace(plan, headline=_unknown(plan))
    pays = plan.removable_pct >= threshold_pct and bool(plan.buckets)
    return replace(
        plan,
        recommendation="adopt_bucketed" if pays else "stay_eager",
        headline=_growing(plan, pays) if plan.kind == "growing" else _padded(plan, pays),
    )


def _unknown(plan: BucketPlan) -> str:
    low, high = plan.sizes[0].size, plan.sizes[-1].size
    if plan.kind == "growing":
        return (
            f"Inputs grow by one from step to step ({plan.dimension}, {low} to {high}), as in "
            "generation with a growing cache: a static cache of the longest length makes them "
            "one shape. What that gains was not measured."
        )
    return (
        f"{len(plan.sizes)} sizes between {low} and {high} in "
        f"{plural(plan.observed_steps, 'step')} ({plan.dimension}); which buckets pay was not "
        "measured."
    )


def _growing(plan: BucketPlan, pays: bool) -> str:
    high = plan.sizes[-1].size
    assert plan.removable_pct is not None
    lacking = _lacking(plan)
    if lacking:
        return (
            "Stay eager: inputs grow by one from step to step, as in generation with a growing "
            f"cache, and the graph of a static cache of {high} needs {lacking}."
        )
    if not pays:
        return (
            "Stay eager: inputs grow by one from step to step, as in generation with a growing "
            f"cache, and a static cache of {high} would take {pct(max(0.0, plan.removable_pct))} "
            "off the decode."
        )
    return (
        "Use a static cache: inputs grow by one from step to step, as in generation with a "
        f"growing cache. Preallocated to {high}, the longest seen, with the rest masked, one graph "
        f"serves every decode step and is predicted to take {pct(plan.removable_pct)} off it, "
        f"from {ms(plan.eager_ms or 0)} to {ms(plan.planned_ms or 0)}."
    )


def _lacking(plan: BucketPlan) -> str | None:
    """What a graph needs that may not be had; None if one fits."""
    limit, needed = plan.memory_limit_mib, plan.memory_mib
    if plan.buckets or limit is None or needed is None or needed <= limit:
        return None
    return f"{needed:,.3g} MiB, more than the {limit:,.0f} MiB that graphs may hold"


def _padded(plan: BucketPlan, pays: bool) -> str:
    assert plan.removable_pct is not None
    lacking = _lacking(plan)
    if lacking:
        seen = len(plan.sizes)
        return f"Stay eager: {seen} sizes were seen, and the smallest graph needs {lacking}."
    if not plan.buckets:
        limit = plan.memory_limit_mib
        within = "" if limit is None else f" within {limit:,.0f} MiB"
        return (
            f"Stay eager: {len(plan.sizes)} sizes were seen, and no set of padded sizes{within} is "
            "faster than eager."
        )
    edges = ", ".join(str(bucket.high) for bucket in plan.buckets)
    graphs = plural(len(plan.buckets), "graph")
    gain = (
        f"{pct(plan.removable_pct)} off the iteration, from {ms(plan.eager_ms or 0)} to "
        f"{ms(plan.planned_ms or 0)}"
    )
    if pays:
        return (
            f"Pad to {edges} and capture {graphs}: predicted to take {gain}, over "
            f"{pct(plan.covered_pct or 0)} of the steps."
        )
    return (
        f"Stay eager: {graphs}, padded to {edges}, would take {gain}, which is under your "
        "threshold."
    )

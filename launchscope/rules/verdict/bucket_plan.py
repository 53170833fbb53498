"""What a bucket plan comes to: its recommendation and the sentence that says it."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import BucketPlan
from launchscope.wording import listed, mib, ms, pct, plural, share_of

_GROWS = "inputs grow by one from step to step, as in generation with a growing cache"


def advised(plan: BucketPlan, threshold_pct: float) -> BucketPlan:
    """The plan with its recommendation: buckets if they remove the threshold's share or more."""
    if plan.removable_pct is None or plan.eager_ms is None or plan.planned_ms is None:
        return replace(plan, headline=_unknown(plan))
    pays = plan.removable_pct >= threshold_pct and bool(plan.buckets)
    sentence = _paying(plan) if pays else f"Stay eager: {_not_paying(plan, threshold_pct)}."
    return replace(
        plan, recommendation="adopt_bucketed" if pays else "stay_eager", headline=sentence
    )


def _unknown(plan: BucketPlan) -> str:
    steps = plural(plan.observed_steps, "step")
    if plan.kind == "unplanned":
        shapes = plural(len(plan.sizes), "different shape")
        return f"No bucket plan: {shapes} in {steps}, and more than one dimension varies."
    low, high = plan.sizes[0].size, plan.sizes[-1].size
    if plan.kind == "growing":
        return (
            f"{_GROWS[0].upper()}{_GROWS[1:]} ({plan.dimension}, {low} to {high}). A static cache "
            "of the longest length makes them one shape. Its gain was not measured."
        )
    which = f"({low})" if low == high else f"between {low} and {high}"
    return (
        f"{plural(len(plan.sizes), 'size')} {which} in {steps} ({plan.dimension}). The gain of "
        "buckets was not measured."
    )


def _paying(plan: BucketPlan) -> str:
    share = pct(plan.removable_pct or 0)
    change = f"by {share}, from {ms(plan.eager_ms or 0)} to {ms(plan.planned_ms or 0)}"
    if plan.kind == "growing":
        return (
            f"Use a static cache: {_GROWS}. Preallocate it to {plan.sizes[-1].size}, the longest "
            "length seen, and mask the rest. One graph then serves every decode step, and is "
            f"predicted to shorten it {change}."
        )
    return (
        f"Pad to {_edges(plan)}, and capture {plural(len(plan.buckets), 'graph')}: this is "
        f"predicted to shorten the iteration {change}, and covers {pct(plan.covered_pct or 0)} of "
        "the steps."
    )


def _edges(plan: BucketPlan) -> str:
    return listed([str(bucket.high) for bucket in plan.buckets])


def _not_paying(plan: BucketPlan, threshold_pct: float) -> str:
    high, limit, needed = plan.sizes[-1].size, plan.memory_limit_mib, plan.memory_mib
    growing = plan.kind == "growing"
    seen = _GROWS if growing else f"{plural(len(plan.sizes), 'size')} seen"
    if not plan.buckets and limit is not None and needed is not None and needed > limit:
        graph = f"the graph of a static cache of {high}" if growing else "the smallest graph"
        return f"{seen}, and {graph} needs {mib(needed)}, more than the limit of {mib(limit)}"
    share = share_of(plan.removable_pct or 0.0, threshold_pct)
    if growing:
        return f"{seen}, and a static cache of {high} would remove {share} the decode"
    if not plan.buckets:
        within = "" if limit is None else f" within {mib(limit)}"
        return f"{seen}, and no set of padded sizes{within} is faster than eager"
    return (
        f"{plural(len(plan.buckets), 'graph')}, padded to {_edges(plan)}, would remove {share} the "
        f"iteration, which is below your threshold of {pct(threshold_pct)}"
    )

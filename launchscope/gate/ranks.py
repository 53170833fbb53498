"""What a gate compares of a run of several ranks: the worst of them, and how far they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from launchscope.gate import metrics
from launchscope.model import Metric, Profile, Ranks


def worst_of(profiles: Mapping[int, Profile], ranks: Ranks) -> Profile:
    """The Profile of the first rank, with each metric as the rank has it that has the worst value,
    and the metrics of OF_RANKS that are known."""
    first = profiles[min(profiles)]
    worst = dict(first.metrics)
    for key in first.metrics:
        found = [p.metrics[key] for p in profiles.values() if p.value(key) is not None]
        if found:
            pick = min if metrics.higher_is_better(key) else max
            worst[key] = pick(found, key=lambda metric: metric.value or 0)
    skews = {skew.key: skew for skew in ranks.skews}
    own, overhead = skews.get("own_ms"), skews.get("launch_overhead_ms")
    if own is not None:
        worst["rank_own_ms"] = Metric(own.high, "ms")
        worst["rank_spread_pct"] = Metric(own.pct, "%")
    if overhead is not None:
        worst["rank_overhead_spread_ms"] = Metric(overhead.high - overhead.low, "ms")
    return replace(first, metrics=worst)

"""What a gate compares of a run of several ranks: the worst of them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from launchscope.gate import metrics
from launchscope.model import Profile

# Ranks that work this much shorter than the longest still count as alike.
_ALIKE = 0.9


def rank_to_show(profiles: Mapping[int, Profile]) -> int:
    """The rank whose Profile stands for all: one whose replay computes something else than eager,
    where its cause is known, or could not be checked; otherwise the first of those that work
    longest, because the others wait for it. A wrong gradient of one rank makes the replays of all
    of them wrong."""
    own_ms = {rank: _own_ms(profile) for rank, profile in profiles.items()}
    longest = max(own_ms.values())

    def order(rank: int) -> tuple[bool, bool, bool, bool, int]:
        replay = profiles[rank].replay
        checked, correct = replay.status == "measured", replay.correct
        return (not correct.causes, correct.status != "different",
                not checked or correct.status != "not_checked", own_ms[rank] < _ALIKE * longest,
                rank)  # fmt: skip

    return min(profiles, key=order)


def _own_ms(profile: Profile) -> float:
    iteration, exposed = profile.value("iteration_ms"), profile.value("exposed_communication_ms")
    return (iteration or 0.0) - (exposed or 0.0)


def worst_of(profiles: Mapping[int, Profile]) -> Profile:
    """The Profile of the rank to show, with each metric as the rank with the worst value has it."""
    first = profiles[rank_to_show(profiles)]
    worst = dict(first.metrics)
    for key in first.metrics:
        found = [p.metrics[key] for p in profiles.values() if p.value(key) is not None]
        if found:
            pick = min if metrics.higher_is_better(key) else max
            worst[key] = pick(found, key=lambda metric: metric.value or 0)
    return replace(first, metrics=worst)

"""Questions that several rules ask of a Profile: the gain with its bounds, shares, waits.

Nothing here decides. A function returns None for what was not measured.
"""

from __future__ import annotations

from statistics import median

from msgspec import Struct

from launchscope.model import Basis, Profile
from launchscope.wording import ms, pct, pct_beside, times

# Above this the timings contradict themselves.
TOLERANCE_PCT = 3.0
# The bases, and the statuses of a replay, with times of a replay that ran.
REPLAYED: tuple[str, ...] = ("measured", "what_if")
# A step with at least this share of its kernels inside CUDA graphs is already graphed.
GRAPHED_PCT = 50.0
# A wait below this share of the iteration gets no advice.
WORTH_FIXING_PCT = 5.0
# The parts of a step that a replay can cover alone.
PARTS = {"forward_backward": "the forward and backward passes", "forward": "the forward pass"}
# More distinct shapes than this are too many for one graph each.
MAX_BUCKETS = 8


class Gain(Struct, frozen=True):
    """What a replay removes from the iteration, in percent of it. The bounds are those of the
    timings. `unsure_pct` of the iteration is idle time that a replay may or may not remove; half of
    it counts as removed. All of `unusual_pct` counts as removed, and all of `outside_pct`, which
    includes it, unless that decides the verdict."""

    removable_pct: float
    low_pct: float
    high_pct: float
    step_removable_pct: float | None
    threshold_pct: float
    basis: Basis
    unsure_pct: float = 0.0
    unusual_pct: float = 0.0
    outside_pct: float = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether the gain is that of a replay that ran, with or without stubs."""
        return self.basis in REPLAYED

    @property
    def pays(self) -> bool:
        return self.removable_pct >= self.threshold_pct

    @property
    def beyond_spread(self) -> bool:
        return self.removable_pct > 0 and self.low_pct > 0

    @property
    def is_loss(self) -> bool:
        """Whether the replay is slower, beyond the spread."""
        return self.removable_pct < 0 and self.high_pct < 0

    @property
    def is_open(self) -> bool:
        """Whether the bounds leave open if the gain is worth it: if one that reaches the threshold
        may be nothing, or a smaller one may reach the threshold."""
        if self.rests_on_unsure:
            return True
        return self.low_pct <= 0 if self.pays else self.high_pct >= self.threshold_pct

    @property
    def rests_on_unsure(self) -> bool:
        """Whether the threshold is reached with all of the unsure idle time, and not without."""
        most = min(self.removable_pct + self.unsure_pct / 2, self.high_pct)
        return self.least_pct < self.threshold_pct <= most

    @property
    def rests_on_outside(self) -> bool:
        """Whether only the host's time outside of operators leaves that open."""
        longer_gaps = self.unsure_pct / 2 + self.unusual_pct
        return self.rests_on_unsure and self.removable_pct - longer_gaps >= self.threshold_pct

    @property
    def least_pct(self) -> float:
        """The gain where a replay removes nothing that is unsure."""
        return self.removable_pct - self.unsure_pct / 2 - max(self.unusual_pct, self.outside_pct)


def gain(profile: Profile) -> Gain | None:
    """The gain, measured if there is a replay and predicted otherwise."""
    metric, removable = profile.metrics.get("removable_pct"), profile.value("removable_pct")
    if metric is None or removable is None:
        return None
    low = removable if metric.low is None else metric.low
    high = removable if metric.high is None else metric.high
    facts = profile.facts
    unsure, unusual = facts.unsure_idle_pct or 0.0, facts.unusual_idle_pct or 0.0
    outside = facts.outside_idle_pct or 0.0
    high = min(max(high, removable + unsure / 2), _room_pct(profile))
    return Gain(
        removable,
        min(low, removable - unsure / 2 - max(unusual, outside)),
        max(high, removable),
        facts.removable_step_pct,
        profile.threshold_pct,
        basis(profile),
        unsure,
        unusual,
        outside,
    )


def _room_pct(profile: Profile) -> float:
    """The share that goes if the GPU's own time is all that the iteration keeps, however widely the
    timings are spread; 100 where that is not known, and where the iteration was measured."""
    iteration, replay = map(profile.metrics.get, ("iteration_ms", "predicted_replay_ms"))
    if profile.iteration_source == "measured" or iteration is None or replay is None:
        return 100.0
    whole = iteration.high or iteration.value
    if not whole or replay.low is None:
        return 100.0
    busy = profile.value("iteration_busy_ms") or 0.0
    between = max(busy - (profile.value("gpu_busy_ms") or busy), 0.0)
    return 100.0 * (1.0 - (replay.low + between) / whole)


def effect(profile: Profile, found: Gain) -> str:
    """`shortens the iteration by 61 %, from 9.01 ms to 3.52 ms (2.56x)`."""
    removed, measured = found.removable_pct, found.is_measured
    if removed <= -0.05:  # what rounds to 0.0 % is nothing
        makes = "makes" if measured else "is predicted to make"
        return f"{makes} the iteration {pct(-removed)} longer"
    if removed <= 0:
        return f"{'does' if measured else 'would'} not shorten the iteration"
    verb = "shortens" if measured else "is predicted to shorten"
    text = f"{verb} the iteration by {pct_beside(removed, found.threshold_pct)}"
    before, after = profile.value("iteration_ms"), profile.value("replayed_iteration_ms")
    if not before or after is None:
        return text
    return f"{text}, from {ms(before)} to {ms(after)}" + (
        f" ({times(before / after)})" if after else ""
    )


def basis(profile: Profile) -> Basis:
    """What the gain comes from."""
    source = profile.iteration_source
    has_replay = source is None and profile.value("replay_ms") is not None
    if source in ("measured", "subtracted") or has_replay:
        return "what_if" if profile.replay.status == "what_if" else "measured"
    return "structural" if profile.value("removable_pct") is None else "predicted"


def share_pct(profile: Profile, key: str, whole: str = "iteration_ms") -> float | None:
    """One metric in percent of another."""
    part, total = profile.value(key), profile.value(whole)
    return 100.0 * part / total if part is not None and total else None


def worth_fixing(profile: Profile, wait: str) -> str | None:
    """`2.00 ms per iteration (21 %)`, if that is enough for advice. It is of traced steps, which
    may be longer."""
    share, cost = share_pct(profile, wait), profile.value(wait)
    if share is None or cost is None or share < WORTH_FIXING_PCT:
        return None
    return f"{ms(cost)} per iteration" + (f" ({pct(share)})" if share <= 100 else "")


def already_graphed(profile: Profile) -> bool:
    """Whether most of the step's kernels come from CUDA graphs already."""
    return (profile.facts.graph_kernel_share_pct or 0.0) >= GRAPHED_PCT


def runs_torch(profile: Profile) -> bool:
    """Whether PyTorch launched the work; a trace without its operators may be of any program."""
    return profile.facts.has_operators is not False


def busy_excess_pct(profile: Profile) -> float | None:
    """By how much the GPU's busy time exceeds the iteration; None if it does not."""
    share = share_pct(profile, "iteration_busy_ms")
    return share - 100.0 if share is not None and share > 100.0 + TOLERANCE_PCT else None


def loader_limit_ms(profile: Profile) -> float | None:
    """What the workers of a data loader need for a step, if the iteration with a replay takes no
    longer than that; else None."""
    least, replayed = profile.facts.loader_ms, profile.value("replayed_iteration_ms")
    limits = least is not None and replayed is not None and replayed <= least
    return least if limits else None


def wait_to_fix_first(profile: Profile) -> str | None:
    """The metric of the largest wait, or the fact "loader_ms", if the step gains enough from a
    replay and the iteration does not. None as well if the timings leave the gain open."""
    found = gain(profile)
    wait = max("data_wait_ms", "sync_wait_ms", key=lambda key: profile.value(key) or 0.0)
    if found is None or found.pays or found.is_open or found.step_removable_pct is None:
        return None
    if loader_limit_ms(profile) is not None:
        wait = "loader_ms"
    elif worth_fixing(profile, wait) is None:
        return None
    return wait if found.step_removable_pct >= found.threshold_pct else None


def incomplete_replays(profile: Profile) -> int:
    """Steps that replay as many graphs as others and run fewer than half as many kernels, or than
    the smallest capture launched: the trace lost the rest, or another graph was replayed."""
    graphs, launches, kernels = (
        metric.samples if (metric := profile.metrics.get(key)) is not None else ()
        for key in ("graph_launches_per_step", "launches_per_step", "kernels_per_step")
    )
    alike: dict[tuple[float, float], list[float]] = {}
    for graph, launch, kernel in zip(graphs, launches, kernels):
        if graph:
            alike.setdefault((graph, launch), []).append(kernel)
    captured, incomplete = profile.facts.captured_launches or 0, 0
    for (graph, launch), group in alike.items():
        usual = median(group)
        least = max(usual, launch + graph * captured) if usual > launch else usual
        incomplete += sum(2 * kernel < least for kernel in group)
    return incomplete


def few_steps_timed(profile: Profile) -> bool:
    return 0 < (profile.facts.timing_steps or 0) < 10


def on_legacy_stream(profile: Profile) -> bool:
    """Whether part of the step needs the legacy default stream: kernels ran there beside those of
    the side stream, or the whole script was measured on it for that reason."""
    facts, reason = profile.facts, profile.replay.reason
    if facts.legacy_stream_kernels and facts.side_stream is not False:
        return True
    skipped = reason is not None and reason.code == "legacy_stream"
    return skipped or facts.needs_legacy_stream is True


def more_steps(profile: Profile) -> str:
    """` (--timing 120 --replay 120)`: the options that narrow the bounds of a gain by subtraction.
    Windows of the loop have none."""
    if profile.iteration_source == "measured":
        return ""
    more = 4 * max(30, profile.facts.timing_steps or 0)
    return f" (--timing {more} --replay {more})"


def never_pays_back(profile: Profile) -> tuple[float, int] | None:
    """The steps after which the capture pays back and the fewer steps that the person expects."""
    needed, expected = profile.value("break_even_steps"), profile.expected_steps
    return (needed, expected) if needed and expected is not None and needed > expected else None

"""Questions that several rules ask of a Profile: the gain with its bounds, shares, waits.

Nothing here decides. A function returns None for what was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from launchscope.model import Basis, Profile

Wait = Literal["data", "sync"]

# Above this the timings contradict themselves (DESIGN, section 3).
TOLERANCE_PCT = 3.0
# A step with at least this share of its kernels inside CUDA graphs is already graphed.
GRAPHED_PCT = 50.0
# A wait below this share of the iteration gets no advice.
WORTH_FIXING_PCT = 5.0
# More distinct shapes than this are too many for one graph each.
MAX_BUCKETS = 8


@dataclass(frozen=True)
class Gain:
    """What a replay removes from the iteration, in percent of it.

    `low_pct` and `high_pct` are bounds from the spread of the timings, widened by the error of
    the queue simulation if that is above its tolerance. At most 100 % can be removed.
    """

    basis: Basis
    removable_pct: float
    low_pct: float
    high_pct: float
    step_pct: float | None

    @property
    def beyond_spread(self) -> bool:
        return self.removable_pct > 0 and self.low_pct > 0

    @property
    def is_loss(self) -> bool:
        """Whether the replay is slower, beyond the spread."""
        return self.removable_pct < 0 and self.high_pct < 0

    def within_spread_of(self, threshold_pct: float) -> bool:
        """Whether the timings leave open if the gain is worth it.

        A gain that reaches the threshold is open if it may be nothing. A smaller gain is open
        only if it may be a loss as large as the threshold: otherwise it is no reason to adopt,
        however high its upper bound is.
        """
        if self.high_pct < threshold_pct:
            return False
        return self.low_pct <= (0.0 if self.removable_pct >= threshold_pct else -threshold_pct)


def gain(profile: Profile) -> Gain | None:
    """The gain, measured if there is a replay and predicted otherwise."""
    metric, removable = profile.metrics.get("removable_pct"), profile.value("removable_pct")
    if metric is None or removable is None:
        return None
    spread = spread_pct(profile, "iteration_ms") or 0.0
    low, high = metric.low, metric.high
    error = abs(profile.facts.simulation_error_pct or 0.0)
    error = error if error > TOLERANCE_PCT else 0.0
    return Gain(
        basis=basis(profile),
        removable_pct=removable,
        low_pct=(removable - spread if low is None else low) - error,
        high_pct=min((removable + spread if high is None else high) + error, 100.0),
        step_pct=profile.facts.removable_step_pct,
    )


def basis(profile: Profile) -> Basis:
    """What the gain comes from."""
    if profile.mode == "rehearsal":
        return "structural"
    source = profile.facts.replay_ms_source
    if source is None:
        source = "predicted" if profile.value("replay_ms") is None else "measured"
    if source == "measured":
        return "what_if" if profile.replay.status == "what_if" else "measured"
    return "structural" if profile.value("removable_pct") is None else "predicted"


def spread_pct(profile: Profile, key: str) -> float | None:
    """Interquartile range of a metric's samples, in percent of its value."""
    metric = profile.metrics.get(key)
    if metric is None or not metric.value or metric.iqr is None:
        return None
    return 100.0 * metric.iqr / abs(metric.value)


def share_pct(profile: Profile, key: str, whole: str = "iteration_ms") -> float | None:
    """One metric in percent of another."""
    part, total = profile.value(key), profile.value(whole)
    return 100.0 * part / total if part is not None and total else None


def already_graphed(profile: Profile) -> bool:
    """Whether most of the step's kernels come from CUDA graphs already."""
    return (profile.facts.graph_kernel_share_pct or 0.0) >= GRAPHED_PCT


def busy_excess_pct(profile: Profile) -> float | None:
    """By how much the GPU's busy time exceeds the iteration; None if it does not."""
    share = share_pct(profile, "iteration_busy_ms")
    return share - 100.0 if share is not None and share > 100.0 + TOLERANCE_PCT else None


def waits(profile: Profile) -> list[tuple[Wait, float]]:
    """What else the iteration waits for, in ms, largest first."""
    costs: tuple[tuple[Wait, str], ...] = (("data", "data_wait_ms"), ("sync", "sync_cost_ms"))
    found = [
        (wait, profile.value(key) or 0.0)
        for wait, key in costs
        if (share_pct(profile, key) or 0.0) >= WORTH_FIXING_PCT
    ]
    return sorted(found, key=lambda wait: -wait[1])


def wait_to_fix_first(profile: Profile) -> Wait | None:
    """The largest wait, if the step gains enough from a replay and the iteration does not.

    None as well if the timings leave the gain open.
    """
    found, waiting, threshold = gain(profile), waits(profile), profile.threshold_pct
    if found is None or not waiting or found.removable_pct >= threshold:
        return None
    step_pays = found.step_pct is not None and found.step_pct >= threshold
    return waiting[0][0] if step_pays and not found.within_spread_of(threshold) else None


def on_legacy_stream(profile: Profile) -> bool:
    """Whether part of the step insists on the legacy default stream.

    Either kernels ran there beside those of the side stream, or the run says so: then the
    whole script was measured on it.
    """
    beside = (profile.facts.legacy_stream_kernels or 0.0) > 0
    if beside and profile.facts.side_stream is not False:
        return True
    reason = profile.replay.reason
    skipped = reason is not None and reason.code == "legacy_stream"
    return skipped or profile.facts.needs_legacy_stream is True


def decides_on_the_host(profile: Profile) -> bool:
    """Whether an optimizer of the step chooses by values how much it does, as L-BFGS."""
    return "LBFGS" in (profile.facts.optimizer_classes or ())


def forward_unseen(profile: Profile) -> bool:
    """Whether the step begins with a backward, so that the forward it needs is outside of it."""
    step = profile.step
    return profile.mode != "trace" and step is not None and step.period[:1] == ("backward",)


def never_pays_back(profile: Profile) -> tuple[float, int] | None:
    """The steps after which the capture pays back and the fewer steps that the person expects."""
    needed, expected = profile.value("break_even_steps"), profile.expected_steps
    return (needed, expected) if needed and expected is not None and needed > expected else None

"""Two Profiles -> Difference: metrics, and kernels that appeared, vanished or changed."""

from __future__ import annotations

from typing import Literal

from launchscope.analysis.metrics import UNITS
from launchscope.model import KernelRow, Metric, Profile
from launchscope.model.comparison import Difference, KernelDifference, MetricChange, Side
from launchscope.model.recording import Mode
from launchscope.reason_text import step_summary

# A kernel with the same count whose time per step changed by less than this is the same.
SAME_PCT = 5.0
_LEAST_US = 0.05
_MODES: dict[Mode, str] = {"gpu": "a run on a GPU", "rehearsal": "a rehearsal", "trace": "a trace"}


def difference(before: Profile, after: Profile, names: tuple[str, str] | None = None) -> Difference:
    """What is not the same in the second Profile. Metrics that neither has are left out. `names`
    are what to call the two, where their targets have the same name."""
    metrics = []
    for key, unit in UNITS.items():
        one, other = before.value(key), after.value(key)
        if one is not None or other is not None:
            beyond = _beyond_spread(before.metrics.get(key), after.metrics.get(key))
            metrics.append(MetricChange(key, unit, one, other, beyond))
    kernels, same = _kernels(before, after)
    return Difference(
        before=_side(before, names[0] if names else None),
        after=_side(after, names[1] if names else None),
        metrics=tuple(metrics),
        kernels=kernels,
        same_kernels=same,
        notes=_notes(before, after),
    )


def _side(profile: Profile, name: str | None) -> Side:
    step, verdict = profile.step, profile.verdict
    return Side(
        name=name or " ".join((profile.target.name, *profile.target.args)),
        device=profile.environment.device,
        step="not known" if step is None else step_summary(step),
        recommendation=None if verdict is None else verdict.recommendation,
    )


def _beyond_spread(one: Metric | None, other: Metric | None) -> bool | None:
    """Whether two metrics differ by more than the wider of their interquartile ranges."""
    if one is None or other is None or one.value is None or other.value is None:
        return None
    change = abs(float(other.value) - float(one.value))
    if one.exact and other.exact:
        return change > 0
    spreads = [metric.iqr for metric in (one, other) if metric.iqr is not None]
    return change > max(spreads) if spreads else None


def _kernels(before: Profile, after: Profile) -> tuple[tuple[KernelDifference, ...], int]:
    """The kernels that differ, the largest change first, and how many do not."""
    ones = {kernel.name: kernel for kernel in before.kernels}
    others = {kernel.name: kernel for kernel in after.kernels}
    found: list[KernelDifference] = []
    names = dict.fromkeys((*ones, *others))
    for name in names:
        one = ones.get(name, KernelRow(name, 0.0, 0.0))
        other = others.get(name, KernelRow(name, 0.0, 0.0))
        state: Literal["appeared", "vanished", "changed"] = "changed"
        if name not in ones or name not in others:
            state = "vanished" if name in ones else "appeared"
        least_us = max(_LEAST_US, SAME_PCT / 100 * max(one.total_us, other.total_us))
        change_us = abs(other.total_us - one.total_us)
        if state != "changed" or one.count != other.count or change_us > least_us:
            found.append(
                KernelDifference(name, state, one.count, other.count, one.total_us, other.total_us)
            )
    found.sort(key=lambda kernel: -abs(kernel.change_us))
    return tuple(found), len(names) - len(found)


def _notes(before: Profile, after: Profile) -> tuple[str, ...]:
    notes = []
    if before.mode != after.mode:
        notes.append(
            f"the first is {_MODES[before.mode]} and the second {_MODES[after.mode]}: their "
            "figures come from different methods"
        )
    devices = before.environment.device, after.environment.device
    if devices[0] != devices[1] and None not in devices:
        notes.append(f"the devices differ: {devices[0]} and {devices[1]}")
    steps = [profile.step.boundary if profile.step else None for profile in (before, after)]
    if "none" in steps and steps[0] != steps[1]:
        notes.append("one side is a total over its whole span, the other is per step")
    return tuple(notes)

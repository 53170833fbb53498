"""Two Profiles -> Difference: metrics, and kernels that appeared, vanished or changed."""

from __future__ import annotations

from launchscope.analysis.metrics import UNITS
from launchscope.model import Metric, Profile, step_summary
from launchscope.model.difference import Difference, KernelDifference, MetricChange, Side

# A kernel whose time per step moved less than this, its count being the same, is the same.
SAME_PCT = 5.0
_LEAST_US = 0.05


def difference(before: Profile, after: Profile, names: tuple[str, str] | None = None) -> Difference:
    """What is not the same in the second Profile. Metrics that neither has are left out.

    `names` are what the two are called, where their targets' names do not tell them apart.
    """
    metrics = []
    for key, unit in UNITS.items():
        one, other = before.value(key), after.value(key)
        if one is None and other is None:
            continue
        beyond = _beyond(before.metrics.get(key), after.metrics.get(key))
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
    step = profile.step
    said = "not known" if step is None else step_summary(step)
    verdict = profile.verdict
    return Side(
        name=name or " ".join((profile.target.name, *profile.target.args)),
        device=profile.environment.device,
        step=said,
        recommendation=None if verdict is None else verdict.recommendation,
    )


def _beyond(one: Metric | None, other: Metric | None) -> bool | None:
    """Whether two metrics differ by more than the wider of their interquartile ranges."""
    if one is None or other is None or one.value is None or other.value is None:
        return None
    apart = abs(float(other.value) - float(one.value))
    if one.exact and other.exact:
        return apart > 0
    spreads = [metric.iqr for metric in (one, other) if metric.iqr is not None]
    return apart > max(spreads) if spreads else None


def _kernels(before: Profile, after: Profile) -> tuple[tuple[KernelDifference, ...], int]:
    ones = {kernel.name: kernel for kernel in before.kernels}
    others = {kernel.name: kernel for kernel in after.kernels}
    found: list[KernelDifference] = []
    same = 0
    for name in dict.fromkeys((*ones, *others)):
        one, other = ones.get(name), others.get(name)
        if one is None:
            assert other is not None
            found.append(KernelDifference(name, "appeared", 0.0, other.count, 0.0, other.total_us))
        elif other is None:
            found.append(KernelDifference(name, "vanished", one.count, 0.0, one.total_us, 0.0))
        elif one.count != other.count or _moved(one.total_us, other.total_us):
            found.append(
                KernelDifference(
                    name, "changed", one.count, other.count, one.total_us, other.total_us
                )
            )
        else:
            same += 1
    return tuple(sorted(found, key=lambda kernel: -abs(kernel.change_us))), same


def _moved(one_us: float, other_us: float) -> bool:
    apart = abs(other_us - one_us)
    return apart > _LEAST_US and apart > SAME_PCT / 100 * max(one_us, other_us)


def _notes(before: Profile, after: Profile) -> tuple[str, ...]:
    said = []
    if before.mode != after.mode:
        said.append(
            f"one side is of mode {before.mode}, the other of mode {after.mode}: times of a trace "
            "are estimates"
        )
    devices = before.environment.device, after.environment.device
    if devices[0] != devices[1] and None not in devices:
        said.append(f"the devices differ: {devices[0]} and {devices[1]}")
    steps = [profile.step.boundary if profile.step else None for profile in (before, after)]
    if "none" in steps and steps[0] != steps[1]:
        said.append("one side is a total over its whole span, the other is per step")
    return tuple(said)

"""Profiles to hold against each other: a GPU step, a rehearsal, and changes of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from launchscope.gate.baseline import Baseline
from launchscope.gate.decide import check_profiles
from launchscope.gate.limits import limits_from_flags, limits_in_force
from launchscope.model import (
    BetweenSteps,
    Blocker,
    CheckResult,
    KernelRow,
    LimitCheck,
    Metric,
    OpRow,
    Profile,
    SourceLine,
)
from tests.rules.profiles import profile as gpu_profile
from tests.rules.profiles import rehearsal as bare_rehearsal

BETWEEN = ("between_launches", "between_syncs", "between_copies", "between_ops")
OPS = (
    OpRow("aten.addmm", 2, SourceLine("train.py", 28)),
    OpRow("aten.relu", 1, SourceLine("train.py", 28)),
    OpRow("aten.mse_loss", 1, SourceLine("train.py", 29)),
    OpRow("aten.mm", 3, SourceLine("train.py", 30)),
    OpRow("aten._foreach_add_", 2, SourceLine("train.py", 31)),
)


def gpu(metrics: Mapping[str, Metric | float | None] | None = None, **changes: Any) -> Profile:
    """A measured step; `metrics` may be whole Metrics, or values without samples."""
    made = gpu_profile(ops=OPS, **changes)
    known = dict(made.metrics)
    known["memcpys_per_step"] = Metric(2, "1", exact=True)
    known["device_ops_per_step"] = Metric(sum(op.count for op in OPS), "1", exact=True)
    known["graph_breaks"] = Metric(0, "1", exact=True)
    known |= {key: Metric(0, "1", exact=True) for key in BETWEEN}
    for key, value in (metrics or {}).items():
        exact = known[key].exact
        known[key] = value if isinstance(value, Metric) else Metric(value, known[key].unit, exact)
    return replace(made, metrics=known, between=BetweenSteps(10))


def rehearsal(
    ops: Sequence[OpRow] = OPS, blockers: Sequence[Blocker] = (), **changes: Any
) -> Profile:
    """What is known of the same step without a GPU; its count is that of `ops`."""
    made = bare_rehearsal(ops=tuple(ops), blockers=tuple(blockers), **changes)
    count = sum(op.count for op in ops)
    counted = Metric(count, "1", exact=True, samples=(count, count, count))
    nothing = ("graph_breaks", "memcpys_per_step", *BETWEEN[1:])
    found = {"device_ops_per_step": counted}
    found |= {key: Metric(0, "1", exact=True) for key in nothing}
    between = BetweenSteps(10)
    return replace(made, metrics={**made.metrics, **found}, between=between)


def with_between(profile: Profile, between: BetweenSteps, **counts: float) -> Profile:
    """The Profile with this work between its steps."""
    changed = {key: Metric(value, "1", exact=True) for key, value in counts.items()}
    return replace(profile, metrics={**profile.metrics, **changed}, between=between)


def item(line: int = 29, code: str = "total += loss.item()") -> Blocker:
    where = SourceLine("train.py", line)
    return Blocker("aten._local_scalar_dense", where, 1, "sync", code)


def checked(
    profile: Profile | Sequence[Profile], baseline: Profile | None, *limits: str, **options: Any
) -> CheckResult:
    """The gate's answer, with the limits as typed or, without any, the defaults."""
    found = None if baseline is None else Baseline(baseline, "baselines/train.json")
    given = limits_from_flags(limits)
    profiles = [profile] if isinstance(profile, Profile) else profile
    chosen = limits_in_force(given, {}, profiles[0].mode, with_baseline=baseline is not None)
    return check_profiles(profiles, found, chosen, workload="train", **options)


def limit(result: CheckResult, metric: str) -> LimitCheck:
    return next(found for found in result.limits if found.metric == metric)


def elsewhere(profile: Profile, **changes: Any) -> Profile:
    """The same Profile, measured in another environment."""
    return replace(profile, environment=dataclasses.replace(profile.environment, **changes))


def failed_rehearsal() -> CheckResult:
    """An op and a blocker more than the baseline, further down the file."""
    ops = (
        *OPS[:2],
        OpRow("aten.mul", 1, SourceLine("train.py", 29)),
        OpRow("aten.mse_loss", 1, SourceLine("train.py", 30)),
        OpRow("aten.mul", 1, SourceLine("train.py", 32)),
        OpRow("aten.mm", 3, SourceLine("train.py", 32)),
        OpRow("aten._foreach_add_", 2, SourceLine("train.py", 33)),
    )
    return checked(rehearsal(ops, [item(31)]), rehearsal())


def failed_on_gpu() -> CheckResult:
    """Two launches more, copies that are not certain, and another driver."""
    kernels = (
        KernelRow(
            "void at::native::elementwise_kernel<128, 4, mul>", 2, 3.2, SourceLine("train.py", 30)
        ),
        *gpu().kernels,
    )
    copies = Metric(2, "1", samples=(2.0, 2.0, 3.0))
    now = gpu({"launches_per_step": 557, "memcpys_per_step": copies}, kernels=kernels)
    before = elsewhere(gpu(), driver="570.10")
    return checked([now] * 3, before, "launch_overhead_pct=65%")


def passed_and_stale() -> CheckResult:
    return checked(gpu({"launches_per_step": 540}), gpu())


def not_compared() -> CheckResult:
    return checked(gpu(), replace(gpu(), counting=gpu().counting - 1))

"""Profiles to hold against each other: a GPU step, a rehearsal, and changes of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from launchscope.gate import Baseline, check_profile, limits_from_flags, limits_in_force
from launchscope.model import (
    Blocker,
    Check,
    Environment,
    KernelRow,
    LimitCheck,
    Metric,
    OpRow,
    Profile,
    SourceLine,
)
from tests.rules.profiles import profile as gpu_profile
from tests.rules.profiles import rehearsal as bare_rehearsal

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
    for key, value in (metrics or {}).items():
        exact = known[key].exact
        known[key] = value if isinstance(value, Metric) else Metric(value, known[key].unit, exact)
    return replace(made, metrics=known)


def rehearsal(
    ops: Sequence[OpRow] = OPS, blockers: Sequence[Blocker] = (), **changes: Any
) -> Profile:
    """What is known of the same step without a GPU; its count is that of `ops`."""
    made = bare_rehearsal(ops=tuple(ops), blockers=tuple(blockers), **changes)
    count = sum(op.count for op in ops)
    counted = Metric(count, "1", exact=True, samples=(count, count, count))
    return replace(made, metrics={**made.metrics, "device_ops_per_step": counted})


def item(line: int = 29, code: str = "total += loss.item()") -> Blocker:
    where = SourceLine("train.py", line)
    return Blocker("aten._local_scalar_dense", where, 1, "Keep it on the GPU.", "sync", code)


def checked(profile: Profile, baseline: Profile | None, *limits: str, **options: Any) -> Check:
    """The gate's answer, with the limits as typed or, without any, the defaults."""
    found = None if baseline is None else Baseline(baseline, "baselines/train.json")
    chosen = limits_in_force(limits_from_flags(limits), {}, profile.mode)
    return check_profile(profile, found, chosen, workload="train", **options)


def limit(result: Check, metric: str) -> LimitCheck:
    return next(found for found in result.limits if found.metric == metric)


def elsewhere(profile: Profile, **changes: Any) -> Profile:
    """The same Profile, measured in another environment."""
    return replace(profile, environment=replace(profile.environment, **changes))


def failed_rehearsal() -> Check:
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


def failed_on_gpu() -> Check:
    """Two launches more, an overhead that is not certain, and another PyTorch."""
    kernels = (
        KernelRow(
            "void at::native::elementwise_kernel<128, 4, mul>", 2, 3.2, SourceLine("train.py", 30)
        ),
        *gpu().kernels,
    )
    now = gpu({"launches_per_step": 557, "launch_overhead_pct": 65.0}, kernels=kernels)
    ranges = {"launch_overhead_pct": (62.0, 66.0)}
    now = replace(now, facts=replace(now.facts, ranges=ranges, processes=3))
    before = elsewhere(gpu(), torch="2.10.0")
    return checked(now, before)


def passed_and_stale() -> Check:
    return checked(gpu({"launches_per_step": 540}), gpu())


def not_compared() -> Check:
    return checked(rehearsal(), gpu())


def other_environment() -> Environment:
    return Environment(device="NVIDIA A100", torch="2.11.0")

"""The gate: compares a Profile with its baseline within limits. Reads and writes baselines."""

from __future__ import annotations

from launchscope.gate.baseline import Baseline, BaselinePlace, baseline_of, baseline_place
from launchscope.gate.decide import check_profile, confirmed, not_comparable
from launchscope.gate.limits import Limit, limits_from_config, limits_from_flags, limits_in_force
from launchscope.gate.measurement import merged, sound
from launchscope.gate.metrics import needs_replay

__all__ = [
    "Baseline",
    "BaselinePlace",
    "Limit",
    "baseline_of",
    "baseline_place",
    "check_profile",
    "confirmed",
    "limits_from_config",
    "limits_from_flags",
    "limits_in_force",
    "merged",
    "needs_replay",
    "not_comparable",
    "sound",
]

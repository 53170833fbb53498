"""Rows into right and wrong: every verdict against the truth, and the prediction's error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.zoo.truth import THRESHOLD_PCT

__all__ = ["NEAR_PCT", "Score", "judged", "score"]

NEAR_PCT = 2.0  # so close to the threshold that neither answer is wrong
RULES = ("measured", "predicted", "literal")

_ADOPT = ("adopt", "adopt_after_fixes", "adopt_bucketed")


@dataclass(frozen=True)
class Score:
    """`right[rule]` and `wrong[rule]` name workloads; `near`, `unknown` and `failed` are in
    neither."""

    right: dict[str, list[str]]
    wrong: dict[str, list[str]]
    near: list[str]
    failed: list[str]
    unknown: list[str]  # the machine never held still, and its visits tell either answer
    errors_pct: dict[str, float]  # of the prediction against the replay, same work only
    inside_bounds: int

    @property
    def median_error_pct(self) -> float | None:
        return median(map(abs, self.errors_pct.values())) if self.errors_pct else None

    @property
    def p90_error_pct(self) -> float | None:
        sizes = sorted(map(abs, self.errors_pct.values()))
        return quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else None


def judged(row: dict[str, Any]) -> dict[str, bool]:
    """Whether each rule is right about a row that has a truth.

    No answer is a wrong one. Where a capture does other work than eager, `unsafe` is the right
    one for who has seen the replay, if the same work would gain.
    """
    gains = row["truth"]["removed_pct"] >= THRESHOLD_PCT
    measured = row["measured"]["recommendation"]
    right = _agrees(measured, gains)
    if row.get("changed_work") and row.get("work_same") is False:
        right = measured == "unsafe" if gains else measured in ("unsafe", "stay_eager")
    share = row["measured"]["launch_share_pct"]
    return {
        "measured": right,
        "predicted": _agrees(row["predicted"]["recommendation"], gains),
        "literal": share is not None and (share > THRESHOLD_PCT) == gains,
    }


def _tells_either(visits: Sequence[dict[str, float]]) -> bool:
    """Whether the visits of the truth leave open on which side of the threshold it is."""
    shares = [visit["removed_pct"] - THRESHOLD_PCT for visit in visits]
    return min(shares) <= NEAR_PCT and max(shares) >= -NEAR_PCT


def _agrees(recommendation: str, gains: bool) -> bool:
    return recommendation in _ADOPT if gains else recommendation == "stay_eager"


def score(rows: Sequence[dict[str, Any]]) -> Score:
    right: dict[str, list[str]] = {rule: [] for rule in RULES}
    wrong: dict[str, list[str]] = {rule: [] for rule in RULES}
    near, failed, unknown, errors, inside = [], [], [], {}, 0
    for row in rows:
        name = row["name"]
        if "truth" not in row or "measured" not in row:
            failed.append(name)
            continue
        if not row.get("held_still", True) and _tells_either(row["visits"]):
            unknown.append(name)
        elif abs(row["truth"]["removed_pct"] - THRESHOLD_PCT) <= NEAR_PCT:
            near.append(name)
        else:
            for rule, is_right in judged(row).items():
                (right if is_right else wrong)[rule].append(name)
        replay, found = row["measured"]["replay_ms"], row["predicted"]
        if row.get("work_same") and replay and found["predicted_replay_ms"]:
            errors[name] = 100 * (found["predicted_replay_ms"] / replay - 1)
            low, high = found["predicted_replay_low_ms"], found["predicted_replay_high_ms"]
            inside += low <= replay <= high
    return Score(right, wrong, near, failed, unknown, errors, inside)

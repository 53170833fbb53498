"""Every verdict of the zoo against the truth, and the prediction's error, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from tests.benchmarks import bench
from tests.benchmarks.zoo.truth import THRESHOLD_PCT

__all__ = ["markdown"]

NEAR_PCT = 2.0  # so close to the threshold that neither answer is wrong
RULES = ("measured", "predicted", "literal")
HEADER = [
    "step", "eager ms", "replay ms", "removed %", "95 %", "measured", "predicted", "literal %",
    "predicted ms", "error %", "wrong",
]  # fmt: skip

_ADOPT = ("adopt", "adopt_after_fixes", "adopt_bucketed")

Row = dict[str, Any]


def judged(row: Row) -> dict[str, bool]:
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


def _agrees(recommendation: str, gains: bool) -> bool:
    return recommendation in _ADOPT if gains else recommendation == "stay_eager"


def apart(row: Row) -> str | None:
    """Why a row is judged by nobody, or None."""
    if "truth" not in row or "measured" not in row:
        return "without a truth or a result"
    if not row.get("held_still", True):
        shares = [visit["removed_pct"] - THRESHOLD_PCT for visit in row["visits"]]
        if min(shares) <= NEAR_PCT and max(shares) >= -NEAR_PCT:
            return "on a machine that changed from one side of the threshold to the other"
    near = abs(row["truth"]["removed_pct"] - THRESHOLD_PCT) <= NEAR_PCT
    return "within two points of the threshold" if near else None


def error_pct(row: Row) -> float | None:
    """Of the prediction against the replay, where both ran the same work."""
    replay = row.get("measured", {}).get("replay_ms")
    predicted = row.get("predicted", {}).get("predicted_replay_ms")
    same = row.get("work_same") and replay and predicted
    return 100 * (predicted / replay - 1) if same else None


def cells(row: Row) -> list[str]:
    """One line of the table; what was not measured is a dash."""
    if "measured" not in row:
        return [row["name"], *["–"] * 9, str(row.get("failed", "no result"))[:60]]
    truth, measured, predicted = row.get("truth"), row["measured"], row["predicted"]
    wrong = apart(row) or ", ".join(rule for rule, right in judged(row).items() if not right)
    return [
        row["name"],
        _figure(truth and truth["eager_ms"], 3),
        _figure(truth and truth["replay_ms"], 3),
        _figure(truth and truth["removed_pct"], 1),
        "–"
        if truth is None
        else f"{truth['removed_low_pct']:.1f} to {truth['removed_high_pct']:.1f}",
        measured["recommendation"],
        predicted["recommendation"],
        _figure(measured["launch_share_pct"], 0),
        _figure(predicted["predicted_replay_ms"], 3),
        _figure(error_pct(row), 1, sign=True),
        wrong,
    ]


def _figure(value: float | None, decimals: int, *, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value:+.{decimals}f}" if sign else f"{value:.{decimals}f}"


def summary(rows: Sequence[Row]) -> list[str]:
    """The counts, a sentence a line."""
    answers = {row["name"]: judged(row) for row in rows if apart(row) is None}
    lines = []
    for rule in RULES:
        wrong = [name for name, found in answers.items() if not found[rule]]
        lines.append(f"{rule}: {len(answers) - len(wrong)} of {len(answers)} right")
        lines[-1] += f"; wrong: {', '.join(wrong)}" if wrong else ""
    errors = [(row, abs(error)) for row in rows if (error := error_pct(row)) is not None]
    if len(errors) > 1:
        inside = sum(
            row["predicted"]["predicted_replay_low_ms"]
            <= row["measured"]["replay_ms"]
            <= row["predicted"]["predicted_replay_high_ms"]
            for row, _ in errors
        )
        sizes = sorted(size for _, size in errors)
        p90 = quantiles(sizes, n=10, method="inclusive")[-1]
        lines.append(
            f"prediction against the replay, {len(errors)} steps with the same work: "
            f"median {median(sizes):.1f} %, 90th percentile {p90:.1f} %, "
            f"inside its bounds {inside} of {len(errors)}"
        )
    reasons = dict.fromkeys(reason for row in rows if (reason := apart(row)))
    for reason in reasons:
        names = [row["name"] for row in rows if apart(row) == reason]
        lines.append(f"apart, {reason}: {', '.join(names)}")
    return lines


def markdown(rows: Sequence[Row]) -> str:
    lines = [f"- {line}" for line in summary(rows)]
    lines += ["", *bench.markdown(HEADER, map(cells, rows))]
    return "\n".join(lines) + "\n"

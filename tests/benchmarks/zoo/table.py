"""The zoo's rows and score as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.zoo.score import RULES, Score, judged

__all__ = ["HEADER", "cells", "markdown", "summary"]

HEADER = [
    "step", "eager ms", "replay ms", "removed %", "95 %", "measured", "predicted", "literal %",
    "predicted ms", "error %", "wrong",
]  # fmt: skip


def cells(row: dict[str, Any], score: Score) -> list[str]:
    """One line of the table; what was not measured is a dash."""
    name = str(row["name"])
    if "measured" not in row:
        return [name, *["–"] * 9, str(row.get("failed", "no result"))[:60]]
    truth, measured, predicted = row.get("truth"), row["measured"], row["predicted"]
    wrong = ""
    if truth is not None:
        wrong = ", ".join(rule for rule, right in judged(row).items() if not right)
        wrong = "near" if name in score.near else "unknown" if name in score.unknown else wrong
    return [
        name,
        _figure(truth and truth["eager_ms"], 3),
        _figure(truth and truth["replay_ms"], 3),
        _figure(truth and truth["removed_pct"], 1),
        "–" if truth is None else _interval(truth),
        measured["recommendation"],
        predicted["recommendation"],
        _figure(measured["launch_share_pct"], 0),
        _figure(predicted["predicted_replay_ms"], 3),
        _figure(score.errors_pct.get(name), 1, sign=True),
        wrong,
    ]


def _interval(truth: dict[str, float]) -> str:
    return f"{truth['removed_low_pct']:.1f} to {truth['removed_high_pct']:.1f}"


def _figure(value: float | None, decimals: int, *, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value:+.{decimals}f}" if sign else f"{value:.{decimals}f}"


def summary(score: Score) -> list[str]:
    """The counts, a sentence a line."""
    lines = []
    for rule in RULES:
        right, wrong = len(score.right[rule]), score.wrong[rule]
        text = f"{rule}: {right} of {right + len(wrong)} right"
        if right + len(wrong):
            text += f" ({100 * right / (right + len(wrong)):.0f} %)"
        lines.append(text + (f"; wrong: {', '.join(wrong)}" if wrong else ""))
    if score.errors_pct:
        count, p90 = len(score.errors_pct), score.p90_error_pct
        lines.append(
            f"prediction against the replay, {count} steps with the same work: "
            f"median {_figure(score.median_error_pct, 1)} %, "
            f"90th percentile {_figure(p90, 1)} %, "
            f"inside its bounds {score.inside_bounds} of {count}"
        )
    if score.near:
        lines.append(
            f"apart, the truth being within two points of the threshold: {', '.join(score.near)}"
        )
    if score.unknown:
        lines.append(
            "apart, the machine having changed around each verdict, from one side of the "
            f"threshold to the other: {', '.join(score.unknown)}"
        )
    if score.failed:
        lines.append(f"without a truth or a result: {', '.join(score.failed)}")
    return lines


def markdown(rows: Sequence[dict[str, Any]], score: Score) -> str:
    lines = [f"- {line}" for line in summary(score)]
    lines += ["", "| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(cells(row, score)) + " |" for row in rows]
    return "\n".join(lines) + "\n"

"""What an adapter says when the training ends."""

from __future__ import annotations

import sys

from launchscope.graphed import Stats


def summary(stats: Stats | None, refusal: str | None) -> str:
    """How many steps were replayed, and why the others were not."""
    if stats is None or (refusal is not None and not stats.replayed):
        return f"no step ran as a CUDA graph: {refusal or 'there was no step'}"
    calls = stats.eager + stats.captured + stats.replayed
    share = 100 * stats.replayed / calls if calls else 0.0
    text = f"{stats.replayed:,} of {calls:,} steps ({share:.0f} %) were replays of a CUDA graph"
    text += f"; {stats.captured} captured, {stats.eager} eager"
    for reason in stats.reasons:
        text += f"\n  {reason.calls} eager: {reason}"
    if refusal is not None:
        text += f"\n  the others eager: {refusal}"
    return text if stats.unchecked is None else f"{text}\n  not checked: {stats.unchecked}"


def tell(text: str) -> None:
    print(f"launchscope: {text}", file=sys.stderr)

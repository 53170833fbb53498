"""The events of a step in words."""

from __future__ import annotations

from itertools import zip_longest

from launchscope.model.recording import StepBoundary

# Of a block of events that repeats, no more than this many are looked for: a round of gradient
# accumulation with two models, a decode.
_LONGEST_BLOCK = 6


def step_summary(step: StepBoundary) -> str:
    """`forward GPT > backward > optimizer AdamW`; repeated rounds are written once.

    As in `(forward GPT > backward) x4 > optimizer AdamW`. For an optimizer that calls its closure
    (LBFGS, or any in Lightning) it adds where forward and backward are.
    """
    events = [
        event if name in ("", event) else f"{event} {name}"
        for event, name in zip_longest(step.period, step.names, fillvalue="")
    ]
    parts = []
    at = 0
    while at < len(events):
        length, times = _round(events, at)
        block = " > ".join(events[at : at + length])
        if times > 1:
            block = f"({block}) x{times}" if length > 1 else f"{block} x{times}"
        parts.append(block)
        at += length * times
    inside = ", with forward and backward inside" if step.closure else ""
    return " > ".join(parts) + inside


def _round(events: list[str], at: int) -> tuple[int, int]:
    """Length of the block that begins there and how often it comes in a row.

    Of several the one that covers most, of these the shortest.
    """
    best = 1, 1
    for length in range(1, min(_LONGEST_BLOCK, (len(events) - at) // 2) + 1):
        block, times = events[at : at + length], 1
        while events[at + length * times : at + length * (times + 1)] == block:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best

"""The sentences of a comparison: what the batch size does to the gain, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Crossover, Point
from launchscope.wording import listed, pct

SAME_WORK = (
    "the batch size made no difference to the shapes of the step's inputs: every point measured "
    "the same thing"
)


def crossover_sentence(found: Crossover) -> str:
    """One sentence on where the gain crosses the threshold."""
    limit = pct(found.threshold_pct)
    at = _of(found.parameters)
    if found.status == "between" and found.pays and found.pays_not and found.batch_size:
        size = _size(found.batch_size)
        by = "exposed launch overhead" if found.by == "exposed" else "the share removed"
        told = (
            "confirmed by replays measured at both neighbours"
            if found.confirmed
            else "not confirmed, as no replay was measured at one of the neighbours or at both"
        )
        return (
            f"The gain falls under {limit} at a batch size of about {size}{at}, interpolated from "
            f"{by} and {told}: {_side(found)}."
        )
    if found.status == "above" and found.pays:
        return (
            f"The gain is above {limit} at all sizes measured{at}: at {found.pays.batch_size}, the "
            f"largest, it is {pct(found.pays.removable_pct)}."
        )
    if found.status == "below" and found.pays_not:
        return (
            f"The gain is below {limit} at all sizes measured{at}: at "
            f"{found.pays_not.batch_size}, the smallest, it is "
            f"{pct(found.pays_not.removable_pct)}."
        )
    if found.status == "rising" and found.pays and found.pays_not:
        return (
            f"The gain rises with the batch size{at}, from {pct(found.pays_not.removable_pct)} at "
            f"{found.pays_not.batch_size} to {pct(found.pays.removable_pct)} at "
            f"{found.pays.batch_size}: there is no size above which a graph stops paying."
        )
    if found.status == "several":
        return f"The gain crosses {limit} more than once{at}: see the table."
    return f"Where the gain falls under {limit} is not known{at}: fewer than two sizes have one."


def _side(found: Crossover) -> str:
    assert found.pays is not None
    assert found.pays_not is not None
    return (
        f"{pct(found.pays.removable_pct)} at {found.pays.batch_size}, "
        f"{pct(found.pays_not.removable_pct)} at {found.pays_not.batch_size}"
    )


def _size(size: float) -> str:
    return f"{size:.0f}" if size >= 10 else f"{size:.1f}".removesuffix(".0")


def _of(parameters: dict[str, str]) -> str:
    if not parameters:
        return ""
    return " with " + listed([f"{name} {value}" for name, value in parameters.items()])


def headline_of(points: Sequence[Point], crossovers: Sequence[Crossover], same: bool | None) -> str:
    """What the points say together, in a sentence or two."""
    measured = [point for point in points if point.profile is not None]
    if not measured:
        return "No point could be measured." if points else ""
    if same:
        return f"Nothing was compared: {SAME_WORK}."
    if all(p.profile is not None and p.profile.mode == "rehearsal" for p in measured):
        return (
            "A rehearsal without a GPU: structure only. Where a graph pays cannot be told without "
            "times."
        )
    return " ".join(crossover_sentence(found) for found in crossovers)

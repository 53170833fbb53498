"""The sentences of a comparison: what the batch size does to the gain, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Crossover, Point
from launchscope.wording import listed_first, pct, pct_beside

_MOST_SIZES = 8

SAME_WORK = (
    "The batch size does not change the shapes of the step's inputs, so every point measured the "
    "same work."
)


def crossover_sentence(found: Crossover) -> str:
    """One sentence on where the gain crosses the threshold."""
    limit = pct(found.threshold_pct)
    gains = listed_first(
        [f"{_share(gain, found.threshold_pct)} at {size:,}" for size, gain in found.gains],
        _MOST_SIZES,
    )
    if not gains:
        return f"The size at which the gain falls below {limit} is not known."
    if found.batch_size is not None:
        size = found.batch_size
        about = f"{size:.1f}".removesuffix(".0") if size < 10 else f"{size:,.0f}"
        return f"The gain falls below {limit} at a batch size of about {about}: it is {gains}."
    return f"There is no one size at which the gain falls below {limit}: it is {gains}."


def _share(gain: float, threshold_pct: float) -> str:
    return f"a loss of {pct(-gain)}" if gain < 0 else pct_beside(gain, threshold_pct)


def headline_of(points: Sequence[Point], found: Crossover, same: bool | None) -> str:
    """What the points say together, in a sentence or two."""
    measured = [point.profile for point in points if point.profile is not None]
    if not measured:
        return "No point could be measured." if points else ""
    if same:
        return f"Nothing was compared. {SAME_WORK}"
    if all(profile.mode == "rehearsal" for profile in measured):
        return (
            "Nothing ran on a GPU, so only the structure is known. Whether a graph pays depends on "
            "times."
        )
    return crossover_sentence(found)

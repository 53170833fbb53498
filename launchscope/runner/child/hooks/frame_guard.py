"""Whether an optimizer step is still under way: torch calls no hook behind one that raised.

The frame of torch's wrapper around the step tells. Kept is its number and not the frame, which
would keep alive what a script frees after running out of memory.
"""

from __future__ import annotations

from types import CodeType, FrameType

# A later frame may get the same number, but not one of the same code that goes unnoticed: the
# hook before the step is called from each of those.
StepFrame = tuple[int, CodeType]


def is_running(step: StepFrame | None, frame: FrameType | None) -> bool:
    """Whether the frame of the step is `frame` or one of its callers."""
    while step is not None and frame is not None:
        if step == (id(frame), frame.f_code):
            return True
        frame = frame.f_back
    return False

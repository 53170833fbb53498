"""Times steps once more, a second or two after the timing pass: was the machine steady?"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from launchscope.model import TimingResult
from launchscope.runner.context import Context
from launchscope.runner.passes.timing import TimingPass

# In `Context.live` when the two looks do not agree.
LIVE_UNSTEADY = "unsteady"
_APART = 0.05


class SecondLook(TimingPass):
    """Half as many steps as the timing pass, behind trace and inspection.

    What slows a host down, other work or its clock, lasts for seconds, and then thirty steps in
    a row all feel it: their quartiles say nothing of it. A look at another moment does.
    """

    name = "timing_second"
    order = 35
    worth_a_run = False

    def finish(self, complete: bool) -> Any:
        result = super().finish(complete)
        first = self.context.result("timing")
        if result is not None and first is not None and _apart(first["gpu_end_ms"], result):
            self.context.live[LIVE_UNSTEADY] = True
        return result

    def start(self, context: Context) -> None:
        context.live.pop(LIVE_UNSTEADY, None)
        super().start(context)


def _apart(first_ends: list[float], second: TimingResult) -> bool:
    """Whether the median iterations of the two differ by more than noise usually makes them."""
    if len(first_ends) < 2 or len(second.gpu_end_ms) < 2:
        return False
    looks = [
        median(later - earlier for earlier, later in pairwise(ends))
        for ends in (first_ends, second.gpu_end_ms)
    ]
    return max(looks) > (1 + _APART) * min(looks)


PASS = SecondLook

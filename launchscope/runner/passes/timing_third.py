"""Times steps a third time, behind the captures, where two looks did not agree."""

from __future__ import annotations

from launchscope.runner.passes.timing import TimingPass
from launchscope.runner.passes.timing_second import LIVE_UNSTEADY


class ThirdLook(TimingPass):
    """As many steps as in the timing pass, so that of three looks the odd one is outvoted."""

    name = "timing_third"
    order = 80
    needs = LIVE_UNSTEADY
    worth_a_run = False


PASS = ThirdLook

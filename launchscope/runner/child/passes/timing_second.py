"""Times steps once more at the end of the run: did the machine keep its speed?"""

from __future__ import annotations

from launchscope.runner.child.passes.timing import LIVE_TIMED, TimingPass


class SecondTimingPass(TimingPass):
    """Half as many steps as the timing pass, in the same process, behind everything else.

    What slows a host down, other work or its clock, lasts for seconds, and then thirty steps in
    a row all feel it: their quartiles say nothing of it. A look at another moment does. It comes
    last so that a script with few steps loses nothing else to it.
    """

    name = "timing_second"
    order = 80
    needs = LIVE_TIMED
    worth_a_run = False


PASS = SecondTimingPass

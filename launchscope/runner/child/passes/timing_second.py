"""Times steps once more at the end of the run: did the machine keep its speed?"""

from __future__ import annotations

from launchscope.runner.child.passes.timing import TimingPass


class SecondTimingPass(TimingPass):
    """Half as many steps as the timing pass, in the same process, after everything else.

    What slows a host down (other work, its clock) lasts for seconds, and then thirty steps in a
    row all feel it: their quartiles do not show it. A second timing window does. It comes last
    so that a script with few steps loses nothing else to it. It is for the verdict on a replay.
    """

    name = "timing_second"


PASS = SecondTimingPass

"""Times steps once more at the end of the run: did the machine keep its speed?"""

from __future__ import annotations

from launchscope.model import Schedule
from launchscope.runner.child.passes.timing import TimingPass


class SecondTimingPass(TimingPass):
    """Half as many steps as the timing pass, in the same process, after everything else.

    What slows a host down (other work, its clock) lasts for seconds, and then thirty steps in a
    row all feel it: their quartiles do not show it. A second timing window does. It comes last
    so that a script with few steps loses nothing else to it. It is for the verdict on a replay.
    """

    name = "timing_second"
    label = "timing again"
    order = 80
    follows = TimingPass  # times of two processes cannot be compared
    worth_another_run = False
    fewest_steps = None

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return (schedule.timing + 1) // 2 if schedule.replay else 0


PASS = SecondTimingPass

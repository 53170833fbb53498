"""What a call of `graphed` takes on the host beside the replay itself.

It compares what the graph depends on with what it was, tensors one by one. The constants are the
line that `python -m tests.benchmarks.graphed_call` fits to 25 models (an H100 whose host did
nothing else, tests/benchmarks/results/graphed_call.json). Beside other work, each of them was about
twice as large.
"""

from __future__ import annotations

from launchscope.model import InspectResult

CALL_US = 72.0
PARAMETER_US = 0.32
TRAINED_US = 0.73  # more for a parameter that an optimizer has: it has a gradient


def graphed_call_us(inspected: InspectResult | None) -> float:
    """Host time in us. 0.0 where the number of parameters was not recorded."""
    if inspected is None or inspected.parameters is None or inspected.trained is None:
        return 0.0
    return CALL_US + PARAMETER_US * inspected.parameters + TRAINED_US * inspected.trained

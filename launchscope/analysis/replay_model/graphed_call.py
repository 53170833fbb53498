"""What a call of `graphed` takes on the host beside the replay itself.

It compares what the graph depends on with what it was: tensors of the model and of its optimizers
one by one. The constants are the line that `python -m tests.benchmarks.graphed_call` fits to 25
models (tests/benchmarks/results/graphed_call.json).
"""

from __future__ import annotations

from launchscope.model import InspectResult

CALL_US = 70.0
PARAMETER_US = 0.4
STATE_TENSOR_US = 0.2


def graphed_call_us(inspected: InspectResult | None) -> float:
    """Host time in us. 0.0 where the number of tensors was not recorded."""
    if inspected is None or inspected.parameters is None or inspected.state_tensors is None:
        return 0.0
    own = PARAMETER_US * inspected.parameters + STATE_TENSOR_US * inspected.state_tensors
    return CALL_US + own

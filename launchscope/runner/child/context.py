"""What the passes of one process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launchscope.model import Schedule, StepBoundary
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.nvtx_ranges import NvtxRanges
from launchscope.runner.protocol.folder import ChildFolder


@dataclass
class Context:
    """Mutable, one per child process."""

    torch: Any
    folder: ChildFolder
    schedule: Schedule
    hooks: Hooks
    nvtx: NvtxRanges
    boundary: StepBoundary
    on_gpu: bool
    side_stream: bool
    optimizers: list[Any]
    modules: list[Any]
    own_process: bool = True  # False: someone else's, which a failed capture would spoil
    step_signature: Any = None  # () -> index of the current step's kind
    # () -> shapes handed to the forward that opens the step, while `begin` runs
    step_inputs: Callable[[], str] = lambda: ""
    results: dict[str, Any] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=dict)  # objects one pass leaves for another
    earlier: dict[str, Any] = field(default_factory=dict)  # results of earlier runs

    def result(self, name: str) -> Any:
        """The plain result of a pass of this run or an earlier one, None if there is none."""
        return self.results.get(name, self.earlier.get(name))

    def kind(self) -> int:
        return 0 if self.step_signature is None else int(self.step_signature())

    def is_main_kind(self) -> bool:
        """Whether the current step is of the kind that is captured: the most frequent one."""
        shares = [kind.share_pct for kind in self.boundary.kinds]
        return not shares or self.kind() == shares.index(max(shares))

"""What the passes of one process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from launchscope.model import Schedule, StepBoundary, TensorShape
from launchscope.runner.child.capture.capture import LiveReplay
from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.nvtx_ranges import NvtxRanges
from launchscope.runner.child.ops.rehearsal import RehearsalFindings
from launchscope.runner.child.torch_types import Module, Optimizer, StorageRef, Torch
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plain import from_plain

if TYPE_CHECKING:
    from launchscope.runner.child.passes import Pass

Result = TypeVar("Result")


@dataclass
class Context:
    """Mutable, one per child process."""

    torch: Torch
    folder: ChildFolder
    schedule: Schedule
    hooks: Hooks
    nvtx: NvtxRanges
    boundary: StepBoundary
    on_gpu: bool
    side_stream: bool
    optimizers: list[Optimizer]
    modules: list[Module]
    own_process: bool = True  # False: a failed capture would spoil the caller's process
    step_kind: Callable[[], int] = lambda: 0  # index of the current step's kind
    # The tensors that are handed to the forward that opens the step, while `begin` runs.
    step_inputs: Callable[[], tuple[TensorShape, ...]] = tuple
    rehearsal: RehearsalFindings = field(default_factory=RehearsalFindings)
    strategy: Strategy | None = None  # the way to adopt graphs that the script runs under
    # What one pass leaves for the passes after it.
    results: dict[str, Any] = field(default_factory=dict)  # of this process, by pass name
    written_storages: set[StorageRef] = field(default_factory=set)
    replay: LiveReplay | None = None
    # Results of earlier runs by pass name, as JSON data.
    earlier: dict[str, Any] = field(default_factory=dict)

    def result(self, kind: type[Pass[Result]]) -> Result | None:
        """The result of a pass in this run or an earlier one; None if there is none."""
        if kind.name in self.results:
            result: Result = self.results[kind.name]
            return result
        earlier = self.earlier.get(kind.name)
        return None if earlier is None else from_plain(kind.result_type, earlier)

    def is_main_kind(self) -> bool:
        """Whether the current step is of the most frequent kind, the one that is captured."""
        shares = [kind.share_pct for kind in self.boundary.kinds]
        return not shares or self.step_kind() == shares.index(max(shares))

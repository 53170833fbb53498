"""What a pass is, what passes share, and finding them: one file each, exposing PASS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from launchscope.model import Reason, Schedule, StepBoundary, StepPart, TensorShape
from launchscope.plugins import load_plugins
from launchscope.runner.child.capture.capture import Capture, LiveReplay
from launchscope.runner.child.capture.nvtx_ranges import NvtxRanges
from launchscope.runner.child.capture.ranks import CaptureRanks
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags, before_capture
from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.step_pattern import Pattern
from launchscope.runner.child.facts.torch_types import (
    DType,
    Module,
    Optimizer,
    StorageRef,
    Tensor,
    Torch,
)
from launchscope.runner.child.rehearsal.findings import RehearsalFindings
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.passes import PASSES, PassInfo
from launchscope.runner.protocol.plain import from_plain

Result = TypeVar("Result")


@dataclass
class Context:
    """What the passes of one process share."""

    torch: Torch
    folder: ChildFolder
    schedule: Schedule
    hooks: Hooks
    nvtx: NvtxRanges
    boundary: StepBoundary
    on_gpu: bool
    side_stream: bool
    optimizers: Iterable[Optimizer]  # that the script still has, as often as it is iterated over
    modules: Iterable[Module]
    pattern: Pattern | None = None  # of the step; None: the script marks it
    device: int | None = None  # that the step computes on, if it is not the current one
    step_s: float = 0.0  # about, in the warm-up
    own_process: bool = True  # False: the caller's, which has to be usable afterwards
    step_kind: Callable[[], int] = lambda: 0  # index of the current step's kind
    # The tensors that are handed to the forward that opens the step, while `begin` runs.
    step_inputs: Callable[[], tuple[TensorShape, ...]] = tuple
    rehearsal: RehearsalFindings = field(default_factory=RehearsalFindings)
    strategy: Strategy | None = None  # the script runs under it
    # What one pass leaves for the passes after it.
    results: dict[str, Any] = field(default_factory=dict)  # of this process, by pass name
    written_storages: set[StorageRef] = field(default_factory=set)
    replay: LiveReplay | None = None
    earlier: dict[str, Any] = field(default_factory=dict)  # of earlier runs, as JSON data

    def __post_init__(self) -> None:
        self.ranks = CaptureRanks(self.torch)

    def result(self, kind: type[Pass[Result]]) -> Result | None:
        """The result of a pass in this run or an earlier one; None if there is none."""
        if kind.name in self.results:
            result: Result = self.results[kind.name]
            return result
        earlier = self.earlier.get(kind.name)
        return None if earlier is None else from_plain(kind.info().result_type, earlier)

    def on_device(self, tensor: Tensor) -> bool:
        """Whether a tensor is where the step computes."""
        return bool(tensor.device.type == ("cuda" if self.on_gpu else "cpu"))

    def on_device_of_step(self) -> AbstractContextManager[object]:
        """Inside, the device that the step computes on is the current one."""
        return nullcontext() if self.device is None else self.torch.cuda.device(self.device)

    def is_capturing(self) -> bool:
        """Whether what the step launches now is captured."""
        with self.on_device_of_step():
            return bool(self.torch.cuda.is_current_stream_capturing())

    def device_state(
        self,
        written: Mapping[StorageRef, DType] = MappingProxyType({}),
        without: Container[StorageRef] = (),
    ) -> DeviceState:
        """What a step changes on its device: the model's, what the inspection saw written, and
        these `written` storages."""
        further = {**dict.fromkeys(self.written_storages), **written}
        kept = {storage: further[storage] for storage in further if storage not in without}
        device = "cuda" if self.on_gpu else "cpu"
        return DeviceState(self.torch, self.modules, self.optimizers, kept, device)

    def release_replay(self) -> None:
        """Free the graph of the replay pass: another one needs its memory."""
        if self.replay is not None:
            self.replay.release()

    def make_capture(self) -> Capture:
        """Made between two steps, because of what a caller's process has to get back."""
        own = None
        if not self.own_process:
            own = before_capture(self.torch, self.modules, self.optimizers)
        return Capture(self.torch, own)

    def synchronize(self) -> None:
        """Wait for the GPU, if there is one."""
        if self.on_gpu:
            self.torch.cuda.synchronize()

    @property
    def has_kinds(self) -> bool:
        """Whether steps of several kinds are measured."""
        return bool(self.boundary.kinds)

    def is_main_kind(self) -> bool:
        """Whether the current step is of the most frequent kind, the one that is captured."""
        shares = [kind.share_pct for kind in self.boundary.kinds]
        return not shares or self.step_kind() == shares.index(max(shares))


@dataclass(frozen=True)
class Skip:
    """A pass has nothing to do in this script; `blocked`: until you fix the script; `failed`: it
    is known that it would fail."""

    status: Literal["skipped", "blocked", "failed"]
    reason: Reason


class Pass(ABC, Generic[Result]):
    """Observes some steps of the run in one way; the class attributes declare how.

    A pass starts at the end of a step and sees whole steps from then on: `begin` and `end`
    around each, `part_ended` between, until `end` returns True. `finish` then gives the result.
    A pass that raises is reported as failed and ends its process; another one runs the rest.
    """

    name: str  # of its row in PASSES
    captures = False  # a failure can end the process
    with_ranks = False  # if it captures: also in a script of several ranks, which do it together
    boundaries_only = False  # sees nothing between the two ends of a step
    # Its steps are timed: `begin` and `end` are called with as little around them as possible, so
    # that it counts its steps itself, as `seen`.
    direct = False
    # Beside the time of its steps; then it counts as hung. None: a common limit if it
    # captures, else none, because an evaluation between two steps takes as long as it does.
    time_limit_s: float | None = None

    context: Context  # this and the next are set by `start`
    wanted: int  # steps
    # Of a pass that captures: what records now, and what it has set in the optimizers.
    _capture: Capture | None = None
    _flags: OptimizerFlags | None = None

    @classmethod
    def info(cls) -> PassInfo:
        """The row of this pass in the table that the parent reads."""
        return PASSES[cls.name]

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        """How many steps the pass takes; 0 leaves it out."""
        return cls.info().steps(schedule)

    def skip(self, context: Context) -> Skip | None:
        """Why this pass has nothing to do in this script; None if it has."""
        return None

    def skipped(self, context: Context, skip: Skip) -> Result | None:
        """The result that says why the pass was skipped; None: the recording has none."""
        return None

    def start(self, context: Context) -> None:
        """The pass begins, between two steps."""
        self.context = context
        self.wanted = self.steps(context.schedule)

    @property
    def seen(self) -> int:
        """How many steps have ended, of a pass that is `direct`."""
        raise NotImplementedError

    @property
    def is_capturing(self) -> bool:
        """Whether a graph records what the script does now."""
        return self._capture is not None

    @abstractmethod
    def begin(self) -> None:
        """A step begins; the one before it may have been broken off by the script."""

    def part_ended(self, part: StepPart) -> None:
        """In a training step: the first backward begins, or the last one is over."""

    @abstractmethod
    def end(self) -> bool:
        """A step ended; True once the pass has seen enough of them."""

    @abstractmethod
    def finish(self, complete: bool) -> Result | None:
        """The result. Not `complete`: the script ended before the pass did."""

    def failed_inside_step(self, error: BaseException) -> Result | None:
        """The result if the pass made the script raise `error`; None if the error is its own."""
        return None

    def failed(self, error: BaseException) -> Result | None:
        """The result if the pass itself raised an error; None makes it a plain failure."""
        return None

    def undo(self) -> bool:
        """After a failed capture in a caller's process: take back what it has changed; False if
        CUDA does not work."""
        if self._capture is not None and not self._capture.repair():
            return False
        if self._flags is not None:
            self._flags.revert()
        return True


AnyPass: TypeAlias = Pass[Any]


def all_passes() -> list[type[AnyPass]]:
    """Every pass class of this package, in the order in which they run."""
    found = cast("tuple[type[AnyPass], ...]", load_plugins(__name__, "PASS", type))
    order = list(PASSES)
    return sorted(found, key=lambda entry: order.index(entry.name))


def in_time(schedule: Schedule, most: int) -> Schedule:
    """The schedule with no more than `most` steps for a pass, or the fewest that it needs."""
    fewer = {
        kind.name: min(kind.steps(schedule), max(kind.fewest_steps, most))
        for kind in PASSES.values()
        if kind.fewest_steps is not None
    }
    return replace(schedule, **fewer)  # type: ignore[arg-type]
